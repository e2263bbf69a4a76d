//! What was imported, as the text of our file; secrets are moved out on the way.

use std::fmt::Write as _;

use super::import::{Import, Left, Process, Remote, Server, Transport};
use super::vars::{Piece, Store, shout, to_text};
use super::{Surroundings, read, secrets};

/// A secret that was taken out of a host's file. `Debug` hides its value.
#[derive(Clone)]
pub struct Secret {
    /// The variable's or keyring entry's name.
    pub name: String,
    /// The keys of the servers that use it.
    pub servers: Vec<String>,
    value: String,
}

/// The text of our file, and what it needs.
#[derive(Debug)]
pub struct Rendered {
    /// The whole text; with an existing file: that text with the new servers after it.
    pub toml: String,
    /// How many servers are new in it.
    pub added: usize,
    /// Secrets that were taken out.
    pub secrets: Vec<Secret>,
    /// Names that a host kept elsewhere, so that their values are not known here.
    pub wanted: Vec<String>,
    /// All that the servers refer to, in the order of the file; also those that the existing file has.
    pub needs: Vec<Need>,
    /// Servers that were not added, since the existing file has the same.
    pub left: Vec<Left>,
}

/// A variable or an entry of the keyring without which servers do not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Its name.
    pub name: String,
    /// The keys of the servers that refer to it.
    pub servers: Vec<String>,
    /// Where its value is.
    pub value: Whence,
}

/// Where the value of a [`Need`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// It stood in the host's file.
    File,
    /// The host keeps it in a place of its own.
    Elsewhere,
    /// In the environment: the host's file has the reference itself.
    Environment,
}

// === impl Secret ===

impl Secret {
    /// The value itself, for a keyring and nothing else.
    pub fn reveal(&self) -> &str {
        &self.value
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).field("servers", &self.servers).finish_non_exhaustive()
    }
}

// === impl Import ===

impl Import {
    /// Writes the servers as our file, or after what an existing one holds.
    ///
    /// # Errors
    ///
    /// A sentence: the existing file is no TOML, or its `servers` can't be added to.
    pub fn render(&self, store: Store, existing: Option<&str>, around: &Surroundings) -> Result<Rendered, String> {
        let existing = existing.filter(|text| !text.trim().is_empty());
        let value = read::parse(existing.unwrap_or_default(), read::Syntax::Toml)
            .map_err(|error| format!("the existing configuration can't be read: {error}"))?;
        if existing.is_some_and(|text| text.lines().any(|line| line.trim_start().starts_with("servers")))
            && value.get("servers").is_some()
        {
            return Err(
                "the existing configuration has `servers` in one line; write it as [servers.NAME] tables".to_owned()
            );
        }
        let mut servers: Vec<Server> = self.servers.clone();
        let (mut left, mut same) = (Vec::new(), Vec::new());
        let reserved = existing.map(references).unwrap_or_default();
        let mut vault = Vault { secrets: Vec::new(), reserved, around };
        if let Some(table) = value.get("servers").and_then(serde_json::Value::as_object) {
            drop_known(&mut servers, table, store, around, &mut left, &mut same);
            let mut taken: Vec<String> = table.keys().cloned().collect();
            for server in &mut servers {
                let names: Vec<&str> = taken.iter().map(String::as_str).collect();
                let key = super::import::free_key(&server.key, &names);
                if key != server.key {
                    server.notes.push(format!("`{}` was taken.", server.key));
                    server.key = key;
                }
                taken.push(server.key.clone());
            }
        }
        vault.reserve(&servers);
        for server in &mut servers {
            vault.take_from(server);
        }
        let needs = needs(servers.iter().chain(&same));
        let mut wanted: Vec<String> = Vec::new();
        for piece in servers.iter().flat_map(|server| server.texts().flatten()) {
            if let Piece::Wanted(name) = piece
                && !wanted.contains(name)
            {
                wanted.push(name.clone());
            }
        }
        let mut toml = String::new();
        self.head(&mut toml, &vault.secrets, &wanted, store, existing.is_some());
        for server in &servers {
            table(&mut toml, server, store);
        }
        let toml = match existing {
            Some(text) if servers.is_empty() => text.to_owned(),
            Some(text) => append(text, &toml),
            None => toml,
        };
        Ok(Rendered { toml, added: servers.len(), secrets: vault.secrets, wanted, needs, left })
    }

