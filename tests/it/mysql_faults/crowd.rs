//! Others have taken all connections: error 1040.

use sqlx::{Connection as _, MySqlConnection};

use super::{Own, Scene, as_user};
use crate::redis_faults::until;

#[tokio::test(flavor = "multi_thread")]
async fn out_of_connections_is_named_and_ends_when_the_others_go() {
    let own = Own::start(&[]);
    let env = as_user(&own.env().await).await;
    let mut scene = Scene::begin(env.clone()).await;
    let mut root = own.root().await;
    root.run("SET GLOBAL max_connections = 10").await;
    let mut crowd = Vec::new();
    // thumbd's connections make room for the crowd, until it cannot come back. One more is the administrator's.
    until("the crowd has them all", async || {
        let database_less = env
            .database_url
            .replacen("/thumbd", "/information_schema", 1);
        loop {
            match MySqlConnection::connect(&database_less).await {
                Ok(one) => crowd.push(one),
                Err(error) => {
                    assert!(error.to_string().contains("1040"), "{error}");
                    break;
                }
            }
        }
        let gone = root.others().await.is_empty();
        root.kill_others().await;
        gone
    })
    .await;
    scene.fails("Too many connections").await;
    scene.goes_on().await;
    scene.cold_is_refused().await;
    drop(crowd);
    scene.agrees().await;
}
