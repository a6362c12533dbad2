//! Compares the stored counts with the rows, in one snapshot of the database. Reads only.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use sqlx::Row;

use super::session::Session;
use super::{Ledger, LedgerError, state};

/// Differences that are listed; all are counted.
const DIFFERENCES_MAX: usize = 1000;
/// Targets of one page.
const PAGE: u64 = 500;
/// Longest wait for one page: a target with some ten million likes is counted by one statement.
const PAGE_TIMEOUT: Duration = Duration::from_secs(120);

/// A count that is not what the rows say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountDifference {
    /// The kind and the id, as they are stored.
    pub target: String,
    /// The partition, if a part is wrong and not the whole.
    pub partition: Option<u16>,
    /// The stored count; `None` if there is none.
    pub stored: Option<i64>,
    /// Thumbed rows.
    pub rows: i64,
}

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audit {
    /// Rows looked at, unliked ones included.
    pub rows_seen: u64,
    /// Targets with rows.
    pub targets_seen: u64,
    /// Differences in all.
    pub differences_total: u64,
    /// The first of them.
    pub differences: Vec<CountDifference>,
}

/// A count by target and partition; partition 0 for whole counts.
type Count = (String, u16, i64);

/// The next targets with their rows. The index gives the order, so the reading ends at LIMIT.
const ROWS: &str = "SELECT target_id, CAST(SUM(thumbed) AS SIGNED), COUNT(*) \
    FROM thumb FORCE INDEX (thumb_by_target) \
    WHERE kind_id = ? AND target_id > ? \
    GROUP BY target_id ORDER BY target_id LIMIT ?";
/// The same targets by partition.
const ROWS_PART: &str = "SELECT target_id, CAST(CRC32(user_id) MOD ? AS SIGNED) AS part, \
    CAST(SUM(thumbed) AS SIGNED) \
    FROM thumb FORCE INDEX (thumb_by_target) \
    WHERE kind_id = ? AND target_id > ? AND target_id <= ? \
    GROUP BY target_id, part ORDER BY target_id, part";
/// Stored counts up to a target.
const STORED: &str = "SELECT target_id, 0, count FROM thumb_count \
    WHERE kind_id = ? AND target_id > ? AND target_id <= ? ORDER BY target_id LIMIT ?";
/// Stored parts up to a target.
const STORED_PART: &str = "SELECT target_id, CAST(partition_id AS SIGNED), count FROM thumb_count_part \
    WHERE kind_id = ? AND (target_id > ? OR target_id = ? AND partition_id > ?) AND target_id <= ? \
    ORDER BY target_id, partition_id LIMIT ?";
/// Behind every id: '~' is the last printable character, and no id has this many.
const END: &str = "~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~";

impl Ledger {
    /// Compares all counts with the rows, both ways. `on_page` hears after each page how many rows were seen, and how many there are by MySQL's estimate.
    pub async fn audit_counts(
        &self,
        mut on_page: impl FnMut(u64, u64),
    ) -> Result<Audit, LedgerError> {
        let mut session = self.session().await?;
        session.set_timeout(PAGE_TIMEOUT);
        let partitions = state::read(&mut session, false)
            .await?
            .layout
            .map_or(1, |layout| layout.partitions);
        let estimate = rows_estimate(&mut session).await?;
        session
            .text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            .await?;
        session
            .begin("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            .await?;
        let mut audit = Audit::default();
        let kinds = sqlx::query("SELECT kind_id, name FROM kind ORDER BY kind_id");
        for kind in session.fetch_all(kinds).await? {
            let one = KindAudit {
                kind_id: kind.try_get(0)?,
                name: kind.try_get(1)?,
                partitions,
            };
            one.run(&mut session, &mut audit, &mut |seen| {
                on_page(seen, estimate);
            })
            .await?;
        }
        session.commit().await?;
        Ok(audit)
    }
}

async fn rows_estimate(session: &mut Session) -> Result<u64, LedgerError> {
    let estimate = sqlx::query(
        "SELECT CAST(COALESCE(SUM(table_rows), 0) AS SIGNED) FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_name = 'thumb'",
    );
    let row = session.fetch_optional(estimate).await?;
    Ok(match row {
        Some(row) => row.try_get::<i64, _>(0)?.unsigned_abs(),
        None => 0,
    })
}

/// The audit of one kind.
struct KindAudit {
    kind_id: u16,
    name: String,
    partitions: u16,
}

impl KindAudit {
    async fn run(
        &self,
        session: &mut Session,
        audit: &mut Audit,
        on_page: &mut impl FnMut(u64),
    ) -> Result<(), LedgerError> {
        let mut after = String::new();
        loop {
            let page = sqlx::query(ROWS)
                .bind(self.kind_id)
                .bind(after.clone())
                .bind(PAGE);
            let mut rows = VecDeque::new();
            for row in session.fetch_all(page).await? {
                rows.push_back((row.try_get(0)?, 0, row.try_get(1)?));
                audit.rows_seen += row.try_get::<i64, _>(2)?.unsigned_abs();
            }
            audit.targets_seen += rows.len() as u64;
            // Counts up to the page's last target belong to this page; behind the last page there may still be some without rows.
            let full = rows.len() as u64 == PAGE;
            let upto = match rows.back() {
                Some((target, _, _)) if full => String::clone(target),
                _ => END.to_owned(),
            };
            self.compare(session, audit, rows, &after, &upto, false)
                .await?;
            if self.partitions > 1 {
                let rows = self.rows_by_partition(session, &after, &upto).await?;
                self.compare(session, audit, rows, &after, &upto, true)
                    .await?;
            }
            on_page(audit.rows_seen);
            if !full {
                return Ok(());
            }
            after = upto;
        }
    }

