//! `mcp-proxy doctor`: whether all is well, from the servers' commands to the hosts' files.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};

use super::app::Global;
use super::client::{self, Starts};
use super::run;
use crate::config::{self, Loaded, Target, Transport};
use crate::hosts::look::{self, Sight};
use crate::hosts::{self, HOSTS, Host, Surroundings};
use crate::runtime::desk::DeskEvent;
use crate::runtime::launch;
use crate::runtime::shelf::Shelf;

/// How it is told.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  mcp-proxy doctor
  mcp-proxy doctor github
  mcp-proxy doctor --json

It starts every server, or the one that is named. Exit code 0: all is well; 1: something needs a person.")]
pub struct DoctorArgs {
    /// Only this server, and no host
    server: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// The configuration can't be used.
pub fn run(global: &Global, args: &DoctorArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let loaded = run::load(global)?;
    let starts = match &args.server {
        Some(name) => Starts::One(known(&loaded, name)?),
        None => Starts::All,
    };
    let (health, catalog) = client::with(global, starts, "starting the servers", async |client| {
        client.open().await?;
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            client.ask(method, "{}").await?;
        }
        let health = client.inquire(DeskEvent::Health).await?;
        let catalog = client.inquire(DeskEvent::Catalog).await?;
        Ok((health, catalog.as_str().unwrap_or("{}").to_owned()))
    })?;
    let catalog: Value = serde_json::from_str(&catalog)?;
    let own = std::env::current_exe().ok();
    let seen: Vec<Seen> = Surroundings::of_process()
        .filter(|_| args.server.is_none())
        .map(|around| HOSTS.iter().map(|host| Seen::new(host, &around, own.as_deref(), &loaded.config.path)).collect())
        .unwrap_or_default();
    let bounds = Bounds::of(&seen);
    let servers: Vec<Value> = servers(&loaded, &health, &catalog, &bounds);
    let hosts: Vec<Value> = seen.iter().map(Seen::told).collect();
    let well = servers.iter().all(|server| server["ok"] == true) && seen.iter().all(|host| host.problems.is_empty());
    let warnings = bounds.warnings(&catalog);
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

/// The name, if a server has it.
fn known<'n>(loaded: &Loaded, name: &'n str) -> anyhow::Result<&'n str> {
    let servers = loaded.config.servers.iter().map(|server| server.key.as_str());
    let all: Vec<&str> = servers.chain(loaded.broken.iter().map(|broken| broken.key.as_str())).collect();
    if !all.contains(&name) {
        bail!("no server is named \"{name}\"; the servers are: {}", all.join(", "));
    }
    Ok(name)
}

