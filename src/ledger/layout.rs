//! Changes the layout that everything is written under: its parts of counts, and the note of it in `flush_state`.

use std::time::Duration;

use super::session::Session;
use super::{Layout, Ledger, LedgerError, lock, state};

/// Longest run of the statement that counts all parts anew: some minutes for a hundred million rows.
const PARTS_TIMEOUT: Duration = Duration::from_secs(3600);

const PARTS: &str = "INSERT INTO thumb_count_part (kind_id, target_id, partition_id, count) \
    SELECT kind_id, target_id, CRC32(user_id) MOD ? AS part, CAST(SUM(thumbed) AS SIGNED) \
    FROM thumb GROUP BY kind_id, target_id, part HAVING SUM(thumbed) <> 0";
const STORE: &str =
    "UPDATE flush_state SET partitions = ?, slice_ms = ?, key_prefix = ? WHERE id = 1";

/// The right to change the layout. It ends with its connection, so also with its owner.
pub struct LayoutLock(Session);

impl LayoutLock {
    /// Gives it back; if that fails the connection is closed, which does the same.
    pub async fn release(mut self) {
        if lock::release(&mut self.0).await.is_err() {
            self.0.spend();
        }
    }
}

impl Ledger {
    /// Waits for the right to change the layout.
    pub async fn layout_lock(&self) -> Result<LayoutLock, LedgerError> {
        let mut session = self.session().await?;
        lock::take(&mut session).await?;
        Ok(LayoutLock(session))
    }

    /// Writes everything under another layout, if it is still written under `from`.
    pub async fn layout_change(&self, from: &Layout, to: &Layout) -> Result<(), LedgerError> {
        let mut session = self.session().await?;
        session.set_timeout(PARTS_TIMEOUT);
        session.begin("START TRANSACTION").await?;
        match change(&mut session, from, to).await {
            Ok(()) => session.commit().await,
            Err(error) => {
                session.rollback().await;
                Err(error)
            }
        }
    }
}

async fn change(session: &mut Session, from: &Layout, to: &Layout) -> Result<(), LedgerError> {
    let stored = state::read(session, true).await?.layout;
    let stored = stored.ok_or(LedgerError::LayoutMissing)?;
    if stored != *from {
        return Err(LedgerError::LayoutChanged {
            stored,
            wanted: to.clone(),
        });
    }
    if from.partitions != to.partitions {
        session
            .execute(sqlx::query("DELETE FROM thumb_count_part"))
            .await?;
        if to.partitions > 1 {
            session
                .execute(sqlx::query(PARTS).bind(to.partitions))
                .await?;
        }
    }
    let store = sqlx::query(STORE)
        .bind(to.partitions)
        .bind(to.slice_ms)
        .bind(to.key_prefix.clone());
    session.execute(store).await.map(drop)
}
