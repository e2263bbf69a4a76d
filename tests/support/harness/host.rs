//! The host that a test plays.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::pipes::Gate;
use super::processes::{assert_nothing_left, kill, living};
use super::{Message, PATIENCE, Setup};

/// A host with a proxy of its own.
pub(crate) struct Host {
    pub(crate) pid: u32,
    pub(super) child: Child,
    pub(super) input: Option<Sender<Vec<u8>>>,
    pub(super) lines: Receiver<Vec<u8>>,
    pub(super) gate: Arc<Gate>,
    pub(super) stderr: Arc<Mutex<String>>,
    /// The proxy's stderr where nobody reads it.
    pub(super) _unread: Option<std::process::ChildStderr>,
    pub(super) next: u64,
    /// Answers that nobody asked for yet, by the token of the id.
    pub(super) answers: HashMap<String, Message>,
    pub(super) notifications: VecDeque<Message>,
    pub(super) requests: VecDeque<Message>,
    /// Answers without an id, arrays, and what is no message.
    pub(super) others: VecDeque<Message>,
    /// The last lines, for a failure's report.
    pub(super) last: VecDeque<String>,
    pub(super) ended: Option<ExitStatus>,
    /// The test has ended the proxy in its own way.
    pub(super) quiet: bool,
    pub(super) setup: Setup,
}

/// What tells the kind of a message.
#[derive(serde::Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
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
        // One walk, for it may be 32 MiB; what is no object (an array of answers) is walked again.
        let (id, method) = match serde_json::from_str::<Envelope<'_>>(&raw) {
            Ok(envelope) => (envelope.id.map(|id| id.get().to_owned()), envelope.method),
            Err(_) if serde_json::from_str::<&RawValue>(&raw).is_ok() => (None, None),
            Err(error) => self.fail(&format!("a line that is no JSON: {error}")),
        };
        let message = Message { raw };
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

    /// Lists everything, and forgets what was told of changes until then: from now on only a change is news.
    pub(crate) fn settle(&mut self) {
        for kind in ["tools", "prompts", "resources", "resourceTemplates"] {
            self.list(kind);
        }
        for kind in ["tools", "prompts", "resources"] {
            self.notifications(&format!("notifications/{kind}/list_changed"));
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

    /// Waits until a scripted server has so many requests that it has not answered.
    pub(crate) fn pending(&mut self, server: &str, count: usize) {
        let until = Instant::now() + PATIENCE;
        loop {
            let told = self.call(&format!("{server}__pending"), "{}").told();
            if told.as_array().unwrap().len() == count {
                return;
            }
            if Instant::now() > until {
                self.fail(&format!("{server} has {told} pending, not {count}"));
            }
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

    /// Closes the pipe, waits for the end, and starts the proxy again in the same place.
    pub(crate) fn restart(mut self) -> Setup {
        self.finish();
        self.quiet = true;
        std::mem::replace(&mut self.setup, Setup::new())
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

pub(super) fn json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
