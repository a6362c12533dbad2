//! `thumbd flush`: one flush by hand.

use std::process::ExitCode;

use clap::Command;

use crate::config::Settings;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("flush")
        .about("Seal up to now and carry all slices into the database; print what was done")
}

/// Runs the command.
pub async fn run(_settings: Settings) -> anyhow::Result<ExitCode> {
    anyhow::bail!("flush is not built yet")
}
