//! A start that never waits, and a file that can change (`DESIGN.md` chapters 3 and 9), with the real proxy and scripted
//! servers.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "also in the helpers of tests a panic is the right end")]

#[allow(dead_code, unused_imports, reason = "shared with other tests, which use the rest")]
#[path = "support/harness.rs"]
mod harness;

#[path = "starting/cache.rs"]
mod cache;
#[path = "starting/choice.rs"]
mod choice;
#[path = "starting/keyring.rs"]
mod keyring;
#[path = "starting/lazy.rs"]
mod lazy;
#[path = "starting/reload.rs"]
mod reload;

use harness::Host;

fn config(host: &Host) -> String {
    std::fs::read_to_string(host.path("mcp-proxy.toml")).unwrap()
}

/// Saves the configuration as editors do: a new file under the old name.
fn save(host: &Host, text: &str) {
    let beside = host.path("mcp-proxy.toml.new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, host.path("mcp-proxy.toml")).unwrap();
}

/// The same with something replaced.
fn edit(host: &Host, from: &str, to: &str) {
    let text = config(host);
    assert!(text.contains(from), "{from:?} is not in {text}");
    save(host, &text.replace(from, to));
}

/// Waits until so many configurations were taken over.
fn taken_over(host: &Host, count: usize) {
    host.until(&format!("{count} reloads"), || reloads(host) >= count);
    assert_eq!(reloads(host), count);
}

fn reloads(host: &Host) -> usize {
    host.stderr().matches("the configuration is taken over").count()
}
