//! Real processes: groups and their end, the guard, the host's streams, signals.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "also in the helpers of tests a panic is the right end")]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mcp_proxy::runtime::guard::Guard;
use mcp_proxy::runtime::process::{Exit, Pipes, Process, Spawn, SpawnError, Spawner};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncReadExt};

/// Longer than anything here takes; a test that needs it fails.
const PATIENCE: Duration = Duration::from_secs(10);
const PROXY: &str = env!("CARGO_BIN_EXE_mcp-proxy");
const MAKER: &str = env!("CARGO_BIN_EXE_orphan-maker");
/// Ignores EOF and SIGTERM, and so does its grandchild, which outlives it.
const STUBBORN: &str = "trap '' TERM; (sleep 1000; sleep 1000) & echo up; sleep 1000; sleep 1000";

// === The stop ladder ===

#[tokio::test]
async fn a_server_that_ends_at_eof_gets_no_signal() {
    let mark = Mark::new();
    let (process, mut pipes) = mark.sh("trap 'echo term' TERM; echo up; cat; echo bye; exit 7").await;
    assert_eq!(line(&mut pipes).await, "up");
    drop(pipes.stdin);
    assert_eq!(process.ladder(PATIENCE).await, Exit::Code(7));
    let mut rest = String::new();
    pipes.stdout.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "bye\n");
    mark.assert_nothing_lives();
}

#[tokio::test]
async fn sigterm_comes_after_the_first_grace() {
    let mark = Mark::new();
    let (process, mut pipes) = mark.sh("trap 'echo term; exit 0' TERM; echo up; while :; do sleep 0.01; done").await;
    assert_eq!(line(&mut pipes).await, "up");
    let start = Instant::now();
    drop(pipes.stdin);
    let grace = Duration::from_millis(100);
    assert_eq!(process.ladder(grace).await, Exit::Code(0));
    assert!(start.elapsed() >= grace, "SIGTERM came {:?} after EOF", start.elapsed());
    let mut rest = String::new();
    pipes.stdout.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "term\n");
}

#[tokio::test]
async fn grandchildren_that_ignore_sigterm_are_gone_after_two_graces() {
    let mark = Mark::new();
    let (process, mut pipes) = mark.sh(STUBBORN).await;
    assert_eq!(line(&mut pipes).await, "up");
    let start = Instant::now();
    drop(pipes.stdin);
    assert_eq!(process.ladder(Duration::from_millis(100)).await, Exit::Signal(9));
    assert!(start.elapsed() >= Duration::from_millis(200));
    mark.assert_nothing_lives();
}

#[tokio::test]
async fn what_a_crashed_leader_leaves_is_ended_and_the_leader_reaped_last() {
    let mark = Mark::new();
    let (process, mut pipes) = mark.sh("trap '' TERM; sleep 1000 & echo up; exit 3").await;
    assert_eq!(line(&mut pipes).await, "up");
    assert_eq!(process.wait().await, Exit::Code(3));
    assert_eq!(process.wait().await, Exit::Code(3), "an exit can be asked for twice");
    let pid = process.pid();
    assert_eq!(state(pid), Some('Z'), "the leader keeps the group's number");
    assert_eq!(mark.living().len(), 1);
    assert_eq!(process.ladder(Duration::from_millis(50)).await, Exit::Code(3));
    assert_eq!(state(pid), None, "the leader is reaped");
    mark.assert_nothing_lives();
}

#[tokio::test]
async fn an_empty_group_is_not_waited_for() {
    let mark = Mark::new();
    let (process, pipes) = mark.sh("exit 0").await;
    process.wait().await;
    let start = Instant::now();
    assert_eq!(process.ladder(PATIENCE).await, Exit::Code(0));
    assert!(start.elapsed() < PATIENCE / 2);
    drop(pipes);
}

#[tokio::test]
async fn a_server_that_forks_without_end_is_ended() {
    let walker = Walker::new();
    for grace in 0..10 {
        let mark = Mark::new();
        let (process, mut pipes) = mark.sh(&walker.script).await;
        assert_eq!(line(&mut pipes).await, "up");
        drop(pipes);
        process.ladder(Duration::from_millis(grace)).await;
        until(|| !walker.lives()).await;
    }
}

