//! The checker against histories that may be and histories that may not.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Call, Event, Pair, Told, check};

const LONG: Duration = Duration::from_secs(1000);

fn pair(user: &str) -> Pair {
    (user.to_owned(), "blog:1".to_owned())
}

fn event(user: &str, start: u64, end: u64, call: Call, told: Told) -> Event {
    Event {
        pair: pair(user),
        call,
        start: Duration::from_secs(start),
        end: Duration::from_secs(end),
        told,
    }
}

fn done(user: &str, start: u64, end: u64, call: Call, changed: bool) -> Event {
    let told = Told::Done {
        changed,
        count: None,
    };
    event(user, start, end, call, told)
}

fn seen(user: &str, start: u64, end: u64, liked: Option<bool>, count: Option<i64>) -> Event {
    event(user, start, end, Call::Read, Told::Seen { liked, count })
}

fn unknown(user: &str, start: u64, end: u64, call: Call) -> Event {
    event(user, start, end, call, Told::Unknown)
}

fn judge(events: &[Event], rows: &[(&str, bool)], settled: Duration) -> Result<(), String> {
    let rows: BTreeMap<Pair, bool> = rows.iter().map(|(user, on)| (pair(user), *on)).collect();
    check(events, &rows, settled).map(drop)
}

fn may(events: &[Event], row: bool) {
    judge(events, &[("u", row)], LONG).unwrap();
}

fn may_not(events: &[Event], row: bool) {
    judge(events, &[("u", row)], LONG).unwrap_err();
}

use Call::{Like, Unlike};

#[test]
fn one_after_the_other() {
    let history = [
        done("u", 0, 1, Like, true),
        done("u", 2, 3, Like, false),
        seen("u", 4, 5, Some(true), None),
        done("u", 6, 7, Unlike, true),
        seen("u", 8, 9, Some(false), None),
    ];
    may(&history, false);
    may_not(&history, true);
    may_not(
        &[done("u", 0, 1, Like, true), done("u", 2, 3, Like, true)],
        true,
    );
    may_not(&[done("u", 0, 1, Unlike, true)], false);
    may_not(
        &[
            done("u", 0, 1, Like, true),
            seen("u", 2, 3, Some(false), None),
        ],
        true,
    );
}

#[test]
fn at_the_same_time_any_order_will_do() {
    // Fifty parallel unlikes of one like: exactly one changes something.
    let mut history = vec![done("u", 0, 1, Like, true)];
    history.extend((0..50).map(|n| done("u", 2, 9, Unlike, n == 30)));
    may(&history, false);
    history.push(done("u", 2, 9, Unlike, true));
    may_not(&history, false);
    // A read under way may see either.
    for liked in [true, false] {
        may(
            &[
                done("u", 0, 9, Like, true),
                seen("u", 1, 2, Some(liked), None),
            ],
            true,
        );
    }
    // But not first the one and then the other way round.
    may_not(
        &[
            done("u", 0, 9, Like, true),
            seen("u", 1, 2, Some(true), None),
            seen("u", 3, 4, Some(false), None),
        ],
        true,
    );
}

#[test]
fn an_unknown_outcome_happened_once_or_not_at_all() {
    let lost = unknown("u", 0, 1, Like);
    for row in [true, false] {
        may(std::slice::from_ref(&lost), row);
    }
    // Also later, but only once.
    let late = [
        lost.clone(),
        seen("u", 2, 3, Some(false), None),
        done("u", 4, 5, Like, false),
        done("u", 6, 7, Unlike, true),
    ];
    may(&late, false);
    may_not(&late, true);
    may_not(
        &[seen("u", 0, 1, Some(true), None), unknown("u", 2, 3, Like)],
        true,
    );
    // Not after it must be settled.
    let history = [
        lost.clone(),
        seen("u", 20, 21, Some(false), None),
        done("u", 22, 23, Like, false),
    ];
    let rows = [("u", true)];
    judge(&history, &rows, Duration::from_secs(30)).unwrap();
    judge(&history, &rows, Duration::from_secs(10)).unwrap_err();
    // Two lost likes and an unlike between them.
    let two = [
        lost,
        unknown("u", 2, 3, Like),
        done("u", 4, 5, Unlike, true),
        done("u", 6, 7, Unlike, true),
    ];
    may(&two, false);
    may_not(&two[1..], false);
}

#[test]
fn what_was_refused_did_not_happen() {
    let refused = event("u", 0, 1, Like, Told::Refused);
    may(std::slice::from_ref(&refused), false);
    may_not(&[refused], true);
}

#[test]
fn a_count_was_possible_while_it_was_read() {
    let rows = [("u", true), ("v", true)];
    let with = |start, end, count| {
        [
            done("u", 0, 1, Like, true),
            done("v", 4, 6, Like, true),
            seen("w", start, end, None, Some(count)),
        ]
    };
    for (start, end, count) in [(2, 3, 1), (5, 5, 1), (5, 5, 2), (3, 7, 1), (7, 8, 2)] {
        judge(&with(start, end, count), &rows, LONG).unwrap();
    }
    for (start, end, count) in [(2, 3, 0), (2, 3, 2), (7, 8, 1), (5, 5, 3), (7, 8, -1)] {
        judge(&with(start, end, count), &rows, LONG).unwrap_err();
    }
    // After an unlike that nobody knows of, either.
    let lost = |count| {
        [
            done("u", 0, 1, Like, true),
            unknown("u", 2, 3, Unlike),
            seen("w", 8, 9, None, Some(count)),
        ]
    };
    for count in [0, 1] {
        judge(&lost(count), &[("u", true)], LONG).unwrap();
    }
    judge(&lost(2), &[("u", true)], LONG).unwrap_err();
}
