//! The URIs that the host sees: the child's own with the server's prefix in the scheme, and back (`DESIGN.md`
//! chapter 5, `PROTOCOL.md` 6.6).
//!
//! `SCHEME:rest` ⇄ `PREFIX+SCHEME:rest`, `rest` ⇄ `PREFIX+:rest`, `ui://rest` ⇄ `ui://PREFIX/rest`; `http:` and
//! `https:` stay, and a server without prefix keeps everything. Templates go the same way, since only literal text is
//! put before them.

pub mod template;

pub use template::{Score, Template};

/// The scheme of MCP Apps, which hosts look at.
const UI: &str = "ui://";

/// The server's prefix made safe for a scheme: lower case, `_` becomes `-`, an `s` before a leading digit.
pub fn safe_prefix(prefix: &str) -> String {
    crate::config::scheme_prefix(prefix)
}

/// The URI or template that the host sees.
pub fn expose_uri(safe_prefix: &str, uri: &str) -> String {
    if safe_prefix.is_empty() || is_web(uri) {
        return uri.to_owned();
    }
    if let Some(rest) = uri.strip_prefix(UI) {
        return format!("{UI}{safe_prefix}/{rest}");
    }
    match scheme(uri) {
        Some(_) => format!("{safe_prefix}+{uri}"),
        None => format!("{safe_prefix}+:{uri}"),
    }
}

/// The URI that the child knows; `None` if this one does not carry the prefix.
///
/// `PREFIX+http:` and `PREFIX+https:` are never ours: `git+https://…` is a URI like any other. A server without prefix
/// carries none, so that nothing is taken away.
pub fn original_uri(safe_prefix: &str, exposed: &str) -> Option<String> {
    if safe_prefix.is_empty() {
        return None;
    }
    if let Some(rest) = exposed.strip_prefix(UI) {
        let rest = rest.strip_prefix(safe_prefix)?.strip_prefix('/')?;
        return Some(format!("{UI}{rest}"));
    }
    let rest = exposed.strip_prefix(safe_prefix)?.strip_prefix('+')?;
    match rest.strip_prefix(':') {
        // Whatever stands there: a template without scheme may have been filled in with one.
        Some(bare) => Some(bare.to_owned()),
        None => (scheme(rest).is_some() && !is_web(rest) && !rest.starts_with(UI)).then(|| rest.to_owned()),
    }
}

/// Whether the host may fetch it itself, so that it stays as it is.
pub fn is_web(uri: &str) -> bool {
    scheme(uri).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
}

/// The scheme as RFC 3986 spells one.
fn scheme(uri: &str) -> Option<&str> {
    let (scheme, _) = uri.split_once(':')?;
    let lawful = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    lawful.then_some(scheme)
}
