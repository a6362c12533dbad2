//! Single likes over HTTP beside a route that does nothing and the bare like script, and the CPU that a like takes.

use std::time::Duration;

use thumbd::dev::RedisServer;
use tokio::runtime::Runtime;

use crate::{
    limits::SLICE_SECONDS,
    options::Options,
    stage::{Stage, full_load, generate, redis_in, warm_up},
    table::{Mark, Row, Table},
    worker::{Sample, Worker, cpu_seconds},
};

/// Numbers of connections.
pub(crate) const CONNECTIONS: [usize; 3] = [8, 64, 256];
/// The number of connections at which CPU per like is reported.
pub(crate) const CPU_CONNECTIONS: usize = 64;
const NOOP: &str = "no-op route";
const BARE: &str = "bare script";
/// What is aimed at beside the bare script, from 64 connections on.
const LIKES_MARK: Mark = Mark::AtLeast(0.9);
/// Length of the run over whole windows: two flushes of a full window, after one window in which the first of them grows.
const SUSTAINED: Duration = Duration::from_secs(2 * SLICE_SECONDS);
const SUSTAINED_RAMP: Duration = Duration::from_secs(SLICE_SECONDS);

/// A server to compare with.
struct Yardstick {
    worker: Worker,
    address: String,
    redis: Option<RedisServer>,
    next: u64,
}

impl Yardstick {
    fn start(role: &str, redis: Option<RedisServer>) -> anyhow::Result<Self> {
        let url = redis.as_ref().map(RedisServer::url).unwrap_or_default();
        let mut worker = Worker::spawn(role, &url)?;
        let address = worker.line()?;
        Ok(Self {
            worker,
            address,
            redis,
            next: 0,
        })
    }

    fn pids(&self) -> Vec<u32> {
        let redis = self.redis.as_ref().map(|redis| redis.pid());
        [self.worker.pid()].into_iter().chain(redis).collect()
    }

    fn sample(&mut self, connections: usize, length: Duration) -> anyhow::Result<Sample> {
        let load = full_load(&self.address, connections, 1, self.next, length);
        let sample = generate(&load)?.measure(&self.pids())?;
        self.next += sample.outcome.used;
        Ok(sample)
    }
}

/// What one round of thumbd gives.
struct Ours {
    sample: Sample,
    /// CPU of Redis per like in microseconds, the flush of these likes included.
    redis_with_flush: f64,
}

pub(crate) fn measure(
    options: &Options,
    runtime: &Runtime,
    table: &mut Table,
    connections: &[usize],
) -> anyhow::Result<()> {
    let mut stage = Stage::set(options, runtime, SLICE_SECONDS)?;
    let mut noop = Yardstick::start("noop", None)?;
    let mut bare = Yardstick::start("bare", Some(redis_in(&stage.dir, "bare")?))?;
    warm_up(&bare.address)?;
    let mut cpu = CpuRows::new();
    for &connections in connections {
        let name = format!("likes/s, {connections} connections, between two flushes");
        let mark = (connections >= 64).then_some(LIKES_MARK);
        let mut beside_noop = row(&name, NOOP, None);
        let mut beside_bare = row(&name, BARE, mark);
        for round in 0..options.rounds {
            let (mut ours, mut noops, mut bares) = (None, None, None);
            // Whoever comes first finds a cooler machine: take turns.
            for turn in 0..3 {
                match (round + turn) % 3 {
                    0 => ours = Some(thumbd(&mut stage, runtime, connections, options.seconds)?),
                    1 => noops = Some(noop.sample(connections, options.seconds)?),
                    _ => bares = Some(bare.sample(connections, options.seconds)?),
                }
            }
            let (Some(ours), Some(noops), Some(bares)) = (ours, noops, bares) else {
                continue;
            };
            let rate = ours.sample.outcome.rate();
            for (row, sample) in [(&mut beside_noop, &noops), (&mut beside_bare, &bares)] {
                row.round(rate, sample.outcome.rate());
                row.answers.add(&ours.sample.outcome);
                row.yardstick_answers.add(&sample.outcome);
            }
            if connections == CPU_CONNECTIONS {
                cpu.round(&ours, &bares);
            }
        }
        table.add(beside_noop);
        table.add(beside_bare);
    }
    cpu.rows.into_iter().for_each(|row| table.add(row));
    sustained(&mut stage, runtime, &mut bare, table)
}

