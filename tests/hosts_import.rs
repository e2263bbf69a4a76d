//! What `import` makes of each host's file: the whole text of ours.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use mcp_proxy::hosts::import::{Store, from_host, from_text};
use mcp_proxy::hosts::{Platform, Surroundings, by_id};

fn around(home: &str) -> Surroundings {
    Surroundings { platform: Platform::Linux, home: PathBuf::from(home), vars: BTreeMap::new() }
}

/// Imports a text as a file; checks that the result is a valid configuration, and returns it without its head, and why
/// the others were left out.
fn imported(file: &str, text: &str) -> (String, Vec<String>) {
    let around = around("/home/ada");
    let file = PathBuf::from(file);
    let host = mcp_proxy::hosts::import::guess_host(&file);
    let import = from_text(text, &file, host, &around, None).expect("it can be read");
    let rendered = import.render(Store::Env, None, &around).expect("it can be written");
    let parsed = mcp_proxy::config::parse(&file, &rendered.toml, None);
    assert!(parsed.sound(), "{:#?}\n{}", parsed.faults, rendered.toml);
    let again = from_text(text, &file, host, &around, None).expect("it can be read").render(Store::Env, None, &around);
    assert_eq!(again.expect("it can be written").toml, rendered.toml, "the same twice");
    let start = rendered.toml.find("\n\n").map_or(0, |at| at + 2);
    let left = import.left.iter().map(|left| format!("{}: {}", left.name, left.why)).collect();
    (rendered.toml[start..].to_owned(), left)
}

fn check(file: &str, text: &str, expected: &str, left: &[&str]) {
    let (toml, found) = imported(file, text);
    assert_eq!(toml, expected, "{file}");
    assert_eq!(found, left, "{file}");
}

#[test]
fn claude_desktop() {
    check(
        "/home/ada/claude_desktop_config.json",
        r#"{ "mcpServers": {
            "db": { "command": "cmd", "args": ["/c", "npx", "-y", "@example/db", "--password=open sesame"], "env": { "A": "${X}" } },
            "box": { "command": "docker", "args": ["run", "-e", "BOX_TOKEN=open sesame", "-e", "MODE=x", "--header", "X-Api-Key: open sesame"] },
            "docs": { "command": "npx", "args": ["mcp-remote", "https://docs.example.com/mcp", "--header", "Authorization: Bearer s3same"] },
            "hub": { "command": "/opt/mcp-proxy", "args": ["run"] } } }"#,
        r#"[servers.db]
command = "npx"
args = ["-y", "@example/db", "--password=${env:DB_PASSWORD}"]
env = { A = "$${X}" }

[servers.box]
command = "docker"
args = ["run", "-e", "BOX_TOKEN=${env:BOX_TOKEN}", "-e", "MODE=x", "--header", "X-Api-Key: ${env:BOX_X_API_KEY}"]

# A bridge carried to it before.
# Remote servers are not supported yet: it is switched off.
[servers.docs]
url = "https://docs.example.com/mcp"
headers = { Authorization = "Bearer ${env:DOCS_TOKEN}" }
enabled = false
"#,
        &["hub: it is this proxy itself"],
    );
}

#[test]
fn claude_code() {
    check(
        "/home/ada/.claude.json",
        r#"{ "numStartups": 3,
          "mcpServers": {
            "a": { "type": "stdio", "command": "${BIN:-a}", "args": ["--k", "$X"], "env": {}, "timeout": 5500 },
            "b": { "type": "sse", "url": "https://b.example.com/sse", "headers": { "X-Api-Key": "${B_KEY:-s3same}" } } },
          "projects": { "/home/ada/app": { "mcpServers": { "a": { "command": "other" } } }, "/home/ada/b": {} } }"#,
        r#"[servers.a]
command = "${env:BIN:-a}"
args = ["--k", "$X"]
call_max_time = "5500ms"

# Remote servers are not supported yet: it is switched off.
# It speaks the older HTTP+SSE transport.
# A default value that looked like a secret was left out.
[servers.b]
url = "https://b.example.com/sse"
headers = { X-Api-Key = "${env:B_KEY}" }
enabled = false

# It was set for projects["/home/ada/app"] alone.
# It was called "a".
[servers.a-2]
command = "other"
"#,
        &[],
    );
}

#[test]
fn vs_code() {
    check(
        "/home/ada/app/.vscode/mcp.json",
        r#"{
          // what is asked for
          "inputs": [{ "id": "gh-token", "type": "promptString", "password": true }],
          "servers": {
            "gh": { "type": "stdio", "command": "npx", "args": ["gh"], "env": { "T": "${input:gh-token}", "N": 3, "Z": null },
                    "dev": { "watch": "x" }, "cwd": "${userHome}/work", },
            "lint": { "command": "lint", "args": ["${workspaceFolder}/src"], "sandbox": {} },
          } }"#,
        r#"# It unset the variable `Z`, which it gets here only if it is a basic one.
[servers.gh]
command = "npx"
args = ["gh"]
env = { T = "${env:GH_TOKEN}", N = "3" }
cwd = "${env:HOME}/work"

# It names the folder that the editor has open, which the proxy does not know: put a path in place of ${env:WORKSPACE_FOLDER}, or set that variable.
# `sandbox` has no counterpart here and was left out.
[servers.lint]
command = "lint"
args = ["${env:WORKSPACE_FOLDER}/src"]
"#,
        &[],
    );
}

