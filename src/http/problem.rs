//! Every error that a caller can see, as an RFC 9457 problem: the one place where errors become HTTP. Internal texts are logged, never shown.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::contract::schemas;
use super::trace::Trace;
use crate::domain::IdError;
use crate::hot::Limit;
use crate::jobs::JobError;
use crate::service::ServiceError;

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");
/// When to come again after an error that does not say so itself.
const RETRY_SECONDS: u64 = 1;
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// All codes with their statuses, as in `docs/errors.md`.
pub(super) const CODES: [(&str, u16); 29] = [
    ("field_invalid", 400),
    ("count_invalid", 400),
    ("kind_unknown", 400),
    ("user_missing", 400),
    ("path_invalid", 400),
    ("body_invalid", 400),
    ("unauthorized", 401),
    ("forbidden", 403),
    ("not_found", 404),
    ("method_not_allowed", 405),
    ("erasure_open", 409),
    ("target_gone", 410),
    ("body_too_large", 413),
    ("content_type", 415),
    ("rate_limited", 429),
    ("internal", 500),
    ("overloaded", 503),
    ("busy", 503),
    ("recovering", 503),
    ("redis_unavailable", 503),
    ("redis_full", 503),
    ("database_unavailable", 503),
    ("backlog_full", 503),
    ("outcome_unknown", 503),
    ("timeout", 503),
    ("job_failed", 503),
    ("job_died", 503),
    ("lease_held", 503),
    ("stopping", 503),
];

/// An error on its way to the caller.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: Cow<'static, str>,
    more: Option<Box<More>>,
}

#[derive(Debug, Clone, Default)]
struct More {
    field: Option<Cow<'static, str>>,
    limit: Option<usize>,
    retry_after: Option<u64>,
    /// `RateLimit-Policy` and `RateLimit`.
    rate: Option<(HeaderValue, HeaderValue)>,
    /// For the log alone.
    cause: Option<String>,
}

impl Problem {
    fn new(
        status: StatusCode,
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        debug_assert!(
            CODES.contains(&(code, status.as_u16())),
            "{code} is not in the documents"
        );
        Self {
            status,
            code,
            title,
            detail: detail.into(),
            more: None,
        }
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    fn bad(code: &'static str, title: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, title, detail)
    }

    fn unavailable(
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
        after: Option<Duration>,
    ) -> Self {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, title, detail);
        problem.more().retry_after = Some(after.map_or(RETRY_SECONDS, seconds));
        problem
    }

    /// A limit on what one user may change.
    fn rate_limited(limit: Limit, after: Duration) -> Self {
        let (name, quota, window, field, limit, detail) = match limit {
            Limit::Operations(rate) => (
                "operations",
                rate.burst,
                Duration::from_micros(rate.burst_us()),
                "user",
                rate.per_minute,
                "nothing was changed; this user has changed too many likes of this kind lately",
            ),
            // Whoever keeps to one toggle in the longest wait is never refused.
            Limit::Toggles(cooldown) => (
                "toggles",
                1,
                Duration::from_millis(cooldown.max_ms),
                "id",
                1,
                "nothing was changed; this user has given and taken back this like too often lately",
            ),
        };
        let status = StatusCode::TOO_MANY_REQUESTS;
        let mut problem = Self::new(status, "rate_limited", "Too many changes", detail);
        let (window, after) = (seconds(window), seconds(after));
        let policy = HeaderValue::try_from(format!("\"{name}\";q={quota};w={window}"));
        let left = HeaderValue::try_from(format!("\"{name}\";r=0;t={after}"));
        let more = problem.more();
        more.rate = policy.ok().zip(left.ok());
        more.retry_after = Some(after);
        more.field = Some(field.into());
        more.limit = usize::try_from(limit).ok();
        problem
    }

    /// Names the field of the request that is wrong.
    pub(super) fn at(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.more().field = Some(field.into());
        self
    }

    /// Names the limit that was not kept.
    pub(super) fn limited(mut self, limit: usize) -> Self {
        self.more().limit = Some(limit);
        self
    }

