//! Limits on what one user may change: how many likes, and how often the same one.
//!
//! The stored clock stands an hour ahead of Redis's time in most of these tests, so that time goes on only where a test says so.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use thumbd::config::{Kinds, Settings};
use thumbd::hot::Limit;
use thumbd::service::{Outcome, ServiceError};

use crate::app::{Answer, TestApp};
use crate::redis_faults::Own;
use crate::stand::{Stand, op, outcome, settings, target, user};

const MINUTE_MS: u64 = 60_000;

/// Three at once, and one more a minute.
const THREE: &str = "blog+user_operations_per_minute=1+user_operations_burst=3";
/// A minute, two, four, and then always four.
const COOLDOWN: &str = "blog+toggle_cooldown_ms=60000+toggle_cooldown_max_ms=240000";
const BOTH: &str = "blog+user_operations_per_minute=1+user_operations_burst=3\
                    +toggle_cooldown_ms=120000+toggle_cooldown_max_ms=480000,photo";

async fn limited(kinds: &str, partitions: u16) -> Settings {
    Settings {
        kinds: Kinds::parse(kinds).unwrap(),
        slice_seconds: 3600,
        ..settings(partitions).await
    }
}

/// Limits of a kind, and a clock that only the test moves.
async fn stand(kinds: &str) -> Stand {
    let t = Stand::on(limited(kinds, 1).await).await;
    pass(&t, 60 * MINUTE_MS).await;
    t
}

/// Lets time pass.
async fn pass(t: &Stand, ms: u64) {
    for partition in 0..t.settings.partitions {
        let peek = t.peek(partition).await;
        let clock = peek.clock.0.max(peek.time_ms * 1000) + ms * 1000;
        let meta = t.key(partition, "meta");
        t.command::<()>(&["HSET", &meta, "clock", &clock.to_string()])
            .await;
    }
}

/// What refused it, and how long it must wait.
fn refusal(result: Result<Outcome, ServiceError>) -> (&'static str, u64) {
    match result {
        Err(ServiceError::RateLimited { limit, retry_after }) => {
            let name = match limit {
                Limit::Operations(_) => "operations",
                Limit::Toggles(_) => "toggles",
            };
            (name, retry_after.as_millis() as u64)
        }
        other => panic!("not refused by a limit: {other:?}"),
    }
}

async fn keys(t: &Stand, pattern: &str) -> Vec<String> {
    let pattern = format!("{}:v1:*{pattern}", t.settings.key_prefix);
    let mut keys: Vec<String> = t.command(&["KEYS", &pattern]).await;
    keys.sort();
    keys
}

/// All keys of the limiter with their remaining life in ms.
async fn lives(t: &Stand) -> BTreeMap<String, i64> {
    let mut lives = BTreeMap::new();
    for key in [keys(t, ":rate:*").await, keys(t, ":toggle:*").await].concat() {
        let life = t.command(&["PTTL", &key]).await;
        lives.insert(key, life);
    }
    lives
}

/// Everything that stands in Redis, byte by byte.
async fn everything(t: &Stand) -> BTreeMap<String, (Vec<u8>, bool)> {
    let mut all = BTreeMap::new();
    for key in keys(t, "").await {
        let value: Vec<u8> = t.command(&["DUMP", &key]).await;
        let life: i64 = t.command(&["PTTL", &key]).await;
        all.insert(key, (value, life > 0));
    }
    all
}

/// How often Redis ran each command, those in scripts included, since the last time.
async fn commands(t: &Stand) -> BTreeMap<String, u64> {
    let text: String = t.command(&["INFO", "commandstats"]).await;
    let calls = text.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split_once(',')?.0.parse().ok()?))
    });
    let own = ["info", "ping", "select", "client", "config", "slowlog"];
    let ours = |name: &str| own.contains(&name.split('|').next().unwrap());
    let calls = calls.filter(|(name, _)| !ours(name)).collect();
    t.command::<()>(&["CONFIG", "RESETSTAT"]).await;
    calls
}

/// How many keys and arguments the script of the last operation was given.
async fn handed_over(t: &Stand) -> (String, usize) {
    type Entry = (i64, i64, i64, Vec<String>, String, String);
    let log: Vec<Entry> = t.command(&["SLOWLOG", "GET", "16"]).await;
    let mut calls = log.into_iter().map(|entry| entry.3);
    let call = calls.find(|words| words[0] == "EVALSHA").unwrap();
    (call[2].clone(), call.len())
}