#[test]
fn zed() {
    check(
        "/home/ada/.config/zed/settings.json",
        r#"{ "context_servers": {
            "old": { "command": { "path": "old", "args": ["-x"], "env": { "A": "b" } } },
            "new": { "source": "custom", "command": "new", "args": [], "enabled": false },
            "ext": { "source": "extension", "settings": { "api_key": "s3same" } }, } }"#,
        r#"[servers.old]
command = "old"
args = ["-x"]
env = { A = "b" }

[servers.new]
command = "new"
enabled = false
"#,
        &["ext: it belongs to an extension of the host, which alone can start it"],
    );
}

#[test]
fn codex() {
    check(
        "/home/ada/.codex/config.toml",
        r#"
model = "x"
[mcp_servers.gh]
command = "npx"
args = ["gh"]
env = { "LITERAL" = "${X}" }
env_vars = ["GH_TOKEN", { name = "GH_HOST", source = "shell" }]
cwd = "/home/ada"
startup_timeout_sec = 12.5
tool_timeout_sec = 120
enabled_tools = ["a", "b"]
disabled_tools = ["c"]
[mcp_servers.docs]
url = "https://docs.example.com/mcp"
bearer_token_env_var = "DOCS_TOKEN"
http_headers = { X-A = "b" }
env_http_headers = { X-B = "B_VALUE" }
enabled = false
"#,
        r#"[servers.gh]
command = "npx"
args = ["gh"]
env = { LITERAL = "$${X}" }
inherit_env = ["GH_TOKEN", "GH_HOST"]
cwd = "/home/ada"
start_timeout = "12500ms"
call_max_time = "120s"
tools = { allow = ["a", "b"], deny = ["c"] }

# Remote servers are not supported yet: it is switched off.
[servers.docs]
url = "https://docs.example.com/mcp"
headers = { X-A = "b", X-B = "${env:B_VALUE}", Authorization = "Bearer ${env:DOCS_TOKEN}" }
enabled = false
"#,
        &[],
    );
}

#[test]
fn gemini_and_cline_read_a_bare_url_as_sse() {
    let note = "# Remote servers are not supported yet: it is switched off.\n";
    let sse = "# It speaks the older HTTP+SSE transport.\n";
    check(
        "/home/ada/.gemini/settings.json",
        r#"{ "mcpServers": { "a": { "url": "https://a.example.com" }, "b": { "httpUrl": "https://b.example.com" },
            "c": { "command": "c", "env": { "K": "$K", "P": "%P%" }, "timeout": 9000, "trust": true,
                   "includeTools": ["x(y)"], "excludeTools": ["z"] } } }"#,
        &format!(
            "{note}{sse}[servers.a]\nurl = \"https://a.example.com\"\nenabled = false\n\n{note}[servers.b]\nurl = \"https://b.example.com\"\nenabled = false\n\n\
             [servers.c]\ncommand = \"c\"\nenv = {{ K = \"${{env:K}}\", P = \"${{env:P}}\" }}\ncall_max_time = \"9s\"\n\
             tools = {{ allow = [\"x\"], deny = [\"z\"] }}\n"
        ),
        &[],
    );
    check(
        "/home/ada/cline_mcp_settings.json",
        r#"{ "mcpServers": { "a": { "url": "https://a.example.com" },
            "b": { "type": "streamableHttp", "url": "https://b.example.com" },
            "c": { "transport": { "type": "stdio", "command": "c", "args": ["d"] }, "timeout": 90, "autoApprove": ["x"] } } }"#,
        &format!(
            "{note}{sse}[servers.a]\nurl = \"https://a.example.com\"\nenabled = false\n\n{note}[servers.b]\nurl = \"https://b.example.com\"\nenabled = false\n\n\
             [servers.c]\ncommand = \"c\"\nargs = [\"d\"]\ncall_max_time = \"90s\"\n"
        ),
        &[],
    );
}

#[test]
fn opencode() {
    check(
        "/home/ada/.config/opencode/opencode.jsonc",
        r#"{ "mcp": { // mine
            "a": { "type": "local", "command": ["npx", "-y", "a"], "environment": { "K": "{env:K}" }, "enabled": true },
            "b": { "type": "remote", "url": "https://b.example.com", "headers": { "Authorization": "Bearer {file:~/t}" } } } }"#,
        r#"[servers.a]
command = "npx"
args = ["-y", "a"]
env = { K = "${env:K}" }

# Remote servers are not supported yet: it is switched off.
[servers.b]
url = "https://b.example.com"
headers = { Authorization = "Bearer ${file:~/t}" }
enabled = false
"#,
        &[],
    );
}

