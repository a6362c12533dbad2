//! MySQL or MariaDB by itself: server, user, schema, tables, and what stands in them that somebody must know of.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::Utc;

use super::{Beat, Notes};
use crate::config::{Mirror, Settings};
use crate::jobs::COMPENSATE;
use crate::ledger::{
    DatabaseInfo, FeedState, Ledger, LedgerError, Migrations, NotLetIn, RIGHTS, RIGHTS_TO_MIGRATE,
};
use crate::limits::{DOCTOR_IDLE_MIN, DOCTOR_PING_SLOW, PACKET_BYTES_MIN, STAGE_ROW_BYTES_MAX};
use crate::service::{self, connect_ledger};

/// What helps where thumbd was not let in or not heard.
const REACH: &str = "look at THUMBD_DATABASE_URL (user, password, host, port, database), at whether the server runs, and at what is between";
/// What helps where a question failed that anybody may ask.
const ASK: &str = "look into the server's log";

/// A connection, by how much the server's clock is ahead, and whether all tables are there.
pub(super) async fn check(
    notes: &mut Notes,
    settings: &Settings,
    instances: u32,
) -> Option<(Ledger, i64, bool)> {
    let ledger = match connect_ledger(settings) {
        Ok(ledger) => ledger,
        Err(error) => {
            notes.failed("reach", error, REACH);
            notes.skip("rest", "all else of the database");
            return None;
        }
    };
    let reached = match ledger.reach().await {
        Ok(()) => ledger.inspect().await,
        Err(error) => Err(error),
    };
    let info = match reached {
        Ok(info) => info,
        Err(error) => {
            let fix = let_in(&error, &ledger);
            notes.failed("reach", error, &fix);
            notes.skip("rest", "all else of the database");
            return None;
        }
    };
    notes.ok("reach", format!("{} answers", info.version));
    server(notes, &info);
    durability(notes, &info);
    sizes(notes, &info, settings);
    connections(notes, &info, settings, instances);
    rights(notes, &ledger, &info, settings).await;
    let migrated = schema(notes, &ledger, settings).await;
    if let Err(error) = mirrors(notes, &ledger, settings, migrated).await {
        notes.failed("mirrors", error, ASK);
        return None;
    }
    let tables_ok = if migrated {
        tables(notes, &ledger).await
    } else {
        notes.skip(
            "tables",
            "tables and what stands in them, before they are all there",
        );
        Ok(())
    };
    if let Err(error) = tables_ok {
        notes.failed("tables", error, ASK);
        return None;
    }
    match Beat::take(async || ledger.time_us().await).await {
        Ok(beat) => {
            beat.note(notes, DOCTOR_PING_SLOW);
            Some((ledger, beat.ahead_us, migrated))
        }
        Err(error) => {
            notes.failed("latency", error, REACH);
            None
        }
    }
}

/// What helps whom the server does not let in.
fn let_in(error: &LedgerError, ledger: &Ledger) -> String {
    let (user, database) = ledger.named();
    match error.not_let_in() {
        // The host is the one that the server sees, and an anonymous user with a closer one comes first.
        Some(NotLetIn::User) => format!(
            "look at user and password in THUMBD_DATABASE_URL, and at who there is: SELECT user, host FROM mysql.user WHERE user IN ('{user}', ''); \
             an anonymous user '' comes before '{user}'@'%' on its own host: DROP USER ''@'localhost', or CREATE USER '{user}'@'localhost' beside it"
        ),
        Some(NotLetIn::DatabaseUnknown) => format!(
            "CREATE DATABASE `{database}`, or another name at the end of THUMBD_DATABASE_URL"
        ),
        Some(NotLetIn::DatabaseDenied) => format!(
            "GRANT {} ON `{database}`.* TO '{user}'@'…', as the host that the error names; or another name at the end of THUMBD_DATABASE_URL, if the database is not there",
            [&RIGHTS[..], &RIGHTS_TO_MIGRATE[..]].concat().join(", ")
        ),
        None => REACH.to_owned(),
    }
}

