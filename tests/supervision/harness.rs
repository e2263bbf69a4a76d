//! The real proxy between a host that a test plays and scripted servers.
//!
//! [`Setup`] writes a configuration into a directory of its own and starts the proxy there; [`Host`] speaks to it. Nothing
//! waits by sleeping: every wait has a condition and a limit, and one that is not met fails with all that was received and
//! with the proxy's stderr. At its end a [`Host`] closes the pipe, and no process may be left behind.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Longer than anything here takes; a test that needs it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(25);
/// What the design calls "within a second" or "at once", with room for a machine that does much else.
pub(crate) const SOON: Duration = Duration::from_secs(4);

const PROXY: &str = env!("CARGO_BIN_EXE_mcp-proxy");
const FAKE: &str = env!("CARGO_BIN_EXE_fake-server");

/// What a host declares that can do everything.
pub(crate) const ABLE: &str =
    r#"{"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}"#;

// === A proxy to be started ===

/// A configuration, and how the proxy is started with it.
pub(crate) struct Setup {
    dir: tempfile::TempDir,
    proxy: String,
    servers: String,
    socket: bool,
    launched: bool,
    log_unread: bool,
    env: Vec<(String, String)>,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        Self {
            dir,
            proxy: String::new(),
            servers: String::new(),
            socket: false,
            launched: false,
            log_unread: false,
            env: Vec::new(),
        }
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

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A file of this test, for a server's flags.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, key: &str, kind: &str) -> PathBuf {
        self.dir.path().join(format!("{key}.{kind}"))
    }

    fn write_config(&self) -> PathBuf {
        let path = self.dir.path().join("mcp-proxy.toml");
        std::fs::write(&path, format!("[proxy]\n{}\n{}", self.proxy, self.servers)).unwrap();
        path
    }

    /// The command with a home of its own and none of ours.
    fn command(&self, args: &[&str]) -> Command {
        let config = self.write_config();
        let home = self.dir.path().join("home");
        let mut command = if self.launched {
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

/// The writing half of a socket: its end is told at its drop.
struct HalfSocket(std::os::unix::net::UnixStream);

impl Write for HalfSocket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for HalfSocket {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}

// === Pipes ===

/// Lets the reader of the proxy's stdout stand still, or go in small steps.
#[derive(Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
    step: Mutex<Option<usize>>,
}

fn writer(mut input: Box<dyn Write + Send>) -> Sender<Vec<u8>> {
    let (sender, bytes) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        while let Ok(bytes) = bytes.recv() {
            if input.write_all(&bytes).and_then(|()| input.flush()).is_err() {
                return;
            }
        }
    });
    sender
}

fn reader(mut output: Box<dyn Read + Send>, gate: &Arc<Gate>) -> Receiver<Vec<u8>> {
    let (sender, lines) = channel();
    let gate = Arc::clone(gate);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut line = Vec::new();
        loop {
            {
                let closed = gate.closed.lock().unwrap();
                drop(gate.opened.wait_while(closed, |closed| *closed).unwrap());
            }
            let step = gate.step.lock().unwrap().unwrap_or(buffer.len());
            let count = match output.read(&mut buffer[..step]) {
                Ok(count) if count > 0 => count,
                _ => break,
            };
            let mut rest = &buffer[..count];
            while let Some(end) = memchr::memchr(b'\n', rest) {
                line.extend_from_slice(&rest[..end]);
                let _ = sender.send(std::mem::take(&mut line));
                rest = &rest[end + 1..];
            }
            line.extend_from_slice(rest);
        }
        if !line.is_empty() {
            let _ = sender.send(line);
        }
    });
    lines
}

