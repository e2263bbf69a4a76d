//! `mcp-proxy explain`: what a name or URI stands for, or why it does not appear.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;

use super::app::Global;
use super::arguments::{self, Usage};
use super::client::{self, Starts};
use super::control::{self, Line, Which};
use crate::config;
use crate::runtime::control::Request;
use crate::runtime::desk::DeskEvent;

/// Which name, and whom to ask.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  mcp-proxy explain gh__search_issues
  mcp-proxy explain delete_repository
  mcp-proxy explain gh+repo://octo/readme

It takes a name as the host sees it, or the server's own, and shows a tool's arguments with a call of it. A running proxy
with the same configuration is asked; without one the configuration and the cache, and servers of which nothing is known
are started.")]
pub struct ExplainArgs {
    /// A tool, prompt, resource or template
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    which: Which,
}

/// What is known of a name, and by whom.
struct Told {
    /// As [`Hub::explain`](crate::engine::hub::Hub::explain) has it.
    answer: Value,
    /// The merged lists as JSON text, for the arguments.
    catalog: String,
    /// The process that runs the servers; `None`: they are not running.
    pid: Option<u32>,
}

/// Runs the command; the exit code says whether the host sees something under that name.
///
/// # Errors
/// The configuration can't be used, or the proxy of `--pid` does not run.
pub fn run(global: &Global, args: &ExplainArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let Told { mut answer, catalog, pid } = match of_running(global, args)? {
        Some(told) => told,
        None => of_configuration(global, &args.name)?,
    };
    let found = answer["found"].as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    for one in found {
        let usage = Usage::find(&catalog, &one["kind"], &one["exposed"]);
        one["arguments"] = usage.as_ref().map_or(Value::Null, Usage::to_json);
        one["example"] = usage.map(|usage| usage.example).into();
    }
    answer["pid"] = pid.into();
    if args.json {
        writeln!(out, "{answer:#}")?;
    } else {
        print(&answer, out)?;
    }
    let shown = answer["found"].as_array().is_some_and(|found| found.iter().any(|one| one["shown"] == true));
    Ok(ExitCode::from(u8::from(!shown)))
}

/// The answer of a running proxy: of the one that `--pid` names, else of the first with our configuration that knows
/// the name. A profile is another view, so its proxy has to be named.
fn of_running(global: &Global, args: &ExplainArgs) -> anyhow::Result<Option<Told>> {
    let named = args.which.pid.is_some();
    if global.profile.is_some() && !named {
        return Ok(None);
    }
    let config = config::config_path(global.config.as_deref()).ok().and_then(|path| path.canonicalize().ok());
    for (pid, mut line) in control::running(args.which)? {
        let told = tell(&mut line, pid, &args.name, |theirs| {
            // A relative path is relative to a directory that is not known here.
            named || theirs.is_absolute() && theirs.canonicalize().ok() == config && config.is_some()
        });
        match told {
            Ok(Some(told)) if named || told.answer["found"].as_array().is_some_and(|found| !found.is_empty()) => {
                return Ok(Some(told));
            }
            Err(error) if named => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(None)
}

fn tell(line: &mut Line, pid: u32, name: &str, is_ours: impl Fn(&Path) -> bool) -> anyhow::Result<Option<Told>> {
    let status = line.ask(&Request::Status)?;
    if !is_ours(Path::new(status["config"].as_str().unwrap_or_default())) {
        return Ok(None);
    }
    let answer = line.ask(&Request::Explain { name: name.to_owned() })?;
    // An older one has no word for it; then the arguments are left out.
    let catalog = line.ask(&Request::Catalog).ok();
    let catalog = catalog.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(Some(Told { answer, catalog, pid: Some(pid) }))
}

fn of_configuration(global: &Global, name: &str) -> anyhow::Result<Told> {
    client::with(global, Starts::Needed, "asking the servers", async |client| {
        client.open().await?;
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            client.ask(method, "{}").await?;
        }
        let answer = client.inquire(|reply| DeskEvent::Explain(name.to_owned(), reply)).await?;
        let catalog = client.inquire(DeskEvent::Catalog).await?;
        Ok(Told { answer, catalog: catalog.as_str().unwrap_or_default().to_owned(), pid: None })
    })
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
        // What this command started itself has ended with it.
        let state = match (told["pid"].as_u64(), text("state")) {
            (Some(pid), state) => format!("{state}, in process {pid}"),
            (None, "ready" | "stopped" | "starting") => "not running here".to_owned(),
            (None, state) => format!("{state}, not running here"),
        };
        writeln!(out, "  server    {} ({state})", text("server"))?;
        writeln!(out, "  its name  {}", text("original"))?;
        for note in texts(&one["notes"]) {
            writeln!(out, "  {note}")?;
        }
        arguments::print(&one["arguments"], out)?;
        if !text("example").is_empty() {
            writeln!(out, "  example   {}", text("example"))?;
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
