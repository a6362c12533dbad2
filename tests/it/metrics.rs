//! What a scraper sees of flushes, the lease, quarantine, audits and connections.

use crate::app::settings;
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