#[tokio::test]
async fn a_stopped_server_is_ended_too() {
    let mark = Mark::new();
    let (process, mut pipes) = mark.sh("trap 'exit 5' TERM; echo up; kill -STOP $$; sleep 1000").await;
    assert_eq!(line(&mut pipes).await, "up");
    until(|| state(process.pid()) == Some('T')).await;
    drop(pipes.stdin);
    let exit = process.ladder(Duration::from_millis(200)).await;
    assert_eq!(exit, Exit::Code(5), "SIGTERM was acted on");
}

#[tokio::test]
async fn a_process_in_a_session_of_its_own_is_let_live() {
    let mark = Mark::new();
    let (process, mut pipes) = mark.sh("setsid sleep 1000 & echo $!; cat").await;
    line(&mut pipes).await;
    until(|| mark.living().iter().any(|pid| name(*pid) == "sleep")).await;
    drop(pipes.stdin);
    process.ladder(Duration::from_millis(300)).await;
    let left = mark.living();
    assert_eq!(left.len(), 1, "the daemon lives");
    rustix::process::kill_process(left[0], Signal::KILL).unwrap();
    until(|| mark.living().is_empty()).await;
}

#[tokio::test]
async fn kill_shortens_the_ladder() {
    let mark = Mark::new();
    let (process, mut pipes) = mark.sh(STUBBORN).await;
    line(&mut pipes).await;
    process.kill();
    let start = Instant::now();
    assert_eq!(process.ladder(PATIENCE).await, Exit::Signal(9));
    assert!(start.elapsed() < PATIENCE / 2);
    mark.assert_nothing_lives();
}

#[tokio::test]
async fn a_panic_leaves_nothing() {
    let mark = Mark::new();
    let (process, mut pipes) = mark.sh(STUBBORN).await;
    line(&mut pipes).await;
    let pid = process.pid();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let _held = process;
        panic!("on purpose");
    });
    assert!(tasks.join_next().await.unwrap().unwrap_err().is_panic());
    until(|| state(pid).is_none()).await;
    mark.assert_nothing_lives();
}

// === The start ===

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let mark = Mark::new();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let lost = file("lost", "#!/no/such/interpreter\n", 0o755);
    let text = file("plain", "hello\n", 0o644);
    let table: [(&Path, Option<&Path>, &str); 7] = [
        (Path::new("no-such-command"), None, "`no-such-command` was not found in PATH (/usr/bin:/bin)"),
        (Path::new("/no/such/command"), None, "`/no/such/command` was not found at that path"),
        (&lost, None, "the interpreter that it names is missing"),
        (&text, None, "can't be executed: Permission denied"),
        (dir.path(), None, "can't be executed: Permission denied"),
        (Path::new("sh"), Some(Path::new("/no/such/directory")), "`/no/such/directory` can't be entered: No such file"),
        (Path::new("sh"), Some(&text), "can't be entered: Not a directory"),
    ];
    for (program, cwd, expected) in table {
        let plan = Spawn { program: program.into(), cwd: cwd.map(Into::into), ..mark.plan("") };
        let error = spawner().spawn(&plan).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.is_permanent(), "{error}");
    }
    until(|| mark.living().is_empty() && zombies() == 0).await;
}

#[tokio::test]
async fn what_runs_has_its_arguments_environment_directory_and_nothing_of_ours() {
    let mark = Mark::new();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("marker"), "").unwrap();
    let mut plan = mark.plan("");
    plan.cwd = Some(dir.path().into());
    plan.args = ["-c", "ls; echo \"$0|$1|$2\"; env | sort", "a b", "", "ü\n"].map(OsString::from).into();
    let (process, mut pipes) = spawner().spawn(&plan).await.unwrap();
    let mut out = String::new();
    pipes.stdout.read_to_string(&mut out).await.unwrap();
    process.ladder(PATIENCE).await;
    let out = out.replace(&mark.0, "M");
    // The shell itself sets the last three.
    let lines: Vec<&str> =
        out.lines().filter(|line| !["_=", "PWD=", "SHLVL="].iter().any(|own| line.starts_with(own))).collect();
    assert_eq!(lines, ["marker", "a b||ü", "", "MARK=M", "PATH=/usr/bin:/bin"][..]);
}

