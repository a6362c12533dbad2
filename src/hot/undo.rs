//! Calls of `undo.lua`.

use super::reply::int;
use super::scripts::UNDO;
use super::{Hot, HotError};
use crate::domain::{Entry, SliceId, Version};

/// What `undo.lua` is told.
#[derive(Debug, Clone, Copy)]
pub struct Undo<'a> {
    /// The flusher's token.
    pub fence: &'a str,
    /// The slice of the entry.
    pub slice: SliceId,
    /// What was refused.
    pub entry: &'a Entry,
    /// What MySQL has: liked or not, and since which version.
    pub row: Option<(bool, Version)>,
    /// All live slices that are newer, oldest first.
    pub newer: &'a [SliceId],
}

/// A reply of `undo.lua`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    /// User and count are as MySQL has them.
    Taken,
    /// Something newer stands there, or nothing.
    Nothing,
    /// The caller is not the current flusher.
    Overtaken,
    /// Other slices are live.
    Moved,
}

impl Hot {
    /// Takes an operation that went to quarantine out of what is resident.
    pub async fn undo(&self, partition: u16, undo: Undo<'_>) -> Result<Undone, HotError> {
        let keys = self.keys(partition);
        let entry = undo.entry;
        let mut call = UNDO.call(4 + undo.newer.len());
        call.arg(keys.meta())
            .arg(keys.slices())
            .arg(keys.user(&entry.user))
            .arg(keys.count(&entry.target));
        for id in undo.newer {
            call.arg(keys.slice(*id));
        }
        call.arg(undo.fence)
            .arg(undo.slice.0)
            .arg(entry.target.as_str())
            .arg(format!("{} {}", entry.user, entry.target))
            .arg(entry.value());
        match undo.row {
            Some((true, version)) => call.arg(version.0),
            Some((false, version)) => call.arg(format!("-{version}")),
            None => call.arg(""),
        };
        for id in undo.newer {
            call.arg(id.0);
        }
        Ok(match int(&self.job(&UNDO, &call).await?)? {
            1 => Undone::Taken,
            0 => Undone::Nothing,
            -1 => Undone::Overtaken,
            _ => Undone::Moved,
        })
    }
}
