//! Batches over HTTP beside the bare like script in pipelines.

use tokio::runtime::Runtime;

use crate::{
    limits::SLICE_SECONDS,
    options::Options,
    pipeline::Pipelines,
    stage::{Stage, generate, redis_in},
    table::{Mark, Row, Table},
    worker::{Sample, Worker},
};

const CONNECTIONS: usize = 16;
const OPERATIONS: u64 = 100;
/// Pipelines of the yardstick under way at once, and likes in each.
const PIPELINES: usize = 16;
const PIPELINED: u64 = 16;
const BESIDE: &str = "bare script, pipelines of 16, no HTTP";

pub(crate) fn measure(
    options: &Options,
    runtime: &Runtime,
    table: &mut Table,
) -> anyhow::Result<()> {
    let mut stage = Stage::set(options, runtime, SLICE_SECONDS)?;
    let redis = redis_in(&stage.dir, "bare")?;
    let mut next = 0;
    let mut rate = Row {
        what: format!(
            "operations/s in batches of {OPERATIONS}, {CONNECTIONS} connections, between two flushes"
        ),
        beside: BESIDE,
        mark: Some(Mark::AtLeast(1.0)),
        ..Row::default()
    };
    let mut cpu = Row {
        what: format!("CPU of Redis per like in µs, batches of {OPERATIONS}"),
        beside: BESIDE,
        ..Row::default()
    };
    for round in 0..options.rounds {
        let bare = |next: &mut u64| -> anyhow::Result<Sample> {
            let load = Pipelines {
                redis_url: redis.url(),
                at_once: PIPELINES,
                operations: PIPELINED,
                from: *next,
                length: options.seconds,
            };
            let worker = Worker::spawn("pipeline", &serde_json::to_string(&load)?)?;
            let sample = worker.measure(&[redis.pid()])?;
            *next += sample.outcome.used;
            Ok(sample)
        };
        let first = (round % 2 == 1).then(|| bare(&mut next)).transpose()?;
        stage.room_for(options.seconds);
        let load = stage.load(CONNECTIONS, OPERATIONS, options.seconds);
        let ours = generate(&load)?.measure(&[stage.redis.pid()])?;
        stage.used(&ours.outcome);
        stage.drain(runtime)?;
        let theirs = match first {
            Some(sample) => sample,
            None => bare(&mut next)?,
        };
        rate.round(ours.outcome.rate(), theirs.outcome.rate());
        rate.answers.add(&ours.outcome);
        rate.yardstick_answers.add(&theirs.outcome);
        cpu.round(ours.cpu_per_like(0), theirs.cpu_per_like(0));
    }
    table.add(rate);
    table.add(cpu);
    Ok(())
}
