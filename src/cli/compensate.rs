//! `thumbd compensate`: the compensator by hand.

use std::process::ExitCode;

use clap::Command;

use super::flush;
use super::say::say;
use crate::config::Settings;
use crate::flush::Upto;

/// The command.
pub(super) fn command() -> Command {
    Command::new("compensate")
        .about("Find slices that the flush missed, carry them into the database, compare counts with rows")
        .after_help("Exit code 1 if counts are not what the rows say.")
}

/// Runs the command.
pub async fn run(settings: Settings) -> anyhow::Result<ExitCode> {
    let (_, flusher, lease) = flush::prepare(&settings).await?;
    let report = flusher.compensate(|| Upto::Now).await;
    lease.release().await;
    let report = report?;
    say!("slices found       {}", report.slices_found);
    say!("slices adopted     {}", report.slices_adopted);
    flush::print(&report.flush);
    say!("rows pruned        {}", report.rows_pruned);
    say!("rows audited       {}", report.audit.rows_seen);
    say!("targets audited    {}", report.audit.targets_seen);
    say!("wrong counts       {}", report.audit.differences_total);
    for difference in &report.audit.differences {
        say!("  {difference}");
    }
    Ok(if report.audit.differences_total == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
