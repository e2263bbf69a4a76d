//! What looks like a secret, by its name or by its shape.
//!
//! Caution wins: what is taken for a secret by mistake has to be set once as a variable; what is missed stands in a file
//! that people share. No text that this module returns for display holds a value.

use std::ops::Range;

/// Beginnings that only tokens have.
const PREFIXES: &[&str] = &[
    "sk-",
    "sk_",
    "pk_live_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxs-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "eyJ",
    "npm_",
    "pypi-",
    "hf_",
    "r8_",
    "SG.",
    "dop_v1_",
    "ntn_",
    "secret_",
    "lin_api_",
    "figd_",
    "sbp_",
    "tvly-",
    "fc-",
    "gsk_",
    "nvapi-",
    "BSA",
    "pat-",
    "shpat_",
    "ATATT",
    "whsec_",
    "key-",
    "vercel_",
    "dckr_pat_",
    "PMAK-",
    "-----BEGIN",
];

/// Words in a name that make its value a secret.
const WORDS: &[&str] = &[
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASS",
    "PASSPHRASE",
    "PWD",
    "KEY",
    "KEYS",
    "APIKEY",
    "AUTH",
    "AUTHORIZATION",
    "CREDENTIAL",
    "CREDENTIALS",
    "COOKIE",
    "COOKIES",
    "BEARER",
    "PAT",
    "SIGNATURE",
    "DSN",
    "JWT",
    "PIN",
    "SESSION",
    "ACCESSKEY",
    "SECRETKEY",
    "APITOKEN",
    "AUTHTOKEN",
    "ACCESSTOKEN",
    "SASTOKEN",
];

/// Last words of a name that tell of something about a secret, not the secret.
const TAME: &[&str] = &[
    "FILE", "PATH", "DIR", "ID", "IDS", "NAME", "TYPE", "MODE", "TTL", "TIMEOUT", "ENABLED", "METHOD", "SIZE", "LIMIT",
    "COUNT", "URL", "URI", "ENDPOINT", "HOST", "PORT", "REGION", "VERSION", "FORMAT", "LENGTH", "LEVEL", "EXPIRY",
    "HEADER", "PROVIDER", "REQUIRED", "SCHEME", "STORE", "BACKEND", "DOMAIN", "SERVER", "STRATEGY",
];

/// Whether a value under this name is a secret whatever it looks like.
pub(super) fn secret_name(name: &str) -> bool {
    let words = words(name);
    let tame = words.last().is_some_and(|last| TAME.contains(&last.as_str()));
    // One word of lower case may hide several: `apikey`, `authtoken`.
    let inside = |word: &String| {
        WORDS.contains(&word.as_str())
            || ["TOKEN", "SECRET", "PASSWORD", "APIKEY"].iter().any(|part| word.len() < 24 && word.contains(part))
    };
    !tame && words.iter().any(inside)
}

/// `apiKey`, `API_KEY` and `x-api-key` as words in upper case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for c in name.chars() {
        let boundary = !c.is_ascii_alphanumeric() || (lower && c.is_ascii_uppercase());
        if boundary {
            words.push(String::new());
        }
        if c.is_ascii_alphanumeric() {
            words.last_mut().expect("one is always there").push(c.to_ascii_uppercase());
        }
        lower = c.is_ascii_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether a value under a secret's name is one: not empty, no switch, no path to a file.
pub(super) fn secret_value(value: &str) -> bool {
    let plain =
        ["", "true", "false", "yes", "no", "on", "off", "none", "null", "0", "1", "auto", "default", "basic", "bearer"];
    let path = value.starts_with('/') && value.matches('/').count() > 1 && !value.contains(['+', '='])
        || value.starts_with("~/")
        || value.starts_with("./");
    !path && !plain.contains(&value.to_ascii_lowercase().as_str())
}

