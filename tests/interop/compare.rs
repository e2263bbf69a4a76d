//! Reference servers, directly and behind the proxy: one script, and what comes out is the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::peer::Peer;
use crate::place::Place;
use crate::script::{Names, Story, everything_else, lists_and_calls, mask};

/// Where `tests/real/install.sh` puts things.
pub(crate) fn installed(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/real").join(path);
    assert!(path.exists(), "{} is missing: run tests/real/install.sh first", path.display());
    path
}

/// What may differ: the step, where in its result, and why.
const DIFFERENCES: [(&str, &str, &str); 8] = [
    ("initialize", "/serverInfo", "the host talks to the proxy"),
    ("initialize", "/instructions", "merged under a heading with the server's name"),
    ("initialize", "/capabilities", "the proxy's own: all that it can carry, with announcements of every kind"),
    ("get-env {}", "/content/0/text", "a server gets the environment it was given, not the host's"),
    ("too late to cancel", "/error/message", "the server puts its own task id into the text"),
    ("all tasks", "/_meta", "one list of all servers' tasks has no server's metadata"),
    (
        r#"trigger-url-elicitation {"url":"https://example.com/allow","elicitationId":"e-2","errorPath":true}"#,
        "/error/data/elicitations/0/elicitationId",
        "the server draws it",
    ),
    ("no such level", "/error", "the proxy knows the levels, and says so itself"),
];

