//! `mcp-proxy restart`, `stop`, `start`, `reload`: orders to running proxies.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;

use super::control::{self, Which};
use crate::engine::hub::Command;
use crate::runtime::control::Request;

/// Which server is restarted or stopped, and how.
#[derive(Clone, Debug, Args)]
pub struct EndArgs {
    /// The server's key in the configuration
    server: String,
    /// Do not wait for pending calls: they end with an unknown outcome
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    which: Which,
}

/// Which server is started.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  mcp-proxy start github")]
pub struct StartArgs {
    /// The server's key in the configuration
    server: String,
    #[command(flatten)]
    which: Which,
}

/// Which proxies read their configuration anew.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  mcp-proxy reload

What is wrong with the new configuration is said in the log; `mcp-proxy check` says it beforehand.")]
pub struct ReloadArgs {
    #[command(flatten)]
    which: Which,
}

/// Restarts a server.
///
/// # Errors
/// No proxy runs.
pub fn restart(args: &EndArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    order(Command::Restart, &args.server, args.now, args.which, out)
}

/// Stops a server.
///
/// # Errors
/// No proxy runs.
pub fn stop(args: &EndArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    order(Command::Stop, &args.server, args.now, args.which, out)
}

/// Starts a server.
///
/// # Errors
/// No proxy runs.
pub fn start(args: &StartArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    order(Command::Start, &args.server, false, args.which, out)
}

/// Reads the configuration anew.
///
/// # Errors
/// No proxy runs.
pub fn reload(args: &ReloadArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    each(&Request::Reload, "reads its configuration anew", args.which, out)
}

fn order(command: Command, server: &str, now: bool, which: Which, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let what = match command {
        Command::Restart => format!("restarts {server}"),
        Command::Stop => format!("stops {server}; `mcp-proxy start {server}` starts it again"),
        Command::Start => format!("starts {server}"),
    };
    each(&Request::Order { command, server: server.to_owned(), now }, &what, which, out)
}

/// Tells each proxy; one that refuses does not keep the others from it.
fn each(request: &Request, what: &str, which: Which, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut failed = false;
    for (pid, mut line) in control::some_running(which)? {
        match line.ask(request) {
            Ok(_) => writeln!(out, "The proxy of process {pid} {what}.")?,
            Err(error) => {
                failed = true;
                writeln!(std::io::stderr(), "mcp-proxy: the proxy of process {pid} refuses: {error:#}")?;
            }
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}
