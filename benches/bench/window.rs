//! What a worker that makes load tells its parent: `go` when the measurement begins, `end` when it ends, then the outcome as JSON.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    process,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

/// What became of the load.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Length of the measurement.
    pub(crate) seconds: f64,
    /// Likes accepted within it.
    pub(crate) accepted: u64,
    /// Of those, the ones that changed something.
    pub(crate) changed: u64,
    /// Likes accepted in all, before and after it too.
    pub(crate) accepted_in_all: u64,
    /// Pairs that were taken from the order.
    pub(crate) used: u64,
    /// Everything that was not accepted, by status or kind of error.
    pub(crate) failures: BTreeMap<String, u64>,
    /// Microseconds of each answer; only where the rate is fixed.
    pub(crate) latencies: Vec<u32>,
}

impl Outcome {
    /// Accepted likes per second.
    pub(crate) fn rate(&self) -> f64 {
        self.accepted as f64 / self.seconds
    }

    pub(crate) fn failed(&mut self, reason: impl ToString, times: u64) {
        if times > 0 {
            *self.failures.entry(reason.to_string()).or_default() += times;
        }
    }
}

/// The time in which answers count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) begin: Instant,
    pub(crate) end: Instant,
}

impl Window {
    /// One that begins after `ramp`, and a thread that says so when it does, and when it has ended. It must be joined
    /// before the outcome is said.
    pub(crate) fn announce(ramp: Duration, length: Duration) -> (Self, JoinHandle<()>) {
        let begin = Instant::now() + ramp;
        let end = begin + length;
        let announcer = thread::spawn(move || {
            for (when, word) in [(begin, "go"), (end, "end")] {
                thread::sleep(when.saturating_duration_since(Instant::now()));
                say(word);
            }
        });
        (Self { begin, end }, announcer)
    }

    pub(crate) fn contains(&self, moment: Instant) -> bool {
        (self.begin..self.end).contains(&moment)
    }
}

/// Writes a line to the parent.
pub(crate) fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    // A parent that has gone will not miss it.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Calls `then` when the parent closes our stdin, or is gone.
pub(crate) fn when_let_go(then: impl FnOnce() + Send + 'static) {
    thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        then();
    });
}

/// Ends this process when the parent closes our stdin, or is gone.
pub(crate) fn exit_when_let_go() {
    when_let_go(|| process::exit(0));
}
