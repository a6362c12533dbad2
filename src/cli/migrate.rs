//! `thumbd migrate`: the schema of the database.

use std::process::ExitCode;

use clap::Command;

use super::say::say;
use crate::app;
use crate::config::Settings;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("migrate").about("Bring the database's schema up to date")
}

/// Runs the command.
pub async fn run(settings: Settings) -> anyhow::Result<ExitCode> {
    app::migrate(&settings).await?;
    say!("The schema is up to date.");
    Ok(ExitCode::SUCCESS)
}
