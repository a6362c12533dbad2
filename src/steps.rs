//! Named points between two effects. In test builds a test can hold a task at them, or end it there; in release builds they are nothing.

#[cfg(debug_assertions)]
mod gated {
    use std::future::Future;
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::future::BoxFuture;

    tokio::task_local! {
        static GATE: Arc<dyn Gate>;
    }

    /// Who decides when a task may go on. A future that never ends is a crash at this point.
    pub trait Gate: Send + Sync {
        /// Called at every point.
        fn pass(&self, point: &'static str) -> BoxFuture<'static, ()>;
    }

    /// Runs a future with a gate; what it starts with [`spawn`] has the same.
    pub async fn gated<F: Future>(gate: Arc<dyn Gate>, future: F) -> F::Output {
        GATE.scope(gate, future).await
    }

    /// A point between two effects.
    pub async fn point(name: &'static str) {
        if let Ok(gate) = GATE.try_with(Arc::clone) {
            gate.pass(name).await;
        }
    }

    /// A pause; behind a gate it is a point, and as long as the gate wants it.
    pub async fn pause(name: &'static str, length: Duration) {
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

#[cfg(debug_assertions)]
pub use gated::{Gate, gated, pause, point, spawn};

/// A point between two effects.
#[cfg(not(debug_assertions))]
#[inline]
pub async fn point(_name: &'static str) {}

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
