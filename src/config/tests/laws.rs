//! What holds for any text.

use std::path::Path;

use proptest::prelude::*;

use super::sample::SAMPLE;
use crate::config::*;

fn survives(text: &str) {
    for profile in [None, Some("review")] {
        let parsed = parse(Path::new("f.toml"), text, profile);
        for fault in &parsed.faults {
            assert!(fault.span.start <= fault.span.end && fault.span.end <= text.len(), "{fault:?}");
            assert!(fault.line >= 1 && fault.line <= text.split('\n').count() && fault.column >= 1, "{fault:?}");
            assert!(!fault.message.is_empty() && !fault.message.ends_with('.'), "{fault:?}");
        }
        for broken in &parsed.broken {
            assert!(
                parsed.config.servers.iter().all(|server| server.key != broken.key),
                "broken and whole: {broken:?}"
            );
            assert!(!parsed.sound(), "a broken server is a fault");
        }
        for colour in [false, true] {
            render_faults(&parsed.faults, text, &parsed.hidden, colour);
        }
        faults_json(&parsed.faults);
    }
}

/// Pieces that a file may be made of, lawful and not.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "[servers.a]\n",
        "[servers.b]\n",
        "[proxy]\n",
        "[defaults]\n",
        "[profiles.review]\n",
        "[[servers]]\n",
        "servers.c.",
        "command = \"x\"\n",
        "url = \"https://x\"\n",
        "args = [",
        "]",
        "{",
        "}",
        "env = { A = \"b\" }\n",
        "prefix = \"\"\n",
        "prefix = \"a\"\n",
        "start_timeout = ",
        "30\n",
        "\"5s\"\n",
        "\"\"\"",
        "'''",
        "\"",
        "'",
        "=",
        ".",
        ",",
        "\n",
        "\r\n",
        "\t",
        "#",
        "ä",
        "\u{feff}",
        "\u{2028}",
        "\0",
        "\\u",
        "1e9",
        "0x10",
        "inf",
        "1979-05-27",
        "tools.allow = []\n",
        "separator = \"_\"\n",
        "enabled = false\n",
        "servers = [\"a\"]\n",
    ];
    prop_oneof![8 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => "\\PC{0,6}"]
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*") {
        survives(&text);
    }

    #[test]
    fn no_mixture_panics(pieces in proptest::collection::vec(piece(), 0..30)) {
        survives(&pieces.concat());
    }

    #[test]
    fn no_damage_panics(at in 0..SAMPLE.len(), length in 0..40_usize, new in "\\PC{0,3}") {
        let mut text = SAMPLE.to_owned();
        let floor = |mut at: usize| {
            at = at.min(SAMPLE.len());
            while !SAMPLE.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        text.replace_range(floor(at)..floor(at + length), &new);
        survives(&text);
    }
}

/// Secrets in every place that the design names, around which something may be wrong.
const WITH_SECRETS: &str = "[defaults]\nenv = { D = \"canary-1234\" }\n[servers.a]\ncommand = \"x\"\nenv = { A = \"canary-1234\", B = \"canary-1234\" }\n\
    start_timeout = \"3s\"\n[servers.b]\ncommand = \"x\"\n[servers.b.env]\nA = \"canary-1234\"\nB = 'canary-1234'\n[servers.c]\n\
    url = \"https://h.example.com\"\nheaders = { Authorization = \"Bearer canary-1234\" }\n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_damage_shows_a_secret(at in 0..WITH_SECRETS.len(), length in 0..6_usize, new in proptest::sample::select(vec!["", "x", "\"", "'", "=", "{", "}", "[", "\n", "3", " ", ",", ":", "\"\"\"", "${"])) {
        let mut text = WITH_SECRETS.to_owned();
        text.replace_range(at..(at + length).min(text.len()), new);
        let parsed = parse(Path::new("f.toml"), &text, None);
        let shown = format!("{}{}", render_faults(&parsed.faults, &text, &parsed.hidden, false), faults_json(&parsed.faults));
        prop_assert!(!shown.contains("canary-1234"), "{text}\n{shown}");
    }
}

#[test]
fn deep_nesting_is_a_fault() {
    for text in [
        "[".repeat(10_000),
        format!("a = {}", "[".repeat(10_000)),
        format!("a = {}", "{a=".repeat(10_000)),
        format!("{}b = 1", "a.".repeat(10_000)),
    ] {
        assert!(parse(Path::new("f.toml"), &text, None).fatal());
    }
}

#[test]
fn places_count_characters() {
    let parsed = parse(Path::new("f.toml"), "\u{feff}[servers.a]\r\ncommand = \"x\"\r\nargs = [\"äöü\", 3]\r\n", None);
    assert_eq!((parsed.faults[0].line, parsed.faults[0].column), (3, 16));
    let parsed = parse(Path::new("f.toml"), "\u{feff}x = 1", None);
    assert_eq!((parsed.faults[0].line, parsed.faults[0].column), (1, 1));
}
