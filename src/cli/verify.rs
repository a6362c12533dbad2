//! `thumbd verify`: a check that only reads.

use std::process::ExitCode;

use clap::Command;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

use super::say::say_text;
use crate::config::Settings;
use crate::service::{connect_hot, connect_ledger, layout};
use crate::verify::{Progress, Report};

/// The command and its arguments.
pub(super) fn command() -> Command {
    Command::new("verify").about("Compare counts with rows, and what stands in Redis with the database; exit 1 if anything differs")
}

/// Runs the command.
pub async fn run(settings: Settings) -> anyhow::Result<ExitCode> {
    let ledger = connect_ledger(&settings)?;
    let hot = connect_hot(&settings).await?;
    // On stderr, and hidden by itself where that is no terminal.
    let bar = ProgressBar::new(0);
    let rows = ProgressStyle::with_template("{bar:30} {pos} of about {len} rows, {elapsed}")?;
    let residents = ProgressStyle::with_template("{spinner} {pos} residents, {msg}, {elapsed}")?;
    bar.set_style(rows);
    let mut in_redis = false;
    let report = crate::verify::run(
        &hot,
        &ledger,
        &layout(&settings),
        |progress| match progress {
            Progress::Rows { seen, estimate } => {
                bar.set_length(estimate.max(seen));
                bar.set_position(seen);
            }
            Progress::Residents { partition, seen } => {
                if !in_redis {
                    bar.set_style(residents.clone());
                    in_redis = true;
                }
                bar.set_message(format!("partition {partition}"));
                bar.set_position(seen);
            }
        },
    )
    .await;
    bar.finish_and_clear();
    let report = report?;
    say_text(&text(&report));
    Ok(if report.differences_total == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The table of differences, if there are any, and a line that sums up.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    if !report.differences.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(["where", "partition", "what", "found", "expected"]);
        for one in &report.differences {
            table.add_row([
                one.place.name().to_owned(),
                one.partition
                    .map_or("-".to_owned(), |partition| partition.to_string()),
                one.key.clone(),
                one.found.clone(),
                one.expected.clone(),
            ]);
        }
        text = format!("{table}\n");
        let unlisted = report.differences_total - report.differences.len() as u64;
        if unlisted > 0 {
            text.push_str(&format!("and {unlisted} more\n"));
        }
    }
    text.push_str(&format!(
        "{} differences in {} rows of {} targets, {} users and {} counts in Redis",
        report.differences_total, report.rows, report.targets, report.users, report.counts
    ));
    if report.unsettled > 0 {
        text.push_str(&format!(
            "; {} keys changed too often to be compared",
            report.unsettled
        ));
    }
    if report.partitions_empty > 0 {
        text.push_str(&format!(
            "; {} partitions are not initialised",
            report.partitions_empty
        ));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{Difference, Place};

    #[test]
    fn differences_are_a_table_and_a_line() {
        let mut report = Report {
            rows: 7,
            targets: 3,
            users: 2,
            counts: 3,
            ..Report::default()
        };
        assert_eq!(
            text(&report),
            "0 differences in 7 rows of 3 targets, 2 users and 3 counts in Redis\n"
        );
        report.differences_total = 3;
        report.unsettled = 1;
        report.partitions_empty = 4;
        report.differences = vec![Difference {
            place: Place::ResidentUser,
            partition: Some(2),
            key: "u1 blog:1".into(),
            found: "absent".into(),
            expected: "liked".into(),
        }];
        insta::assert_snapshot!(text(&report), @r"
        ───────────────────────────────────────────────────────────
         where           partition   what        found    expected 
        ═══════════════════════════════════════════════════════════
         user in Redis   2           u1 blog:1   absent   liked    
        ───────────────────────────────────────────────────────────
        and 2 more
        3 differences in 7 rows of 3 targets, 2 users and 3 counts in Redis; 1 keys changed too often to be compared; 4 partitions are not initialised
        ");
    }
}
