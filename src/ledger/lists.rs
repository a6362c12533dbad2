//! Lists that go on where a place ends: who liked a target, what a user liked, the most liked targets of a kind.
//!
//! Each is read from one index, backwards, from the place on. A place is a version or a count and then ids, since many may have
//! the same. What follows a place are ranges of that index: its ties first, then the rest. Each range is a SELECT of its own,
//! because neither server reads an OR or a comparison of rows as a range everywhere.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row};

use super::cold::target;
use super::gone::{GONE, is_gone};
use super::session::{Session, Statement};
use super::{CountRow, Ledger, LedgerError, kinds, state};
use crate::domain::{Kind, SliceId, Target, UserId, Version};

/// Somebody who likes a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liker {
    /// Who.
    pub user: UserId,
    /// Since when.
    pub version: Version,
}

/// Something that a user likes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liked {
    /// What.
    pub target: Target,
    /// Since when.
    pub version: Version,
}

/// Kinds by their numbers, which break ties between likes of one moment.
#[derive(Debug, Clone, Default)]
pub struct KindNumbers(HashMap<String, u16>);

/// Where a like stands in a list of a user's: the newest is the highest.
pub type LikedPlace<'a> = (Version, u16, &'a str);

impl KindNumbers {
    /// A kind that MySQL does not know has no row, and so nothing to be told apart from.
    fn number(&self, kind: &str) -> u16 {
        self.0.get(kind).copied().unwrap_or(u16::MAX)
    }

    /// Where a like stands.
    pub fn place<'a>(&self, liked: &'a Liked) -> LikedPlace<'a> {
        (
            liked.version,
            self.number(liked.target.kind()),
            liked.target.id(),
        )
    }
}

/// Where a row stands in its index, behind what all rows of the list share: version or count, kind if they differ, id.
type Place = (u64, u16, String);

/// Higher than any id, which is printable ASCII.
const ABOVE_IDS: &str = "\u{7f}";

/// Ranges of an index, each in its backward order and with a limit of its own.
fn ranges(select: &str, ranges: &[(&str, &str)]) -> String {
    let parts = ranges
        .iter()
        .map(|(range, order)| format!("({select} AND {range} ORDER BY {order} LIMIT ?)"));
    parts.collect::<Vec<_>>().join(" UNION ALL ")
}

/// Up to which version likes of the target are void, in a list of a user's: those of a target that is gone are left out, and one
/// look by the primary key tells, also where nothing was ever erased.
const VOID_UNTIL: &str = "(SELECT counted.void_until FROM thumb_count AS counted \
    WHERE counted.kind_id = thumb.kind_id AND counted.target_id = thumb.target_id)";

static LIKERS: LazyLock<String> = LazyLock::new(|| {
    ranges(
        "SELECT thumb.user_id, thumb.version FROM thumb FORCE INDEX (thumb_by_target) \
         WHERE thumb.kind_id = ? AND thumb.target_id = ? AND thumb.thumbed = 1",
        &[
            (
                "thumb.version = ? AND thumb.user_id < ?",
                "thumb.user_id DESC",
            ),
            (
                "thumb.version < ?",
                "thumb.version DESC, thumb.user_id DESC",
            ),
        ],
    )
});

static USER_LIKES: LazyLock<String> = LazyLock::new(|| {
    ranges(
        &format!(
            "SELECT STRAIGHT_JOIN kind.name, thumb.target_id, thumb.version, thumb.kind_id, {VOID_UNTIL} \
             FROM thumb FORCE INDEX (thumb_by_user) JOIN kind ON kind.kind_id = thumb.kind_id \
             WHERE thumb.user_id = ? AND thumb.thumbed = 1"
        ),
        &[
            (
                "thumb.version = ? AND thumb.kind_id = ? AND thumb.target_id < ?",
                "thumb.target_id DESC",
            ),
            (
                "thumb.version = ? AND thumb.kind_id < ?",
                "thumb.kind_id DESC, thumb.target_id DESC",
            ),
            (
                "thumb.version < ?",
                "thumb.version DESC, thumb.kind_id DESC, thumb.target_id DESC",
            ),
        ],
    )
});

static USER_KIND_LIKES: LazyLock<String> = LazyLock::new(|| {
    ranges(
        &format!(
            "SELECT thumb.target_id, thumb.version, {VOID_UNTIL} FROM thumb FORCE INDEX (thumb_by_user_kind) \
             WHERE thumb.user_id = ? AND thumb.thumbed = 1 AND thumb.kind_id = ?"
        ),
        &[
            (
                "thumb.version = ? AND thumb.target_id < ?",
                "thumb.target_id DESC",
            ),
            (
                "thumb.version < ?",
                "thumb.version DESC, thumb.target_id DESC",
            ),
        ],
    )
});

