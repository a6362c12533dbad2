//! Calls of `feed.lua` and `feed_told.lua`.

use super::reply::Reply;
use super::scripts::{FEED, FEED_TOLD};
use super::{Hot, HotError, keys};

impl Hot {
    /// Appends events to the stream of the feed, each an id and a text, ids rising; those that it had before are left out. Keeps
    /// about `entries_max` entries. Gives how many were appended, and the last id that the stream has given out.
    pub async fn feed_append(
        &self,
        entries_max: u64,
        events: &[(u64, String)],
    ) -> Result<(u64, u64), HotError> {
        let mut call = FEED.call(1);
        call.arg(keys::feed(&self.0.options.prefix))
            .arg(entries_max);
        for (id, text) in events {
            call.arg(*id).arg(text);
        }
        let mut reply = Reply::new(self.job(&FEED, &call).await?)?;
        Ok((reply.unsigned()?, reply.unsigned()?))
    }

    /// Remembers that a webhook was told up to this event; 0 only asks. Gives the last event that it was told ever.
    pub async fn feed_told(&self, upto: u64) -> Result<u64, HotError> {
        let mut call = FEED_TOLD.call(1);
        call.arg(keys::feed_told(&self.0.options.prefix)).arg(upto);
        let value = self.job(&FEED_TOLD, &call).await?;
        Ok(super::reply::int(&value)?.max(0).unsigned_abs())
    }
}
