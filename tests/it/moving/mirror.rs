//! The site's own column: set by whatever moves counts, and by nothing else.

use sqlx::{AssertSqlSafe, Executor, Row};
use thumbd::config::{KindSettings, Kinds, Mirror, Settings};
use thumbd::domain::Kind;
use thumbd::erasure;
use thumbd::flush::FlushError;
use thumbd::ledger::LedgerError;
use thumbd::repair;
use thumbd::service::{Service, layout};
use thumbd::telemetry;

use super::{import, in_hundreds};
use crate::redis_faults::until;
use crate::stand::{Stand, target, user};

pub(super) fn mirrored(kinds: &[(&str, &str)]) -> Kinds {
    Kinds::with(kinds.iter().map(|(kind, table)| {
        let mirror = Mirror::parse(table, "id", "thumb_count").unwrap();
        let mirror = Some(mirror);
        (
            Kind::parse(*kind).unwrap(),
            KindSettings {
                mirror,
                ..KindSettings::default()
            },
        )
    }))
}

/// A stand whose database also has the site's tables `blog` (integer ids) and `page` (names).
pub(super) async fn stand(partitions: u16) -> Stand {
    let t = in_hundreds(partitions).await;
    t.script(
        "CREATE TABLE blog (id INT UNSIGNED PRIMARY KEY, title VARCHAR(20), thumb_count INT NOT NULL DEFAULT 0) ENGINE = InnoDB; \
         CREATE TABLE page (id VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, thumb_count INT NULL, KEY (id)) ENGINE = InnoDB; \
         INSERT INTO blog (id, title) VALUES (1, 'one'), (2, 'two'), (42, 'answer'); \
         INSERT INTO page (id, thumb_count) VALUES ('Ab', 0), ('ab', NULL), ('7', 5)",
    )
    .await;
    let kinds = mirrored(&[("blog", "blog"), ("page", "page")]);
    Stand::on(Settings {
        kinds,
        ..t.settings.clone()
    })
    .await
}

async fn blog(t: &Stand, id: u32) -> i64 {
    let find = format!("SELECT CAST(thumb_count AS SIGNED) FROM blog WHERE id = {id}");
    t.number(&find).await
}

async fn pages(t: &Stand) -> Vec<(String, Option<i64>)> {
    let find = "SELECT CAST(id AS CHAR), CAST(thumb_count AS SIGNED) FROM page ORDER BY CAST(id AS BINARY)";
    let rows = sqlx::query(find).fetch_all(&t.pool).await.unwrap();
    rows.iter()
        .map(|row| (row.try_get(0).unwrap(), row.try_get(1).unwrap()))
        .collect()
}

#[tokio::test]
async fn a_flush_sets_the_count_beside_just_that_id() {
    for partitions in [1, 4] {
        let t = stand(partitions).await;
        for (user, target) in [
            ("u1", "blog:42"),
            ("u2", "blog:42"),
            ("u1", "blog:1"),
            ("u1", "blog:42abc"),
            ("u1", "blog:042"),
            ("u1", "blog:-1"),
            ("u1", "blog:4294967338"),
            ("u1", "page:ab"),
            ("u2", "page:ab"),
            ("u1", "page:AB"),
        ] {
            t.like(user, target).await.unwrap();
        }
        t.flush().await;
        assert_eq!(
            (blog(&t, 42).await, blog(&t, 1).await, blog(&t, 2).await),
            (2, 1, 0)
        );
        let want = [("7", Some(5)), ("Ab", Some(0)), ("ab", Some(2))];
        assert_eq!(
            pages(&t).await,
            want.map(|(id, count)| (id.to_owned(), count))
        );
        // Absolute: whatever the site made of it meanwhile.
        t.sql("UPDATE blog SET thumb_count = 77").await;
        t.unlike("u1", "blog:42").await.unwrap();
        t.like("u1", "blog:2").await.unwrap();
        t.unlike("u1", "blog:2").await.unwrap();
        t.flush().await;
        assert_eq!(
            (blog(&t, 42).await, blog(&t, 1).await, blog(&t, 2).await),
            (1, 77, 77)
        );
        t.check().await;
    }
}

#[tokio::test]
async fn an_erasure_sets_the_site_s_column_too() {
    for partitions in [1, 4] {
        let t = stand(partitions).await;
        for user in ["u1", "u2", "u3"] {
            for target in ["blog:42", "blog:1"] {
                t.like(user, target).await.unwrap();
            }
        }
        t.flush().await;
        erasure::request(&t.service, &user("u1")).await.unwrap();
        t.eraser().run().await.unwrap();
        assert_eq!((blog(&t, 42).await, blog(&t, 1).await), (2, 2));
        let target = target("blog:42");
        erasure::request_target(&t.service, &target).await.unwrap();
        t.eraser().run().await.unwrap();
        assert_eq!((blog(&t, 42).await, blog(&t, 1).await), (0, 2));
        t.eraser().restore(&target).await.unwrap();
        t.like("u2", "blog:42").await.unwrap();
        t.flush().await;
        assert_eq!((blog(&t, 42).await, blog(&t, 1).await), (1, 2));
        t.check().await;
    }
}

