//! A site with tables of its own moves in while its users go on liking: both are written, the old likes are imported, counts are
//! compared, and thumbd takes over and keeps the site's column.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use sqlx::{AssertSqlSafe, Row};
use thumbd::config::{KindSettings, Kinds, Mirror, Settings};
use thumbd::domain::Kind;
use tokio::sync::RwLock;

use super::import::insist;
use super::{file, path};
use crate::servers;
use crate::stand::{Stand, settings};

const WORKERS: u64 = 4;
const BLOGS: u64 = 500;
/// Likes of each user at the start.
const EACH: u64 = 10;

/// Who writes what.
struct Site {
    /// Behind the cut-over it is another one, which keeps the site's column.
    thumbd: RwLock<Stand>,
    /// Until then the site's own tables are written too.
    dual: AtomicBool,
    over: AtomicBool,
    users: u64,
}

type Pair = (u64, u64);

fn at_the_start(users: u64) -> impl Iterator<Item = Pair> {
    (0..users).flat_map(|user| (0..EACH).map(move |n| (user, (user * 7 + n * 13) % BLOGS)))
}

impl Site {
    async fn open(likes: u64) -> Self {
        let t = Stand::on(Settings {
            keep_unlikes: true,
            flush_rows_max: if likes > 100_000 { 20_000 } else { 1000 },
            slice_seconds: 3600,
            ..settings(2).await
        })
        .await;
        t.script(
            "CREATE TABLE blog (id INT PRIMARY KEY, likes INT NOT NULL DEFAULT 0) ENGINE = InnoDB; \
             CREATE TABLE blog_like (user_id INT, blog_id INT, created_at DATETIME NOT NULL, PRIMARY KEY (user_id, blog_id)) ENGINE = InnoDB",
        )
        .await;
        let users = likes / EACH;
        let pairs: Vec<Pair> = at_the_start(users).collect();
        for pairs in pairs.chunks(5000) {
            let rows: Vec<String> = pairs
                .iter()
                .map(|(user, blog)| format!("({user}, {blog}, '2021-02-03 04:05:06')"))
                .collect();
            t.sql(&format!("INSERT INTO blog_like VALUES {}", rows.join(",")))
                .await;
        }
        let ids: Vec<String> = (0..BLOGS).map(|id| format!("({id})")).collect();
        t.sql(&format!("INSERT INTO blog (id) VALUES {}", ids.join(",")))
            .await;
        t.sql("UPDATE blog SET likes = (SELECT COUNT(*) FROM blog_like WHERE blog_id = blog.id)")
            .await;
        Self {
            thumbd: RwLock::new(t),
            dual: AtomicBool::new(true),
            over: AtomicBool::new(false),
            users,
        }
    }

    /// Some users, one operation after the other: their own table first. Gives what they like in the end.
    async fn work(&self, worker: u64) -> BTreeSet<Pair> {
        let mut rng = StdRng::seed_from_u64(worker);
        let own = |pair: &Pair| pair.0 % WORKERS == worker;
        let mut liked: BTreeSet<Pair> = at_the_start(self.users).filter(own).collect();
        while !self.over.load(Ordering::SeqCst) {
            let user = rng.random_range(0..self.users / WORKERS) * WORKERS + worker;
            let old = (user * 7 + rng.random_range(0..EACH) * 13) % BLOGS;
            let pair = (
                user,
                if rng.random_bool(0.7) {
                    old
                } else {
                    rng.random_range(0..BLOGS)
                },
            );
            let like = !liked.contains(&pair);
            let t = self.thumbd.read().await;
            if self.dual.load(Ordering::SeqCst) {
                self.own_tables(&t, pair, like).await;
            }
            insist(&t, &format!("{user}"), &format!("blog:{}", pair.1), like).await;
            if like {
                liked.insert(pair);
            } else {
                liked.remove(&pair);
            }
        }
        liked
    }

    async fn own_tables(&self, t: &Stand, (user, blog): Pair, like: bool) {
        let (row, step) = if like {
            (
                format!("INSERT INTO blog_like VALUES ({user}, {blog}, UTC_TIMESTAMP())"),
                1,
            )
        } else {
            (
                format!("DELETE FROM blog_like WHERE user_id = {user} AND blog_id = {blog}"),
                -1,
            )
        };
        let count = format!("UPDATE blog SET likes = likes + {step} WHERE id = {blog}");
        let mut transaction = t.pool.begin().await.unwrap();
        for text in [row, count] {
            let query = sqlx::query(AssertSqlSafe(text)).persistent(false);
            query.execute(&mut *transaction).await.unwrap();
        }
        transaction.commit().await.unwrap();
    }

    async fn dump(&self) -> String {
        let all = "SELECT CAST(user_id AS SIGNED), CAST(blog_id AS SIGNED), \
             CAST(TIMESTAMPDIFF(SECOND, '1970-01-01', created_at) AS SIGNED) FROM blog_like";
        let pool = self.thumbd.read().await.pool.clone();
        let mut text = String::from("user,target,time\n");
        for row in sqlx::query(all).fetch_all(&pool).await.unwrap() {
            let number = |at: usize| row.try_get::<i64, _>(at).unwrap();
            writeln!(text, "{},{},{}", number(0), number(1), number(2)).unwrap();
        }
        text
    }

    /// The steps of docs/moving-in.md.
    async fn move_in(&self) {
        let words = [
            "--table",
            "blog",
            "--id-column",
            "id",
            "--count-column",
            "likes",
        ];
        let words = [&["compare", "--kind", "blog"], &words[..]].concat();
        let dump = self.dump().await;
        let csv = file(&dump);
        let (code, text) = {
            let t = self.thumbd.read().await;
            t.program(&["import", path(&csv), "--kind", "blog"]).await
        };
        assert_eq!(code, Some(0), "{text}");
        // Nobody writes while this is held.
        let mut t = self.thumbd.write().await;
        t.flush().await;
        let (code, text) = t.program(&words).await;
        assert_eq!(code, Some(0), "{text}");
        let mirror = Mirror::parse("blog", "id", "likes").unwrap();
        let mirror = KindSettings {
            mirror: Some(mirror),
            ..KindSettings::default()
        };
        let kinds = Kinds::with([(Kind::parse("blog").unwrap(), mirror)]);
        let cut_over = Settings {
            kinds,
            keep_unlikes: false,
            ..t.settings.clone()
        };
        *t = Stand::on(cut_over).await;
        self.dual.store(false, Ordering::SeqCst);
        drop(t);
        for _ in 0..3 {
            self.thumbd.read().await.flush().await;
        }
        self.over.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_moves_in() {
    let likes = if servers::slow() { 1_000_000 } else { 20_000 };
    let site = Site::open(likes).await;
    let workers = join_all((0..WORKERS).map(|worker| site.work(worker)));
    let (liked, ()) = tokio::join!(workers, site.move_in());
    let liked: BTreeSet<Pair> = liked.into_iter().flatten().collect();
    let t = site.thumbd.into_inner();
    t.flush().await;
    let (code, text) = t.program(&["compare", "--kind", "blog"]).await;
    assert_eq!(
        (code, &*text),
        (Some(0), "0 differences in 500 rows of the site\n")
    );
    let (code, csv) = t.program(&["export", "--kind", "blog"]).await;
    assert_eq!(code, Some(0));
    let exported: BTreeSet<Pair> = csv
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut fields = line.split(',');
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        })
        .collect();
    assert!(
        exported == liked,
        "{} exported, {} liked",
        exported.len(),
        liked.len()
    );
    t.check().await;
}
