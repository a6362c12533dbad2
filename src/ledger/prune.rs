//! Removes rows that say "no longer liked" and are old enough that nothing older can come any more.

use std::collections::BTreeMap;

use sqlx::Row;

use super::session::Session;
use super::stage::{self, StageRow};
use super::{Ledger, LedgerError, erased, import, state};
use crate::domain::Version;
use crate::limits::{PRUNE_ROWS_MAX, PRUNE_TARGETS_MAX};
use crate::steps;

/// A row that may go.
struct Old {
    user: String,
    target: String,
    version: u64,
}

/// The last target of the next stretch of a kind.
const STRETCH: &str = "SELECT target_id FROM thumb_count FORCE INDEX (PRIMARY) \
    WHERE kind_id = ? AND target_id > ? ORDER BY target_id LIMIT 1 OFFSET ?";
/// Unliked rows of a stretch, from the index alone and without a lock.
const FIND: &str = "SELECT user_id, target_id, version FROM thumb FORCE INDEX (thumb_by_target) \
    WHERE kind_id = ? AND target_id > ? AND (? = '' OR target_id <= ?) AND thumbed = 0 AND version < ? LIMIT ?";
/// Behind the lock it is looked again: somebody may have liked meanwhile.
const REMOVE: &str = "DELETE thumb FROM thumb_stage AS stage STRAIGHT_JOIN thumb \
    ON thumb.user_id = stage.user_id AND thumb.kind_id = stage.kind_id AND thumb.target_id = stage.target_id \
    WHERE thumb.thumbed = 0 AND thumb.version < ?";

impl Ledger {
    /// Removes unliked rows whose version is below `horizon`; gives how many, or `None` if an import is under way, which needs them.
    /// The horizon is remembered first: an entry that is older and finds no row goes to quarantine, because nobody knows any more
    /// whether a newer unlike stood there.
    pub async fn prune(&self, horizon: Version) -> Result<Option<u64>, LedgerError> {
        let mut session = self.session().await?;
        session.begin("START TRANSACTION").await?;
        state::read(&mut session, true).await?;
        if import::is_under_way(&mut session).await? {
            session.rollback().await;
            return Ok(None);
        }
        const REMEMBER: &str =
            "UPDATE flush_state SET prune_horizon = GREATEST(prune_horizon, ?) WHERE id = 1";
        let remember = sqlx::query(REMEMBER).bind(horizon.0);
        session.execute(remember).await?;
        erased::prune(&mut session, horizon).await?;
        session.commit().await?;
        steps::point("prune.remembered").await;
        let kinds = session
            .fetch_all(sqlx::query("SELECT kind_id FROM kind ORDER BY kind_id"))
            .await?;
        let mut removed = 0;
        for kind in kinds {
            removed += prune_kind(&mut session, kind.try_get(0)?, horizon).await?;
        }
        Ok(Some(removed))
    }
}

async fn prune_kind(
    session: &mut Session,
    kind_id: u16,
    horizon: Version,
) -> Result<u64, LedgerError> {
    let (mut after, mut removed) = (String::new(), 0);
    loop {
        let stretch = sqlx::query(STRETCH)
            .bind(kind_id)
            .bind(after.clone())
            .bind(PRUNE_TARGETS_MAX - 1);
        let row = session.fetch_optional(stretch).await?;
        // '': to the end.
        let upto: String = row.map_or(Ok(String::new()), |row| row.try_get(0))?;
        loop {
            let find = sqlx::query(FIND)
                .bind(kind_id)
                .bind(after.clone())
                .bind(upto.clone())
                .bind(upto.clone())
                .bind(horizon.0)
                .bind(PRUNE_ROWS_MAX as u64);
            let mut old = BTreeMap::new();
            for row in session.fetch_all(find).await? {
                let one = Old {
                    user: row.try_get(0)?,
                    target: row.try_get(1)?,
                    version: row.try_get(2)?,
                };
                old.insert((one.user.clone(), one.target.clone()), one);
            }
            let full = old.len() == PRUNE_ROWS_MAX;
            let gone = remove(session, kind_id, horizon, old.into_values().collect()).await?;
            removed += gone;
            steps::point("prune.removed").await;
            // Or the same ones would be found for ever while none may go.
            if !full || gone == 0 {
                break;
            }
        }
        if upto.is_empty() {
            return Ok(removed);
        }
        after = upto;
    }
}

async fn remove(
    session: &mut Session,
    kind_id: u16,
    horizon: Version,
    old: Vec<Old>,
) -> Result<u64, LedgerError> {
    if old.is_empty() {
        return Ok(0);
    }
    let rows: Vec<StageRow<'_>> = old
        .iter()
        .enumerate()
        .map(|(at, one)| StageRow {
            at,
            user: &one.user,
            kind_id,
            target: &one.target,
            thumbed: false,
            version: Version(one.version),
            partition: 0,
        })
        .collect();
    stage::fill(session, &rows).await?;
    // Whoever writes rows locks this first; so the flush waits for some ten milliseconds.
    session.begin("START TRANSACTION").await?;
    state::read(session, true).await?;
    // One that began meanwhile: what is left stays for the next run.
    let removed = if import::is_under_way(session).await? {
        0
    } else {
        session.execute(sqlx::query(REMOVE).bind(horizon.0)).await?
    };
    session.commit().await?;
    stage::clear(session).await?;
    Ok(removed)
}
