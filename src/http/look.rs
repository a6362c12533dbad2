//! Admin calls that look closely at one target or one user: what Redis holds of it, and what MySQL has.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use chrono::SecondsFormat;
use serde::Serialize;
use utoipa::ToSchema;

use super::answer;
use super::contract::schemas;
use super::lists::moment;
use super::problem::Problem;
use super::state::Shared;
use super::subject::{AdminTarget, AdminUser};
use crate::domain::{SliceId, Target, partition_of};
use crate::hot::{Resident, ResidentKey};
use crate::limits::LOOK_NEWEST;
use crate::service::{Service, ServiceError};

/// A target, closely looked at. Each number is right at a moment of its own.
#[derive(Serialize, ToSchema)]
#[schema(as = TargetLook)]
pub(super) struct TargetLook {
    #[schema(schema_with = schemas::kind)]
    kind: String,
    #[schema(schema_with = schemas::target_id)]
    id: String,
    /// How many like it, as everybody is told; null if that cannot be known now.
    #[schema(required = true)]
    count: Option<i64>,
    /// How many MySQL has, as of the last flush.
    stored: i64,
    /// What the operations that MySQL does not have will add; null if that cannot be known now.
    #[schema(required = true)]
    unflushed: Option<i64>,
    /// Partition by partition; there may be a thousand.
    partitions: Vec<Part>,
    /// Who likes it, newest first, as of the last flush.
    #[schema(max_items = 20)]
    likers: Vec<Newest>,
    #[schema(schema_with = schemas::time_or_null, required = true)]
    flushed_until: Option<String>,
}

/// A partition's part of a count.
#[derive(Serialize, ToSchema)]
#[schema(as = TargetPart)]
struct Part {
    partition: u16,
    /// Whether it stood in Redis.
    resident: bool,
    /// The part: as Redis has it if it stood there, otherwise as MySQL has it.
    count: i64,
    /// What MySQL has of it.
    stored: i64,
    /// The last slice with an operation that MySQL may not have, if there is one.
    #[schema(required = true)]
    dirty_slice: Option<u64>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = NewestLiker)]
struct Newest {
    #[schema(schema_with = schemas::user)]
    user: String,
    #[schema(schema_with = schemas::time)]
    liked_at: String,
}

/// `GET /admin/v1/targets/{kind}/{id}`.
pub(super) async fn target(
    State(shared): State<Arc<Shared>>,
    AdminTarget(target): AdminTarget,
) -> Result<Response, Problem> {
    let service = &shared.service;
    let partitions = parts(service, &target).await?;
    let one = std::slice::from_ref(&target);
    let seen = service.lookup(None, one).await?;
    let count = seen.first().and_then(|seen| seen.count);
    let (landed, page) = service.likers(&target, None, None, LOOK_NEWEST).await?;
    let stored: i64 = partitions.iter().map(|part| part.stored).sum();
    let body = TargetLook {
        kind: target.kind().to_owned(),
        id: target.id().to_owned(),
        count,
        stored,
        unflushed: count.map(|count| count - stored),
        partitions,
        likers: page
            .rows
            .iter()
            .map(|row| Newest {
                user: row.user.to_string(),
                liked_at: moment(row.version.0),
            })
            .collect(),
        flushed_until: (landed.0 > 0).then(|| moment(landed.0.saturating_mul(1000))),
    };
    Ok(answer::json(StatusCode::OK, &body))
}

/// Before anything is loaded by looking at it.
async fn parts(service: &Service, target: &Target) -> Result<Vec<Part>, ServiceError> {
    let (hot, ledger) = (service.hot(), service.ledger());
    let mut parts = Vec::with_capacity(hot.partitions().into());
    for partition in 0..hot.partitions() {
        let key = ResidentKey::Count(target.clone());
        let resident = resident(service, partition, &key).await?;
        let one = std::slice::from_ref(target);
        let stored = ledger.count_parts(partition, hot.partitions(), one).await?;
        let stored = stored.first().copied().unwrap_or(0);
        let held = match resident {
            Some(Resident::Count { part, dirty, .. }) => Some((part, dirty)),
            _ => None,
        };
        parts.push(Part {
            partition,
            resident: held.is_some(),
            count: held.map_or(stored, |(part, _)| part),
            stored,
            dirty_slice: held.and_then(|(_, dirty)| slice(dirty)),
        });
    }
    Ok(parts)
}

async fn resident(
    service: &Service,
    partition: u16,
    key: &ResidentKey,
) -> Result<Option<Resident>, ServiceError> {
    let peek = service.hot().peek(partition).await?;
    let Some(generation) = peek.generation else {
        return Ok(None);
    };
    Ok(service.hot().resident(partition, key, &generation).await?)
}

fn slice(dirty: SliceId) -> Option<u64> {
    (dirty.0 > 0).then_some(dirty.0)
}

/// A user, closely looked at.
#[derive(Serialize, ToSchema)]
#[schema(as = UserLook)]
pub(super) struct UserLook {
    #[schema(schema_with = schemas::user)]
    user: String,
    /// Its home.
    partition: u16,
    /// Whether it stands in Redis: `complete` (all its likes), `partial` (the newest), or `no`.
    #[schema(schema_with = schemas::residence)]
    resident: &'static str,
    /// Targets that stand there for it, liked or known as not liked.
    held: u64,
    /// The last slice with an operation that MySQL may not have, if there is one.
    #[schema(required = true)]
    dirty_slice: Option<u64>,
    /// What it likes, newest first, with what is not flushed.
    #[schema(max_items = 20)]
    likes: Vec<NewestLike>,
    /// There are more.
    more: bool,
    #[schema(schema_with = schemas::time)]
    at: String,
}

#[derive(Serialize, ToSchema)]
#[schema(as = NewestLike)]
struct NewestLike {
    #[schema(schema_with = schemas::kind)]
    kind: String,
    #[schema(schema_with = schemas::target_id)]
    id: String,
    #[schema(schema_with = schemas::time)]
    liked_at: String,
}

/// `GET /admin/v1/users/{user}`.
pub(super) async fn user(
    State(shared): State<Arc<Shared>>,
    AdminUser(user): AdminUser,
) -> Result<Response, Problem> {
    let service = &shared.service;
    let partition = partition_of(&user, service.hot().partitions());
    let key = ResidentKey::User(user.clone());
    let (residence, held, dirty) = match resident(service, partition, &key).await? {
        Some(Resident::User {
            complete,
            thumbs,
            dirty,
            ..
        }) => {
            let residence = if complete { "complete" } else { "partial" };
            (residence, thumbs.len() as u64, slice(dirty))
        }
        _ => ("no", 0, None),
    };
    let page = service.user_likes(&user, None, None, LOOK_NEWEST).await?;
    let body = UserLook {
        partition,
        resident: residence,
        held,
        dirty_slice: dirty,
        likes: page
            .rows
            .iter()
            .map(|row| NewestLike {
                kind: row.target.kind().to_owned(),
                id: row.target.id().to_owned(),
                liked_at: moment(row.version.0),
            })
            .collect(),
        more: page.more,
        at: chrono::Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true),
        user: user.to_string(),
    };
    Ok(answer::json(StatusCode::OK, &body))
}
