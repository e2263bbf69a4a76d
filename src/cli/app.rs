//! The tree of commands, and which of them runs.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory, Parser, Subcommand};

use super::{check, doctor, explain, import, install, list, logs, order, run, schema, send, status, top, unknown};
use crate::config;
use crate::runtime::ledger;

const EXAMPLES: &str = "Examples:
  mcp-proxy run --config mcp-proxy.toml     serve a host on standard input and output
  mcp-proxy check --start                   try every server and show how it does
  mcp-proxy list tools                      show the merged tools
  mcp-proxy call gh__search query=rust      call one of them
  mcp-proxy status                          how the running proxies and their servers do

Exit codes: 0 it went well, 1 it did not and says why, 2 the command line is wrong.";

const UNKNOWN: &str = "Examples:
  mcp-proxy unknown
  mcp-proxy unknown show u-0f3
  mcp-proxy unknown resolve u-0f3 --as done --note 'seen in the statement'";

const RESTART: &str = "Examples:
  mcp-proxy restart github
  mcp-proxy restart github --now --pid 4711

Pending calls may finish within drain_timeout, and new ones wait for the new process.";

const STOP: &str = "Example:
  mcp-proxy stop github

Its names leave the lists at once, and calls get -31011 until `mcp-proxy start github`.";

const MAN: &str = "Examples:
  mcp-proxy man --to ~/.local/share/man/man1
  mcp-proxy man | man -l -

Afterwards `man mcp-proxy` and `man mcp-proxy-install` show the pages.";

const CONFIG: &str =
    "The configuration file [default: $MCP_PROXY_CONFIG, else mcp-proxy.toml in your configuration directory]";

