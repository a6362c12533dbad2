//! `POST /v1/batch`: many operations, each with a result of its own.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde::Serialize;

use super::admission::Class;
use super::auth::Caller;
use super::fields::Fields;
use super::problem::Problem;
use super::state::Shared;
use super::trace::Trace;
use super::{answer, body, request_id, subject};
use crate::config::Kinds;
use crate::domain::{Action, Operation, UserId};
use crate::limits::BATCH_OPERATIONS_MAX;
use crate::service::{Outcome, ServiceError};

#[derive(Serialize)]
struct Results<T> {
    results: Vec<T>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<E> {
    Done {
        status: u16,
        liked: bool,
        changed: bool,
    },
    Failed {
        status: u16,
        error: E,
    },
}

pub(super) async fn post(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Problem> {
    let caller = shared.keys.caller(request.headers())?;
    caller.check_write()?;
    let request_id = request.headers().get(request_id::HEADER).cloned();
    let request_id = request_id.unwrap_or(HeaderValue::from_static("-"));
    let trace = Trace::of(request.headers());
    let bytes = body::read(request, shared.body_bytes_max).await?;
    let parsed = parse(&bytes, &shared.kinds, &caller)?;
    let mut operations = Vec::with_capacity(parsed.len());
    // What remains of each item: whether it is a like, or why it was refused.
    let mut slots = Vec::with_capacity(parsed.len());
    for item in parsed {
        slots.push(item.map(|operation| {
            let liked = operation.action.thumbed();
            operations.push(operation);
            liked
        }));
    }
    let outcomes = run(&shared, operations).await?;
    if outcomes.len() != slots.iter().filter(|slot| slot.is_ok()).count() {
        return Err(Problem::internal("a batch lost answers".to_owned()));
    }
    let mut outcomes = outcomes.into_iter();
    let results: Vec<Result<(bool, bool), Problem>> = slots
        .into_iter()
        .enumerate()
        .map(|(at, slot)| {
            let liked = slot?;
            let outcome = outcomes.next().transpose();
            let outcome = outcome.map_err(|error| Problem::from(error).within("operations", at))?;
            Ok((liked, outcome.is_some_and(|outcome| outcome.changed)))
        })
        .collect();
    let results = results
        .iter()
        .map(|result| item(result, &request_id, trace));
    let results = results.collect();
    Ok(answer::json(StatusCode::OK, &Results { results }))
}

/// Runs as a task: a client that hangs up must not stop it in the middle. Its waits are those of the service, all bounded.
async fn run(
    shared: &Shared,
    operations: Vec<Operation>,
) -> Result<Vec<Result<Outcome, ServiceError>>, Problem> {
    if operations.is_empty() {
        return Ok(Vec::new());
    }
    // One place is taken already; the others are kept as long as the batch runs.
    let more = operations.len() - 1;
    let places = match more {
        0 => None,
        _ => Some(shared.admission.enter(Class::Write, more)?),
    };
    let service = shared.service.clone();
    let task = async move {
        let _places = places;
        service.batch(operations).await
    };
    let result = shared.batches.spawn(task).await;
    result.map_err(|error| Problem::internal(format!("batch: {error}")))
}

fn item<'a>(
    result: &'a Result<(bool, bool), Problem>,
    request_id: &HeaderValue,
    trace: Option<Trace>,
) -> Item<impl Serialize + use<'a>> {
    match result {
        Ok((liked, changed)) => Item::Done {
            status: StatusCode::OK.as_u16(),
            liked: *liked,
            changed: *changed,
        },
        Err(problem) => {
            problem.log(request_id, trace);
            Item::Failed {
                status: problem.status().as_u16(),
                error: problem.body(None),
            }
        }
    }
}

fn parse(
    bytes: &[u8],
    kinds: &Kinds,
    caller: &Caller<'_>,
) -> Result<Vec<Result<Operation, Problem>>, Problem> {
    let items: Vec<Fields<'_>> = body::list(bytes, "operations", BATCH_OPERATIONS_MAX)?;
    let items = items.iter().enumerate();
    Ok(items
        .map(|(at, item)| operation(at, item, kinds, caller))
        .collect())
}

fn operation(
    at: usize,
    fields: &Fields<'_>,
    kinds: &Kinds,
    caller: &Caller<'_>,
) -> Result<Operation, Problem> {
    let names = ["op", "user", "kind", "id"];
    fields.check(&names, &format_args!("operations[{at}]"))?;
    let parse = || {
        let action = match fields.op()? {
            "like" => Action::Thumb,
            "unlike" => Action::Unthumb,
            _ => return Err(Problem::field("op", "op must be like or unlike")),
        };
        let user = UserId::parse(fields.user()?)?;
        let target = subject::target(kinds, fields.kind()?, fields.id()?)?;
        caller.check_kind(target.kind())?;
        caller.check_user(&user, "user")?;
        Ok(Operation {
            action,
            user,
            target,
        })
    };
    parse().map_err(|problem: Problem| problem.within("operations", at))
}
