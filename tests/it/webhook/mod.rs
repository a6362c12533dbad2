//! The change feed's webhook: batches come in order, signed, again under the same id until they are taken, and nothing that the
//! consumer does holds up the flush.

mod hook;

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use thumbd::config::{FeedTarget, Settings, WebhookSecrets, WebhookUrl};
use thumbd::feed::{FeedError, Relay};
use thumbd::ledger::FeedState;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::feed::{counts, delivered, rows};
use crate::serve::{Serve, until};
use crate::servers;
use crate::stand::{self, Stand};
use hook::{Delivery, Hook, Reply};

#[path = "../../../examples/webhook_consumer.rs"]
#[allow(unreachable_pub, reason = "an example is a program of its own")]
pub(crate) mod webhook_consumer;
use webhook_consumer::Consumer;
use webhook_consumer::feed_consumer::{Likes, Told};

/// More than any test tells.
const MANY: u64 = 10_000;
/// Text, so that it would be seen wherever it was printed.
const KEY: &[u8] = b"key-that-nobody-else-may-see";
const OTHER_KEY: &[u8] = b"key-that-comes-after-the-one";

fn secret(key: &[u8]) -> String {
    format!("whsec_{}", STANDARD.encode(key))
}

/// A stand whose changes are told to this address.
async fn told_to(url: &str, backlog_max: u64) -> Stand {
    let settings = Settings {
        slice_seconds: 3600,
        // A relay that is dropped does not give it back.
        lease_ttl_ms: 1000,
        feed: FeedTarget::Webhook,
        feed_webhook_url: Some(WebhookUrl::parse(url).unwrap()),
        feed_webhook_secret: Some(WebhookSecrets::parse(&secret(KEY)).unwrap()),
        ..stand::settings(1).await
    };
    let stand = Stand::on(settings).await;
    stand.ledger.feed_set(true, backlog_max).await.unwrap();
    stand
}

/// Delivers until it is dropped.
fn relay(settings: &Settings, stand: &Stand) -> AbortOnDropHandle<std::convert::Infallible> {
    let relay = Relay::new(settings, &stand.service).unwrap();
    AbortOnDropHandle::new(tokio::spawn(relay.run()))
}

/// Takes in all deliveries, each of which must be signed and hold nothing new out of order.
fn take(deliveries: &[Delivery]) -> Likes {
    let mut likes = Likes::default();
    for delivery in deliveries {
        assert_eq!(
            delivery.header("webhook-signature"),
            delivery.signature(KEY)
        );
        assert_eq!(delivery.header("content-type"), "application/json");
        for event in delivery.events() {
            let before = likes.last;
            let told = likes.take(&event);
            let gap = event["type"] == "gap" && told != Told::Known;
            assert_eq!(told == Told::Missed, gap, "{event} behind {before}");
        }
    }
    likes
}

