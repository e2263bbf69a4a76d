//! The table of the protocol's requirements names, for each, a test that shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The requirements that the table is about.
const LAST: u32 = 130;

fn sources(dir: &Path, out: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            out.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_requirement_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut text = String::new();
    sources(&root.join("tests"), &mut text);
    sources(&root.join("src"), &mut text);
    let functions: BTreeSet<&str> = text
        .split("fn ")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default())
        .collect();
    let mut table: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for line in
        include_str!("../requirements.txt").lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty())
    {
        let (number, tests) = line.split_once(' ').unwrap_or_else(|| panic!("no test: {line}"));
        let number: u32 = number.strip_prefix('R').and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        let tests: Vec<&str> = tests.split_whitespace().collect();
        assert!(!tests.is_empty(), "{line}");
        assert!(table.insert(number, tests).is_none(), "R{number} is there twice");
    }
    for number in 1..=LAST {
        let tests = table.get(&number).unwrap_or_else(|| panic!("R{number} is not in the table"));
        for test in tests.iter().filter(|test| **test != "http" && **test != "open") {
            assert!(functions.contains(test), "R{number}: there is no test {test}");
        }
    }
}
