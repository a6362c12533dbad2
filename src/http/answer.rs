//! Bodies of answers that succeed.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

use super::problem::Problem;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Room for the answer to a like with ids of usual length.
const BODY_BYTES: usize = 160;

/// An answer in JSON.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let mut bytes = Vec::with_capacity(BODY_BYTES);
    if let Err(error) = serde_json::to_writer(&mut bytes, body) {
        return axum::response::IntoResponse::into_response(Problem::internal(error.to_string()));
    }
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}
