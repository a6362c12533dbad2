//! Admin calls: run a job now, look at the slices, erase a user or a target, restore one.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use chrono::SecondsFormat;
use serde::Serialize;

use super::answer;
use super::contract::schemas;
use super::problem::Problem;
use super::state::Shared;
use super::subject::{AdminTarget, AdminUser, JobNumber};
use crate::erasure::{self, Restored as Outcome};
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

/// A job that goes on behind its answer. It does not say of whom it is: whoever asked knows, and nobody else need.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Job {
    /// Its number.
    job: u64,
    /// Whether it is done.
    #[schema(schema_with = schemas::job_status)]
    status: &'static str,
    /// Rows that were removed so far.
    rows_removed: u64,
    /// When it was asked for, by the database's clock.
    #[schema(schema_with = schemas::time)]
    created_at: String,
    /// When it was done.
    #[schema(schema_with = schemas::time_or_null, required = true)]
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
    AdminUser(user): AdminUser,
) -> Answer {
    let erasure = erasure::request(&shared.service, &user).await?;
    Ok(accepted(&shared, &erasure))
}

/// `DELETE /admin/v1/targets/{kind}/{id}`: 202 once nobody can like it any more, with the address of the job.
pub(super) async fn erase_target(
    State(shared): State<Arc<Shared>>,
    AdminTarget(target): AdminTarget,
) -> Answer {
    let erasure = erasure::request_target(&shared.service, &target).await?;
    Ok(accepted(&shared, &erasure))
}

fn accepted(shared: &Shared, erasure: &Erasure) -> Response {
    shared.jobs.erase();
    let mut response = answer::json(StatusCode::ACCEPTED, &Job::from(erasure));
    if let Ok(address) = HeaderValue::try_from(format!("/admin/v1/jobs/{}", erasure.id)) {
        response.headers_mut().insert(header::LOCATION, address);
    }
    response
}

/// A target that can be liked.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Restored<'a> {
    #[schema(schema_with = schemas::kind)]
    kind: &'a str,
    #[schema(schema_with = schemas::target_id)]
    id: &'a str,
    /// Whether it was gone before.
    changed: bool,
}

/// `PUT /admin/v1/targets/{kind}/{id}/restore`.
pub(super) async fn restore_target(
    State(shared): State<Arc<Shared>>,
    AdminTarget(target): AdminTarget,
) -> Answer {
    let changed = match shared.jobs.restore(&target).await? {
        Outcome::Done => true,
        Outcome::There => false,
        Outcome::Leaving => return Err(Problem::erasure_open()),
    };
    let restored = Restored {
        kind: target.kind(),
        id: target.id(),
        changed,
    };
    Ok(answer::json(StatusCode::OK, &restored))
}

/// `GET /admin/v1/jobs/{id}`.
pub(super) async fn job(State(shared): State<Arc<Shared>>, JobNumber(number): JobNumber) -> Answer {
    let found = shared.service.ledger().erasure(number).await;
    let erasure = found.map_err(ServiceError::from)?;
    let erasure = erasure.ok_or_else(Problem::job_not_found)?;
    Ok(answer::json(StatusCode::OK, &Job::from(&erasure)))
}
