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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prefixes_are_made_safe_for_a_scheme() {
        for (prefix, safe) in [("gh", "gh"), ("Team_A", "team-a"), ("3d", "s3d"), ("", "")] {
            assert_eq!(safe_prefix(prefix), safe);
        }
    }

    #[test]
    fn uris_carry_the_prefix_and_lose_it_again() {
        for (own, exposed) in [
            ("file:///a%20b", "gh+file:///a%20b"),
            ("a+b:c", "gh+a+b:c"),
            ("notes", "gh+:notes"),
            ("a/b:c", "gh+:a/b:c"),
            (":x", "gh+::x"),
            ("", "gh+:"),
            ("ui://form/1", "ui://gh/form/1"),
            ("ui:form", "gh+ui:form"),
            ("docs://{id}{?q}", "gh+docs://{id}{?q}"),
            ("{+path}", "gh+:{+path}"),
            ("httpx://a", "gh+httpx://a"),
        ] {
            assert_eq!(expose_uri("gh", own), exposed);
            assert_eq!(original_uri("gh", exposed).as_deref(), Some(own), "{exposed}");
            assert_eq!(expose_uri("", own), own);
            assert_eq!(original_uri("", exposed), None);
        }
        for web in ["http://a/b", "https://a", "HTTPS://a"] {
            assert_eq!(expose_uri("gh", web), web);
        }
        for foreign in
            ["gh+https://a", "gh+http:x", "file:///a", "g+file:a", "ui://ghx/a", "ui://gh", "gh+ui://x", "gh:x"]
        {
            assert_eq!(original_uri("gh", foreign), None, "{foreign}");
        }
        // A template without scheme may be filled in with one.
        assert_eq!(original_uri("gh", "gh+:file:///x").as_deref(), Some("file:///x"));
    }

    proptest! {
        #[test]
        fn every_uri_comes_back(prefix in "[a-z][a-z0-9-]{0,5}", uri in "(ui|file|x+y|http|https|HTTP)?:?/{0,2}[a-z:/+{}?é]{0,12}") {
            let exposed = expose_uri(&prefix, &uri);
            let back = original_uri(&prefix, &exposed);
            let expected = if is_web(&uri) { None } else { Some(uri.clone()) };
            prop_assert_eq!(back, expected);
            prop_assert!(!is_web(&uri) || exposed == uri);
        }

        #[test]
        fn no_two_servers_share_a_uri(a in "[a-z][a-z0-9-]{0,3}", b in "[a-z][a-z0-9-]{0,3}", x in "(ui://|s:|)[a-b/:+]{0,6}", y in "(ui://|s:|)[a-b/:+]{0,6}") {
            prop_assume!(a != b);
            prop_assert_ne!(expose_uri(&a, &x), expose_uri(&b, &y));
        }
    }
}
