//! `mcp-proxy explain`: what a name or URI stands for, or why it does not appear.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::app::Global;
use super::client::{self, Starts};
use super::control::{self, Which};
use crate::runtime::control::Request;
use crate::runtime::desk::DeskEvent;

/// Which name, and whom to ask.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  mcp-proxy explain gh__search_issues
  mcp-proxy explain delete_repository
  mcp-proxy explain gh+repo://octo/readme

It takes a name as the host sees it, or the server's own. Without --pid the configuration and the cache are asked,
and servers of which nothing is known are started.")]
pub struct ExplainArgs {
    /// A tool, prompt, resource or template
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    which: Which,
}

/// Runs the command; the exit code says whether the host sees something under that name.
///
/// # Errors
/// The configuration can't be used, or the proxy of `--pid` does not run.
pub fn run(global: &Global, args: &ExplainArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let told = if args.which.pid.is_some() {
        let mut proxies = control::running(args.which)?;
        let (_, line) = proxies.first_mut().expect("a process that does not run is an error");
        line.ask(&Request::Explain { name: args.name.clone() })?
    } else {
        client::with(global, Starts::Needed, "asking the servers", async |client| {
            client.open().await?;
            for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
                client.ask(method, "{}").await?;
            }
            client.inquire(|reply| DeskEvent::Explain(args.name.clone(), reply)).await
        })?
    };
    if args.json {
        writeln!(out, "{told:#}")?;
    } else {
        print(&told, out)?;
    }
    let shown = told["found"].as_array().is_some_and(|found| found.iter().any(|one| one["shown"] == true));
    Ok(ExitCode::from(u8::from(!shown)))
}

fn print(told: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let texts = |value: &Value| {
        let texts = value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned));
        texts.collect::<Vec<_>>()
    };
    let found = told["found"].as_array().map(Vec::as_slice).unwrap_or_default();
    for one in found {
        let text = |key: &str| one[key].as_str().unwrap_or_default();
        let verb = if one["shown"] == true { "The host sees" } else { "The host does not see" };
        let what = if text("exposed").is_empty() { text("original") } else { text("exposed") };
        writeln!(out, "{verb} the {} {what}.", text("kind"))?;
        writeln!(out, "  server    {} ({})", text("server"), text("state"))?;
        writeln!(out, "  its name  {}", text("original"))?;
        for note in texts(&one["notes"]) {
            writeln!(out, "  {note}")?;
        }
    }
    if found.is_empty() {
        writeln!(out, "Nothing is called {}.", told["name"].as_str().unwrap_or_default())?;
        for hint in texts(&told["hints"]) {
            writeln!(out, "  {hint}")?;
        }
        let nearest = texts(&told["nearest"]);
        if !nearest.is_empty() {
            writeln!(out, "  nearest: {}", nearest.join(", "))?;
        }
    }
    Ok(())
}
