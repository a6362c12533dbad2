//! `thumbd flush`: seals what was accepted so far, carries it into MySQL and says what it did.

use std::process::ExitCode;
use std::time::Duration;

use clap::Command;

use super::say::say;
use crate::config::Settings;
use crate::flush::{FlushReport, Flusher, Upto};
use crate::jobs::Lease;
use crate::service::{Service, new_generation};

/// The command.
pub(super) fn command() -> Command {
    Command::new("flush").about("Seal what was accepted so far and carry it into the database")
}

/// Runs the command.
pub async fn run(settings: Settings) -> anyhow::Result<ExitCode> {
    let (_, flusher, lease) = prepare(&settings).await?;
    let report = flusher.run(|| Upto::Now).await;
    lease.release().await;
    print(&report?);
    Ok(ExitCode::SUCCESS)
}

/// Connects, and waits until no instance runs a job.
pub(super) async fn prepare(settings: &Settings) -> anyhow::Result<(Service, Flusher, Lease)> {
    let service = Service::build(settings).await?;
    let life = Duration::from_millis(settings.lease_ttl_ms);
    let lease = Lease::wait(service.hot(), &new_generation(), life).await?;
    let flusher = Flusher::new(service.hot().clone(), service.ledger().clone(), settings);
    Ok((service, flusher, lease))
}

/// One line a fact, for people and for grep.
pub(super) fn print(report: &FlushReport) {
    say!("sealed up to       {}", report.sealed_upto);
    say!("slices flushed     {}", report.slices);
    say!("entries            {}", report.entries);
    say!("rows changed       {}", report.rows_changed);
    say!("entries not newer  {}", report.rows_stale);
    say!("counts moved       {}", report.counts_changed);
    say!("retries            {}", report.retries);
    if report.quarantined > 0 {
        say!("in quarantine      {}", report.quarantined);
    }
    if report.partitions_skipped > 0 {
        say!("partitions skipped {}", report.partitions_skipped);
    }
    say!("duration           {} ms", report.duration_ms);
}
