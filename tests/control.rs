//! The control socket and its commands, with the real binary and fake servers.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(30);

/// Directories of one test, and what runs in them.
struct World {
    dir: tempfile::TempDir,
}

/// A running proxy with its host: us.
struct Proxy {
    process: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Value>,
    kept: Vec<Value>,
    errors: Option<std::thread::JoinHandle<String>>,
    next: u64,
}

impl World {
    fn new(servers: &str) -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["run", "tmp", "home"] {
            std::fs::create_dir(world.path(name)).unwrap();
        }
        world.write(servers);
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Each line of `servers` is `KEY FLAG…` of a fake server.
    fn write(&self, servers: &str) {
        let mut text = String::new();
        for line in servers.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (key, flags) = line.split_once(' ').unwrap_or((line, ""));
            let flags: Vec<&str> = flags.split_whitespace().collect();
            text.push_str(&format!(
                "[servers.{key}]\ncommand = {:?}\nargs = {flags:?}\nstop_grace = \"200ms\"\n{}\n",
                env!("CARGO_BIN_EXE_fake-server"),
                "restart = { min = \"50ms\", max = \"200ms\" }",
            ));
        }
        std::fs::write(self.path("mcp-proxy.toml"), text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-proxy"));
        command.args(args).arg("--config").arg(self.path("mcp-proxy.toml"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        command.env("XDG_RUNTIME_DIR", self.path("run")).env("NO_COLOR", "1");
        // What else runs on this machine is not seen.
        command.env("MCP_PROXY_TEST_SYSTEM", self.path("system"));
        for (name, dir) in [("XDG_STATE_HOME", "state"), ("XDG_CACHE_HOME", "cache"), ("XDG_CONFIG_HOME", "config")] {
            command.env(name, self.path(dir));
        }
        command
    }

    fn start(&self) -> Proxy {
        Proxy::start(self.command(&["run"]))
    }

    /// A command to its end.
    fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// A command that must go well; what it printed.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{args:?}: {out}\n{err}");
        out.into_owned()
    }

    /// The status of the proxy of that process.
    fn status(&self, pid: u32) -> Value {
        let array: Value = serde_json::from_str(&self.ok(&["status", "--json"])).unwrap();
        let found = array.as_array().unwrap().iter().find(|proxy| proxy["pid"] == pid);
        found.unwrap_or_else(|| panic!("no {pid} in {array}")).clone()
    }

    fn server(&self, pid: u32, name: &str) -> Value {
        let status = self.status(pid);
        status["servers"].as_array().unwrap().iter().find(|server| server["name"] == name).unwrap().clone()
    }

    fn until(&self, pid: u32, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        until(what, || Some(self.server(pid, name)).filter(|server| is_so(server)))
    }

    fn socket(&self, pid: u32) -> PathBuf {
        self.path("run/mcp-proxy").join(format!("{pid}.sock"))
    }
}

impl Proxy {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (send, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                if send.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut stderr = process.stderr.take().unwrap();
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let input = process.stdin.take();
        let mut proxy = Self { process, input, answers, kept: Vec::new(), errors: Some(errors), next: 0 };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test-host", "version": "7"}});
        assert!(proxy.ask("initialize", &params)["result"].is_object());
        proxy.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        proxy
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        self.say(&json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}));
        self.next
    }

    fn answer(&mut self, id: u64) -> Value {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(at) = self.kept.iter().position(|answer| answer["id"] == id && answer["method"].is_null()) {
                return self.kept.remove(at);
            }
            let left = end.saturating_duration_since(Instant::now());
            self.kept.push(self.answers.recv_timeout(left).unwrap_or_else(|_| panic!("no answer to {id}")));
        }
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    fn call(&mut self, name: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": name, "arguments": arguments}))
    }

    fn tools(&mut self) -> Vec<String> {
        let list = self.ask("tools/list", &json!({}));
        let tools = list["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Ends it as a host does; what it wrote to stderr.
    fn end(mut self) -> String {
        self.input = None;
        let end = Instant::now() + LIMIT;
        while self.process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "the proxy does not end");
            std::thread::yield_now();
        }
        self.errors.take().unwrap().join().unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Looks until there is something.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn mode_of(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

fn raw(stream: &mut UnixStream, line: &str) -> Value {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply).unwrap();
    serde_json::from_str(&reply).unwrap()
}

#[test]
fn without_a_proxy_status_is_an_empty_array_and_orders_say_so() {
    let world = World::new("");
    assert_eq!(serde_json::from_str::<Value>(&world.ok(&["status", "--json"])).unwrap(), json!([]));
    assert!(world.ok(&["status"]).contains("No proxy is running"));
    for args in
        [&["restart", "x"][..], &["stop", "x"], &["start", "x"], &["reload"], &["logs"], &["status", "--pid", "1"]]
    {
        let output = world.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("no proxy"), "{args:?}: {said}");
    }
}

