//! Where the sockets are, and whether a directory may be trusted.

use std::path::PathBuf;

/// The socket of a running proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Found {
    /// Its process.
    pub pid: u32,
    /// Where it listens.
    pub path: PathBuf,
}

#[cfg(unix)]
pub use self::unix::*;
#[cfg(windows)]
pub use self::windows::*;

#[cfg(unix)]
mod unix {
    use std::ffi::OsString;
    use std::fs::{self, DirBuilder};
    use std::io;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
    use std::path::{Path, PathBuf};

    use super::Found;

    /// What the places depend on; a value, so that tests can make their own.
    #[derive(Clone, Debug)]
    pub struct Surroundings {
        /// `$XDG_RUNTIME_DIR`.
        pub runtime_dir: Option<OsString>,
        /// Where the system keeps runtime directories.
        pub run_user: PathBuf,
        /// The temporary directory.
        pub temp: PathBuf,
        /// Where it usually is.
        pub usual_temp: PathBuf,
        /// Our user.
        pub uid: u32,
    }

    /// Why no socket can be made in a directory.
    #[derive(Debug, thiserror::Error)]
    pub enum PlaceError {
        /// It is a link, or no directory.
        #[error("{} is no directory of its own (a link is not followed); remove it", .0.display())]
        NoDirectory(PathBuf),
        /// Somebody else owns it.
        #[error("{} belongs to user {owner}, not to us; remove it, or set XDG_RUNTIME_DIR", path.display())]
        Foreign {
            /// The directory.
            path: PathBuf,
            /// Its owner.
            owner: u32,
        },
        /// Others may enter it.
        #[error("{} has mode {mode:04o} and must have 0700; correct it with chmod 700", path.display())]
        Open {
            /// The directory.
            path: PathBuf,
            /// Its mode.
            mode: u32,
        },
        /// The system refuses it.
        #[error("{} can't be used: {error}", path.display())]
        System {
            /// The directory.
            path: PathBuf,
            /// Why.
            #[source]
            error: io::Error,
        },
    }

    // === impl Surroundings ===

    impl Surroundings {
        /// Those of this process.
        pub fn current() -> Self {
            Self {
                runtime_dir: std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()),
                run_user: system("/run/user"),
                temp: std::env::temp_dir(),
                usual_temp: system("/tmp"),
                uid: rustix::process::geteuid().as_raw(),
            }
        }

        /// The directory that our own socket goes to.
        pub fn own(&self) -> PathBuf {
            let named = self.runtime_dir.as_ref().map(PathBuf::from).filter(|path| self.is_ours(path));
            let given =
                named.or_else(|| Some(self.run_user.join(self.uid.to_string())).filter(|path| self.is_ours(path)));
            given.map_or_else(|| self.in_temp(&self.temp), |dir| dir.join("mcp-proxy"))
        }

        /// All directories that a proxy of ours may have taken, for some hosts pass no variables.
        pub fn all(&self) -> Vec<PathBuf> {
            let named = self.runtime_dir.as_ref().map(|dir| Path::new(dir).join("mcp-proxy"));
            let usual = self.run_user.join(self.uid.to_string()).join("mcp-proxy");
            let mut all: Vec<PathBuf> = named.into_iter().collect();
            for dir in [usual, self.in_temp(&self.temp), self.in_temp(&self.usual_temp)] {
                if !all.contains(&dir) {
                    all.push(dir);
                }
            }
            all
        }

        fn in_temp(&self, temp: &Path) -> PathBuf {
            temp.join(format!("mcp-proxy-{}", self.uid))
        }

        /// An absolute directory that we own: a variable that came along from another user counts for nothing.
        fn is_ours(&self, path: &Path) -> bool {
            path.is_absolute() && fs::metadata(path).is_ok_and(|data| data.is_dir() && data.uid() == self.uid)
        }

        /// Refuses a directory that others could enter or that is not what it seems.
        pub fn judge(&self, path: &Path) -> Result<(), PlaceError> {
            let data = fs::symlink_metadata(path).map_err(|error| PlaceError::System { path: path.into(), error })?;
            let mode = data.permissions().mode() & 0o7777;
            if !data.file_type().is_dir() {
                Err(PlaceError::NoDirectory(path.into()))
            } else if data.uid() != self.uid {
                Err(PlaceError::Foreign { path: path.into(), owner: data.uid() })
            } else if mode & 0o077 != 0 {
                Err(PlaceError::Open { path: path.into(), mode })
            } else {
                Ok(())
            }
        }

