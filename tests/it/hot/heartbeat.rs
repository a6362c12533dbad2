//! Signs of life of the instances.

use std::time::Duration;

use super::both;

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn instances_are_heard_until_they_sign_off_or_fall_silent() {
    for t in both().await {
        let key = format!("{}:v1:instances", t.settings.key_prefix);
        let beat = async |id: &str, says: &str, life| {
            let heard = t.hot.heartbeat(id, says, life).await.unwrap();
            let mut heard: Vec<_> = heard.into_iter().map(|one| (one.id, one.says)).collect();
            heard.sort();
            heard
        };
        let pair = |id: &str, says: &str| (id.to_owned(), says.to_owned());
        assert_eq!(
            beat("a", "{\"x\": 1}", LONG).await,
            [pair("a", "{\"x\": 1}")]
        );
        assert_eq!(beat("b", "hi there", LONG).await.len(), 2);
        // What is said again takes the place of what was said.
        let heard = beat("a", "again", LONG).await;
        assert_eq!(heard, [pair("a", "again"), pair("b", "hi there")]);
        let left: u64 = t.command(&["PTTL", &key]).await;
        assert!(left > 50_000 && left <= 60_000, "{left}");
        // What no instance wrote is nobody.
        t.command::<()>(&["HSET", &key, "c", "junk"]).await;
        assert_eq!(beat("a", "again", LONG).await.len(), 2);
        let fields: u64 = t.command(&["HLEN", &key]).await;
        assert_eq!(fields, 2);
        t.hot.sign_off("b", LONG).await.unwrap();
        assert_eq!(beat("a", "x", LONG).await, [pair("a", "x")]);
        // One that was heard a minute ago is forgotten.
        let time: Vec<String> = t.command(&["TIME"]).await;
        let old = time[0].parse::<u64>().unwrap() * 1000 - 61_000;
        t.command::<()>(&["HSET", &key, "d", &format!("{old} old")])
            .await;
        assert_eq!(beat("a", "x", LONG).await, [pair("a", "x")]);
        // A clock that was set back makes nobody younger than just now.
        let ahead = format!("{} ahead", old + 3_600_000);
        t.command::<()>(&["HSET", &key, "e", &ahead]).await;
        let heard = t.hot.heartbeat("a", "x", LONG).await.unwrap();
        let ahead = heard.iter().find(|one| one.id == "e").unwrap();
        assert_eq!(ahead.silent_ms, 0);
    }
}

#[tokio::test]
async fn the_holder_of_a_lease_is_known() {
    for t in both().await {
        assert_eq!(t.hot.lease_holder("flush").await.unwrap(), None);
        assert!(t.hot.lease("flush", "a", LONG).await.unwrap());
        assert_eq!(
            t.hot.lease_holder("flush").await.unwrap().as_deref(),
            Some("a")
        );
    }
}
