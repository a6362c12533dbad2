//! What may happen in a run.

/// Chances are per step of the scheduler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) partitions: u16,
    /// Nobody takes a like back.
    pub(super) likes_only: bool,
    /// Users with more than one or two likes are partial.
    pub(super) partial: bool,
    /// Flushers at once.
    pub(super) flushers: usize,
    /// An actor dies.
    pub(super) crash: f64,
    /// A clean user, or a clean count, leaves Redis.
    pub(super) evict: f64,
    /// Somebody makes Redis forget a user and a count, as a repair does.
    pub(super) forget_keys: bool,
    /// Unliked rows are pruned as soon as nothing older can come.
    pub(super) prune: bool,
    /// A partition is emptied.
    pub(super) empty: f64,
    /// A partition is rolled back to an earlier state.
    pub(super) rollback: f64,
    /// MySQL loses its last transaction.
    pub(super) forget: f64,
    /// Slices are short and follow Redis's own time; the seed then does not decide everything.
    pub(super) real_time: bool,
}

/// Nothing but concurrency.
pub(super) const CALM: Scenario = Scenario {
    name: "no faults",
    partitions: 1,
    likes_only: false,
    partial: false,
    flushers: 1,
    crash: 0.0,
    evict: 0.0,
    forget_keys: false,
    prune: false,
    empty: 0.0,
    rollback: 0.0,
    forget: 0.0,
    real_time: false,
};

/// Actors die at any step, and two flushers run at once.
pub(super) const CRASHES: Scenario = Scenario {
    name: "crashes",
    flushers: 2,
    crash: 0.008,
    ..CALM
};

impl Scenario {
    /// Whether operations may be lost for good.
    pub(super) fn damages(&self) -> bool {
        self.empty + self.rollback + self.forget > 0.0
    }
}
