//! Getting into and out of hosts: realistic files of every host, to the byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mcp_proxy::cli::import::{ImportArgs, run_in as import};
use mcp_proxy::cli::install::{
    InstallArgs, PlaceArgs, Scene, UninstallArgs, run_in as install, run_uninstall_in as uninstall,
};
use mcp_proxy::hosts::{Format, HOSTS, Platform, Surroundings, by_id};

#[path = "support/host_samples.rs"]
mod host_samples;

use host_samples::samples;

const BINARY: &str = "/opt/tools/bin/mcp-proxy";

/// A home directory of one's own.
struct Home {
    directory: tempfile::TempDir,
    scene: Scene,
}

/// What a command said.
struct Said {
    code: Result<u8, String>,
    out: String,
    err: String,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let around =
            Surroundings { platform: Platform::Linux, home: directory.path().to_owned(), vars: BTreeMap::new() };
        let scene = Scene { around, binary: PathBuf::from(BINARY), unix_seconds: 1_764_000_000, interactive: false };
        Self { directory, scene }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn host_file(&self, host: &str) -> PathBuf {
        self.scene.around.host_file(by_id(host).expect("known")).expect("it has a file")
    }

    fn install(&self, place: PlaceArgs, replace: bool) -> Said {
        // The configuration is named, so that nothing of this machine's person is looked at.
        let args = InstallArgs { place, config: Some(self.path("mcp-proxy.toml")), replace, keyring: false };
        said(|out, err| install(&args, &self.scene, out, err))
    }

    fn uninstall(&self, place: PlaceArgs) -> Said {
        said(|out, err| uninstall(&UninstallArgs { place }, &self.scene, out, err))
    }

    fn import(&self, source: &str, output: Option<&Path>) -> Said {
        self.import_of(Some(source), output)
    }

    fn import_of(&self, source: Option<&str>, output: Option<&Path>) -> Said {
        let args = ImportArgs {
            source: source.map(str::to_owned),
            host: None,
            output: output.map(Path::to_owned),
            keyring: false,
            json: false,
        };
        said(|out, err| import(&args, &self.scene, out, err))
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, text).expect("written");
}

fn place(host: &str) -> PlaceArgs {
    PlaceArgs {
        host: host.to_owned(),
        file: None,
        project: None,
        no_cli: false,
        name: "hub".to_owned(),
        dry_run: false,
        yes: true,
    }
}

/// The names in a directory.
fn beside(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path.parent().expect("a parent")).expect("listed");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn said(run: impl FnOnce(&mut dyn std::io::Write, &mut dyn std::io::Write) -> anyhow::Result<u8>) -> Said {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(&mut out, &mut err).map_err(|error| format!("{error:#}"));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Said { code, out: text(out), err: text(err) }
}

#[test]
fn every_host_has_a_sample() {
    for host in HOSTS.iter().filter(|host| host.format != Format::Paste && host.id != "continue") {
        assert!(samples().iter().any(|(id, _)| *id == host.id), "{}", host.id);
    }
}

#[test]
fn install_and_uninstall_leave_the_file_as_it_was() {
    for (host, text) in samples() {
        for text in [text.to_owned(), text.replace('\n', "\r\n"), format!("\u{feff}{text}")] {
            for replace in [false, true] {
                round_trip(host, &text, replace);
            }
        }
    }
}

