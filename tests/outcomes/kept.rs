//! The ledger: who sees it, what is in it, and what damage costs.

use serde_json::{Value, json};

use super::{command, json_of, outcome_of, row, rows, rows_until};
use crate::harness::Setup;

#[test]
fn the_host_and_the_person_see_the_same_rows() {
    let mut host = Setup::new().server("a", "").server("b", "").open();
    host.names("tools");
    let state = host.path("home/state");
    for server in ["a", "b"] {
        let error = host.call(&format!("{server}__ledger"), r#"{"crash":"after_run"}"#).error(-31010);
        row(&host, &outcome_of(&error));
    }
    let read = host.ask("resources/read", r#"{"uri":"mcp-proxy://unknown"}"#).result();
    let seen: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    let listed = json_of(&state, &["unknown", "list", "--json"]);
    assert_eq!(seen, listed);
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert!(host.names("resources").contains(&"mcp-proxy://unknown".to_owned()));
    // The filters.
    let id = listed[0]["id"].as_str().unwrap();
    json_of(&state, &["unknown", "resolve", id, "--as", "done", "--json"]);
    let cases: [(&[&str], usize); 7] = [
        (&["--server", "a"], 1),
        (&["--server", "nobody"], 0),
        (&["--state", "unknown"], 1),
        (&["--state", "resolved"], 1),
        (&["--state", "resolved", "--state", "unknown"], 2),
        (&["--age", "1h"], 2),
        (&["--server", "b", "--state", "settled"], 0),
    ];
    for (filter, count) in cases {
        let rows = json_of(&state, &[&["unknown", "list", "--json"], filter].concat());
        assert_eq!(rows.as_array().unwrap().len(), count, "{filter:?}");
    }
    let text = String::from_utf8(command(&state, &["unknown"]).stdout).unwrap();
    assert!(text.contains(id) && text.contains("a/ledger") && text.contains("b/ledger"), "{text}");
    assert_eq!(json_of(&state, &["unknown", "show", id, "--json"])["id"], *id);
}

#[test]
fn without_own_resources_they_are_not_offered() {
    let mut host = Setup::new().proxy("own_resources = false").server("a", "caps=tools").open();
    assert_eq!(host.names("resources"), Vec::<String>::new());
    host.ask("resources/read", r#"{"uri":"mcp-proxy://unknown"}"#).error(-32002);
}

#[test]
fn a_damaged_ledger_is_moved_aside_and_costs_no_call() {
    let setup = Setup::new().server_with("a", &["ledger"], "");
    let dir = setup.path("home/state/mcp-proxy");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("ledger.sqlite3"), "no database at all, but a text that somebody put here".repeat(100))
        .unwrap();
    let mut host = setup.open();
    host.names("tools");
    assert_eq!(host.call("a__ledger", "{}").text(), "written");
    let error = host.call("a__ledger", r#"{"crash":"after_run"}"#).error(-31010);
    row(&host, &outcome_of(&error));
    let names: Vec<String> =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let aside = names.iter().find(|name| name.starts_with("ledger") && name.contains("damaged"));
    let aside = aside.unwrap_or_else(|| panic!("the damaged file is kept: {names:?}"));
    assert!(std::fs::read_to_string(dir.join(aside)).unwrap().contains("somebody put here"));
    host.logged("was damaged");
}

#[test]
fn a_state_directory_that_cannot_be_used_costs_no_call() {
    let setup = Setup::new().server_with("a", &["ledger"], "");
    let file = setup.path("no-directory");
    std::fs::write(&file, "").unwrap();
    let mut host = setup.env("XDG_STATE_HOME", file.to_str().unwrap()).open();
    host.names("tools");
    assert_eq!(host.call("a__ledger", "{}").text(), "written");
    let error = host.call("a__ledger", r#"{"crash":"after_run"}"#).error(-31010);
    let outcome = outcome_of(&error);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("keeps no record of this call") && !message.contains(&outcome), "{message}");
    host.logged("there is no in-flight file");
    host.logged("it is tried again. Until then the in-flight file, where there is one, keeps their outcomes");
    // Also without a file the guard knows of it.
    host.call("a__ledger", r#"{"crash":"after_run"}"#).error(-31012);
    assert_eq!(host.ledger("a").len(), 2);
}

#[test]
fn secrets_are_masked_and_long_arguments_are_cut() {
    let canary = "hunter2-hunter2-hunter2";
    let mut host = Setup::new()
        .tuned("a", "", "env = { TOKEN = \"${env:CANARY}\" }\ncall_max_time = \"300ms\"")
        .env("CANARY", canary)
        .open();
    host.names("tools");
    // A call that is lost, and one whose late answer repeats it, also spelled with an escape, and at the place of a cut.
    let escaped = canary.replace('h', r"\u0068");
    let long = format!("{}{canary}{}", "x".repeat(8 * 1024 - 30), "y".repeat(20_000));
    let mut ids = Vec::new();
    for arguments in [
        format!(r#"{{"ms":60000,"token":"{canary}"}}"#),
        format!(r#"{{"ms":60000,"token":"{escaped}","n":2}}"#),
        format!(r#"{{"ms":60000,"token":"{long}"}}"#),
    ] {
        ids.push(outcome_of(&host.call("a__ledger", &arguments).error(-31010)));
    }
    for text in [canary.to_owned(), format!("{}{canary}", "z".repeat(16 * 1024 - 60))] {
        host.request_call("a__block", &json!({ "ms": 700, "for": text.len() }).to_string());
        let id = host.request_call("a__is_error", &json!({ "text": text }).to_string());
        ids.push(outcome_of(&host.wait(&id).error(-31010)));
        let outcome = ids.last().unwrap().clone();
        rows_until(&host.path("home/state"), "the late answer is there", |rows| {
            rows.iter().any(|row| row["id"] == *outcome && row["state"] == "settled")
        });
    }
    let cut = row(&host, &ids[2]);
    assert_eq!(
        cut["argumentsLength"],
        long.len() + r#"{"ms":60000,"token":""}"#.len(),
        "the length of the whole is kept"
    );
    for state in rows(&host) {
        let text = state.to_string();
        assert!(!text.contains("hunter2-h"), "{text}");
    }
    let dir = host.path("home/state/mcp-proxy");
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(9).any(|part| part == b"hunter2-h");
        assert!(!found, "{} has a part of it", path.display());
    }
}

#[test]
fn digest_keeps_no_arguments() {
    let mut host = Setup::new().proxy(r#"ledger_arguments = "digest""#).server_with("a", &["ledger"], "").open();
    host.names("tools");
    let arguments = r#"{"crash":"after_run","account":"12345678"}"#;
    let outcome = outcome_of(&host.call("a__ledger", arguments).error(-31010));
    let row = row(&host, &outcome);
    assert!(row.get("arguments").is_none(), "{row:#}");
    assert!(row["argumentsDigest"].is_string());
    let pending = host.request_call("a__ledger", r#"{"ms":60000,"account":"12345678"}"#);
    host.pending("a", 1);
    for entry in std::fs::read_dir(host.path("home/state/mcp-proxy")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(8).any(|part| part == b"12345678"), "{}", path.display());
    }
    // The guard compares all the same.
    host.call("a__ledger", arguments).error(-31012);
    assert!(!host.has_answer(&pending));
}

#[test]
fn two_proxies_on_one_state_directory_lose_no_row() {
    const CALLS: usize = 150;
    let mut one = Setup::new().server("a", "").open();
    let state = one.path("home/state");
    let mut two = Setup::new().server("a", "").env("XDG_STATE_HOME", state.to_str().unwrap()).open();
    let mut expected = std::collections::BTreeSet::new();
    for host in [&mut one, &mut two] {
        host.names("tools");
    }
    let mut open = Vec::new();
    for n in 0..CALLS {
        for (which, host) in [&mut one, &mut two].into_iter().enumerate() {
            let id = host.request_call("a__ledger", &format!(r#"{{"ms":60000,"n":{n},"host":{which}}}"#));
            open.push((which, id));
        }
    }
    for host in [&mut one, &mut two] {
        host.pending("a", CALLS);
        host.request_call("a__kill", "{}");
    }
    for (which, id) in open {
        let host = if which == 0 { &mut one } else { &mut two };
        expected.insert(outcome_of(&host.wait(&id).error(-31010)));
    }
    assert_eq!(expected.len(), 2 * CALLS);
    let all = rows_until(&state, "all rows are there", |rows| rows.len() >= 2 * CALLS + 2);
    let found: std::collections::BTreeSet<String> =
        all.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect();
    assert!(expected.is_subset(&found));
    assert_eq!(all.len(), 2 * CALLS + 2, "and the two calls that ended the servers");
}
