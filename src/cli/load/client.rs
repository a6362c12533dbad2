//! The HTTP interface as its callers see it: single calls and batches, with bounded repetition of what was not accepted.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use serde::Deserialize;

use super::Arguments;
use super::wire::{Batch, BatchAnswer, BatchOperation, BatchResult, Liked, Problem, like_url};
use crate::config::Secret;
use crate::domain::Operation;

/// Longest wait for one answer: well beyond the service's own bounds.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest wait before a repetition, whatever the service asks for.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(30);
/// First wait where the service names none; it doubles with every try.
const RETRY_WAIT_MIN: Duration = Duration::from_millis(100);
/// Longest such wait.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Accepted { changed: bool },
    Failed(String),
}

/// How a call ended, in the order of its operations.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) outcomes: Vec<Outcome>,
    /// How long each answered try took.
    pub(super) latencies: Vec<Duration>,
    /// How many tries were repetitions.
    pub(super) retries: u64,
    /// Whether any try got an answer over HTTP.
    pub(super) answered: bool,
}

/// How one try of some operations ended.
enum Try {
    /// One result each.
    Answered(Vec<OneResult>, Option<Duration>),
    /// The same for all.
    Whole {
        problem: String,
        answered: bool,
        repeat: bool,
        after: Option<Duration>,
    },
}

enum OneResult {
    Done(Outcome),
    Again(String),
}

/// A caller of one thumbd. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    tries: u32,
    single: bool,
}

impl Client {
    pub(super) fn new(arguments: &Arguments, key: Option<&Secret>) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
                .context("service_key does not fit into a header")?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .user_agent(concat!("thumbd-load/", env!("CARGO_PKG_VERSION")))
            .pool_max_idle_per_host(arguments.concurrency)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .timeout(ANSWER_WAIT_MAX)
            .build()
            .context("the HTTP client cannot start")?;
        Ok(Self {
            http,
            url: arguments.url.clone(),
            tries: arguments.tries,
            single: arguments.batch == 1,
        })
    }

    /// Sends operations until each is accepted or refused, or its tries are used up.
    pub(super) async fn send(&self, operations: &[Operation]) -> Answer {
        let mut outcomes: Vec<Outcome> = vec![Outcome::Failed(String::new()); operations.len()];
        let mut changed = vec![false; operations.len()];
        let mut latencies = Vec::new();
        let mut left: Vec<usize> = (0..operations.len()).collect();
        let mut tried = 0;
        let mut answered = false;
        while !left.is_empty() && tried < self.tries {
            tried += 1;
            let begun = Instant::now();
            let now: Vec<&Operation> = left.iter().map(|at| &operations[*at]).collect();
            let (results, after) = match self.try_once(&now).await {
                Try::Answered(results, after) => {
                    answered = true;
                    latencies.push(begun.elapsed());
                    (results, after)
                }
                Try::Whole {
                    problem,
                    answered: heard,
                    repeat,
                    after,
                } => {
                    answered |= heard;
                    if heard {
                        latencies.push(begun.elapsed());
                    }
                    let result = || {
                        if repeat {
                            OneResult::Again(problem.clone())
                        } else {
                            OneResult::Done(Outcome::Failed(problem.clone()))
                        }
                    };
                    (left.iter().map(|_| result()).collect(), after)
                }
            };
            // What comes behind a repeated operation of the same pair is repeated too, or the pair would end in the wrong state.
            let mut again = HashSet::new();
            let mut next = Vec::new();
            for (at, result) in left.into_iter().zip(results) {
                let pair = (&operations[at].user, &operations[at].target);
                let repeated = matches!(result, OneResult::Again(_)) || again.contains(&pair);
                outcomes[at] = match result {
                    OneResult::Done(Outcome::Accepted { changed: now }) => {
                        changed[at] |= now;
                        Outcome::Accepted {
                            changed: changed[at],
                        }
                    }
                    OneResult::Done(failed) => failed,
                    OneResult::Again(problem) => Outcome::Failed(problem),
                };
                if repeated {
                    again.insert(pair);
                    next.push(at);
                }
            }
            left = next;
            if !left.is_empty() && tried < self.tries {
                tokio::time::sleep(wait(after, tried)).await;
            }
        }
        Answer {
            outcomes,
            latencies,
            retries: u64::from(tried.saturating_sub(1)),
            answered,
        }
    }

    async fn try_once(&self, operations: &[&Operation]) -> Try {
        match operations {
            [operation] if self.single => self.try_single(operation).await,
            _ => self.try_batch(operations).await,
        }
    }

    async fn try_single(&self, operation: &Operation) -> Try {
        let method = if operation.action.thumbed() {
            Method::PUT
        } else {
            Method::DELETE
        };
        let url = like_url(&self.url, &operation.target);
        let request = self
            .http
            .request(method, url)
            .header("x-user-id", operation.user.as_str());
        match answer::<Liked>(request).await {
            Ok(liked) if liked.liked != operation.action.thumbed() => {
                refused("the answer has the wrong state")
            }
            Ok(liked) => Try::Answered(
                vec![OneResult::Done(Outcome::Accepted {
                    changed: liked.changed,
                })],
                None,
            ),
            Err(whole) => whole,
        }
    }

    async fn try_batch(&self, operations: &[&Operation]) -> Try {
        let body = Batch {
            operations: operations
                .iter()
                .copied()
                .map(BatchOperation::from)
                .collect(),
        };
        let request = self.http.post(format!("{}/v1/batch", self.url)).json(&body);
        match answer::<BatchAnswer>(request).await {
            Ok(answer) if answer.results.len() != operations.len() => {
                refused("the answer has another number of results")
            }
            Ok(answer) => {
                let after = answer
                    .results
                    .iter()
                    .filter_map(|result| result.error.as_ref()?.retry_after)
                    .max()
                    .map(Duration::from_secs);
                let results = answer.results.into_iter().zip(operations);
                Try::Answered(
                    results
                        .map(|(result, operation)| read(result, operation))
                        .collect(),
                    after,
                )
            }
            Err(whole) => whole,
        }
    }
}

