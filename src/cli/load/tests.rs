//! Runs against a small server of the same interface.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::Duration;

use super::server::{Seen, server};
use super::*;
use crate::config::Secret;

/// A file that is removed with the value.
fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn arguments(file: &tempfile::NamedTempFile, url: &str) -> Arguments {
    Arguments {
        file: file.path().to_str().unwrap().to_owned(),
        kind: Kind::parse("blog").unwrap(),
        url: url.to_owned(),
        concurrency: 32,
        rate: 0,
        batch: 1,
        tries: 3,
    }
}

/// Many users and targets, every pair liked and unliked in turn a few times, shuffled by arithmetic.
fn toggles() -> (String, HashMap<(String, String), Vec<bool>>) {
    let mut text = String::new();
    let mut expected: HashMap<(String, String), Vec<bool>> = HashMap::new();
    for step in 0..1500_u32 {
        let (user, id) = (
            format!("u{}", step * 7 % 10),
            format!("t{}", step * 13 % 30),
        );
        let liked = step / 90 % 2 == 0;
        text += &format!("{user},{id},{}\n", if liked { "like" } else { "unlike" });
        expected.entry((user, id)).or_default().push(liked);
    }
    (text, expected)
}

fn order(seen: &Seen) -> HashMap<(String, String), Vec<bool>> {
    let mut order: HashMap<(String, String), Vec<bool>> = HashMap::new();
    for (user, id, liked) in &seen.accepted {
        order
            .entry((user.clone(), id.clone()))
            .or_default()
            .push(*liked);
    }
    order
}

#[tokio::test]
async fn single_calls_keep_the_order_of_a_pair() {
    let (seen, url) = server().await;
    let (text, expected) = toggles();
    let tally = replay(
        &Settings::default(),
        &arguments(&file(text.as_bytes()), &url),
    )
    .await
    .unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(
        (tally.counts()[0], tally.counts()[3], seen.overlaps),
        (1500, 0, 0)
    );
    assert_eq!(order(&seen), expected);
}

#[tokio::test]
async fn batches_are_full_and_keep_the_order_of_a_pair() {
    let (seen, url) = server().await;
    let (text, expected) = toggles();
    let file = file(text.as_bytes());
    let tally = replay(
        &Settings::default(),
        &Arguments {
            batch: 400,
            ..arguments(&file, &url)
        },
    )
    .await
    .unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(tally.counts()[0], 1500);
    assert_eq!(order(&seen), expected);
    assert_eq!(seen.calls, [400, 400, 400, 300]);
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let (_seen, url) = server().await;
    let file = file(b"user,target\nu1,1\nu1,2\nu2,1\n");
    let arguments = arguments(&file, &url);
    let first = replay(&Settings::default(), &arguments).await.unwrap();
    assert_eq!(first.counts(), [3, 3, 0, 0]);
    let second = replay(&Settings::default(), &arguments).await.unwrap();
    assert_eq!(second.counts(), [3, 0, 3, 0]);
}

#[tokio::test]
async fn what_is_answered_503_is_sent_again_and_counts_once() {
    let (seen, url) = server().await;
    seen.lock().unwrap().unavailable = ["u1", "u1"].map(str::to_owned).into();
    let file = file(b"u1,1\nu2,1\n");
    let tally = replay(&Settings::default(), &arguments(&file, &url))
        .await
        .unwrap();
    assert_eq!(tally.counts(), [2, 2, 0, 0]);
    assert_eq!(seen.lock().unwrap().calls.len(), 4);
}

#[tokio::test]
async fn what_is_limited_is_sent_again_and_told_if_it_stays_so() {
    for batch in [1, 10] {
        let (seen, url) = server().await;
        seen.lock().unwrap().limited = ["u1", "u2", "u2", "u2"].map(str::to_owned).into();
        let file = file(b"u1,1\nu2,1\n");
        let arguments = Arguments {
            batch,
            ..arguments(&file, &url)
        };
        let tally = replay(&Settings::default(), &arguments).await.unwrap();
        assert_eq!(tally.counts(), [2, 1, 0, 1], "batches of {batch}");
        let table = tally.table();
        assert!(table.contains("1 × 429: no"), "{table}");
    }
}

