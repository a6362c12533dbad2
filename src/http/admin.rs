//! Admin calls: run a job now, look at the slices.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::answer;
use super::problem::Problem;
use super::state::Shared;
use crate::service::ServiceError;

type Answer = Result<Response, Problem>;

pub(super) async fn flush(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answer {
    shared.keys.caller(&headers)?.check_admin()?;
    Ok(answer::json(
        StatusCode::OK,
        &shared.jobs.flush_now().await?,
    ))
}

pub(super) async fn compensate(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answer {
    shared.keys.caller(&headers)?.check_admin()?;
    let report = shared.jobs.compensate_now().await?;
    Ok(answer::json(StatusCode::OK, &report))
}

pub(super) async fn slices(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answer {
    shared.keys.caller(&headers)?.check_admin()?;
    Ok(answer::json(StatusCode::OK, &shared.jobs.status().await?))
}

pub(super) async fn feed(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answer {
    shared.keys.caller(&headers)?.check_admin()?;
    let status = shared.service.ledger().feed_status().await;
    Ok(answer::json(
        StatusCode::OK,
        &status.map_err(ServiceError::from)?,
    ))
}

pub(super) async fn feed_resume(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Answer {
    shared.keys.caller(&headers)?.check_admin()?;
    let status = shared.service.ledger().feed_resume(0).await;
    Ok(answer::json(
        StatusCode::OK,
        &status.map_err(ServiceError::from)?,
    ))
}
