//! `mcp-proxy status`: how the running proxies and their servers do.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use super::control::{self, Which};
use crate::runtime::control::Request;

/// Of which, and how it is told.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  mcp-proxy status
  mcp-proxy status --watch
  mcp-proxy status --json | jq '.[].servers[] | select(.state != \"ready\")'")]
pub struct StatusArgs {
    #[command(flatten)]
    which: Which,
    /// Print a JSON array, one element a proxy; with --watch one array a line
    #[arg(long)]
    json: bool,
    /// Look again every second, until interrupted
    #[arg(long, short)]
    watch: bool,
}

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
/// `--pid` names no running proxy.
pub fn run(args: &StatusArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    loop {
        let (proxies, failed) = collect(args.which)?;
        if args.json {
            let array = Value::from(proxies);
            if args.watch { writeln!(out, "{array}")? } else { writeln!(out, "{array:#}")? }
        } else {
            if args.watch && std::io::stdout().is_terminal() {
                // Home, and clear to the end: no flicker, and no colour.
                write!(out, "\x1b[H\x1b[J")?;
            }
            print(&proxies, out)?;
        }
        out.flush()?;
        if !args.watch {
            return Ok(ExitCode::from(u8::from(failed)));
        }
        std::thread::sleep(LOOK);
    }
}

/// The status of each; the second tells whether one did not answer.
fn collect(which: Which) -> anyhow::Result<(Vec<Value>, bool)> {
    let mut proxies = Vec::new();
    let mut failed = false;
    for (pid, mut line) in control::running(which)? {
        match line.ask(&Request::Status) {
            Ok(status) => proxies.push(status),
            Err(error) => {
                failed = true;
                writeln!(std::io::stderr(), "mcp-proxy: the proxy of process {pid} can't be asked: {error:#}")?;
            }
        }
    }
    Ok((proxies, failed))
}

fn print(proxies: &[Value], out: &mut dyn Write) -> anyhow::Result<()> {
    if proxies.is_empty() {
        writeln!(out, "No proxy is running.")?;
    }
    for proxy in proxies {
        let host = &proxy["host"];
        let host = match host["name"].as_str() {
            Some(name) => format!("{name} {}", host["version"].as_str().unwrap_or_default()),
            None => "no host yet".to_owned(),
        };
        writeln!(
            out,
            "Process {}: mcp-proxy {}, serving {}, since {}, with {}",
            proxy["pid"],
            proxy["version"].as_str().unwrap_or_default(),
            host.trim(),
            proxy["startedAt"].as_str().unwrap_or_default(),
            proxy["config"].as_str().unwrap_or_default(),
        )?;
        writeln!(out, "{}", table(proxy))?;
        let servers = proxy["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
        for server in servers.iter().filter(|server| server["state"] != "ready") {
            if let Some(error) = server["lastError"].as_str() {
                writeln!(out, "{}: {error}", server["name"].as_str().unwrap_or_default())?;
            }
        }
        if let Some(count) = proxy["unknown"].as_u64().filter(|count| *count > 0) {
            writeln!(out, "{count} calls of unknown outcome; `mcp-proxy unknown` lists them.")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn table(proxy: &Value) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        "server", "state", "gen", "pid", "tools", "pending", "calls", "errors", "unknown", "restarts", "p50", "p99",
    ]);
    for server in proxy["servers"].as_array().into_iter().flatten() {
        let text = |key: &str| match &server[key] {
            Value::String(text) => text.clone(),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        let ms = |key: &str| server["callMs"][key].as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
        let mut row: Vec<String> =
            ["name", "state", "generation", "pid", "tools", "pending", "calls", "errors", "unknown", "restarts"]
                .map(text)
                .into();
        row.extend([ms("p50"), ms("p99")]);
        table.add_row(row);
    }
    table
}