#[tokio::test]
async fn a_burst_is_accepted_and_the_next_one_waits_as_long_as_it_is_told() {
    let t = stand(THREE).await;
    for n in 1..=3 {
        let target = format!("blog:{n}");
        assert_eq!(t.like("u1", &target).await.unwrap(), outcome(true, 1));
    }
    assert_eq!(
        refusal(t.like("u1", "blog:4").await),
        ("operations", MINUTE_MS)
    );
    // Another user has a burst of their own.
    assert_eq!(t.like("u2", "blog:4").await.unwrap(), outcome(true, 1));
    pass(&t, MINUTE_MS - 1).await;
    assert_eq!(refusal(t.like("u1", "blog:4").await), ("operations", 1));
    pass(&t, 1).await;
    assert_eq!(t.like("u1", "blog:4").await.unwrap(), outcome(true, 2));
    // An unlike is an operation too.
    assert_eq!(
        refusal(t.unlike("u1", "blog:4").await),
        ("operations", MINUTE_MS)
    );
    pass(&t, 10 * MINUTE_MS).await;
    for n in 1..=3 {
        t.unlike("u1", &format!("blog:{n}")).await.unwrap();
    }
    refusal(t.unlike("u1", "blog:4").await);
    t.check().await;
}

#[tokio::test]
async fn what_changes_nothing_is_not_counted_and_never_refused() {
    let t = stand(BOTH).await;
    for n in 1..=3 {
        for again in 0..5 {
            let changed = t.like("u1", &format!("blog:{n}")).await.unwrap().changed;
            assert_eq!(changed, again == 0);
        }
    }
    refusal(t.like("u1", "blog:4").await);
    let before = everything(&t).await;
    assert_eq!(t.like("u1", "blog:1").await.unwrap(), outcome(false, 1));
    assert_eq!(t.unlike("u1", "blog:4").await.unwrap(), outcome(false, 0));
    let after = everything(&t).await;
    let changed = after.iter().filter(|one| before.get(one.0) != Some(one.1));
    let changed: Vec<_> = changed.map(|one| one.0.clone()).collect();
    // Its count was cold.
    assert_eq!(changed, [t.key(0, "count:blog:4")]);
    t.check().await;
}

#[tokio::test]
async fn a_refused_operation_leaves_no_trace() {
    let t = stand(BOTH).await;
    for n in 1..=3 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    t.like("u2", "blog:4").await.unwrap();
    let before = everything(&t).await;
    let lives_before = lives(&t).await;
    // One whose count is there, and one whose count would have to be loaded first.
    for target in ["blog:4", "blog:5"] {
        assert_eq!(refusal(t.like("u1", target).await).0, "operations");
    }
    assert_eq!(
        refusal(t.unlike("u2", "blog:4").await),
        ("toggles", 2 * MINUTE_MS)
    );
    assert_eq!(everything(&t).await, before);
    for (key, life) in lives(&t).await {
        assert!(life <= lives_before[&key], "{key} lives longer");
    }
    assert_eq!(t.look("u1", "blog:4").await, (Some(false), Some(1)));
    assert_eq!(t.look("u2", "blog:4").await, (Some(true), Some(1)));
    t.check().await;
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 4);
}

#[tokio::test]
async fn a_refused_operation_leaves_no_trace_beside_an_accepted_one() {
    let t = stand(BOTH).await;
    for n in 1..=3 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    t.like("u2", "blog:4").await.unwrap();
    t.like("u3", "photo:1").await.unwrap();
    let ours = async || {
        let mut all = everything(&t).await;
        let kept = ["user:u1", "user:u2", "rate:u1:blog", "rate:u2:blog"];
        let kept = kept.map(|rest| t.key(0, rest));
        all.retain(|key, _| key.contains(":toggle:") || kept.contains(key));
        all
    };
    let before = ours().await;
    assert_eq!(before.len(), 8);
    // One call each.
    for (thumb, refused, by) in [
        (true, ("u1", "blog:4"), "operations"),
        (false, ("u2", "blog:4"), "toggles"),
    ] {
        let beside = op(if thumb { "u4" } else { "u3" }, "photo:1", thumb);
        let mut operations = vec![op(refused.0, refused.1, thumb); 3];
        operations.push(beside);
        let mut answers = t.service.batch(operations).await;
        assert!(answers.pop().unwrap().unwrap().changed);
        for answer in answers {
            assert_eq!(refusal(answer).0, by);
        }
        assert_eq!(ours().await, before);
    }
    t.check().await;
}

