//! Lists: who likes a target, what a user likes, what is liked most. MySQL has them as of the last flush; what one user did since
//! is merged in where that user asks or is asked about.
//!
//! Redis is read first, then MySQL. So what is no longer in Redis by then is in MySQL already, and what both have is the same
//! operation or, in MySQL, a later one: of each pair the higher version is right.

use std::collections::HashMap;
use std::time::Instant;

use super::{Service, ServiceError};
use crate::domain::{Kind, SliceId, Target, UserId};
use crate::hot::{Held, HeldThumb, Of};
use crate::ledger::{CountRow, KindNumbers, LedgerError, Liked, Liker};
use crate::limits::{COLD_ROUNDS_MAX, LIST_ROWS_AGAIN, RECOVERING_POLL, RECOVERING_WAIT_MAX};
use crate::steps;

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage<R> {
    /// The rows.
    pub rows: Vec<R>,
    /// There are more behind them.
    pub more: bool,
}

impl<R> ListPage<R> {
    const fn empty() -> Self {
        Self {
            rows: Vec::new(),
            more: false,
        }
    }

    /// Of up to `limit` rows and one more that tells of the others.
    fn cut(mut rows: Vec<R>, limit: usize) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        Self { rows, more }
    }
}

impl Service {
    /// Who likes a target, newest first, behind `after`; and the newest slice that had landed by then. What the caller did since is
    /// in it.
    pub async fn likers(
        &self,
        target: &Target,
        caller: Option<&UserId>,
        after: Option<&Liker>,
        limit: usize,
    ) -> Result<(SliceId, ListPage<Liker>), ServiceError> {
        let own = match caller {
            Some(caller) => self.own(caller, target).await?.map(|own| (caller, own)),
            None => None,
        };
        let place = after.map(|after| (after.version, after.user.as_str()));
        // One more than that may be the caller's row, which is hidden.
        let read = self.0.ledger.likers(target, place, limit + 2);
        let (landed, rows) = self.list(read).await?;
        let Some(mut rows) = rows else {
            return Ok((landed, ListPage::empty()));
        };
        if let Some((caller, own)) = own {
            merge_own(&mut rows, caller, own, after);
        }
        Ok((landed, ListPage::cut(rows, limit)))
    }

    /// The same of the caller alone, as if nobody else liked it.
    pub async fn likers_own(
        &self,
        target: &Target,
        caller: Option<&UserId>,
        after: Option<&Liker>,
    ) -> Result<(SliceId, ListPage<Liker>), ServiceError> {
        let own = match caller {
            Some(caller) => self.own(caller, target).await?,
            None => None,
        };
        let read = self.0.ledger.liker(target, caller);
        let (landed, row) = self.list(read).await?;
        let Some(row) = row else {
            return Ok((landed, ListPage::empty()));
        };
        let place = |row: &Liker| (row.version, row.user.clone());
        let behind = |row: &Liker| after.is_none_or(|after| place(row) < place(after));
        let mut rows: Vec<Liker> = row.into_iter().filter(behind).collect();
        if let Some((caller, own)) = caller.zip(own) {
            merge_own(&mut rows, caller, own, after);
        }
        let more = false;
        Ok((landed, ListPage { rows, more }))
    }

    /// What a user likes of some kinds, newest first, behind `after`. Each kind costs a query.
    pub async fn user_likes_of(
        &self,
        user: &UserId,
        kinds: &[Kind],
        after: Option<&Liked>,
        limit: usize,
    ) -> Result<ListPage<Liked>, ServiceError> {
        let (mut likes, mut more) = (Vec::new(), false);
        for kind in kinds {
            let page = self.user_likes(user, Some(kind), after, limit).await?;
            likes.extend(page.rows);
            more |= page.more;
        }
        if !likes.is_empty() {
            self.order(&mut likes, after).await?;
        }
        let page = ListPage::cut(likes, limit);
        Ok(ListPage {
            more: more || page.more,
            ..page
        })
    }

