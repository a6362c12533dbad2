//! `thumbd import`: what it writes, what wins, what users see at once, and what is left when it dies.

use std::collections::BTreeMap;
use std::io::{BufReader, Read as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use thumbd::config::Settings;
use thumbd::moving::{ImportError, Options};
use thumbd::service::ServiceError;
use thumbd::steps::{Gate, gated};

use super::{file, import, import_with, in_hundreds, path};
use crate::flush::Hold;
use crate::process::{behind, end, signal};
use crate::stand::{Stand, outcome, target, user};

/// `u0` to `u<users - 1>` like blog 1, and each one of three others, in 2020.
fn likes(users: usize) -> String {
    (0..users)
        .map(|n| format!("u{n},1,2020-01-01T00:00:00Z\nu{n},x{},1577836800\n", n % 3))
        .collect()
}

async fn rows(t: &Stand) -> (i64, i64, i64) {
    let rows = t.number("SELECT COUNT(*) FROM thumb").await;
    let liked = t
        .number("SELECT CAST(SUM(thumbed) AS SIGNED) FROM thumb")
        .await;
    let counts = t
        .number("SELECT CAST(SUM(count) AS SIGNED) FROM thumb_count")
        .await;
    (rows, liked, counts)
}

#[tokio::test]
async fn what_is_imported_is_seen_at_once_also_where_it_stood_in_redis() {
    for partitions in [1, 4] {
        let t = in_hundreds(partitions).await;
        // Resident: clean, dirty, and as "not liked".
        t.like("u0", "blog:1").await.unwrap();
        t.flush().await;
        t.like("u1", "blog:1").await.unwrap();
        assert_eq!(t.look("u2", "blog:1").await, (Some(false), Some(2)));
        assert_eq!(t.look("u9", "blog:x0").await, (Some(false), Some(0)));
        let done = import(&t, &likes(150)).await;
        done.result.unwrap();
        assert_eq!((done.summary.lines, done.summary.likes), (300, 298));
        assert_eq!((done.summary.already, done.summary.reached), (2, 300));
        for n in [0, 1, 2, 9, 149] {
            assert_eq!(
                t.look(&format!("u{n}"), "blog:1").await,
                (Some(true), Some(150))
            );
        }
        assert_eq!(t.look("u9", "blog:x0").await, (Some(true), Some(50)));
        assert_eq!(t.like("u2", "blog:1").await.unwrap(), outcome(false, 150));
        assert_eq!(t.unlike("u2", "blog:1").await.unwrap(), outcome(true, 149));
        assert_eq!(t.ledger.flush_state().await.unwrap().outside_token, "");
        t.check().await;
        assert_eq!(rows(&t).await, (300, 299, 299));
    }
}

#[tokio::test]
async fn likes_of_whom_and_what_was_erased_are_left_out_and_counted() {
    for partitions in [1, 4] {
        let t = in_hundreds(partitions).await;
        import(&t, &likes(120)).await.result.unwrap();
        let gone = target("blog:1");
        thumbd::erasure::request(&t.service, &user("u5"))
            .await
            .unwrap();
        thumbd::erasure::request_target(&t.service, &gone)
            .await
            .unwrap();
        // Before their rows are removed, and behind.
        for _ in 0..2 {
            let done = import(&t, &likes(130)).await;
            done.result.unwrap();
            assert_eq!((done.summary.lines, done.summary.erased), (260, 131));
            while t.eraser().run().await.unwrap() > 0 {}
        }
        assert_eq!(rows(&t).await, (129, 129, 129));
        assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(0)));
        t.check().await;
        // What is older than the restoration stays void.
        t.eraser().restore(&gone).await.unwrap();
        let done = import(&t, &likes(130)).await;
        done.result.unwrap();
        assert_eq!((done.summary.likes, done.summary.erased), (0, 131));
        assert_eq!(t.like("u1", "blog:1").await.unwrap(), outcome(true, 1));
        t.check().await;
    }
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let t = in_hundreds(4).await;
    let text = likes(120) + "u5,1,2020-01-01T00:00:00Z\nu6,1\n,\n";
    let text = text.trim_end_matches(",\n").to_owned();
    let first = import(&t, &text).await;
    first.result.unwrap();
    assert_eq!((first.summary.likes, first.summary.already), (240, 2));
    let dump = "SELECT CAST(SUM(CRC32(CONCAT(user_id, ' ', target_id, ' ', thumbed, ' ', version))) AS SIGNED) FROM thumb";
    let before = t.number(dump).await;
    t.look("u7", "blog:1").await;
    let done = import(&t, &text).await;
    done.result.unwrap();
    assert_eq!((done.summary.likes, done.summary.already), (0, 242));
    assert_eq!(t.number(dump).await, before);
    // Nothing was changed, so nothing was forgotten.
    assert_eq!(t.command::<i64>(&["EXISTS", &t.user_key("u7")]).await, 1);
    t.check().await;
}

