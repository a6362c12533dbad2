//! The whole road, from HTTP to the rows in MySQL and back: real votes, a database that goes away, a process that is killed.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{MySqlPool, Row};

use crate::app::{ADMIN_TOKEN, TestApp};
use crate::serve::{PATIENCE, Serve, output, run};
use crate::servers::{self, TestEnv};

const VOTES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/wiki-vote.csv.gz");

/// Replays the votes and gives what `load` prints.
async fn replay(serve: &Serve, batch: &str) -> String {
    let (url, batch) = (serve.url.clone(), batch.to_owned());
    let variables = vec![serve.variables[0].clone()];
    tokio::task::spawn_blocking(move || {
        let arguments = [
            "load", VOTES, "--kind", "wiki", "--url", &url, "--batch", &batch,
        ];
        output(run(&arguments, &variables))
    })
    .await
    .unwrap()
}

/// The number below a heading of `load`'s table.
fn figure(table: &str, name: &str) -> u64 {
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let heading = rows.iter().position(|row| row.contains(&name)).unwrap();
    let column = rows[heading].iter().position(|word| *word == name).unwrap();
    rows[heading + 2][column].parse().unwrap()
}

async fn number(pool: &MySqlPool, query: &'static str) -> i64 {
    sqlx::query(query).fetch_one(pool).await.unwrap().get(0)
}

/// What the votes must have become.
async fn votes_are_right(pool: &MySqlPool) {
    for (query, right) in [
        ("SELECT COUNT(*) FROM thumb WHERE thumbed = 1", 103_689),
        ("SELECT COUNT(*) FROM thumb", 103_689),
        ("SELECT COUNT(*) FROM thumb_count", 2_381),
        (
            "SELECT CAST(SUM(count) AS SIGNED) FROM thumb_count",
            103_689,
        ),
        ("SELECT MAX(count) FROM thumb_count", 457),
        (
            "SELECT COUNT(*) FROM thumb_count c WHERE c.count <> \
             (SELECT COUNT(*) FROM thumb t WHERE t.kind_id = c.kind_id AND t.target_id = c.target_id AND t.thumbed = 1)",
            0,
        ),
    ] {
        assert_eq!(number(pool, query).await, right, "{query}");
    }
}

