//! A server that takes no writes for a while, or for ever because another one has become the primary.

use reqwest::Method;

use super::{Own, Scene, as_user};
use crate::app::send;
use crate::chaos::{Proxy, Upstream};
use crate::servers::TestEnv;

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_database_is_named_and_all_lands_when_it_takes_writes() {
    let own = Own::start(&[]);
    let mut scene = Scene::begin(as_user(&own.env().await).await).await;
    let mut root = own.root().await;
    let setting = if own.server.is_mariadb() {
        "read_only"
    } else {
        "super_read_only"
    };
    root.run(&format!("SET GLOBAL {setting} = 1")).await;
    scene.goes_on().await;
    scene.fails("read-only").await;
    scene.cold_is_served().await;
    scene.goes_on().await;
    root.run("SET GLOBAL read_only = 0").await;
    scene.agrees().await;
}

/// A failover as a name or a load balancer does it: new connections go to the new primary, and nobody closes the old ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_primary_is_left_for_the_new_one() {
    let mut old = Own::start(&[]);
    let env = as_user(&old.env().await).await;
    let proxy = Proxy::before_url(&env.database_url).await;
    let user = format!("://{}@", env.key_prefix);
    let url = proxy.database_url(&env.database_url);
    let behind = TestEnv {
        database_url: url.replacen("://root@", &user, 1),
        ..env.clone()
    };
    // The replica has everything, as of now.
    let begun = Scene::behind(behind.clone(), env.clone()).await;
    begun.app.finish().await;
    old.server.stop().unwrap();
    let new = old.copy();
    old.server.restart().unwrap();
    let direct = TestEnv {
        database_url: env
            .database_url
            .replacen(&*url_path(&old), &url_path(&new), 1),
        ..env
    };
    let mut scene = Scene::again(behind, direct, begun.told).await;
    // Several connections to the old one, all of which look well.
    let ranking = || send(scene.app.request(Method::GET, "/v1/rankings/blog"));
    for answer in futures_util::future::join_all((0..8).map(|_| ranking())).await {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    old.root().await.run("SET GLOBAL read_only = 1").await;
    proxy.retarget(Upstream::of(&new.server.url()));
    scene.goes_on().await;
    // A new kind is written outside of the transaction.
    assert_eq!(scene.app.like("u0", "video/1").await.status, 200);
    scene.agrees().await;
}

/// Where a server's socket is, as it stands in URLs.
fn url_path(own: &Own) -> String {
    own.server.url().split_once("socket=").unwrap().1.to_owned()
}
