//! `mcp-proxy doctor`: whether all is well, from the servers' commands to the hosts' files.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::app::Global;
use super::client::{self, Starts};
use super::run;
use crate::config::{self, Loaded, Target, Transport};
use crate::hosts::{self, HOSTS, Host, Surroundings};
use crate::runtime::desk::DeskEvent;
use crate::runtime::launch;
use crate::runtime::shelf::Shelf;

/// How it is told.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  mcp-proxy doctor
  mcp-proxy doctor --json

It starts every server. Exit code 0: all is well; 1: something needs a person.")]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Tools beyond which known hosts warn or leave some out.
const TOOLS: usize = 80;
/// A tool's name beyond which known hosts refuse or cut it.
const NAME: usize = 60;

/// Runs the command.
///
/// # Errors
/// The configuration can't be used.
pub fn run(global: &Global, args: &DoctorArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let loaded = run::load(global)?;
    let (health, catalog) = client::with(global, Starts::All, "starting the servers", async |client| {
        client.open().await?;
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            client.ask(method, "{}").await?;
        }
        let health = client.inquire(DeskEvent::Health).await?;
        let catalog = client.inquire(DeskEvent::Catalog).await?;
        Ok((health, catalog.as_str().unwrap_or("{}").to_owned()))
    })?;
    let catalog: Value = serde_json::from_str(&catalog)?;
    let servers: Vec<Value> = servers(&loaded, &health, &catalog);
    let hosts: Vec<Value> = Surroundings::of_process()
        .map(|around| HOSTS.iter().map(|host| look_at(host, &around)).collect())
        .unwrap_or_default();
    let well = servers.iter().all(|server| server["ok"] == true) && hosts.iter().all(|host| host["problem"].is_null());
    let warnings = names(&catalog);
    let report = json!({
        "ok": well,
        "config": loaded.config.path.display().to_string(),
        "servers": servers,
        "hosts": hosts,
        "warnings": warnings,
    });
    if args.json {
        writeln!(out, "{report:#}")?;
    } else {
        print(&report, out)?;
    }
    Ok(ExitCode::from(u8::from(!well)))
}

fn servers(loaded: &Loaded, health: &Value, catalog: &Value) -> Vec<Value> {
    let shelf = Shelf::new();
    let all = health["servers"].as_array().into_iter().flatten();
    let told = all.map(|server| {
        let name = server["name"].as_str().unwrap_or_default();
        let config = loaded.config.servers.iter().find(|config| config.key == name);
        let found = config.and_then(|config| place_of(config, loaded, &shelf));
        let mut told = json!({ "name": name, "ok": server["state"] == "ready", "found": found });
        for member in [
            "state",
            "protocol",
            "startMs",
            "tools",
            "prompts",
            "resources",
            "templates",
            "noiseLines",
            "repairs",
            "lastError",
            "stderr",
            "problems",
        ] {
            told[member] = server[member].clone();
        }
        let noise = server["noiseLines"].as_u64().unwrap_or_default();
        let mut more = Vec::new();
        if noise > 0 {
            more.push(format!("{noise} lines on its stdout are no messages; it should write them to stderr"));
        }
        let of_it = catalog["tools"].as_array().into_iter().flatten().filter(|tool| tool["server"] == name).count();
        if of_it > TOOLS {
            more.push(format!(
                "it has {of_it} tools, and some hosts take no more than {TOOLS} in all; filter them with tools.allow"
            ));
        }
        if let Some(problems) = told["problems"].as_array_mut() {
            problems.extend(more.into_iter().map(Value::from));
        }
        told
    });
    told.collect()
}

/// Where the command of a server is, as it will be started.
fn place_of(server: &config::Server, loaded: &Loaded, shelf: &Shelf) -> Option<String> {
    if let Transport::Http(_) = server.transport {
        return None;
    }
    let launch = launch::expand(server, &loaded.config.path, shelf).ok()?;
    let Target::Program(program) = launch.target else { return None };
    let host: Vec<_> = std::env::vars_os().collect();
    let env = config::child_environment(&host, &program, &config::usual_places(config::home_dir().as_deref()));
    let path = env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let found = config::find_program(&program.command, path, program.cwd.as_deref()).ok()?;
    Some(shelf.masker().mask(&found.display().to_string()).into_owned())
}

/// Names that some host may refuse, and too many of them.
fn names(catalog: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let tools = catalog["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    if tools.len() > TOOLS {
        warnings.push(format!(
            "there are {} tools in all, and some hosts take no more than {TOOLS}; filter them, or use profiles",
            tools.len()
        ));
    }
    let names = tools.iter().filter_map(|tool| tool["name"].as_str());
    for name in names {
        // Hosts put the entry's name before it.
        let length = name.chars().count() + hosts::ENTRY_NAME.len() + 1;
        if length > NAME {
            warnings.push(format!("the tool {name} has {length} characters with the entry's name, over the {NAME} that some hosts take; rename it or lower max_name_length"));
        }
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
            warnings.push(format!("the tool {name} has characters that some hosts refuse"));
        }
    }
    warnings
}