fn round_trip(host: &str, text: &str, replace: bool) {
    let home = Home::new();
    let file = home.host_file(host);
    write(&file, text);
    let told = home.install(place(host), replace);
    assert_eq!(told.code, Ok(0), "{host}\n{text}\n{}", told.err);
    assert!(!told.out.contains("open-sesame") && !told.err.contains("open-sesame"), "{}", told.out);
    let after = fs::read_to_string(&file).expect("read");
    assert!(after.contains(BINARY), "{host}\n{after}");
    if !replace {
        // All lines of before are there, in their order; only commas come in.
        let bare = |line: &str| line.trim().trim_end_matches(',').to_owned();
        let mut lines = after.lines().map(bare);
        let kept = text
            .lines()
            .map(bare)
            .filter(|line| line.len() > 3 && !line.contains("extensions") && !line.contains("mcp"));
        for line in kept {
            if text.lines().count() > 1 && !line.contains("\"servers\"") {
                assert!(lines.any(|other| other.contains(&line)), "{host}: {line}\n{after}");
            }
        }
    }
    if text.contains("\r\n") {
        assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{host} keeps CRLF\n{after:?}");
    }
    assert_eq!(text.starts_with('\u{feff}'), after.starts_with('\u{feff}'), "{host}");
    if by_id(host).expect("known").format == Format::Json {
        serde_json::from_str::<serde_json::Value>(after.trim_start_matches('\u{feff}'))
            .expect("strict JSON stays strict");
    }

    let again = home.install(place(host), replace);
    assert_eq!(again.code, Ok(0), "{host} {}", again.err);
    assert_eq!(
        fs::read_to_string(&file).expect("read"),
        after,
        "{host}: a second install changes nothing\n{}",
        again.err
    );

    let told = home.uninstall(place(host));
    assert_eq!(told.code, Ok(0), "{host} {}", told.err);
    assert!(!told.out.contains("open-sesame") && !told.err.contains("open-sesame"), "{}", told.out);
    assert_eq!(fs::read_to_string(&file).expect("read"), text, "{host} replace={replace}");
    let beside = beside(&file);
    assert_eq!(beside, [file.file_name().expect("a name").to_string_lossy()], "{host}: nothing is left behind");
    assert!(home.uninstall(place(host)).err.contains("no entry of ours"));
}

#[test]
fn a_server_that_was_renamed_in_our_file_does_not_cost_the_host_its_own() {
    let home = Home::new();
    let file = home.host_file("cursor");
    let text = r#"{"mcpServers": {"one": {"command": "one"}, "two": {"command": "two"}}}"#;
    write(&file, text);
    assert_eq!(home.install(place("cursor"), true).code, Ok(0));
    let config = home.path("mcp-proxy.toml");
    let renamed = fs::read_to_string(&config).expect("read").replace("[servers.two]", "[servers.second]");
    fs::write(&config, renamed + "\n[servers.three]\ncommand = \"three\"\n").expect("written");
    let told = home.uninstall(place("cursor"));
    assert_eq!(told.code, Ok(0), "{}", told.err);
    assert_eq!(fs::read_to_string(&file).expect("read"), text, "{}", told.err);
}

#[test]
fn a_file_that_somebody_changed_since_loses_only_our_entry() {
    for (host, text) in samples().into_iter().filter(|(_, text)| !text.is_empty()) {
        let home = Home::new();
        let file = home.host_file(host);
        write(&file, text);
        assert_eq!(home.install(place(host), false).code, Ok(0));
        let after = fs::read_to_string(&file).expect("read");
        let space = if after.ends_with('\n') { "\n" } else { " \n" };
        fs::write(&file, format!("{after}{space}")).expect("written");
        let told = home.uninstall(place(host));
        assert_eq!(told.code, Ok(0), "{host} {}", told.err);
        let left = fs::read_to_string(&file).expect("read");
        assert!(!left.contains("mcp-proxy"), "{host}\n{left}");
        for word in ["open-sesame", "// mine", "# after", "/* fast */", "# the end", "# a comment on git"] {
            assert_eq!(text.contains(word), left.contains(word), "{host} {word}\n{left}");
        }
    }
}

#[test]
fn a_file_that_we_made_is_removed_again() {
    for host in HOSTS.iter().filter(|host| host.format != Format::Paste) {
        let home = Home::new();
        let file = home.host_file(host.id);
        assert_eq!(home.install(place(host.id), false).code, Ok(0));
        assert!(fs::read_to_string(&file).expect("written").contains(BINARY), "{}", host.id);
        let told = home.uninstall(place(host.id));
        assert_eq!(told.code, Ok(0), "{}", host.id);
        assert!(!file.exists() && beside(&file).is_empty(), "{} {}", host.id, told.err);
    }
}

