//! Released clients as hosts: each uses the examples through the proxy, and what it saw is what it should see.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::compare::installed;
use crate::place::{PROXY, Place};

/// How long a client may take; they start an interpreter and some hundred modules.
const PATIENCE: Duration = Duration::from_secs(45);

const TOOLS: [&str; 11] = [
    "notes__add_note",
    "notes__append_to_note",
    "notes__link_to_note",
    "notes__note_folders",
    "notes__remove_note",
    "notes__search_notes",
    "notes__sum_up_note",
    "clock__convert",
    "clock__countdown",
    "clock__now",
    "clock__start_stopwatch",
];

/// Runs a client with the proxy's command line as its last arguments; what it printed.
#[track_caller]
fn run(mut client: Command, place: &Place) -> Value {
    client.envs(place.env()).env("REAL_PEERS", installed("."));
    client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = client.spawn().unwrap();
    let (pid, started) = (child.id(), Instant::now());
    let done = std::thread::spawn(move || child.wait_with_output().unwrap());
    while !done.is_finished() {
        if started.elapsed() > PATIENCE {
            let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            panic!("the client does not come to an end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = done.join().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}\n{out}\n{err}"))
}

/// A client of ours around a released SDK.
fn script(program: Command, name: &str, place: &Place) -> Value {
    let mut client = program;
    client.arg(format!("{}/tests/real/{name}", env!("CARGO_MANIFEST_DIR")));
    client.args([PROXY, "run", "--config"]).arg(place.config());
    run(client, place)
}

/// What every one of them sees of the lists and of a first use.
fn check_common(told: &Value) {
    assert_eq!(told["server"], "mcp-proxy");
    assert_eq!(told["tools"], json!(TOOLS));
    assert_eq!(told["prompts"], json!(["notes__review_notes", "clock__find_meeting"]));
    let own = ["mcp-proxy://status", "mcp-proxy://unknown"];
    let resources = ["notes+note:///1", "clock+clock://now", "clock+clock://zones"];
    assert_eq!(told["resources"], json!(resources.iter().chain(&own).collect::<Vec<_>>()));
    assert_eq!(told["templates"], json!(["notes+note:///{id}", "clock+clock://zone/{zone}"]));
    let text = "Notes live as long as this server.\nMore.";
    assert_eq!(told["appended"], text);
    assert_eq!(told["read"], format!("# Welcome\n\n{text}"));
    assert_eq!(told["prompt"], 2);
    // The TypeScript SDK forgets the last one if it reads it together with the result.
    assert_eq!(told["progress"][0], "1 s left");
}

/// What a host of the handshake's era is asked on the way.
fn check_questions(told: &Value) {
    assert_eq!(told["completed"], json!(["Nairobi"]));
    assert_eq!(told["sampled"], "In short.");
    assert_eq!(told["roots"], "1 notes written.");
    assert_eq!(told["elicited"], "“Welcome” is gone.");
    assert_eq!(told["error"], -32602);
}

#[test]
fn the_typescript_sdk_is_served() {
    let told = script(Command::new("node"), "client.mjs", &Place::of_examples());
    check_common(&told);
    check_questions(&told);
    assert_eq!(told["updated"], "notes+note:///1");
}

/// Of the second generation, in both eras; before a legacy server a modern host is asked by results.
#[test]
fn the_second_typescript_sdk_is_served() {
    for (era, protocol) in [("legacy", "2025-11-25"), ("modern", "2026-07-28")] {
        let mut node = Command::new("node");
        node.env("ERA", era);
        let told = script(node, "client_v2.mjs", &Place::of_examples_in("legacy"));
        assert_eq!(told["protocol"], protocol);
        check_common(&told);
        check_questions(&told);
    }
    let mut node = Command::new("node");
    node.env("ERA", "modern");
    check_common(&script(node, "client_v2.mjs", &Place::of_examples_in("modern")));
}

#[test]
fn the_python_sdk_is_served() {
    let told = script(Command::new(installed("venv/bin/python")), "client_mcp.py", &Place::of_examples());
    check_common(&told);
    check_questions(&told);
}

/// It speaks 2026-07-28, in which the examples can ask it nothing.
#[test]
fn fastmcp_is_served() {
    let told = script(Command::new(installed("venv/bin/python")), "client_fastmcp.py", &Place::of_examples());
    assert_eq!(told["protocol"], "2026-07-28");
    check_common(&told);
    assert!(told["error"].as_str().unwrap().contains("nobody__home"), "{told}");
}

#[test]
fn the_inspector_is_served() {
    let place = Place::of_examples();
    let inspect = |args: &[&str]| {
        let mut client = Command::new(installed("node_modules/.bin/mcp-inspector"));
        client.args(["--cli", PROXY, "run"]);
        for (name, value) in place.env().into_iter().chain([("MCP_PROXY_CONFIG", place.config())]) {
            client.arg("-e").arg(format!("{name}={}", value.display()));
        }
        client.args(args);
        run(client, &place)
    };
    let listed = inspect(&["--method", "tools/list"]);
    let names: Vec<&str> = listed["tools"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(names, TOOLS);
    let told = ["time=17:45", "from=Kathmandu", "to=Lima"].iter().flat_map(|pair| ["--tool-arg", pair]);
    let told: Vec<&str> = ["--method", "tools/call", "--tool-name", "clock__convert"].into_iter().chain(told).collect();
    assert_eq!(inspect(&told)["structuredContent"], json!({ "zone": "Lima", "time": "07:00:00", "day": 0 }));
    let read = inspect(&["--method", "resources/read", "--uri", "clock+clock://zones"]);
    assert!(read["contents"][0]["text"].as_str().unwrap().contains("Kathmandu +05:45"), "{read}");
    let prompts = inspect(&["--method", "prompts/list"]);
    assert_eq!(prompts["prompts"][1]["name"], "clock__find_meeting");
}
