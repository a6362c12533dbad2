//! The audit finds what does not agree, in both directions.

use thumbd::ledger::CountDifference;

use super::{TestLedger, entry, user};
use thumbd::domain::partition_of;

fn difference(
    target: &str,
    partition: Option<u16>,
    stored: Option<i64>,
    rows: i64,
) -> CountDifference {
    CountDifference {
        target: target.to_owned(),
        partition,
        stored,
        rows,
    }
}

#[tokio::test]
async fn every_kind_of_difference_is_found() {
    let t = TestLedger::start(1).await;
    let entries = [
        ("u1 blog:1", 11),
        ("u2 blog:1", 12),
        ("u1 blog:2", 13),
        ("u1 video:9", 14),
        ("u1 video:8", -15),
    ];
    t.apply(10, &entries).await;
    t.check().await;
    t.run("UPDATE thumb_count SET count = 5 WHERE target_id = '1'")
        .await;
    t.run("DELETE FROM thumb_count WHERE target_id = '2'").await;
    t.run("INSERT INTO thumb_count (kind_id, target_id, count) SELECT kind_id, 'z', -3 FROM kind WHERE name = 'blog'")
        .await;
    t.run("INSERT INTO thumb_count (kind_id, target_id, count) SELECT kind_id, '8', 1 FROM kind WHERE name = 'video'")
        .await;
    // A count of nothing is right where there is nothing.
    t.run("INSERT INTO thumb_count (kind_id, target_id, count) SELECT kind_id, '0', 0 FROM kind WHERE name = 'video'")
        .await;
    let mut seen = Vec::new();
    let audit = t
        .ledger
        .audit_counts(|rows, _| seen.push(rows))
        .await
        .unwrap();
    let want = [
        difference("blog:1", None, Some(5), 2),
        difference("blog:2", None, None, 1),
        difference("blog:z", None, Some(-3), 0),
        difference("video:8", None, Some(1), 0),
    ];
    assert_eq!(audit.differences, want);
    assert_eq!(
        (audit.differences_total, audit.rows_seen, audit.targets_seen),
        (4, 5, 4)
    );
    assert_eq!(seen.last(), Some(&5));
}

#[tokio::test]
async fn parts_are_compared_with_their_partition() {
    let t = TestLedger::start(4).await;
    t.apply(
        10,
        &[("u1 blog:1", 11), ("u2 blog:1", 12), ("u3 blog:1", 13)],
    )
    .await;
    t.check().await;
    let home = partition_of(&user("u1"), 4);
    let stored = t
        .ledger
        .count_parts(home, 4, &[super::target("blog:1")])
        .await
        .unwrap()[0];
    t.run(&format!(
        "UPDATE thumb_count_part SET count = 9 WHERE partition_id = {home}"
    ))
    .await;
    let audit = t.ledger.audit_counts(|_, _| {}).await.unwrap();
    assert_eq!(
        audit.differences,
        [difference("blog:1", Some(home), Some(9), stored)]
    );
    t.run(&format!(
        "DELETE FROM thumb_count_part WHERE partition_id = {home}"
    ))
    .await;
    let audit = t.ledger.audit_counts(|_, _| {}).await.unwrap();
    assert_eq!(
        audit.differences,
        [difference("blog:1", Some(home), None, stored)]
    );
}

#[tokio::test]
async fn many_pages_agree_and_the_list_is_bounded() {
    let t = TestLedger::start(4).await;
    let entries = (0..2600).map(|n| entry(&format!("u{} blog:{}", n % 11, n / 2), n + 1));
    t.ledger
        .apply(&t.chunk_of(10, entries.collect()))
        .await
        .unwrap();
    t.check().await;
    let audit = t.ledger.audit_counts(|_, _| {}).await.unwrap();
    assert_eq!((audit.rows_seen, audit.targets_seen), (2600, 1300));
    t.run("DELETE FROM thumb_count").await;
    let audit = t.ledger.audit_counts(|_, _| {}).await.unwrap();
    assert_eq!(
        (audit.differences_total, audit.differences.len()),
        (1300, 1000)
    );
    // Counts without any rows, over several pages.
    t.run("UPDATE thumb_count_part SET count = 1").await;
    t.run("DELETE FROM thumb").await;
    let audit = t.ledger.audit_counts(|_, _| {}).await.unwrap();
    let parts = t.number("SELECT COUNT(*) FROM thumb_count_part").await as u64;
    assert!(parts > 1300);
    assert_eq!(audit.differences_total, parts);
}
