//! Every statement that answers requests goes by its index, on small tables and on big ones: no sorting, and no row read that is
//! not wanted.

use sqlx::mysql::{MySqlArguments, MySqlConnection};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySql, Row};
use thumbd::ledger::request_statements;

use super::{TestLedger, entry};
use crate::servers;

/// What a place of a statement takes.
#[derive(Debug, Clone)]
enum Arg {
    Number(u64),
    Text(String),
}

fn number(number: u64) -> Arg {
    Arg::Number(number)
}

fn text(text: impl Into<String>) -> Arg {
    Arg::Text(text.into())
}

/// The index of each statement.
fn index(name: &str) -> &'static str {
    match name {
        "users" | "user_likes" => "thumb_by_user",
        "user_kind_likes" => "thumb_by_user_kind",
        "likers" | "exact_counts" => "thumb_by_target",
        "ranking" => "thumb_count_rank",
        _ => "PRIMARY",
    }
}

/// Arguments for the lists: from the front, and from a place in the middle of ties.
fn list_args(name: &str, place: Option<u64>) -> Vec<Arg> {
    let (at, id) = place.map_or((i64::MAX as u64, ""), |place| (place, "m"));
    let (at, id, limit) = (number(at), text(id), number(21));
    let (kind, one) = (number(1), number(2));
    match name {
        "likers" => {
            let target = text("hot");
            let first = [kind.clone(), target.clone(), at.clone(), id, limit.clone()];
            [&first[..], &[kind, target, at, limit]].concat()
        }
        "user_likes" => {
            let user = text("whale");
            let first = [user.clone(), at.clone(), one.clone(), id, limit.clone()];
            let second = [user.clone(), at.clone(), one, limit.clone()];
            [&first[..], &second, &[user, at, limit]].concat()
        }
        "user_kind_likes" => {
            let user = text("whale");
            let first = [user.clone(), kind.clone(), at.clone(), id, limit.clone()];
            [&first[..], &[user, kind, at, limit]].concat()
        }
        _ => {
            let first = [kind.clone(), at.clone(), id, limit.clone()];
            [&first[..], &[kind, at, limit]].concat()
        }
    }
}

/// Arguments for the cold loads, of which each place but the first ones takes another key.
fn cold_args(name: &str, places: usize) -> Vec<Arg> {
    let places = 0..places;
    let args = places.map(|place| match (name, place) {
        ("users", place) if place % 2 == 1 => number(11),
        ("users", 0) => text("whale"),
        ("users", _) => text(format!("u{}", place / 2)),
        ("states", place) if place % 3 == 0 => text("blog"),
        ("states", place) if place % 3 == 1 => text(format!("u{}", place % 20)),
        // One of the big table, then one of the small one.
        ("states", place) if place % 6 == 2 => text("hot"),
        ("counts" | "count_parts" | "exact_counts", 0) => text("blog"),
        ("count_parts", 1) | ("exact_counts", 2) => number(1),
        ("exact_counts", 1) => number(4),
        _ => text((place * 7).to_string()),
    });
    args.collect()
}

fn all_args(name: &str, places: usize, tie: u64) -> Vec<Vec<Arg>> {
    let all = match name {
        "ranking" => vec![list_args(name, None), list_args(name, Some(1))],
        "likers" | "user_likes" | "user_kind_likes" => {
            vec![list_args(name, None), list_args(name, Some(tie))]
        }
        _ => vec![cold_args(name, places)],
    };
    assert!(all.iter().all(|args| args.len() == places), "{name}");
    all
}

fn query(text: String, args: &[Arg]) -> Query<'static, MySql, MySqlArguments> {
    let query = sqlx::query(AssertSqlSafe(text));
    args.iter().fold(query, |query, arg| match arg {
        Arg::Number(number) => query.bind(*number),
        Arg::Text(text) => query.bind(text.clone()),
    })
}

/// The plan goes by the right index, without sorting.
async fn explain(connection: &mut MySqlConnection, name: &str, sql: &str, args: &[Arg]) {
    let mut steps = 0;
    let plan = query(format!("EXPLAIN FORMAT=TRADITIONAL {sql}"), args);
    for row in plan.fetch_all(connection).await.unwrap() {
        let get = |column| row.try_get::<Option<String>, _>(column).unwrap();
        let Some(table) = get("table").filter(|table| !table.starts_with('<')) else {
            continue;
        };
        let (access, key) = (get("type").unwrap_or_default(), get("key"));
        let extra = get("Extra").unwrap_or_default();
        let step = format!("{name} {args:?}: {table} {access} {key:?} {extra}");
        assert!(!extra.contains("filesort"), "{step}");
        assert!(!extra.contains("temporary"), "{step}");
        if table == "thumb" || table == "one" {
            let narrow = ["ref", "range", "const", "eq_ref"];
            assert!(narrow.contains(&&*access), "{step}");
            assert_eq!(key.as_deref(), Some(index(name)), "{step}");
            steps += 1;
        }
    }
    assert!(steps > 0, "{name}");
}

