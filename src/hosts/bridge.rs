//! Bridges and wrappers: a command that only carries to something else is replaced by what it carries to.

use super::import::{Process, Remote, Transport};
use super::vars::{Piece, pieces};
use super::{Vars, file};

/// Programs that run a package; what follows their own switches is the package.
const RUNNERS: &[&str] = &["npx", "bunx", "uvx", "pnpx", "pipx"];

/// Takes `cmd /c` from before a command: the proxy finds `npx.cmd` by itself.
pub(super) fn without_shell(process: &mut Process) {
    let program = literal(&process.command).map(file::program_name);
    let switch = process.args.first().and_then(|arg| literal(arg)).map(str::to_ascii_lowercase);
    if program.as_deref() == Some("cmd") && switch.as_deref() == Some("/c") && process.args.len() > 1 {
        process.args.remove(0);
        process.command = process.args.remove(0);
    }
}

/// Whether a command is this program as a proxy, however it is started.
pub(super) fn is_own(command: &str, args: &[&str], own: Option<&std::path::Path>) -> bool {
    if own.is_some_and(|own| own == std::path::Path::new(command)) {
        return true;
    }
    let Some((package, rest)) = package(command, args) else { return false };
    // Another program of this name bridges to a URL.
    let ours = |first: &str| matches!(first.split('=').next(), Some("run" | "--config" | "-c" | "--profile"));
    package == "mcp-proxy" && rest.first().is_none_or(|first| ours(first))
}

/// What a bridge carries to; `None`: it is none.
fn unwrap(process: &Process) -> Option<Remote> {
    let command = literal(&process.command)?;
    let args: Vec<&str> = process.args.iter().map(|arg| literal(arg).unwrap_or("\u{0}")).collect();
    let (package, rest) = package(command, &args)?;
    let offset = args.len() - rest.len();
    let (url_at, header_switches): (usize, &[&str]) = match package.as_str() {
        "mcp-remote" | "mcp-remote-client" => (position_of_url(rest)?, &["--header"]),
        "mcp-proxy" => (position_of_url(rest)?, &["-H", "--headers"]),
        "supergateway" => {
            let at = rest.iter().position(|arg| matches!(*arg, "--sse" | "--streamableHttp"))?;
            (at + 1, &["--header"])
        }
        _ => return None,
    };
    let url = process.args.get(offset + url_at)?.clone();
    let mut headers = Vec::new();
    for (at, arg) in rest.iter().enumerate() {
        if !header_switches.contains(arg) {
            continue;
        }
        // `--header "Name: value"`, or two arguments with `-H Name value`.
        let first = literal(process.args.get(offset + at + 1)?)?;
        if let Some((name, value)) = first.split_once(':') {
            headers.push((name.trim().to_owned(), with_env(value.trim_start(), process)));
        } else if let Some(value) = process.args.get(offset + at + 2) {
            headers.push((first.to_owned(), with_env(literal(value)?, process)));
        }
    }
    let sse = rest.contains(&"--sse") || rest.contains(&"sse-only");
    Some(Remote { url, headers, sse })
}

/// The same as a transport, and whether it was a bridge.
pub(super) fn through(process: Process) -> (Transport, bool) {
    match unwrap(&process) {
        Some(remote) => (Transport::Remote(remote), true),
        None => (Transport::Process(process), false),
    }
}

fn position_of_url(args: &[&str]) -> Option<usize> {
    args.iter().position(|arg| arg.starts_with("https://") || arg.starts_with("http://"))
}

/// A bridge fills `${X}` in from its own environment, which the entry sets.
fn with_env(value: &str, process: &Process) -> Vec<Piece> {
    let mut filled = Vec::new();
    for piece in pieces(value, Vars::Shell) {
        match &piece {
            Piece::Env { name, .. } => match process.env.iter().find(|(own, _)| own == name) {
                Some((_, value)) => filled.extend(value.iter().cloned()),
                None => filled.push(piece),
            },
            _ => filled.push(piece),
        }
    }
    filled
}

