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
    let mut left: Vec<u16> = (0..service.hot().partitions()).collect();
    while !left.is_empty() {
        let mut failed = Vec::new();
        for partition in left {
            tokio::time::sleep(RECHECK_PAUSE).await;
            // Others need not wait until the server of this one is back.
            if let Err(error) = service.check(partition).await {
                tracing::debug!(partition, %error, "not checked yet");
                failed.push(partition);
            }
        }
        left = failed;
    }
}
