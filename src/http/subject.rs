//! Who and what a request is about: the user from the header, the target from the path.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::HeaderMap;
use axum::http::request::Parts;

use super::auth::Caller;
use super::durability;
use super::list_query::ListQuery;
use super::problem::Problem;
use super::state::Shared;
use crate::config::{KindVisibility, Kinds};
use crate::domain::{Kind, Target, UserId};

/// The header that names a user.
pub(super) const USER: &str = "X-User-Id";

/// The user and the target of a write.
pub(super) struct Writer {
    pub(super) user: UserId,
    pub(super) target: Target,
    /// How long the caller waits for MySQL, if at all.
    pub(super) durable: Option<Duration>,
}

/// The user, if one is named, and the target of a read.
pub(super) struct Reader {
    pub(super) user: Option<UserId>,
    pub(super) target: Target,
    /// Whether it is shown who else likes the target.
    pub(super) others: bool,
}

impl FromRequestParts<Arc<Shared>> for Writer {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, Self::Rejection> {
        let caller = shared.keys.caller(&parts.headers)?;
        caller.check_write()?;
        let named = user(&parts.headers)?;
        let target = path_target(parts, &shared.kinds).await?;
        caller.check_kind(target.kind())?;
        let user = caller.speaks_for(named)?;
        let user = user.ok_or_else(Problem::user_missing)?;
        let wait_max = durability::wait_max(shared.request_timeout);
        let durable = durability::wait(parts.uri.query(), wait_max)?;
        Ok(Self {
            user,
            target,
            durable,
        })
    }
}

impl FromRequestParts<Arc<Shared>> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, Self::Rejection> {
        let caller = shared.keys.caller(&parts.headers)?;
        caller.check_read()?;
        let named = user(&parts.headers)?;
        let target = path_target(parts, &shared.kinds).await?;
        caller.check_kind(target.kind())?;
        let user = caller.speaks_for(named)?;
        let others = caller.sees(shared.kinds.visibility(target.kind()).likers);
        Ok(Self {
            user,
            target,
            others,
        })
    }
}

/// The user whose likes are listed, and what of them the caller is shown.
pub(super) struct ListedUser {
    pub(super) user: UserId,
    /// The kind that is asked for.
    pub(super) kind: Option<Kind>,
    pub(super) shown: Shown,
}

/// What of a user's likes a caller is shown.
pub(super) enum Shown {
    /// What is asked for.
    Whole,
    /// Of all kinds these; it may be none.
    Kinds(Vec<Kind>),
}

impl FromRequestParts<Arc<Shared>> for ListedUser {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, Self::Rejection> {
        let caller = shared.keys.caller(&parts.headers)?;
        caller.check_read()?;
        let header = user(&parts.headers)?;
        let [named] = path_params(parts, ["user"]).await?;
        let query = ListQuery::from_request_parts(parts, shared).await?;
        caller.check_listed_kind(query.kind.as_deref())?;
        let kind = query.kind.as_deref();
        let kind = kind.map(|text| kind_of(&shared.kinds, text)).transpose()?;
        if named == ME {
            caller.check_list_own()?;
        }
        let speaker = caller.speaks_for(header)?;
        let user = match (named.as_str(), &speaker) {
            (ME, Some(speaker)) => speaker.clone(),
            (ME, None) => return Err(Problem::user_missing()),
            _ => UserId::parse(named)?,
        };
        let shown = if speaker.as_ref() == Some(&user) {
            Shown::Whole
        } else {
            shown(&caller, &shared.kinds, kind.as_ref())
        };
        Ok(Self { user, kind, shown })
    }
}

/// What a caller is shown of another user's likes, of one kind or all.
fn shown(caller: &Caller<'_>, kinds: &Kinds, kind: Option<&Kind>) -> Shown {
    let sees = |kind: &str| caller.sees(kinds.visibility(kind).user_likes);
    let whole = match kind {
        Some(kind) => sees(kind.as_str()),
        // There may be likes of kinds that the settings do not name any more.
        None => {
            let mut named = kinds.names().into_iter().flatten();
            caller.sees(KindVisibility::default().user_likes)
                && named.all(|kind| sees(kind.as_str()))
        }
    };
    if whole {
        return Shown::Whole;
    }
    let named = kinds.names().into_iter().flatten();
    let asked = named.filter(|one| kind.is_none() && sees(one.as_str()));
    Shown::Kinds(asked.cloned().collect())
}

