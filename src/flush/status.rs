//! How the flush stands: live slices and the lag.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use serde::Serialize;

use super::{FlushError, Flusher};
use crate::domain::SliceId;

/// Where a slice is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SliceState {
    /// Operations go into it.
    Open,
    /// Closed, waits for the flush.
    Sealed,
    /// This process carries it into MySQL.
    Flushing,
}

/// A live slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct SliceInfo {
    /// The partition.
    pub partition: u16,
    /// Its id, Unix ms.
    pub id: u64,
    /// How long ago it was begun, in ms.
    pub age_ms: u64,
    /// Its entries.
    pub entries: u64,
    /// Where it is on its way.
    pub state: SliceState,
}

/// All live slices, and what follows from them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Live slices, by partition, oldest first.
    pub slices: Vec<SliceInfo>,
    /// Age of the oldest of them in ms; 0 if there is none.
    pub lag_ms: u64,
    /// Entries in all of them.
    pub entries: u64,
}

/// Numbers of entries of slices that are closed, and so do not change; whoever looks every second needs not ask for them again.
#[derive(Debug, Default)]
pub struct SealedLengths(HashMap<(u16, SliceId), u64>);

impl Flusher {
    /// Looks at all partitions.
    pub async fn standing(&self, sealed: &mut SealedLengths) -> Result<Standing, FlushError> {
        let current = self.current.load(Ordering::Relaxed);
        let mut standing = Standing::default();
        let mut known = HashMap::new();
        for partition in 0..self.hot.partitions() {
            let peek = self.hot.peek(partition).await?;
            for id in peek.live {
                let entries = match sealed.0.get(&(partition, id)) {
                    Some(entries) => *entries,
                    None => self.hot.slice_length(partition, id).await?,
                };
                if id <= peek.sealed {
                    known.insert((partition, id), entries);
                }
                let age_ms = peek.time_ms.saturating_sub(id.0);
                standing.lag_ms = standing.lag_ms.max(age_ms);
                standing.entries += entries;
                standing.slices.push(SliceInfo {
                    partition,
                    id: id.0,
                    age_ms,
                    entries,
                    state: if id > peek.sealed {
                        SliceState::Open
                    } else if id.0 == current {
                        SliceState::Flushing
                    } else {
                        SliceState::Sealed
                    },
                });
            }
        }
        // What is no longer live is forgotten.
        sealed.0 = known;
        Ok(standing)
    }
}
