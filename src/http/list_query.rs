//! The query of a list: how many, from where on, and of which kind. Other parameters do not come here (see `parameters`).

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;

use super::problem::Problem;
use super::state::Shared;
use crate::limits::{LIST_LIMIT, LIST_LIMIT_MAX};

/// What the query says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListQuery {
    pub(super) limit: usize,
    pub(super) cursor: Option<String>,
    /// Only one list asks for it.
    pub(super) kind: Option<String>,
}

impl FromRequestParts<Arc<Shared>> for ListQuery {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        _shared: &Arc<Shared>,
    ) -> Result<Self, Self::Rejection> {
        parse(parts.uri.query().unwrap_or_default())
    }
}

fn parse(query: &str) -> Result<ListQuery, Problem> {
    let (mut limit, mut cursor, mut kind) = (None, None, None);
    for part in query.split('&') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (name, slot) = match name {
            "limit" => ("limit", &mut limit),
            "cursor" => ("cursor", &mut cursor),
            "kind" => ("kind", &mut kind),
            _ => continue,
        };
        let value: Cow<'_, str> = percent_decode_str(value).decode_utf8_lossy();
        if slot.replace(value.into_owned()).is_some() {
            return Err(Problem::field(
                name,
                format!("{name} is given more than once"),
            ));
        }
    }
    let limit = limit.map_or(Ok(LIST_LIMIT), |text| {
        let number = text
            .parse()
            .ok()
            .filter(|number| (1..=LIST_LIMIT_MAX).contains(number));
        number.ok_or_else(|| {
            let detail = format!("limit must be a number from 1 to {LIST_LIMIT_MAX}");
            Problem::field("limit", detail).limited(LIST_LIMIT_MAX)
        })
    });
    Ok(ListQuery {
        limit: limit?,
        cursor,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str) -> Result<(usize, Option<String>, Option<String>), String> {
        let parsed = parse(query).map(|query| (query.limit, query.cursor, query.kind));
        parsed.map_err(|problem| serde_json::to_string(&problem.body(None)).unwrap())
    }

    #[test]
    fn a_query_says_how_many_and_from_where() {
        let some = |text: &str| Some(text.to_owned());
        for (query, want) in [
            ("", (LIST_LIMIT, None, None)),
            ("limit=1&cursor=a-_b", (1, some("a-_b"), None)),
            (
                "kind=blog%5Fpost&limit=100&cursor=",
                (100, some(""), some("blog_post")),
            ),
        ] {
            assert_eq!(parsed(query), Ok(want), "{query}");
        }
    }

    #[test]
    fn wrong_queries_name_their_field() {
        for (query, part) in [
            ("limit=0", "from 1 to 100"),
            ("limit=101", "\"limit\":100"),
            ("limit=", "\"field\":\"limit\""),
            ("limit=-1", "\"field\":\"limit\""),
            ("limit=1.5", "\"field\":\"limit\""),
            ("limit=1&limit=1", "limit is given more than once"),
            ("cursor=a&cursor=a", "\"field\":\"cursor\""),
            ("kind=a&kind=a", "\"field\":\"kind\""),
        ] {
            let error = parsed(query).unwrap_err();
            assert!(error.contains(part), "{query}: {error}");
        }
    }
}
