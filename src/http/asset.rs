//! Files within the program that a browser loads, each with what it may load in turn.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

pub(super) const PAGE: &str = "text/html; charset=utf-8";
pub(super) const SCRIPT: &str = "text/javascript; charset=utf-8";
pub(super) const STYLE: &str = "text/css; charset=utf-8";

const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");

/// The file, with its content security policy.
pub(super) fn answer(
    policy: HeaderValue,
    content_type: &'static str,
    text: &'static str,
) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF),
        (header::REFERRER_POLICY, NO_REFERRER),
    ];
    (headers, text).into_response()
}