#[test]
fn status_has_every_member_that_is_promised_and_the_socket_goes_with_the_proxy() {
    let world = World::new("alpha stderr_line=hello\nbeta tools=3");
    let mut proxy = world.start();
    let pid = proxy.pid();
    assert!(proxy.tools().contains(&"alpha__echo".to_owned()));
    proxy.call("alpha__echo", &json!({"a": 1}));
    let alpha = world.until(pid, "alpha", "a counted call", |server| server["calls"] == 1);
    let status = world.status(pid);
    assert_eq!(status["host"], json!({"name": "test-host", "version": "7", "protocol": "2025-11-25"}));
    for member in ["pid", "version", "config", "startedAt", "host", "servers", "unknown"] {
        assert!(status.get(member).is_some(), "{member} of {status}");
    }
    for member in [
        "name",
        "prefix",
        "state",
        "generation",
        "pid",
        "protocol",
        "transport",
        "tools",
        "prompts",
        "resources",
        "templates",
        "pending",
        "calls",
        "errors",
        "unknown",
        "restarts",
        "repairs",
        "noiseLines",
        "lastExit",
        "lastError",
        "upSince",
        "startMs",
        "callMs",
    ] {
        assert!(alpha.get(member).is_some(), "{member} of {alpha}");
    }
    assert!(alpha["callMs"]["p50"].is_number() && alpha["callMs"]["p99"].is_number());
    assert_eq!((mode_of(&world.path("run/mcp-proxy")), mode_of(&world.socket(pid))), (0o700, 0o600));
    assert!(world.ok(&["status"]).contains("alpha"));
    let socket = world.socket(pid);
    proxy.end();
    assert!(!socket.exists(), "it is removed at the end");
    assert_eq!(world.ok(&["status", "--json"]).trim(), "[]");
}

#[test]
fn status_works_under_load_and_while_a_server_crashes() {
    let world = World::new("busy\nweak");
    let mut proxy = world.start();
    let pid = proxy.pid();
    proxy.tools();
    let mut ids = Vec::new();
    for round in 0..20 {
        for number in 0..20 {
            ids.push(proxy.send("tools/call", &json!({"name": "busy__echo", "arguments": {"n": number}})));
        }
        if round % 5 == 0 {
            ids.push(proxy.send("tools/call", &json!({"name": "weak__kill", "arguments": {"round": round}})));
        }
        assert_eq!(world.status(pid)["servers"].as_array().unwrap().len(), 2);
    }
    for id in ids {
        let answer = proxy.answer(id);
        assert!(answer["result"].is_object() || answer["error"]["code"].is_number(), "{answer}");
    }
    let weak = world.until(pid, "weak", "a new life", |server| server["state"] == "ready");
    assert!(weak["restarts"].as_u64().unwrap() >= 1, "{weak}");
    assert_eq!(weak["lastExit"], json!({"signal": "SIGKILL"}));
    assert_eq!(world.server(pid, "busy")["restarts"], 0);
}

