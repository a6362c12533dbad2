//! Answers that never come: to a like, to COMMIT, to the ends of a flush, and to clients that have hung up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Method;
use serde_json::{Value, json};
use thumbd::config::Settings;

use crate::app::{self, Answer, TestApp, send};
use crate::chaos::{self, Act, Proxy, Then, script};
use crate::serve::PATIENCE;
use crate::servers;
use crate::stand::Stand;

/// An app behind two proxies, and what looks at its stores without them.
struct Scene {
    app: TestApp,
    redis: Proxy,
    sql: Proxy,
    stand: Stand,
}

impl Scene {
    async fn set(change: impl FnOnce(&mut Settings)) -> Self {
        let env = servers::env().await;
        let (behind, redis, sql) = chaos::before(&env).await;
        let app = TestApp::on(behind, |settings| {
            // As short as a busy machine allows: it is waited for, tenfold by jobs.
            settings.redis_response_timeout_ms = 500;
            settings.database_statement_timeout_ms = 5000;
            change(settings);
        })
        .await;
        // It compensates once at its start; that would meet what is meant for others.
        let begun = Instant::now();
        while app.jobs.status().await.unwrap().last_compensation.is_none() {
            assert!(begun.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let stand = Stand::on(app::settings(&env)).await;
        Self {
            app,
            redis,
            sql,
            stand,
        }
    }

    /// Makes users and target resident, without a like.
    async fn warm(&self, users: &[&str]) {
        for user in users {
            assert_eq!(self.app.get(user, "blog/1").await.status, 200);
        }
    }

    async fn flush(&self) -> Answer {
        self.app.admin(Method::POST, "/admin/v1/flushes").await
    }

    /// The first answer that is one: whoever meets a dead connection first is told of it.
    async fn well(&self, request: impl Fn() -> reqwest::RequestBuilder) -> Value {
        let begun = Instant::now();
        loop {
            let answer = send(request()).await;
            if answer.status == 200 {
                return answer.json();
            }
            assert_eq!(answer.status, 503, "{answer:?}");
            assert!(begun.elapsed() < PATIENCE, "{answer:?}");
        }
    }

    async fn flush_well(&self) -> Value {
        let request = || {
            let call = self.app.request(Method::POST, "/admin/v1/flushes");
            call.bearer_auth(app::ADMIN_TOKEN)
        };
        self.well(request).await
    }

    fn one(&self, method: Method, user: &str) -> reqwest::RequestBuilder {
        let request = self.app.trusted(method, "/v1/likes/blog/1");
        request.header("X-User-Id", user)
    }

    /// Everything is healed, lands and agrees: this many rows, and this count.
    async fn agree(self, rows: i64, count: i64) {
        self.redis.heal();
        self.sql.heal();
        self.flush_well().await;
        self.stand.check().await;
        let number = |text| self.stand.number(text);
        assert_eq!(number("SELECT COUNT(*) FROM thumb").await, rows);
        let counts = "SELECT CAST(COALESCE(SUM(count), 0) AS SIGNED) FROM thumb_count";
        assert_eq!(number(counts).await, count);
        let seen = self.app.get("u1", "blog/1").await.json();
        assert_eq!(seen["count"], count);
        self.app.finish().await;
    }
}

fn unknown(answer: &Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.json()["code"], "outcome_unknown", "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_a_like_is_told_and_the_repetition_moves_nothing() {
    for then in [Then::Cut, Then::Hold] {
        let t = Scene::set(|_| {}).await;
        t.warm(&["u1", "u2"]).await;
        assert_eq!(t.app.like("u1", "blog/1").await.status, 200);
        for (call, changed) in [("thumb", 1), ("unthumb", -1), ("thumb", 1)] {
            let sent = t.redis.count(script(call));
            let mut lost = t.redis.once(script(call), Act::SwallowReply(then));
            let answer = match call {
                "thumb" => t.app.like("u2", "blog/1").await,
                _ => t.app.unlike("u2", "blog/1").await,
            };
            unknown(&answer);
            lost.wait(1).await;
            assert_eq!(sent.times(), 1, "it was repeated silently");
            if then == Then::Hold {
                // Nobody tells the client's side that such a connection is dead.
                t.redis.cut();
            }
            let method = match call {
                "thumb" => Method::PUT,
                _ => Method::DELETE,
            };
            let again = t.well(|| t.one(method.clone(), "u2")).await;
            assert_eq!(again["changed"], false, "{call}");
            assert_eq!(again["count"], 1 + i64::from(changed == 1), "{call}");
        }
        t.agree(2, 2).await;
    }
}

/// Another process unlikes between the script and the answer that never comes: a silent repetition would like again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_is_never_repeated_over_a_later_operation() {
    let t = Scene::set(|settings| settings.redis_response_timeout_ms = 2000).await;
    t.warm(&["u1", "u2"]).await;
    assert_eq!(t.app.like("u2", "blog/1").await.status, 200);
    let sent = t.redis.count(script("thumb"));
    let mut lost = t.redis.once(script("thumb"), Act::SwallowReply(Then::Hold));
    let later = async {
        lost.wait(1).await;
        // By the other process, which the proxy does not touch: another user, then the same one.
        while !t.stand.look("u1", "blog:1").await.0.unwrap() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(t.stand.unlike("u2", "blog:1").await.unwrap().changed);
        assert!(t.stand.unlike("u1", "blog:1").await.unwrap().changed);
    };
    let (answer, ()) = tokio::join!(t.app.like("u1", "blog/1"), later);
    unknown(&answer);
    assert_eq!(sent.times(), 1);
    t.redis.cut();
    let seen = t.well(|| t.one(Method::GET, "u1")).await;
    assert_eq!(sent.times(), 1);
    assert_eq!((&seen["liked"], &seen["count"]), (&json!(false), &json!(0)));
    t.agree(2, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_told_of_a_lost_reply_and_repeats_nothing() {
    let t = Scene::set(|_| {}).await;
    t.warm(&["u1", "u2", "u3"]).await;
    assert_eq!(t.app.like("u1", "blog/1").await.status, 200);
    let operations = json!([
        { "op": "like", "user": "u2", "kind": "blog", "id": "1" },
        { "op": "like", "user": "u3", "kind": "blog", "id": "1" },
    ]);
    let sent = t.redis.count(script("thumb"));
    let _lost = t.redis.once(script("thumb"), Act::SwallowReply(Then::Cut));
    let answer = t.app.batch(operations.clone()).await.json();
    for result in answer["results"].as_array().unwrap() {
        assert_eq!(result["error"]["code"], "outcome_unknown", "{answer}");
    }
    assert_eq!(sent.times(), 1);
    let answer = t.app.batch(operations).await.json();
    for result in answer["results"].as_array().unwrap() {
        assert_eq!(result["changed"], false, "{answer}");
    }
    t.agree(3, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_to_commit_is_asked_again() {
    for then in [Then::Cut, Then::Hold] {
        let t = Scene::set(|_| {}).await;
        for user in ["u1", "u2"] {
            assert_eq!(t.app.like(user, "blog/1").await.status, 200);
        }
        let mut lost = t.sql.once("COMMIT", Act::SwallowReply(then));
        let answer = t.flush().await;
        assert_eq!(answer.status, 503, "{answer:?}");
        lost.wait(1).await;
        let rows = t.stand.number("SELECT COUNT(*) FROM thumb").await;
        assert_eq!((rows, t.stand.peek(0).await.live.len()), (2, 1));
        let report = t.flush().await.json();
        let figures = (&report["entries"], &report["rows_changed"]);
        assert_eq!(figures, (&json!(2), &json!(0)), "{report}");
        t.agree(2, 2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_to_mark_unpin_and_drop_are_made_good_by_the_next_run() {
    for (step, then) in [
        ("mark", Then::Cut),
        ("unpin", Then::Cut),
        ("drop", Then::Cut),
        ("mark", Then::Hold),
    ] {
        let t = Scene::set(|_| {}).await;
        for user in ["u1", "u2"] {
            assert_eq!(t.app.like(user, "blog/1").await.status, 200);
        }
        let mut lost = t.redis.once(script(step), Act::SwallowReply(then));
        let answer = t.flush().await;
        assert_eq!(answer.status, 503, "{step}: {answer:?}");
        lost.wait(1).await;
        if then == Then::Hold {
            t.redis.cut();
        }
        // Between the runs the state is right, too, and a like is taken.
        let like = t.well(|| t.one(Method::PUT, "u3")).await;
        assert_eq!(
            (&like["changed"], &like["count"]),
            (&json!(true), &json!(3))
        );
        t.flush_well().await;
        // Let go of by the second run, if the first did not come so far.
        let key = t.stand.user_key("u1");
        let ttl: i64 = t.stand.command(&["TTL", &key]).await;
        assert!(ttl > 0, "{step}: {ttl}");
        t.agree(3, 3).await;
    }
}

/// Whoever hangs up does not know; thumbd does, and both stores agree.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_that_hang_up_at_50_ms_leave_nothing_uneven() {
    let t = Scene::set(|settings| settings.redis_response_timeout_ms = 5000).await;
    for user in 0..40 {
        for id in 1..4 {
            t.app.get(&format!("u{user}"), &format!("blog/{id}")).await;
        }
    }
    // There and back about as long as the clients wait.
    t.redis.delay(Duration::from_millis(15));
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_millis(50))
        .build()
        .unwrap();
    let (answered, hung_up) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut rng = StdRng::seed_from_u64(7);
    let requests = (0..1000).map(|_| {
        let method = if rng.random_bool(0.6) {
            Method::PUT
        } else {
            Method::DELETE
        };
        let id = rng.random_range(1..4);
        let url = format!("http://{}/v1/likes/blog/{id}", t.app.address);
        let user = format!("u{}", rng.random_range(0..40));
        let request = client.request(method, url).bearer_auth(app::SERVICE_KEY);
        request.header("X-User-Id", user).send()
    });
    futures_util::stream::iter(requests)
        .for_each_concurrent(20, |request| async {
            match request.await {
                Ok(answer) if answer.status() == 200 => answered.fetch_add(1, Ordering::Relaxed),
                Ok(answer) => panic!("{answer:?}"),
                Err(_) => hung_up.fetch_add(1, Ordering::Relaxed),
            };
        })
        .await;
    println!("{answered:?} were answered, {hung_up:?} hung up");
    assert!(hung_up.load(Ordering::Relaxed) > 50);

    t.redis.heal();
    t.flush_well().await;
    t.stand.check().await;
    let uneven = "SELECT COUNT(*) FROM thumb_count c WHERE c.count <> \
         (SELECT COUNT(*) FROM thumb t WHERE t.target_id = c.target_id AND t.thumbed = 1)";
    assert_eq!(t.stand.number(uneven).await, 0);
    assert!(t.stand.number("SELECT COUNT(*) FROM thumb").await > 20);
    for user in 0..40 {
        let user = format!("u{user}");
        for id in 1..4 {
            let row = format!(
                "SELECT CAST(COALESCE(MAX(thumbed), 0) AS SIGNED) FROM thumb WHERE user_id = '{user}' AND target_id = '{id}'"
            );
            let count = format!(
                "SELECT CAST(COALESCE(SUM(thumbed), 0) AS SIGNED) FROM thumb WHERE target_id = '{id}'"
            );
            let seen = t.app.get(&user, &format!("blog/{id}")).await.json();
            assert_eq!(
                seen["liked"],
                t.stand.number(&row).await == 1,
                "{user} {id}"
            );
            assert_eq!(seen["count"], t.stand.number(&count).await, "{id}");
        }
    }
    t.app.finish().await;
}
