//! A keyring that asks a person, who takes their time, or does not answer at all.

use std::time::Instant;

use crate::harness::{Host, SOON, Setup};

/// Two servers that need a secret, and one that needs none; with what each wants of the keyring.
fn asking() -> Setup {
    let setup = Setup::new();
    let keyring = setup.path("keyring");
    std::fs::create_dir(&keyring).unwrap();
    let restart = r#"restart = { min = "10ms", max = "20ms" }"#;
    let with = |secret: &str| format!("env = {{ TOKEN = \"${{keyring:{secret}}}\" }}\n{restart}");
    setup
        .env("MCP_PROXY_TEST_KEYRING", keyring.to_str().unwrap())
        .tuned("a", "only tools=1", &with("one"))
        .tuned("b", "only tools=1", &with("two"))
        .server("other", "")
}

fn asked(host: &Host) -> usize {
    std::fs::read(host.path("keyring/asked")).map_or(0, |asked| asked.len())
}

fn answer(host: &Host, secret: &str) {
    // Nobody may see half of it.
    let beside = host.path("keyring/new");
    std::fs::write(&beside, format!("the secret {secret}")).unwrap();
    std::fs::rename(beside, host.path("keyring").join(secret)).unwrap();
}

fn environment(host: &Host, key: &str) -> String {
    std::fs::read_to_string(format!("/proc/{}/environ", host.pids(key).last().unwrap())).unwrap()
}

#[test]
fn a_keyring_that_asks_a_person_holds_up_nobody_else_and_asks_once() {
    // The session is open, and the other server serves, while nobody has answered.
    let mut host = asking().open();
    host.call("other__echo", "{}").result();
    host.until("both are asked for", || asked(&host) >= 2);
    for key in ["a", "b"] {
        assert_eq!(host.status(key)["state"], "starting");
    }
    let waiting = host.request_call("a__tool_000", "{}");
    answer(&host, "one");
    host.wait(&waiting).result();
    assert!(environment(&host, "a").contains("TOKEN=the secret one"));
    assert_eq!(host.status("b")["state"], "starting", "each waits for its own");
    answer(&host, "two");
    host.call("b__tool_000", "{}").result();
    assert_eq!((asked(&host), host.pids("a").len(), host.pids("b").len()), (2, 1, 1), "each was asked for once");
    // Each later start asks anew, for the secret may be another by then, and once.
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(host.pids("a")[0]).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    host.until("it runs again", || host.pids("a").len() == 2);
    host.call("a__tool_000", "{}").result();
    assert_eq!(asked(&host), 3);
}

#[test]
fn a_keyring_that_never_answers_does_not_hold_up_the_end() {
    let mut host = asking().open();
    host.until("both are asked for", || asked(&host) >= 2);
    let start = Instant::now();
    host.close();
    assert_eq!(host.exit().code(), Some(0));
    // Half of what the keyring is waited for.
    assert!(start.elapsed() < SOON / 2, "{:?}", start.elapsed());
}
