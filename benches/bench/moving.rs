//! `thumbd import` of a file beside a raw multi-row upsert, and `thumbd export` beside a bare SELECT of the same rows.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, bail};
use tokio::runtime::Runtime;

use crate::{
    options::Options,
    pairs::pair,
    stage::Stage,
    table::{Row, Table},
    upsert::RawTable,
};

/// Lines of a file, and whether it is measured once only because it takes so long.
const SIZES: [(u64, bool); 2] = [(100_000, false), (1_000_000, true)];
/// An hour, so that no scheduled flush comes in between.
const SLICE_SECONDS: u64 = 3600;
/// Far from the pairs that warm up.
const IMPORT_FROM: u64 = 10_000_000;
/// Time of the first like in a file, Unix seconds: long before anything that thumbd accepts.
const FIRST_LIKED: u64 = 1_600_000_000;

pub(crate) fn measure(
    options: &Options,
    runtime: &Runtime,
    table: &mut Table,
) -> anyhow::Result<()> {
    let stage = Stage::set(options, runtime, SLICE_SECONDS)?;
    let raw = runtime.block_on(RawTable::create(&stage.sql.url()))?;
    let mut bench = Bench {
        options,
        stage,
        raw,
        runtime,
        next: IMPORT_FROM,
    };
    for (likes, once) in SIZES {
        let rounds = if once { 1 } else { options.rounds };
        let mut import = Row {
            what: format!("import of {likes} likes, likes/s"),
            beside: "raw upsert",
            once,
            ..Row::default()
        };
        for round in 0..rounds {
            // What was written first is still on its way to the disk while the other writes: take turns.
            let (ours, theirs) = if round % 2 == 0 {
                let ours = bench.import(likes)?;
                (ours, bench.upsert(likes)?)
            } else {
                let theirs = bench.upsert(likes)?;
                (bench.import(likes)?, theirs)
            };
            import.round(ours, theirs);
        }
        table.add(import);
    }
    let mut export = Row {
        beside: "bare SELECT",
        ..Row::default()
    };
    for _ in 0..options.rounds {
        let (rows, ours) = bench.export()?;
        export.what = format!("export of {rows} likes, likes/s");
        export.round(ours, bench.select(rows)?);
    }
    table.add(export);
    Ok(())
}

struct Bench<'a> {
    options: &'a Options,
    stage: Stage,
    raw: RawTable,
    runtime: &'a Runtime,
    next: u64,
}

impl Bench<'_> {
    /// Imports new likes beside a thumbd that serves; likes per second, the start of the program included.
    fn import(&mut self, likes: u64) -> anyhow::Result<f64> {
        let path = self.stage.dir.path().join("likes.csv");
        write_likes(&path, self.next, likes)?;
        self.next += likes;
        let mut command = self.command();
        command.args(["import", "--kind", "blog"]).arg(&path);
        let begun = Instant::now();
        let output = command.output().context("run thumbd import")?;
        let taken = begun.elapsed();
        if !output.status.success() {
            bail!(
                "an import failed: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(likes as f64 / taken.as_secs_f64())
    }

    /// The yardstick; rows per second.
    fn upsert(&mut self, likes: u64) -> anyhow::Result<f64> {
        let taken = self.runtime.block_on(self.raw.upsert(likes))?;
        Ok(likes as f64 / taken.as_secs_f64())
    }

    /// Exports all likes into a file; how many, and likes per second.
    fn export(&self) -> anyhow::Result<(u64, f64)> {
        let path = self.stage.dir.path().join("exported.csv");
        let mut command = self.command();
        command.arg("export").stdout(File::create(&path)?);
        let begun = Instant::now();
        let output = command
            .stderr(Stdio::piped())
            .output()
            .context("run thumbd export")?;
        let taken = begun.elapsed();
        let lines = std::fs::read_to_string(&path)?.lines().count();
        if !output.status.success() || lines < 2 {
            bail!(
                "an export failed: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let likes = lines as u64 - 1;
        Ok((likes, likes as f64 / taken.as_secs_f64()))
    }

    /// The yardstick: the same rows in one SELECT, decoded and thrown away; rows per second.
    fn select(&mut self, expected: u64) -> anyhow::Result<f64> {
        let begun = Instant::now();
        let rows = self.runtime.block_on(self.raw.select_likes())?;
        let taken = begun.elapsed();
        if rows != expected {
            bail!("{expected} likes were exported, there are {rows}");
        }
        Ok(rows as f64 / taken.as_secs_f64())
    }

    /// A further command on the same servers.
    fn command(&self) -> Command {
        let (redis, sql) = (self.stage.redis.url(), self.stage.sql.url());
        crate::worker::program(&self.options.thumbd, &redis, &sql, SLICE_SECONDS)
    }
}

/// A file with new likes, in the order in which they happened.
fn write_likes(path: &Path, from: u64, likes: u64) -> anyhow::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for index in from..from + likes {
        let pair = pair(index);
        let liked = FIRST_LIKED + index;
        writeln!(file, "{},{},{liked}", pair.user, pair.target)?;
    }
    Ok(file.flush()?)
}
