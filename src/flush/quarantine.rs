//! What follows when entries were refused: they are told of, and what is resident becomes what MySQL has.

use super::{FlushError, Flusher};
use crate::domain::{Entry, SliceId, Target, UserId};
use crate::hot::{Undo, Undone};
use crate::ledger::Quarantined;
use crate::limits::UNDO_TRIES_MAX;
use crate::steps;
use crate::telemetry::names;

/// An entry that MySQL does not have.
pub(super) struct Refused {
    pub(super) partition: u16,
    pub(super) entry: Entry,
    pub(super) why: Why,
}

/// Why MySQL does not have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// It stands in quarantine.
    Refused,
    /// Its user was erased, or its target, which was restored since.
    Void,
    /// Its target is gone.
    Gone,
}

/// Counts, and logs once a slice; who and what stands in the table, and not in the log.
pub(super) fn note(slice: SliceId, reasons: &[String], unreadable: &[Quarantined]) {
    let count = (reasons.len() + unreadable.len()) as u64;
    let first = reasons.first();
    let first = first.or_else(|| unreadable.first().map(|one| &one.reason));
    if let Some(reason) = first {
        metrics::counter!(names::QUARANTINED).increment(count);
        tracing::error!(
            slice = slice.0,
            entries = count,
            reason,
            "entries are in quarantine, see `thumbd quarantine list`"
        );
    }
}

impl Flusher {
    /// Takes what was refused out of what is resident. Between mark and unpin: until then everything it touched is pinned.
    pub(super) async fn undo(
        &self,
        partition: u16,
        slice: SliceId,
        fence: &str,
        refused: &[Refused],
    ) -> Result<(), FlushError> {
        let (gone, here): (Vec<&Refused>, Vec<&Refused>) = refused
            .iter()
            .filter(|one| one.partition == partition)
            .partition(|one| one.why == Why::Gone);
        self.strip(partition, &gone).await?;
        if here.is_empty() {
            return Ok(());
        }
        let pairs: Vec<(UserId, Target)> = here
            .iter()
            .map(|one| (one.entry.user.clone(), one.entry.target.clone()))
            .collect();
        // Only flushers change these rows, and the script looks whether this is still the one.
        let rows = self.ledger.states(&pairs).await?;
        steps::point("flush.undo").await;
        for (one, row) in here.into_iter().zip(rows) {
            let taken = self
                .undo_one(partition, slice, fence, &one.entry, row)
                .await?;
            if one.why == Why::Void && !taken {
                // The user may be cold or forgotten, and the count not: then it still has what was erased.
                let (user, target) = (one.entry.user.clone(), one.entry.target.clone());
                self.hot.forget(partition, &[user], &[target]).await?;
            }
            steps::point("flush.undone").await;
        }
        Ok(())
    }

    /// Of a target that is gone there may be very many, and its count says nothing: only the users are told, many in a call.
    async fn strip(&self, partition: u16, gone: &[&Refused]) -> Result<(), FlushError> {
        if gone.is_empty() {
            return Ok(());
        }
        steps::point("flush.gone").await;
        let likes = gone.iter().map(|one| &one.entry);
        let likes = likes.map(|entry| (&entry.user, &entry.target, entry.version));
        let likes: Vec<_> = likes.collect();
        self.hot.strip(partition, &likes, false).await?;
        Ok(())
    }

    /// False: there was nothing to take back.
    async fn undo_one(
        &self,
        partition: u16,
        slice: SliceId,
        fence: &str,
        entry: &Entry,
        row: Option<(bool, crate::domain::Version)>,
    ) -> Result<bool, FlushError> {
        for _ in 0..UNDO_TRIES_MAX {
            let mut newer = self.hot.peek(partition).await?.live;
            newer.retain(|id| *id > slice);
            let undo = Undo {
                fence,
                slice,
                entry,
                row,
                newer: &newer,
            };
            match self.hot.undo(partition, undo).await? {
                Undone::Taken => return Ok(true),
                Undone::Nothing => return Ok(false),
                Undone::Overtaken => return Err(FlushError::Overtaken),
                Undone::Moved => {}
            }
        }
        // The slice is still live: the next run begins it again.
        Err(FlushError::Overtaken)
    }
}
