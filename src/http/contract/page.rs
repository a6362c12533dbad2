//! The page at `/docs`: three files within the program, so that it works without any other host.

use axum::http::HeaderValue;
use axum::response::Response;

use crate::http::asset::{self, PAGE, SCRIPT, STYLE};

/// What the page may load: its own two files and this server. There is nothing inline.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// `GET /docs`.
pub(in crate::http) async fn page() -> Response {
    asset::answer(POLICY, PAGE, include_str!("page/page.html"))
}

/// `GET /docs/page.js`.
pub(in crate::http) async fn script() -> Response {
    asset::answer(POLICY, SCRIPT, include_str!("page/page.js"))
}

/// `GET /docs/page.css`.
pub(in crate::http) async fn style() -> Response {
    asset::answer(POLICY, STYLE, include_str!("page/page.css"))
}
