//! `thumbd compare`: the site's own counts beside thumbd's.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgMatches, Command};

use super::say::say;
use crate::config::{Mirror, Settings};
use crate::domain::Kind;
use crate::ledger::Ledger;
use crate::moving::Comparison;
use crate::service::{self, connect_ledger};

/// Differences that are printed; all are counted.
const LISTED_MAX: u64 = 1000;

/// Kinds that are named where one is not known.
const KINDS_LISTED_MAX: usize = 20;

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
            name("table", "The site's table, or schema.table; without it the kind's mirror")
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
    let ledger = connect_ledger(&settings)?;
    let mirror = match mirror {
        Some(mirror) => mirror,
        None => of_kind(&ledger, &settings, &kind).await?,
    };
    known(&ledger, &kind).await?;
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

/// The column that is kept at the counts of a kind, or will be.
async fn of_kind(ledger: &Ledger, settings: &Settings, kind: &Kind) -> anyhow::Result<Mirror> {
    let kept = ledger.mirrors().await?;
    let kept = kept.iter().map(|(name, mirror)| (name.as_str(), mirror));
    let mirror = kept
        .chain(service::mirrors(settings))
        .find(|(name, _)| *name == kind.as_str());
    let (_, mirror) = mirror.with_context(|| {
        format!("kind {kind} has no mirror: give --table, --id-column and --count-column")
    })?;
    Ok(mirror.clone())
}

/// Refuses a kind of which nothing was ever stored: all its counts would be 0, and more likely the name is wrong.
async fn known(ledger: &Ledger, kind: &Kind) -> anyhow::Result<()> {
    let known = ledger.kind_names(usize::from(u16::MAX)).await?;
    if known.contains(kind) {
        return Ok(());
    }
    let listed: Vec<&str> = known
        .iter()
        .map(Kind::as_str)
        .take(KINDS_LISTED_MAX)
        .collect();
    let names = match listed.is_empty() {
        true => "no kind has".to_owned(),
        false => format!("these have: {}", listed.join(", ")),
    };
    anyhow::bail!("kind {kind} has no likes in MySQL yet, nor had any; {names}")
}
