//! `mcp-proxy top`: one page of all running proxies that keeps itself up to date.
//!
//! A thread of its own asks the proxies once a second, so that one that does not answer leaves the keys alive. What is
//! drawn is a pure function of `draw::State`.

mod draw;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use self::draw::{Call, Row, State};
use super::control::{self, Which};
use crate::engine::hub::Command;
use crate::runtime::control::Request;

/// Of which proxies.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  mcp-proxy top

Keys: up and down choose a server, r restarts it, s stops it or starts it again, l shows its log, q ends the page.")]
pub struct TopArgs {
    #[command(flatten)]
    which: Which,
}

/// Between two looks at the proxies.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks at the keys.
const KEYS: Duration = Duration::from_millis(200);
/// Lines of the log that are shown at most.
const LOG: usize = 200;

enum News {
    Looked(Vec<(u32, Value)>, Instant),
    Said(String),
    Log(Vec<String>),
}

/// Runs the page until a person ends it.
///
/// # Errors
/// Standard output is no terminal, or no proxy runs.
pub fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    if !std::io::stdout().is_terminal() {
        bail!("top needs a terminal; `mcp-proxy status --watch` works without");
    }
    drop(control::some_running(args.which)?);
    let (send, news) = mpsc::channel();
    look_on(args.which, send.clone());
    let mut terminal = ratatui::try_init()?;
    let result = page(&mut terminal, &news, &send);
    ratatui::restore();
    result.map(|()| ExitCode::SUCCESS)
}

fn page(terminal: &mut ratatui::DefaultTerminal, news: &Receiver<News>, send: &Sender<News>) -> anyhow::Result<()> {
    let mut state =
        State { coloured: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()), ..State::default() };
    let mut before = Before::default();
    loop {
        for news in news.try_iter() {
            match news {
                News::Looked(proxies, at) => take(&mut state, &mut before, &proxies, at),
                News::Said(text) => state.message = text,
                News::Log(lines) => state.log = state.log.is_some().then_some(lines),
            }
        }
        terminal.draw(|frame| draw::draw(frame, &state))?;
        if !event::poll(KEYS)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && !handle(&mut state, key, send)
        {
            return Ok(());
        }
    }
}

/// What a key does; `false`: the end.
fn handle(state: &mut State, key: KeyEvent, send: &Sender<News>) -> bool {
    let last = state.rows.len().saturating_sub(1);
    match key.code {
        KeyCode::Char('q') => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Esc if state.log.is_none() => return false,
        KeyCode::Esc => state.log = None,
        KeyCode::Up | KeyCode::Char('k') => state.chosen = state.chosen.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => state.chosen = (state.chosen + 1).min(last),
        KeyCode::Char('l') if state.log.is_some() => state.log = None,
        KeyCode::Char('l') => {
            if let Some(row) = state.rows.get(state.chosen) {
                state.log = Some(Vec::new());
                ask_log(row, send.clone());
            }
        }
        KeyCode::Char('r') => order(state, Command::Restart, send),
        KeyCode::Char('s') => {
            let rests = state.rows.get(state.chosen).is_some_and(|row| row.state == "stopped");
            order(state, if rests { Command::Start } else { Command::Stop }, send);
        }
        _ => {}
    }
    true
}

fn order(state: &mut State, command: Command, send: &Sender<News>) {
    let Some(row) = state.rows.get(state.chosen) else { return };
    let (pid, server, send) = (row.proxy, row.server.clone(), send.clone());
    state.message = format!("{command:?} {server} …").to_lowercase();
    std::thread::spawn(move || {
        let request = Request::Order { command, server: server.clone(), now: false };
        let said = match ask(pid, &request) {
            Ok(_) => format!("{}: {server}", format!("{command:?}").to_lowercase()),
            Err(error) => format!("{error:#}"),
        };
        let _ = send.send(News::Said(said));
    });
}

fn ask(pid: u32, request: &Request) -> anyhow::Result<Value> {
    let mut proxies = control::running(Which { pid: Some(pid) })?;
    let (_, line) = proxies.first_mut().expect("a process that does not run is an error");
    line.ask(request)
}

fn ask_log(row: &Row, send: Sender<News>) {
    let (pid, server) = (row.proxy, row.server.clone());
    std::thread::spawn(move || {
        let lines = (|| -> anyhow::Result<Vec<String>> {
            let mut proxies = control::running(Which { pid: Some(pid) })?;
            let (_, line) = proxies.first_mut().expect("a process that does not run is an error");
            line.say(&Request::Logs { server: Some(server), follow: false })?;
            let mut lines = Vec::new();
            while let Some(said) = line.next_line()? {
                lines.push(super::logs::calm(said["text"].as_str().unwrap_or_default()));
            }
            Ok(lines.split_off(lines.len().saturating_sub(LOG)))
        })();
        let _ = send.send(match lines {
            Ok(lines) => News::Log(lines),
            Err(error) => News::Said(format!("{error:#}")),
        });
    });
}