#[tokio::test]
async fn an_unlike_that_is_kept_and_changes_nothing_is_not_counted() {
    let kept = Settings {
        keep_unlikes: true,
        ..limited(THREE, 1).await
    };
    let t = Stand::on(kept).await;
    for n in 0..9 {
        let target = format!("blog:{n}");
        assert_eq!(t.unlike("u1", &target).await.unwrap(), outcome(false, 0));
    }
    assert!(lives(&t).await.is_empty());
    for n in 0..3 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    assert_eq!(refusal(t.unlike("u1", "blog:0").await).0, "operations");
    t.check().await;
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 9);
}

#[tokio::test]
async fn two_instances_together_accept_no_more_than_a_burst() {
    let kinds = "blog+user_operations_per_minute=1+user_operations_burst=20";
    for partitions in [1, 4] {
        let t = Stand::on(limited(kinds, partitions).await).await;
        pass(&t, 60 * MINUTE_MS).await;
        let other = t.another().await;
        let single = (0..60).map(|n| {
            let service = if n % 2 == 0 { &t.service } else { &other };
            service.thumb(op("u1", &format!("blog:{n}"), true))
        });
        let many = |from: usize| (from..from + 100).map(|n| op("u1", &format!("blog:{n}"), true));
        let (single, one, two) = tokio::join!(
            join_all(single),
            t.service.batch(many(100).collect()),
            other.batch(many(200).collect())
        );
        let all = single.into_iter().chain(one).chain(two);
        let (accepted, refused): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
        assert_eq!((accepted.len(), refused.len()), (20, 240));
        for result in refused {
            assert_eq!(refusal(result).0, "operations");
        }
        t.check().await;
        assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 20);
    }
}

#[tokio::test]
async fn the_cooldown_of_a_pair_doubles_up_to_its_maximum_and_decays() {
    let t = stand(COOLDOWN).await;
    let mut liked = false;
    let mut toggle = async || {
        let result = t.service.thumb(op("u1", "blog:1", !liked)).await;
        if result.is_ok() {
            liked = !liked;
        }
        result
    };
    assert!(toggle().await.unwrap().changed);
    for minutes in [1, 2, 4, 4, 4] {
        let wait = minutes * MINUTE_MS;
        assert_eq!(refusal(toggle().await), ("toggles", wait));
        pass(&t, wait - 1).await;
        assert_eq!(refusal(toggle().await), ("toggles", 1));
        pass(&t, 1).await;
        assert!(toggle().await.unwrap().changed);
    }
    // Each four minutes take one of them back: of three one is left, and the next makes two.
    pass(&t, 8 * MINUTE_MS).await;
    toggle().await.unwrap();
    assert_eq!(refusal(toggle().await), ("toggles", 2 * MINUTE_MS));
    pass(&t, 8 * MINUTE_MS).await;
    toggle().await.unwrap();
    assert_eq!(refusal(toggle().await), ("toggles", MINUTE_MS));
    // Of others, and of other users, this means nothing.
    t.like("u1", "blog:2").await.unwrap();
    t.like("u2", "blog:1").await.unwrap();
    t.check().await;
}

#[tokio::test]
async fn thirty_likes_of_thirty_posts_are_no_toggles() {
    let t = stand(COOLDOWN).await;
    for n in 0..30 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    for n in 0..30 {
        let target = format!("blog:{n}");
        assert_eq!(refusal(t.unlike("u1", &target).await).0, "toggles");
    }
    pass(&t, MINUTE_MS).await;
    for n in 0..30 {
        t.unlike("u1", &format!("blog:{n}")).await.unwrap();
    }
    t.check().await;
}

#[tokio::test]
async fn of_two_limits_the_longer_wait_is_told() {
    let t = stand(BOTH).await;
    for n in 1..=3 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    // Two minutes of the pair, one of the user.
    assert_eq!(refusal(t.unlike("u1", "blog:3").await).0, "toggles");
    pass(&t, 9 * MINUTE_MS).await;
    t.like("u1", "blog:4").await.unwrap();
    pass(&t, MINUTE_MS * 3 / 2).await;
    for n in 5..=7 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    // Half a minute of the pair, one of the user.
    let (name, wait) = refusal(t.unlike("u1", "blog:4").await);
    assert_eq!((name, wait), ("operations", MINUTE_MS));
    pass(&t, wait).await;
    assert!(t.unlike("u1", "blog:4").await.unwrap().changed);
    t.check().await;
}