    /// Says in which item of a list the field stands that is wrong, if there is one.
    pub(super) fn within(mut self, list: &str, at: usize) -> Self {
        if let Some(field) = self.more.as_mut().and_then(|more| more.field.as_mut()) {
            *field = format!("{list}[{at}].{field}").into();
        }
        self
    }

    /// A field that is not as it must be.
    pub(super) fn field(
        field: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::bad("field_invalid", "A field is not valid", detail).at(field)
    }

    /// Too few or too many of something.
    pub(super) fn count(field: &'static str, limit: usize, found: usize) -> Self {
        let detail = format!("{field} must have 1 to {limit} items, there are {found}");
        let mut problem = Self::bad("count_invalid", "Too few or too many items", detail).at(field);
        problem.more().limit = Some(limit);
        problem
    }

    pub(super) fn kind_unknown(kind: &str) -> Self {
        let detail = format!("kind {kind} is not among the kinds of this server");
        Self::bad("kind_unknown", "The kind is not known", detail).at("kind")
    }

    pub(super) fn user_missing() -> Self {
        let detail = "the header X-User-Id must name the user";
        Self::bad("user_missing", "No user is named", detail).at("X-User-Id")
    }

    pub(super) fn path_invalid() -> Self {
        let detail = "the percent-encoding of the path is not UTF-8";
        Self::bad("path_invalid", "The path is not valid", detail)
    }

    pub(super) fn body_invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::bad("body_invalid", "The body is not valid", detail)
    }

    pub(super) fn body_too_large(limit: usize) -> Self {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        let detail = format!("the body may have {limit} bytes at most");
        let mut problem = Self::new(status, "body_too_large", "The body is too large", detail);
        problem.more().limit = Some(limit);
        problem
    }

    pub(super) fn content_type() -> Self {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        let detail = "the body must be JSON, with Content-Type: application/json";
        Self::new(status, "content_type", "The body is not JSON", detail)
    }

    pub(super) fn unauthorized(key: &str) -> Self {
        let status = StatusCode::UNAUTHORIZED;
        let detail = format!("this call needs {key}, as Authorization: Bearer …");
        Self::new(
            status,
            "unauthorized",
            "The key is missing or wrong",
            detail,
        )
    }

    pub(super) fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        let title = "The key or token may not do this";
        Self::new(StatusCode::FORBIDDEN, "forbidden", title, detail)
    }

    pub(super) fn not_found() -> Self {
        let detail =
            "there is no such address, GET /docs shows all; a / within an id is written %2F";
        Self::new(StatusCode::NOT_FOUND, "not_found", "Not found", detail)
    }

    pub(super) fn job_not_found() -> Self {
        let detail = "there is no such job, or it is so long over that nothing is kept of it";
        Self::new(StatusCode::NOT_FOUND, "not_found", "Not found", detail).at("id")
    }

    fn target_gone() -> Self {
        let detail =
            "nothing was changed; the target was erased, and can be liked when it is restored";
        Self::new(
            StatusCode::GONE,
            "target_gone",
            "The target is gone",
            detail,
        )
        .at("id")
    }

    /// Something cannot be done before a job is done.
    pub(super) fn erasure_open() -> Self {
        let detail =
            "nothing was changed; likes of the target are still being removed, see its job";
        let title = "The erasure is not done";
        Self::new(StatusCode::CONFLICT, "erasure_open", title, detail).at("id")
    }

    pub(super) fn method_not_allowed() -> Self {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let detail = "this address has other methods, see Allow";
        Self::new(status, "method_not_allowed", "Method not allowed", detail)
    }

    pub(super) fn timeout() -> Self {
        let detail = "the request took too long; what it asked for may or may not have happened, and may be repeated";
        Self::unavailable("timeout", "The request took too long", detail, None)
    }

    /// Too much is under way at once, so this was not begun.
    pub(super) fn overloaded(after: Duration) -> Self {
        let detail = "nothing was changed; this instance has as much under way as it may";
        Self::unavailable("overloaded", "Overloaded", detail, Some(after))
    }

    pub(super) fn verification_busy() -> Self {
        let detail = "another verification is under way in this instance";
        Self::unavailable("busy", "Busy", detail, None)
    }

    pub(super) fn internal(cause: String) -> Self {
        let detail = "the log of the server has the reason under this request_id";
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        let mut problem = Self::new(status, "internal", "Internal error", detail);
        problem.more().cause = Some(cause);
        problem
    }

    /// Writes to the log what the caller is not told.
    pub(super) fn log(&self, request_id: &HeaderValue, trace: Option<Trace>) {
        if let Some(cause) = self.more.as_ref().and_then(|more| more.cause.as_ref()) {
            let request_id = request_id.to_str().unwrap_or_default();
            let trace_id = trace.as_ref().map(Trace::id);
            let code = self.code;
            tracing::error!(request_id, trace_id, code, "request failed: {cause}");
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// What is said of it in JSON; an item of a batch has no id of its own.
    pub(super) fn body<'a>(&'a self, request_id: Option<&'a str>) -> impl Serialize + use<'a> {
        let more = self.more.as_deref();
        Wire {
            r#type: format!("urn:thumbd:error:{}", self.code),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            code: self.code,
            field: more.and_then(|more| more.field.as_deref()),
            limit: more.and_then(|more| more.limit),
            retry_after: more.and_then(|more| more.retry_after),
            request_id,
        }
    }

    /// Makes `response`, which carries this problem, ready to be sent.
    pub(super) fn write(&self, response: &mut Response, request_id: &HeaderValue) {
        let body = self.body(Some(request_id.to_str().unwrap_or_default()));
        *response.status_mut() = self.status;
        *response.body_mut() = Body::from(serde_json::to_vec(&body).unwrap_or_default());
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, BEARER);
        }
        if let Some(seconds) = self.more.as_ref().and_then(|more| more.retry_after) {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some((policy, left)) = self.more.as_ref().and_then(|more| more.rate.as_ref()) {
            headers.insert(RATE_LIMIT_POLICY, policy.clone());
            headers.insert(RATE_LIMIT, left.clone());
        }
    }
}

