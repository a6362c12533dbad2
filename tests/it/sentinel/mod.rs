//! thumbd on a primary that sentinels watch: it follows them to a promoted replica, and writes to nobody else.

mod watch;

use std::time::Instant;

use crate::app;
use crate::load::under_load;
use crate::redis_faults::{agree, until};
use crate::stand::{Stand, target};
pub(crate) use watch::Sentinel;
use watch::Watched;

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_dies_under_load_and_the_promoted_replica_is_used() {
    let watched = Watched::start().await;
    let env = watched.env().await;
    let act = async || {
        let begun = Instant::now();
        watched.server(0).server.kill().unwrap();
        watched.another_than(0).await;
        let broken = (begun, Instant::now());
        // It comes back empty, and takes itself for the primary until a sentinel tells it otherwise: nobody may believe it.
        watched.server(0).server.restart().unwrap();
        watched.follows(0).await;
        vec![broken]
    };
    under_load(&env, 2, &[], act).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_became_a_replica_is_left_and_never_written_to() {
    let watched = Watched::start().await;
    let t = Stand::on(app::settings(&watched.env().await)).await;
    for user in ["u1", "u2"] {
        assert!(t.like(user, "blog:1").await.unwrap().changed);
    }
    t.flush().await;
    assert!(t.like("u3", "blog:1").await.unwrap().changed);
    watched.swap().await;
    watched.another_than(0).await;
    watched.follows(0).await;
    // Its connections were cut, or it says that it is read-only: the sentinels know better.
    until("the new primary is written to", async || {
        t.like("u4", "blog:1").await.is_ok() && t.hot.peek(0).await.is_ok()
    })
    .await;
    // Reads must not come from it either: it may lag.
    let of = [target("blog:1")];
    t.service.lookup(None, &of).await.unwrap();
    assert_eq!(t.look("u4", "blog:1").await, (Some(true), Some(4)));
    let role: String = watched.ask(0, &["INFO", "replication"]).await;
    assert!(role.contains("role:slave"), "{role}");
    agree(&t, &["u1", "u2", "u3", "u4"], &["blog:1"]).await;
}