#[test]
fn hung_and_rude_clients_cost_nobody_anything() {
    let world = World::new("alpha");
    let mut proxy = world.start();
    let pid = proxy.pid();
    let socket = world.socket(pid);
    // They say nothing, or half of something.
    let mut silent: Vec<_> = (0..40).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    for stream in silent.iter_mut().step_by(2) {
        stream.write_all(b"{\"do\":\"sta").unwrap();
    }
    // One follows the log and reads nothing.
    let mut deaf = UnixStream::connect(&socket).unwrap();
    deaf.write_all(b"{\"do\":\"logs\",\"follow\":true}\n").unwrap();
    assert_eq!(proxy.call("alpha__echo", &json!({}))["result"]["isError"], Value::Null);
    assert_eq!(world.server(pid, "alpha")["state"], "ready");
    // Nonsense is answered, and the line stays open.
    let mut rude = UnixStream::connect(&socket).unwrap();
    assert!(raw(&mut rude, "nonsense")["error"].is_string());
    assert!(raw(&mut rude, r#"{"do":"fly"}"#)["error"].is_string());
    assert_eq!(raw(&mut rude, r#"{"do":"status"}"#)["ok"]["pid"], pid);
    // A line without end is cut off.
    let mut endless = UnixStream::connect(&socket).unwrap();
    assert!(raw(&mut endless, &"x".repeat(20_000))["error"].is_string());
    // Who says nothing is dropped.
    let mut rest = Vec::new();
    silent[0].set_read_timeout(Some(LIMIT)).unwrap();
    assert_eq!(silent[0].read_to_end(&mut rest).unwrap(), 0);
}

#[test]
fn a_directory_that_is_not_ours_alone_is_refused_with_a_warning() {
    let check = |prepare: &dyn Fn(&World, &Path)| {
        let world = World::new("alpha");
        let dir = world.path("run/mcp-proxy");
        prepare(&world, &dir);
        let mut proxy = world.start();
        assert!(proxy.call("alpha__echo", &json!({}))["result"].is_object(), "the host is served all the same");
        assert_eq!(world.ok(&["status", "--json"]).trim(), "[]");
        assert_eq!(std::fs::read_dir(&dir).map_or(0, Iterator::count), 0, "nothing was made in it");
        let said = proxy.end();
        assert!(said.contains("no control socket"), "{said}");
    };
    check(&|_, dir| {
        std::fs::create_dir(dir).unwrap();
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).unwrap();
    });
    check(&|world, dir| {
        let real = world.path("real");
        std::fs::create_dir(&real).unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&real, dir).unwrap();
    });
    check(&|_, dir| std::fs::write(dir, "a file").unwrap());
}

#[test]
fn what_a_killed_proxy_left_is_cleaned_and_a_living_one_is_let_be() {
    let world = World::new("alpha");
    let mut killed = world.start();
    let left = world.socket(killed.pid());
    until("the socket", || left.exists().then_some(()));
    killed.process.kill().unwrap();
    killed.process.wait().unwrap();
    assert!(left.exists());
    assert_eq!(world.ok(&["status", "--json"]).trim(), "[]", "nobody listens on it");
    // Our own process lives and does not listen; so it is not a proxy's that died.
    let living = world.socket(std::process::id());
    drop(UnixListener::bind(&living).unwrap());
    let proxy = world.start();
    until("the socket", || world.socket(proxy.pid()).exists().then_some(()));
    assert!(!left.exists() && living.exists());
}

#[test]
fn stop_takes_the_names_away_until_start() {
    let world = World::new("alpha\nbeta");
    let mut proxy = world.start();
    let pid = proxy.pid();
    assert!(proxy.tools().contains(&"alpha__echo".to_owned()));
    assert!(world.ok(&["stop", "alpha"]).contains("stops alpha"));
    world.until(pid, "alpha", "the stop", |server| server["state"] == "stopped" && server["pid"].is_null());
    let tools = proxy.tools();
    assert!(tools.contains(&"beta__echo".to_owned()) && !tools.iter().any(|name| name.starts_with("alpha__")));
    let refused = proxy.call("alpha__echo", &json!({}));
    assert_eq!(refused["error"]["code"], -31011, "{refused}");
    assert_eq!(refused["error"]["data"]["server"], "alpha");
    world.ok(&["start", "alpha"]);
    world.until(pid, "alpha", "the start", |server| server["state"] == "ready" && server["generation"] == 2);
    assert!(proxy.call("alpha__echo", &json!({}))["result"].is_object());
    let unknown = world.run(&["stop", "gamma"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("alpha, beta"));
}

#[test]
fn restart_lets_calls_finish_unless_it_is_at_once() {
    let world = World::new("alpha");
    let mut proxy = world.start();
    let pid = proxy.pid();
    proxy.tools();
    let slow = json!({"name": "alpha__sleep", "arguments": {"ms": 700}});
    let before = proxy.send("tools/call", &slow);
    world.until(pid, "alpha", "a pending call", |server| server["pending"] == 1);
    world.ok(&["restart", "alpha"]);
    let during = proxy.send("tools/call", &json!({"name": "alpha__whoami", "arguments": {}}));
    assert!(proxy.answer(before)["result"].is_object(), "it may finish");
    assert!(proxy.answer(during)["result"].is_object(), "it waits for the new life");
    assert_eq!(world.server(pid, "alpha")["generation"], 2);

    let lost = proxy.send("tools/call", &json!({"name": "alpha__hang", "arguments": {}}));
    world.until(pid, "alpha", "a pending call", |server| server["pending"] == 1);
    world.ok(&["restart", "alpha", "--now"]);
    let lost = proxy.answer(lost);
    assert_eq!(lost["error"]["code"], -31010, "{lost}");
    world.until(pid, "alpha", "the third life", |server| server["state"] == "ready" && server["generation"] == 3);
    assert_eq!(world.status(pid)["unknown"], 1);
}

#[test]
fn reload_takes_a_new_configuration_over() {
    let world = World::new("alpha");
    let proxy = world.start();
    let pid = proxy.pid();
    world.until(pid, "alpha", "its start", |server| server["state"] == "ready");
    world.write("alpha\nbeta");
    world.ok(&["reload", "--pid", &pid.to_string()]);
    until("the new server", || {
        let servers = world.status(pid)["servers"].as_array().unwrap().clone();
        servers.iter().any(|server| server["name"] == "beta" && server["state"] == "ready").then_some(())
    });
    assert_eq!(world.server(pid, "alpha")["generation"], 1);
}

#[test]
fn logs_has_what_a_server_wrote_and_follows_it() {
    let world = World::new("alpha stderr_line=first-words\nbeta");
    let mut proxy = world.start();
    let pid = proxy.pid();
    world.until(pid, "alpha", "its start", |server| server["state"] == "ready");
    let text = world.ok(&["logs", "alpha"]);
    assert!(text.contains("alpha | first-words") && text.contains("ready") && !text.contains("beta"), "{text}");
    for line in world.ok(&["logs", "--json"]).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["pid"] == pid && line["text"].is_string() && line["server"].is_string(), "{line}");
    }
    let mut follower =
        world.command(&["logs", "alpha", "-f"]).stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("first-words")));
    proxy.call("alpha__flood_stderr", &json!({"bytes": 400, "line": 40}));
    assert!(lines.any(|line| line.contains("alpha | ") && !line.contains("first-words")));
    follower.kill().unwrap();
    follower.wait().unwrap();
    let unknown = world.run(&["logs", "gamma"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("alpha, beta"));
}

