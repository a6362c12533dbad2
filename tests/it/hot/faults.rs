//! A Redis that forgets its scripts, and one that is full.

use thumbd::config::{Secret, Settings};
use thumbd::dev::{RedisOptions, RedisServer};
use thumbd::hot::{Answer, HotError, Looked, State};

use super::{TestHot, WINDOW, cold_count, cold_user, done};
use crate::servers::redis_options;
use crate::stand::{self, target, user};

/// A Redis of this test alone.
async fn own(partitions: u16) -> (RedisServer, TestHot) {
    let dir = tempfile::tempdir().unwrap().keep();
    let server = RedisServer::start(RedisOptions {
        aof: false,
        ephemeral: true,
        ..redis_options(dir)
    })
    .unwrap();
    let t = on(&server, partitions).await;
    (server, t)
}

async fn on(server: &RedisServer, partitions: u16) -> TestHot {
    let settings = Settings {
        redis_url: Some(Secret::new(server.url())),
        ..stand::settings(partitions).await
    };
    TestHot::on(settings).await
}

#[tokio::test]
async fn scripts_are_loaded_again() {
    let (_server, t) = own(1).await;
    let forget = || t.command::<()>(&["SCRIPT", "FLUSH"]);
    forget().await;
    t.resident(&["u1"], &["blog:1"]).await;
    forget().await;
    assert_eq!(t.like("u1", "blog:1").await, done(true, 1));
    forget().await;
    assert_eq!(t.unlike("u1", "blog:1").await, done(true, 0));
    forget().await;
    t.hot.lookup(0, None, &[target("blog:1")]).await.unwrap();
    forget().await;
    t.seal(WINDOW, "a").await;
    forget().await;
    assert!(t.hot.mark(0, WINDOW, "a").await.unwrap());
    forget().await;
    assert!(t.unpin(WINDOW, "a", (&["u1"], &["blog:1"]), 100).await);
    forget().await;
    assert!(t.hot.drop_slice(0, WINDOW, "a", 0, &[]).await.unwrap());
    forget().await;
    assert_eq!(t.peek().await.kept, [WINDOW]);
}

#[tokio::test]
async fn a_full_redis_refuses_whole_and_can_be_drained() {
    for partitions in [1, 4] {
        let (_server, t) = own(partitions).await;
        t.resident(&["u1", "u2"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        let before = t.peek().await;
        // More is in use than this, so nothing that needs memory is served.
        let memory = |bytes: &'static str| {
            let redis = t.redis.clone();
            async move {
                stand::command::<()>(&redis, &["CONFIG", "SET", "maxmemory", bytes]).await;
            }
        };
        memory("1").await;
        for answer in t.call(true, &[("u2", "blog:1"), ("u1", "blog:1")]).await {
            assert!(matches!(answer, Err(HotError::Full)), "{answer:?}");
        }
        for answer in t.call(false, &[("u1", "blog:1")]).await {
            assert!(matches!(answer, Err(HotError::Full)), "{answer:?}");
        }
        let at = t.moment().await;
        let fill = |users: Vec<_>, counts: Vec<_>| {
            let (hot, at, p) = (t.hot.clone(), at.clone(), t.p);
            async move { hot.fill(p, &at, &users, &counts).await }
        };
        let refused = fill(vec![cold_user("u3", &[], true)], vec![]).await;
        assert!(matches!(refused, Err(HotError::Full)), "{refused:?}");
        let refused = fill(vec![], vec![cold_count("blog:3", 0)]).await;
        assert!(matches!(refused, Err(HotError::Full)), "{refused:?}");
        // Reads go on, and state, count and slice agree.
        let looked = t
            .hot
            .lookup(t.p, Some(&user("u1")), &[target("blog:1")])
            .await;
        let Looked::Found { targets, .. } = looked.unwrap() else {
            panic!("nothing found");
        };
        assert_eq!(targets, [(State::Thumbed, Some(1))]);
        assert_eq!(t.slice(WINDOW).await.len(), 1);
        assert_eq!(t.peek().await.clock, before.clock);
        // So does the flush.
        assert_eq!(t.seal(WINDOW, "a").await, [WINDOW]);
        assert!(t.hot.mark(t.p, WINDOW, "a").await.unwrap());
        assert!(t.unpin(WINDOW, "a", (&["u1"], &["blog:1"]), 100).await);
        assert!(
            t.hot
                .drop_slice(t.p, WINDOW, "a", 60_000, &[])
                .await
                .unwrap()
        );
        let life = std::time::Duration::from_secs(1);
        assert!(t.hot.lease("flush", "a", life).await.unwrap());
        assert!(t.ttl("user:u1").await > 0);
        memory("0").await;
        assert_eq!(t.like("u2", "blog:1").await, done(true, 2));
    }
}

#[tokio::test]
async fn a_redis_that_is_gone_is_unreachable() {
    let dir = tempfile::tempdir().unwrap();
    let options = RedisOptions {
        aof: false,
        ..redis_options(dir.path())
    };
    let mut server = RedisServer::start(options).unwrap();
    let t = on(&server, 1).await;
    t.resident(&["u1"], &["blog:1"]).await;
    server.kill().unwrap();
    // The first call may have been on its way; from then on it is known that nothing was done.
    let first = t.call(true, &[("u1", "blog:1")]).await.remove(0);
    assert!(first.unwrap_err().retryable());
    let mut answer = t.call(true, &[("u1", "blog:1")]).await.remove(0);
    for _ in 0..20 {
        if matches!(answer, Err(HotError::Unreachable(_))) {
            break;
        }
        answer = t.call(true, &[("u1", "blog:1")]).await.remove(0);
    }
    let error = answer.unwrap_err();
    assert!(error.nothing_done(), "{error:?}");
    server.restart().unwrap();
    // Nothing was kept: it comes back empty, and says so.
    let answer = loop {
        if let Ok(answer) = t.call(true, &[("u1", "blog:1")]).await.remove(0) {
            break answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!(answer, Answer::Uninitialised);
}
