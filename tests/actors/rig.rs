//! A host, children and the pump between them, all in one process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mcp_proxy::config::parse;
use mcp_proxy::engine::hub::{Clock, Entropy, Hub};
use mcp_proxy::engine::outcome::UnixMs;
use mcp_proxy::runtime::desk::Desk;
use mcp_proxy::runtime::launch::Starter;
use mcp_proxy::runtime::process::{Begun, Exit, Later, Life, Pipes, Spawn, Start};
use mcp_proxy::runtime::pump::{Parts, Pump};
use mcp_proxy::runtime::shelf::Shelf;
use mcp_proxy::runtime::stdio::{PipeIn, PipeOut};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Much longer than any limit in these tests; under the held clock it costs nothing.
const PATIENCE: Duration = secs(24 * 3600);

pub const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The host's side of a running pump.
pub struct Proxy {
    input: Option<Sender>,
    output: Option<BufReader<Receiver>>,
    starts: mpsc::UnboundedReceiver<Child>,
    early: Vec<Child>,
    /// Notifications that came before an answer.
    pub told: Vec<Value>,
    pump: JoinSet<()>,
}

/// The server's side of one life.
pub struct Child {
    name: String,
    stdin: BufReader<Receiver>,
    stdout: Sender,
    stderr: Sender,
    exit: watch::Sender<Option<Exit>>,
    ladder: watch::Receiver<Option<Duration>>,
}

/// Gives each start to the test.
#[derive(Debug)]
struct Stage(mpsc::UnboundedSender<Child>);

/// The pump's hold on a [`Child`].
#[derive(Debug)]
struct Actor {
    exit: watch::Receiver<Option<Exit>>,
    ladder: Mutex<watch::Sender<Option<Duration>>>,
}

/// The answer to `tools/list` with tools of these names.
pub fn listing(request: &Value, names: &[&str]) -> Value {
    let tool =
        |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}});
    let tools: Vec<_> = names.iter().map(tool).collect();
    json!({"jsonrpc": "2.0", "id": request["id"], "result": {"tools": tools}})
}

fn pipe() -> (Sender, Receiver) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Sender::from_owned_fd(writer.into()).unwrap(), Receiver::from_owned_fd(reader.into()).unwrap())
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}

async fn line(reader: &mut BufReader<Receiver>) -> Value {
    let mut line = String::new();
    within("a message", reader.read_line(&mut line)).await.unwrap();
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
}

// === impl Proxy ===

impl Proxy {
    /// Runs a pump with that configuration, and asks it to `initialize`; to be used under a held clock.
    pub async fn start(config: &str) -> Self {
        let parsed = parse(Path::new("actors.toml"), config, None);
        assert!(parsed.sound(), "{:?}", parsed.faults);
        let clock = Clock { instant: tokio::time::Instant::now().into_std(), unix: UnixMs(0) };
        let known = parsed.config.servers.iter().map(|_| None).collect();
        let hub = Hub::new(Arc::new(parsed.config), known, clock, Entropy::new([7; 32]), 1);
        let ((host_in, input), (output, host_out)) = (pipe(), pipe());
        let (tell, starts) = mpsc::unbounded_channel();
        let events = mpsc::unbounded_channel();
        let config_path: Arc<Path> = Path::new("actors.toml").into();
        let shelf = Shelf::new();
        let desk = Desk::open(None, None, events.0.clone());
        let pump = Pump::new(Parts {
            hub,
            input: PipeIn::Pipe(input),
            output: PipeOut::Pipe(output),
            desk,
            starter: Starter::new(Arc::new(Stage(tell)), shelf.clone(), config_path, BTreeMap::new()),
            shelf,
            signals: None,
            events,
        });
        let mut running = JoinSet::new();
        running.spawn(pump.run());
        let mut proxy = Self {
            input: Some(host_in),
            output: Some(BufReader::with_capacity(1 << 16, host_out)),
            starts,
            early: Vec::new(),
            told: Vec::new(),
            pump: running,
        };
        let client = json!({"name": "t", "version": "1"});
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        proxy.say(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})).await;
        proxy
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        within("room for the host's message", self.input.as_mut().unwrap().write_all(bytes)).await.unwrap();
    }

    pub async fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    pub async fn hear(&mut self) -> Value {
        line(self.output.as_mut().unwrap()).await
    }

    /// The next answer; notifications before it are kept.
    pub async fn answer(&mut self) -> Value {
        loop {
            let message = self.hear().await;
            if message.get("method").is_none() {
                return message;
            }
            self.told.push(message);
        }
    }

    /// Sends a request and waits for its answer.
    pub async fn request(&mut self, message: Value) -> Value {
        self.say(&message).await;
        let answer = self.answer().await;
        assert_eq!(answer["id"], message["id"], "{answer}");
        answer
    }

    /// Hears the answer to `initialize`.
    pub async fn initialized(&mut self) {
        let answer = self.answer().await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    }

    /// The next start of that server.
    pub async fn child(&mut self, name: &str) -> Child {
        if let Some(at) = self.early.iter().position(|child| child.name == name) {
            return self.early.remove(at);
        }
        loop {
            let child = within("a start", self.starts.recv()).await.unwrap();
            if child.name == name {
                return child;
            }
            self.early.push(child);
        }
    }

    /// The next start of that server, led through its handshake and its list of one tool.
    pub async fn ready_child(&mut self, name: &str) -> Child {
        let mut child = self.child(name).await;
        loop {
            let request = child.hear().await;
            let mut answer = match request["method"].as_str().unwrap() {
                "initialize" => json!({"result": {"protocolVersion": request["params"]["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": true}}, "serverInfo": {"name": name, "version": "1"}}}),
                "tools/list" => listing(&request, &["echo"]),
                "notifications/initialized" => continue,
                _ => json!({"error": {"code": -32601, "message": "no"}}),
            };
            answer["jsonrpc"] = "2.0".into();
            answer["id"] = request["id"].clone();
            child.say(&answer).await;
            if request["method"] == "tools/list" {
                return child;
            }
        }
    }

    pub fn close_input(&mut self) {
        self.input = None;
    }

    pub fn close_output(&mut self) {
        self.output = None;
    }

    pub async fn ended(mut self) {
        within("the end", self.pump.join_next()).await.unwrap().unwrap();
    }
}

