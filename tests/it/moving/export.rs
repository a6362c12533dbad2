//! `thumbd export`: it prints the rows, and an empty thumbd that imports them has the same.

use sqlx::Row;

use super::{file, in_hundreds, path};
use crate::stand::Stand;

/// Rows in the order of their keys, and counts.
async fn dump(t: &Stand) -> Vec<String> {
    let all = "SELECT CONCAT_WS(' ', 'row', user_id, name, target_id, version) AS line FROM thumb JOIN kind USING (kind_id) \
         WHERE thumbed = 1 \
         UNION ALL SELECT CONCAT_WS(' ', 'count', name, target_id, count) FROM thumb_count JOIN kind USING (kind_id) WHERE count <> 0 \
         UNION ALL SELECT CONCAT_WS(' ', 'part', name, target_id, partition_id, count) FROM thumb_count_part JOIN kind USING (kind_id) WHERE count <> 0";
    let rows = sqlx::query(all).fetch_all(&t.pool).await.unwrap();
    let mut lines: Vec<String> = rows.iter().map(|row| row.try_get(0).unwrap()).collect();
    lines.sort();
    lines
}

/// The CSV alone, without what the program says beside it.
async fn export(t: &Stand, words: &[&str]) -> String {
    let (code, text) = t.program(words).await;
    assert_eq!(code, Some(0), "{text}");
    let (csv, _) = text.trim_end().rsplit_once('\n').unwrap();
    format!("{csv}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_into_an_empty_thumbd_gives_the_same_rows_and_counts() {
    let from = in_hundreds(4).await;
    for n in 0..130 {
        from.like(&format!("u{n}"), &format!("blog:{}", n % 7))
            .await
            .unwrap();
    }
    for user in ["a,b", "\"quoted\"", "Ab", "ab"] {
        from.like(user, "photo:x,\"y\"").await.unwrap();
    }
    from.unlike("u3", "blog:3").await.unwrap();
    from.flush().await;
    from.sql("UPDATE thumb SET version = 1 WHERE user_id = 'u5'")
        .await;
    // Accepted, and not flushed: not in the database.
    from.like("late", "blog:1").await.unwrap();
    let csv = export(&from, &["export"]).await;
    assert_eq!(csv.lines().count(), 1 + 133);
    assert!(csv.starts_with("user,target,time,kind\n"), "{csv}");
    assert!(
        csv.contains("u5,5,1970-01-01T00:00:00.000001Z,blog\n"),
        "{csv}"
    );
    let to = in_hundreds(4).await;
    let all = file(&csv);
    let (code, text) = to.program(&["import", path(&all)]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("new likes     133"), "{text}");
    assert_eq!(dump(&to).await, dump(&from).await);
    assert_eq!(export(&to, &["export"]).await, csv);
    to.check().await;
    let photos = export(&from, &["export", "--kind", "photo"]).await;
    assert_eq!(photos.lines().count(), 1 + 4);
    assert!(photos.starts_with("user,target,time\n"), "{photos}");
}
