//! The servers that thumbd is compared with: the same axum with a route that does nothing, and with the like script of the source design.

use std::{
    future::Future,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::put,
};
use redis::{Client, Script, aio::MultiplexedConnection};
use serde::Serialize;
use tokio::net::TcpListener;

use crate::{
    limits::SLICE_SECONDS,
    window::{exit_when_let_go, say},
};

/// KEYS: the slice, the user. ARGV: user and target, target. Answers 1, or -1 if the user likes the target already.
/// Four commands, each with its guarantee missing: no versions, no seal, no count, no return to the database.
const BARE: &str = r"
if redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then
    return -1
end
local old = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
redis.call('HSET', KEYS[1], ARGV[1], old + 1)
redis.call('HSET', KEYS[2], ARGV[2], 1)
return 1
";

const ROUTE: &str = "/v1/likes/{kind}/{id}";

pub(crate) fn bare_script() -> Script {
    Script::new(BARE)
}

/// The bare script's keys and arguments for a like.
pub(crate) fn bare_like(slice: u64, user: &str, target: &str) -> [String; 4] {
    [
        format!("bare:slice:{slice}"),
        format!("bare:user:{user}"),
        format!("{user}:{target}"),
        target.to_owned(),
    ]
}

/// The window that this machine's clock shows, as in the source design.
pub(crate) fn bare_slice() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs() / SLICE_SECONDS * SLICE_SECONDS
}

/// The worker that answers "ok".
pub(crate) fn noop() -> anyhow::Result<()> {
    serve(async { Ok(Router::new().route(ROUTE, put(|| async { "ok" }))) })
}

/// The worker that runs the bare script once per request.
pub(crate) fn bare(redis_url: &str) -> anyhow::Result<()> {
    let client = Client::open(redis_url)?;
    serve(async move {
        let redis = client.get_multiplexed_async_connection().await?;
        let script = bare_script();
        script.load_async(&mut redis.clone()).await?;
        let state = Bare {
            redis,
            hash: script.get_hash().to_owned(),
        };
        Ok(Router::new().route(ROUTE, put(like)).with_state(state))
    })
}

#[derive(Clone)]
struct Bare {
    redis: MultiplexedConnection,
    hash: String,
}

#[derive(Serialize)]
struct Liked {
    kind: String,
    id: String,
    liked: bool,
    changed: bool,
}

async fn like(
    State(bare): State<Bare>,
    Path((kind, id)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<Liked>, StatusCode> {
    let user = headers
        .get("x-user-id")
        .and_then(|user| user.to_str().ok())
        .ok_or(StatusCode::BAD_REQUEST)?;
    let [slice, user_key, field, target] = bare_like(bare_slice(), user, &format!("{kind}:{id}"));
    let mut redis = bare.redis.clone();
    let answer: i64 = redis::cmd("EVALSHA")
        .arg(&bare.hash)
        .arg(2)
        .arg(slice)
        .arg(user_key)
        .arg(field)
        .arg(target)
        .query_async(&mut redis)
        .await
        .map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(Json(Liked {
        kind,
        id,
        liked: true,
        changed: answer == 1,
    }))
}

fn serve(router: impl Future<Output = anyhow::Result<Router>>) -> anyhow::Result<()> {
    exit_when_let_go();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let router = router.await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        say(&listener.local_addr()?.to_string());
        Ok(axum::serve(listener, router).await?)
    })
}