#[tokio::test]
async fn a_partial_user_and_a_cold_one_are_limited_too() {
    let few = Settings {
        resident_thumbs_max: 2,
        ..limited(THREE, 1).await
    };
    let t = Stand::on(few).await;
    for n in 0..9 {
        pass(&t, 10 * MINUTE_MS).await;
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    t.flush().await;
    t.command::<()>(&["DEL", &t.user_key("u1"), &t.key(0, "count:blog:0")])
        .await;
    pass(&t, 10 * MINUTE_MS).await;
    for n in 0..3 {
        let target = format!("blog:{n}");
        assert_eq!(t.unlike("u1", &target).await.unwrap(), outcome(true, 0));
    }
    for n in 3..9 {
        refusal(t.unlike("u1", &format!("blog:{n}")).await);
        assert!(!t.like("u1", &format!("blog:{n}")).await.unwrap().changed);
    }
    refusal(t.like("u1", "blog:10").await);
    t.check().await;
    assert_eq!(
        t.number("SELECT COUNT(*) FROM thumb WHERE thumbed = 1")
            .await,
        6
    );
}

#[tokio::test]
async fn an_item_of_a_batch_is_refused_and_the_rest_goes_on() {
    let t = stand(BOTH).await;
    let operations = vec![
        op("u1", "blog:1", true),
        op("u1", "photo:1", true),
        op("u1", "blog:1", false),
        op("u1", "blog:2", true),
        // Behind a refused one of its pair: as if nothing had been asked.
        op("u1", "blog:1", true),
        op("u1", "blog:3", true),
        op("u1", "photo:1", false),
        op("u1", "blog:4", true),
        op("u2", "blog:4", true),
        op("u1", "photo:1", true),
        op("u1", "blog:4", false),
    ];
    let answers = t.service.batch(operations).await;
    let words = answers.into_iter().map(|one| match one {
        Ok(outcome) if outcome.changed => "changed",
        Ok(_) => "unchanged",
        other => refusal(other).0,
    });
    let words: Vec<&str> = words.collect();
    assert_eq!(
        words,
        [
            "changed",
            "changed",
            "toggles",
            "changed",
            "toggles",
            "changed",
            "changed",
            "operations",
            "changed",
            "changed",
            "operations",
        ]
    );
    assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(1)));
    assert_eq!(t.look("u1", "blog:4").await, (Some(false), Some(1)));
    assert!(keys(&t, ":toggle:*photo*").await.is_empty());
    t.check().await;
}

/// What a caller is told, without the parts that every problem has.
fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer
        .headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_refusal_is_429_and_says_which_limit_and_when_to_come_again() {
    let app = TestApp::with(|settings| settings.kinds = Kinds::parse(BOTH).unwrap()).await;
    assert_eq!(app.like("u1", "blog/1").await.status, 200);
    let toggled = app.unlike("u1", "blog/1").await;
    assert_eq!(toggled.status, 429, "{toggled:?}");
    let body = toggled.json();
    assert_eq!(
        (&body["code"], &body["field"], &body["limit"]),
        (&json!("rate_limited"), &json!("id"), &json!(1))
    );
    assert_eq!(
        header(&toggled, "ratelimit-policy"),
        "\"toggles\";q=1;w=480"
    );
    assert!(header(&toggled, "ratelimit").starts_with("\"toggles\";r=0;t="));

    assert_eq!(app.like("u1", "blog/2").await.status, 200);
    assert_eq!(app.like("u1", "blog/3").await.status, 200);
    let much = app.like("u1", "blog/4").await;
    assert_eq!(much.status, 429, "{much:?}");
    assert_eq!(header(&much, "content-type"), "application/problem+json");
    let after: u64 = header(&much, "retry-after").parse().unwrap();
    assert!((1..=60).contains(&after), "{after}");
    assert_eq!(
        header(&much, "ratelimit-policy"),
        "\"operations\";q=3;w=180"
    );
    assert_eq!(
        header(&much, "ratelimit"),
        format!("\"operations\";r=0;t={after}")
    );
    let body = much.json();
    assert_eq!(
        (
            &body["code"],
            &body["field"],
            &body["limit"],
            &body["retry_after"]
        ),
        (
            &json!("rate_limited"),
            &json!("user"),
            &json!(1),
            &json!(after)
        )
    );
    // The same caller, the service key, for another user.
    assert_eq!(app.like("u2", "blog/4").await.status, 200);
    assert_eq!(app.get("u1", "blog/4").await.status, 200);

    let batch = app
        .batch(json!([
            { "op": "like", "user": "u3", "kind": "blog", "id": "1" },
            { "op": "like", "user": "u1", "kind": "blog", "id": "4" },
            { "op": "like", "user": "u1", "kind": "photo", "id": "4" },
            { "op": "unlike", "user": "u3", "kind": "blog", "id": "1" },
        ]))
        .await;
    let results = &batch.json()["results"];
    let statuses: Vec<_> = (0..4).map(|at| results[at]["status"].as_u64()).collect();
    assert_eq!(statuses, [Some(200), Some(429), Some(200), Some(429)]);
    let error = &results[1]["error"];
    assert_eq!(
        (&error["code"], &error["field"]),
        (&json!("rate_limited"), &json!("operations[1].user"))
    );
    assert!(error["retry_after"].as_u64().is_some(), "{error}");
    assert_eq!(results[3]["error"]["field"], "operations[3].id");

    let metrics = app.admin(Method::GET, "/metrics").await.text;
    for action in ["like", "unlike"] {
        let line =
            format!("thumbd_operations_total{{action=\"{action}\",outcome=\"rate_limited\"}}");
        assert!(metrics.contains(&line), "{metrics}");
    }
    let env = app.finish().await;
    let t = Stand::on(crate::app::settings(&env)).await;
    t.check().await;
}