static RANKING: LazyLock<String> = LazyLock::new(|| {
    ranges(
        "SELECT one.target_id, one.count, one.void_until FROM thumb_count AS one FORCE INDEX (thumb_count_rank) \
         WHERE one.kind_id = ?",
        &[
            ("one.count = ? AND one.target_id < ?", "one.target_id DESC"),
            (
                "one.count < ? AND one.count > 0",
                "one.count DESC, one.target_id DESC",
            ),
        ],
    )
});

/// Names and texts of the statements above.
pub(super) fn statements() -> Vec<(&'static str, String)> {
    [
        ("likers", &LIKERS),
        ("user_likes", &USER_LIKES),
        ("user_kind_likes", &USER_KIND_LIKES),
        ("ranking", &RANKING),
    ]
    .map(|(name, text)| (name, text.to_string()))
    .into()
}

impl Ledger {
    /// Who likes a target, newest first, behind `after`, or `None` if it is gone; and the newest slice that had landed before that
    /// was read.
    pub async fn likers(
        &self,
        of: &Target,
        after: Option<(Version, &str)>,
        limit: usize,
    ) -> Result<(SliceId, Option<Vec<Liker>>), LedgerError> {
        let mut session = self.session().await?;
        let landed = state::read(&mut session, false).await?.landed;
        let kinds = numbers(&mut session, [of.kind()]).await?;
        let Some(kind_id) = kinds.0.get(of.kind()) else {
            return Ok((landed, Some(Vec::new())));
        };
        if is_gone(&mut session, *kind_id, of.id()).await? {
            return Ok((landed, None));
        }
        let after = after.map(|(version, user)| (version.0, 0, user.to_owned()));
        let statement = |(version, _, user): Place| {
            let shared = |query: Statement| query.bind(*kind_id).bind(of.id().to_owned());
            let query = shared(sqlx::query(AssertSqlSafe(LIKERS.as_str())));
            let query = query.bind(version).bind(user).bind(limit as u64);
            shared(query).bind(version).bind(limit as u64)
        };
        let rows = page(&mut session, after, limit, statement, |row| {
            let (user, version): (&str, u64) = (row.try_get(0)?, row.try_get(1)?);
            let liker = UserId::parse(user).ok().map(|user| Liker {
                user,
                version: Version(version),
            });
            Ok(((version, 0, user.to_owned()), liker))
        });
        Ok((landed, Some(rows.await?)))
    }

    /// Whether this user, if one is named, likes a target, or `None` if it is gone; and the newest slice that had landed before that
    /// was read.
    pub async fn liker(
        &self,
        of: &Target,
        user: Option<&UserId>,
    ) -> Result<(SliceId, Option<Option<Liker>>), LedgerError> {
        let landed = state::read(&mut self.session().await?, false).await?.landed;
        let Some(user) = user else {
            return Ok((landed, Some(None)));
        };
        if self.gone(std::slice::from_ref(of)).await?[0] {
            return Ok((landed, None));
        }
        let states = self.states(&[(user.clone(), of.clone())]).await?;
        let liker = match states.first() {
            Some(Some((true, version))) => Some(Liker {
                user: user.clone(),
                version: *version,
            }),
            _ => None,
        };
        Ok((landed, Some(liker)))
    }

    /// What a user likes, newest first, of all kinds or one, behind `after`, which may be of another kind.
    pub async fn user_likes(
        &self,
        user: &UserId,
        kind: Option<&Kind>,
        after: Option<&Liked>,
        limit: usize,
    ) -> Result<Vec<Liked>, LedgerError> {
        let mut session = self.session().await?;
        let named = kind.map(Kind::as_str).into_iter();
        let named = named.chain(after.map(|after| after.target.kind()));
        let kinds = numbers(&mut session, named).await?;
        let after = after.map(|after| {
            let (version, kind_id, id) = kinds.place(after);
            (version.0, kind_id, id.to_owned())
        });
        let Some(kind) = kind else {
            return user_likes_of_all(&mut session, user, after, limit).await;
        };
        let Some(kind_id) = kinds.0.get(kind.as_str()) else {
            return Ok(Vec::new());
        };
        // Of likes of the same moment those of the kind with the lower number come later.
        let after = after.map(|(version, of, id)| match of.cmp(kind_id) {
            Ordering::Greater => (version, of, ABOVE_IDS.to_owned()),
            Ordering::Equal => (version, of, id),
            Ordering::Less => (version, of, String::new()),
        });
        let statement = |(version, _, id): Place| {
            let shared = |query: Statement| query.bind(user.as_str().to_owned()).bind(*kind_id);
            let query = shared(sqlx::query(AssertSqlSafe(USER_KIND_LIKES.as_str())));
            let query = query.bind(version).bind(id).bind(limit as u64);
            shared(query).bind(version).bind(limit as u64)
        };
        page(&mut session, after, limit, statement, |row| {
            let (id, version): (&str, u64) = (row.try_get(0)?, row.try_get(1)?);
            let liked = there(row, 2)?.and_then(|()| Target::new(kind, id).ok());
            let liked = liked.map(|target| Liked {
                target,
                version: Version(version),
            });
            Ok(((version, 0, id.to_owned()), liked))
        })
        .await
    }

