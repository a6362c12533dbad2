//! Starts that must be refused: each names the setting, or the server and what is wrong with it.

use super::{Cluster, shared};
use crate::servers::{TestEnv, env};
use crate::starting::{refused, says};

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_not_what_it_says_is_refused() {
    let cluster = shared().await;
    let one = cluster.url().replace("redis+cluster", "redis");
    let one = one.split(',').next().unwrap().to_owned();
    let started = async |redis_url: String| {
        refused(&TestEnv {
            redis_url,
            ..env().await
        })
        .await
    };
    says(
        &started(one).await,
        &["redis_url", "redis+cluster://", "mode is cluster"],
    );
    let standalone = crate::redis_faults::Own::start(|options| options.tcp = true);
    let address = standalone.server.url();
    let line = started(address.replace("redis://", "redis+cluster://")).await;
    says(&line, &["redis_url", "no cluster"]);
    let line = started(address.replace("redis://", "redis+sentinel://") + "/main").await;
    says(&line, &["no sentinel", "main"]);
    let line = started("redis+cluster://127.0.0.1:1,127.0.0.1:2".to_owned()).await;
    says(&line, &["redis", "cannot be reached"]);
    let line = started(format!("{address},127.0.0.1:2")).await;
    says(&line, &["redis_url", "several servers"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_master_is_looked_at_before_the_start() {
    let cluster = Cluster::start(false, std::time::Duration::from_secs(600)).await;
    let policy = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    cluster.ask::<()>(2, &policy).await;
    let line = refused(&cluster.env().await).await;
    let third = format!("127.0.0.1:{}", cluster.port(2));
    says(&line, &[&third, "allkeys-lru", "noeviction"]);
}
