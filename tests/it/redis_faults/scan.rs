//! HSCAN that leaves fields out is noticed, because the fields are counted, and the slice is read again.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use thumbd::domain::SliceId;
use thumbd::hot::Hot;
use thumbd::steps::{Gate, gated};
use tokio::sync::Mutex as AsyncMutex;

use super::{Own, PATIENCE, POLL, agree, fill_slice, healed};
use crate::chaos::Proxy;
use crate::stand::command;

/// Does something between the first page and the second one, and counts pages.
struct AfterFirstPage {
    pages: Mutex<u64>,
    act: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl AfterFirstPage {
    fn new(act: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            pages: Mutex::default(),
            act: Box::new(act),
        })
    }

    fn pages(&self) -> u64 {
        *self.pages.lock().unwrap()
    }
}

impl Gate for AfterFirstPage {
    fn pass(&self, point: &'static str) -> BoxFuture<'static, ()> {
        if point != "flush.page" {
            return async {}.boxed();
        }
        let mut pages = self.pages.lock().unwrap();
        *pages += 1;
        if *pages == 1 {
            (self.act)()
        } else {
            async {}.boxed()
        }
    }
}

async fn reached(hot: Hot) {
    let begun = std::time::Instant::now();
    while hot.peek(0).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "redis is not reached");
        tokio::time::sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_is_read_again_when_redis_restarts_between_two_pages() {
    const ENTRIES: u64 = 20_000;
    let own = Own::start(|options| options.aof = true);
    let mut t = own.stand(|_| {}).await;
    fill_slice(&t, ENTRIES).await;
    let (own, hot) = (Arc::new(AsyncMutex::new(own)), t.hot.clone());
    let restarted = own.clone();
    let gate = AfterFirstPage::new(move || {
        let (own, hot) = (restarted.clone(), hot.clone());
        async move {
            let mut own = own.lock_owned().await;
            // Its hashes have another order afterwards, and the cursor means nothing.
            let restart = tokio::task::spawn_blocking(move || {
                own.server.kill().unwrap();
                own.server.restart().unwrap();
            });
            restart.await.unwrap();
            reached(hot).await;
        }
        .boxed()
    });
    let report = gated(gate.clone(), t.flush()).await;
    assert_eq!(report.entries, ENTRIES);
    // A page has about 1000 fields: it was read once and a part.
    assert!(gate.pages() > 23, "{} pages", gate.pages());
    assert_eq!(
        t.number("SELECT COUNT(*) FROM thumb WHERE thumbed = 1")
            .await,
        ENTRIES as i64
    );
    healed(&mut t).await;
    agree(&t, &["u0", "u19999"], &["blog:0", "blog:19"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_come_behind_the_cursor_are_noticed() {
    let own = Own::start(|_| {});
    let t = own.stand(|_| {}).await;
    fill_slice(&t, 5000).await;
    let live = t.peek(0).await.live[0];
    let (redis, slice) = (t.redis.clone(), t.key(0, &format!("slice:{live}")));
    let version = live.0 * 1000 + 1;
    // What a server left out that HSCAN should have given: here by hand, on both sides of the cursor.
    let gate = AfterFirstPage::new(move || {
        let mut words = vec!["HSET".to_owned(), slice.clone()];
        for n in 0..3000 {
            words.extend([format!("late{n} blog:77"), version.to_string()]);
        }
        let redis = redis.clone();
        async move { command(&redis, &words).await }.boxed()
    });
    let report = gated(gate.clone(), t.flush()).await;
    assert_eq!(report.entries, 8000);
    agree(&t, &["u0", "late0", "late2999"], &["blog:0", "blog:77"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_without_one_of_its_fields_is_noticed() {
    let own = Own::start(|_| {});
    let proxy = Proxy::before_url(&own.server.url()).await;
    let t = super::stand_on(&proxy.redis_url(), |_| {}).await;
    for n in 0..50 {
        t.like(&format!("u{n}"), "blog:1").await.unwrap();
    }
    // One field comes in the place of another: 50 of them, 49 distinct.
    proxy.rewrite("u17 blog:1", "u18 blog:1");
    let error = t.try_flush().await.unwrap_err();
    let incomplete = thumbd::flush::FlushError::Incomplete {
        partition: 0,
        slice: SliceId(t.peek(0).await.live[0].0),
    };
    assert_eq!(error.to_string(), incomplete.to_string());
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 0);
    proxy.heal();
    assert_eq!(t.flush().await.entries, 50);
    agree(&t, &["u17", "u18"], &["blog:1"]).await;
}
