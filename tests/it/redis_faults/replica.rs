//! A replica that lags is promoted: what it had not received is lost, and nothing else.

use super::{Own, agree, healed, info, liked_in_rows, stand_on, until, version_max};
use crate::chaos::{Proxy, Upstream};
use crate::stand::{Stand, command, outcome};

/// Two servers, a link between them that can be robbed, and thumbd behind a proxy that can be pointed to the other one.
struct Pair {
    master: Own,
    replica: Own,
    link: Proxy,
    front: Proxy,
    t: Stand,
}

async fn ask(own: &Own, words: &[&str]) -> String {
    let client = redis::Client::open(own.server.url()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    command(&connection, words).await
}

impl Pair {
    async fn start() -> Self {
        let (master, replica) = (Own::start(|options| options.tcp = true), Own::start(|_| {}));
        let link = Proxy::before_url(&master.server.url()).await;
        let front = Proxy::before_url(&master.server.url()).await;
        let t = stand_on(&front.redis_url(), |_| {}).await;
        ask(&master, &["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await;
        let address = link.redis_url();
        let port = address.rsplit(':').next().unwrap();
        ask(&replica, &["REPLICAOF", "127.0.0.1", port]).await;
        let pair = Self {
            master,
            replica,
            link,
            front,
            t,
        };
        pair.caught_up().await;
        pair
    }

    /// Waits until the replica has all that the master has.
    async fn caught_up(&self) {
        until("the replica has caught up", async || {
            let text = ask(&self.replica, &["INFO", "replication"]).await;
            let offset = text
                .lines()
                .find_map(|line| line.strip_prefix("slave_repl_offset:"));
            text.contains("master_link_status:up")
                && offset == Some(&*info(&self.t, "master_repl_offset").await)
        })
        .await;
    }

    /// The master dies with what only it had; thumbd finds the replica in its place.
    async fn promote(&mut self) {
        self.master.server.kill().unwrap();
        ask(&self.replica, &["REPLICAOF", "NO", "ONE"]).await;
        self.front
            .retarget(Upstream::of(&self.replica.server.url()));
        self.front.cut();
        healed(&mut self.t).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lagging_replica_loses_what_it_had_not_received_and_nothing_else() {
    // With a seal behind the loss, and without.
    for sealed in [false, true] {
        let mut pair = Pair::start().await;
        for user in ["u1", "u2", "u3"] {
            pair.t.like(user, "blog:1").await.unwrap();
        }
        pair.t.flush().await;
        pair.t.like("u4", "blog:1").await.unwrap();
        pair.caught_up().await;
        pair.link.black_hole(true);
        pair.t.like("u5", "blog:1").await.unwrap();
        pair.t.unlike("u1", "blog:1").await.unwrap();
        if sealed {
            // Landed, and so not lost, though the replica never hears of it.
            pair.t.flush().await;
            pair.t.like("u6", "blog:1").await.unwrap();
        }
        let clock = pair.t.peek(0).await.clock;
        let state = pair.t.ledger.flush_state().await.unwrap();
        pair.promote().await;
        let t = &pair.t;
        assert_eq!(t.peek(0).await.sealed < state.last, sealed);
        t.flush().await;
        let after = t.peek(0).await;
        assert!(after.clock >= state.max_version && after.sealed >= state.last);
        let users = ["u1", "u2", "u3", "u4", "u5", "u6"];
        agree(t, &users, &["blog:1"]).await;
        let mut likers = Vec::new();
        for user in users {
            if liked_in_rows(t, user, "blog:1").await {
                likers.push(user);
            }
        }
        let right: &[&str] = if sealed {
            &["u2", "u3", "u4", "u5"]
        } else {
            &["u1", "u2", "u3", "u4"]
        };
        assert_eq!(likers, right);
        // Versions go on behind all that there ever were.
        let before = version_max(t).await;
        assert_eq!(t.unlike("u2", "blog:1").await.unwrap(), outcome(true, 3));
        assert!(t.peek(0).await.clock > clock);
        agree(t, &users, &["blog:1"]).await;
        assert!(version_max(t).await > before);
    }
}
