//! What is shipped beside the crate is built by its script and starts.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "also in the helpers of tests a panic is the right end, and a word on what was skipped"
)]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn python(args: &[&str]) -> Option<std::process::Output> {
    Command::new("python3").args(args).output().ok()
}

#[test]
fn the_script_builds_packages_that_name_this_version_and_start_this_binary() {
    if python(&["--version"]).is_none() {
        println!("skipped: there is no python3");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = Command::new("python3")
        .arg(root.join("packaging/build.py"))
        .args([env!("CARGO_BIN_EXE_mcp-proxy"), "linux-x64"])
        .arg(out)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let json = |path: &str| -> Value { serde_json::from_slice(&std::fs::read(out.join(path)).unwrap()).unwrap() };
    let version = env!("CARGO_PKG_VERSION");
    let wrapper = json("npm/mcp-proxy-hub/package.json");
    assert_eq!(wrapper["version"], version);
    assert_eq!(wrapper["optionalDependencies"]["mcp-proxy-hub-linux-x64"], version);
    assert_eq!(json("npm/mcp-proxy-hub-linux-x64/package.json")["cpu"][0], "x64");
    let native = out.join("npm/mcp-proxy-hub-linux-x64/mcp-proxy");
    let said = Command::new(&native).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), format!("mcp-proxy {version}"));
    let bundle = out.join(format!("mcp-proxy-{version}-linux-x64.mcpb"));
    let listed = python(&["-m", "zipfile", "-l", bundle.to_str().unwrap()]).unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("manifest.json") && listed.contains("server/mcp-proxy"), "{listed}");
    assert!(out.join(format!("mcp-proxy-{version}-linux-x64.tar.gz")).exists());
    starts_by_node(out, &native, version);
}

/// The wrapper hands over arguments, streams and exit codes.
fn starts_by_node(out: &Path, native: &Path, version: &str) {
    let wrapper = out.join("npm/mcp-proxy-hub/bin/mcp-proxy.js");
    let run = |args: &[&str]| Command::new("node").arg(&wrapper).args(args).env("MCP_PROXY_BINARY", native).output();
    let Ok(said) = run(&["--version"]) else {
        println!("skipped: there is no node");
        return;
    };
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), format!("mcp-proxy {version}"));
    assert_eq!(run(&["no-such-command"]).unwrap().status.code(), Some(2));
}

#[test]
fn the_script_says_what_is_wrong() {
    let Some(told) =
        python(&[&format!("{}/packaging/build.py", env!("CARGO_MANIFEST_DIR")), "missing", "linux-x64", "out"])
    else {
        return;
    };
    assert_eq!(told.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&told.stderr).contains("cargo build --release"));
}