/// One measurement between two flushes, and then the flush.
fn thumbd(
    stage: &mut Stage,
    runtime: &Runtime,
    connections: usize,
    length: Duration,
) -> anyhow::Result<Ours> {
    stage.room_for(length);
    let redis = [stage.redis.pid()];
    let before = cpu_seconds(&redis)?[0];
    let load = stage.load(connections, 1, length);
    let sample = generate(&load)?.measure(&[stage.thumbd.pid(), redis[0]])?;
    stage.used(&sample.outcome);
    stage.drain(runtime)?;
    let taken = cpu_seconds(&redis)?[0] - before;
    Ok(Ours {
        redis_with_flush: taken * 1e6 / sample.outcome.accepted_in_all as f64,
        sample,
    })
}

/// Load over whole windows, so that every like's flush is paid for within the time. Once: it takes as long as a section.
fn sustained(
    stage: &mut Stage,
    runtime: &Runtime,
    bare: &mut Yardstick,
    table: &mut Table,
) -> anyhow::Result<()> {
    let mut load = stage.load(CPU_CONNECTIONS, 1, SUSTAINED);
    load.until = crate::generator::Until::Time {
        ramp: SUSTAINED_RAMP,
        length: SUSTAINED,
    };
    let ours = generate(&load)?.measure(&[stage.thumbd.pid(), stage.redis.pid()])?;
    stage.used(&ours.outcome);
    stage.drain(runtime)?;
    let theirs = bare.sample(CPU_CONNECTIONS, SUSTAINED / 2)?;
    let over = format!(
        "{CPU_CONNECTIONS} connections, over {} s with the flushes of the 10-second job",
        SUSTAINED.as_secs()
    );
    let mut rate = row(&format!("likes/s, {over}"), BARE, Some(LIKES_MARK));
    rate.once = true;
    rate.round(ours.outcome.rate(), theirs.outcome.rate());
    rate.answers.add(&ours.outcome);
    rate.yardstick_answers.add(&theirs.outcome);
    table.add(rate);
    let names = ["thumbd", "Redis"];
    for (process, name) in names.into_iter().enumerate() {
        let mut cpu = row(&format!("CPU of {name} per like in µs, {over}"), BARE, None);
        cpu.once = true;
        cpu.round(ours.cpu_per_like(process), theirs.cpu_per_like(process));
        table.add(cpu);
    }
    Ok(())
}

/// The CPU rows, filled round by round.
struct CpuRows {
    rows: [Row; 3],
}

impl CpuRows {
    fn new() -> Self {
        let at = format!("per like in µs, {CPU_CONNECTIONS} connections");
        Self {
            rows: [
                row(&format!("CPU of thumbd {at}"), BARE, None),
                row(
                    &format!("CPU of Redis {at}, script only"),
                    BARE,
                    Some(Mark::AtMost(1.0)),
                ),
                row(
                    &format!("CPU of Redis {at}, script, reading for the flush, unpinning"),
                    BARE,
                    Some(Mark::AtMost(1.4)),
                ),
            ],
        }
    }

    fn round(&mut self, ours: &Ours, bare: &Sample) {
        let [service, script, unpinned] = &mut self.rows;
        service.round(ours.sample.cpu_per_like(0), bare.cpu_per_like(0));
        script.round(ours.sample.cpu_per_like(1), bare.cpu_per_like(1));
        unpinned.round(ours.redis_with_flush, bare.cpu_per_like(1));
    }
}

fn row(what: &str, beside: &'static str, mark: Option<Mark>) -> Row {
    Row {
        what: what.into(),
        beside,
        mark,
        ..Row::default()
    }
}