#[tokio::test]
async fn only_what_is_newer_than_its_row_counts() {
    let t = in_hundreds(1).await;
    for user in ["old", "new", "none"] {
        t.like(user, "blog:1").await.unwrap();
        t.unlike(user, "blog:1").await.unwrap();
    }
    t.flush().await;
    t.sql("UPDATE thumb SET version = 1500000000000000 WHERE user_id = 'old'")
        .await;
    let done = import(
        &t,
        "old,1,2020-01-01T00:00:00Z\nnew,1,2020-01-01T00:00:00Z\nnone,1\n",
    )
    .await;
    done.result.unwrap();
    assert_eq!((done.summary.likes, done.summary.already), (1, 2));
    assert_eq!(t.look("old", "blog:1").await, (Some(true), Some(1)));
    for user in ["new", "none"] {
        assert_eq!(t.look(user, "blog:1").await, (Some(false), Some(1)));
    }
    t.check().await;
}

#[tokio::test]
async fn times_of_the_future_win_over_nothing() {
    let t = in_hundreds(4).await;
    // Accepted, and not in the database when the import begins.
    t.like("u1", "blog:1").await.unwrap();
    t.unlike("u1", "blog:1").await.unwrap();
    for partition in 0..4 {
        let peek = t.peek(partition).await;
        let clock = (peek.time_ms * 1000 + 60_000_000).to_string();
        t.command::<()>(&["HSET", &t.key(partition, "meta"), "clock", &clock])
            .await;
    }
    let text = "u1,1,2090-01-01T00:00:00Z\nu2,1,2090-01-01T00:00:00Z\nu3,1,2090-01-01T00:00:00Z\n";
    let done = import(&t, text).await;
    done.result.unwrap();
    assert_eq!(done.summary.likes, 2);
    let mut lowest = u64::MAX;
    for partition in 0..4 {
        let peek = t.peek(partition).await;
        lowest = lowest.min(peek.clock.0.max(peek.time_ms * 1000));
    }
    let newest = t
        .number("SELECT CAST(MAX(version) AS SIGNED) FROM thumb WHERE thumbed = 1")
        .await;
    assert!(newest.unsigned_abs() <= lowest, "{newest} {lowest}");
    assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(2)));
    let state = t.ledger.flush_state().await.unwrap();
    assert!(state.max_version.0 >= newest.unsigned_abs(), "{state:?}");
    // Taken back later, and not revived by another run of the same file.
    t.unlike("u2", "blog:1").await.unwrap();
    let done = import(&t, text).await;
    done.result.unwrap();
    assert_eq!(done.summary.likes, 0);
    assert_eq!(t.look("u2", "blog:1").await, (Some(false), Some(1)));
    assert_eq!(t.look("u3", "blog:1").await, (Some(true), Some(1)));
    t.check().await;
}