/// Whether one word has the shape of a token.
pub(super) fn secret_shape(word: &str) -> bool {
    let token = |c: char| c.is_ascii_alphanumeric() || "_-.~+/=".contains(c);
    let prefixed = PREFIXES.iter().any(|prefix| {
        let needed = if prefix.len() <= 3 { 18 } else { 12 };
        word.starts_with(prefix)
            && word.len() >= needed
            && word.contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase())
    });
    word.starts_with("-----BEGIN") || (word.chars().all(token) && (prefixed || random(word)))
}

/// Whether a word has the disorder of a random string: many changes between lower case, upper case and digits.
fn random(word: &str) -> bool {
    // A UUID names things more often than it opens them; a path and a version are no secrets.
    if word.len() < 20
        || word.contains("://")
        || word.matches('/').count() > 2
        || word.starts_with(['/', '.', '~', '@'])
    {
        return false;
    }
    if word.len() == 36 && word.bytes().filter(|b| *b == b'-').count() == 4 {
        return false;
    }
    let hex = word.len() >= 32 && word.bytes().all(|b| b.is_ascii_hexdigit());
    let class = |c: char| match c {
        'a'..='z' => 0,
        'A'..='Z' => 1,
        '0'..='9' => 2,
        _ => 3,
    };
    let classes: Vec<u8> = word.chars().map(class).collect();
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let changes = classes.windows(2).filter(|pair| pair[0] != pair[1] && pair[0] != 3 && pair[1] != 3).count();
    hex || (digits >= 2 && changes >= 6 && changes * 6 >= word.len())
}

/// The places of secrets in a text that may hold other things, too, each with a name where the text gives one.
///
/// Knows `NAME=value`, `"name": "value"`, `Bearer value`, `scheme://user:password@host`, `?name=value`, and words with the
/// shape of a token.
pub(super) fn find(text: &str) -> Vec<(Range<usize>, Option<String>)> {
    let mut found: Vec<(Range<usize>, Option<String>)> = Vec::new();
    let mut add = |range: Range<usize>, name: Option<String>| {
        let overlaps = found.iter().any(|(other, _)| other.start < range.end && range.start < other.end);
        if !range.is_empty() && !overlaps {
            found.push((range, name));
        }
    };
    if let Some(start) = text.find("-----BEGIN") {
        let end = text.rfind("-----").map_or(text.len(), |at| at + 5);
        add(start..end.max(start), Some("PRIVATE_KEY".to_owned()));
    }
    if let Some((range, name)) = leading(text) {
        add(range, Some(name));
    }
    for (at, _) in text.match_indices("://") {
        let rest = &text[at + 3..];
        let end = rest.find(|c: char| c.is_whitespace() || "/?#\"'".contains(c)).unwrap_or(rest.len());
        if let Some(sign) = rest[..end].rfind('@') {
            let colon = rest[..sign].find(':').map_or(sign, |colon| colon + 1);
            // `https://token@host` has no user name.
            let start = if colon == sign && secret_shape(&rest[..sign]) { 0 } else { colon };
            add(at + 3 + start..at + 3 + sign, Some("PASSWORD".to_owned()));
        }
    }
    let words = split(text);
    for (at, word) in words.iter().enumerate() {
        let value = &text[word.clone()];
        let before = at.checked_sub(1).map(|at| words[at].clone());
        let name = before.filter(|before| {
            let between = &text[before.end..word.start];
            between.contains(['=', ':']) && between.chars().all(|c| "=: \"'\\".contains(c))
        });
        let name = name.map(|name| text[name].trim_start_matches('-').to_owned());
        let scheme = ["bearer", "basic", "token", "apikey"].contains(&value.to_ascii_lowercase().as_str());
        let after_scheme = at > 0 && {
            let before = &words[at - 1];
            ["Bearer", "bearer", "Basic"].contains(&&text[before.clone()])
                && text[before.end..word.start].trim().is_empty()
        };
        let digest = name.as_deref().is_some_and(|name| name.ends_with("sha256") || name.ends_with("sha512"));
        match name {
            _ if digest => {}
            Some(name) if secret_name(&name) && secret_value(value) => {
                if scheme {
                    continue;
                }
                add(word.start..whole_value(text, word), Some(name));
            }
            _ if after_scheme && value.len() >= 6 => add(word.start..whole_value(text, word), Some("TOKEN".to_owned())),
            name if secret_shape(value) => add(word.clone(), name),
            _ => {}
        }
    }
    found.sort_by_key(|(range, _)| range.start);
    found
}