/// The candidate with the most votes.
fn favourite() -> String {
    let mut text = String::new();
    let file = std::fs::File::open(VOTES).unwrap();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    let mut votes: std::collections::HashMap<&str, u32> = std::collections::HashMap::new();
    for line in text.lines().skip(1) {
        *votes.entry(line.split_once(',').unwrap().1).or_default() += 1;
    }
    let (candidate, most) = votes.into_iter().max_by_key(|(_, votes)| *votes).unwrap();
    assert_eq!(most, 457);
    candidate.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_votes_arrive_exactly_once_and_a_reader_never_sees_a_count_fall() {
    let env = servers::env().await;
    let pool = MySqlPool::connect(&env.database_url).await.unwrap();
    // Short windows, so that many flushes run while votes come.
    let serve = Serve::start(&env, &[("THUMBD_SLICE_SECONDS", "1")]).await;
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (client, done) = (serve.client.clone(), Arc::clone(&done));
        let url = format!("{}/v1/likes/wiki/{}", serve.url, favourite());
        tokio::spawn(async move {
            let (mut last, mut reads) = (0, 0);
            while !done.load(Ordering::Relaxed) {
                let answer = client.get(&url).send().await.unwrap();
                let answer: Value = answer.json().await.unwrap();
                let count = answer["count"].as_u64().expect("a count");
                assert!(count >= last, "the count fell from {last} to {count}");
                last = count;
                reads += 1;
            }
            (last, reads)
        })
    };
    let table = replay(&serve, "50").await;
    assert_eq!(figure(&table, "changed"), 103_689, "{table}");
    serve.admin("/admin/v1/flushes").await.unwrap();
    done.store(true, Ordering::Relaxed);
    let (last, reads) = reader.await.unwrap();
    assert!(reads > 100, "{reads} reads are no test");
    assert!(last <= 457);
    votes_are_right(&pool).await;
    serve.verify().await;

    let table = replay(&serve, "200").await;
    assert_eq!(figure(&table, "unchanged"), 103_689, "{table}");
    let report = serve.admin("/admin/v1/flushes").await.unwrap();
    assert_eq!(report["entries"], 0);
    votes_are_right(&pool).await;
    serve.verify().await;
    serve.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_for_three_windows_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut sql = thumbd::dev::SqlServer::start(servers::sql_options(directory.path())).unwrap();
    let env = TestEnv {
        database_url: sql.database_url("thumbd"),
        ..servers::env().await
    };
    let app = TestApp::on(env, |settings| settings.slice_seconds = 1).await;
    for user in 0..20 {
        assert_eq!(app.like(&format!("u{user}"), "blog/warm").await.status, 200);
    }
    app.flush_now().await;
    sql.stop().unwrap();

    let answered = AtomicU64::new(0);
    let away = async {
        // Until three windows wait to be flushed.
        let begun = std::time::Instant::now();
        while app.jobs.status().await.unwrap().slices.len() < 4 {
            assert!(begun.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let likes = async {
        for round in 0.. {
            let user = format!("u{}", round % 20);
            let answer = if round / 20 % 2 == 0 {
                app.unlike(&user, "blog/warm").await
            } else {
                app.like(&user, "blog/warm").await
            };
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.json()["changed"], true, "{answer:?}");
            answered.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::select! { () = away => {}, () = likes => {} }
    assert!(answered.load(Ordering::Relaxed) > 20);
    let cold = app.like("nobody-yet", "blog/warm").await;
    assert_eq!(cold.status, 503, "{cold:?}");
    assert!(cold.headers.contains_key("retry-after"));
    let warm = app.get("u1", "blog/warm").await.json();
    assert!(warm["count"].is_u64() && warm["liked"].is_boolean());
    let cold = app.get("u1", "blog/cold").await;
    assert_eq!((cold.status, &cold.json()["count"]), (200, &Value::Null));
    let refused = app.admin(Method::POST, "/admin/v1/flushes").await;
    assert_eq!(refused.status, 503, "{refused:?}");

    sql.restart().unwrap();
    app.flush_now().await;
    let status = app.jobs.status().await.unwrap();
    assert_eq!(status.entries, 0, "{status:?}");
    let pool = MySqlPool::connect(&sql.database_url("thumbd"))
        .await
        .unwrap();
    let rows = number(&pool, "SELECT COUNT(*) FROM thumb WHERE thumbed = 1").await;
    let count = number(&pool, "SELECT count FROM thumb_count").await;
    let seen = app.get("u1", "blog/warm").await.json();
    assert_eq!((rows, seen["count"].as_i64()), (count, Some(count)));
    for user in 0..20 {
        let seen = app.get(&format!("u{user}"), "blog/warm").await.json();
        let query = "SELECT CAST(thumbed AS SIGNED) FROM thumb WHERE user_id = ?";
        let row = sqlx::query(query).bind(format!("u{user}"));
        let thumbed: i64 = row.fetch_one(&pool).await.unwrap().get(0);
        assert_eq!(seen["liked"], thumbed == 1, "u{user}");
    }
    assert_eq!(app.like("nobody-yet", "blog/warm").await.status, 200);
    pool.close().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_killed_in_the_middle_of_a_flush_loses_and_doubles_nothing() {
    let env = servers::env().await;
    let pool = MySqlPool::connect(&env.database_url).await.unwrap();
    let settings = [
        ("THUMBD_SLICE_SECONDS", "3600"),
        ("THUMBD_FLUSH_ROWS_MAX", "1000"),
    ];
    let mut serve = Serve::start(&env, &settings).await;
    let like = |user: usize, id: &str| json!({ "op": "like", "user": format!("u{user:05}"), "kind": "blog", "id": id });
    // A count that the later chunks have to move, and that somebody else holds.
    serve.batch(vec![like(99_999, "last")]).await;
    serve.admin("/admin/v1/flushes").await.unwrap();
    for start in (0..5000).step_by(1000) {
        let id = if start < 2000 { "first" } else { "last" };
        let operations = (start..start + 1000).map(|user| like(user, id)).collect();
        let answers = serve.batch(operations).await;
        let results = answers["results"].as_array().unwrap();
        assert!(results.iter().all(|one| one["changed"] == true));
    }
    let mut holder = pool.begin().await.unwrap();
    sqlx::query(
        "SELECT count FROM thumb_count WHERE kind_id = 1 AND target_id = 'last' FOR UPDATE",
    )
    .fetch_one(&mut *holder)
    .await
    .unwrap();
    let (client, url) = (serve.client.clone(), serve.url.clone());
    let flush = tokio::spawn(async move {
        let call = client.post(format!("{url}/admin/v1/flushes"));
        call.bearer_auth(ADMIN_TOKEN).send().await
    });
    let begun = std::time::Instant::now();
    while number(&pool, "SELECT COUNT(*) FROM thumb").await < 2001 {
        assert!(begun.elapsed() < PATIENCE, "two chunks do not land");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    serve.kill();
    assert!(flush.await.unwrap().is_err());
    let landed = number(&pool, "SELECT COUNT(*) FROM thumb").await;
    assert_eq!(landed, 2001, "it was not killed in the middle");
    holder.rollback().await.unwrap();

    let serve = Serve::start(&env, &settings).await;
    let report = serve.admin("/admin/v1/flushes").await.unwrap();
    assert_eq!(report["entries"], 5000, "{report}");
    assert_eq!(report["rows_changed"], 3000, "{report}");
    for (query, right) in [
        ("SELECT COUNT(*) FROM thumb WHERE thumbed = 1", 5001),
        (
            "SELECT count FROM thumb_count WHERE target_id = 'first'",
            2000,
        ),
        (
            "SELECT count FROM thumb_count WHERE target_id = 'last'",
            3001,
        ),
    ] {
        assert_eq!(number(&pool, query).await, right, "{query}");
    }
    serve.verify().await;
    let again = (0..1000).map(|user| like(user, "first")).collect();
    let answers = serve.batch(again).await;
    let results = answers["results"].as_array().unwrap();
    assert!(results.iter().all(|one| one["changed"] == false));
    serve.stop();
}
