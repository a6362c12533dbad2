//! One master comes back with data of before a seal, the others with none of it: that one is recognised, alone.

use std::time::Duration;

use thumbd::domain::partition_of;

use super::{Cluster, PARTITIONS, healed, stand_on};
use crate::history::rows;
use crate::redis_faults::agree;
use crate::stand::user;

/// Longer than the test: nobody fails over.
const NEVER: Duration = Duration::from_secs(600);
const USERS: usize = 30;

#[tokio::test(flavor = "multi_thread")]
async fn one_master_that_is_rolled_back_loses_what_only_it_had() {
    let cluster = Cluster::start(false, NEVER).await;
    let t = stand_on(&cluster).await;
    let users: Vec<String> = (0..USERS).map(|n| format!("u{n}")).collect();
    let like = async |target: &str| {
        for user in &users {
            assert!(t.like(user, target).await.unwrap().changed);
        }
    };
    like("blog:1").await;
    t.flush().await;
    let mut owners = Vec::new();
    for partition in 0..PARTITIONS {
        owners.push(cluster.owner(&t.settings, partition).await);
    }
    let hurt = owners[0];
    // In the snapshot, and flushed behind it; flushed behind it; never flushed.
    like("blog:2").await;
    cluster.ask::<()>(hurt, &["SAVE"]).await;
    like("blog:3").await;
    t.flush().await;
    like("blog:4").await;
    let mut generations = Vec::new();
    for partition in 0..PARTITIONS {
        generations.push(t.peek(partition).await.generation);
    }
    cluster.kill(hurt);
    cluster.restart(hurt);
    cluster.settled().await;
    healed(&t).await;
    t.flush().await;
    for (partition, generation) in (0..PARTITIONS).zip(generations) {
        let same = t.peek(partition).await.generation == generation;
        assert_eq!(same, owners[usize::from(partition)] != hurt, "{partition}");
    }
    let rows = rows(&t.pool).await;
    for name in &users {
        let home = partition_of(&user(name), PARTITIONS);
        for target in ["blog:1", "blog:2", "blog:3", "blog:4"] {
            let row = rows.get(&(name.clone(), target.to_owned()));
            let lost = target == "blog:4" && owners[usize::from(home)] == hurt;
            assert_eq!(row.is_some(), !lost, "{name} {target}");
        }
    }
    agree(&t, &users[..6], &["blog:1", "blog:2", "blog:3", "blog:4"]).await;
}
