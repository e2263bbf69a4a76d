//! What a sound configuration asks for and does not find here: references that are not set, programs and directories
//! that are not there.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment::{ProgramError, child_environment, find_program};
use super::expand::{Lookup, Program, Target, Unmet, expand};
use super::fault::{Fault, Problem, Severity, Source, dotted};
use super::secrets::Masker;
use super::types::{Config, Server};

/// The surroundings that servers are started in.
pub struct Here<'a> {
    /// What references are looked up in.
    pub lookup: &'a dyn Lookup,
    /// The environment of the proxy.
    pub host: &'a [(OsString, OsString)],
    /// Where programs are looked for besides, see [`usual_places`](super::usual_places).
    pub usual: &'a [PathBuf],
}

/// The faults that each server would fail with at its start; each stops that server alone. `text` is what `config` was
/// read from.
///
/// Blocks while files and the keyring are read.
pub fn unmet(config: &Config, text: &str, here: &Here<'_>) -> Vec<Fault> {
    let source = Source::new(&config.path, text);
    let (root, _) = DeTable::parse_recoverable(text);
    let of_server = |server: &Server| {
        let missing = missing(server, here).into_iter();
        let told = missing.map(|unmet| {
            let path: Vec<&str> =
                ["servers", server.key.as_str()].into_iter().chain(unmet.key.iter().map(String::as_str)).collect();
            let span = span_of(root.get_ref(), &path).unwrap_or(0..0);
            // Where a remedy is named it is the last part of the sentence.
            let (message, help) = match unmet.message.rsplit_once("; ") {
                Some((message, help)) => (message, Some(help)),
                None => (unmet.message.as_str(), None),
            };
            let problem = Problem { message: message.to_owned(), expected: None, help: help.map(str::to_owned) };
            let fault = source.fault(span, dotted(path.iter().copied()), Severity::ServerOnly, problem);
            Fault { server: Some(server.key.clone()), ..fault }
        });
        told.collect::<Vec<_>>()
    };
    config.servers.iter().flat_map(of_server).collect()
}

fn missing(server: &Server, here: &Here<'_>) -> Vec<Unmet> {
    let launch = match expand(server, here.lookup) {
        Ok(launch) => launch,
        Err(error) => return error.problems,
    };
    let Target::Program(program) = launch.target else { return Vec::new() };
    let Err(error) = look_for(&program, here) else { return Vec::new() };
    let key = match error {
        ProgramError::NotFound { .. } | ProgramError::NotExecutable { .. } => "command",
        ProgramError::NoDirectory { .. } => "cwd",
    };
    let message = Masker::new(&launch.secrets).mask(&error.to_string()).into_owned();
    vec![Unmet { key: vec![key.to_owned()], message }]
}

fn look_for(program: &Program, here: &Here<'_>) -> Result<PathBuf, ProgramError> {
    let env = child_environment(here.host, program, here.usual);
    let path = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    find_program(&program.command, path, program.cwd.as_deref())
}

/// Where a value stands; what `[defaults]` gave stands nowhere in the server's table.
fn span_of(root: &DeTable<'_>, path: &[&str]) -> Option<Range<usize>> {
    let (first, rest) = path.split_first()?;
    let mut at: &Spanned<DeValue<'_>> = root.get(*first)?;
    for part in rest {
        at = match at.get_ref() {
            DeValue::Table(table) => table.get(*part)?,
            DeValue::Array(list) => list.get(part.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(at.span())
}
