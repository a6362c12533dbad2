//! Remembers that Redis could not be reached or lost a reply: what comes back may be another Redis, or an emptied one.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use super::{Hot, HotError};

/// Whether a call went wrong since somebody asked.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    noted: AtomicBool,
    changed: Notify,
}

impl Trouble {
    pub(super) fn note(&self) {
        // Mostly it is noted already, by calls that fail by the thousand.
        if !self.noted.swap(true, Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }

    pub(super) fn look<T>(&self, result: &Result<T, HotError>) {
        if let Err(HotError::Unreachable(_) | HotError::Unknown(_)) = result {
            self.note();
        }
    }
}

impl Hot {
    /// Notes that Redis may be another one by now.
    pub fn trouble_note(&self) {
        self.0.trouble.note();
    }

    /// Waits until a call went wrong, and forgets it. For one caller.
    pub async fn trouble(&self) {
        let trouble = &self.0.trouble;
        while !trouble.noted.swap(false, Ordering::SeqCst) {
            trouble.changed.notified().await;
        }
    }
}
