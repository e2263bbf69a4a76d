//! What must hold of the tree itself: layers, lengths, and that what is written for people is true.
#![allow(clippy::unwrap_used, reason = "also in the helpers of tests a panic is the right end")]

use std::path::{Path, PathBuf};
use std::process::Command;

use mcp_proxy::config;

const PROXY: &str = env!("CARGO_BIN_EXE_mcp-proxy");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_in(folder: &str, extension: &str) -> Vec<PathBuf> {
    let (mut found, mut todo) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "{folder}: nothing was found");
    found
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// The code of a source file, up to its tests and without comments, as (number of the line, text).
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.to_owned()));
    let lines = lines.take_while(|(_, line)| line != "mod tests {");
    lines.filter(|(_, line)| !line.trim_start().starts_with("//")).collect()
}

fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn imports_go_downwards_only() {
    // A layer and what it may use of ours besides itself.
    let layers: [(&str, &[&str]); 6] = [
        ("wire", &[]),
        ("config", &[]),
        ("hosts", &["config"]),
        ("engine", &["wire", "config", "hosts"]),
        ("runtime", &["wire", "config", "hosts", "engine"]),
        ("cli", &["wire", "config", "hosts", "engine", "runtime"]),
    ];
    let mut faults = Vec::new();
    for (layer, below) in layers {
        for path in files_in(&format!("src/{layer}"), "rs").iter().filter(|path| !is_test(path)) {
            for (number, line) in code(path) {
                for used in line.split("crate::").skip(1) {
                    let used: String = used.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                    let is_layer = layers.iter().any(|(name, _)| *name == used);
                    if is_layer && used != layer && !below.contains(&used.as_str()) {
                        faults.push(format!("{}:{number}: {layer} uses {used}", shown(path)));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn what_decides_has_no_clock_and_does_nothing() {
    let banned = [
        "tokio::",
        "std::fs",
        "std::io",
        "std::net",
        "std::env",
        "std::process",
        "std::thread",
        "Instant::now",
        "SystemTime::now",
    ];
    let mut faults = Vec::new();
    for path in ["src/wire", "src/engine"].iter().flat_map(|layer| files_in(layer, "rs")) {
        if is_test(&path) {
            continue;
        }
        for (number, line) in code(&path) {
            let used = banned.iter().filter(|used| line.contains(**used));
            faults.extend(used.map(|used| format!("{}:{number}: {used}", shown(&path))));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn files_are_short_enough_to_be_read() {
    let lines = |path: &PathBuf| std::fs::read_to_string(path).unwrap().lines().count();
    let long: Vec<String> = files_in("src", "rs")
        .iter()
        .filter(|path| lines(path) > 600)
        .map(|path| format!("{}: {} lines", shown(path), lines(path)))
        .collect();
    assert!(long.is_empty(), "600 lines are enough for a file: {long:#?}");
}

/// The fenced blocks of a page: their language, the line where they begin, their text.
fn blocks(page: &Path) -> Vec<(String, usize, String)> {
    let text = std::fs::read_to_string(page).unwrap();
    let (mut blocks, mut open) = (Vec::new(), None::<(String, usize, String, usize)>);
    for (number, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(language)) => open = Some((language.to_owned(), number + 1, String::new(), indent)),
            (Some(_), Some(_)) => {
                let (language, at, body, _) = open.take().unwrap();
                blocks.push((language, at, body));
            }
            (Some((.., body, indent)), None) => {
                body.push_str(line.get(*indent..).unwrap_or_default());
                body.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a block has no end", shown(page));
    blocks
}

fn pages() -> Vec<PathBuf> {
    let mut pages = files_in("docs", "md");
    pages.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(|name| root().join(name)));
    pages
}

#[test]
fn every_toml_block_is_a_configuration_that_holds() {
    let (mut faults, mut parsed) = (Vec::new(), 0);
    for page in pages() {
        for (language, line, text) in blocks(&page) {
            // Codex has a file in TOML of its own.
            if language != "toml" || text.contains("[mcp_servers.") {
                continue;
            }
            parsed += 1;
            // A part of a file may be shown; a whole one has a server.
            let server = if text.contains("[servers.") { "" } else { "[servers.any]\ncommand = \"any\"\n" };
            let found = config::parse(&page, &(text + server), None);
            faults.extend(
                found.faults.iter().map(|fault| format!("{}:{}: {}", shown(&page), line + fault.line, fault.message)),
            );
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(parsed >= 2, "only {parsed} blocks: does this test still see them?");
}

/// `docs/hosts.md` is written from the table of hosts.
#[test]
fn the_entries_of_the_readme_are_those_of_the_table() {
    let table = std::fs::read_to_string(root().join("docs/hosts.md")).unwrap();
    let mut seen = 0;
    for (language, line, text) in blocks(&root().join("README.md")) {
        if text.contains("/opt/tools/bin/") && language != "sh" {
            seen += 1;
            assert!(table.contains(&format!("```{language}\n{text}```")), "README.md:{line}: no host's entry");
        }
    }
    assert_eq!(seen, 7);
}

#[test]
fn the_commands_of_the_readme_exist() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let lines = blocks(&root().join("README.md"));
    let lines: String =
        lines.iter().filter(|(language, ..)| language == "sh").map(|(.., text)| text.as_str()).collect();
    let in_blocks = lines.lines().filter_map(|line| line.strip_prefix("mcp-proxy "));
    let in_text = text.split("`mcp-proxy ").skip(1);
    let by_cargo = lines.split("--config mcp-proxy.toml ").skip(1);
    let first = |rest: &str| rest.split(|c: char| !c.is_ascii_lowercase()).next().unwrap().to_owned();
    let mut commands: Vec<String> = in_blocks.chain(in_text).chain(by_cargo).map(first).collect();
    commands.sort_unstable();
    commands.dedup();
    assert!(commands.len() >= 7, "{commands:?}");
    for command in commands {
        let told = Command::new(PROXY).args([&command, "--help"]).output().unwrap();
        assert!(told.status.success(), "mcp-proxy {command}: {}", String::from_utf8_lossy(&told.stderr));
    }
}

#[test]
fn links_to_files_lead_somewhere() {
    let mut faults = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            let file = link.split('#').next().unwrap();
            let is_file = !file.is_empty() && !link.contains("://") && !link.contains(' ');
            if is_file && !page.parent().unwrap().join(file).exists() {
                faults.push(format!("{}: {link}", shown(&page)));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