    async fn rows_by_partition(
        &self,
        session: &mut Session,
        after: &str,
        upto: &str,
    ) -> Result<VecDeque<Count>, LedgerError> {
        let page = sqlx::query(ROWS_PART)
            .bind(self.partitions)
            .bind(self.kind_id)
            .bind(after.to_owned())
            .bind(upto.to_owned());
        decode(session.fetch_all(page).await?)
    }

    /// Walks through rows and stored counts side by side.
    async fn compare(
        &self,
        session: &mut Session,
        audit: &mut Audit,
        mut rows: VecDeque<Count>,
        after: &str,
        upto: &str,
        parts: bool,
    ) -> Result<(), LedgerError> {
        let (mut last, mut last_part) = (after.to_owned(), u16::MAX);
        loop {
            let page = if parts {
                sqlx::query(STORED_PART)
                    .bind(self.kind_id)
                    .bind(last.clone())
                    .bind(last.clone())
                    .bind(last_part)
            } else {
                sqlx::query(STORED).bind(self.kind_id).bind(last.clone())
            };
            let stored = decode(
                session
                    .fetch_all(page.bind(upto.to_owned()).bind(PAGE))
                    .await?,
            )?;
            let full = stored.len() as u64 == PAGE;
            if let Some((target, part, _)) = stored.back() {
                (last, last_part) = (target.clone(), *part);
            }
            for (target, part, count) in stored {
                while let Some(row) = rows.front() {
                    match (&row.0, row.1).cmp(&(&target, part)) {
                        Ordering::Less => self.note(audit, parts, rows.pop_front(), None),
                        _ => break,
                    }
                }
                let here = rows
                    .front()
                    .is_some_and(|row| row.0 == target && row.1 == part);
                let row = if here { rows.pop_front() } else { None };
                let row = row.unwrap_or((target, part, 0));
                self.note(audit, parts, Some(row), Some(count));
            }
            if !full {
                break;
            }
        }
        while let Some(row) = rows.pop_front() {
            self.note(audit, parts, Some(row), None);
        }
        Ok(())
    }

    fn note(&self, audit: &mut Audit, parts: bool, row: Option<Count>, stored: Option<i64>) {
        let Some((target, part, rows)) = row else {
            return;
        };
        if stored.unwrap_or(0) == rows {
            return;
        }
        audit.differences_total += 1;
        if audit.differences.len() < DIFFERENCES_MAX {
            audit.differences.push(CountDifference {
                target: format!("{}:{target}", self.name),
                partition: parts.then_some(part),
                stored,
                rows,
            });
        }
    }
}

fn decode(rows: Vec<sqlx::mysql::MySqlRow>) -> Result<VecDeque<Count>, LedgerError> {
    rows.iter()
        .map(|row| {
            let part: i64 = row.try_get(1)?;
            Ok((row.try_get(0)?, part as u16, row.try_get(2)?))
        })
        .collect()
}
