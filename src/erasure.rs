//! Erases users and targets: everything that was done up to a moment is taken back and removed, wherever it stands.
//!
//! First MySQL notes who or what, and up to which version; from then on no entry that is not newer is applied, wherever it comes
//! from. The rows go afterwards, in bounded transactions, each of which Redis is told of. It may end anywhere, and another process
//! goes on. A target is gone until it is restored, and Redis has a mark of that.

use std::collections::BTreeMap;

use crate::config::Settings;
use crate::domain::{Target, UserId, Version, partition_of};
use crate::flush::{FlushError, Flusher, Upto};
use crate::hot::HotError;
use crate::ledger::{
    Erased, ErasedLikes, Erasure, ErasureOf, Layout, LedgerError, OpenErasure, TargetState,
};
use crate::limits::{ERASE_TRANSACTIONS_MAX, ERASURES_MAX};
use crate::service::{Service, ServiceError, layout, new_generation};
use crate::steps;

/// How often a flush begins again because somebody else came between.
const FLUSHES_MAX: usize = 3;

/// Why the work ended early. It is taken up again.
#[derive(Debug, thiserror::Error)]
pub enum EraseError {
    /// Redis.
    #[error("redis")]
    Hot(#[from] HotError),
    /// MySQL.
    #[error("database")]
    Ledger(#[from] LedgerError),
    /// A flush before or behind it.
    #[error("flush")]
    Flush(#[from] FlushError),
    /// Redis could not be told of a target, or a partition is being recovered.
    #[error("{0}")]
    Service(#[from] ServiceError),
    /// Not all partitions answer.
    #[error("a partition of Redis cannot be reached")]
    Unreachable,
}

/// What became of a target that was to be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restored {
    /// It can be liked again.
    Done,
    /// It was not gone.
    There,
    /// Its likes are still being removed: it stays gone.
    Leaving,
}

/// Notes that a user is to be erased, and gives the job. What the user does afterwards counts.
pub async fn request(service: &Service, user: &UserId) -> Result<Erasure, ServiceError> {
    let (hot, ledger) = (service.hot(), service.ledger());
    let home = partition_of(user, hot.partitions());
    let newest = ledger.flush_state().await?.max_version;
    let raise = async || {
        let raised = hot.raise(home, newest).await;
        raised.map_err(|error| ServiceError::from(error).known())
    };
    let mut clock = raise().await?;
    if clock.is_none() {
        service.check(home).await.map_err(ServiceError::known)?;
        clock = raise().await?;
    }
    let clock = clock.ok_or_else(ServiceError::recovering)?;
    steps::point("erase.raised").await;
    Ok(ledger.erase_begin(user, clock).await?)
}

/// Notes that a target is gone, and gives the job. Nobody likes it from then on, whatever stands in Redis.
pub async fn request_target(service: &Service, target: &Target) -> Result<Erasure, ServiceError> {
    let erasure = service.ledger().erase_target_begin(target).await?;
    steps::point("erase.noted").await;
    // Until here likes were still accepted, in vain. If this fails, the job does it.
    service.mark_gone(target).await?;
    Ok(erasure)
}

/// Works on what was asked for.
#[derive(Clone)]
pub struct Eraser {
    service: Service,
    flusher: Flusher,
    layout: Layout,
}

impl Eraser {
    /// An eraser on connected stores.
    pub fn new(service: &Service, flusher: &Flusher, settings: &Settings) -> Self {
        Self {
            service: service.clone(),
            flusher: flusher.clone(),
            layout: layout(settings),
        }
    }

    /// Whether there is anything to do.
    pub async fn is_asked(&self) -> Result<bool, LedgerError> {
        Ok(!self.service.ledger().erasures_open(1).await?.is_empty())
    }

    /// Works on what is open, within bounds, so that others have their turn; gives how many were looked at. One that fails does not
    /// hold up the others. The lease should be held, so that no flush of others meets the mark.
    pub async fn run(&self) -> Result<usize, EraseError> {
        let open = self.service.ledger().erasures_open(ERASURES_MAX).await?;
        let mut failed = None;
        for one in &open {
            if let Err(error) = self.erase(one).await {
                tracing::debug!(job = one.id, %error, "an erasure failed, it is taken up again");
                failed.get_or_insert(error);
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(open.len()),
        }
    }

    async fn erase(&self, open: &OpenErasure) -> Result<(), EraseError> {
        match &open.of {
            ErasureOf::User(user) => self.erase_user(open, user).await,
            ErasureOf::Target(target) => self.erase_target(open, target).await,
        }
    }

    /// Leaves it open if there is more than one turn takes, or if it was asked for again meanwhile: up to a later version.
    async fn erase_user(&self, open: &OpenErasure, user: &UserId) -> Result<(), EraseError> {
        let (hot, ledger) = (self.service.hot(), self.service.ledger());
        // All that was accepted before is void now; none of it is in a live slice afterwards.
        self.flush().await?;
        steps::point("erase.flushed").await;
        let mut more = true;
        for _ in 0..ERASE_TRANSACTIONS_MAX {
            more = self.remove_user(open, user).await?.more;
            if !more {
                break;
            }
        }
        if more {
            return Ok(());
        }
        // What was forgotten while it was dirty cannot be loaded before it has landed.
        self.flush().await?;
        // An older copy of Redis, in which the user still stands, was not sealed as far as this.
        let home = partition_of(user, hot.partitions());
        let sealed = hot.peek(home).await?.sealed;
        if ledger.erase_end(open, user, sealed).await? {
            tracing::info!(job = open.id, "a user was erased");
        }
        Ok(())
    }

    /// Removes rows, and tells Redis.
    async fn remove_user(&self, open: &OpenErasure, user: &UserId) -> Result<Erased, EraseError> {
        let (hot, ledger) = (self.service.hot(), self.service.ledger());
        let token = new_generation();
        let removal = || ledger.erase_rows(open, user, &self.layout, &token);
        let erased = self.outside(removal).await?;
        steps::point("erase.removed").await;
        let home = partition_of(user, hot.partitions());
        // Also without rows: Redis may hold the user, as somebody who likes nothing.
        let user = std::slice::from_ref(user);
        hot.forget_all(home, user, &erased.targets).await?;
        steps::point("erase.forgotten").await;
        ledger.outside_clear(&token).await?;
        Ok(erased)
    }

    /// Leaves it open if there is more than one turn takes.
    async fn erase_target(&self, open: &OpenErasure, target: &Target) -> Result<(), EraseError> {
        self.service.mark_gone(target).await?;
        // All that was accepted before the mark is void now; none of it is in a live slice afterwards.
        self.flush().await?;
        steps::point("erase.flushed").await;
        let mut more = true;
        for _ in 0..ERASE_TRANSACTIONS_MAX {
            more = self.remove_target(open, target).await?.more;
            if !more {
                break;
            }
        }
        let ledger = self.service.ledger();
        if !more && ledger.erase_target_end(open, target).await? {
            tracing::info!(job = open.id, "a target was erased");
        }
        Ok(())
    }

    /// Removes rows, and takes the target out of what their users hold in Redis. They stay resident: nobody changes anything of a
    /// target that is gone.
    async fn remove_target(
        &self,
        open: &OpenErasure,
        target: &Target,
    ) -> Result<ErasedLikes, EraseError> {
        let (hot, ledger) = (self.service.hot(), self.service.ledger());
        let token = new_generation();
        let removal = || ledger.erase_target_rows(open, target, &self.layout, &token);
        let erased = self.outside(removal).await?;
        steps::point("erase.removed").await;
        let mut told: BTreeMap<u16, Vec<(&UserId, &Target, Version)>> = BTreeMap::new();
        for (partition, user, version) in &erased.likes {
            let likes = told.entry(*partition).or_default();
            likes.push((user, target, *version));
        }
        for (partition, likes) in told {
            hot.strip(partition, &likes, true).await?;
            steps::point("erase.forgotten").await;
        }
        ledger.outside_clear(&token).await?;
        Ok(erased)
    }

    /// Lets a target be liked again, with no likes; what was accepted before counts no more than it did. The lease should be held.
    pub async fn restore(&self, target: &Target) -> Result<Restored, EraseError> {
        let (hot, ledger) = (self.service.hot(), self.service.ledger());
        // None of it is in a live slice, an older copy of Redis is recognised, and whoever died at this is made up for.
        self.flush().await?;
        steps::point("restore.flushed").await;
        match ledger.target_state(target).await? {
            TargetState::There => return Ok(Restored::There),
            TargetState::Leaving => return Ok(Restored::Leaving),
            TargetState::Gone => {}
        }
        let mut version = ledger.flush_state().await?.max_version;
        for partition in 0..hot.partitions() {
            let clock = hot.raise(partition, version).await?;
            version = version.max(clock.ok_or(EraseError::Unreachable)?);
        }
        // Above all that the feed may have told of it.
        let version = Version(version.0 + 1);
        for partition in 0..hot.partitions() {
            hot.raise(partition, version).await?;
            steps::point("restore.raised").await;
        }
        let token = new_generation();
        let restoring = || ledger.target_restore(target, version, &token);
        if !self.outside(restoring).await? {
            return Ok(Restored::Leaving);
        }
        steps::point("restore.stored").await;
        self.service.unmark_gone(target).await?;
        ledger.outside_clear(&token).await?;
        Ok(Restored::Done)
    }

    /// Changes rows or counts outside of a slice.
    async fn outside<T, F>(&self, change: impl Fn() -> F) -> Result<T, EraseError>
    where
        F: Future<Output = Result<T, LedgerError>>,
    {
        match change().await {
            Err(LedgerError::OutsideOther) => {
                // Somebody died; a flush makes cold what he did not tell.
                self.flush().await?;
                Ok(change().await?)
            }
            other => Ok(other?),
        }
    }

    async fn flush(&self) -> Result<(), EraseError> {
        for _ in 1..FLUSHES_MAX {
            match self.flusher.run(|| Upto::Now).await {
                Err(FlushError::Overtaken | FlushError::Unsealed(_)) => {}
                other => return whole(other?.partitions_skipped),
            }
        }
        whole(self.flusher.run(|| Upto::Now).await?.partitions_skipped)
    }
}

fn whole(partitions_skipped: u64) -> Result<(), EraseError> {
    match partitions_skipped {
        0 => Ok(()),
        _ => Err(EraseError::Unreachable),
    }
}
