//! A call that may have run is not sent again blindly.

use serde_json::{Value, json};

use super::{command, is_error, json_of, outcome_of, row, rows, rows_until};
use crate::harness::{ABLE, Host, Setup};

fn server() -> Setup {
    Setup::new().server_with(
        "a",
        &["ledger"],
        r#"restart = { policy = "always", min = "20ms", max = "50ms", attempts = 99, stable = "60s" }"#,
    )
}

/// Loses a call of the recorded tool; the id of its row.
#[track_caller]
fn lose(host: &mut Host, arguments: &str) -> String {
    outcome_of(&host.call("a__ledger", arguments).error(-31010))
}

/// How many calls had an effect.
fn effects(host: &Host) -> usize {
    host.ledger("a").len()
}

const CRASH: &str = r#"{"crash":"after_run","amount":100,"to":["x","y"]}"#;

#[test]
fn confirm_refuses_once_and_marks_the_repeat() {
    let mut host = server().open();
    host.names("tools");
    let first = lose(&mut host, CRASH);
    // The order of keys and the spelling of numbers make no difference.
    for same in [r#"{"to":["x","y"],"amount":1.0e2,"crash":"after_run"}"#, CRASH] {
        let answer = host.call("a__ledger", same);
        if same == CRASH {
            // It was refused once; now it passes, and is lost like the first.
            let second = outcome_of(&answer.error(-31010));
            assert_ne!(second, first);
            assert_eq!(row(&host, &second)["repeatOf"], *first);
        } else {
            let error = answer.error(-31012);
            let data = &error["data"];
            assert_eq!((&data["reason"], &data["outcomeId"]), (&json!("unknown_outcome"), &json!(first)), "{error:#}");
            assert_eq!((&data["server"], &data["tool"]), (&json!("a"), &json!("a__ledger")));
            assert!(error["message"].as_str().unwrap().contains(&first), "{error:#}");
        }
    }
    assert_eq!(effects(&host), 2);
    let marked = |rows: &[Value]| rows.iter().any(|row| row["id"] == *first && row["repeatedAt"].is_string());
    let rows = rows_until(&host.path("home/state"), "the first row tells of its repeat", marked);
    assert!(rows.iter().any(|row| row["id"] == *first && row["refusedAt"].is_string()));
    // The repeat was lost in its turn, so it is guarded like any call.
    host.call("a__ledger", CRASH).error(-31012);
    assert_eq!(effects(&host), 2);
}

#[test]
fn other_arguments_are_another_call() {
    let mut host = server().open();
    host.names("tools");
    lose(&mut host, CRASH);
    for other in [
        r#"{"crash":"after_run","amount":100,"to":["y","x"]}"#,
        r#"{"crash":"after_run","amount":101,"to":["x","y"]}"#,
        r#"{"crash":"after_run","amount":"100","to":["x","y"]}"#,
        r#"{"crash":"after_run","amount":100,"to":["x","y"],"more":null}"#,
    ] {
        lose(&mut host, other);
    }
    assert_eq!(effects(&host), 5);
}

