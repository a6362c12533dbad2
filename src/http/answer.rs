//! Bodies of answers that succeed.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use super::problem::Problem;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Room for the answer to a like with ids of usual length.
const BODY_BYTES: usize = 160;

/// An answer in JSON.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match bytes(body) {
        Ok(bytes) => of(status, bytes),
        Err(problem) => problem.into_response(),
    }
}

/// A body in JSON.
pub(super) fn bytes(body: &impl Serialize) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::with_capacity(BODY_BYTES);
    match serde_json::to_writer(&mut bytes, body) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(Problem::internal(error.to_string())),
    }
}

/// An answer with this body.
pub(super) fn of(status: StatusCode, bytes: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}