#[tokio::test]
async fn only_three_descriptors_reach_a_server() {
    let mark = Mark::new();
    // As a host might leave one open.
    let leak = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    mcp_proxy::runtime::seal_descriptors();
    let (other, _other_pipes) = mark.sh("cat").await;
    let (process, mut pipes) = mark.sh("exec ls -l /proc/self/fd").await;
    let mut out = String::new();
    pipes.stdout.read_to_string(&mut out).await.unwrap();
    process.ladder(PATIENCE).await;
    other.kill();
    other.ladder(PATIENCE).await;
    drop(leak);
    let found: Vec<&str> =
        out.lines().filter_map(|line| line.split_once(" -> ")?.0.split_whitespace().last()).collect();
    // The fourth is the listing's own.
    assert_eq!(found, ["0", "1", "2", "3"], "{out}");
    assert_eq!(out.matches("pipe:").count(), 3, "{out}");
}

#[tokio::test]
async fn a_system_without_room_is_worth_another_try() {
    let mark = Mark::new();
    let left = Arc::new(AtomicUsize::new(2));
    let fault = Arc::clone(&left);
    let spawner = spawner().with_fault(Arc::new(move || {
        let errors = [rustix::io::Errno::AGAIN, rustix::io::Errno::MFILE];
        let turn = fault.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).ok()?;
        Some(errors[turn - 1].into())
    }));
    for _ in 0..2 {
        let error = spawner.spawn(&mark.plan("exit 0")).await.unwrap_err();
        assert!(matches!(error, SpawnError::Resources { .. }) && !error.is_permanent(), "{error}");
    }
    let (process, _pipes) = spawner.spawn(&mark.plan("exit 0")).await.unwrap();
    assert_eq!(process.ladder(PATIENCE).await, Exit::Code(0));
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_leaves_nothing() {
    let mark = Mark::new();
    let spawner = spawner();
    let plan = mark.plan(STUBBORN);
    for moment in 0..20 {
        // Most of these give up before the command runs.
        let limit = Duration::from_micros(moment * 200);
        if let Ok(started) = tokio::time::timeout(limit, spawner.spawn(&plan)).await {
            started.unwrap().0.ladder(Duration::ZERO).await;
        }
    }
    until(|| mark.living().is_empty() && zombies() == 0).await;
}

// === The guard ===