/// One MCP server over stdio in front of many
#[derive(Clone, Debug, Parser)]
#[command(name = "mcp-proxy", version, about, after_help = EXAMPLES, max_term_width = 100)]
pub struct App {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What every command takes.
#[derive(Clone, Debug, clap::Args)]
pub struct Global {
    /// The configuration file.
    #[arg(long, short, global = true, value_name = "FILE", help = CONFIG)]
    pub config: Option<PathBuf>,
    /// A profile of the configuration
    #[arg(long, global = true, value_name = "NAME")]
    pub profile: Option<String>,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Serve a host on standard input and output: what a host's configuration starts
    #[command(after_help = "Example:\n  mcp-proxy run --config ~/work/mcp-proxy.toml --profile review")]
    Run,
    /// Say what is wrong with the configuration, and with --start how its servers do
    Check(check::CheckArgs),
    /// List the merged tools, prompts, resources and templates
    List(list::ListArgs),
    /// Call a tool
    Call(send::CallArgs),
    /// Read a resource
    Read(send::ReadArgs),
    /// Get a prompt
    Prompt(send::PromptArgs),
    /// Start every server, look at every host, and say what is not well
    Doctor(doctor::DoctorArgs),
    /// Say what a name or URI stands for, or why it does not appear
    Explain(explain::ExplainArgs),
    /// Show the running proxies and how their servers do
    Status(status::StatusArgs),
    /// Watch the running proxies on one page
    Top(top::TopArgs),
    /// Show what servers wrote to stderr, and what the proxy says of them
    Logs(logs::LogsArgs),
    /// Give a server of the running proxies a new process
    #[command(after_help = RESTART)]
    Restart(order::EndArgs),
    /// Stop a server of the running proxies and take its names away
    #[command(after_help = STOP)]
    Stop(order::EndArgs),
    /// Start a server that was stopped, or that failed
    Start(order::StartArgs),
    /// Let the running proxies read their configuration anew
    Reload(order::ReloadArgs),
    /// Calls of which nobody knows whether they ran
    #[command(after_help = UNKNOWN)]
    Unknown(unknown::UnknownArgs),
    /// Turn the servers of a host into our configuration
    Import(import::ImportArgs),
    /// Put the proxy into a host's configuration
    Install(install::InstallArgs),
    /// Take the proxy out of a host's configuration
    Uninstall(install::UninstallArgs),
    /// Print the JSON Schema of the configuration file
    #[command(after_help = "Example:\n  mcp-proxy schema > mcp-proxy.schema.json")]
    Schema,
    /// Keep a secret in the system's keyring, for ${keyring:NAME}
    #[command(subcommand, after_help = "Example:\n  mcp-proxy secret set github-token")]
    Secret(schema::SecretCommand),
    /// Print the man page, or write one for each command
    #[command(after_help = MAN)]
    Man {
        /// Write the pages of all commands into this directory
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Print completions for a shell
    #[command(
        after_help = "Example:\n  mcp-proxy completions bash > ~/.local/share/bash-completion/completions/mcp-proxy"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// What hosts start, read without the grammar of all commands: that takes a millisecond of each start, and its code and
/// tables a megabyte for as long as the proxy lives. `None`: it may be anything else.
fn usual(mut args: impl Iterator<Item = OsString>) -> Option<App> {
    let mut app = App { global: Global { config: None, profile: None }, command: None };
    while let Some(arg) = args.next() {
        let arg = arg.into_string().ok()?;
        let (name, value) = match arg.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (arg.as_str(), None),
        };
        let mut value = || {
            let value = value.clone().or_else(|| args.next())?;
            (!value.is_empty() && !value.as_encoded_bytes().starts_with(b"-")).then_some(value)
        };
        match name {
            "run" if arg == "run" && app.command.is_none() => app.command = Some(Command::Run),
            "--config" if app.global.config.is_none() => app.global.config = Some(value()?.into()),
            "--profile" if app.global.profile.is_none() => app.global.profile = Some(value()?.into_string().ok()?),
            _ => return None,
        }
    }
    Some(app)
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let app = match usual(std::env::args_os().skip(1)).map_or_else(App::try_parse, Ok) {
        Ok(app) => app,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()) * 2);
        }
    };
    match dispatch(app) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "mcp-proxy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(app: App) -> anyhow::Result<ExitCode> {
    let App { global, command } = app;
    let mut out = std::io::stdout().lock();
    match command {
        None if std::io::stdin().is_terminal() => {
            writeln!(out, "{}", App::command().render_long_help())?;
            Ok(ExitCode::SUCCESS)
        }
        None | Some(Command::Run) => {
            drop(out);
            run::run(&global)
        }
        Some(Command::Check(args)) => check::run(&global, &args, &mut out),
        Some(Command::List(args)) => list::run(&global, &args, &mut out),
        Some(Command::Call(args)) => send::call(&global, &args, &mut out),
        Some(Command::Read(args)) => send::read(&global, &args, &mut out),
        Some(Command::Prompt(args)) => send::prompt(&global, &args, &mut out),
        Some(Command::Doctor(args)) => doctor::run(&global, &args, &mut out),
        Some(Command::Explain(args)) => explain::run(&global, &args, &mut out),
        Some(Command::Status(args)) => status::run(&args, &mut out),
        Some(Command::Top(args)) => {
            drop(out);
            top::run(&args)
        }
        Some(Command::Logs(args)) => logs::run(&args, &mut out),
        Some(Command::Restart(args)) => order::restart(&args, &mut out),
        Some(Command::Stop(args)) => order::stop(&args, &mut out),
        Some(Command::Start(args)) => order::start(&args, &mut out),
        Some(Command::Reload(args)) => order::reload(&args, &mut out),
        Some(Command::Unknown(args)) => {
            let dir =
                config::state_dir().context("the system names no directory for the ledger; set XDG_STATE_HOME")?;
            unknown::run(&args, &dir, ledger::unix_now(), &mut out)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Import(args)) => Ok(import::run(&args, &mut out, &mut std::io::stderr())?.into()),
        Some(Command::Install(args)) => Ok(install::run(&args, &mut out, &mut std::io::stderr())?.into()),
        Some(Command::Uninstall(args)) => Ok(install::run_uninstall(&args, &mut out, &mut std::io::stderr())?.into()),
        Some(Command::Schema) => {
            writeln!(out, "{:#}", config::schema())?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Secret(command)) => schema::secret(&command, &mut out),
        Some(Command::Man { to: None }) => {
            clap_mangen::Man::new(App::command()).render(&mut out)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Man { to: Some(dir) }) => {
            std::fs::create_dir_all(&dir).with_context(|| format!("can't make {}", dir.display()))?;
            clap_mangen::generate_to(App::command(), &dir)
                .with_context(|| format!("can't write to {}", dir.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Completions { shell }) => {
            clap_complete::generate(shell, &mut App::command(), "mcp-proxy", &mut out);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_without_the_grammar_is_what_the_grammar_says() {
        let words =
            ["run", "--config", "--config=a", "--profile", "--profile=b=c", "--profile=", "x", "", "-c", "--help"];
        let mut lines: Vec<Vec<&str>> = vec![Vec::new()];
        let mut read = 0;
        for length in 0..4 {
            for line in &lines {
                let Some(app) = usual(line.iter().map(OsString::from)) else { continue };
                let by_grammar = App::try_parse_from(std::iter::once("mcp-proxy").chain(line.iter().copied()));
                assert_eq!(by_grammar.map(|app| format!("{app:?}")).ok(), Some(format!("{app:?}")), "{line:?}");
                read += 1;
            }
            if length < 3 {
                let longer = |line: &Vec<&'static str>| words.map(|word| [&line[..], &[word]].concat());
                lines = lines.iter().flat_map(longer).collect();
            }
        }
        assert!(read > 20, "only {read}");
        let usual = |line: &[&str]| usual(line.iter().map(OsString::from)).is_some();
        assert!(usual(&[]) && usual(&["run", "--config", "x"]) && usual(&["--config=x", "--profile", "y", "run"]));
        assert!(!usual(&["status"]) && !usual(&["--version"]));
    }
}
