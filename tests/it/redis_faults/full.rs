//! A Redis that does not write: full, evicting, or with a disk that fails.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Own, accepted, agree, config, info, stand_of, until};
use crate::app::{Answer, TestApp};
use crate::process::thumbd;

fn code(answer: &Answer) -> Value {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    answer.json()["code"].clone()
}

fn seen(answer: Answer) -> (Value, Value) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let seen = answer.json();
    (seen["liked"].clone(), seen["count"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_redis_refuses_likes_whole_and_everything_else_goes_on() {
    let own = Own::start(|_| {});
    let app = TestApp::on(own.env().await, |_| {}).await;
    let t = stand_of(&app).await;
    for user in ["u1", "u2"] {
        assert_eq!(app.like(user, "blog/1").await.status, 200);
    }
    app.flush_now().await;
    let used: u64 = info(&t, "used_memory").await.parse().unwrap();
    config(&t, "maxmemory", &(used + 300_000).to_string()).await;
    // It fills up under likes.
    let mut accepted_likes = 2;
    let refused = loop {
        let user = format!("v{accepted_likes}");
        let answer = app.like(&user, "blog/1").await;
        if answer.status != 200 {
            break answer;
        }
        accepted_likes += 1;
        assert!(accepted_likes < 20_000, "it does not fill up");
    };
    assert_eq!(code(&refused), "redis_full");
    // Room may come and go by some bytes; below what is in use there is none.
    config(&t, "maxmemory", &used.to_string()).await;
    let before = t.peek(0).await;
    for user in ["u1", "u9"] {
        assert_eq!(code(&app.like(user, "blog/2").await), "redis_full");
        assert_eq!(code(&app.unlike(user, "blog/1").await), "redis_full");
    }
    let operation =
        |n: u64| json!({ "op": "like", "user": format!("u{n}"), "kind": "blog", "id": "3" });
    let answer = app.batch((0..100).map(operation).collect()).await.json();
    for one in answer["results"].as_array().unwrap() {
        assert_eq!(one["error"]["code"], "redis_full", "{one}");
    }
    // State and slice agree, and nothing came of what was refused.
    assert_eq!(t.verify().await.differences, []);
    let after = t.peek(0).await;
    assert_eq!((after.clock, &after.live), (before.clock, &before.live));
    // Reads go on: what is resident is right, and what would have to be loaded is not known.
    let likes = json!(accepted_likes);
    assert_eq!(
        seen(app.get("u1", "blog/1").await),
        (json!(true), likes.clone())
    );
    assert_eq!(
        seen(app.get("cold", "blog/1").await),
        (Value::Null, likes.clone())
    );
    assert_eq!(
        seen(app.get("u1", "blog/7").await),
        (json!(false), Value::Null)
    );
    // So does the flush.
    let report = app.flush_now().await;
    assert_eq!(report.entries, accepted_likes - 2);
    assert_eq!(t.peek(0).await.live, []);
    assert_eq!(code(&app.like("u1", "blog/2").await), "redis_full");
    // And with room, everything.
    config(&t, "maxmemory", "0").await;
    assert_eq!(app.like("u1", "blog/2").await.status, 200);
    assert_eq!(app.unlike("u2", "blog/1").await.status, 200);
    let targets = ["blog:1", "blog:2", "blog:3", "blog:7"];
    agree(&t, &["u1", "u2", "u9", "v7", "cold"], &targets).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_evicts_whatever_it_likes_is_refused_at_start() {
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let own = Own::start(|options| {
            options.extra_args = ["--maxmemory-policy", policy].map(Into::into).to_vec();
        });
        let env = own.env().await;
        let output = tokio::task::spawn_blocking(move || {
            let variables = [
                ("THUMBD_LISTEN", "127.0.0.1:0"),
                ("THUMBD_SERVICE_KEY", "service-key"),
                ("THUMBD_ADMIN_TOKEN", "admin-token"),
                ("THUMBD_REDIS_URL", &*env.redis_url),
                ("THUMBD_DATABASE_URL", &*env.database_url),
                ("THUMBD_LOG", "error"),
            ];
            thumbd(&["serve"], &variables).wait_with_output().unwrap()
        });
        let output = output.await.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(policy), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_error_stops_writes_and_not_reads() {
    let own = Own::start(|options| options.save = "3600 1".to_owned());
    let app = TestApp::on(own.env().await, |_| {}).await;
    let t = stand_of(&app).await;
    assert_eq!(app.like("u1", "blog/1").await.status, 200);
    // A directory stands where the snapshot should go.
    let place = own.data().join("dump.rdb");
    std::fs::create_dir(&place).unwrap();
    let save = async |wanted: &str| {
        t.command::<String>(&["BGSAVE"]).await;
        until("the snapshot ended", async || {
            info(&t, "rdb_bgsave_in_progress").await == "0"
        })
        .await;
        assert_eq!(info(&t, "rdb_last_bgsave_status").await, wanted);
    };
    save("err").await;
    for _ in 0..3 {
        assert_eq!(code(&app.like("u2", "blog/1").await), "redis_unavailable");
        assert_eq!(code(&app.unlike("u1", "blog/1").await), "redis_unavailable");
        assert_eq!(seen(app.get("u1", "blog/1").await), (json!(true), json!(1)));
        assert_eq!(
            seen(app.get("cold", "blog/1").await),
            (Value::Null, json!(1))
        );
    }
    // A flush writes too; it waits.
    assert_eq!(
        app.admin(Method::POST, "/admin/v1/flushes").await.status,
        503
    );
    assert_eq!(t.peek(0).await.live.len(), 1);
    std::fs::remove_dir(&place).unwrap();
    save("ok").await;
    accepted(async || app.like("u2", "blog/1").await).await;
    assert_eq!(
        seen(app.get("cold", "blog/1").await),
        (json!(false), json!(2))
    );
    agree(&t, &["u1", "u2", "cold"], &["blog:1"]).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eviction_takes_nothing_that_is_dirty() {
    let own = Own::start(|options| {
        options.extra_args = ["--maxmemory-policy", "volatile-lru"]
            .map(Into::into)
            .to_vec();
    });
    let app = TestApp::on(own.env().await, |settings| {
        settings.resident_ttl_seconds = 3600
    })
    .await;
    let t = stand_of(&app).await;
    let operation =
        |user: String, id: String| json!({ "op": "like", "user": user, "kind": "blog", "id": id });
    let batch = async |operations: Vec<Value>| {
        for some in operations.chunks(500) {
            let answer = app.batch(json!(some)).await.json();
            let mut results = answer["results"].as_array().unwrap().iter();
            assert!(results.all(|one| one["changed"] == true), "{answer}");
        }
    };
    // Clean ones that may go.
    batch(
        (0..2000)
            .map(|n| operation(format!("c{n}"), format!("c{n}")))
            .collect(),
    )
    .await;
    app.flush_now().await;
    // Dirty ones that may not.
    batch(
        (0..300)
            .map(|n| operation(format!("d{n}"), format!("d{}", n % 50)))
            .collect(),
    )
    .await;
    for n in 0..50 {
        assert_eq!(
            app.unlike(&format!("d{n}"), &format!("blog/d{n}"))
                .await
                .status,
            200
        );
    }
    let used: u64 = info(&t, "used_memory").await.parse().unwrap();
    config(&t, "maxmemory", &(used - 200_000).to_string()).await;
    // Under pressure everybody comes by, again and again.
    for _ in 0..2 {
        for n in 0..300 {
            app.get(
                &format!("c{}", n * 7 % 2000),
                &format!("blog/c{}", n * 11 % 2000),
            )
            .await;
        }
    }
    let evicted: u64 = info(&t, "evicted_keys").await.parse().unwrap();
    assert!(evicted > 100, "{evicted} were evicted");
    for n in 0..300 {
        let user = format!("d{n}");
        let there: i64 = t.command(&["EXISTS", &t.user_key(&user)]).await;
        assert_eq!(there, 1, "{user} was evicted");
        assert_eq!(t.command::<i64>(&["TTL", &t.user_key(&user)]).await, -1);
        let (liked, count) = (n >= 50, 5);
        let answer = app.get(&user, &format!("blog/d{}", n % 50)).await;
        assert_eq!(seen(answer), (json!(liked), json!(count)), "{user}");
    }
    let report = app.flush_now().await;
    assert_eq!(report.entries, 300);
    let users: Vec<String> = (0..60).map(|n| format!("d{n}")).collect();
    agree(&t, &users, &["blog:d1", "blog:d49", "blog:c1"]).await;
    for n in [0, 1, 1000, 1999] {
        let answer = app.get(&format!("c{n}"), &format!("blog/c{n}")).await;
        assert_eq!(seen(answer), (json!(true), json!(1)), "c{n}");
    }
    app.finish().await;
}