#[test]
fn goose() {
    check(
        "/home/ada/.config/goose/config.yaml",
        "GOOSE_MODEL: x\nextensions:\n  developer:\n    type: builtin\n    name: developer\n  git:\n    type: stdio\n    \
         cmd: uvx\n    args: [mcp-server-git]\n    envs:\n      GIT_TOKEN: s3same\n    env_keys: [OTHER_KEY]\n    \
         timeout: 300\n    enabled: false\n    available_tools: [log]\n",
        r#"# The value of `OTHER_KEY` lies in the host's own keyring: set it anew.
[servers.git]
command = "uvx"
args = ["mcp-server-git"]
env = { GIT_TOKEN = "${env:GIT_TOKEN}", OTHER_KEY = "${env:OTHER_KEY}" }
enabled = false
call_max_time = "300s"
tools = { allow = ["log"] }
"#,
        &["developer: it is a part of the host (type `builtin`)"],
    );
}

#[test]
fn continue_dev() {
    check(
        "/home/ada/.continue/config.yaml",
        "name: mine\nmodels: []\nmcpServers:\n  - name: My Docs\n    type: streamable-http\n    url: https://docs.example.com\n    \
         requestOptions:\n      headers:\n        Authorization: Bearer ${{ secrets.DOCS_KEY }}\n  - name: git\n    \
         command: uvx\n    args:\n      - mcp-server-git\n    connectionTimeout: 4000\n",
        r#"# Remote servers are not supported yet: it is switched off.
# It was called "My Docs".
[servers.My-Docs]
url = "https://docs.example.com"
headers = { Authorization = "Bearer ${env:DOCS_KEY}" }
enabled = false

[servers.git]
command = "uvx"
args = ["mcp-server-git"]
start_timeout = "4s"
"#,
        &[],
    );
}

#[test]
fn a_strangers_file() {
    check(
        "/home/ada/servers.json",
        r#"{ "mcpServers": { "a": { "command": "a", "env": { "K": "${K}", "L": "${env:L}" } }, "b": { "command": "a", "env": { "K": "${K}", "L": "${env:L}" } },
            "c": {}, "d": { "command": 3 } } }"#,
        "[servers.a]\ncommand = \"a\"\nenv = { K = \"${env:K}\", L = \"${env:L}\" }\n",
        &["b: it is the same as `a`", "c: it has neither a command nor a URL", "d: its command is not text"],
    );
    let file = PathBuf::from("/home/ada/a.json");
    let error = from_text("{\"a\": 1}", &file, None, &around("/home/ada"), None).expect_err("no servers");
    assert!(error.contains("holds no servers"), "{error}");
}

#[test]
fn one_name_for_one_value() {
    let (toml, _) = imported(
        "/home/ada/claude_desktop_config.json",
        r#"{ "mcpServers": {
            "a": { "command": "a", "env": { "API_KEY": "s3same-1" } }, "b": { "command": "b", "env": { "API_KEY": "s3same-1" } },
            "c": { "command": "c", "env": { "API_KEY": "s3same-2", "LONG_VARIABLE_NAME_ONE": "a value that is long", "LONG_VARIABLE_NAME_TWO": "another value that is long" } } } }"#,
    );
    assert!(!toml.contains("s3same"), "{toml}");
    assert_eq!(toml.matches("\"${env:API_KEY}\"").count(), 2, "{toml}");
    assert!(toml.contains("[servers.c.env]\nAPI_KEY = \"${env:C_API_KEY}\"\n"), "{toml}");
}

#[test]
fn an_environment_file_and_several_files_of_one_host() {
    let home = tempfile::tempdir().expect("a directory");
    let around = around(home.path().to_str().expect("text"));
    let write = |name: &str, text: &str| {
        let path = home.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, text).expect("written");
    };
    write(".cursor/mcp.json", r#"{ "mcpServers": { "a": { "command": "a", "envFile": "~/a.env" } } }"#);
    write("a.env", "# secret\nexport TOKEN=s3same\nOTHER = x\n");
    let import = from_host(by_id("cursor").expect("known"), &around, None).expect("read");
    let toml = import.render(Store::Keyring, None, &around).expect("written").toml;
    assert!(toml.contains("env = { TOKEN = \"${keyring:TOKEN}\", OTHER = \"${keyring:OTHER}\" }"), "{toml}");
    assert!(!toml.contains("s3same"));

    write(".continue/config.yaml", "mcpServers:\n  - name: a\n    command: a\n");
    write(".continue/mcpServers/b.json", r#"{ "mcpServers": { "b": { "command": "b" } } }"#);
    write(
        ".continue/mcpServers/hub.yaml",
        "name: hub\nmcpServers:\n  - name: hub\n    command: /opt/mcp-proxy\n    args: [run]\n",
    );
    let import = from_host(by_id("continue").expect("known"), &around, None).expect("read");
    let keys: Vec<&str> = import.servers.iter().map(|server| server.key.as_str()).collect();
    assert_eq!(keys, ["a", "b"]);
    assert_eq!(
        import.read,
        ["~/.continue/mcpServers/hub.yaml", "~/.continue/config.yaml", "~/.continue/mcpServers/b.json"]
    );

    let error = from_host(by_id("zed").expect("known"), &around, None).expect_err("no file");
    assert!(error.contains("~/.config/zed/settings.json"), "{error}");
}