#[tokio::test]
async fn a_target_without_a_row_is_counted_and_harms_nobody() {
    let t = in_hundreds(1).await;
    t.script("CREATE TABLE lone (id BIGINT PRIMARY KEY, thumb_count BIGINT NOT NULL); INSERT INTO lone VALUES (1, 0)")
        .await;
    let metrics = telemetry::metrics_init().unwrap();
    let t = Stand::on(Settings {
        kinds: mirrored(&[("lonely", "lone")]),
        ..t.settings.clone()
    })
    .await;
    // 300 rows at once: more than one statement.
    for n in 0..300 {
        t.like("u1", &format!("lonely:{n}")).await.unwrap();
    }
    t.like("u1", "lonely:none").await.unwrap();
    t.flush().await;
    assert_eq!(
        t.number("SELECT CAST(SUM(thumb_count) AS SIGNED) FROM lone")
            .await,
        1
    );
    let text = metrics.render();
    assert!(
        text.contains("thumbd_mirror_missing_total{kind=\"lonely\"} 300\n"),
        "{text}"
    );
    t.check().await;
}

#[tokio::test]
async fn an_import_and_a_repair_set_it_too() {
    let t = stand(2).await;
    import(&t, "u1,1\nu2,1\nu3,1\nu1,2\n").await.result.unwrap();
    assert_eq!((blog(&t, 1).await, blog(&t, 2).await), (3, 1));
    // A wrong count, and a mirror that somebody else has changed.
    t.sql("UPDATE thumb_count SET count = 9 WHERE target_id = '1'")
        .await;
    t.sql("UPDATE blog SET thumb_count = thumb_count + 100")
        .await;
    let mut changes = Vec::new();
    let stores = (&t.hot, &t.ledger);
    let layout = layout(&t.settings);
    let left = repair::run(stores, &t.flusher, &layout, |change| changes.push(change)).await;
    assert_eq!(left.unwrap().differences, []);
    assert_eq!(
        (blog(&t, 1).await, blog(&t, 2).await, blog(&t, 42).await),
        (3, 1, 0)
    );
    let mirrors = changes
        .iter()
        .filter(|change| matches!(change, repair::Change::Mirror { .. }));
    // 2 and 42 of the blogs, and a page; blog 1 was set with its count.
    assert_eq!(mirrors.count(), 3, "{changes:?}");
    t.check().await;
}

/// The same stores with settings that know of no mirror.
fn silent(t: &Stand) -> Settings {
    Settings {
        kinds: Kinds::any(),
        ..t.settings.clone()
    }
}

