//! The stream in Redis: each event is an entry under its own id, so that the stream leaves out what it has already.

use super::RelayError;
use crate::hot::Hot;
use crate::ledger::{FeedEvent, Ledger};

/// Appends events. Gives how many were new.
pub(super) async fn append(
    hot: &Hot,
    ledger: &Ledger,
    entries_max: u64,
    events: &[FeedEvent],
) -> Result<u64, RelayError> {
    let mut texts = Vec::with_capacity(events.len());
    for event in events {
        texts.push((event.id, serde_json::to_string(event)?));
    }
    let (appended, stream) = hot.feed_append(entries_max, &texts).await?;
    if events.last().is_some_and(|last| stream > last.id) {
        // Another relay was faster, or ids are given out for a second time: then the stream took these for known.
        let ledger_last = ledger.feed_status().await?.last_id;
        if stream > ledger_last {
            ledger.feed_resume(stream).await?;
            return Err(RelayError::Forgotten {
                stream,
                ledger: ledger_last,
            });
        }
    }
    Ok(appended)
}
