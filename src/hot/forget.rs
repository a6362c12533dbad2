//! Calls of `forget.lua`.

use super::reply::int;
use super::scripts::FORGET;
use super::{Hot, HotError};
use crate::domain::{Target, UserId};

impl Hot {
    /// Lets go of users and counts of a partition whose rows were changed outside of a slice; gives how many were there.
    pub async fn forget(
        &self,
        partition: u16,
        users: &[UserId],
        targets: &[Target],
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
        call.arg(users.len());
        Ok(int(&self.job(&FORGET, &call).await?)?.unsigned_abs())
    }
}
