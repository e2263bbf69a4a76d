//! Where hosts' files lie on this machine.
//!
//! A path template begins with `~` (the home directory) or with `$VAR` (a variable's value; the template is skipped when
//! it is not set). A `*` in one component stands for whatever is there. A template whose variable is set is final: what
//! follows it is not looked at, unless that variable names one of the operating system's own places.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Host;

/// An operating system, as far as places go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// macOS.
    MacOs,
    /// Linux, and every other Unix.
    Linux,
    /// Windows.
    Windows,
}

/// What of the process' surroundings is looked at; a value, so that tests can make their own.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The operating system.
    pub platform: Platform,
    /// The home directory.
    pub home: PathBuf,
    /// The environment.
    pub vars: BTreeMap<OsString, OsString>,
}

// === impl Platform ===

impl Platform {
    /// The one that this program runs on.
    pub fn current() -> Self {
        if cfg!(target_os = "macos") {
            Self::MacOs
        } else if cfg!(windows) {
            Self::Windows
        } else {
            Self::Linux
        }
    }
}

// === impl Surroundings ===

impl Surroundings {
    /// Takes them from the process; `None` if there is no home directory.
    pub fn of_process() -> Option<Self> {
        let home = directories::BaseDirs::new()?.home_dir().to_owned();
        Some(Self { platform: Platform::current(), home, vars: std::env::vars_os().collect() })
    }

    /// A variable that is set and not empty.
    pub fn var(&self, name: &str) -> Option<&OsString> {
        self.vars.get(std::ffi::OsStr::new(name)).filter(|value| !value.is_empty())
    }

    /// The host's file for the person, as it is, or where it would be created; `None` for a host without one.
    pub fn host_file(&self, host: &Host) -> Option<PathBuf> {
        let candidates = self.resolve(self.templates(host));
        candidates.iter().find(|path| path.exists()).or(candidates.last_default()).cloned()
    }

    /// All files that an import of this host reads and that exist, without repeats.
    pub fn host_files_to_read(&self, host: &Host) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        let own = self.host_file(host).into_iter();
        for path in own.chain(host.places.also_read.iter().flat_map(|template| self.expand(template))) {
            if path.is_file() && !found.contains(&path) {
                found.push(path);
            }
        }
        found
    }

    /// Looks for a program on `PATH`.
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        let endings: &[&str] = if self.platform == Platform::Windows { &[".exe", ".cmd", ".bat"] } else { &[""] };
        std::env::split_paths(self.var("PATH")?)
            .flat_map(|directory| endings.iter().map(move |ending| directory.join(format!("{name}{ending}"))))
            .find(|path| path.is_file())
    }

    /// A path as a person writes it: with `~` for the home directory.
    pub fn tilde(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) if !self.home.as_os_str().is_empty() => format!("~/{}", rest.display()),
            _ => path.display().to_string(),
        }
    }

    fn templates(&self, host: &Host) -> &'static [&'static str] {
        match self.platform {
            Platform::MacOs => host.places.macos,
            Platform::Linux => host.places.linux,
            Platform::Windows => host.places.windows,
        }
    }

    /// The paths of those templates that hold, in order, up to the first final one's siblings.
    fn resolve(&self, templates: &[&str]) -> Candidates {
        let mut candidates = Candidates::default();
        let mut decided: Option<&str> = None;
        for template in templates {
            let variable = variable_of(template);
            if decided.is_some() && variable != decided {
                break;
            }
            for path in self.expand(template) {
                let guessed = template.contains('*');
                candidates.paths.push(path);
                if !guessed && candidates.first.is_none() {
                    candidates.first = Some(candidates.paths.len() - 1);
                }
            }
            if variable.is_some_and(|name| self.var(name).is_some() && !OF_THE_SYSTEM.contains(&name)) {
                decided = variable;
            }
        }
        candidates
    }

    fn expand(&self, template: &str) -> Vec<PathBuf> {
        let path = if let Some(rest) = template.strip_prefix("~/") {
            self.home.join(rest)
        } else if let Some(name) = variable_of(template) {
            let Some(value) = self.var(name) else { return Vec::new() };
            let rest = template[1 + name.len()..].trim_start_matches('/');
            if rest.is_empty() { PathBuf::from(value) } else { Path::new(value).join(rest) }
        } else {
            PathBuf::from(template)
        };
        if template.contains('*') { glob(&path) } else { vec![path] }
    }
}

