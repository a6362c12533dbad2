//! Why a job that was asked for did not run to its end.

use crate::erasure::EraseError;
use crate::flush::FlushError;
use crate::telemetry::one_line;

/// An error of a job. Texts are for the log; codes are for programs.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JobError {
    /// Another instance has the lease, for longer than this one waits.
    #[error("another instance runs the jobs and does not end")]
    LeaseHeld,
    /// Too many callers wait already.
    #[error("too many callers wait for this job")]
    Busy,
    /// The process is stopping.
    #[error("thumbd is stopping")]
    Stopping,
    /// The run failed; what had landed has landed, the rest is tried again by the next run.
    #[error("{0}")]
    Failed(String),
    /// The run panicked.
    #[error("the job died")]
    Died,
}

impl JobError {
    /// A short name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::LeaseHeld => "lease_held",
            Self::Busy => "busy",
            Self::Stopping => "stopping",
            Self::Failed(_) => "job_failed",
            Self::Died => "job_died",
        }
    }
}

impl From<FlushError> for JobError {
    fn from(error: FlushError) -> Self {
        Self::Failed(one_line(&error))
    }
}

impl From<EraseError> for JobError {
    fn from(error: EraseError) -> Self {
        Self::Failed(one_line(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::LedgerError;

    #[test]
    fn each_cause_is_told_once() {
        let error = FlushError::Ledger(LedgerError::Unavailable(sqlx::Error::PoolClosed));
        let text = JobError::from(error).to_string();
        let cause = sqlx::Error::PoolClosed;
        assert_eq!(text, format!("database: MySQL is not available: {cause}"));
    }
}
