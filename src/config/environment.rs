//! What a child gets of our environment, and where its program is looked for.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::expand::Program;
use super::types::InheritEnv;

/// Why a program can't be started; a restart can't mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// It is nowhere.
    #[error("the command {command:?} was not found; looked in {}; install it, or write its whole path as command", list(.looked_in))]
    NotFound {
        /// As the configuration names it.
        command: String,
        /// The directories, or the one path, where it was looked for.
        looked_in: Vec<PathBuf>,
    },
    /// It is there, but may not be executed.
    #[error(
        "the command {path:?} is not executable; make it so with \"chmod +x\", or start it through its interpreter"
    )]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// The working directory isn't there, which systems report as if the program weren't.
    #[error("the working directory {path:?} does not exist; create it, or change cwd")]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
}

/// Names that every child gets; a `*` at the end stands for any rest.
const BASICS: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LC_*",
    "TZ",
    "TMPDIR",
    "XDG_*",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];

/// Windows' own necessary ones; without them programs find neither their libraries nor their user.
const WINDOWS_BASICS: &[&str] = &[
    "ALLUSERSPROFILE",
    "APPDATA",
    "COMMONPROGRAMFILES",
    "COMMONPROGRAMFILES(X86)",
    "COMMONPROGRAMW6432",
    "COMPUTERNAME",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "NUMBER_OF_PROCESSORS",
    "OS",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "PROGRAMW6432",
    "PSMODULEPATH",
    "PUBLIC",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERDOMAIN",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// Directories that systems put onto `PATH` by themselves. A `PATH` of nothing else is bare: no shell of a person set
/// it up, as it happens when a host is started from a desktop.
const SYSTEM_PLACES: &[&str] = &[
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/games",
    "/usr/local/games",
    "/snap/bin",
    "/var/lib/snapd/snap/bin",
    "/System/Cryptexes/App/usr/bin",
    "/Library/Apple/usr/bin",
    "/usr/lib/wsl/lib",
];

/// The environment of a child: what it inherits, then its own variables, which win.
///
/// `PATH` is completed with the `usual` places (see [`usual_places`]) if what it inherits is bare. They come last, so
/// that no program changes that is found without them; a `PATH` among the child's own variables stays as it is.
pub fn child_environment(
    host: &[(OsString, OsString)],
    program: &Program,
    usual: &[PathBuf],
) -> Vec<(OsString, OsString)> {
    let inherits = |name: &OsStr| {
        let name = name.to_string_lossy();
        match &program.inherit_env {
            InheritEnv::All => true,
            InheritEnv::Basics => is_basic(&name),
            InheritEnv::Also(also) => is_basic(&name) || also.iter().any(|other| same_name(other, &name)),
        }
    };
    let mut environment: Vec<(OsString, OsString)> = host.iter().filter(|(name, _)| inherits(name)).cloned().collect();
    complete_path(&mut environment, usual);
    for (name, value) in &program.env {
        environment.retain(|(other, _)| !same_name(&other.to_string_lossy(), name));
        environment.push((name.into(), value.into()));
    }
    environment
}

/// The directories of a user that exist, where programs such as `npx` and `uvx` are mostly found.
pub fn usual_places(home: Option<&Path>) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(home) = home {
        places.extend(
            [".local/bin", "bin", ".cargo/bin", ".bun/bin", ".deno/bin", ".volta/bin", "go/bin"]
                .map(|dir| home.join(dir)),
        );
        places.extend(current_node(home));
        places.push(home.join(".local/share/fnm/aliases/default/bin"));
        places.extend(
            [".local/share/mise/shims", ".asdf/shims", ".pyenv/shims", ".rbenv/shims"].map(|dir| home.join(dir)),
        );
        if cfg!(target_os = "macos") {
            places.push(home.join("Library/pnpm"));
        }
        places.push(home.join(".local/share/pnpm"));
        places.push(home.join(".nix-profile/bin"));
        if cfg!(windows) {
            places.extend(["scoop/shims", "AppData/Roaming/npm"].map(|dir| home.join(dir)));
        }
    }
    if cfg!(unix) {
        let shared = ["/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/usr/local/bin", "/opt/local/bin"];
        places.extend(shared.map(PathBuf::from));
    }
    places.retain(|place| place.is_dir());
    places
}

