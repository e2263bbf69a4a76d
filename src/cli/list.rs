//! `mcp-proxy list`: the merged view.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use super::app::Global;
use super::client::{self, Starts};
use crate::runtime::desk::DeskEvent;

const EXAMPLES: &str = "Examples:
  mcp-proxy list
  mcp-proxy list tools --json

`mcp-proxy explain NAME` shows the arguments of a tool or prompt.";

/// Which list, and how.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ListArgs {
    /// Only one kind
    #[arg(value_enum)]
    kind: Option<KindArg>,
    /// Print the protocol's objects, each with its server and its original name
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KindArg {
    Tools,
    Prompts,
    Resources,
    Templates,
}

/// What the table shows of an entry; all else is skipped unread, for it may hold numbers that fit no type of ours.
#[derive(serde::Deserialize)]
struct Entry {
    name: Option<String>,
    uri: Option<String>,
    #[serde(rename = "uriTemplate")]
    uri_template: Option<String>,
    server: String,
    original: Option<String>,
    title: Option<String>,
    description: Option<String>,
}

/// The lists, by the name of their argument, their member, and their entries' own name.
const KINDS: [(KindArg, &str, &str); 4] = [
    (KindArg::Tools, "tools", "name"),
    (KindArg::Prompts, "prompts", "name"),
    (KindArg::Resources, "resources", "uri"),
    (KindArg::Templates, "resourceTemplates", "uriTemplate"),
];

/// Runs the command.
///
/// # Errors
/// The configuration can't be used.
pub fn run(global: &Global, args: &ListArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let (text, status) = client::with(global, Starts::All, "starting the servers", async |client| {
        client.open().await?;
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            client.ask(method, "{}").await?;
        }
        let catalog = client.inquire(DeskEvent::Catalog).await?;
        let status = client.inquire(DeskEvent::Status).await?;
        Ok((catalog.as_str().unwrap_or_default().to_owned(), status))
    })?;
    let wanted = KINDS.iter().filter(|(kind, ..)| args.kind.is_none_or(|wanted| wanted == *kind));
    if args.json {
        print_json(&text, wanted, out)?;
        return missing(&status);
    }
    let mut lists: BTreeMap<String, Vec<Entry>> = serde_json::from_str(&text)?;
    for (_, member, _) in wanted {
        let entries = lists.remove(*member).unwrap_or_default();
        if entries.is_empty() && args.kind.is_none() {
            continue;
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header([*member, "server", "original", "description"]);
        for entry in entries {
            let about = entry.description.or(entry.title).unwrap_or_default();
            let name = entry.uri.or(entry.uri_template).or(entry.name).unwrap_or_default();
            table.add_row([
                name,
                entry.server,
                entry.original.unwrap_or_default(),
                about.lines().next().unwrap_or_default().to_owned(),
            ]);
        }
        writeln!(out, "{table}\n")?;
    }
    missing(&status)
}

/// A list without what a server offers is not whole.
fn missing(status: &Value) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::from(u8::from(client::tell_missing(status, |_| true)?)))
}

/// The arrays as they are, byte for byte.
fn print_json<'a>(
    text: &str,
    wanted: impl Iterator<Item = &'a (KindArg, &'a str, &'a str)>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let lists: BTreeMap<String, Box<serde_json::value::RawValue>> = serde_json::from_str(text)?;
    let members: Vec<String> =
        wanted.filter_map(|(_, member, _)| Some(format!("\"{member}\":{}", lists.get(*member)?))).collect();
    writeln!(out, "{{{}}}", members.join(","))?;
    Ok(())
}