#[test]
fn what_is_written_is_what_the_host_takes() {
    let check = |host: &str, expected: &str| {
        let home = Home::new();
        let file = home.host_file(host);
        let told = home.install(place(host), false);
        assert_eq!(told.code, Ok(0), "{}", told.err);
        let config = home.path("mcp-proxy.toml");
        let text = fs::read_to_string(&file).expect("written").replace(&config.display().to_string(), "CONFIG");
        assert_eq!(text, expected, "{host}");
    };
    check(
        "claude-desktop",
        "{\n  \"mcpServers\": {\n    \"hub\": {\n      \"command\": \"/opt/tools/bin/mcp-proxy\",\n      \
         \"args\": [\"run\", \"--config\", \"CONFIG\"]\n    }\n  }\n}\n",
    );
    check(
        "codex",
        "[mcp_servers.hub]\ncommand = \"/opt/tools/bin/mcp-proxy\"\nargs = [\"run\", \"--config\", \"CONFIG\"]\n\
         startup_timeout_sec = 30\ntool_timeout_sec = 600\n",
    );
    check(
        "goose",
        "extensions:\n  hub:\n    enabled: true\n    type: stdio\n    name: hub\n    description: MCP hub\n    \
         cmd: /opt/tools/bin/mcp-proxy\n    args: [run, \"--config\", CONFIG]\n    envs: {}\n    env_keys: []\n    timeout: 300\n",
    );
    check(
        "continue",
        "name: hub\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: hub\n    command: /opt/tools/bin/mcp-proxy\n    \
         args: [run, \"--config\", CONFIG]\n",
    );
    check(
        "opencode",
        "{\n  \"mcp\": {\n    \"hub\": {\n      \"type\": \"local\",\n      \"command\": [\"/opt/tools/bin/mcp-proxy\", \"run\", \
         \"--config\", \"CONFIG\"],\n      \"enabled\": true\n    }\n  }\n}\n",
    );
}

const SIX: &str = r#"{
  "globalShortcut": "Ctrl+Space",
    "mcpServers": {
    "filesystem": { "command": "npx", "args": ["-y", "@example/server-filesystem", "/home/ada/notes"] },
    "github": {
      "command": "npx", "args": ["-y", "@example/server-github"],
      "env": { "GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_Sesame0123456789abcdefABCDEF01234567" }
    },
    "My Database": { "command": "uvx", "args": ["example-postgres", "postgres://ada:s3same@db.example.com/app"] },
    "time": { "command": "uvx", "args": ["example-time", "--local-timezone", "Europe/Paris"] },
    "search": { "command": "/usr/bin/node", "args": ["server.js", "--api-key", "sesame-key"], "env": { "LOG_LEVEL": "info" } },
    "memory": { "command": "npx", "args": ["-y", "@example/memory"], "disabled": true }
  }
}
"#;

const SECRETS: [&str; 3] = ["ghp_Sesame0123456789abcdefABCDEF01234567", "s3same", "sesame-key"];