/// Whether a host is there and starts us.
fn look_at(host: &Host, around: &Surroundings) -> Value {
    let file = around.host_file(host);
    let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    let place = file.as_ref().and_then(|file| file.parent());
    // A file that is there, or the directory that is the host's own.
    let installed = text.is_some() || place.is_some_and(|dir| dir.is_dir() && *dir != *around.home);
    let entry = text.as_deref().map(|text| entry_in(host, text));
    let (configured, problem) = entry.unwrap_or_default();
    json!({
        "id": host.id,
        "title": host.title,
        "file": file.map(|file| file.display().to_string()),
        "installed": installed,
        "configured": configured,
        "problem": problem,
    })
}

/// Whether a host's file names us, and what is wrong with that.
fn entry_in(host: &Host, text: &str) -> (bool, Option<String>) {
    // The file's own form is of no account: our binary's name stands in it, or not.
    let named = text.contains("mcp-proxy");
    if !named {
        return (false, None);
    }
    let absolute: Vec<&str> = text
        .split(['"', '\'', ' ', '\n', ','])
        .filter(|word| word.ends_with("mcp-proxy") || word.ends_with("mcp-proxy.exe"))
        .filter(|word| std::path::Path::new(word).is_absolute())
        .collect();
    let missing = absolute.iter().find(|path| !std::path::Path::new(path).exists());
    let problem = missing
        .map(|path| format!("its file starts {path}, which is not there; `mcp-proxy install {}` corrects it", host.id));
    (true, problem)
}

fn print(report: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    writeln!(out, "Configuration {}", text(&report["config"]))?;
    for server in report["servers"].as_array().into_iter().flatten() {
        let mark = if server["ok"] == true { "well" } else { "NOT WELL" };
        writeln!(out, "\n{}: {mark}, {}", text(&server["name"]), text(&server["state"]))?;
        writeln!(out, "  found      {}", text(&server["found"]))?;
        if server["ok"] == true {
            writeln!(out, "  protocol   {}, ready after {} ms", text(&server["protocol"]), server["startMs"])?;
            writeln!(
                out,
                "  lists      {} tools, {} prompts, {} resources, {} templates",
                server["tools"], server["prompts"], server["resources"], server["templates"]
            )?;
        }
        for problem in server["problems"].as_array().into_iter().flatten() {
            writeln!(out, "  {}", text(problem))?;
        }
        if server["ok"] != true {
            for line in server["stderr"].as_array().into_iter().flatten() {
                writeln!(out, "  stderr     {}", super::logs::calm(line.as_str().unwrap_or_default()))?;
            }
        }
    }
    writeln!(out)?;
    for host in report["hosts"].as_array().into_iter().flatten() {
        if host["installed"] != true {
            continue;
        }
        match (host["configured"] == true, host["problem"].as_str()) {
            (_, Some(problem)) => writeln!(out, "{}: {problem}", text(&host["title"]))?,
            (true, None) => writeln!(out, "{}: starts the proxy, by {}", text(&host["title"]), text(&host["file"]))?,
            (false, None) => {
                writeln!(
                    out,
                    "{}: does not know the proxy; `mcp-proxy install {}` tells it",
                    text(&host["title"]),
                    text(&host["id"])
                )?;
            }
        }
    }
    for warning in report["warnings"].as_array().into_iter().flatten() {
        writeln!(out, "Warning: {}", text(warning))?;
    }
    writeln!(out, "{}", if report["ok"] == true { "All is well." } else { "Something needs a person; see above." })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_hosts_refuse_are_told() {
        let check = |name: &str, told: usize| {
            assert_eq!(names(&json!({ "tools": [{ "name": name }] })).len(), told, "{name}");
        };
        check("gh__search", 0);
        check(&"x".repeat(56), 0);
        check(&"x".repeat(57), 1);
        check("a.b", 1);
        let many: Vec<_> = (0..=TOOLS).map(|number| json!({ "name": format!("t{number}") })).collect();
        assert_eq!(names(&json!({ "tools": many })).len(), 1);
    }

    #[test]
    fn an_entry_whose_program_is_gone_is_a_problem() {
        let cursor = hosts::by_id("cursor").expect("known");
        assert_eq!(entry_in(cursor, "{}"), (false, None));
        let (configured, problem) = entry_in(cursor, r#"{"mcpServers":{"hub":{"command":"/nowhere/mcp-proxy"}}}"#);
        assert!(configured && problem.is_some_and(|problem| problem.contains("install cursor")));
        assert_eq!(entry_in(cursor, r#"{"mcpServers":{"hub":{"command":"mcp-proxy"}}}"#), (true, None));
    }
}
