//! Reads for what is cold in Redis. Each key's answer comes from one statement, and so from one moment.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use sqlx::Row;
use sqlx::mysql::MySqlRow;

use super::gone::GONE;
use super::sized::{Sized, light, list};
use super::{Ledger, LedgerError};
use crate::domain::{IdError, Kind, Target, UserId, Version};
use crate::limits::COLD_KEYS_PER_QUERY_MAX;

/// What a user likes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserThumbs {
    /// Who.
    pub user: UserId,
    /// Liked targets, newest first.
    pub thumbs: Vec<(Target, Version)>,
    /// Whether these are all; otherwise they are the newest ones.
    pub complete: bool,
}

/// The thumbs of up to COLD_KEYS_PER_QUERY_MAX users; `slot` is the place of the user in the query.
/// FORCE INDEX: the rows come out newest first and the reading ends at LIMIT; the primary key would read and sort all of a user's.
/// STRAIGHT_JOIN: names of kinds are looked up for the rows that are returned, in their order.
static USERS: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(&[1, 4, COLD_KEYS_PER_QUERY_MAX], |size| {
        union(size, |slot| {
            format!(
                "(SELECT STRAIGHT_JOIN {slot} AS slot, kind.name, thumb.target_id, thumb.version \
                 FROM thumb FORCE INDEX (thumb_by_user) JOIN kind ON kind.kind_id = thumb.kind_id \
                 WHERE thumb.user_id = ? AND thumb.thumbed = 1 \
                 ORDER BY thumb.version DESC LIMIT ?)"
            )
        })
    })
});

/// States by primary key. A UNION, because MariaDB reads everything for `(a, b) IN (…)`, and OR of ANDs takes long to plan.
static STATES: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(&[1, 8, 64], |size| {
        union(size, |slot| {
            format!(
                "(SELECT {slot} AS slot, thumb.thumbed, thumb.version \
                 FROM kind JOIN thumb ON thumb.kind_id = kind.kind_id \
                 WHERE kind.name = ? AND thumb.user_id = ? AND thumb.target_id = ?)"
            )
        })
    })
});

/// Sizes of lists of targets of one kind.
const TARGETS: [usize; 4] = [1, 8, 64, 256];

/// FORCE INDEX: MySQL would rather read the whole kind from the smaller ranking index while a kind has few targets.
static COUNTS: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(&TARGETS, |size| {
        format!(
            "SELECT one.target_id, one.count, one.void_until \
             FROM kind JOIN thumb_count AS one FORCE INDEX (PRIMARY) ON one.kind_id = kind.kind_id \
             WHERE kind.name = ? AND one.target_id IN ({})",
            list("?", size)
        )
    })
});

/// From the whole count, which is there before its parts, and which says whether the target is gone.
static COUNT_PARTS: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(&TARGETS, |size| {
        format!(
            "SELECT whole.target_id, COALESCE(one.count, 0), whole.void_until \
             FROM kind JOIN thumb_count AS whole FORCE INDEX (PRIMARY) \
             ON whole.kind_id = kind.kind_id AND kind.name = ? \
             LEFT JOIN thumb_count_part AS one ON one.kind_id = whole.kind_id \
             AND one.target_id = whole.target_id AND one.partition_id = ? \
             WHERE whole.target_id IN ({})",
            list("?", size)
        )
    })
});

/// Counted from the rows, not read from the stored counts.
static EXACT: LazyLock<Sized> = LazyLock::new(|| {
    Sized::new(&TARGETS, |size| {
        format!(
            "SELECT thumb.target_id, COUNT(*) \
             FROM kind JOIN thumb ON thumb.kind_id = kind.kind_id \
             WHERE kind.name = ? AND CRC32(thumb.user_id) MOD ? = ? \
             AND thumb.thumbed = 1 AND thumb.target_id IN ({}) \
             GROUP BY thumb.target_id",
            list("?", size)
        )
    })
});

fn union(size: usize, part: impl Fn(usize) -> String) -> String {
    (0..size).map(part).collect::<Vec<_>>().join(" UNION ALL ")
}

/// Names and largest texts of the statements above.
pub(super) fn statements() -> Vec<(&'static str, String)> {
    [
        ("users", &USERS),
        ("states", &STATES),
        ("counts", &COUNTS),
        ("count_parts", &COUNT_PARTS),
        ("exact_counts", &EXACT),
    ]
    .map(|(name, sized)| (name, sized.largest().to_owned()))
    .into()
}

impl Ledger {
    /// The newest `rows_max` likes of each of these users, in the order asked.
    pub async fn users(
        &self,
        users: &[UserId],
        rows_max: usize,
    ) -> Result<Vec<UserThumbs>, LedgerError> {
        let mut session = self.session().await?;
        let mut answers = Vec::with_capacity(users.len());
        for piece in USERS.padded(users.len(), light) {
            // One row more than wanted tells whether there are more.
            let limit = rows_max as u64 + 1;
            let mut statement = piece.statement();
            for user in &users[piece.range.clone()] {
                statement = statement.bind(user.as_str()).bind(limit);
            }
            for _ in 0..piece.padding {
                statement = statement.bind("").bind(limit);
            }
            let mut slots = vec![Vec::new(); piece.range.len()];
            for row in session.fetch_all(statement).await? {
                let slot: i64 = row.try_get(0)?;
                slots[slot as usize].push(decode_thumb(&row)?);
            }
            for (user, mut thumbs) in users[piece.range].iter().zip(slots) {
                // Nothing promises that a UNION keeps the order of its parts; sorting what is sorted costs nothing.
                thumbs.sort_by(|(_, a), (_, b)| b.cmp(a));
                let complete = thumbs.len() <= rows_max;
                thumbs.truncate(rows_max);
                answers.push(UserThumbs {
                    user: user.clone(),
                    // A row that somebody wrote by hand with another kind of id cannot be asked for: it is nobody's like.
                    thumbs: thumbs
                        .into_iter()
                        .filter_map(|(target, version)| Some((target?, version)))
                        .collect(),
                    complete,
                });
            }
        }
        Ok(answers)
    }

