//! Masters die under load and their replicas take over: no restart of thumbd, and what is lost is what the failover itself lost.

use std::time::{Duration, Instant};

use super::{Cluster, PARTITIONS, settings_of};
use crate::load::under_load;
use crate::servers::slow;

const NODE_TIMEOUT: Duration = Duration::from_millis(1500);

#[tokio::test(flavor = "multi_thread")]
async fn each_master_fails_over_under_load() {
    // The short run has one only.
    let times = if slow() { 3 } else { 1 };
    let cluster = Cluster::start(true, NODE_TIMEOUT).await;
    let env = cluster.env().await;
    let settings = settings_of(&env);
    let act = async || {
        let mut breaks = Vec::new();
        for partition in 0..PARTITIONS {
            let owner = cluster.owner(&settings, partition).await;
            // One that was promoted here is no new case.
            if breaks.len() == times || owner >= cluster.count() / 2 {
                continue;
            }
            let begun = Instant::now();
            cluster.kill(owner);
            cluster.failed_over(&settings, partition, owner).await;
            breaks.push((begun, Instant::now()));
            // It comes back as a replica.
            cluster.restart(owner);
            cluster.settled().await;
        }
        assert_eq!(breaks.len(), times);
        breaks
    };
    under_load(&env, PARTITIONS, &[], act).await;
}
