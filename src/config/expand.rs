//! A server's references, expanded just before it is started or compared.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::find::{expand_home, home_dir};
use super::keychain::keyring_get;
use super::reference::{Reference, Segment, segments};
use super::types::{Http, InheritEnv, Protocol, Server, Stdio, Text, Transport};

/// What a server is started with: everything expanded, so parts of it may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// How it is reached.
    pub target: Target,
    /// The values that no log, status or error of ours may show; see [`Masker`](super::Masker).
    pub secrets: Vec<String>,
    /// SHA-256 over `command`, `args`, `env`, `inherit_env`, `cwd`, `url`, `headers` and `protocol` after expansion: if
    /// it differs, a reload replaces the server, and its cached catalog is another's.
    pub fingerprint: [u8; 32],
}

/// How a server is reached, expanded.
#[derive(Clone, PartialEq, Eq)]
pub enum Target {
    /// A process.
    Program(Program),
    /// A remote endpoint.
    Endpoint(Endpoint),
}

/// A process, expanded.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// A path, or a name to be found on `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its own variables.
    pub env: Vec<(String, String)>,
    /// What it inherits of ours.
    pub inherit_env: InheritEnv,
    /// Its working directory; `None`: ours.
    pub cwd: Option<PathBuf>,
}

/// A remote endpoint, expanded.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Where it is.
    pub url: String,
    /// What is sent with each request.
    pub headers: Vec<(String, String)>,
}

/// Why a server can't be started as its table stands; it names references, never a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("server {server:?}: {}", self.reason())]
pub struct ExpandError {
    /// The server.
    pub server: String,
    /// One for each reference that fails.
    pub problems: Vec<Unmet>,
}

/// Something that a server's table asks for and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The path of the key below the server's table.
    pub key: Vec<String>,
    /// One sentence, with its remedy.
    pub message: String,
}

/// What references are looked up in.
pub trait Lookup {
    /// A variable of our environment.
    fn env(&self, name: &str) -> Option<String>;
    /// The text of a file.
    fn file(&self, path: &Path) -> io::Result<String>;
    /// An entry of the system's keyring; `Ok(None)`: there is none of that name. May block for some seconds.
    fn keyring(&self, name: &str) -> Result<Option<String>, String>;
    /// The home directory, for `~`.
    fn home(&self) -> Option<PathBuf>;
    /// Where relative paths of `cwd` and `${file:…}` start: the directory of the configuration file.
    fn base(&self) -> PathBuf;
}

/// This process's environment, files and keyring.
#[derive(Clone, Debug)]
pub struct HostLookup {
    base: PathBuf,
}

/// A secret is a line or so; this bounds what a wrong path can cost.
const LONGEST_FILE: u64 = 1 << 20;
/// Shorter values of references are not masked: they would mask everything.
const SHORTEST_REFERENCE: usize = 4;
/// Shorter literals in `env` and `headers` are not masked.
const SHORTEST_LITERAL: usize = 8;

/// Expands the references of one server.
///
/// Blocks while a file or the keyring is read. All references that fail are reported together.
pub fn expand(server: &Server, lookup: &dyn Lookup) -> Result<Launch, ExpandError> {
    let mut expansion = Expansion { lookup, secrets: Vec::new(), problems: Vec::new(), key: Vec::new() };
    let target = match &server.transport {
        Transport::Stdio(stdio) => Target::Program(expansion.program(stdio)),
        Transport::Http(http) => Target::Endpoint(expansion.endpoint(http)),
    };
    let Expansion { secrets, problems, .. } = expansion;
    if !problems.is_empty() {
        return Err(ExpandError { server: server.key.clone(), problems });
    }
    let fingerprint = fingerprint(&target, &server.protocol);
    Ok(Launch { target, secrets, fingerprint })
}

/// Whether the expansion of a server's references may block: a file or the keyring is among them.
pub fn may_block(server: &Server) -> bool {
    let blocks = |text: &Text| {
        let segments = segments(&text.0).unwrap_or_default();
        segments.iter().any(|segment| matches!(segment, Segment::Reference(Reference::File(_) | Reference::Keyring(_))))
    };
    match &server.transport {
        Transport::Stdio(stdio) => {
            let texts = std::iter::once(&stdio.command).chain(&stdio.args).chain(&stdio.cwd);
            texts.chain(stdio.env.iter().map(|(_, text)| text)).any(blocks)
        }
        Transport::Http(http) => {
            std::iter::once(&http.url).chain(http.headers.iter().map(|(_, text)| text)).any(blocks)
        }
    }
}

