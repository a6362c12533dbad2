//! The use cases on real servers: cold and resident, with one process and with several.

use futures_util::future::join_all;
use thumbd::config::{Secret, Settings};
use thumbd::dev::SqlServer;
use thumbd::service::{Outcome, ServiceError};

use crate::servers::sql_options;
use crate::stand::{Stand, op, outcome, settings, target, user};

#[tokio::test]
async fn likes_and_unlikes_of_whoever_is_cold() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(0)));
        assert_eq!(t.like("u1", "blog:1").await.unwrap(), outcome(true, 1));
        assert_eq!(t.like("u1", "blog:1").await.unwrap(), outcome(false, 1));
        assert_eq!(t.like("u2", "blog:1").await.unwrap(), outcome(true, 2));
        assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(2)));
        assert_eq!(t.look("u3", "blog:1").await, (Some(false), Some(2)));
        t.flush().await;
        // Clean keys may go at any time; then MySQL knows.
        for name in ["u1", "u2", "u3"] {
            let count = t.key(t.home(name), "count:blog:1");
            t.command::<()>(&["DEL", &t.user_key(name), &count]).await;
        }
        assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(2)));
        assert_eq!(t.unlike("u3", "blog:1").await.unwrap(), outcome(false, 2));
        t.command::<()>(&["DEL", &t.user_key("u1")]).await;
        assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(true, 1));
        assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(false, 1));
        assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(1)));
        t.check().await;
    }
}

#[tokio::test]
async fn a_lookup_answers_in_the_order_asked() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        for n in [3, 5, 8] {
            t.like("u1", &format!("blog:{n}")).await.unwrap();
            t.like("u2", &format!("blog:{n}")).await.unwrap();
        }
        let asked: Vec<_> = (0..10)
            .rev()
            .map(|n| target(&format!("blog:{n}")))
            .collect();
        let seen = t.service.lookup(Some(&user("u1")), &asked).await.unwrap();
        for (n, one) in (0..10).rev().zip(seen) {
            let liked = [3, 5, 8].contains(&n);
            let want = (Some(liked), Some(if liked { 2 } else { 0 }));
            assert_eq!((one.liked, one.count), want, "blog:{n}");
        }
        let seen = t.service.lookup(None, &asked[1..2]).await.unwrap();
        assert_eq!((seen[0].liked, seen[0].count), (None, Some(2)));
        t.check().await;
    }
}

#[tokio::test]
async fn a_partial_user_is_read_and_changed_exactly() {
    for partitions in [1, 4] {
        let t = Stand::on(Settings {
            resident_thumbs_max: 2,
            ..settings(partitions).await
        })
        .await;
        for n in 0..6 {
            t.like("u1", &format!("blog:{n}")).await.unwrap();
        }
        t.flush().await;
        // Grown beyond what may be resident, it went; now its newest likes come back.
        for n in 0..6 {
            let of = format!("blog:{n}");
            assert_eq!(t.look("u1", &of).await, (Some(true), Some(1)));
        }
        let marker: String = t.command(&["HGET", &t.user_key("u1"), "#"]).await;
        assert_eq!(&marker[16..17], "p");
        assert_eq!(t.look("u1", "blog:9").await, (Some(false), Some(0)));
        assert_eq!(t.like("u1", "blog:0").await.unwrap(), outcome(false, 1));
        assert_eq!(t.unlike("u1", "blog:0").await.unwrap(), outcome(true, 0));
        assert_eq!(t.look("u1", "blog:0").await, (Some(false), Some(0)));
        assert_eq!(t.unlike("u1", "blog:9").await.unwrap(), outcome(false, 0));
        assert_eq!(t.like("u1", "blog:9").await.unwrap(), outcome(true, 1));
        t.check().await;
        assert_eq!(t.look("u1", "blog:0").await, (Some(false), Some(0)));
        assert_eq!(t.look("u1", "blog:9").await, (Some(true), Some(1)));
    }
}

