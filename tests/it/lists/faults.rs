//! What lists answer while a store is away or Redis is being recovered.

use std::time::{Duration, Instant};

use serde_json::json;
use thumbd::config::Settings;
use thumbd::limits::LIST_QUERIES_MAX;
use thumbd::service::{ServiceError, distrust};

use super::{ask, shorts};
use crate::app::{Answer, TestApp};
use crate::chaos;
use crate::serve::{PATIENCE, until};
use crate::servers;
use crate::stand::{self, Stand, target, user};

fn refused(answer: &Answer, code: &str) {
    let json = answer.json();
    assert_eq!(
        (answer.status, &json["code"]),
        (503, &json!(code)),
        "{answer:?}"
    );
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    assert_eq!(answer.headers["cache-control"], "no-store");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_store_a_list_is_refused_and_never_half() {
    let (env, redis, sql) = chaos::before(&servers::env().await).await;
    let app = TestApp::on(env, |settings| {
        settings.database_acquire_timeout_ms = 500;
    })
    .await;
    app.like("clean", "blog/1").await;
    app.flush_now().await;
    app.like("dirty", "blog/1").await;
    let lists = [
        ("/v1/likes/blog/1/users", None),
        ("/v1/likes/blog/1/users", Some("dirty")),
        ("/v1/users/clean/likes", None),
        ("/v1/users/dirty/likes", None),
        ("/v1/rankings/blog", None),
    ];
    sql.refuse(true);
    sql.cut();
    for (path, caller) in lists {
        refused(&ask(&app, caller, path).await, "database_unavailable");
    }
    sql.heal();
    for (path, caller) in lists {
        let answer = ask(&app, caller, path).await;
        assert!(!shorts(&answer).is_empty(), "{path}: {answer:?}");
    }
    redis.refuse(true);
    redis.cut();
    for (path, caller) in lists {
        let answer = ask(&app, caller, path).await;
        if path.contains("/users/") || caller.is_some() {
            refused(&answer, "redis_unavailable");
        } else {
            // Nobody has done anything that would have to be merged in.
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
        }
    }
    redis.heal();
    let begun = Instant::now();
    while app.jobs.flush_now().await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "Redis is back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_partition_is_recovering_its_users_lists_are_refused() {
    let t = Stand::start(2).await;
    let of = |partition: u16| {
        let mut names = (0..100).map(|n| format!("u{n}"));
        names.find(|name| t.home(name) == partition).unwrap()
    };
    let (ill, well) = (of(0), of(1));
    for one in [&ill, &well] {
        t.like(one, "blog:1").await.unwrap();
    }
    // As after a Redis that has lost a seal.
    distrust(&t.hot, &t.ledger, 0).await.unwrap();
    let likes = async |who: &str| t.service.user_likes(&user(who), None, None, 5).await;
    let blog = target("blog:1");
    let likers = async |who: &str| t.service.likers(&blog, Some(&user(who)), None, 5).await;
    let error = likes(&ill).await.unwrap_err();
    assert!(
        matches!(error, ServiceError::Recovering { .. }),
        "{error:?}"
    );
    let error = likers(&ill).await.unwrap_err();
    assert!(
        matches!(error, ServiceError::Recovering { .. }),
        "{error:?}"
    );
    assert_eq!(likes(&well).await.unwrap().rows.len(), 1);
    assert_eq!(likers(&well).await.unwrap().1.rows.len(), 1);
    t.flush().await;
    assert_eq!(likes(&ill).await.unwrap().rows.len(), 1);
    assert_eq!(likers(&ill).await.unwrap().1.rows.len(), 2);
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_forgotten_while_dirty_is_refused_until_it_has_landed() {
    let t = Stand::start(1).await;
    t.like("u1", "blog:1").await.unwrap();
    t.hot.forget(0, &[user("u1")], &[]).await.unwrap();
    let likes = async |who: &str| t.service.user_likes(&user(who), None, None, 5).await;
    let error = likes("u1").await.unwrap_err();
    assert!(
        matches!(error, ServiceError::Recovering { .. }),
        "{error:?}"
    );
    assert_eq!(likes("u2").await.unwrap().rows, []);
    t.flush().await;
    assert_eq!(likes("u1").await.unwrap().rows.len(), 1);
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_partition_is_initialised_by_a_list() {
    let t = Stand::start(1).await;
    t.like("u1", "blog:1").await.unwrap();
    t.flush().await;
    let keys: Vec<String> = t.command(&["KEYS", &t.key(0, "*")]).await;
    for key in &keys {
        t.command::<()>(&["DEL", key]).await;
    }
    let likes = t.service.user_likes(&user("u1"), None, None, 5).await;
    assert_eq!(likes.unwrap().rows.len(), 1);
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_hang_leave_connections_for_others() {
    for (connections, places) in [(16, LIST_QUERIES_MAX), (4, 2), (2, 1)] {
        let t = Stand::on(Settings {
            database_connections_max: connections,
            cold_timeout_ms: 1500,
            slice_seconds: 3600,
            ..stand::settings(1).await
        })
        .await;
        t.like("u1", "blog:1").await.unwrap();
        t.flush().await;
        // Not a lock of rows: those do not hold up a reader.
        let mut locked = t.pool.acquire().await.unwrap();
        sqlx::raw_sql("LOCK TABLES thumb WRITE")
            .execute(&mut *locked)
            .await
            .unwrap();
        let of = target("blog:1");
        let asked = (0..3 * places).map(|_| t.service.likers(&of, None, None, 5));
        let asked = futures_util::future::join_all(asked);
        let looked = async {
            let text = "SELECT COUNT(*) FROM information_schema.processlist \
                 WHERE db = DATABASE() AND state LIKE 'Waiting for table%'";
            until("as many as may hang", async || {
                t.number(text).await == places as i64
            })
            .await;
            // Something else still gets an answer, soon enough for somebody who waits.
            let begun = Instant::now();
            t.ledger.flush_state().await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(1));
            assert_eq!(t.number(text).await, places as i64);
        };
        let (answers, ()) = tokio::join!(asked, looked);
        for answer in answers {
            let error = answer.unwrap_err();
            let known = matches!(
                error,
                ServiceError::Busy { .. } | ServiceError::DatabaseUnavailable { .. }
            );
            assert!(known, "{error:?}");
        }
        sqlx::raw_sql("UNLOCK TABLES")
            .execute(&mut *locked)
            .await
            .unwrap();
        let rows = t.service.likers(&of, None, None, 5).await.unwrap().1.rows;
        assert_eq!(rows.len(), 1);
        t.check().await;
    }
}
