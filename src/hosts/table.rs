//! The table of hosts.

use std::time::Duration;

use super::{Cli, Dialect, Form, Format, Host, Known, NameLimit, Places, TimeoutUnit, Vars};

const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The same place under the home directory on all platforms.
const fn everywhere(paths: &'static [&'static str]) -> Places {
    Places { macos: paths, linux: paths, windows: paths, also_read: &[] }
}

/// Room for a name that stands alone, but for `added` characters.
const fn alone(total: usize, added: usize) -> NameLimit {
    NameLimit { total, added, with_entry: false }
}

/// Room for a name that stands after the entry's, and `added` characters around both.
const fn after_entry(total: usize, added: usize) -> NameLimit {
    NameLimit { total, added, with_entry: true }
}

const EDITOR: Dialect = Dialect { vars: Vars::Editor, timeout: TimeoutUnit::Millis, bare_url_is_sse: false };
const LITERAL: Dialect = Dialect { vars: Vars::Literal, timeout: TimeoutUnit::Millis, bare_url_is_sse: false };
const SERVERS: &[&str] = &["mcpServers"];

/// What is true of a host of which little is known: the entries below override what is.
const PLAIN: Host = Host {
    id: "",
    title: "",
    client_names: &[],
    start_limit: None,
    call_limit: None,
    list_wait: None,
    max_tools: None,
    max_name: None,
    pages: Known::Unknown,
    list_changed: Known::Unknown,
    places: everywhere(&[]),
    project_file: None,
    format: Format::Jsonc,
    keys: SERVERS,
    form: Form::Plain,
    dialect: EDITOR,
    cli: None,
    after: "Restart it.",
    notes: &[],
};