/// No more rows are read than are wanted, names of kinds included.
async fn reads(connection: &mut MySqlConnection, name: &str, sql: &str, args: &[Arg]) {
    let flush = sqlx::raw_sql("FLUSH STATUS");
    flush.execute(&mut *connection).await.unwrap();
    let found = query(sql.to_owned(), args);
    let found = found.fetch_all(&mut *connection).await.unwrap().len();
    let status = "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler\\_read\\_%' \
                  AND Variable_name NOT LIKE '%rnd%'";
    let rows = sqlx::raw_sql(status).fetch_all(connection).await.unwrap();
    let counts = rows.iter().map(|row| row.try_get::<String, _>(1).unwrap());
    let read: usize = counts.map(|count| count.parse::<usize>().unwrap()).sum();
    // A row, its kind, whether its target is gone, and for each key the look that finds no more.
    let most = 3 * found + 3 * args.len();
    assert!(
        read <= most,
        "{name} {args:?}: {read} reads for {found} rows"
    );
}

async fn all_go_by_their_index(t: &TestLedger, tie: u64) {
    let mut connection = t.pool.acquire().await.unwrap();
    let analyze = sqlx::raw_sql("ANALYZE TABLE thumb, thumb_count, thumb_count_part, kind");
    analyze.execute(&mut *connection).await.unwrap();
    for (name, sql) in request_statements() {
        for args in all_args(name, sql.matches('?').count(), tie) {
            explain(&mut connection, name, &sql, &args).await;
            reads(&mut connection, name, &sql, &args).await;
        }
    }
}

#[tokio::test]
async fn request_statements_go_by_an_index_while_there_is_little() {
    let t = TestLedger::start(4).await;
    for kind in ["blog", "video"] {
        let entries = (0..3000).map(|n| entry(&format!("u{} {kind}:{}", n % 20, n / 5), n + 1));
        t.ledger
            .apply(&t.chunk_of(10, entries.collect()))
            .await
            .unwrap();
    }
    all_go_by_their_index(&t, 1500).await;
    t.check().await;
}

/// Numbers from 0, by SQL that both servers take.
fn numbers(rows: usize) -> String {
    let digit = |name: &str| {
        let rest = (1..10).map(|digit| format!("UNION ALL SELECT {digit}"));
        let rest = rest.collect::<Vec<_>>().join(" ");
        format!("(SELECT 0 AS d {rest}) AS {name}")
    };
    let names = ["a", "b", "c", "d", "e", "f"];
    let powers = names.iter().enumerate();
    let sum = powers.map(|(at, name)| format!("{name}.d * {}", 10_usize.pow(at as u32)));
    format!(
        "(SELECT n FROM (SELECT {} AS n FROM {}) AS every WHERE n < {rows}) AS numbers",
        sum.collect::<Vec<_>>().join(" + "),
        names.map(digit).join(" CROSS JOIN ")
    )
}

const BASE: u64 = 1_700_000_000_000_000;

/// Two fifths are likes of one user, mostly of one kind, two fifths of one target; a thousand at a time have the same version.
async fn big(rows: usize) -> TestLedger {
    let t = TestLedger::start(4).await;
    t.run("INSERT INTO kind (kind_id, name) VALUES (1, 'blog'), (2, 'photo'), (3, 'song')")
        .await;
    let version = format!("{BASE} + n DIV 1000");
    for (part, columns) in [
        (
            2,
            format!("'whale', IF(n % 1000 = 0, 1, 2), CONCAT('w', n), n % 10 <> 0, {version}"),
        ),
        (
            2,
            format!("CONCAT('u', n), 1, 'hot', n % 10 <> 0, {version}"),
        ),
        (
            1,
            format!("CONCAT('u', n % 1000), 1 + n % 3, CONCAT('t', n DIV 3), 1, {version}"),
        ),
    ] {
        t.run(&format!(
            "INSERT INTO thumb (user_id, kind_id, target_id, thumbed, version) SELECT {columns} FROM {}",
            numbers(rows * part / 5)
        ))
        .await;
    }
    t.run(
        "INSERT INTO thumb_count (kind_id, target_id, count) \
         SELECT kind_id, target_id, SUM(thumbed) FROM thumb GROUP BY kind_id, target_id",
    )
    .await;
    t.run(
        "INSERT INTO thumb_count_part (kind_id, target_id, partition_id, count) \
         SELECT kind_id, target_id, CRC32(user_id) MOD 4, SUM(thumbed) FROM thumb \
         GROUP BY kind_id, target_id, CRC32(user_id) MOD 4",
    )
    .await;
    t
}

#[tokio::test]
async fn request_statements_go_by_an_index_on_big_tables() {
    let rows = if servers::slow() { 1_000_000 } else { 50_000 };
    let t = big(rows).await;
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, rows as i64);
    all_go_by_their_index(&t, BASE + 3).await;
    t.check().await;
}
