//! Starts what is measured, each with a state of its own.

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tempfile::TempDir;

use crate::client::Client;
use crate::eras::Era;

/// What stands between the client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Via {
    Direct,
    Relay,
    Proxy,
}

/// The servers behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Servers {
    pub(crate) count: usize,
    /// Of each.
    pub(crate) tools: usize,
    /// Of each tool's entry in the list.
    pub(crate) tool_bytes: usize,
    /// Whether they gather their replies into one write.
    pub(crate) batch: bool,
    /// What the client speaks.
    pub(crate) host: Era,
    /// What they speak.
    pub(crate) era: Era,
}

/// Where the programs and their states are.
#[derive(Debug)]
pub(crate) struct Rig {
    proxy: PathBuf,
    itself: PathBuf,
    home: TempDir,
    states: Cell<usize>,
}

/// A directory for all that one proxy keeps.
#[derive(Debug)]
pub(crate) struct State(PathBuf);

// === impl Servers ===

impl Servers {
    /// So many, each with ten tools of an ordinary size.
    pub(crate) const fn of(count: usize) -> Self {
        Self { count, tools: 10, tool_bytes: 300, batch: false, host: Era::Legacy, era: Era::Legacy }
    }

    fn args(self) -> Vec<String> {
        let words =
            ["--mode", "server", "--tools", &self.tools.to_string(), "--tool-bytes", &self.tool_bytes.to_string()];
        let batch = self.batch.then_some("--batch");
        let modern = (self.era == Era::Modern).then_some("--modern");
        words.into_iter().chain(batch).chain(modern).map(String::from).collect()
    }

    /// The key of each in the configuration.
    pub(crate) fn key(number: usize) -> String {
        match number {
            0 => "a".into(),
            1 => "b".into(),
            _ => format!("s{number}"),
        }
    }
}

// === impl Rig ===

impl Rig {
    pub(crate) fn new(proxy: PathBuf) -> anyhow::Result<Self> {
        let home = tempfile::tempdir()?;
        Ok(Self { proxy, itself: std::env::current_exe()?, home, states: Cell::new(0) })
    }

    pub(crate) fn proxy_version(&self) -> String {
        let output = Command::new(&self.proxy).arg("--version").output();
        let told = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
        if told.is_empty() { format!("mcp-proxy {}", env!("CARGO_PKG_VERSION")) } else { told }
    }

    /// Whether there is a proxy to measure.
    pub(crate) fn proxy_answers(&self) -> anyhow::Result<()> {
        self.open(Via::Proxy, Servers::of(1))?.close()
    }

    /// A fresh, empty state.
    pub(crate) fn state(&self) -> anyhow::Result<State> {
        self.states.set(self.states.get() + 1);
        let state = self.home.path().join(self.states.get().to_string());
        for name in ["state", "cache", "config", "run"] {
            fs::create_dir_all(state.join(name))?;
            fs::set_permissions(state.join(name), fs::Permissions::from_mode(0o700))?;
        }
        Ok(State(state))
    }

    /// Starts a session and waits until every tool is there.
    pub(crate) fn open(&self, via: Via, servers: Servers) -> anyhow::Result<Client> {
        let state = self.state()?;
        let mut client = self.spawn(via, servers, &state)?;
        let whole = |client: &mut Client| {
            client.handshake()?;
            client.list_of(if via == Via::Proxy { servers.count * servers.tools } else { servers.tools })
        };
        whole(&mut client).with_context(|| state.told())?;
        Ok(client)
    }

    /// Starts a session over the proxy, with this in the table `[log]`; also tells where its state is.
    pub(crate) fn open_with(&self, servers: Servers, log: &str) -> anyhow::Result<(Client, State)> {
        let state = self.state()?;
        let mut command = self.proxy_command(servers, &state.0)?;
        let path = state.0.join("mcp-proxy.toml");
        let text = fs::read_to_string(&path)?;
        fs::write(path, format!("{text}[log]\n{log}\n"))?;
        state.put(&mut command);
        let mut client = Client::spawn(command, fs::File::create(state.0.join("stderr"))?, servers.host)?;
        client.handshake()?;
        client.list_of(servers.count * servers.tools).with_context(|| state.told())?;
        Ok((client, state))
    }