    fn head(&self, toml: &mut String, secrets: &[Secret], wanted: &[String], store: Store, short: bool) {
        let from = if self.read.is_empty() { self.source.clone() } else { self.read.join(", ") };
        comment(toml, &format!("Imported from {from}."));
        if !short {
            comment(toml, "A server gets the basic variables and its `env`; `inherit_env = [\"NAME\"]` adds others.");
        }
        let names: Vec<String> = secrets
            .iter()
            .map(|secret| format!("{} ({})", secret.name, secret.servers.join(", ")))
            .chain(wanted.iter().cloned())
            .collect();
        if !names.is_empty() {
            let place = match store {
                Store::Env => "in the environment that the host starts in",
                Store::Keyring => "in the keyring, under the service `mcp-proxy`",
            };
            comment(toml, &format!("To be set {place}: {}.", names.join(", ")));
        }
    }
}

fn append(text: &str, addition: &str) -> String {
    let crlf = text.contains("\r\n");
    let mut whole = text.trim_end().to_owned();
    whole.push_str("\n\n");
    whole.push_str(addition);
    if crlf { whole.replace("\r\n", "\n").replace('\n', "\r\n") } else { whole }
}

fn needs<'s>(servers: impl Iterator<Item = &'s Server>) -> Vec<Need> {
    let mut needs: Vec<Need> = Vec::new();
    for server in servers {
        for piece in server.texts().flatten() {
            let (name, value) = match piece {
                Piece::Secret(name) => (name, Whence::File),
                Piece::Wanted(name) => (name, Whence::Elsewhere),
                Piece::Env { name, default: None } => (name, Whence::Environment),
                Piece::Env { default: Some(_), .. }
                | Piece::Literal(_)
                | Piece::File(_)
                | Piece::Home
                | Piece::Workspace => continue,
            };
            match needs.iter_mut().find(|need| need.name == *name) {
                Some(need) if need.servers.contains(&server.key) => {}
                Some(need) => need.servers.push(server.key.clone()),
                None => needs.push(Need { name: name.clone(), servers: vec![server.key.clone()], value }),
            }
        }
    }
    needs
}

/// Leaves out what the existing file has already, and notes it as `known`.
fn drop_known(
    servers: &mut Vec<Server>,
    table: &serde_json::Map<String, serde_json::Value>,
    store: Store,
    around: &Surroundings,
    left: &mut Vec<Left>,
    known: &mut Vec<Server>,
) {
    let mut vault = Vault { secrets: Vec::new(), reserved: Vec::new(), around };
    vault.reserve(servers);
    servers.retain(|server| {
        let mut written = server.clone();
        vault.take_from(&mut written);
        let mut text = String::new();
        written.notes.clear();
        self::table(&mut text, &written, store);
        let Ok(value) = read::parse(&text, read::Syntax::Toml) else { return true };
        let own = value.get("servers").and_then(|servers| servers.get(&written.key));
        let same = table.iter().find(|(_, other)| {
            ["command", "args", "url", "env", "headers"]
                .iter()
                .all(|key| own.and_then(|own| own.get(*key)) == other.get(*key))
        });
        if let Some((key, _)) = same {
            let why = format!("`{key}` in our file is the same");
            left.push(Left { name: server.original.clone(), why, same: true });
            known.push(Server { key: key.clone(), ..written });
        }
        same.is_none()
    });
}

/// The names that a text refers to already.
fn references(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for start in ["${env:", "${keyring:"] {
        for (at, _) in text.match_indices(start) {
            let rest = &text[at + start.len()..];
            let end = rest.find(['}', ':']).unwrap_or(0);
            names.push(rest[..end].to_owned());
        }
    }
    names
}

/// Where secrets are collected and get their names.
struct Vault<'a> {
    secrets: Vec<Secret>,
    /// Names that stand for something else already.
    reserved: Vec<String>,
    around: &'a Surroundings,
}

// === impl Vault ===

