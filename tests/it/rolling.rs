//! Three instances on the same stores, restarted one after another while clients ask: nobody is refused, and nothing is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::{Client, Method};
use serde_json::Value;
use thumbd::config::Settings;

use crate::app::{self, SERVICE_KEY};
use crate::history;
use crate::serve::Serve;
use crate::servers;
use crate::stand::Stand;

const INSTANCES: usize = 3;
const CLIENTS: u64 = 6;
/// Pairs of one client, which nobody else touches.
const PAIRS: usize = 20;
/// How often the balancer asks who is ready.
const ASKED_EVERY: Duration = Duration::from_millis(20);
const SETTINGS: [(&str, &str); 2] = [
    ("THUMBD_SLICE_SECONDS", "1"),
    // Fifty times that, for a busy machine.
    ("THUMBD_SHUTDOWN_NOTICE_MS", "1000"),
];

/// Sends each request to the next instance that says that it is ready, and to another one only if a connection was refused.
struct Balancer {
    client: Client,
    places: [Place; INSTANCES],
    next: AtomicUsize,
    refused: AtomicUsize,
}

#[derive(Default)]
struct Place {
    url: Mutex<String>,
    ready: AtomicBool,
}

impl Place {
    fn url(&self) -> String {
        let url = self.url.lock().unwrap_or_else(PoisonError::into_inner);
        url.clone()
    }
}

impl Balancer {
    /// Asks for ever who is ready.
    async fn watch(&self) {
        loop {
            for place in &self.places {
                let ready = self.client.get(format!("{}/readyz", place.url())).send();
                let ready = ready.await.is_ok_and(|answer| answer.status() == 200);
                place.ready.store(ready, Ordering::SeqCst);
            }
            tokio::time::sleep(ASKED_EVERY).await;
        }
    }

    async fn send(&self, method: &Method, user: &str) -> Value {
        for _ in 0..2 * INSTANCES {
            let n = self.next.fetch_add(1, Ordering::SeqCst) % INSTANCES;
            let place = &self.places[n];
            if !place.ready.load(Ordering::SeqCst) {
                continue;
            }
            let url = format!("{}/v1/likes/blog/1", place.url());
            let request = self.client.request(method.clone(), url);
            let sent = request.bearer_auth(SERVICE_KEY).header("X-User-Id", user);
            match sent.send().await {
                Err(error) if error.is_connect() => {
                    self.refused.fetch_add(1, Ordering::SeqCst);
                }
                answer => {
                    let answer = answer.expect("an answer");
                    assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
                    return answer.json().await.expect("a body");
                }
            }
        }
        panic!("nobody is ready");
    }
}

/// Likes and unlikes its own pairs until told to stop; gives their last states, and how many requests there were.
async fn client(balancer: &Balancer, seed: u64, stop: &AtomicBool) -> (Vec<(String, bool)>, usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let users = (0..PAIRS).map(|n| format!("c{seed}-{n}"));
    let mut known: Vec<(String, bool)> = users.map(|user| (user, false)).collect();
    let mut requests = 0;
    while !stop.load(Ordering::SeqCst) {
        let (user, liked) = &mut known[rng.random_range(0..PAIRS)];
        let like = rng.random_bool(0.6);
        let method = if like { Method::PUT } else { Method::DELETE };
        let answer = balancer.send(&method, user).await;
        // It does not matter which instance it came to.
        assert_eq!(answer["changed"], Value::Bool(*liked != like), "{answer}");
        *liked = like;
        requests += 1;
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..4))).await;
    }
    (known, requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn three_instances_are_restarted_one_after_another_and_nobody_notices() {
    let env = servers::env().await;
    let mut serves = Vec::new();
    for _ in 0..INSTANCES {
        serves.push(Serve::start(&env, &SETTINGS).await);
    }
    let balancer = Balancer {
        client: Client::builder().no_proxy().build().unwrap(),
        places: Default::default(),
        next: AtomicUsize::new(0),
        refused: AtomicUsize::new(0),
    };
    for (place, serve) in balancer.places.iter().zip(&serves) {
        *place.url.lock().unwrap() = serve.url.clone();
        place.ready.store(true, Ordering::SeqCst);
    }
    let stop = AtomicBool::new(false);
    let clients = (0..CLIENTS).map(|n| client(&balancer, n, &stop));
    let clients = futures_util::future::join_all(clients);
    let rolling = async {
        for n in 0..INSTANCES {
            let old = serves.remove(0);
            tokio::task::spawn_blocking(|| old.stop()).await.unwrap();
            let new = Serve::start(&env, &SETTINGS).await;
            *balancer.places[n].url.lock().unwrap() = new.url.clone();
            serves.push(new);
            let begun = Instant::now();
            while !balancer.places[n].ready.load(Ordering::SeqCst) {
                assert!(begun.elapsed() < crate::serve::PATIENCE, "it is not ready");
                tokio::time::sleep(ASKED_EVERY).await;
            }
        }
        stop.store(true, Ordering::SeqCst);
    };
    let known = tokio::select! {
        (known, ()) = async { tokio::join!(clients, rolling) } => known,
        () = balancer.watch() => unreachable!("it watches for ever"),
    };
    // Each had said that it would go, and was asked no more.
    assert_eq!(balancer.refused.load(Ordering::SeqCst), 0);
    for serve in serves {
        tokio::task::spawn_blocking(|| serve.stop()).await.unwrap();
    }
    let stand = Stand::on(Settings {
        slice_seconds: 1,
        ..app::settings(&env)
    })
    .await;
    stand.check().await;
    let rows = history::rows(&stand.pool).await;
    let (mut likers, mut requests) = (0, 0);
    for (pairs, sent) in known {
        requests += sent;
        for (user, liked) in pairs {
            likers += i64::from(liked);
            let row = rows.get(&(user.clone(), "blog:1".to_owned()));
            assert_eq!(row.copied().unwrap_or(false), liked, "{user}");
        }
    }
    assert!(requests > 100, "{requests}");
    let stored = "SELECT CAST(COALESCE(SUM(count), 0) AS SIGNED) FROM thumb_count";
    assert_eq!(stand.number(stored).await, likers);
}
