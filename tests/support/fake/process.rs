//! What the fake does as a process: signals, grandchildren, floods, its end.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::flags::{Flags, append};
use crate::server::Server;

/// Never returns, and uses no processor time.
pub(crate) fn forever() -> ! {
    loop {
        std::thread::sleep(Duration::from_hours(1));
    }
}

/// Keeps a processor busy.
pub(crate) fn burn(ms: u64) {
    let end = Instant::now() + Duration::from_millis(ms);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Writes `bytes` to stderr; a line end after every `line` of them, none if 0.
pub(crate) fn flood_stderr(bytes: u64, line: u64) {
    let mut stderr = std::io::stderr().lock();
    let chunk = [b'e'; 4096];
    let mut left = bytes;
    while left > 0 {
        let most = if line == 0 { 4096 } else { line.min(4096) };
        let now = usize::try_from(left.min(most)).unwrap_or(4096);
        if stderr.write_all(&chunk[..now]).is_err() {
            return;
        }
        if line != 0 {
            let _ = stderr.write_all(b"\n");
        }
        left -= now as u64;
    }
}

pub(crate) fn stderr_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// This process as JSON: pid, parent, arguments, directory, names in the environment, open descriptors.
pub(crate) fn about() -> String {
    let env: Vec<String> = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    let fds: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .map(|dir| {
            dir.flatten()
                .filter_map(|fd| {
                    let target = std::fs::read_link(fd.path()).ok()?;
                    Some(format!("{} {}", fd.file_name().to_string_lossy(), target.display()))
                })
                .filter(|fd| !fd.ends_with("/fd"))
                .collect()
        })
        .unwrap_or_default();
    json!({
        "pid": std::process::id(),
        "ppid": parent(),
        "pgid": group(),
        "args": std::env::args().collect::<Vec<_>>(),
        "cwd": std::env::current_dir().unwrap_or_default(),
        "env": env,
        "fds": fds,
    })
    .to_string()
}

/// Starts the real server below this process, which inherits the pipes, and stays in front of it or exits.
pub(crate) fn wrapper(flags: &Flags) -> ! {
    let args = flags.given.iter().filter(|flag| *flag != "wrapper" && !flag.starts_with("wrapper="));
    let child = Command::new(own_path()).args(args).env_remove("FAKE_FLAGS").spawn();
    if let Some(file) = flags.text("wrapperpids") {
        append(file, &std::process::id().to_string());
    }
    let code = match (child, flags.text("wrapper")) {
        (Ok(_), Some("exit")) => 0,
        (Ok(mut child), _) => child.wait().ok().and_then(|status| status.code()).unwrap_or(1),
        (Err(_), _) => 1,
    };
    std::process::exit(code);
}

/// Starts a process that outlives its parent: returns its pid.
pub(crate) fn spawn_grandchild(server: &Server, ignore_term: bool, own_session: bool, hold_pipes: bool) -> u32 {
    let mut command = Command::new(own_path());
    command.arg("grandchild").env_remove("FAKE_FLAGS");
    for (wanted, flag) in [(ignore_term, "ignore_term"), (own_session, "session")] {
        if wanted {
            command.arg(flag);
        }
    }
    if let Some(file) = server.flags.text("pids") {
        command.arg(format!("grandpids={file}.grand"));
    }
    let pipe = || if hold_pipes { Stdio::inherit() } else { Stdio::null() };
    command.stdin(Stdio::null()).stdout(pipe()).stderr(pipe());
    command.spawn().map_or(0, |child| child.id())
}

/// The life of a grandchild: it waits, ten minutes at most, so that a failed test leaves nothing for ever.
pub(crate) fn grandchild(flags: &Flags) -> ! {
    #[cfg(unix)]
    if flags.has("session") {
        let _ = rustix::process::setsid();
    }
    if flags.has("ignore_term") {
        std::thread::spawn(|| on_signals(|_| {}));
    }
    if let Some(file) = flags.text("grandpids") {
        append(file, &std::process::id().to_string());
    }
    std::thread::sleep(Duration::from_mins(10));
    std::process::exit(0);
}

/// Ends this process as `kill -9` does.
pub(crate) fn kill_self() -> ! {
    #[cfg(unix)]
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort();
}

/// Closes the pipe behind descriptor 1, and lives on.
pub(crate) fn close_stdout() {
    #[cfg(unix)]
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Closes the pipe behind descriptor 0: whoever writes to it gets an error.
pub(crate) fn close_stdin() {
    #[cfg(unix)]
    if let Ok(null) = std::fs::File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
    }
}

/// Writes signals to the record; exits at them unless it is to live on.
pub(crate) fn watch_signals(server: Server) {
    let (ready, installed) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        on_signals_after(ready, |name| {
            server.record("signal", name);
            if !server.flags.has("ignore_term") {
                std::process::exit(match name {
                    "SIGHUP" => 129,
                    "SIGINT" => 130,
                    _ => 143,
                });
            }
        });
    });
    let _ = installed.recv();
}

fn on_signals(act: impl Fn(&'static str)) {
    on_signals_after(std::sync::mpsc::channel().0, act);
}

#[cfg(unix)]
#[expect(clippy::needless_pass_by_value, reason = "the receiver must wake up when this thread fails")]
fn on_signals_after(ready: std::sync::mpsc::Sender<()>, act: impl Fn(&'static str)) {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async {
        let kinds = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()), signal(SignalKind::hangup()));
        let (Ok(mut term), Ok(mut int), Ok(mut hup)) = kinds else { return };
        let _ = ready.send(());
        loop {
            tokio::select! {
                _ = term.recv() => act("SIGTERM"),
                _ = int.recv() => act("SIGINT"),
                _ = hup.recv() => act("SIGHUP"),
            }
        }
    });
}

#[cfg(not(unix))]
fn on_signals_after(_ready: std::sync::mpsc::Sender<()>, _act: impl Fn(&'static str)) {}

fn own_path() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "fake-server".into())
}

#[cfg(unix)]
fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

#[cfg(not(unix))]
fn parent() -> u32 {
    0
}

#[cfg(unix)]
fn group() -> i32 {
    rustix::process::getpgrp().as_raw_nonzero().get()
}

#[cfg(not(unix))]
fn group() -> i32 {
    0
}
