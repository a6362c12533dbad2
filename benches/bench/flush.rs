//! Flushes of small and large slices beside a raw multi-row upsert, and what a like's latency is meanwhile.

use std::{
    mem::take,
    time::{Duration, Instant},
};

use anyhow::bail;
use tokio::runtime::Runtime;

use crate::{
    generator::{Load, Until},
    limits::RAMP,
    options::Options,
    stage::{Stage, generate},
    table::{Answers, Mark, Row, Table},
    upsert::RawTable,
    window::Outcome,
    worker::Worker,
};

/// Entries of a slice, and whether it is measured once only because it takes so long.
const SIZES: [(u64, bool); 3] = [(10_000, false), (100_000, false), (1_000_000, true)];
/// An hour, so that a slice is not flushed before it is full.
const SLICE_SECONDS: u64 = 3600;
/// How fast a slice is filled at least; a window that ends earlier is waited for.
const FILL_RATE_MIN: u64 = 10_000;
const BESIDE: &str = "raw upsert";
const QUIET: &str = "before the flush";
/// Longest look at the latency before a flush.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// The light load that goes on meanwhile.
const LIKES_PER_SECOND: f64 = 200.0;
const LIKE_CONNECTIONS: usize = 4;
/// Far from the pairs that fill slices.
const LIKES_FROM: u64 = 30_000_000;

pub(crate) fn measure(
    options: &Options,
    runtime: &Runtime,
    table: &mut Table,
) -> anyhow::Result<()> {
    let stage = Stage::set(options, runtime, SLICE_SECONDS)?;
    let raw = runtime.block_on(RawTable::create(&stage.sql.url()))?;
    let quiet = options.seconds.min(QUIET_MAX);
    let mut bench = Bench {
        stage,
        raw,
        runtime,
        likes_next: LIKES_FROM,
        before: Outcome::default(),
        during: Outcome::default(),
    };
    for (entries, once) in SIZES {
        let rounds = if once { 1 } else { options.rounds };
        let mut rate = Row {
            what: format!("flush of {entries} entries, rows/s"),
            beside: BESIDE,
            mark: Some(Mark::AtLeast(0.45)),
            once,
            ..Row::default()
        };
        let mut cost = Row {
            what: format!("flush of {entries} entries, µs per entry"),
            beside: BESIDE,
            once,
            ..Row::default()
        };
        for round in 0..rounds {
            // What was written first is still on its way to the disk while the other writes: take turns.
            let (ours, theirs) = if round % 2 == 0 {
                let ours = bench.flush(entries, quiet)?;
                (ours, bench.upsert(entries)?)
            } else {
                let theirs = bench.upsert(entries)?;
                (bench.flush(entries, quiet)?, theirs)
            };
            rate.round(ours, theirs);
            cost.round(1e6 / ours, 1e6 / theirs);
        }
        table.add(rate);
        table.add(cost);
        let (mut before, mut during) = (take(&mut bench.before), take(&mut bench.during));
        latency_rows(table, entries, &mut before, &mut during);
    }
    Ok(())
}

struct Bench<'a> {
    stage: Stage,
    raw: RawTable,
    runtime: &'a Runtime,
    likes_next: u64,
    /// Answers to the light load, of all rounds with one size.
    before: Outcome,
    during: Outcome,
}

impl Bench<'_> {
    /// Fills a slice and flushes it under the light load; rows per second.
    fn flush(&mut self, entries: u64, quiet: Duration) -> anyhow::Result<f64> {
        eprintln!("bench: filling a slice with {entries} entries");
        let fill_max = Duration::from_secs(entries / FILL_RATE_MIN + 30);
        self.stage.room_for(fill_max);
        let new = self.stage.fill(entries)?;
        let before = self.likes(Until::Time {
            ramp: RAMP,
            length: quiet,
        })?;
        let before = before.measure(&[])?.outcome;
        self.likes_next += before.used;
        join(&mut self.before, before);

        let mut likes = self.likes(Until::LetGo)?;
        likes.expect("go")?;
        let begun = Instant::now();
        let flushed = self.runtime.block_on(self.stage.thumbd.flush())?;
        let taken = begun.elapsed();
        let during = likes.let_go()?;
        self.likes_next += during.used;
        join(&mut self.during, during);
        if flushed.entries < new || flushed.rows_changed < new {
            bail!("a flush of {new} entries says {flushed:?}");
        }
        Ok(flushed.entries as f64 / taken.as_secs_f64())
    }

    /// The yardstick, under the same light load, which takes its share of the machine; rows per second.
    fn upsert(&mut self, entries: u64) -> anyhow::Result<f64> {
        let mut likes = self.likes(Until::LetGo)?;
        likes.expect("go")?;
        let taken = self.runtime.block_on(self.raw.upsert(entries))?;
        self.likes_next += likes.let_go()?.used;
        self.stage.drain(self.runtime)?;
        Ok(entries as f64 / taken.as_secs_f64())
    }

    fn likes(&self, until: Until) -> anyhow::Result<Worker> {
        generate(&Load {
            address: self.stage.thumbd.address.clone(),
            connections: LIKE_CONNECTIONS,
            operations: 1,
            from: self.likes_next,
            until,
            rate: Some(LIKES_PER_SECOND),
        })
    }
}

/// Puts the answers of a further round to those of the rounds before: one flush is too short for a percentile.
fn join(all: &mut Outcome, mut one: Outcome) {
    all.accepted += one.accepted;
    all.changed += one.changed;
    all.latencies.append(&mut one.latencies);
    for (reason, times) in one.failures {
        all.failed(reason, times);
    }
}

fn latency_rows(table: &mut Table, entries: u64, before: &mut Outcome, during: &mut Outcome) {
    before.latencies.sort_unstable();
    during.latencies.sort_unstable();
    let (mut answers, mut answers_before) = (Answers::default(), Answers::default());
    answers.add(during);
    answers_before.add(before);
    for percent in [50, 99] {
        let mut row = Row {
            what: format!(
                "p{percent} of {} likes in ms, {LIKES_PER_SECOND} a second, during flushes of {entries} entries",
                during.latencies.len()
            ),
            beside: QUIET,
            answers: answers.clone(),
            yardstick_answers: answers_before.clone(),
            ..Row::default()
        };
        row.round(
            percentile(&during.latencies, percent),
            percentile(&before.latencies, percent),
        );
        table.add(row);
    }
}

/// Milliseconds below which so many percent of some sorted microseconds are.
fn percentile(sorted: &[u32], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted
        .get(at)
        .map_or(f64::NAN, |micros| f64::from(*micros) / 1e3)
}
