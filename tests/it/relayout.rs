//! Another number of partitions, slice length, key prefix or list of kinds while likes are unflushed: drained, or refused, never stranded.

use thumbd::config::{Kinds, Settings};
use thumbd::flush::Flusher;
use thumbd::hot::HotError;
use thumbd::relayout;
use thumbd::service::{Service, ServiceError, layout};
use thumbd::steps::gated;

use crate::app::TestApp;
use crate::flush::Hold;
use crate::servers::TestEnv;
use crate::stand::{Stand, op, settings};

/// The ways in which a layout can change.
fn others(old: &Settings) -> Vec<Settings> {
    vec![
        Settings {
            partitions: 4,
            ..old.clone()
        },
        Settings {
            slice_seconds: 3,
            ..old.clone()
        },
        Settings {
            key_prefix: format!("{}-new", old.key_prefix),
            ..old.clone()
        },
        Settings {
            partitions: 3,
            slice_seconds: 60,
            key_prefix: format!("{}-third", old.key_prefix),
            ..old.clone()
        },
    ]
}

/// Some of them flushed, some not, one taken back.
async fn with_likes(t: &Stand) {
    for n in 0..10 {
        t.like(&format!("u{n}"), "blog:1").await.unwrap();
    }
    t.flush().await;
    for n in 10..20 {
        t.like(&format!("u{n}"), "blog:1").await.unwrap();
    }
    t.unlike("u3", "blog:1").await.unwrap();
}

async fn is_right(t: &Stand) {
    assert_eq!(t.look("u15", "blog:1").await, (Some(true), Some(19)));
    assert_eq!(t.look("u3", "blog:1").await, (Some(false), Some(19)));
    t.check().await;
    assert_eq!(
        t.number("SELECT COUNT(*) FROM thumb WHERE thumbed = 1")
            .await,
        19
    );
    assert_eq!(t.number("SELECT count FROM thumb_count").await, 19);
}

/// Starts as `serve` does.
async fn start(settings: &Settings) -> anyhow::Result<Stand> {
    relayout::ensure(settings).await?;
    Service::build(settings).await?;
    Ok(Stand::on(settings.clone()).await)
}

#[tokio::test]
async fn a_new_layout_drains_the_old_one() {
    for partitions in [1, 4] {
        for way in 0..others(&settings(partitions).await).len() {
            let old = Stand::start(partitions).await;
            let new = others(&old.settings).remove(way);
            if layout(&new) == layout(&old.settings) {
                continue;
            }
            with_likes(&old).await;
            let t = start(&new).await.unwrap();
            is_right(&t).await;
            // Whoever was started before is refused, and so is its flush.
            let refused = old.service.thumb(op("u1", "blog:2", true)).await;
            assert!(
                matches!(refused, Err(ServiceError::Internal(_))),
                "{refused:?}"
            );
            assert!(
                old.service
                    .lookup(None, &[crate::stand::target("blog:1")])
                    .await
                    .is_err()
            );
            for partition in 0..partitions {
                if new.key_prefix != old.settings.key_prefix {
                    assert_eq!(old.peek(partition).await.live, []);
                }
            }
            // And back again.
            t.like("u3", "blog:1").await.unwrap();
            let t = start(&old.settings).await.unwrap();
            t.unlike("u3", "blog:1").await.unwrap();
            is_right(&t).await;
        }
    }
}

#[tokio::test]
async fn the_service_starts_with_other_settings() {
    let app = TestApp::start().await;
    for n in 0..10 {
        app.like(&format!("u{n}"), "blog/1").await;
    }
    let env = TestEnv {
        redis_url: app.env.redis_url.clone(),
        database_url: app.env.database_url.clone(),
        key_prefix: app.env.key_prefix.clone(),
    };
    // The old one still runs.
    let new = TestApp::on(env, |settings| settings.partitions = 4).await;
    let seen = new.get("u1", "blog/1").await.json();
    assert_eq!((&seen["liked"], &seen["count"]), (&true.into(), &10.into()));
    let refused = app.like("u11", "blog/1").await;
    assert_eq!(refused.status, 500, "{refused:?}");
    let seen = new.get("u11", "blog/1").await.json();
    assert_eq!(
        (&seen["liked"], &seen["count"]),
        (&false.into(), &10.into())
    );
    new.finish().await;
}

