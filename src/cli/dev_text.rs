//! What `thumbd dev` writes: its configuration file, and a welcome with lines to paste.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;
use percent_encoding::percent_decode_str;

use crate::config::{Secret, Settings};

const COUNTS: &str = "SELECT name, target_id, count FROM thumb_count JOIN kind USING (kind_id) \
                      ORDER BY count DESC LIMIT 10";

/// A configuration with which other commands, such as verify, find the same servers and the same layout.
pub(super) fn config(settings: &Settings) -> anyhow::Result<String> {
    let url = |url: &Option<Secret>| {
        url.as_ref()
            .map_or(String::new(), |url| url.expose().to_owned())
    };
    let slice_seconds = i64::try_from(settings.slice_seconds).context("slice_seconds")?;
    let values: [(&str, toml::Value); 5] = [
        ("redis_url", url(&settings.redis_url).into()),
        ("database_url", url(&settings.database_url).into()),
        ("key_prefix", settings.key_prefix.clone().into()),
        ("partitions", i64::from(settings.partitions).into()),
        ("slice_seconds", slice_seconds.into()),
    ];
    let mut text = String::from(
        "# Written by thumbd dev at each start: thumbd verify --config FILE looks at its servers while it runs.\n",
    );
    for (name, value) in values {
        writeln!(text, "{name} = {value}")?;
    }
    Ok(text)
}

/// The address, and one line for everything that one wants to try first.
pub(super) fn welcome(
    settings: &Settings,
    (address, admin_address): (SocketAddr, Option<SocketAddr>),
    config: &Path,
    program: &str,
) -> String {
    let inner = admin_address.unwrap_or(address);
    let key = header(&settings.service_key, "THUMBD_SERVICE_KEY");
    let admin = header(&settings.admin_token, "THUMBD_ADMIN_TOKEN");
    let kind = settings.kinds.names().and_then(|mut names| names.next());
    let kind = kind.map_or("blog", |kind| kind.as_str());
    let like = format!("http://{address}/v1/likes/{kind}/42");
    let user = format!("-H 'X-User-Id: u1'{key}");
    let config = config.display();
    let mut text = format!(
        "\nthumbd serves on http://{address}\n\n\
         like          curl -X PUT {user} {like}\n\
         unlike        curl -X DELETE {user} {like}\n\
         read          curl {user} {like}\n\
         flush         curl -X POST{admin} http://{inner}/admin/v1/flushes\n\
         compensation  curl -X POST{admin} http://{inner}/admin/v1/compensations\n\
         check         {program} verify --config '{config}'\n\
         watch         http://{inner}/ui\n"
    );
    if let Some(socket) = socket(settings) {
        let _ = writeln!(
            text,
            "in SQL        mariadb --socket '{socket}' --user root thumbd -e '{COUNTS}'"
        );
    }
    text.push_str("\nCtrl-C stops it and its servers; the data stay.\n\n");
    text
}

/// Keys are not printed: the shell has them where thumbd has them from.
fn header(key: &Option<Secret>, variable: &str) -> String {
    match key {
        Some(_) => format!(" -H \"Authorization: Bearer ${variable}\""),
        None => String::new(),
    }
}

/// The database's socket, from its address.
fn socket(settings: &Settings) -> Option<String> {
    let url = settings.database_url.as_ref()?.expose();
    let (_, query) = url.split_once('?')?;
    let socket = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("socket="))?;
    Some(percent_decode_str(socket).decode_utf8().ok()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    fn settings() -> Settings {
        Settings {
            redis_url: Some(Secret::new("redis+unix:///d/a%20b/socket")),
            database_url: Some(Secret::new(
                "mysql://root@localhost/thumbd?ssl-mode=disabled&socket=/d/a%20b/socket",
            )),
            partitions: 4,
            ..Settings::default()
        }
    }

    #[test]
    fn the_file_is_read_back() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), config(&settings()).unwrap()).unwrap();
        let path = file.path().to_str().unwrap();
        let arg = clap::Arg::new("config").long("config");
        let matches = Command::new("x")
            .arg(arg)
            .get_matches_from(["x", "--config", path]);
        let read = Settings::load(&matches, &Default::default()).unwrap();
        assert_eq!(read.database_url, settings().database_url);
        assert_eq!(read.redis_url, settings().redis_url);
        assert_eq!(read.partitions, 4);
    }

    #[test]
    fn the_welcome_can_be_pasted_and_holds_no_key() {
        let address = SocketAddr::from(([127, 0, 0, 1], 7468));
        let path = Path::new(".thumbd/thumbd.toml");
        insta::assert_snapshot!(
            "open",
            welcome(&settings(), (address, None), path, "thumbd")
        );
        let settings = Settings {
            service_key: Some(Secret::new("service-key")),
            admin_token: Some(Secret::new("admin-token")),
            ..settings()
        };
        let text = welcome(&settings, (address, None), path, "thumbd");
        assert!(!text.contains("service-key") && !text.contains("admin-token"));
        insta::assert_snapshot!("with_keys", text);
        let inner = SocketAddr::from(([127, 0, 0, 1], 7469));
        let text = welcome(&settings, (address, Some(inner)), path, "thumbd");
        for (path, at) in [
            ("/v1/likes", 7468),
            ("/admin/v1/flushes", 7469),
            ("/ui", 7469),
        ] {
            assert!(
                text.contains(&format!("http://127.0.0.1:{at}{path}")),
                "{text}"
            );
        }
    }
}
