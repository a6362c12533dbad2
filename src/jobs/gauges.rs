//! Metrics of what stands in MySQL, the same whichever process is asked; and of this process's connections.

use std::sync::Arc;

use super::lag::Lag;
use super::runner::COMPENSATE;
use crate::feed;
use crate::ledger::{Ledger, LedgerError};
use crate::limits::LEDGER_MEASURE_PAUSE;
use crate::telemetry::names;

/// Measures for ever, and at once when a run has ended. While MySQL cannot be asked, what was there last stays.
pub(super) async fn measure(ledger: Ledger, lag: Arc<Lag>) {
    loop {
        connections(&ledger);
        if let Err(error) = tables(&ledger).await {
            tracing::debug!(%error, "the database was not measured");
        }
        tokio::select! {
            () = tokio::time::sleep(LEDGER_MEASURE_PAUSE) => {}
            () = lag.tables_now.notified() => {}
        }
    }
}

fn connections(ledger: &Ledger) {
    let (all, idle) = ledger.connections();
    let used = f64::from(all) - idle as f64;
    metrics::gauge!(names::DATABASE_CONNECTIONS, "state" => "used").set(used.max(0.0));
    metrics::gauge!(names::DATABASE_CONNECTIONS, "state" => "idle").set(idle as f64);
}

async fn tables(ledger: &Ledger) -> Result<(), LedgerError> {
    let entries = ledger.quarantine_count().await?;
    metrics::gauge!(names::QUARANTINE_ENTRIES).set(entries as f64);
    feed::show(&ledger.feed_status().await?);
    if let Some(done) = ledger.job_last_done(COMPENSATE).await? {
        metrics::gauge!(names::COMPENSATED_TIMESTAMP).set(done.planned_at.timestamp() as f64);
        if let Some(count) = differences(&done.detail) {
            metrics::gauge!(names::COUNT_DIFFERENCES).set(count as f64);
        }
    }
    Ok(())
}

/// How many counts the report of a compensation says to be wrong. It is looked for in the text: the list of the wrong ones comes behind
/// it, and is cut if it is long.
fn differences(report: &str) -> Option<u64> {
    let (_, behind) = report.split_once("\"differences_total\":")?;
    let end = behind.find(|sign: char| !sign.is_ascii_digit())?;
    behind[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flush::CompensationReport;

    #[test]
    fn differences_are_read_from_a_report_also_if_it_is_cut() {
        let mut report = CompensationReport::default();
        report.audit.differences_total = 12;
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(differences(&text), Some(12), "{text}");
        let cut = text.find("\"differences\":").unwrap() + 15;
        assert_eq!(differences(&text[..cut]), Some(12), "{text}");
        assert_eq!(differences(""), None);
    }
}
