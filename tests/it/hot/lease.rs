//! The lease on a job.

use std::time::Duration;

use super::both;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_lease_is_taken_renewed_and_given_back() {
    for t in both().await {
        let key = format!("{}:v1:lease:flush", t.settings.key_prefix);
        let lease = |owner: &'static str, life| t.hot.lease("flush", owner, life);
        assert!(lease("a", Duration::from_secs(5)).await.unwrap());
        assert!(!lease("b", LONG).await.unwrap());
        let left: u64 = t.command(&["PTTL", &key]).await;
        assert!(left <= 5000, "{left}: a refused call must not lengthen it");
        assert!(lease("a", LONG).await.unwrap());
        let left: u64 = t.command(&["PTTL", &key]).await;
        assert!(left > 5000, "{left}");
        // Another job has its own.
        assert!(t.hot.lease("compensate", "b", LONG).await.unwrap());
        assert!(!t.hot.lease_release("flush", "b").await.unwrap());
        assert!(t.hot.lease_release("flush", "a").await.unwrap());
        assert!(lease("b", LONG).await.unwrap());
        assert!(!t.hot.lease_release("flush", "a").await.unwrap());
    }
}

#[tokio::test]
async fn a_lease_lapses() {
    for t in both().await {
        let short = Duration::from_millis(1);
        assert!(t.hot.lease("flush", "a", short).await.unwrap());
        while !t.hot.lease("flush", "b", LONG).await.unwrap() {
            tokio::time::sleep(short).await;
        }
        assert!(!t.hot.lease("flush", "a", LONG).await.unwrap());
    }
}