struct Expansion<'l> {
    lookup: &'l dyn Lookup,
    secrets: Vec<String>,
    problems: Vec<Unmet>,
    /// What is being expanded.
    key: Vec<String>,
}

fn fingerprint(target: &Target, protocol: &Protocol) -> [u8; 32] {
    let mut hash = Sha256::new();
    // Each part goes in with its length, so that no two sets of parts give the same bytes.
    let mut part = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    let pairs = |name: &str, pairs: &[(String, String)], part: &mut dyn FnMut(&str)| {
        let mut sorted: Vec<_> = pairs.iter().collect();
        sorted.sort();
        part(name);
        part(&sorted.len().to_string());
        for (key, value) in sorted {
            part(key);
            part(value);
        }
    };
    match target {
        Target::Program(program) => {
            part("command");
            part(&program.command);
            part(&program.args.len().to_string());
            for arg in &program.args {
                part(arg);
            }
            pairs("env", &program.env, &mut part);
            match &program.inherit_env {
                InheritEnv::Basics => part("basics"),
                InheritEnv::All => part("all"),
                InheritEnv::Also(names) => {
                    let mut names: Vec<_> = names.iter().collect();
                    names.sort();
                    part("also");
                    part(&names.len().to_string());
                    for name in names {
                        part(name);
                    }
                }
            }
            part(if program.cwd.is_some() { "cwd" } else { "no cwd" });
            part(&program.cwd.as_deref().unwrap_or(Path::new("")).to_string_lossy());
        }
        Target::Endpoint(endpoint) => {
            part("url");
            part(&endpoint.url);
            pairs("headers", &endpoint.headers, &mut part);
        }
    }
    part(match protocol {
        Protocol::Auto => "auto",
        Protocol::Legacy => "legacy",
        Protocol::Modern => "modern",
        Protocol::Revision(revision) => revision,
    });
    hash.finalize().into()
}

// === impl Expansion ===