// === impl Child ===

impl Child {
    pub async fn hear(&mut self) -> Value {
        line(&mut self.stdin).await
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        within("room for the server's message", self.stdout.write_all(bytes)).await.unwrap();
    }

    pub async fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    pub async fn complain(&mut self, text: &str) {
        self.stderr.write_all(text.as_bytes()).await.unwrap();
    }

    /// The process ends, and with it its ends of the pipes.
    pub fn exit(self, exit: Exit) {
        self.exit.send_replace(Some(exit));
    }

    /// Waits for the stop ladder; the grace of its rungs. The server then ends.
    pub async fn ladder(mut self) -> Duration {
        let grace = within("the ladder", self.ladder.wait_for(Option::is_some)).await.unwrap().unwrap();
        self.exit(Exit::Code(0));
        grace
    }

    /// Waits for the end of its input.
    pub async fn input_ended(&mut self) {
        within("the end of the input", self.stdin.read_to_end(&mut Vec::new())).await.unwrap();
    }
}

// === impl Stage ===

impl Start for Stage {
    fn start<'a>(&'a self, plan: &'a Spawn) -> Later<'a, Begun> {
        Box::pin(async {
            let ((our_in, stdin), (stdout, our_out), (stderr, our_err)) = (pipe(), pipe(), pipe());
            let (exit, exited) = watch::channel(None);
            let (laddered, ladder) = watch::channel(None);
            let name = plan.args[0].to_string_lossy().into_owned();
            let child = Child { name, stdin: BufReader::with_capacity(1 << 16, stdin), stdout, stderr, exit, ladder };
            // A test that has ended is told nothing.
            let _ = self.0.send(child);
            let life = Actor { exit: exited, ladder: Mutex::new(laddered) };
            Ok((Box::new(life) as Box<dyn Life>, Pipes { stdin: our_in, stdout: our_out, stderr: our_err }))
        })
    }
}

// === impl Actor ===

impl Life for Actor {
    fn pid(&self) -> u32 {
        7
    }

    fn wait(&self) -> Later<'_, Exit> {
        let mut exit = self.exit.clone();
        // A test that lets go of a child without a word has killed it.
        Box::pin(async move { exit.wait_for(Option::is_some).await.map_or(Exit::Signal(9), |exit| exit.unwrap()) })
    }

    fn ladder(self: Box<Self>, grace: Duration) -> Later<'static, Exit> {
        Box::pin(async move {
            self.ladder.lock().unwrap().send_replace(Some(grace));
            tokio::time::timeout(2 * grace, self.wait()).await.unwrap_or(Exit::Signal(9))
        })
    }
}