/// Finds the program of a child on the `PATH` that the child will have.
///
/// A command with a separator in it is a path, relative to the child's working directory; `cwd` is that directory, or
/// `None` for ours.
pub fn find_program(command: &str, path: Option<&OsStr>, cwd: Option<&Path>) -> Result<PathBuf, ProgramError> {
    if let Some(cwd) = cwd.filter(|cwd| !cwd.is_dir()) {
        return Err(ProgramError::NoDirectory { path: cwd.to_owned() });
    }
    let separators: &[char] = if cfg!(windows) { &['/', '\\', ':'] } else { &['/'] };
    let (directories, looked_in) = if command.contains(separators) {
        let direct = cwd.unwrap_or(Path::new("")).join(command);
        (vec![PathBuf::new()], vec![direct])
    } else {
        // An empty entry means the current directory, which is the last place to start programs from.
        let mut directories: Vec<PathBuf> = Vec::new();
        for directory in path.into_iter().flat_map(std::env::split_paths) {
            // Many shells put the same one there twice.
            if !directory.as_os_str().is_empty() && !directories.contains(&directory) {
                directories.push(directory);
            }
        }
        (directories.clone(), directories)
    };
    let direct = looked_in.first().filter(|_| command.contains(separators)).cloned();
    let mut forbidden = None;
    for directory in directories {
        let base = direct.clone().unwrap_or_else(|| cwd.unwrap_or(Path::new("")).join(directory).join(command));
        for candidate in with_extensions(&base) {
            match usable(&candidate) {
                Usable::Yes => return Ok(candidate),
                Usable::Forbidden => forbidden = forbidden.or(Some(candidate)),
                Usable::Missing => {}
            }
        }
    }
    match forbidden {
        Some(path) => Err(ProgramError::NotExecutable { path }),
        None => Err(ProgramError::NotFound { command: command.to_owned(), looked_in }),
    }
}

enum Usable {
    Yes,
    Forbidden,
    Missing,
}

fn is_basic(name: &str) -> bool {
    let matches = |basic: &str| match basic.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => same_name(basic, name),
    };
    BASICS.iter().any(|basic| matches(basic)) || (cfg!(windows) && WINDOWS_BASICS.iter().any(|basic| matches(basic)))
}

/// Whether two names are one variable; Windows ignores their case.
fn same_name(a: &str, b: &str) -> bool {
    if cfg!(windows) { a.eq_ignore_ascii_case(b) } else { a == b }
}

fn complete_path(environment: &mut Vec<(OsString, OsString)>, usual: &[PathBuf]) {
    let at = environment.iter().position(|(name, _)| same_name(&name.to_string_lossy(), "PATH"));
    let path = at.map(|at| environment[at].1.clone()).unwrap_or_default();
    let mut entries: Vec<PathBuf> = if path.is_empty() { Vec::new() } else { std::env::split_paths(&path).collect() };
    if !is_bare(&entries) {
        return;
    }
    if entries.is_empty() && cfg!(unix) {
        entries.extend(["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    }
    let missing: Vec<PathBuf> = usual.iter().filter(|place| !entries.contains(place)).cloned().collect();
    entries.extend(missing);
    // A place with a separator in its name can't be on a PATH at all; then it stays as it was.
    let Ok(completed) = std::env::join_paths(entries) else { return };
    match at {
        Some(at) => environment[at].1 = completed,
        None => environment.push(("PATH".into(), completed)),
    }
}

fn is_bare(entries: &[PathBuf]) -> bool {
    if cfg!(windows) {
        // Windows gives every program the user's PATH, so only a missing one is bare.
        return entries.is_empty();
    }
    entries.iter().all(|entry| SYSTEM_PLACES.iter().any(|place| Path::new(place) == entry))
}

/// The `bin` of the Node version that nvm uses by default, else of the newest.
fn current_node(home: &Path) -> Option<PathBuf> {
    let nvm = home.join(".nvm");
    let mut versions: Vec<(Vec<u64>, PathBuf)> = std::fs::read_dir(nvm.join("versions/node"))
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((version(entry.file_name().to_str()?)?, entry.path().join("bin")))
        })
        .collect();
    versions.sort();
    let wanted = std::fs::read_to_string(nvm.join("alias/default")).ok().and_then(|alias| version(alias.trim()));
    let default =
        versions.iter().rev().find(|(version, _)| wanted.as_ref().is_some_and(|wanted| version.starts_with(wanted)));
    default.or(versions.last()).map(|(_, bin)| bin.clone())
}

/// "v20.11.1" or "20".
fn version(text: &str) -> Option<Vec<u64>> {
    text.strip_prefix('v').unwrap_or(text).split('.').map(|part| part.parse().ok()).collect()
}

/// On Windows a program's name goes without its extension, and npm's programs are `.cmd` files.
#[cfg(windows)]
fn with_extensions(base: &Path) -> Vec<PathBuf> {
    let extensions = std::env::var("PATHEXT").unwrap_or_else(|_| ".COM;.EXE;.BAT;.CMD".to_owned());
    let mut candidates = Vec::new();
    if base.extension().is_some() {
        candidates.push(base.to_owned());
    }
    for extension in extensions.split(';').filter(|extension| !extension.is_empty()) {
        let mut candidate = base.as_os_str().to_owned();
        candidate.push(extension.to_ascii_lowercase());
        candidates.push(candidate.into());
    }
    candidates
}

#[cfg(not(windows))]
fn with_extensions(base: &Path) -> [PathBuf; 1] {
    [base.to_owned()]
}

fn usable(path: &Path) -> Usable {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && executable(path) => Usable::Yes,
        Ok(metadata) if metadata.is_file() => Usable::Forbidden,
        _ => Usable::Missing,
    }
}

#[cfg(unix)]
fn executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(not(unix))]
fn executable(_path: &Path) -> bool {
    true
}

fn list(places: &[PathBuf]) -> String {
    if places.is_empty() {
        return "no directory, since PATH is empty".to_owned();
    }
    places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
}
