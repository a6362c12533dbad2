//! Calls of the scripts that flush and recover a partition: peek, seal, mark, unpin, drop, reset, adopt; and the paged reading of a slice.

use redis::Value;

use super::reply::{Reply, int, unexpected};
use super::scripts::{ADOPT, DROP, MARK, PEEK, RESET, RETIRE, SEAL, UNPIN};
use super::{Generation, Hot, HotError};
use crate::domain::{SliceId, Target, UserId, Version};
use crate::limits::HSCAN_PAGE;

/// How a partition stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peek {
    /// Redis's time, Unix ms.
    pub time_ms: u64,
    /// `None`: the partition is empty.
    pub generation: Option<Generation>,
    /// The last version.
    pub clock: Version,
    /// The last sealed id.
    pub sealed: SliceId,
    /// The newest slice that landed.
    pub done: SliceId,
    /// Until `done` reaches it, nothing cold can be loaded.
    pub barrier: SliceId,
    /// The newest slice that landed and is no longer kept.
    pub unkept: SliceId,
    /// The layout of the keys; '' if there are none, or if they were retired.
    pub layout: String,
    /// The token of the current flusher.
    pub fence: String,
    /// Live slices, oldest first.
    pub live: Vec<SliceId>,
    /// Slices that landed and are kept.
    pub kept: Vec<SliceId>,
}

/// A reply of `seal.lua`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sealed {
    /// Sealed, and the caller is the flusher.
    Done {
        /// The newest slice that landed.
        done: SliceId,
        /// The last sealed id.
        sealed: SliceId,
        /// Live slices up to there, oldest first.
        live: Vec<SliceId>,
        /// Kept slices that may go.
        over: Vec<SliceId>,
    },
    /// The partition is behind MySQL: it was rolled back.
    Behind,
    /// The partition is empty.
    Uninitialised,
}

/// What `reset.lua` is told.
#[derive(Debug, Clone)]
pub struct Reset<'a> {
    /// What the caller saw: if it is no longer so, nothing is done.
    pub seen: &'a Peek,
    /// The new generation.
    pub generation: &'a str,
    /// `last` of flush_state.
    pub last: SliceId,
    /// `max_version` of flush_state.
    pub max_version: Version,
    /// `landed` of flush_state: `done` is lowered to it, or raised as far as nothing live is older.
    pub landed: Option<SliceId>,
}

/// What `unpin.lua` is told.
#[derive(Debug, Clone, Copy)]
pub struct Unpin<'a> {
    /// The slice that landed.
    pub slice: SliceId,
    /// The flusher's token.
    pub fence: &'a str,
    /// Users of the slice.
    pub users: &'a [&'a UserId],
    /// Targets of the slice.
    pub targets: &'a [&'a Target],
    /// How long they stay at least, in seconds; up to an eighth more.
    pub ttl_seconds: u64,
    /// A user with more fields than this goes at once.
    pub user_fields_max: usize,
}

/// TTLs are spread over this part of their length, so that not all end at once.
pub const TTL_SPREAD: u64 = 8;

impl Hot {
    /// Looks how a partition stands.
    pub async fn peek(&self, partition: u16) -> Result<Peek, HotError> {
        let keys = self.keys(partition);
        let mut call = PEEK.call(3);
        call.arg(keys.meta()).arg(keys.slices()).arg(keys.kept());
        let mut reply = Reply::new(self.job(&PEEK, &call).await?)?;
        let time_ms = reply.unsigned()?;
        let generation = reply.text_or_nil()?;
        let clock = Version(reply.unsigned()?);
        let sealed = SliceId(reply.unsigned()?);
        let done = SliceId(reply.unsigned()?);
        let barrier = SliceId(reply.unsigned()?);
        let unkept = SliceId(reply.unsigned()?);
        let layout = reply.text()?;
        let fence = reply.text()?;
        let live = ids(&mut reply, true)?;
        let kept = ids(&mut reply, false)?;
        Ok(Peek {
            time_ms,
            generation,
            clock,
            sealed,
            done,
            barrier,
            unkept,
            layout,
            fence,
            live,
            kept,
        })
    }

    /// Seals everything up to `upto` and makes `fence` the flusher.
    pub async fn seal(
        &self,
        partition: u16,
        upto: SliceId,
        last: SliceId,
        fence: &str,
        keep_ms: u64,
    ) -> Result<Sealed, HotError> {
        let keys = self.keys(partition);
        let mut call = SEAL.call(3);
        call.arg(keys.meta())
            .arg(keys.slices())
            .arg(keys.kept())
            .arg(upto.0)
            .arg(last.0)
            .arg(fence)
            .arg(keep_ms);
        let mut reply = Reply::new(self.job(&SEAL, &call).await?)?;
        Ok(match reply.int()? {
            0 => Sealed::Done {
                done: SliceId(reply.unsigned()?),
                sealed: SliceId(reply.unsigned()?),
                live: ids(&mut reply, true)?,
                over: ids(&mut reply, false)?,
            },
            1 => Sealed::Behind,
            _ => Sealed::Uninitialised,
        })
    }

    /// Number of fields of a slice.
    pub async fn slice_length(&self, partition: u16, id: SliceId) -> Result<u64, HotError> {
        let mut command = redis::cmd("HLEN");
        command.arg(self.keys(partition).slice(id));
        Ok(int(&self.job_command(&command).await?)?.unsigned_abs())
    }