#[tokio::test]
async fn who_was_not_told_of_a_mirror_sets_it_all_the_same() {
    let told = stand(2).await;
    told.like("u1", "blog:1").await.unwrap();
    let t = Stand::on(silent(&told)).await;
    t.flush().await;
    assert_eq!(blog(&t, 1).await, 1);
    import(&t, "u2,1\nu3,1\nu1,2\n").await.result.unwrap();
    assert_eq!((blog(&t, 1).await, blog(&t, 2).await), (3, 1));
    erasure::request(&t.service, &user("u2")).await.unwrap();
    t.eraser().run().await.unwrap();
    assert_eq!(blog(&t, 1).await, 2);
    t.sql("UPDATE blog SET thumb_count = 9").await;
    let (code, text) = t.program(&["compare", "--kind", "blog"]).await;
    assert_eq!(code, Some(1), "{text}");
    let (code, text) = t.program(&["repair"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert_eq!((blog(&t, 1).await, blog(&t, 42).await), (2, 0));
    t.like("u4", "blog:42").await.unwrap();
    let (code, text) = t.program(&["flush"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(blog(&t, 42).await, 1);
    t.check().await;
}

#[tokio::test]
async fn a_mirror_is_taken_away_from_all_at_once_and_only_so_replaced() {
    let t = stand(1).await;
    let (code, text) = t.program(&["mirror", "list"]).await;
    assert_eq!(code, Some(0), "{text}");
    let words: Vec<&str> = text.split_whitespace().collect();
    let kept = ["blog", "blog/id/thumb_count", "page", "page/id/thumb_count"];
    assert_eq!(words, kept);
    t.script(
        "CREATE TABLE other (id INT PRIMARY KEY, thumb_count INT); INSERT INTO other VALUES (1, 0)",
    )
    .await;
    let other = Settings {
        kinds: mirrored(&[("blog", "other")]),
        ..t.settings.clone()
    };
    let text = refused(&other).await;
    let both =
        "the mirror of kind blog is blog/id/thumb_count, the settings say other/id/thumb_count";
    assert!(text.contains(both), "{text}");
    assert!(text.contains("thumbd mirror remove blog"), "{text}");

    // Those who run need not start again.
    for (code, said) in [(0, "no longer set"), (1, "has no mirror")] {
        let (found, text) = t.program(&["mirror", "remove", "blog"]).await;
        assert_eq!(found, Some(code), "{text}");
        assert!(text.contains(said), "{text}");
    }
    for (user, target) in [("u1", "blog:1"), ("u1", "page:ab")] {
        t.like(user, target).await.unwrap();
    }
    t.flush().await;
    assert_eq!(blog(&t, 1).await, 0);
    assert_eq!(pages(&t).await[2].1, Some(1));
    // Nor when it is replaced.
    let new = Stand::on(other).await;
    t.like("u2", "blog:1").await.unwrap();
    t.flush().await;
    let there = "SELECT CAST(thumb_count AS SIGNED) FROM other WHERE id = 1";
    assert_eq!((blog(&t, 1).await, new.number(there).await), (0, 2));
    t.check().await;
}

#[tokio::test]
async fn a_start_waits_for_no_flush_but_one_that_brings_a_mirror_does() {
    let t = stand(1).await;
    let mut flush = t.pool.begin().await.unwrap();
    let lock = "SELECT * FROM flush_state FOR UPDATE";
    flush.fetch_all(lock).await.unwrap();
    Service::build(&t.settings).await.unwrap();
    Service::build(&silent(&t)).await.unwrap();
    let more = Settings {
        kinds: mirrored(&[("blog", "blog"), ("more", "page")]),
        ..t.settings.clone()
    };
    let start = tokio::spawn(async move { Service::build(&more).await.map(drop) });
    let waits = "SELECT COUNT(*) FROM information_schema.processlist \
         WHERE db = DATABASE() AND id <> CONNECTION_ID() AND info LIKE '%flush_state%FOR UPDATE%'";
    until("it waits for the flush", async || t.number(waits).await > 0).await;
    assert!(!start.is_finished());
    flush.rollback().await.unwrap();
    start.await.unwrap().unwrap();
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb_mirror").await, 3);
}

#[tokio::test]
async fn a_mirror_that_fails_stops_the_flush_and_loses_nothing() {
    let t = stand(1).await;
    t.like("u1", "blog:1").await.unwrap();
    t.flush().await;
    t.sql("RENAME TABLE blog TO gone").await;
    t.like("u2", "blog:1").await.unwrap();
    let error = t.try_flush().await.unwrap_err();
    let mirror =
        matches!(&error, FlushError::Ledger(LedgerError::Mirror { kind, .. }) if kind == "blog");
    assert!(mirror, "{error:?}");
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 1);
    assert_eq!(t.look("u2", "blog:1").await, (Some(true), Some(2)));
    t.sql("RENAME TABLE gone TO blog").await;
    // A value that the site refuses is no entry's fault either: nothing goes to quarantine.
    t.script("CREATE TRIGGER no BEFORE UPDATE ON blog FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not now'")
        .await;
    let error = t.try_flush().await.unwrap_err();
    assert!(
        matches!(error, FlushError::Ledger(LedgerError::Mirror { .. })),
        "{error:?}"
    );
    assert_eq!(t.number("SELECT COUNT(*) FROM quarantine").await, 0);
    t.script("DROP TRIGGER no").await;
    t.flush().await;
    assert_eq!(blog(&t, 1).await, 2);
    t.check().await;
}

#[tokio::test]
async fn a_deadlock_with_the_site_is_tried_again() {
    let t = stand(1).await;
    t.like("u1", "blog:1").await.unwrap();
    let mut other = t.pool.begin().await.unwrap();
    for n in 0..50 {
        let text = format!("INSERT INTO blog (id) VALUES ({})", 1000 + n);
        other.execute(AssertSqlSafe(text)).await.unwrap();
    }
    other
        .execute(sqlx::raw_sql(
            "UPDATE blog SET thumb_count = 5 WHERE id = 1",
        ))
        .await
        .unwrap();
    let site = async {
        let waits = "SELECT COUNT(*) FROM information_schema.processlist \
             WHERE db = DATABASE() AND id <> CONNECTION_ID() AND info LIKE 'UPDATE `blog`%'";
        while t.number(waits).await == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        // Now each waits for the other; InnoDB ends the one that has changed less, which is the flush.
        let lock = sqlx::raw_sql("SELECT * FROM flush_state FOR UPDATE");
        other.fetch_all(lock).await.unwrap();
        other.commit().await.unwrap();
    };
    let (report, ()) = tokio::join!(t.flush(), site);
    assert!(report.retries > 0, "{report:?}");
    assert_eq!(blog(&t, 1).await, 1);
    t.check().await;
}

/// Why a start is refused.
async fn refused(settings: &Settings) -> String {
    match Service::build(settings).await {
        Ok(_) => panic!("it was not refused"),
        Err(error) => format!("{error:#}"),
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_at_start_with_the_grant_that_is_wanted() {
    let t = stand(1).await;
    let site = t.site().await;
    t.script(&format!(
        "CREATE TABLE {site}.blog (id INT PRIMARY KEY, thumb_count INT); \
         CREATE TABLE {site}.odd (id DOUBLE PRIMARY KEY, thumb_count INT); \
         CREATE TABLE {site}.text (id INT PRIMARY KEY, thumb_count VARCHAR(9)); \
         INSERT INTO {site}.blog VALUES (1, 0)"
    ))
    .await;
    let with = |settings: &Settings, table: &str| Settings {
        kinds: mirrored(&[("blog", &format!("{site}.{table}"))]),
        ..settings.clone()
    };
    for (table, part) in [
        ("nowhere", "there is no such table or column"),
        ("odd", "the id column is of type double"),
        ("text", "the count column is of type varchar(9)"),
    ] {
        let text = refused(&with(&t.settings, table)).await;
        assert!(
            text.contains(part) && text.contains("mirror of kind blog"),
            "{text}"
        );
    }
    t.sql(&format!(
        "ALTER TABLE {site}.odd CHANGE thumb_count other INT"
    ))
    .await;
    let text = refused(&with(&t.settings, "odd")).await;
    assert!(text.contains("no such table or column"), "{text}");

    let own = site.strip_suffix("_site").unwrap();
    let user = format!("u_{own}");
    t.script(&format!(
        "CREATE USER '{user}'@'%'; CREATE USER '{user}'@'localhost'; \
         GRANT ALL ON {own}.* TO '{user}'@'%'; GRANT ALL ON {own}.* TO '{user}'@'localhost'"
    ))
    .await;
    let limited = with(&t.settings_as(&user), "blog");
    let text = refused(&limited).await;
    let grant = format!(
        "GRANT SELECT (`id`, `thumb_count`), UPDATE (`thumb_count`) ON `{site}`.`blog` TO '{user}'@'"
    );
    assert!(text.contains(&grant), "{text}");
    let (_, grant) = text.split_once("needs ").unwrap();
    let (grant, _) = grant.split_once(": ").unwrap();
    let host = if grant.contains("'@'localhost'") {
        "localhost"
    } else {
        "%"
    };
    // May read only.
    t.script(&format!("GRANT SELECT ON {site}.blog TO '{user}'@'{host}'"))
        .await;
    let text = refused(&limited).await;
    assert!(text.contains(grant), "{text}");
    // Just what it says, and no more.
    t.script(&format!(
        "REVOKE SELECT ON {site}.blog FROM '{user}'@'{host}'"
    ))
    .await;
    t.script(grant).await;
    t.ledger.mirror_remove("blog").await.unwrap();
    let t = Stand::on(limited).await;
    t.like("u1", "blog:1").await.unwrap();
    t.flush().await;
    assert_eq!(
        t.number(&format!(
            "SELECT CAST(thumb_count AS SIGNED) FROM {site}.blog WHERE id = 1"
        ))
        .await,
        1
    );
}

#[tokio::test]
async fn rows_are_found_by_the_index() {
    let t = stand(1).await;
    let mut text = String::from("INSERT INTO page (id) VALUES ('x0')");
    for n in 1..3000 {
        text += &format!(", ('x{n}')");
    }
    t.sql(&text).await;
    t.sql("ANALYZE TABLE page").await;
    let plan = "EXPLAIN FORMAT=TRADITIONAL UPDATE page SET thumb_count = CASE CAST(CONVERT(id USING utf8mb4) AS BINARY) WHEN 'x1' THEN 1 ELSE thumb_count END WHERE id IN ('x1', 'x2')";
    let row = sqlx::query(plan).fetch_one(&t.pool).await.unwrap();
    let key: Option<String> = row.try_get("key").unwrap();
    assert_eq!(key.as_deref(), Some("id"));
}
