//! The configuration reference is made from the schema, and is not behind.

use std::fmt::Write as _;

use mcp_proxy::config;
use serde_json::Value;

const HEAD: &str = "# Configuration reference

Made from the schema that `mcp-proxy schema` prints; renew this page with `UPDATE_DOCS=1 cargo test --test docs`.

The file is found by `--config FILE`, else `$MCP_PROXY_CONFIG`, else as `mcp-proxy.toml` in your configuration directory.
Durations are strings such as `\"250ms\"`, `\"30s\"`, `\"2m\"`; sizes such as `\"64MiB\"`. `${env:NAME}`, `${env:NAME:-default}`,
`${file:PATH}` and `${keyring:NAME}` are expanded in `command`, `args`, `env`, `cwd`, `url` and `headers`; `$${` is a
literal `${`. `mcp-proxy check` says what is wrong with a file, with line and column.
";

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        other => format!("`{}`", other.to_string().replace('|', "\\|")),
    }
}

fn table(out: &mut String, heading: &str, schema: &Value) {
    let _ = write!(out, "\n## `{heading}`\n\n| key | default | |\n|---|---|---|\n");
    for (name, key) in schema["properties"].as_object().into_iter().flatten() {
        let about = key["description"].as_str().unwrap_or_default().replace('|', "\\|");
        let _ = writeln!(out, "| `{name}` | {} | {about} |", cell(&key["default"]));
    }
}

fn page() -> String {
    let schema = config::schema();
    let top = &schema["properties"];
    let mut out = HEAD.to_owned();
    table(&mut out, "[proxy]", &top["proxy"]);
    table(&mut out, "[log]", &top["log"]);
    table(&mut out, "[servers.NAME]", &top["servers"]["additionalProperties"]);
    out.push_str(
        "\n## `[defaults]`\n\nTakes every key of a server's table but `command`, `args`, `url` and `prefix`.\n",
    );
    table(&mut out, "[profiles.NAME]", &top["profiles"]["additionalProperties"]);
    out
}

#[test]
fn the_configuration_reference_is_that_of_the_schema() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
    let page = page();
    assert!(
        page.contains("| `start_timeout` |") && page.contains("| `max_message` |") && page.contains("| `servers` |"),
        "{page}"
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == page, "docs/configuration.md is behind; run UPDATE_DOCS=1 cargo test --test docs");
}

#[test]
fn the_schema_that_editors_find_is_that_of_the_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/mcp-proxy.schema.json");
    let schema = format!("{:#}\n", config::schema());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(there == schema, "mcp-proxy.schema.json is behind; run UPDATE_DOCS=1 cargo test --test docs");
}