/// Tries an operation until it is taken; during an import what was forgotten while it was dirty says "recovering".
pub(super) async fn insist(t: &Stand, user: &str, target: &str, thumb: bool) {
    loop {
        let done = if thumb {
            t.like(user, target).await
        } else {
            t.unlike(user, target).await
        };
        match done {
            Ok(_) => return,
            Err(ServiceError::Recovering { .. } | ServiceError::Busy { .. }) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn live_operations_win_over_an_import_that_runs() {
    for partitions in [1, 4] {
        // Without it an unlike of what is not there yet would leave no trace.
        let keep = Settings {
            keep_unlikes: true,
            ..in_hundreds(partitions).await.settings
        };
        let t = Stand::on(keep).await;
        let over = AtomicBool::new(false);
        let live = async {
            let mut states = BTreeMap::new();
            let mut n = 0;
            while !over.load(Ordering::SeqCst) || n < 200 {
                // Users of the whole file, some more than once, and some who are not in it.
                let user = format!("u{}", n * 37 % 640);
                let thumb = n % 3 == 0;
                insist(&t, &user, "blog:1", thumb).await;
                states.insert(user, thumb);
                n += 1;
            }
            states
        };
        let text = likes(600);
        let importing = async {
            let done = import(&t, &text).await;
            over.store(true, Ordering::SeqCst);
            done
        };
        let (live, done) = tokio::join!(live, importing);
        done.result.unwrap();
        let liked = |n: usize| live.get(&format!("u{n}")).copied().unwrap_or(n < 600);
        let count = (0..640).filter(|n| liked(*n)).count() as i64;
        for n in 0..640 {
            let seen = t.look(&format!("u{n}"), "blog:1").await;
            assert_eq!(
                seen,
                (Some(liked(n)), Some(count)),
                "u{n}, {partitions} partitions"
            );
        }
        assert!(live.len() > 100, "only {} live users", live.len());
        t.check().await;
        let twice = "SELECT COUNT(*) - COUNT(DISTINCT user_id, target_id) FROM thumb";
        assert_eq!(t.number(twice).await, 0);
        let stored = "SELECT CAST(count AS SIGNED) FROM thumb_count WHERE target_id = '1'";
        assert_eq!(t.number(stored).await, count);
    }
}

#[tokio::test]
async fn an_import_that_dies_is_run_again() {
    for point in [
        "import.begun",
        "import.commit",
        "import.applied",
        "import.forgotten",
        "import.told",
    ] {
        let t = in_hundreds(2).await;
        let text = likes(100);
        // Resident, and soon wrong.
        for n in [0, 1, 60] {
            assert_eq!(
                t.look(&format!("u{n}"), "blog:1").await,
                (Some(false), Some(0))
            );
        }
        let hold = Hold::at(point);
        let run = gated(hold.clone(), import(&t, &text));
        tokio::select! {
            _ = run => panic!("it was not held at {point}"),
            () = hold.reached.notified() => {}
        }
        t.lapse().await;
        // Somebody else's flush, before it is run again, leaves nothing wrong.
        t.flush().await;
        let landed = t.number("SELECT COUNT(*) FROM thumb").await;
        let want = if matches!(point, "import.begun" | "import.commit") {
            0
        } else {
            100
        };
        assert_eq!(landed, want, "{point}");
        assert_eq!(
            t.look("u1", "blog:1").await,
            (Some(want > 0), Some(want / 2)),
            "{point}"
        );
        t.check().await;
        let done = import(&t, &text).await;
        done.result.unwrap();
        assert_eq!(done.summary.likes, 200 - want.unsigned_abs(), "{point}");
        assert_eq!(
            t.look("u60", "blog:1").await,
            (Some(true), Some(100)),
            "{point}"
        );
        t.check().await;
        assert_eq!(rows(&t).await, (200, 200, 200));
    }
}

#[tokio::test]
async fn an_import_begun_behind_one_that_died_makes_cold_what_that_one_left() {
    let t = in_hundreds(2).await;
    assert_eq!(t.look("u1", "blog:1").await, (Some(false), Some(0)));
    let hold = Hold::at("import.applied");
    let text = likes(40);
    let run = gated(hold.clone(), import(&t, &text));
    tokio::select! {
        _ = run => panic!("it was not held"),
        () = hold.reached.notified() => {}
    }
    t.lapse().await;
    import(&t, &text).await.result.unwrap();
    assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(40)));
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_goes_on_after_kill_9() {
    let t = in_hundreds(1).await;
    let csv = file(&likes(200));
    let name = path(&csv).to_owned();
    let mut variables = t.variables();
    variables.push(("FAILPOINTS".into(), "import.applied=3*hold".into()));
    let words = ["import", &name, "--kind", "blog"];
    let mut child = crate::serve::run(&words, &variables);
    let mut log = BufReader::new(child.stderr.take().unwrap());
    tokio::task::spawn_blocking(move || {
        assert_eq!(behind("failpoint", &mut log), "import.applied");
        signal(&child, "KILL");
        end(&mut child);
    })
    .await
    .unwrap();
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 300);
    t.lapse().await;
    let (code, text) = t.program(&["import", path(&csv), "--kind", "blog"]).await;
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "lines         400",
        "new likes     100",
        "already there 300",
        "refused       0",
        "reached line  400",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    t.check().await;
    assert_eq!(rows(&t).await, (400, 400, 400));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_behind_the_transaction_that_is_under_way() {
    let t = in_hundreds(1).await;
    let csv = file(&likes(200));
    let name = path(&csv).to_owned();
    let mut variables = t.variables();
    variables.push(("FAILPOINTS".into(), "import.applied=2*delay(500)".into()));
    let said = tokio::task::spawn_blocking(move || {
        let words = ["import", &name, "--kind", "blog"];
        let mut child = crate::serve::run(&words, &variables);
        let mut log = BufReader::new(child.stderr.take().unwrap());
        assert_eq!(behind("failpoint", &mut log), "import.applied");
        signal(&child, "INT");
        let mut said = String::new();
        log.read_to_string(&mut said).unwrap();
        assert_eq!(end(&mut child).code(), Some(1), "{said}");
        said
    })
    .await
    .unwrap();
    assert!(said.contains("everything up to line 200 is in"), "{said}");
    assert!(said.contains("--from-line 201: interrupted"), "{said}");
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 200);
    t.check().await;
    let rest = ["import", path(&csv), "--kind", "blog", "--from-line", "201"];
    let (code, text) = t.program(&rest).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("new likes     200"), "{text}");
    t.check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lines_are_named_and_end_it_before_anything_of_their_transaction() {
    let t = in_hundreds(1).await;
    let long = "x".repeat(129);
    let mut text = String::from("user,target,time\n");
    for n in 0..150 {
        text += &format!("u{n},1,\n");
    }
    text += &format!("{long},1,\nu1,a b,\nu2,7,soon\nu3,7,\n");
    let csv = file(&text);
    let (code, said) = t.program(&["import", path(&csv), "--kind", "blog"]).await;
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "line 152: user must have 1 to 128 bytes, this one has 129",
        "1 lines were refused, 0 are allowed (--max-errors)",
        "everything up to line 101 is in",
        "--from-line 102",
        "refused       1",
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 100);
    let (code, said) = t.program(&["import", path(&file("u1,1,7\n"))]).await;
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "line 1: has 3 fields, not user,target,time,kind; where all are of one kind, give --kind",
        "thumbd: nothing was imported: 1 lines were refused, 0 are allowed (--max-errors)",
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    let dry = ["import", path(&csv), "--kind", "blog", "--dry-run"];
    let (code, said) = t.program(&dry).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("refused       3"), "{said}");
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 100);
    let rest = [
        "import",
        path(&csv),
        "--kind",
        "blog",
        "--from-line",
        "102",
        "--max-errors",
        "3",
    ];
    let (code, said) = t.program(&rest).await;
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "line 153: target: id must be printable ASCII",
        "line 154: time \"soon\"",
        "new likes     51",
        "refused       3",
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    assert_eq!(rows(&t).await, (151, 151, 151));
    t.check().await;
}

