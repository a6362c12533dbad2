//! `make bench`: measures thumbd beside its yardsticks, alternating in one run, and prints one table of medians in Markdown.
//!
//! The program starts itself again, with a role as its first argument: what makes load, and what serves the yardsticks, are
//! processes of their own, so that the CPU time of each can be read from /proc. Progress goes to stderr, the table to stdout.

mod batch;
mod flush;
mod generator;
mod http;
mod limits;
mod memory;
mod moving;
mod options;
mod pairs;
mod pipeline;
mod stage;
mod table;
mod upsert;
mod window;
mod wire;
mod worker;
mod yardsticks;

use std::{env, process::ExitCode};

use anyhow::Context;

use options::{Options, Section};
use table::Table;

/// The same as in thumbd, or the yardsticks would be slower for a reason that is none.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["generate", spec] => generator::run(spec),
        ["noop"] => yardsticks::noop(),
        ["bare", redis_url] => yardsticks::bare(redis_url),
        ["pipeline", spec] => pipeline::run(spec),
        // `cargo test --all-targets` starts benches too, without this word.
        words if words.contains(&"--bench") => report(),
        _ => {
            eprintln!("nothing is measured without `cargo bench`");
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn report() -> anyhow::Result<()> {
    let options = Options::of_process()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start a runtime")?;
    let mut table = Table::default();
    // What was measured before a section failed is printed all the same.
    let result = measure(&options, &runtime, &mut table);
    table.print(&options);
    result?;
    if table.failures() > 0 {
        anyhow::bail!("some answers were not as they must be, see the last column");
    }
    Ok(())
}

fn measure(
    options: &Options,
    runtime: &tokio::runtime::Runtime,
    table: &mut Table,
) -> anyhow::Result<()> {
    for section in &options.sections {
        match section {
            Section::Http => http::measure(options, runtime, table, &http::CONNECTIONS),
            Section::Cpu => http::measure(options, runtime, table, &[http::CPU_CONNECTIONS]),
            Section::Batch => batch::measure(options, runtime, table),
            Section::Flush => flush::measure(options, runtime, table),
            Section::Memory => memory::measure(options, runtime, table),
            Section::Moving => moving::measure(options, runtime, table),
        }
        .with_context(|| format!("section {section:?}"))?;
    }
    Ok(())
}