    /// One page of a slice: the cursor to go on with (0: the end) and fields with their values. A field may come twice.
    #[allow(clippy::type_complexity, reason = "a page is read once, by the flush")]
    pub async fn slice_page(
        &self,
        partition: u16,
        id: SliceId,
        cursor: u64,
    ) -> Result<(u64, Vec<(Vec<u8>, Vec<u8>)>), HotError> {
        let mut command = redis::cmd("HSCAN");
        command
            .arg(self.keys(partition).slice(id))
            .arg(cursor)
            .arg("COUNT")
            .arg(HSCAN_PAGE);
        let mut reply = Reply::new(self.job_command(&command).await?)?;
        let cursor = reply.text()?;
        let cursor = cursor
            .parse()
            .map_err(|_| HotError::Protocol("a cursor is not a number".into()))?;
        let mut values = match reply.next()? {
            Value::Array(values) => values.into_iter(),
            other => return Err(unexpected(&other)),
        };
        let mut fields = Vec::with_capacity(values.len() / 2);
        while let (Some(field), Some(value)) = (values.next(), values.next()) {
            match (field, value) {
                (Value::BulkString(field), Value::BulkString(value)) => fields.push((field, value)),
                (other, _) => return Err(unexpected(&other)),
            }
        }
        Ok((cursor, fields))
    }

    /// Notes that a slice landed. False: not the current flusher.
    pub async fn mark(&self, partition: u16, id: SliceId, fence: &str) -> Result<bool, HotError> {
        let mut call = MARK.call(1);
        call.arg(self.keys(partition).meta()).arg(fence).arg(id.0);
        Ok(int(&self.job(&MARK, &call).await?)? == 1)
    }

    /// Lets users and counts expire again whose last operation landed. False: not the current flusher.
    pub async fn unpin(&self, partition: u16, unpin: Unpin<'_>) -> Result<bool, HotError> {
        let keys = self.keys(partition);
        let mut call = UNPIN.call(1 + unpin.users.len() + unpin.targets.len());
        call.arg(keys.meta());
        for user in unpin.users {
            call.arg(keys.user(user));
        }
        for target in unpin.targets {
            call.arg(keys.count(target));
        }
        call.arg(unpin.fence)
            .arg(unpin.slice.0)
            .arg(unpin.users.len())
            .arg(unpin.ttl_seconds)
            .arg((unpin.ttl_seconds / TTL_SPREAD).max(1))
            .arg(unpin.user_fields_max);
        Ok(int(&self.job(&UNPIN, &call).await?)? == 1)
    }

    /// Takes a slice that landed out of the live ones, and removes what was kept long enough. False: not the current flusher.
    pub async fn drop_slice(
        &self,
        partition: u16,
        id: SliceId,
        fence: &str,
        keep_ms: u64,
        over: &[SliceId],
    ) -> Result<bool, HotError> {
        let keys = self.keys(partition);
        let mut call = DROP.call(5 + over.len());
        call.arg(keys.meta())
            .arg(keys.slices())
            .arg(keys.kept())
            .arg(keys.slice(id))
            .arg(keys.kept_slice(id));
        for one in over {
            call.arg(keys.kept_slice(*one));
        }
        call.arg(fence).arg(id.0).arg(keep_ms);
        for one in over {
            call.arg(one.0);
        }
        Ok(int(&self.job(&DROP, &call).await?)? == 1)
    }

    /// Initialises or resets a partition. False: it is no longer as the caller saw it.
    pub async fn reset(&self, partition: u16, reset: Reset<'_>) -> Result<bool, HotError> {
        let keys = self.keys(partition);
        let (live, kept) = (&reset.seen.live, &reset.seen.kept);
        let mut call = RESET.call(3 + 2 * kept.len());
        call.arg(keys.meta()).arg(keys.slices()).arg(keys.kept());
        for id in kept {
            call.arg(keys.kept_slice(*id)).arg(keys.slice(*id));
        }
        call.arg(reset.seen.generation.as_deref().unwrap_or(""))
            .arg(reset.generation)
            .arg(reset.last.0)
            .arg(reset.max_version.0);
        match reset.landed {
            Some(landed) => call.arg(landed.0),
            None => call.arg(""),
        };
        call.arg(self.layout()).arg(live.len());
        for id in live.iter().chain(kept) {
            call.arg(id.0);
        }
        Ok(int(&self.job(&RESET, &call).await?)? == 1)
    }

    /// Ends a partition's life under its layout. False: there are live slices.
    pub async fn retire(&self, partition: u16, kept_seconds: u64) -> Result<bool, HotError> {
        let kept = self.peek(partition).await?.kept;
        let keys = self.keys(partition);
        let mut call = RETIRE.call(3 + kept.len());
        call.arg(keys.meta()).arg(keys.slices()).arg(keys.kept());
        for id in kept {
            call.arg(keys.kept_slice(id));
        }
        call.arg(kept_seconds);
        Ok(int(&self.job(&RETIRE, &call).await?)? == 1)
    }

    /// Lists a slice again that is there but not listed. False: not needed.
    pub async fn adopt(
        &self,
        partition: u16,
        id: SliceId,
        generation: &str,
    ) -> Result<bool, HotError> {
        let keys = self.keys(partition);
        let mut call = ADOPT.call(3);
        call.arg(keys.meta())
            .arg(keys.slices())
            .arg(keys.slice(id))
            .arg(id.0)
            .arg(generation);
        Ok(int(&self.job(&ADOPT, &call).await?)? == 1)
    }
}

/// Ids to the end of a reply, or as many as the next number says.
fn ids(reply: &mut Reply, counted: bool) -> Result<Vec<SliceId>, HotError> {
    let count = if counted {
        reply.unsigned()? as usize
    } else {
        reply.left()
    };
    (0..count).map(|_| Ok(SliceId(reply.unsigned()?))).collect()
}