fn collect(stderr: impl Read + Send + 'static, text: &Arc<Mutex<String>>) {
    let text = Arc::clone(text);
    std::thread::spawn(move || {
        let mut stderr = BufReader::new(stderr);
        let mut line = Vec::new();
        while matches!(stderr.read_until(b'\n', &mut line), Ok(count) if count > 0) {
            text.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    });
}

// === The host ===

/// A host with a proxy of its own.
pub(crate) struct Host {
    pub(crate) pid: u32,
    child: Child,
    input: Option<Sender<Vec<u8>>>,
    lines: Receiver<Vec<u8>>,
    gate: Arc<Gate>,
    stderr: Arc<Mutex<String>>,
    _unread: Option<std::process::ChildStderr>,
    next: u64,
    /// Answers that nobody asked for yet, by the token of the id.
    answers: HashMap<String, Message>,
    notifications: VecDeque<Message>,
    requests: VecDeque<Message>,
    /// Answers without an id, arrays, and what is no message.
    others: VecDeque<Message>,
    /// The last lines, for a failure's report.
    last: VecDeque<String>,
    ended: Option<ExitStatus>,
    /// The test has ended the proxy in its own way.
    quiet: bool,
    setup: Setup,
}

/// A line of the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) raw: String,
}

impl Host {
    // Sending.

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&self, bytes: impl Into<Vec<u8>>) {
        let _ = self.input.as_ref().expect("the pipe is open").send(bytes.into());
    }

    /// Sends a line.
    pub(crate) fn send(&self, line: &str) {
        self.send_bytes(format!("{line}\n"));
    }

    pub(crate) fn notify(&self, method: &str, params: &str) {
        self.send(&format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#));
    }

    /// Sends a request under the next id, which is returned as its token.
    pub(crate) fn request(&mut self, method: &str, params: &str) -> String {
        let id = self.next.to_string();
        self.next += 1;
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#));
        id
    }

    /// Sends a call under the next id.
    pub(crate) fn request_call(&mut self, tool: &str, arguments: &str) -> String {
        self.request("tools/call", &format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#))
    }

    /// Answers a request of the proxy.
    pub(crate) fn reply(&self, request: &Message, result: &str) {
        let id = request.raw_member("id").expect("a request has an id");
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }

    // Receiving.

    /// Takes the next line in and puts it where it belongs; false when none came until then.
    fn take_one(&mut self, until: Instant) -> bool {
        let line = match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
        };
        let raw = match String::from_utf8(line) {
            Ok(raw) => raw,
            Err(error) => self.fail(&format!("a line that is not UTF-8: {error}")),
        };
        self.last.push_back(raw.chars().take(400).collect());
        if self.last.len() > 30 {
            self.last.pop_front();
        }
        let message = Message { raw };
        if let Err(error) = serde_json::from_str::<&RawValue>(&message.raw) {
            self.fail(&format!("a line that is no JSON: {error}"));
        }
        let (id, method) = (message.raw_member("id"), message.raw_member("method"));
        match (id, method) {
            (Some(_), Some(_)) => self.requests.push_back(message),
            (None, Some(_)) => self.notifications.push_back(message),
            (Some(id), None) if id != "null" => {
                if self.answers.contains_key(&id) {
                    self.fail(&format!("a second answer to {id}"));
                }
                self.answers.insert(id, message);
            }
            _ => self.others.push_back(message),
        }
        true
    }

    fn take_until<T>(&mut self, what: &str, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            if !self.take_one(until) {
                self.fail(&format!("{what} did not come"));
            }
        }
    }

    /// Fails with everything that is known.
    pub(crate) fn fail(&self, what: &str) -> ! {
        let last: Vec<&str> = self.last.iter().map(String::as_str).collect();
        let stderr = self.stderr();
        let tail = stderr.len().saturating_sub(6000);
        let tail = (tail..stderr.len()).find(|at| stderr.is_char_boundary(*at)).unwrap_or(stderr.len());
        panic!("{what}\n--- the last lines received\n{}\n--- stderr\n{}", last.join("\n"), &stderr[tail..]);
    }

    /// The answer to the request with this id (its token).
    pub(crate) fn wait(&mut self, id: &str) -> Message {
        self.take_until(&format!("the answer to {id}"), |host| host.answers.remove(id))
    }

    /// Whether the answer is there already; takes nothing in.
    pub(crate) fn has_answer(&self, id: &str) -> bool {
        self.answers.contains_key(id)
    }

    pub(crate) fn ask(&mut self, method: &str, params: &str) -> Message {
        let id = self.request(method, params);
        self.wait(&id)
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &str) -> Message {
        let id = self.request_call(tool, arguments);
        self.wait(&id)
    }

    /// The next notification of that method.
    pub(crate) fn notification(&mut self, method: &str) -> Message {
        self.take_until(method, |host| {
            let at = host.notifications.iter().position(|message| message.method() == method)?;
            host.notifications.remove(at)
        })
    }

    /// All notifications of that method that came so far: what was sent before the answer to a ping.
    pub(crate) fn notifications(&mut self, method: &str) -> Vec<Message> {
        self.fence();
        let (wanted, rest) = std::mem::take(&mut self.notifications).into_iter().partition(|m| m.method() == method);
        self.notifications = rest;
        wanted.into()
    }

    /// The next request of the proxy of that method.
    pub(crate) fn asked(&mut self, method: &str) -> Message {
        self.take_until(method, |host| {
            let at = host.requests.iter().position(|message| message.method() == method)?;
            host.requests.remove(at)
        })
    }

    /// Requests of the proxy that came so far and were not taken.
    pub(crate) fn open_requests(&mut self) -> usize {
        self.fence();
        self.requests.len()
    }

    /// The next line that is neither an answer with an id, nor a notification, nor a request.
    pub(crate) fn other(&mut self) -> Message {
        self.take_until("a line without an id", |host| host.others.pop_front())
    }

    /// How many such lines came so far.
    pub(crate) fn others(&mut self) -> usize {
        self.fence();
        self.others.len()
    }

    /// Everything that the proxy wrote before this has been taken in after it.
    pub(crate) fn fence(&mut self) {
        let pong = self.ask("ping", "{}");
        assert_eq!(pong.raw_result(), "{}");
    }

    /// Stops or goes on with reading.
    pub(crate) fn read(&self, reads: bool) {
        *self.gate.closed.lock().unwrap() = !reads;
        self.gate.opened.notify_all();
    }

    /// Reads so many bytes at once at most.
    pub(crate) fn read_in_steps(&self, bytes: usize) {
        *self.gate.step.lock().unwrap() = Some(bytes);
    }

    // The session.

    /// Sends `initialize` and `notifications/initialized`; returns the result.
    pub(crate) fn initialize(&mut self, version: &str, capabilities: &str) -> Value {
        let result = self.handshake(version, capabilities);
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        result
    }

    /// Sends only `initialize`.
    pub(crate) fn handshake(&mut self, version: &str, capabilities: &str) -> Value {
        let params = format!(
            r#"{{"protocolVersion":"{version}","capabilities":{capabilities},"clientInfo":{{"name":"test-host","version":"1"}}}}"#
        );
        self.ask("initialize", &params).result()
    }

    /// All entries of a list, over all pages.
    pub(crate) fn list(&mut self, kind: &str) -> Vec<Value> {
        let method =
            if kind == "resourceTemplates" { "resources/templates/list".into() } else { format!("{kind}/list") };
        let mut entries = Vec::new();
        let mut params = "{}".to_owned();
        loop {
            let page = self.ask(&method, &params).result();
            entries.extend(page[kind].as_array().expect("a list").iter().cloned());
            let Some(cursor) = page.get("nextCursor") else { return entries };
            params = json!({ "cursor": cursor }).to_string();
            assert!(entries.len() < 1_000_000, "the pages never end");
        }
    }

    /// The names (URIs, templates) of a list.
    pub(crate) fn names(&mut self, kind: &str) -> Vec<String> {
        let key = match kind {
            "resources" => "uri",
            "resourceTemplates" => "uriTemplate",
            _ => "name",
        };
        self.list(kind).iter().map(|entry| entry[key].as_str().expect("a name").to_owned()).collect()
    }

    /// Lists until the list is as it should be.
    pub(crate) fn names_until(&mut self, kind: &str, what: &str, is_right: impl Fn(&[String]) -> bool) -> Vec<String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let names = self.names(kind);
            if is_right(&names) {
                return names;
            }
            if Instant::now() > until {
                self.fail(&format!("{what}: {names:?}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What `mcp-proxy://status` says of a server.
    pub(crate) fn status(&mut self, server: &str) -> Value {
        let read = self.ask("resources/read", r#"{"uri":"mcp-proxy://status"}"#).result();
        let text = read["contents"][0]["text"].as_str().expect("a text").to_owned();
        let status: Value = serde_json::from_str(&text).unwrap();
        let servers = status["servers"].as_array().expect("servers");
        servers.iter().find(|entry| entry["name"] == server).cloned().unwrap_or_default()
    }

    /// Looks at the status of a server until it is as it should be.
    pub(crate) fn status_until(&mut self, server: &str, what: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.status(server);
            if is_right(&status) {
                return status;
            }
            if Instant::now() > until {
                self.fail(&format!("{server}: {what}: {status:#}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    // What is beside the pipe.

    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// Waits until the log says so.
    pub(crate) fn logged(&self, text: &str) {
        self.until(&format!("the log says {text:?}"), || self.stderr().contains(text));
    }

    /// Waits for a condition that is not about the pipe.
    pub(crate) fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so() {
            if Instant::now() > until {
                self.fail(&format!("not so: {what}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.setup.path(name)
    }

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

    /// The processes that a server had, in order.
    pub(crate) fn pids(&self, key: &str) -> Vec<u32> {
        let text = std::fs::read_to_string(self.setup.file(key, "pids")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// The effects that calls had at a server with `ledger`.
    pub(crate) fn ledger(&self, key: &str) -> Vec<Value> {
        json_lines(&self.setup.file(key, "ledger"))
    }

    /// The lines that a server with `record` was sent.
    pub(crate) fn record(&self, key: &str) -> Vec<String> {
        json_lines(&self.setup.file(key, "record"))
            .into_iter()
            .filter(|event| event["k"] == "in")
            .map(|event| event["d"].as_str().unwrap().to_owned())
            .collect()
    }

    /// How many requests or notifications of that method a server with `record` was sent.
    pub(crate) fn sent(&self, key: &str, method: &str) -> usize {
        let wanted = format!(r#""method":"{method}""#);
        self.record(key).iter().filter(|line| line.contains(&wanted)).count()
    }

    // The end.

    /// Closes the pipe.
    pub(crate) fn close(&mut self) {
        self.input = None;
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        kill(self.pid, signal);
    }

    /// Waits for the end of the proxy.
    pub(crate) fn exit(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended.or_else(|| self.child.try_wait().unwrap()) {
                self.ended = Some(status);
                return status;
            }
            if Instant::now() > until {
                self.fail("the proxy does not end");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether the proxy still runs.
    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The test has killed the proxy: its exit code is its own matter.
    pub(crate) fn was_killed(&mut self) {
        self.quiet = true;
    }

    /// Closes the pipe, waits for the end, and starts the proxy again in the same place.
    pub(crate) fn restart(mut self) -> Setup {
        self.finish();
        let empty = Setup {
            dir: tempfile::tempdir().unwrap(),
            proxy: String::new(),
            servers: String::new(),
            socket: false,
            launched: false,
            log_unread: false,
            env: Vec::new(),
        };
        self.quiet = true;
        std::mem::replace(&mut self.setup, empty)
    }

    fn finish(&mut self) {
        self.read(true);
        self.close();
        let status = self.exit();
        assert!(self.quiet || status.code() == Some(0), "the proxy ended with {status}: {}", self.stderr());
        assert_nothing_left(self.setup.dir.path());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.read(true);
        if std::thread::panicking() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            for pid in living(self.setup.dir.path()) {
                kill(pid, rustix::process::Signal::KILL);
            }
            return;
        }
        if self.ended.is_none() || !self.quiet {
            self.finish();
        }
    }
}

// === impl Message ===

impl Message {
    /// A member of the message, raw.
    pub(crate) fn raw_member(&self, key: &str) -> Option<String> {
        raw_member(&self.raw, key)
    }

    pub(crate) fn method(&self) -> String {
        self.raw_member("method").and_then(|token| serde_json::from_str(&token).ok()).unwrap_or_default()
    }

    /// The whole message; numbers that fit no double are not for this.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.raw).unwrap()
    }

    pub(crate) fn params(&self) -> Value {
        self.value()["params"].clone()
    }

    #[track_caller]
    pub(crate) fn raw_result(&self) -> String {
        self.raw_member("result").unwrap_or_else(|| panic!("no result: {}", self.raw))
    }

    #[track_caller]
    pub(crate) fn result(&self) -> Value {
        serde_json::from_str(&self.raw_result()).unwrap()
    }

    /// The error, which must have this code.
    #[track_caller]
    pub(crate) fn error(&self, code: i64) -> Value {
        let error = self.raw_member("error").unwrap_or_else(|| panic!("no error: {}", self.raw));
        let error: Value = serde_json::from_str(&error).unwrap();
        assert_eq!(error["code"], code, "{error:#}");
        error
    }

    /// The text of the first block of a result.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        self.texts().into_iter().next().unwrap_or_else(|| panic!("no text: {}", self.raw))
    }

    /// The texts of all blocks of a result, whatever else is in it.
    #[track_caller]
    pub(crate) fn texts(&self) -> Vec<String> {
        let content = raw_member(&self.raw_result(), "content").unwrap_or_else(|| panic!("no content: {}", self.raw));
        let blocks: Vec<&RawValue> = serde_json::from_str(&content).unwrap();
        blocks
            .iter()
            .filter_map(|block| raw_member(block.get(), "text"))
            .map(|text| serde_json::from_str(&text).unwrap())
            .collect()
    }

    /// The text as JSON.
    #[track_caller]
    pub(crate) fn told(&self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// A member of an object, raw.
pub(crate) fn raw_member(object: &str, key: &str) -> Option<String> {
    let members: HashMap<String, &RawValue> = serde_json::from_str(object).ok()?;
    members.get(key).map(|value| value.get().to_owned())
}

/// The elements of an array, raw.
pub(crate) fn raw_elements(array: &str) -> Vec<String> {
    let elements: Vec<&RawValue> = serde_json::from_str(array).unwrap();
    elements.iter().map(|element| element.get().to_owned()).collect()
}

fn json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

// === Processes ===

pub(crate) fn kill(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Processes with this home in their environment: the proxy, its guard, servers and what they started.
fn living(dir: &Path) -> Vec<u32> {
    let mark = format!("HOME={}/home", dir.display()).into_bytes();
    let entries = std::fs::read_dir("/proc").unwrap();
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        // A zombie has no environment any more.
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| variable == mark)
    })
    .collect()
}

fn assert_nothing_left(dir: &Path) {
    let until = Instant::now() + PATIENCE;
    loop {
        let left = living(dir);
        if left.is_empty() {
            return;
        }
        if Instant::now() > until {
            let shown: Vec<String> = left
                .iter()
                .map(|pid| {
                    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
                })
                .collect();
            for pid in &left {
                kill(*pid, rustix::process::Signal::KILL);
            }
            panic!("processes outlive the proxy: {shown:#?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
