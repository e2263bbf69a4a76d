//! `mcp-proxy unknown`: the calls whose outcome is unknown, and what became known since.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use comfy_table::{ContentArrangement, Table, presets};

use crate::engine::outcome::{Exit, Kept, Resolution, ResolvedAs, Row, SettledAs, State, UnixMs};
use crate::runtime::ledger::{Db, Filter, LedgerError};

/// Calls whose outcome is unknown: list them, look at one, say what happened
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct UnknownArgs {
    /// What to do; nothing: list.
    #[command(subcommand)]
    pub command: Option<UnknownCommand>,
    /// The filters of the list.
    #[command(flatten)]
    pub list: ListArgs,
}

/// What to do with the ledger.
#[derive(Clone, Debug, Subcommand)]
pub enum UnknownCommand {
    /// List the calls, newest first
    #[command(after_help = "Example:\n  mcp-proxy unknown list --server mail --state unknown --age 12h")]
    List(ListArgs),
    /// Show all that is known of one call
    #[command(after_help = "Example:\n  mcp-proxy unknown show u-0f3")]
    Show(ShowArgs),
    /// Say what happened to a call, so that it no longer stands in the way of an identical one
    #[command(after_help = "Example:\n  mcp-proxy unknown resolve u-0f3 --as done --note 'seen in the statement'")]
    Resolve(ResolveArgs),
}

/// The filters of `unknown list`.
#[derive(Clone, Debug, Default, Args)]
pub struct ListArgs {
    /// Only calls to this server
    #[arg(long, value_name = "SERVER")]
    pub server: Option<String>,
    /// Only calls in this state; may be given more than once
    #[arg(long = "state", value_name = "STATE")]
    pub states: Vec<StateArg>,
    /// Only calls sent within this time, such as 90s, 30m, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = parse_age)]
    pub age: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `unknown show`.
#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// The id of the call, or the beginning of it
    pub id: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The arguments of `unknown resolve`.
#[derive(Clone, Debug, Args)]
pub struct ResolveArgs {
    /// The id of the call, or the beginning of it
    pub id: String,
    /// What happened
    #[arg(long = "as", value_name = "OUTCOME")]
    pub verdict: VerdictArg,
    /// How it was found out
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub note: String,
    /// Print the call as JSON
    #[arg(long)]
    pub json: bool,
}

/// A state on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StateArg {
    /// Nobody knows what happened
    Unknown,
    /// A late response came
    Settled,
    /// Somebody said what happened
    Resolved,
}

/// A verdict on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerdictArg {
    /// The call did what it was asked to do
    Done,
    /// It did not
    NotDone,
}

/// Runs the command on the ledger of a state directory.
///
/// # Errors
/// The ledger can't be used, or no row or several rows have the id; to be told to the person, with exit code 1.
pub fn run(args: &UnknownArgs, state_dir: &Path, now: UnixMs, out: &mut dyn Write) -> anyhow::Result<()> {
    let db = Db::open_existing(state_dir)?;
    match &args.command {
        None => list(db, &args.list, now, out),
        Some(UnknownCommand::List(args)) => list(db, args, now, out),
        Some(UnknownCommand::Show(args)) => show(db, args, now, out),
        Some(UnknownCommand::Resolve(args)) => resolve(db, args, now, out),
    }
}

