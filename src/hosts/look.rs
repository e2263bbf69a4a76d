//! What a host's files say of us: which entries start this program, and with what. For `doctor`.

use std::path::{Path, PathBuf};

use super::{Host, Surroundings, bridge, entry, import, read};

/// A host on this machine.
#[derive(Debug)]
pub struct Sight {
    /// Its file, or where it would be; `None`: it keeps its servers in no file.
    pub file: Option<PathBuf>,
    /// Whether it has a file, or a directory of its own for it.
    pub installed: bool,
    /// The entries that start this program, the person's own table first.
    pub entries: Vec<Found>,
    /// What of its files can't be read: the file, and why.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// An entry that starts this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file that it stands in.
    pub file: PathBuf,
    /// Its name.
    pub name: String,
    /// Which table of the file, as `projects["/home/ada/app"]`; empty for the person's own.
    pub scope: String,
    /// What it starts.
    pub command: String,
    /// With which arguments.
    pub args: Vec<String>,
    /// Whether it is switched on.
    pub enabled: bool,
}

/// Looks at a host's files.
pub fn look(host: &'static Host, around: &Surroundings, own: Option<&Path>) -> Sight {
    let file = around.host_file(host);
    let files = around.host_files_to_read(host);
    let place = file.as_ref().and_then(|file| file.parent());
    let installed = !files.is_empty() || place.is_some_and(|dir| dir.is_dir() && *dir != *around.home);
    let mut sight = Sight { file, installed, entries: Vec::new(), unreadable: Vec::new() };
    for file in files {
        match std::fs::read_to_string(&file) {
            Ok(text) => match own_entries(host, &file, &text, own) {
                Ok(entries) => sight.entries.extend(entries),
                Err(why) => sight.unreadable.push((file, why)),
            },
            Err(error) => sight.unreadable.push((file, error.to_string())),
        }
    }
    sight
}

/// The entries of a text that start this program.
fn own_entries(host: &'static Host, file: &Path, text: &str, own: Option<&Path>) -> Result<Vec<Found>, String> {
    let value = read::parse(text, import::syntax_of(file, Some(host)))?;
    let mut found = Vec::new();
    for table in import::tables(&value, Some(host)) {
        for (name, item) in &table.entries {
            let Some((command, args)) = entry::start(item) else { continue };
            let words: Vec<&str> = args.iter().map(String::as_str).collect();
            if bridge::is_own(&command, &words, own) {
                found.push(Found {
                    file: file.to_owned(),
                    name: (*name).to_owned(),
                    scope: table.scope.clone(),
                    command,
                    args,
                    enabled: entry::is_enabled(item),
                });
            }
        }
    }
    Ok(found)
}

// === impl Found ===

impl Found {
    /// The configuration that it names; `None`: the person's own.
    pub fn config(&self) -> Option<&str> {
        let mut args = self.args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            if matches!(arg, "--config" | "-c") {
                return args.next();
            }
            if let Some(file) = arg.strip_prefix("--config=") {
                return Some(file);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::by_id;

    fn found(host: &str, file: &str, text: &str) -> Vec<(String, String, bool)> {
        let host = by_id(host).expect("known");
        let own = Path::new("/opt/tools/bin/mcp-proxy");
        let found = own_entries(host, Path::new(file), text, Some(own)).expect("it is sound");
        found.into_iter().map(|found| (found.name, found.command, found.enabled)).collect()
    }

    #[test]
    fn our_entry_is_found_in_every_form() {
        let check = |host: &str, file: &str, text: &str| {
            let expected = [("hub".to_owned(), "/opt/tools/bin/mcp-proxy".to_owned(), true)];
            assert_eq!(found(host, file, text), expected, "{host}");
        };
        let plain = r#"{"mcpServers": {"git": {"command": "git-mcp"}, "hub": {"command": "/opt/tools/bin/mcp-proxy", "args": ["run"]}}}"#;
        check("cursor", "mcp.json", plain);
        check("vscode", "mcp.json", r#"{"servers": {/* c */ "hub": {"command": "/opt/tools/bin/mcp-proxy"},}}"#);
        check("codex", "config.toml", "[mcp_servers.hub]\ncommand = '/opt/tools/bin/mcp-proxy'\nargs = ['run']\n");
        check("goose", "config.yaml", "extensions:\n  hub:\n    cmd: /opt/tools/bin/mcp-proxy\n    args: [run]\n");
        check("opencode", "opencode.json", r#"{"mcp": {"hub": {"command": ["/opt/tools/bin/mcp-proxy", "run"]}}}"#);
        check(
            "zed",
            "settings.json",
            r#"{"context_servers": {"hub": {"command": {"path": "/opt/tools/bin/mcp-proxy"}}}}"#,
        );
        check("continue", "hub.yaml", "mcpServers:\n  - name: hub\n    command: /opt/tools/bin/mcp-proxy\n");
    }

    #[test]
    fn what_only_names_us_is_no_entry() {
        // Another program of this name, an argument, a comment.
        let text = r#"{// mcp-proxy
            "mcpServers": {"a": {"command": "mcp-proxy", "args": ["https://x.example/sse"]},
            "b": {"command": "cat", "args": ["/opt/tools/bin/mcp-proxy"]}}, "note": "mcp-proxy"}"#;
        assert_eq!(found("cursor", "mcp.json", text), []);
        let off = r#"{"mcpServers": {"hub": {"command": "/old/mcp-proxy", "args": ["run"], "disabled": true}}}"#;
        assert_eq!(found("cline", "x.json", off), [("hub".to_owned(), "/old/mcp-proxy".to_owned(), false)]);
    }

    #[test]
    fn the_scope_and_the_configuration_of_an_entry_are_told() {
        let text = r#"{"projects": {"/home/ada/app": {"mcpServers": {"hub": {"command": "mcp-proxy", "args": ["run", "--config", "/x.toml"]}}}}}"#;
        let host = by_id("claude-code").expect("known");
        let found = own_entries(host, Path::new(".claude.json"), text, None).expect("it is sound");
        assert_eq!((found[0].scope.as_str(), found[0].config()), (r#"projects["/home/ada/app"]"#, Some("/x.toml")));
    }
}
