//! Which parameters an address takes in its query. Others are refused: behind a misspelt `durability` stood a promise that nobody gave.

use axum::http::{Method, Uri};

use super::problem::Problem;
use super::{observe, paths};

/// Most characters of a name that are repeated to the caller.
const SHOWN_MAX: usize = 64;

/// The parameters of a call; `None` where nobody looks at them: pages, probes, and what is no call at all.
pub(super) fn known(method: &Method, pattern: &str) -> Option<&'static [&'static str]> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match pattern {
        paths::LIKES if reads => Some(&[]),
        paths::LIKES => Some(&["durability", "wait_ms"]),
        paths::LIKERS | paths::RANKINGS => Some(&["limit", "cursor"]),
        paths::USER_LIKES => Some(&["kind", "limit", "cursor"]),
        _ if pattern.starts_with("/v1/") || pattern.starts_with("/admin/") => Some(&[]),
        _ => None,
    }
}

/// Refuses a query with a parameter that the call does not take, where the address is one that is served here.
pub(super) fn check(method: &Method, uri: &Uri, has: fn(&str) -> bool) -> Result<(), Problem> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else {
        return Ok(());
    };
    let pattern = observe::pattern(uri.path());
    let Some(known) = known(method, pattern).filter(|_| has(pattern)) else {
        return Ok(());
    };
    let names = query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| part.split_once('=').map_or(part, |(name, _)| name));
    match names.into_iter().find(|name| !known.contains(name)) {
        None => Ok(()),
        Some(unknown) => {
            let shown: String = unknown.chars().take(SHOWN_MAX).collect();
            let detail = match known {
                [] => "unknown parameter; this call takes none".to_owned(),
                known => format!("unknown parameter; this call takes {}", known.join(", ")),
            };
            Err(Problem::field(shown, detail))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(method: Method, uri: &'static str) -> Option<String> {
        let problem = check(&method, &Uri::from_static(uri), |path| {
            path != paths::SLICES
        })
        .err()?;
        Some(serde_json::to_string(&problem.body(None)).unwrap())
    }

    #[test]
    fn what_a_call_does_not_take_is_refused_by_name() {
        for (method, uri, field) in [
            (
                Method::PUT,
                "/v1/likes/blog/1?durabilty=ledger",
                "durabilty",
            ),
            (Method::PUT, "/v1/likes/blog/1?durability=ledger&x", "x"),
            (
                Method::GET,
                "/v1/likes/blog/1?durability=ledger",
                "durability",
            ),
            (Method::HEAD, "/v1/likes/blog/1?wait_ms=1", "wait_ms"),
            (Method::GET, "/v1/rankings/blog?kind=blog", "kind"),
            (Method::GET, "/v1/users/me/likes?Limit=1", "Limit"),
            (Method::POST, "/v1/batch?durability=ledger", "durability"),
            (Method::POST, "/admin/v1/flushes?dry_run", "dry_run"),
            (Method::GET, "/admin/v1/feed?=1", ""),
        ] {
            let text = refused(method, uri).unwrap_or_else(|| panic!("{uri}"));
            assert!(text.contains(&format!("\"field\":\"{field}\"")), "{text}");
            assert!(text.contains("this call takes"), "{text}");
        }
        let long = format!("/v1/likes/a/b?{}", "x".repeat(1000));
        let long = check(&Method::GET, &long.parse().unwrap(), |_| true).unwrap_err();
        let text = serde_json::to_string(&long.body(None)).unwrap();
        assert!(text.len() < 400, "{text}");
    }

    #[test]
    fn what_a_call_takes_and_pages_pass() {
        for (method, uri) in [
            (Method::PUT, "/v1/likes/blog/1"),
            (Method::PUT, "/v1/likes/blog/1?"),
            (
                Method::DELETE,
                "/v1/likes/blog/1?&durability=ledger&&wait_ms=5",
            ),
            (Method::GET, "/v1/likes/blog/1/users?limit=1&cursor=a"),
            (Method::HEAD, "/v1/users/me/likes?kind=blog&limit"),
            (Method::GET, "/admin/v1/slices?elsewhere"),
            (Method::GET, "/docs?x=1"),
            (Method::GET, "/healthz?x"),
            (Method::GET, "/v1/nothing?x"),
        ] {
            assert_eq!(refused(method, uri), None, "{uri}");
        }
    }
}
