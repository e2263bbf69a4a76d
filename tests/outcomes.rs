//! What is said, written down and remembered of calls whose answer did not come (`DESIGN.md` chapter 8), with the real
//! proxy and scripted servers.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "also in the helpers of tests a panic is the right end")]

#[allow(dead_code, unused_imports, reason = "shared with other tests, which use the rest")]
#[path = "support/harness.rs"]
mod harness;

#[path = "outcomes/causes.rs"]
mod causes;
#[path = "outcomes/guard.rs"]
mod guard;
#[path = "outcomes/kept.rs"]
mod kept;
#[path = "outcomes/soak.rs"]
mod soak;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use harness::{Host, PATIENCE, raw_member};

/// Runs a command of the proxy beside one that may be running, on the same state directory.
fn command(state: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mcp-proxy"))
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("XDG_STATE_HOME", state)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// What such a command prints as JSON.
#[track_caller]
fn json_of(state: &Path, args: &[&str]) -> Value {
    let output = command(state, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// All rows of a ledger, newest first.
fn rows_in(state: &Path) -> Vec<Value> {
    json_of(state, &["unknown", "list", "--json"]).as_array().unwrap().clone()
}

fn rows(host: &Host) -> Vec<Value> {
    rows_in(&host.path("home/state"))
}

/// Waits until the ledger's rows are as they should be.
#[track_caller]
fn rows_until(state: &Path, what: &str, is_right: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let rows = rows_in(state);
        if is_right(&rows) {
            return rows;
        }
        assert!(Instant::now() < until, "{what}: {rows:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The one row of this id, as soon as it is there.
#[track_caller]
fn row(host: &Host, id: &str) -> Value {
    let found = |rows: &[Value]| rows.iter().any(|row| row["id"] == id);
    let rows = rows_until(&host.path("home/state"), &format!("the row {id}"), found);
    let mut same = rows.into_iter().filter(|row| row["id"] == id);
    let row = same.next().unwrap();
    assert!(same.next().is_none(), "one row for a call");
    row
}

/// The id in an error.
#[track_caller]
fn outcome_of(error: &Value) -> String {
    error["data"]["outcomeId"].as_str().unwrap_or_else(|| panic!("no outcomeId: {error:#}")).to_owned()
}

/// Saves the configuration with something replaced, as editors do: a new file under the old name.
fn edit_config(host: &Host, from: &str, to: &str) {
    let path = host.path("mcp-proxy.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from:?} is not in {text}");
    let beside = host.path("mcp-proxy.toml.new");
    std::fs::write(&beside, text.replace(from, to)).unwrap();
    std::fs::rename(beside, path).unwrap();
}

/// Whether an answer is an error with this code.
fn is_error(answer: &harness::Message, code: i64) -> bool {
    raw_member(&answer.raw, "error").is_some_and(|error| raw_member(&error, "code") == Some(code.to_string()))
}