#[tokio::test]
async fn a_line_that_the_database_refuses_is_a_bad_line() {
    let t = in_hundreds(1).await;
    t.script(
        "CREATE TRIGGER refuse BEFORE INSERT ON thumb FOR EACH ROW \
         BEGIN IF NEW.user_id LIKE 'poison%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END",
    )
    .await;
    let text = "u1,1\npoison1,1\nu2,1\npoison2,1\nu3,1\n";
    let done = import(&t, text).await;
    assert!(matches!(
        done.result,
        Err(ImportError::TooManyRefused { .. })
    ));
    assert_eq!(t.number("SELECT COUNT(*) FROM thumb").await, 0);
    let options = Options {
        errors_max: 2,
        ..Options::default()
    };
    let done = import_with(&t, text, options).await;
    done.result.unwrap();
    assert_eq!((done.summary.likes, done.summary.refused), (3, 2));
    let lines: Vec<u64> = done.refused.iter().map(|one| one.0).collect();
    assert_eq!(lines, [2, 4]);
    assert!(
        done.refused[0].1.contains("not this one"),
        "{:?}",
        done.refused
    );
    assert_eq!(t.number("SELECT COUNT(*) FROM quarantine").await, 0);
    t.check().await;
}

#[tokio::test]
async fn what_was_pruned_does_not_stop_an_import_and_nothing_is_pruned_meanwhile() {
    let t = in_hundreds(1).await;
    let under_way =
        "SELECT CAST(import_until / 1000 > UNIX_TIMESTAMP() AS SIGNED) FROM flush_state";
    assert_eq!(t.number(under_way).await, 0);
    let hold = Hold::at("import.begun");
    tokio::select! {
        _ = gated(hold.clone(), import(&t, "u1,1")) => panic!("it was not held"),
        () = hold.reached.notified() => {}
    }
    t.lapse().await;
    assert_eq!(t.number(under_way).await, 1);
    t.sql("UPDATE flush_state SET prune_horizon = 1700000000000000")
        .await;
    let done = import(&t, &likes(5)).await;
    done.result.unwrap();
    assert_eq!(done.summary.likes, 10);
    t.check().await;
}

