//! What a flush does to rows, counts and the state of the flush, without faults.

use thumbd::domain::{SliceId, Version, partition_of};
use thumbd::ledger::{Layout, LedgerError, Progress};

use super::{TestLedger, entry, layout, numbers, target, user};

#[tokio::test]
async fn new_rows_land_and_a_repetition_changes_nothing() {
    let t = TestLedger::start(1).await;
    let entries = [("u1 blog:1", 11), ("u2 blog:1", 12), ("u1 blog:2", 13)];
    assert_eq!(t.apply(10, &entries).await, (3, 0, 2));
    assert_eq!((t.count("blog:1").await, t.count("blog:2").await), (2, 1));
    assert_eq!(t.apply(10, &entries).await, (0, 3, 0));
    assert_eq!(t.count("blog:1").await, 2);
    let state = t.ledger.flush_state().await.unwrap();
    assert_eq!((state.last, state.landed), (SliceId(10), SliceId(10)));
    assert_eq!(state.max_version, Version(13));
    t.check().await;
}

#[tokio::test]
async fn the_highest_version_wins_in_whatever_order() {
    let t = TestLedger::start(1).await;
    assert_eq!(t.apply(20, &[("u1 blog:1", 21)]).await, (1, 0, 1));
    assert_eq!(t.apply(10, &[("u1 blog:1", -11)]).await, (0, 1, 0));
    assert_eq!(t.count("blog:1").await, 1);
    // A like that is renewed changes the row and not the count.
    assert_eq!(t.apply(30, &[("u1 blog:1", 31)]).await, (1, 0, 0));
    assert_eq!(t.apply(40, &[("u1 blog:1", -41)]).await, (1, 0, 1));
    assert_eq!(t.count("blog:1").await, 0);
    // What was taken back stays taken back: its row is still there.
    assert_eq!(t.apply(35, &[("u1 blog:1", 36)]).await, (0, 1, 0));
    assert_eq!(t.count("blog:1").await, 0);
    let state = t.ledger.flush_state().await.unwrap();
    assert_eq!((state.last, state.landed), (SliceId(40), SliceId(40)));
    t.check().await;
}

#[tokio::test]
async fn an_unlike_without_a_row_beats_an_older_like() {
    let t = TestLedger::start(1).await;
    assert_eq!(t.apply(20, &[("u1 blog:1", -21)]).await, (1, 0, 0));
    assert_eq!(t.apply(10, &[("u1 blog:1", 11)]).await, (0, 1, 0));
    assert_eq!(t.count("blog:1").await, 0);
    t.check().await;
}

#[tokio::test]
async fn a_pair_that_comes_twice_counts_once() {
    let t = TestLedger::start(1).await;
    let entries = [("u1 blog:1", 11), ("u1 blog:1", -13), ("u1 blog:1", 12)];
    assert_eq!(t.apply(10, &entries).await, (1, 0, 0));
    let pairs = [(user("u1"), target("blog:1"))];
    let states = t.ledger.states(&pairs).await.unwrap();
    assert_eq!(states, [Some((false, Version(13)))]);
    t.check().await;
}

#[tokio::test]
async fn ids_differ_by_case_and_kind_and_may_be_long() {
    let t = TestLedger::start(1).await;
    let (long_user, long_id) = ("u".repeat(128), "~".repeat(128));
    let long = format!("{long_user} blog:{long_id}");
    let entries = [
        ("Ab blog:x", 11),
        ("ab blog:x", 12),
        ("ab blog:X", 13),
        ("ab video:x", 14),
        (&long, 15),
    ];
    assert_eq!(t.apply(10, &entries).await, (5, 0, 4));
    for (text, count) in [
        ("blog:x", 2),
        ("blog:X", 1),
        ("video:x", 1),
        ("video:X", 0),
        ("none:x", 0),
        (&*format!("blog:{long_id}"), 1),
    ] {
        assert_eq!(t.count(text).await, count, "{text}");
    }
    t.check().await;
}

#[tokio::test]
async fn parts_follow_the_partition_of_the_user() {
    let t = TestLedger::start(4).await;
    let users: Vec<String> = (0..40).map(|n| format!("u{n}")).collect();
    let like = |slice: i64, sign: i64, step: usize| {
        let entries = users.iter().step_by(step).flat_map(|user| {
            ["blog:1", "video:1"].map(|target| entry(&format!("{user} {target}"), sign * slice))
        });
        t.chunk_of(slice as u64, entries.collect())
    };
    t.ledger.apply(&like(10, 1, 1)).await.unwrap();
    t.check().await;
    t.ledger.apply(&like(20, -1, 3)).await.unwrap();
    t.check().await;
    assert_eq!(t.count("blog:1").await, 26);
    for partition in 0..4 {
        let here = users
            .iter()
            .enumerate()
            .filter(|(n, name)| n % 3 != 0 && partition_of(&user(name), 4) == partition);
        let targets = [target("video:1"), target("blog:none"), target("blog:1")];
        let want = here.count() as i64;
        let parts = t.ledger.count_parts(partition, 4, &targets).await.unwrap();
        assert_eq!(parts, [want, 0, want]);
        let exact = t.ledger.exact_counts(partition, 4, &targets).await.unwrap();
        assert_eq!(exact, parts);
    }
    let mut chunk = t.chunk(30, &[("u1 blog:1", 31)]);
    chunk.entries[0].0 = 4;
    let error = t.ledger.apply(&chunk).await.unwrap_err();
    assert!(matches!(
        error,
        LedgerError::PartitionOutside {
            partition: 4,
            partitions: 4
        }
    ));
}

