//! Calls of `lookup.lua` and `renew.lua`.

use super::reply::Reply;
use super::scripts::{LOOKUP, RENEW};
use super::{Hot, HotError, Moment};
use crate::domain::{Target, UserId};

/// What Redis knows of a user's like of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Liked.
    Thumbed,
    /// Not liked.
    Not,
    /// The user is partial and does not hold the target: MySQL knows.
    NotHeld,
    /// The user is cold.
    Cold,
    /// No user was given.
    NoUser,
}

/// A reply of `lookup.lua`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked {
    /// Per target the state and this partition's part of the count; `None` is cold.
    Found {
        /// When this was so.
        at: Moment,
        /// What is cold cannot be loaded yet.
        recovering: bool,
        /// In the order asked.
        targets: Vec<(State, Option<i64>)>,
    },
    /// The partition is empty.
    Uninitialised,
}

impl Hot {
    /// Reads a user's states, if there is a user, and one partition's part of the counts.
    pub async fn lookup(
        &self,
        partition: u16,
        user: Option<&UserId>,
        targets: &[Target],
    ) -> Result<Looked, HotError> {
        let keys = self.keys(partition);
        let mut call = LOOKUP.call(2 + targets.len());
        let meta = keys.meta();
        call.arg(&meta);
        match user {
            Some(user) => call.arg(keys.user(user)),
            None => call.arg(&meta),
        };
        for target in targets {
            call.arg(keys.count(target));
        }
        call.arg(self.layout()).arg(u8::from(user.is_some()));
        for target in targets {
            call.arg(target.as_str());
        }
        let mut reply = Reply::new(self.request(&LOOKUP, &call).await?)?;
        match reply.int()? {
            0 => {}
            2 => return Ok(Looked::Uninitialised),
            _ => {
                return Err(HotError::Layout {
                    found: reply.text()?,
                    wanted: self.layout(),
                });
            }
        }
        let at = Moment {
            generation: reply.text()?,
            sealed: reply.unsigned()?,
        };
        let recovering = reply.int()? == 1;
        let targets = targets
            .iter()
            .map(|_| {
                let state = match reply.int()? {
                    0 => State::Not,
                    1 => State::Thumbed,
                    2 => State::NotHeld,
                    3 => State::Cold,
                    _ => State::NoUser,
                };
                Ok((state, reply.int_or_nil()?))
            })
            .collect::<Result<_, HotError>>()?;
        Ok(Looked::Found {
            at,
            recovering,
            targets,
        })
    }

    /// Gives what is read its life again once half of it is over. It may fail: then it is loaded again one day.
    pub async fn renew(
        &self,
        partition: u16,
        user: Option<&UserId>,
        targets: &[Target],
        ttl_seconds: u64,
    ) -> Result<u64, HotError> {
        let keys = self.keys(partition);
        let mut call = RENEW.call(targets.len() + usize::from(user.is_some()));
        if let Some(user) = user {
            call.arg(keys.user(user));
        }
        for target in targets {
            call.arg(keys.count(target));
        }
        call.arg(ttl_seconds);
        let value = self.request(&RENEW, &call).await?;
        Ok(super::reply::int(&value)?.unsigned_abs())
    }
}
