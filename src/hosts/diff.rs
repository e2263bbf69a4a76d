//! A change as people see it: a unified diff without the secrets that stand in the lines around.

use serde_json::Value;
use similar::TextDiff;

use super::secrets;

/// What stands in place of a secret.
const MASK: &str = "•••";

/// The difference between two texts, with everything masked that looks like a secret in one of the values.
pub(super) fn masked(name: &str, before: &str, after: &str, values: &[&Value]) -> String {
    let diff = TextDiff::from_lines(before, after);
    let mut text = diff.unified_diff().context_radius(2).header(name, name).to_string();
    let mut found = Vec::new();
    for value in values {
        collect(None, value, &mut found);
    }
    found.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    found.dedup();
    for secret in &found {
        let escaped = Value::String(secret.clone()).to_string();
        let bare = &escaped[1..escaped.len() - 1];
        if secret.chars().count() < 4 {
            // So short a text is everywhere: it is masked where it stands alone.
            for quote in ['"', '\''] {
                text = text.replace(&format!("{quote}{secret}{quote}"), &format!("{quote}{MASK}{quote}"));
            }
            for end in [",", "\n", "\r"] {
                text = text.replace(&format!(": {secret}{end}"), &format!(": {MASK}{end}"));
            }
            continue;
        }
        text = text.replace(bare, MASK);
        for line in secret.lines().filter(|line| line.len() >= 4) {
            text = text.replace(line, MASK);
        }
    }
    text
}

/// Collects what looks like a secret.
fn collect(key: Option<&str>, value: &Value, found: &mut Vec<String>) {
    let named = key.is_some_and(secrets::secret_name);
    match value {
        Value::String(text) if named && secrets::secret_value(text) => {
            let bare = ["Bearer ", "Basic ", "bearer ", "token "].iter().find_map(|scheme| text.strip_prefix(scheme));
            found.push(bare.unwrap_or(text).to_owned());
        }
        Value::String(text) => found.extend(secrets::find(text).into_iter().map(|(range, _)| text[range].to_owned())),
        Value::Number(number) if named => found.push(number.to_string()),
        Value::Array(items) => {
            let mut flag = key;
            for item in items {
                collect(flag, item, found);
                flag = item.as_str().filter(|text| text.starts_with('-') && !text.contains('=')).or(key);
            }
        }
        Value::Object(map) => {
            // A table called `auth` holds more than secrets: its own keys tell.
            for (key, value) in map {
                collect(Some(key), value, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_masked_around_a_change() {
        let value = json!({
            "env": {"TOKEN": "open sesame", "PIN": 12, "A": "1"}, "args": ["--api-key", "abc def", "x"],
            "url": "https://a:s3same@example.com", "headers": {"Authorization": "Bearer q\"x-1234"}
        });
        let before = serde_json::to_string_pretty(&value).expect("written");
        let text = masked("a.json", &before, "", &[&value]);
        for secret in ["sesame", "abc def", "s3same", "x-1234"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(
            text.contains("Bearer •••")
                && text.contains("\"A\": \"1\"")
                && text.contains("-    \"x\"")
                && text.contains("\"PIN\": •••,"),
            "{text}"
        );
    }
}
