//! Where the programs are, and a folder of its own for each test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The proxy.
pub(crate) const PROXY: &str = env!("CARGO_BIN_EXE_mcp-proxy");

/// A folder for the configuration, the state and the cache of one proxy.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    /// Writes the configuration.
    pub(crate) fn new(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mcp-proxy.toml"), config).unwrap();
        Self(dir)
    }

    /// Both examples.
    pub(crate) fn of_examples() -> Self {
        Self::of_examples_in("auto")
    }

    /// The same, each spoken to in the era that `protocol` says.
    pub(crate) fn of_examples_in(protocol: &str) -> Self {
        let server = |name: &str| {
            let command = example(name).display().to_string();
            format!("[servers.{name}]\ncommand = {command:?}\nprotocol = {protocol:?}\n")
        };
        Self::new(&(server("notes") + &server("clock")))
    }

    /// The configuration file.
    pub(crate) fn config(&self) -> PathBuf {
        self.0.path().join("mcp-proxy.toml")
    }

    /// The variables that keep a proxy within this folder.
    pub(crate) fn env(&self) -> [(&'static str, PathBuf); 3] {
        let dir = |name: &str| self.0.path().join(name);
        [("XDG_STATE_HOME", dir("state")), ("XDG_CACHE_HOME", dir("cache")), ("XDG_RUNTIME_DIR", dir("run"))]
    }

    /// What starts the proxy.
    pub(crate) fn proxy(&self) -> Command {
        let mut command = Command::new(PROXY);
        command.arg("run").arg("--config").arg(self.config()).envs(self.env());
        command
    }
}

/// The path of an example; builds both if cargo was asked for this test alone.
pub(crate) fn example(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = Path::new(PROXY).parent().unwrap().join("examples");
        if !(folder.join("notes").exists() && folder.join("clock").exists()) {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "--example", "notes", "--example", "clock"]);
            build.current_dir(env!("CARGO_MANIFEST_DIR"));
            assert!(build.status().unwrap().success(), "the examples can't be built");
        }
        folder
    });
    folder.join(name)
}
