//! The webhook: posts batches of events to the operator's address, each under an id of its own, signed.
//!
//! A batch is delivered when the answer is 2xx. Anything else, also 410 and a redirect, leaves it to the next try.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

use super::signature;
use crate::config::{ConfigError, Settings, WebhookSecrets, WebhookUrl};
use crate::ledger::FeedEvent;
use crate::limits::{
    FEED_RETRY_AFTER_MAX, FEED_WEBHOOK_ANSWER_MAX, FEED_WEBHOOK_BYTES_MAX,
    FEED_WEBHOOK_CONNECT_MAX, FEED_WEBHOOK_HEAD_BYTES_MAX, FEED_WEBHOOK_IDLE_MAX,
    FEED_WEBHOOK_REST_BYTES_MAX, FEED_WEBHOOK_REST_MAX,
};

/// Why there is no relay.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// A setting is missing.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file of certificates cannot be used.
    #[error("feed_webhook_ca_file: {path} is no file of certificates in PEM: {problem}")]
    Certificates {
        /// The file.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The system has no certificates.
    #[error(
        "the system has no certificates to check {origin} against: install them, or set feed_webhook_ca_file"
    )]
    NoCertificates {
        /// The webhook.
        origin: String,
    },
    /// TLS cannot be used at all.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Why a batch was not delivered.
#[derive(Debug, thiserror::Error)]
pub(super) enum WebhookError {
    #[error("{origin} cannot be asked: {problem}")]
    Unreachable { origin: String, problem: String },
    #[error("{origin} does not answer within {} s", FEED_WEBHOOK_ANSWER_MAX.as_secs())]
    Late { origin: String },
    #[error("{origin} answers {status}")]
    Refused {
        origin: String,
        status: u16,
        retry_after: Option<Duration>,
    },
}

/// Events that are delivered together.
pub(super) struct Batch {
    /// The same whenever they are delivered, without a full stop.
    pub(super) id: String,
    /// A JSON array of the events.
    pub(super) body: String,
    pub(super) last: u64,
    pub(super) events: u64,
}

/// An address that batches are posted to.
pub(super) struct Webhook {
    client: Client<HttpsConnector<HttpConnector>, String>,
    url: WebhookUrl,
    secrets: WebhookSecrets,
    prefix: String,
}

impl Webhook {
    /// Nothing is asked of the address yet: it may come later.
    pub(super) fn new(
        settings: &Settings,
        url: &WebhookUrl,
        secrets: &WebhookSecrets,
    ) -> Result<Self, FeedError> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(FEED_WEBHOOK_CONNECT_MAX));
        connector.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(settings, url)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(FEED_WEBHOOK_IDLE_MAX)
            .pool_max_idle_per_host(1)
            .http1_max_buf_size(FEED_WEBHOOK_HEAD_BYTES_MAX)
            .build(connector);
        Ok(Self {
            client,
            url: url.clone(),
            secrets: secrets.clone(),
            prefix: settings.key_prefix.clone(),
        })
    }

    /// The first of these events, so many that their texts fit into one delivery, but one at least.
    pub(super) fn batch(&self, events: &[FeedEvent]) -> Result<Option<Batch>, serde_json::Error> {
        let mut body = String::from("[");
        let (mut first, mut last, mut count) = (0, 0, 0);
        for event in events {
            let text = serde_json::to_string(event)?;
            if count == 0 {
                first = event.id;
            } else if body.len() + text.len() + 2 > FEED_WEBHOOK_BYTES_MAX {
                break;
            } else {
                body.push(',');
            }
            body.push_str(&text);
            last = event.id;
            count += 1;
        }
        body.push(']');
        Ok((count > 0).then(|| Batch {
            id: format!("{}-{first}-{last}", self.prefix),
            body,
            last,
            events: count,
        }))
    }

    /// Posts a batch once.
    pub(super) async fn post(&self, batch: &Batch) -> Result<(), WebhookError> {
        let origin = || self.url.origin().to_owned();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let timestamp = now.map_or(0, |now| now.as_secs());
        let signature = signature::header(&self.secrets, &batch.id, timestamp, &batch.body);
        let request = Request::post(self.url.uri())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("thumbd/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", &batch.id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature)
            .body(batch.body.clone())
            .map_err(|error| unreachable(origin(), &error))?;
        let answer = timeout(FEED_WEBHOOK_ANSWER_MAX, self.client.request(request)).await;
        let answer = answer
            .map_err(|_| WebhookError::Late { origin: origin() })?
            .map_err(|error| unreachable(origin(), &error))?;
        let status = answer.status();
        let retry_after = retry_after(answer.headers(), SystemTime::now());
        rest(answer).await;
        if status.is_success() {
            return Ok(());
        }
        Err(WebhookError::Refused {
            origin: origin(),
            status: status.as_u16(),
            retry_after,
        })
    }
}

impl WebhookError {
    /// How long the webhook wants to be left alone, up to a bound.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            Self::Unreachable { .. } | Self::Late { .. } => None,
        }
    }
}

/// The innermost reason: the outer ones say only that a client failed.
fn unreachable(origin: String, error: &(dyn Error + 'static)) -> WebhookError {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    WebhookError::Unreachable {
        origin,
        problem: inner.to_string(),
    }
}

/// Reads what follows the head, so that the connection can be used again; one that says too much or too slowly is closed.
async fn rest(answer: Response<Incoming>) {
    let body = Limited::new(answer.into_body(), FEED_WEBHOOK_REST_BYTES_MAX);
    let _ = timeout(FEED_WEBHOOK_REST_MAX, body.collect()).await;
}

/// `Retry-After`, in seconds or as a date, cut down to what is heeded.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = chrono::DateTime::parse_from_rfc2822(text).ok()?;
            SystemTime::from(date).duration_since(now).ok()?
        }
    };
    Some(wait.min(FEED_RETRY_AFTER_MAX))
}

/// What a certificate is checked against. Plain HTTP needs nothing.
fn tls(settings: &Settings, url: &WebhookUrl) -> Result<ClientConfig, FeedError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = &settings.feed_webhook_ca_file {
        let problem = |problem: String| FeedError::Certificates {
            path: path.clone(),
            problem,
        };
        let found =
            CertificateDer::pem_file_iter(path).map_err(|error| problem(error.to_string()))?;
        for certificate in found {
            let certificate = certificate.map_err(|error| problem(error.to_string()))?;
            let added = roots.add(certificate);
            added.map_err(|error| problem(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(problem("it has none".to_owned()));
        }
    } else if url.uri().scheme_str() == Some("https") {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(FeedError::NoCertificates {
                origin: url.origin().to_owned(),
            });
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_asked_for_is_heeded_up_to_a_bound() {
        let now = UNIX_EPOCH + Duration::from_secs(1_445_412_470);
        let wait = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("7"), Some(7));
        assert_eq!(wait("Wed, 21 Oct 2015 07:28:00 GMT"), Some(10));
        let most = Some(FEED_RETRY_AFTER_MAX.as_secs());
        assert_eq!(wait("86400"), most);
        assert_eq!(wait("Wed, 21 Oct 2026 07:28:00 GMT"), most);
        for nothing in [
            "",
            "soon",
            "-1",
            "99999999999999999999",
            "Wed, 21 Oct 2010 07:28:00 GMT",
        ] {
            assert_eq!(wait(nothing), None, "{nothing}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }
}