fn same(one: &Delivery, other: &Delivery) {
    assert_eq!((one.id(), &one.body), (other.id(), &other.body));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_ends_with_what_the_tables_say() {
    let hook = Hook::start().await;
    let stand = told_to(&hook.url, MANY).await;
    let _relay = relay(&stand.settings, &stand);
    for round in 0..3 {
        for n in 0..20 {
            let (user, target) = (format!("u{}", n % 7), format!("blog:{}", n % 5));
            let operation = stand::op(&user, &target, (n + round) % 3 > 0);
            stand.service.thumb(operation).await.unwrap();
        }
        stand.flush().await;
        delivered(&stand).await;
        let likes = take(&hook.came());
        assert_eq!(likes.pairs, rows(&stand).await);
        let mut stored = counts(&stand).await;
        stored.retain(|target, count| *count > 0 || likes.counts.contains_key(target));
        assert_eq!(likes.counts, stored);
    }
    // What one user did stands in the order in which it happened.
    let came = hook.came();
    let events: Vec<Value> = came.iter().flat_map(Delivery::events).collect();
    for user in (0..7).map(|n| format!("u{n}")) {
        let of_user = events.iter().filter(|event| event["user"] == *user);
        let versions: Vec<u64> = of_user
            .map(|event| event["version"].as_u64().unwrap())
            .collect();
        assert!(versions.len() > 1 && versions.is_sorted(), "{versions:?}");
    }
    let mut ids: Vec<&str> = came.iter().map(Delivery::id).collect();
    assert!(ids.iter().all(|id| !id.contains('.')), "{ids:?}");
    let deliveries = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), deliveries, "an id came twice");
    stand.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_refused_comes_again_as_it_was_whatever_has_come_meanwhile() {
    let hook = Hook::start().await;
    let codes = [500, 404, 410, 302, 429];
    hook.answers(codes.map(Reply::Status));
    let stand = told_to(&hook.url, MANY).await;
    stand.like("u1", "blog:1").await.unwrap();
    stand.flush().await;
    let _relay = relay(&stand.settings, &stand);
    hook.comes(1).await;
    stand.like("u2", "blog:1").await.unwrap();
    stand.flush().await;
    delivered(&stand).await;
    let came = hook.came();
    assert_eq!(came.len(), codes.len() + 2);
    for again in &came[1..=codes.len()] {
        same(again, &came[0]);
    }
    // A gap, a thumb and a count; then a thumb and a count.
    let events = [&came[0], &came[codes.len() + 1]].map(|one| one.events().len());
    assert_eq!(events, [3, 2]);
    assert_eq!(take(&came).pairs, rows(&stand).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_asks_for_a_pause_gets_it() {
    let hook = Hook::start().await;
    hook.answers([Reply::After(3)]);
    let stand = told_to(&hook.url, MANY).await;
    // Longer than the lease lives: it is kept all the same, and the other relay waits too.
    let _relays = [(); 2].map(|()| relay(&stand.settings, &stand));
    let came = hook.comes(2).await;
    same(&came[0], &came[1]);
    let pause = came[1].at - came[0].at;
    assert!(pause >= Duration::from_secs(3), "{pause:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_not_followed() {
    let (hook, elsewhere) = (Hook::start().await, Hook::start().await);
    hook.answers([Reply::Redirect(elsewhere.url.clone())]);
    let stand = told_to(&hook.url, MANY).await;
    let _relay = relay(&stand.settings, &stand);
    delivered(&stand).await;
    let came = hook.came();
    assert_eq!((came.len(), elsewhere.came().len()), (2, 0));
    same(&came[0], &came[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_end_is_cut() {
    let hook = Hook::start().await;
    hook.answers([Reply::Endless]);
    let stand = told_to(&hook.url, MANY).await;
    let _relay = relay(&stand.settings, &stand);
    delivered(&stand).await;
    until("the connection is closed", async || {
        hook.endless_cut().is_some()
    })
    .await;
    // What was read, and what the buffers of both sockets took.
    let bytes = hook.endless_cut().unwrap();
    assert!(bytes < 32 * 1024 * 1024, "{bytes}");
    stand.like("u1", "blog:1").await.unwrap();
    stand.flush().await;
    delivered(&stand).await;
    assert_eq!(take(&hook.came()).pairs, rows(&stand).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_does_not_answer_is_given_up_and_asked_again() {
    let hook = Hook::start().await;
    hook.answers([Reply::Never]);
    let stand = told_to(&hook.url, MANY).await;
    let _relay = relay(&stand.settings, &stand);
    hook.comes(1).await;
    let begun = Instant::now();
    stand.like("u1", "blog:1").await.unwrap();
    stand.flush().await;
    assert_eq!(stand.number("SELECT count FROM thumb_count").await, 1);
    assert_eq!(hook.came().len(), 1, "after {:?}", begun.elapsed());
    delivered(&stand).await;
    let came = hook.came();
    same(&came[0], &came[1]);
    let waited = came[1].at - came[0].at;
    assert!(waited >= Duration::from_secs(15), "{waited:?}");
    assert_eq!(take(&came).pairs, rows(&stand).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_webhook_stops_the_feed_and_nothing_else() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let stand = told_to(&url, 4).await;
    let dead = relay(&stand.settings, &stand);
    for user in ["u1", "u2", "u3"] {
        stand.like(user, "blog:1").await.unwrap();
        stand.flush().await;
    }
    assert_eq!(stand.number("SELECT count FROM thumb_count").await, 3);
    let status = stand.ledger.feed_status().await.unwrap();
    assert_eq!((status.state, status.backlog), (FeedState::Stopped, 3));
    assert_eq!(stand.program(&["feed", "status"]).await.0, Some(1));
    drop(dead);

    // It begins again behind a gap. Nothing of before comes.
    assert_eq!(stand.program(&["feed", "resume"]).await.0, Some(0));
    let hook = Hook::start().await;
    let settings = Settings {
        feed_webhook_url: Some(WebhookUrl::parse(&hook.url).unwrap()),
        ..stand.settings.clone()
    };
    let _relay = relay(&settings, &stand);
    stand.like("u4", "blog:1").await.unwrap();
    stand.flush().await;
    delivered(&stand).await;
    let events: Vec<Value> = hook.came().iter().flat_map(Delivery::events).collect();
    let types: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
    assert_eq!(types, ["gap", "thumb", "count"]);
    assert!(events[0]["id"].as_u64().unwrap() > status.last_id);
    stand.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_events_come_in_deliveries_of_bounded_size() {
    let hook = Hook::start().await;
    let stand = told_to(&hook.url, MANY).await;
    let long = "t".repeat(100);
    for n in 0..700 {
        let target = format!("blog:{long}{n}");
        stand.like("u1", &target).await.unwrap();
    }
    stand.flush().await;
    let _relay = relay(&stand.settings, &stand);
    delivered(&stand).await;
    let came = hook.came();
    assert_eq!(take(&came).pairs.len(), 700);
    let events: Vec<usize> = came.iter().map(|one| one.events().len()).collect();
    assert_eq!(events.iter().sum::<usize>(), 1401);
    let bytes: Vec<usize> = came.iter().map(|one| one.body.len()).collect();
    assert!(bytes.iter().all(|bytes| *bytes <= 64 * 1024), "{bytes:?}");
    // None is smaller than it must be, but for the end of a page.
    assert!(came.len() <= 8, "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_what_it_was_bound_to_first() {
    let stand = told_to("http://127.0.0.1:1/", MANY).await;
    stand.like("u1", "blog:1").await.unwrap();
    stand.flush().await;
    let first = stand.ledger.feed_page(1).await.unwrap()[0].id;
    let bind = async |last| stand.ledger.feed_bind(first, last).await.unwrap();
    assert_eq!(bind(first + 1).await, Some(first + 1));
    assert_eq!(bind(first + 2).await, Some(first + 1));
    stand.ledger.feed_delivered(first + 1).await.unwrap();
    assert_eq!(bind(first + 2).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_forgot_what_the_webhook_was_told_begins_again_with_a_gap() {
    let hook = Hook::start().await;
    let stand = told_to(&hook.url, MANY).await;
    let _relay = relay(&stand.settings, &stand);
    stand.like("u1", "blog:1").await.unwrap();
    stand.flush().await;
    delivered(&stand).await;
    let before = hook.came();
    let known = take(&before).last;
    // As a backup from before the first event would.
    stand.sql("UPDATE flush_state SET feed_last = 7").await;
    stand.like("u2", "blog:1").await.unwrap();
    stand.flush().await;
    let news = &hook.comes(before.len() + 1).await[before.len()..];
    let event = &news[0].events()[0];
    assert_eq!(event["type"], "gap");
    assert!(event["id"].as_u64().unwrap() > known, "{event}");
    stand.like("u3", "blog:1").await.unwrap();
    stand.flush().await;
    delivered(&stand).await;
    assert_eq!(take(&hook.came()).counts, counts(&stand).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_secret_is_replaced_both_sign() {
    let hook = Hook::start().await;
    let stand = told_to(&hook.url, MANY).await;
    let both = format!("{} {}", secret(OTHER_KEY), secret(KEY));
    let settings = Settings {
        feed_webhook_secret: Some(WebhookSecrets::parse(&both).unwrap()),
        ..stand.settings.clone()
    };
    let _relay = relay(&settings, &stand);
    let came = &hook.comes(1).await[0];
    let wanted = [OTHER_KEY, KEY].map(|key| came.signature(key));
    assert_eq!(came.header("webhook-signature"), wanted.join(" "));
    let now = came.header("webhook-timestamp").parse().unwrap();
    for key in [OTHER_KEY, KEY] {
        let consumer = Consumer::new(&secret(key)).unwrap();
        let status = consumer.take(&came.headers, came.body.as_bytes(), now);
        assert_eq!(status, 204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_takes_what_is_signed_and_fresh_once() {
    let consumer = Arc::new(Consumer::new(&secret(KEY)).unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = webhook_consumer::router(Arc::clone(&consumer));
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let stand = told_to(&url, MANY).await;
    let relays = relay(&stand.settings, &stand);
    for (user, wanted) in [("u1", true), ("u2", true), ("u1", false)] {
        let operation = stand::op(user, "blog:1", wanted);
        stand.service.thumb(operation).await.unwrap();
        stand.flush().await;
    }
    delivered(&stand).await;
    let stored = (rows(&stand).await, counts(&stand).await);
    assert_eq!(consumer.likes().pairs, stored.0);
    assert_eq!(consumer.likes().counts, stored.1);
    drop(relays);
    server.abort();

    // What is not thumbd's own word changes nothing.
    let hook = Hook::start().await;
    let settings = Settings {
        feed_webhook_url: Some(WebhookUrl::parse(&hook.url).unwrap()),
        ..stand.settings.clone()
    };
    let _relay = relay(&settings, &stand);
    stand.like("u3", "blog:1").await.unwrap();
    stand.flush().await;
    let came = &hook.comes(1).await[0];
    let now: u64 = came.header("webhook-timestamp").parse().unwrap();
    let take = |headers: &_, body: &str, now| consumer.take(headers, body.as_bytes(), now);
    let known = consumer.likes().last;
    assert_eq!(take(&came.headers, &came.body, now + 301), 401);
    assert_eq!(take(&came.headers, &came.body, now - 301), 401);
    assert_eq!(
        take(&came.headers, &came.body.replace("u3", "u4"), now),
        401
    );
    for (name, value) in [
        ("webhook-id", "another".to_owned()),
        ("webhook-timestamp", (now + 1).to_string()),
        ("webhook-signature", came.signature(OTHER_KEY)),
        ("webhook-signature", String::new()),
    ] {
        let mut headers = came.headers.clone();
        headers.insert(name, value.parse().unwrap());
        assert_eq!(take(&headers, &came.body, now), 401, "{name}");
        headers.remove(name);
        assert_eq!(take(&headers, &came.body, now), 401, "{name}");
    }
    assert_eq!(consumer.likes().last, known);
    let stored = rows(&stand).await;
    for _ in 0..2 {
        assert_eq!(take(&came.headers, &came.body, now + 300), 204);
        assert_eq!(consumer.likes().pairs, stored);
        assert_eq!(consumer.likes().last, known + 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn https_is_believed_with_a_certificate_of_the_right_authority_and_name() {
    let (hook, authority) = Hook::start_tls().await;
    let (_, stranger) = Hook::start_tls().await;
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path.to_str().unwrap().to_owned())
    };
    let stand = told_to(&hook.url, MANY).await;
    let with = |file, url: &str| Settings {
        feed_webhook_ca_file: file,
        feed_webhook_url: Some(WebhookUrl::parse(url).unwrap()),
        ..stand.settings.clone()
    };
    let right = file("right.pem", &authority);
    let by_number = hook.url.replace("localhost", "127.0.0.1");
    let wrong = [
        with(file("stranger.pem", &stranger), &hook.url),
        with(right.clone(), &by_number),
    ];
    for (refused, settings) in (1..).zip(&wrong) {
        let _relay = relay(settings, &stand);
        until("TLS is refused", async || hook.bad_handshakes() >= refused).await;
    }
    assert_eq!(hook.came().len(), 0);
    let _relay = relay(&with(right, &hook.url), &stand);
    delivered(&stand).await;
    let status = stand.ledger.feed_status().await.unwrap();
    assert_eq!(take(&hook.came()).last, status.last_id);

    let refused = |file| match Relay::new(&with(file, &hook.url), &stand.service) {
        Err(error @ FeedError::Certificates { .. }) => error.to_string(),
        _ => panic!("it is taken"),
    };
    for (name, path) in [
        ("none.pem", file("none.pem", "no certificate")),
        ("/nowhere.pem", Some("/nowhere.pem".to_owned())),
    ] {
        let problem = refused(path);
        assert!(
            problem.starts_with("feed_webhook_ca_file: ") && problem.contains(name),
            "{problem}"
        );
    }
}

/// The environment of a process that tells this address.
fn variables<'a>(url: &'a str, secret: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        ("THUMBD_SLICE_SECONDS", "3600"),
        ("THUMBD_LEASE_TTL_MS", "3000"),
        ("THUMBD_FEED", "webhook"),
        ("THUMBD_FEED_WEBHOOK_URL", url),
        ("THUMBD_FEED_WEBHOOK_SECRET", secret),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_killed_before_the_removal_tells_the_same_again() {
    let env = servers::env().await;
    let hook = Hook::start().await;
    let secret = secret(KEY);
    let mut settings = variables(&hook.url, &secret);
    // The first passing delivers the gap.
    settings.push(("FAILPOINTS", "feed.delivered=2*hold"));
    let mut victim = Serve::start(&env, &settings).await;
    hook.comes(1).await;
    assert_eq!(victim.like("u1", "blog/1").await.status, 200);
    victim.admin("/admin/v1/flushes").await.unwrap();
    victim.said("failpoint feed.delivered").await;
    victim.kill();
    // More waits by the time it is told again.
    let stand = Stand::on(Settings {
        slice_seconds: 3600,
        ..crate::app::settings(&env)
    })
    .await;
    stand.like("u2", "blog:1").await.unwrap();
    stand.flush().await;
    settings.pop();
    let next = Serve::start(&env, &settings).await;
    delivered(&stand).await;
    let came = hook.came();
    assert_eq!(came.len(), 4);
    same(&came[1], &came[2]);
    let likes = take(&came);
    assert_eq!(likes.pairs, rows(&stand).await);
    assert_eq!(likes.counts, counts(&stand).await);
    next.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_and_the_path_are_shown_nowhere_and_the_backlog_at_once() {
    let env = servers::env().await;
    let hook = Hook::start().await;
    let (open, gate) = watch::channel(false);
    hook.answers([Reply::Status(204), Reply::Status(500), Reply::Gate(gate)]);
    let secret = secret(KEY);
    let url = format!("{}hooks/token-in-a-path?token=in-a-query", hook.url);
    let mut settings = variables(&url, &secret);
    let everything = "thumbd=trace,hyper=trace,hyper_util=trace,hyper_rustls=trace,rustls=trace";
    settings.push(("THUMBD_LOG", everything));
    let serve = Serve::start(&env, &settings).await;
    hook.comes(1).await;
    assert_eq!(serve.like("u1", "blog/1").await.status, 200);
    serve.admin("/admin/v1/flushes").await.unwrap();
    serve.said("the change feed does not deliver").await;
    hook.comes(3).await;
    const BACKLOG: &str = "thumbd_feed_backlog_events";
    until("two events wait", async || {
        serve.metric(BACKLOG).await == Some(2.0)
    })
    .await;
    open.send_replace(true);
    let begun = Instant::now();
    until("none waits", async || {
        serve.metric(BACKLOG).await == Some(0.0)
    })
    .await;
    let elapsed = begun.elapsed();
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
    assert!(serve.metric("thumbd_feed_failures_total").await >= Some(1.0));

    let metrics = serve.client.get(format!("{}/metrics", serve.url));
    let mut shown = serve.lines();
    shown.push(crate::app::send(metrics).await.text);
    let status = serve.client.get(format!("{}/admin/v1/feed", serve.url));
    let status = status.bearer_auth(crate::app::ADMIN_TOKEN);
    shown.push(crate::app::send(status).await.text);
    // The host is shown: whoever runs it must know who does not answer.
    let host = hook.url.trim_end_matches('/');
    assert!(shown.iter().any(|line| line.contains(host)));
    serve.stop();

    let mut bad = settings.clone();
    bad.retain(|(name, _)| *name != "THUMBD_FEED_WEBHOOK_SECRET");
    bad.push(("THUMBD_FEED_WEBHOOK_SECRET_FILE", "/nowhere"));
    let (code, lines) = Serve::spawn(&env, &bad).ended().await;
    assert_eq!(code.code(), Some(1));
    assert!(lines.concat().contains("/nowhere"), "{lines:?}");
    shown.extend(lines);
    let key = String::from_utf8(KEY.to_vec()).unwrap();
    for line in &shown {
        for word in [&key, &secret[6..20], "token-in-a-path", "in-a-query"] {
            assert!(!line.contains(word), "{word}: {line}");
        }
    }
}