impl Expansion<'_> {
    fn program(&mut self, stdio: &Stdio) -> Program {
        let home = self.lookup.home();
        let at_home = |text: String| match text.strip_prefix("~") {
            Some(rest) if rest.is_empty() || rest.starts_with(['/', '\\']) => {
                let path = Path::new("~").join(rest.trim_start_matches(['/', '\\']));
                expand_home(&path, home.as_deref()).to_string_lossy().into_owned()
            }
            _ => text,
        };
        let command = at_home(self.text(&["command"], &stdio.command));
        if command.trim().is_empty() {
            self.note("the command is empty after its references were expanded".to_owned());
        }
        let args = stdio.args.iter().enumerate();
        let args = args.map(|(index, arg)| self.text(&["args", &index.to_string()], arg)).collect();
        let env = self.pairs("env", &stdio.env);
        let cwd = stdio.cwd.as_ref().map(|cwd| self.lookup.base().join(at_home(self.text(&["cwd"], cwd))));
        Program { command, args, env, inherit_env: stdio.inherit_env.clone(), cwd }
    }

    fn endpoint(&mut self, http: &Http) -> Endpoint {
        let url = self.text(&["url"], &http.url);
        let lower = url.to_ascii_lowercase();
        if self.problems.is_empty() && !lower.starts_with("http://") && !lower.starts_with("https://") {
            self.note("the url is no http:// or https:// URL after its references were expanded".to_owned());
        }
        let headers = self.pairs("headers", &http.headers);
        for (name, value) in &headers {
            if value.contains(['\r', '\n']) {
                self.key = vec!["headers".to_owned(), name.clone()];
                self.note(format!("the header {name:?} has a line end in it after its references were expanded"));
            }
        }
        Endpoint { url, headers }
    }

    /// The variables or headers; a literal among them may be a secret as well.
    fn pairs(&mut self, table: &str, pairs: &[(String, Text)]) -> Vec<(String, String)> {
        let mut expanded = Vec::with_capacity(pairs.len());
        for (name, text) in pairs {
            let value = self.text(&[table, name], text);
            self.keep_secret(&value, SHORTEST_LITERAL);
            // "Bearer TOKEN": the token may also appear alone.
            for word in value.split_whitespace().skip(1) {
                self.keep_secret(word, SHORTEST_LITERAL);
            }
            expanded.push((name.clone(), value));
        }
        expanded
    }

    fn text(&mut self, key: &[&str], text: &Text) -> String {
        self.key = key.iter().map(ToString::to_string).collect();
        let segments = match segments(&text.0) {
            Ok(segments) => segments,
            Err(problem) => {
                self.note(problem.message);
                return String::new();
            }
        };
        let mut expanded = String::new();
        for segment in segments {
            match segment {
                Segment::Literal(literal) => expanded.push_str(literal),
                Segment::Reference(reference) => match self.look_up(&reference) {
                    Ok(value) if value.contains('\0') => {
                        self.note(format!("the value of {reference} holds a NUL character"));
                    }
                    Ok(value) => {
                        self.keep_secret(&value, SHORTEST_REFERENCE);
                        expanded.push_str(&value);
                    }
                    Err(problem) if self.problems.iter().any(|known| known.message == problem) => {}
                    Err(problem) => self.note(problem),
                },
            }
        }
        expanded
    }

    fn note(&mut self, message: String) {
        self.problems.push(Unmet { key: self.key.clone(), message });
    }

    fn look_up(&self, reference: &Reference<'_>) -> Result<String, String> {
        match reference {
            Reference::Env { name, default: Some(default) } => {
                let set = self.lookup.env(name).filter(|value| !value.is_empty());
                Ok(set.unwrap_or_else(|| (*default).to_owned()))
            }
            Reference::Env { name, default: None } => self.lookup.env(name).ok_or_else(|| {
                format!("{reference} is not set; set the variable {name} for the host that starts mcp-proxy, or give it a default with ${{env:{name}:-...}}")
            }),
            Reference::File(path) => {
                let path = self.lookup.base().join(expand_home(Path::new(path), self.lookup.home().as_deref()));
                let mut text = self.lookup.file(&path).map_err(|error| {
                    format!("{reference} can't be read: {error}; check that {} exists and may be read", path.display())
                })?;
                text.truncate(text.trim_end_matches(['\n', '\r']).len());
                Ok(text)
            }
            Reference::Keyring(name) => match self.lookup.keyring(name) {
                Ok(Some(secret)) => Ok(secret),
                Ok(None) => Err(format!("{reference} is not in the keyring; put it there with \"mcp-proxy secret set {name}\"")),
                Err(why) => Err(format!("{reference} can't be read: {why}; unlock the keyring and restart the server")),
            },
        }
    }

    /// Notes a value and each of its lines; lines that are too short would mask everything.
    fn keep_secret(&mut self, value: &str, shortest: usize) {
        for secret in std::iter::once(value).chain(value.lines()).flat_map(|line| [line, line.trim()]) {
            if secret.chars().count() >= shortest && !self.secrets.iter().any(|known| known == secret) {
                self.secrets.push(secret.to_owned());
            }
        }
    }
}

// === impl ExpandError ===

impl ExpandError {
    /// All that is not there, in a sentence.
    pub fn reason(&self) -> String {
        self.problems.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("; ")
    }
}

// === impl Launch ===

impl fmt::Debug for Launch {
    /// Shows no value, since any may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch").field("target", &self.target).finish_non_exhaustive()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(_) => f.write_str("Program(…)"),
            Self::Endpoint(_) => f.write_str("Endpoint(…)"),
        }
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Program(…)")
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Endpoint(…)")
    }
}

// === impl HostLookup ===

impl HostLookup {
    /// For the configuration file at this path.
    pub fn new(config: &Path) -> Self {
        Self { base: config.parent().map(Path::to_owned).unwrap_or_default() }
    }
}

impl Lookup for HostLookup {
    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        // A pipe or a terminal might block for ever, and our own standard input is the host's.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut text = String::new();
        std::fs::File::open(path)?.take(LONGEST_FILE + 1).read_to_string(&mut text)?;
        if text.len() as u64 > LONGEST_FILE {
            return Err(io::Error::other("it is larger than 1 MiB"));
        }
        Ok(text)
    }

    fn keyring(&self, name: &str) -> Result<Option<String>, String> {
        keyring_get(name)
    }

    fn home(&self) -> Option<PathBuf> {
        home_dir()
    }

    fn base(&self) -> PathBuf {
        self.base.clone()
    }
}
