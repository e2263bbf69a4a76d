//! Variables: how hosts write them, and how we do.

use super::Vars;

/// A piece of a text of a host's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// As it stands.
    Literal(String),
    /// An environment variable.
    Env { name: String, default: Option<String> },
    /// A file's content.
    File(String),
    /// The home directory.
    Home,
    /// The folder that an editor has open: nothing that a proxy knows.
    Workspace,
    /// Something that the host keeps in a place of its own, so that its value is not here.
    Wanted(String),
    /// A literal that was a secret, under the name it was given; see [`super::secrets`].
    Secret(String),
}

/// Where secrets are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// In environment variables, which the person sets.
    Env,
    /// In the system's keyring.
    Keyring,
}

/// Cuts a text at its variables.
pub(super) fn pieces(text: &str, vars: Vars) -> Vec<Piece> {
    let mut found = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some((piece, length)) = variable(rest, vars) {
            if !literal.is_empty() {
                found.push(Piece::Literal(std::mem::take(&mut literal)));
            }
            found.push(piece);
            rest = &rest[length..];
        } else {
            literal.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    if !literal.is_empty() || found.is_empty() {
        found.push(Piece::Literal(literal));
    }
    found
}

/// The variable at the start of a text, and its length in bytes.
fn variable(text: &str, vars: Vars) -> Option<(Piece, usize)> {
    let any = vars == Vars::Any;
    if (any || vars == Vars::Mustache)
        && let Some((inner, length)) = between(text, "${{", "}}")
    {
        let name = inner.trim().rsplit('.').next().unwrap_or_default();
        return Some((Piece::Wanted(shout(name)), length));
    }
    if (any || vars == Vars::Braces)
        && let Some((inner, length)) = between(text, "{", "}")
        && let Some(piece) = prefixed(inner)
    {
        return Some((piece, length));
    }
    if let Some((inner, length)) = between(text, "${", "}") {
        if (any || vars == Vars::Editor)
            && let Some(piece) = prefixed(inner).or_else(|| editor(inner))
        {
            return Some((piece, length));
        }
        if (any || matches!(vars, Vars::Shell | Vars::ShellAndBare))
            && let Some(piece) = env(inner)
        {
            return Some((piece, length));
        }
    }
    if vars == Vars::ShellAndBare {
        if let Some(rest) = text.strip_prefix('$') {
            let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            if is_name(&rest[..length]) {
                return Some((Piece::Env { name: rest[..length].to_owned(), default: None }, 1 + length));
            }
        }
        if let Some((inner, length)) = between(text, "%", "%")
            && is_name(inner)
        {
            return Some((Piece::Env { name: inner.to_owned(), default: None }, length));
        }
    }
    None
}

fn between<'t>(text: &'t str, open: &str, close: &str) -> Option<(&'t str, usize)> {
    let rest = text.strip_prefix(open)?;
    let end = rest.find(close)?;
    Some((&rest[..end], open.len() + end + close.len()))
}

fn prefixed(inner: &str) -> Option<Piece> {
    if let Some(name) = inner.strip_prefix("env:") {
        return env(name);
    }
    inner.strip_prefix("file:").map(|path| Piece::File(path.to_owned()))
}

fn env(inner: &str) -> Option<Piece> {
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (inner, None),
    };
    is_name(name).then(|| Piece::Env { name: name.to_owned(), default })
}

fn editor(inner: &str) -> Option<Piece> {
    match inner {
        "userHome" => Some(Piece::Home),
        "workspaceFolder" | "workspaceFolderBasename" | "workspaceRoot" => Some(Piece::Workspace),
        "pathSeparator" | "/" => Some(Piece::Literal(std::path::MAIN_SEPARATOR.to_string())),
        _ if inner.starts_with("workspaceFolder:") => Some(Piece::Workspace),
        _ => inner.strip_prefix("input:").map(|id| Piece::Wanted(shout(id))),
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A name as environment variables are written: `my-token` → `MY_TOKEN`.
pub(super) fn shout(name: &str) -> String {
    let mut shouted = String::new();
    for c in name.chars() {
        if c.is_ascii_alphanumeric() {
            shouted.push(c.to_ascii_uppercase());
        } else if !shouted.is_empty() && !shouted.ends_with('_') {
            shouted.push('_');
        }
    }
    let shouted = shouted.trim_end_matches('_');
    match shouted.chars().next() {
        None => "SECRET".to_owned(),
        Some(c) if c.is_ascii_digit() => format!("_{shouted}"),
        Some(_) => shouted.to_owned(),
    }
}

/// The text in our own syntax.
pub(super) fn to_text(pieces: &[Piece], store: Store) -> String {
    pieces.iter().map(|piece| piece_text(piece, store)).collect()
}

fn piece_text(piece: &Piece, store: Store) -> String {
    match piece {
        Piece::Literal(literal) => literal.replace("${", "$${"),
        Piece::Env { name, default: None } => format!("${{env:{name}}}"),
        Piece::Env { name, default: Some(default) } => format!("${{env:{name}:-{default}}}"),
        Piece::File(path) => format!("${{file:{path}}}"),
        Piece::Home => "${env:HOME}".to_owned(),
        Piece::Workspace => "${env:WORKSPACE_FOLDER}".to_owned(),
        Piece::Wanted(name) | Piece::Secret(name) => match store {
            Store::Env => format!("${{env:{name}}}"),
            Store::Keyring => format!("${{keyring:{name}}}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hosts_variables_become_ours() {
        let check = |vars: Vars, text: &str, expected: &str| {
            assert_eq!(to_text(&pieces(text, vars), Store::Env), expected, "{vars:?} {text}");
        };
        check(Vars::Literal, "${X} $X", "$${X} $X");
        check(Vars::Shell, "a ${X} ${Y:-z} $Z ${env:W}", "a ${env:X} ${env:Y:-z} $Z $${env:W}");
        check(Vars::ShellAndBare, "$X-${Y} %Z% 100% $1", "${env:X}-${env:Y} ${env:Z} 100% $1");
        check(Vars::Editor, "${env:X} ${userHome}/a ${file:/run/t}", "${env:X} ${env:HOME}/a ${file:/run/t}");
        check(Vars::Editor, "${input:gh-token}${workspaceFolder}", "${env:GH_TOKEN}${env:WORKSPACE_FOLDER}");
        check(Vars::Editor, "${command:x}", "$${command:x}");
        check(Vars::Braces, "{env:X} {file:~/t} {x} ${Y}", "${env:X} ${file:~/t} {x} $${Y}");
        check(Vars::Mustache, "Bearer ${{ secrets.DOCS_KEY }}", "Bearer ${env:DOCS_KEY}");
        check(Vars::Any, "${X} ${env:Y} ${{ inputs.z }} {env:W}", "${env:X} ${env:Y} ${env:Z} ${env:W}");
        check(Vars::Any, "", "");
        check(Vars::Any, "ünïcode ${", "ünïcode $${");
    }

    #[test]
    fn wanted_secrets_go_to_the_chosen_store() {
        let wanted = [Piece::Literal("Bearer ".to_owned()), Piece::Secret("T".to_owned())];
        assert_eq!(to_text(&wanted, Store::Keyring), "Bearer ${keyring:T}");
    }

    #[test]
    fn names_are_shouted() {
        for (name, expected) in [("my-token", "MY_TOKEN"), ("--api.key", "API_KEY"), ("1x", "_1X"), ("é", "SECRET")] {
            assert_eq!(shout(name), expected);
        }
    }
}
