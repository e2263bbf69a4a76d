//! `mcp-proxy check`: what is wrong with the configuration, and how the servers do.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use super::app::Global;
use super::client::{self, Starts};
use crate::config::{self, Config, Fault, Here, HostLookup, Severity};
use crate::runtime::desk::DeskEvent;

/// How thorough, and how it is told.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  mcp-proxy check
  mcp-proxy check --start --config ./mcp-proxy.toml

It also says which variable, file, keyring entry or program of a server is not found from here; a host may have others.
Exit code 0: every server can be started, and with --start it was; 1: what is wrong is told.")]
pub struct CheckArgs {
    /// Start every server and show how it does
    #[arg(long)]
    start: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// There is no file, or it can't be read.
pub fn run(global: &Global, args: &CheckArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let path = config::config_path(global.config.as_deref())?;
    let text = config::read(&path)?;
    let mut parsed = config::parse(&path, &text, global.profile.as_deref());
    // What is started says for itself what it lacks.
    if !args.start && !parsed.fatal() {
        parsed.faults.extend(unmet(&parsed.config, &text));
        parsed.faults.sort_by_key(|fault| (fault.line, fault.column));
    }
    let sound = parsed.faults.iter().all(|fault| fault.severity == Severity::Warning);
    let health = if args.start && !parsed.fatal() { Some(health(global)?) } else { None };
    let well = health.as_ref().is_none_or(|health| health["ok"] == true);
    if args.json {
        let mut report = config::faults_json(&parsed.faults);
        if let Some(health) = health {
            report["ok"] = (sound && well).into();
            report["servers"] = health["servers"].clone();
        }
        writeln!(out, "{report:#}")?;
        return Ok(ExitCode::from(u8::from(!(sound && well))));
    }
    if !parsed.faults.is_empty() {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        write!(out, "{}", config::render_faults(&parsed.faults, &text, &parsed.hidden, colour))?;
    }
    if let Some(health) = &health {
        print_health(health, out)?;
    }
    if sound && health.is_none() {
        let count = parsed.config.servers.len();
        writeln!(out, "{} is well: {count} server{}.", path.display(), if count == 1 { "" } else { "s" })?;
    }
    Ok(ExitCode::from(u8::from(!(sound && well))))
}

fn unmet(config: &Config, text: &str) -> Vec<Fault> {
    let host: Vec<_> = std::env::vars_os().collect();
    let usual = config::usual_places(config::home_dir().as_deref());
    config::unmet(config, text, &Here { lookup: &HostLookup::new(&config.path), host: &host, usual: &usual })
}

fn health(global: &Global) -> anyhow::Result<Value> {
    client::with(global, Starts::All, "starting the servers", async |client| {
        client.open().await?;
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            client.ask(method, "{}").await?;
        }
        client.inquire(DeskEvent::Health).await
    })
}

fn print_health(health: &Value, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        "server",
        "state",
        "protocol",
        "start",
        "tools",
        "prompts",
        "resources",
        "templates",
        "noise",
        "repairs",
    ]);
    let servers = health["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
    for server in servers {
        let text = |key: &str| match &server[key] {
            Value::String(text) => text.clone(),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        let start = server["startMs"].as_u64().map_or_else(|| "-".to_owned(), |ms| format!("{ms} ms"));
        let mut row = vec![text("name"), text("state"), text("protocol"), start];
        row.extend(["tools", "prompts", "resources", "templates", "noiseLines", "repairs"].map(text));
        table.add_row(row);
    }
    writeln!(out, "{table}")?;
    for server in servers {
        for problem in server["problems"].as_array().into_iter().flatten() {
            writeln!(out, "{}: {}", server["name"].as_str().unwrap_or_default(), problem.as_str().unwrap_or_default())?;
        }
    }
    Ok(())
}