#[test]
fn three_commands_move_a_host_over_and_back() {
    let home = Home::new();
    let file = home.host_file("claude-desktop");
    write(&file, SIX);
    let config = home.path("mcp-proxy.toml");

    let told = home.import("claude-desktop", Some(&config));
    assert_eq!(told.code, Ok(0), "{}", told.err);
    let toml = fs::read_to_string(&config).expect("written");
    let parsed = mcp_proxy::config::parse(&config, &toml, None);
    assert!(parsed.sound(), "{:?}\n{toml}", parsed.faults);
    let keys: Vec<&str> = parsed.config.servers.iter().map(|server| server.key.as_str()).collect();
    assert_eq!(keys, ["filesystem", "github", "My-Database", "time", "search"], "memory is disabled");
    let switched = home.install(place("claude-desktop"), true);
    assert_eq!(switched.code, Ok(0), "{}", switched.err);
    for (name, server) in [
        ("GITHUB_PERSONAL_ACCESS_TOKEN", "github"),
        ("MY_DATABASE_PASSWORD", "My-Database"),
        ("SEARCH_API_KEY", "search"),
    ] {
        assert!(toml.contains(&format!("${{env:{name}}}")), "{toml}");
        // What is to be typed is told by the one and by the other, which finds the servers in our file.
        for told in [&told, &switched] {
            let line = told.err.lines().find(|line| line.contains(&format!("  export {name}=…")));
            assert!(line.is_some_and(|line| line.ends_with(&format!("# for {server}"))), "{}", told.err);
        }
    }
    assert!(told.err.contains("`mcp-proxy secret set GITHUB_PERSONAL_ACCESS_TOKEN`"), "{}", told.err);
    assert_eq!(fs::read_to_string(&config).expect("read"), toml, "they were there already");
    let text = fs::read_to_string(&file).expect("read");
    let value: serde_json::Value = serde_json::from_str(&text).expect("strict");
    assert_eq!(value["mcpServers"].as_object().expect("a table").keys().collect::<Vec<_>>(), ["hub"]);
    assert_eq!(value["globalShortcut"], "Ctrl+Space");

    let undone = home.uninstall(place("claude-desktop"));
    assert_eq!(undone.code, Ok(0), "{}", undone.err);
    assert_eq!(fs::read_to_string(&file).expect("read"), SIX);
    assert_eq!(beside(&file), ["claude_desktop_config.json"]);
    for secret in SECRETS {
        assert!(!toml.contains(secret), "{secret}\n{toml}");
        for told in [&told, &switched, &undone] {
            assert!(!told.out.contains(secret) && !told.err.contains(secret), "{secret}\n{}{}", told.out, told.err);
        }
    }
}

#[test]
fn a_variable_that_is_set_is_not_asked_for() {
    let mut home = Home::new();
    write(
        &home.host_file("claude-code"),
        r#"{ "mcpServers": { "a": { "command": "a", "args": ["${A_URL}", "${A_MODE:-x}"], "env": { "A_TOKEN": "s3same-s3same" } } } }"#,
    );
    let told = home.import("claude-code", None);
    assert!(told.err.contains("  export A_URL=…     # for a; the host's file refers to it, too\n"), "{}", told.err);
    assert!(told.err.contains("  export A_TOKEN=…   # for a\n") && !told.err.contains("A_MODE"), "{}", told.err);
    home.scene.around.vars.extend(["A_URL", "A_TOKEN"].map(|name| (name.into(), "set".into())));
    let told = home.import("claude-code", None);
    assert!(!told.err.contains("export") && !told.err.contains("secret set"), "{}", told.err);
}

