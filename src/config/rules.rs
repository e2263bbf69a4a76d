//! What a text in the file may be, rule by rule.

use super::fault::{Problem, nearest};
use super::reference;

/// The rule of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Any,
    /// Any text without a line end.
    Line,
    NonEmpty,
    Separator,
    /// The key of a server or profile; that it holds no separator is checked where the separator is known.
    ServerKey,
    /// As a key, or empty.
    Prefix,
    LogFilter,
    Glob,
    EnvName,
    HeaderName,
    /// A text with references.
    Reference,
    Command,
    /// A path with references.
    Path,
    Url,
    HeaderValue,
}

/// Longest key of a server, and longest prefix.
const LONGEST_KEY: usize = 32;
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Compiles a glob as all filters use it: `*` also matches `/`, and `\` escapes on every platform.
pub fn glob(pattern: &str) -> Result<globset::Glob, globset::Error> {
    globset::GlobBuilder::new(pattern).literal_separator(false).backslash_escape(true).build()
}

impl Rule {
    /// What such a text is, for messages: "expected …".
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Self::Any | Self::Reference => "a string",
            Self::Line => "a string of one line",
            Self::NonEmpty => "a string that is not empty",
            Self::Separator => "1 to 4 of \"_\" and \"-\"",
            Self::ServerKey => "1 to 32 letters, digits, \"_\" and \"-\", with a letter or digit at both ends",
            Self::Prefix => "\"\", or 1 to 32 letters, digits, \"_\" and \"-\", with a letter or digit at both ends",
            Self::LogFilter => {
                "a level (error, warn, info, debug, trace, off) or a filter such as \"info,mcp_proxy=debug\""
            }
            Self::Glob => "a glob such as \"get_*\"",
            Self::EnvName => "the name of an environment variable",
            Self::HeaderName => "the name of an HTTP header",
            Self::Command => "the name or path of a program",
            Self::Path => "a path",
            Self::Url => "an http:// or https:// URL",
            Self::HeaderValue => "the value of an HTTP header",
        }
    }

    /// The same for the schema, where a pattern can say it.
    pub(crate) fn pattern(self) -> Option<&'static str> {
        match self {
            Self::Line => Some("^[^\\r\\n]*$"),
            Self::NonEmpty | Self::Command | Self::Path => Some("."),
            Self::Separator => Some("^[_-]{1,4}$"),
            Self::ServerKey => Some("^[A-Za-z0-9]([A-Za-z0-9_-]{0,30}[A-Za-z0-9])?$"),
            Self::Prefix => Some("^([A-Za-z0-9]([A-Za-z0-9_-]{0,30}[A-Za-z0-9])?)?$"),
            Self::EnvName => Some("^[^=]+$"),
            Self::HeaderName => Some("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"),
            Self::Url => Some("^(https?://[^\\s]+|.*\\$\\{.*)$"),
            Self::HeaderValue => Some("^[^\\r\\n]*$"),
            Self::Any | Self::LogFilter | Self::Glob | Self::Reference => None,
        }
    }

    /// Whether such a text may be a secret, so that no message quotes it.
    pub(crate) fn has_references(self) -> bool {
        matches!(self, Self::Reference | Self::Command | Self::Path | Self::Url | Self::HeaderValue)
    }

    /// Judges a text.
    pub(crate) fn check(self, text: &str) -> Result<(), Problem> {
        if self.has_references() {
            if text.contains('\0') {
                return Err(Problem::new("the text holds a NUL character").help("remove it"));
            }
            reference::check(text)?;
        }
        match self {
            Self::Any | Self::Reference => Ok(()),
            Self::Line if text.contains(['\n', '\r']) => Err(Problem::mismatch(self.expected(), "a line end in it")),
            Self::Line => Ok(()),
            Self::NonEmpty if text.is_empty() => Err(Problem::mismatch(self.expected(), "\"\"")),
            Self::NonEmpty => Ok(()),
            Self::Separator => self.separator(text),
            Self::ServerKey => self.key(text),
            Self::Prefix if text.is_empty() => Ok(()),
            Self::Prefix => self.key(text),
            Self::LogFilter => self.log_filter(text),
            Self::Glob => {
                match glob(text) {
                    _ if text.is_empty() => Err(Problem::mismatch(self.expected(), "\"\"")
                        .help("an empty glob matches nothing; \"*\" matches all")),
                    Ok(_) => Ok(()),
                    Err(error) => Err(Problem::mismatch(self.expected(), &format!("{text:?}: {}", error.kind()))
                        .help("write \"\\\\\" before a special character that is meant as itself")),
                }
            }
            Self::EnvName if text.is_empty() || text.contains(['=', '\0']) => {
                Err(Problem::mismatch(self.expected(), "one with \"=\" in it, or nothing")
                    .help("write NAME = \"value\""))
            }
            Self::EnvName => Ok(()),
            Self::HeaderName => {
                let lawful = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
                if !text.is_empty() && text.bytes().all(lawful) {
                    return Ok(());
                }
                Err(Problem::mismatch(self.expected(), "one with other characters than letters, digits and \"-\"")
                    .help("write Name = \"value\", without a colon"))
            }
            Self::Command if text.trim().is_empty() => {
                Err(Problem::mismatch(self.expected(), "\"\"").help("name the program, such as \"npx\""))
            }
            Self::Command => Ok(()),
            Self::Path if text.trim().is_empty() => {
                Err(Problem::mismatch(self.expected(), "\"\"").help("leave the key out for our own working directory"))
            }
            Self::Path => Ok(()),
            Self::Url => self.url(text),
            Self::HeaderValue if text.contains(['\n', '\r']) => {
                Err(Problem::mismatch(self.expected(), "a line end in it").help("a header is one line"))
            }
            Self::HeaderValue => Ok(()),
        }
    }

    fn separator(self, text: &str) -> Result<(), Problem> {
        if (1..=4).contains(&text.len()) && text.bytes().all(|b| b == b'_' || b == b'-') {
            return Ok(());
        }
        Err(Problem::mismatch(self.expected(), &format!("{text:?}"))
            .help("leave it out for \"__\"; hosts refuse other characters in tool names"))
    }

    fn key(self, text: &str) -> Result<(), Problem> {
        let inside = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = text.as_bytes();
        if bytes.len() <= LONGEST_KEY && bytes.iter().copied().all(inside) && ends(bytes.first()) && ends(bytes.last())
        {
            return Ok(());
        }
        let problem = Problem::mismatch(self.expected(), &format!("{text:?}"));
        let mut better: String =
            text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
        better.truncate(LONGEST_KEY);
        let better = better.trim_matches(['-', '_']);
        Err(if better.is_empty() { problem } else { problem.help(format!("write {better:?}")) })
    }

    fn log_filter(self, text: &str) -> Result<(), Problem> {
        let bad = |found: &str| Problem::mismatch(self.expected(), &format!("{found:?}"));
        for part in text.split(',').map(str::trim) {
            let lower = part.to_ascii_lowercase();
            if part.is_empty() || LEVELS.contains(&lower.as_str()) {
                continue;
            }
            // A lone word is a target in the filter's syntax, so a misspelt level would silence all but that target.
            let meant = match lower.as_str() {
                "warning" => Some("warn"),
                "verbose" => Some("debug"),
                "none" => Some("off"),
                _ => nearest(part, LEVELS),
            };
            if let (Some(meant), false) = (meant, part.contains(['=', ':', '['])) {
                return Err(bad(part).help(format!("write {meant:?}")));
            }
        }
        tracing_subscriber::EnvFilter::builder()
            .parse(text)
            .map(drop)
            .map_err(|_| bad(text).help("write TARGET=LEVEL with one of these levels, and a comma between two of them"))
    }

    fn url(self, text: &str) -> Result<(), Problem> {
        let lower = text.to_ascii_lowercase();
        let rest = lower.strip_prefix("http://").or_else(|| lower.strip_prefix("https://"));
        let host = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#']));
        // What stands behind a reference is only known when it is expanded.
        let unknown = text.starts_with("${");
        if (host || unknown) && !text.contains(char::is_whitespace) {
            return Ok(());
        }
        // The text itself is not quoted: a URL may hold a password or a token.
        let found =
            if rest.is_some() { "one without a host, or with a blank in it" } else { "a text without that scheme" };
        Err(Problem::mismatch(self.expected(), found).help("write it in full, such as \"https://mcp.example.com/mcp\""))
    }
}
