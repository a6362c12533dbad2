//! Slice ids and versions: points in time of a partition's own monotonic clock.

use std::fmt;

/// Names a slice: Unix milliseconds, normally the start of its window; after a seal in mid-window, the millisecond behind the seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SliceId(pub u64);

impl SliceId {
    /// The last id that lies before the window of `now_ms`: sealing up to it leaves the current window open.
    pub const fn before_window(now_ms: u64, slice_ms: u64) -> Self {
        Self((now_ms / slice_ms * slice_ms).saturating_sub(1))
    }
}

impl fmt::Display for SliceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Orders the operations of one user: microseconds of the partition's clock, unique within the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_window_leaves_the_current_window_open() {
        assert_eq!(SliceId::before_window(20_000, 10_000), SliceId(19_999));
        assert_eq!(SliceId::before_window(29_999, 10_000), SliceId(19_999));
        assert_eq!(SliceId::before_window(30_000, 10_000), SliceId(29_999));
        assert_eq!(SliceId::before_window(1, 10_000), SliceId(0));
    }
}
