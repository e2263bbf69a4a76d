//! `${keyring:NAME}` and `mcp-proxy secret` against a keyring service of this test's own.
//!
//! It needs `dbus-run-session` and `gnome-keyring-daemon` (`apt-get install dbus gnome-keyring`) and says so where they
//! are not: no other keyring may be touched, least of all that of the person who runs the tests.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const VALUE: &str = "sesame open \u{e9} 1234";

/// A keyring that is open, the commands in it, and the same when it is locked and nobody can be asked.
const SCRIPT: &str = r#"
printf 'a password' | gnome-keyring-daemon --unlock --components=secrets > /dev/null || exit 70
step() { name=$1; shift; "$@" > "$name.out" 2> "$name.err"; echo $? > "$name.code"; }
printf '%s\n' "$VALUE" | step set "$PROXY" secret set token
step found "$PROXY" check --start --config mcp-proxy.toml
step doctor "$PROXY" doctor --config mcp-proxy.toml
printf '%s' other > token
step again "$PROXY" secret set token < token
step changed "$PROXY" check --start --config mcp-proxy.toml
step delete "$PROXY" secret delete token
step gone "$PROXY" secret delete token
step missing "$PROXY" check --start --config mcp-proxy.toml
step nothing "$PROXY" secret set token < /dev/null
"$PROXY" secret set token < token > /dev/null || exit 71
dbus-send --session --print-reply --dest=org.freedesktop.secrets /org/freedesktop/secrets \
    org.freedesktop.Secret.Service.Lock array:objpath:/org/freedesktop/secrets/collection/login > /dev/null || exit 72
step locked "$PROXY" check --start --config mcp-proxy.toml
step closed "$PROXY" secret set token < token
"#;

/// A server that is one only if it was given the value, and tells it.
const SERVER: &str = r#"echo "given: $TOKEN" >&2; [ "$TOKEN" = "$1" ] && exec "$2"; exit 9"#;

fn on_path(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join(program).is_file())
}

fn session(home: &Path, command: &str) -> Output {
    let mut session = Command::new("dbus-run-session");
    session.args(["--", "sh", "-c", command]).current_dir(home).env_clear();
    session.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home).env("XDG_RUNTIME_DIR", home);
    session.env("PROXY", env!("CARGO_BIN_EXE_mcp-proxy")).env("VALUE", VALUE);
    session.output().unwrap()
}

#[test]
fn a_secret_is_kept_used_and_forgotten() {
    if !["dbus-run-session", "gnome-keyring-daemon"].into_iter().all(on_path) {
        eprintln!("not tried: there is no dbus-run-session, or no gnome-keyring-daemon");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let config = format!(
        "[servers.a]\ncommand = \"sh\"\nargs = [\"-c\", {SERVER:?}, \"sh\", {VALUE:?}, {:?}]\n\
         env = {{ TOKEN = \"${{keyring:token}}\" }}\nrestart = {{ policy = \"never\" }}\n",
        env!("CARGO_BIN_EXE_fake-server"),
    );
    std::fs::write(home.path().join("mcp-proxy.toml"), config).unwrap();
    let output = session(home.path(), SCRIPT);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: String| std::fs::read_to_string(home.path().join(name)).unwrap();
    let told = |step: &str| {
        (read(format!("{step}.code")).trim().to_owned(), read(format!("{step}.out")), read(format!("{step}.err")))
    };
    let check = |step: &str, code: &str, words: &str| {
        let (found, out, err) = told(step);
        assert_eq!(found, code, "{step}: {out}\n{err}");
        assert!(out.contains(words) || err.contains(words), "{step}: {out}\n{err}");
    };
    check("set", "0", "${keyring:token}");
    check("found", "0", "ready");
    check("doctor", "0", "All is well");
    check("again", "0", "Kept");
    check("changed", "1", "exit code 9");
    check("delete", "0", "Forgotten");
    check("gone", "1", "the keyring has no token");
    check("missing", "1", "mcp-proxy secret set token");
    check("nothing", "1", "no value was given");
    check("locked", "1", "unlock the keyring");
    check("closed", "1", "unlock it");
    let files: Vec<PathBuf> = std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    for file in files.iter().filter(|file| file.is_file() && !file.ends_with("mcp-proxy.toml")) {
        let text = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
        assert!(!text.contains("sesame"), "{} shows the secret: {text}", file.display());
    }
}
