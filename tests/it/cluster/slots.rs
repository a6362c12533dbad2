//! Slots move from one master to another under load: what is in motion is refused, and nothing is lost or wrong.

use std::time::Duration;

use super::{Cluster, PARTITIONS, settings_of};
use crate::load::under_load;
use crate::stand::key;

/// Longer than the test: nobody fails over.
const NEVER: Duration = Duration::from_secs(600);
/// Keys that move at once: few, so that clients meet a slot of which some are here and some there.
const KEYS_AT_ONCE: &str = "3";

/// Moves a slot as `redis-cli --cluster reshard` does, slowly.
async fn moved(cluster: &Cluster, slot: &str, from: usize, to: usize) {
    let source: String = cluster.ask(from, &["CLUSTER", "MYID"]).await;
    let target: String = cluster.ask(to, &["CLUSTER", "MYID"]).await;
    let set = ["CLUSTER", "SETSLOT", slot];
    let importing = [&set[..], &["IMPORTING", &source]].concat();
    cluster.ask::<()>(to, &importing).await;
    let migrating = [&set[..], &["MIGRATING", &target]].concat();
    cluster.ask::<()>(from, &migrating).await;
    let port = cluster.port(to).to_string();
    loop {
        let get = ["CLUSTER", "GETKEYSINSLOT", slot, KEYS_AT_ONCE];
        let keys: Vec<String> = cluster.ask(from, &get).await;
        if keys.is_empty() {
            break;
        }
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        cluster.ask::<()>(from, &words).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    let node = [&set[..], &["NODE", &target]].concat();
    cluster.ask::<()>(to, &node).await;
    for n in 0..cluster.count() {
        cluster.ask::<()>(n, &node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_move_under_load_and_nothing_is_lost() {
    let cluster = Cluster::start(false, NEVER).await;
    let env = cluster.env().await;
    let settings = settings_of(&env);
    let act = async || {
        for partition in 0..PARTITIONS {
            let from = cluster.owner(&settings, partition).await;
            let meta = key(&settings, partition, "meta");
            let slot: i64 = cluster.ask(from, &["CLUSTER", "KEYSLOT", &meta]).await;
            let to = (from + 1) % cluster.count();
            moved(&cluster, &slot.to_string(), from, to).await;
            assert_eq!(cluster.owner(&settings, partition).await, to);
        }
        vec![]
    };
    under_load(&env, PARTITIONS, &[], act).await;
}
