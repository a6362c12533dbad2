//! Lists: who likes a target, what a user likes, what is liked most.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::caching::Caching;
use super::contract::schemas;
use super::cursor::List;
use super::list_query::ListQuery;
use super::problem::Problem;
use super::state::Shared;
use super::subject::{ListedUser, Ranked, Reader, Shown};
use crate::domain::{Target, UserId, Version};
use crate::ledger::{Liked, Liker};

#[derive(Serialize, ToSchema)]
#[schema(as = LikersPage)]
pub(super) struct Users<'a> {
    #[schema(max_items = 100)]
    users: Vec<User<'a>>,
    #[schema(required = true)]
    cursor: Option<String>,
    #[schema(schema_with = schemas::time_or_null, required = true)]
    flushed_until: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Liker)]
struct User<'a> {
    #[schema(schema_with = schemas::user)]
    user: &'a str,
    #[schema(schema_with = schemas::time)]
    liked_at: String,
}

/// `GET /v1/likes/{kind}/{id}/users`.
pub(super) async fn likers(
    State(shared): State<Arc<Shared>>,
    Reader {
        user,
        target,
        others,
    }: Reader,
    query: ListQuery,
    caching: Caching,
) -> Result<Response, Problem> {
    let list = List::Likers(&target);
    let after = query.cursor.as_deref().map(|cursor| {
        let (version, user) = list.place(cursor, |user| UserId::parse(user).ok())?;
        let version = Version(version);
        Ok::<_, Problem>(Liker { user, version })
    });
    let after = after.transpose()?;
    let (service, user, after) = (&shared.service, user.as_ref(), after.as_ref());
    // Who may not see the others is told what it would be told if nobody else liked it.
    let (landed, page) = if others {
        service.likers(&target, user, after, query.limit).await?
    } else {
        service.likers_own(&target, user, after).await?
    };
    let next = page.rows.last().filter(|_| page.more);
    let rows = page.rows.iter().map(|row| User {
        user: row.user.as_str(),
        liked_at: moment(row.version.0),
    });
    let body = Users {
        users: rows.collect(),
        cursor: next.map(|last| list.cursor(last.version.0, last.user.as_str())),
        flushed_until: (landed.0 > 0).then(|| moment(landed.0.saturating_mul(1000))),
    };
    Ok(caching.json(&body))
}

#[derive(Serialize, ToSchema)]
#[schema(as = UserLikesPage)]
pub(super) struct Likes<'a> {
    #[schema(max_items = 100)]
    likes: Vec<Like<'a>>,
    #[schema(required = true)]
    cursor: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = UserLike)]
struct Like<'a> {
    #[schema(schema_with = schemas::kind)]
    kind: &'a str,
    #[schema(schema_with = schemas::target_id)]
    id: &'a str,
    #[schema(schema_with = schemas::time)]
    liked_at: String,
}

/// `GET /v1/users/{user}/likes`.
pub(super) async fn likes(
    State(shared): State<Arc<Shared>>,
    ListedUser { user, kind, shown }: ListedUser,
    query: ListQuery,
    caching: Caching,
) -> Result<Response, Problem> {
    let list = List::Likes(&user, kind.as_ref());
    let after = query.cursor.as_deref().map(|cursor| {
        let (version, target) = list.place(cursor, |target| Target::parse(target).ok())?;
        let version = Version(version);
        Ok::<_, Problem>(Liked { target, version })
    });
    let after = after.transpose()?;
    let (service, kind, after) = (&shared.service, kind.as_ref(), after.as_ref());
    let page = match shown {
        Shown::Whole => service.user_likes(&user, kind, after, query.limit).await?,
        Shown::Kinds(kinds) => {
            let likes = service.user_likes_of(&user, &kinds, after, query.limit);
            likes.await?
        }
    };
    let next = page.rows.last().filter(|_| page.more);
    let rows = page.rows.iter().map(|row| Like {
        kind: row.target.kind(),
        id: row.target.id(),
        liked_at: moment(row.version.0),
    });
    let body = Likes {
        likes: rows.collect(),
        cursor: next.map(|last| list.cursor(last.version.0, last.target.as_str())),
    };
    // It is as of now, for whoever is allowed to see it now.
    Ok(caching.unless(true).json(&body))
}

#[derive(Serialize, ToSchema)]
#[schema(as = RankingPage)]
pub(super) struct Targets<'a> {
    #[schema(max_items = 100)]
    targets: Vec<Counted<'a>>,
    #[schema(required = true)]
    cursor: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = RankedTarget)]
struct Counted<'a> {
    #[schema(schema_with = schemas::kind)]
    kind: &'a str,
    #[schema(schema_with = schemas::target_id)]
    id: &'a str,
    count: i64,
}

/// `GET /v1/rankings/{kind}`.
pub(super) async fn ranking(
    State(shared): State<Arc<Shared>>,
    Ranked(kind): Ranked,
    query: ListQuery,
    caching: Caching,
) -> Result<Response, Problem> {
    let list = List::Ranking(&kind);
    let after = query
        .cursor
        .as_deref()
        .map(|cursor| list.place(cursor, |id| Target::new(&kind, id).ok()));
    let after = after.transpose()?;
    let place = after.as_ref().map(|(count, target)| (*count, target.id()));
    let page = shared.service.ranking(&kind, place, query.limit).await?;
    let next = page.rows.last().filter(|_| page.more);
    let rows = page.rows.iter().map(|row| Counted {
        kind: row.target.kind(),
        id: row.target.id(),
        count: row.count,
    });
    let body = Targets {
        targets: rows.collect(),
        cursor: next.map(|last| list.cursor(last.count.unsigned_abs(), last.target.id())),
    };
    Ok(caching.json(&body))
}

/// Microseconds since 1970 as RFC 3339 in milliseconds. What lies beyond the calendar was written by hand, and is its end.
pub(super) fn moment(micros: u64) -> String {
    let time = i64::try_from(micros)
        .ok()
        .and_then(DateTime::from_timestamp_micros);
    time.unwrap_or(DateTime::<Utc>::MAX_UTC)
        .to_rfc3339_opts(SecondsFormat::Millis, true)
}
