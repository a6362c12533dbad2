//! `thumbd verify`: a check that only reads.

use std::process::ExitCode;

use clap::Command;

use crate::config::Settings;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("verify").about("Compare counts with rows, and what stands in Redis with the database; exit 1 if anything differs")
}

/// Runs the command.
pub async fn run(_settings: Settings) -> anyhow::Result<ExitCode> {
    anyhow::bail!("verify is not built yet")
}
