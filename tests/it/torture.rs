//! A long mix: two thumbd processes on a Redis and a database of their own, everything that can break breaking at random, and clients
//! that write down what they are told. In the end some order must explain all answers, and rows, counts and Redis must agree.
//!
//! `make torture SECONDS=600 SEED=7`. Without it a short run with a new seed is one of the tests. A seed decides what breaks and what
//! is asked for; when it happens is up to the machine.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::Client;
use thumbd::config::{Secret, Settings};
use thumbd::dev::{RedisOptions, RedisServer, SqlServer};

use crate::chaos::{self, Act, Proxy, Then, Way, script};
use crate::history::{Call, Recorder, check, rows};
use crate::process::signal;
use crate::serve::{PATIENCE, Serve};
use crate::servers::{self, TestEnv};
use crate::stand::Stand;

/// Length of the run that is a test.
const SHORT: u64 = 12;
const CLIENTS: u64 = 12;
const USERS: u64 = 8;
const TARGETS: u64 = 4;
/// A call that lies in the buffer of a frozen server may be done when it goes on: longer than any freeze, request and delay.
const SETTLED: Duration = Duration::from_secs(60);

/// One process and the way to its stores.
struct Place {
    redis: Proxy,
    sql: Proxy,
    env: TestEnv,
    serve: Mutex<Option<Serve>>,
    /// Where clients find it; '' while it is down.
    url: Mutex<String>,
}

struct Torture {
    redis: Mutex<RedisServer>,
    sql: Mutex<SqlServer>,
    direct: TestEnv,
    partitions: u16,
    places: Vec<Place>,
    end: Instant,
    done: Mutex<BTreeMap<&'static str, u64>>,
    _directory: tempfile::TempDir,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_long_mix() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let seconds = number("THUMBD_TORTURE_SECONDS").unwrap_or(SHORT);
    let seed = number("THUMBD_TORTURE_SEED").unwrap_or_else(rand::random);
    println!("torture: THUMBD_TORTURE_SEED={seed} THUMBD_TORTURE_SECONDS={seconds}");
    let torture = Torture::start(seed, Duration::from_secs(seconds)).await;
    let recorder = Recorder::new();
    let http = Client::builder().no_proxy().build().unwrap();
    let clients = (0..CLIENTS).map(|n| torture.client(&recorder, &http, seed ^ (n + 1)));
    tokio::join!(
        futures_util::future::join_all(clients),
        torture.break_stores(seed.rotate_left(7)),
        torture.break_processes(seed.rotate_left(13)),
    );
    torture.heal().await;
    torture.judge(recorder, seed).await;
}

impl Torture {
    async fn start(seed: u64, length: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // What was acknowledged is on the disk: so a killed Redis loses nothing that anybody was told.
        let redis = RedisOptions {
            extra_args: vec!["--appendfsync".into(), "always".into()],
            ..servers::redis_options(directory.path().join("redis"))
        };
        let redis = RedisServer::start(redis).unwrap();
        let sql = SqlServer::start(servers::sql_options(directory.path().join("sql"))).unwrap();
        let direct = TestEnv {
            redis_url: redis.url(),
            database_url: sql.database_url("thumbd"),
            key_prefix: "torture".into(),
        };
        let mut places = Vec::new();
        for _ in 0..2 {
            let (env, redis, sql) = chaos::before(&direct).await;
            places.push(Place {
                redis,
                sql,
                env,
                serve: Mutex::default(),
                url: Mutex::default(),
            });
        }
        let torture = Self {
            redis: Mutex::new(redis),
            sql: Mutex::new(sql),
            direct,
            partitions: if seed.is_multiple_of(2) { 1 } else { 3 },
            places,
            end: Instant::now() + length,
            done: Mutex::default(),
            _directory: directory,
        };
        for at in 0..torture.places.len() {
            torture.revive(at).await;
        }
        torture
    }

    fn note(&self, what: &'static str) {
        *self.done.lock().unwrap().entry(what).or_default() += 1;
    }