#[tokio::test]
async fn whoever_still_writes_with_the_old_layout_keeps_it() {
    let old = Stand::start(4).await;
    with_likes(&old).await;
    let new = Settings {
        partitions: 1,
        ..old.settings.clone()
    };
    let hold = Hold::always("relayout.drained");
    let change = gated(hold.clone(), relayout::ensure(&new));
    let writes = async {
        for n in 100.. {
            hold.reached.notified().await;
            // In the last partition: the others are retired by then.
            let user = (0..)
                .map(|m| format!("w{n}x{m}"))
                .find(|user| old.home(user) == 3);
            old.like(&user.unwrap(), "blog:1").await.unwrap();
            hold.go_on.notify_one();
        }
    };
    let error = tokio::select! {
        changed = change => changed.unwrap_err().to_string(),
        () = writes => unreachable!(),
    };
    assert!(
        error.contains("another thumbd still writes with 4 partitions"),
        "{error}"
    );
    // It goes on as if nothing had been.
    for n in 0..20 {
        old.unlike(&format!("u{n}"), "blog:1").await.unwrap();
    }
    assert_eq!(old.look("u1", "blog:1").await, (Some(false), Some(3)));
    old.check().await;
}

#[tokio::test]
async fn a_change_that_dies_can_be_begun_again_or_taken_back() {
    for point in ["relayout.drained", "relayout.retired", "relayout.stored"] {
        for back in [false, true] {
            let old = Stand::start(2).await;
            with_likes(&old).await;
            let new = Settings {
                partitions: 3,
                ..old.settings.clone()
            };
            let hold = Hold::at(point);
            tokio::select! {
                _ = gated(hold.clone(), relayout::ensure(&new)) => panic!("it was not held"),
                () = hold.reached.notified() => {}
            }
            let settings = if back { &old.settings } else { &new };
            is_right(&start(settings).await.unwrap()).await;
        }
    }
}

#[tokio::test]
async fn a_flusher_of_the_old_layout_writes_nothing() {
    let old = Stand::start(1).await;
    with_likes(&old).await;
    let peek = old.peek(0).await;
    let new = Settings {
        key_prefix: format!("{}-new", old.settings.key_prefix),
        ..old.settings.clone()
    };
    let t = start(&new).await.unwrap();
    // A slice of the old layout comes to life, as from a snapshot.
    let id = peek.live[0].0.to_string();
    old.command::<()>(&[
        "HSET",
        &old.key(0, &format!("slice:{id}")),
        "u50 blog:1",
        &format!("{id}000"),
    ])
    .await;
    old.command::<()>(&["ZADD", &old.key(0, "slices"), &id, &id])
        .await;
    let flusher = Flusher::new(old.hot.clone(), old.ledger.clone(), &old.settings);
    let error = flusher.run(|| thumbd::flush::Upto::Now).await.unwrap_err();
    assert!(
        error.to_string().contains("the database was written with"),
        "{error}"
    );
    is_right(&t).await;
    let thumb = thumbd::hot::Thumb {
        user: crate::stand::user("u1"),
        target: crate::stand::target("blog:1"),
        known: None,
    };
    let refused = old.hot.thumb_many(0, true, &[thumb]).await.remove(0);
    assert!(
        matches!(refused, Err(HotError::Layout { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_kind_that_is_no_longer_accepted_lands_all_the_same() {
    let app = TestApp::start().await;
    assert_eq!(app.like("u1", "photo/1").await.status, 200);
    let env = app.env.clone();
    let blog = thumbd::domain::Kind::parse("blog").unwrap();
    let only = TestApp::on(env, |settings| settings.kinds = Kinds::only([blog])).await;
    assert_eq!(only.like("u1", "photo/2").await.status, 400);
    assert_eq!(only.flush_now().await.rows_changed, 1);
    only.finish().await;
    let seen = app.get("u1", "photo/1").await.json();
    assert_eq!((&seen["liked"], &seen["count"]), (&true.into(), &1.into()));
    app.finish().await;
}

#[tokio::test]
async fn commands_with_other_settings_are_refused_in_one_line() {
    let mut t = Stand::on(settings(1).await).await;
    with_likes(&t).await;
    t.settings.partitions = 4;
    for command in ["flush", "compensate", "verify", "repair"] {
        let (code, text) = t.program(&[command]).await;
        assert_eq!(code, Some(1), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.contains("1 partitions") && text.contains("4 partitions"),
            "{text}"
        );
    }
    t.settings.partitions = 1;
    is_right(&t).await;
}