        /// Makes the directory if it isn't there, and judges it.
        pub fn make(&self, path: &Path) -> Result<(), PlaceError> {
            match DirBuilder::new().mode(0o700).create(path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(PlaceError::System { path: path.into(), error }),
            }
            self.judge(path)
        }
    }

    /// A directory of the system. In builds for tests `MCP_PROXY_TEST_SYSTEM` names one that it is looked for in, so that
    /// no other proxy of the machine is seen.
    fn system(path: &str) -> PathBuf {
        #[cfg(any(debug_assertions, feature = "test-fakes"))]
        if let Some(root) = std::env::var_os("MCP_PROXY_TEST_SYSTEM") {
            return Path::new(&root).join(path.trim_start_matches('/'));
        }
        PathBuf::from(path)
    }

    /// The sockets of a directory, dead ones included.
    pub fn sockets(dir: &Path) -> Vec<Found> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let pid = entry.file_name().to_str()?.strip_suffix(".sock")?.parse().ok()?;
                Some(Found { pid, path: entry.path() })
            })
            .collect();
        found.sort();
        found
    }

    /// The sockets in all directories that can be trusted.
    pub fn find() -> Vec<Found> {
        let surroundings = Surroundings::current();
        let dirs = surroundings.all().into_iter().filter(|dir| surroundings.judge(dir).is_ok());
        let mut found: Vec<_> = dirs.flat_map(|dir| sockets(&dir)).collect();
        found.sort();
        found.dedup_by_key(|found| found.pid);
        found
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn surroundings(root: &Path) -> Surroundings {
            Surroundings {
                runtime_dir: Some(root.join("run").into()),
                run_user: root.join("users"),
                temp: root.join("tmp"),
                usual_temp: root.join("tmp"),
                uid: rustix::process::geteuid().as_raw(),
            }
        }

        #[test]
        fn the_place_is_the_variables_the_systems_or_the_temporary_one() {
            let root = tempfile::tempdir().expect("a directory");
            let mut places = surroundings(root.path());
            let uid = places.uid.to_string();
            let temporary = root.path().join(format!("tmp/mcp-proxy-{uid}"));
            assert_eq!(places.own(), temporary, "nothing else is there");
            fs::create_dir_all(root.path().join("users").join(&uid)).expect("made");
            assert_eq!(places.own(), root.path().join("users").join(&uid).join("mcp-proxy"));
            fs::create_dir(root.path().join("run")).expect("made");
            assert_eq!(places.own(), root.path().join("run/mcp-proxy"));
            places.runtime_dir = Some("relative".into());
            assert_eq!(places.own(), root.path().join("users").join(&uid).join("mcp-proxy"));
            assert!(places.all().contains(&temporary));
        }

        #[test]
        fn a_directory_that_others_could_enter_or_that_is_a_link_is_refused() {
            let root = tempfile::tempdir().expect("a directory");
            let places = surroundings(root.path());
            let dir = root.path().join("mcp-proxy");
            places.make(&dir).expect("ours");
            assert_eq!(fs::metadata(&dir).expect("there").permissions().mode() & 0o777, 0o700);
            places.make(&dir).expect("it may be there already");
            for mode in [0o755, 0o710, 0o702] {
                fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("set");
                assert!(matches!(places.make(&dir), Err(PlaceError::Open { mode: told, .. }) if told == mode));
            }
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("set");
            let link = root.path().join("link");
            std::os::unix::fs::symlink(&dir, &link).expect("linked");
            assert!(matches!(places.make(&link), Err(PlaceError::NoDirectory(_))));
            let foreign = Surroundings { uid: places.uid + 1, ..places };
            assert!(matches!(foreign.judge(&dir), Err(PlaceError::Foreign { .. })));
        }
    }
}

#[cfg(windows)]
mod windows {
    use super::Found;

    /// Where the system keeps named pipes.
    const PIPES: &str = r"\\.\pipe\";
    const NAME: &str = "mcp-proxy-";

    /// The pipe of a process.
    pub fn pipe_of(pid: u32) -> String {
        format!("{PIPES}{NAME}{pid}")
    }

    /// The pipes of all running proxies.
    pub fn find() -> Vec<Found> {
        let entries = std::fs::read_dir(PIPES).into_iter().flatten().flatten();
        let mut found: Vec<_> = entries
            .filter_map(|entry| {
                let pid = entry.file_name().to_str()?.strip_prefix(NAME)?.parse().ok()?;
                Some(Found { pid, path: pipe_of(pid).into() })
            })
            .collect();
        found.sort();
        found
    }
}
