//! The program's `quarantine` command: what it lists, retries and drops.

use crate::stand::Stand;

#[tokio::test(flavor = "multi_thread")]
async fn quarantine_is_listed_retried_and_dropped() {
    let t = Stand::start(1).await;
    let (code, text) = t.program(&["quarantine", "list"]).await;
    assert_eq!((code, &*text), (Some(0), "0 entries in quarantine\n"));
    t.script(
        "CREATE TRIGGER refuse BEFORE INSERT ON thumb FOR EACH ROW \
         BEGIN IF NEW.user_id LIKE 'poison%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END",
    )
    .await;
    t.like("poison1", "blog:1").await.unwrap();
    t.like("poison2", "blog:1").await.unwrap();
    t.like("u1", "blog:1").await.unwrap();
    let slice = t.peek(0).await.live[0];
    let key = t.key(0, &format!("slice:{slice}"));
    t.command::<()>(&["HSET", &key, "non sense", "5"]).await;
    assert_eq!(t.flush().await.quarantined, 3);

    let (code, text) = t.program(&["quarantine", "list"]).await;
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "like poison1 blog:1",
        "like poison2 blog:1",
        "bytes 'non sense' = '5'",
        "not this one",
        "3 entries in quarantine",
    ] {
        assert!(text.contains(part), "no {part} in {text}");
    }

    // The rule still stands: the entry comes back.
    let ids: Vec<u64> = t
        .ledger
        .quarantine_page(0, 10)
        .await
        .unwrap()
        .iter()
        .map(|row| row.id)
        .collect();
    let (code, text) = t.program(&["quarantine", "retry", "--all"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("is no operation, can only be dropped"),
        "{text}"
    );
    let rows = t.ledger.quarantine_page(0, 10).await.unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows.iter().filter(|row| ids.contains(&row.id)).count(), 1);

    t.script("DROP TRIGGER refuse").await;
    // A newer operation of one of them wins over the retry.
    t.like("poison2", "blog:1").await.unwrap();
    t.unlike("poison2", "blog:1").await.unwrap();
    let (_, text) = t.program(&["quarantine", "retry", "--all"]).await;
    assert!(text.contains("like poison1 blog:1: accepted"), "{text}");
    assert!(text.contains("like poison2 blog:1: overtaken"), "{text}");
    assert_eq!(t.look("poison1", "blog:1").await, (Some(true), Some(2)));
    assert_eq!(t.look("poison2", "blog:1").await, (Some(false), Some(2)));
    assert_eq!(t.number("SELECT count FROM thumb_count").await, 2);

    let (code, text) = t.program(&["quarantine", "drop", "999999"]).await;
    assert_eq!((code, &*text), (Some(1), "999999: is not in quarantine\n"));
    let (code, text) = t.program(&["quarantine", "drop", "--all"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(t.ledger.quarantine_count().await.unwrap(), 0);
    t.check().await;
}
