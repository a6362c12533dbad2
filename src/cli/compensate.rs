//! `thumbd compensate`: the compensator by hand.

use std::process::ExitCode;

use clap::Command;

use crate::config::Settings;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("compensate").about(
        "Find and flush what the regular flush missed, prune, audit counts; print what was done",
    )
}

/// Runs the command.
pub async fn run(_settings: Settings) -> anyhow::Result<ExitCode> {
    anyhow::bail!("compensate is not built yet")
}
