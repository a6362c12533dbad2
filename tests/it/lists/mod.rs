//! Lists: who likes a target, what a user likes, what is liked most. Right while likes come and go, and each entry once.

mod answers;
mod caching;
mod churn;
mod cursors;
mod faults;
mod held;
mod sequences;
mod visibility;

use reqwest::Method;
use serde_json::Value;
use sqlx::{AssertSqlSafe, MySqlPool};
use thumbd::domain::{Kind, UserId};
use thumbd::ledger::{Liked, Liker};

use crate::app::{Answer, TestApp, send};
use crate::stand::{Stand, target, user};

/// More than any list of these tests has.
const ENTRIES_MAX: usize = 5000;

/// Answers of one list, read to its end.
struct Walk {
    /// `user`, `kind:id`, or `kind:id=count` of each entry.
    entries: Vec<String>,
    /// How many entries each answer had.
    pages: Vec<usize>,
}

/// One entry in short.
fn short(entry: &Value) -> String {
    let text = |name: &str| entry[name].as_str();
    match (text("user"), &entry["count"]) {
        (Some(user), _) => user.to_owned(),
        (None, Value::Null) => format!("{}:{}", text("kind").unwrap(), text("id").unwrap()),
        (None, count) => format!("{}:{}={count}", text("kind").unwrap(), text("id").unwrap()),
    }
}

/// The entries of an answer.
fn entries(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let json = answer.json();
    let lists = ["users", "likes", "targets"].map(|name| json[name].as_array().cloned());
    lists.into_iter().flatten().next().unwrap()
}

fn shorts(answer: &Answer) -> Vec<String> {
    entries(answer).iter().map(short).collect()
}

/// Asks for a list as a caller that may name users, and names one or none.
async fn ask(app: &TestApp, caller: Option<&str>, path: &str) -> Answer {
    let mut request = app.trusted(Method::GET, path);
    if let Some(caller) = caller {
        request = request.header("X-User-Id", caller);
    }
    send(request).await
}

/// Reads a list to its end; `path` has a query already.
async fn walk(app: &TestApp, caller: Option<&str>, path: &str) -> Walk {
    let (mut entries, mut pages, mut cursor) = (Vec::new(), Vec::new(), String::new());
    loop {
        let answer = ask(app, caller, &format!("{path}{cursor}")).await;
        let page = shorts(&answer);
        pages.push(page.len());
        entries.extend(page);
        assert!(entries.len() < ENTRIES_MAX, "{path} has no end");
        match answer.json()["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Walk { entries, pages },
        }
    }
}

/// Runs SQL behind the back of an app.
async fn sql(app: &TestApp, text: &str) {
    let pool = MySqlPool::connect(&app.env.database_url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(text))
        .execute(&pool)
        .await
        .unwrap();
    pool.close().await;
}

impl Stand {
    /// What a user likes, read to the end.
    async fn walk_likes(&self, who: &str, kind: Option<&str>, limit: usize) -> Vec<String> {
        let who = user(who);
        let kind = kind.map(|kind| Kind::parse(kind).unwrap());
        let (mut found, mut after): (Vec<Liked>, _) = (Vec::new(), None);
        loop {
            let page = self
                .service
                .user_likes(&who, kind.as_ref(), after.as_ref(), limit);
            let page = page.await.unwrap();
            assert!(page.rows.len() == limit || !page.more);
            after = page.rows.last().cloned();
            found.extend(page.rows);
            assert!(found.len() < ENTRIES_MAX, "the list has no end");
            if !page.more {
                let versions: Vec<_> = found.iter().map(|one| one.version).collect();
                assert!(versions.is_sorted_by(|a, b| a >= b), "{found:?}");
                return found.iter().map(|one| one.target.to_string()).collect();
            }
        }
    }

    /// Who likes a target, read to the end.
    async fn walk_likers(&self, of: &str, caller: Option<&str>, limit: usize) -> Vec<String> {
        let caller: Option<UserId> = caller.map(user);
        let (mut found, mut after): (Vec<Liker>, _) = (Vec::new(), None);
        loop {
            let of = target(of);
            let page = self
                .service
                .likers(&of, caller.as_ref(), after.as_ref(), limit);
            let (_, page) = page.await.unwrap();
            assert!(page.rows.len() == limit || !page.more);
            after = page.rows.last().cloned();
            found.extend(page.rows);
            assert!(found.len() < ENTRIES_MAX, "the list has no end");
            if !page.more {
                return found.iter().map(|one| one.user.to_string()).collect();
            }
        }
    }
}