    /// What a user likes, newest first, of all kinds or one, behind `after`.
    pub async fn user_likes(
        &self,
        user: &UserId,
        kind: Option<&Kind>,
        after: Option<&Liked>,
        limit: usize,
    ) -> Result<ListPage<Liked>, ServiceError> {
        let newest = after.map(|after| after.version);
        let rows = match self.held(user, Of::All { kind, newest }).await? {
            Held::All(held) => {
                let likes = held.into_iter().filter(|one| one.thumbed).map(liked);
                let mut likes: Vec<Liked> = likes.collect();
                self.order(&mut likes, after).await?;
                self.not_gone(likes, limit).await?
            }
            Held::Some(held) => {
                let mut held = held
                    .into_iter()
                    .map(|one| (one.target.clone(), one))
                    .collect();
                let mut likes = self.not_held(user, kind, after, limit, &mut held).await?;
                let since = held.into_values().filter(|one| one.thumbed).map(liked);
                likes.extend(since);
                self.order(&mut likes, after).await?;
                self.not_gone(likes, limit).await?
            }
            _ => {
                let read = self.0.ledger.user_likes(user, kind, after, limit + 1);
                self.list(read).await?
            }
        };
        Ok(ListPage::cut(rows, limit))
    }

    /// The most liked targets of a kind, behind `after`, as of the last flush.
    pub async fn ranking(
        &self,
        kind: &Kind,
        after: Option<(u64, &str)>,
        limit: usize,
    ) -> Result<ListPage<CountRow>, ServiceError> {
        let read = self.0.ledger.ranking(kind, after, limit + 1);
        Ok(ListPage::cut(self.list(read).await?, limit))
    }

    /// At least `limit + 1` likes that MySQL has, or all, without those of which `held` has something newer. What is as new in MySQL
    /// is taken out of `held`.
    async fn not_held(
        &self,
        user: &UserId,
        kind: Option<&Kind>,
        after: Option<&Liked>,
        limit: usize,
        held: &mut HashMap<Target, HeldThumb>,
    ) -> Result<Vec<Liked>, ServiceError> {
        let (mut likes, mut from, mut want) = (Vec::new(), after.cloned(), limit + 1);
        loop {
            let read = self.0.ledger.user_likes(user, kind, from.as_ref(), want);
            let rows = self.list(read).await?;
            let whole = rows.len() < want;
            from = rows.last().cloned();
            for row in rows {
                match held.get(&row.target) {
                    Some(one) if one.version > row.version => continue,
                    Some(_) => drop(held.remove(&row.target)),
                    None => {}
                }
                likes.push(row);
            }
            if whole || likes.len() > limit {
                return Ok(likes);
            }
            want = LIST_ROWS_AGAIN;
        }
    }

    /// At least the first `limit + 1` of what a user holds without that of targets that are gone, or all. MySQL leaves these out
    /// itself.
    async fn not_gone(&self, likes: Vec<Liked>, limit: usize) -> Result<Vec<Liked>, ServiceError> {
        let mut left = Vec::new();
        for some in likes.chunks(limit + 1) {
            let targets: Vec<Target> = some.iter().map(|liked| liked.target.clone()).collect();
            let gone = self.list(self.0.ledger.gone(&targets)).await?;
            let there = some.iter().zip(gone).filter(|(_, gone)| !gone);
            left.extend(there.map(|(liked, _)| liked.clone()));
            if left.len() > limit {
                break;
            }
        }
        Ok(left)
    }

    /// Newest first, and only what is behind `after`. MySQL breaks ties by the numbers of kinds.
    async fn order(
        &self,
        likes: &mut Vec<Liked>,
        after: Option<&Liked>,
    ) -> Result<(), ServiceError> {
        let kinds = likes.iter().chain(after).map(|liked| liked.target.kind());
        let numbers: KindNumbers = self.list(self.0.ledger.kind_numbers(kinds)).await?;
        if let Some(after) = after {
            let after = numbers.place(after);
            likes.retain(|liked| numbers.place(liked) < after);
        }
        likes.sort_by(|a, b| numbers.place(b).cmp(&numbers.place(a)));
        Ok(())
    }

    /// What a user did to a target that MySQL may not have yet: `Some(None)` is an unlike of which only that much is known.
    async fn own(
        &self,
        user: &UserId,
        target: &Target,
    ) -> Result<Option<Option<HeldThumb>>, ServiceError> {
        Ok(match self.held(user, Of::One(target)).await? {
            Held::All(held) => Some(held.into_iter().next()),
            Held::Some(held) => held.into_iter().next().map(Some),
            _ => None,
        })
    }

