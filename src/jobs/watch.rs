//! Checks both stores whenever Redis may have become another one, and has the flush follow at once where something was reset.

use std::sync::Arc;

use super::desk::Desk;
use crate::limits::RECHECK_PAUSE;
use crate::service::Service;

/// Watches for ever.
pub(super) async fn watch(service: Service, desk: Arc<Desk>) {
    loop {
        tokio::select! {
            () = service.recovered() => desk.flush_due(),
            () = service.hot().trouble() => recheck(&service).await,
        }
    }
}

/// Until every partition could be checked. A reset makes itself heard as any other.
async fn recheck(service: &Service) {
    // The connection of requests notices that it is dead by its next call: that need not be somebody's like.
    let _ = service.hot().writes().await;
    for partition in 0..service.hot().partitions() {
        loop {
            tokio::time::sleep(RECHECK_PAUSE).await;
            match service.check(partition).await {
                Ok(_) => break,
                Err(error) => tracing::debug!(partition, %error, "not checked yet"),
            }
        }
    }
}
