//! The chaos test: eight children that do everything wrong, under load, beside one that is well. And what is held after
//! very many calls of unknown outcome.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::crash::{ALWAYS, memory_of};
use crate::harness::{Host, Setup, children_of};

/// How long it runs; `MCP_PROXY_SOAK_SECONDS` says otherwise.
const SECONDS: u64 = 60;
/// Calls under way to the bad ones.
const UNDER_WAY: usize = 40;
/// Before the first look at what the proxy holds: until the kept lines of each log are full, a thousand at a hundred in
/// a second.
const WARM_UP: Duration = Duration::from_secs(15);
/// Parts of the run; what is held is looked at after each.
const WINDOWS: u32 = 4;
/// Between two looks at memory while there is load.
const SAMPLE: Duration = Duration::from_millis(100);
/// What memory may be more in the last third of the chaos than in the second, on average. Floods of 200 kB come and go
/// in it; the other test is stricter.
const NOISE: u64 = 2 << 20;
/// Calls of unknown outcome in each third of the other test.
const LOST: usize = 8_000;
/// What memory may be more, on average, after so many of them: a leak of 500 bytes for each would be 4 MB.
const LOST_NOISE: u64 = 3 << 19;
/// A name, flags, and calls of tools with arguments.
type Bad = (&'static str, &'static str, &'static [(&'static str, &'static str)]);
/// The bad children: their names, what they are in general, and what each is asked to do.
const BAD: [Bad; 8] = [
    ("crashes", "", &[("die_before_reply", r#"{"code":3}"#), ("kill", "{}"), ("echo", "{}")]),
    ("exits", "", &[("reply_then_die", r#"{"code":0}"#), ("echo", "{}"), ("echo", "{}")]),
    ("hangs", "", &[("hang", "{}"), ("sleep", r#"{"ms":50}"#), ("late", r#"{"ms":20}"#)]),
    ("deaf", "ignore_eof ignore_term", &[("close_stdout", "{}"), ("echo", "{}"), ("echo", "{}"), ("echo", "{}")]),
    (
        "forks",
        "ignore_term",
        &[
            ("spawn_grandchild", r#"{"ignore_term":true,"hold":true}"#),
            ("spawn_grandchild", r#"{"ignore_term":true}"#),
            ("exit", r#"{"code":1,"ms":20}"#),
        ],
    ),
    ("floods", "", &[("flood_stdout", r#"{"n":300,"bytes":500}"#), ("big", r#"{"bytes":200000}"#)]),
    ("screams", "stderr=100000", &[("flood_stderr", r#"{"bytes":200000,"line":80}"#), ("echo", "{}")]),
    (
        "babbles",
        "",
        &[
            ("half_reply", r#"{"then":"newline"}"#),
            ("oversize", r#"{"bytes":1500000}"#),
            ("noise", r#"{"kind":"brokenjson","n":20}"#),
            ("invalid_reply", "{}"),
            ("double_reply", "{}"),
            ("die_before_reply", "{}"),
        ],
    ),
];

/// A server behind nothing but two copies of its bytes.
struct Relay {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Relay {
    fn start() -> Self {
        let server = env!("CARGO_BIN_EXE_fake-server");
        let mut child = Command::new("/bin/sh")
            .args(["-c", &format!("cat | {server} | cat")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut relay = Self { child, answers };
        relay.ask(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}"#);
        relay
    }

    fn ask(&mut self, line: &str) -> Duration {
        let start = Instant::now();
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(answer.contains("result"), "{answer}");
        start.elapsed()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.child.stdin = None;
        let _ = self.child.wait();
    }
}

/// What the proxy holds when nothing is under way and every child is up.
#[derive(Debug)]
struct Held {
    descriptors: usize,
    processes: usize,
}

fn held(host: &mut Host) -> Held {
    // What forked is killed with what it forked, so that nothing but the servers is left.
    host.call("forks__exit", r#"{"code":1}"#).error(-31010);
    for (server, ..) in BAD {
        // One that failed or rests is started by a call.
        let until = Instant::now() + Duration::from_secs(20);
        while host.call(&format!("{server}__echo"), r#"{"well":true}"#).raw_member("error").is_some() {
            assert!(Instant::now() < until, "{server} does not come back: {:#}", host.status(server));
        }
    }
    let expected = 2 + BAD.len();
    host.until("only what is configured lives", || host.living().len() == expected);
    host.until("nothing is left to reap", || zombies(host.pid) == 0);
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", host.pid)).unwrap().count();
    Held { descriptors, processes: host.living().len() }
}

/// What the descriptors of a process are, with their number.
fn descriptors(pid: u32) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let target = std::fs::read_link(entry.path()).unwrap_or_default().display().to_string();
        let kind = target.split_once(":[").map_or(target.clone(), |(kind, _)| kind.to_owned());
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

fn zombies(proxy: u32) -> usize {
    let is_zombie = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
    };
    children_of(proxy).iter().filter(|pid| is_zombie(pid)).count()
}

/// Numbers for the choice of calls; the same in each run.
struct Choice(u64);

impl Choice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// The load, and what came of it.
struct Load {
    choice: Choice,
    open: Vec<String>,
    sent: u64,
    by_code: BTreeMap<i64, u64>,
    direct: Vec<Duration>,
    through: Vec<Duration>,
    /// The proxy's resident memory by the way.
    memory: Vec<u64>,
}

impl Load {
    fn run(&mut self, host: &mut Host, relay: &mut Relay, until: Instant) {
        let mut round = 0;
        let mut sampled = Instant::now();
        while Instant::now() < until {
            if sampled.elapsed() >= SAMPLE {
                sampled = Instant::now();
                self.memory.push(memory_of(host.pid));
            }
            while self.open.len() < UNDER_WAY {
                let (server, _, tools) = BAD[self.choice.below(BAD.len())];
                let (tool, arguments) = tools[self.choice.below(tools.len())];
                self.open.push(host.request_call(&format!("{server}__{tool}"), arguments));
                self.sent += 1;
            }
            let start = Instant::now();
            host.call("well__echo", "{}").result();
            self.through.push(start.elapsed());
            let echo = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;
            self.direct.push(relay.ask(echo));
            self.collect(host);
            round += 1;
            if round % 200 == 0 {
                // What they said meanwhile is not kept for ever.
                host.notifications("notifications/message");
            }
        }
        for id in std::mem::take(&mut self.open) {
            let answer = host.wait(&id);
            self.count(&answer);
        }
        host.notifications("notifications/message");
    }

    fn collect(&mut self, host: &mut Host) {
        let (done, open): (Vec<String>, Vec<String>) =
            std::mem::take(&mut self.open).into_iter().partition(|id| host.has_answer(id));
        self.open = open;
        for id in done {
            let answer = host.wait(&id);
            self.count(&answer);
        }
    }

    fn count(&mut self, answer: &crate::harness::Message) {
        let code = answer.value()["error"]["code"].as_i64().unwrap_or(0);
        assert!([0, -31010, -31011].contains(&code), "{}", answer.raw);
        *self.by_code.entry(code).or_default() += 1;
    }
}

/// The averages of the thirds.
fn thirds(samples: &[u64]) -> [u64; 3] {
    let third = samples.len() / 3;
    [0, 1, 2].map(|part| samples[part * third..][..third].iter().sum::<u64>() / third as u64)
}

fn percentiles(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

#[test]
fn eight_children_that_do_everything_wrong_soak() {
    let seconds = std::env::var("MCP_PROXY_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let more = "stop_grace = \"100ms\"\ncall_idle_timeout = \"700ms\"\ncall_max_time = \"5s\"\n\
                restart = { min = \"10ms\", max = \"200ms\", attempts = 1000000 }";
    let setup = Setup::new().proxy("max_message = \"1MiB\"").proxy(ALWAYS).server("well", "");
    let setup = BAD.iter().fold(setup, |setup, (server, flags, _)| setup.tuned(server, flags, more));
    let mut host = setup.open();
    let mut relay = Relay::start();
    let mut load = Load {
        choice: Choice(7),
        open: Vec::new(),
        sent: 0,
        by_code: BTreeMap::new(),
        direct: Vec::new(),
        through: Vec::new(),
        memory: Vec::new(),
    };
    held(&mut host);
    load.run(&mut host, &mut relay, Instant::now() + WARM_UP);
    let mut looks = vec![held(&mut host)];
    load.memory.clear();
    for _ in 0..WINDOWS {
        load.run(&mut host, &mut relay, Instant::now() + Duration::from_secs(seconds) / WINDOWS);
        looks.push(held(&mut host));
    }
    let (before, after) = (&looks[0], &looks[looks.len() - 1]);

    let answered: u64 = load.by_code.values().sum();
    let mut sum = |key: &str| -> u64 {
        BAD.iter().map(|(server, ..)| host.status(server)[key].as_u64().unwrap_or_default()).sum()
    };
    let (restarts, unknown) = (sum("restarts"), sum("unknown"));
    let (through, direct) = (percentiles(&mut load.through), percentiles(&mut load.direct));
    println!(
        "{} calls to bad children: {:?} by code; {restarts} restarts, {unknown} outcomes unknown",
        load.sent, load.by_code
    );
    println!("{} echoes of the healthy child: p50 {:?}, p99 {:?}", load.through.len(), through.0, through.1);
    println!("through two copies of bytes beside it: p50 {:?}, p99 {:?}", direct.0, direct.1);
    for look in &looks {
        println!("held: {look:?}");
    }
    assert_eq!(answered, load.sent, "each call has one answer");
    assert!(restarts > seconds, "{restarts} restarts are no chaos");
    assert!(after.processes <= before.processes, "{before:?} {after:?}");
    assert!(after.descriptors <= before.descriptors, "{before:?} {after:?} {:?}", descriptors(host.pid));
    let thirds = thirds(&load.memory);
    println!("resident on average, by thirds: {thirds:?}");
    assert!(thirds[2] <= thirds[1] + NOISE, "memory grows: {thirds:?}");
    assert_eq!(host.pids("well").len(), 1);
    // On a machine that does much else the relay beside it is late as well.
    let limit = Duration::from_secs(1).max(10 * direct.1);
    assert!(through.1 < limit, "p99 of the healthy child is {:?}, through a relay {:?}", through.1, direct.1);
}

#[test]
fn memory_is_flat_however_many_outcomes_are_unknown() {
    let more = "call_idle_timeout = \"20ms\"\nstart_timeout = \"20s\"";
    let mut host = Setup::new().proxy(ALWAYS).tuned("a", "", more).tuned("b", "", more).open();
    let (mut open, mut memory) = (std::collections::VecDeque::new(), Vec::new());
    let (mut sent, mut lost) = (0, 0);
    while lost < 3 * LOST {
        while open.len() < UNDER_WAY {
            // No two are the same call.
            let arguments = format!(r#"{{"number":{sent},"text":"what a call has for arguments"}}"#);
            open.push_back(host.request_call(["a__hang", "b__hang"][sent % 2], &arguments));
            sent += 1;
        }
        let id = open.pop_front().unwrap();
        match host.wait(&id).value()["error"]["code"].as_i64() {
            Some(-31010) => lost += 1,
            // The server was not fast enough to take it.
            Some(-31011) => {}
            other => panic!("{other:?}"),
        }
        if sent % 100 == 0 {
            memory.push(memory_of(host.pid));
        }
    }
    let thirds = thirds(&memory);
    println!("{lost} outcomes unknown; resident on average, by thirds: {thirds:?}");
    assert!(thirds[2] <= thirds[1] + LOST_NOISE, "memory grows: {thirds:?}");
}
