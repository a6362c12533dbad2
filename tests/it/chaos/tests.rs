//! Each mode of the proxy once.

use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};
use sqlx::{Connection as _, MySqlConnection, Row as _};

use super::{Act, PATIENCE, Proxy, Then, Upstream, Way, script};
use crate::servers;

/// Long enough to show that an answer does not come, short enough to wait for.
const SILENCE: Duration = Duration::from_millis(300);

async fn connect(proxy: &Proxy, wait: Duration) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(wait))
        .set_response_timeout(Some(wait));
    let client = Client::open(proxy.redis_url())?;
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

async fn ask(connection: &mut MultiplexedConnection, words: &[&str]) -> RedisResult<String> {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]).query_async(connection).await
}

async fn ping(connection: &mut MultiplexedConnection) -> RedisResult<String> {
    ask(connection, &["PING"]).await
}

/// A proxy before the shared Redis, and a key of this test's own.
async fn proxy() -> (Proxy, String) {
    let env = servers::env().await;
    (Proxy::before_url(&env.redis_url).await, env.key_prefix)
}

async fn value(key: &str) -> Option<String> {
    let (direct, _) = proxy().await;
    let mut connection = connect(&direct, PATIENCE).await.unwrap();
    let mut get = redis::cmd("GET");
    get.arg(key).query_async(&mut connection).await.unwrap()
}

#[tokio::test]
async fn a_cut_ends_connections_and_refusal_lets_no_new_one_in() {
    let (proxy, _) = proxy().await;
    let mut one = connect(&proxy, PATIENCE).await.unwrap();
    assert_eq!(ping(&mut one).await.unwrap(), "PONG");
    proxy.refuse(true);
    assert_eq!(ping(&mut one).await.unwrap(), "PONG");
    proxy.cut();
    assert!(ping(&mut one).await.is_err());
    assert!(connect(&proxy, PATIENCE).await.is_err());
    proxy.refuse(false);
    let mut two = connect(&proxy, PATIENCE).await.unwrap();
    assert_eq!(ping(&mut two).await.unwrap(), "PONG");
    proxy.made(2).await;
    assert_eq!(proxy.open(), 1);
}

