//! `thumbd feed`: how the change feed stands, and how it begins again after it was stopped.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{ArgMatches, Command};

use super::say::say;
use super::with_settings;
use crate::config::{Group, Settings};
use crate::ledger::{FeedState, FeedStatus};
use crate::service::connect_ledger;

/// What is asked for.
pub(super) enum Arguments {
    Status,
    Resume,
}

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("feed")
        .about("Show how the change feed stands, or let it begin again")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(
            [
                Command::new("status").about("Show how it stands; exit 1 if it is stopped"),
                Command::new("resume").about(
                    "Drop what waits and begin again with a gap, behind which readers read everything anew; exit 1 if it is off",
                ),
            ]
            .map(|command| with_settings(command, &[Group::Database])),
        )
}

impl Arguments {
    pub(super) fn read(matches: &ArgMatches) -> anyhow::Result<Self> {
        let (name, _) = matches.subcommand().context("no subcommand")?;
        Ok(match name {
            "status" => Self::Status,
            _ => Self::Resume,
        })
    }
}

/// Runs the command.
pub(super) async fn run(settings: Settings, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let ledger = connect_ledger(&settings)?;
    let (status, bad) = match arguments {
        Arguments::Status => (ledger.feed_status().await?, FeedState::Stopped),
        Arguments::Resume => (ledger.feed_resume(0).await?, FeedState::Off),
    };
    print(&status);
    Ok(if status.state == bad {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn print(status: &FeedStatus) {
    let state = match status.state {
        FeedState::Off => "off",
        FeedState::Running => "running",
        FeedState::Stopped => "stopped: more than feed_backlog_max events waited",
    };
    say!("state              {state}");
    if let Some(at) = status.stopped_at {
        say!("stopped at         {}", at.to_rfc3339());
    }
    say!("events waiting     {}", status.backlog);
    say!("at most            {}", status.backlog_max);
    say!("oldest             {} ms", status.age_ms);
    say!("last id            {}", status.last_id);
}
