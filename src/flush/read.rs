//! Reads a sealed slice whole, in pages, so that a million fields do not block Redis.

use std::collections::HashMap;

use super::{FlushError, Flusher};
use crate::domain::{Entry, SliceId, partition_of};
use crate::ledger::{Quarantined, Subject};
use crate::limits::{SLICE_READS_MAX, VERSION_SLACK_MS};
use crate::steps;

/// Runs what computes for long on a thread of its own: a million entries on a worker would hold up requests for a second.
pub(super) async fn off_the_workers<R: Send + 'static>(
    compute: impl FnOnce() -> R + Send + 'static,
) -> Result<R, FlushError> {
    let computed = tokio::task::spawn_blocking(compute).await;
    computed.map_err(|_| FlushError::Panicked)
}

/// What a slice holds in one partition.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) entries: Vec<Entry>,
    /// What no script of thumbd writes.
    pub(super) unreadable: Vec<Quarantined>,
}

/// Where fields come from.
#[derive(Clone, Copy)]
struct Origin {
    partition: u16,
    partitions: u16,
    slice: SliceId,
    slice_ms: u64,
}

impl Flusher {
    /// All of a slice in one partition. A restart can make HSCAN leave fields out, so they are counted.
    pub(super) async fn read_slice(
        &self,
        partition: u16,
        slice: SliceId,
        fence: &str,
    ) -> Result<Contents, FlushError> {
        let origin = Origin {
            partition,
            partitions: self.hot.partitions(),
            slice,
            slice_ms: self.hot.slice_ms(),
        };
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
                return off_the_workers(move || origin.parse(fields)).await;
            }
        }
        Err(FlushError::Incomplete { partition, slice })
    }
}

impl Origin {
    fn parse(self, fields: HashMap<Vec<u8>, Vec<u8>>) -> Contents {
        let mut contents = Contents::default();
        contents.entries.reserve(fields.len());
        for (field, value) in fields {
            match Entry::parse(&field, &value) {
                Ok(entry) => match self.odd(&entry) {
                    None => contents.entries.push(entry),
                    Some(reason) => {
                        let subject = Subject::Entry(entry);
                        contents.unreadable.push(self.refuse(subject, reason));
                    }
                },
                Err(error) => {
                    let subject = Subject::Bytes { field, value };
                    let refused = self.refuse(subject, error.to_string());
                    contents.unreadable.push(refused);
                }
            }
        }
        contents
    }

    /// What no script would have written here, though it can be read. A version of the far future would outlive every later
    /// operation of its pair, and move the clocks of partitions that are reset.
    fn odd(self, entry: &Entry) -> Option<String> {
        let home = partition_of(&entry.user, self.partitions);
        if home != self.partition {
            return Some(format!("the user belongs to partition {home}"));
        }
        let end = self.slice.0 + self.slice_ms + VERSION_SLACK_MS;
        (entry.version.0 / 1000 > end).then(|| "the version lies behind its slice".to_owned())
    }

    fn refuse(self, subject: Subject, reason: String) -> Quarantined {
        Quarantined {
            partition: self.partition,
            slice: self.slice,
            subject,
            reason,
        }
    }
}
