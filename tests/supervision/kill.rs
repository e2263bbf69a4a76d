//! `kill -9` of the proxy at any moment.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{SOON, Setup, kill};

/// Rounds; each kills at another moment of the first 300 ms.
const ROUNDS: u64 = 100;

#[test]
fn a_hundred_kills_at_random_moments_leave_nothing_soak() {
    let (mut latest, mut late) = (Duration::ZERO, 0);
    for round in 0..ROUNDS {
        let grace = "stop_grace = \"200ms\"";
        let mut host = Setup::new()
            .tuned("deaf", "ignore_eof ignore_term", grace)
            .tuned("wrapped", "wrapper ignore_eof ignore_term", grace)
            .tuned("crashing", "crash=1", grace)
            .tuned("lazy", "slowinit=100", grace)
            .start();
        host.was_killed();
        let moment = Duration::from_micros(round * 7919 % 300 * 1000 + round * 613 % 1000);
        let start = Instant::now();
        host.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}"#);
        host.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        host.send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"deaf__spawn_grandchild","arguments":{"ignore_term":true,"hold":true}}}"#);
        // The moment is what is tried here.
        std::thread::sleep(moment.saturating_sub(start.elapsed()));
        kill(host.pid, Signal::KILL);
        let killed = Instant::now();
        host.exit();
        host.until("nothing of any group lives", || host.living().is_empty());
        let took = killed.elapsed();
        latest = latest.max(took);
        late += u64::from(took > Duration::from_secs(1));
        assert!(took < SOON, "round {round}, killed after {moment:?}: gone after {took:?}");
    }
    println!(
        "{ROUNDS} kills; the last process was gone {latest:?} after its proxy at the latest, {late} after a second"
    );
    // Two graces of 200 ms; a machine that does much else may delay some.
    assert!(late <= ROUNDS / 10, "{late} of {ROUNDS} left something for more than a second");
}
