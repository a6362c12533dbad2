//! `thumbd repair`: mends what `verify` finds, and says what it changes.

use std::process::ExitCode;

use clap::Command;

use super::say::{say, say_text};
use super::{flush, verify};
use crate::config::Settings;
use crate::repair::{self, Change};
use crate::service::layout;

/// The command.
pub(super) fn command() -> Command {
    Command::new("repair")
        .about("Make counts what the rows say, also in the site's own tables, and load again what is wrong in Redis; rows are never changed")
        .after_help("Exit code 1 if something still differs.")
}

/// Runs the command.
pub(super) async fn run(settings: Settings) -> anyhow::Result<ExitCode> {
    let (service, flusher, lease) = flush::prepare(&settings).await?;
    let mut changes = 0_u64;
    let stores = (service.hot(), service.ledger());
    let left = repair::run(stores, &flusher, &layout(&settings), |change| {
        changes += 1;
        say!("{}", describe(&change));
    })
    .await;
    lease.release().await;
    let left = left?;
    say!("{changes} changes");
    say_text(&verify::text(&left));
    Ok(if left.differences_total == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn describe(change: &Change) -> String {
    match change {
        Change::Count(one) => {
            let part = match one.partition {
                Some(partition) => format!(", partition {partition}"),
                None => String::new(),
            };
            let before = one
                .before
                .map_or("none".to_owned(), |before| before.to_string());
            format!(
                "count in the database: {}{part}: {before} -> {}",
                one.target, one.after
            )
        }
        Change::User { partition, user } => {
            format!("user in Redis: {user}, partition {partition}: will be loaded again")
        }
        Change::Mirror { kind, difference } => format!(
            "count in the site's table: {kind}:{}: {} -> {}",
            difference.id, difference.site, difference.thumbd
        ),
        Change::Target { partition, target } => {
            format!("count in Redis: {target}, partition {partition}: will be loaded again")
        }
    }
}
