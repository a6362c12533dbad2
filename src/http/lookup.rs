//! `POST /v1/lookup`: many targets in one read.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::Caller;
use super::fields::Fields;
use super::likes::Likes;
use super::problem::Problem;
use super::state::Shared;
use super::{answer, body, subject};
use crate::config::Kinds;
use crate::domain::Target;
use crate::limits::LOOKUP_TARGETS_MAX;

#[derive(Serialize, ToSchema)]
#[schema(as = LookupResults)]
pub(super) struct Results<'a> {
    #[schema(min_items = 1, max_items = 200)]
    results: Vec<Likes<'a>>,
}

pub(super) async fn post(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let caller = shared.keys.caller(request.headers())?;
    caller.check_read()?;
    let named = subject::user(request.headers())?;
    let bytes = body::read(request, shared.body_bytes_max).await?;
    let targets = parse(&bytes, &shared.kinds, &caller)?;
    let user = caller.speaks_for(named)?;
    let seen = shared.service.lookup(user.as_ref(), &targets).await?;
    let results = targets.iter().zip(&seen);
    let results = results
        .map(|(target, seen)| Likes::seen(target, seen))
        .collect();
    Ok(answer::json(StatusCode::OK, &Results { results }))
}

/// A read has no half answer: one wrong target spoils it.
fn parse(bytes: &[u8], kinds: &Kinds, caller: &Caller<'_>) -> Result<Vec<Target>, Problem> {
    let items: Vec<Fields<'_>> = body::list(bytes, "targets", LOOKUP_TARGETS_MAX)?;
    let items = items.iter().enumerate();
    items
        .map(|(at, fields)| {
            fields.check(&["kind", "id"], &format_args!("targets[{at}]"))?;
            let target = || {
                let target = subject::target(kinds, fields.kind()?, fields.id()?)?;
                caller.check_kind(target.kind())?;
                Ok::<_, Problem>(target)
            };
            target().map_err(|problem| problem.within("targets", at))
        })
        .collect()
}
