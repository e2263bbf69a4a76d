//! A child's environment, and finding its program.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::config::*;

fn child(
    host: &[(&str, &str)],
    inherit_env: InheritEnv,
    own: &[(&str, &str)],
    usual: &[&str],
) -> Vec<(String, String)> {
    let host: Vec<(OsString, OsString)> = host.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let env = own.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let program = Program { command: "x".to_owned(), args: Vec::new(), env, inherit_env, cwd: None };
    let usual: Vec<PathBuf> = usual.iter().map(PathBuf::from).collect();
    let text = |text: OsString| text.into_string().expect("text");
    child_environment(&host, &program, &usual).into_iter().map(|(name, value)| (text(name), text(value))).collect()
}

fn names(environment: &[(String, String)]) -> Vec<&str> {
    environment.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn inherits_by_rule() {
    let host = [
        ("PATH", "/home/ada/bin"),
        ("HOME", "/home/ada"),
        ("LC_ALL", "C"),
        ("XDG_DATA_HOME", "/d"),
        ("https_proxy", "p"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("MCP_PROXY_CONFIG", "c"),
        ("EXTRA", "e"),
    ];
    let basics = ["PATH", "HOME", "LC_ALL", "XDG_DATA_HOME", "https_proxy"];
    assert_eq!(names(&child(&host, InheritEnv::Basics, &[], &[])), basics);
    let also = child(&host, InheritEnv::Also(vec!["EXTRA".to_owned(), "NONE".to_owned()]), &[], &[]);
    assert_eq!(names(&also), [&basics[..], &["EXTRA"]].concat());
    assert_eq!(child(&host, InheritEnv::All, &[], &[]).len(), host.len());
    let own = child(&host, InheritEnv::Basics, &[("HOME", "/elsewhere"), ("NEW", "n")], &[]);
    assert_eq!(own.iter().filter(|(name, _)| name == "HOME").count(), 1);
    assert!(
        own.contains(&("HOME".to_owned(), "/elsewhere".to_owned()))
            && own.contains(&("NEW".to_owned(), "n".to_owned()))
    );
}

#[cfg(unix)]
#[test]
fn completes_a_bare_path() {
    let path = |host: &[(&str, &str)], own: &[(&str, &str)]| {
        let environment = child(host, InheritEnv::Basics, own, &["/home/ada/.local/bin", "/usr/local/bin"]);
        environment.into_iter().find(|(name, _)| name == "PATH").map(|(_, value)| value).unwrap_or_default()
    };
    for (host, own, expected) in [
        (&[("PATH", "/usr/bin:/bin")][..], &[][..], "/usr/bin:/bin:/home/ada/.local/bin:/usr/local/bin"),
        (&[("PATH", "/usr/local/bin:/usr/bin")], &[], "/usr/local/bin:/usr/bin:/home/ada/.local/bin"),
        (&[("PATH", "/usr/bin:/home/ada/tools")], &[], "/usr/bin:/home/ada/tools"),
        (&[("PATH", "/opt/homebrew/bin:/usr/bin")], &[], "/opt/homebrew/bin:/usr/bin"),
        (&[], &[], "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/home/ada/.local/bin"),
        (&[("PATH", "/usr/bin")], &[("PATH", "/only")], "/only"),
    ] {
        assert_eq!(path(host, own), expected, "{host:?} {own:?}");
    }
}

#[cfg(unix)]
#[test]
fn finds_programs() {
    use std::os::unix::fs::PermissionsExt;

    let root = tempfile::tempdir().unwrap();
    let file = |name: &str, mode: u32| {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let (forbidden, good) = (file("a/tool", 0o644), file("b/tool", 0o755));
    file("a/only", 0o644);
    std::fs::create_dir(root.path().join("b/only")).unwrap();
    let dirs = [root.path().join("a"), root.path().join("b")];
    // Twice the same, as many shells write it: it is told once.
    let path = std::env::join_paths([&dirs[0], &dirs[0], &dirs[1]]).unwrap();
    let find = |command: &str, cwd: Option<&Path>| find_program(command, Some(&path), cwd);

    assert_eq!(find("tool", None).unwrap(), good, "the first that may be executed");
    assert_eq!(find("only", None).unwrap_err(), ProgramError::NotExecutable { path: root.path().join("a/only") });
    let error = find("none", None).unwrap_err();
    assert_eq!(error, ProgramError::NotFound { command: "none".to_owned(), looked_in: dirs.to_vec() });
    assert!(error.to_string().contains(dirs[1].to_str().unwrap()), "{error}");
    assert_eq!(find("./tool", Some(&dirs[1])).unwrap(), dirs[1].join("./tool"));
    assert_eq!(find(good.to_str().unwrap(), None).unwrap(), good);
    assert_eq!(find(forbidden.to_str().unwrap(), None).unwrap_err(), ProgramError::NotExecutable { path: forbidden });
    let gone = root.path().join("gone");
    assert_eq!(find("tool", Some(&gone)).unwrap_err(), ProgramError::NoDirectory { path: gone });
    let nowhere = find_program("tool", Some(OsStr::new("")), None).unwrap_err();
    assert!(nowhere.to_string().contains("PATH is empty"), "{nowhere}");
}

#[test]
fn usual_places_follow_nvm() {
    let home = tempfile::tempdir().unwrap();
    let make = |dir: &str| std::fs::create_dir_all(home.path().join(dir)).unwrap();
    for dir in [
        ".local/bin",
        ".nvm/versions/node/v9.11.0/bin",
        ".nvm/versions/node/v20.1.0/bin",
        ".nvm/versions/node/v20.11.1/bin",
        ".nvm/versions/node/v22.0.0/bin",
        ".nvm/alias",
    ] {
        make(dir);
    }
    let node = |alias: &str| {
        std::fs::write(home.path().join(".nvm/alias/default"), alias).unwrap();
        let places = usual_places(Some(home.path()));
        assert!(places.contains(&home.path().join(".local/bin")) && !places.contains(&home.path().join(".cargo/bin")));
        places.into_iter().find(|place| place.to_string_lossy().contains(".nvm")).expect("a node")
    };
    for (alias, version) in
        [("20\n", "v20.11.1"), ("v20.1.0", "v20.1.0"), ("node", "v22.0.0"), ("lts/*", "v22.0.0"), ("18", "v22.0.0")]
    {
        assert_eq!(node(alias), home.path().join(format!(".nvm/versions/node/{version}/bin")), "{alias:?}");
    }
}