#[test]
fn kill_9_at_any_moment_leaves_nothing() {
    let mut seen = 0;
    for round in 0..20_u64 {
        let mark = Mark::new();
        // A moment of its own for each round, from before the guard's start to many servers later.
        kill_9_after(Duration::from_micros(round * round * 400 + round * 777), &mark, STUBBORN);
        seen += mark.living().len();
        // Two graces of 100 ms, on a machine that may have other things to do.
        let deadline = Instant::now() + PATIENCE;
        while !mark.living().is_empty() {
            assert!(Instant::now() < deadline, "round {round}: {:?} live", mark.living());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert!(seen > 20, "too few servers ran to say anything: {seen}");
}

#[tokio::test]
async fn kill_9_leaves_no_server_that_forks_without_end() {
    let walker = Walker::new();
    let mut seen = 0;
    for round in 0..10 {
        let mark = Mark::new();
        kill_9_after(Duration::from_millis(50 + round), &mark, &walker.script);
        seen += usize::from(walker.lives());
        until(|| !walker.lives()).await;
    }
    assert!(seen > 2, "too few servers ran to say anything: {seen}");
}

/// Kills a proxy that starts one server after the other.
fn kill_9_after(moment: Duration, mark: &Mark, script: &str) {
    let mut proxy = Command::new(MAKER)
        .args(["groups", &mark.0, "100", script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(moment);
    proxy.kill().unwrap();
    proxy.wait().unwrap();
}

#[tokio::test]
async fn a_dead_guard_is_replaced_and_knows_all() {
    let mark = Mark::new();
    let mut proxy =
        Command::new(MAKER).args(["groups", &mark.0, "100", STUBBORN]).stdin(Stdio::null()).spawn().unwrap();
    // Forty leaders, and as many grandchildren with two processes each.
    until(|| mark.living().len() >= 120).await;
    let first = guards_of(proxy.id());
    assert_eq!(first.len(), 1);
    rustix::process::kill_process(first[0], Signal::KILL).unwrap();
    until(|| guards_of(proxy.id()).iter().any(|guard| *guard != first[0])).await;
    let second = guards_of(proxy.id());
    // Its list is read when it waits in `read`: nothing else tells, from outside.
    until(|| state(second[0].as_raw_nonzero().get().unsigned_abs()) == Some('S')).await;
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    until(|| mark.living().is_empty()).await;
    until(|| state(second[0].as_raw_nonzero().get().unsigned_abs()).is_none_or(|state| state == 'Z')).await;
}

#[tokio::test]
async fn servers_start_while_the_guard_dies_again_and_again() {
    let mark = Mark::new();
    let spawner = spawner();
    let (keeper, _pipes) = spawner.spawn(&mark.plan("cat")).await.unwrap();
    for _ in 0..10 {
        for guard in guards_of(std::process::id()) {
            let _ = rustix::process::kill_process(guard, Signal::KILL);
        }
        let (process, pipes) = spawner.spawn(&mark.plan("exit 4")).await.unwrap();
        assert_eq!(process.ladder(PATIENCE).await, Exit::Code(4));
        drop(pipes);
    }
    assert_eq!(keeper.exit(), None, "a guard's death harms nobody");
    keeper.kill();
    keeper.ladder(PATIENCE).await;
}

#[tokio::test]
async fn the_guard_is_deaf_and_apart() {
    let mark = Mark::new();
    // Whoever runs the tests may have left descriptors open to this process; the proxy would close them.
    let foreign = open_in("self");
    let earlier = guards_of(std::process::id());
    let spawner = spawner();
    let (process, pipes) = spawner.spawn(&mark.plan("cat")).await.unwrap();
    let guard = guards_of(std::process::id()).into_iter().find(|guard| !earlier.contains(guard)).unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        rustix::process::kill_process(guard, signal).unwrap();
    }
    // It answers still, and is the same.
    let (second, _pipes) = spawner.spawn(&mark.plan("exit 0")).await.unwrap();
    second.ladder(PATIENCE).await;
    assert_eq!(rustix::process::getsid(Some(guard)).unwrap(), guard);
    let raw = guard.as_raw_nonzero();
    let links = open_in(&raw.to_string());
    let is_pipe = |link: &&PathBuf| link.to_string_lossy().starts_with("pipe:");
    let pipes_held = links.iter().filter(is_pipe).filter(|link| !foreign.contains(link)).count();
    assert_eq!(pipes_held, 0, "{links:?}");
    assert!(std::fs::read(format!("/proc/{raw}/environ")).unwrap().is_empty());
    drop(pipes);
    process.ladder(PATIENCE).await;
}

#[tokio::test]
async fn a_guard_that_hangs_is_replaced() {
    let mark = Mark::new();
    let earlier = guards_of(std::process::id());
    let spawner = spawner();
    let (process, _pipes) = spawner.spawn(&mark.plan("cat")).await.unwrap();
    let guard = guards_of(std::process::id()).into_iter().find(|guard| !earlier.contains(guard)).unwrap();
    rustix::process::kill_process(guard, Signal::STOP).unwrap();
    let (second, _second_pipes) = spawner.spawn(&mark.plan("exit 6")).await.unwrap();
    assert_eq!(second.ladder(PATIENCE).await, Exit::Code(6));
    assert_eq!(state(guard.as_raw_nonzero().get().unsigned_abs()), None, "it was killed and reaped");
    assert_eq!(process.exit(), None, "it did not take its replacement for our death");
    process.kill();
    process.ladder(PATIENCE).await;
}

#[tokio::test]
async fn the_guard_gives_each_server_its_grace_and_does_not_linger() {
    let mark = Mark::new();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let script = format!(
        "trap 'touch {}' TERM; cat; sleep 0.1; echo >> {}",
        path("signalled").display(),
        path("done").display()
    );
    let grace = PATIENCE.as_millis().to_string();
    let mut proxy =
        Command::new(MAKER).args(["groups", &mark.0, &grace, &script]).stdin(Stdio::null()).spawn().unwrap();
    // Each of the forty is a shell and its `cat`.
    until(|| mark.living().iter().filter(|pid| name(**pid) == "cat").count() == 40).await;
    let guard = guards_of(proxy.id())[0];
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    until(|| mark.living().is_empty()).await;
    until(|| matches!(state(guard.as_raw_nonzero().get().unsigned_abs()), None | Some('Z'))).await;
    assert_eq!(std::fs::read_to_string(path("done")).unwrap().lines().count(), 40);
    assert!(!path("signalled").exists());
}

/// Who inherits the orphans may never reap them: the first process of a container, a host's launcher.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_guard_does_not_wait_for_zombies_that_nobody_reaps() {
    let mark = Mark::new();
    let grace = PATIENCE.as_millis().to_string();
    let mut proxy = Command::new(MAKER).args(["groups", &mark.0, &grace, "cat"]).stdin(Stdio::null()).spawn().unwrap();
    until(|| mark.living().iter().filter(|pid| name(**pid) == "cat").count() == 40).await;
    let guard = guards_of(proxy.id())[0];
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    until(|| matches!(state(guard.as_raw_nonzero().get().unsigned_abs()), None | Some('Z'))).await;
    assert!(zombies() >= 40, "only {} were left unreaped", zombies());
    rustix::process::set_child_subreaper(None).unwrap();
    while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
}

// === The host's streams ===

#[test]
fn the_host_hears_its_bytes_and_nothing_else() {
    let text = "line\n".repeat(50_000);
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("in"), dir.path().join("out"));
    std::fs::write(&from, &text).unwrap();

    // Files.
    let out = std::fs::File::create(&to).unwrap();
    let mut maker = Command::new(MAKER);
    maker.arg("echo").stdin(std::fs::File::open(&from).unwrap()).stdout(out).stderr(Stdio::piped());
    let ended = maker.spawn().unwrap().wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b"stray\n"[..]));
    assert_eq!(std::fs::read_to_string(&to).unwrap(), text);

    // Pipes, and a socket pair for each.
    for sockets in [false, true] {
        let (theirs_in, mut ours_in): (OwnedFd, Box<dyn Write + Send>) = if sockets {
            let (theirs, ours) = UnixStream::pair().unwrap();
            (theirs.into(), Box::new(ours))
        } else {
            let (theirs, ours) = std::io::pipe().unwrap();
            (theirs.into(), Box::new(ours))
        };
        let (theirs_out, mut ours_out): (OwnedFd, Box<dyn Read>) = if sockets {
            let (theirs, ours) = UnixStream::pair().unwrap();
            (theirs.into(), Box::new(ours))
        } else {
            let (ours, theirs) = std::io::pipe().unwrap();
            (theirs.into(), Box::new(ours))
        };
        let shared = (theirs_in.try_clone().unwrap(), theirs_out.try_clone().unwrap());
        let mut maker = Command::new(MAKER);
        maker.arg("echo").stdin(theirs_in).stdout(theirs_out).stderr(Stdio::piped());
        let child = maker.spawn().unwrap();
        drop(maker);
        let sent = text.clone();
        let writer = std::thread::spawn(move || ours_in.write_all(sent.as_bytes()).unwrap());
        let mut heard = vec![0; text.len()];
        ours_out.read_exact(&mut heard).unwrap();
        writer.join().unwrap();
        let ended = child.wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b"stray\n"[..]));
        assert!(heard == text.as_bytes());
        for descriptor in [&shared.0, &shared.1] {
            let flags = rustix::fs::fcntl_getfl(descriptor).unwrap();
            assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "sockets: {sockets}");
        }
    }
}

