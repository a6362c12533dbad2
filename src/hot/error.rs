//! What can go wrong on the way to Redis and back, by what the caller may do next.

use redis::{ErrorKind, RedisError, ServerErrorKind};

/// An error of Redis.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HotError {
    /// The call did not reach Redis: nothing was done.
    #[error("redis cannot be reached")]
    Unreachable(#[source] RedisError),
    /// The reply was lost or too late: it may have been done.
    #[error("redis did not answer in time")]
    Unknown(#[source] Option<RedisError>),
    /// Redis is over its memory limit and refused the call whole.
    #[error("redis is full")]
    Full,
    /// Redis refuses for now (loading, read-only replica, persistence trouble): nothing was done.
    #[error("redis refuses for now")]
    Refused(#[source] RedisError),
    /// Too many operations wait for Redis in this process: nothing was done.
    #[error("too many operations wait for redis")]
    QueueFull,
    /// Another slice was open each time: nothing was done.
    #[error("slices moved too often")]
    MovedTooOften,
    /// A server became another one while its keys were looked through: the look says nothing.
    #[error("a redis server was restarted or lost its role during a SCAN")]
    ScanCut,
    /// The address cannot be used.
    #[error("redis_url {0}")]
    Url(String),
    /// The keys are laid out for other settings.
    #[error(
        "the keys in redis are laid out as '{found}', the settings say '{wanted}' (partitions/slice length in ms; '' is retired)"
    )]
    Layout {
        /// In Redis.
        found: String,
        /// In the settings.
        wanted: String,
    },
    /// A reply that no script of thumbd gives, or any other error of the server.
    #[error("redis answered something unexpected: {0}")]
    Protocol(String),
}

impl HotError {
    /// Whether the same call may succeed later without anybody's doing.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::Unknown(_)
            | Self::Full
            | Self::Refused(_)
            | Self::QueueFull
            | Self::MovedTooOften
            | Self::ScanCut => true,
            Self::Url(_) | Self::Layout { .. } | Self::Protocol(_) => false,
        }
    }

    /// Whether Redis kept the caller waiting until the time was over: whoever comes next would wait as long for nothing.
    pub(super) fn hangs(&self) -> bool {
        match self {
            Self::Unknown(None) => true,
            Self::Unknown(Some(error)) | Self::Unreachable(error) => error.is_timeout(),
            _ => false,
        }
    }

    /// What becomes of those who waited behind such a call.
    pub(super) fn not_sent() -> Self {
        Self::Unreachable(RedisError::from((ErrorKind::Io, "redis does not answer")))
    }

    /// Whether it is certain that nothing was done.
    pub fn nothing_done(&self) -> bool {
        !matches!(self, Self::Unknown(_) | Self::Protocol(_))
    }
}

impl From<RedisError> for HotError {
    fn from(error: RedisError) -> Self {
        if error.is_connection_refusal() {
            return Self::Unreachable(error);
        }
        match error.kind() {
            ErrorKind::Server(
                ServerErrorKind::BusyLoading
                | ServerErrorKind::ReadOnly
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::TryAgain
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask,
            ) => Self::Refused(error),
            // The slot is moving away while the script looks at a key that it has just removed itself.
            ErrorKind::Server(ServerErrorKind::ResponseError) if away(&error) => {
                Self::Refused(error)
            }
            ErrorKind::Extension => match error.code() {
                Some("OOM") => Self::Full,
                Some("BUSY" | "MISCONF" | "NOREPLICAS") => Self::Refused(error),
                _ => Self::Protocol(error.to_string()),
            },
            ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::Client => Self::Unreachable(error),
            ErrorKind::Io => Self::Unknown(Some(error)),
            _ => Self::Protocol(error.to_string()),
        }
    }
}

fn away(error: &RedisError) -> bool {
    error
        .detail()
        .is_some_and(|detail| detail.contains("non local key"))
}