/// Stands for the caller in a path.
const ME: &str = "me";

/// The target that an operator looks at, erases or restores.
pub(super) struct AdminTarget(pub(super) Target);

impl FromRequestParts<Arc<Shared>> for AdminTarget {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, Self::Rejection> {
        let caller = shared.keys.caller(&parts.headers)?;
        caller.check_admin()?;
        let target = path_target(parts, &shared.kinds).await?;
        caller.check_kind(target.kind())?;
        Ok(Self(target))
    }
}

/// The user whom an operator looks at or erases, with likes of all kinds.
pub(super) struct AdminUser(pub(super) UserId);

impl FromRequestParts<Arc<Shared>> for AdminUser {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, Self::Rejection> {
        let caller = shared.keys.caller(&parts.headers)?;
        caller.check_admin()?;
        caller.check_all_kinds()?;
        let [named] = path_params(parts, ["user"]).await?;
        Ok(Self(UserId::parse(named)?))
    }
}

/// The number of a job.
pub(super) struct JobNumber(pub(super) u64);

impl FromRequestParts<Arc<Shared>> for JobNumber {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, Self::Rejection> {
        shared.keys.caller(&parts.headers)?.check_admin()?;
        let [number] = path_params(parts, ["id"]).await?;
        let number = number
            .parse()
            .map_err(|_| Problem::field("id", "id must be the number of a job"))?;
        Ok(Self(number))
    }
}

/// The kind that is ranked.
pub(super) struct Ranked(pub(super) Kind);

impl FromRequestParts<Arc<Shared>> for Ranked {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, Self::Rejection> {
        let caller = shared.keys.caller(&parts.headers)?;
        caller.check_read()?;
        let named = user(&parts.headers)?;
        let [ranked] = path_params(parts, ["kind"]).await?;
        let kind = kind_of(&shared.kinds, &ranked)?;
        caller.check_kind(kind.as_str())?;
        caller.speaks_for(named)?;
        Ok(Self(kind))
    }
}

/// The user that a header names.
pub(super) fn user(headers: &HeaderMap) -> Result<Option<UserId>, Problem> {
    let mut values = headers.get_all(USER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Problem::field(USER, "X-User-Id is given more than once"));
    }
    let Ok(text) = value.to_str() else {
        let detail = "X-User-Id must be printable ASCII without spaces";
        return Err(Problem::field(USER, detail));
    };
    let user = UserId::parse(text).map_err(|error| Problem::from(error).at(USER))?;
    Ok(Some(user))
}

async fn path_target(parts: &mut Parts, kinds: &Kinds) -> Result<Target, Problem> {
    let [kind, id] = path_params(parts, ["kind", "id"]).await?;
    target(kinds, &kind, &id)
}

/// Axum has split the path before it decoded each part once, so that an id may hold a `%2F`.
async fn path_params<const N: usize>(
    parts: &mut Parts,
    names: [&str; N],
) -> Result<[String; N], Problem> {
    let params = RawPathParams::from_request_parts(parts, &())
        .await
        .map_err(|_| Problem::path_invalid())?;
    Ok(names.map(|name| {
        let mut found = params.iter().filter(|(have, _)| *have == name);
        found
            .next()
            .map_or(String::new(), |(_, value)| value.to_owned())
    }))
}

/// A kind that this server accepts.
pub(super) fn kind_of(kinds: &Kinds, kind: &str) -> Result<Kind, Problem> {
    let kind = Kind::parse(kind)?;
    if !kinds.allows(&kind) {
        return Err(Problem::kind_unknown(kind.as_str()));
    }
    Ok(kind)
}

/// A target of a kind that this server accepts.
pub(super) fn target(kinds: &Kinds, kind: &str, id: &str) -> Result<Target, Problem> {
    Ok(Target::new(&kind_of(kinds, kind)?, id)?)
}
