//! What became of the operations, and the closing table.

use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;

use super::client::{Answer, Outcome};

/// Distinct failures that are listed; the others are only counted.
const FAILURES_LISTED_MAX: usize = 8;
/// Longest latency that is told apart: beyond every time limit of the client.
const LATENCY_MAX: Duration = Duration::from_secs(120);

/// One kind of failure.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failure {
    what: String,
    line: u64,
    count: u64,
}

/// Counts of one run. Its size does not depend on the file's.
#[derive(Debug)]
pub(super) struct Tally {
    begun: Instant,
    sent: u64,
    changed: u64,
    unchanged: u64,
    failed: u64,
    bad_lines: u64,
    retries: u64,
    latencies: Histogram<u64>,
    failures: Vec<Failure>,
    failures_unlisted: u64,
    stopped: Option<&'static str>,
}

impl Tally {
    pub(super) fn new() -> anyhow::Result<Self> {
        let micros_max = LATENCY_MAX.as_micros() as u64;
        Ok(Self {
            begun: Instant::now(),
            sent: 0,
            changed: 0,
            unchanged: 0,
            failed: 0,
            bad_lines: 0,
            retries: 0,
            latencies: Histogram::new_with_bounds(1, micros_max, 3)?,
            failures: Vec::new(),
            failures_unlisted: 0,
            stopped: None,
        })
    }

    /// Counts an answered call; `lines` are those of its operations.
    pub(super) fn add(&mut self, answer: Answer, lines: &[u64]) {
        self.retries += answer.retries;
        for latency in answer.latencies {
            self.latencies.saturating_record(latency.as_micros() as u64);
        }
        for (outcome, line) in answer.outcomes.into_iter().zip(lines) {
            self.sent += 1;
            match outcome {
                Outcome::Accepted { changed: true } => self.changed += 1,
                Outcome::Accepted { changed: false } => self.unchanged += 1,
                Outcome::Failed(what) => self.fail(what, *line),
            }
        }
    }

    /// Counts a line that could not be read.
    pub(super) fn bad_line(&mut self, problem: String, line: u64) {
        self.bad_lines += 1;
        self.fail(format!("bad line: {problem}"), line);
    }

    fn fail(&mut self, what: String, line: u64) {
        self.failed += 1;
        if let Some(failure) = self
            .failures
            .iter_mut()
            .find(|failure| failure.what == what)
        {
            failure.count += 1;
            // Answers come in any order.
            failure.line = failure.line.min(line);
        } else if self.failures.len() < FAILURES_LISTED_MAX {
            self.failures.push(Failure {
                what,
                line,
                count: 1,
            });
        } else {
            self.failures_unlisted += 1;
        }
    }

    /// Marks the run as one that did not see its end, and says why.
    pub(super) fn stop(&mut self, why: &'static str) {
        self.stopped = Some(why);
    }

    /// Whether the run ended before its time.
    pub(super) fn stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Whether everything was sent and accepted.
    pub(super) fn complete(&self) -> bool {
        self.failed == 0 && !self.stopped()
    }

    /// One line for the progress bar.
    pub(super) fn line(&self) -> String {
        format!(
            "{} sent, {} failed, {:.0}/s",
            self.sent,
            self.failed,
            self.rate()
        )
    }

    fn rate(&self) -> f64 {
        let accepted = self.changed + self.unchanged;
        accepted as f64 / self.begun.elapsed().as_secs_f64().max(0.001)
    }

    /// The counts that tests compare: sent, changed, unchanged, failed.
    #[cfg(test)]
    pub(super) fn counts(&self) -> [u64; 4] {
        [self.sent, self.changed, self.unchanged, self.failed]
    }

    /// The closing table, and below it the first distinct failures.
    pub(super) fn table(&self) -> String {
        let millis = |quantile: f64| {
            if self.latencies.is_empty() {
                return "-".to_owned();
            }
            format!(
                "{:.2} ms",
                self.latencies.value_at_quantile(quantile) as f64 / 1000.0
            )
        };
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([
            "sent",
            "changed",
            "unchanged",
            "failed",
            "retries",
            "accepted/s",
            "call p50",
            "call p99",
        ]);
        table.add_row([
            self.sent.to_string(),
            self.changed.to_string(),
            self.unchanged.to_string(),
            self.failed.to_string(),
            self.retries.to_string(),
            format!("{:.0}", self.rate()),
            millis(0.5),
            millis(0.99),
        ]);
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = table.to_string();
        if let Some(why) = self.stopped {
            text.push_str(&format!(
                "\n{why}: the rest of the file was not sent, and calls in flight are not counted."
            ));
        }
        if self.bad_lines > 0 {
            text.push_str(&format!(
                "\n{} of the failed are lines that could not be read.",
                self.bad_lines
            ));
        }
        for failure in &self.failures {
            text.push_str(&format!(
                "\n{:>8} × {} (first in line {})",
                failure.count, failure.what, failure.line
            ));
        }
        if self.failures_unlisted > 0 {
            text.push_str(&format!("\n{:>8} × other failures", self.failures_unlisted));
        }
        text
    }
}
