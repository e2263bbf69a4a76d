//! Medians, ratios and judgements, for people, for machines and for the documentation.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cases::{Budget, Case};
use crate::facts::Facts;
use crate::rig::Via;

/// The table as it grows.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    facts: Facts,
    /// Load average when all was measured.
    load_average_after: String,
    rows: Vec<Row>,
    /// Index of the first row of the case under way.
    #[serde(skip)]
    case: usize,
}

#[derive(Debug, Serialize)]
struct Row {
    key: String,
    title: String,
    metric: &'static str,
    unit: &'static str,
    direct: Samples,
    relay: Samples,
    proxy: Samples,
    /// The proxy's value over the relay's: the median over the rounds.
    ratio: Option<f64>,
    budget: Option<String>,
    /// `None`: there is no budget, or nothing to judge.
    met: Option<bool>,
    errors: Vec<String>,
    #[serde(skip)]
    judge: Option<Budget>,
}

#[derive(Debug, Default, Serialize)]
struct Samples {
    median: Option<f64>,
    rounds: Vec<f64>,
}

// === impl Report ===

impl Report {
    pub(crate) fn new(facts: Facts) -> Self {
        Self { facts, load_average_after: String::new(), rows: Vec::new(), case: 0 }
    }

    /// Opens the rows of a case.
    pub(crate) fn begin(&mut self, case: &Case) {
        self.case = self.rows.len();
        self.rows.extend(case.metrics.iter().map(|metric| Row {
            key: case.key.clone(),
            title: case.title.clone(),
            metric: metric.name,
            unit: metric.unit,
            direct: Samples::default(),
            relay: Samples::default(),
            proxy: Samples::default(),
            ratio: None,
            budget: metric.budget.map(|budget| budget.text(metric.unit)),
            met: None,
            errors: Vec::new(),
            judge: metric.budget,
        }));
    }

    /// Adds one round's values, one for each metric of the case.
    pub(crate) fn add(&mut self, via: Via, values: &[f64]) {
        for (row, value) in self.rows[self.case..].iter_mut().zip(values) {
            if value.is_finite() {
                row.samples(via).rounds.push(*value);
            }
        }
    }

    /// Notes that a round failed.
    pub(crate) fn fail(&mut self, via: Via, error: &anyhow::Error) {
        self.rows[self.case..].iter_mut().for_each(|row| row.errors.push(format!("{via:?}: {error:#}")));
    }

    /// Computes and judges.
    pub(crate) fn end(&mut self) {
        self.load_average_after = crate::facts::load_average();
        self.rows.iter_mut().for_each(Row::end);
    }

    pub(crate) fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
        table.set_header(HEADER);
        let mut last = "";
        for row in &self.rows {
            let mut cells = row.cells();
            // A case is named once.
            if last == row.title {
                cells[0].clear();
            }
            last = &row.title;
            table.add_row(cells);
        }
        format!("{}\n{table}\n", self.about())
    }

    /// For `docs/performance.md`.
    pub(crate) fn markdown(&self) -> String {
        let mut text =
            format!("{}\n\n| {} |\n|---|---|---:|---:|---:|---:|---|---|\n", self.about(), HEADER.join(" | "));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.cells().join(" | "));
        }
        text
    }

    fn about(&self) -> String {
        let facts = &self.facts;
        let core = facts.pinned_to.map_or_else(|| "not pinned".into(), |core| format!("all processes on core {core}"));
        format!(
            "{}, commit {}, {}, measured {}.\n{}, {} cores, {}; {core}; {} rounds, medians; load average {} before and {} after.",
            facts.version,
            facts.commit,
            facts.rustc,
            facts.date,
            facts.processor,
            facts.cores,
            facts.kernel,
            facts.rounds,
            facts.load_average,
            self.load_average_after,
        )
    }
}

const HEADER: [&str; 8] = ["case", "figure", "direct", "relay", "proxy", "proxy : relay", "budget", "kept"];

// === impl Row ===

impl Row {
    fn samples(&mut self, via: Via) -> &mut Samples {
        match via {
            Via::Direct => &mut self.direct,
            Via::Relay => &mut self.relay,
            Via::Proxy => &mut self.proxy,
        }
    }

    fn end(&mut self) {
        for samples in [&mut self.direct, &mut self.relay, &mut self.proxy] {
            samples.median = median(samples.rounds.clone());
        }
        // Each round's own ratio, so that what disturbs a whole round falls out.
        let ratios = self.proxy.rounds.iter().zip(&self.relay.rounds).filter(|(_, relay)| **relay > 0.0);
        self.ratio = median(ratios.map(|(proxy, relay)| proxy / relay).collect());
        self.met = self.judge.and_then(|budget| match budget {
            Budget::OfRelayAtMost(most) => Some(self.ratio? <= most),
            Budget::OfRelayAtLeast(least) => Some(self.ratio? >= least),
            Budget::OverDirectAtMost(most) => Some(self.proxy.median? - self.direct.median? <= most),
            Budget::AtMost(most) => Some(self.proxy.median? <= most),
        });
    }

    fn cells(&self) -> Vec<String> {
        let figure = if self.unit.is_empty() { self.metric.into() } else { format!("{}, {}", self.metric, self.unit) };
        let kept = match self.met {
            _ if !self.errors.is_empty() => "FAILED",
            Some(true) => "ok",
            Some(false) => "MISSED",
            None => "",
        };
        vec![
            self.title.clone(),
            figure,
            self.direct.text(),
            self.relay.text(),
            self.proxy.text(),
            self.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            self.budget.clone().unwrap_or_default(),
            kept.into(),
        ]
    }
}

// === impl Samples ===

impl Samples {
    fn text(&self) -> String {
        match self.median {
            None => "–".into(),
            Some(value) if value >= 1000.0 => thousands(value),
            Some(value) if value >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
            Some(value) if value >= 10.0 => format!("{value:.1}"),
            Some(value) => format!("{value:.2}"),
        }
    }
}

// === impl Budget ===

impl Budget {
    fn text(self, unit: &str) -> String {
        match self {
            Self::OfRelayAtMost(ratio) => format!("≤ {ratio} × relay"),
            Self::OfRelayAtLeast(ratio) => format!("≥ {ratio} × relay"),
            Self::OverDirectAtMost(more) => format!("≤ direct + {more} {unit}"),
            Self::AtMost(most) => format!("≤ {most} {unit}"),
        }
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(values[values.len() / 2 - 1], upper) })
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