#[tokio::test]
async fn many_targets_need_several_statements() {
    let t = TestLedger::start(1).await;
    let entries = |version: i64, count: usize| -> Vec<_> {
        (0..count)
            .map(|n| entry(&format!("u{} blog:{n}", n % 7), version))
            .collect()
    };
    // Some are new and some are not, on both sides of the size of a statement.
    for (slice, count, changed) in [(10, 600, 600), (20, 1200, 600)] {
        let chunk = t.chunk_of(slice, entries(slice as i64, count));
        let applied = t.ledger.apply(&chunk).await.unwrap();
        assert_eq!(numbers(&applied), (count as u64, 0, changed));
        t.check().await;
    }
    let applied = t.ledger.apply(&t.chunk_of(30, entries(-30, 900))).await;
    assert_eq!(numbers(&applied.unwrap()), (900, 0, 900));
    t.check().await;
    assert_eq!(
        (t.count("blog:899").await, t.count("blog:900").await),
        (0, 1)
    );
}

#[tokio::test]
async fn a_chunk_of_twenty_thousand_entries_fits() {
    let t = TestLedger::start(1).await;
    let user_wide = "x".repeat(120);
    let entries = (0..20_000)
        .map(|n| entry(&format!("{user_wide}{} blog:{}", n % 5000, n / 5000), n + 1))
        .collect();
    let applied = t.ledger.apply(&t.chunk_of(10, entries)).await.unwrap();
    assert_eq!(numbers(&applied), (20_000, 0, 4));
    assert_eq!(t.count("blog:3").await, 5000);
    t.check().await;
}

#[tokio::test]
async fn an_empty_slice_moves_the_state() {
    let t = TestLedger::start(1).await;
    assert_eq!(t.apply(10, &[]).await, (0, 0, 0));
    let state = t.ledger.flush_state().await.unwrap();
    assert_eq!((state.last, state.landed), (SliceId(10), SliceId(10)));
    assert_eq!(state.max_version, Version(0));
    t.check().await;
}

#[tokio::test]
async fn chunks_follow_each_other_and_a_stranger_is_noticed() {
    let t = TestLedger::start(1).await;
    let chunk = |number: u32, last: bool, token: &str| {
        let field = format!("u{number} blog:1");
        let mut chunk = t.chunk(10, &[(&field, 11 + i64::from(number))]);
        (chunk.number, chunk.last_of_slice) = (number, last);
        token.clone_into(&mut chunk.token);
        chunk
    };
    let overtaken = async |number, token| {
        let result = t.ledger.apply(&chunk(number, true, token)).await;
        assert!(matches!(result, Err(LedgerError::Overtaken)), "{result:?}");
    };
    overtaken(1, "a").await;
    t.ledger.apply(&chunk(0, false, "a")).await.unwrap();
    let state = t.ledger.flush_state().await.unwrap();
    assert_eq!((state.last, state.landed), (SliceId(10), SliceId(0)));
    let progress = Progress {
        slice: SliceId(10),
        number: 0,
        token: "a".to_owned(),
    };
    assert_eq!(state.progress, progress);
    overtaken(2, "a").await;
    overtaken(1, "b").await;
    t.ledger.apply(&chunk(1, false, "a")).await.unwrap();
    // Its commit was not answered, say: the same chunk once more.
    t.ledger.apply(&chunk(1, false, "a")).await.unwrap();
    // Another flusher begins this slice, and the first one notices.
    t.ledger.apply(&chunk(0, false, "b")).await.unwrap();
    overtaken(2, "a").await;
    assert_eq!(t.count("blog:1").await, 2);
    for (number, last) in [(1, false), (2, true)] {
        t.ledger.apply(&chunk(number, last, "b")).await.unwrap();
    }
    let state = t.ledger.flush_state().await.unwrap();
    assert_eq!((state.landed, t.count("blog:1").await), (SliceId(10), 3));
    t.check().await;
}

#[tokio::test]
async fn a_mysql_that_forgot_commits_is_noticed() {
    let t = TestLedger::start(1).await;
    t.apply(10, &[("u1 blog:1", 11)]).await;
    let mut chunk = t.chunk(30, &[("u2 blog:1", 31)]);
    chunk.landed_seen = SliceId(20);
    let error = t.ledger.apply(&chunk).await.unwrap_err();
    let (landed, seen) = (SliceId(10), SliceId(20));
    assert!(
        matches!(error, LedgerError::LandedBehind { landed: l, seen: s } if (l, s) == (landed, seen))
    );
    assert!(!error.retryable());
    let state = t.ledger.flush_state().await.unwrap();
    assert_eq!((state.last, t.count("blog:1").await), (SliceId(10), 1));
    t.check().await;
}

#[tokio::test]
async fn a_layout_is_adopted_once() {
    let t = TestLedger::start(4).await;
    let other = Layout {
        slice_ms: 5000,
        ..layout(4)
    };
    t.ledger.adopt_layout(&layout(4)).await.unwrap();
    let error = t.ledger.adopt_layout(&other).await.unwrap_err();
    let LedgerError::LayoutChanged { stored, wanted } = &error else {
        panic!("{error:?}");
    };
    assert_eq!((stored, wanted), (&layout(4), &other));
    assert_eq!(
        t.ledger.flush_state().await.unwrap().layout,
        Some(layout(4))
    );
    t.run("UPDATE flush_state SET partitions = NULL").await;
    let chunk = t.chunk(10, &[("u1 blog:1", 11)]);
    let error = t.ledger.apply(&chunk).await.unwrap_err();
    assert!(matches!(error, LedgerError::LayoutMissing));
    t.check().await;
}
