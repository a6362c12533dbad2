//! What caches may keep of an answer, and whether the caller has it already.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::answer;
use super::state::Shared;
use super::subject::USER;

/// A storm on one target is one request a second for each cache, and nobody notices a second.
const PUBLIC: HeaderValue = HeaderValue::from_static("public, max-age=1");
const PRIVATE: HeaderValue = HeaderValue::from_static("private, no-store");
const VARY: HeaderValue = HeaderValue::from_static("Authorization, X-User-Id");
/// Bytes of a digest in an ETag.
const TAG_BYTES: usize = 12;

/// A read of which an answer may be kept.
pub(super) struct Caching {
    /// Everybody is given the same answer.
    public: bool,
    /// What the caller has already.
    none_match: Vec<HeaderValue>,
}

impl FromRequestParts<Arc<Shared>> for Caching {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        shared: &Arc<Shared>,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self::of(&parts.headers, shared.keys.reads_are_public()))
    }
}

impl Caching {
    fn of(headers: &HeaderMap, reads_are_public: bool) -> Self {
        let named = [USER, header::AUTHORIZATION.as_str()];
        let anonymous = named.iter().all(|name| !headers.contains_key(*name));
        let none_match = headers.get_all(header::IF_NONE_MATCH);
        Self {
            public: anonymous && reads_are_public,
            none_match: none_match.iter().cloned().collect(),
        }
    }

    /// The same for an answer that will be another one soon, such as one in which something is not known.
    pub(super) fn unless(mut self, passing: bool) -> Self {
        self.public &= !passing;
        self
    }

    /// An answer in JSON, or that there is nothing new.
    pub(super) fn json(self, body: &impl Serialize) -> Response {
        let bytes = match answer::bytes(body) {
            Ok(bytes) => bytes,
            Err(problem) => return problem.into_response(),
        };
        let tag = tag(&bytes);
        let mut response = if self.has(&tag) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            answer::of(StatusCode::OK, bytes)
        };
        let headers = response.headers_mut();
        let control = if self.public { PUBLIC } else { PRIVATE };
        headers.insert(header::CACHE_CONTROL, control);
        headers.insert(header::VARY, VARY);
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            headers.insert(header::ETAG, tag);
        }
        response
    }

    /// Compares as for GET: a tag that some proxy made weak will do.
    fn has(&self, tag: &str) -> bool {
        let values = self
            .none_match
            .iter()
            .filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| {
            let one = one.trim();
            one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag
        })
    }
}

/// A strong one: the same tag means the same bytes.
fn tag(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    format!("\"{}\"", BASE64.encode(&digest[..TAG_BYTES]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = of.iter().map(|(name, value)| {
            let name = axum::http::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    #[test]
    fn only_what_everybody_is_given_is_public() {
        assert!(Caching::of(&headers(&[]), true).public);
        assert!(!Caching::of(&headers(&[]), false).public);
        assert!(!Caching::of(&headers(&[("authorization", "")]), true).public);
        assert!(!Caching::of(&headers(&[("x-user-id", "u1")]), true).public);
        assert!(!Caching::of(&headers(&[]), true).unless(true).public);
    }

    #[test]
    fn what_the_caller_has_is_not_sent_again() {
        let tag = tag(b"{}");
        for (value, want) in [("*", true), ("\"x\"", false), ("", false)] {
            let caching = Caching::of(&headers(&[("if-none-match", value)]), true);
            assert_eq!(caching.has(&tag), want, "{value}");
        }
        for value in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}")] {
            let mut map = HeaderMap::new();
            map.insert(header::IF_NONE_MATCH, value.parse().unwrap());
            assert!(Caching::of(&map, true).has(&tag), "{value}");
        }
    }
}