/// A server and its script.
struct Case {
    command: Command,
    env: Vec<(&'static str, String)>,
    roots: Value,
    /// Members of the server's folder are told as if they lay here.
    folder: Option<PathBuf>,
    calls: Vec<(&'static str, Value)>,
    more: fn(&mut Peer, &Names) -> Story,
}

fn no_more(_: &mut Peer, _: &Names) -> Story {
    Story::new()
}

fn direct(case: &Case) -> Story {
    let mut command = Command::new(case.command.get_program());
    command.args(case.command.get_args()).envs(case.env.clone());
    tell(Peer::open(command, case.roots.clone()), &Names(None), case)
}

fn proxied(case: &Case) -> Story {
    let quoted = |text: &std::ffi::OsStr| format!("{:?}", text.to_str().unwrap());
    let args: Vec<String> = case.command.get_args().map(quoted).collect();
    let env: Vec<String> = case.env.iter().map(|(name, value)| format!("{name} = {value:?}")).collect();
    let place = Place::new(&format!(
        "[servers.other]\ncommand = {}\nargs = [{}]\nenv = {{ {} }}\n",
        quoted(case.command.get_program()),
        args.join(", "),
        env.join(", ")
    ));
    tell(Peer::open(place.proxy(), case.roots.clone()), &Names(Some("other")), case)
}

fn tell(mut peer: Peer, names: &Names, case: &Case) -> Story {
    // Some servers ask for the roots, and offer more tools, a moment after the handshake.
    let expected = case.calls.iter().map(|(name, _)| name).collect::<std::collections::BTreeSet<_>>().len();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while peer.request("tools/list", &json!({}))["tools"].as_array().map_or(0, Vec::len) < expected {
        assert!(std::time::Instant::now() < deadline, "there are fewer than {expected} tools");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    if case.roots != json!(null) {
        peer.until("roots/list", |peer| peer.asked.iter().any(|asked| asked["method"] == "roots/list"));
    }
    let mut story = lists_and_calls(&mut peer, names, &case.calls);
    story.extend((case.more)(&mut peer, names));
    // What the server itself does at its end is its own affair.
    if names.0.is_some() {
        peer.close();
    }
    for (step, result) in &mut story {
        names.undo(result);
        mask(result);
        if let Some(folder) = &case.folder {
            let neutral = |text: &str| text.replace(folder.to_str().unwrap(), "/FOLDER");
            *step = neutral(step);
            *result = serde_json::from_str(&neutral(&result.to_string())).unwrap();
        }
    }
    story
}

/// Runs both at once; each has a case of its own, for some servers write files.
#[track_caller]
fn check(case: impl Fn() -> Case + Sync) {
    let (direct, proxied) = std::thread::scope(|scope| {
        let through = scope.spawn(|| proxied(&case()));
        (direct(&case()), through.join().unwrap())
    });
    let steps = |story: &Story| story.iter().map(|(step, _)| step.clone()).collect::<Vec<_>>();
    assert_eq!(steps(&direct), steps(&proxied));
    let mut faults = Vec::new();
    for ((step, mut left), (_, mut right)) in direct.into_iter().zip(proxied) {
        for (_, pointer, _) in DIFFERENCES.iter().filter(|(of, ..)| *of == step) {
            for side in [&mut left, &mut right] {
                remove(side, pointer);
            }
        }
        if left != right {
            faults.push(format!("{step}\n  directly: {left}\n  by proxy: {right}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

fn remove(value: &mut Value, pointer: &str) {
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    if let Some(members) = value.pointer_mut(parent).and_then(Value::as_object_mut) {
        members.remove(member);
    }
}

fn npm(name: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(installed(&format!("node_modules/@modelcontextprotocol/{name}/dist/index.js")));
    command
}

#[test]
fn server_everything_is_the_same_behind_the_proxy() {
    let data = "data:text/plain;base64,SGVsbG8=";
    let ask = "https://example.com/allow";
    check(|| Case {
        command: npm("server-everything"),
        env: vec![("TZ", "UTC".into())],
        roots: json!([{ "uri": "file:///work/one", "name": "one" }]),
        folder: None,
        calls: vec![
            ("echo", json!({ "message": "Grüße, 世界 🎉\u{2028}" })),
            ("echo", json!({})),
            ("get-annotated-message", json!({ "messageType": "error", "includeImage": true })),
            ("get-annotated-message", json!({ "messageType": "debug" })),
            ("get-env", json!({})),
            ("get-resource-links", json!({ "count": 4 })),
            ("get-resource-reference", json!({ "resourceType": "Text", "resourceId": 2 })),
            ("get-resource-reference", json!({ "resourceType": "Blob", "resourceId": 3 })),
            ("get-roots-list", json!({})),
            ("get-structured-content", json!({ "location": "Chicago" })),
            ("get-sum", json!({ "a": 1.5, "b": -2 })),
            ("get-tiny-image", json!({})),
            ("gzip-file-as-resource", json!({ "name": "a.gz", "data": data, "outputType": "resource" })),
            ("gzip-file-as-resource", json!({ "name": "b.gz", "data": data, "outputType": "resourceLink" })),
            ("simulate-research-query", json!({ "topic": "python", "ambiguous": true })),
            ("toggle-simulated-logging", json!({})),
            ("toggle-simulated-logging", json!({})),
            ("toggle-subscriber-updates", json!({})),
            ("toggle-subscriber-updates", json!({})),
            ("trigger-elicitation-request", json!({})),
            ("trigger-elicitation-request-async", json!({})),
            ("trigger-long-running-operation", json!({ "duration": 0.4, "steps": 4 })),
            ("trigger-sampling-request", json!({ "prompt": "Say it.", "maxTokens": 9 })),
            ("trigger-sampling-request-async", json!({ "prompt": "Say it later." })),
            ("trigger-url-elicitation", json!({ "url": ask, "elicitationId": "e-1" })),
            ("trigger-url-elicitation", json!({ "url": ask, "elicitationId": "e-2", "errorPath": true })),
        ],
        more: everything_else,
    });
}

#[test]
fn server_filesystem_is_the_same_behind_the_proxy() {
    let folders: std::sync::Mutex<Vec<tempfile::TempDir>> = std::sync::Mutex::default();
    check(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        std::fs::write(path.join("a.txt"), "one\ntwo\nthree\n").unwrap();
        std::fs::write(path.join("b.bin"), [0, 159, 146, 150]).unwrap();
        std::fs::create_dir(path.join("sub")).unwrap();
        folders.lock().unwrap().push(folder);
        let at = |name: &str| path.join(name).display().to_string();
        let mut command = npm("server-filesystem");
        command.arg(&path);
        let edit = json!({ "path": at("a.txt"), "edits": [{ "oldText": "two", "newText": "2" }] });
        Case {
            command,
            env: vec![("TZ", "UTC".into())],
            roots: json!([{ "uri": format!("file://{}", path.display()), "name": "all" }]),
            folder: Some(path.clone()),
            calls: vec![
                ("list_allowed_directories", json!({})),
                ("read_file", json!({ "path": at("a.txt") })),
                ("read_text_file", json!({ "path": at("a.txt"), "head": 2 })),
                ("read_text_file", json!({ "path": "/etc/passwd" })),
                ("read_media_file", json!({ "path": at("b.bin") })),
                ("read_multiple_files", json!({ "paths": [at("a.txt"), at("none.txt")] })),
                ("write_file", json!({ "path": at("c.txt"), "content": "new\n" })),
                ("edit_file", edit),
                ("create_directory", json!({ "path": at("sub/deeper") })),
                ("move_file", json!({ "source": at("c.txt"), "destination": at("sub/c.txt") })),
                ("list_directory", json!({ "path": at("") })),
                ("list_directory_with_sizes", json!({ "path": at("sub") })),
                ("directory_tree", json!({ "path": at("") })),
                ("search_files", json!({ "path": at(""), "pattern": "**/*.txt" })),
                ("get_file_info", json!({ "path": at("none.txt") })),
            ],
            more: no_more,
        }
    });
}

#[test]
fn server_memory_is_the_same_behind_the_proxy() {
    let folders: std::sync::Mutex<Vec<tempfile::TempDir>> = std::sync::Mutex::default();
    check(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.jsonl").display().to_string();
        folders.lock().unwrap().push(folder);
        let entity = |name: &str| json!({ "name": name, "entityType": "person", "observations": ["tall"] });
        let relation = json!({ "relations": [{ "from": "Ann", "to": "Bob", "relationType": "knows" }] });
        Case {
            command: npm("server-memory"),
            env: vec![("MEMORY_FILE_PATH", file)],
            roots: Value::Null,
            folder: None,
            calls: vec![
                ("create_entities", json!({ "entities": [entity("Ann"), entity("Bob")] })),
                ("create_relations", relation.clone()),
                (
                    "add_observations",
                    json!({ "observations": [{ "entityName": "Bob", "contents": ["reads", "9007199254740993"] }] }),
                ),
                ("read_graph", json!({})),
                ("search_nodes", json!({ "query": "reads" })),
                ("open_nodes", json!({ "names": ["Ann"] })),
                ("delete_observations", json!({ "deletions": [{ "entityName": "Bob", "observations": ["tall"] }] })),
                ("delete_relations", relation),
                ("delete_entities", json!({ "entityNames": ["Ann"] })),
                ("read_graph", json!({})),
                ("create_entities", json!({ "entities": "none" })),
            ],
            more: no_more,
        }
    });
}

#[test]
fn mcp_server_time_is_the_same_behind_the_proxy() {
    check(|| {
        let mut command = Command::new(installed("venv/bin/mcp-server-time"));
        command.arg("--local-timezone=UTC");
        // What is the time now can't be compared; a zone that there is not can.
        let convert = |zone: &str| json!({ "source_timezone": zone, "time": "16:30", "target_timezone": "Asia/Tokyo" });
        Case {
            command,
            env: vec![],
            roots: Value::Null,
            folder: None,
            calls: vec![
                ("get_current_time", json!({ "timezone": "Nowhere/None" })),
                ("convert_time", convert("UTC")),
                ("convert_time", convert("None")),
            ],
            more: no_more,
        }
    });
}
