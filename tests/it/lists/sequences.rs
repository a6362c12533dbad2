//! Random sequences of likes, unlikes, flushes and evictions, and after each step the lists against what is true then.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use thumbd::config::Settings;

use crate::servers;
use crate::stand::{Stand, settings};

/// User and target → liked, and the number of the step that made it so.
type Truth = BTreeMap<(String, String), (bool, usize)>;

const USERS: usize = 4;
const TARGETS: usize = 9;

fn name_of(target: usize) -> String {
    format!("{}:{target}", ["blog", "photo", "song"][target % 3])
}

/// The names that `of` gives those who like, newest first.
fn newest<'a>(
    truth: impl Iterator<Item = (&'a (String, String), &'a (bool, usize))>,
    of: impl Fn(&(String, String)) -> Option<String>,
) -> Vec<String> {
    let liked = truth.filter(|(_, (liked, _))| *liked);
    let mut found: Vec<(usize, String)> = liked
        .filter_map(|(pair, (_, step))| Some((*step, of(pair)?)))
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, name)| name).collect()
}

/// Takes away what Redis may take away by itself.
async fn evict(t: &Stand, user: &str) {
    let key = t.user_key(user);
    if t.command::<i64>(&["TTL", &key]).await != -1 {
        t.command::<()>(&["DEL", &key]).await;
    }
}

async fn one_sequence(partitions: u16, resident_thumbs_max: u32, seed: u64, steps: usize) {
    let mut random = StdRng::seed_from_u64(seed);
    let t = Stand::on(Settings {
        resident_thumbs_max,
        slice_seconds: 3600,
        ..settings(partitions).await
    })
    .await;
    let (mut now, mut flushed) = (Truth::new(), Truth::new());
    for step in 1..=steps {
        let (who, what) = (
            format!("u{}", random.random_range(0..USERS)),
            name_of(random.random_range(0..TARGETS)),
        );
        let pair = (who.clone(), what.clone());
        match random.random_range(0..10) {
            0 => {
                t.flush().await;
                flushed = now.clone();
            }
            1 => evict(&t, &who).await,
            op => {
                let liked = op > 4;
                let outcome = if liked {
                    t.like(&who, &what).await
                } else {
                    t.unlike(&who, &what).await
                };
                if outcome.unwrap().changed {
                    now.insert(pair, (liked, step));
                }
            }
        }
        let limit = random.random_range(1..6);
        let context = format!("seed {seed}, step {step}, {who}, pages of {limit}");
        let mine = |pair: &(String, String)| (pair.0 == who).then(|| pair.1.clone());
        let likes = t.walk_likes(&who, None, limit).await;
        assert_eq!(likes, newest(now.iter(), mine), "{context}");
        let blogs = |pair: &(String, String)| mine(pair).filter(|what| what.starts_with("blog:"));
        let likes = t.walk_likes(&who, Some("blog"), limit).await;
        assert_eq!(likes, newest(now.iter(), blogs), "{context}");
        let of_target = |pair: &(String, String)| (pair.1 == what).then(|| pair.0.clone());
        let others = flushed.iter().filter(|(pair, _)| pair.0 != who);
        let own = now.iter().filter(|(pair, _)| pair.0 == who);
        let likers = t.walk_likers(&what, Some(&who), limit).await;
        assert_eq!(likers, newest(others.chain(own), of_target), "{context}");
        let likers = t.walk_likers(&what, None, limit).await;
        assert_eq!(likers, newest(flushed.iter(), of_target), "{context}");
    }
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_true_after_every_step_of_a_random_sequence() {
    let (seeds, steps) = if servers::slow() { (20, 300) } else { (2, 120) };
    for seed in 0..seeds {
        // Complete users, and users of whom Redis holds a part.
        for (partitions, resident_thumbs_max) in [(1, 100), (3, 2)] {
            one_sequence(partitions, resident_thumbs_max, seed, steps).await;
        }
    }
}
