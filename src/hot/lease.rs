//! Calls of `lease.lua`.

use std::time::Duration;

use super::keys;
use super::scripts::LEASE;
use super::{Hot, HotError};

impl Hot {
    /// Takes or renews the lease on a job. False: somebody else has it.
    pub async fn lease(&self, job: &str, owner: &str, life: Duration) -> Result<bool, HotError> {
        let life_ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX).max(1);
        self.lease_call(job, owner, life_ms).await
    }

    /// Gives the lease back. False: somebody else has it.
    pub async fn lease_release(&self, job: &str, owner: &str) -> Result<bool, HotError> {
        self.lease_call(job, owner, 0).await
    }

    async fn lease_call(&self, job: &str, owner: &str, life_ms: u64) -> Result<bool, HotError> {
        let mut call = LEASE.call(1);
        call.arg(keys::lease(&self.0.options.prefix, job))
            .arg(owner)
            .arg(life_ms);
        let value = self.job(&LEASE, &call).await?;
        Ok(super::reply::int(&value)? == 1)
    }
}