fn servers(loaded: &Loaded, health: &Value, catalog: &Value, bounds: &Bounds) -> Vec<Value> {
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
        if let Some((most, title)) = bounds.least_tools().filter(|(most, _)| of_it > *most) {
            more.push(format!(
                "it alone has {of_it} tools, and {title} takes no more than {most}; filter them with tools.allow"
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

/// A host, and what is not well with it.
struct Seen {
    host: &'static Host,
    sight: Sight,
    problems: Vec<String>,
    /// What a person may want to know, for all is well with it.
    notes: Vec<String>,
}

// === impl Seen ===

impl Seen {
    fn new(host: &'static Host, around: &Surroundings, own: Option<&Path>, config: &Path) -> Self {
        let sight = look::look(host, around, own);
        let (mut problems, mut notes) = (Vec::new(), Vec::new());
        for (file, why) in &sight.unreadable {
            problems.push(format!("its file {} can't be read: {why}", around.tilde(file)));
        }
        for entry in &sight.entries {
            let name = &entry.name;
            let mend = format!("`mcp-proxy install {}` corrects it", host.id);
            let program = Path::new(&entry.command);
            let has_place = entry.command.contains(['/', '\\']);
            if has_place && program.is_absolute() && !program.exists() {
                problems.push(format!("`{name}` starts {}, which is not there; {mend}", entry.command));
            } else if !has_place && around.find_program(&entry.command).is_none() {
                problems.push(format!("`{name}` starts `{}`, which is not on PATH; {mend}", entry.command));
            } else if !has_place {
                notes.push(format!(
                    "`{name}` starts `{}` by its name alone; a desktop program may have another PATH than you: {mend}",
                    entry.command
                ));
            } else if own.is_some_and(|own| !is_same_file(own, program)) {
                notes.push(format!("`{name}` starts another copy of the proxy than this one: {}", entry.command));
            }
            match entry.config() {
                Some(other) if !Path::new(other).exists() => {
                    problems.push(format!("`{name}` names the configuration {other}, which is not there"));
                }
                Some(other) if !is_same_file(config, Path::new(other)) => {
                    notes.push(format!("`{name}` uses another configuration than was looked at here: {other}"));
                }
                _ => {}
            }
            if !entry.enabled {
                notes.push(format!("`{name}` is switched off there"));
            }
        }
        let own_table = sight.entries.iter().filter(|entry| entry.enabled && entry.scope.is_empty()).count();
        if own_table > 1 {
            notes.push(format!("it starts the proxy {own_table} times, so that a model sees each tool as often"));
        }
        Self { host, sight, problems, notes }
    }

    fn is_configured(&self) -> bool {
        !self.sight.entries.is_empty()
    }

    /// The name that its entry has, or would have.
    fn entry_name(&self) -> &str {
        self.sight.entries.first().map_or(hosts::ENTRY_NAME, |entry| &entry.name)
    }

    fn told(&self) -> Value {
        let entries = self.sight.entries.iter().map(|entry| {
            json!({
                "file": entry.file.display().to_string(),
                "scope": entry.scope,
                "name": entry.name,
                "command": entry.command,
                "args": entry.args,
                "enabled": entry.enabled,
            })
        });
        json!({
            "id": self.host.id,
            "title": self.host.title,
            "file": self.sight.file.as_ref().map(|file| file.display().to_string()),
            "installed": self.sight.installed,
            "configured": self.is_configured(),
            "entries": entries.collect::<Vec<_>>(),
            "problems": self.problems,
            "notes": self.notes,
        })
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// What the hosts at hand bear: those that start the proxy, else those that are there, else all that are known.
struct Bounds<'a>(Vec<(&'static Host, &'a str)>);

// === impl Bounds ===

impl<'a> Bounds<'a> {
    fn of(seen: &'a [Seen]) -> Self {
        let some = |chosen: fn(&Seen) -> bool| {
            let hosts: Vec<_> =
                seen.iter().filter(|host| chosen(host)).map(|one| (one.host, one.entry_name())).collect();
            (!hosts.is_empty()).then_some(hosts)
        };
        let all = || HOSTS.iter().map(|host| (host, hosts::ENTRY_NAME)).collect();
        Self(some(Seen::is_configured).or_else(|| some(|one| one.sight.installed)).unwrap_or_else(all))
    }

    /// The least number of tools that one of them takes.
    fn least_tools(&self) -> Option<(usize, &'static str)> {
        self.0.iter().filter_map(|(host, _)| Some((host.max_tools?, host.title))).min()
    }

    /// Too many tools, and names that are too long, a line for each host.
    fn warnings(&self, catalog: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        let tools = catalog["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        for (host, entry) in &self.0 {
            let title = host.title;
            if let Some(most) = host.max_tools.filter(|most| tools.len() > *most) {
                warnings.push(format!(
                    "there are {} tools, and {title} takes no more than {most}; filter them, or use profiles",
                    tools.len()
                ));
            }
            let Some(room) = host.max_name.map(|limit| limit.room(entry)) else { continue };
            let long: Vec<&str> = names.iter().copied().filter(|name| name.chars().count() > room).collect();
            if let Some(first) = long.first() {
                let more = if long.len() > 1 { format!(" and {} more", long.len() - 1) } else { String::new() };
                warnings.push(format!(
                    "under {title} a tool's name has room for {room} characters, and {first}{more} is longer; rename \
                     it, or lower max_name_length"
                ));
            }
        }
        let odd = names.iter().filter(|name| !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'));
        warnings.extend(odd.map(|name| format!("the tool {name} has characters that some hosts refuse")));
        warnings
    }
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
        let title = text(&host["title"]);
        for problem in host["problems"].as_array().into_iter().flatten() {
            writeln!(out, "{title}: NOT WELL, {}", text(problem))?;
        }
        for entry in host["entries"].as_array().into_iter().flatten() {
            let scope = entry["scope"].as_str().filter(|scope| !scope.is_empty());
            let scope = scope.map(|scope| format!(" in {scope}")).unwrap_or_default();
            writeln!(
                out,
                "{title}: starts the proxy, by `{}`{scope} in {}",
                text(&entry["name"]),
                text(&entry["file"])
            )?;
        }
        for note in host["notes"].as_array().into_iter().flatten() {
            writeln!(out, "  {}", text(note))?;
        }
        if host["configured"] != true && host["problems"].as_array().is_none_or(Vec::is_empty) {
            writeln!(out, "{title}: does not know the proxy; `mcp-proxy install {}` tells it", text(&host["id"]))?;
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

    fn warned(hosts: &[&str], entry: &str, names: &[&str]) -> Vec<String> {
        let hosts = hosts.iter().map(|id| (hosts::by_id(id).expect("known"), entry));
        let tools: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
        Bounds(hosts.collect()).warnings(&json!({ "tools": tools }))
    }

    #[test]
    fn each_host_has_room_of_its_own() {
        let check = |host: &str, entry: &str, length: usize, told: usize| {
            let warnings = warned(&[host], entry, &["x".repeat(length).as_str()]);
            assert_eq!(warnings.len(), told, "{host} {entry} {length}: {warnings:?}");
        };
        check("cursor", "hub", 56, 0);
        check("cursor", "hub", 57, 1);
        check("cursor", "another", 53, 1);
        check("claude-desktop", "another", 64, 0);
        check("claude-code", "hub", 118, 0);
        check("claude-code", "hub", 119, 1);
        check("junie", "hub", 500, 0);
        assert_eq!(warned(&["junie"], "hub", &["a.b"]).len(), 1);
    }

    #[test]
    fn too_many_tools_are_told_for_those_hosts_alone() {
        let names: Vec<String> = (0..101).map(|number| format!("t{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let told = warned(&["cursor", "vscode", "windsurf", "zed"], "hub", &names);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("Cursor") && told[1].contains("Windsurf"), "{told:?}");
    }
}
