//! Several proxies on one state directory, killed at any moment: no row is lost and none is made up.
//!
//! The proxies are this test binary itself, started anew with a role in its environment.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mcp_proxy::engine::outcome::{Intent, Loss, OutcomeId, Reason, UnixMs};
use mcp_proxy::runtime::inflight::Intents;
use mcp_proxy::runtime::ledger::{Db, Event, Filter, KEEP_SETTLED, Ledger, unix_now};
use tokio::sync::mpsc::UnboundedReceiver;

const STATE_DIR: &str = "MCP_PROXY_TEST_STATE_DIR";
const LOG: &str = "MCP_PROXY_TEST_LOG";

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_mins(1);

/// What a proxy last said about a call. It says so after it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Begun,
    Answered,
    Lost,
}

#[test]
fn proxies_that_are_killed_lose_no_row() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let mut logs = Vec::new();
    for round in 0..3 {
        let mut proxies: Vec<_> = (0..3)
            .map(|number| {
                let log = dir.path().join(format!("log-{round}-{number}"));
                let proxy = start(&state, &log);
                logs.push(log);
                proxy
            })
            .collect();
        for (number, (proxy, log)) in proxies.iter_mut().zip(&logs[round * 3..]).enumerate() {
            wait_for_size(log, 10_000 + 7_777 * number as u64);
            proxy.kill().unwrap();
            proxy.wait().unwrap();
        }
    }
    let db = Db::open_existing(&state).unwrap().unwrap();
    let rows: BTreeMap<_, _> = db.list(&Filter::default()).unwrap().into_iter().map(|row| (row.id, row)).collect();
    let mut known = 0;
    for log in &logs {
        let said = read_log(log);
        let mut undecided = 0;
        for (id, said) in said {
            let reason = rows.get(&id).map(|row| row.reason);
            known += usize::from(reason.is_some());
            match said {
                Said::Answered => assert_eq!(reason, None, "{id} was answered"),
                Said::Lost => assert_eq!(reason, Some(Reason::ChildExited), "{id} was lost"),
                // It may have been answered or lost without having been able to say so.
                Said::Begun if reason != Some(Reason::ProxyKilled) => undecided += 1,
                Said::Begun => {}
            }
        }
        assert!(undecided <= 1, "{undecided} calls without a row");
    }
    assert!(rows.len() >= known && rows.len() <= known + logs.len(), "one call a proxy may be begun and not said");
    assert!(known > 100);
    let left = std::fs::read_dir(&state)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("inflight-"));
    assert_eq!(left.count(), 0);
}

/// The role of a proxy under load; it runs until it is killed.
#[test]
#[ignore = "started by the other test"]
fn proxy() {
    let (Ok(dir), Ok(log)) = (std::env::var(STATE_DIR), std::env::var(LOG)) else { return };
    let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
    let mut intents = Intents::open(Path::new(&dir), unix_now()).unwrap();
    let (mut ledger, mut events) = Ledger::open(Path::new(&dir), KEEP_SETTLED).unwrap();
    let mut open = Vec::new();
    let start = Instant::now();
    for number in 0_u64.. {
        let id = begin(&mut intents, number);
        say(&mut log, "begun", id);
        open.push(id);
        if open.len() < 8 {
            continue;
        }
        let id = open.remove((number % 8) as usize);
        if number % 5 == 0 {
            let loss = Loss { reason: Reason::ChildExited, exit: None, at: unix_now() };
            ledger.insert(intents.lost(id, &loss).unwrap());
            say(&mut log, "lost", id);
        } else {
            intents.settle(id).unwrap();
            say(&mut log, "answered", id);
        }
        drain(&mut ledger, &mut events, &mut intents);
        assert!(start.elapsed() < LIMIT, "nobody killed it");
    }
}

fn begin(intents: &mut Intents, number: u64) -> OutcomeId {
    let id = intents.fresh_id();
    let arguments = format!("{{\"number\":{number}}}");
    let intent = Intent {
        id,
        time: UnixMs(number),
        server: "bank",
        tool: "pay",
        exposed: "bank__pay",
        host_request_id: "1",
        generation: 1,
        sequence: number,
        digest: None,
        arguments: Some(&arguments),
        repeat_of: None,
    };
    intents.begin(&intent, None).unwrap();
    id
}

fn drain(ledger: &mut Ledger, events: &mut UnboundedReceiver<Event>, intents: &mut Intents) {
    while let Ok(event) = events.try_recv() {
        ledger.flush();
        if let Event::Stored(ids) = event {
            for id in ids {
                intents.settle(id).unwrap();
            }
        }
    }
}

fn say(log: &mut File, what: &str, id: OutcomeId) {
    log.write_all(format!("{id} {what}\n").as_bytes()).unwrap();
}

fn read_log(log: &Path) -> BTreeMap<OutcomeId, Said> {
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.split_once(' '));
    lines
        .map(|(id, said)| {
            let said = match said {
                "begun" => Said::Begun,
                "answered" => Said::Answered,
                "lost" => Said::Lost,
                other => panic!("{other}"),
            };
            (id.parse().unwrap(), said)
        })
        .collect()
}

fn start(state: &Path, log: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "proxy", "--ignored", "--nocapture"])
        .env(STATE_DIR, state)
        .env(LOG, log)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_for_size(path: &Path, size: u64) {
    let start = Instant::now();
    while std::fs::metadata(path).map_or(0, |about| about.len()) < size {
        assert!(start.elapsed() < LIMIT, "the proxy does not work");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
