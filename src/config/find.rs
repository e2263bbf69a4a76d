//! Where the configuration and our own files lie, and reading the configuration.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::fault::{Fault, Severity};
use super::parse::{Broken, Parsed, parse};
use super::types::Config;

/// A configuration that the proxy can start with.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What is sound in it.
    pub config: Config,
    /// Warnings, and the faults of single servers.
    pub faults: Vec<Fault>,
    /// The servers that are left out because of a fault.
    pub broken: Vec<Broken>,
    /// SHA-256 of the file, to tell whether it changed.
    pub digest: [u8; 32],
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file isn't there.
    #[error("there is no configuration file {path}; write one there, name one with --config FILE, or let \"mcp-proxy import\" make it from a host's", path = .0.display())]
    Missing(PathBuf),
    /// It can't be read.
    #[error("can't read the configuration file {path}: {error}", path = .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// It isn't text in UTF-8.
    #[error("the configuration file {path} is not text in UTF-8 (line {line}); save it as UTF-8", path = .path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The line with the first foreign byte, from 1.
        line: usize,
    },
    /// A fault that concerns all servers.
    #[error("{}", summary(&parsed.faults))]
    Faulty {
        /// What was found, all of it.
        parsed: Box<Parsed>,
        /// The file's text, for excerpts.
        text: String,
    },
    /// The system names no home, so there is no place to look at.
    #[error("no configuration: neither --config nor MCP_PROXY_CONFIG is set, and the system names no home directory")]
    NoPlace,
}

/// Nobody writes a longer one by hand.
const LONGEST: u64 = 16 << 20;
const FILE: &str = "mcp-proxy.toml";

/// The configuration file: the one that the command line names, else `$MCP_PROXY_CONFIG`, else the user's own.
///
/// Never the current directory: hosts start us inside repositories, and a stranger's must not start commands.
pub fn config_path(named: Option<&Path>) -> Result<PathBuf, LoadError> {
    // Hosts start us without a shell, so a `~` in their files comes here as it is.
    let named = named.map(Path::to_owned).or_else(|| variable("MCP_PROXY_CONFIG").map(PathBuf::from));
    if let Some(path) = named {
        return Ok(expand_home(&path, home_dir().as_deref()));
    }
    let ours = place("XDG_CONFIG_HOME", |dirs| dirs.config_dir().to_owned());
    ours.map(|dir| dir.join(FILE)).ok_or(LoadError::NoPlace)
}

/// Where the ledger and the in-flight files lie: `$XDG_STATE_HOME/mcp-proxy`, or the platform's place.
pub fn state_dir() -> Option<PathBuf> {
    place("XDG_STATE_HOME", |dirs| dirs.state_dir().unwrap_or_else(|| dirs.data_local_dir()).to_owned())
}

/// Where the catalogs are cached: `$XDG_CACHE_HOME/mcp-proxy`, or the platform's place.
pub fn cache_dir() -> Option<PathBuf> {
    place("XDG_CACHE_HOME", |dirs| dirs.cache_dir().to_owned())
}

/// The home directory, for `~`.
pub fn home_dir() -> Option<PathBuf> {
    directories::BaseDirs::new().map(|dirs| dirs.home_dir().to_owned())
}

/// `path` with a leading `~` replaced by `home`.
pub(crate) fn expand_home(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) if rest.as_os_str().is_empty() => home.to_owned(),
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

/// Reads and judges a configuration file, with the profile that was chosen.
pub fn load(path: &Path, profile: Option<&str>) -> Result<Loaded, LoadError> {
    let text = read(path)?;
    let digest = Sha256::digest(text.as_bytes()).into();
    let mut parsed = parse(path, &text, profile);
    if parsed.fatal() {
        return Err(LoadError::Faulty { parsed: Box::new(parsed), text });
    }
    let home = home_dir();
    if let Some(file) = &mut parsed.config.log.file {
        *file = expand_home(file, home.as_deref());
    }
    Ok(Loaded { config: parsed.config, faults: parsed.faults, broken: parsed.broken, digest })
}

/// The text of a configuration file; for `check`, which shows excerpts of it.
pub fn read(path: &Path) -> Result<String, LoadError> {
    let unreadable = |error| LoadError::Unreadable { path: path.to_owned(), error };
    let file = std::fs::File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LoadError::Missing(path.to_owned()),
        _ => unreadable(error),
    })?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LONGEST {
        return Err(unreadable(io::Error::other("it is larger than 16 MiB")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        LoadError::NotText { path: path.to_owned(), line: memchr::memchr_iter(b'\n', before).count() + 1 }
    })
}

impl LoadError {
    /// The same as faults, for reports; what concerns the file as a whole has no key.
    pub fn faults(&self) -> Vec<Fault> {
        let (path, line) = match self {
            Self::Faulty { parsed, .. } => return parsed.faults.clone(),
            Self::Missing(path) | Self::Unreadable { path, .. } => (path.clone(), 1),
            Self::NotText { path, line } => (path.clone(), *line),
            Self::NoPlace => (PathBuf::from(FILE), 1),
        };
        let message = self.to_string();
        let (message, help) = message.split_once("; ").unwrap_or((&message, ""));
        vec![Fault {
            file: path,
            line,
            column: 1,
            span: 0..0,
            key: String::new(),
            message: message.to_owned(),
            expected: None,
            help: Some(help.to_owned()).filter(|help| !help.is_empty()),
            server: None,
            severity: Severity::Fatal,
        }]
    }
}

/// Our directory below what an XDG variable names on any platform, else at the platform's own place.
fn place(xdg: &str, own: impl Fn(&directories::ProjectDirs) -> PathBuf) -> Option<PathBuf> {
    let named = variable(xdg).map(PathBuf::from).filter(|path| path.is_absolute());
    let named = named.map(|path| path.join("mcp-proxy"));
    named.or_else(|| directories::ProjectDirs::from("", "", "mcp-proxy").map(|dirs| own(&dirs)))
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn summary(faults: &[Fault]) -> String {
    let mut lines: Vec<_> =
        faults.iter().filter(|fault| fault.severity == Severity::Fatal).map(Fault::to_string).collect();
    if lines.is_empty() {
        lines.push("the configuration has faults".to_owned());
    }
    lines.join("\n")
}
