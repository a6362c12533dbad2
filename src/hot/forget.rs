//! Calls of `forget.lua`.

use super::reply::int;
use super::scripts::FORGET;
use super::{Hot, HotError};
use crate::domain::{Target, UserId};
use crate::limits::UNPIN_KEYS_MAX;

impl Hot {
    /// Lets go of users and counts of a partition whose rows were changed outside of a slice; gives how many were there.
    pub async fn forget(
        &self,
        partition: u16,
        users: &[UserId],
        targets: &[Target],
    ) -> Result<u64, HotError> {
        self.forget_some(partition, users, targets, true).await
    }

    /// The same for any number, in calls of bounded size. Only the first raises `floor`: who reads MySQL behind it reads the
    /// change, and each raise closes the open slice.
    pub async fn forget_all(
        &self,
        partition: u16,
        users: &[UserId],
        targets: &[Target],
    ) -> Result<u64, HotError> {
        let mut there = 0;
        let mut first = true;
        for users in users.chunks(UNPIN_KEYS_MAX) {
            there += self.forget_some(partition, users, &[], first).await?;
            first = false;
        }
        for targets in targets.chunks(UNPIN_KEYS_MAX) {
            there += self.forget_some(partition, &[], targets, first).await?;
            first = false;
        }
        Ok(there)
    }

    async fn forget_some(
        &self,
        partition: u16,
        users: &[UserId],
        targets: &[Target],
        raise: bool,
    ) -> Result<u64, HotError> {
        let keys = self.keys(partition);
        let mut call = FORGET.call(1 + users.len() + targets.len());
        call.arg(keys.meta());
        for user in users {
            call.arg(keys.user(user));
        }
        for target in targets {
            call.arg(keys.count(target));
        }
        call.arg(users.len()).arg(u8::from(raise));
        Ok(int(&self.job(&FORGET, &call).await?)?.unsigned_abs())
    }
}
