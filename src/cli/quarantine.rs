//! `thumbd quarantine`: what stands in quarantine, and what shall become of it.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use comfy_table::{Table, presets};

use super::say::say;
use super::{BOTH_STORES, flush, with_settings};
use crate::config::Settings;
use crate::flush::{Retried, Upto, retry};
use crate::ledger::{Ledger, QuarantineRow, Subject};
use crate::service::connect_ledger;

/// Rows of one page: what is listed is printed page by page, however much there is.
const PAGE: u64 = 500;
/// Characters of bytes that are shown.
const SHOWN_MAX: usize = 60;

/// What is asked for.
pub(super) enum Arguments {
    List,
    Retry(Chosen),
    Drop(Chosen),
}

/// Which entries.
pub(super) enum Chosen {
    All,
    Ids(Vec<u64>),
}

/// The command and its arguments.
pub(super) fn command() -> Command {
    let chosen = |command: Command| {
        command
            .arg(
                Arg::new("id")
                    .value_name("ID")
                    .help("Number of an entry, as listed")
                    .num_args(1..)
                    .value_parser(value_parser!(u64))
                    .required_unless_present("all"),
            )
            .arg(
                Arg::new("all")
                    .long("all")
                    .action(ArgAction::SetTrue)
                    .conflicts_with("id")
                    .help("All entries"),
            )
    };
    Command::new("quarantine")
        .about("Show, retry or drop operations that the database refused and slices' bytes that are none")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list").about("List what stands in quarantine"),
            chosen(Command::new("retry").about(
                "Flush, accept entries again as new operations, and flush; exit 1 if something stays in quarantine",
            )),
            chosen(Command::new("drop").about("Remove entries for good; exit 1 if one was not there")),
        ].map(|command| with_settings(command, BOTH_STORES)))
}

impl Arguments {
    pub(super) fn read(matches: &ArgMatches) -> anyhow::Result<Self> {
        let (name, matches) = matches.subcommand().context("no subcommand")?;
        let chosen = || match matches.get_many::<u64>("id") {
            Some(ids) => Chosen::Ids(ids.copied().collect()),
            None => Chosen::All,
        };
        Ok(match name {
            "list" => Self::List,
            "retry" => Self::Retry(chosen()),
            _ => Self::Drop(chosen()),
        })
    }
}

/// Runs the command.
pub(super) async fn run(settings: Settings, arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments {
        Arguments::List => list(&connect_ledger(&settings)?).await,
        Arguments::Retry(chosen) => retry_chosen(&settings, chosen).await,
        Arguments::Drop(chosen) => drop_chosen(&connect_ledger(&settings)?, chosen).await,
    }
}

async fn list(ledger: &Ledger) -> anyhow::Result<ExitCode> {
    let (mut after, mut count) = (0, 0);
    loop {
        let page = ledger.quarantine_page(after, PAGE).await?;
        count += page.len();
        if !page.is_empty() {
            say!("{}", table(&page));
        }
        match page.last() {
            Some(last) if page.len() as u64 == PAGE => after = last.id,
            _ => break,
        }
    }
    say!("{count} entries in quarantine");
    Ok(ExitCode::SUCCESS)
}

fn table(rows: &[QuarantineRow]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["id", "since (UTC)", "partition", "slice", "what", "reason"]);
    for row in rows {
        table.add_row([
            row.id.to_string(),
            row.created_at.format("%Y-%m-%d %H:%M:%S").to_string(),
            row.what.partition.to_string(),
            row.what.slice.to_string(),
            describe(&row.what.subject),
            row.what.reason.clone(),
        ]);
    }
    table
}

fn describe(subject: &Subject) -> String {
    match subject {
        Subject::Entry(entry) => {
            let word = if entry.thumbed { "like" } else { "unlike" };
            format!("{word} {} {}", entry.user, entry.target)
        }
        Subject::Bytes { field, value } => {
            let shown = |bytes: &[u8]| {
                let text = bytes.escape_ascii().to_string();
                match text.char_indices().nth(SHOWN_MAX) {
                    Some((end, _)) => format!("{}…", &text[..end]),
                    None => text,
                }
            };
            format!("bytes '{}' = '{}'", shown(field), shown(value))
        }
    }
}

/// The chosen rows, page by page in a list: what is retried may come back with a higher number.
async fn rows(ledger: &Ledger, chosen: &Chosen) -> anyhow::Result<Vec<QuarantineRow>> {
    let mut rows = Vec::new();
    let mut after = 0;
    loop {
        let page = ledger.quarantine_page(after, PAGE).await?;
        let full = page.len() as u64 == PAGE;
        after = page.last().map_or(after, |last| last.id);
        rows.extend(page.into_iter().filter(|row| match chosen {
            Chosen::All => true,
            Chosen::Ids(ids) => ids.contains(&row.id),
        }));
        if !full {
            return Ok(rows);
        }
    }
}

async fn retry_chosen(settings: &Settings, chosen: Chosen) -> anyhow::Result<ExitCode> {
    // They were within the limits when they were accepted first.
    let settings = Settings {
        kinds: settings.kinds.clone().without_limits(),
        ..settings.clone()
    };
    let (service, flusher, lease) = flush::prepare(&settings).await?;
    let result = async {
        flusher.run(|| Upto::Now).await?;
        let rows = rows(service.ledger(), &chosen).await?;
        let mut staying = missing(&chosen, &rows);
        for row in &rows {
            let word = match retry(&service, row).await? {
                Retried::Accepted { changed: true } => "accepted",
                Retried::Accepted { changed: false } => "is so already",
                Retried::Overtaken => "overtaken by a newer operation, dropped",
                Retried::Unreadable => {
                    staying += 1;
                    "is no operation, can only be dropped"
                }
                Retried::Elsewhere => {
                    staying += 1;
                    "does not belong to its partition, can only be dropped"
                }
            };
            say!("{}: {}: {word}", row.id, describe(&row.what.subject));
        }
        let report = flusher.run(|| Upto::Now).await?;
        flush::print(&report);
        anyhow::Ok(staying + report.quarantined)
    }
    .await;
    lease.release().await;
    Ok(code(result?))
}

async fn drop_chosen(ledger: &Ledger, chosen: Chosen) -> anyhow::Result<ExitCode> {
    let rows = rows(ledger, &chosen).await?;
    for row in &rows {
        ledger.quarantine_remove(row.id).await?;
        say!("{}: {}: dropped", row.id, describe(&row.what.subject));
    }
    Ok(code(missing(&chosen, &rows)))
}

/// Says which of the chosen ids are not there, and how many these are.
fn missing(chosen: &Chosen, rows: &[QuarantineRow]) -> u64 {
    let Chosen::Ids(ids) = chosen else {
        return 0;
    };
    let missing: Vec<&u64> = ids
        .iter()
        .filter(|id| rows.iter().all(|row| row.id != **id))
        .collect();
    for id in &missing {
        say!("{id}: is not in quarantine");
    }
    missing.len() as u64
}

fn code(staying: u64) -> ExitCode {
    if staying == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
