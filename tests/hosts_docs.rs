//! The book's page of hosts, which is written from the table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mcp_proxy::hosts::install::{Entry, Request};
use mcp_proxy::hosts::{Format, HOSTS, Host, Known, Platform, Surroundings};

const BINARY: &str = "/opt/tools/bin/mcp-proxy";

/// A host's page in the book.
fn page(host: &'static Host) -> String {
    let mut page = format!("\n## {}\n\n`mcp-proxy install {}`\n\n", host.title, host.id);
    let places = [("macOS", host.places.macos), ("Linux", host.places.linux), ("Windows", host.places.windows)];
    if host.places.macos == host.places.windows {
        let list: Vec<String> = host.places.linux.iter().map(|template| format!("`{template}`")).collect();
        if !list.is_empty() {
            let _ = writeln!(page, "- on every platform: {}", list.join(", else "));
        }
    }
    let places = places.iter().filter(|_| host.places.macos != host.places.windows);
    for (platform, templates) in places.filter(|(_, templates)| !templates.is_empty()) {
        let list: Vec<String> = templates.iter().map(|template| format!("`{template}`")).collect();
        let _ = writeln!(page, "- {platform}: {}", list.join(", else "));
    }
    if let Some(file) = host.project_file {
        let _ = writeln!(page, "- in a project (`--project DIR`): `{file}`");
    }
    let syntax = match host.format {
        Format::Json | Format::Paste => "json",
        Format::Jsonc => "jsonc",
        Format::Toml => "toml",
        Format::Yaml => "yaml",
    };
    let around = Surroundings { platform: Platform::Linux, home: PathBuf::new(), vars: BTreeMap::new() };
    let request = Request {
        host,
        around: &around,
        entry: Entry { name: "hub".to_owned(), command: BINARY.to_owned(), args: vec!["run".to_owned()] },
        file: None,
        use_cli: false,
        config: PathBuf::new(),
    };
    let _ = writeln!(page, "\n```{syntax}\n{}```\n\n{}", request.snippet(), host.after);
    if let Some(cli) = host.cli {
        let line = format!("{} {}", cli.program, cli.add.join(" "));
        let line = line.replace("{name}", "hub").replace("{command}", BINARY).replace("{args}", "run");
        let _ = writeln!(page, "Its own command is used where it is found: `{}`.", line.replace("{json}", "'{…}'"));
    }
    let seconds = |time: Option<Duration>| time.map(|time| format!("{} s", time.as_secs_f64()));
    let facts = [
        seconds(host.start_limit).map(|time| format!("It waits {time} for a start.")),
        seconds(host.call_limit)
            .map(|time| format!("A call is ended by the proxy after {time}, before the host gives up.")),
        seconds(host.list_wait)
            .map(|time| format!("The proxy answers the first list within {time}, since the host is hasty.")),
        host.max_tools.map(|most| format!("It takes {most} tools, of all its servers together.")),
        host.max_name.map(|limit| format!("A tool's name may have {} characters, as we show it.", limit.room("hub"))),
        (host.pages == Known::No).then(|| "It reads the first page of a list only.".to_owned()),
        (host.list_changed == Known::No).then(|| "It does not notice new tools before its next start.".to_owned()),
    ];
    let facts: Vec<String> =
        facts.into_iter().flatten().chain(host.notes.iter().map(|note| (*note).to_owned())).collect();
    if !facts.is_empty() {
        page.push('\n');
    }
    for fact in facts {
        let _ = writeln!(page, "- {fact}");
    }
    let _ = writeln!(page, "\nUndo: `mcp-proxy uninstall {}`.", host.id);
    page
}

/// The pages of the hosts are written from the table; `UPDATE_DOCS=1` writes them anew.
#[test]
fn the_book_tells_what_the_table_knows() {
    const MARK: &str =
        "<!-- From here on written from the table of hosts by `UPDATE_DOCS=1 cargo test --test hosts_docs`. -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/hosts.md");
    let text = fs::read_to_string(&path).expect("the book has the page").replace("\r\n", "\n");
    let (head, pages) = text.split_once(MARK).expect("the mark is there");
    let expected: String = HOSTS.iter().map(page).collect();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{head}{MARK}{expected}")).expect("written");
    } else {
        assert!(pages == expected, "docs/hosts.md is behind the table: UPDATE_DOCS=1 cargo test --test hosts_docs");
    }
}