#[tokio::test]
async fn an_unlike_that_is_kept_wins_over_an_older_like_that_comes_later() {
    for (partitions, resident_thumbs_max) in [(1, 100), (4, 1)] {
        let keep = Settings {
            keep_unlikes: true,
            resident_thumbs_max,
            ..in_hundreds(partitions).await.settings
        };
        let t = Stand::on(keep).await;
        // With the smaller bound, users of whom Redis does not hold all.
        for target in ["blog:8", "blog:9"] {
            for user in ["u0", "u1", "u2"] {
                t.like(user, target).await.unwrap();
            }
        }
        t.flush().await;
        for partition in 0..partitions {
            let keys: Vec<String> = t.command(&["KEYS", &t.key(partition, "user:*")]).await;
            for key in keys {
                t.command::<i64>(&["DEL", &key]).await;
            }
        }
        // In the database when the import comes, and not yet.
        assert_eq!(t.unlike("u1", "blog:1").await.unwrap(), outcome(false, 0));
        t.flush().await;
        let hold = Hold::at("import.begun");
        let text = likes(3);
        let late = async {
            hold.reached.notified().await;
            assert_eq!(t.unlike("u2", "blog:1").await.unwrap(), outcome(false, 0));
            hold.go_on.notify_one();
        };
        let (done, ()) = tokio::join!(gated(hold.clone(), import(&t, &text)), late);
        done.result.unwrap();
        for (user, liked) in [("u0", true), ("u1", false), ("u2", false)] {
            assert_eq!(
                t.look(user, "blog:1").await,
                (Some(liked), Some(1)),
                "{user}"
            );
        }
        t.check().await;
    }
}