#[tokio::test]
async fn several_processes_see_one_state() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        let others = [t.another().await, t.another().await];
        let all = [&t.service, &others[0], &others[1]];
        let both = (0..60).map(|n| all[n % 3].thumb(op("u1", "blog:1", true)));
        let changed = join_all(both).await.into_iter();
        let changed = changed.filter(|one| one.as_ref().unwrap().changed).count();
        assert_eq!(changed, 1);
        for (n, service) in all.into_iter().enumerate() {
            let liked = service.thumb(op(&format!("v{n}"), "blog:1", true)).await;
            assert_eq!(liked.unwrap(), outcome(true, n as i64 + 2));
        }
        let unlikes = (0..50).map(|n| all[n % 3].thumb(op("u1", "blog:1", false)));
        let changed = join_all(unlikes).await.into_iter();
        let changed = changed.filter(|one| one.as_ref().unwrap().changed).count();
        assert_eq!(changed, 1);
        t.check().await;
    }
}

#[tokio::test]
async fn parts_add_up_to_the_count() {
    let t = Stand::start(4).await;
    let names: Vec<String> = (0..40).map(|n| format!("u{n}")).collect();
    let homes: std::collections::BTreeSet<u16> = names.iter().map(|one| t.home(one)).collect();
    assert_eq!(homes.len(), 4);
    for (n, name) in names.iter().enumerate() {
        let liked = t.like(name, "blog:1").await.unwrap();
        assert_eq!(liked, outcome(true, n as i64 + 1));
    }
    assert_eq!(t.look("u0", "blog:1").await, (Some(true), Some(40)));
    t.check().await;
    assert_eq!(t.number("SELECT count FROM thumb_count").await, 40);
    assert_eq!(
        t.number("SELECT CAST(SUM(count) AS SIGNED) FROM thumb_count_part")
            .await,
        40
    );
}

#[tokio::test]
async fn loads_beyond_the_bound_are_refused_and_made_all_the_same() {
    let t = Stand::on(Settings {
        cold_loads_max: 1,
        ..settings(1).await
    })
    .await;
    // User and count are cold: two loads.
    let error = t.like("u1", "blog:1").await.unwrap_err();
    assert!(matches!(error, ServiceError::Busy { .. }), "{error:?}");
    let wait = error.retry_after().unwrap().as_millis();
    assert!((1000..=3000).contains(&wait));
    // Whoever comes again finds the first of them done.
    let mut tries = 0;
    let liked = loop {
        match t.like("u1", "blog:1").await {
            Ok(liked) => break liked,
            Err(error) => assert!(matches!(error, ServiceError::Busy { .. }), "{error:?}"),
        }
        tries += 1;
        assert!(tries < 1000);
        tokio::task::yield_now().await;
    };
    assert_eq!(liked, outcome(true, 1));
    t.check().await;
}

#[tokio::test]
async fn an_emptied_redis_is_recognised_by_whoever_comes() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        t.like("u1", "blog:1").await.unwrap();
        t.flush().await;
        let keys: Vec<String> = {
            let pattern = format!("{}:*", t.settings.key_prefix);
            t.command(&["KEYS", &pattern]).await
        };
        for key in keys {
            t.command::<()>(&["DEL", &key]).await;
        }
        assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(1)));
        assert_eq!(t.like("u2", "blog:1").await.unwrap(), outcome(true, 2));
        t.check().await;
    }
}

/// The signal takes a moment to stop each of the server's threads.
async fn until_hanging(t: &Stand) {
    let patience = std::time::Duration::from_millis(200);
    // An error is a server that hangs, too: the pool has waited for a connection for as long.
    while let Ok(Ok(())) = tokio::time::timeout(patience, t.ledger.ping()).await {}
}

