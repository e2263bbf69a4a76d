//! `mcp-proxy run`: serve a host.

use std::io::Write;
use std::process::ExitCode;

use super::app::Global;
use super::log;
use crate::config::{self, LoadError, Loaded};
use crate::runtime::proxy::{self, Options};
use crate::runtime::shelf::Shelf;

/// Runs the command.
///
/// # Errors
/// The configuration can't be used, or the system refuses what is needed.
pub fn run(global: &Global) -> anyhow::Result<ExitCode> {
    let loaded = load(global)?;
    let shelf = Shelf::new();
    shelf.levels().set(&loaded.config.servers);
    let guard = log::init(&loaded.config.log, shelf.clone())?;
    for fault in &loaded.faults {
        tracing::warn!("{fault}");
    }
    let (state_dir, cache_dir) = proxy::directories();
    let options = Options { loaded, profile: global.profile.clone(), state_dir, cache_dir, shelf, news: None };
    let runtime = proxy::reactor()?;
    let served = runtime.block_on(proxy::serve(options));
    // Dropping it would wait for a blocked read or a busy pool thread.
    runtime.shutdown_background();
    // A log sink that blocks must not be waited for: the lines that it has not taken are lost.
    std::mem::forget(guard);
    served.map(|()| ExitCode::SUCCESS)
}

/// Loads the configuration; what is fatal is shown as it is in the file.
///
/// # Errors
/// There is none, or it can't be used.
pub fn load(global: &Global) -> anyhow::Result<Loaded> {
    let path = config::config_path(global.config.as_deref())?;
    match config::load(&path, global.profile.as_deref()) {
        Ok(loaded) => Ok(loaded),
        Err(LoadError::Faulty { parsed, text }) => {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "{}", config::render_faults(&parsed.faults, &text, &parsed.hidden, false));
            anyhow::bail!("the configuration {} can't be used as it is", path.display())
        }
        Err(error) => Err(error.into()),
    }
}
