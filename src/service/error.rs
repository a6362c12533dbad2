//! Why a use case could not be done, by what the user may do next.

use std::time::Duration;

use crate::hot::{HotError, Limit};
use crate::ledger::LedgerError;

/// An error of a use case.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ServiceError {
    /// Too many cold users and counts are being loaded, or too many operations wait.
    #[error("too much work is waiting")]
    Busy {
        /// When to come again.
        retry_after: Duration,
    },
    /// Redis holds as much that the database does not have as it may: nothing was done.
    #[error("too much waits for the database")]
    BacklogFull {
        /// When to come again.
        retry_after: Duration,
    },
    /// The user has done too much of this lately: nothing was done.
    #[error("the user has changed too much lately")]
    RateLimited {
        /// What was not kept.
        limit: Limit,
        /// When to come again.
        retry_after: Duration,
    },
    /// The target was erased, and nobody has restored it: nothing was done.
    #[error("the target is gone")]
    TargetGone,
    /// What was unflushed when Redis was found damaged has not landed yet.
    #[error("recovering")]
    Recovering {
        /// When to come again.
        retry_after: Duration,
    },
    /// The reply of Redis was lost: the operation may have been done.
    #[error("nobody knows whether it was done")]
    OutcomeUnknown {
        /// When to come again.
        retry_after: Duration,
    },
    /// Redis cannot be reached or refuses: nothing was done.
    #[error("redis is unavailable")]
    RedisUnavailable {
        /// When to come again.
        retry_after: Duration,
    },
    /// MySQL cannot be reached, and the user or the count is cold.
    #[error("the database is unavailable")]
    DatabaseUnavailable {
        /// When to come again.
        retry_after: Duration,
    },
    /// Redis is over its memory limit: nothing was done.
    #[error("redis is full")]
    RedisFull {
        /// When to come again.
        retry_after: Duration,
    },
    /// A defect; the text is for the log.
    #[error("internal: {0}")]
    Internal(String),
}

impl ServiceError {
    /// Many cold loads or operations wait: come back in one to three seconds, not all at once.
    pub(crate) fn busy() -> Self {
        Self::Busy {
            retry_after: jittered(),
        }
    }

    pub(crate) fn backlog_full() -> Self {
        Self::BacklogFull {
            retry_after: jittered(),
        }
    }

    pub(super) fn rate_limited(limit: Limit, retry_after: Duration) -> Self {
        Self::RateLimited { limit, retry_after }
    }

    pub(crate) fn recovering() -> Self {
        Self::Recovering {
            retry_after: jittered(),
        }
    }

    /// Of a call that carried no operation, such as a read, a load or a recovery: nobody cares whether it was done.
    pub(crate) fn known(self) -> Self {
        match self {
            Self::OutcomeUnknown { retry_after } => Self::RedisUnavailable { retry_after },
            other => other,
        }
    }

    /// When to come again, if that may help.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after }
            | Self::BacklogFull { retry_after }
            | Self::RateLimited { retry_after, .. }
            | Self::Recovering { retry_after }
            | Self::OutcomeUnknown { retry_after }
            | Self::RedisUnavailable { retry_after }
            | Self::DatabaseUnavailable { retry_after }
            | Self::RedisFull { retry_after } => Some(*retry_after),
            Self::TargetGone | Self::Internal(_) => None,
        }
    }

    /// A short name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::BacklogFull { .. } => "backlog_full",
            Self::RateLimited { .. } => "rate_limited",
            Self::TargetGone => "target_gone",
            Self::Recovering { .. } => "recovering",
            Self::OutcomeUnknown { .. } => "outcome_unknown",
            Self::RedisUnavailable { .. } => "redis_unavailable",
            Self::DatabaseUnavailable { .. } => "database_unavailable",
            Self::RedisFull { .. } => "redis_full",
            Self::Internal(_) => "internal",
        }
    }
}

/// One to three seconds: whoever was refused in the same moment must not come back in the same moment.
fn jittered() -> Duration {
    Duration::from_millis(rand::random_range(1000..=3000))
}

impl From<HotError> for ServiceError {
    fn from(error: HotError) -> Self {
        let retry_after = jittered();
        match error {
            HotError::Unknown(_) => Self::OutcomeUnknown { retry_after },
            HotError::Unreachable(_) | HotError::Refused(_) => {
                Self::RedisUnavailable { retry_after }
            }
            HotError::Full => Self::RedisFull { retry_after },
            HotError::QueueFull | HotError::MovedTooOften | HotError::ScanCut => {
                Self::Busy { retry_after }
            }
            HotError::Url(_) | HotError::Layout { .. } | HotError::Protocol(_) => {
                Self::Internal(error.to_string())
            }
        }
    }
}

impl From<LedgerError> for ServiceError {
    fn from(error: LedgerError) -> Self {
        if error.retryable() {
            Self::DatabaseUnavailable {
                retry_after: jittered(),
            }
        } else {
            Self::Internal(error.to_string())
        }
    }
}