    /// The most liked targets of a kind, behind `after`; those that nobody likes are none.
    pub async fn ranking(
        &self,
        kind: &Kind,
        after: Option<(u64, &str)>,
        limit: usize,
    ) -> Result<Vec<CountRow>, LedgerError> {
        let mut session = self.session().await?;
        let kinds = numbers(&mut session, [kind.as_str()]).await?;
        let Some(kind_id) = kinds.0.get(kind.as_str()) else {
            return Ok(Vec::new());
        };
        let after = after.map(|(count, id)| (count, 0, id.to_owned()));
        let statement = |(count, _, id): Place| {
            sqlx::query(AssertSqlSafe(RANKING.as_str()))
                .bind(*kind_id)
                .bind(count)
                .bind(id)
                .bind(limit as u64)
                .bind(*kind_id)
                .bind(count)
                .bind(limit as u64)
        };
        page(&mut session, after, limit, statement, |row| {
            let (id, count): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
            let target = there(row, 2)?.and_then(|()| Target::new(kind, id).ok());
            let counted = target.map(|target| CountRow { target, count });
            Ok(((count.unsigned_abs(), 0, id.to_owned()), counted))
        })
        .await
    }

    /// Names of the kinds that were liked first.
    pub async fn kind_names(&self, limit: usize) -> Result<Vec<Kind>, LedgerError> {
        let find = sqlx::query("SELECT name FROM kind ORDER BY kind_id LIMIT ?");
        let find = find.bind(limit as u64);
        let rows = self.session().await?.fetch_all(find).await?;
        let name = |row: &MySqlRow| row.try_get::<String, _>(0);
        let names = rows.iter().map(name).collect::<Result<Vec<_>, _>>()?;
        let kinds = names.into_iter().filter_map(|name| Kind::parse(name).ok());
        Ok(kinds.collect())
    }

    /// The numbers of these kinds, as far as MySQL has them.
    pub async fn kind_numbers<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<KindNumbers, LedgerError> {
        numbers(&mut self.session().await?, names).await
    }
}

async fn user_likes_of_all(
    session: &mut Session,
    user: &UserId,
    after: Option<Place>,
    limit: usize,
) -> Result<Vec<Liked>, LedgerError> {
    let statement = |(version, kind_id, id): Place| {
        let shared = |query: Statement| query.bind(user.as_str().to_owned()).bind(version);
        let query = shared(sqlx::query(AssertSqlSafe(USER_LIKES.as_str())));
        let query = shared(query.bind(kind_id).bind(id).bind(limit as u64));
        shared(query.bind(kind_id).bind(limit as u64)).bind(limit as u64)
    };
    page(session, after, limit, statement, |row| {
        let (id, version): (&str, u64) = (row.try_get(1)?, row.try_get(2)?);
        let liked = there(row, 4)?.and_then(|()| target(row.try_get(0).ok()?, id).ok());
        let liked = liked.map(|target| Liked {
            target,
            version: Version(version),
        });
        Ok(((version, row.try_get(3)?, id.to_owned()), liked))
    })
    .await
}

/// Nothing of a target that is gone, by this column of its row.
fn there(row: &MySqlRow, void_until: usize) -> Result<Option<()>, sqlx::Error> {
    let void_until: Option<u64> = row.try_get(void_until)?;
    Ok((void_until != Some(GONE.0)).then_some(()))
}

async fn numbers<'a>(
    session: &mut Session,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<KindNumbers, LedgerError> {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let names: Vec<&str> = names.into_iter().collect();
    Ok(KindNumbers(kinds::read(session, &names).await?))
}

/// The highest `limit` rows behind a place, from all ranges together. What somebody wrote by hand with another kind of id is
/// nobody's like, and neither is that of a target that is gone: it is left out, and the list goes on behind it.
async fn page<R>(
    session: &mut Session,
    after: Option<Place>,
    limit: usize,
    statement: impl Fn(Place) -> Statement,
    decode: impl Fn(&MySqlRow) -> Result<(Place, Option<R>), sqlx::Error>,
) -> Result<Vec<R>, LedgerError> {
    // The columns are signed or not; this is higher than anything in either.
    let mut from = after.unwrap_or_else(|| (i64::MAX as u64, 0, String::new()));
    let mut rows = Vec::with_capacity(limit);
    loop {
        let found = session.fetch_all(statement(from.clone())).await?;
        let found = found.iter().map(&decode);
        let mut found = found.collect::<Result<Vec<_>, _>>()?;
        // Nothing promises that a UNION keeps the order of its parts.
        found.sort_by(|(a, _), (b, _)| b.cmp(a));
        found.truncate(limit);
        let full = found.len() == limit;
        if let Some((place, _)) = found.last() {
            from = place.clone();
        }
        rows.extend(found.into_iter().filter_map(|(_, row)| row));
        if !full || rows.len() >= limit {
            rows.truncate(limit);
            return Ok(rows);
        }
    }
}
