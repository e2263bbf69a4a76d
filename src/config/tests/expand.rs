//! References, and what counts as secret.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::config::*;

/// A host of invented variables, files and keyring entries.
#[derive(Default)]
struct Fake {
    env: BTreeMap<&'static str, &'static str>,
    files: BTreeMap<&'static str, &'static str>,
    keyring: BTreeMap<&'static str, &'static str>,
}

impl Lookup for Fake {
    fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).map(ToString::to_string)
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        let text = self.files.get(path.to_str().expect("a fake path is text"));
        text.map(ToString::to_string).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn keyring(&self, name: &str) -> Result<Option<String>, String> {
        if name == "locked" {
            Err("it is locked".to_owned())
        } else {
            Ok(self.keyring.get(name).map(ToString::to_string))
        }
    }

    fn home(&self) -> Option<PathBuf> {
        Some("/home/ada".into())
    }

    fn base(&self) -> PathBuf {
        "/etc/hub".into()
    }
}

fn fake() -> Fake {
    Fake {
        env: [
            ("TOKEN", "tok-12345"),
            ("EMPTY", ""),
            ("LINES", "first line\nsecond\nab"),
            ("HOST", "h.example.com"),
            ("NO", "no"),
        ]
        .into(),
        files: [("/etc/hub/token.txt", "from-file\r\n\n"), ("/home/ada/key", "at-home"), ("/abs", "absolute")].into(),
        keyring: [("db", "from-keyring")].into(),
    }
}

fn server(table: &str) -> Server {
    let parsed = parse(Path::new("mcp-proxy.toml"), &format!("[servers.s]\n{table}\n"), None);
    assert!(parsed.sound(), "{:?}", parsed.faults);
    parsed.config.servers.into_iter().next().expect("one server")
}

fn program(table: &str) -> (Program, Vec<String>) {
    let launch = expand(&server(table), &fake()).expect(table);
    match launch.target {
        Target::Program(program) => (program, launch.secrets),
        Target::Endpoint(_) => panic!("{table} is a program"),
    }
}

#[test]
fn texts_expand() {
    for (text, expected) in [
        ("plain", "plain"),
        ("${env:TOKEN}", "tok-12345"),
        ("a${env:TOKEN}b${env:HOST}", "atok-12345bh.example.com"),
        ("${env:UNSET:-fallback}", "fallback"),
        ("${env:EMPTY:-fallback}", "fallback"),
        ("${env:EMPTY}", ""),
        ("${env:UNSET:-}", ""),
        ("${env:UNSET:-a:-b}", "a:-b"),
        ("${file:token.txt}", "from-file"),
        ("${file:~/key}", "at-home"),
        ("${file:/abs}", "absolute"),
        ("${keyring:db}", "from-keyring"),
        ("$${env:TOKEN}", "${env:TOKEN}"),
        ("$$${env:TOKEN}", "$${env:TOKEN}"),
        ("$5 and {} and $", "$5 and {} and $"),
        ("~/stays", "~/stays"),
    ] {
        let (program, _) = program(&format!("command = 'x'\nargs = ['{text}']"));
        assert_eq!(program.args, [expected], "{text}");
    }
}

#[test]
fn every_field_expands() {
    let (program, _) = program("command = '~/bin/${env:NO}'\nenv = { A = '${env:HOST}' }\ncwd = 'sub/${env:NO}'");
    assert_eq!(program.command, "/home/ada/bin/no");
    assert_eq!(program.env, [("A".to_owned(), "h.example.com".to_owned())]);
    assert_eq!(program.cwd.as_deref(), Some(Path::new("/etc/hub/sub/no")));
    let launch =
        expand(&server("url = 'https://${env:HOST}/mcp'\nheaders = { A = 'Bearer ${env:TOKEN}' }"), &fake()).unwrap();
    let Target::Endpoint(endpoint) = launch.target else { panic!("an endpoint") };
    assert_eq!(endpoint.url, "https://h.example.com/mcp");
    assert_eq!(endpoint.headers, [("A".to_owned(), "Bearer tok-12345".to_owned())]);
}

#[test]
fn working_directories() {
    for (cwd, expected) in [
        ("~", "/home/ada"),
        ("~/w", "/home/ada/w"),
        ("/abs", "/abs"),
        ("rel", "/etc/hub/rel"),
        ("~bob", "/etc/hub/~bob"),
    ] {
        assert_eq!(program(&format!("command = 'x'\ncwd = '{cwd}'")).0.cwd, Some(PathBuf::from(expected)), "{cwd}");
    }
}

