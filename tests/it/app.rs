//! A whole thumbd on the shared servers: what a test needs to talk to it, and its end.

use std::net::SocketAddr;

use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use thumbd::app::App;
use thumbd::config::{Secret, Settings};
use thumbd::flush::FlushReport;
use thumbd::jobs::Jobs;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::servers::{self, TestEnv};

pub(crate) const SERVICE_KEY: &str = "service-key";
pub(crate) const ADMIN_TOKEN: &str = "admin-token";
/// The id of all requests of a test, so that bodies can be compared.
pub(crate) const REQUEST_ID: &str = "test";

/// A running thumbd with keys, on a database and a key prefix of its own.
pub(crate) struct TestApp {
    pub(crate) address: SocketAddr,
    pub(crate) admin_address: Option<SocketAddr>,
    pub(crate) env: TestEnv,
    pub(crate) client: Client,
    pub(crate) jobs: Jobs,
    pub(crate) token: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Status, the headers that matter and the body, for snapshots.
    pub(crate) fn shown(&self) -> Value {
        let mut headers = serde_json::Map::new();
        for name in [
            "content-type",
            "cache-control",
            "allow",
            "retry-after",
            "www-authenticate",
            "x-request-id",
        ] {
            if let Some(value) = self.headers.get(name) {
                headers.insert(name.to_owned(), value.to_str().unwrap().into());
            }
        }
        json!({ "status": self.status, "headers": headers, "body": self.json() })
    }
}

/// Settings of a test: a slice that no test outlives, so that only the test itself flushes.
pub(crate) fn settings(env: &TestEnv) -> Settings {
    Settings {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        redis_url: Some(Secret::new(&env.redis_url)),
        database_url: Some(Secret::new(&env.database_url)),
        key_prefix: env.key_prefix.clone(),
        service_key: Some(Secret::new(SERVICE_KEY)),
        admin_token: Some(Secret::new(ADMIN_TOKEN)),
        slice_seconds: 3600,
        database_connections_max: 4,
        ..Settings::default()
    }
}

impl TestApp {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    /// With other settings than usual.
    pub(crate) async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::on(servers::env().await, change).await
    }

    /// On an environment that was there before: a restart, or a second process.
    pub(crate) async fn on(env: TestEnv, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = settings(&env);
        change(&mut settings);
        let app = App::build(settings).await.expect("the app builds");
        let token = CancellationToken::new();
        Self {
            address: app.address(),
            admin_address: app.admin_address(),
            env,
            client: Client::builder().no_proxy().build().unwrap(),
            jobs: app.jobs().clone(),
            running: tokio::spawn(app.run_until_stopped(token.clone())),
            token,
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.address);
        self.client
            .request(method, url)
            .header("X-Request-Id", REQUEST_ID)
    }

    /// By a caller that may name users.
    pub(crate) fn trusted(&self, method: Method, path: &str) -> RequestBuilder {
        self.request(method, path).bearer_auth(SERVICE_KEY)
    }

    pub(crate) async fn like(&self, user: &str, target: &str) -> Answer {
        self.one(Method::PUT, user, target).await
    }

    pub(crate) async fn unlike(&self, user: &str, target: &str) -> Answer {
        self.one(Method::DELETE, user, target).await
    }

    pub(crate) async fn get(&self, user: &str, target: &str) -> Answer {
        self.one(Method::GET, user, target).await
    }

    /// `target` is `kind/id`, as it stands in the path.
    async fn one(&self, method: Method, user: &str, target: &str) -> Answer {
        let path = format!("/v1/likes/{target}");
        send(self.trusted(method, &path).header("X-User-Id", user)).await
    }

    pub(crate) async fn batch(&self, operations: Value) -> Answer {
        let body = json!({ "operations": operations });
        send(self.trusted(Method::POST, "/v1/batch").json(&body)).await
    }

    pub(crate) async fn lookup(&self, user: Option<&str>, targets: Value) -> Answer {
        let mut request = self.trusted(Method::POST, "/v1/lookup");
        if let Some(user) = user {
            request = request.header("X-User-Id", user);
        }
        send(request.json(&json!({ "targets": targets }))).await
    }

    pub(crate) async fn admin(&self, method: Method, path: &str) -> Answer {
        send(self.request(method, path).bearer_auth(ADMIN_TOKEN)).await
    }

    pub(crate) async fn flush_now(&self) -> FlushReport {
        self.jobs.flush_now().await.expect("a flush ends well")
    }

    /// Stops it as a signal would, and gives back where it worked.
    pub(crate) async fn finish(self) -> TestEnv {
        self.token.cancel();
        let result = self.running.await.expect("the app does not panic");
        result.expect("the app ends well");
        self.env
    }
}

pub(crate) async fn send(request: RequestBuilder) -> Answer {
    let response = request.send().await.expect("an answer");
    Answer {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        text: response.text().await.expect("a whole body"),
    }
}