fn list(db: Option<Db>, args: &ListArgs, now: UnixMs, out: &mut dyn Write) -> anyhow::Result<()> {
    let before = |age: Duration| UnixMs(now.0.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
    let filter = Filter {
        server: args.server.clone(),
        states: args.states.iter().map(|&state| state.into()).collect(),
        since: args.age.map(before),
        limit: None,
    };
    let rows = db.map(|db| db.list(&filter)).transpose()?.unwrap_or_default();
    if args.json {
        return print_json(&rows, out);
    }
    if rows.is_empty() {
        let text = if filter == Filter::default() { "No call has an unknown outcome." } else { "No call matches." };
        writeln!(out, "{text}")?;
        return Ok(());
    }
    let mut table = plain_table();
    table.set_header(["ID", "SENT", "TOOL", "STATE", "WHAT HAPPENED"]);
    for row in &rows {
        let tool = format!("{}/{}", row.server, row.tool);
        let cells = [row.id.to_string(), ago(now, row.time), tool, row.state().name().to_owned(), story(row)];
        table.add_row(cells.map(|cell| harmless(&cell)));
    }
    writeln!(out, "{table}")?;
    Ok(())
}

fn show(db: Option<Db>, args: &ShowArgs, now: UnixMs, out: &mut dyn Write) -> anyhow::Result<()> {
    let row = existing(db, &args.id)?.find(&args.id)?;
    if args.json { print_json(&row, out) } else { print_row(&row, now, out) }
}

fn resolve(db: Option<Db>, args: &ResolveArgs, now: UnixMs, out: &mut dyn Write) -> anyhow::Result<()> {
    let resolution = Resolution { verdict: args.verdict.into(), note: args.note.clone(), at: now };
    let row = existing(db, &args.id)?.resolve(&args.id, &resolution)?;
    if args.json {
        return print_json(&row, out);
    }
    let verdict = resolution.verdict.name();
    writeln!(out, "{} ({}/{}) is resolved as {verdict}.", row.id, row.server, row.tool)?;
    Ok(())
}

fn existing(db: Option<Db>, id: &str) -> Result<Db, LedgerError> {
    db.ok_or_else(|| LedgerError::NoSuchRow(id.to_owned()))
}

fn print_json(value: &impl serde::Serialize, out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).context("the rows can't be printed")?;
    writeln!(out)?;
    Ok(())
}

fn print_row(row: &Row, now: UnixMs, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut table = plain_table();
    let mut add = |name: &str, value: String| {
        table.add_row([name.to_owned(), harmless(&value)]);
    };
    add("id", row.id.to_string());
    add("state", row.state().name().to_owned());
    add("what happened", story(row));
    add("sent", format!("{} ({})", row.time, ago(now, row.time)));
    add("lost", format!("{} ({})", row.lost_at, ago(now, row.lost_at)));
    add("server", row.server.clone());
    add("tool", format!("{} (the host calls it {})", row.tool, row.exposed));
    match &row.arguments {
        Some(kept) => add("arguments", shown(kept)),
        None => add("arguments", format!("none, or not kept; digest {}", row.digest)),
    }
    add("request", format!("{} (the host's {}, proxy process {})", row.request(), row.host_request_id, row.pid));
    if let Some(late) = &row.settlement {
        add("late response", format!("{} ({})", late.at, late.kind.name()));
        add("result", shown(&late.result));
    }
    if let Some(resolution) = &row.resolution {
        add("resolved", format!("{} (as {})", resolution.at, resolution.verdict.name()));
        add("note", resolution.note.clone());
    }
    for (name, at) in [("refused once", row.refused_at), ("repeated", row.repeated_at)] {
        if let Some(at) = at {
            add(name, at.to_string());
        }
    }
    if let Some(of) = row.repeat_of {
        add("repeats", of.to_string());
    }
    writeln!(out, "{table}")?;
    if row.state() == State::Unknown {
        let Row { id, server, .. } = row;
        writeln!(
            out,
            "\nLook in \"{server}\" itself whether the call took effect, then: \
             mcp-proxy unknown resolve {id} --as done|not-done"
        )?;
    }
    Ok(())
}

/// What is known, in a few words: first of all the best that is known.
fn story(row: &Row) -> String {
    if let Some(Resolution { verdict, note, .. }) = &row.resolution {
        let said = match verdict {
            ResolvedAs::Done => "somebody said: it is done",
            ResolvedAs::NotDone => "somebody said: it is not done",
        };
        return if note.is_empty() { said.to_owned() } else { format!("{said} ({note})") };
    }
    let exit = match &row.exit {
        Some(Exit::Code(code)) => format!(" (exit code {code})"),
        Some(Exit::Signal(signal)) => format!(" ({signal})"),
        None => String::new(),
    };
    let lost = format!("{}{exit}", row.reason.clause());
    match row.settlement.as_ref().map(|late| late.kind) {
        None => lost,
        Some(SettledAs::Success) => format!("{lost}; a late answer says that it succeeded"),
        Some(SettledAs::ToolError) => format!("{lost}; a late answer says that the tool failed"),
        Some(SettledAs::ProtocolError) => format!("{lost}; a late answer was a protocol error"),
    }
}

