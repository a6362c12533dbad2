//! Secrets of a whole thumbd that logs all it can: none of them, and no wrong one, is in what it says.

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use thumbd::dev::{RedisOptions, RedisServer};

use crate::app::{ADMIN_TOKEN, SERVICE_KEY, send};
use crate::chaos::Proxy;
use crate::http::rights::{SECRET, token};
use crate::serve::{Serve, until};
use crate::servers::{self, TestEnv};
use crate::stand;
use crate::starting::{PASSWORD, Stores, as_user, raw_redis};

const REDIS_PASSWORD: &str = "pw-Redis-9";
/// What somebody sends who only nearly knows a key.
const GUESSED: &str = "service-kez-4711";

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_in_logs_answers_or_metrics_whatever_happens() {
    let stores = Stores::over_tcp().await;
    let (env, name, sql) = as_user(&stores, PASSWORD).await;
    let grant = format!("GRANT ALL ON {name}.* TO {name}@localhost");
    stores.run(&grant).await;
    let directory = tempfile::tempdir().unwrap();
    let options = RedisOptions {
        aof: false,
        ..servers::redis_options(directory.path())
    };
    let server = RedisServer::start(options).unwrap();
    let require = ["CONFIG", "SET", "requirepass", REDIS_PASSWORD];
    let _: String = stand::command(&raw_redis(&server.url()).await, &require).await;
    let redis = Proxy::before_url(&server.url()).await;
    let env = TestEnv {
        redis_url: redis
            .redis_url()
            .replace("://", &format!("://:{REDIS_PASSWORD}@")),
        ..env
    };
    let serve = Serve::start(
        &env,
        &[
            ("THUMBD_LOG", "trace"),
            ("THUMBD_SLICE_SECONDS", "3600"),
            ("THUMBD_JWT_SECRET", SECRET),
            ("THUMBD_FEED", "stream"),
            ("THUMBD_DATABASE_ACQUIRE_TIMEOUT_MS", "500"),
        ],
    )
    .await;
    let (right, expired) = (token("u1", 600), token("u1", -600));
    let mut said = String::new();
    let mut ask = async |method: Method, path: &str, bearer: &str| {
        let url = format!("{}{path}", serve.url);
        let request: RequestBuilder = serve.client.request(method, url).bearer_auth(bearer);
        let answer = send(request.header("X-User-Id", "u1")).await;
        said += &format!("{answer:?}\n");
        answer.status
    };
    let bearers = [SERVICE_KEY, ADMIN_TOKEN, &right, &expired, GUESSED];
    let mut statuses = Vec::new();
    for bearer in bearers {
        statuses.push(ask(Method::PUT, "/v1/likes/blog/1", bearer).await);
        statuses.push(ask(Method::POST, "/admin/v1/flushes", bearer).await);
    }
    assert_eq!(statuses[..2], [200, 403], "{statuses:?}");
    assert_eq!(statuses[3..5], [200, 200], "{statuses:?}");
    assert_eq!(statuses[6..], [401; 4], "{statuses:?}");
    for proxy in [&sql, &redis] {
        proxy.refuse(true);
        proxy.cut();
        let status = ask(Method::POST, "/admin/v1/flushes", ADMIN_TOKEN).await;
        assert_eq!(status, 503);
        let status = ask(Method::PUT, "/v1/likes/blog/cold", SERVICE_KEY).await;
        assert!(status == 200 || status == 503, "{status}");
        // The relay of the feed comes by in its own time, and warns.
        serve.said("WARN").await;
        proxy.heal();
        until("all is well again", async || {
            tokio::time::sleep(Duration::from_millis(100)).await;
            ask(Method::POST, "/admin/v1/flushes", ADMIN_TOKEN).await == 200
        })
        .await;
    }
    for path in ["/metrics", "/openapi.json", "/healthz", "/admin/v1/slices"] {
        assert_eq!(ask(Method::GET, path, ADMIN_TOKEN).await, 200, "{path}");
    }
    let lines = serve.lines();
    // All of it is there, from the first line on, and it says more than it usually does.
    assert!(lines.len() < 100_000);
    for level in ["DEBUG", "WARN", "ERROR"] {
        assert!(lines.iter().any(|line| line.contains(level)), "{level}");
    }
    let said = said + &lines.join("\n");
    let signature = right.rsplit('.').next().unwrap();
    let secrets = [
        PASSWORD,
        REDIS_PASSWORD,
        SERVICE_KEY,
        ADMIN_TOKEN,
        SECRET,
        GUESSED,
        signature,
    ];
    for secret in secrets {
        let line = said.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret}");
    }
    serve.stop();
}
