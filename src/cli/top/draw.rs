//! What the page looks like: a pure function of its state. States are words, so nothing is lost without colour.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row as TableRow, Table, TableState};

/// All that is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// How many proxies run; `None`: not known yet.
    pub(super) proxies: Option<usize>,
    /// Their servers.
    pub(super) rows: Vec<Row>,
    /// Place in `rows`.
    pub(super) chosen: usize,
    /// The last calls, the latest first.
    pub(super) recent: Vec<Call>,
    /// Calls of unknown outcome.
    pub(super) unknown: u64,
    /// What the last key led to.
    pub(super) message: String,
    /// The log of the chosen server, if it is wanted.
    pub(super) log: Option<Vec<String>>,
    /// Whether colours may be used.
    pub(super) coloured: bool,
}

/// A server.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// The process of its proxy.
    pub(super) proxy: u32,
    pub(super) server: String,
    pub(super) state: String,
    pub(super) generation: u64,
    pub(super) calls: u64,
    /// Calls a second; `None`: not known yet.
    pub(super) rate: Option<f64>,
    /// In milliseconds.
    pub(super) p50: Option<f64>,
    /// In milliseconds.
    pub(super) p99: Option<f64>,
    pub(super) pending: u64,
    pub(super) errors: u64,
    pub(super) unknown: u64,
    pub(super) restarts: u64,
    /// What last went wrong.
    pub(super) error: Option<String>,
    pub(super) stderr: Vec<String>,
}

/// A call that is over; never its arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    pub(super) at: String,
    pub(super) server: String,
    pub(super) name: String,
    pub(super) ms: f64,
    pub(super) outcome: String,
}

const KEYS: &str = "up/down choose   r restart   s stop/start   l log   q quit";

/// Draws the page.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let servers = u16::try_from(state.rows.len()).unwrap_or(u16::MAX).saturating_add(1).max(3);
    let [head, table, rest, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Max(servers.min(frame.area().height / 2)),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::styled(headline(state), Style::new().add_modifier(Modifier::BOLD)), head);
    draw_servers(frame, state, table);
    match &state.log {
        Some(lines) => draw_lines(frame, &title(state, "log"), lines, rest),
        None => {
            let [calls, stderr] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(rest);
            draw_calls(frame, state, calls);
            let chosen = state.rows.get(state.chosen);
            let mut lines = chosen.map(|row| row.stderr.clone()).unwrap_or_default();
            lines.extend(chosen.and_then(|row| row.error.as_ref()).map(|error| format!("(last error: {error})")));
            draw_lines(frame, &title(state, "stderr"), &lines, stderr);
        }
    }
    let said = if state.message.is_empty() { KEYS.to_owned() } else { format!("{}   {KEYS}", state.message) };
    frame.render_widget(Line::from(said), foot);
}

fn headline(state: &State) -> String {
    let ready = state.rows.iter().filter(|row| row.state == "ready").count();
    let proxies = match state.proxies {
        None => return "mcp-proxy top".to_owned(),
        Some(0) => return "mcp-proxy top: no proxy is running".to_owned(),
        Some(1) => "1 proxy".to_owned(),
        Some(count) => format!("{count} proxies"),
    };
    format!(
        "mcp-proxy top: {proxies}, {ready} of {} server{} ready, {} unknown",
        state.rows.len(),
        if state.rows.len() == 1 { "" } else { "s" },
        state.unknown
    )
}

fn title(state: &State, what: &str) -> String {
    state.rows.get(state.chosen).map_or_else(|| what.to_owned(), |row| format!("{what} of {}", row.server))
}

