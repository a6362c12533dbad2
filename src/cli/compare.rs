//! `thumbd compare`: the site's own counts beside thumbd's.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};

use super::say::say;
use crate::config::{Mirror, Settings};
use crate::domain::Kind;
use crate::moving::Comparison;
use crate::service::connect_ledger;

/// Differences that are printed; all are counted.
const LISTED_MAX: u64 = 1000;

/// The command and its arguments.
pub(super) fn command() -> Command {
    let name = |long: &'static str, help: &'static str| {
        Arg::new(long).long(long).value_name("NAME").help(help)
    };
    Command::new("compare")
        .about("Compare a column of the site's own with thumbd's counts, as of the last flush; exit 1 if any differs")
        .arg(
            Arg::new("kind").long("kind").value_name("KIND").required(true)
                .value_parser(|text: &str| Kind::parse(text))
                .help("Kind of the targets"),
        )
        .arg(
            name("table", "The site's table, or schema.table; without it the kind's mirror in the settings")
                .requires("id-column").requires("count-column"),
        )
        .arg(name("id-column", "Its column with the ids of targets").requires("table"))
        .arg(name("count-column", "Its column with the counts").requires("table"))
}

/// What the command is told.
pub(super) struct Arguments {
    kind: Kind,
    mirror: Option<Mirror>,
}

impl Arguments {
    pub(super) fn read(matches: &ArgMatches) -> anyhow::Result<Self> {
        let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
        let names = (text("table"), text("id-column"), text("count-column"));
        let mirror = match names {
            (Some(table), Some(id), Some(count)) => {
                Some(Mirror::parse(table, id, count).map_err(|problem| anyhow::anyhow!(problem))?)
            }
            _ => None,
        };
        let kind = matches.get_one::<Kind>("kind").cloned();
        Ok(Self {
            kind: kind.context("--kind is missing")?,
            mirror,
        })
    }
}

/// Runs the command.
pub(super) async fn run(settings: Settings, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { kind, mirror } = arguments;
    let mut mirrors = settings.kinds.mirrors();
    let mut own = || mirrors.find(|(own, _)| **own == kind);
    let mirror = mirror
        .or_else(|| own().map(|(_, mirror)| mirror.clone()))
        .with_context(|| {
            format!("kind {kind} has no mirror in the settings: give --table, --id-column and --count-column")
        })?;
    let ledger = connect_ledger(&settings)?;
    let column = ledger.mirror_open(kind.as_str(), &mirror).await?;
    let mut comparison = Comparison::new(&ledger, kind, column);
    let mut total = 0_u64;
    while let Some(differences) = comparison.next().await? {
        for one in differences {
            if total == 0 {
                say!("id\tsite\tthumbd\tdifference");
            }
            total += 1;
            if total <= LISTED_MAX {
                let difference = one.thumbd - one.site;
                say!("{}\t{}\t{}\t{difference:+}", one.id, one.site, one.thumbd);
            }
        }
    }
    if total > LISTED_MAX {
        say!("and {} more", total - LISTED_MAX);
    }
    let without_row = comparison.without_row().await?;
    say!(
        "{total} differences in {} rows of the site",
        comparison.rows
    );
    if without_row > 0 {
        say!("{without_row} targets with likes have no row there");
    }
    Ok(if total == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
