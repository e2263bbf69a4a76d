//! Every fault that a person can make: one message with its place, key and remedy.

use std::path::Path;

use crate::config::*;

/// The table, see its first lines.
const TABLE: &str = include_str!("faults.txt");
const END: &str = "----\n";

/// What the table shows of a fault.
fn shown(fault: &Fault) -> String {
    let severity = match fault.severity {
        Severity::Warning => "warning",
        Severity::ServerOnly => "server",
        Severity::Fatal => "fatal",
    };
    let text = fault.to_string();
    let text = text.strip_prefix("f.toml:").expect("a fault begins with its file");
    format!("=> {severity} {text}")
}

#[test]
fn each_fault_has_one_message() {
    let mut wrong = Vec::new();
    let cases: Vec<&str> = TABLE.split(END).skip(1).collect();
    for case in &cases {
        let (expected, text): (Vec<&str>, Vec<&str>) =
            case.split_inclusive('\n').partition(|line| line.starts_with("=> "));
        let expected: Vec<&str> = expected.into_iter().map(str::trim_end).collect();
        let text = text.concat();
        let found: Vec<String> = parse(Path::new("f.toml"), &text, None).faults.iter().map(shown).collect();
        if found != expected {
            wrong.push(format!("{text}found\n{}\nexpected\n{}\n", found.join("\n"), expected.join("\n")));
        }
        assert!(!expected.is_empty(), "a case without a fault: {text}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases.len() >= 40, "the table is whole");
}