#[tokio::test]
async fn what_was_read_before_an_import_is_not_filled_in_behind_it() {
    for partitions in [1, 4] {
        let t = in_hundreds(partitions).await;
        let hold = Hold::at("cold.fill");
        let importing = async {
            hold.reached.notified().await;
            import(&t, &likes(20)).await.result.unwrap();
            hold.go_on.notify_one();
        };
        let look = gated(hold.clone(), t.look("u1", "blog:1"));
        let (_, ()) = tokio::join!(look, importing);
        assert_eq!(t.look("u1", "blog:1").await, (Some(true), Some(20)));
        t.check().await;
    }
}

#[tokio::test]
async fn a_mark_of_somebody_else_is_cleared_up_first() {
    let t = in_hundreds(2).await;
    t.like("u0", "blog:1").await.unwrap();
    t.flush().await;
    assert_eq!(t.look("u9", "blog:1").await, (Some(false), Some(1)));
    let hold = Hold::at("import.begun");
    let other = async {
        hold.reached.notified().await;
        // Somebody has changed a row and its counts, and died before Redis was told.
        let part = t.home("u9");
        t.script(&format!(
            "INSERT INTO thumb SELECT 'u9', kind_id, '1', 1, 7 FROM kind WHERE name = 'blog'; \
             UPDATE thumb_count SET count = count + 1 WHERE target_id = '1'; \
             INSERT INTO thumb_count_part SELECT kind_id, '1', {part}, 1 FROM kind WHERE name = 'blog' \
             ON DUPLICATE KEY UPDATE count = count + 1; \
             UPDATE flush_state SET outside_token = 'other'"
        ))
        .await;
        hold.go_on.notify_one();
    };
    let (done, ()) = tokio::join!(gated(hold.clone(), import(&t, "u5,1\n")), other);
    done.result.unwrap();
    assert_eq!(t.look("u9", "blog:1").await, (Some(true), Some(3)));
    assert_eq!(t.ledger.flush_state().await.unwrap().outside_token, "");
    t.check().await;
}

#[tokio::test]
async fn an_import_waits_for_a_job_that_takes_long() {
    let impatient = Settings {
        lease_ttl_ms: 50,
        ..in_hundreds(1).await.settings
    };
    let t = Stand::on(impatient).await;
    let minute = Duration::from_secs(60);
    assert!(t.hot.lease("flush", "other", minute).await.unwrap());
    let text = likes(3);
    let other = async {
        // Longer than any other command waits.
        tokio::time::sleep(Duration::from_millis(500)).await;
        t.hot.lease_release("flush", "other").await.unwrap();
    };
    let (done, _) = tokio::join!(import(&t, &text), other);
    done.result.unwrap();
    assert_eq!(done.summary.likes, 6);
    t.check().await;
}

/// Holds a task at two points.
struct Twice(Arc<Hold>, Arc<Hold>);

impl Gate for Twice {
    fn pass(&self, point: &'static str) -> BoxFuture<'static, ()> {
        let both = (self.0.pass(point), self.1.pass(point));
        async move {
            both.0.await;
            both.1.await;
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_count_is_not_loaded_before_an_unlike_that_was_kept_has_landed() {
    let keep = Settings {
        keep_unlikes: true,
        ..in_hundreds(1).await.settings
    };
    let t = Stand::on(keep).await;
    let (begun, told) = (Hold::at("import.begun"), Hold::at("import.told"));
    let gate = Arc::new(Twice(begun.clone(), told.clone()));
    let others = async {
        begun.reached.notified().await;
        assert_eq!(t.unlike("u2", "blog:1").await.unwrap(), outcome(false, 0));
        begun.go_on.notify_one();
        told.reached.notified().await;
        // The import has landed and the unlike has not: nobody can say.
        let count = t.service.lookup(None, &[target("blog:1")]).await;
        assert!(
            matches!(count, Err(ServiceError::Recovering { .. })),
            "{count:?}"
        );
        told.go_on.notify_one();
    };
    let text = likes(3);
    let (done, ()) = tokio::join!(gated(gate, import(&t, &text)), others);
    done.result.unwrap();
    assert_eq!(t.look("u2", "blog:1").await, (Some(false), Some(2)));
    t.check().await;
}