#[test]
fn a_host_that_no_longer_reads_is_noticed_without_a_write() {
    let (theirs, _kept_open) = std::io::pipe().unwrap();
    let mut child =
        Command::new(MAKER).arg("echo").stdin(theirs).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    drop(child.stdout.take());
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(5));
    }
}

// === Signals ===

#[test]
fn signals_are_told_apart() {
    let mut child = Command::new(MAKER).arg("signals").stdout(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "Ready");
    for (signal, expected) in
        [(Signal::HUP, "Reload"), (Signal::TERM, "Stop"), (Signal::HUP, "Reload"), (Signal::INT, "StopNow")]
    {
        rustix::process::kill_process(pid, signal).unwrap();
        assert_eq!(next(), expected);
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_killed_parent_is_noticed() {
    let mut parent =
        Command::new("sh").args(["-c", "\"$0\" signals & wait", MAKER]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "Ready");
    parent.kill().unwrap();
    assert_eq!(parent.wait().unwrap().signal(), Some(9));
    assert_eq!(lines.next().unwrap().unwrap(), "ParentGone");
    assert!(lines.next().is_none());
}

// === Helpers ===

/// What the environment of every process of one test says.
struct Mark(String, #[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

impl Mark {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // Tests that share a process would find each other's guards and zombies.
        static ONE: Mutex<()> = Mutex::new(());
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)), alone)
    }

    fn plan(&self, script: &str) -> Spawn {
        Spawn {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("MARK".into(), self.0.clone().into()), ("PATH".into(), "/usr/bin:/bin".into())],
            cwd: None,
            stop_grace: Duration::from_millis(100),
        }
    }

    async fn sh(&self, script: &str) -> (Process, Pipes) {
        spawner().spawn(&self.plan(script)).await.unwrap()
    }

    fn living(&self) -> Vec<Pid> {
        let mark = format!("MARK={}", self.0);
        let marked = |pid: &Pid| {
            let environ = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
        };
        processes().filter(marked).collect()
    }

    fn assert_nothing_lives(&self) {
        assert_eq!(self.living(), []);
    }
}

