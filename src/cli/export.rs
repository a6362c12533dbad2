//! `thumbd export`: the likes that the database has, as CSV on standard output.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command};

use crate::config::Settings;
use crate::domain::Kind;
use crate::ledger::{LedgerError, ThumbRow};
use crate::moving::{export, time_text};
use crate::service::connect_ledger;

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("export")
        .about("Print the likes that the database has as CSV, as `thumbd import` reads it; as of the last flush, page by page")
        .arg(
            Arg::new("kind").long("kind").value_name("KIND")
                .value_parser(|text: &str| Kind::parse(text))
                .help("Likes of this kind only; without it a column kind says which each is"),
        )
}

/// What the command is told.
pub(super) struct Arguments {
    kind: Option<Kind>,
}

impl Arguments {
    pub(super) fn read(matches: &ArgMatches) -> Self {
        Self {
            kind: matches.get_one::<Kind>("kind").cloned(),
        }
    }
}

/// Why it ended early.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("database")]
    Ledger(#[from] LedgerError),
    #[error("standard output cannot be written")]
    Write(#[from] csv::Error),
}

/// Runs the command.
pub(super) async fn run(settings: Settings, arguments: Arguments) -> anyhow::Result<ExitCode> {
    let ledger = connect_ledger(&settings)?;
    let kind = arguments.kind.as_ref().map(Kind::as_str);
    let mut writer = csv::Writer::from_writer(io::BufWriter::new(io::stdout()));
    let with_kind = kind.is_none();
    let columns = ["user", "target", "time", "kind"];
    let shown = if with_kind { 4 } else { 3 };
    writer.write_record(&columns[..shown])?;
    let write = |row: &ThumbRow| -> Result<(), ExportError> {
        let time = time_text(row.version);
        let fields = [row.user.as_str(), row.target.id(), &time, row.target.kind()];
        Ok(writer.write_record(&fields[..shown])?)
    };
    let count = export(&ledger, kind, write).await?;
    writer.flush()?;
    writeln!(io::stderr(), "{count} likes")?;
    Ok(ExitCode::SUCCESS)
}
