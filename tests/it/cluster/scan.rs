//! A SCAN of all masters while one of them is away or comes back as another: an error, and no early end.

use std::time::Duration;

use thumbd::flush::{FlushError, Upto};
use thumbd::hot::{HotError, ScanCursor};

use super::{Cluster, PARTITIONS, healed, stand_on};
use crate::redis_faults::agree;
use crate::stand::Stand;

/// Longer than the test: nobody fails over.
const NEVER: Duration = Duration::from_secs(600);
/// Some pages.
const KEYS: usize = 4000;

/// Puts so many counts of nothing into a partition that a SCAN has several pages on its master.
async fn filled(cluster: &Cluster, t: &Stand, partition: u16) {
    let mut words = vec!["MSET".to_owned()];
    for n in 0..KEYS {
        words.push(t.key(partition, &format!("count:none:{n}")));
        words.push("0123456789abcdef0:0".to_owned());
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    cluster.command::<()>(&t.settings, partition, &words).await;
}

async fn emptied(cluster: &Cluster, t: &Stand, partition: u16) {
    let mut words = vec!["UNLINK".to_owned()];
    words.extend((0..KEYS).map(|n| t.key(partition, &format!("count:none:{n}"))));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    cluster.command::<()>(&t.settings, partition, &words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_is_away_during_a_scan_is_an_error_and_no_end() {
    let cluster = Cluster::start(false, NEVER).await;
    let t = stand_on(&cluster).await;
    let users: Vec<String> = (0..12).map(|n| format!("u{n}")).collect();
    for user in &users {
        t.like(user, "blog:1").await.unwrap();
    }
    let partition = t.home("u1");
    let owner = cluster.owner(&t.settings, partition).await;
    filled(&cluster, &t, partition).await;

    // The whole SCAN of a healthy cluster, for comparison.
    let mut cursor = ScanCursor::default();
    let mut seen = 0;
    while !cursor.ended() {
        let page = t.hot.resident_keys_page(partition, false, &mut cursor);
        seen += page.await.unwrap().len();
    }
    assert!(seen >= KEYS, "{seen}");

    // It dies between two pages.
    let mut cursor = ScanCursor::default();
    let mut seen = 0;
    while seen == 0 {
        let page = t.hot.resident_keys_page(partition, false, &mut cursor);
        seen += page.await.unwrap().len();
        assert!(!cursor.ended());
    }
    cluster.kill(owner);
    let page = t.hot.resident_keys_page(partition, false, &mut cursor);
    page.await.unwrap_err();
    // Nor is what comes behind it.
    let page = t.hot.resident_keys_page(partition, false, &mut cursor);
    assert!(matches!(page.await, Err(HotError::ScanCut)));
    assert!(!cursor.ended());
    // From the beginning it is an error for every partition: a slot may be on its way to the one that is away.
    for partition in 0..PARTITIONS {
        t.hot.slices_found(partition).await.unwrap_err();
    }
    let compensated = t.flusher.compensate(|| Upto::Now).await;
    assert!(
        matches!(compensated, Err(FlushError::Hot(_))),
        "{compensated:?}"
    );

    // It comes back empty between two pages: what it had is not there, and nobody may take that for the whole.
    cluster.restart(owner);
    cluster.settled().await;
    healed(&t).await;
    t.flush().await;
    filled(&cluster, &t, partition).await;
    let mut cursor = ScanCursor::default();
    let mut seen = 0;
    while seen == 0 {
        let page = t.hot.resident_keys_page(partition, false, &mut cursor);
        seen += page.await.unwrap().len();
        assert!(!cursor.ended());
    }
    cluster.kill(owner);
    cluster.restart(owner);
    cluster.settled().await;
    healed(&t).await;
    let cut = loop {
        let page = t.hot.resident_keys_page(partition, false, &mut cursor);
        match page.await {
            Ok(_) => assert!(!cursor.ended(), "it passes for the whole"),
            Err(error) => break error,
        }
    };
    assert!(matches!(cut, HotError::ScanCut), "{cut:?}");
    t.flush().await;
    emptied(&cluster, &t, partition).await;
    // What only that master had is lost, and everything agrees about it.
    agree(&t, &users, &["blog:1"]).await;
}