fn shown(kept: &Kept) -> String {
    if kept.cut { format!("{} … ({} bytes in all)", kept.text, kept.length) } else { kept.text.clone() }
}

/// Names and texts of servers must not steer the terminal.
fn harmless(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { '\u{fffd}' } else { char }).collect()
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table
}

fn ago(now: UnixMs, then: UnixMs) -> String {
    match now.since(then) / 1000 {
        seconds @ 0..60 => format!("{seconds}s ago"),
        seconds @ 60..3_600 => format!("{}m ago", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h ago", seconds / 3_600),
        seconds => format!("{}d ago", seconds / 86_400),
    }
}

/// Reads a time such as `90s`, `30m`, `12h` or `7d`.
fn parse_age(text: &str) -> Result<Duration, String> {
    let expected = || format!("{text:?} is not a time: a number and s, m, h, d or w were expected, such as 12h");
    let digits = text.trim_end_matches(|unit: char| !unit.is_ascii_digit());
    let seconds: u64 = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(expected()),
    };
    let count: u64 = digits.parse().map_err(|_| expected())?;
    count.checked_mul(seconds).map(Duration::from_secs).ok_or_else(expected)
}

impl From<StateArg> for State {
    fn from(state: StateArg) -> Self {
        match state {
            StateArg::Unknown => Self::Unknown,
            StateArg::Settled => Self::Settled,
            StateArg::Resolved => Self::Resolved,
        }
    }
}

