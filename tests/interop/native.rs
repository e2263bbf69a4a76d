//! Servers of others that speak both eras, before hosts of both: each cell beside the native pair.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::compare::installed;
use crate::peer::Peer;
use crate::place::Place;
use crate::script::{Names, Story};

/// How long a server may take to come up; each starts an interpreter and some hundred modules.
const PATIENCE: Duration = Duration::from_secs(45);

/// What is done with the servers of ours around PyPI's `mcp` and `fastmcp` and the TypeScript SDK. `greet` asks a
/// person.
fn scripted(peer: &mut Peer, names: &Names) -> Story {
    let mut story = lists(peer);
    for (tool, arguments) in [
        ("add", json!({ "terms": [1, 2.5] })),
        ("add", json!({ "terms": "none" })),
        ("echo", json!({ "text": "Grüße" })),
        ("fail", json!({})),
        ("greet", json!({})),
    ] {
        let result = peer.request("tools/call", &json!({ "name": names.of(tool), "arguments": arguments }));
        story.push((format!("{tool} {arguments}"), result));
    }
    for uri in ["memo://first", "memo://of/Ann"] {
        let result = peer.request("resources/read", &json!({ "uri": names.uri(uri) }));
        story.push((format!("read {uri}"), result));
    }
    let prompt = json!({ "name": names.of("review"), "arguments": { "subject": "it" } });
    story.push(("prompt".into(), peer.request("prompts/get", &prompt)));
    story
}

fn of_time(peer: &mut Peer, names: &Names) -> Story {
    let mut story = lists(peer);
    for zone in ["UTC", "None"] {
        let arguments = json!({ "source_timezone": zone, "time": "16:30", "target_timezone": "Asia/Tokyo" });
        let result = peer.request("tools/call", &json!({ "name": names.of("convert_time"), "arguments": arguments }));
        story.push((format!("convert {zone}"), result));
    }
    story
}

fn lists(peer: &mut Peer) -> Story {
    let lists = [
        ("tools", "tools", "name"),
        ("prompts", "prompts", "name"),
        ("resources", "resources", "uri"),
        ("resources/templates", "resourceTemplates", "uriTemplate"),
    ];
    let mut story = Story::new();
    for (kind, member, key) in lists {
        let listed = peer.request(&format!("{kind}/list"), &json!({}));
        let mut entries = listed[member].as_array().cloned().unwrap_or_default();
        entries.retain(|entry| !entry[key].as_str().unwrap().starts_with("mcp-proxy://"));
        entries.sort_by(|a, b| a[key].as_str().cmp(&b[key].as_str()));
        story.push((kind.to_owned(), entries.into()));
    }
    story
}

/// What tells the eras apart, and who answers.
fn strip(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(strip),
        Value::Object(members) => {
            for name in ["resultType", "ttlMs", "cacheScope"] {
                members.remove(name);
            }
            if let Some(meta) = members.get_mut("_meta").and_then(Value::as_object_mut) {
                meta.remove("io.modelcontextprotocol/serverInfo");
                if meta.is_empty() {
                    members.remove("_meta");
                }
            }
            members.values_mut().for_each(strip);
        }
        _ => {}
    }
}

type Script = fn(&mut Peer, &Names) -> Story;

/// Runs a script; `native`: what a host and a server of one era told each other, whose lists are waited for.
fn run(command: Command, modern: bool, names: &Names, native: Option<&Story>, script: Script) -> Story {
    let open = if modern { Peer::open_modern } else { Peer::open };
    let mut peer = open(command, json!([]));
    let lengths = |story: &Story| -> Vec<usize> {
        story.iter().take(4).map(|(_, list)| list.as_array().map_or(0, Vec::len)).collect()
    };
    if let Some(native) = native {
        let deadline = Instant::now() + PATIENCE;
        while lengths(&lists(&mut peer)) != lengths(native) {
            assert!(Instant::now() < deadline, "the lists never came");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    let mut story = script(&mut peer, names);
    for (_, result) in &mut story {
        names.undo(result);
        strip(result);
    }
    story
}

/// `asks`: the step that a server can do in the era of the handshake alone; it is as the server's era has it.
#[track_caller]
fn check(program: &Path, args: &[&str], asks: &str, script: Script) {
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let direct = |modern| {
        let mut command = Command::new(program);
        command.args(&args);
        run(command, modern, &Names(None), None, script)
    };
    let native = std::thread::scope(|scope| {
        let modern = scope.spawn(|| direct(true));
        [direct(false), modern.join().unwrap()]
    });
    let cell = &|host: bool, server: bool| {
        let protocol = if server { "modern" } else { "legacy" };
        let command = program.display().to_string();
        let place =
            Place::new(&format!("[servers.other]\ncommand = {command:?}\nargs = {args:?}\nprotocol = {protocol:?}\n"));
        let seen = run(place.proxy(), host, &Names(Some("other")), Some(&native[usize::from(host)]), script);
        let expected = |step: &str| if step.starts_with(asks) { server } else { host };
        let differs = seen.into_iter().enumerate().filter_map(|(index, (step, result))| {
            let expected = &native[usize::from(expected(&step))][index].1;
            let fault = format!("modern host {host}, modern server {server}, {step}:\n  {expected}\n  {result}");
            (result != *expected).then_some(fault)
        });
        differs.collect::<Vec<String>>()
    };
    let faults: Vec<String> = std::thread::scope(|scope| {
        let cells = [(false, false), (false, true), (true, false), (true, true)];
        let cells = cells.map(|(host, server)| scope.spawn(move || cell(host, server)));
        cells.into_iter().flat_map(|cell| cell.join().unwrap()).collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn ours(name: &str) -> String {
    format!("{}/tests/real/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_server_of_the_python_sdk_is_the_same_in_both_eras() {
    check(&installed("venv/bin/python"), &[&ours("server_mcp.py")], "greet", scripted);
}

#[test]
fn a_server_of_fastmcp_is_the_same_in_both_eras() {
    check(&installed("venv/bin/python"), &[&ours("server_fastmcp.py")], "greet", scripted);
}

/// It asks by results, and its SDK makes a request of them where the host knows none.
#[test]
fn a_server_of_the_second_typescript_sdk_is_the_same_in_both_eras() {
    let packages = installed(".").display().to_string();
    check(Path::new("node"), &[&ours("server_v2.mjs"), &packages], "nothing", scripted);
}

#[test]
fn mcp_server_time_is_the_same_in_both_eras() {
    check(&installed("venv/bin/mcp-server-time"), &["--local-timezone=UTC"], "nothing", of_time);
}