    fn over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Starts a process, as often as it takes: it needs both stores.
    async fn revive(&self, at: usize) {
        let place = &self.places[at];
        let partitions = self.partitions.to_string();
        let settings = [
            ("THUMBD_SLICE_SECONDS", "1"),
            ("THUMBD_PARTITIONS", &*partitions),
            ("THUMBD_LEASE_TTL_MS", "3000"),
            ("THUMBD_FLUSH_ROWS_MAX", "100"),
            ("THUMBD_RESIDENT_THUMBS_MAX", "3"),
            ("THUMBD_KEEP_SECONDS", "5"),
            ("THUMBD_UNLIKED_KEEP_SECONDS", "3"),
            ("THUMBD_COMPENSATE_CRON", "*/7 * * * * *"),
            ("THUMBD_REDIS_RESPONSE_TIMEOUT_MS", "700"),
            ("THUMBD_DATABASE_STATEMENT_TIMEOUT_MS", "3000"),
        ];
        let begun = Instant::now();
        loop {
            let mut serve = Serve::spawn(&place.env, &settings);
            if serve.comes_up().await {
                *place.url.lock().unwrap() = serve.url.clone();
                *place.serve.lock().unwrap() = Some(serve);
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "it does not start: {:#?}",
                serve.lines()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn client(&self, recorder: &Recorder, http: &Client, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        while !self.over() {
            let call = match rng.random_range(0..10) {
                0..4 => Call::Like,
                4..7 => Call::Unlike,
                _ => Call::Read,
            };
            let user = format!("u{}", rng.random_range(0..USERS));
            // Half of it is about one target.
            let id = if rng.random_bool(0.5) {
                0
            } else {
                rng.random_range(0..TARGETS)
            };
            let at = rng.random_range(0..self.places.len());
            let url = self.places[at].url.lock().unwrap().clone();
            if !url.is_empty() {
                recorder.ask(http, &url, call, &user, &id.to_string()).await;
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(5..40))).await;
        }
    }

    /// Breaks the stores and the ways to them, one after another.
    async fn break_stores(&self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        while !self.over() {
            tokio::time::sleep(Duration::from_millis(rng.random_range(100..1500))).await;
            let place = &self.places[rng.random_range(0..self.places.len())];
            let a_while = Duration::from_millis(rng.random_range(300..5000));
            match rng.random_range(0..16) {
                0 => {
                    self.note("redis frozen");
                    self.redis.lock().unwrap().freeze().unwrap();
                    tokio::time::sleep(a_while).await;
                    self.redis.lock().unwrap().thaw().unwrap();
                }
                1 => {
                    self.note("mysql frozen");
                    self.sql.lock().unwrap().freeze().unwrap();
                    tokio::time::sleep(a_while).await;
                    self.sql.lock().unwrap().thaw().unwrap();
                }
                2 => {
                    self.note("redis killed");
                    let restart = |redis: &mut RedisServer| {
                        redis.kill().unwrap();
                        std::thread::sleep(a_while / 4);
                        redis.restart().unwrap();
                    };
                    tokio::task::block_in_place(|| restart(&mut self.redis.lock().unwrap()));
                }
                3 => {
                    self.note("mysql killed");
                    let restart = |sql: &mut SqlServer| {
                        sql.kill().unwrap();
                        std::thread::sleep(a_while / 4);
                        sql.restart().unwrap();
                    };
                    tokio::task::block_in_place(|| restart(&mut self.sql.lock().unwrap()));
                }
                4 => {
                    self.note("redis cut");
                    place.redis.cut();
                }
                5 => {
                    self.note("mysql cut");
                    place.sql.cut();
                }
                6 => {
                    self.note("redis slow");
                    place
                        .redis
                        .delay(Duration::from_millis(rng.random_range(5..400)));
                    tokio::time::sleep(a_while).await;
                    place.redis.heal();
                }
                7 => {
                    self.note("mysql slow");
                    place
                        .sql
                        .delay(Duration::from_millis(rng.random_range(5..200)));
                    tokio::time::sleep(a_while).await;
                    place.sql.heal();
                }
                8 => {
                    self.note("redis black hole");
                    place.redis.black_hole(true);
                    tokio::time::sleep(a_while).await;
                    place.redis.heal();
                }
                9 => {
                    self.note("mysql black hole");
                    place.sql.black_hole(true);
                    tokio::time::sleep(a_while).await;
                    place.sql.heal();
                }
                10 => {
                    self.note("half closed");
                    let way = if rng.random_bool(0.5) {
                        Way::ToServer
                    } else {
                        Way::ToClient
                    };
                    place.redis.half_close(way);
                }
                11 => {
                    self.note("scripts forgotten");
                    let client = redis::Client::open(self.direct.redis_url.as_str()).unwrap();
                    if let Ok(mut connection) = client.get_multiplexed_async_connection().await {
                        let _ = redis::cmd("SCRIPT")
                            .arg("FLUSH")
                            .query_async::<()>(&mut connection)
                            .await;
                    }
                }
                _ => {
                    self.note("reply lost or call cut");
                    let scripts = [
                        "thumb", "unthumb", "fill", "seal", "mark", "unpin", "drop", "reset",
                        "lease",
                    ];
                    let act = match rng.random_range(0..3) {
                        0 => Act::CutBefore,
                        1 => Act::SwallowReply(Then::Hold),
                        _ => Act::SwallowReply(Then::Cut),
                    };
                    if rng.random_bool(0.25) {
                        drop(place.sql.once("COMMIT", act));
                    } else {
                        let name = scripts[rng.random_range(0..scripts.len())];
                        drop(place.redis.once(script(name), act));
                    }
                }
            }
        }
    }

    /// Kills processes, or stops them beyond their lease.
    async fn break_processes(&self, seed: u64) {
        let mut rng = StdRng::seed_from_u64(seed);
        while !self.over() {
            tokio::time::sleep(Duration::from_millis(rng.random_range(500..4000))).await;
            let at = rng.random_range(0..self.places.len());
            let place = &self.places[at];
            if rng.random_bool(0.5) {
                self.note("thumbd killed");
                place.url.lock().unwrap().clear();
                if let Some(mut serve) = place.serve.lock().unwrap().take() {
                    tokio::task::block_in_place(|| serve.kill());
                }
                tokio::time::sleep(Duration::from_millis(rng.random_range(0..2000))).await;
                self.revive(at).await;
            } else {
                self.note("thumbd stopped beyond its lease");
                let send = |name| {
                    let serve = place.serve.lock().unwrap();
                    signal(&serve.as_ref().unwrap().child, name);
                };
                send("STOP");
                tokio::time::sleep(Duration::from_millis(rng.random_range(3500..6000))).await;
                send("CONT");
            }
        }
    }

    async fn heal(&self) {
        for place in &self.places {
            place.redis.heal();
            place.sql.heal();
        }
        let begun = Instant::now();
        for at in 0..self.places.len() {
            loop {
                let flushed = {
                    let serve = self.places[at].serve.lock().unwrap().take().unwrap();
                    let flushed = serve.admin("/admin/v1/flushes").await;
                    *self.places[at].serve.lock().unwrap() = Some(serve);
                    flushed
                };
                match flushed {
                    Ok(_) => break,
                    Err(error) => assert!(
                        begun.elapsed() < PATIENCE,
                        "no flush at place {at}: {error}; {:#?}",
                        self.places[at]
                            .serve
                            .lock()
                            .unwrap()
                            .as_ref()
                            .unwrap()
                            .lines()
                    ),
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        for place in &self.places {
            place.serve.lock().unwrap().take().unwrap().stop();
        }
    }

    async fn judge(&self, recorder: Recorder, seed: u64) {
        let stand = Stand::on(Settings {
            redis_url: Some(Secret::new(&self.direct.redis_url)),
            database_url: Some(Secret::new(&self.direct.database_url)),
            key_prefix: self.direct.key_prefix.clone(),
            partitions: self.partitions,
            slice_seconds: 1,
            resident_thumbs_max: 3,
            ..Settings::default()
        })
        .await;
        stand.check().await;
        assert_eq!(stand.ledger.quarantine_count().await.unwrap(), 0);
        let report = stand
            .flusher
            .compensate(|| thumbd::flush::Upto::Now)
            .await
            .unwrap();
        assert_eq!(
            (report.slices_found, report.audit.differences_total),
            (0, 0)
        );
        let rows = rows(&stand.pool).await;
        let events = recorder.events();
        let checked = check(&events, &rows, SETTLED);
        let broken = self.done.lock().unwrap();
        println!(
            "torture: seed {seed}, {} partitions: {broken:?}",
            self.partitions
        );
        println!("torture: {} calls: {checked:?}", events.len());
        let checked = checked.unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        assert!(
            checked.changed > 50 && checked.seen > 50,
            "too little happened: {checked:?}"
        );
    }
}