#[tokio::test]
async fn without_limits_redis_is_asked_for_nothing_more() {
    let mut seen = Vec::new();
    for kinds in [
        "blog",
        "blog,photo+user_operations_per_minute=1+user_operations_burst=1",
        BOTH,
    ] {
        let own = Own::start(|_| {});
        let t = own
            .stand(|settings| settings.kinds = Kinds::parse(kinds).unwrap())
            .await;
        let all = ["CONFIG", "SET", "slowlog-log-slower-than", "0"];
        t.command::<()>(&all).await;
        t.like("u1", "blog:1").await.unwrap();
        t.like("u1", "blog:2").await.unwrap();
        commands(&t).await;
        t.like("u1", "blog:1").await.unwrap();
        let unchanged = commands(&t).await;
        t.like("u1", "blog:2").await.unwrap();
        t.like("u2", "blog:1").await.unwrap();
        commands(&t).await;
        t.like("u2", "blog:2").await.unwrap();
        let changed = commands(&t).await;
        let (given, keys) = (handed_over(&t).await, lives(&t).await.len());
        seen.push((unchanged, changed, given, keys));
        t.check().await;
    }
    let (unchanged, changed, given, keys) = &seen[0];
    let of = |counts: &[(&str, u64)]| -> BTreeMap<String, u64> {
        let counts = counts
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count));
        counts.collect()
    };
    let asked = [("evalsha", 1), ("hmget", 2), ("mget", 1), ("time", 1)];
    assert_eq!(*unchanged, of(&asked));
    let written = [("hset", 3), ("mset", 1), ("zadd", 1)];
    assert_eq!(*changed, of(&[&asked[..], &written].concat()));
    assert_eq!((*keys, given), (0, &("5".to_owned(), 14)));
    // Limits of another kind change nothing of that.
    assert_eq!(seen[1], seen[0]);
    // With limits, what changes nothing costs nothing more, and a change four commands.
    assert_eq!(seen[2].0, *unchanged);
    let more = [("get", 2), ("set", 2)];
    assert_eq!(seen[2].1, of(&[&asked[..], &written, &more].concat()));
    assert_eq!((&*seen[2].2.0, seen[2].3), ("7", 6));
}

#[tokio::test]
async fn keys_of_limits_have_a_ttl_always_and_no_job_touches_them() {
    let t = Stand::on(limited(BOTH, 1).await).await;
    for n in 1..=3 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    refusal(t.unlike("u1", "blog:1").await);
    let before = lives(&t).await;
    assert_eq!(before.len(), 4);
    for (key, life) in &before {
        // Until what they say means nothing any more: three operations, one toggle.
        let most = if key.contains(":rate:") { 3 } else { 8 } * MINUTE_MS as i64;
        assert!((1..=most).contains(life), "{key} {life}");
    }
    let ours = everything(&t).await;
    let ours: Vec<_> = ours
        .iter()
        .filter(|one| before.contains_key(one.0))
        .collect();
    t.flush().await;
    t.check().await;
    let (one, blog) = (user("u1"), target("blog:1"));
    t.hot.forget(0, &[one], &[blog]).await.unwrap();
    assert_eq!(t.hot.slices_found(0).await.unwrap(), []);
    let mut cursor = thumbd::hot::ScanCursor::default();
    let page = t.hot.resident_keys_page(0, true, &mut cursor);
    let found = page.await.unwrap();
    assert!(!cursor.ended() || found.len() <= 1, "{found:?}");
    assert_eq!(t.verify().await.differences, []);
    let now = everything(&t).await;
    for (key, value) in ours {
        assert_eq!(now.get(key), Some(value), "{key}");
    }
    for (key, life) in lives(&t).await {
        assert!((1..=before[&key]).contains(&life), "{key} {life}");
    }
    refusal(t.like("u1", "blog:4").await);
    t.check().await;
}

