//! One target's likes: PUT, DELETE and GET of `/v1/likes/{kind}/{id}`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use super::answer;
use super::caching::Caching;
use super::contract::schemas;
use super::problem::Problem;
use super::state::Shared;
use super::subject::{Reader, Writer};
use crate::domain::{Action, Operation, Target};
use crate::service::Seen;

/// What is known of a target; `changed` only behind a write.
#[derive(Serialize, ToSchema)]
pub(super) struct Likes<'a> {
    #[schema(schema_with = schemas::kind)]
    kind: &'a str,
    #[schema(schema_with = schemas::target_id)]
    id: &'a str,
    #[schema(required = true)]
    liked: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    changed: Option<bool>,
    #[schema(required = true)]
    count: Option<i64>,
    /// Whether MySQL has it; only for who asked to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    durable: Option<bool>,
}

impl<'a> Likes<'a> {
    pub(super) fn seen(target: &'a Target, seen: &Seen) -> Self {
        Self {
            kind: target.kind(),
            id: target.id(),
            liked: seen.liked,
            changed: None,
            count: seen.count,
            durable: None,
        }
    }
}

pub(super) async fn put(shared: State<Arc<Shared>>, writer: Writer) -> Result<Response, Problem> {
    write(shared, writer, Action::Thumb).await
}

pub(super) async fn delete(
    shared: State<Arc<Shared>>,
    writer: Writer,
) -> Result<Response, Problem> {
    write(shared, writer, Action::Unthumb).await
}

/// A client that hangs up ends this future; an operation of the service is whole or not at all by itself.
async fn write(
    State(shared): State<Arc<Shared>>,
    writer: Writer,
    action: Action,
) -> Result<Response, Problem> {
    let begun = Instant::now();
    let Writer {
        user,
        target,
        durable,
    } = writer;
    let operation = Operation {
        user,
        target: target.clone(),
        action,
    };
    let outcome = shared.service.thumb(operation.clone()).await?;
    let durable = match durable {
        None => None,
        Some(wait) => {
            // A tenth of the time is left for the answer, however long the like itself took.
            let end = Instant::now() + wait;
            let end = end.min(begun + shared.request_timeout * 9 / 10);
            Some(shared.jobs.durable(&operation, end).await)
        }
    };
    // Accepted all the same, and on its way.
    let status = match durable {
        Some(false) => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    let body = Likes {
        kind: target.kind(),
        id: target.id(),
        liked: Some(action.thumbed()),
        changed: Some(outcome.changed),
        count: outcome.count,
        durable,
    };
    Ok(answer::json(status, &body))
}

pub(super) async fn get(
    State(shared): State<Arc<Shared>>,
    Reader { user, target, .. }: Reader,
    caching: Caching,
) -> Result<Response, Problem> {
    let targets = [target];
    let seen = shared.service.lookup(user.as_ref(), &targets).await?;
    let Some(seen) = seen.first() else {
        return Err(Problem::internal(
            "lookup of one target found none".to_owned(),
        ));
    };
    let caching = caching.unless(seen.count.is_none());
    Ok(caching.json(&Likes::seen(&targets[0], seen)))
}
