//! What only tests of supervision need: hosts that die, logs that nobody reads, a look at the processes.

use std::process::{Output, Stdio};

use serde_json::Value;

use super::host::json_lines;
use super::processes::living;
use super::{Host, Setup};

impl Setup {
    /// A process in between stands for the host: [`Host::pid`] is its.
    pub(crate) fn launched(mut self) -> Self {
        self.launched = true;
        self
    }

    /// Nobody reads the proxy's stderr.
    pub(crate) fn log_unread(mut self) -> Self {
        self.log_unread = true;
        self
    }

    /// Sets a variable in the proxy's environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl Host {
    /// Runs a command of the proxy beside the one that runs.
    pub(crate) fn command(&self, args: &[&str]) -> Output {
        self.setup.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Processes of this test that live.
    pub(crate) fn living(&self) -> Vec<u32> {
        living(self.setup.dir.path())
    }

    /// What a server with `record` wrote down: kind and data.
    pub(crate) fn events(&self, key: &str) -> Vec<Value> {
        json_lines(&self.setup.file(key, "record"))
    }

    /// Writes the configuration anew: `change` is given its text.
    pub(crate) fn reconfigure(&self, change: impl FnOnce(String) -> String) {
        let path = self.setup.path("mcp-proxy.toml");
        let text = change(std::fs::read_to_string(&path).unwrap());
        std::fs::write(path, text).unwrap();
    }

    /// The test has killed the proxy: its exit code is its own matter.
    pub(crate) fn was_killed(&mut self) {
        self.quiet = true;
    }
}
