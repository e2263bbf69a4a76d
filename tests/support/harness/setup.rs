//! A configuration, and how the proxy is started with it.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::pipes::{Gate, HalfSocket, collect, reader, writer};
use super::processes::{assert_nothing_left, kill};
use super::{ABLE, Host, PATIENCE};

const PROXY: &str = env!("CARGO_BIN_EXE_mcp-proxy");
const FAKE: &str = env!("CARGO_BIN_EXE_fake-server");

/// A configuration, and how the proxy is started with it.
pub(crate) struct Setup {
    pub(super) dir: tempfile::TempDir,
    proxy: String,
    servers: String,
    socket: bool,
    pub(super) launched: bool,
    /// What a shell does before it becomes the proxy.
    shell: Option<&'static str>,
    pub(super) log_unread: bool,
    pub(super) env: Vec<(String, String)>,
    flags: Vec<String>,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        let (proxy, servers) = (String::new(), String::new());
        let (env, flags) = (Vec::new(), Vec::new());
        Self { dir, proxy, servers, socket: false, launched: false, shell: None, log_unread: false, env, flags }
    }

    /// Adds a line to the table `[proxy]`.
    pub(crate) fn proxy(mut self, line: &str) -> Self {
        let _ = writeln!(self.proxy, "{line}");
        self
    }

    /// Adds a scripted server; `flags` are split at white space, see [`Setup::server_with`].
    pub(crate) fn server(self, key: &str, flags: &str) -> Self {
        self.tuned(key, flags, "")
    }

    /// The same, with further lines of its table.
    pub(crate) fn tuned(self, key: &str, flags: &str, toml: &str) -> Self {
        let flags: Vec<&str> = flags.split_whitespace().collect();
        self.server_with(key, &flags, toml)
    }

    /// Adds a scripted server with these flags. A bare `record` or `ledger` gets a file of its own, see [`Host::record`] and
    /// [`Host::ledger`]; `label` is the key unless it is given.
    pub(crate) fn server_with(self, key: &str, flags: &[&str], toml: &str) -> Self {
        let mut args: Vec<String> = flags
            .iter()
            .map(|flag| match *flag {
                "record" | "ledger" => format!("{flag}={}", self.file(key, flag).display()),
                flag => flag.to_owned(),
            })
            .collect();
        args.push(format!("pids={}", self.file(key, "pids").display()));
        if !flags.iter().any(|flag| flag.starts_with("label=")) {
            args.push(format!("label={key}"));
        }
        let (command, args) = (json!(FAKE), json!(args));
        self.table(&format!("[servers.{key}]\ncommand = {command}\nargs = {args}\n{toml}\n"))
    }

    /// Adds text to the file.
    pub(crate) fn table(mut self, toml: &str) -> Self {
        self.servers.push_str(toml);
        self.servers.push('\n');
        self
    }

    /// The host's ends are sockets, as hosts built on Node have it, and not pipes.
    pub(crate) fn socket(mut self) -> Self {
        self.socket = true;
        self
    }

    /// A shell does this before it becomes the proxy.
    #[allow(dead_code, reason = "not every test of the whole proxy needs it")]
    pub(crate) fn after(mut self, script: &'static str) -> Self {
        self.shell = Some(script);
        self
    }

    /// Adds a flag to `mcp-proxy run`.
    #[allow(dead_code, reason = "not every test of the whole proxy needs it")]
    pub(crate) fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// A file of this test, for a server's flags.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn file(&self, key: &str, kind: &str) -> PathBuf {
        self.dir.path().join(format!("{key}.{kind}"))
    }

    fn write_config(&self) -> PathBuf {
        let path = self.dir.path().join("mcp-proxy.toml");
        std::fs::write(&path, format!("[proxy]\n{}\n{}", self.proxy, self.servers)).unwrap();
        path
    }

    /// The command with a home of its own and none of ours.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let config = self.write_config();
        let home = self.dir.path().join("home");
        let mut command = if let Some(script) = self.shell {
            let mut shell = Command::new("/bin/sh");
            shell.args(["-c", &format!(r#"{script}; exec "$@""#), "sh", PROXY]);
            shell
        } else if self.launched {
            let mut shell = Command::new("/bin/sh");
            // A job in the background has no stdin but what is given to it.
            shell.args(["-c", r#"exec 3<&0; "$@" <&3 3<&- & wait"#, "sh", PROXY]);
            shell
        } else {
            Command::new(PROXY)
        };
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &home);
        for (name, dir) in
            [("CONFIG", "config"), ("STATE", "state"), ("CACHE", "cache"), ("DATA", "data"), ("RUNTIME", "run")]
        {
            let dir = home.join(dir);
            std::fs::create_dir_all(&dir).unwrap();
            let name = if name == "RUNTIME" { "XDG_RUNTIME_DIR".into() } else { format!("XDG_{name}_HOME") };
            command.env(name, dir);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.arg("--config").arg(config).args(args);
        command
    }

    /// Runs a command of the proxy to its end, with nothing on its stdin.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let child =
            self.command(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let (done, ended) = channel();
        std::thread::spawn(move || {
            let _ = done.send(child.wait_with_output().unwrap());
        });
        match ended.recv_timeout(PATIENCE) {
            Ok(output) => {
                assert_nothing_left(self.dir.path());
                output
            }
            Err(_) => {
                kill(pid, rustix::process::Signal::KILL);
                panic!("`mcp-proxy {}` did not end within {PATIENCE:?}", args.join(" "));
            }
        }
    }

    /// Starts the proxy; says nothing to it.
    pub(crate) fn start(self) -> Host {
        let mut command = self.command(&["run"]);
        command.args(&self.flags);
        let (input, output): (Box<dyn Write + Send>, Box<dyn Read + Send>);
        let mut child;
        if self.socket {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
            let theirs = std::os::fd::OwnedFd::from(theirs);
            command.stdin(theirs.try_clone().unwrap()).stdout(theirs);
            child = command.stderr(Stdio::piped()).spawn().unwrap();
            drop(command);
            input = Box::new(HalfSocket(ours.try_clone().unwrap()));
            output = Box::new(ours);
        } else {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
            child = command.spawn().unwrap();
            input = Box::new(child.stdin.take().unwrap());
            output = Box::new(child.stdout.take().unwrap());
        }
        let stderr = Arc::new(Mutex::new(String::new()));
        let log = child.stderr.take().unwrap();
        let unread = if self.log_unread {
            Some(log)
        } else {
            collect(log, &stderr);
            None
        };
        let gate = Arc::new(Gate::default());
        let lines = reader(output, &gate);
        Host {
            pid: child.id(),
            child,
            input: Some(writer(input)),
            lines,
            gate,
            stderr,
            _unread: unread,
            next: 1,
            answers: HashMap::new(),
            notifications: VecDeque::new(),
            requests: VecDeque::new(),
            others: VecDeque::new(),
            last: VecDeque::new(),
            ended: None,
            quiet: false,
            setup: self,
        }
    }

    /// Starts the proxy and opens a session of the newest revision with a host that declares nothing.
    pub(crate) fn open(self) -> Host {
        let mut host = self.start();
        host.initialize("2025-11-25", "{}");
        host
    }

    /// Opens a session; flags `catalog=CATALOG` name a file with this text.
    pub(crate) fn open_with_catalog(mut self, text: &str) -> Host {
        let path = self.path("CATALOG");
        std::fs::write(&path, text).unwrap();
        self.servers = self.servers.replace("catalog=CATALOG", &format!("catalog={}", path.display()));
        self.open()
    }

    /// The same, with a host that can be asked everything.
    pub(crate) fn open_able(self) -> Host {
        let mut host = self.start();
        host.initialize("2025-11-25", ABLE);
        host
    }
}
