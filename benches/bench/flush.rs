//! Flushes of small and large slices beside a raw multi-row upsert, and what a like's latency is meanwhile.

use std::time::{Duration, Instant};

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
};

/// Entries of a slice, and whether it is measured once only because it takes so long.
const SIZES: [(u64, bool); 3] = [(10_000, false), (100_000, false), (1_000_000, true)];
/// An hour, so that a slice is not flushed before it is full.
const SLICE_SECONDS: u64 = 3600;
/// How fast a slice is filled at least; a window that ends earlier is waited for.
const FILL_RATE_MIN: u64 = 10_000;
const BESIDE: &str = "raw upsert";
const QUIET: &str = "before the flush";
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
    let mut stage = Stage::set(options, runtime, SLICE_SECONDS)?;
    let mut raw = runtime.block_on(RawTable::create(&stage.sql.url()))?;
    let mut likes_next = LIKES_FROM;
    for (entries, once) in SIZES {
        let rounds = if once { 1 } else { options.rounds };
        let mut rate = Row {
            what: format!("flush of {entries} entries, rows/s"),
            beside: BESIDE,
            mark: Some(Mark::AtLeast(0.45)),
            ..Row::default()
        };
        let mut cost = Row {
            what: format!("flush of {entries} entries, µs per entry"),
            beside: BESIDE,
            ..Row::default()
        };
        let (mut before, mut during) = (Outcome::default(), Outcome::default());
        for _ in 0..rounds {
            eprintln!("bench: filling a slice with {entries} entries");
            stage.room_for(Duration::from_secs(entries / FILL_RATE_MIN + 30));
            stage.fill(entries)?;
            let quiet = light_load(
                &stage,
                &mut likes_next,
                Until::Time {
                    ramp: RAMP,
                    length: options.seconds.min(Duration::from_secs(2)),
                },
            );
            let quiet = generate(&quiet)?.measure(&[])?.outcome;
            likes_next += quiet.used;
            join(&mut before, quiet);

            let mut likes = generate(&light_load(&stage, &mut likes_next, Until::LetGo))?;
            likes.expect("go")?;
            let begun = Instant::now();
            let flushed = runtime.block_on(stage.thumbd.flush())?;
            let taken = begun.elapsed();
            let outcome = likes.let_go()?;
            likes_next += outcome.used;
            join(&mut during, outcome);
            if flushed.entries < entries || flushed.rows_changed < entries {
                bail!("a flush of {entries} entries says {flushed:?}");
            }

            // Under the same light load, which takes its share of the machine.
            let mut likes = generate(&light_load(&stage, &mut likes_next, Until::LetGo))?;
            likes.expect("go")?;
            let raw_taken = runtime.block_on(raw.upsert(entries))?;
            likes_next += likes.let_go()?.used;
            stage.drain(runtime)?;

            let per_second = |count: u64, taken: Duration| count as f64 / taken.as_secs_f64();
            let (ours, theirs) = (
                per_second(flushed.entries, taken),
                per_second(entries, raw_taken),
            );
            rate.round(ours, theirs);
            cost.round(1e6 / ours, 1e6 / theirs);
        }
        table.add(rate);
        table.add(cost);
        latency_rows(table, entries, &mut before, &mut during);
    }
    Ok(())
}

fn light_load(stage: &Stage, from: &mut u64, until: Until) -> Load {
    Load {
        address: stage.thumbd.address.clone(),
        connections: LIKE_CONNECTIONS,
        operations: 1,
        from: *from,
        until,
        rate: Some(LIKES_PER_SECOND),
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
