//! Gives an entry in quarantine another chance, as a new operation.

use super::FlushError;
use crate::domain::{Action, Operation};
use crate::ledger::{QuarantineRow, Subject};
use crate::service::Service;
use crate::steps;

/// What became of an entry that was to be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retried {
    /// Accepted; `changed` tells whether the state was another one. It is in quarantine no more; the next flush carries it, or
    /// refuses it again.
    Accepted {
        /// Whether the state was another one before.
        changed: bool,
    },
    /// The user has done something newer on that target, or was erased, which wins: it is in quarantine no more.
    Overtaken,
    /// It is no operation, only bytes; it stays where it is.
    Unreadable,
    /// The number of partitions, or the partition that it was found in, says that no script wrote it; it stays where it is.
    Elsewhere,
}

/// Retries one. What was accepted before should be flushed first: a newer operation that only Redis has is not seen here.
pub async fn retry(service: &Service, row: &QuarantineRow) -> Result<Retried, FlushError> {
    let Subject::Entry(entry) = &row.what.subject else {
        return Ok(Retried::Unreadable);
    };
    let home = crate::domain::partition_of(&entry.user, service.hot().partitions());
    if home != row.what.partition {
        return Ok(Retried::Elsewhere);
    }
    if service.ledger().is_void(entry).await? {
        service.ledger().quarantine_remove(row.id).await?;
        return Ok(Retried::Overtaken);
    }
    let pair = (entry.user.clone(), entry.target.clone());
    let stored = service.ledger().states(&[pair]).await?;
    if let Some(Some((_, version))) = stored.first()
        && *version > entry.version
    {
        service.ledger().quarantine_remove(row.id).await?;
        return Ok(Retried::Overtaken);
    }
    let operation = Operation {
        user: entry.user.clone(),
        target: entry.target.clone(),
        action: if entry.thumbed {
            Action::Thumb
        } else {
            Action::Unthumb
        },
    };
    let outcome = service.thumb(operation).await?;
    steps::point("retry.accepted").await;
    // Only now: whoever dies in between retries what is already so.
    service.ledger().quarantine_remove(row.id).await?;
    Ok(Retried::Accepted {
        changed: outcome.changed,
    })
}