    /// The states of these pairs, in the order asked; `None` without a row.
    pub async fn states(
        &self,
        pairs: &[(UserId, Target)],
    ) -> Result<Vec<Option<(bool, Version)>>, LedgerError> {
        let mut session = self.session().await?;
        let mut answers = vec![None; pairs.len()];
        for piece in STATES.padded(pairs.len(), |at| pair_weight(&pairs[at])) {
            let mut statement = piece.statement();
            for (user, target) in &pairs[piece.range.clone()] {
                statement = statement
                    .bind(target.kind())
                    .bind(user.as_str())
                    .bind(target.id());
            }
            for _ in 0..piece.padding {
                statement = statement.bind("").bind("").bind("");
            }
            for row in session.fetch_all(statement).await? {
                let slot: i64 = row.try_get(0)?;
                let thumbed: i8 = row.try_get(1)?;
                answers[piece.range.start + slot as usize] =
                    Some((thumbed != 0, Version(row.try_get(2)?)));
            }
        }
        Ok(answers)
    }

    /// This partition's part of the counts of these targets, in the order asked; 0 where there is none.
    pub async fn count_parts(
        &self,
        partition: u16,
        partitions: u16,
        targets: &[Target],
    ) -> Result<Vec<i64>, LedgerError> {
        let parts = self.stored_parts(partition, partitions, targets).await?;
        Ok(parts
            .into_iter()
            .map(|part| part.map_or(0, |(part, _)| part))
            .collect())
    }

    /// The same for what is to be loaded; `None`: the target is gone.
    pub async fn cold_parts(
        &self,
        partition: u16,
        partitions: u16,
        targets: &[Target],
    ) -> Result<Vec<Option<i64>>, LedgerError> {
        let parts = self.stored_parts(partition, partitions, targets).await?;
        let cold = |part| match part {
            None => Some(0),
            Some((_, void_until)) if void_until == GONE.0 => None,
            Some((part, _)) => Some(part),
        };
        Ok(parts.into_iter().map(cold).collect())
    }

    /// Parts of counts, and up to which version likes of the target are void.
    async fn stored_parts(
        &self,
        partition: u16,
        partitions: u16,
        targets: &[Target],
    ) -> Result<Vec<Option<(i64, u64)>>, LedgerError> {
        let (sized, numbers) = if partitions > 1 {
            (&COUNT_PARTS, &[partition][..])
        } else {
            (&COUNTS, &[][..])
        };
        let decode = |row: &MySqlRow| Ok((row.try_get(1)?, row.try_get(2)?));
        self.by_kind(sized, numbers, targets, decode).await
    }

    /// The same counted from the rows: slower, and right whatever is stored.
    pub async fn exact_counts(
        &self,
        partition: u16,
        partitions: u16,
        targets: &[Target],
    ) -> Result<Vec<i64>, LedgerError> {
        let numbers = [partitions.max(1), partition];
        let decode = |row: &MySqlRow| row.try_get::<i64, _>(1);
        let counts = self.by_kind(&EXACT, &numbers, targets, decode).await?;
        Ok(counts.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Runs a statement that takes a kind, some numbers and ids of that kind, and gives what it says of each id that is there.
    async fn by_kind<T: Copy>(
        &self,
        sized: &Sized,
        numbers: &[u16],
        targets: &[Target],
        decode: impl Fn(&MySqlRow) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<Option<T>>, LedgerError> {
        let mut kinds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for target in targets {
            kinds.entry(target.kind()).or_default().push(target.id());
        }
        let mut session = self.session().await?;
        let mut found: HashMap<(&str, String), T> = HashMap::with_capacity(targets.len());
        for (kind, ids) in kinds {
            for piece in sized.padded(ids.len(), |at| ids[at].len() + 3) {
                let mut statement = piece.statement().bind(kind);
                for number in numbers {
                    statement = statement.bind(*number);
                }
                for id in &ids[piece.range.clone()] {
                    statement = statement.bind(*id);
                }
                for _ in 0..piece.padding {
                    statement = statement.bind("");
                }
                for row in session.fetch_all(statement).await? {
                    found.insert((kind, row.try_get(0)?), decode(&row)?);
                }
            }
        }
        Ok(targets
            .iter()
            .map(|target| found.get(&(target.kind(), target.id().to_owned())).copied())
            .collect())
    }
}

/// A pair as arguments: three texts, each with its length and two bytes of type.
fn pair_weight((user, target): &(UserId, Target)) -> usize {
    user.as_str().len() + target.kind().len() + target.id().len() + 9
}

fn decode_thumb(row: &MySqlRow) -> Result<(Option<Target>, Version), sqlx::Error> {
    Ok((
        target(row.try_get(1)?, row.try_get(2)?).ok(),
        Version(row.try_get(3)?),
    ))
}

/// Joins the stored name of a kind and the stored id.
pub(super) fn target(kind: &str, id: &str) -> Result<Target, IdError> {
    Target::new(&Kind::parse(kind)?, id)
}
