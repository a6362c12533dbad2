//! The ledger on a real MariaDB or MySQL. Each test ends with a check that the counts are what the rows say.

mod audit;
mod explain;
mod faults;
mod flush;
mod migrations;
mod model;
mod reads;

use sqlx::{AssertSqlSafe, MySqlPool, Row};
use thumbd::domain::{Entry, SliceId, Target, UserId, partition_of};
use thumbd::ledger::{Applied, Chunk, Layout, Ledger, LedgerOptions};

use crate::servers;

/// A migrated ledger on a database of its own.
pub(crate) struct TestLedger {
    pub(crate) ledger: Ledger,
    /// For looking behind the ledger's back.
    pub(crate) pool: MySqlPool,
    pub(crate) url: String,
    partitions: u16,
}

pub(crate) fn layout(partitions: u16) -> Layout {
    Layout {
        partitions,
        slice_ms: 10_000,
        key_prefix: "thumbd".to_owned(),
    }
}

impl TestLedger {
    pub(crate) async fn start(partitions: u16) -> Self {
        Self::with(partitions, LedgerOptions::default()).await
    }

    pub(crate) async fn with(partitions: u16, options: LedgerOptions) -> Self {
        let url = servers::env().await.database_url;
        let ledger = Ledger::connect(&url, options).unwrap();
        ledger.migrate().await.unwrap();
        ledger.adopt_layout(&layout(partitions)).await.unwrap();
        Self {
            ledger,
            pool: MySqlPool::connect(&url).await.unwrap(),
            url,
            partitions,
        }
    }

    /// A slice in one chunk; entries are `user kind:id` with a version, negative for an unlike.
    pub(crate) fn chunk(&self, slice: u64, entries: &[(&str, i64)]) -> Chunk {
        let entries = entries.iter().map(|(field, value)| entry(field, *value));
        self.chunk_of(slice, entries.collect())
    }

    pub(crate) fn chunk_of(&self, slice: u64, entries: Vec<Entry>) -> Chunk {
        Chunk {
            slice: SliceId(slice),
            number: 0,
            last_of_slice: true,
            token: "token".to_owned(),
            layout: layout(self.partitions),
            landed_seen: SliceId(0),
            entries: entries
                .into_iter()
                .map(|entry| (partition_of(&entry.user, self.partitions), entry))
                .collect(),
            unreadable: Vec::new(),
        }
    }

    /// Applies and gives rows changed, rows stale and counts changed.
    pub(crate) async fn apply(&self, slice: u64, entries: &[(&str, i64)]) -> (u64, u64, u64) {
        let applied = self
            .ledger
            .apply(&self.chunk(slice, entries))
            .await
            .unwrap();
        numbers(&applied)
    }

    /// The stored count of a target: the sum of its parts.
    pub(crate) async fn count(&self, text: &str) -> i64 {
        let mut sum = 0;
        for partition in 0..self.partitions {
            sum += self
                .ledger
                .count_parts(partition, self.partitions, &[target(text)])
                .await
                .unwrap()[0];
        }
        sum
    }

    /// One number from SQL.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&self.pool).await;
        row.unwrap().try_get(0).unwrap()
    }

    /// Runs SQL behind the ledger's back.
    pub(crate) async fn run(&self, sql: &str) {
        sqlx::query(AssertSqlSafe(sql))
            .execute(&self.pool)
            .await
            .unwrap();
    }

    /// Count = rows, by the audit and by a statement that shares nothing with it.
    pub(crate) async fn check(&self) {
        let audit = self.ledger.audit_counts(|_, _| {}).await.unwrap();
        assert_eq!(audit.differences_total, 0, "{audit:?}");
        for (table, rows) in [
            ("thumb_count", "kind_id, target_id, 0"),
            (
                "thumb_count_part",
                &*format!("kind_id, target_id, CRC32(user_id) MOD {}", self.partitions),
            ),
        ] {
            if table == "thumb_count_part" && self.partitions == 1 {
                assert_eq!(
                    self.number("SELECT COUNT(*) FROM thumb_count_part").await,
                    0
                );
                continue;
            }
            let columns = if table == "thumb_count" {
                "kind_id, target_id, 0"
            } else {
                "kind_id, target_id, partition_id"
            };
            let differences = self
                .number(&format!(
                    "SELECT COUNT(*) FROM (SELECT kind_id, target_id, p FROM (\
                     SELECT {columns} AS p, count AS n FROM {table} \
                     UNION ALL SELECT {rows}, -thumbed FROM thumb) AS a \
                     GROUP BY kind_id, target_id, p HAVING SUM(n) <> 0) AS b"
                ))
                .await;
            assert_eq!(differences, 0, "{table} is not what the rows say");
        }
    }
}

pub(crate) fn numbers(applied: &Applied) -> (u64, u64, u64) {
    (
        applied.rows_changed,
        applied.rows_stale,
        applied.counts_changed,
    )
}

pub(crate) fn entry(field: &str, value: i64) -> Entry {
    Entry::parse(field.as_bytes(), value.to_string().as_bytes()).unwrap()
}

pub(crate) fn user(text: &str) -> UserId {
    UserId::parse(text).unwrap()
}

pub(crate) fn target(text: &str) -> Target {
    Target::parse(text).unwrap()
}
