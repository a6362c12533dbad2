//! thumbd on a real Redis Cluster: what one Redis can do, a cluster can; and what only a cluster can do to it.

mod basics;
mod failover;
mod nodes;
mod rollback;
mod scan;
mod slots;
mod start;

use thumbd::config::Settings;
use tokio::sync::OnceCell;

use crate::app;
use crate::redis_faults::until;
use crate::servers::TestEnv;
use crate::stand::{self, Stand};
pub(crate) use nodes::Cluster;

/// With these, each of three masters has some.
const PARTITIONS: u16 = 6;

/// Three masters that nobody hurts.
async fn shared() -> &'static Cluster {
    static SHARED: OnceCell<Cluster> = OnceCell::const_new();
    SHARED.get_or_init(Cluster::lasting).await
}

/// In one slice until a test seals.
fn settings_of(env: &TestEnv) -> Settings {
    Settings {
        partitions: PARTITIONS,
        ..app::settings(env)
    }
}

async fn stand_on(cluster: &Cluster) -> Stand {
    Stand::on(settings_of(&cluster.env().await)).await
}

/// Waits until thumbd reaches every master again by itself, with both of its ways.
async fn healed(t: &Stand) {
    let target = stand::target("none:0");
    for partition in 0..PARTITIONS {
        until("every master is reached", async || {
            let looked = t.hot.lookup(partition, None, std::slice::from_ref(&target));
            looked.await.is_ok() && t.hot.peek(partition).await.is_ok()
        })
        .await;
    }
}