#[test]
fn import_without_a_source_lists_the_hosts_that_are_there() {
    let home = Home::new();
    let told = home.import_of(None, None);
    assert_eq!(told.code, Ok(0), "{}", told.err);
    assert!(told.out.contains("No file of a known host was found"), "{}", told.out);
    write(&home.host_file("claude-desktop"), SIX);
    write(&home.host_file("cursor"), r#"{ "mcpServers": { "a": { "command": "a" } } }"#);
    write(&home.host_file("codex"), "model = \n");
    let told = home.import_of(None, None);
    assert_eq!(told.code, Ok(0), "{}", told.err);
    let line = |host: &str| {
        let line = told.out.lines().find(|line| line.trim_start().starts_with(&format!("{host} ")));
        line.unwrap_or_else(|| panic!("{host}: {}", told.out)).to_owned()
    };
    assert!(line("claude-desktop").contains("6 servers in ~/"), "{}", told.out);
    assert!(line("cursor").contains("1 server in ~/.cursor/mcp.json"), "{}", told.out);
    assert!(line("codex").contains("config.toml"), "a file that can't be read is told: {}", told.out);
    assert!(told.out.contains("`mcp-proxy import HOST`") && !told.out.contains("zed"), "{}", told.out);
}

#[test]
fn a_configuration_that_is_missing_is_told_before_anything_is_written() {
    let home = Home::new();
    write(&home.host_file("cursor"), SIX);
    let dry = || PlaceArgs { yes: false, dry_run: true, ..place("cursor") };
    let told = home.install(dry(), false);
    assert_eq!(told.code, Ok(0), "{}", told.err);
    assert!(told.err.contains("There is no configuration ~/mcp-proxy.toml yet"), "{}", told.err);
    let told = home.install(dry(), true);
    assert!(!told.err.contains("There is no configuration"), "it would be made: {}", told.err);
    assert!(told.err.contains("  export SEARCH_API_KEY=…"), "{}", told.err);
    write(&home.path("mcp-proxy.toml"), "[servers.a]\ncommand = \"a\"\n");
    let told = home.install(dry(), false);
    assert!(!told.err.contains("There is no configuration"), "{}", told.err);
}

#[test]
fn two_installs_leave_no_copy_after_an_uninstall() {
    for (host, text) in samples() {
        let home = Home::new();
        let file = home.host_file(host);
        write(&file, text);
        assert_eq!(home.install(place(host), false).code, Ok(0), "{host}");
        assert_eq!(home.install(place(host), true).code, Ok(0), "{host}");
        let told = home.uninstall(place(host));
        assert_eq!(told.code, Ok(0), "{host} {}", told.err);
        assert_eq!(fs::read_to_string(&file).expect("read"), text, "{host} {}", told.err);
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(beside(&file), [name], "{host}: nothing is left behind");
    }
    // A copy that no install of ours made is the person's.
    let home = Home::new();
    let file = home.host_file("cursor");
    write(&file, "{}");
    assert_eq!(home.install(place("cursor"), false).code, Ok(0));
    let more = "{\"more\": 1, \"mcpServers\": {\"hub\": {\"command\": \"/opt/tools/bin/mcp-proxy\"}}}";
    let copy = file.with_file_name("mcp.json.bak-1764000009");
    write(&copy, more);
    assert_eq!(home.uninstall(place("cursor")).code, Ok(0));
    assert_eq!(fs::read_to_string(&copy).expect("it stays"), more);
    assert_eq!(beside(&file).len(), 2);
}

#[test]
fn replace_adds_to_a_configuration_that_is_there() {
    let home = Home::new();
    let file = home.host_file("claude-desktop");
    write(&file, SIX);
    let config = home.path("mcp-proxy.toml");
    let own = "# mine\r\n[servers.github]\r\ncommand = \"other\"\r\nenv = { A = \"${env:SEARCH_API_KEY}\" }\r\n";
    write(&config, own);
    let told = home.install(place("claude-desktop"), true);
    assert_eq!(told.code, Ok(0), "{}", told.err);
    let toml = fs::read_to_string(&config).expect("read");
    assert!(toml.starts_with(own.trim_end()), "{toml}");
    assert_eq!(toml.matches('\n').count(), toml.matches("\r\n").count());
    assert!(toml.contains("[servers.github-2]") && toml.contains("${env:SEARCH_SEARCH_API_KEY}"), "{toml}");
    let parsed = mcp_proxy::config::parse(&config, &toml, None);
    assert!(parsed.sound(), "{:?}\n{toml}", parsed.faults);
    assert_eq!(parsed.config.servers.len(), 6);
    assert!(beside(&config).contains(&"mcp-proxy.toml.bak-1764000000".to_owned()));
}

#[test]
fn what_cannot_work_behind_the_proxy_stays_with_the_host() {
    let home = Home::new();
    let file = home.host_file("vscode");
    write(
        &file,
        r#"{ "servers": {
            "docs": { "type": "http", "url": "https://docs.example.com/mcp" },
            "lint": { "command": "lint", "args": ["${workspaceFolder}"] },
            "a": { "command": "a" }, "twin": { "command": "a" } } }"#,
    );
    let told = home.install(place("vscode"), true);
    assert_eq!(told.code, Ok(0), "{}", told.err);
    let text = fs::read_to_string(&file).expect("read");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let names: Vec<_> = value["servers"].as_object().expect("a table").keys().collect();
    assert_eq!(names, ["docs", "lint", "hub"]);
    assert!(told.err.contains("docs stays") && told.err.contains("lint stays"), "{}", told.err);
}

