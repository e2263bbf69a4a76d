//! One fault's reach, layers of values, and files.

use std::path::Path;
use std::time::Duration;

use crate::config::*;

fn parsed(text: &str) -> Parsed {
    parse(Path::new("f.toml"), text, None)
}

fn keys(parsed: &Parsed) -> (Vec<&str>, Vec<&str>) {
    let whole = parsed.config.servers.iter().map(|server| server.key.as_str()).collect();
    (whole, parsed.broken.iter().map(|broken| broken.key.as_str()).collect())
}

#[test]
fn a_fault_costs_its_server_alone() {
    let found = parsed(
        "[servers.c]\ncommand = 'x'\n[servers.b]\nx = 1\n[servers.a]\ncommand = 'x'\nprefix = 'c'\n[servers.d]\ncommand = 'x'\n",
    );
    assert!(!found.fatal() && !found.sound());
    assert_eq!(keys(&found), (vec!["c", "d"], vec!["b", "a"]));
    assert_eq!(found.broken[1].prefix, "c");
    assert!(found.broken[1].reason.contains("f.toml:7:10"), "{:?}", found.broken);
}

#[test]
fn disabled_servers_are_judged_and_left_out() {
    let found =
        parsed("[servers.a]\ncommand = 'x'\nenabled = false\nx = 1\n[servers.b]\ncommand = 'x'\nprefix = 'a'\n");
    assert_eq!(keys(&found), (vec!["b"], vec![]));
    assert_eq!(found.faults.len(), 1);
}

#[test]
fn order_is_that_of_the_file() {
    let found = parsed(
        "servers.z.command = 'x'\nservers.b.command = 'x'\nservers.z.cwd = '/'\n[servers.a]\ncommand = 'x'\nenv = { Z = '1', A = '2' }\n",
    );
    assert_eq!(keys(&found).0, ["z", "b", "a"]);
    let Transport::Stdio(stdio) = &found.config.servers[2].transport else { panic!("a program") };
    assert_eq!(stdio.env.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["Z", "A"]);
}

#[test]
fn defaults_lie_below() {
    let found = parsed(
        "[defaults]\nstart_timeout = '5s'\nrestart = { attempts = 2, min = '1s' }\nenv = { A = 'd', B = 'd' }\ntools = { deny = ['x'] }\nstart = 'lazy'\n\
         [servers.a]\ncommand = 'x'\nrestart.min = '2s'\nenv.A = 's'\ntools = { allow = ['y'] }\nstart = 'eager'\n",
    );
    assert!(found.faults.is_empty(), "{:?}", found.faults);
    let server = &found.config.servers[0];
    assert_eq!(server.start_timeout, Duration::from_secs(5));
    assert_eq!(
        (server.restart.attempts, server.restart.min, server.restart.max),
        (2, Duration::from_secs(2), Duration::from_secs(30))
    );
    assert_eq!((&server.tools.allow[..], &server.tools.deny[..]), (&["y".to_owned()][..], &["x".to_owned()][..]));
    assert_eq!(server.start, Start::Eager);
    let Transport::Stdio(stdio) = &server.transport else { panic!("a program") };
    assert_eq!(stdio.env, [("B".to_owned(), Text("d".into())), ("A".to_owned(), Text("s".into()))]);
}

#[test]
fn filters_keep_their_meaning() {
    let rules = |filter: &str| {
        parsed(&format!("[servers.a]\ncommand = 'x'\ntools = {filter}\n")).config.servers[0].tools.clone()
    };
    assert_eq!(rules("{}"), Rules::default());
    assert_eq!(rules("{ allow = ['*'] }"), Rules::default());
    assert_eq!(rules("{ allow = [] }").deny, ["*"]);
    let profile = |filter: &str| {
        let text = format!("[servers.a]\ncommand = 'x'\n[profiles.p]\ntools.a = {filter}\n");
        parse(Path::new("f.toml"), &text, Some("p")).config.servers[0].tools.clone()
    };
    assert_eq!(profile("{ allow = ['g*'], deny = ['h'] }").profile_allow, Some(vec!["g*".to_owned()]));
    assert_eq!(profile("{ allow = ['g*'], deny = ['h'] }").profile_deny, ["h"]);
    assert_eq!(profile("{ allow = [] }").profile_deny, ["*"]);
    assert!(glob("delete_*").unwrap().compile_matcher().is_match("delete_a/b"));
}

#[test]
fn profiles_select() {
    let text =
        "[servers.a]\ncommand = 'x'\n[servers.b]\ncommand = 'x'\n[servers.c]\nx = 1\n[profiles.p]\nservers = ['b']\n";
    let found = parse(Path::new("f.toml"), text, Some("p"));
    assert_eq!(keys(&found), (vec!["b"], vec![]));
    let unknown = parse(Path::new("f.toml"), text, Some("q"));
    assert!(unknown.fatal());
    let fault = unknown.faults.iter().find(|fault| fault.severity == Severity::Fatal).unwrap();
    assert_eq!(fault.to_string(), "f.toml:1:1: profiles.q: there is no profile \"q\"; the profiles are p");
}

#[test]
fn scheme_prefixes() {
    for (prefix, expected) in [("gh", "gh"), ("My_Server", "my-server"), ("1st", "s1st"), ("", "")] {
        assert_eq!(scheme_prefix(prefix), expected);
    }
}

#[test]
fn files_load() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mcp-proxy.toml");
    assert!(matches!(load(&path, None), Err(LoadError::Missing(_))));
    let write = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();
    write(b"[servers.a]\ncommand = 'x'\n[servers.b]\n[log]\nfile = '~/log'\n");
    let loaded = load(&path, None).unwrap();
    assert_eq!((loaded.config.servers.len(), loaded.broken.len()), (1, 1));
    assert_eq!(loaded.config.log.file, home_dir().map(|home| home.join("log")));
    let digest = loaded.digest;
    write(b"[servers.a]\ncommand = 'y'\n");
    assert_ne!(load(&path, None).unwrap().digest, digest);
    write(b"[proxy]\nx = 1\n[log]\ny = 1\n");
    let error = load(&path, None).unwrap_err();
    assert_eq!(error.to_string().lines().count(), 2, "{error}");
    assert_eq!(error.faults().len(), 3, "a warning, too");
    write(b"a = 1\nb = \xff\n");
    let error = load(&path, None).unwrap_err();
    assert!(matches!(error, LoadError::NotText { line: 2, .. }), "{error}");
    assert_eq!(error.faults()[0].help.as_deref(), Some("save it as UTF-8"));
    assert!(matches!(load(dir.path(), None), Err(LoadError::Unreadable { .. })));
}

#[test]
fn the_named_file_wins() {
    assert_eq!(config_path(Some(Path::new("x.toml"))).unwrap(), Path::new("x.toml"));
    let home = home_dir().expect("a home");
    assert_eq!(config_path(Some(Path::new("~/x.toml"))).unwrap(), home.join("x.toml"));
}