/// The secret of a text that is a name and its value as a whole: `--password=value`, `X-Api-Key: value`.
fn leading(text: &str) -> Option<(Range<usize>, String)> {
    let (name, value) = match text.strip_prefix("--") {
        Some(switch) => switch.split_once('=')?,
        None => text.split_once(':').filter(|(_, value)| !value.starts_with("//"))?,
    };
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) || !secret_name(name) {
        return None;
    }
    let value = value.trim_start().trim_start_matches(['"', '\'']);
    let (scheme, secret) = value.split_once(' ').unwrap_or(("", value));
    let known = ["bearer", "basic", "token", "apikey"].contains(&scheme.to_ascii_lowercase().as_str());
    let (secret, name) = if known { (secret.trim_start(), "TOKEN") } else { (value, name) };
    secret_value(secret).then(|| (text.len() - secret.len()..text.len(), name.to_owned()))
}

/// The words of a text: what stands between blanks, quotes and the signs that separate values.
fn split(text: &str) -> Vec<Range<usize>> {
    let separator = |c: char| c.is_whitespace() || "=:\"'`,;&?#(){}[]<>|@\\".contains(c);
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (start, separator(c)) {
            (None, false) => start = Some(at),
            (Some(from), true) => {
                // Padding belongs to the token before it.
                let padding = text[at..].bytes().take_while(|b| *b == b'=').count();
                let ends = text[at + padding..].chars().next().is_none_or(|c| separator(c) && c != ':');
                let padded = (1..=2).contains(&padding) && ends && at - from >= 16;
                push_segments(text, from..if padded { at + padding } else { at }, &mut words);
                start = None;
            }
            _ => {}
        }
    }
    words
}

/// A path's components are words of their own where the whole can't be a token.
fn push_segments(text: &str, word: Range<usize>, words: &mut Vec<Range<usize>>) {
    let value = &text[word.clone()];
    let after_scheme = value.starts_with("//");
    if !after_scheme && value.matches('/').count() <= 2 && !value.starts_with('/') {
        words.push(word);
        return;
    }
    let mut start = word.start;
    for part in value.split('/') {
        if !part.is_empty() {
            words.push(start..start + part.len());
        }
        start += part.len() + 1;
    }
}