#[test]
fn explain_tells_what_a_name_stands_for() {
    let world = World::new("alpha");
    let mut text = std::fs::read_to_string(world.path("mcp-proxy.toml")).unwrap();
    text.push_str("tools = { deny = [\"ech*\"], rename = { write = \"put\" } }\n");
    std::fs::write(world.path("mcp-proxy.toml"), text).unwrap();
    let explain = |name: &str| {
        let output = world.run(&["explain", name, "--json"]);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        (told, output.status.code())
    };
    let (told, code) = explain("alpha__put");
    assert_eq!((told["found"][0]["original"].as_str(), code), (Some("write"), Some(0)), "{told}");
    let (told, code) = explain("echo");
    assert_eq!((told["found"][0]["shown"].as_bool(), code), (Some(false), Some(1)), "{told}");
    assert!(told["found"][0]["notes"].to_string().contains("tools.deny: \\\"ech*\\\""), "{told}");
    let (told, code) = explain("alpha__wite");
    assert_eq!(code, Some(1));
    assert!(
        told["nearest"].as_array().unwrap().contains(&json!("alpha__write"))
            || told["nearest"].as_array().unwrap().contains(&json!("alpha__put")),
        "{told}"
    );
}

#[test]
fn explain_asks_the_proxy_that_runs_the_server() {
    let world = World::new("alpha");
    let text = world.ok(&["explain", "alpha__echo"]);
    assert!(text.contains("server    alpha (not running here)"), "{text}");
    let mut proxy = world.start();
    let pid = proxy.pid();
    proxy.tools();
    world.until(pid, "alpha", "its start", |server| server["state"] == "ready");
    let text = world.ok(&["explain", "alpha__echo"]);
    assert!(text.contains(&format!("server    alpha (ready, in process {pid})")), "{text}");
    assert_eq!(serde_json::from_str::<Value>(&world.ok(&["explain", "alpha__echo", "--json"])).unwrap()["pid"], pid);
    // Another configuration is not its business.
    let other = world.path("other.toml");
    std::fs::copy(world.path("mcp-proxy.toml"), &other).unwrap();
    let named = Command::new(env!("CARGO_BIN_EXE_mcp-proxy"))
        .args(["explain", "alpha__echo", "--config"])
        .arg(&other)
        .env("XDG_RUNTIME_DIR", world.path("run"))
        .env("MCP_PROXY_TEST_SYSTEM", world.path("system"))
        .env("XDG_STATE_HOME", world.path("state"))
        .env("XDG_CACHE_HOME", world.path("cache"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&named.stdout);
    assert!(text.contains("(not running here)"), "{text}{}", String::from_utf8_lossy(&named.stderr));
}

#[test]
fn explain_shows_arguments_and_a_call() {
    let world = World::new("alpha");
    let told: Value = serde_json::from_str(&world.ok(&["explain", "alpha__greet", "--json"])).unwrap();
    let one = &told["found"][0];
    assert_eq!(one["arguments"][0], json!({"name": "name", "type": "string", "required": true, "about": "Whom"}));
    assert_eq!(one["example"], "mcp-proxy prompt alpha__greet name=TEXT");
    let text = world.ok(&["explain", "alpha__greet"]);
    assert!(text.contains("\n    name  string, required  Whom\n"), "{text}");
    assert!(text.contains("example   mcp-proxy prompt alpha__greet name=TEXT"), "{text}");
    let text = world.ok(&["explain", "alpha__echo"]);
    assert!(text.contains("arguments") && text.contains("example   mcp-proxy call alpha__echo"), "{text}");
}

#[test]
fn a_call_leaves_one_line_with_its_trace_at_debug() {
    let world = World::new("alpha\nweak");
    let mut text = std::fs::read_to_string(world.path("mcp-proxy.toml")).unwrap();
    text.push_str("[log]\nlevel = \"debug\"\n");
    std::fs::write(world.path("mcp-proxy.toml"), text).unwrap();
    let mut proxy = world.start();
    proxy.tools();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let params = json!({"name": "alpha__echo", "arguments": {"pin": "1234567"}, "_meta": {"traceparent": trace}});
    assert!(proxy.ask("tools/call", &params)["result"].is_object());
    assert!(proxy.call("alpha__reply_error", &json!({"code": 7, "message": "no"}))["error"].is_object());
    assert_eq!(proxy.call("weak__kill", &json!({}))["error"]["code"], -31010);
    let lines = until("the lines", || {
        let text = world.ok(&["logs"]);
        let lines: Vec<String> = text.lines().filter(|line| line.contains(" call ")).map(str::to_owned).collect();
        (lines.len() == 3).then_some(lines)
    });
    let has = |line: &str, words: &[&str]| assert!(words.iter().all(|word| line.contains(word)), "{line}");
    has(&lines[0], &["alpha DEBUG", "request=1:", "tools/call", "alpha__echo", "ms=", "outcome=answered", trace]);
    has(&lines[1], &["alpha DEBUG", "alpha__reply_error", "outcome=error"]);
    has(&lines[2], &["weak DEBUG", "weak__kill", "outcome=child_exited"]);
    assert!(lines.iter().all(|line| !line.contains("1234567")), "arguments are never told");
    let recent = {
        let mut stream = UnixStream::connect(world.socket(proxy.pid())).unwrap();
        raw(&mut stream, r#"{"do":"overview"}"#)["ok"]["recent"].clone()
    };
    let told: Vec<_> = recent.as_array().unwrap().iter().map(|call| call["outcome"].as_str().unwrap()).collect();
    assert_eq!(told, ["child_exited", "error", "answered"]);
}

#[test]
fn a_server_s_own_level_counts_for_its_lines_and_is_taken_over() {
    let world = World::new("loud stderr_line=of-loud\nquiet stderr_line=of-quiet");
    let plain = std::fs::read_to_string(world.path("mcp-proxy.toml")).unwrap();
    let log = world.path("proxy.log");
    let levels = |loud: &str, quiet: &str| {
        let text = plain
            .replace("[servers.loud]\n", &format!("[servers.loud]\n{loud}"))
            .replace("[servers.quiet]\n", &format!("[servers.quiet]\n{quiet}"));
        assert!(text != plain, "{text}");
        format!("{text}[log]\nfile = {:?}\n", log.display())
    };
    std::fs::write(world.path("mcp-proxy.toml"), levels("log_level = \"debug\"\n", "log_level = \"error\"\n")).unwrap();
    let mut proxy = world.start();
    let pid = proxy.pid();
    // The file's name ends in the day.
    let written = || {
        let files = std::fs::read_dir(log.parent().unwrap()).unwrap().flatten();
        let mut files = files.filter(|file| file.file_name().to_string_lossy().starts_with("proxy.log"));
        files.next().map(|file| std::fs::read_to_string(file.path()).unwrap()).unwrap_or_default()
    };
    proxy.call("quiet__echo", &json!({}));
    proxy.call("loud__echo", &json!({}));
    until("the call's line", || written().contains("outcome=\"answered\"").then_some(()));
    let text = written();
    assert!(text.contains("of-loud") && text.contains("loud__echo"), "{text}");
    assert!(!text.contains("quiet"), "{text}");
    let kept = world.ok(&["logs", "quiet"]);
    assert!(kept.contains("of-quiet"), "`logs` has it all the same: {kept}");
    std::fs::write(world.path("mcp-proxy.toml"), levels("", "log_level = \"debug\"\n")).unwrap();
    world.ok(&["reload", "--pid", &pid.to_string()]);
    until("the other level", || {
        proxy.call("quiet__echo", &json!({}));
        written().contains("quiet__echo").then_some(())
    });
    let calls = written().matches("loud__echo").count();
    proxy.call("loud__echo", &json!({}));
    proxy.call("quiet__write", &json!({"value": "last"}));
    until("the last line", || written().contains("quiet__write").then_some(()));
    assert_eq!(written().matches("loud__echo").count(), calls);
    assert_eq!(world.server(pid, "quiet")["generation"], 1, "no server is replaced for it");
}

#[test]
fn doctor_says_what_is_well_and_what_is_not() {
    let world = World::new("alpha banner=text");
    let doctor = |world: &World| {
        let output = world.run(&["doctor", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (report, output.status.code())
    };
    let (report, code) = doctor(&world);
    assert_eq!((report["ok"].as_bool(), code), (Some(true), Some(0)), "{report}");
    let alpha = &report["servers"][0];
    assert_eq!(alpha["found"], env!("CARGO_BIN_EXE_fake-server"));
    assert!(alpha["startMs"].is_number() && alpha["protocol"].is_string(), "{alpha}");
    world.write("alpha\nbeta crash=3 stderr_line=why-it-is");
    let (report, code) = doctor(&world);
    assert_eq!((report["ok"].as_bool(), code), (Some(false), Some(1)));
    assert_eq!(report["servers"][1]["ok"], false);
    let text = world.run(&["doctor"]);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("alpha: well") && text.contains("beta: NOT WELL"), "{text}");
}

#[test]
fn doctor_reads_the_hosts_files_for_what_starts_it() {
    let world = World::new("alpha");
    let home = world.path("home");
    let own = env!("CARGO_BIN_EXE_mcp-proxy");
    let write = |name: &str, text: String| {
        let path = home.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let config = world.path("mcp-proxy.toml");
    write(
        ".cursor/mcp.json",
        json!({"mcpServers": {"tools": {"command": own, "args": ["run", "--config", config]}}}).to_string(),
    );
    write(".codex/config.toml", "# mcp-proxy\n[mcp_servers.git]\ncommand = 'git-mcp'\n".to_owned());
    let doctor = || {
        let output = world.run(&["doctor", "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let host = |id: &str| report["hosts"].as_array().unwrap().iter().find(|host| host["id"] == id).unwrap().clone();
        (host("cursor"), host("codex"), host("gemini"), output.status.code())
    };
    let (cursor, codex, gemini, code) = doctor();
    assert_eq!(code, Some(0));
    let entry = &cursor["entries"][0];
    assert_eq!((entry["name"].as_str(), entry["command"].as_str()), (Some("tools"), Some(own)));
    assert!(entry["file"].as_str().unwrap().ends_with(".cursor/mcp.json"), "{entry}");
    assert_eq!((cursor["notes"].as_array().unwrap().len(), &cursor["configured"]), (0, &json!(true)), "{cursor}");
    assert_eq!((&codex["installed"], &codex["configured"]), (&json!(true), &json!(false)), "a comment is no entry");
    assert_eq!((&gemini["installed"], &gemini["configured"]), (&json!(false), &json!(false)));
    let text = world.ok(&["doctor"]);
    assert!(
        text.contains("Cursor: starts the proxy, by `tools` in ") && text.contains("mcp-proxy install codex"),
        "{text}"
    );
    // Gone, broken, and with a configuration that is not there: each is told, and none is well.
    write(
        ".cursor/mcp.json",
        json!({"mcpServers": {"hub": {"command": "/nowhere/mcp-proxy", "args": ["run"]}}}).to_string(),
    );
    write(".codex/config.toml", "[mcp_servers.hub\n".to_owned());
    write(
        ".gemini/settings.json",
        json!({"mcpServers": {"hub": {"command": own, "args": ["run", "--config", "/nowhere.toml"]}}}).to_string(),
    );
    let (cursor, codex, gemini, code) = doctor();
    assert_eq!(code, Some(1));
    let told = |host: &Value, words: &str| assert!(host["problems"].to_string().contains(words), "{host}");
    told(&cursor, "`hub` starts /nowhere/mcp-proxy, which is not there; `mcp-proxy install cursor` corrects it");
    told(&codex, "can't be read: line 1");
    told(&gemini, "/nowhere.toml, which is not there");
}

/// The names of a command's own commands, by its help.
fn commands_of(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A description may go on in the next line.
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_has_an_example_and_a_man_page() {
    let world = World::new("");
    assert!(world.ok(&["man"]).starts_with(".ie"));
    let pages = world.path("man1");
    world.ok(&["man", "--to", pages.to_str().unwrap()]);
    let (mut todo, mut seen) = (vec![Vec::<String>::new()], 0);
    while let Some(words) = todo.pop() {
        let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
        let page = pages.join(format!("{}.1", [&["mcp-proxy"], &args[..]].concat().join("-")));
        args.push("--help");
        let help = world.ok(&args);
        assert!(help.contains("Example") && help.contains("  mcp-proxy "), "{words:?}: {help}");
        assert!(std::fs::read_to_string(&page).unwrap().contains("Example"), "{}", page.display());
        todo.extend(commands_of(&help).into_iter().map(|name| [&words[..], &[name]].concat()));
        seen += 1;
    }
    assert!(seen > 22, "{seen}");
}
