//! Random entries in random order against a map in which the highest version wins.

use std::collections::HashMap;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use thumbd::domain::{SliceId, Version};
use thumbd::ledger::Chunk;

use super::{TestLedger, entry, target, user};

#[tokio::test]
async fn the_last_operation_wins_in_any_order_of_slices() {
    for seed in 0..12 {
        for partitions in [1, 3] {
            run(seed, partitions).await;
        }
    }
}

async fn run(seed: u64, partitions: u16) {
    let mut rng = StdRng::seed_from_u64(seed);
    let t = TestLedger::start(partitions).await;
    let (mut version, mut slices): (i64, Vec<Chunk>) = (0, Vec::new());
    let (mut model, mut landed) = (HashMap::new(), 0);
    for slice in 1..=12 {
        let entries = (0..rng.random_range(0..30)).map(|_| {
            version += rng.random_range(1..3);
            let field = format!(
                "u{} {}:{}",
                rng.random_range(0..5),
                ["blog", "video"][rng.random_range(0..2)],
                rng.random_range(0..4)
            );
            entry(
                &field,
                if rng.random_bool(0.6) {
                    version
                } else {
                    -version
                },
            )
        });
        let entries = entries.collect();
        slices.push(t.chunk_of(slice, entries));
    }
    slices.shuffle(&mut rng);
    // Some come again.
    for _ in 0..4 {
        let again = slices[rng.random_range(0..slices.len())].clone();
        slices.push(again);
    }
    for slice in slices {
        let size = rng.random_range(1..40);
        let mut parts: Vec<_> = slice.entries.chunks(size).map(<[_]>::to_vec).collect();
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        let count = parts.len();
        for (number, entries) in parts.into_iter().enumerate() {
            for (_, entry) in &entries {
                let key = (entry.user.clone(), entry.target.clone());
                let stands = model.entry(key).or_insert((false, Version(0)));
                if entry.version > stands.1 {
                    *stands = (entry.thumbed, entry.version);
                }
            }
            let chunk = Chunk {
                number: number as u32,
                last_of_slice: number + 1 == count,
                landed_seen: SliceId(landed),
                entries,
                unreadable: Vec::new(),
                ..slice.clone()
            };
            t.ledger.apply(&chunk).await.unwrap();
        }
        landed = landed.max(slice.slice.0);
        t.check().await;
        let pairs: Vec<_> = model.keys().cloned().collect();
        let states = t.ledger.states(&pairs).await.unwrap();
        for (pair, state) in pairs.iter().zip(states) {
            assert_eq!(
                state,
                Some(model[pair]),
                "seed {seed}, {partitions} partitions, {pair:?}"
            );
        }
    }
    for kind in ["blog", "video"] {
        for id in 0..4 {
            let one = target(&format!("{kind}:{id}"));
            let want = model
                .iter()
                .filter(|((_, target), (on, _))| *on && *target == one)
                .count();
            assert_eq!(
                t.count(one.as_str()).await,
                want as i64,
                "seed {seed}, {one}"
            );
        }
    }
    for n in 0..5 {
        let who = user(&format!("u{n}"));
        let mut want: Vec<_> = model
            .iter()
            .filter(|((user, _), (on, _))| *on && *user == who)
            .map(|((_, target), (_, version))| (target.clone(), *version))
            .collect();
        want.sort_by_key(|(_, version)| std::cmp::Reverse(*version));
        let answer = &t.ledger.users(&[who], 100).await.unwrap()[0];
        assert_eq!(answer.thumbs, want, "seed {seed}");
    }
    t.ledger.close().await;
}
