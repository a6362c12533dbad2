//! `thumbd compare`: it finds what differs, and only that.

use super::mirror::stand;
use crate::stand::Stand;

async fn compare(t: &Stand, more: &[&str]) -> (Option<i32>, String) {
    let words = [&["compare", "--kind", "blog"], more].concat();
    t.program(&words).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_difference_is_found_and_nothing_else() {
    let t = stand(4).await;
    for n in 0..5 {
        t.like(&format!("u{n}"), "blog:1").await.unwrap();
    }
    t.like("u1", "blog:42").await.unwrap();
    t.like("u1", "blog:77").await.unwrap();
    t.like("u1", "photo:9").await.unwrap();
    t.flush().await;
    let (code, text) = compare(&t, &[]).await;
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        text,
        "0 differences in 3 rows of the site\n1 targets with likes have no row there\n"
    );
    t.sql("UPDATE blog SET thumb_count = 3 WHERE id = 1").await;
    t.sql("UPDATE blog SET thumb_count = 8 WHERE id = 2").await;
    let (code, text) = compare(&t, &[]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.starts_with(
            "id\tsite\tthumbd\tdifference\n1\t3\t5\t+2\n2\t8\t0\t-8\n2 differences in 3 rows"
        ),
        "{text}"
    );
    // Another table than the mirror.
    t.script("CREATE TABLE old (post VARCHAR(20) PRIMARY KEY, likes BIGINT); INSERT INTO old VALUES ('1', 5), ('42', 1), ('a b', 0), ('77', 1), ('7', 0)")
        .await;
    let other = [
        "--table",
        "old",
        "--id-column",
        "post",
        "--count-column",
        "likes",
    ];
    let (code, text) = compare(&t, &other).await;
    assert_eq!(
        (code, &*text),
        (Some(0), "0 differences in 5 rows of the site\n")
    );
    // More than a page, in the order of the column.
    let mut rows = String::from("INSERT INTO old VALUES ('x0', 0)");
    for n in 1..4100 {
        rows += &format!(", ('x{n}', {})", i32::from(n == 4099));
    }
    t.sql(&rows).await;
    let (code, text) = compare(&t, &other).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("x4099\t1\t0\t-1\n1 differences in 4105 rows"),
        "{text}"
    );
    // A kind that is none: all of its counts would be 0.
    let misspelt = [&["compare", "--kind", "blgo"], &other[..]].concat();
    let (code, text) = t.program(&misspelt).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("kind blgo has no likes in MySQL yet, nor had any; these have: blog"),
        "{text}"
    );
    let (code, text) = t.program(&["compare", "--kind", "photo"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("kind photo has no mirror"), "{text}");
}
