//! A new generation makes everybody cold at once: MySQL sees a bounded crowd, the rest is told when to come again.

use std::io::BufReader;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Client;
use thumbd::limits::COLD_QUERIES_MAX;
use thumbd::service::distrust;
use tokio::sync::Semaphore;

use super::{Own, agree, fill_slice};
use crate::app::SERVICE_KEY;
use crate::process::{behind, end, signal, thumbd};
use crate::servers::slow;
use crate::stand::Stand;

/// Requests on their way at once: each needs a connection.
const CONNECTIONS: usize = 1000;

struct Herd {
    client: Client,
    url: String,
    gate: Semaphore,
    refused: AtomicU64,
}

impl Herd {
    /// One user, who comes again as told.
    async fn like(&self, user: u64) {
        loop {
            let answer = {
                let _place = self.gate.acquire().await.unwrap();
                let call = self
                    .client
                    .put(format!("{}/v1/likes/news/{}", self.url, user % 20));
                let call = call
                    .bearer_auth(SERVICE_KEY)
                    .header("X-User-Id", format!("u{user}"));
                call.send().await.unwrap()
            };
            if answer.status() == 200 {
                return;
            }
            assert_eq!(answer.status(), 503);
            let wait = answer.headers()["retry-after"].to_str().unwrap().to_owned();
            let body: serde_json::Value = answer.json().await.unwrap();
            assert_eq!(body["code"], "busy", "{body}");
            self.refused.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(wait.parse().unwrap())).await;
        }
    }

    async fn pending(&self) -> i64 {
        let metrics = self
            .client
            .get(format!("{}/metrics", self.url))
            .send()
            .await
            .unwrap();
        let text = metrics.text().await.unwrap();
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix("thumbd_cold_loads_pending "));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

/// Statements that the database works on, for anybody but this look.
async fn queries(t: &Stand) -> i64 {
    t.number(
        "SELECT COUNT(*) FROM information_schema.processlist
         WHERE db = DATABASE() AND command NOT IN ('Sleep', 'Daemon') AND id <> CONNECTION_ID()",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_generation_does_not_bring_mysql_down() {
    let (users, loads_max) = if slow() { (100_000, 500) } else { (2000, 100) };
    // All is well again within a minute. A debug build that shares its processors with the herd is several times slower.
    let well_again = Duration::from_secs(if slow() { 240 } else { 60 });
    let own = Own::start(|_| {});
    let t = own.stand(|_| {}).await;
    fill_slice(&t, users).await;
    t.flush().await;
    let loads = loads_max.to_string();
    let variables = [
        ("THUMBD_LISTEN", "127.0.0.1:0"),
        ("THUMBD_SERVICE_KEY", SERVICE_KEY),
        ("THUMBD_ADMIN_TOKEN", "admin-token"),
        (
            "THUMBD_REDIS_URL",
            t.settings.redis_url.as_ref().unwrap().expose(),
        ),
        (
            "THUMBD_DATABASE_URL",
            t.settings.database_url.as_ref().unwrap().expose(),
        ),
        ("THUMBD_KEY_PREFIX", &*t.settings.key_prefix),
        ("THUMBD_SLICE_SECONDS", "3600"),
        ("THUMBD_COLD_LOADS_MAX", &*loads),
    ];
    let mut child = thumbd(&["serve"], &variables);
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let url = format!("http://{}", behind("address=", &mut log));
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    let herd = Herd {
        client: Client::builder().no_proxy().build().unwrap(),
        url,
        gate: Semaphore::new(CONNECTIONS),
        refused: AtomicU64::new(0),
    };
    distrust(&t.hot, &t.ledger, 0).await.unwrap();
    let coming = AtomicBool::new(true);
    let (pending_max, queries_max) = (AtomicI64::new(0), AtomicI64::new(0));
    let begun = Instant::now();
    let all = async {
        join_all((0..users).map(|user| herd.like(user))).await;
        coming.store(false, Ordering::Relaxed);
    };
    let watch_pending = async {
        while coming.load(Ordering::Relaxed) {
            pending_max.fetch_max(herd.pending().await, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let watch_queries = async {
        while coming.load(Ordering::Relaxed) {
            queries_max.fetch_max(queries(&t).await, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::join!(all, watch_pending, watch_queries);
    let took = begun.elapsed();
    let (refused, pending_max, queries_max) = (
        herd.refused.into_inner(),
        pending_max.into_inner(),
        queries_max.into_inner(),
    );
    println!(
        "{users} users in {took:?}; {refused} refusals, {pending_max} keys pending, {queries_max} queries at most"
    );
    assert!(took < well_again, "{took:?}");
    assert!(refused > 0);
    assert!((1..=loads_max).contains(&pending_max), "{pending_max}");
    assert!(
        (1..=COLD_QUERIES_MAX as i64).contains(&queries_max),
        "{queries_max}"
    );
    signal(&child, "TERM");
    assert_eq!(end(&mut child).code(), Some(0));
    let rows = "SELECT COUNT(*) FROM thumb WHERE thumbed = 1";
    assert_eq!(t.number(rows).await, 2 * users as i64);
    let last = format!("u{}", users - 1);
    agree(&t, &["u0", "u1", &last], &["blog:0", "news:0", "news:19"]).await;
}
