//! Batches of likes and unlikes on real servers.

use thumbd::config::Settings;

use crate::stand::{Stand, op, settings};

#[tokio::test]
async fn a_batch_keeps_the_order_of_a_pair() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        let operations = vec![
            op("u1", "blog:1", true),
            op("u2", "blog:1", true),
            op("u1", "blog:1", false),
            op("u2", "blog:2", false),
            op("u1", "blog:1", true),
            op("u1", "blog:1", true),
            op("u2", "blog:1", false),
            op("u3", "blog:1", true),
            op("u1", "blog:2", true),
        ];
        let answers = t.service.batch(operations).await;
        let changed: Vec<bool> = answers
            .into_iter()
            .map(|one| one.unwrap().changed)
            .collect();
        let want = [true, true, true, false, true, false, true, true, true];
        assert_eq!(changed, want);
        assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(2)));
        assert_eq!(t.look("u2", "blog:1").await, (Some(false), Some(2)));
        t.check().await;
    }
}

#[tokio::test]
async fn a_thousand_operations_with_duplicates() {
    for partitions in [1, 4] {
        let t = Stand::start(partitions).await;
        let operations: Vec<_> = (0..1000)
            .map(|n| op(&format!("u{}", n % 250), &format!("blog:{}", n % 50), true))
            .collect();
        let answers = t.service.batch(operations).await;
        for (n, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.unwrap().changed, n < 250, "operation {n}");
        }
        assert_eq!(t.look("u0", "blog:0").await, (Some(true), Some(5)));
        t.check().await;
        assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 250);
    }
}

#[tokio::test]
async fn a_batch_that_is_all_cold_is_loaded_whole() {
    for partitions in [1, 4] {
        all_cold(Stand::start(partitions).await).await;
    }
    // However few places there are.
    let few = Settings {
        cold_loads_max: 2,
        ..settings(1).await
    };
    all_cold(Stand::on(few).await).await;
}

async fn all_cold(t: Stand) {
    let operations: Vec<_> = (0..1000)
        .map(|n| op(&format!("u{n}"), &format!("blog:{n}"), true))
        .collect();
    for answer in t.service.batch(operations).await {
        assert!(answer.unwrap().changed);
    }
    t.check().await;
}
