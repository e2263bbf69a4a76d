//! A canary in every field that can hold a secret, and a search for it everywhere (`DESIGN.md` P11).
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "also in the helpers of tests a panic is the right end")]

#[allow(dead_code, unused_imports, reason = "shared with other tests, which use the rest")]
#[path = "support/harness.rs"]
mod harness;

use std::path::Path;

use rustix::process::Signal;
use serde_json::json;

use harness::{Host, Setup};

/// A part of every canary.
const MARK: &str = "kanarienvogel";

#[track_caller]
fn clean(what: &str, bytes: impl AsRef<[u8]>) {
    let text = String::from_utf8_lossy(bytes.as_ref()).into_owned();
    if let Some(at) = text.find(MARK) {
        let from = (0..=at.saturating_sub(200)).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        panic!("{what} has a canary: …{}", text[from..].chars().take(400).collect::<String>());
    }
}

/// Every file below a directory, its name included.
fn clean_files(dir: &Path) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        clean("a file name", path.display().to_string());
        if path.is_dir() {
            count += clean_files(&path);
        } else if let Ok(bytes) = std::fs::read(&path) {
            clean(&path.display().to_string(), bytes);
            count += 1;
        }
    }
    count
}

/// Arguments of all processes but those with a canary of their own, and the environment of the other servers.
fn clean_processes(host: &Host, own: &[&str], others: &[&str]) {
    let own: Vec<u32> = own.iter().flat_map(|key| host.pids(key)).collect();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if own.contains(&pid) {
            continue;
        }
        // It may end in the meantime.
        let cmdline = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        clean(&format!("the arguments of {pid}"), cmdline);
    }
    for key in others {
        let pid = *host.pids(key).last().unwrap();
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert!(!environ.is_empty(), "{key} runs");
        clean(&format!("the environment of {key}"), environ);
    }
}