#[test]
fn failures_name_the_reference_and_no_value() {
    for (table, expected) in [
        ("command = 'x'\nargs = ['${env:UNSET}']", "${env:UNSET} is not set"),
        ("command = 'x'\nargs = ['${file:none}']", "${file:none} can't be read"),
        ("command = 'x'\nargs = ['${keyring:none}']", "mcp-proxy secret set none"),
        ("command = 'x'\nargs = ['${keyring:locked}']", "it is locked"),
        ("command = '${env:EMPTY}'", "the command is empty"),
        ("url = '${env:TOKEN}'", "no http:// or https:// URL"),
        ("url = 'https://h.example.com'\nheaders = { A = '${env:LINES}' }", "the header \"A\" has a line end"),
    ] {
        let error = expand(&server(table), &fake()).expect_err(table).to_string();
        assert!(error.starts_with("server \"s\": ") && error.contains(expected), "{error}");
        for value in ["tok-12345", "first line", "from-"] {
            assert!(!error.contains(value), "{error}");
        }
    }
    let both =
        expand(&server("command = 'x'\nargs = ['${env:A}', '${env:B}', '${env:A}']"), &fake()).expect_err("unset");
    assert_eq!(both.problems.len(), 2, "each reference once: {both}");
}

#[test]
fn secrets_are_known() {
    let (_, secrets) = program(
        "command = 'x'\nargs = ['--t=${env:TOKEN}', '${env:LINES}', '${env:NO}']\nenv = { A = 'literal-8', B = 'short', C = 'x-${env:HOST}' }",
    );
    let has = |value: &str| secrets.iter().any(|secret| secret == value);
    for value in ["tok-12345", "first line", "second", "literal-8", "h.example.com", "x-h.example.com"] {
        assert!(has(value), "{value} is secret: {secrets:?}");
    }
    for value in ["no", "ab", "short", "x", "--t=tok-12345"] {
        assert!(!has(value), "{value} is not secret");
    }
    let launch =
        expand(&server("url = 'https://x.example.com'\nheaders = { Authorization = 'Bearer sk-live-1' }"), &fake())
            .unwrap();
    assert_eq!(launch.secrets, ["Bearer sk-live-1", "sk-live-1"]);
}

#[test]
fn debug_shows_no_value() {
    let server = server("command = 'canary-cmd'\nargs = ['canary-arg']\nenv = { A = 'canary-env' }\ncwd = '/canary'");
    let launch = expand(&server, &fake()).unwrap();
    assert!(!format!("{launch:?} {:?} {server:?}", launch.target).contains("canary"));
}

#[test]
fn fingerprint_covers_exactly_the_identity() {
    let base = "command = 'x'\nargs = ['a']\nenv = { A = '1', B = '2' }";
    let print = |table: &str| expand(&server(table), &fake()).expect(table).fingerprint;
    for (same, table) in [
        (true, "command = 'x'\nargs = ['a']\nenv = { B = '2', A = '1' }"),
        (
            true,
            "command = 'x'\nargs = ['a']\nenv = { A = '1', B = '2' }\nprefix = 'p'\nstart = 'lazy'\nmax_pending = 3",
        ),
        (
            true,
            "command = 'x'\nargs = ['a']\nenv = { A = '1', B = '2' }\ntools = { deny = ['b'] }\nstart_timeout = '1s'",
        ),
        (true, "command = 'x'\nargs = ['${env:UNSET:-a}']\nenv = { A = '1', B = '2' }"),
        (false, "command = 'y'\nargs = ['a']\nenv = { A = '1', B = '2' }"),
        (false, "command = 'x'\nargs = ['a', 'b']\nenv = { A = '1', B = '2' }"),
        (false, "command = 'x'\nargs = ['a']\nenv = { A = '1', B = '3' }"),
        (false, "command = 'x'\nargs = ['a']\nenv = { A = '1', B = '2' }\ninherit_env = true"),
        (false, "command = 'x'\nargs = ['a']\nenv = { A = '1', B = '2' }\ninherit_env = ['C']"),
        (false, "command = 'x'\nargs = ['a']\nenv = { A = '1', B = '2' }\ncwd = '/'"),
        (false, "command = 'x'\nargs = ['a']\nenv = { A = '1', B = '2' }\nprotocol = 'modern'"),
        (false, "url = 'https://x'"),
    ] {
        assert_eq!(print(table) == print(base), same, "{table}");
    }
    assert_ne!(print("url = 'https://x'\nheaders = { A = 'b' }"), print("url = 'https://x'"));
    let identity = ["command", "args", "env", "inherit_env", "cwd", "url", "headers", "protocol"];
    assert!(identity.iter().all(|key| Server::is_identity_key(key)));
    assert!(!Server::is_identity_key("prefix") && !Server::is_identity_key("tools"));
    assert!(server(base).same_identity(&server(&format!("{base}\nprefix = 'p'"))));
    assert!(!server(base).same_identity(&server("command = 'x'")));
}
