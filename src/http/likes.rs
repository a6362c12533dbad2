//! One target's likes: PUT, DELETE and GET of `/v1/likes/{kind}/{id}`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::answer;
use super::problem::Problem;
use super::state::Shared;
use super::subject::{Reader, Writer};
use crate::domain::{Action, Operation, Target};
use crate::service::Seen;

/// What is known of a target; `changed` only behind a write.
#[derive(Serialize)]
pub(super) struct Likes<'a> {
    kind: &'a str,
    id: &'a str,
    liked: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    count: Option<i64>,
}

impl<'a> Likes<'a> {
    pub(super) fn seen(target: &'a Target, seen: &Seen) -> Self {
        Self {
            kind: target.kind(),
            id: target.id(),
            liked: seen.liked,
            changed: None,
            count: seen.count,
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
    Writer { user, target }: Writer,
    action: Action,
) -> Result<Response, Problem> {
    let operation = Operation {
        user,
        target: target.clone(),
        action,
    };
    let outcome = shared.service.thumb(operation).await?;
    let body = Likes {
        kind: target.kind(),
        id: target.id(),
        liked: Some(action.thumbed()),
        changed: Some(outcome.changed),
        count: outcome.count,
    };
    Ok(answer::json(StatusCode::OK, &body))
}

pub(super) async fn get(
    State(shared): State<Arc<Shared>>,
    Reader { user, target }: Reader,
) -> Result<Response, Problem> {
    let targets = [target];
    let seen = shared.service.lookup(user.as_ref(), &targets).await?;
    let Some(seen) = seen.first() else {
        return Err(Problem::internal(
            "lookup of one target found none".to_owned(),
        ));
    };
    Ok(answer::json(
        StatusCode::OK,
        &Likes::seen(&targets[0], seen),
    ))
}