#[test]
fn what_a_person_took_out_is_not_brought_back() {
    let home = Home::new();
    let file = home.host_file("cursor");
    write(
        &file,
        "{\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\" },\n    \"b\": { \"command\": \"b\" }\n  }\n}\n",
    );
    write(&home.path("mcp-proxy.toml"), "[servers.a]\ncommand = \"a\"\n");
    let told = home.install(place("cursor"), false);
    assert_eq!(told.code, Ok(0));
    assert!(told.err.contains("a is with the host and behind the proxy"), "{}", told.err);
    let text = fs::read_to_string(&file).expect("read");
    fs::write(&file, text.replace("    \"b\": { \"command\": \"b\" },\n", "")).expect("written");
    assert_eq!(home.uninstall(place("cursor")).code, Ok(0));
    let text = fs::read_to_string(&file).expect("read");
    assert_eq!(text, "{\n  \"mcpServers\": {\n    \"a\": { \"command\": \"a\" }\n  }\n}\n");
}

#[test]
fn a_change_after_replace_is_told() {
    let home = Home::new();
    let file = home.host_file("claude-desktop");
    write(&file, SIX);
    assert_eq!(home.install(place("claude-desktop"), true).code, Ok(0));
    let text = fs::read_to_string(&file).expect("read").replace("Ctrl+Space", "");
    fs::write(&file, text).expect("written");
    let told = home.uninstall(place("claude-desktop"));
    assert_eq!(told.code, Ok(0));
    assert!(told.err.contains("not put back: filesystem, github"), "{}", told.err);
}

#[cfg(unix)]
#[test]
fn a_link_stays_a_link() {
    let home = Home::new();
    let file = home.host_file("cursor");
    let real = home.path("dotfiles/cursor.json");
    write(&real, "{}\n");
    fs::create_dir_all(file.parent().expect("a parent")).expect("made");
    std::os::unix::fs::symlink(&real, &file).expect("linked");
    assert_eq!(home.install(place("cursor"), false).code, Ok(0));
    assert!(fs::symlink_metadata(&file).expect("there").is_symlink());
    assert!(fs::read_to_string(&real).expect("read").contains(BINARY));
    assert_eq!(home.uninstall(place("cursor")).code, Ok(0));
    assert_eq!(fs::read_to_string(&real).expect("read"), "{}\n");
    assert!(fs::symlink_metadata(&file).expect("there").is_symlink());
}

#[test]
fn a_broken_file_is_not_touched() {
    for (host, text) in [
        ("claude-desktop", "{ // no comments here\n}"),
        ("claude-desktop", "[]"),
        ("claude-desktop", "{\"mcpServers\": []}"),
        ("cursor", "{ \"mcpServers\": { "),
        ("codex", "model = \n"),
        ("goose", "a: [1\nb: 2\n"),
        ("goose", "extensions: { a: { type: stdio, cmd: a } }\n"),
        ("continue", "name: another\nmcpServers: []\n"),
    ] {
        let home = Home::new();
        let file = home.host_file(host);
        write(&file, text);
        let told = home.install(place(host), false);
        assert_eq!(told.code, Ok(1), "{host} {text} {}", told.err);
        assert!(told.out.contains(BINARY), "the snippet is printed: {}", told.out);
        assert_eq!(fs::read_to_string(&file).expect("read"), text);
        assert_eq!(beside(&file).len(), 1);
    }
}