/// Whole seconds, so that whoever waits as long has waited long enough.
fn seconds(wait: Duration) -> u64 {
    (wait.as_micros().div_ceil(1_000_000) as u64).max(1)
}

/// As it is sent.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct Wire<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[schema(schema_with = schemas::code)]
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    request_id: Option<&'a str>,
}

/// The problem travels as an extension: only `front` knows the request's id, and writes the body.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}

impl From<IdError> for Problem {
    fn from(error: IdError) -> Self {
        let mut problem = Self::field(error.field(), error.to_string());
        problem.more().limit = error.limit();
        problem
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        let (code, after) = (error.code(), error.retry_after());
        let (title, detail) = match error {
            ServiceError::Busy { .. } => (
                "Too busy",
                "nothing was changed; too much is under way at once",
            ),
            ServiceError::BacklogFull { .. } => (
                "Too much waits for the database",
                "nothing was changed; the database has not kept up, likes are accepted again when it has",
            ),
            ServiceError::RateLimited { limit, retry_after } => {
                return Self::rate_limited(limit, retry_after);
            }
            ServiceError::Recovering { .. } => (
                "Recovering",
                "nothing was changed; this part of the data is being recovered",
            ),
            ServiceError::OutcomeUnknown { .. } => (
                "The outcome is not known",
                "the operation may or may not have happened; repeating it is safe",
            ),
            ServiceError::RedisUnavailable { .. } => (
                "Redis cannot be reached",
                "nothing was changed; Redis cannot be reached",
            ),
            ServiceError::DatabaseUnavailable { .. } => (
                "The database cannot be reached",
                "nothing was changed; the database is needed for this user or target and cannot be reached",
            ),
            ServiceError::RedisFull { .. } => (
                "Redis is full",
                "nothing was changed; Redis has no memory left",
            ),
            ServiceError::TargetGone => return Self::target_gone(),
            ServiceError::Internal(cause) => return Self::internal(cause),
        };
        Self::unavailable(code, title, detail, after)
    }
}

impl From<JobError> for Problem {
    fn from(error: JobError) -> Self {
        let detail =
            "the run did not end well; nothing is lost, the next one goes on where it ended";
        let mut problem = Self::unavailable(error.code(), "The job failed", detail, None);
        problem.more().cause = Some(error.to_string());
        problem
    }
}

#[cfg(test)]
mod tests;
