//! The flush on real servers, one run at a time: what lands, what stays, and who may go on.

mod held;
mod lands;
mod prune;
mod quarantine;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use thumbd::domain::SliceId;
use thumbd::hot::Sealed;
use thumbd::steps::Gate;
use tokio::sync::Notify;

use crate::stand::Stand;

/// Holds a task the first time it comes to a point.
pub(crate) struct Hold {
    always: bool,
    point: &'static str,
    held: AtomicBool,
    pub(crate) reached: Notify,
    pub(crate) go_on: Arc<Notify>,
}

impl Hold {
    pub(crate) fn at(point: &'static str) -> Arc<Self> {
        Self::new(point, false)
    }

    /// Holds it each time.
    pub(crate) fn always(point: &'static str) -> Arc<Self> {
        Self::new(point, true)
    }

    fn new(point: &'static str, always: bool) -> Arc<Self> {
        Arc::new(Self {
            always,
            point,
            held: AtomicBool::new(false),
            reached: Notify::new(),
            go_on: Arc::default(),
        })
    }
}

impl Gate for Hold {
    fn pass(&self, point: &'static str) -> BoxFuture<'static, ()> {
        if point != self.point || self.held.swap(true, Ordering::SeqCst) && !self.always {
            return async {}.boxed();
        }
        self.reached.notify_one();
        let go_on = Arc::clone(&self.go_on);
        async move { go_on.notified().await }.boxed()
    }

    fn pass_holding(&self, point: &'static str) -> BoxFuture<'static, ()> {
        self.pass(point)
    }
}

impl Stand {
    /// Closes what is open without flushing it, as a flusher that dies there would.
    async fn seal_only(&self, partition: u16) -> Vec<SliceId> {
        let last = self.ledger.flush_state().await.unwrap().last;
        let upto = SliceId(self.peek(partition).await.time_ms);
        let sealed = self.hot.seal(partition, upto, last, "dead", 60_000).await;
        match sealed.unwrap() {
            Sealed::Done { live, .. } => live,
            other => panic!("{other:?}"),
        }
    }

    async fn row(&self, user: &str, id: &str) -> Option<i64> {
        let count = format!(
            "SELECT CAST(COALESCE(MAX(thumbed), -1) AS SIGNED) FROM thumb WHERE user_id = '{user}' AND target_id = '{id}'"
        );
        Some(self.number(&count).await).filter(|row| *row >= 0)
    }
}
