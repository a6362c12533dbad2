//! A stand-in for the service, in memory: replaced when merged.
#![allow(missing_docs)]
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::config::Settings;
use crate::domain::{Operation, Target, UserId};

#[derive(Debug, Clone)]
pub struct Outcome {
    pub changed: bool,
    pub count: Option<i64>,
}
#[derive(Debug, Clone)]
pub struct Seen {
    pub liked: Option<bool>,
    pub count: Option<i64>,
}
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error("busy")]
    Busy { retry_after: Duration },
    #[error("recovering")]
    Recovering { retry_after: Duration },
    #[error("outcome unknown")]
    OutcomeUnknown { retry_after: Duration },
    #[error("redis unavailable")]
    RedisUnavailable { retry_after: Duration },
    #[error("database unavailable")]
    DatabaseUnavailable { retry_after: Duration },
    #[error("redis full")]
    RedisFull { retry_after: Duration },
    #[error("internal: {0}")]
    Internal(String),
}
impl ServiceError {
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after }
            | Self::Recovering { retry_after }
            | Self::OutcomeUnknown { retry_after }
            | Self::RedisUnavailable { retry_after }
            | Self::DatabaseUnavailable { retry_after }
            | Self::RedisFull { retry_after } => Some(*retry_after),
            Self::Internal(_) => None,
        }
    }
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::Recovering { .. } => "recovering",
            Self::OutcomeUnknown { .. } => "outcome_unknown",
            Self::RedisUnavailable { .. } => "redis_unavailable",
            Self::DatabaseUnavailable { .. } => "database_unavailable",
            Self::RedisFull { .. } => "redis_full",
            Self::Internal(_) => "internal",
        }
    }
}
#[derive(Debug, Clone)]
pub struct Health {
    pub redis: Result<(), String>,
    pub database: Result<(), String>,
}
#[derive(Debug, Clone)]
pub struct Service(Arc<Mutex<HashMap<Target, HashSet<UserId>>>>);
impl Service {
    pub async fn build(_: &Settings) -> anyhow::Result<Service> {
        Ok(Self(Arc::default()))
    }
    pub async fn thumb(&self, operation: Operation) -> Result<Outcome, ServiceError> {
        let mut all = self.0.lock().expect("stub");
        let users = all.entry(operation.target).or_default();
        let changed = if operation.action.thumbed() {
            users.insert(operation.user)
        } else {
            users.remove(&operation.user)
        };
        Ok(Outcome {
            changed,
            count: Some(users.len() as i64),
        })
    }
    pub async fn batch(&self, operations: Vec<Operation>) -> Vec<Result<Outcome, ServiceError>> {
        let mut results = Vec::new();
        for operation in operations {
            results.push(self.thumb(operation).await);
        }
        results
    }
    pub async fn lookup(
        &self,
        user: Option<&UserId>,
        targets: &[Target],
    ) -> Result<Vec<Seen>, ServiceError> {
        let all = self.0.lock().expect("stub");
        let seen = targets.iter().map(|target| {
            let users = all.get(target);
            Seen {
                liked: user.map(|user| users.is_some_and(|users| users.contains(user))),
                count: Some(users.map_or(0, |users| users.len() as i64)),
            }
        });
        Ok(seen.collect())
    }
    pub async fn health(&self) -> Health {
        Health {
            redis: Ok(()),
            database: Ok(()),
        }
    }
}
