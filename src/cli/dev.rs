//! `thumbd dev`: the service on private servers of its own, for trying it out and for working on it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command, value_parser};

use crate::config::Settings;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("dev")
        .about("Serve likes on private Redis and database servers, which it starts and stops")
        .arg(
            Arg::new("data")
                .long("data")
                .value_name("DIR")
                .default_value(".thumbd")
                .value_parser(value_parser!(PathBuf))
                .help("Directory in which the servers keep their data"),
        )
}

/// What only this command is told.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// Directory of the servers' data.
    pub data: PathBuf,
}

impl Arguments {
    /// Takes the arguments from the command line.
    pub(super) fn read(matches: &ArgMatches) -> anyhow::Result<Self> {
        let data = matches
            .get_one::<PathBuf>("data")
            .context("--data is missing")?;
        Ok(Self { data: data.clone() })
    }
}

/// Runs the command.
pub async fn run(_settings: Settings, _arguments: Arguments) -> anyhow::Result<ExitCode> {
    anyhow::bail!("dev is not built yet")
}
