//! What may be wrong between the stores.

use thumbd::config::Settings;

use super::{bad, look, says, stand};
use crate::stand::Stand;

#[tokio::test(flavor = "multi_thread")]
async fn another_number_of_partitions_is_found() {
    let t = stand().await;
    let four = Settings {
        partitions: 4,
        ..t.settings.clone()
    };
    let report = look(&four).await;
    assert_eq!(
        bad(&report),
        ["failure both layout", "skipped both partitions"]
    );
    says(
        &report,
        "failure both layout",
        &["1 partitions", "4 partitions", "THUMBD_PARTITIONS=1"],
    );
    // The database knows nothing of what is in Redis.
    t.sql("UPDATE flush_state SET partitions = NULL, slice_ms = NULL, key_prefix = NULL")
        .await;
    let report = look(&four).await;
    assert_eq!(
        bad(&report),
        ["failure both partitions", "skipped both flush"]
    );
    says(
        &report,
        "failure both partitions",
        &["1/3600000", "4/3600000"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_and_what_waits_are_told_and_left_alone() {
    let t = stand().await;
    let meta = t.key(0, "meta");
    t.command::<()>(&["DEL", &meta]).await;
    let report = look(&t.settings).await;
    assert_eq!(bad(&report), ["warning both partitions"]);
    says(
        &report,
        "warning both partitions",
        &["0 emptied", "thumbd flush"],
    );
    assert!(
        !t.command::<bool>(&["EXISTS", &meta]).await,
        "it was mended"
    );
    t.flush().await;
    assert_eq!(bad(&look(&t.settings).await), [""; 0]);

    let eager = Stand::on(Settings {
        slice_seconds: 1,
        ..super::well(crate::stand::settings(1).await)
    })
    .await;
    eager.like("u1", "blog:1").await.unwrap();
    let live = eager.peek(0).await.live[0].0;
    says(
        &look(&eager.settings).await,
        "ok both flush",
        &["1 entries wait"],
    );
    // As if it had been there for two minutes.
    let old = (live - 120_000).to_string();
    let (slices, slice) = (
        eager.key(0, "slices"),
        eager.key(0, &format!("slice:{live}")),
    );
    eager.command::<()>(&["DEL", &slices]).await;
    eager.command::<()>(&["ZADD", &slices, &old, &old]).await;
    let moved = eager.key(0, &format!("slice:{old}"));
    eager.command::<()>(&["RENAME", &slice, &moved]).await;
    let report = look(&eager.settings).await;
    assert_eq!(bad(&report), ["warning both flush"]);
    says(
        &report,
        "warning both flush",
        &["the oldest for 12", "thumbd serve"],
    );
}
