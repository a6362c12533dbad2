//! The HTTP interface's addresses and bodies, as a caller needs them.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};

use crate::domain::{Operation, Target};

/// Longest text of a failure that is kept.
const PROBLEM_CHARS_MAX: usize = 200;

/// All but the unreserved characters of RFC 3986.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Checks the address of a thumbd and takes the slash from its end.
pub(super) fn base_url(text: &str) -> Result<String, String> {
    let url = reqwest::Url::parse(text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "http" if url.query().is_none() && url.fragment().is_none() => {
            Ok(url.as_str().trim_end_matches('/').to_owned())
        }
        "http" => Err("must have neither ? nor #".to_owned()),
        other => Err(format!("must begin with http://, not {other}://")),
    }
}

/// The address of one target's likes.
pub(super) fn like_url(base: &str, target: &Target) -> String {
    let id = utf8_percent_encode(target.id(), PATH);
    format!("{base}/v1/likes/{}/{id}", target.kind())
}

#[derive(Deserialize)]
pub(super) struct Liked {
    pub(super) liked: bool,
    pub(super) changed: bool,
}

#[derive(Serialize)]
pub(super) struct Batch<'a> {
    pub(super) operations: Vec<BatchOperation<'a>>,
}

#[derive(Serialize)]
pub(super) struct BatchOperation<'a> {
    pub(super) op: &'static str,
    pub(super) user: &'a str,
    pub(super) kind: &'a str,
    pub(super) id: &'a str,
}

impl<'a> From<&'a Operation> for BatchOperation<'a> {
    fn from(operation: &'a Operation) -> Self {
        Self {
            op: if operation.action.thumbed() {
                "like"
            } else {
                "unlike"
            },
            user: operation.user.as_str(),
            kind: operation.target.kind(),
            id: operation.target.id(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct BatchAnswer {
    pub(super) results: Vec<BatchResult>,
}

#[derive(Deserialize)]
pub(super) struct BatchResult {
    pub(super) status: u16,
    pub(super) liked: Option<bool>,
    pub(super) changed: Option<bool>,
    pub(super) error: Option<Problem>,
}

/// The parts of an RFC 9457 problem that a person wants to read.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Problem {
    pub(super) title: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) code: Option<String>,
    pub(super) retry_after: Option<u64>,
}

impl Problem {
    pub(super) fn text(&self, status: u16) -> String {
        let text = self
            .detail
            .as_ref()
            .or(self.title.as_ref())
            .or(self.code.as_ref());
        match text {
            Some(text) => {
                // Terminals obey control characters.
                let text: String = text
                    .chars()
                    .filter(|char| !char.is_control())
                    .take(PROBLEM_CHARS_MAX)
                    .collect();
                format!("{status}: {text}")
            }
            None => format!("{status}"),
        }
    }
}
