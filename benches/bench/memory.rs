//! What likes take: bytes of Redis beside the two plain hashes of the bare script, and bytes of the database beside a bare table.

use anyhow::{Context, bail};
use redis::Connection;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection};
use tokio::runtime::Runtime;

use crate::{
    limits::USERS,
    options::Options,
    pairs::{Pair, everyone, pair},
    stage::{Stage, redis_in},
    table::{Row, Table},
    yardsticks::bare_like,
};

/// Likes behind the first of each user; then a user has 50.
const LIKES: u64 = USERS * 49;
/// An hour, so that all of them stand in one slice.
const SLICE_SECONDS: u64 = 3600;
const HASHES: &str = "plain hashes";
/// Commands of one pipeline.
const PIPELINE: usize = 1000;
/// The table of the source design: a number for each row, and each pair once.
const BARE_TABLE: &str = "CREATE DATABASE bench_bare CHARACTER SET utf8mb4; \
    CREATE TABLE bench_bare.thumb ( \
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, user_id BIGINT NOT NULL, target_id BIGINT NOT NULL, \
        created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE KEY pair (user_id, target_id) \
    ) ENGINE = InnoDB; \
    INSERT INTO bench_bare.thumb (user_id, target_id) \
        SELECT user_id, target_id FROM thumb ORDER BY version";

pub(crate) fn measure(
    options: &Options,
    runtime: &Runtime,
    table: &mut Table,
) -> anyhow::Result<()> {
    let mut stage = Stage::set(options, runtime, SLICE_SECONDS)?;
    let mut ours = connect(&stage.redis.url())?;
    let plain = redis_in(&stage.dir, "plain")?;
    let mut plain = connect(&plain.url())?;
    let first = Sizes::of(&mut ours, ":user:")?;
    if first.keys != USERS {
        bail!("{} users are resident, not {USERS}", first.keys);
    }
    fill_plain(&mut plain, (0..USERS).map(everyone))?;
    let first_plain = Sizes::of(&mut plain, "bare:user:")?;

    let new = stage.fill(LIKES)?;
    fill_plain(&mut plain, (0..LIKES).map(pair))?;
    let (slices, slices_plain) = (
        Sizes::of(&mut ours, ":slice:")?,
        Sizes::of(&mut plain, "bare:slice:")?,
    );
    let dirty = Sizes::of(&mut ours, ":user:")?;
    stage.drain(runtime)?;
    let clean = Sizes::of(&mut ours, ":user:")?;
    let clean_plain = Sizes::of(&mut plain, "bare:user:")?;
    let counts = Sizes::of(&mut ours, ":count:")?;

    let mut add = |what: String, ours: f64, theirs: f64| {
        let mut row = Row {
            what,
            beside: HASHES,
            once: true,
            ..Row::default()
        };
        row.round(ours, theirs);
        table.add(row);
    };
    let users = USERS as f64;
    add(
        "bytes of Redis per resident user with one like".into(),
        first.bytes as f64 / users,
        first_plain.bytes as f64 / users,
    );
    let likes = (new + USERS) as f64 / users;
    add(
        format!("bytes of Redis per resident user with {likes:.1} likes"),
        clean.bytes as f64 / users,
        clean_plain.bytes as f64 / users,
    );
    // The likes of the warm-up stand in its one hash, too.
    add(
        "bytes of Redis per like in a slice".into(),
        slices.bytes as f64 / new as f64,
        slices_plain.bytes as f64 / (new + USERS) as f64,
    );
    add(
        "bytes of Redis per resident user more while their likes wait".into(),
        dirty.bytes as f64 / users - clean.bytes as f64 / users,
        f64::NAN,
    );
    add(
        "bytes of Redis per resident count".into(),
        counts.bytes as f64 / counts.keys as f64,
        f64::NAN,
    );
    let (ours, theirs) = runtime.block_on(disk(&stage.sql.url()))?;
    let mut row = Row {
        what: "bytes of the database per like".into(),
        beside: "bare table",
        once: true,
        ..Row::default()
    };
    row.round(ours, theirs);
    table.add(row);
    Ok(())
}

/// What the keys of one sort take.
#[derive(Debug, Default)]
struct Sizes {
    keys: u64,
    bytes: u64,
}

impl Sizes {
    /// Of all keys with this in their name, every field looked at.
    fn of(redis: &mut Connection, part: &str) -> anyhow::Result<Self> {
        let keys: Vec<String> = redis::cmd("KEYS").arg(format!("*{part}*")).query(redis)?;
        let mut sizes = Self::default();
        for keys in keys.chunks(PIPELINE) {
            let mut pipeline = redis::pipe();
            for key in keys {
                pipeline
                    .cmd("MEMORY")
                    .arg("USAGE")
                    .arg(key)
                    .arg("SAMPLES")
                    .arg(0);
            }
            let bytes: Vec<u64> = pipeline.query(redis)?;
            sizes.add(&Self {
                keys: keys.len() as u64,
                bytes: bytes.iter().sum(),
            });
        }
        Ok(sizes)
    }

    fn add(&mut self, more: &Self) {
        self.keys += more.keys;
        self.bytes += more.bytes;
    }
}

fn connect(url: &str) -> anyhow::Result<Connection> {
    let client = redis::Client::open(url)?;
    client.get_connection().context("connect to Redis")
}

/// What the bare script leaves behind, with a single slice.
fn fill_plain(redis: &mut Connection, pairs: impl Iterator<Item = Pair>) -> anyhow::Result<()> {
    let pairs: Vec<Pair> = pairs.collect();
    for pairs in pairs.chunks(PIPELINE) {
        let mut pipeline = redis::pipe();
        for Pair { user, target } in pairs {
            let target = format!("blog:{target}");
            let [slice, user, pair, target] = bare_like(0, &user.to_string(), &target);
            pipeline.hset(slice, pair, 1).ignore();
            pipeline.hset(user, target, 1).ignore();
        }
        pipeline.query::<()>(redis)?;
    }
    Ok(())
}

/// Bytes per row of thumbd's tables with all their indexes, and of the bare table, both filled in the order of time.
async fn disk(url: &str) -> anyhow::Result<(f64, f64)> {
    let mut sql = MySqlConnection::connect(url).await?;
    sqlx::raw_sql(BARE_TABLE).execute(&mut sql).await?;
    let rows: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM thumb")
        .fetch_one(&mut sql)
        .await?;
    let tables = "ANALYZE TABLE thumb, thumb_count, thumb_count_part, bench_bare.thumb";
    sqlx::raw_sql(tables).execute(&mut sql).await?;
    let mut bytes = Vec::new();
    for of in [
        "table_schema = DATABASE() AND table_name IN ('thumb', 'thumb_count', 'thumb_count_part')",
        "table_schema = 'bench_bare'",
    ] {
        let text = format!(
            "SELECT CAST(SUM(data_length + index_length) AS SIGNED) FROM information_schema.tables WHERE {of}"
        );
        let sum: i64 = sqlx::query_scalar(AssertSqlSafe(text))
            .fetch_one(&mut sql)
            .await?;
        bytes.push(sum as f64 / rows as f64);
    }
    Ok((bytes[0], bytes[1]))
}