#[test]
fn a_foreign_entry_of_our_name_is_not_overwritten() {
    let home = Home::new();
    let file = home.host_file("cursor");
    let text = "{\"mcpServers\": {\"hub\": {\"command\": \"other\"}}}";
    write(&file, text);
    let told = home.install(place("cursor"), false);
    assert_eq!(told.code, Ok(1));
    assert!(told.err.contains("--name"), "{}", told.err);
    assert_eq!(fs::read_to_string(&file).expect("read"), text);
    let named = PlaceArgs { name: "proxy".to_owned(), ..place("cursor") };
    assert_eq!(home.install(named, false).code, Ok(0));
    assert_eq!(home.uninstall(place("cursor")).code, Ok(0));
    assert_eq!(fs::read_to_string(&file).expect("read"), text);
}

#[test]
fn an_older_entry_is_brought_up_to_date_and_keeps_what_was_added() {
    for (host, text) in [
        (
            "cursor",
            "{\"mcpServers\": {\"hub\": {\"command\": \"/old/mcp-proxy\", \"args\": [\"run\"], \"timeout\": 9}}}",
        ),
        ("codex", "[mcp_servers.hub]\ncommand = \"/old/mcp-proxy\" # moved\nargs = [\"run\"]\ntimeout = 9\n"),
        (
            "goose",
            "extensions:\n  hub:\n    type: stdio\n    cmd: /old/mcp-proxy\n    args:\n    - run\n    timeout: 9\n",
        ),
    ] {
        let home = Home::new();
        let file = home.host_file(host);
        write(&file, text);
        let told = home.install(place(host), false);
        assert_eq!(told.code, Ok(0), "{host} {}", told.err);
        let after = fs::read_to_string(&file).expect("read");
        assert!(after.contains(BINARY) && !after.contains("/old/") && after.contains('9'), "{after}");
        assert_eq!(text.contains("# moved"), after.contains("# moved"), "{after}");
    }
}

#[test]
fn an_entry_that_says_the_same_in_another_layout_is_let_be() {
    let args = "[\"run\", \"--config\", CONFIG]";
    for (host, text) in [
        ("cursor", format!("{{\"mcpServers\": {{\"hub\": {{\"command\": \"{BINARY}\", \"args\":\n{args} }}}}}}")),
        ("codex", format!("[mcp_servers.hub]\ncommand = '{BINARY}'\nargs = {args}\n")),
        ("goose", format!("extensions:\n  hub:\n    cmd: '{BINARY}'\n    args:  {args}\n")),
    ] {
        let home = Home::new();
        let file = home.host_file(host);
        let config = format!("{:?}", home.path("mcp-proxy.toml"));
        let text = text.replace("CONFIG", &config).replace(", ", ",\n      ");
        write(&file, &text);
        let told = home.install(place(host), false);
        assert_eq!(told.code, Ok(0), "{host} {}", told.err);
        assert!(told.err.contains("has it already"), "{host} {}{}", told.out, told.err);
        assert_eq!(fs::read_to_string(&file).expect("read"), text);
    }
}

#[test]
fn without_a_person_nothing_is_written_unasked() {
    let home = Home::new();
    let file = home.host_file("cursor");
    write(&file, SIX);
    let told = home.install(PlaceArgs { yes: false, ..place("cursor") }, true);
    assert!(told.code.expect_err("nobody can be asked").contains("--yes"));
    let told = home.install(PlaceArgs { yes: false, dry_run: true, ..place("cursor") }, true);
    assert_eq!(told.code, Ok(0));
    assert!(told.out.contains("+    \"hub\": {"), "{}", told.out);
    assert!(told.err.contains("--dry-run"));
    assert_eq!(fs::read_to_string(&file).expect("read"), SIX);
    assert!(!home.path("mcp-proxy.toml").exists());
    for secret in SECRETS {
        assert!(!told.out.contains(secret) && !told.err.contains(secret), "{secret}\n{}{}", told.out, told.err);
    }
}

#[test]
fn an_unknown_host_lists_the_known() {
    let home = Home::new();
    let told = home.install(place("emacs"), false);
    let error = told.code.expect_err("unknown");
    assert!(error.contains("claude-desktop") && error.contains("opencode"), "{error}");
    let error = home.import("emacs", None).code.expect_err("unknown");
    assert!(error.contains("no file emacs") && error.contains("claude-desktop"), "{error}");
}

