//! The scripted server does what its flags say: what other tests build on is tested here, without the proxy.
#![cfg(feature = "test-fakes")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

struct Fake {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Fake {
    fn start(flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fake-server"))
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn call(&mut self, id: u32, tool: &str, arguments: &str) {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#));
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    /// Waits for its end.
    fn exit(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        until("the fake ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The whole answer to one call of `tool`.
#[track_caller]
fn check(flags: &[&str], tool: &str, arguments: &str, expected: &str) {
    let mut fake = Fake::start(flags);
    fake.call(1, tool, arguments);
    let line = fake.line();
    assert!(line.contains(expected), "{tool}: {line} lacks {expected}");
}

#[test]
fn what_comes_in_is_given_back_byte_for_byte() {
    check(&[], "structured", r#"{"n": 1e400,"n":-0}"#, r#""structuredContent":{"n": 1e400,"n":-0}"#);
    check(&[], "echo", r#"{"a":1.0}"#, r#"{"type":"text","text":"{\"a\":1.0}"}"#);
    check(&["one_byte"], "raw_result", r#"{"result":{"é":"😀"}}"#, r#""result":{"é":"😀"}"#);
}

#[test]
fn ids_and_errors_are_as_scripted() {
    check(&["string_ids"], "echo", "{}", r#""id":"1""#);
    check(
        &[],
        "reply_error",
        r#"{"code":-7,"data":{"x":1e9}}"#,
        r#""error":{"code":-7,"message":"scripted","data":{"x":1e9}}"#,
    );
    check(&["caps=prompts"], "echo", "{}", r#""code":-32601"#);
}

#[test]
fn a_flag_may_count_for_one_start_alone() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let flags = [format!("pids={}", pids.display()), "@1:crash=9".into(), "@2+:exitcode=4".into()];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    for code in [9, 4, 4] {
        let mut fake = Fake::start(&flags);
        drop(fake.child.stdin.take());
        assert_eq!(fake.exit().code(), Some(code));
    }
    assert_eq!(text(&pids).lines().count(), 3);
}

#[test]
fn a_ledger_line_stands_even_if_no_answer_came() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger");
    for (crash, lines) in [("before_run", 0), ("after_run", 1), ("half_reply", 2), ("after_reply", 3)] {
        let mut fake = Fake::start(&[&format!("ledger={}", ledger.display())]);
        fake.call(1, "ledger", &format!(r#"{{"crash":"{crash}"}}"#));
        assert_eq!(fake.exit().code(), Some(3), "{crash}");
        assert_eq!(text(&ledger).lines().count(), lines, "{crash}");
        assert_eq!(fake.line().ends_with('\n'), crash == "after_reply", "{crash}");
    }
}

#[test]
#[cfg(unix)]
fn signals_are_recorded_and_may_be_ignored() {
    use rustix::process::{Pid, Signal, kill_process};
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("record");
    let mut fake = Fake::start(&["ignore_term", "ignore_eof", &format!("record={}", record.display())]);
    fake.call(1, "echo", "{}");
    assert!(fake.line().contains("result"));
    let pid = Pid::from_child(&fake.child);
    kill_process(pid, Signal::TERM).unwrap();
    until("the signal is in the record", || text(&record).contains("SIGTERM"));
    drop(fake.child.stdin.take());
    until("the end of input is in the record", || text(&record).contains(r#""k":"eof""#));
    assert!(fake.child.try_wait().unwrap().is_none(), "it should live on");
}

#[test]
#[cfg(unix)]
fn a_closed_stdout_is_the_end_of_output_and_not_of_the_process() {
    let mut fake = Fake::start(&[]);
    fake.call(1, "close_stdout", "{}");
    let mut rest = Vec::new();
    fake.out.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
    assert!(fake.child.try_wait().unwrap().is_none(), "it should live on");
}

#[test]
fn a_wrapper_passes_the_pipes_on() {
    let mut fake = Fake::start(&["wrapper"]);
    fake.call(1, "whoami", "{}");
    let line = fake.line();
    assert!(!line.contains(&format!(r#"\"pid\":{}"#, fake.child.id())), "the worker should answer: {line}");
    drop(fake.child.stdin.take());
    assert!(fake.exit().success());
}
