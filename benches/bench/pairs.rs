//! Which user likes which target: all pairs once, in an order that looks random and is the same in every run.

use crate::limits::{TARGETS, USERS};

/// Bits of each half of a number below.
const HALF_BITS: u32 = 13;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;
/// The seed: one key per round.
const ROUND_KEYS: [u64; 4] = [
    0x9e37_79b9_7f4a_7c15,
    0xbf58_476d_1ce4_e5b9,
    0x94d0_49bb_1331_11eb,
    0xd6e8_feb8_6659_fd93,
];

const _: () = assert!(USERS * TARGETS <= 1 << (2 * HALF_BITS));

/// A user and a target, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) user: u64,
    pub(crate) target: u64,
}

/// The pair at a place of the order, which begins again behind its end.
pub(crate) fn pair(index: u64) -> Pair {
    let mut number = index % (USERS * TARGETS);
    // The network permutes somewhat more numbers than there are pairs: go on until it gives one that is a pair.
    loop {
        number = permute(number);
        if number < USERS * TARGETS {
            return Pair {
                user: number / TARGETS,
                target: number % TARGETS,
            };
        }
    }
}

/// A sequence that meets every user and every target, to warm up with.
pub(crate) fn everyone(index: u64) -> Pair {
    Pair {
        user: index % USERS,
        target: index % TARGETS,
    }
}

/// A Feistel network: a permutation, whatever the function inside is.
fn permute(number: u64) -> u64 {
    let (mut left, mut right) = (number >> HALF_BITS, number & HALF_MASK);
    for key in ROUND_KEYS {
        let mixed = (right + 1).wrapping_mul(key);
        (left, right) = (right, left ^ ((mixed >> 40) & HALF_MASK));
    }
    left << HALF_BITS | right
}
