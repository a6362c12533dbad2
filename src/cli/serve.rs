//! `thumbd serve`: the service on the servers that the settings name.

use std::process::ExitCode;

use clap::Command;

use crate::config::Settings;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("serve")
        .about("Serve likes over HTTP, on the Redis and the database of the settings")
}

/// Runs the command.
pub async fn run(_settings: Settings) -> anyhow::Result<ExitCode> {
    anyhow::bail!("serve is not built yet")
}
