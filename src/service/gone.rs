//! Tells Redis that a target is gone, and that it is not any more. MySQL was told before.

use super::{Service, ServiceError};
use crate::domain::{SliceId, Target};
use crate::hot::Moment;
use crate::limits::GONE_TRIES_MAX;
use crate::steps;

impl Service {
    /// Marks a target as gone in all partitions, unless MySQL says that it is not. Behind it nobody likes the target, and an older
    /// copy of Redis, which does not have the mark, is recognised.
    pub async fn mark_gone(&self, target: &Target) -> Result<(), ServiceError> {
        let least = self.above_all_sealed().await?;
        for partition in 0..self.0.hot.partitions() {
            self.mark_gone_in(partition, target, least).await?;
            steps::point("erase.marked").await;
        }
        // Dropped at once: what this process has kept of the count is forgotten.
        drop(self.0.counts.as_ref().map(|one| one.write(vec![target])));
        Ok(self.0.ledger.sealed_note(least).await?)
    }

    /// Takes the mark away in all partitions: the count is cold, and is loaded from MySQL. An older copy of Redis, in which users
    /// may still hold what was erased, is recognised.
    pub async fn unmark_gone(&self, target: &Target) -> Result<(), ServiceError> {
        let least = self.above_all_sealed().await?;
        for partition in 0..self.0.hot.partitions() {
            let forgotten = self.0.hot.forget_target(partition, target, least).await;
            forgotten.map_err(|error| ServiceError::from(error).known())?;
            steps::point("restore.forgotten").await;
        }
        Ok(self.0.ledger.sealed_note(least).await?)
    }

    async fn mark_gone_in(
        &self,
        partition: u16,
        target: &Target,
        least: SliceId,
    ) -> Result<(), ServiceError> {
        let hot = &self.0.hot;
        let known = |error| ServiceError::from(error).known();
        for _ in 0..GONE_TRIES_MAX {
            let seen = hot.peek(partition).await.map_err(known)?;
            let Some(generation) = seen.generation else {
                self.check(partition).await.map_err(ServiceError::known)?;
                continue;
            };
            let at = Moment {
                generation,
                sealed: seen.sealed.0,
            };
            if self.0.ledger.gone(std::slice::from_ref(target)).await? != [true] {
                return Ok(());
            }
            let ttl = self.0.resident_ttl_seconds;
            let marked = hot.mark_gone(partition, &at, target, least, ttl).await;
            if marked.map_err(known)? {
                return Ok(());
            }
        }
        Err(ServiceError::busy())
    }

    /// An id up to which no partition is sealed yet. An older copy is recognised before, by the seals that it has lost: behind a
    /// raise it would not be.
    async fn above_all_sealed(&self) -> Result<SliceId, ServiceError> {
        let mut sealed = SliceId(0);
        for partition in 0..self.0.hot.partitions() {
            self.check(partition).await.map_err(ServiceError::known)?;
            let seen = self.0.hot.peek(partition).await;
            let seen = seen.map_err(|error| ServiceError::from(error).known())?;
            sealed = sealed.max(seen.sealed);
        }
        Ok(SliceId(sealed.0 + 1))
    }
}
