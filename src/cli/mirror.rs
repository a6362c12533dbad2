//! `thumbd mirror`: which columns of the site's own are kept at the counts, and how one is let go of.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};

use super::say::say;
use super::with_settings;
use crate::config::{Group, Settings};
use crate::domain::Kind;
use crate::service::connect_ledger;

/// What is asked for.
pub(super) enum Arguments {
    List,
    Remove(Kind),
}

/// The command and its arguments.
pub(super) fn command() -> Command {
    let kind = Arg::new("kind")
        .value_name("KIND")
        .required(true)
        .value_parser(|text: &str| Kind::parse(text))
        .help("Kind of the targets");
    Command::new("mirror")
        .about("Show which columns of the site's own are kept at the counts, or let go of one")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(
            [
                Command::new("list").about("List them: kind, then TABLE/ID_COLUMN/COUNT_COLUMN"),
                Command::new("remove")
                    .about("Let go of a kind's column, which stays as it is; exit 1 if there is none")
                    .after_help("Take it out of the settings of `thumbd serve` first: whoever starts with it there takes it up again.")
                    .arg(kind),
            ]
            .map(|command| with_settings(command, &[Group::Database])),
        )
}

impl Arguments {
    pub(super) fn read(matches: &ArgMatches) -> anyhow::Result<Self> {
        let (name, matches) = matches.subcommand().context("no subcommand")?;
        Ok(match name {
            "list" => Self::List,
            _ => {
                let kind = matches.get_one::<Kind>("kind").cloned();
                Self::Remove(kind.context("KIND is missing")?)
            }
        })
    }
}

/// Runs the command.
pub(super) async fn run(settings: Settings, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let ledger = connect_ledger(&settings)?;
    match arguments {
        Arguments::List => {
            let mirrors = ledger.mirrors().await?;
            for (kind, mirror) in &mirrors {
                say!("{kind:<18} {mirror}");
            }
            if mirrors.is_empty() {
                say!("no kind has a mirror");
            }
        }
        Arguments::Remove(kind) => {
            if !ledger.mirror_remove(kind.as_str()).await? {
                say!("kind {kind} has no mirror");
                return Ok(ExitCode::FAILURE);
            }
            say!("the mirror of kind {kind} is no longer set");
        }
    }
    Ok(ExitCode::SUCCESS)
}
