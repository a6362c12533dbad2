//! Makes stored counts what the rows say, and marks that rows or counts were changed outside of a slice.

use sqlx::Row;

use super::mirror::{self, Changed, Mirrors, Missing};
use super::session::{Session, Statement};
use super::{Ledger, LedgerError, apply, outbox, state};

/// A stored count that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountRepair {
    /// The kind and the id, as they are stored.
    pub target: String,
    /// The partition, if it is a part and not the whole.
    pub partition: Option<u16>,
    /// What stood there.
    pub before: Option<i64>,
    /// The thumbed rows.
    pub after: i64,
}

impl Ledger {
    /// Counts the rows of some targets (`kind:id`) anew, in one transaction, which also leaves `token` as the mark of a change
    /// outside of a slice if it changes anything.
    pub async fn counts_repair(
        &self,
        targets: &[String],
        token: &str,
    ) -> Result<Vec<CountRepair>, LedgerError> {
        let mut session = self.session().await?;
        let mut tries = 1;
        loop {
            match repair(&mut session, &self.mirrors, targets, token).await {
                Ok((repairs, missing, stopped)) => {
                    mirror::note(missing);
                    outbox::note(stopped);
                    return Ok(repairs);
                }
                Err(error) => {
                    session.rollback().await;
                    apply::again(error, &session, &mut tries).await?;
                }
            }
        }
    }

    /// Takes the mark away, if it is still this one: Redis has been told.
    pub async fn outside_clear(&self, token: &str) -> Result<(), LedgerError> {
        const CLEAR: &str =
            "UPDATE flush_state SET outside_token = '' WHERE id = 1 AND outside_token = ?";
        let clear = sqlx::query(CLEAR).bind(token.to_owned());
        self.session().await?.execute(clear).await.map(drop)
    }
}

async fn repair(
    session: &mut Session,
    mirrors: &Mirrors,
    targets: &[String],
    token: &str,
) -> Result<(Vec<CountRepair>, Missing, bool), LedgerError> {
    session.begin("START TRANSACTION").await?;
    // Nobody writes rows or counts while this is locked.
    let state = state::read(session, true).await?;
    let partitions = state.layout.as_ref().map_or(1, |layout| layout.partitions);
    let mut repairs = Vec::new();
    let mut changed = Changed::new();
    for target in targets {
        let (kind, id) = target.split_once(':').unwrap_or((target, ""));
        let find = sqlx::query("SELECT kind_id FROM kind WHERE name = ?").bind(kind.to_owned());
        let Some(row) = session.fetch_optional(find).await? else {
            continue;
        };
        let kind_id = row.try_get(0)?;
        let one = One {
            target,
            kind_id,
            id,
        };
        if one.whole(session, &mut repairs).await? {
            changed.entry(kind_id).or_default().push(id);
        }
        if partitions > 1 {
            one.parts(session, partitions, &mut repairs).await?;
        }
    }
    if !repairs.is_empty() {
        let mark = sqlx::query("UPDATE flush_state SET outside_token = ? WHERE id = 1");
        session.execute(mark.bind(token.to_owned())).await?;
    }
    let missing = mirror::copy(session, mirrors, &changed).await?;
    let stopped = outbox::record(session, &state.feed, &[], &[], &changed).await?;
    session.commit().await?;
    Ok((repairs, missing, stopped))
}

/// A target whose counts are looked at.
struct One<'a> {
    target: &'a str,
    kind_id: u16,
    id: &'a str,
}

impl One<'_> {
    async fn whole(
        &self,
        session: &mut Session,
        repairs: &mut Vec<CountRepair>,
    ) -> Result<bool, LedgerError> {
        const ROWS: &str = "SELECT CAST(COALESCE(SUM(thumbed), 0) AS SIGNED) \
            FROM thumb FORCE INDEX (thumb_by_target) WHERE kind_id = ? AND target_id = ?";
        const STORED: &str = "SELECT count FROM thumb_count WHERE kind_id = ? AND target_id = ?";
        const WRITE: &str = "INSERT INTO thumb_count (kind_id, target_id, count) VALUES (?, ?, ?) \
            ON DUPLICATE KEY UPDATE count = VALUES(count)";
        let after = number(session, self.bind(sqlx::query(ROWS))).await?;
        let before = number(session, self.bind(sqlx::query(STORED))).await?;
        let after = after.unwrap_or(0);
        let wrong = before.unwrap_or(0) != after;
        if wrong {
            session
                .execute(self.bind(sqlx::query(WRITE)).bind(after))
                .await?;
            repairs.push(self.changed(None, before, after));
        }
        Ok(wrong)
    }

    async fn parts(
        &self,
        session: &mut Session,
        partitions: u16,
        repairs: &mut Vec<CountRepair>,
    ) -> Result<(), LedgerError> {
        const ROWS: &str = "SELECT CAST(CRC32(user_id) MOD ? AS SIGNED) AS part, CAST(SUM(thumbed) AS SIGNED) \
            FROM thumb FORCE INDEX (thumb_by_target) WHERE kind_id = ? AND target_id = ? GROUP BY part";
        const STORED: &str = "SELECT CAST(partition_id AS SIGNED), count \
            FROM thumb_count_part WHERE kind_id = ? AND target_id = ?";
        const WRITE: &str = "INSERT INTO thumb_count_part (kind_id, target_id, partition_id, count) \
            VALUES (?, ?, ?, ?) ON DUPLICATE KEY UPDATE count = VALUES(count)";
        let rows = self.bind(sqlx::query(ROWS).bind(partitions));
        let after = pairs(session, rows).await?;
        let before = pairs(session, self.bind(sqlx::query(STORED))).await?;
        let of = |all: &[(i64, i64)], part| all.iter().find(|one| one.0 == part).map(|one| one.1);
        let mut parts: Vec<i64> = after.iter().chain(&before).map(|one| one.0).collect();
        parts.sort_unstable();
        parts.dedup();
        for part in parts {
            let (before, after) = (of(&before, part), of(&after, part).unwrap_or(0));
            if before.unwrap_or(0) != after {
                let write = self.bind(sqlx::query(WRITE)).bind(part).bind(after);
                session.execute(write).await?;
                repairs.push(self.changed(Some(part as u16), before, after));
            }
        }
        Ok(())
    }

    fn bind(&self, statement: Statement) -> Statement {
        statement.bind(self.kind_id).bind(self.id.to_owned())
    }

    fn changed(&self, partition: Option<u16>, before: Option<i64>, after: i64) -> CountRepair {
        CountRepair {
            target: self.target.to_owned(),
            partition,
            before,
            after,
        }
    }
}

async fn number(session: &mut Session, statement: Statement) -> Result<Option<i64>, LedgerError> {
    let row = session.fetch_optional(statement).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

async fn pairs(
    session: &mut Session,
    statement: Statement,
) -> Result<Vec<(i64, i64)>, LedgerError> {
    let rows = session.fetch_all(statement).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}
