//! thumbd on a real Redis Cluster: what one Redis can do, a cluster can; and what only a cluster can do to it.

mod basics;
mod nodes;

use std::time::Duration;

use thumbd::config::{Secret, Settings};
use tokio::sync::OnceCell;

use crate::stand::{self, Stand};
use nodes::Cluster;

/// With these, each of three masters has some.
const PARTITIONS: u16 = 6;

/// Three masters that nobody hurts.
async fn shared() -> &'static Cluster {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    let start = || Cluster::start(false, Duration::from_secs(15));
    SHARED.get_or_init(start).await
}

async fn settings_on(cluster: &Cluster) -> Settings {
    Settings {
        redis_url: Some(Secret::new(cluster.url())),
        // No test outlives it, so that all is in one slice until a test seals.
        slice_seconds: 3600,
        ..stand::settings(PARTITIONS).await
    }
}

async fn stand_on(cluster: &Cluster) -> Stand {
    Stand::on(settings_on(cluster).await).await
}