#[tokio::test]
async fn a_delay_holds_up_every_chunk() {
    let (proxy, _) = proxy().await;
    let mut one = connect(&proxy, PATIENCE).await.unwrap();
    proxy.delay(Duration::from_millis(100));
    let begun = Instant::now();
    ping(&mut one).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn one_way_can_be_closed() {
    let (proxy, key) = proxy().await;
    let mut one = connect(&proxy, PATIENCE).await.unwrap();
    ping(&mut one).await.unwrap();
    proxy.half_close(Way::ToClient);
    assert!(ping(&mut one).await.is_err());
    let mut two = connect(&proxy, PATIENCE).await.unwrap();
    ping(&mut two).await.unwrap();
    proxy.half_close(Way::ToServer);
    assert!(ask(&mut two, &["SET", &key, "1"]).await.is_err());
    assert_eq!(value(&key).await, None);
}

#[tokio::test]
async fn a_black_hole_swallows_and_never_answers() {
    let (proxy, key) = proxy().await;
    let mut one = connect(&proxy, SILENCE).await.unwrap();
    proxy.black_hole(true);
    let lost = ask(&mut one, &["SET", &key, "1"]).await.unwrap_err();
    assert!(lost.is_timeout(), "{lost:?}");
    assert!(connect(&proxy, SILENCE).await.is_err());
    assert_eq!(value(&key).await, None);
    proxy.black_hole(false);
    let mut two = connect(&proxy, PATIENCE).await.unwrap();
    assert_eq!(ping(&mut two).await.unwrap(), "PONG");
}

#[tokio::test]
async fn it_points_to_another_server() {
    let (proxy, key) = proxy().await;
    let mut one = connect(&proxy, PATIENCE).await.unwrap();
    ask(&mut one, &["SET", &key, "here"]).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let options = servers::redis_options(directory.path());
    let other = thumbd::dev::RedisServer::start(options).unwrap();
    proxy.retarget(Upstream::of(&other.url()));
    assert_eq!(ask(&mut one, &["GET", &key]).await.unwrap(), "here");
    proxy.cut();
    let mut two = connect(&proxy, PATIENCE).await.unwrap();
    assert_eq!(ask(&mut two, &["EXISTS", &key]).await.unwrap(), "0");
}

#[tokio::test]
async fn a_reply_is_swallowed_and_the_request_arrives() {
    for then in [Then::Cut, Then::Hold] {
        let (proxy, key) = proxy().await;
        let mut one = connect(&proxy, SILENCE).await.unwrap();
        let mut rule = proxy.once(&key, Act::SwallowReply(then));
        assert_eq!(ping(&mut one).await.unwrap(), "PONG");
        assert_eq!(rule.times(), 0);
        let lost = ask(&mut one, &["SET", &key, "1"]).await.unwrap_err();
        assert_eq!(lost.is_timeout(), then == Then::Hold, "{lost:?}");
        rule.wait(1).await;
        assert_eq!(value(&key).await.as_deref(), Some("1"));
        // Only once.
        let mut two = connect(&proxy, PATIENCE).await.unwrap();
        assert_eq!(ask(&mut two, &["GET", &key]).await.unwrap(), "1");
    }
}

#[tokio::test]
async fn a_request_is_cut_off_or_held() {
    let (proxy, key) = proxy().await;
    let mut one = connect(&proxy, PATIENCE).await.unwrap();
    let mut rule = proxy.once(&key, Act::CutBefore);
    assert!(ask(&mut one, &["SET", &key, "1"]).await.is_err());
    rule.wait(1).await;
    assert_eq!(value(&key).await, None);

    let mut two = connect(&proxy, PATIENCE).await.unwrap();
    let mut rule = proxy.once(&key, Act::HoldRequest);
    let words = ["SET", &key, "2"];
    let set = ask(&mut two, &words);
    let look = async {
        rule.wait(1).await;
        assert_eq!(value(&key).await, None);
        rule.release();
    };
    let (set, ()) = tokio::join!(set, look);
    assert_eq!(set.unwrap(), "OK");
    assert_eq!(value(&key).await.as_deref(), Some("2"));
}

#[tokio::test]
async fn patterns_are_counted_across_chunks_and_scripts_found_by_hash() {
    let (proxy, key) = proxy().await;
    let rule = proxy.count(&key);
    let mut stream = tokio::net::TcpStream::connect(proxy.address).await.unwrap();
    let half = key.len() / 2;
    let command = format!("GET {key}\r\nGET {key}\r\n");
    let (start, rest) = command.split_at(4 + half);
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    stream.write_all(start.as_bytes()).await.unwrap();
    // It cannot be seen from here when the first part went through; if both come at once, that is counted too.
    tokio::time::sleep(Duration::from_millis(20)).await;
    stream.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!((&answer, rule.times()), (b"$-1\r\n$-1\r\n", 2));

    let rule = proxy.count(script("thumb"));
    let mut one = connect(&proxy, PATIENCE).await.unwrap();
    let unknown = ask(&mut one, &["EVALSHA", &script("thumb"), "0"]).await;
    assert!(unknown.is_err());
    assert_eq!(rule.times(), 1);
}

#[tokio::test]
async fn bytes_of_a_reply_are_changed() {
    let (proxy, _) = proxy().await;
    let mut one = connect(&proxy, PATIENCE).await.unwrap();
    let info = ask(&mut one, &["INFO", "server"]).await.unwrap();
    let at = info.find("redis_version:").unwrap();
    let version = info[at..].split("\r\n").next().unwrap();
    let old = format!("redis_version:{:0<1$}", "5.", version.len() - 14);
    proxy.rewrite(version, &old);
    let info = ask(&mut one, &["INFO", "server"]).await.unwrap();
    assert!(info.contains(&old), "{info}");
}

#[tokio::test]
async fn a_commit_happens_and_its_answer_is_lost() {
    let env = servers::env().await;
    let (behind, _redis, proxy) = super::before(&env).await;
    let mut direct = MySqlConnection::connect(&env.database_url).await.unwrap();
    sqlx::raw_sql("CREATE TABLE t (n INT)")
        .execute(&mut direct)
        .await
        .unwrap();
    let mut one = MySqlConnection::connect(&behind.database_url)
        .await
        .unwrap();
    let mut transaction = one.begin().await.unwrap();
    sqlx::raw_sql("INSERT INTO t VALUES (1)")
        .execute(&mut *transaction)
        .await
        .unwrap();
    let mut rule = proxy.once("COMMIT", Act::SwallowReply(Then::Cut));
    assert!(transaction.commit().await.is_err());
    rule.wait(1).await;
    let rows = sqlx::query("SELECT COUNT(*) FROM t").fetch_one(&mut direct);
    assert_eq!(rows.await.unwrap().get::<i64, _>(0), 1);
    // A sick proxy is well again.
    proxy.refuse(true);
    assert!(
        MySqlConnection::connect(&behind.database_url)
            .await
            .is_err()
    );
    proxy.heal();
    MySqlConnection::connect(&behind.database_url)
        .await
        .unwrap();
}