#[tokio::test]
async fn residents_go_on_without_mysql() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = SqlServer::start(sql_options(dir.path())).unwrap();
    let t = Stand::on(Settings {
        database_url: Some(Secret::new(server.url())),
        database_acquire_timeout_ms: 200,
        cold_timeout_ms: 500,
        ..settings(1).await
    })
    .await;
    t.like("u1", "blog:1").await.unwrap();
    t.like("u2", "blog:2").await.unwrap();
    t.flush().await;
    // A server that hangs is not waited for by each operation of a batch.
    server.freeze().unwrap();
    until_hanging(&t).await;
    let mut batch: Vec<_> = (0..100)
        .map(|n| op("u4", &format!("blog:{}", n / 2), n % 2 == 0))
        .collect();
    batch.push(op("u2", "blog:2", false));
    let started = std::time::Instant::now();
    let mut answers = t.service.batch(batch).await;
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
    assert!(answers.pop().unwrap().unwrap().changed);
    assert!(answers.iter().all(Result::is_err));
    assert_eq!(t.like("u2", "blog:2").await.unwrap(), outcome(true, 1));
    server.thaw().unwrap();
    server.stop().unwrap();

    assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(true, 0));
    assert_eq!(t.like("u1", "blog:2").await.unwrap(), outcome(true, 2));
    for (who, what) in [("u1", "blog:3"), ("u3", "blog:1"), ("u3", "blog:3")] {
        let error = t.like(who, what).await.unwrap_err();
        assert!(
            matches!(error, ServiceError::DatabaseUnavailable { .. }),
            "{error:?}"
        );
        assert!(error.retry_after().is_some());
    }
    // One that cannot be done does not spoil the others of its batch.
    let batch = vec![
        op("u3", "blog:3", true),
        op("u2", "blog:2", false),
        op("u2", "blog:2", true),
    ];
    let answers = t.service.batch(batch).await;
    assert!(matches!(
        answers[0],
        Err(ServiceError::DatabaseUnavailable { .. })
    ));
    let changed = |at: usize| matches!(answers[at], Ok(Outcome { changed: true, .. }));
    assert!(changed(1) && changed(2));
    // What is not known is null, and not 0.
    assert_eq!(t.look("u1", "blog:2").await, (Some(true), Some(2)));
    assert_eq!(t.look("u1", "blog:3").await, (Some(false), None));
    assert_eq!(t.look("u3", "blog:1").await, (None, Some(0)));
    assert!(t.try_flush().await.is_err());
    let health = t.service.health().await;
    assert!(health.redis.is_ok() && health.database.is_err());

    server.restart().unwrap();
    assert_eq!(t.like("u3", "blog:3").await.unwrap(), outcome(true, 1));
    t.check().await;
    assert_eq!(
        t.number("SELECT COUNT(*) FROM thumb WHERE thumbed = 1")
            .await,
        3
    );
}

#[tokio::test]
async fn a_partial_user_does_not_wait_for_a_database_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = SqlServer::start(sql_options(dir.path())).unwrap();
    let t = Stand::on(Settings {
        database_url: Some(Secret::new(server.url())),
        cold_timeout_ms: 300,
        resident_thumbs_max: 2,
        ..settings(1).await
    })
    .await;
    for n in 0..5 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    t.flush().await;
    assert_eq!(t.look("u1", "blog:0").await, (Some(true), Some(1)));
    server.freeze().unwrap();
    until_hanging(&t).await;
    let started = std::time::Instant::now();
    assert_eq!(t.look("u1", "blog:0").await, (None, Some(1)));
    assert_eq!(t.look("u1", "blog:4").await, (Some(true), Some(1)));
    let error = t.unlike("u1", "blog:0").await.unwrap_err();
    assert!(
        matches!(error, ServiceError::DatabaseUnavailable { .. }),
        "{error:?}"
    );
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
    server.thaw().unwrap();
    assert_eq!(t.unlike("u1", "blog:0").await.unwrap(), outcome(true, 0));
    t.check().await;
}
