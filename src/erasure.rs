//! Erases users: everything that they did up to a moment is taken back and removed, wherever it stands.
//!
//! First MySQL notes who and up to which version; from then on no entry that is not newer is applied, wherever it comes from. The
//! rows go afterwards, in bounded transactions, each of which Redis is told of. It may end anywhere, and another process goes on.

use crate::config::Settings;
use crate::domain::{UserId, partition_of};
use crate::flush::{FlushError, Flusher, Upto};
use crate::hot::HotError;
use crate::ledger::{Erased, Erasure, Layout, LedgerError, OpenErasure};
use crate::limits::{ERASE_ROUNDS_MAX, ERASURES_MAX};
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
    /// Something was still there each time.
    #[error("something comes again as fast as it is erased")]
    Unfinished,
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

    /// Finishes what is open, up to a bound; gives how many. The lease should be held, so that no flush of others meets the mark.
    pub async fn run(&self) -> Result<usize, EraseError> {
        let open = self.service.ledger().erasures_open(ERASURES_MAX).await?;
        for one in &open {
            self.erase(one).await?;
        }
        Ok(open.len())
    }

    async fn erase(&self, open: &OpenErasure) -> Result<(), EraseError> {
        let ledger = self.service.ledger();
        let mut open = open.clone();
        for _ in 0..ERASE_ROUNDS_MAX {
            // All that was accepted before is void now; none of it is in a live slice afterwards.
            self.flush().await?;
            steps::point("erase.flushed").await;
            while self.remove(&open).await?.more {}
            // What was forgotten while it was dirty cannot be loaded before it has landed.
            self.flush().await?;
            if ledger.erase_end(&open).await? {
                tracing::info!(job = open.id, "a user was erased");
                return Ok(());
            }
            let all = ledger.erasures_open(ERASURES_MAX).await?;
            match all.into_iter().find(|one| one.id == open.id) {
                // Asked for again meanwhile: up to a later version.
                Some(now) => open = now,
                // Another process has finished it.
                None => return Ok(()),
            }
        }
        Err(EraseError::Unfinished)
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
