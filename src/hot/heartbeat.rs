//! Calls of `heartbeat.lua`: which instances there are, and who has the lease.

use std::time::Duration;

use redis::Value;

use super::keys;
use super::reply::{Reply, text};
use super::scripts::HEARTBEAT;
use super::{Hot, HotError};

/// An instance that was heard lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Its id.
    pub id: String,
    /// For how long it has been silent, in ms.
    pub silent_ms: u64,
    /// What it said of itself.
    pub says: String,
}

impl Hot {
    /// Says that an instance lives, and gives all that were heard within `life`.
    pub async fn heartbeat(
        &self,
        id: &str,
        says: &str,
        life: Duration,
    ) -> Result<Vec<Heard>, HotError> {
        let life_ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut call = HEARTBEAT.call(1);
        call.arg(keys::instances(&self.0.options.prefix))
            .arg(id)
            .arg(says)
            .arg(life_ms);
        let mut reply = Reply::new(self.job(&HEARTBEAT, &call).await?)?;
        let mut heard = Vec::with_capacity(reply.left() / 3);
        while reply.left() > 0 {
            heard.push(Heard {
                id: reply.text()?,
                silent_ms: reply.unsigned()?,
                says: reply.text()?,
            });
        }
        Ok(heard)
    }

    /// Signs an instance off.
    pub async fn sign_off(&self, id: &str, life: Duration) -> Result<(), HotError> {
        self.heartbeat(id, "", life).await.map(drop)
    }

    /// Who has the lease on a job.
    pub async fn lease_holder(&self, job: &str) -> Result<Option<String>, HotError> {
        let mut command = redis::cmd("GET");
        command.arg(keys::lease(&self.0.options.prefix, job));
        match self.job_command(&command).await? {
            Value::Nil => Ok(None),
            value => text(value).map(Some),
        }
    }
}