fn refused(problem: &str) -> Try {
    Try::Whole {
        problem: problem.to_owned(),
        answered: true,
        repeat: false,
        after: None,
    }
}

/// Sends a request and reads a 200 as `T`.
async fn answer<T: for<'de> Deserialize<'de>>(request: reqwest::RequestBuilder) -> Result<T, Try> {
    let unanswered = |error: reqwest::Error| Try::Whole {
        problem: format!("no answer: {}", root_cause(&error)),
        answered: false,
        repeat: !error.is_builder(),
        after: None,
    };
    let response = request.send().await.map_err(unanswered)?;
    let status = response.status();
    let after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let body = response.bytes().await.map_err(unanswered)?;
    if status == StatusCode::OK {
        return serde_json::from_slice(&body)
            .map_err(|error| refused(&format!("the answer cannot be read: {error}")));
    }
    let problem = serde_json::from_slice::<Problem>(&body).unwrap_or_default();
    Err(Try::Whole {
        problem: problem.text(status.as_u16()),
        answered: true,
        repeat: is_passing(status.as_u16()),
        after: after.map(Duration::from_secs),
    })
}

/// Whether the service says that the same may be accepted later: 503, or 429 of a limit on one user. Nothing was changed then, or a
/// repetition is harmless.
fn is_passing(status: u16) -> bool {
    let statuses = [
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    statuses.iter().any(|one| one.as_u16() == status)
}

fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// How long to wait before the next try: what the service asks for, or longer every time; with jitter, so that callers spread.
fn wait(after: Option<Duration>, tried: u32) -> Duration {
    let backoff = RETRY_WAIT_MIN
        .saturating_mul(1 << (tried - 1).min(16))
        .min(BACKOFF_MAX);
    let wait = after.unwrap_or(backoff).min(RETRY_WAIT_MAX);
    wait.mul_f64(rand::random_range(1.0..1.25))
}

/// What one result of a batch says.
fn read(result: BatchResult, operation: &Operation) -> OneResult {
    match (result.status, result.liked, result.changed) {
        (200, Some(liked), Some(changed)) if liked == operation.action.thumbed() => {
            OneResult::Done(Outcome::Accepted { changed })
        }
        (200, ..) => OneResult::Done(Outcome::Failed("the answer has the wrong state".to_owned())),
        (status, ..) if is_passing(status) => {
            OneResult::Again(result.error.unwrap_or_default().text(status))
        }
        (status, ..) => OneResult::Done(Outcome::Failed(
            result.error.unwrap_or_default().text(status),
        )),
    }
}
