//! What browsers are told of pages from elsewhere (CORS). Off unless the settings name origins. Cookies play no part: a page
//! shows a token, and `Access-Control-Allow-Credentials` is never sent.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, Method, header};
use tower_http::cors::{AllowOrigin, CorsLayer};

use super::{request_id, trace};
use crate::config::Origins;
use crate::limits::CORS_MAX_AGE;

/// What pages may read of an answer, beside what they may read of every one.
const EXPOSED: [HeaderName; 6] = [
    header::RETRY_AFTER,
    HeaderName::from_static("ratelimit"),
    HeaderName::from_static("ratelimit-policy"),
    header::ETAG,
    request_id::HEADER,
    trace::ANSWER,
];
/// What pages may send, beside what they may send anywhere.
const ALLOWED: [HeaderName; 6] = [
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    header::IF_NONE_MATCH,
    HeaderName::from_static("x-user-id"),
    request_id::HEADER,
    trace::HEADER,
];

/// Wraps what answers the calls of pages from these origins.
pub(super) fn layer(origins: &Origins) -> CorsLayer {
    let layer = CorsLayer::new()
        .allow_methods([Method::GET, Method::PUT, Method::DELETE, Method::POST])
        .allow_headers(ALLOWED)
        .expose_headers(EXPOSED)
        .max_age(CORS_MAX_AGE);
    match origins {
        // One answer for all pages.
        Origins::Any => layer.allow_origin(tower_http::cors::Any).vary([]),
        Origins::Only(origins) => {
            let values = origins.iter().map(HeaderValue::try_from);
            let origins: Arc<[HeaderValue]> = values.flatten().collect();
            let named = move |origin: &HeaderValue, _: &_| origins.contains(origin);
            layer
                .allow_origin(AllowOrigin::predicate(named))
                .vary([header::ORIGIN])
        }
    }
}