#[test]
fn a_host_without_a_file_gets_a_snippet() {
    let home = Home::new();
    let told = home.install(place("jetbrains-ai"), false);
    assert_eq!(told.code, Ok(0));
    assert!(told.out.contains("mcpServers") && told.err.contains("As JSON"), "{}{}", told.out, told.err);
}

#[test]
fn a_project_has_a_file_of_its_own() {
    let home = Home::new();
    let project = home.path("app");
    let there = || PlaceArgs { project: Some(project.clone()), ..place("vscode") };
    assert_eq!(home.install(there(), false).code, Ok(0));
    assert!(fs::read_to_string(project.join(".vscode/mcp.json")).expect("written").contains(BINARY));
    assert_eq!(home.uninstall(there()).code, Ok(0));
    assert!(!project.join(".vscode/mcp.json").exists());
}

/// A command of the host that writes the file as the host would.
#[cfg(unix)]
fn fake_claude(home: &mut Home, body: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let program = home.path("bin/claude");
    write(&program, &format!("#!/bin/sh\necho \"$@\" >> '{}'\n{body}\n", home.path("calls").display()));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    let path = format!("{}:/usr/bin:/bin", home.path("bin").display());
    home.scene.around.vars.insert("PATH".into(), path.into());
}

#[cfg(unix)]
#[test]
fn the_hosts_own_command_is_used() {
    let mut home = Home::new();
    let file = home.host_file("claude-code");
    let body = format!(
        "if [ \"$2\" = add ]; then echo '{{\"mcpServers\":{{\"hub\":{{\"command\":\"{BINARY}\",\"args\":[\"run\"]}}}},\"n\":2}}'; \
         else echo '{{\"mcpServers\":{{}},\"n\":3}}'; fi > '{}'",
        file.display()
    );
    // Claude Code writes each argument on a line of its own.
    let body = body.replace("[\"run\"]", "[\n\"run\"\n]");
    fake_claude(&mut home, &body);
    write(&file, "{\"n\":1}");
    let args = InstallArgs { place: place("claude-code"), config: None, replace: false, keyring: false };
    let told = said(|out, err| install(&args, &home.scene, out, err));
    assert_eq!(told.code, Ok(0), "{}", told.err);
    assert!(told.out.contains("mcp add --scope user hub -- /opt/tools/bin/mcp-proxy run"), "{}", told.out);
    assert!(!told.err.contains("in its place"), "{}", told.err);
    assert!(told.err.contains("`claude mcp add` added the entry to ~/.claude.json."), "{}", told.err);
    let undone = home.uninstall(place("claude-code"));
    assert_eq!(undone.code, Ok(0), "{}", undone.err);
    assert!(undone.err.contains("`claude mcp remove` took the entry out of ~/.claude.json."), "{}", undone.err);
    let calls = fs::read_to_string(home.path("calls")).expect("it was called");
    assert_eq!(calls, format!("mcp add --scope user hub -- {BINARY} run\nmcp remove --scope user hub\n"));
    assert_eq!(beside(&file).iter().filter(|name| name.contains(".bak-")).count(), 0);
}

#[cfg(unix)]
#[test]
fn a_command_that_fails_is_replaced_by_an_edit() {
    let mut home = Home::new();
    let file = home.host_file("claude-code");
    fake_claude(&mut home, "echo 'not logged in' >&2; exit 1");
    write(&file, "{\"n\":1}");
    let told = home.install(place("claude-code"), false);
    assert_eq!(told.code, Ok(0), "{}", told.err);
    assert!(told.err.contains("not logged in") && told.err.contains("in its place"), "{}", told.err);
    assert!(fs::read_to_string(&file).expect("read").contains(BINARY));
    assert_eq!(home.uninstall(place("claude-code")).code, Ok(0));
    assert_eq!(fs::read_to_string(&file).expect("read"), "{\"n\":1}");
}
