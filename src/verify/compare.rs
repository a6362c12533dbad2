//! Compares some residents with rows and unflushed entries of about the same moment. The entries were read before the rows:
//! what has landed in between is in both, and a version counts once.

use std::collections::HashMap;

use super::unflushed::Unflushed;
use super::{Difference, Place, VerifyError};
use crate::domain::{Target, UserId, Version};
use crate::hot::Resident;
use crate::ledger::Ledger;

/// Compares; gives per resident what is wrong with it.
pub(super) async fn compare(
    ledger: &Ledger,
    (partition, partitions): (u16, u16),
    unflushed: &Unflushed,
    residents: &[Resident],
) -> Result<Vec<Vec<Difference>>, VerifyError> {
    let mut targets = Vec::new();
    let mut complete = Vec::new();
    let mut rows_max = 1;
    for resident in residents {
        match resident {
            Resident::Count { target, .. } | Resident::Gone { target } => {
                targets.push(target.clone());
            }
            Resident::User {
                user,
                complete: true,
                thumbs,
                ..
            } => {
                // Enough to meet a row that is missing in Redis, if there is one.
                let entries = unflushed.of_user(user).map_or(0, HashMap::len);
                rows_max = rows_max.max(thumbs.len() + entries + 1);
                complete.push(user.clone());
            }
            Resident::User { .. } => {}
        }
    }
    let mut counts = ledger
        .exact_counts(partition, partitions, &targets)
        .await?
        .into_iter();
    let mut gone = ledger.gone(&targets).await?.into_iter();
    let mut rows = ledger.users(&complete, rows_max).await?.into_iter();
    let mut all = Vec::with_capacity(residents.len());
    for resident in residents {
        all.push(match resident {
            Resident::Count { target, part, .. } => {
                let rows = counts.next().unwrap_or(0);
                let found = part.to_string();
                if gone.next() == Some(true) {
                    count(partition, target, found, GONE.to_owned())
                } else {
                    let expected = rows + effect(ledger, unflushed, target).await?;
                    count(partition, target, found, expected.to_string())
                }
            }
            Resident::Gone { target } => {
                let rows = counts.next().unwrap_or(0);
                let expected = match gone.next() {
                    Some(true) => GONE.to_owned(),
                    _ => rows.to_string(),
                };
                count(partition, target, GONE.to_owned(), expected)
            }
            Resident::User {
                user,
                complete: true,
                thumbs,
                ..
            } => {
                let rows = rows.next().map(|one| one.thumbs).unwrap_or_default();
                let held = thumbs.iter().map(|(target, sign)| (target, *sign > 0));
                complete_user(partition, user, held.collect(), rows, unflushed)
            }
            Resident::User { user, thumbs, .. } => {
                partial_user(ledger, partition, user, thumbs, unflushed).await?
            }
        });
    }
    Ok(all)
}

/// How much the unflushed entries on a target will move its count.
async fn effect(
    ledger: &Ledger,
    unflushed: &Unflushed,
    target: &Target,
) -> Result<i64, VerifyError> {
    let pairs: Vec<(UserId, Target)> = unflushed
        .of_target(target)
        .map(|user| (user.clone(), target.clone()))
        .collect();
    let rows = ledger.states(&pairs).await?;
    Ok(pairs
        .iter()
        .zip(rows)
        .map(|((user, target), row)| {
            let before = row.is_some_and(|(thumbed, _)| thumbed);
            i64::from(unflushed.state(user, target, row)) - i64::from(before)
        })
        .sum())
}

/// What is said of a target that is gone instead of its count.
const GONE: &str = "gone";

fn count(partition: u16, target: &Target, found: String, expected: String) -> Vec<Difference> {
    if found == expected {
        return Vec::new();
    }
    vec![Difference {
        place: Place::ResidentCount,
        partition: Some(partition),
        key: target.to_string(),
        found,
        expected,
    }]
}

/// Absent means "not liked": every liked row must be held, and whatever is held must be so.
fn complete_user(
    partition: u16,
    user: &UserId,
    held: HashMap<&Target, bool>,
    rows: Vec<(Target, Version)>,
    unflushed: &Unflushed,
) -> Vec<Difference> {
    let rows: HashMap<Target, Version> = rows.into_iter().collect();
    let state = |target: &Target| {
        let row = rows.get(target).map(|version| (true, *version));
        unflushed.state(user, target, row)
    };
    let mut wrong: Vec<Difference> = held
        .iter()
        .filter(|(target, found)| **found != state(target))
        .map(|(target, found)| pair(partition, user, target, said(*found), !*found))
        .collect();
    let pending = unflushed.of_user(user).into_iter().flatten();
    let missing = rows
        .keys()
        .chain(
            pending
                .map(|(target, _)| target)
                .filter(|target| !rows.contains_key(*target)),
        )
        .filter(|target| !held.contains_key(*target) && state(target))
        .map(|target| pair(partition, user, target, "absent", true));
    wrong.extend(missing);
    // Maps have no order, and the same difference must look the same each time.
    wrong.sort_by(|a, b| a.key.cmp(&b.key));
    wrong
}

/// Absent means nothing here; what is held must be so.
async fn partial_user(
    ledger: &Ledger,
    partition: u16,
    user: &UserId,
    thumbs: &[(Target, i64)],
    unflushed: &Unflushed,
) -> Result<Vec<Difference>, VerifyError> {
    let pairs: Vec<(UserId, Target)> = thumbs
        .iter()
        .map(|(target, _)| (user.clone(), target.clone()))
        .collect();
    let rows = ledger.states(&pairs).await?;
    Ok(thumbs
        .iter()
        .zip(rows)
        .filter(|((target, sign), row)| (*sign > 0) != unflushed.state(user, target, *row))
        .map(|((target, sign), _)| pair(partition, user, target, said(*sign > 0), *sign <= 0))
        .collect())
}

fn pair(partition: u16, user: &UserId, target: &Target, found: &str, expected: bool) -> Difference {
    Difference {
        place: Place::ResidentUser,
        partition: Some(partition),
        key: format!("{user} {target}"),
        found: found.to_owned(),
        expected: said(expected).to_owned(),
    }
}

const fn said(thumbed: bool) -> &'static str {
    if thumbed { "liked" } else { "not liked" }
}
