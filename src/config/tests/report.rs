//! Faults as they are shown, and what must not be shown.

use std::path::Path;

use crate::config::*;

fn rendered(text: &str) -> String {
    let parsed = parse(Path::new("mcp-proxy.toml"), text, None);
    render_faults(&parsed.faults, text, &parsed.hidden, false)
}

#[test]
fn shows_the_place() {
    let text = "[servers.a]\ncomand = \"x\"\n\n[servers.b]\ncommand = \"y\"\nurl = \"https://h.example.com\"\n";
    let expected = r#"error: servers.a.comand: unknown key "comand" in a server's table
 --> mcp-proxy.toml:2:1
  |
2 | comand = "x"
  | ^^^^^^
  |
  = help: did you mean "command"?
  = note: this server is left out; the others are not affected

error: servers.b.url: the server has both "command" and "url"
 --> mcp-proxy.toml:6:1
  |
6 | url = "https://h.example.com"
  | ^^^
  |
  = help: keep "command" for a program, or "url" for a remote server
  = note: this server is left out; the others are not affected
"#;
    assert_eq!(rendered(text).trim_end(), expected.trim_end());
}

#[test]
fn colour_only_if_asked() {
    let parsed = parse(Path::new("f.toml"), "[proxy]\nx = 1\n", None);
    assert!(!render_faults(&parsed.faults, "[proxy]\nx = 1\n", &[], false).contains('\u{1b}'));
    assert!(render_faults(&parsed.faults, "[proxy]\nx = 1\n", &[], true).contains('\u{1b}'));
}

#[test]
fn no_canary_is_shown() {
    for text in [
        "[servers.a]\ncommand = 'x'\nenv = { A = 'canary-1234', B = 3 }\n",
        "[servers.a]\ncommand = 'x'\nenv = { A = 'canary-1234${', B = 3 }\n",
        "[servers.a]\ncommand = 'x'\nenv = { A = '${env:B:canary-1234}' }\n",
        "[servers.a]\ncommand = 'x'\nenv = { A = '${canary-1234}' }\n",
        "[servers.a]\ncommand = 'x'\nenv = ['A=canary-1234']\n",
        "[servers.a]\ncommand = 'x'\nenv = { 'A=canary-1234' = 'b' }\n",
        "[servers.a]\ncommand = 'x'\nenv = 'canary-1234'\n",
        "[servers.a]\ncommand = 'x'\nevn = { A = 'canary-1234' }\n",
        "[servers.a]\ncommand = 'x'\n[servers.a.env]\nA = 'canary-1234'\nB = 3\nC = \"canary-1234\n",
        "[servers.a]\ncommand = 'x'\n[servers.a.env]\nA = canary-1234\n",
        "[servers.a]\ncommand = 'x'\n[servers.a.env]\nA: canary-1234\n",
        "[servers.a]\ncommand = 'x'\n[servers.a.env]\nA = \"\"\"\ncanary-1234\n",
        "[servers.a]\ncommand = 'x'\nenv = { A = 'canary-1234' B = 3 }\n",
        "[servers.a]\nurl = 'https://x'\nheaders = { A = \"b\\ncanary-1234\" }\n",
        "[servers.a]\nurl = 'https://x'\nheaders = { A = 3, B = 'Bearer canary-1234' }\n",
        "[servers.a]\nurl = 'canary-1234'\n",
        "[defaults]\nenv = { A = 'canary-1234', B = 3 }\n",
        "[defaults]\nheaders = { 'A: canary-1234' = 'b' }\n",
    ] {
        let parsed = parse(Path::new("f.toml"), text, None);
        assert!(!parsed.faults.is_empty(), "{text}");
        let shown = format!(
            "{} {}",
            faults_json(&parsed.faults),
            parsed.broken.iter().map(|broken| broken.reason.as_str()).collect::<String>()
        );
        assert!(!shown.contains("canary"), "{text}\n{shown}");
        let excerpt = render_faults(&parsed.faults, text, &parsed.hidden, false);
        // A url is no secret by itself; its excerpt is the person's own line.
        assert!(!excerpt.contains("canary") || text.contains("url = 'canary"), "{text}\n{excerpt}");
    }
}

#[test]
fn json_has_the_documented_form() {
    let parsed = parse(Path::new("f.toml"), "[servers.a]\ncomand = \"x\"\n", None);
    let json = faults_json(&parsed.faults);
    assert_eq!(
        json,
        serde_json::json!({ "ok": false, "faults": [{
        "file": "f.toml", "line": 2, "column": 1, "key": "servers.a.comand",
        "message": "unknown key \"comand\" in a server's table", "help": "did you mean \"command\"?",
        "server": "a", "severity": "server",
    }] })
    );
    assert_eq!(faults_json(&[])["ok"], true);
    let warning = parse(Path::new("f.toml"), "", None);
    assert_eq!(faults_json(&warning.faults)["ok"], true);
}