#[test]
fn a_host_that_can_ask_asks_the_person() {
    let accept = r#"{"action":"accept","content":{"runAgain":true}}"#;
    let cases = [
        // What the person says, whether it runs, and whether the next one is asked about again.
        (accept, true, false),
        (r#"{"action":"accept","content":{"runAgain":false}}"#, false, true),
        (r#"{"action":"decline"}"#, false, true),
        (r#"{"action":"cancel"}"#, false, false),
    ];
    for (n, (said, runs, asks_again)) in cases.into_iter().enumerate() {
        let mut host = server().start();
        host.initialize("2025-11-25", ABLE);
        host.names("tools");
        let arguments = format!(r#"{{"crash":"after_run","n":{n}}}"#);
        let lost = lose(&mut host, &arguments);
        let id = host.request_call("a__ledger", &arguments);
        let question = host.asked("elicitation/create");
        let text = question.params()["message"].as_str().unwrap().to_owned();
        assert!(text.contains("may already have run") && text.contains("Run it again?"), "{text}");
        host.reply(&question, said);
        let answer = host.wait(&id);
        if runs {
            assert_eq!(row(&host, &outcome_of(&answer.error(-31010)))["repeatOf"], *lost);
        } else {
            assert_eq!(answer.error(-31012)["data"]["outcomeId"], *lost);
        }
        assert_eq!(effects(&host), 1 + usize::from(runs), "{said}");
        if asks_again {
            let id = host.request_call("a__ledger", &arguments);
            let question = host.asked("elicitation/create");
            host.reply(&question, accept);
            host.wait(&id).error(-31010);
        } else if !runs {
            // Nothing was said: refused once, as if the host could not ask.
            lose(&mut host, &arguments);
        }
    }
}

#[test]
fn always_sends_and_marks_it() {
    let mut host = server().proxy(r#"allow_repeat_after_unknown = "always""#).open();
    host.names("tools");
    let first = lose(&mut host, CRASH);
    let second = lose(&mut host, CRASH);
    assert_eq!(row(&host, &second)["repeatOf"], *first);
    assert_eq!(effects(&host), 2);
}

#[test]
fn never_refuses_until_somebody_says_what_happened() {
    let mut host = server().proxy(r#"allow_repeat_after_unknown = "never""#).open();
    host.names("tools");
    let lost = lose(&mut host, CRASH);
    for _ in 0..3 {
        let error = host.call("a__ledger", CRASH).error(-31012);
        assert!(error["message"].as_str().unwrap().contains("unknown resolve"), "{error:#}");
    }
    assert_eq!(effects(&host), 1);
    let state = host.path("home/state");
    row(&host, &lost);
    let resolved = json_of(&state, &["unknown", "resolve", &lost, "--as", "not-done", "--note", "looked", "--json"]);
    assert_eq!(resolved["state"], "resolved");
    assert_eq!(
        (&resolved["resolution"]["as"], &resolved["resolution"]["note"]),
        (&json!("not-done"), &json!("looked"))
    );
    // A running proxy knows within two seconds what another process wrote.
    let mut passed = false;
    let until = std::time::Instant::now() + crate::harness::SOON;
    while !passed && std::time::Instant::now() < until {
        passed = is_error(&host.call("a__ledger", CRASH), -31010);
    }
    assert!(passed);
    assert_eq!(effects(&host), 2);
}

#[test]
fn tools_that_may_run_twice_are_exempt() {
    let mut host = server().open();
    host.names("tools");
    for _ in 0..2 {
        let error = host.call("a__ledger_readonly", CRASH).error(-31010);
        assert!(error["data"].get("outcomeId").is_none(), "no row: {error:#}");
    }
    assert_eq!(rows(&host), Vec::<Value>::new());
    for n in 1..=2 {
        host.call("a__ledger_idempotent", CRASH).error(-31010);
        rows_until(&host.path("home/state"), "idempotent calls have rows", |rows| rows.len() == n);
    }
    assert_eq!(effects(&host), 4);
}

#[test]
fn another_proxy_knows_of_it_within_two_seconds() {
    let mut one = server().open();
    let state = one.path("home/state");
    let mut two = server().env("XDG_STATE_HOME", state.to_str().unwrap()).open();
    one.names("tools");
    two.names("tools");
    let lost = lose(&mut one, CRASH);
    let row = row(&one, &lost);
    two.until("its guard has been told", {
        let since = std::time::Instant::now();
        move || since.elapsed() > std::time::Duration::from_secs(2)
    });
    let error = two.call("a__ledger", CRASH).error(-31012);
    assert_eq!((&error["data"]["outcomeId"], &row["pid"]), (&json!(lost), &json!(one.pid)));
    assert_eq!(effects(&two), 0);
}

#[test]
fn the_command_line_resolves_by_the_beginning_of_an_id_and_names_what_is_wrong() {
    let mut host = server().open();
    host.names("tools");
    let lost = lose(&mut host, CRASH);
    row(&host, &lost);
    let state = host.path("home/state");
    let begun = &lost[..8];
    let shown = command(&state, &["unknown", "show", begun]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains(&lost) && text.contains("unknown resolve"), "{text}");
    assert_eq!(json_of(&state, &["unknown", "resolve", begun, "--as", "done", "--json"])["state"], "resolved");
    let wrong = command(&state, &["unknown", "resolve", "u-zzzzzzzzzzzzz", "--as", "done"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("unknown list"), "it says what to do");
    assert_eq!(command(&state, &["unknown", "resolve", begun, "--as", "perhaps"]).status.code(), Some(2));
}
