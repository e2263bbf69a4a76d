//! The configuration files that people copy from are right, and so are their commented keys.

use std::path::Path;

use mcp_proxy::config::parse;

#[track_caller]
fn check(name: &str, text: &str) {
    let parsed = parse(Path::new(name), text, None);
    let faults: Vec<String> =
        parsed.faults.iter().map(|fault| format!("{}:{} {}", fault.line, fault.column, fault.message)).collect();
    assert!(faults.is_empty(), "{name}: {faults:#?}");
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn samples_parse() {
    for name in ["mcp-proxy.toml", "examples/team.toml", "examples/npm.toml"] {
        check(name, &read(name));
    }
}

#[test]
fn the_reference_names_its_schema_first() {
    for name in ["mcp-proxy.toml", "examples/team.toml", "examples/npm.toml"] {
        assert!(read(name).starts_with("#:schema "), "{name}");
    }
}

/// Whoever takes the `#` away from a key gets a file that is still right.
#[test]
fn commented_keys_of_the_reference_parse() {
    let text = read("mcp-proxy.toml");
    let (mut uncommented, mut keys) = (String::new(), 0);
    for line in text.lines() {
        let bare = line.strip_prefix("# ").filter(|bare| bare.split_once(" = ").is_some_and(|(key, _)| is_key(key)));
        keys += usize::from(bare.is_some());
        uncommented.push_str(bare.unwrap_or(line));
        uncommented.push('\n');
    }
    assert!(keys > 30, "only {keys} commented keys: does this test still see them?");
    check("mcp-proxy.toml, uncommented", &uncommented);
}

fn is_key(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}