/// Where a named value ends: at its closing quote, else at the next blank or sign that ends values.
fn whole_value(text: &str, word: &Range<usize>) -> usize {
    let quote = text[..word.start].chars().next_back().filter(|c| "\"'".contains(*c));
    let opened = quote.is_some_and(|quote| text[..word.start].matches(quote).count() % 2 == 1);
    let rest = &text[word.start..];
    let end = match quote {
        Some(quote) if opened => rest.find([quote, '\\']),
        _ => rest.find(|c: char| c.is_whitespace() || "&,;\"'".contains(c)),
    };
    word.start + end.unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell() {
        let secret = [
            "GITHUB_TOKEN",
            "apiKey",
            "api-key",
            "--api-key",
            "X-API-Key",
            "DB_PASSWORD",
            "Authorization",
            "client_secret",
            "SLACK_BOT_TOKEN",
            "apikey",
            "PGPASSWORD",
            "authtoken",
            "Cookie",
            "GITHUB_PERSONAL_ACCESS_TOKEN",
        ];
        let tame = [
            "PATH",
            "HOME",
            "LOG_LEVEL",
            "KEYBOARD",
            "TOKEN_FILE",
            "SSH_KEY_PATH",
            "AUTH_TYPE",
            "AWS_ACCESS_KEY_ID",
            "COMPASS",
            "AUTHOR",
            "MONKEY",
            "TEAM_ID",
            "Content-Type",
        ];
        for name in secret {
            assert!(secret_name(name), "{name}");
        }
        for name in tame {
            assert!(!secret_name(name), "{name}");
        }
    }

    #[test]
    fn shapes_tell() {
        let secret = [
            "ghp_0123456789abcdefghij0123456789abcdef",
            "sk-proj-Ab12Cd34Ef56",
            "xoxb-1234567890-abcdef",
            "AKIAIOSFODNN7EXAMPLE",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
            "9f86d081884c7d659a2feaa0c55ad015",
            "aB3dE5fG7hI9jK1lM3nO",
            "ntn_12345678901AbCdEf",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY01a2B3",
        ];
        let plain = [
            "@modelcontextprotocol/server-github",
            "/home/ada/projects/2024/notes",
            "https://mcp.example.com/v1/mcp",
            "claude-3-5-sonnet-20241022",
            "mcp-server-postgres@2024.11.05",
            "127.0.0.1",
            "--transport",
            "us-east-1",
            "gpt-4o-mini-2024-07-18-preview",
            "ThisIsJustALongCamelCaseName",
            "key-value",
            "sk-something",
            "2025-06-18T12:00:00",
            "0fe1a3b2-8c4d-4e5f-9a6b-7c8d9e0f1a2b",
            "npm_config_registry_value",
        ];
        for word in secret {
            assert!(secret_shape(word), "{word}");
        }
        for word in plain {
            assert!(!secret_shape(word) && find(word).is_empty(), "{word}");
        }
    }

    #[test]
    fn secrets_are_found_inside_of_text() {
        let check = |text: &str, expected: &[(&str, Option<&str>)]| {
            let found = find(text);
            let found: Vec<_> = found.iter().map(|(range, name)| (&text[range.clone()], name.as_deref())).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("postgres://ada:s3same@db.example.com:5432/app", &[("s3same", Some("PASSWORD"))]);
        check("https://docs.example.com/mcp?apiKey=open-sesame&x=1", &[("open-sesame", Some("apiKey"))]);
        check("Authorization: Bearer open.sesame", &[("open.sesame", Some("TOKEN"))]);
        check("Authorization:Basic YWRhOnNlc2FtZQ==", &[("YWRhOnNlc2FtZQ==", Some("TOKEN"))]);
        check("X-API-Key: sesame 1", &[("sesame 1", Some("X-API-Key"))]);
        check("--password=open sesame", &[("open sesame", Some("password"))]);
        check("--url=https://a.example.com", &[]);
        check(
            r#"{"Authorization": "Bearer ntn_sesame", "Notion-Version": "2022-06-28"}"#,
            &[("ntn_sesame", Some("TOKEN"))],
        );
        check(r#"{"password": "open sesame", "a": 1}"#, &[("open sesame", Some("password"))]);
        check("GITHUB_TOKEN=sesame npx server", &[("sesame", Some("GITHUB_TOKEN"))]);
        check("https://hooks.example.com/api/s/aB3dE5fG7hI9jK1lM3nO/mcp", &[("aB3dE5fG7hI9jK1lM3nO", None)]);
        check("image@sha256:9f86d081884c7d659a2feaa0c55ad0159f86d081884c7d659a2feaa0c55ad015", &[]);
        check("--header", &[]);
        check("AUTH_ENABLED=true", &[]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_can_be_searched(text in "\\PC{0,80}") {
            for (range, _) in find(&text) {
                assert!(text.get(range).is_some_and(|value| !value.is_empty()));
            }
        }
    }
}
