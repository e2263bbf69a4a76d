//! A host's file as one value, whatever it is written in.

use jsonc_parser::ParseOptions;
use serde_json::{Map, Value};

use super::yaml;

/// What a file is written in, as far as reading goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// JSON, comments and trailing commas allowed.
    Jsonc,
    /// JSON without them.
    Json,
    Toml,
    Yaml,
}

/// Comments and trailing commas, and nothing else of JSON5: no host takes more.
pub(super) const JSONC: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Plain JSON.
pub(super) const JSON: ParseOptions = ParseOptions { allow_comments: false, allow_trailing_commas: false, ..JSONC };

/// Splits off a byte order mark, which some editors write.
pub(super) fn split_bom(text: &str) -> (&str, &str) {
    let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.split_at(text.len() - rest.len())
}

/// Reads a file's text; an empty one is an empty object.
///
/// # Errors
///
/// What is wrong with it, with the place where that is known.
pub(super) fn parse(text: &str, syntax: Syntax) -> Result<Value, String> {
    let (_, text) = split_bom(text);
    let value = match syntax {
        Syntax::Json => parse_json(text, &JSON)?,
        Syntax::Jsonc => parse_json(text, &JSONC)?,
        Syntax::Toml => {
            let document: toml_edit::DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
                // Its own text quotes the line, which may hold a secret.
                let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
                format!("line {line}: {}", error.message())
            })?;
            from_item(document.as_item())
        }
        Syntax::Yaml => yaml::parse(text)?.map(|node| node.to_value()),
    };
    Ok(value.unwrap_or_else(|| Value::Object(Map::new())))
}

/// Reads JSON; `None`: there is nothing in it.
pub(super) fn parse_json(text: &str, options: &ParseOptions) -> Result<Option<Value>, String> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    jsonc_parser::parse_to_serde_value::<Option<Value>>(text, options).map_err(|error| place_of(&error))
}

/// The message of a JSON error with its place, without the text around it.
pub(super) fn place_of(error: &jsonc_parser::errors::ParseError) -> String {
    format!("line {}, column {}: {}", error.line_display(), error.column_display(), error.kind())
}

/// A TOML item as a value; `None`: there is none.
pub(super) fn from_item(item: &toml_edit::Item) -> Option<Value> {
    match item {
        toml_edit::Item::None => None,
        toml_edit::Item::Value(value) => Some(from_value(value)),
        toml_edit::Item::Table(table) => Some(from_table(table)),
        toml_edit::Item::ArrayOfTables(tables) => Some(tables.iter().map(|table| from_table(table)).collect()),
    }
}

fn from_table(table: &dyn toml_edit::TableLike) -> Value {
    table.iter().filter_map(|(key, item)| Some((key.to_owned(), from_item(item)?))).collect::<Map<_, _>>().into()
}

fn from_value(value: &toml_edit::Value) -> Value {
    match value {
        toml_edit::Value::String(text) => Value::String(text.value().clone()),
        toml_edit::Value::Integer(number) => (*number.value()).into(),
        toml_edit::Value::Float(number) => (*number.value()).into(),
        toml_edit::Value::Boolean(truth) => (*truth.value()).into(),
        toml_edit::Value::Datetime(time) => Value::String(time.value().to_string()),
        toml_edit::Value::Array(items) => items.iter().map(from_value).collect(),
        toml_edit::Value::InlineTable(table) => from_table(table),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_syntax_gives_the_same_value() {
        let expected = json!({"s": {"b": ["x"], "a": 1}});
        let check = |text: &str, syntax: Syntax| assert_eq!(parse(text, syntax), Ok(expected.clone()), "{text}");
        check("\u{feff}{\"s\": {\"b\": [\"x\"], \"a\": 1}}", Syntax::Json);
        check("{ // c\n\"s\": {\"b\": [\"x\",], \"a\": 1,}}", Syntax::Jsonc);
        check("[s]\r\nb = ['x']\r\na = 1\r\n", Syntax::Toml);
        check("s:\n  b: [x]\n  a: 1\n", Syntax::Yaml);
    }

    #[test]
    fn strict_json_takes_no_comment_and_no_value_is_quoted() {
        assert!(parse("{\"a\": 1, }", Syntax::Json).is_err());
        assert!(parse("{\"a\": 1 // x\n}", Syntax::Json).is_err());
        for (text, syntax) in [
            ("{\"token\": \"ghp_sesame\" \"b\": 1}", Syntax::Jsonc),
            ("token = ghp_sesame\n", Syntax::Toml),
            ("token: [ghp_sesame\nb: c\n", Syntax::Yaml),
        ] {
            let error = parse(text, syntax).expect_err("broken");
            assert!(error.contains("line") && !error.contains("sesame"), "{error}");
        }
    }
}
