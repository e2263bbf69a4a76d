//! Small processes that the tests of `runtime` start, kill and talk to. The first argument says which.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use mcp_proxy::runtime::guard::Guard;
use mcp_proxy::runtime::process::{Spawn, Spawner};
use mcp_proxy::runtime::signal::Signals;
use mcp_proxy::runtime::stdio::HostStreams;

fn main() -> ExitCode {
    if let Some(code) = mcp_proxy::runtime::branch_off() {
        return code;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["groups", mark, grace, script] => runtime.block_on(groups(mark, grace, script)),
        ["echo"] => runtime.block_on(echo()),
        ["signals"] => runtime.block_on(signals()),
        _ => return ExitCode::from(2),
    }
    runtime.shutdown_background();
    ExitCode::SUCCESS
}

/// Starts one server after the other, each marked in its environment, until it is killed.
async fn groups(mark: &str, grace: &str, script: &str) {
    let binary = mcp_proxy::runtime::own_binary().expect("our path");
    let spawner = Spawner::new(binary.clone(), Guard::start(binary));
    let plan = Spawn {
        program: PathBuf::from("/bin/sh"),
        args: vec!["-c".into(), script.into()],
        env: vec![("MARK".into(), mark.into()), ("PATH".into(), "/usr/bin:/bin".into())],
        cwd: None,
        stop_grace: Duration::from_millis(grace.parse().expect("a number")),
    };
    let mut kept = Vec::new();
    while kept.len() < 40 {
        kept.push(spawner.spawn(&plan).await.expect("a server"));
    }
    std::future::pending::<()>().await;
}

/// Answers the host with its own bytes, and prints where nothing may be printed.
async fn echo() {
    let mut host = HostStreams::take().expect("the host's streams");
    let mut stray = std::io::stdout();
    stray.write_all(b"stray\n").and_then(|()| stray.flush()).expect("a place for strays");
    let mut buffer = Vec::with_capacity(4096);
    let mut gone = std::pin::pin!(host.output.reader_gone());
    loop {
        tokio::select! {
            ready = host.input.readable() => ready.expect("a reactor"),
            () = &mut gone => return,
        }
        buffer.clear();
        match host.input.try_read_buf(&mut buffer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => break,
        }
        let mut rest = buffer.as_slice();
        while !rest.is_empty() {
            host.output.writable().await.expect("a reactor");
            match host.output.try_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
    drop(host.output);
    host.tail.finish(Duration::from_secs(5)).await;
}

/// Tells each signal in a line, until it is the last.
async fn signals() {
    let mut signals = Signals::new().expect("handlers");
    let mut out = std::io::stdout();
    signals.watch_parent();
    let mut tell = |text: String| writeln!(out, "{text}").and_then(|()| out.flush()).expect("a reader");
    tell("Ready".to_owned());
    loop {
        let signal = signals.next().await;
        tell(format!("{signal:?}"));
        if matches!(
            signal,
            mcp_proxy::runtime::signal::Signal::StopNow | mcp_proxy::runtime::signal::Signal::ParentGone
        ) {
            return;
        }
    }
}
