//! Twenty servers and one that needs long; what is known from the last time, and what becomes of damage.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Host, Setup};

/// How long the slow one needs: longer than a first list may take, as half a minute is longer than eight seconds.
const SLOW: Duration = Duration::from_secs(14);
/// For what is at once, on a machine that does much else; with the wait for a first list it is less than [`SLOW`].
const AT_ONCE: Duration = Duration::from_secs(5);

fn twenty() -> Setup {
    let mut setup = Setup::new().proxy("initialize_wait = \"1s\"\nlist_wait = \"8s\"");
    for n in 0..19 {
        setup = setup.server(&format!("s{n:02}"), "only tools=3");
    }
    setup.server("slow", &format!("only tools=3 slowinit={}", SLOW.as_millis()))
}

fn cache_files(host: &Host) -> BTreeMap<PathBuf, String> {
    // A file is written under another name first.
    let whole = all_files(host).into_iter().filter(|path| path.extension().is_some_and(|ext| ext == "json"));
    whole.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

fn all_files(host: &Host) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(host.path("home/cache/mcp-proxy")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn wait_for_files(host: &Host, count: usize) -> BTreeMap<PathBuf, String> {
    host.until(&format!("{count} cached catalogs"), || cache_files(host).len() >= count);
    cache_files(host)
}

#[test]
fn twenty_servers_and_a_slow_one() {
    let mut host = twenty().start();
    let began = Instant::now();
    host.initialize("2025-11-25", "{}");
    let opened = began.elapsed();
    assert!(opened < Duration::from_secs(1) + AT_ONCE, "initialize took {opened:?}");
    let names = host.names("tools");
    assert!(began.elapsed() < Duration::from_secs(8) + AT_ONCE, "the first list took {:?}", began.elapsed());
    assert_eq!(names.len(), 19 * 3, "those that are well");
    // What comes later is announced; so may have been what came before the first list.
    host.notifications("notifications/tools/list_changed");
    host.notification("notifications/tools/list_changed");
    assert!(began.elapsed() >= SLOW);
    let all = host.names("tools");
    assert_eq!(all.len(), 20 * 3);
    wait_for_files(&host, 20);

    // The second start: everything at once, with nothing running yet.
    let mut host = host.restart().start();
    let began = Instant::now();
    host.initialize("2025-11-25", "{}");
    let ids = [host.request("tools/list", "{}"), host.request_call("slow__tool_000", "{}")];
    let list = host.wait(&ids[0]).result();
    assert!(began.elapsed() < AT_ONCE, "the complete list took {:?}", began.elapsed());
    let listed: Vec<&str> =
        list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(listed, all);
    assert_eq!(host.status("slow")["state"], "starting");
    // A call to the slow one succeeds once it is up.
    let answer = host.wait(&ids[1]);
    assert!(answer.text().starts_with("slow tool_000"), "{}", answer.raw);
    assert!(began.elapsed() >= SLOW, "it waited for it");
    assert_eq!(host.pids("slow").len(), 2, "one process a start");
    // Nothing differs, so nothing is announced.
    assert!(host.notifications("notifications/tools/list_changed").is_empty());
}

#[test]
fn a_catalog_that_changed_between_two_starts_is_announced_once() {
    let mut host = Setup::new().server("a", "only tools=2 @2+:tools=3 instructions=Ask_first.").open();
    host.names("tools");
    wait_for_files(&host, 1);
    let mut host = host.restart().start();
    let opened = host.initialize("2025-11-25", "{}");
    assert!(opened["instructions"].as_str().unwrap().contains("Ask_first."), "instructions are kept, too");
    assert_eq!(host.names("tools").len(), 2, "what was known from the last time");
    host.notification("notifications/tools/list_changed");
    assert_eq!(host.names("tools").len(), 3);
    host.status_until("a", "ready", |status| status["state"] == "ready");
    assert!(host.notifications("notifications/tools/list_changed").is_empty());
    assert!(host.notifications("notifications/prompts/list_changed").is_empty());
}

#[test]
fn damaged_and_foreign_files_are_ignored() {
    let mut host = Setup::new().server("a", "only tools=2").open();
    host.names("tools");
    let (path, text) = wait_for_files(&host, 1).pop_first().unwrap();
    let mut host = Some(host);
    for damage in [
        String::new(),
        text[..text.len() / 2].to_owned(),
        "not JSON".to_owned(),
        text.replace("\"version\":1", "\"version\":4711"),
        text.replace("\"tools\":[", "\"tools\":[7,"),
        text.replace("\"2025-11-25\"", "\"1999-01-01\""),
        r#"{"version":1}"#.to_owned(),
    ] {
        let setup = host.take().unwrap().restart();
        std::fs::write(&path, &damage).unwrap();
        let mut next = setup.open();
        assert_eq!(next.names("tools"), ["a__tool_000", "a__tool_001"], "{damage}");
        assert_eq!(next.call("a__tool_000", "{}").text(), "a tool_000 {}");
        next.until("it is written anew", || std::fs::read_to_string(&path).unwrap() == text);
        host = Some(next);
    }
}

#[test]
fn files_are_private_whole_and_without_secrets() {
    let secret = "canary-secret-0123456789";
    let toml = "env = { TOKEN = \"${env:TOKEN}\", OTHER = \"literal-secret-987\" }";
    let setup = Setup::new().tuned("a", "only tools=2", toml).env("TOKEN", secret);
    let mut host = setup.open();
    host.names("tools");
    let first = wait_for_files(&host, 1);
    let (path, text) = first.first_key_value().unwrap();
    for secret in [secret, "literal-secret-987"] {
        assert!(!text.contains(secret) && !path.display().to_string().contains(secret));
    }
    let dir = path.parent().unwrap();
    assert_eq!(std::fs::metadata(dir).unwrap().permissions().mode() & 0o077, 0, "the directory is the owner's");
    assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "and so is each file");
    // Another value of the secret is another server: nothing of the old one is served.
    let mut host = host.restart().env("TOKEN", "canary-secret-other").open();
    host.names("tools");
    host.until("another file", || cache_files(&host).len() == 2);
    assert!(cache_files(&host).contains_key(path));
    host.until("nothing half-written is left", || all_files(&host).len() == 2);
}

#[test]
fn a_catalog_that_changes_while_it_runs_is_kept() {
    let mut host = Setup::new().server("a", "").open();
    host.names("tools");
    let (path, before) = wait_for_files(&host, 1).pop_first().unwrap();
    host.call("a__change_tools", r#"{"add":"brand_new"}"#);
    host.until("it is written", || std::fs::read_to_string(&path).unwrap().contains("brand_new"));
    let after = std::fs::read_to_string(&path).unwrap();
    assert_ne!(before, after);
    let value: serde_json::Value = serde_json::from_str(&after).unwrap();
    assert_eq!(value["version"], json!(1));
}