    /// Another command of the proxy's program, beside a session with this state.
    pub(crate) fn command(&self, state: &State, words: &[&str]) -> Command {
        let mut command = Command::new(&self.proxy);
        command.args(words);
        state.put(&mut command);
        command
    }

    /// Starts a session. Without a proxy there is one server, however many are asked for; the relay takes two.
    pub(crate) fn spawn(&self, via: Via, servers: Servers, state: &State) -> anyhow::Result<Client> {
        let mut command = match via {
            Via::Direct => {
                let mut command = Command::new(&self.itself);
                command.args(servers.args());
                command
            }
            Via::Relay => {
                let mut command = Command::new(&self.itself);
                let mode = if servers.count == 2 { "relay-two" } else { "relay" };
                command.args(["--mode", mode, "--"]).arg(&self.itself).args(servers.args());
                command
            }
            Via::Proxy => self.proxy_command(servers, &state.0)?,
        };
        state.put(&mut command);
        let stderr = fs::File::create(state.0.join("stderr"))?;
        Client::spawn(command, stderr, servers.host)
    }

    fn proxy_command(&self, servers: Servers, state: &Path) -> anyhow::Result<Command> {
        let mut config = String::new();
        for number in 0..servers.count {
            let args = servers.args().iter().map(|arg| format!("'{arg}'")).collect::<Vec<_>>().join(", ");
            let key = Servers::key(number);
            writeln!(config, "[servers.{key}]\ncommand = '{}'\nargs = [{args}]", self.itself.display())?;
        }
        let path = state.join("mcp-proxy.toml");
        fs::write(&path, config)?;
        let mut command = Command::new(&self.proxy);
        command.args(["run", "--config"]).arg(path);
        Ok(command)
    }

    /// The name of a tool of the numbered server, as the client must say it.
    pub(crate) fn tool(via: Via, servers: Servers, number: usize, tool: &str) -> String {
        let bare = via == Via::Direct || (via == Via::Relay && servers.count != 2);
        if bare { tool.to_owned() } else { format!("{}__{tool}", Servers::key(number)) }
    }

    /// Starts all servers at once without a proxy; when the last has told its list.
    pub(crate) fn slowest_list(&self, servers: Servers) -> anyhow::Result<Duration> {
        let started = Instant::now();
        let one = Servers { count: 1, ..servers };
        let states = (0..servers.count).map(|_| self.state()).collect::<anyhow::Result<Vec<_>>>()?;
        let mut clients =
            states.iter().map(|state| self.spawn(Via::Direct, one, state)).collect::<anyhow::Result<Vec<_>>>()?;
        for client in &mut clients {
            client.handshake()?;
            client.list_of(servers.tools)?;
        }
        let time = started.elapsed();
        clients.into_iter().try_for_each(Client::close)?;
        Ok(time)
    }
}

// === impl State ===

impl State {
    /// Has a command keep its things here.
    fn put(&self, command: &mut Command) {
        for (variable, name) in [
            ("XDG_STATE_HOME", "state"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_RUNTIME_DIR", "run"),
        ] {
            command.env(variable, self.0.join(name));
        }
        command.env("HOME", &self.0).env_remove("MCP_PROXY_CONFIG");
    }

    /// The end of what the process said on its standard error.
    fn told(&self) -> String {
        let told = fs::read_to_string(self.0.join("stderr")).unwrap_or_default();
        let lines: Vec<_> = told.lines().collect();
        format!("its last words: {:?}", lines[lines.len().saturating_sub(5)..].join(" / "))
    }
}