/// Variables that every machine of their platform has, so that they decide nothing.
const OF_THE_SYSTEM: &[&str] = &["APPDATA", "LOCALAPPDATA"];

#[derive(Default)]
struct Candidates {
    paths: Vec<PathBuf>,
    /// Where a new file goes.
    first: Option<usize>,
}

impl Candidates {
    fn iter(&self) -> impl Iterator<Item = &PathBuf> {
        self.paths.iter()
    }

    fn last_default(&self) -> Option<&PathBuf> {
        self.paths.get(self.first?)
    }
}

fn variable_of(template: &str) -> Option<&str> {
    let rest = template.strip_prefix('$')?;
    Some(rest.split('/').next().unwrap_or(rest))
}

/// Expands the `*` of one or more components, sorted.
fn glob(pattern: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let text = component.as_os_str().to_string_lossy().into_owned();
        let Some((start, end)) = text.split_once('*') else {
            for path in &mut found {
                path.push(component);
            }
            continue;
        };
        let mut next = Vec::new();
        for path in found {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            for name in entries.map(|entry| entry.file_name()) {
                let name_text = name.to_string_lossy();
                if name_text.starts_with(start)
                    && name_text.ends_with(end)
                    && name_text.len() >= start.len() + end.len()
                {
                    next.push(path.join(&name));
                }
            }
        }
        next.sort();
        found = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::by_id;

    fn surroundings(home: &Path, platform: Platform, vars: &[(&str, &Path)]) -> Surroundings {
        let vars = vars.iter().map(|(name, value)| (OsString::from(name), value.as_os_str().to_owned())).collect();
        Surroundings { platform, home: home.to_owned(), vars }
    }

    #[test]
    fn a_variable_decides_and_what_exists_is_preferred() {
        let home = tempfile::tempdir().expect("a directory");
        let home = home.path();
        let codex = by_id("codex").expect("known");
        let plain = surroundings(home, Platform::Linux, &[]);
        assert_eq!(plain.host_file(codex), Some(home.join(".codex/config.toml")));
        std::fs::create_dir_all(home.join(".codex")).expect("made");
        std::fs::write(home.join(".codex/config.toml"), "").expect("written");
        let moved = surroundings(home, Platform::Linux, &[("CODEX_HOME", &home.join("c"))]);
        assert_eq!(moved.host_file(codex), Some(home.join("c/config.toml")));

        let opencode = by_id("opencode").expect("known");
        assert_eq!(plain.host_file(opencode), Some(home.join(".config/opencode/opencode.json")));
        std::fs::create_dir_all(home.join(".config/opencode")).expect("made");
        std::fs::write(home.join(".config/opencode/opencode.jsonc"), "{}").expect("written");
        assert_eq!(plain.host_file(opencode), Some(home.join(".config/opencode/opencode.jsonc")));
    }

    #[test]
    fn a_packaged_claude_on_windows_is_found() {
        let home = tempfile::tempdir().expect("a directory");
        let home = home.path();
        let (local, roaming) = (home.join("Local"), home.join("Roaming"));
        let windows = surroundings(home, Platform::Windows, &[("LOCALAPPDATA", &local), ("APPDATA", &roaming)]);
        let claude = by_id("claude-desktop").expect("known");
        assert_eq!(windows.host_file(claude), Some(roaming.join("Claude/claude_desktop_config.json")));
        let packaged = local.join("Packages/Claude_pzs8/LocalCache/Roaming/Claude");
        std::fs::create_dir_all(&packaged).expect("made");
        std::fs::write(packaged.join("claude_desktop_config.json"), "{}").expect("written");
        assert_eq!(windows.host_file(claude), Some(packaged.join("claude_desktop_config.json")));
    }

    #[test]
    fn no_host_file_on_a_host_without_one() {
        let plain = surroundings(Path::new("/home/ada"), Platform::Linux, &[]);
        assert_eq!(plain.host_file(by_id("jetbrains-ai").expect("known")), None);
    }
}