impl Vault<'_> {
    fn reserve(&mut self, servers: &[Server]) {
        for piece in servers.iter().flat_map(|server| server.texts().flatten()) {
            if let Piece::Env { name, .. } | Piece::Wanted(name) = piece {
                self.reserved.push(name.clone());
            }
        }
    }

    fn take_from(&mut self, server: &mut Server) {
        let key = server.key.clone();
        let mut dropped = false;
        match &mut server.transport {
            Transport::Process(process) => dropped |= self.take_from_process(&key, process),
            Transport::Remote(remote) => dropped |= self.take_from_remote(&key, remote),
        }
        if dropped {
            server.notes.push("A default value that looked like a secret was left out.".to_owned());
        }
    }

    fn take_from_process(&mut self, key: &str, process: &mut Process) -> bool {
        let mut dropped = self.take(key, None, &mut process.command);
        for (name, value) in &mut process.env {
            if let [Piece::Literal(literal)] = value.as_slice()
                && secrets::secret_name(name)
                && secrets::secret_value(literal)
            {
                let piece = self.put(key, &shout(name), &literal.clone());
                *value = vec![piece];
                continue;
            }
            dropped |= self.take(key, Some(name), value);
        }
        let mut flag: Option<String> = None;
        let mut of_env = false;
        for arg in &mut process.args {
            let literal = super::bridge::literal(arg).map(str::to_owned);
            match (flag.take(), literal.as_deref()) {
                (Some(flag), Some(value)) if !value.starts_with('-') && secrets::secret_value(value) => {
                    *arg = vec![self.put(key, &format!("{}_{}", shout(key), shout(&flag)), value)];
                }
                _ => {
                    if let Some((name, value)) = literal.as_deref().filter(|_| of_env).and_then(named) {
                        let piece = self.put(key, name, value);
                        *arg = vec![Piece::Literal(format!("{name}=")), piece];
                    } else {
                        dropped |= self.take(key, None, arg);
                    }
                }
            }
            of_env = matches!(literal.as_deref(), Some("-e" | "--env"));
            flag = literal.filter(|text| text.starts_with('-') && !text.contains('=') && secrets::secret_name(text));
        }
        if let Some(cwd) = &mut process.cwd {
            dropped |= self.take(key, None, cwd);
        }
        dropped
    }

    fn take_from_remote(&mut self, key: &str, remote: &mut Remote) -> bool {
        let mut dropped = self.take(key, None, &mut remote.url);
        for (name, value) in &mut remote.headers {
            let whole = match value.as_slice() {
                [Piece::Literal(literal)] if secrets::secret_name(name) => Some(literal.clone()),
                _ => None,
            };
            let Some(literal) = whole else {
                dropped |= self.take(key, Some(name), value);
                continue;
            };
            let known = ["Bearer ", "bearer ", "Basic ", "Token ", "token ", "ApiKey "];
            let scheme = known.iter().find(|scheme| literal.starts_with(**scheme)).copied().unwrap_or_default();
            let secret = literal[scheme.len()..].trim_start();
            if secret.is_empty() {
                continue;
            }
            let kind = if name.eq_ignore_ascii_case("authorization") { "TOKEN".to_owned() } else { shout(name) };
            let piece = self.put(key, &format!("{}_{kind}", shout(key)), secret);
            *value = if scheme.is_empty() { vec![piece] } else { vec![Piece::Literal(scheme.to_owned()), piece] };
        }
        dropped
    }

    /// Takes what looks like a secret out of a text; returns whether a default value was dropped.
    fn take(&mut self, key: &str, variable: Option<&str>, text: &mut Vec<Piece>) -> bool {
        let mut dropped = false;
        let mut taken = Vec::new();
        for piece in std::mem::take(text) {
            let literal = match piece {
                Piece::Literal(literal) => literal,
                Piece::Env { name, default: Some(default) }
                    if secrets::secret_shape(&default)
                        || (secrets::secret_name(&name) && secrets::secret_value(&default)) =>
                {
                    dropped = true;
                    taken.push(Piece::Env { name, default: None });
                    continue;
                }
                other => {
                    taken.push(other);
                    continue;
                }
            };
            let mut end = 0;
            for (range, name) in secrets::find(&literal) {
                let whole = range == (0..literal.len());
                let name = name.filter(|name| !shout(name).is_empty());
                let preferred = match (variable, name) {
                    (Some(variable), _) if whole => shout(variable),
                    (Some(variable), name) => {
                        format!("{}_{}", shout(variable), shout(name.as_deref().unwrap_or("SECRET")))
                    }
                    (None, Some(name)) if name == shout(&name) && name.contains('_') => name,
                    (None, name) => format!("{}_{}", shout(key), shout(name.as_deref().unwrap_or("SECRET"))),
                };
                if range.start > end {
                    taken.push(Piece::Literal(literal[end..range.start].to_owned()));
                }
                taken.push(self.put(key, &preferred, &literal[range.clone()]));
                end = range.end;
            }
            if end < literal.len() || literal.is_empty() {
                taken.push(Piece::Literal(literal[end..].to_owned()));
            }
        }
        *text = taken;
        dropped
    }

    /// Keeps a value under the preferred name, or under another if that one stands for another value.
    fn put(&mut self, key: &str, preferred: &str, value: &str) -> Piece {
        let own = format!("{}_{preferred}", shout(key));
        let mut names =
            [preferred.to_owned(), own.clone()].into_iter().chain((2..).map(|count: u32| format!("{own}_{count}")));
        loop {
            let name = names.next().expect("there is always another number");
            if let Some(secret) = self.secrets.iter_mut().find(|secret| secret.name == name) {
                if secret.value != value {
                    continue;
                }
                if !secret.servers.iter().any(|server| server == key) {
                    secret.servers.push(key.to_owned());
                }
                return Piece::Secret(name);
            }
            let set_to_it = self.around.var(&name).is_some_and(|set| set == value);
            if self.reserved.contains(&name) && !set_to_it {
                continue;
            }
            self.secrets.push(Secret { name: name.clone(), servers: vec![key.to_owned()], value: value.to_owned() });
            return Piece::Secret(name);
        }
    }
}

