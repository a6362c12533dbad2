//! The stream in Redis: each event is an entry under its own id, so that the stream leaves out what it has already.

use super::RelayError;
use crate::hot::Hot;
use crate::ledger::FeedEvent;

/// Appends events. Gives how many were new, and the last id that the stream has.
pub(super) async fn append(
    hot: &Hot,
    entries_max: u64,
    events: &[FeedEvent],
) -> Result<(u64, u64), RelayError> {
    let mut texts = Vec::with_capacity(events.len());
    for event in events {
        texts.push((event.id, serde_json::to_string(event)?));
    }
    Ok(hot.feed_append(entries_max, &texts).await?)
}