fn draw_servers(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let head = ["server", "state", "gen", "call/s", "p50 ms", "p99 ms", "pend", "err", "unkn", "rest"];
    let several = state.proxies > Some(1);
    let rows = state.rows.iter().map(|row| {
        let name = if several { format!("{} {}", row.proxy, row.server) } else { row.server.clone() };
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
        let cells = [
            Cell::from(name),
            Cell::from(Span::styled(row.state.clone(), style_of(&row.state, state.coloured))),
            Cell::from(row.generation.to_string()),
            Cell::from(number(row.rate)),
            Cell::from(number(row.p50)),
            Cell::from(number(row.p99)),
            Cell::from(row.pending.to_string()),
            Cell::from(row.errors.to_string()),
            Cell::from(row.unknown.to_string()),
            Cell::from(row.restarts.to_string()),
        ];
        TableRow::new(cells)
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(4),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(4),
        Constraint::Length(4),
        Constraint::Length(4),
        Constraint::Length(4),
    ];
    let table = Table::new(rows, widths)
        .header(TableRow::new(head).style(Style::new().add_modifier(Modifier::UNDERLINED)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ");
    let chosen = (!state.rows.is_empty()).then_some(state.chosen);
    frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(chosen));
}

fn draw_calls(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let lines = state.recent.iter().map(|call| {
        // Of a time such as 2026-01-02T03:04:05.678Z.
        let time = call.at.get(11..19).unwrap_or(&call.at);
        let bad = state.coloured && call.outcome != "answered";
        let style = if bad { Style::new().fg(Color::Red) } else { Style::new() };
        Line::styled(format!("{time} {:>9.1} ms {:<12} {}  ({})", call.ms, call.outcome, call.name, call.server), style)
    });
    let block = Block::new().borders(Borders::TOP).title("last calls");
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}

/// The last lines that fit.
fn draw_lines(frame: &mut Frame<'_>, title: &str, lines: &[String], area: Rect) {
    let room = usize::from(area.height.saturating_sub(1));
    let last = lines[lines.len().saturating_sub(room)..].iter().map(|line| Line::from(line.as_str()));
    let block = Block::new().borders(Borders::TOP).title(title);
    frame.render_widget(Paragraph::new(last.collect::<Vec<_>>()).block(block), area);
}

fn style_of(state: &str, coloured: bool) -> Style {
    let colour = match state {
        "ready" => Color::Green,
        "failed" => Color::Red,
        "stopped" => Color::Reset,
        _ => Color::Yellow,
    };
    if coloured { Style::new().fg(colour) } else { Style::new() }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn state() -> State {
        let row = |server: &str, state: &str| Row {
            proxy: 4711,
            server: server.to_owned(),
            state: state.to_owned(),
            generation: 1,
            calls: 1234,
            rate: Some(17.5),
            p50: Some(1.25),
            p99: Some(140.0),
            pending: 2,
            ..Row::default()
        };
        let weak = Row {
            generation: 9,
            restarts: 8,
            errors: 3,
            unknown: 1,
            rate: None,
            stderr: vec!["listening".to_owned(), "panic: out of cheese".to_owned()],
            error: Some("its process ended (SIGKILL)".to_owned()),
            ..row("weather-of-the-whole-world", "backoff")
        };
        let call = |name: &str, outcome: &str| Call {
            at: "2026-01-02T03:04:05.678Z".to_owned(),
            server: "notes".to_owned(),
            name: name.to_owned(),
            ms: 12.34,
            outcome: outcome.to_owned(),
        };
        State {
            proxies: Some(1),
            rows: vec![row("notes", "ready"), weak],
            chosen: 1,
            recent: vec![call("notes__add", "answered"), call("notes__remove", "child_exited")],
            unknown: 1,
            ..State::default()
        }
    }

    fn shown(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_page_fits_80_by_24() {
        insta::assert_snapshot!("page", shown(&state(), 80, 24));
    }

    #[test]
    fn the_log_takes_the_lower_half() {
        let log = (0..60).map(|number| format!("line {number}")).collect();
        insta::assert_snapshot!("log", shown(&State { log: Some(log), ..state() }, 80, 24));
    }

    #[test]
    fn nothing_runs() {
        insta::assert_snapshot!("nothing", shown(&State { proxies: Some(0), ..State::default() }, 80, 8));
    }

    #[test]
    fn many_servers_scroll_and_any_size_is_drawn() {
        let rows: Vec<_> = (0..60).map(|number| Row { server: format!("s{number}"), ..Row::default() }).collect();
        let many = State { chosen: 59, rows, ..state() };
        assert!(shown(&many, 80, 24).contains("> s59"));
        for (width, height) in [(1, 1), (10, 3), (20, 5), (300, 100)] {
            shown(&many, width, height);
            shown(&state(), width, height);
        }
    }

    #[test]
    fn no_colour_is_used_unless_it_may_be() {
        let colours = |coloured: bool| {
            let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
            terminal.draw(|frame| draw(frame, &State { coloured, ..state() })).unwrap();
            terminal.backend().buffer().content().iter().filter(|cell| cell.fg != Color::Reset).count()
        };
        assert_eq!(colours(false), 0);
        assert!(colours(true) > 0);
    }
}
