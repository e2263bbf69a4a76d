//! Hosts' files as people have them.

/// A file of each host as people have it: comments where they may stand, odd indentation, unknown keys.
pub(super) fn samples() -> Vec<(&'static str, &'static str)> {
    let mcp_servers = "{\n   \"theme\": \"dark\",\n   \"mcpServers\": {\n      \"github\": {\n         \"command\": \"npx\",\n         \
         \"args\": [\"-y\",   \"@example/github\"],\n         \"env\": { \"GITHUB_TOKEN\": \"open-sesame\" }\n      }\n   },\n   \
         \"other\": [1,2,  3]\n}\n";
    vec![
        ("claude-desktop", mcp_servers),
        ("claude-desktop", "{\"mcpServers\":{},\"globalShortcut\":\"\"}"),
        ("claude-desktop", "{}"),
        ("claude-desktop", ""),
        ("claude-desktop", "{\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"a\"}\n\t}\n}"),
        (
            "claude-code",
            "{\n  \"numStartups\": 12,\n  \"projects\": {\n    \"/home/ada/app\": { \"mcpServers\": {} }\n  }\n}\n",
        ),
        (
            "cursor",
            "{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"url\": \"https://docs.example.com/mcp\" }, // remote\n  },\n}\n",
        ),
        ("cursor", mcp_servers),
        (
            "vscode",
            "{\n\t// Servers of the team\n\t\"inputs\": [ { \"id\": \"t\", \"type\": \"promptString\", \"password\": true } ],\n\t\"servers\": {\n\t\t\"a\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"command\": \"uvx\", /* fast */\n\t\t\t\"args\": [ \"example\" ],\n\t\t},\n\t},\n}\n",
        ),
        ("windsurf", mcp_servers),
        (
            "zed",
            "// Zed settings\n//\n{\n  \"vim_mode\": true,\n  \"context_servers\": {\n    \"a\": {\n      \"command\": { \"path\": \"a\", \"args\": [], \"env\": null },\n      \"settings\": {}\n    },\n  },\n  \"buffer_font_size\": 15, // large\n}\n",
        ),
        ("zed", "{\n  \"ui_font_size\": 16\n}\n"),
        (
            "codex",
            "# My settings\nmodel = \"gpt-5\"   # fast\n\n[mcp_servers.a]\n  command = \"npx\"\n  args = [ \"-y\",\n    \"@example/a\" ]\nenv = { \"TOKEN\" = \"open-sesame\" }\n\n[profiles.work]\nmodel='x'\n# the end\n",
        ),
        ("codex", "model = \"gpt-5\""),
        ("codex", ""),
        ("codex", "mcp_servers = { a = { command = 'a' } }\nmodel = \"x\"\n"),
        (
            "gemini",
            "{\n    // the key is in the shell\n    \"selectedAuthType\": \"x\",\n    \"mcpServers\": {\n        \"a\": { \"command\": \"a\", \"timeout\": 5000, \"trust\": true }\n    }\n}\n",
        ),
        ("cline", mcp_servers),
        (
            "goose",
            "# goose\nGOOSE_PROVIDER: anthropic\nextensions:\n    developer:\n        bundled: true\n        enabled: true   # always\n        name: developer\n        type: builtin\n    # a comment on git\n    git:\n        cmd: uvx\n        args:\n        - mcp-server-git\n        enabled: true\n        envs: {}\n        type: stdio\n\n# after\nGOOSE_MODEL: x\n",
        ),
        ("goose", "GOOSE_PROVIDER: anthropic\nextensions: {} # none yet\nGOOSE_MODEL: x"),
        ("goose", "GOOSE_PROVIDER: anthropic\n"),
        ("goose", "extensions:\nGOOSE_MODEL: x\n"),
        ("goose", "extensions:\n  git:\n    type: stdio\n    cmd: git-mcp"),
        (
            "opencode",
            "{\n  \"$schema\": \"https://opencode.example/config.json\",\n  \"mcp\": {\n    \"a\": {\n      \"type\": \"local\",\n      \"command\": [\"npx\", \"a\"], // list\n      \"environment\": { \"K\": \"{env:K}\" },\n    },\n  },\n}\n",
        ),
        ("lm-studio", mcp_servers),
        ("junie", "{ \"mcpServers\" : { } }\n"),
        ("jetbrains-copilot", "{\"servers\": {\"a\": {\"type\": \"http\", \"url\": \"https://docs.example.com\"}}}"),
        ("copilot-cli", mcp_servers),
        ("roo", mcp_servers),
        ("kiro", mcp_servers),
        (
            "antigravity",
            "{\n  \"mcpServers\": {\n    \"a\": {\n      \"serverUrl\": \"https://docs.example.com\"\n    }\n  }\n}",
        ),
        ("amazon-q", mcp_servers),
    ]
}
