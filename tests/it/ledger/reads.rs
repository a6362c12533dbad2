//! Cold reads: right, complete, and by an index.

use std::collections::HashSet;

use thumbd::domain::Version;
use thumbd::ledger::{LedgerOptions, UserThumbs};

use super::{TestLedger, entry, target, user};

fn texts(one: &UserThumbs) -> Vec<String> {
    one.thumbs
        .iter()
        .map(|(target, version)| format!("{target}@{version}"))
        .collect()
}

#[tokio::test]
async fn users_come_newest_first_over_all_kinds() {
    let t = TestLedger::start(1).await;
    let entries = [
        ("u1 blog:1", 11),
        ("u1 video:1", 13),
        ("u1 blog:2", 12),
        ("u1 blog:3", -14),
        ("u2 blog:1", 15),
    ];
    t.apply(10, &entries).await;
    let asked = [user("u2"), user("none"), user("u1"), user("u2")];
    let answers = t.ledger.users(&asked, 3).await.unwrap();
    assert!(
        answers
            .iter()
            .zip(&asked)
            .all(|(answer, user)| answer.user == *user)
    );
    assert!(answers.iter().all(|answer| answer.complete));
    assert_eq!(texts(&answers[0]), ["blog:1@15"]);
    assert_eq!(answers[0], answers[3]);
    assert!(answers[1].thumbs.is_empty());
    assert_eq!(texts(&answers[2]), ["video:1@13", "blog:2@12", "blog:1@11"]);
    let partial = &t.ledger.users(&asked[2..3], 2).await.unwrap()[0];
    assert_eq!(texts(partial), ["video:1@13", "blog:2@12"]);
    assert!(!partial.complete);
    t.check().await;
}

#[tokio::test]
async fn any_number_of_keys_is_answered_in_order() {
    let t = TestLedger::start(1).await;
    let entries = (0..100).map(|n| entry(&format!("u{n} blog:{n}"), n + 1));
    t.ledger
        .apply(&t.chunk_of(10, entries.collect()))
        .await
        .unwrap();
    for len in [0, 1, 2, 5, 16, 17, 40, 99] {
        // Backwards, and with one that is not there.
        let names: Vec<i64> = (100 - len..=100).rev().collect();
        let users: Vec<_> = names.iter().map(|n| user(&format!("u{n}"))).collect();
        let targets: Vec<_> = names.iter().map(|n| target(&format!("blog:{n}"))).collect();
        let pairs: Vec<_> = users.iter().cloned().zip(targets.iter().cloned()).collect();
        let there: Vec<i64> = names.iter().map(|n| i64::from(*n < 100)).collect();
        let lengths: Vec<i64> = t
            .ledger
            .users(&users, 5)
            .await
            .unwrap()
            .iter()
            .map(|one| one.thumbs.len() as i64)
            .collect();
        assert_eq!(lengths, there);
        assert_eq!(t.ledger.count_parts(0, 1, &targets).await.unwrap(), there);
        assert_eq!(t.ledger.exact_counts(0, 1, &targets).await.unwrap(), there);
        let states = names
            .iter()
            .map(|n| (*n < 100).then_some((true, Version(*n as u64 + 1))));
        assert_eq!(
            t.ledger.states(&pairs).await.unwrap(),
            states.collect::<Vec<_>>()
        );
    }
    let one_user: Vec<_> = (0..3)
        .map(|n| (user("u1"), target(&format!("blog:{n}"))))
        .collect();
    let states = t.ledger.states(&one_user).await.unwrap();
    assert_eq!(states, [None, Some((true, Version(2))), None]);
    t.check().await;
}

#[tokio::test]
async fn pages_show_every_row_once() {
    let t = TestLedger::start(1).await;
    let entries = (0..50).map(|n| {
        let kind = ["blog", "video", "song"][n % 3];
        entry(
            &format!("u{} {kind}:{n}", n % 4),
            if n % 5 == 0 { -1 } else { 1 } * (n as i64 + 1),
        )
    });
    t.ledger
        .apply(&t.chunk_of(10, entries.collect()))
        .await
        .unwrap();
    for limit in [1, 3, 25, 50, 51] {
        let (mut seen, mut order, mut after) = (HashSet::new(), Vec::new(), None);
        loop {
            let page = t.ledger.thumbs_page(after.as_ref(), limit).await.unwrap();
            for row in &page.rows {
                assert!(seen.insert((row.user.clone(), row.target.clone())));
                assert_eq!(row.thumbed, (row.version.0 - 1) % 5 != 0);
                order.push(row.user.clone());
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen.len(), 50, "pages of {limit}");
        assert!(order.is_sorted());
        let (mut sum, mut targets, mut after) = (0, HashSet::new(), None);
        loop {
            let page = t.ledger.counts_page(after.as_ref(), limit).await.unwrap();
            for row in &page.rows {
                assert!(targets.insert(row.target.clone()));
                sum += row.count;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!((sum, targets.len()), (40, 40), "pages of {limit}");
    }
    t.check().await;
}

#[tokio::test]
async fn prepared_statements_stay_few() {
    let options = LedgerOptions {
        connections_max: 1,
        ..LedgerOptions::default()
    };
    let t = TestLedger::with(4, options).await;
    let mut slice = 0;
    let mut kept = Vec::new();
    for sizes in [
        [1, 9, 65, 700],
        [2, 13, 77, 811],
        [3, 40, 300, 1111],
        [7, 8, 64, 250],
    ] {
        for size in sizes {
            slice += 10;
            let entries: Vec<_> = (0..size)
                .map(|n| entry(&format!("u{n} {}:{n}", ["blog", "video"][n % 2]), slice))
                .collect();
            let users: Vec<_> = entries.iter().map(|entry| entry.user.clone()).collect();
            let targets: Vec<_> = entries.iter().map(|entry| entry.target.clone()).collect();
            let pairs: Vec<_> = users.iter().cloned().zip(targets.iter().cloned()).collect();
            // An unlike moves counts that are there already.
            let unlikes = entries.iter().map(|entry| {
                let mut unlike = entry.clone();
                unlike.thumbed = false;
                unlike.version = Version(slice as u64 + 5);
                unlike
            });
            let unlikes = unlikes.collect();
            t.ledger
                .apply(&t.chunk_of(slice as u64, entries))
                .await
                .unwrap();
            t.ledger
                .apply(&t.chunk_of(slice as u64 + 5, unlikes))
                .await
                .unwrap();
            t.ledger.users(&users, size).await.unwrap();
            t.ledger.states(&pairs).await.unwrap();
            for partitions in [1, 4] {
                t.ledger.count_parts(0, partitions, &targets).await.unwrap();
                t.ledger
                    .exact_counts(0, partitions, &targets)
                    .await
                    .unwrap();
            }
            t.ledger.thumbs_page(None, size as u64).await.unwrap();
            t.ledger.counts_page(None, size as u64).await.unwrap();
            t.check().await;
        }
        kept.push(t.ledger.statements_kept().await.unwrap());
    }
    assert!(kept.iter().all(|kept| *kept < 100), "{kept:?}");
    assert_eq!(kept[2], kept[3], "{kept:?}");
}
