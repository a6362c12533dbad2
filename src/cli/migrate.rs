//! `thumbd migrate`: the schema of the database.

use std::process::ExitCode;

use clap::Command;

use crate::config::Settings;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("migrate").about("Bring the database's schema up to date")
}

/// Runs the command.
pub async fn run(_settings: Settings) -> anyhow::Result<ExitCode> {
    anyhow::bail!("migrate is not built yet")
}
