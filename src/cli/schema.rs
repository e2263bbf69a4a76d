//! `mcp-proxy secret`: values for `${keyring:NAME}`.

use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;

use clap::Subcommand;

use crate::config;

/// What to do with the keyring.
#[derive(Clone, Debug, Subcommand)]
pub enum SecretCommand {
    /// Keep a value; it is read from a prompt, or from standard input
    #[command(after_help = "Examples:
  mcp-proxy secret set github-token
  pass show github | mcp-proxy secret set github-token")]
    Set {
        /// The name, as in ${keyring:NAME}
        name: String,
    },
    /// Forget a value
    #[command(after_help = "Example:\n  mcp-proxy secret delete github-token")]
    Delete {
        /// The name, as in ${keyring:NAME}
        name: String,
    },
}

/// Runs the command.
///
/// # Errors
/// The keyring refuses, or nothing was given.
pub fn secret(command: &SecretCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        SecretCommand::Set { name } => {
            let value = ask(name)?;
            anyhow::ensure!(!value.is_empty(), "no value was given for {name}; nothing was kept");
            config::keyring_set(name, value).map_err(|why| refused(name, &why))?;
            writeln!(out, "Kept. Use it as ${{keyring:{name}}} in the configuration.")?;
        }
        SecretCommand::Delete { name } => {
            let was_there = config::keyring_delete(name).map_err(|why| refused(name, &why))?;
            anyhow::ensure!(was_there, "the keyring has no {name}");
            writeln!(out, "Forgotten.")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn refused(name: &str, why: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "the keyring can't be asked for {name}: {why}; unlock it, as a login to the desktop does, or start its service, \
         and try again"
    )
}

fn ask(name: &str) -> anyhow::Result<String> {
    let mut input = std::io::stdin().lock();
    if !input.is_terminal() {
        let mut text = String::new();
        input.read_to_string(&mut text)?;
        return Ok(text.trim_end_matches(['\r', '\n']).to_owned());
    }
    let mut err = std::io::stderr().lock();
    write!(err, "Value of {name} (not shown): ")?;
    err.flush()?;
    let value = read_hidden(&input)?;
    writeln!(err)?;
    Ok(value)
}

/// Reads a line with the terminal's echo off.
#[cfg(unix)]
fn read_hidden(input: &std::io::StdinLock<'_>) -> anyhow::Result<String> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let shown = tcgetattr(input)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(input, OptionalActions::Flush, &hidden)?;
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    tcsetattr(input, OptionalActions::Flush, &shown)?;
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Reads a line.
#[cfg(not(unix))]
fn read_hidden(_: &std::io::StdinLock<'_>) -> anyhow::Result<String> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