/// A server each of whose processes lives only to start the next: no list of processes is true when it has been read.
/// So it is seen by the lock that they inherit.
struct Walker {
    script: String,
    lock: tempfile::NamedTempFile,
}

impl Walker {
    fn new() -> Self {
        let lock = tempfile::NamedTempFile::new().unwrap();
        let path = lock.path().display();
        let walk = r#"export WALK='sh -c "$WALK" & exit 0'; eval "$WALK""#;
        let script = format!("trap '' TERM; exec 9>>{path}; flock -s 9; echo up; {walk}");
        Self { script, lock }
    }

    fn lives(&self) -> bool {
        use rustix::fs::{FlockOperation, flock};
        let free = flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        flock(&self.lock, FlockOperation::Unlock).unwrap();
        !free
    }
}

fn spawner() -> Spawner {
    Spawner::new(PROXY.into(), Guard::start(PROXY.into()))
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

fn stat(pid: u32) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

fn state(pid: u32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

fn name(pid: Pid) -> String {
    std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).unwrap_or_default().trim().to_owned()
}

/// Children of this process that have exited and were not reaped.
fn zombies() -> usize {
    let own = std::process::id().to_string();
    let defunct = |pid: &Pid| {
        stat(pid.as_raw_nonzero().get().unsigned_abs()).is_some_and(|stat| stat[0] == "Z" && stat[1] == own)
            && name(*pid) != "mcp-proxy-guard"
    };
    processes().filter(defunct).count()
}

/// What the descriptors of a process refer to.
fn open_in(process: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).collect()
}

fn guards_of(parent: u32) -> Vec<Pid> {
    let ours = |pid: &Pid| {
        let raw = pid.as_raw_nonzero().get().unsigned_abs();
        stat(raw).is_some_and(|stat| stat[1] == parent.to_string() && stat[0] != "Z") && name(*pid) == "mcp-proxy-guard"
    };
    processes().filter(ours).collect()
}

async fn line(pipes: &mut Pipes) -> String {
    let mut line = String::new();
    let mut byte = tokio::io::BufReader::with_capacity(1, &mut pipes.stdout);
    tokio::time::timeout(PATIENCE, byte.read_line(&mut line)).await.unwrap().unwrap();
    line.trim_end().to_owned()
}

async fn until(mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came true");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