fn server(notes: &mut Notes, info: &DatabaseInfo) {
    match info.version_problem() {
        Some(problem) => notes.fail(
            "version",
            problem,
            "install MySQL 8.0, MariaDB 10.6, or newer",
        ),
        None => notes.ok("version", info.version.clone()),
    }
    if info.read_only() {
        notes.fail(
            "writes",
            "the server is read-only, as a replica is: nothing lands",
            "name the primary in THUMBD_DATABASE_URL, or make this server one: SET GLOBAL read_only = 0",
        );
    } else {
        notes.ok("writes", "the server takes writes");
    }
    let zone = match info.variable("time_zone") {
        "" => "unknown",
        zone => zone,
    };
    let session = format!(
        "isolation {}, time zone {zone} (the server's own is {})",
        info.isolation(),
        info.variable("system_time_zone")
    );
    if info.isolation() == "READ-COMMITTED" {
        notes.ok("session", session);
    } else {
        notes.fail(
            "session",
            session,
            "let sessions choose READ COMMITTED: something between thumbd and the server takes it away",
        );
    }
    if info.is_on("log_bin") && info.variable("binlog_format") == "STATEMENT" {
        notes.fail(
            "binary log",
            "binlog_format is STATEMENT, with which the server refuses writes at READ COMMITTED",
            persist(info, "binlog_format", "'ROW'"),
        );
    } else if info.is_on("log_bin") {
        let format = info.variable("binlog_format");
        notes.ok("binary log", format!("on, binlog_format {format}"));
    } else {
        notes.ok("binary log", "off");
    }
}

/// What a crash of the machine leaves of what was committed.
fn durability(notes: &mut Notes, info: &DatabaseInfo) {
    const COMMIT: &str = "innodb_flush_log_at_trx_commit";
    let at_commit = info.variable(COMMIT);
    let sync = info.variable("sync_binlog");
    let found = if info.is_on("log_bin") {
        format!("{COMMIT} {at_commit}, sync_binlog {sync}")
    } else {
        format!("{COMMIT} {at_commit}")
    };
    if !matches!(at_commit, "1" | "3") {
        notes.warn(
            "durability",
            format!("{found}: a crash of the machine forgets commits; those that Redis still keeps (keep_seconds) land again"),
            persist(info, COMMIT, "1"),
        );
    } else if info.is_on("log_bin") && sync != "1" {
        notes.warn(
            "durability",
            format!("{found}: a crash of the machine may leave replicas with other rows"),
            persist(info, "sync_binlog", "1"),
        );
    } else {
        notes.ok("durability", found);
    }
}

/// What a statement and the staging table of a flush need.
fn sizes(notes: &mut Notes, info: &DatabaseInfo, settings: &Settings) {
    let bytes = info.number("max_allowed_packet").unwrap_or(0);
    let found = format!("max_allowed_packet is {bytes} bytes, {PACKET_BYTES_MIN} are needed");
    if bytes < PACKET_BYTES_MIN {
        notes.fail(
            "packets",
            found,
            persist(info, "max_allowed_packet", "16777216"),
        );
    } else {
        notes.ok("packets", found);
    }
    let rows = u64::from(settings.flush_rows_max);
    let needed = rows * STAGE_ROW_BYTES_MAX;
    let heap = info.number("max_heap_table_size").unwrap_or(u64::MAX);
    let found = format!(
        "max_heap_table_size is {heap} bytes, {needed} are needed for flush_rows_max {rows}"
    );
    if heap < needed {
        notes.fail(
            "staging",
            found,
            format!(
                "{}, or a lower THUMBD_FLUSH_ROWS_MAX",
                persist(
                    info,
                    "max_heap_table_size",
                    &needed.max(16 << 20).to_string()
                )
            ),
        );
    } else {
        notes.ok("staging", found);
    }
}

