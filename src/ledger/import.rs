//! Likes from elsewhere, in transactions that compare and write as a flush does, and that leave word for Redis.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::Row;

use super::apply::{self, LeftOut, Rules};
use super::mirror::{self, Mirrors, Missing};
use super::session::Session;
use super::stage::{self, StageRow};
use super::{Layout, Ledger, LedgerError, erased, outbox, refuse, state};
use crate::domain::{Entry, Version};
use crate::limits::IMPORT_HOLD;
use crate::steps;

/// What goes into one transaction.
#[derive(Debug, Clone)]
pub struct ImportChunk {
    /// The mark of this change outside of a slice; of its own each time.
    pub token: String,
    /// The layout of the keys in Redis.
    pub layout: Layout,
    /// Entries, each with the partition of its user.
    pub entries: Vec<(u16, Entry)>,
    /// No entry is newer than this. One of just this version counts only where no row is.
    pub clamp: Version,
}

/// What a chunk changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Imported {
    /// Places of the entries whose rows were written, each with whether it is a new like.
    pub changed: Vec<(usize, bool)>,
    /// Entries that are void, because their users or targets were erased.
    pub void: usize,
    /// Places of entries that MySQL refuses, each with the reason; then nothing was changed.
    pub refused: BTreeMap<usize, String>,
}

/// This server's clock, as `import_until` has it.
const NOW_MS: &str = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)";

/// Whether an import may be under way. Behind the lock on `flush_state`, so that none begins meanwhile.
pub(super) async fn is_under_way(session: &mut Session) -> Result<bool, LedgerError> {
    let text = format!("SELECT CAST(import_until > {NOW_MS} AS SIGNED) FROM flush_state");
    let find = sqlx::query(sqlx::AssertSqlSafe(text));
    let row = session.fetch_optional(find).await?;
    let row = row.ok_or(LedgerError::NotMigrated)?;
    Ok(row.try_get::<i64, _>(0)? != 0)
}

impl Ledger {
    /// Stops pruning for a while, or goes on doing so.
    pub async fn import_hold(&self) -> Result<(), LedgerError> {
        hold(&mut self.session().await?).await
    }

    /// Applies a chunk. The same chunk may be applied again, and then changes nothing.
    pub async fn import(&self, chunk: &ImportChunk) -> Result<Imported, LedgerError> {
        let mut session = self.session().await?;
        let mut tries = 1;
        let mut void = BTreeSet::new();
        loop {
            match import(&mut session, &self.mirrors, chunk, &void).await {
                Ok(Ended::LeaveOut(more)) => void.extend(more),
                Ok(Ended::Committed(imported, missing, stopped)) => {
                    mirror::note(missing);
                    outbox::note(stopped);
                    // Committed is committed: if this fails, the connection is closed, which does the same.
                    let _ = stage::clear(&mut session).await;
                    return Ok(imported);
                }
                Err(LedgerError::Refused(error)) => {
                    session.rollback().await;
                    let known = |at| void.contains(&at);
                    let refused = refuse::find(&mut session, &chunk.entries, known).await?;
                    if refused.is_empty() {
                        // All of them together are too much, none of them alone: no entry is to blame.
                        return Err(LedgerError::Refused(error));
                    }
                    return Ok(Imported {
                        refused,
                        ..Imported::default()
                    });
                }
                Err(error) => {
                    session.rollback().await;
                    apply::again(error, &session, &mut tries).await?;
                }
            }
        }
    }
}

/// How a transaction ended.
enum Ended {
    /// What it changed, targets that have no mirror, and whether the feed was stopped.
    Committed(Imported, Missing, bool),
    /// The users or targets of these were erased; nothing was changed.
    LeaveOut(BTreeSet<usize>),
}

async fn import(
    session: &mut Session,
    mirrors: &Mirrors,
    chunk: &ImportChunk,
    void: &BTreeSet<usize>,
) -> Result<Ended, LedgerError> {
    // Anew each time: a try may have changed what is staged.
    let rows = apply::prepare(session, &chunk.entries, |at| !void.contains(&at)).await?;
    session.begin("START TRANSACTION").await?;
    let state = state::read(session, true).await?;
    let partitions = apply::partitions(&state, &chunk.layout, &rows)?;
    if !state.outside_token.is_empty() && state.outside_token != chunk.token {
        return Err(LedgerError::OutsideOther);
    }
    let entries = chunk.entries.iter().map(|(_, entry)| entry);
    let found = erased::void(session, &state, entries).await?.places;
    if !found.is_subset(void) {
        session.rollback().await;
        return Ok(Ended::LeaveOut(found));
    }
    if rows.is_empty() {
        session.rollback().await;
        let imported = Imported {
            void: void.len(),
            ..Imported::default()
        };
        return Ok(Ended::Committed(imported, Missing::new(), false));
    }
    let rules = Rules {
        // Nothing is pruned now, and what was pruned before is for whoever imports to judge.
        horizon: Version(0),
        clamp: Some(chunk.clamp),
        void: None,
    };
    let written = match apply::write(session, &rows, partitions, rules).await? {
        Ok(written) => written,
        Err(LeftOut { void, .. }) => return Ok(Ended::LeaveOut(void)),
    };
    let counts = written.moves.changed();
    let missing = mirror::copy(session, mirrors, &counts).await?;
    let stopped = outbox::record(session, &state.feed, &rows, &written.changed, &counts).await?;
    hold(session).await?;
    if !written.changed.is_empty() {
        mark(session, chunk, &rows).await?;
    }
    steps::holding("import.commit").await;
    session.commit().await?;
    let changed = written.changed.into_iter();
    let imported = Imported {
        changed: changed.map(|(at, same)| (at, !same)).collect(),
        void: void.len(),
        refused: BTreeMap::new(),
    };
    Ok(Ended::Committed(imported, missing, stopped))
}

async fn mark(
    session: &mut Session,
    chunk: &ImportChunk,
    rows: &[StageRow<'_>],
) -> Result<(), LedgerError> {
    const MARK: &str = "UPDATE flush_state \
        SET outside_token = ?, max_version = GREATEST(max_version, ?) WHERE id = 1";
    let newest = rows.iter().map(|row| row.version).max().unwrap_or_default();
    let mark = sqlx::query(MARK).bind(chunk.token.clone()).bind(newest.0);
    session.execute(mark).await.map(drop)
}

async fn hold(session: &mut Session) -> Result<(), LedgerError> {
    let text = format!(
        "UPDATE flush_state SET import_until = GREATEST(import_until, {NOW_MS} + ?) WHERE id = 1"
    );
    let hold = sqlx::query(sqlx::AssertSqlSafe(text)).bind(IMPORT_HOLD.as_millis() as u64);
    session.execute(hold).await.map(drop)
}
