//! A right that is missing, and a table that is full: nobody's entry is to blame, so nothing goes to quarantine.

use reqwest::Method;

use super::{Direct, Own, RIGHTS, Scene, as_user};
use crate::app::send;
use crate::servers::env;

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named_and_all_lands_when_it_is_granted() {
    let root_env = env().await;
    let mut scene = Scene::begin(as_user(&root_env).await).await;
    let mut root = Direct::to(&root_env.database_url).await;
    root.revoke("INSERT", &root_env).await;
    // What a session may do in its database is decided when it comes.
    root.kill_others().await;
    scene.goes_on().await;
    scene.fails("INSERT command denied").await;
    scene.cold_is_served().await;
    scene.goes_on().await;
    // Connections made in between do not know of it.
    root.grant(RIGHTS, &root_env).await;
    scene.agrees().await;
}

/// Many connections are older than the grant. One more run may fail with one of those that were made since the last failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_granted_is_found_whatever_connections_there_are() {
    let root_env = env().await;
    let mut scene = Scene::begin(as_user(&root_env).await).await;
    let mut root = Direct::to(&root_env.database_url).await;
    root.revoke("CREATE TEMPORARY TABLES", &root_env).await;
    root.kill_others().await;
    let ranking = || send(scene.app.request(Method::GET, "/v1/rankings/blog"));
    for answer in futures_util::future::join_all((0..8).map(|_| ranking())).await {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert!(root.others().await.len() >= 4, "too few connections");
    scene.goes_on().await;
    scene.fails("thumbd lacks a right in MySQL").await;
    root.grant(RIGHTS, &root_env).await;
    let mut statuses = Vec::new();
    while statuses.last() != Some(&200) && statuses.len() < 2 {
        let flushed = scene.app.admin(Method::POST, "/admin/v1/flushes").await;
        statuses.push(flushed.status);
    }
    assert_eq!(statuses.last(), Some(&200), "{statuses:?}");
    scene.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_table_is_named_and_all_lands_when_there_is_room() {
    let own = Own::start(&[]);
    let mut scene = Scene::begin(own.env().await).await;
    let mut root = own.root().await;
    root.run("SET GLOBAL max_heap_table_size = 16384").await;
    root.kill_others().await;
    scene.many_like().await;
    scene.fails("'thumb_stage' is full").await;
    scene.goes_on().await;
    root.run("SET GLOBAL max_heap_table_size = 16777216").await;
    scene.agrees().await;
}