/// All hosts that are known.
pub static HOSTS: &[Host] = &[
    Host {
        id: "claude-desktop",
        title: "Claude Desktop",
        client_names: &["claude-ai", "claude-desktop"],
        call_limit: Some(secs(55)),
        list_changed: Known::Yes,
        max_tools: Some(128),
        max_name: Some(alone(64, 0)),
        places: Places {
            macos: &["~/Library/Application Support/Claude/claude_desktop_config.json"],
            linux: &[
                "$XDG_CONFIG_HOME/Claude/claude_desktop_config.json",
                "~/.config/Claude/claude_desktop_config.json",
            ],
            windows: &[
                "$LOCALAPPDATA/Packages/Claude_*/LocalCache/Roaming/Claude/claude_desktop_config.json",
                "$APPDATA/Claude/claude_desktop_config.json",
                "~/AppData/Roaming/Claude/claude_desktop_config.json",
            ],
            also_read: &[],
        },
        format: Format::Json,
        dialect: LITERAL,
        after: "Quit Claude Desktop wholly and start it again.",
        notes: &[
            "A call is ended after 60 s in some versions and 240 s in others, whatever progress says.",
            "One tool name outside of `[a-zA-Z0-9_-]{1,64}` withholds all tools of a server.",
            "It starts as a desktop application: variables of your shell are not there.",
        ],
        ..PLAIN
    },
    Host {
        id: "claude-code",
        title: "Claude Code",
        client_names: &["claude-code"],
        // `claude mcp list` waits for 5 s.
        list_wait: Some(secs(4)),
        start_limit: Some(secs(30)),
        pages: Known::Yes,
        list_changed: Known::Yes,
        max_name: Some(after_entry(128, 7)),
        places: everywhere(&["$CLAUDE_CONFIG_DIR/.claude.json", "~/.claude.json"]),
        project_file: Some(".mcp.json"),
        format: Format::Json,
        form: Form::ClaudeCode,
        dialect: Dialect { vars: Vars::Shell, timeout: TimeoutUnit::Millis, bare_url_is_sse: false },
        cli: Some(Cli {
            program: "claude",
            add: &["mcp", "add", "--scope", "user", "{name}", "--", "{command}", "{args}"],
            remove: Some(&["mcp", "remove", "--scope", "user", "{name}"]),
        }),
        after: "Start a new session.",
        notes: &[
            "Running sessions rewrite `~/.claude.json`: end them before its file is edited.",
            "It signals a server first and kills it half a second later.",
            "It restarts a server that crashed at the next call.",
        ],
        ..PLAIN
    },
    Host {
        id: "cursor",
        title: "Cursor",
        client_names: &["cursor-vscode", "cursor"],
        list_changed: Known::Yes,
        max_tools: Some(80),
        max_name: Some(after_entry(60, 1)),
        places: everywhere(&["~/.cursor/mcp.json"]),
        project_file: Some(".cursor/mcp.json"),
        after: "Cursor sees the change by itself; if not, restart it.",
        notes: &["A tool with a longer name is left out.", "Older versions warn above 40 tools."],
        ..PLAIN
    },
    Host {
        id: "vscode",
        title: "VS Code",
        client_names: &["Visual Studio Code*", "Visual-Studio-Code*"],
        pages: Known::Yes,
        list_changed: Known::Yes,
        max_tools: Some(128),
        max_name: Some(after_entry(64, 5)),
        places: Places {
            macos: &["~/Library/Application Support/Code/User/mcp.json"],
            linux: &["$XDG_CONFIG_HOME/Code/User/mcp.json", "~/.config/Code/User/mcp.json"],
            windows: &["$APPDATA/Code/User/mcp.json", "~/AppData/Roaming/Code/User/mcp.json"],
            also_read: &[],
        },
        project_file: Some(".vscode/mcp.json"),
        keys: &["servers"],
        form: Form::Typed,
        cli: Some(Cli { program: "code", add: &["--add-mcp", "{json}"], remove: None }),
        after: "VS Code sees the change by itself.",
        notes: &[
            "It cuts longer names, and names may then be the same.",
            "Profiles have files of their own: name such a file in place of the host.",
        ],
        ..PLAIN
    },
    Host {
        id: "windsurf",
        title: "Windsurf",
        client_names: &["windsurf*"],
        max_tools: Some(100),
        max_name: Some(alone(64, 5)),
        places: everywhere(&["~/.codeium/windsurf/mcp_config.json"]),
        after: "Press the refresh button of its MCP panel, or restart it.",
        notes: &[
            "It refuses some schemas: boolean `exclusiveMinimum`, arrays without `items`.",
            "Its JetBrains plugin reads `~/.codeium/mcp_config.json`.",
        ],
        ..PLAIN
    },
    Host {
        id: "zed",
        title: "Zed",
        client_names: &["Zed*"],
        start_limit: Some(secs(60)),
        call_limit: Some(secs(55)),
        pages: Known::No,
        list_changed: Known::Yes,
        max_name: Some(alone(64, 0)),
        places: Places {
            macos: &["~/.config/zed/settings.json"],
            linux: &["$XDG_CONFIG_HOME/zed/settings.json", "~/.config/zed/settings.json"],
            windows: &["$APPDATA/Zed/settings.json", "~/AppData/Roaming/Zed/settings.json"],
            also_read: &[],
        },
        project_file: Some(".zed/settings.json"),
        keys: &["context_servers"],
        form: Form::Zed,
        dialect: LITERAL,
        after: "Zed sees the change by itself.",
        notes: &["Only text reaches the model.", "It ends a server by SIGKILL.", "A request may take 60 s."],
        ..PLAIN
    },
    Host {
        id: "codex",
        title: "Codex CLI",
        client_names: &["codex*"],
        start_limit: Some(secs(30)),
        call_limit: Some(secs(290)),
        list_wait: Some(Duration::from_millis(1500)),
        pages: Known::Yes,
        list_changed: Known::No,
        max_tools: None,
        max_name: Some(after_entry(128, 7)),
        places: everywhere(&["$CODEX_HOME/config.toml", "~/.codex/config.toml"]),
        project_file: Some(".codex/config.toml"),
        format: Format::Toml,
        keys: &["mcp_servers"],
        form: Form::Codex,
        dialect: Dialect { vars: Vars::Literal, timeout: TimeoutUnit::Seconds, bare_url_is_sse: false },
        cli: Some(Cli {
            program: "codex",
            add: &["mcp", "add", "{name}", "--", "{command}", "{args}"],
            remove: Some(&["mcp", "remove", "{name}"]),
        }),
        after: "Start a new session.",
        notes: &[
            "It passes a short list of variables only; name others in `env_vars` of our entry.",
            "`codex exec` does not wait: what is not listed within two seconds is missing in the first turn.",
            "Older versions take names of 54 characters only.",
            "It ignores `list_changed` unless its feature `mcp_tool_list_changed` is on.",
        ],
    },
    Host {
        id: "gemini",
        title: "Gemini CLI",
        client_names: &["gemini-cli*"],
        call_limit: Some(secs(590)),
        pages: Known::No,
        list_changed: Known::Yes,
        max_name: Some(after_entry(63, 5)),
        places: everywhere(&["~/.gemini/settings.json"]),
        project_file: Some(".gemini/settings.json"),
        form: Form::Gemini,
        dialect: Dialect { vars: Vars::ShellAndBare, timeout: TimeoutUnit::Millis, bare_url_is_sse: true },
        cli: Some(Cli {
            program: "gemini",
            add: &["mcp", "add", "-s", "user", "{name}", "{command}", "{args}"],
            remove: Some(&["mcp", "remove", "-s", "user", "{name}"]),
        }),
        after: "Start a new session.",
        notes: &[
            "It reads the first page of tools only.",
            "Variables with TOKEN, SECRET, PASSWORD, KEY, AUTH or CREDENTIAL in their names do not reach a server.",
            "Its parser wants no `_` in the entry's name.",
        ],
        ..PLAIN
    },
    Host {
        id: "cline",
        title: "Cline",
        client_names: &["@cline/*", "Cline*"],
        start_limit: Some(secs(3)),
        call_limit: Some(secs(55)),
        list_wait: Some(secs(2)),
        pages: Known::No,
        list_changed: Known::No,
        max_name: Some(after_entry(64, 2)),
        places: Places {
            also_read: &[
                "~/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                "~/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                "$APPDATA/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ],
            ..everywhere(&[
                "$CLINE_MCP_SETTINGS_PATH",
                "$CLINE_DATA_DIR/settings/cline_mcp_settings.json",
                "~/.cline/data/settings/cline_mcp_settings.json",
            ])
        },
        format: Format::Json,
        form: Form::Cline,
        dialect: Dialect { vars: Vars::Editor, timeout: TimeoutUnit::Seconds, bare_url_is_sse: true },
        after: "Cline sees the change by itself.",
        notes: &[
            "Without a `timeout` its command line gives a server 3 s and then kills it.",
            "One line on standard output that is not JSON ends a server.",
        ],
        ..PLAIN
    },
    Host {
        id: "goose",
        title: "Goose",
        client_names: &["goose*"],
        start_limit: Some(secs(300)),
        call_limit: Some(secs(290)),
        pages: Known::Yes,
        list_changed: Known::Yes,
        max_name: Some(after_entry(64, 2)),
        places: Places {
            macos: &["~/.config/goose/config.yaml"],
            linux: &["$XDG_CONFIG_HOME/goose/config.yaml", "~/.config/goose/config.yaml"],
            windows: &["$APPDATA/Block/goose/config/config.yaml", "~/AppData/Roaming/Block/goose/config/config.yaml"],
            also_read: &[],
        },
        format: Format::Yaml,
        keys: &["extensions"],
        form: Form::Goose,
        dialect: Dialect { vars: Vars::ShellAndBare, timeout: TimeoutUnit::Seconds, bare_url_is_sse: false },
        after: "Start a new session.",
        notes: &[
            "With a single extension it shows our names without its prefix, and looks for an extension called like the \
             first part of a name: give no extension the name of a server behind the proxy.",
        ],
        ..PLAIN
    },
    Host {
        id: "opencode",
        title: "opencode",
        client_names: &["opencode*"],
        start_limit: Some(secs(30)),
        pages: Known::Yes,
        list_changed: Known::Yes,
        max_name: Some(after_entry(64, 1)),
        places: Places {
            macos: &["~/.config/opencode/opencode.json", "~/.config/opencode/opencode.jsonc"],
            linux: &[
                "$XDG_CONFIG_HOME/opencode/opencode.json",
                "$XDG_CONFIG_HOME/opencode/opencode.jsonc",
                "~/.config/opencode/opencode.json",
                "~/.config/opencode/opencode.jsonc",
            ],
            windows: &["~/.config/opencode/opencode.json", "~/.config/opencode/opencode.jsonc"],
            also_read: &[],
        },
        project_file: Some("opencode.json"),
        keys: &["mcp"],
        form: Form::Opencode,
        dialect: Dialect { vars: Vars::Braces, timeout: TimeoutUnit::Millis, bare_url_is_sse: false },
        after: "Start a new session.",
        notes: &["It sets no bound to a name's length itself, but its models' interfaces do."],
        ..PLAIN
    },
    Host {
        id: "lm-studio",
        title: "LM Studio",
        client_names: &["lm-studio*", "lmstudio*", "LM Studio*"],
        places: everywhere(&["~/.lmstudio/mcp.json", "~/.cache/lm-studio/mcp.json"]),
        after: "LM Studio sees the change by itself; if not, restart it.",
        notes: &["It uses tools only.", "Long lists overflow the context of local models."],
        ..PLAIN
    },
    Host {
        id: "continue",
        title: "Continue",
        client_names: &["continue*"],
        start_limit: Some(secs(20)),
        call_limit: Some(secs(55)),
        pages: Known::No,
        list_changed: Known::No,
        max_name: Some(after_entry(64, 1)),
        places: Places {
            also_read: &["~/.continue/config.yaml", "~/.continue/mcpServers/*.yaml", "~/.continue/mcpServers/*.json"],
            ..everywhere(&["~/.continue/mcpServers/hub.yaml"])
        },
        project_file: Some(".continue/mcpServers/hub.yaml"),
        format: Format::Yaml,
        form: Form::Continue,
        dialect: Dialect { vars: Vars::Mustache, timeout: TimeoutUnit::Millis, bare_url_is_sse: false },
        after: "Reload the editor's window, or start a new session.",
        notes: &[
            "Handshake and all lists together have 20 s.",
            "Its command line puts no prefix before tool names.",
            "Our entry is a file of its own, so nothing of yours is edited.",
        ],
        ..PLAIN
    },
    Host {
        id: "junie",
        title: "JetBrains Junie",
        places: everywhere(&["~/.junie/mcp/mcp.json"]),
        project_file: Some(".junie/mcp/mcp.json"),
        after: "Restart the IDE, or press refresh in Junie's MCP settings.",
        ..PLAIN
    },
    Host {
        id: "jetbrains-copilot",
        title: "GitHub Copilot for JetBrains",
        client_names: &["JetBrains-*"],
        places: Places {
            macos: &["~/.config/github-copilot/intellij/mcp.json"],
            linux: &["$XDG_CONFIG_HOME/github-copilot/intellij/mcp.json", "~/.config/github-copilot/intellij/mcp.json"],
            windows: &["$LOCALAPPDATA/github-copilot/intellij/mcp.json"],
            also_read: &[],
        },
        keys: &["servers"],
        form: Form::Typed,
        after: "Restart the IDE.",
        ..PLAIN
    },
    Host {
        id: "jetbrains-ai",
        title: "JetBrains AI Assistant",
        format: Format::Paste,
        after: "Open Settings | Tools | AI Assistant | MCP, press Add, choose As JSON and paste it.",
        ..PLAIN
    },
    Host {
        id: "copilot-cli",
        title: "GitHub Copilot CLI",
        client_names: &["github-copilot-developer", "copilot-cli*"],
        places: everywhere(&["~/.copilot/mcp-config.json"]),
        form: Form::CopilotCli,
        dialect: Dialect { vars: Vars::Any, ..EDITOR },
        after: "Start a new session.",
        ..PLAIN
    },
    Host {
        id: "roo",
        title: "Roo Code",
        client_names: &["Roo-Code", "Roo Code"],
        places: Places {
            macos: &[
                "~/Library/Application Support/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
            ],
            linux: &["~/.config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"],
            windows: &["$APPDATA/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"],
            also_read: &[],
        },
        project_file: Some(".roo/mcp.json"),
        form: Form::Cline,
        dialect: Dialect { vars: Vars::Editor, timeout: TimeoutUnit::Seconds, bare_url_is_sse: true },
        after: "Roo Code sees the change by itself.",
        ..PLAIN
    },
    Host {
        id: "kiro",
        title: "Kiro",
        places: everywhere(&["~/.kiro/settings/mcp.json"]),
        project_file: Some(".kiro/settings/mcp.json"),
        dialect: Dialect { vars: Vars::Any, ..EDITOR },
        after: "Kiro sees the change by itself.",
        ..PLAIN
    },
    Host {
        id: "antigravity",
        title: "Google Antigravity",
        client_names: &["antigravity*"],
        places: everywhere(&["~/.gemini/antigravity/mcp_config.json"]),
        dialect: Dialect { vars: Vars::Any, ..EDITOR },
        after: "Press refresh in its MCP panel.",
        ..PLAIN
    },
    Host {
        id: "amazon-q",
        title: "Amazon Q Developer",
        client_names: &["Q-DEV-CLI", "Q-*"],
        places: everywhere(&["~/.aws/amazonq/mcp.json"]),
        dialect: Dialect { vars: Vars::Any, ..EDITOR },
        after: "Start a new session.",
        ..PLAIN
    },
];
