//! What a user holds that MySQL may not have yet.

use thumbd::domain::{Kind, Version};
use thumbd::hot::{Held, HeldThumb, Of};

use super::{CLOCK, TestHot, WINDOW, both, cold_user};
use crate::stand::{target, user};

const EVERYTHING: Of<'_> = Of::All {
    kind: None,
    newest: None,
};

impl TestHot {
    async fn held(&self, who: &str, of: Of<'_>) -> Held {
        let held = self.hot.held(self.p, &user(who), of).await.unwrap();
        // Redis keeps no order.
        let sorted = |mut thumbs: Vec<HeldThumb>| {
            thumbs.sort_by_key(|one| one.version);
            thumbs
        };
        match held {
            Held::All(thumbs) => Held::All(sorted(thumbs)),
            Held::Some(thumbs) => Held::Some(sorted(thumbs)),
            other => other,
        }
    }
}

fn thumbs(of: &[(&str, i64)]) -> Vec<HeldThumb> {
    let thumbs = of.iter().map(|(what, value)| HeldThumb {
        target: target(what),
        thumbed: *value > 0,
        version: Version(value.unsigned_abs()),
    });
    thumbs.collect()
}

#[tokio::test]
async fn only_a_user_that_mysql_does_not_know_all_of_is_read() {
    for t in both().await {
        let at = t.moment().await;
        let likes = [("blog:1", 5), ("photo:2", 6), ("blog:3", 7)];
        let users = [
            cold_user("u1", &likes, true),
            cold_user("u2", &likes, false),
        ];
        assert!(t.fill(&at, &users, &[]).await);
        t.resident(&[], &["blog:1", "blog:4"]).await;
        for who in ["u1", "u2", "cold"] {
            assert_eq!(t.held(who, EVERYTHING).await, Held::Nothing, "{who}");
        }
        let clock = CLOCK as i64;
        let known = [("photo:2", 6), ("blog:3", 7), ("blog:4", clock + 1)];
        let unlike = ("blog:1", -(clock + 3));
        t.like("u1", "blog:4").await;
        t.unlike("u1", "blog:1").await;
        t.unlike("u2", "blog:1").await;
        let blogs = Kind::parse("blog").unwrap();
        let newest = |newest: u64| Of::All {
            kind: Some(&blogs),
            newest: Some(Version(newest)),
        };
        let targets = ["blog:1", "blog:4"].map(target);
        let [gone, new] = targets.each_ref().map(Of::One);
        // Complete: what is absent is not liked.
        for (of, want) in [
            (EVERYTHING, &known[..]),
            (newest(7), &known[1..2]),
            (newest(6), &[]),
            (gone, &[]),
            (new, &known[2..]),
        ] {
            assert_eq!(t.held("u1", of).await, Held::All(thumbs(want)), "{of:?}");
        }
        // Partial: what is newer may hide an older row, and what is absent is not known.
        let all = [known[0], known[1], unlike];
        for (of, want) in [
            (EVERYTHING, &all[..]),
            (newest(6), &all[1..]),
            (gone, &all[2..]),
            (new, &[]),
        ] {
            assert_eq!(t.held("u2", of).await, Held::Some(thumbs(want)), "{of:?}");
        }
        // Landed, though still pinned.
        t.set("done", WINDOW.0).await;
        assert_eq!(t.held("u1", EVERYTHING).await, Held::Nothing);
    }
}

#[tokio::test]
async fn held_under_recovery_another_generation_and_another_layout() {
    for t in both().await {
        t.resident(&["u1", "u2"], &["blog:1"]).await;
        t.like("u1", "blog:1").await;
        t.set("barrier", WINDOW.0 + 5).await;
        // Dirty and resident: whatever is being recovered, this is right.
        assert!(matches!(t.held("u1", EVERYTHING).await, Held::All(_)));
        assert_eq!(t.held("u2", EVERYTHING).await, Held::Recovering);
        assert_eq!(t.held("cold", EVERYTHING).await, Held::Recovering);
        t.set("barrier", 0).await;
        t.hot.forget(t.p, &[user("u1")], &[]).await.unwrap();
        assert_eq!(t.held("u1", EVERYTHING).await, Held::Recovering);
        t.set("done", WINDOW.0).await;
        assert_eq!(t.held("u1", EVERYTHING).await, Held::Nothing);
        t.set("layout", 9).await;
        let error = t.hot.held(t.p, &user("u1"), EVERYTHING).await.unwrap_err();
        assert!(error.to_string().contains("laid out as '9'"), "{error}");
        t.command::<()>(&["DEL", &t.key("meta")]).await;
        assert_eq!(t.held("u1", EVERYTHING).await, Held::Uninitialised);
    }
}

#[tokio::test]
async fn what_no_script_wrote_is_nobodys_like() {
    let t = TestHot::start(1).await;
    t.resident(&["u1"], &["blog:1"]).await;
    t.like("u1", "blog:1").await;
    let key = t.key("user:u1");
    t.command::<()>(&["HSET", &key, "blog", "5", "blog:2", "x", "a b:1", "7"])
        .await;
    let want = Held::All(thumbs(&[("blog:1", CLOCK as i64 + 1)]));
    assert_eq!(t.held("u1", EVERYTHING).await, want);
}
