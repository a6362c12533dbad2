//! Likes in bulk: import, export, counts in the site's own table, and the comparison with them.

mod compare;
mod export;
mod import;
mod mirror;
mod site;

use std::io::Write as _;

use tempfile::NamedTempFile;
use thumbd::config::{Kinds, Secret, Settings};
use thumbd::domain::Kind;
use thumbd::moving::{ImportError, Importer, Line, LineReader, Options, Summary};
use tokio::sync::mpsc;

use crate::stand::{Stand, settings};

/// A stand on which each transaction takes a hundred rows, the least there is, and only the test flushes.
async fn in_hundreds(partitions: u16) -> Stand {
    Stand::on(Settings {
        flush_rows_max: 100,
        slice_seconds: 3600,
        ..settings(partitions).await
    })
    .await
}

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}

/// What an import did.
struct Done {
    summary: Summary,
    result: Result<(), ImportError>,
    refused: Vec<(u64, String)>,
}

/// Imports a text as likes of blogs, a line after the other.
async fn import(t: &Stand, text: &str) -> Done {
    import_with(t, text, Options::default()).await
}

async fn import_with(t: &Stand, text: &str, options: Options) -> Done {
    let mut importer = Importer::begin(&t.service, &t.settings, options)
        .await
        .unwrap();
    let (sender, mut lines) = mpsc::channel(1000);
    let mut reader = LineReader::new(Some(Kind::parse("blog").unwrap()), Kinds::any(), false);
    let all: Vec<String> = text.lines().map(str::to_owned).collect();
    tokio::spawn(async move {
        for (at, line) in all.iter().enumerate() {
            let fields = line.split(',').map(str::to_owned).collect();
            let number = at as u64 + 1;
            if let Some(like) = reader.read(Ok(fields))
                && sender.send(Line { number, like }).await.is_err()
            {
                break;
            }
        }
    });
    let mut refused = Vec::new();
    let on_refused = |number: u64, problem: &str| refused.push((number, problem.to_owned()));
    let result = importer.run(&mut lines, on_refused, |_| ()).await;
    Done {
        summary: importer.summary().clone(),
        result,
        refused,
    }
}

impl Stand {
    /// As if the time of an owner who died were over.
    async fn lapse(&self) {
        let lease = format!("{}:v1:lease:flush", self.settings.key_prefix);
        let _: i64 = self.command(&["DEL", &lease]).await;
    }

    /// Makes another database on the same server; gives its name.
    async fn site(&self) -> String {
        let own = sqlx::query_scalar::<_, String>("SELECT DATABASE()");
        let name = own.fetch_one(&self.pool).await.unwrap() + "_site";
        self.script(&format!("CREATE DATABASE {name}")).await;
        name
    }

    /// The same stores by another database user, without a password.
    fn settings_as(&self, user: &str) -> Settings {
        let own = self.settings.database_url.as_ref().unwrap().expose();
        let (_, place) = own
            .rsplit_once('@')
            .unwrap_or_else(|| own.split_once("://").unwrap());
        Settings {
            database_url: Some(Secret::new(format!("mysql://{user}@{place}"))),
            ..self.settings.clone()
        }
    }
}
