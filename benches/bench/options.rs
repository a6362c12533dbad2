//! What a run of the bench may be told, by environment variables: BENCH_SECONDS, BENCH_ROUNDS, BENCH_ONLY, BENCH_THUMBD.

use std::{env, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Context, bail};

/// The options of a run.
#[derive(Debug)]
pub(crate) struct Options {
    /// Length of one measurement.
    pub(crate) seconds: Duration,
    /// How often each is repeated.
    pub(crate) rounds: usize,
    pub(crate) sections: Vec<Section>,
    /// The program that is measured; another one than that of this build, to compare the two.
    pub(crate) thumbd: PathBuf,
}

/// A part of the bench that can run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// Single likes over HTTP, with the CPU they take.
    Http,
    /// Only the CPU, at one number of connections.
    Cpu,
    Batch,
    Flush,
    /// Import and export.
    Moving,
    /// What likes take in both stores.
    Memory,
}

impl Options {
    pub(crate) fn of_process() -> anyhow::Result<Self> {
        let seconds: f64 = number("BENCH_SECONDS", 3.0)?;
        let rounds = number("BENCH_ROUNDS", 5)?;
        if !(0.1..=600.0).contains(&seconds) || !(1..=1000).contains(&rounds) {
            bail!("BENCH_SECONDS must be 0.1 to 600, BENCH_ROUNDS 1 to 1000");
        }
        let sections = match env::var("BENCH_ONLY").as_deref() {
            Err(_) | Ok("") => {
                vec![
                    Section::Http,
                    Section::Batch,
                    Section::Flush,
                    Section::Moving,
                    Section::Memory,
                ]
            }
            Ok("http") => vec![Section::Http],
            Ok("cpu") => vec![Section::Cpu],
            Ok("batch") => vec![Section::Batch],
            Ok("flush") => vec![Section::Flush],
            Ok("moving") => vec![Section::Moving],
            Ok("memory") => vec![Section::Memory],
            Ok(other) => bail!("BENCH_ONLY={other}: http, cpu, batch, flush, moving or memory"),
        };
        Ok(Self {
            seconds: Duration::from_secs_f64(seconds),
            rounds,
            sections,
            thumbd: env::var_os("BENCH_THUMBD")
                .unwrap_or_else(|| env!("CARGO_BIN_EXE_thumbd").into())
                .into(),
        })
    }
}

fn number<T: FromStr>(name: &str, default: T) -> anyhow::Result<T> {
    match env::var(name) {
        Err(_) => Ok(default),
        Ok(text) => text
            .parse()
            .ok()
            .with_context(|| format!("{name}={text} is not a number")),
    }
}