/// The name of the program or package that really runs, without path, scope and version, and its arguments.
fn package<'a, 'b>(command: &str, args: &'b [&'a str]) -> Option<(String, &'b [&'a str])> {
    let mut program = file::program_name(command);
    let mut rest = args;
    let mut skip_words: &[&str] = &[];
    match program.as_str() {
        "npm" if rest.first() == Some(&"exec") => rest = &rest[1..],
        "pnpm" | "yarn" if rest.first() == Some(&"dlx") => rest = &rest[1..],
        "uv" if rest.starts_with(&["tool", "run"]) => rest = &rest[2..],
        "pipx" if rest.first() == Some(&"run") => rest = &rest[1..],
        name if RUNNERS.contains(&name) => skip_words = &["-p", "--package", "--from", "--with", "--python"],
        _ => return Some((program, rest)),
    }
    while let Some(first) = rest.first().filter(|arg| arg.starts_with('-')) {
        let skipped = if skip_words.contains(first) { 2 } else { 1 };
        rest = rest.get(skipped..)?;
    }
    let (first, rest) = rest.split_first()?;
    let name = first.rsplit('/').next().unwrap_or(first);
    program.clear();
    program.push_str(name.split('@').next().unwrap_or(name));
    Some((program, rest))
}

/// A text without variables.
pub(super) fn literal(text: &[Piece]) -> Option<&str> {
    match text {
        [Piece::Literal(literal)] => Some(literal),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::vars::{Store, to_text};

    fn process(command: &str, args: &[&str]) -> Process {
        let text = |text: &str| vec![Piece::Literal(text.to_owned())];
        Process {
            command: text(command),
            args: args.iter().map(|arg| text(arg)).collect(),
            env: vec![("AUTH".to_owned(), text("Bearer sesame"))],
            inherit: Vec::new(),
            cwd: None,
        }
    }

    #[test]
    fn bridges_are_unwrapped() {
        let check = |command: &str, args: &[&str], expected: Option<(&str, &[(&str, &str)])>| {
            let found = unwrap(&process(command, args)).map(|remote| {
                let headers = remote.headers.iter().map(|(name, value)| (name.clone(), to_text(value, Store::Env)));
                (to_text(&remote.url, Store::Env), headers.collect::<Vec<_>>())
            });
            let expected = expected.map(|(url, headers)| {
                let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
                (url.to_owned(), headers.collect::<Vec<_>>())
            });
            assert_eq!(found, expected, "{command} {args:?}");
        };
        let url = "https://docs.example.com/mcp";
        check("npx", &["-y", "mcp-remote", url], Some((url, &[])));
        check(
            "npx",
            &["mcp-remote@0.1.2", url, "8080", "--header", "Authorization:${AUTH}"],
            Some((url, &[("Authorization", "Bearer sesame")])),
        );
        check("/opt/bin/npx", &["-y", "mcp-remote@latest", url, "--header", "X-A: b"], Some((url, &[("X-A", "b")])));
        check("uvx", &["mcp-proxy", "--transport", "streamablehttp", url], Some((url, &[])));
        check("mcp-proxy", &[url, "-H", "X-A", "b"], Some((url, &[("X-A", "b")])));
        check("bunx", &["supergateway", "--sse", url], Some((url, &[])));
        check("npx", &["-y", "@example/server", url], None);
        check("mcp-proxy", &["run"], None);
        check("npx", &[], None);
        check("npx", &["-y"], None);
    }

    #[test]
    fn our_own_entry_is_known() {
        let own = std::path::Path::new("/opt/odd-name");
        let check = |command: &str, args: &[&str], expected: bool| {
            assert_eq!(is_own(command, args, Some(own)), expected, "{command} {args:?}");
        };
        check("/opt/odd-name", &["run"], true);
        check("/usr/local/bin/mcp-proxy", &["run", "--config", "x.toml"], true);
        check("C:\\Tools\\mcp-proxy.exe", &["run"], true);
        check("mcp-proxy", &[], true);
        check("npx", &["-y", "@example/mcp-proxy", "run"], true);
        check("mcp-proxy", &["https://docs.example.com"], false);
        check("uvx", &["mcp-proxy", "https://docs.example.com"], false);
        check("npx", &["-y", "server"], false);
    }

    #[test]
    fn windows_shell_is_taken_away() {
        let mut wrapped = process("cmd.exe", &["/C", "npx", "-y", "x"]);
        without_shell(&mut wrapped);
        assert_eq!(literal(&wrapped.command), Some("npx"));
        assert_eq!(wrapped.args.len(), 2);
    }
}