fn connections(notes: &mut Notes, info: &DatabaseInfo, settings: &Settings, instances: u32) {
    let per_user = info.number("max_user_connections").filter(|max| *max > 0);
    let allowed = info.number("max_connections").unwrap_or(u64::MAX);
    let allowed = per_user.map_or(allowed, |max| max.min(allowed));
    let pool = u64::from(settings.database_connections_max);
    let needed = pool * u64::from(instances);
    let found = format!(
        "{needed} at most for {instances} instances of {pool} (database_connections_max), {allowed} allowed, {} there now",
        info.connections
    );
    if needed > allowed {
        notes.fail(
            "connections",
            found,
            format!(
                "{}, or THUMBD_DATABASE_CONNECTIONS_MAX={}",
                persist(
                    info,
                    "max_connections",
                    &(needed + needed / 4 + 10).to_string()
                ),
                (allowed / u64::from(instances.max(1))).max(2)
            ),
        );
    } else {
        notes.ok("connections", found);
    }
    let idle = Duration::from_secs(info.number("wait_timeout").unwrap_or(u64::MAX));
    let found = format!(
        "the server closes idle connections after {} s (wait_timeout)",
        idle.as_secs()
    );
    if idle < DOCTOR_IDLE_MIN {
        notes.warn("idle", found, persist(info, "wait_timeout", "28800"));
    } else {
        notes.ok("idle", found);
    }
}

async fn rights(notes: &mut Notes, ledger: &Ledger, info: &DatabaseInfo, settings: &Settings) {
    if info.read_only() {
        notes.skip("rights", "rights: a server that is read-only does not tell");
        return;
    }
    let mut wanted = RIGHTS.to_vec();
    if settings.migrate_at_start {
        wanted.extend(RIGHTS_TO_MIGRATE);
    }
    match ledger.rights_missing(&wanted).await {
        Ok(missing) if missing.is_empty() => {
            notes.ok("rights", format!("{} may {}", info.user, wanted.join(", ")));
        }
        Ok(missing) => {
            let names = missing.join(", ");
            let mut fix = format!("GRANT {names} ON `{}`.* TO {};", info.database, info.user);
            if missing
                .iter()
                .all(|right| RIGHTS_TO_MIGRATE.contains(right))
            {
                fix += " or THUMBD_MIGRATE_AT_START=false, and run `thumbd migrate` as somebody who may";
            }
            notes.fail("rights", format!("{} may not {names}", info.user), fix);
        }
        Err(error) => notes.failed("rights", error, ASK),
    }
}

/// Whether all tables of this program are there.
async fn schema(notes: &mut Notes, ledger: &Ledger, settings: &Settings) -> bool {
    let found = match ledger.migrations().await {
        Ok(found) => found,
        Err(error) => {
            notes.failed(
                "schema",
                error,
                "give the user SELECT on the table _sqlx_migrations",
            );
            return false;
        }
    };
    if let Err(error) = found.refused() {
        notes.failed("schema", error, "install that newer thumbd");
        return false;
    }
    if let Err(error) = ledger.check_tables().await {
        notes.failed(
            "schema",
            error,
            "RENAME TABLE … TO …, or name another database in THUMBD_DATABASE_URL",
        );
        return false;
    }
    let Migrations {
        pending, changed, ..
    } = &found;
    if !changed.is_empty() {
        notes.fail(
            "schema",
            format!("migrations {changed:?} were run with another text than this program has"),
            "install the thumbd that the schema was made with, or a newer one",
        );
        return false;
    }
    let names = pending
        .iter()
        .map(|(number, name)| format!("{number} ({name})"));
    let names = names.collect::<Vec<_>>().join(", ");
    let newest = found.newest.unwrap_or(0);
    match (pending.is_empty(), settings.migrate_at_start) {
        (true, _) => notes.ok("schema", format!("up to date (migration {newest})")),
        (false, true) if found.newest.is_none() => {
            notes.ok(
                "schema",
                "there are no tables yet: serve makes them when it starts",
            );
        }
        (false, true) => notes.warn(
            "schema",
            format!("migrations are missing: {names}; serve runs them when it starts"),
            "thumbd migrate",
        ),
        (false, false) => notes.fail(
            "schema",
            format!("migrations are missing, and serve may not run them: {names}"),
            "thumbd migrate, as a database user who may create and alter tables",
        ),
    }
    pending.is_empty()
}