#[tokio::test]
async fn tries_are_bounded() {
    let (seen, url) = server().await;
    seen.lock().unwrap().unavailable_calls = 3;
    let file = file(b"u1,1\n");
    let tally = replay(&Settings::default(), &arguments(&file, &url))
        .await
        .unwrap();
    assert_eq!(tally.counts(), [1, 0, 0, 1]);
    assert!(
        tally.table().contains("1 × 503: busy (first in line 1)"),
        "{}",
        tally.table()
    );
    assert_eq!(seen.lock().unwrap().calls.len(), 3);
}

#[tokio::test]
async fn a_batch_repeats_what_comes_behind_an_operation_that_must_be_repeated() {
    let (seen, url) = server().await;
    seen.lock().unwrap().unavailable = ["u1"].map(str::to_owned).into();
    let file = file(b"u1,1,like\nu2,1\nu1,2\nu1,1,unlike\n");
    let tally = replay(
        &Settings::default(),
        &Arguments {
            batch: 10,
            ..arguments(&file, &url)
        },
    )
    .await
    .unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.calls, [4, 2]);
    assert!(
        !seen.liked[&("u1".into(), "1".into())],
        "the unlike came last in the file"
    );
    assert_eq!(tally.counts(), [4, 4, 0, 0]);
}

#[tokio::test]
async fn gzip_is_unpacked_and_ids_and_key_are_sent_as_they_are() {
    let (seen, url) = server().await;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed
        .write_all(b"user,target,op\nu:1,a/b?c#%2F+\xc2\n\"u,1\",a/b?c#%2F+,\n")
        .unwrap();
    let settings = Settings {
        service_key: Some(Secret::new("service-key")),
        ..Settings::default()
    };
    let file = file(&packed.finish().unwrap());
    let tally = replay(&settings, &arguments(&file, &url)).await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen.accepted,
        [("u,1".to_owned(), "a/b?c#%2F+".to_owned(), true)]
    );
    assert_eq!(seen.authorization.as_deref(), Some("Bearer service-key"));
    assert!(
        tally
            .table()
            .contains("bad line: not valid UTF-8 (first in line 2)"),
        "{}",
        tally.table()
    );
}

#[tokio::test]
async fn failures_are_listed_bounded_and_the_rest_goes_on() {
    let (_seen, url) = server().await;
    let mut text = String::from("u1,refused\nu2,refused\n");
    for fields in 3..20 {
        text += &format!("u{}\n", ",x".repeat(fields));
    }
    text += "u1,1\n";
    let file = file(text.as_bytes());
    let tally = replay(
        &Settings::default(),
        &Arguments {
            concurrency: 1,
            ..arguments(&file, &url)
        },
    )
    .await
    .unwrap();
    assert_eq!(tally.counts(), [3, 1, 0, 19]);
    let table = tally.table();
    let listed: Vec<&str> = table
        .lines()
        .skip_while(|line| !line.contains("lines that could"))
        .collect();
    insta::assert_snapshot!(listed.join("\n"));
}

#[tokio::test]
async fn the_rate_is_kept() {
    let (_seen, url) = server().await;
    let text: String = (0..50).map(|id| format!("u,{id}\n")).collect();
    let file = file(text.as_bytes());
    let begun = std::time::Instant::now();
    replay(
        &Settings::default(),
        &Arguments {
            rate: 200,
            ..arguments(&file, &url)
        },
    )
    .await
    .unwrap();
    // 49 gaps of 5 ms; only the lower bound does not depend on the machine.
    assert!(
        begun.elapsed() >= Duration::from_millis(240),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_ends_the_run() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let text: String = (0..10_000).map(|id| format!("u,{id}\n")).collect();
    let file = file(text.as_bytes());
    let tally = replay(
        &Settings::default(),
        &Arguments {
            tries: 1,
            ..arguments(&file, &url)
        },
    )
    .await
    .unwrap();
    assert!(tally.stopped() && !tally.complete());
    assert!(tally.counts()[0] < 1000, "{:?}", tally.counts());
    assert!(tally.table().contains("no answer:"), "{}", tally.table());
}

#[test]
fn addresses_are_checked() {
    assert_eq!(
        wire::base_url("http://127.0.0.1:7468/").unwrap(),
        "http://127.0.0.1:7468"
    );
    assert_eq!(
        wire::base_url("http://host/likes/").unwrap(),
        "http://host/likes"
    );
    for text in ["https://host", "host:7468", "host", "http://host?x", ""] {
        assert!(wire::base_url(text).is_err(), "{text}");
    }
}
