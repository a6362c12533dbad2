//! Admin calls: run a job now, look at the slices, erase a user.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use chrono::SecondsFormat;
use serde::Serialize;

use super::answer;
use super::problem::Problem;
use super::state::Shared;
use super::subject::{ErasedUser, JobNumber};
use crate::erasure;
use crate::ledger::Erasure;
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

/// A job that goes on behind its answer. It does not say of whom it is: whoever asked knows, and nobody else need.
#[derive(Serialize)]
struct Job {
    job: u64,
    status: &'static str,
    rows_removed: u64,
    created_at: String,
    finished_at: Option<String>,
}

impl From<&Erasure> for Job {
    fn from(erasure: &Erasure) -> Self {
        let text =
            |at: chrono::DateTime<chrono::Utc>| at.to_rfc3339_opts(SecondsFormat::Millis, true);
        Self {
            job: erasure.id,
            status: if erasure.done { "done" } else { "open" },
            rows_removed: erasure.rows_removed,
            created_at: text(erasure.created_at),
            finished_at: erasure.finished_at.map(text),
        }
    }
}

/// `DELETE /admin/v1/users/{user}`: 202 once MySQL knows of it, with the address of the job.
pub(super) async fn erase_user(
    State(shared): State<Arc<Shared>>,
    ErasedUser(user): ErasedUser,
) -> Answer {
    let erasure = erasure::request(&shared.service, &user).await?;
    shared.jobs.erase();
    let mut response = answer::json(StatusCode::ACCEPTED, &Job::from(&erasure));
    if let Ok(address) = HeaderValue::try_from(format!("/admin/v1/jobs/{}", erasure.id)) {
        response.headers_mut().insert(header::LOCATION, address);
    }
    Ok(response)
}

/// `GET /admin/v1/jobs/{id}`.
pub(super) async fn job(State(shared): State<Arc<Shared>>, JobNumber(number): JobNumber) -> Answer {
    let found = shared.service.ledger().erasure(number).await;
    let erasure = found.map_err(ServiceError::from)?;
    let erasure = erasure.ok_or_else(Problem::job_not_found)?;
    Ok(answer::json(StatusCode::OK, &Job::from(&erasure)))
}