impl From<VerdictArg> for ResolvedAs {
    fn from(verdict: VerdictArg) -> Self {
        match verdict {
            VerdictArg::Done => Self::Done,
            VerdictArg::NotDone => Self::NotDone,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::engine::outcome::{Digester, Intent, Loss, OutcomeId, Reason, Settlement, no_mask};
    use crate::runtime::inflight::Intents;

    const NOW: UnixMs = UnixMs(1_800_000_000_000);

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: UnknownArgs,
    }

    fn unknown(dir: &Path, args: &[&str]) -> Result<String, String> {
        let cli = Cli::try_parse_from([&["unknown"], args].concat()).map_err(|error| error.kind().to_string())?;
        let mut out = Vec::new();
        run(&cli.args, dir, NOW, &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    /// Two lost calls: one to `bank` ten minutes ago, one to `shop` two days ago that was settled late.
    fn fill(dir: &Path) {
        let mut intents = Intents::disabled();
        let mut db = Db::open(dir).unwrap();
        let arguments = r#"{"sum":1.00}"#;
        for (bits, server, age) in [(1, "bank", 600_000), (0x400_0000_0000_0000, "shop", 2 * 86_400_000)] {
            let (id, time) = (OutcomeId::from_random(bits), UnixMs(NOW.0 - age));
            let intent = Intent {
                id,
                time,
                server,
                tool: "pay",
                exposed: "x__pay",
                host_request_id: "7",
                generation: 3,
                sequence: 17,
                digest: Some(Digester::default().digest(server, "pay", Some(arguments.as_bytes()))),
                arguments: Some(arguments),
                repeat_of: None,
            };
            intents.begin(&intent, None).unwrap();
            let exit = Some(Exit::Signal("SIGKILL".into()));
            let row = intents.lost(id, &Loss { reason: Reason::ChildExited, exit, at: time }).unwrap();
            db.write(|change| change.insert(&row)).unwrap();
        }
        let late = Settlement::new(SettledAs::Success, NOW, r#"{"content":[]}"#, &no_mask);
        db.write(|change| change.settle(OutcomeId::from_random(0x400_0000_0000_0000), &late)).unwrap();
    }

    #[test]
    fn rows_have_the_names_of_the_design() {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path());
        let text = unknown(dir.path(), &["list", "--json"]).unwrap();
        assert!(text.contains(r#"{"sum":1.00}"#), "number spelling is kept: {text}");
        let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            rows,
            serde_json::json!([
                {
                    "id": "u-0000000000001", "time": "2027-01-15T07:50:00.000Z", "lostAt": "2027-01-15T07:50:00.000Z",
                    "state": "unknown", "server": "bank", "tool": "pay", "exposed": "x__pay",
                    "arguments": {"sum": 1.00}, "argumentsDigest": rows[0]["argumentsDigest"], "hostRequestId": 7,
                    "generation": 3, "sequence": 17, "request": "3:17", "reason": "child_exited",
                    "exit": {"signal": "SIGKILL"}, "pid": std::process::id(),
                },
                {
                    "id": "u-0800000000000", "time": "2027-01-13T08:00:00.000Z", "lostAt": "2027-01-13T08:00:00.000Z",
                    "state": "settled", "server": "shop", "tool": "pay", "exposed": "x__pay",
                    "arguments": {"sum": 1.00}, "argumentsDigest": rows[1]["argumentsDigest"], "hostRequestId": 7,
                    "generation": 3, "sequence": 17, "request": "3:17", "reason": "child_exited",
                    "exit": {"signal": "SIGKILL"}, "pid": std::process::id(),
                    "settlement": {"kind": "success", "at": "2027-01-15T08:00:00.000Z", "result": {"content": []}},
                },
            ])
        );
    }

    #[test]
    fn filters_choose() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(unknown(&dir.path().join("none"), &["--json"]), Ok("[]\n".into()));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(unknown(&file, &[]).is_err(), "what is no directory is no empty ledger");
        assert_eq!(unknown(dir.path(), &[]), Ok("No call has an unknown outcome.\n".into()));
        fill(dir.path());
        for (args, expected) in [
            (&[][..], &["bank", "shop"][..]),
            (&["list"], &["bank", "shop"]),
            (&["--server", "bank"], &["bank"]),
            (&["list", "--server", "none"], &[]),
            (&["list", "--state", "settled"], &["shop"]),
            (&["list", "--state", "unknown", "--state", "settled"], &["bank", "shop"]),
            (&["list", "--state", "resolved"], &[]),
            (&["list", "--age", "600s"], &["bank"]),
            (&["list", "--age", "9m"], &[]),
            (&["list", "--age", "1w"], &["bank", "shop"]),
        ] {
            let text = unknown(dir.path(), &[args, &["--json"]].concat()).unwrap();
            let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
            assert_eq!(
                rows.iter().map(|row| row["server"].as_str().unwrap()).collect::<Vec<_>>(),
                expected,
                "{args:?}"
            );
        }
        for bad in [&["--age", "5"][..], &["--age", "xh"], &["--state", "gone"], &["resolve", "u-1"], &["show"]] {
            assert!(unknown(dir.path(), bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_terminal_is_not_steered() {
        assert_eq!(harmless("a\u{1b}[2Jb\u{9b}c\n"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
    }

    #[test]
    fn a_call_is_shown_and_resolved() {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path());
        let table = unknown(dir.path(), &["list"]).unwrap();
        for part in ["u-0000000000001", "10m ago", "bank/pay", "unknown", "settled", "SIGKILL"] {
            assert!(table.contains(part), "{table}");
        }
        let shown = unknown(dir.path(), &["show", "u-00"]).unwrap();
        for part in ["3:17", r#"{"sum":1.00}"#, "unknown resolve u-0000000000001 --as"] {
            assert!(shown.contains(part), "{shown}");
        }
        let ambiguous = unknown(dir.path(), &["show", "u-0"]).unwrap_err();
        assert!(ambiguous.contains("u-0000000000001, u-0800000000000"), "{ambiguous}");
        for id in ["u-7", "", "u-", "' OR 1", "%"] {
            assert!(unknown(dir.path(), &["show", id]).unwrap_err().contains("unknown list"), "{id}");
        }
        let resolved = unknown(dir.path(), &["resolve", "00", "--as", "not-done", "--note", "no entry"]).unwrap();
        assert_eq!(resolved, "u-0000000000001 (bank/pay) is resolved as not-done.\n");
        let row: serde_json::Value =
            serde_json::from_str(&unknown(dir.path(), &["show", "00", "--json"]).unwrap()).unwrap();
        assert_eq!(row["state"], "resolved");
        let expected = serde_json::json!({"as": "not-done", "note": "no entry", "at": NOW.to_string()});
        assert_eq!(row["resolution"], expected);
    }
}
