//! When the jobs run: planned runs among instances and under strange clocks, flushes that outlast their windows, and panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{MySqlPool, Row};
use thumbd::config::{Cron, Secret, Settings};
use thumbd::flush::SliceState;
use thumbd::jobs::{Jobs, Lease};
use thumbd::service::Service;

use crate::app::TestApp;
use crate::chaos::{self, Matched, Proxy, script};
use crate::serve::{Serve, until};
use crate::servers;
use crate::stand::{self, Stand};

/// What time it is for the plans of a test: seconds, far ahead of what runs by the real clock.
#[derive(Clone)]
struct Now(Arc<AtomicI64>);

impl Now {
    fn at(text: &str) -> Self {
        let now = Self(Arc::default());
        now.set(text);
        now
    }

    fn set(&self, text: &str) {
        self.0.store(moment(text).timestamp(), Ordering::SeqCst);
    }
}

fn moment(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// The jobs of one process among several.
struct Instance {
    jobs: Jobs,
    /// How often its plan has looked at the clock.
    looks: Arc<AtomicU64>,
    /// One for each run.
    seals: Matched,
    _redis: Proxy,
}

impl Instance {
    async fn start(settings: &Settings, now: &Now) -> Self {
        let url = settings.redis_url.as_ref().unwrap().expose();
        let redis = Proxy::before_url(url).await;
        let settings = Settings {
            redis_url: Some(Secret::new(redis.redis_url())),
            ..settings.clone()
        };
        let service = Service::build(&settings).await.unwrap();
        let looks = Arc::new(AtomicU64::new(0));
        let clock = {
            let (looks, now) = (Arc::clone(&looks), now.clone());
            Arc::new(move || {
                looks.fetch_add(1, Ordering::SeqCst);
                DateTime::from_timestamp(now.0.load(Ordering::SeqCst), 0).unwrap()
            })
        };
        Self {
            seals: redis.count(script("seal")),
            jobs: Jobs::start_by(&settings, &service, clock).await.unwrap(),
            looks,
            _redis: redis,
        }
    }

    /// Waits until the plan has looked so often since now. After two looks the first one's word is left.
    async fn looked(&self, times: u64) {
        let enough = self.looks.load(Ordering::SeqCst) + times;
        until("the plan looks", async || {
            self.looks.load(Ordering::SeqCst) >= enough
        })
        .await;
    }
}

/// Stores on which only planned runs happen.
async fn stage(cron: &str, zone: &str) -> Stand {
    let t = Stand::on(Settings {
        slice_seconds: 3600,
        compensate_cron: Cron::parse(cron).unwrap(),
        time_zone: zone.parse().unwrap(),
        lease_ttl_ms: 3000,
        ..stand::settings(1).await
    })
    .await;
    t.compensated().await;
    t
}

const PLANNED: &str = "SELECT CAST(planned_at AS CHAR(19)) AS planned, owner, COALESCE(outcome, '') AS outcome \
     FROM job_run WHERE planned_at > '2029-01-01' ORDER BY planned_at";

/// The planned runs that were entered, each with how it ended.
async fn planned(t: &Stand) -> Vec<(String, String)> {
    let rows = sqlx::query(PLANNED).fetch_all(&t.pool).await.unwrap();
    let run = |row: &sqlx::mysql::MySqlRow| (row.get("planned"), row.get("outcome"));
    rows.iter().map(run).collect()
}

/// Waits until so many planned runs were done, and no other entered.
async fn done(t: &Stand, times: &[&str]) {
    let wanted: Vec<_> = times
        .iter()
        .map(|time| ((*time).to_owned(), "done".to_owned()))
        .collect();
    until("the planned runs are done", async || {
        planned(t).await == wanted
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_instances_that_ask_at_once_one_does_each_planned_run() {
    let t = stage("0 0 2 * * *", "UTC").await;
    let now = Now::at("2030-01-01T01:59:59Z");
    let first = Instance::start(&t.settings, &now).await;
    let second = Instance::start(&t.settings, &now).await;
    let days = ["2030-01-01", "2030-01-02"];
    let times = days.map(|day| format!("{day} 02:00:00"));
    let times: Vec<&str> = times.iter().map(String::as_str).collect();
    for (at, day) in days.iter().enumerate() {
        now.set(&format!("{day}T02:00:00Z"));
        tokio::join!(first.looked(2), second.looked(2));
        done(&t, &times[..=at]).await;
    }
    // Whoever came second looks again whether the other has died in it.
    tokio::join!(first.looked(4), second.looked(4));
    done(&t, &times).await;
    let (of_first, of_second) = (first.seals.times(), second.seals.times());
    assert_eq!(of_first + of_second, 2, "{of_first} and {of_second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_run_whose_instance_died_in_it_is_done_by_another() {
    let t = stage("0 0 2 * * *", "UTC").await;
    let now = Now::at("2030-01-01T01:59:59Z");
    let other = Instance::start(&t.settings, &now).await;
    let life = Duration::from_millis(t.settings.lease_ttl_ms);
    assert!(t.hot.lease("flush", "dead", life).await.unwrap());
    let time = moment("2030-01-01T02:00:00Z");
    let begun = t.ledger.job_begin("compensate", time, "dead").await;
    assert!(begun.unwrap().is_some());
    now.set("2030-01-01T02:00:00Z");
    other.looked(2).await;
    assert_eq!(other.seals.times(), 0, "the first may still be at it");
    done(&t, &["2030-01-01 02:00:00"]).await;
    let row = sqlx::query(PLANNED).fetch_one(&t.pool).await.unwrap();
    assert_ne!(row.get::<String, _>("owner"), "dead");
    other.looked(4).await;
    assert_eq!(other.seals.times(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_sleeps_over_two_o_clock_compensates_once_and_late() {
    let t = stage("0 0 2 * * *", "UTC").await;
    let now = Now::at("2030-01-01T01:59:00Z");
    let one = Instance::start(&t.settings, &now).await;
    one.looked(2).await;
    now.set("2030-01-01T02:30:00Z");
    done(&t, &["2030-01-01 02:00:00"]).await;
    now.set("2030-01-01T03:00:00Z");
    one.looked(3).await;
    done(&t, &["2030-01-01 02:00:00"]).await;
    // Three nights were slept over: the last one's run does for all.
    now.set("2030-01-04T10:00:00Z");
    done(&t, &["2030-01-01 02:00:00", "2030-01-04 02:00:00"]).await;
    one.looked(3).await;
    assert_eq!(one.seals.times(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_days_on_which_the_clocks_change_have_one_run() {
    let t = stage("0 30 2 * * *", "Europe/Berlin").await;
    let now = Now::at("2030-03-31T00:00:00Z");
    let one = Instance::start(&t.settings, &now).await;
    // 02:30 is left out in spring and comes twice in autumn. What else can be looked at lies beside `plan.rs`.
    let times = ["2030-03-31 01:00:00", "2030-10-27 00:30:00"];
    for hour in ["00:59", "01:00"] {
        now.set(&format!("2030-03-31T{hour}:00Z"));
        one.looked(2).await;
    }
    done(&t, &times[..1]).await;
    for hour in ["00:30", "01:30"] {
        now.set(&format!("2030-10-27T{hour}:00Z"));
        one.looked(2).await;
    }
    done(&t, &times).await;
    assert_eq!(one.seals.times(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_run_waits_for_a_database_that_is_away() {
    let t = stage("0 0 2 * * *", "UTC").await;
    let now = Now::at("2030-01-01T01:59:59Z");
    let url = t.settings.database_url.as_ref().unwrap().expose();
    let sql = Proxy::before_url(url).await;
    let settings = Settings {
        database_url: Some(Secret::new(sql.database_url(url))),
        database_acquire_timeout_ms: 200,
        ..t.settings.clone()
    };
    let one = Instance::start(&settings, &now).await;
    sql.refuse(true);
    sql.cut();
    now.set("2030-01-01T02:00:00Z");
    until("it fails", async || {
        let last = one.jobs.status().await.unwrap().last_compensation;
        last.is_some_and(|last| last.error.is_some())
    })
    .await;
    assert_eq!(planned(&t).await, []);
    sql.heal();
    done(&t, &["2030-01-01 02:00:00"]).await;
    one.looked(3).await;
    assert_eq!(one.seals.times(), 1);
}

/// Ticks so far: one at the end of each window, and a little later.
fn ticks(seconds: u64) -> i64 {
    (Utc::now().timestamp_millis() - 250) / (seconds as i64 * 1000)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_that_outlasts_its_windows_is_followed_by_one_more_and_not_by_each_that_was_missed()
{
    // Windows as long as usual and a flush of 30 s, or short windows and more of them, because there the scheduler may be late with
    // one tick of before.
    let (seconds, windows, late) = if servers::slow() {
        (10, 4, 0)
    } else {
        (1, 7, 1)
    };
    let (env, redis, _sql) = chaos::before(&servers::env().await).await;
    let pool = MySqlPool::connect(&env.database_url).await.unwrap();
    let seals = redis.count(script("seal"));
    let app = TestApp::on(env, |settings| {
        settings.slice_seconds = seconds;
        // A quarter of it is the longest wait for the row.
        settings.database_statement_timeout_ms = 400_000;
    })
    .await;
    let status = async || app.jobs.status().await.unwrap();
    until("compensated", async || {
        status().await.last_compensation.is_some()
    })
    .await;

    let mut holder = pool.begin().await.unwrap();
    let lock = sqlx::query("SELECT id FROM flush_state WHERE id = 1 FOR UPDATE");
    lock.fetch_one(&mut *holder).await.unwrap();
    app.like("u1", "blog/1").await;
    let flushing = async || {
        let slices = status().await.slices;
        slices.iter().any(|one| one.state == SliceState::Flushing)
    };
    until("a flush is held", flushing).await;
    let held = seals.times();
    let first = status().await.slices[0].id;
    let mut users = 2..;
    until("windows pass", async || {
        app.like(&format!("u{}", users.next().unwrap()), "blog/1")
            .await;
        let newest = status().await.slices.last().unwrap().id;
        newest >= first + windows * seconds * 1000
    })
    .await;
    assert_eq!(seals.times(), held, "another run began beside it");

    let before = ticks(seconds);
    holder.rollback().await.unwrap();
    // A tick later everything has landed that came before it, and whatever had piled up has run.
    app.like("last", "blog/1").await;
    until("landed", async || status().await.entries == 0).await;
    let runs = seals.times() - held;
    let ticks = ticks(seconds) - before;
    let right = 1..=1 + late + ticks;
    assert!(right.contains(&(runs as i64)), "{runs}, {ticks} ticks");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_that_panics_is_logged_and_told_and_the_next_one_lands_everything() {
    let env = servers::env().await;
    // Each counts its own passings, so these are so many in a row; no run without a like comes so far.
    let panics = ["flush.read=1*panic"; 5];
    let failpoints = panics.join(";");
    let settings = [("THUMBD_SLICE_SECONDS", "1"), ("FAILPOINTS", &failpoints)];
    let serve = Serve::start(&env, &settings).await;
    assert_eq!(serve.ready().await["status"], "ready");
    // A new database has no run of the compensator, so one is due at the start. It must not meet the like.
    let compensated = r#"thumbd_flushes_total{task="compensate",outcome="done"}"#;
    until("the compensator has run", async || {
        serve.metric(compensated).await == Some(1.0)
    })
    .await;
    assert_eq!(serve.like("u1", "blog/1").await.status, 200);

    let mut told = serve.ready().await;
    until("it is told", async || {
        told = serve.ready().await;
        told["status"] == "degraded" && told["flush"]["lag_ms"].as_u64() > Some(1500)
    })
    .await;
    assert_eq!(told["flush"]["ok"], false, "{told}");
    assert!(serve.metric("thumbd_flush_lag_seconds").await > Some(1.0));
    // Likes go on.
    assert_eq!(serve.like("u2", "blog/1").await.status, 200);
    let pool = MySqlPool::connect(&env.database_url).await.unwrap();
    until("the next run lands it", async || {
        let count = sqlx::query("SELECT COUNT(*) FROM thumb").fetch_one(&pool);
        count.await.unwrap().get::<i64, _>(0) == 2
    })
    .await;
    until("ready", async || serve.ready().await["status"] == "ready").await;
    let failed = r#"thumbd_flushes_total{task="flush",outcome="failed"}"#;
    assert_eq!(serve.metric(failed).await, Some(panics.len() as f64));
    let lines = serve.lines();
    let said = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
    assert_eq!(
        said("ERROR thumbd::jobs::runner: job panicked"),
        panics.len(),
        "{lines:#?}"
    );
    assert_eq!(
        said("job failed, the next run tries again"),
        1,
        "{lines:#?}"
    );
    assert_eq!(said("job is well again"), 1, "{lines:#?}");
    serve.verify().await;
    serve.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_outlives_its_life_while_the_work_goes_on_and_lapses_with_its_owner() {
    let t = Stand::start(1).await;
    // Long enough that a busy machine does not sleep through it.
    let life = Duration::from_secs(2);
    let lease = Lease::take(&t.hot, "worker", life).await.unwrap().unwrap();
    let begun = std::time::Instant::now();
    until("twice its life passes", async || {
        let other = Lease::take(&t.hot, "other", life).await.unwrap();
        assert!(other.is_none(), "lapsed after {:?}", begun.elapsed());
        begun.elapsed() > 2 * life
    })
    .await;
    // Its owner dies: nothing gives it back.
    drop(lease);
    assert!(Lease::take(&t.hot, "other", life).await.unwrap().is_none());
    let other = Lease::wait(&t.hot, "other", life).await.unwrap();
    other.release().await;
    assert!(Lease::take(&t.hot, "third", life).await.unwrap().is_some());
}