#[tokio::test]
async fn a_redis_that_lost_the_keys_of_limits_has_forgotten_them() {
    let t = stand(BOTH).await;
    for n in 1..=3 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    refusal(t.like("u1", "blog:4").await);
    refusal(t.unlike("u1", "blog:1").await);
    for key in lives(&t).await.keys() {
        t.command::<()>(&["DEL", key]).await;
    }
    assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(true, 0));
    assert_eq!(t.like("u1", "blog:4").await.unwrap(), outcome(true, 1));
    t.check().await;
}

#[tokio::test]
async fn limits_hold_over_a_crash_of_redis_as_far_as_its_file_goes() {
    // With `everysec` a write may wait until the disk has the one before, and go with the crash.
    let mut own = Own::start(|options| {
        options.aof = true;
        options.extra_args = vec!["--appendfsync".into(), "always".into()];
    });
    let kinds = Kinds::parse(BOTH).unwrap();
    let mut t = own.stand(|settings| settings.kinds = kinds.clone()).await;
    pass(&t, 60 * MINUTE_MS).await;
    for n in 1..=3 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    own.server.kill().unwrap();
    own.server.restart().unwrap();
    crate::redis_faults::healed(&mut t).await;
    assert_eq!(refusal(t.like("u1", "blog:4").await).0, "operations");
    assert_eq!(refusal(t.unlike("u1", "blog:1").await).0, "toggles");
    assert_eq!(lives(&t).await.len(), 4);
    assert!(lives(&t).await.values().all(|life| *life > 0));
    t.check().await;
}

#[tokio::test]
async fn other_limits_hold_at_once_for_what_was_counted_before() {
    let t = stand("blog+user_operations_per_minute=1+user_operations_burst=30").await;
    for n in 0..30 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    for (limits, wait) in [
        (THREE, 28 * MINUTE_MS),
        (
            "blog+user_operations_per_minute=60+user_operations_burst=30",
            1000,
        ),
    ] {
        let other = Settings {
            kinds: Kinds::parse(limits).unwrap(),
            ..t.settings.clone()
        };
        let other = Stand::on(other).await;
        let refused = other.like("u1", "blog:30").await;
        assert_eq!(refusal(refused), ("operations", wait));
    }
    let none = Settings {
        kinds: Kinds::any(),
        ..t.settings.clone()
    };
    let none = Stand::on(none).await;
    assert!(none.like("u1", "blog:30").await.unwrap().changed);
    t.check().await;
}

#[tokio::test]
async fn a_script_that_redis_forgot_knows_the_limits_when_it_comes_again() {
    let own = Own::start(|_| {});
    let kinds = Kinds::parse(THREE).unwrap();
    let t = own.stand(|settings| settings.kinds = kinds).await;
    for n in 1..=3 {
        t.command::<()>(&["SCRIPT", "FLUSH"]).await;
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    t.command::<()>(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(refusal(t.like("u1", "blog:4").await).0, "operations");
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_retries_from_quarantine_is_not_limited() {
    let t = stand(THREE).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let table = "[kinds.blog]\nuser_operations_per_minute = 1\nuser_operations_burst = 3\n";
    std::fs::write(file.path(), table).unwrap();
    t.script(
        "CREATE TRIGGER refuse BEFORE INSERT ON thumb FOR EACH ROW \
         SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not now'",
    )
    .await;
    for n in 1..=3 {
        t.like("u1", &format!("blog:{n}")).await.unwrap();
    }
    assert_eq!(t.flush().await.quarantined, 3);
    t.script("DROP TRIGGER refuse").await;
    refusal(t.like("u1", "blog:4").await);
    let config = file.path().to_str().unwrap();
    let words = ["quarantine", "retry", "--all", "--config", config];
    let (code, text) = t.program(&words).await;
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 3);
    t.check().await;
}
