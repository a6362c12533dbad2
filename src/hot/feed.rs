//! Calls of `feed.lua`.

use super::reply::Reply;
use super::scripts::FEED;
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
}
