//! From a server's table to a process: references, environment, program (`DESIGN.md` chapter 3).

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use super::process::{Life, Pipes, Spawn, Start};
use super::shelf::Shelf;
use crate::config::{self, HostLookup, Launch, Target};
use crate::engine::hub::StartFailure;

/// Starts the process of a server. Files and keyrings may block, so they are asked on the pool.
///
/// # Errors
/// In words for people, masked.
pub async fn start(
    server: Arc<config::Server>,
    config_path: Arc<Path>,
    spawner: Arc<dyn Start>,
    shelf: Shelf,
) -> Result<(Box<dyn Life>, Pipes), StartFailure> {
    let planned = {
        let (server, shelf) = (Arc::clone(&server), shelf.clone());
        tokio::task::spawn_blocking(move || plan(&server, &config_path, &shelf)).await
    };
    let plan =
        planned.map_err(|_| StartFailure { reason: "its start could not be prepared".into(), hopeless: false })??;
    spawner.start(&plan).await.map_err(|error| StartFailure {
        reason: shelf.masker().mask(&error.to_string()).into_owned(),
        hopeless: error.is_permanent(),
    })
}

/// What a server's references expand to.
///
/// # Errors
/// Which reference could not be expanded, without any value.
pub fn expand(server: &config::Server, config_path: &Path, shelf: &Shelf) -> Result<Launch, config::ExpandError> {
    let launch = config::expand(server, &HostLookup::new(config_path))?;
    shelf.add_secrets(&launch.secrets);
    Ok(launch)
}

fn plan(server: &config::Server, config_path: &Path, shelf: &Shelf) -> Result<Spawn, StartFailure> {
    // An unset variable stays unset, but a file or a keyring may come back.
    let launch = expand(server, config_path, shelf)
        .map_err(|error| StartFailure { reason: error.problems.join("; "), hopeless: true })?;
    let Target::Program(program) = launch.target else {
        return Err(StartFailure { reason: "remote servers are not supported yet".into(), hopeless: true });
    };
    let host: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let usual = config::usual_places(config::home_dir().as_deref());
    let env = config::child_environment(&host, &program, &usual);
    let path = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let found = config::find_program(&program.command, path, program.cwd.as_deref()).map_err(|error| StartFailure {
        reason: shelf.masker().mask(&error.to_string()).into_owned(),
        hopeless: true,
    })?;
    Ok(Spawn {
        program: found,
        args: program.args.into_iter().map(OsString::from).collect(),
        env,
        cwd: program.cwd,
        stop_grace: server.stop_grace,
    })
}
