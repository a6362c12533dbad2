//! What a scraper sees of scripts, the process, the lag, flushes, the lease, quarantine, audits and connections.

use std::collections::BTreeSet;

use thumbd::config::Settings;

use crate::app::{send, settings};
use crate::serve::{Serve, until};
use crate::servers;
use crate::stand::Stand;

async fn is(serve: &Serve, name: &str, wanted: f64) {
    let what = format!("{name} is {wanted}");
    until(&what, async || serve.metric(name).await == Some(wanted)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_of_steps_quarantine_drift_and_the_last_compensation() {
    let env = servers::env().await;
    let serve = Serve::start(&env, &[("THUMBD_SLICE_SECONDS", "3600")]).await;
    let t = Stand::on(settings(&env)).await;
    // The compensator of the first start.
    let compensated = "thumbd_last_compensation_timestamp_seconds";
    until("it has compensated", async || {
        serve.metric(compensated).await.is_some_and(|at| at > 1.7e9)
    })
    .await;
    is(&serve, "thumbd_quarantine_entries", 0.0).await;
    is(&serve, "thumbd_count_differences", 0.0).await;

    t.script(
        "CREATE TRIGGER refuse BEFORE INSERT ON thumb FOR EACH ROW \
         BEGIN IF NEW.user_id = 'poison' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'; END IF; END",
    )
    .await;
    for user in ["u1", "poison"] {
        assert_eq!(serve.like(user, "blog/1").await.status, 200);
    }
    serve.admin("/admin/v1/flushes").await.unwrap();
    is(&serve, "thumbd_quarantine_entries", 1.0).await;
    for step in ["recover", "seal", "read", "apply", "finish"] {
        let count = format!("thumbd_flush_step_seconds_count{{step=\"{step}\"}}");
        let count = serve.metric(&count).await;
        assert!(count.is_some_and(|count| count >= 1.0), "{step}: {count:?}");
    }
    is(&serve, "thumbd_lease_held", 0.0).await;

    t.script("UPDATE thumb_count SET count = count + 5").await;
    serve.admin("/admin/v1/compensations").await.unwrap();
    is(&serve, "thumbd_count_differences", 1.0).await;
    t.script("UPDATE thumb_count SET count = count - 5").await;
    serve.admin("/admin/v1/compensations").await.unwrap();
    is(&serve, "thumbd_count_differences", 0.0).await;

    let connections = "thumbd_database_connections{state=\"idle\"}";
    assert!(
        serve
            .metric(connections)
            .await
            .is_some_and(|idle| idle >= 1.0)
    );
    let build = format!(
        "thumbd_build_info{{version=\"{}\"}}",
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(serve.metric(&build).await, Some(1.0));
    serve.stop();
}

/// Names of all metrics that a process shows. None has a label that a scraper gives by itself: it would rename ours.
async fn shown(serve: &Serve) -> BTreeSet<String> {
    let text = send(serve.client.get(format!("{}/metrics", serve.url))).await;
    for label in ["job=", "instance="] {
        let of_us = |line: &&str| {
            line.contains(&format!("{{{label}")) || line.contains(&format!(",{label}"))
        };
        assert_eq!(text.text.lines().find(of_us), None);
    }
    let types = text.text.lines();
    types
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_scripts_do_and_what_the_process_takes_is_shown_and_all_that_is_shown_is_documented() {
    let env = servers::env().await;
    let kinds = "blog+user_operations_per_minute=1+user_operations_burst=2";
    let settings = [("THUMBD_SLICE_SECONDS", "3600"), ("THUMBD_KINDS", kinds)];
    let serve = Serve::start(&env, &settings).await;
    // What is alerted on when it rises is there before it does.
    for name in [
        r#"thumbd_recoveries_total{cause="ledger_lost"}"#,
        r#"thumbd_flushes_total{task="flush",outcome="failed"}"#,
        "thumbd_transaction_retries_total",
    ] {
        until(name, async || serve.metric(name).await == Some(0.0)).await;
    }
    // Cold at first; then liked already; then another one; then too many.
    for target in ["blog/1", "blog/1", "blog/2", "blog/3"] {
        serve.like("u1", target).await;
    }
    let outcome = |outcome| {
        format!(r#"thumbd_script_operations_total{{script="thumb",outcome="{outcome}"}}"#)
    };
    for (name, wanted) in [("changed", 2.0), ("unchanged", 1.0), ("limited", 1.0)] {
        assert_eq!(serve.metric(&outcome(name)).await, Some(wanted), "{name}");
    }
    assert!(serve.metric(&outcome("cold")).await >= Some(1.0));
    for script in ["thumb", "fill", "peek", "lease"] {
        let count = format!(r#"thumbd_script_seconds_count{{script="{script}"}}"#);
        assert!(serve.metric(&count).await >= Some(1.0), "{script}");
    }
    let memory = serve.metric("process_resident_memory_bytes").await;
    assert!(memory > Some(1e6), "{memory:?}");
    let started = serve.metric("process_start_time_seconds").await.unwrap();
    let age = chrono::Utc::now().timestamp() as f64 - started;
    assert!((-1.0..600.0).contains(&age), "{age}");
    assert!(serve.metric("process_open_fds").await > Some(5.0));
    assert!(serve.metric("process_cpu_seconds_total").await > Some(0.0));

    let documented = include_str!("../../docs/metrics.md");
    for name in shown(&serve).await {
        let row = format!("| `{name}` |");
        assert!(documented.contains(&row), "{name} is not documented");
    }
    serve.stop();
}

const LAG: &str = "thumbd_flush_lag_seconds";

async fn lags(serve: &Serve, seconds: f64) {
    let what = format!("the lag is more than {seconds} s");
    until(&what, async || serve.metric(LAG).await > Some(seconds)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lag_grows_while_nobody_has_the_lease() {
    let env = servers::env().await;
    let serve = Serve::start(&env, &[("THUMBD_SLICE_SECONDS", "1")]).await;
    let t = Stand::on(Settings {
        slice_seconds: 1,
        ..settings(&env)
    })
    .await;
    let lease = format!("{}:v1:lease:flush", env.key_prefix);
    // Somebody has it who does nothing; it is not taken away from whoever runs just now.
    until("the lease is free", async || {
        t.command::<Option<String>>(&["SET", &lease, "sleeper", "NX", "PX", "600000"])
            .await
            .is_some()
    })
    .await;
    assert_eq!(serve.like("u1", "blog/1").await.status, 200);
    lags(&serve, 3.5).await;
    let _: i64 = t.command(&["DEL", &lease]).await;
    is(&serve, LAG, 0.0).await;
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 1);
    serve.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lag_grows_while_a_flush_is_stuck_and_ends_where_redis_is_empty() {
    let env = servers::env().await;
    let settings_now = [
        ("THUMBD_SLICE_SECONDS", "1"),
        // A quarter of it is the longest wait for a lock, so one run takes five of them, and fails.
        ("THUMBD_DATABASE_STATEMENT_TIMEOUT_MS", "4000"),
    ];
    let serve = Serve::start(&env, &settings_now).await;
    let t = Stand::on(Settings {
        slice_seconds: 1,
        ..settings(&env)
    })
    .await;
    let mut holder = t.pool.begin().await.unwrap();
    let lock = sqlx::query("SELECT id FROM flush_state WHERE id = 1 FOR UPDATE");
    lock.fetch_one(&mut *holder).await.unwrap();
    assert_eq!(serve.like("u1", "blog/1").await.status, 200);
    lags(&serve, 3.5).await;
    // The repetitions of a run that failed count too.
    let failed = r#"thumbd_flushes_total{task="flush",outcome="failed"}"#;
    until("it fails", async || serve.metric(failed).await > Some(0.0)).await;
    let retries = serve.metric("thumbd_transaction_retries_total").await;
    let begun = serve.metric("thumbd_flush_transactions_total").await;
    assert!(
        retries >= Some(4.0) && begun > retries,
        "{retries:?} of {begun:?}"
    );

    // What only Redis had is gone: nothing waits any more.
    let keys: Vec<String> = t
        .command(&["KEYS", &format!("{}:v1:{{0}}:*", env.key_prefix)])
        .await;
    let words: Vec<&str> = std::iter::once("DEL")
        .chain(keys.iter().map(String::as_str))
        .collect();
    let _: i64 = t.command(&words).await;
    is(&serve, LAG, 0.0).await;
    holder.rollback().await.unwrap();
    assert_eq!(serve.like("u2", "blog/1").await.status, 200);
    // A run that had read the other like before may still land it.
    until("it lands", async || {
        t.number("SELECT COUNT(*) FROM thumb WHERE user_id = 'u2'")
            .await
            == 1
    })
    .await;
    let emptied = r#"thumbd_recoveries_total{cause="emptied"}"#;
    assert!(serve.metric(emptied).await >= Some(1.0));
    serve.stop();
}
