//! A configuration that uses every key.

use std::path::Path;
use std::time::Duration;

use crate::config::*;

/// Uses every table and key.
pub(super) const SAMPLE: &str = include_str!("sample.toml");

#[test]
fn sample_is_sound() {
    let parsed = parse(Path::new("mcp-proxy.toml"), SAMPLE, None);
    let messages: Vec<_> = parsed.faults.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 1, "{messages:#?}");
    assert!(messages[0].contains("remote servers are not supported yet"), "{messages:#?}");
    assert!(parsed.sound() && parsed.broken.is_empty());
    let config = parsed.config;
    assert_eq!(config.proxy.separator, "__");
    assert_eq!(config.proxy.max_message, 64 << 20);
    let keys: Vec<_> = config.servers.iter().map(|server| server.key.as_str()).collect();
    assert_eq!(keys, ["github", "docs"]);
    let github = &config.servers[0];
    assert_eq!(github.prefix, "gh");
    assert_eq!(github.call_idle_timeout, None);
    assert_eq!(github.call_max_time, Some(Duration::from_hours(1)));
    assert_eq!(github.tools.deny, ["delete_*"]);
    assert_eq!(github.tools.rename, [("create_issue".to_owned(), "new_issue".to_owned())]);
    assert_eq!(config.servers[1].call_max_time, None);
    assert_eq!(config.servers[1].start_timeout, Duration::from_mins(1));
}

#[test]
fn profile_narrows() {
    let parsed = parse(Path::new("mcp-proxy.toml"), SAMPLE, Some("review"));
    let github = &parsed.config.servers[0];
    assert_eq!(github.tools.profile_allow.as_deref(), Some(&["get_*".to_owned(), "list_*".to_owned()][..]));
    assert_eq!(github.tools.deny, ["delete_*"]);
}

/// The file at the top of the repository, which is also the reference of the common keys.
const SHIPPED: &str = include_str!("../../../mcp-proxy.toml");

#[test]
fn shipped_file_is_sound_also_with_its_comments() {
    let all = SHIPPED.lines().map(|line| match line.strip_prefix("# ").and_then(|rest| rest.split_once(" = ")) {
        Some((key, _)) if key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') => &line[2..],
        _ => line,
    });
    let all: Vec<&str> = all.collect();
    for text in [SHIPPED, &all.join("\n")] {
        let parsed = parse(Path::new("mcp-proxy.toml"), text, None);
        let faults: Vec<_> = parsed.faults.iter().filter(|fault| fault.severity != Severity::Warning).collect();
        assert!(faults.is_empty(), "{faults:#?}");
        assert!(!parsed.config.servers.is_empty());
        super::schema::validate_text(text);
    }
}

#[test]
fn a_remote_server_that_is_switched_off_is_not_warned_of() {
    let text = "[servers.a]\nurl = 'https://h.example.com/mcp'\nenabled = false\n";
    let parsed = parse(Path::new("mcp-proxy.toml"), text, None);
    assert!(parsed.faults.is_empty(), "{:?}", parsed.faults);
}
