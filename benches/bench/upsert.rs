//! The raw multi-row upsert and the bare SELECT: what the database can do when nothing is compared and nothing counted.

use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::TryStreamExt as _;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use thumbd::config::Settings;

use crate::pairs::pair;

/// Rows of one INSERT.
const ROWS: usize = 512;
/// Beside thumbd's own table, on the same server.
const TABLE: &str = "bench_raw.thumb";

/// A table of the same shape and indexes.
pub(crate) struct RawTable {
    connection: MySqlConnection,
    next: u64,
}

impl RawTable {
    pub(crate) async fn create(url: &str) -> anyhow::Result<Self> {
        let mut connection = MySqlConnection::connect(url).await?;
        for text in [
            "CREATE DATABASE bench_raw CHARACTER SET utf8mb4".to_owned(),
            format!("CREATE TABLE {TABLE} LIKE thumb"),
        ] {
            sqlx::raw_sql(AssertSqlSafe(text))
                .execute(&mut connection)
                .await
                .context("create the table for the raw upsert")?;
        }
        // As in thumbd's sessions.
        sqlx::raw_sql("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            .execute(&mut connection)
            .await?;
        Ok(Self {
            connection,
            next: 0,
        })
    }

    /// Writes so many new rows, and says how long that took.
    pub(crate) async fn upsert(&mut self, count: u64) -> anyhow::Result<Duration> {
        let mut rows: Vec<(String, String, u64)> = (self.next..self.next + count)
            .map(|index| {
                let pair = pair(index);
                (pair.user.to_string(), pair.target.to_string(), index + 1)
            })
            .collect();
        self.next += count;
        // As large as those of a flush.
        let transaction_rows = Settings::default().flush_rows_max as usize;
        for transaction in rows.chunks_mut(transaction_rows) {
            // In the order of the primary key, as a flush has them.
            transaction.sort_unstable();
        }
        let begun = Instant::now();
        for rows in rows.chunks(transaction_rows) {
            let mut transaction = self.connection.begin().await?;
            for rows in rows.chunks(ROWS) {
                let mut query = sqlx::query(AssertSqlSafe(text(rows.len())));
                for (user, target, version) in rows {
                    query = query
                        .bind(user)
                        .bind(1_u16)
                        .bind(target)
                        .bind(1_i8)
                        .bind(version);
                }
                query.execute(&mut *transaction).await?;
            }
            transaction.commit().await?;
        }
        Ok(begun.elapsed())
    }

    /// Reads all likes of thumbd's own table in one statement, and says how many there were.
    pub(crate) async fn select_likes(&mut self) -> anyhow::Result<u64> {
        let text = "SELECT user_id, kind_id, target_id, version FROM thumb WHERE thumbed = 1";
        let mut rows =
            sqlx::query_as::<_, (String, u16, String, u64)>(text).fetch(&mut self.connection);
        let mut count = 0;
        while rows.try_next().await?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

fn text(rows: usize) -> String {
    format!(
        "INSERT INTO {TABLE} (user_id, kind_id, target_id, thumbed, version) VALUES {} \
         ON DUPLICATE KEY UPDATE thumbed = VALUES(thumbed), version = VALUES(version)",
        vec!["(?,?,?,?,?)"; rows].join(",")
    )
}
