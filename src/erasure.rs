//! Erases users: everything that they did up to a moment is taken back and removed, wherever it stands.
//!
//! First MySQL notes who and up to which version; from then on no entry that is not newer is applied, wherever it comes from. The
//! rows go afterwards, in bounded transactions, each of which Redis is told of. It may end anywhere, and another process goes on.

use crate::config::Settings;
use crate::domain::{UserId, partition_of};
use crate::flush::{FlushError, Flusher, Upto};
use crate::hot::HotError;
use crate::ledger::{Erased, Erasure, Layout, LedgerError, OpenErasure};
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
    /// Not all partitions answer.
    #[error("a partition of Redis cannot be reached")]
    Unreachable,
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

    /// Leaves it open if there is more than one turn takes, or if it was asked for again meanwhile: up to a later version.
    async fn erase(&self, open: &OpenErasure) -> Result<(), EraseError> {
        let (hot, ledger) = (self.service.hot(), self.service.ledger());
        // All that was accepted before is void now; none of it is in a live slice afterwards.
        self.flush().await?;
        steps::point("erase.flushed").await;
        let mut more = true;
        for _ in 0..ERASE_TRANSACTIONS_MAX {
            more = self.remove(open).await?.more;
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
        let home = partition_of(&open.user, hot.partitions());
        let sealed = hot.peek(home).await?.sealed;
        if ledger.erase_end(open, sealed).await? {
            tracing::info!(job = open.id, "a user was erased");
        }
        Ok(())
    }

    /// Removes rows, and tells Redis.
    async fn remove(&self, open: &OpenErasure) -> Result<Erased, EraseError> {
        let (hot, ledger) = (self.service.hot(), self.service.ledger());
        let token = new_generation();
        let erased = match ledger.erase_rows(open, &self.layout, &token).await {
            Err(LedgerError::OutsideOther) => {
                // Somebody died; a flush makes cold what he did not tell.
                self.flush().await?;
                ledger.erase_rows(open, &self.layout, &token).await?
            }
            other => other?,
        };
        steps::point("erase.removed").await;
        let home = partition_of(&open.user, hot.partitions());
        // Also without rows: Redis may hold the user, as somebody who likes nothing.
        let user = std::slice::from_ref(&open.user);
        hot.forget_all(home, user, &erased.targets).await?;
        steps::point("erase.forgotten").await;
        ledger.outside_clear(&token).await?;
        Ok(erased)
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
