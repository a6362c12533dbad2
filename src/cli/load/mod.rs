//! `thumbd load`: sends the likes of a CSV file to a running thumbd over HTTP, and says how it went. It knows nothing but the HTTP interface.

mod client;
mod drive;
mod lines;
#[cfg(test)]
mod server;
mod tally;
#[cfg(test)]
mod tests;
mod wire;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};
use tokio::sync::mpsc;

use crate::config::Settings;
use crate::domain::Kind;
use crate::limits::BATCH_OPERATIONS_MAX;
use client::Client;
use drive::Driver;

/// Lines that are read ahead of what is sent.
const LINES_AHEAD: usize = 4096;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("load")
        .about("Send the likes of a CSV file to a running thumbd; exit 1 if any failed")
        .arg(Arg::new("file").value_name("FILE").required(true).help(
            "CSV with user,target[,op] a line, op being like (default) or unlike; a header of these names is skipped; gzip is recognised; - is standard input",
        ))
        .arg(
            Arg::new("kind").long("kind").value_name("KIND").required(true)
                .value_parser(|text: &str| Kind::parse(text))
                .help("Kind of all targets; the file has their ids"),
        )
        .arg(
            Arg::new("url").long("url").value_name("URL").required(true)
                .value_parser(wire::base_url)
                .help("Where thumbd is, for example http://127.0.0.1:7468"),
        )
        .arg(
            Arg::new("concurrency").long("concurrency").value_name("N").default_value("32")
                .value_parser(value_parser!(u64).range(1..=4096))
                .help("Calls in flight at once; operations of one user on one target stay in the file's order"),
        )
        .arg(
            Arg::new("rate").long("rate").value_name("N").default_value("0")
                .value_parser(value_parser!(u64).range(0..=10_000_000))
                .help("Operations per second; 0 is as fast as possible"),
        )
        .arg(
            Arg::new("batch").long("batch").value_name("N").default_value("1")
                .value_parser(value_parser!(u64).range(1..=BATCH_OPERATIONS_MAX as u64))
                .help("Operations per call; 1 is a PUT or DELETE each, more is POST /v1/batch"),
        )
        .arg(
            Arg::new("tries").long("tries").value_name("N").default_value("8")
                .value_parser(value_parser!(u64).range(1..=100))
                .help("How often an operation is tried that is answered 503 or 429 (a limit on one user), or not at all, before it counts as failed; waits for Retry-After in between, at most 30 s (a like is a state, so trying again is harmless)"),
        )
        .after_help(
            "The service key comes from THUMBD_SERVICE_KEY, THUMBD_SERVICE_KEY_FILE or the TOML file.\n\
             Only http:// is spoken: for a thumbd behind TLS go past the proxy.",
        )
}

/// What the command is told.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// The file, or `-`.
    pub file: String,
    /// The kind of all targets.
    pub kind: Kind,
    /// Where thumbd is, without a slash at the end.
    pub url: String,
    /// Calls in flight at once.
    pub concurrency: usize,
    /// Operations per second; 0 is no limit.
    pub rate: u64,
    /// Operations per call.
    pub batch: usize,
    /// Tries per operation.
    pub tries: u32,
}

impl Arguments {
    /// Takes the arguments from the command line.
    pub(super) fn read(matches: &ArgMatches) -> anyhow::Result<Self> {
        let number = |name: &str| {
            matches
                .get_one::<u64>(name)
                .copied()
                .context("a number is missing")
        };
        Ok(Self {
            file: matches
                .get_one::<String>("file")
                .cloned()
                .context("FILE is missing")?,
            kind: matches
                .get_one::<Kind>("kind")
                .cloned()
                .context("--kind is missing")?,
            url: matches
                .get_one::<String>("url")
                .cloned()
                .context("--url is missing")?,
            concurrency: usize::try_from(number("concurrency")?)?,
            rate: number("rate")?,
            batch: usize::try_from(number("batch")?)?,
            tries: u32::try_from(number("tries")?)?,
        })
    }
}

/// Runs the command.
pub async fn run(settings: Settings, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let tally = replay(&settings, &arguments).await?;
    writeln!(std::io::stdout(), "{}", tally.table()).context("the table cannot be printed")?;
    Ok(if tally.complete() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Sends the whole file.
async fn replay(settings: &Settings, arguments: &Arguments) -> anyhow::Result<tally::Tally> {
    let (input, progress) = super::lines::open(&arguments.file)?;
    let client = Client::new(arguments, settings.service_key.as_ref())?;
    let (sender, receiver) = mpsc::channel(LINES_AHEAD);
    let kind = arguments.kind.clone();
    let reader = tokio::task::spawn_blocking(move || lines::read(input, &kind, &sender));
    let mut driver = Driver::new(client, arguments, progress.clone())?;
    tokio::select! {
        driven = driver.drive(receiver) => driven?,
        // The reader ends by itself: nobody takes its lines any more. What is in flight is given up.
        _ = tokio::signal::ctrl_c() => driver.stop("Interrupted"),
    }
    progress.finish_and_clear();
    let tally = driver.into_tally();
    // A reader that waits for standard input would keep a stopped run from ending.
    if !tally.stopped() {
        reader
            .await
            .context("the reader died")?
            .with_context(|| format!("{} cannot be read to its end", arguments.file))?;
    }
    Ok(tally)
}
