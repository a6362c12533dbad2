//! A large slice is flushed while likes go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{Own, agree, fill_slice};
use crate::servers::slow;
use crate::stand::Stand;

/// What a like may take during the flush, on a busy machine and in a debug build.
const LONGEST: Duration = Duration::from_secs(5);

/// Likes, one after the other, until told; gives how long each took, in µs.
async fn likes(t: &Stand, first: &str, goes_on: impl Fn(u64) -> bool) -> Histogram<u64> {
    let mut took = Histogram::new(3).unwrap();
    let mut n = 0;
    while goes_on(n) {
        let begun = Instant::now();
        t.like(&format!("{first}{n}"), "news:1").await.unwrap();
        took.record(begun.elapsed().as_micros() as u64).unwrap();
        n += 1;
    }
    took
}

fn show(what: &str, took: &Histogram<u64>) {
    let at = |quantile| Duration::from_micros(took.value_at_quantile(quantile));
    let (p50, p99, max) = (at(0.5), at(0.99), Duration::from_micros(took.max()));
    println!(
        "{what}: {} likes, p50 {p50:?}, p99 {p99:?}, max {max:?}",
        took.len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn likes_go_on_while_a_large_slice_is_flushed() {
    let entries = if slow() { 1_000_000 } else { 50_000 };
    let own = Own::start(|_| {});
    let t = own.stand(|_| {}).await;
    fill_slice(&t, entries).await;
    let before = likes(&t, "before", |n| n < 1000).await;
    let flushing = AtomicBool::new(true);
    let flush = async {
        let report = t.flush().await;
        flushing.store(false, Ordering::Relaxed);
        report
    };
    let (report, during) = tokio::join!(
        flush,
        likes(&t, "during", |_| flushing.load(Ordering::Relaxed))
    );
    println!("{entries} entries in {} ms", report.duration_ms);
    show("before", &before);
    show("during", &during);
    // Some likes come between the call and the seal.
    assert!((entries + 1000..=entries + 1000 + during.len()).contains(&report.entries));
    assert!(during.len() > 10);
    assert!(Duration::from_micros(during.max()) < LONGEST);
    let liked = (1000 + during.len()) as i64;
    assert_eq!(t.look("during0", "news:1").await, (Some(true), Some(liked)));
    t.flush().await;
    let last = format!("u{}", entries - 1);
    agree(
        &t,
        &["u0", "u1", &last, "before0", "during0"],
        &["blog:0", "blog:19", "news:1"],
    )
    .await;
    let rows = t
        .number("SELECT COUNT(*) FROM thumb WHERE thumbed = 1")
        .await;
    assert_eq!(rows, entries as i64 + liked);
}
