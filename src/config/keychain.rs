//! The system's keyring, with a time limit: it may ask a person, or wait for a service that isn't there.

use std::sync::mpsc;
use std::time::Duration;

/// Longest wait for the keyring.
const PATIENCE: Duration = Duration::from_secs(10);
/// Under which all entries of ours are kept.
const SERVICE: &str = "mcp-proxy";

/// The secret of that name; `None`: there is none. Blocks for at most 10 s.
pub fn keyring_get(name: &str) -> Result<Option<String>, String> {
    #[cfg(any(debug_assertions, feature = "test-fakes"))]
    if let Some(dir) = std::env::var_os("MCP_PROXY_TEST_KEYRING") {
        let name = name.to_owned();
        return in_time(move || fake(std::path::Path::new(&dir), &name));
    }
    with_entry(name, |entry| match entry.get_password() {
        Ok(secret) => Ok(Some(secret)),
        Err(keyring::Error::NoEntry) => Ok(None),
        Err(error) => Err(error.to_string()),
    })
}

/// Keeps a secret under a name. Blocks for at most 10 s.
pub fn keyring_set(name: &str, secret: String) -> Result<(), String> {
    with_entry(name, move |entry| entry.set_password(&secret).map_err(|error| error.to_string()))
}

/// Removes a secret; false: there was none. Blocks for at most 10 s.
pub fn keyring_delete(name: &str) -> Result<bool, String> {
    with_entry(name, |entry| match entry.delete_credential() {
        Ok(()) => Ok(true),
        Err(keyring::Error::NoEntry) => Ok(false),
        Err(error) => Err(error.to_string()),
    })
}

/// Works on an entry, in time.
fn with_entry<T: Send + 'static>(
    name: &str,
    work: impl FnOnce(keyring::Entry) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let name = name.to_owned();
    in_time(move || keyring::Entry::new(SERVICE, &name).map_err(unavailable).and_then(work))
}

/// Works in a thread of its own, which is left behind if it takes too long.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::Builder::new().name("keyring".to_owned()).spawn(move || {
        // Nobody may be waiting any more.
        drop(sender.send(work()));
    });
    thread.map_err(|error| format!("can't start a thread for the keyring: {error}"))?;
    match receiver.recv_timeout(PATIENCE) {
        Ok(done) => done,
        Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("the keyring gave no answer for {} s", PATIENCE.as_secs())),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err("the keyring's library failed".to_owned()),
    }
}

/// A keyring for tests, which asks a person: it notes each question in a file, and waits until the secret is in another.
#[cfg(any(debug_assertions, feature = "test-fakes"))]
fn fake(dir: &std::path::Path, name: &str) -> Result<Option<String>, String> {
    use std::io::Write as _;
    let mut asked = std::fs::OpenOptions::new().append(true).create(true).open(dir.join("asked"));
    asked.as_mut().map_err(|error| error.to_string())?.write_all(b"?").map_err(|error| error.to_string())?;
    loop {
        if let Ok(secret) = std::fs::read_to_string(dir.join(name)) {
            return Ok(Some(secret));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn unavailable(error: keyring::Error) -> String {
    match (error, keyring::Entry::store_status()) {
        (keyring::Error::NoDefaultStore, Err(why)) => format!("this system's keyring is not available: {why}"),
        (error, _) => error.to_string(),
    }
}
