//! Reads a sealed slice whole, in pages, so that a million fields do not block Redis.

use std::collections::HashMap;

use super::{FlushError, Flusher};
use crate::domain::{Entry, SliceId};
use crate::limits::SLICE_READS_MAX;
use crate::steps;

/// Runs what computes for long on a thread of its own: a million entries on a worker would hold up requests for a second.
pub(super) async fn off_the_workers<R: Send + 'static>(
    compute: impl FnOnce() -> R + Send + 'static,
) -> Result<R, FlushError> {
    let computed = tokio::task::spawn_blocking(compute).await;
    computed.map_err(|_| FlushError::Panicked)
}

impl Flusher {
    /// All entries of a slice in one partition. A restart can make HSCAN leave fields out, so they are counted.
    pub(super) async fn read_slice(
        &self,
        partition: u16,
        slice: SliceId,
        fence: &str,
    ) -> Result<Vec<Entry>, FlushError> {
        for _ in 0..SLICE_READS_MAX {
            // Room for all of them at once: a table of a million that grows would hold up a worker for long.
            let room = self.hot.slice_length(partition, slice).await?;
            let mut fields: HashMap<Vec<u8>, Vec<u8>> = HashMap::with_capacity(room as usize);
            let mut cursor = 0;
            loop {
                let (next, page) = self.hot.slice_page(partition, slice, cursor).await?;
                fields.extend(page);
                steps::point("flush.page").await;
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            let length = self.hot.slice_length(partition, slice).await?;
            // In this order: a flusher that overtook may drop the slice, and would have taken the fence before.
            if self.hot.peek(partition).await?.fence != fence {
                return Err(FlushError::Overtaken);
            }
            if fields.len() as u64 == length {
                let parse = move || {
                    let parse = |(field, value): (Vec<u8>, Vec<u8>)| {
                        Entry::parse(&field, &value).map_err(|reason| FlushError::BadEntry {
                            partition,
                            slice,
                            reason,
                        })
                    };
                    fields.into_iter().map(parse).collect()
                };
                return off_the_workers(parse).await?;
            }
        }
        Err(FlushError::Incomplete { partition, slice })
    }
}
