//! Servers that run only when they are used.

use crate::harness::Setup;

fn lazy(more: &str) -> Setup {
    Setup::new().tuned("a", "only tools=2", &format!("start = \"lazy\"\n{more}"))
}

/// A start whose catalog is in the cache.
fn known(more: &str) -> crate::harness::Host {
    let mut host = lazy(more).open();
    assert_eq!(host.names("tools"), ["a__tool_000", "a__tool_001"], "started once to fill the cache");
    let cached = host.path("home/cache/mcp-proxy");
    host.until("the catalog is cached", || std::fs::read_dir(&cached).is_ok_and(|entries| entries.count() == 1));
    host.restart().open()
}

#[test]
fn it_starts_at_first_use_only() {
    let mut host = known("");
    assert_eq!(host.names("tools"), ["a__tool_000", "a__tool_001"]);
    host.names("resources");
    host.names("prompts");
    assert_eq!(host.status("a")["state"], "stopped");
    assert_eq!(host.pids("a").len(), 1, "only the process of the first start");
    assert_eq!(host.call("a__tool_000", "{}").text(), "a tool_000 {}");
    assert_eq!(host.pids("a").len(), 2);
    assert!(host.notifications("notifications/tools/list_changed").is_empty(), "nothing differs");
}

#[test]
fn concurrent_first_calls_start_one_process() {
    let mut host = known("");
    let ids: Vec<String> = (0..50).map(|n| host.request_call("a__tool_001", &format!("{{\"n\":{n}}}"))).collect();
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(host.wait(id).text(), format!("a tool_001 {{\"n\":{n}}}"));
    }
    assert_eq!(host.pids("a").len(), 2, "one, and the one of the first start");
}

#[test]
fn it_is_stopped_after_long_unused_and_started_again() {
    let mut host = known("idle_stop = \"300ms\"");
    for starts in 2..4 {
        assert_eq!(host.call("a__tool_000", "{}").text(), "a tool_000 {}");
        assert_eq!(host.pids("a").len(), starts);
        host.status_until("a", "it rests", |status| status["state"] == "stopped" && status["pid"].is_null());
        assert_eq!(host.names("tools").len(), 2, "its names stay");
    }
    assert!(host.notifications("notifications/tools/list_changed").is_empty());
}

#[test]
fn a_call_under_way_is_use() {
    let mut host = Setup::new().tuned("a", "", "start = \"lazy\"\nidle_stop = \"700ms\"").open();
    let id = host.request_call("a__sleep", r#"{"ms":1800}"#);
    assert_eq!(host.wait(&id).text(), "slept");
    assert_eq!(host.pids("a").len(), 1);
    host.status_until("a", "it rests", |status| status["state"] == "stopped");
}

#[test]
fn a_reload_starts_no_lazy_server_that_it_does_not_replace() {
    let mut host = known("");
    super::edit(&host, "start = \"lazy\"", "start = \"lazy\"\ncall_max_time = \"9m\"");
    host.signal(rustix::process::Signal::HUP);
    super::taken_over(&host, 1);
    assert_eq!(host.status("a")["state"], "stopped");
    // One that is to run from now on is started.
    super::edit(&host, "start = \"lazy\"", "start = \"eager\"");
    host.signal(rustix::process::Signal::HUP);
    host.status_until("a", "it runs", |status| status["state"] == "ready");
    assert_eq!(host.pids("a").len(), 2);
}
