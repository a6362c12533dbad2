//! What the stores of a model test hold, as it is; copies of it, and their return.

use redis::Value;
use sqlx::Row;
use thumbd::domain::{Entry, Target, UserId};
use thumbd::ledger::FlushState;

use super::world::{Pairs, World};

/// All keys of a partition: name, remaining life in ms (0: for ever), contents.
pub(super) type Snapshot = Vec<(String, u64, Vec<u8>)>;

const TABLES: [&str; 4] = ["thumb", "thumb_count", "thumb_count_part", "flush_state"];

impl World {
    /// The rows in MySQL.
    pub(super) async fn rows(&self) -> Pairs {
        let rows = sqlx::query(
            "SELECT user_id, name, target_id, thumbed <> 0, version FROM thumb JOIN kind USING (kind_id)",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap();
        rows.into_iter()
            .map(|row| {
                let (kind, id): (String, String) = (row.get(1), row.get(2));
                let user = UserId::parse(row.get::<String, _>(0)).unwrap();
                let target = Target::parse(&format!("{kind}:{id}")).unwrap();
                let thumbed: i64 = row.get(3);
                ((user, target), (thumbed != 0, row.get(4)))
            })
            .collect()
    }

    pub(super) async fn flush_state(&self) -> FlushState {
        self.ledger.flush_state().await.unwrap()
    }

    /// The entries of slices in Redis, live or kept.
    pub(super) async fn entries(&mut self, of: &str) -> Vec<((UserId, Target), (bool, u64))> {
        let mut entries = Vec::new();
        for partition in 0..self.partitions {
            for key in self.keys(partition, of).await {
                let mut command = redis::cmd("HGETALL");
                command.arg(key);
                let fields: Vec<(Vec<u8>, Vec<u8>)> =
                    command.query_async(&mut self.redis).await.unwrap();
                for (field, value) in fields {
                    let one = Entry::parse(&field, &value).unwrap();
                    entries.push(((one.user, one.target), (one.thumbed, one.version.0)));
                }
            }
        }
        entries
    }

    /// A copy of a partition.
    pub(super) async fn snapshot(&mut self, partition: u16) -> Snapshot {
        let keys = self.keys(partition, "").await;
        let mut snapshot = Snapshot::new();
        for key in keys {
            let mut pipe = redis::pipe();
            pipe.pttl(&key).cmd("DUMP").arg(&key);
            let (life, contents): (i64, Vec<u8>) = pipe.query_async(&mut self.redis).await.unwrap();
            snapshot.push((key, u64::try_from(life).unwrap_or(0), contents));
        }
        snapshot
    }

    /// Brings a partition back to a copy, or to nothing.
    pub(super) async fn restore(&mut self, partition: u16, snapshot: Option<Snapshot>) {
        self.delete_all(partition).await;
        for (key, life, contents) in snapshot.unwrap_or_default() {
            let mut command = redis::cmd("RESTORE");
            command.arg(key).arg(life).arg(contents);
            let _: Value = command.query_async(&mut self.redis).await.unwrap();
        }
    }

    /// Forgets all copies of the tables.
    pub(super) async fn remember_nothing(&self) {
        for table in TABLES {
            for copy in ["old", "new"] {
                let name = format!("{copy}_{table}");
                self.sql(&format!("CREATE TABLE IF NOT EXISTS {name} LIKE {table}"))
                    .await;
                self.sql(&format!("DELETE FROM {name}")).await;
                self.sql(&format!("INSERT INTO {name} SELECT * FROM {table}"))
                    .await;
            }
        }
    }

    /// Keeps the tables as they were before the last transaction, if there was one since the last call.
    pub(super) async fn remember(&self) {
        let same = "SELECT COUNT(*) FROM flush_state a JOIN new_flush_state b USING \
                    (id, progress_slice, progress_chunk, progress_token)";
        let same: i64 = sqlx::query(same)
            .fetch_one(&self.pool)
            .await
            .unwrap()
            .get(0);
        if same == 1 {
            return;
        }
        for table in TABLES {
            self.sql(&format!("DELETE FROM old_{table}")).await;
            self.sql(&format!(
                "INSERT INTO old_{table} SELECT * FROM new_{table}"
            ))
            .await;
            self.sql(&format!("DELETE FROM new_{table}")).await;
            self.sql(&format!("INSERT INTO new_{table} SELECT * FROM {table}"))
                .await;
        }
    }

    /// Takes the last transaction back. False: there is none that could be.
    pub(super) async fn forget(&self) -> bool {
        self.remember().await;
        let (now, old): (i64, i64) = {
            let row = sqlx::query("SELECT CAST(a.landed AS SIGNED), CAST(b.landed AS SIGNED) FROM flush_state a JOIN old_flush_state b USING (id)")
                .fetch_one(&self.pool)
                .await
                .unwrap();
            (row.get(0), row.get(1))
        };
        if now == old {
            return false;
        }
        for table in TABLES {
            self.sql(&format!("DELETE FROM {table}")).await;
            self.sql(&format!("INSERT INTO {table} SELECT * FROM old_{table}"))
                .await;
        }
        self.remember_nothing().await;
        true
    }
}
