//! `mcp-proxy logs`: what servers wrote to their stderr, and what the proxy says of them.

use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc;

use clap::Args;
use serde_json::Value;

use super::control::{self, Which};
use crate::runtime::control::Request;

/// Of which server, and how.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  mcp-proxy logs
  mcp-proxy logs github -f
  mcp-proxy logs github --json

The last 1,000 lines of each server are kept, secrets masked. A line of the server's own stderr has a | before it.")]
pub struct LogsArgs {
    /// Only lines about this server, by its key in the configuration
    server: Option<String>,
    /// Go on with what comes
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    which: Which,
}

/// Runs the command.
///
/// # Errors
/// No proxy runs, or none has a server of that name.
pub fn run(args: &LogsArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut proxies = control::some_running(args.which)?;
    if let Some(server) = &args.server {
        let mut known = Vec::new();
        for (_, line) in &mut proxies {
            let status = line.ask(&Request::Status)?;
            let names = status["servers"].as_array().into_iter().flatten();
            known.extend(names.filter_map(|server| server["name"].as_str().map(str::to_owned)));
        }
        known.sort();
        known.dedup();
        anyhow::ensure!(
            known.contains(server),
            "no server is named \"{server}\"; the servers are: {}",
            known.join(", ")
        );
    }
    let several = proxies.len() > 1;
    let request = Request::Logs { server: args.server.clone(), follow: args.follow };
    let (send, lines) = mpsc::sync_channel::<(u32, anyhow::Result<Value>)>(64);
    for (pid, mut line) in proxies {
        let (request, send, follow) = (request.clone(), send.clone(), args.follow);
        std::thread::spawn(move || {
            let asked = line.say(&request).and_then(|()| if follow { Ok(line.wait_for_ever()?) } else { Ok(()) });
            if let Err(error) = asked {
                let _ = send.send((pid, Err(error)));
                return;
            }
            loop {
                let next = line.next_line().transpose();
                let is_over = !matches!(next, Some(Ok(_)));
                if next.is_none_or(|next| send.send((pid, next)).is_err()) || is_over {
                    return;
                }
            }
        });
    }
    drop(send);
    let mut failed = false;
    for (pid, line) in lines {
        match line {
            Ok(mut line) if args.json => {
                line["pid"] = pid.into();
                writeln!(out, "{line}")?;
            }
            Ok(line) => print(&line, several.then_some(pid), out)?,
            // The end of a proxy that is followed is no fault.
            Err(_) if args.follow => writeln!(std::io::stderr(), "The proxy of process {pid} ended.")?,
            Err(error) => {
                failed = true;
                writeln!(std::io::stderr(), "mcp-proxy: the proxy of process {pid}: {error:#}")?;
            }
        }
        out.flush()?;
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn print(line: &Value, pid: Option<u32>, out: &mut dyn Write) -> anyhow::Result<()> {
    let text = |key: &str| line[key].as_str().unwrap_or_default();
    let pid = pid.map(|pid| format!("[{pid}] ")).unwrap_or_default();
    let server = if text("server").is_empty() { "mcp-proxy" } else { text("server") };
    let said = calm(text("text"));
    match line["stderr"].as_bool() {
        Some(true) => writeln!(out, "{pid}{} {server} | {said}", text("time"))?,
        _ => writeln!(out, "{pid}{} {server} {:5} {said}", text("time"), text("level"))?,
    }
    Ok(())
}

/// What a server writes can't steer the terminal.
pub(super) fn calm(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}
