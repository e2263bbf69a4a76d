//! Hundreds of seeded rounds of everything that can go wrong, with kills of the proxy at random moments.
//!
//! The law, for each request for a recorded tool: what was answered has no row (but for the last answers before a
//! `kill -9`); what was lost has one; what was refused has none, and no effect. No call has more effects than requests
//! that were not refused. `MCP_PROXY_SOAK_SEED` replays a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::rows_in;

const ROUNDS: usize = 500;
/// Proxies at the same time; two of them on one state directory each.
const LANES: usize = 4;
const PATIENCE: Duration = Duration::from_secs(40);
/// Requests under way before a round waits for some.
const OPEN_MAX: usize = 48;

#[test]
fn nothing_runs_twice_and_nothing_is_forgotten_soak() {
    let seed = std::env::var("MCP_PROXY_SOAK_SEED")
        .map_or_else(|_| std::hash::RandomState::new().build_hasher().finish(), |seed| seed.parse().unwrap());
    println!("MCP_PROXY_SOAK_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let lanes: Vec<Lane> = std::thread::scope(|scope| {
        let dir = dir.path();
        let threads: Vec<_> = (0..LANES)
            .map(|lane| scope.spawn(move || Lane::new(dir, lane, seed.wrapping_add(lane as u64)).run(ROUNDS / LANES)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    wait_for_silence(dir.path());
    let mut tally = Tally::default();
    for pair in 0..LANES / 2 {
        let rows = rows_in(&dir.path().join(format!("state-{pair}")));
        for lane in &lanes[2 * pair..2 * pair + 2] {
            lane.check(seed, &rows, &mut tally);
        }
        // Both lanes' rows are all that there are.
        let of_lanes = rows.iter().filter(|row| lanes.iter().any(|lane| lane.lives.contains(&pid_of(row)))).count();
        assert_eq!(of_lanes, rows.len(), "seed {seed}: rows of nobody");
    }
    println!("{tally:?}");
    assert!(
        tally.kills >= 20 && tally.lost >= 100 && tally.answered >= 100,
        "seed {seed}: it did too little: {tally:?}"
    );
}

#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    lost: usize,
    refused: usize,
    kills: usize,
    effects: usize,
    /// Answers whose settlement a kill came before.
    overtaken: usize,
}

/// One host with proxies of its own, one after the other.
struct Lane {
    dir: PathBuf,
    state: PathBuf,
    random: Random,
    proxy: Option<Proxy>,
    next: u64,
    version: u32,
    requests: BTreeMap<(u32, u64), Request>,
    /// The requests without an answer, of the present life.
    open: BTreeSet<u64>,
    /// Calls that were lost at `a`, by their arguments.
    lost: Vec<String>,
    /// Arguments of repeats: each was refused once, and may then have run again.
    repeated: BTreeSet<String>,
    lives: BTreeSet<u32>,
    killed: BTreeSet<u32>,
    /// Answers of servers, in the order of their coming.
    arrived: Vec<(u32, u64)>,
}

struct Request {
    arguments: String,
    cancelled: bool,
    answer: Option<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// What the server said.
    Reply,
    /// -31010 with this id and reason.
    Lost(String, String),
    /// -31011, -31012: it was not sent.
    Refused(i64),
}

struct Proxy {
    child: Child,
    pid: u32,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

// === impl Lane ===

impl Lane {
    fn new(dir: &Path, lane: usize, seed: u64) -> Self {
        let state = dir.join(format!("state-{}", lane / 2));
        // Two lanes that share a directory make no equal calls: the guard of one would know of the other's.
        let next = 1 + 1_000_000 * lane as u64;
        let dir = dir.join(format!("lane-{lane}"));
        std::fs::create_dir_all(dir.join("home")).unwrap();
        let lane = Self {
            dir,
            state,
            random: Random(seed),
            proxy: None,
            next,
            version: 1,
            requests: BTreeMap::new(),
            open: BTreeSet::new(),
            lost: Vec::new(),
            repeated: BTreeSet::new(),
            lives: BTreeSet::new(),
            killed: BTreeSet::new(),
            arrived: Vec::new(),
        };
        lane.write_config();
        lane
    }

    fn write_config(&self) {
        let fake = json!(env!("CARGO_BIN_EXE_fake-server"));
        let ledger = json!(format!("ledger={}", self.dir.join("ledger").display()));
        let restart = r#"restart = { policy = "always", min = "5ms", max = "20ms", attempts = 1000, stable = "60s" }"#;
        let mut text = String::from("[proxy]\nwatch = false\n[log]\nlevel = \"error\"\n");
        for (key, more) in [
            ("a", format!("env = {{ V = \"{}\" }}\ndrain_timeout = \"150ms\"", self.version)),
            ("b", "call_max_time = \"250ms\"".to_owned()),
        ] {
            text.push_str(&format!(
                "[servers.{key}]\ncommand = {fake}\nargs = [{ledger}]\nstop_grace = \"300ms\"\n{restart}\n{more}\n"
            ));
        }
        let beside = self.dir.join("config.new");
        std::fs::write(&beside, text).unwrap();
        std::fs::rename(beside, self.dir.join("config.toml")).unwrap();
    }

    fn run(mut self, rounds: usize) -> Self {
        for _ in 0..rounds {
            self.round();
        }
        self.wait_until_open(0);
        self.end(Signal::TERM);
        self
    }

    /// Some calls, and something that happens to them.
    fn round(&mut self) {
        if self.proxy.is_none() {
            self.proxy = Some(Proxy::start(&self.dir, &self.state));
            let pid = self.pid();
            self.lives.insert(pid);
            self.say(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}"#);
            self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
            self.open.insert(0);
            self.wait_for(0);
        }
        for _ in 0..=self.random.below(7) {
            self.call();
        }
        match self.random.below(100) {
            0..30 => {}
            30..45 => self.cancel(),
            45..55 => self.repeat(),
            55..60 => {
                // A server that no longer reads, and then ends: what comes now dies in the pipe.
                self.send("a__exit", r#"{"ms":40,"code":9}"#, false);
                self.send("a__block", r#"{"ms":5000}"#, false);
                self.call();
            }
            60..65 => self.send("a__kill", "{}", false),
            65..73 => {
                self.version += 1;
                self.write_config();
                self.signal(Signal::HUP);
            }
            73..87 => {
                self.pause();
                self.end(Signal::KILL);
            }
            87..90 => self.end(Signal::TERM),
            90..93 => self.end_of_input(),
            _ => self.wait_until_open(4),
        }
        self.pause();
        self.take_in(Duration::ZERO);
        if self.open.len() > OPEN_MAX {
            self.wait_until_open(OPEN_MAX / 2);
        }
    }

    /// A call that no other equals.
    fn call(&mut self) {
        let server = if self.random.below(4) == 0 { "b" } else { "a" };
        let n = self.next;
        let more = match self.random.below(100) {
            0..4 => r#","crash":"before_run""#.to_owned(),
            4..8 => r#","crash":"after_run""#.to_owned(),
            8..11 => r#","crash":"half_reply""#.to_owned(),
            11..14 => r#","crash":"after_reply""#.to_owned(),
            14..20 => r#","error":true"#.to_owned(),
            20..50 => format!(r#","ms":{}"#, self.random.below(60)),
            50..56 => format!(r#","ms":{}"#, 200 + self.random.below(300)),
            _ => String::new(),
        };
        self.send(&format!("{server}__ledger"), &format!(r#"{{"n":{n}{more}}}"#), true);
    }

    fn send(&mut self, tool: &str, arguments: &str, recorded: bool) {
        let id = self.next;
        self.next += 1;
        if self.proxy.is_none() {
            return;
        }
        if recorded {
            let request = Request { arguments: arguments.to_owned(), cancelled: false, answer: None };
            self.requests.insert((self.pid(), id), request);
            self.open.insert(id);
        }
        self.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        ));
    }

    fn cancel(&mut self) {
        let open: Vec<u64> = self.open.iter().copied().collect();
        if open.is_empty() {
            return;
        }
        let id = open[usize::try_from(self.random.below(open.len() as u64)).unwrap()];
        let pid = self.pid();
        self.open.remove(&id);
        self.requests.get_mut(&(pid, id)).unwrap().cancelled = true;
        self.say(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#));
    }

    /// A call that was lost is made again: it is refused once, and then goes through.
    fn repeat(&mut self) {
        self.take_in(Duration::ZERO);
        let Some(arguments) = self.lost.pop() else { return };
        self.repeated.insert(arguments.clone());
        for refused in [true, false] {
            let id = self.next;
            self.send("a__ledger", &arguments, true);
            if refused {
                self.wait_for(id);
                let answer = self.requests[&(self.pid(), id)].answer.clone();
                assert!(matches!(answer, Some(Answer::Refused(_))), "a blind repeat of {arguments}: {answer:?}");
                if answer != Some(Answer::Refused(-31012)) {
                    return;
                }
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap(), signal);
    }

    fn end(&mut self, signal: Signal) {
        if self.proxy.is_some() {
            if signal == Signal::KILL {
                self.killed.insert(self.pid());
            }
            self.signal(signal);
            self.bury();
        }
    }

    fn end_of_input(&mut self) {
        if let Some(Proxy { child, pid, stdin, lines }) = self.proxy.take() {
            drop(stdin);
            let stdin = Command::new("true").stdin(Stdio::piped()).spawn().unwrap().stdin.take().unwrap();
            self.proxy = Some(Proxy { child, pid, stdin, lines });
            self.bury();
        }
    }

    /// Takes in what it still said, until its pipe ends.
    fn bury(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.take_in(Duration::from_millis(100)) {
            assert!(Instant::now() < until, "the proxy does not end");
        }
        let pid = self.pid();
        let mut proxy = self.proxy.take().unwrap();
        proxy.child.wait().unwrap();
        // The rows of an earlier life are known to the next one a moment after its start: not a matter of these rounds.
        self.lost.clear();
        let open = std::mem::take(&mut self.open);
        assert!(open.is_empty() || self.killed.contains(&pid), "{pid} ended with {open:?} unanswered");
    }

    fn wait_until_open(&mut self, count: usize) {
        let until = Instant::now() + PATIENCE;
        while self.proxy.is_some() && self.open.len() > count {
            assert!(self.take_in(Duration::from_millis(100)), "the proxy ended by itself");
            assert!(Instant::now() < until, "no answer to {:?}", self.open);
        }
    }

    fn wait_for(&mut self, id: u64) {
        let until = Instant::now() + PATIENCE;
        while self.open.contains(&id) {
            assert!(self.take_in(Duration::from_millis(100)), "the proxy ended by itself");
            assert!(Instant::now() < until, "no answer to {id}");
        }
    }

    fn pause(&mut self) {
        let ms = self.random.below(25);
        self.take_in(Duration::from_millis(ms));
    }

    /// Takes in what comes within that time; `false` at the end of the pipe.
    fn take_in(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let Some(proxy) = &self.proxy else { return false };
            let pid = proxy.pid;
            match proxy.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => self.heard(pid, &line),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => return true,
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    fn heard(&mut self, pid: u32, line: &str) {
        let message: Value = serde_json::from_str(line).unwrap();
        let Some(id) = message["id"].as_u64() else { return };
        let Some(request) = self.requests.get_mut(&(pid, id)) else {
            self.open.remove(&id);
            return;
        };
        assert!(request.answer.is_none(), "a second answer to {id}: {line}");
        let error = &message["error"];
        let answer = match error["code"].as_i64() {
            Some(-31010) => {
                let text = |key: &str| error["data"][key].as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
                Answer::Lost(text("outcomeId"), text("reason"))
            }
            Some(code) if error["data"]["source"] == "mcp-proxy" => Answer::Refused(code),
            _ => Answer::Reply,
        };
        match &answer {
            Answer::Reply => self.arrived.push((pid, id)),
            Answer::Lost(..) if error["data"]["server"] == "a" && !self.repeated.contains(&request.arguments) => {
                self.lost.push(request.arguments.clone());
            }
            Answer::Lost(..) | Answer::Refused(_) => {}
        }
        request.answer = Some(answer);
        self.open.remove(&id);
    }

    fn pid(&self) -> u32 {
        self.proxy.as_ref().expect("a proxy runs").pid
    }

    fn say(&mut self, line: &str) {
        let stdin = &mut self.proxy.as_mut().expect("a proxy runs").stdin;
        let _ = stdin.write_all(format!("{line}\n").as_bytes());
    }

    /// The law.
    fn check(&self, seed: u64, rows: &[Value], tally: &mut Tally) {
        let text = std::fs::read_to_string(self.dir.join("ledger")).unwrap();
        let mut effects: BTreeMap<u64, usize> = BTreeMap::new();
        for line in text.lines() {
            let effect: Value = serde_json::from_str(line).unwrap();
            if let Some(n) = effect["arguments"]["n"].as_u64() {
                *effects.entry(n).or_default() += 1;
            }
        }
        let mut by_request: BTreeMap<(u32, u64), Vec<&Value>> = BTreeMap::new();
        for row in rows {
            by_request.entry((pid_of(row), row["hostRequestId"].as_u64().unwrap())).or_default().push(row);
        }
        let mut sent: BTreeMap<u64, usize> = BTreeMap::new();
        for (key, request) in &self.requests {
            let about = format!("seed {seed}: request {key:?} with {}: {:?}", request.arguments, request.answer);
            let rows = by_request.get(key).map_or(&[][..], Vec::as_slice);
            assert!(rows.len() <= 1, "{about}: {rows:#?}");
            let arguments: Value = serde_json::from_str(&request.arguments).unwrap();
            let n = arguments["n"].as_u64().unwrap();
            let ran = effects.get(&n).copied().unwrap_or_default();
            let once = !self.repeated.contains(&request.arguments);
            match &request.answer {
                Some(Answer::Reply) => tally.answered += 1,
                Some(Answer::Lost(id, reason)) => {
                    tally.lost += 1;
                    assert_eq!(rows.len(), 1, "{about}");
                    assert_eq!((&rows[0]["id"], &rows[0]["reason"]), (&json!(id), &json!(reason)), "{about}");
                }
                Some(Answer::Refused(_)) => {
                    tally.refused += 1;
                    assert!(rows.is_empty(), "{about}: {rows:#?}");
                    assert!(!once || ran == 0, "{about}: refused, and yet it ran");
                }
                None => {
                    assert!(request.cancelled || self.killed.contains(&key.0), "{about}");
                    assert!(!once || ran == 0 || rows.len() == 1, "{about}: it ran, and nobody knows");
                }
            }
            if !matches!(request.answer, Some(Answer::Refused(_))) {
                *sent.entry(n).or_default() += 1;
            }
        }
        for (n, ran) in &effects {
            tally.effects += ran;
            assert!(*ran <= sent[n], "seed {seed}: call {n} ran {ran} times for {} requests", sent[n]);
        }
        tally.kills += self.killed.len();
        for pid in &self.lives {
            // Only the last answers before a kill may have a row: they were being written.
            let arrived: Vec<bool> =
                self.arrived.iter().filter(|(of, _)| of == pid).map(|key| by_request.contains_key(key)).collect();
            let overtaken = arrived.iter().rev().take_while(|has_row| **has_row).count();
            let all = arrived.iter().filter(|has_row| **has_row).count();
            assert_eq!(all, overtaken, "seed {seed}: an answered call of {pid} has a row: {arrived:?}");
            assert!(all == 0 || self.killed.contains(pid), "seed {seed}: {pid} ended well");
            tally.overtaken += all;
        }
    }
}

// === impl Proxy ===

impl Proxy {
    fn start(dir: &Path, state: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mcp-proxy"))
            .env_clear()
            .env("HOME", dir.join("home"))
            .env("XDG_STATE_HOME", state)
            .env("XDG_CACHE_HOME", dir.join("cache"))
            .arg("--config")
            .arg(dir.join("config.toml"))
            .arg("run")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // A line without its end was being written when the proxy was killed: it is no answer.
            while output.read_line(&mut line).is_ok_and(|count| count > 0) && line.ends_with('\n') {
                let _ = sender.send(std::mem::take(&mut line));
            }
        });
        Self { pid: child.id(), child, stdin, lines }
    }
}

fn pid_of(row: &Value) -> u32 {
    u32::try_from(row["pid"].as_u64().unwrap()).unwrap()
}

/// Waits until no process of these lanes is left: then the effects are complete.
fn wait_for_silence(dir: &Path) {
    let mark = format!("HOME={}", dir.display());
    let until = Instant::now() + PATIENCE;
    let lives = || {
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok())
            .any(|environ| String::from_utf8_lossy(&environ).contains(&mark))
    };
    while lives() {
        assert!(Instant::now() < until, "processes outlive their proxies");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `splitmix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}