#[test]
fn a_canary_is_found_nowhere() {
    let setup = Setup::new();
    let canary = |name: &str| format!("{MARK}-{name}-8f3a");
    let file = setup.path("secret-file");
    std::fs::write(&file, format!("{}\n{}\n", canary("file-1"), canary("file-2"))).unwrap();
    let cwd = setup.path(&canary("cwd"));
    std::fs::create_dir(&cwd).unwrap();
    let fake = json!(env!("CARGO_BIN_EXE_fake-server"));
    let pids = |key: &str| json!(format!("pids={}", setup.path(&format!("{key}.pids")).display()));
    let literal = canary("literal");
    let mut table = String::from("[log]\nlevel = \"trace\"\n");
    table.push_str(&format!(
        r#"
[servers.a]
command = {fake}
args = [{a}, "label=a", "stderr_line=crying ${{env:ARGS}}", "${{env:ARGS}}"]
env = {{ LITERAL = "{literal}", REF = "${{env:ENV}}", FILE = "${{file:{file}}}", ODD = "${{env:ODD}}", DEFAULT = "${{env:UNSET_HERE:-{default}}}" }}
cwd = "${{env:CWD}}"
restart = {{ policy = "always", min = "10ms", max = "20ms", attempts = 99, stable = "60s" }}

[servers.notfound]
command = "${{env:COMMAND}}"
args = ["${{env:ARGS}}"]

[servers.nocwd]
command = {fake}
cwd = "/nowhere/${{env:CWDPART}}"

[servers.remote]
url = "http://127.0.0.1:9/${{env:URL}}"
headers = {{ Authorization = "Bearer ${{env:HEADER}}", X-Key = "{header}" }}

[servers.unset]
command = {fake}
env = {{ A = "{literal}-x", B = "${{env:NOBODY_SET_THIS}}" }}

[servers.b]
command = {fake}
args = [{b}, "label=b"]
"#,
        a = pids("a"),
        b = pids("b"),
        file = file.display(),
        default = canary("default"),
        header = canary("header-literal"),
    ));
    let mut host = setup
        .table(&table)
        .proxy("list_wait = \"20s\"")
        .env("ARGS", &canary("args"))
        .env("ENV", &canary("env"))
        .env("ODD", &format!("\"{}\\\" {}é", canary("odd"), canary("odd-2")))
        .env("CWD", cwd.to_str().unwrap())
        .env("CWDPART", &canary("cwdpart"))
        .env("COMMAND", &canary("command"))
        .env("URL", &canary("url"))
        .env("HEADER", &canary("header"))
        .open();
    // Success.
    assert!(host.names("tools").iter().any(|name| name == "a__ledger"));
    let who = host.call("a__whoami", "{}").told();
    assert!(who["process"]["cwd"].as_str().unwrap().ends_with(&canary("cwd")), "it has what it was given: {who:#}");
    assert!(who["process"]["args"].to_string().contains(&canary("args")));
    let environ = std::fs::read_to_string(format!("/proc/{}/environ", host.pids("a")[0])).unwrap();
    for name in ["literal", "env", "file-1", "odd", "default"] {
        assert!(environ.contains(&canary(name)), "{name}");
    }
    // Not found, and what else fails.
    for key in ["notfound", "nocwd", "remote", "unset"] {
        let error = host.call(&format!("{key}__x"), "{}").error(-31011);
        clean(&format!("the error of {key}"), error.to_string());
    }
    // Crash, with arguments and last words that repeat it.
    let arguments =
        json!({ "crash": "after_run", "token": canary("env"), "odd": format!("x {} y", canary("literal")) });
    let error = host.call("a__ledger", &arguments.to_string()).error(-31010);
    assert!(error["message"].as_str().unwrap().contains("crying"), "its last words are there: {error:#}");
    clean("the error of a crash", error.to_string());
    let refused = host.call("a__ledger", &arguments.to_string()).error(-31012);
    clean("a refusal", refused.to_string());
    // One that is under way, for the in-flight file.
    let open = host.request_call("a__ledger", &json!({ "ms": 60000, "token": canary("file-2") }).to_string());
    host.pending("a", 1);
    everywhere(&mut host);
    // A reload that is refused, with the fault in the very line of a literal; and one that is taken over.
    let path = host.path("mcp-proxy.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("DEFAULT = ", "BAD = 7, DEFAULT = ")).unwrap();
    host.signal(Signal::HUP);
    host.logged("not taken over");
    std::fs::write(&path, text.replace("cwd = \"${env:CWD}\"", "drain_timeout = \"100ms\"")).unwrap();
    host.signal(Signal::HUP);
    clean("the error of a replaced server", host.wait(&open).error(-31010).to_string());
    host.status_until("a", "the next life is up", |status| status["state"] == "ready" && status["generation"] == 3);
    everywhere(&mut host);
    // The commands, too.
    let state = host.path("home/state");
    for args in [&["unknown", "list"][..], &["unknown", "list", "--json"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_mcp-proxy"))
            .env_clear()
            .env("HOME", "/nonexistent")
            .env("XDG_STATE_HOME", &state)
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success());
        clean("unknown list", &output.stdout);
    }
    let setup = host.restart();
    let output = setup.run(&["check", "--json"]);
    clean("check", &output.stdout);
    clean("check", &output.stderr);
    assert!(clean_files(&setup.path("home")) >= 3, "ledger, seal and cache were searched");
}

fn everywhere(host: &mut Host) {
    for uri in ["status", "unknown"] {
        let read = host.ask("resources/read", &format!(r#"{{"uri":"mcp-proxy://{uri}"}}"#));
        clean(uri, &read.raw);
    }
    let log = host.stderr();
    assert!(log.contains("TRACE") || log.contains("DEBUG") || log.contains("INFO"), "there is a log");
    clean("the log", log);
    assert!(clean_files(&host.path("home")) >= 3);
    clean_processes(host, &["a"], &["b"]);
}
