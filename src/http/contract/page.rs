//! The page at `/docs`: three files within the program, so that it works without any other host.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};

/// What the page may load: its own two files and this server. There is nothing inline.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");

/// `GET /docs`.
pub(in crate::http) async fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("page/page.html"))
}

/// `GET /docs/page.js`.
pub(in crate::http) async fn script() -> Response {
    let text = include_str!("page/page.js");
    file("text/javascript; charset=utf-8", text)
}

/// `GET /docs/page.css`.
pub(in crate::http) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("page/page.css"))
}

fn file(content_type: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF),
        (header::REFERRER_POLICY, NO_REFERRER),
    ];
    (headers, text).into_response()
}
