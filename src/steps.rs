//! Named points between two effects. In debug builds a test can hold a task at them, or end it there; in release builds they are nothing.
//!
//! There are two ways. A gate, given with [`gated`] to one future, is asked at each of its points. The variable `FAILPOINTS` works
//! on a whole process: `flush.applied=hold;cold.fill=delay(500);flush.marked=2*panic`. Each says on standard error that it acts.
//! `hold` never goes on, so that the process can be killed right there; `2*` means the second passing only.

#[cfg(debug_assertions)]
mod failpoints;

#[cfg(debug_assertions)]
pub use gated::{Gate, gated, holding, pause, point, spawn};

/// All points, by name.
pub const POINTS: &[&str] = &[
    "cold.fill",
    "cold.filled",
    "cold.read",
    "compensate.adopt",
    "compensate.adopted",
    "compensate.flushed",
    "compensate.pruned",
    "erase.commit",
    "erase.flushed",
    "erase.forgotten",
    "erase.marked",
    "erase.noted",
    "erase.raised",
    "erase.removed",
    "feed.delivered",
    "flush.applied",
    "flush.distrusted",
    "flush.dropped",
    "flush.gone",
    "flush.marked",
    "flush.page",
    "flush.read",
    "flush.recovered",
    "flush.sealed",
    "flush.state",
    "flush.undo",
    "flush.undone",
    "flush.unpinned",
    "flush.upto",
    "import.applied",
    "import.begun",
    "import.commit",
    "import.forgotten",
    "import.told",
    "lease.release",
    "lease.taken",
    "ledger.commit",
    "ledger.committed",
    "list.held",
    "list.recovering",
    "look.read",
    "look.recovering",
    "migrate.done",
    "migrate.locked",
    "migrate.table",
    "prune.remembered",
    "prune.removed",
    "recover.done",
    "recover.peek",
    "recover.reset",
    "recover.state",
    "relayout.drained",
    "relayout.retired",
    "relayout.stored",
    "repair.counted",
    "repair.forgotten",
    "restore.commit",
    "restore.flushed",
    "restore.forgotten",
    "restore.raised",
    "restore.stored",
    "retry.accepted",
    "thumb.answered",
    "thumb.not_held",
    "thumb.recovering",
];

#[cfg(debug_assertions)]
mod gated {
    use std::future::Future;
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;

    use super::failpoints;

    tokio::task_local! {
        static GATE: Arc<dyn Gate>;
    }

    /// Who decides when a task may go on. A future that never ends is a crash at this point.
    pub trait Gate: Send + Sync {
        /// Called at every point at which the task holds nothing.
        fn pass(&self, point: &'static str) -> BoxFuture<'static, ()>;

        /// Called at the others, see [`holding`].
        fn pass_holding(&self, _point: &'static str) -> BoxFuture<'static, ()> {
            async {}.boxed()
        }
    }

    /// Runs a future with a gate; what it starts with [`spawn`] has the same.
    pub async fn gated<F: Future>(gate: Arc<dyn Gate>, future: F) -> F::Output {
        GATE.scope(gate, future).await
    }

    /// A point between two effects.
    pub async fn point(name: &'static str) {
        failpoints::pass(name).await;
        if let Ok(gate) = GATE.try_with(Arc::clone) {
            gate.pass(name).await;
        }
    }

    /// A point at which the task holds what others wait for, such as a row lock. Whoever lets one task go on at a time must let
    /// this one pass, or nobody could go on.
    pub async fn holding(name: &'static str) {
        failpoints::pass(name).await;
        if let Ok(gate) = GATE.try_with(Arc::clone) {
            gate.pass_holding(name).await;
        }
    }

    /// A pause; behind a gate it is a point, and as long as the gate wants it.
    pub async fn pause(name: &'static str, length: Duration) {
        failpoints::pass(name).await;
        match GATE.try_with(Arc::clone) {
            Ok(gate) => gate.pass(name).await,
            Err(_) => tokio::time::sleep(length).await,
        }
    }

    /// Starts a task behind the same gate.
    pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
        match GATE.try_with(Arc::clone) {
            Ok(gate) => tokio::spawn(GATE.scope(gate, future)),
            Err(_) => tokio::spawn(future),
        };
    }
}

/// A point between two effects.
#[cfg(not(debug_assertions))]
#[inline]
pub async fn point(_name: &'static str) {}

/// A point at which the task holds what others wait for.
#[cfg(not(debug_assertions))]
#[inline]
pub async fn holding(_name: &'static str) {}

/// A pause.
#[cfg(not(debug_assertions))]
#[inline]
pub async fn pause(_name: &'static str, length: std::time::Duration) {
    tokio::time::sleep(length).await;
}

/// Starts a task.
#[cfg(not(debug_assertions))]
pub fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(future);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::POINTS;

    /// The names in calls of `point`, `holding` and `pause` below a directory. This file has none of its own.
    fn names(directory: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                names(&path, found);
            } else if path.extension().is_some_and(|ext| ext == "rs") && !path.ends_with("steps.rs")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                for call in ["point(", "holding(", "pause("] {
                    for rest in text.split(&format!("steps::{call}")).skip(1) {
                        let name = rest.trim_start().strip_prefix('"');
                        let name = name.unwrap_or_else(|| panic!("{}: no name", path.display()));
                        found.insert(name.split('"').next().unwrap().to_owned());
                    }
                }
            }
        }
    }

    #[test]
    fn the_list_of_points_is_that_of_the_calls() {
        let mut found = BTreeSet::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        names(&source, &mut found);
        let listed: BTreeSet<String> = POINTS.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(listed.len(), POINTS.len(), "a name stands there twice");
        assert!(POINTS.is_sorted());
        assert_eq!(listed, found);
    }
}