    /// What a user holds that MySQL may not have yet; waits a while for a partition that is recovering.
    async fn held(&self, user: &UserId, of: Of<'_>) -> Result<Held, ServiceError> {
        let partition = self.home(user);
        let mut recovering_since = None;
        for _ in 0..COLD_ROUNDS_MAX {
            let held = self.0.hot.held(partition, user, of).await;
            match held.map_err(|error| ServiceError::from(error).known())? {
                Held::Uninitialised => {
                    self.check(partition).await.map_err(ServiceError::known)?;
                }
                Held::Recovering => {
                    let since = recovering_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > RECOVERING_WAIT_MAX {
                        break;
                    }
                    steps::pause("list.recovering", RECOVERING_POLL).await;
                }
                held => {
                    steps::point("list.held").await;
                    return Ok(held);
                }
            }
        }
        Err(ServiceError::recovering())
    }

    /// Runs a query of a list: never more of them at once than leave connections for what is cold, and none for long.
    async fn list<T>(
        &self,
        query: impl Future<Output = Result<T, LedgerError>>,
    ) -> Result<T, ServiceError> {
        let bound = self.0.loader.timeout();
        let place = tokio::time::timeout(bound, self.0.lists.acquire()).await;
        let Ok(Ok(_place)) = place else {
            return Err(ServiceError::busy());
        };
        match tokio::time::timeout(bound, query).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(LedgerError::Timeout(bound).into()),
        }
    }
}

fn liked(held: HeldThumb) -> Liked {
    Liked {
        target: held.target,
        version: held.version,
    }
}

/// Puts what the caller did into a part of the list, if that is newer than what MySQL has.
fn merge_own(
    rows: &mut Vec<Liker>,
    caller: &UserId,
    own: Option<HeldThumb>,
    after: Option<&Liker>,
) {
    let place = |row: &Liker| (row.version, row.user.clone());
    let newer = |row: &Liker| own.as_ref().is_some_and(|own| row.version >= own.version);
    rows.retain(|row| row.user != *caller || newer(row));
    let there = rows.iter().any(|row| row.user == *caller);
    let Some(own) = own.filter(|own| own.thumbed && !there) else {
        return;
    };
    let own = Liker {
        user: caller.clone(),
        version: own.version,
    };
    if after.is_none_or(|after| place(&own) < place(after)) {
        let at = rows.partition_point(|row| place(row) > place(&own));
        rows.insert(at, own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Version;

    fn liker(user: &str, version: u64) -> Liker {
        Liker {
            user: UserId::parse(user).unwrap(),
            version: Version(version),
        }
    }

    fn merged(rows: &[(&str, u64)], own: Option<i64>, after: Option<(&str, u64)>) -> Vec<String> {
        let mut rows = rows
            .iter()
            .map(|(user, version)| liker(user, *version))
            .collect();
        let own = own.map(|value| HeldThumb {
            target: Target::parse("blog:1").unwrap(),
            thumbed: value > 0,
            version: Version(value.unsigned_abs()),
        });
        let after = after.map(|(user, version)| liker(user, version));
        merge_own(
            &mut rows,
            &UserId::parse("me").unwrap(),
            own,
            after.as_ref(),
        );
        let texts = rows
            .iter()
            .map(|row| format!("{}@{}", row.user, row.version));
        texts.collect()
    }

    #[test]
    fn what_the_caller_did_stands_once_and_where_it_belongs() {
        let rows = [("b", 9), ("me", 5), ("a", 3)];
        // A later like of its own; a flush came between; an unlike, known by its version or not; liked again in the meantime.
        assert_eq!(merged(&rows, Some(12), None), ["me@12", "b@9", "a@3"]);
        assert_eq!(merged(&rows, Some(5), None), ["b@9", "me@5", "a@3"]);
        assert_eq!(merged(&rows, Some(-7), None), ["b@9", "a@3"]);
        assert_eq!(merged(&rows, None, None), ["b@9", "a@3"]);
        assert_eq!(merged(&rows, Some(-4), None), ["b@9", "me@5", "a@3"]);
        // A part of the list that begins further down does not repeat it.
        assert_eq!(merged(&rows[1..], Some(12), Some(("b", 9))), ["a@3"]);
        assert_eq!(
            merged(&rows[2..], Some(4), Some(("me", 5))),
            ["me@4", "a@3"]
        );
        // Ties go by the id.
        assert_eq!(
            merged(&[("z", 4), ("a", 4)], Some(4), None),
            ["z@4", "me@4", "a@4"]
        );
        assert_eq!(
            merged(&[("a", 4)], Some(4), Some(("n", 4))),
            ["me@4", "a@4"]
        );
        assert_eq!(merged(&[("a", 4)], Some(4), Some(("m", 4))), ["a@4"]);
    }
}
