//! The table: medians, each beside its yardstick, with the ratio, its spread and the mark aimed at.

use std::collections::BTreeMap;

use comfy_table::{ContentArrangement, presets::ASCII_MARKDOWN};

use crate::{options::Options, window::Outcome};

/// All rows of a run.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

/// One comparison.
#[derive(Debug, Default)]
pub(crate) struct Row {
    pub(crate) what: String,
    /// Name of the yardstick.
    pub(crate) beside: &'static str,
    /// One number per round; NaN where there is nothing to compare with.
    pub(crate) thumbd: Vec<f64>,
    pub(crate) yardstick: Vec<f64>,
    pub(crate) mark: Option<Mark>,
    /// Measured once, because it takes too long to repeat.
    pub(crate) once: bool,
    pub(crate) answers: Answers,
    pub(crate) yardstick_answers: Answers,
}

/// What the ratio should be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mark {
    AtLeast(f64),
    AtMost(f64),
}

/// Likes accepted, changed and refused over all rounds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Answers {
    accepted: u64,
    changed: u64,
    failures: BTreeMap<String, u64>,
}

impl Answers {
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.accepted += outcome.accepted;
        self.changed += outcome.changed;
        for (reason, times) in &outcome.failures {
            *self.failures.entry(reason.clone()).or_default() += times;
        }
    }

    fn changed_share(&self) -> String {
        match self.accepted {
            0 => "–".into(),
            accepted => format!("{:.1} %", self.changed as f64 * 100.0 / accepted as f64),
        }
    }

    fn failed(&self) -> Option<String> {
        let list: Vec<_> = self
            .failures
            .iter()
            .map(|(reason, times)| format!("{times} × {reason}"))
            .collect();
        (!list.is_empty()).then(|| format!("**{}**", list.join(", ")))
    }

    fn failures(&self) -> u64 {
        self.failures.values().sum()
    }
}

impl Row {
    /// Enters one round's numbers.
    pub(crate) fn round(&mut self, thumbd: f64, yardstick: f64) {
        self.thumbd.push(thumbd);
        self.yardstick.push(yardstick);
    }

    fn cells(&self) -> Vec<String> {
        let (thumbd, yardstick) = (median(&self.thumbd), median(&self.yardstick));
        let ratio = thumbd / yardstick;
        let (mark, met) = match self.mark {
            None => ("–".into(), "–"),
            Some(Mark::AtLeast(mark)) => (format!("≥ {mark:.2}"), yes(ratio >= mark)),
            Some(Mark::AtMost(mark)) => (format!("≤ {mark:.2}"), yes(ratio <= mark)),
        };
        let failed = match (self.answers.failed(), self.yardstick_answers.failed()) {
            (None, None) if self.answers.accepted == 0 => "–".into(),
            (None, None) => "0".into(),
            (Some(ours), None) => ours,
            (None, Some(theirs)) => format!("yardstick {theirs}"),
            (Some(ours), Some(theirs)) => format!("{ours}; yardstick {theirs}"),
        };
        vec![
            self.what.clone(),
            number(thumbd),
            self.beside.into(),
            number(yardstick),
            if ratio.is_nan() {
                "–".into()
            } else {
                format!("{ratio:.3}{}", self.spread())
            },
            mark,
            met.into(),
            self.answers.changed_share(),
            failed,
        ]
    }

    /// The smallest and the largest ratio of one round.
    fn spread(&self) -> String {
        let ratios = self.thumbd.iter().zip(&self.yardstick).map(|(a, b)| a / b);
        let (low, high) = ratios.fold((f64::MAX, f64::MIN), |(low, high), ratio| {
            (low.min(ratio), high.max(ratio))
        });
        match self.thumbd.len() {
            _ if self.once => " (once)".into(),
            0 | 1 => String::new(),
            _ => format!(" ({low:.2}–{high:.2})"),
        }
    }
}

impl Table {
    /// Enters a row, and shows it at once to whoever waits.
    pub(crate) fn add(&mut self, row: Row) {
        if row.thumbd.is_empty() {
            return;
        }
        eprintln!("bench: {}", row.cells().join(" | "));
        self.rows.push(row);
    }

    pub(crate) fn failures(&self) -> u64 {
        let of = |row: &Row| row.answers.failures() + row.yardstick_answers.failures();
        self.rows.iter().map(of).sum()
    }

    pub(crate) fn print(&self, options: &Options) {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        println!(
            "Medians of {} rounds of {:.1} s (`once`: too long to repeat), thumbd and yardsticks in turn; {cores} cores, shared with the load generator and all servers. In brackets: the ratio's range over the rounds.\n",
            options.rounds,
            options.seconds.as_secs_f64()
        );
        let mut table = comfy_table::Table::new();
        table
            .load_style(ASCII_MARKDOWN)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header([
                "what",
                "thumbd",
                "beside",
                "yardstick",
                "ratio",
                "mark",
                "met",
                "changed",
                "failed",
            ]);
        for row in &self.rows {
            table.add_row(row.cells());
        }
        println!("{table}");
    }
}

/// The middle of some numbers.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

fn yes(met: bool) -> &'static str {
    if met { "yes" } else { "**no**" }
}

/// Three digits that matter at least, thousands apart.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "–".into();
    }
    if value < 100.0 {
        return format!("{value:.*}", if value < 10.0 { 2 } else { 1 });
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
