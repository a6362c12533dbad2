//! Likes, reads, flushes, leftovers and checks on three masters.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::json;
use thumbd::domain::SliceId;
use thumbd::flush::Upto;

use super::{PARTITIONS, shared, stand_on};
use crate::app::{ADMIN_TOKEN, SERVICE_KEY, send};
use crate::redis_faults::agree;
use crate::serve::{Serve, until};
use crate::stand::outcome;

#[tokio::test(flavor = "multi_thread")]
async fn likes_land_from_every_master() {
    let cluster = shared().await;
    let t = stand_on(cluster).await;
    let users: Vec<String> = (0..30).map(|n| format!("u{n}")).collect();
    for (n, user) in users.iter().enumerate() {
        let count = i64::try_from(n).unwrap() + 1;
        assert_eq!(t.like(user, "blog:1").await.unwrap(), outcome(true, count));
        assert_eq!(t.like(user, "blog:1").await.unwrap(), outcome(false, count));
    }
    let mut owners = BTreeSet::new();
    for partition in 0..PARTITIONS {
        owners.insert(cluster.owner(&t.settings, partition).await);
    }
    assert_eq!(owners.len(), 3, "the partitions are not spread");
    let report = t.flush().await;
    assert_eq!(report.entries, 30);
    assert_eq!(t.unlike("u7", "blog:1").await.unwrap(), outcome(true, 29));
    assert_eq!(t.look("u7", "blog:1").await, (Some(false), Some(29)));
    let verified = t.verify().await;
    assert_eq!((verified.users, verified.differences), (30, vec![]));
    agree(&t, &users, &["blog:1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_with_braces_and_colons_stay_in_their_slots() {
    let t = stand_on(shared().await).await;
    let ids = [
        "{", "}", "{}", "}{", "{a}", "a{b}c", "{0}", "{1}:meta", "%7B1%7D", "a|b", "a:b", ":",
        "::", "*", "?", "[a]", "\\", "\"", "'", "#", "{{{", "}}}", "a}b{c", "{a|b}",
    ];
    let targets: Vec<String> = ids.iter().map(|id| format!("blog:{id}")).collect();
    for user in ids {
        for target in &targets {
            let liked = t.like(user, target).await;
            assert!(liked.unwrap().changed, "{user} {target}");
        }
    }
    t.flush().await;
    for user in ids {
        assert!(t.unlike(user, "blog:{}").await.unwrap().changed, "{user}");
    }
    t.flusher.compensate(|| Upto::Now).await.unwrap();
    agree(&t, &ids[..6], &targets[..6]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_are_found_on_every_master() {
    let cluster = shared().await;
    let t = stand_on(cluster).await;
    let mut homes = BTreeSet::new();
    let users: Vec<String> = (0..40).map(|n| format!("u{n}")).collect();
    for user in &users {
        t.like(user, "blog:1").await.unwrap();
        homes.insert(t.home(user));
    }
    assert_eq!(homes.len(), usize::from(PARTITIONS));
    // Sealed, and then not listed any more, as if an older program had lost them.
    let last = t.ledger.flush_state().await.unwrap().last;
    for partition in 0..PARTITIONS {
        let peek = t.peek(partition).await;
        let upto = SliceId(peek.time_ms).max(peek.live[0]);
        t.hot.seal(partition, upto, last, "f", 0).await.unwrap();
        let slices = t.key(partition, "slices");
        let command = ["DEL", &*slices];
        cluster
            .command::<()>(&t.settings, partition, &command)
            .await;
        assert_eq!(t.hot.slices_found(partition).await.unwrap().len(), 1);
    }
    let report = t.flusher.compensate(|| Upto::Now).await.unwrap();
    assert_eq!(report.slices_adopted, u64::from(PARTITIONS));
    assert_eq!(report.flush.entries, 40);
    agree(&t, &users, &["blog:1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_over_http_works_on_a_cluster() {
    let cluster = shared().await;
    let env = cluster.env().await;
    let settings = |partitions| {
        [
            ("THUMBD_PARTITIONS", partitions),
            ("THUMBD_FEED", "stream"),
            (
                "THUMBD_KINDS",
                "blog+user_operations_per_minute=60+user_operations_burst=30\
                 +toggle_cooldown_ms=1000+toggle_cooldown_max_ms=60000",
            ),
        ]
    };
    let serve = Serve::start(&env, &settings("6")).await;
    let operations = (0..20).map(|n| {
        json!({ "op": "like", "user": format!("u{n}"), "kind": "blog", "id": (n % 4).to_string() })
    });
    let answer = serve.batch(operations.collect()).await;
    for result in answer["results"].as_array().unwrap() {
        assert_eq!(result["changed"], true, "{answer}");
    }
    let durable = serve.one(Method::PUT, "u1", "blog/0?durability=ledger&wait_ms=8000");
    let durable = send(durable).await;
    assert_eq!(durable.json()["count"], 6, "{durable:?}");
    assert_eq!(
        send(serve.one(Method::DELETE, "u1", "blog/0")).await.status,
        429
    );
    let post = serve.client.post(format!("{}/v1/lookup", serve.url));
    let targets =
        json!({ "targets": [{ "kind": "blog", "id": "0" }, { "kind": "blog", "id": "1" }] });
    let looked = send(post.bearer_auth(SERVICE_KEY).json(&targets)).await;
    assert_eq!(looked.status, 200, "{looked:?}");
    assert_eq!(looked.text.matches("\"count\":6").count(), 1, "{looked:?}");
    for path in [
        "/v1/likes/blog/0/users",
        "/v1/users/u1/likes",
        "/v1/rankings/blog",
    ] {
        let list = serve.client.get(format!("{}{path}", serve.url));
        assert_eq!(
            send(list.bearer_auth(SERVICE_KEY)).await.status,
            200,
            "{path}"
        );
    }
    serve.admin("/admin/v1/compensations").await.unwrap();
    let erase = serve
        .client
        .delete(format!("{}/admin/v1/users/u0", serve.url));
    let job = send(erase.bearer_auth(ADMIN_TOKEN)).await;
    let place = job.headers["location"].to_str().unwrap().to_owned();
    until("the user is erased", async || {
        let job = serve.client.get(format!("{}{place}", serve.url));
        send(job.bearer_auth(ADMIN_TOKEN)).await.json()["status"] == "done"
    })
    .await;
    until("the feed has told all", async || {
        let stream = format!("{}:v1:feed", env.key_prefix);
        let mut told = 0;
        for n in 0..cluster.count() {
            // Who does not have it says MOVED.
            told += cluster.try_ask(n, &["XLEN", &stream]).await.unwrap_or(0);
        }
        told >= 21
    })
    .await;
    assert_eq!(serve.get("u4", "blog/0").await.json()["count"], 5);
    serve.verify().await;
    serve.stop();
    // Another number of partitions: other slots, and all that was there lands before.
    let serve = Serve::start(&env, &settings("9")).await;
    assert_eq!(serve.get("u4", "blog/0").await.json()["count"], 5);
    assert_eq!(serve.like("u30", "blog/0").await.json()["count"], 6);
    serve.verify().await;
    serve.stop();
}