/// Asks the proxies once a second, until nobody listens.
fn look_on(which: Which, send: Sender<News>) {
    std::thread::spawn(move || {
        loop {
            let proxies = control::running(which).unwrap_or_default();
            let looked =
                proxies.into_iter().filter_map(|(pid, mut line)| Some((pid, line.ask(&Request::Overview).ok()?)));
            if send.send(News::Looked(looked.collect(), Instant::now())).is_err() {
                return;
            }
            std::thread::sleep(LOOK);
        }
    });
}

/// The counters of the last look, for rates.
#[derive(Debug, Default)]
struct Before {
    calls: HashMap<(u32, String), u64>,
    at: Option<Instant>,
}

/// Takes over what a look brought.
fn take(state: &mut State, before: &mut Before, proxies: &[(u32, Value)], at: Instant) {
    let passed = before.at.map(|then| at.saturating_duration_since(then).as_secs_f64());
    let chosen = state.rows.get(state.chosen).map(|row| (row.proxy, row.server.clone()));
    let mut counters = HashMap::new();
    let mut recent = Vec::new();
    (state.rows, state.unknown) = (Vec::new(), 0);
    for (pid, overview) in proxies {
        let status = &overview["status"];
        state.unknown += status["unknown"].as_u64().unwrap_or_default();
        for server in status["servers"].as_array().into_iter().flatten() {
            let row = row_of(*pid, server);
            let key = (*pid, row.server.clone());
            let rate = passed.filter(|passed| *passed > 0.0).zip(before.calls.get(&key)).map(|(passed, then)| {
                let more = u32::try_from(row.calls.saturating_sub(*then)).unwrap_or(u32::MAX);
                f64::from(more) / passed
            });
            counters.insert(key, row.calls);
            state.rows.push(Row { rate, ..row });
        }
        recent.extend(overview["recent"].as_array().into_iter().flatten().map(call_of));
    }
    recent.sort_by(|a: &Call, b: &Call| b.at.cmp(&a.at));
    state.recent = recent;
    state.proxies = Some(proxies.len());
    let kept = state.rows.iter().position(|row| Some((row.proxy, row.server.clone())) == chosen);
    state.chosen = kept.unwrap_or_else(|| state.chosen.min(state.rows.len().saturating_sub(1)));
    *before = Before { calls: counters, at: Some(at) };
}

fn row_of(proxy: u32, server: &Value) -> Row {
    let text = |key: &str| super::logs::calm(server[key].as_str().unwrap_or_default());
    let count = |key: &str| server[key].as_u64().unwrap_or_default();
    let stderr = server["stderr"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Row {
        proxy,
        server: text("name"),
        state: text("state"),
        generation: count("generation"),
        calls: count("calls"),
        rate: None,
        p50: server["callMs"]["p50"].as_f64(),
        p99: server["callMs"]["p99"].as_f64(),
        pending: count("pending"),
        errors: count("errors"),
        unknown: count("unknown"),
        restarts: count("restarts"),
        error: server["lastError"].as_str().map(super::logs::calm),
        stderr: stderr.map(super::logs::calm).collect(),
    }
}

fn call_of(call: &Value) -> Call {
    let text = |key: &str| super::logs::calm(call[key].as_str().unwrap_or_default());
    Call {
        at: text("at"),
        server: text("server"),
        name: text("name"),
        ms: call["ms"].as_f64().unwrap_or_default(),
        outcome: text("outcome"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overview(calls: u64) -> Vec<(u32, Value)> {
        let server = |name: &str| json!({ "name": name, "state": "ready", "calls": calls, "stderr": ["a\u{1b}[2Jb"] });
        let recent = json!([{ "server": "a", "name": "a__x", "ms": 1.5, "outcome": "answered", "at": "T" }]);
        vec![(7, json!({ "status": { "unknown": 2, "servers": [server("a"), server("b")] }, "recent": recent }))]
    }

    #[test]
    fn rates_come_of_two_looks_and_the_choice_stays() {
        let (mut state, mut before, now) = (State::default(), Before::default(), Instant::now());
        take(&mut state, &mut before, &overview(10), now);
        assert_eq!((state.rows[0].rate, state.unknown, state.recent.len()), (None, 2, 1));
        assert!(!state.rows[0].stderr[0].contains('\u{1b}'));
        state.chosen = 1;
        take(&mut state, &mut before, &overview(30), now + Duration::from_secs(2));
        assert_eq!((state.rows[1].rate, state.chosen), (Some(10.0), 1));
        take(&mut state, &mut before, &[], now + Duration::from_secs(3));
        assert_eq!((state.rows.len(), state.chosen), (0, 0));
    }

    #[test]
    fn keys_choose_and_end() {
        let (send, _news) = mpsc::channel();
        let (mut state, mut before) = (State::default(), Before::default());
        take(&mut state, &mut before, &overview(1), Instant::now());
        let press = |state: &mut State, code| handle(state, KeyEvent::from(code), &send);
        assert!(press(&mut state, KeyCode::Down) && press(&mut state, KeyCode::Down));
        assert_eq!(state.chosen, 1);
        assert!(press(&mut state, KeyCode::Up));
        assert_eq!(state.chosen, 0);
        assert!(!press(&mut state, KeyCode::Char('q')));
    }
}
