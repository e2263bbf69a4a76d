//! A configuration that changes under a running session.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::{config, edit, reloads, save, taken_over};
use crate::harness::Setup;

#[test]
fn a_hundred_calls_to_unchanged_servers_notice_nothing() {
    let mut host = Setup::new()
        .server("a", "")
        .server("b", "")
        .tuned("changed", "only tools=1", "env = { V = \"1\" }")
        .server("removed", "only tools=1")
        .open();
    let before = host.names("tools");
    let ids: Vec<(String, &str)> = (0..100)
        .map(|n| {
            let server = ["a", "b"][n % 2];
            match n % 4 {
                0 | 1 => (host.request_call(&format!("{server}__sleep"), r#"{"ms":1500}"#), "slept"),
                _ => (host.request_call(&format!("{server}__progress"), r#"{"ms":300,"n":5}"#), "done"),
            }
        })
        .collect();
    host.pending("a", 50);
    host.pending("b", 50);
    let text = config(&host);
    let at = text.find("[servers.removed]").unwrap();
    let added = text[at..].replace("removed", "added");
    save(&host, &format!("{}{added}", text[..at].replace("V = \"1\"", "V = \"2\"")));
    host.signal(Signal::HUP);
    taken_over(&host, 1);
    host.until("the changed one is replaced", || host.pids("changed").len() == 2);
    host.notification("notifications/tools/list_changed");
    let names =
        host.names_until("tools", "the new one is there", |names| names.iter().any(|name| name.starts_with("added__")));
    assert!(!names.iter().any(|name| name.starts_with("removed__")), "{names:?}");
    assert_eq!(names.len(), before.len());
    for (id, expected) in ids {
        assert_eq!(host.wait(&id).text(), expected);
    }
    for server in ["a", "b"] {
        assert_eq!(host.pids(server).len(), 1);
        assert_eq!(host.status(server)["generation"], 1);
    }
    assert_eq!(host.call("changed__tool_000", "{}").text(), "changed tool_000 {}");
    host.call("removed__tool_000", "{}").error(-32602);
    let told = host.notifications("notifications/tools/list_changed").len();
    assert!(told <= 1, "one for what goes, and at most one for what comes: {}", told + 1);
}

#[test]
fn filters_renames_and_limits_restart_nothing() {
    let mut host = Setup::new().tuned("a", "tools=3", "tools = { deny = [\"nothing\"] }").open();
    host.names("tools");
    let id = host.request_call("a__sleep", r#"{"ms":1200}"#);
    host.pending("a", 1);
    edit(
        &host,
        "tools = { deny = [\"nothing\"] }",
        "prefix = \"z\"\nmax_pending = 7\ntools = { allow = [\"tool_*\", \"sleep\"], rename = { tool_001 = \"one\" } }",
    );
    host.signal(Signal::HUP);
    taken_over(&host, 1);
    host.notification("notifications/tools/list_changed");
    assert_eq!(host.names("tools"), ["z__sleep", "z__tool_000", "z__one", "z__tool_002"]);
    assert_eq!(host.call("z__one", "{}").text(), "a tool_001 {}");
    assert_eq!(host.wait(&id).text(), "slept", "a call under way goes on");
    host.call("z__echo", "{}").error(-31012);
    assert_eq!(host.pids("a").len(), 1);
}

#[test]
fn a_broken_file_changes_nothing_and_says_where() {
    let mut host = Setup::new().tuned("a", "", "max_pending = 9").open();
    let names = host.names("tools");
    let good = config(&host);
    for (n, (bad, hint)) in [
        (good.replace("max_pending = 9", "max_pendign = 9"), "max_pending"),
        (good.replace("max_pending = 9", "max_pending = \"many\""), "max_pending"),
        (good.replace("max_pending = 9", "max_pending = "), "mcp-proxy.toml"),
    ]
    .into_iter()
    .enumerate()
    {
        save(&host, &bad);
        host.signal(Signal::HUP);
        host.until("it is refused", || host.stderr().matches("not taken over").count() > n);
        let log = host.stderr();
        let line = log.lines().rev().find(|line| line.contains("not taken over")).unwrap();
        let row = 1 + bad.lines().position(|line| line.starts_with("max_pend")).unwrap();
        assert!(line.contains(hint) && line.contains(&format!(":{row}")), "line {row}, {hint}: {line}");
        assert_eq!(host.names("tools"), names);
        assert_eq!(host.call("a__echo", "{}").text(), "{}");
    }
    assert_eq!((reloads(&host), host.pids("a").len()), (0, 1));
    save(&host, &good.replace("max_pending = 9", "max_pending = 8"));
    host.signal(Signal::HUP);
    taken_over(&host, 1);
}

#[test]
fn ten_saves_in_a_second_are_one_reload() {
    let mut host = Setup::new().tuned("a", "only tools=1", "tools = { describe = { tool_000 = \"text 0\" } }").open();
    host.names("tools");
    for attempt in 0..6 {
        let before = reloads(&host);
        let (mut longest, mut last) = (Duration::ZERO, Instant::now());
        for n in 0..10 {
            let text = config(&host);
            let at = text.find("\"text ").unwrap();
            let end = at + text[at + 1..].find('"').unwrap() + 2;
            save(&host, &format!("{}\"text {attempt}{n}\"{}", &text[..at], &text[end..]));
            longest = longest.max(last.elapsed());
            last = Instant::now();
            std::thread::sleep(Duration::from_millis(60));
        }
        let wanted = format!("text {attempt}9");
        let until = Instant::now() + crate::harness::PATIENCE;
        while host.list("tools")[0]["description"] != wanted {
            assert!(Instant::now() < until, "the last one counts");
        }
        // Where the machine paused for longer than a file has to stand still, these were several saves.
        if longest < Duration::from_millis(200) {
            taken_over(&host, before + 1);
            assert_eq!(host.pids("a").len(), 1);
            return;
        }
    }
    panic!("the machine is too busy to save a file ten times in a second");
}

#[test]
fn links_are_followed_and_a_swap_of_the_same_size_and_time_is_seen() {
    let setup = Setup::new().tuned("a", "only tools=1", "tools = { rename = { tool_000 = \"one\" } }");
    let real = setup.path("dotfiles");
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(real.join("first.toml"), setup.path("mcp-proxy.toml")).unwrap();
    let mut host = setup.open();
    assert_eq!(host.names("tools"), ["a__one"]);
    // The target is replaced.
    let text = std::fs::read_to_string(real.join("first.toml")).unwrap();
    std::fs::write(real.join("new"), text.replace("\"one\"", "\"second\"")).unwrap();
    std::fs::rename(real.join("new"), real.join("first.toml")).unwrap();
    host.names_until("tools", "the target is read", |names| names == ["a__second"]);
    // The link is replaced, by one to a file of the same size and time, as package managers do.
    let at = std::fs::metadata(real.join("first.toml")).unwrap().modified().unwrap();
    let other = std::fs::File::create(real.join("other.toml")).unwrap();
    std::io::Write::write_all(&mut &other, text.replace("\"one\"", "\"thirds\"").as_bytes()).unwrap();
    other.set_modified(at).unwrap();
    std::os::unix::fs::symlink(real.join("other.toml"), real.join("link")).unwrap();
    std::fs::rename(real.join("link"), host.path("mcp-proxy.toml")).unwrap();
    host.names_until("tools", "the new target is read", |names| names == ["a__thirds"]);
    assert_eq!(host.pids("a").len(), 1);
}

#[test]
fn an_empty_file_counts_when_it_is_saved_once_more() {
    let mut host = Setup::new().server("a", "only tools=1").open();
    assert_eq!(host.names("tools").len(), 1);
    for empty in ["", "[proxy]\nname = \"x\"\n"] {
        let before = config(&host);
        let warned = host.stderr().matches("saved once more").count();
        save(&host, empty);
        host.until("it is told", || host.stderr().matches("saved once more").count() > warned);
        assert_eq!(host.names("tools").len(), 1);
        assert_eq!(host.call("a__tool_000", "{}").text(), "a tool_000 {}");
        save(&host, &format!("{empty}\n"));
        host.names_until("tools", "it counts", <[String]>::is_empty);
        save(&host, &before);
        host.names_until("tools", "the server is back", |names| names.len() == 1);
    }
}

#[test]
fn calls_that_wait_for_a_removed_server_are_answered() {
    let mut host =
        Setup::new().server("slow", "slowinit=60000").server("a", "only tools=1").proxy("list_wait = \"200ms\"").open();
    host.names("tools");
    let id = host.request_call("slow__echo", "{}");
    host.fence();
    let text = config(&host);
    let (at, end) = (text.find("[servers.slow]").unwrap(), text.find("[servers.a]").unwrap());
    save(&host, &format!("{}{}", &text[..at], &text[end..]));
    host.signal(Signal::HUP);
    let data = host.wait(&id).error(-31011)["data"].clone();
    assert_eq!((&data["state"], &data["server"]), (&json!("removed"), &json!("slow")), "{data:#}");
    let pid = host.pids("slow")[0];
    host.until("its process is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_changed_server_drains_and_new_calls_wait_for_the_next() {
    let mut host = Setup::new().tuned("a", "", "env = { V = \"1\" }").open();
    host.names("tools");
    let old = host.request_call("a__sleep", r#"{"ms":1200}"#);
    host.pending("a", 1);
    edit(&host, "V = \"1\"", "V = \"2\"");
    host.signal(Signal::HUP);
    host.status_until("a", "it drains", |status| status["state"] == "draining");
    let new = host.request_call("a__whoami", "{}");
    assert_eq!(host.wait(&old).text(), "slept");
    assert_eq!(host.wait(&new).told()["gen"], 2, "break before make");
    assert_eq!(host.pids("a").len(), 2);
}

#[test]
fn a_removed_server_may_finish_what_it_does() {
    let mut host = Setup::new().server("b", "only tools=1").server("a", "").open();
    host.names("tools");
    let id = host.request_call("a__sleep", r#"{"ms":900}"#);
    host.pending("a", 1);
    let text = config(&host);
    save(&host, &text[..text.find("[servers.a]").unwrap()]);
    host.signal(Signal::HUP);
    host.names_until("tools", "its names are gone", |names| names == ["b__tool_000"]);
    assert_eq!(host.wait(&id).text(), "slept");
    let pid = host.pids("a")[0];
    host.until("its process is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_failed_server_is_tried_again_and_an_unset_reference_costs_its_server_alone() {
    let mut host = Setup::new()
        .tuned("a", "@1:crash=1 @2:crash=1", "restart = { policy = \"never\" }")
        .tuned("b", "", "env = { V = \"1\" }")
        .open();
    host.status_until("a", "failed", |status| status["state"] == "failed");
    host.names("tools");
    edit(&host, "V = \"1\"", "V = \"${env:NOBODY_SET_THIS}\"");
    host.signal(Signal::HUP);
    host.status_until("a", "it is tried again", |status| status["state"] == "ready");
    let status = host.status_until("b", "it fails", |status| status["state"] == "failed");
    assert!(status["lastError"].as_str().unwrap().contains("NOBODY_SET_THIS"), "{status:#}");
    assert_eq!(host.call("a__echo", "{}").text(), "{}");
}
