//! What may be wrong with Redis.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use thumbd::config::{Secret, Settings};

use super::{NOBODY, PASSWORD, WRONG, bad, look, says, stand};
use crate::chaos::Proxy;
use crate::redis_faults::{Own, until};
use crate::stand::{command, raw_redis};

/// Settings on a Redis of its own, whose database was used before, and a connection to that Redis.
async fn on(own: &Own) -> (Settings, MultiplexedConnection) {
    let settings = Settings {
        redis_url: Some(Secret::new(own.server.url())),
        ..stand().await.settings
    };
    let redis = raw_redis(&settings).await;
    // As if it had always been so.
    thumbd::service::Service::build(&settings).await.unwrap();
    (settings, redis)
}

async fn set(redis: &MultiplexedConnection, name: &str, value: &str) {
    command::<()>(redis, &["CONFIG", "SET", name, value]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_is_set_to_is_found() {
    let own = Own::start(|options| options.aof = true);
    let (settings, redis) = on(&own).await;
    assert_eq!(bad(&look(&settings).await), [""; 0]);

    set(&redis, "appendfsync", "no").await;
    says(
        &look(&settings).await,
        "warning redis persistence",
        &["appendfsync everysec"],
    );
    set(&redis, "appendonly", "no").await;
    says(
        &look(&settings).await,
        "failure redis persistence",
        &["appendonly yes"],
    );
    set(&redis, "save", "3600 1").await;
    says(
        &look(&settings).await,
        "warning redis persistence",
        &["snapshot"],
    );

    set(&redis, "maxmemory-policy", "allkeys-lru").await;
    says(
        &look(&settings).await,
        "failure redis eviction",
        &["allkeys-lru", "CONFIG SET maxmemory-policy noeviction"],
    );
    set(&redis, "maxmemory-policy", "volatile-lru").await;
    says(
        &look(&settings).await,
        "ok redis eviction",
        &["volatile-lru"],
    );

    set(&redis, "maxmemory", "100000").await;
    says(&look(&settings).await, "ok redis memory", &[]);
    set(&redis, "maxmemory-policy", "noeviction").await;
    says(
        &look(&settings).await,
        "failure redis memory",
        &["likes are refused"],
    );
    set(&redis, "maxmemory", "0").await;

    set(&redis, "min-replicas-to-write", "1").await;
    says(
        &look(&settings).await,
        "failure redis replication",
        &["0 replicas", "CONFIG SET min-replicas-to-write 0"],
    );
    set(&redis, "min-replicas-to-write", "0").await;
    // There are snapshots.
    assert_eq!(bad(&look(&settings).await), ["warning redis persistence"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_no_master() {
    let master = Own::start(|options| options.tcp = true);
    let replica = Own::start(|_| {});
    let (settings, redis) = on(&replica).await;
    let port = master.server.port().unwrap().to_string();
    command::<()>(&redis, &["REPLICAOF", "127.0.0.1", &port]).await;
    until("it is a replica", async || {
        let text: String = command(&redis, &["INFO", "replication"]).await;
        text.contains("master_link_status:up")
    })
    .await;
    let report = look(&settings).await;
    says(
        &report,
        "failure redis role",
        &["not a master", "REPLICAOF NO ONE"],
    );
    let master = Settings {
        redis_url: Some(Secret::new(master.server.url())),
        ..settings
    };
    let report = look(&master).await;
    says(&report, "ok redis role", &[]);
    says(&report, "ok redis replication", &["1 replicas connected"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_too_little_is_told_what_is_missing() {
    let own = Own::start(|options| options.aof = true);
    let (settings, redis) = on(&own).await;
    let prefix = &settings.key_prefix;
    let user = async |rules: &[&str]| {
        let password = format!(">{PASSWORD}");
        let mut words = vec!["ACL", "SETUSER", "likes", "reset", "on", &password];
        words.extend(rules);
        command::<()>(&redis, &words).await;
    };
    let likes = format!("://likes:{PASSWORD}@");
    let proxy = Proxy::before_url(&own.server.url()).await;
    let settings = Settings {
        redis_url: Some(Secret::new(proxy.redis_url().replace("://", &likes))),
        ..settings.clone()
    };
    let keys = format!("~{prefix}:*");
    user(&[&keys, "+@all"]).await;
    assert_eq!(bad(&look(&settings).await), [""; 0]);
    // Nobody needs the rights of an administrator, or those to look at what is set.
    user(&[&keys, "+@all", "-@admin", "-@dangerous", "+info"]).await;
    let report = look(&settings).await;
    assert_eq!(bad(&report), [""; 0]);
    says(&report, "ok redis persistence", &["CONFIG GET"]);

    user(&[&keys, "+@all", "-hset", "-xadd"]).await;
    let fix = format!("ACL SETUSER likes ~{prefix}:* +hset +xadd,");
    says(
        &look(&settings).await,
        "failure redis rights",
        &["may not HSET, XADD", &fix],
    );
    user(&["~another:*", "+@all"]).await;
    says(
        &look(&settings).await,
        "failure redis rights",
        &["HSET", "MSET"],
    );
    user(&[&keys, "+@all", "-eval", "-evalsha"]).await;
    says(
        &look(&settings).await,
        "failure redis rights",
        &["+eval +evalsha"],
    );
    user(&[&keys, "+@all", "-info"]).await;
    says(&look(&settings).await, "failure redis reach", &["info"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_lets_nobody_in_leaves_the_database_to_be_looked_at() {
    let own = Own::start(|options| options.aof = true);
    let (settings, redis) = on(&own).await;
    let proxy = Proxy::before_url(&own.server.url()).await;
    let with = |url: String| Settings {
        redis_url: Some(Secret::new(url)),
        ..settings.clone()
    };
    let only_redis = [
        "failure redis reach",
        "skipped redis rest",
        "skipped both stores",
    ];
    set(&redis, "requirepass", PASSWORD).await;
    let wrong = format!("://:{WRONG}@");
    let report = look(&with(proxy.redis_url().replace("://", &wrong))).await;
    assert_eq!(bad(&report), only_redis);
    says(
        &report,
        "failure redis reach",
        &["authentication failed", "THUMBD_REDIS_URL"],
    );
    let report = look(&with(proxy.redis_url())).await;
    assert_eq!(bad(&report), only_redis);
    says(&report, "failure redis reach", &["NOAUTH"]);

    let report = look(&with(format!("redis://:{PASSWORD}@{NOBODY}"))).await;
    assert_eq!(bad(&report), only_redis);
    says(&report, "failure redis reach", &["Connection refused"]);
    says(&report, "ok database schema", &[]);

    proxy.black_hole(true);
    let begun = Instant::now();
    let report = look(&with(proxy.redis_url())).await;
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(bad(&report), only_redis);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_too_old_is_found() {
    let own = Own::start(|options| options.aof = true);
    let (settings, _redis) = on(&own).await;
    let proxy = Proxy::before_url(&own.server.url()).await;
    for major in 7..10 {
        proxy.rewrite(&format!("redis_version:{major}."), "redis_version:6.");
    }
    let settings = Settings {
        redis_url: Some(Secret::new(proxy.redis_url())),
        ..settings
    };
    let report = look(&settings).await;
    assert_eq!(bad(&report), ["failure redis version"]);
    says(
        &report,
        "failure redis version",
        &["too old", "install Redis 7.0"],
    );
}