/// The mirrors that are kept, and those that the settings would have kept.
async fn mirrors(
    notes: &mut Notes,
    ledger: &Ledger,
    settings: &Settings,
    migrated: bool,
) -> Result<(), LedgerError> {
    let stored = match migrated {
        true => BTreeMap::from_iter(ledger.mirrors().await?),
        false => BTreeMap::new(),
    };
    let wanted: BTreeMap<&str, &Mirror> = service::mirrors(settings).collect();
    let kinds: BTreeSet<&str> = stored
        .keys()
        .map(String::as_str)
        .chain(wanted.keys().copied())
        .collect();
    for kind in kinds {
        let (kept, own) = (stored.get(kind), wanted.get(kind).copied());
        let (mirror, said) = match (kept, own) {
            (Some(kept), Some(own)) if kept != own => {
                notes.failed(
                    "mirrors",
                    LedgerError::MirrorOther {
                        kind: kind.to_owned(),
                        stored: Box::new(kept.clone()),
                        wanted: Box::new(own.clone()),
                    },
                    &format!("give all processes the same, or: thumbd mirror remove {kind}"),
                );
                continue;
            }
            (Some(kept), Some(_)) => (kept, ""),
            (Some(kept), None) => (kept, "; it is kept though these settings do not name it"),
            (None, Some(own)) => (own, " as soon as serve starts"),
            (None, None) => continue,
        };
        match ledger.mirror_check(kind, mirror).await {
            Ok(()) => notes.ok(
                "mirrors",
                format!("{}.{} takes the counts of {kind}{said}", mirror.table(), mirror.count_column()),
            ),
            Err(error) => notes.failed(
                "mirrors",
                error,
                &format!("make the table or column, or give the right that is named; or take the mirror out of the settings and: thumbd mirror remove {kind}"),
            ),
        }
    }
    Ok(())
}

async fn tables(notes: &mut Notes, ledger: &Ledger) -> Result<(), LedgerError> {
    let misfits = ledger.misfits().await?;
    if misfits.is_empty() {
        notes.ok(
            "tables",
            "ids are compared byte by byte, and all tables have transactions",
        );
    }
    for misfit in misfits {
        notes.fail(
            "tables",
            misfit.problem,
            format!("{}; then thumbd verify", misfit.fix),
        );
    }
    match ledger.quarantine_count().await? {
        0 => notes.ok("quarantine", "empty"),
        count => notes.warn(
            "quarantine",
            format!("{count} operations were refused by the database"),
            "thumbd quarantine list; then thumbd quarantine retry or drop",
        ),
    }
    let feed = ledger.feed_status().await?;
    match feed.state {
        FeedState::Off => notes.ok("feed", "off"),
        FeedState::Running => notes.ok(
            "feed",
            format!("{} events wait to be delivered", feed.backlog),
        ),
        FeedState::Stopped => notes.warn(
            "feed",
            format!("stopped: more than {} events waited", feed.backlog_max),
            "thumbd feed resume, when events are delivered again",
        ),
    }
    let done = ledger.job_last_done(COMPENSATE).await?;
    match done.map(|run| run.planned_at) {
        Some(last) if Utc::now() - last > chrono::TimeDelta::days(2) => notes.warn(
            "compensator",
            format!("its last run that ended well was planned for {last}"),
            "thumbd compensate; and keep a thumbd serve running over compensate_cron",
        ),
        Some(last) => notes.ok("compensator", format!("ended well, planned for {last}")),
        None => notes.ok(
            "compensator",
            "has not run yet: serve runs it when it starts",
        ),
    }
    Ok(())
}

/// A statement that sets a variable for now and for good, as far as the server can.
fn persist(info: &DatabaseInfo, name: &str, value: &str) -> String {
    if info.is_mariadb() {
        format!(
            "SET GLOBAL {name} = {value}; and {name} = {value} below [mysqld] in its file of settings"
        )
    } else {
        format!("SET PERSIST {name} = {value}")
    }
}