/// A variable that an argument sets, if its value is a secret as a whole.
fn named(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    (name == shout(name) && secrets::secret_name(name) && secrets::secret_value(value)).then_some((name, value))
}

fn comment(toml: &mut String, text: &str) {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let _ = writeln!(toml, "# {clean}");
}

fn table(toml: &mut String, server: &Server, store: Store) {
    toml.push('\n');
    for note in &server.notes {
        comment(toml, note);
    }
    let _ = writeln!(toml, "[servers.{}]", key(&server.key));
    let mut after: Vec<(&str, &Pairs)> = Vec::new();
    let text = |pieces: &[Piece]| string(&to_text(pieces, store));
    match &server.transport {
        Transport::Process(process) => {
            let _ = writeln!(toml, "command = {}", text(&process.command));
            if !process.args.is_empty() {
                let args: Vec<String> = process.args.iter().map(|arg| text(arg)).collect();
                let _ = writeln!(toml, "args = {}", array(&args));
            }
            pairs(toml, "env", &process.env, store, &mut after);
            if !process.inherit.is_empty() {
                let names: Vec<String> = process.inherit.iter().map(|name| string(name)).collect();
                let _ = writeln!(toml, "inherit_env = {}", array(&names));
            }
            if let Some(cwd) = &process.cwd {
                let _ = writeln!(toml, "cwd = {}", text(cwd));
            }
        }
        Transport::Remote(remote) => {
            let _ = writeln!(toml, "url = {}", text(&remote.url));
            pairs(toml, "headers", &remote.headers, store, &mut after);
        }
    }
    if !server.enabled {
        toml.push_str("enabled = false\n");
    }
    for (name, value) in [("start_timeout", server.start_timeout), ("call_max_time", server.call_max_time)] {
        if let Some(value) = value {
            let millis = value.as_millis();
            let text = if millis % 1000 == 0 { format!("{}s", millis / 1000) } else { format!("{millis}ms") };
            let _ = writeln!(toml, "{name} = \"{text}\"");
        }
    }
    let rules: Vec<String> = [("allow", &server.allow), ("deny", &server.deny)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(kind, names)| {
            let names: Vec<String> = names.iter().map(|name| string(name)).collect();
            format!("{kind} = [{}]", names.join(", "))
        })
        .collect();
    if !rules.is_empty() {
        let _ = writeln!(toml, "tools = {{ {} }}", rules.join(", "));
    }
    for (name, pairs) in after {
        let _ = writeln!(toml, "\n[servers.{}.{name}]", key(&server.key));
        for (name, value) in pairs {
            let _ = writeln!(toml, "{} = {}", key(name), text(value));
        }
    }
}

/// Names and values of `env` or `headers`.
type Pairs = Vec<(String, Vec<Piece>)>;

/// Pairs in one line if they fit, else as a table of their own after the rest.
fn pairs<'s>(
    toml: &mut String,
    name: &'static str,
    pairs: &'s Pairs,
    store: Store,
    after: &mut Vec<(&'static str, &'s Pairs)>,
) {
    if pairs.is_empty() {
        return;
    }
    let inline: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{} = {}", key(name), string(&to_text(value, store)))).collect();
    let line = format!("{name} = {{ {} }}", inline.join(", "));
    if line.len() > 110 && pairs.len() > 1 {
        after.push((name, pairs));
    } else {
        let _ = writeln!(toml, "{line}");
    }
}

fn array(items: &[String]) -> String {
    let line = format!("[{}]", items.join(", "));
    if line.len() <= 110 { line } else { format!("[\n  {},\n]", items.join(",\n  ")) }
}

fn string(text: &str) -> String {
    toml_edit::Value::from(text).to_string()
}

fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if bare { name.to_owned() } else { string(name).replace('\n', "\\n") }
}
