//! Every setting in one table: from it come the typed [`Settings`], the flags, the environment variables, the TOML keys and the example file.
//!
//! A value comes from, in this order: flag, environment, TOML file, default. Nothing here reads the process's own environment; the caller hands it over.

mod error;
mod example;
mod field;
mod kind_limits;
mod origins;
mod rules;
mod sources;
mod toml_file;
mod values;
mod visibility;
mod webhook;

use std::net::SocketAddr;
use std::sync::OnceLock;

pub use error::{ConfigError, Source};
pub use example::example;
pub use field::Setting;
pub use kind_limits::{KindLimits, OperationRate, ToggleCooldown};
pub use origins::Origins;
pub use sources::{CONFIG_FLAG, CONFIG_VARIABLE, Environment, flags, secret_files};
pub use values::{Cron, FeedTarget, KindSettings, Kinds, LogFormat, Mirror, Secret};
pub use visibility::{KindVisibility, Visibility};
pub use webhook::{WebhookSecrets, WebhookUrl};

use field::Found;
use origins::origins;
use rules::{
    address, boolean, cron, database_url, feed, jwt_keys, jwt_secret, key_prefix, kinds,
    log_filter, log_format, named_keys, range, redis_url, secret, text, time_zone,
};
use webhook::{webhook_secrets, webhook_url};

use crate::auth::{NamedKey, Right, TokenKeys};

/// Builds [`Settings`], [`table`] and the reader of both from one list.
macro_rules! settings {
    ($( $group:ident { $( #[doc = $help:literal] $name:ident: $type:ty = $field:expr; )+ } )+) => {
        /// All settings, checked. Their names are also those of flags, variables and TOML keys.
        #[derive(Debug, Clone)]
        pub struct Settings {
            $($( #[doc = $help] pub $name: $type, )+)+
        }

        /// The table: what is known of each setting, in the order in which help and example list them.
        pub fn table() -> &'static [Setting] {
            static TABLE: OnceLock<Vec<Setting>> = OnceLock::new();
            TABLE.get_or_init(|| vec![$($(
                Setting::new(stringify!($name), Group::$group, $help, &$field),
            )+)+])
        }

        impl Settings {
            /// Reads every field from what was found for it.
            fn read(found: &Found) -> Result<Self, ConfigError> {
                Ok(Self {
                    $($( $name: $field.read(stringify!($name), found)?, )+)+
                })
            }
        }
    };
}

/// What settings belong together: a heading of the help, and the unit in which commands take flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// What the service answers, and to whom.
    Service,
    /// Redis and what thumbd keeps there.
    Redis,
    /// MySQL or MariaDB.
    Database,
    /// Flush, compensator and their lease.
    Jobs,
    /// What stands in Redis of users and counts.
    Residents,
    /// Gathering of concurrent requests into one script call.
    Gathering,
    /// The change feed.
    Feed,
    /// Bounds of the HTTP server.
    Http,
    /// What is logged, and how.
    Log,
}

impl Group {
    /// The heading in help and example.
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Service => "Service",
            Self::Redis => "Redis",
            Self::Database => "Database",
            Self::Jobs => "Jobs",
            Self::Residents => "Residents",
            Self::Gathering => "Gathering",
            Self::Feed => "Change feed",
            Self::Http => "HTTP",
            Self::Log => "Log",
        }
    }
}

const KEY_EXAMPLE: &str = r#"name = "web"
#sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
#rights = ["write"]
#kinds = ["blog"]"#;
const JWT_KEYS_EXAMPLE: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"2026-12","x":"4I5kfcKUxDI7utrOOY12wEXQ-Vg7NVnorof-T2Ev6zs"}]}"#;

/// It says `change-me`, in Base64.
const WEBHOOK_SECRET_EXAMPLE: &str = "whsec_Y2hhbmdlLW1lLXRvLTMyLXJhbmRvbS1ieXRlcyE=";

settings! {
    Service {
        /// Address and port to listen on; 0.0.0.0 to be reached from other machines too.
        listen: SocketAddr = address().default("127.0.0.1:7468");
        /// A second address for /admin, /metrics and the probes; /admin and /metrics are then found only there.
        admin_listen: Option<SocketAddr> = address().optional().example("127.0.0.1:7469");
        /// Kinds of targets that are accepted; leave it out to accept any well-formed kind, name them to catch misspelt ones.
        kinds: Kinds = kinds().absent(Kinds::any()).example("blog");
        /// Key with which a site's back end may name any user (Authorization: Bearer); serve refuses to start without.
        service_key: Option<Secret> = secret(8, 512).optional().example("change-me-service-key");
        /// Token for /admin calls (Authorization: Bearer); serve refuses to start without.
        admin_token: Option<Secret> = secret(8, 512).optional().example("change-me-admin-token");
        /// Further keys, each with a name, the SHA-256 of the key, its rights and, if not for all, its kinds; thumbd key makes one.
        keys: Vec<NamedKey> = named_keys().absent(Vec::new()).example(KEY_EXAMPLE);
        /// Secret with which tokens of users are signed (JWT, HS256).
        jwt_secret: Option<TokenKeys> = jwt_secret().optional().example("change-me-to-32-random-bytes-or-more");
        /// Keys with which tokens of users are checked: a JWK set (HS256, RS256, ES256, EdDSA), or one public key in PEM.
        jwt_keys: Option<TokenKeys> = jwt_keys().optional().example(JWT_KEYS_EXAMPLE);
        /// Who must have issued a token (iss).
        jwt_issuer: Option<String> = text(255).optional().example("https://login.example.com");
        /// For whom a token must be (aud); without it tokens that name somebody are refused.
        jwt_audience: Option<String> = text(255).optional().example("thumbd");
        /// Seconds by which the clock of who signs tokens may differ.
        jwt_leeway_seconds: u64 = range(0, 300).default("30");
        /// Whether reads without a user need the service key too; true if counts are not public.
        read_requires_key: bool = boolean().default("false");
        /// Whether an unlike of what is not liked goes to the database too; true while likes are imported, or an import brings back what was taken back before.
        keep_unlikes: bool = boolean().default("false");
        /// Whether serve brings the database's schema up to date at start; false if its database user may not alter tables.
        migrate_at_start: bool = boolean().default("true");
        /// Longest shutdown in seconds, final flush included; more if a big slice must still land, less if the supervisor kills sooner.
        shutdown_seconds: u64 = range(1, 3600).default("30");
        /// For how many milliseconds before a shutdown all is still served and only /readyz says 503; behind a load balancer more than it needs to notice.
        shutdown_notice_ms: u64 = range(0, 60_000).default("0");
    }
    Redis {
        /// Where Redis or Valkey is, password included; redis+cluster://HOST:PORT,HOST:PORT or redis+sentinel://HOST:PORT,HOST:PORT/NAME for several, rediss for TLS.
        redis_url: Option<Secret> = redis_url().optional().example("redis://127.0.0.1:6379");
        /// Number of partitions of the users; a few per master in a Redis Cluster, 1 otherwise; refused if changed before all is flushed.
        partitions: u16 = range(1, 1024).default("1");
        /// First part of all key names; change it if two thumbd share one Redis.
        key_prefix: String = key_prefix().default("thumbd");
        /// Length of a slice in seconds; more means fewer, larger transactions and a longer tail that only Redis has.
        slice_seconds: u64 = range(1, 3600).default("10");
        /// Longest wait in milliseconds for a connection to Redis; more on slow networks.
        redis_connect_timeout_ms: u64 = range(10, 60_000).default("1000");
        /// Longest wait in milliseconds for an answer of Redis, after which the outcome is unknown; less than request_timeout_ms.
        redis_response_timeout_ms: u64 = range(10, 60_000).default("2000");
    }
    Database {
        /// Where MySQL or MariaDB is, password and database name included.
        database_url: Option<Secret> = database_url().optional().example("mysql://thumbd:change-me@127.0.0.1:3306/thumbd");
        /// Most connections to the database at once; keep the sum over all processes below the server's max_connections.
        database_connections_max: u32 = range(2, 1000).default("16");
        /// Longest wait in milliseconds for a free connection; less makes requests fail sooner while the database is down.
        database_acquire_timeout_ms: u64 = range(10, 60_000).default("2000");
        /// Longest run in milliseconds of one statement; more for large slices on slow disks.
        database_statement_timeout_ms: u64 = range(100, 3_600_000).default("30000");
    }
    Jobs {
        /// When the compensator runs: seconds, minutes, hours, day of month, month, day of week; move it to your quiet hour.
        compensate_cron: Cron = cron().default("0 0 2 * * *");
        /// Time zone of compensate_cron, an IANA name such as Europe/Berlin.
        time_zone: chrono_tz::Tz = time_zone().default("UTC");
        /// Most rows in one flush transaction; less if locks are held too long, more if commits are dear.
        flush_rows_max: u32 = range(100, 50_000).default("20000");
        /// Seconds for which a landed slice is kept in Redis in case the database forgets; more than the lag of a replica that may be promoted.
        keep_seconds: u64 = range(1, 86_400).default("60");
        /// Seconds for which a row that says "no longer liked" is kept at least; more than the age of any Redis snapshot that may be restored.
        unliked_keep_seconds: u64 = range(1, 31_536_000).default("604800");
        /// Most entries in Redis that the database does not have; beyond it likes get 503; an entry takes some 150 bytes.
        backlog_entries_max: u64 = range(1000, 1_000_000_000).default("10000000");
        /// Life in milliseconds of the lease under which one process runs the jobs; less lets another process take over sooner.
        lease_ttl_ms: u64 = range(3_000, 600_000).default("30000");
    }
    Residents {
        /// Most thumbs of one user that are held in Redis; beyond it the rest is looked up one by one.
        resident_thumbs_max: u32 = range(1, 1_000_000).default("10000");
        /// Seconds after which an unused clean user or count leaves Redis; less saves memory, more saves database reads.
        resident_ttl_seconds: u64 = range(10, 31_536_000).default("86400");
        /// Most loads of cold users and counts at once in this process; beyond it requests get 503; less protects a small database.
        cold_loads_max: usize = range(1, 100_000).default("1000");
        /// Longest wait in milliseconds for a cold user or count; less than request_timeout_ms.
        cold_timeout_ms: u64 = range(10, 60_000).default("2000");
        /// Most milliseconds for which a process answers a hot target's count from memory to readers that name no user; 0 is never.
        count_cache_ms: u64 = range(0, 1000).default("0");
    }
    Gathering {
        /// Most operations in one script call; more raises throughput, and the time for which the others wait.
        gather_operations_max: usize = range(1, 1000).default("64");
        /// Most script calls of one partition in flight at once; more helps when Redis is far away.
        gather_calls_max: usize = range(1, 1024).default("8");
        /// Most operations that wait for a script call; beyond it requests get 503; not less than gather_operations_max.
        queue_operations_max: usize = range(1, 1_000_000).default("10000");
    }
    Feed {
        /// Where changes are told that landed in the database: off, stream (a stream in Redis) or webhook (an address of yours); the same in all instances.
        feed: FeedTarget = feed().default("off");
        /// About how many events the stream keeps; more if its readers may be away for longer; an event takes some 150 bytes.
        feed_stream_max: u64 = range(1000, 100_000_000).default("1000000");
        /// Most events that wait in the database to be delivered; beyond it the feed stops, and everything else goes on.
        feed_backlog_max: u64 = range(100_000, 100_000_000).default("1000000");
        /// Where changes are posted to, if feed is webhook; its path may hold a token.
        feed_webhook_url: Option<WebhookUrl> = webhook_url().optional().example("https://www.example.com/hooks/likes");
        /// With what deliveries are signed (Standard Webhooks); two while the one is replaced by the other.
        feed_webhook_secret: Option<WebhookSecrets> = webhook_secrets().optional().example(WEBHOOK_SECRET_EXAMPLE);
        /// File of certificates (PEM) that the webhook's certificate is checked against, instead of those of the system.
        feed_webhook_ca_file: Option<String> = text(4096).optional().example("/etc/thumbd/ca.pem");
    }
    Http {
        /// Longest life of a request in milliseconds; less than the time for which the proxy in front waits.
        request_timeout_ms: u64 = range(100, 600_000).default("10000");
        /// Longest wait in milliseconds for a request's headers; less against clients that send slowly on purpose.
        header_timeout_ms: u64 = range(100, 600_000).default("10000");
        /// Largest request body in bytes; a batch of 1000 operations with the longest ids has about 400 000.
        body_bytes_max: usize = range(1024, 67_108_864).default("1048576");
        /// Origins of the web pages that browsers let call the API (CORS), or * for all; leave it out if only your own servers call.
        cors_origins: Option<Origins> = origins().optional().example("https://www.example.com");
        /// Most connections at once; keep it below the limit of open files.
        connections_max: usize = range(1, 1_000_000).default("10000");
        /// Most likes, reads and operations of batches under way at once in this process; beyond it reads get 503, writes from three quarters of it on.
        operations_in_flight_max: usize = range(4, 1_000_000).default("8000");
    }
    Log {
        /// What is logged: off, error, warn, info, debug, trace, or a list such as info,thumbd::flush=debug.
        log: String = log_filter().default("info,sqlx=error,tokio_cron_scheduler=warn");
        /// How it is logged: text for people, json (one object a line) for machines.
        log_format: LogFormat = log_format().default("text");
    }
}

/// Who may go without keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRule {
    /// Nobody: `serve`.
    Required,
    /// Whoever listens on a loopback address only: `dev`.
    OptionalOnLoopback,
}

impl Default for Settings {
    /// All defaults, for tests: `Settings { partitions: 4, ..Settings::default() }`.
    fn default() -> Self {
        Self::read(&Found::default()).expect("defaults are valid, a test reads them all")
    }
}

impl Settings {
    /// Collects, reads and checks the settings of one run. `flags` are the matches of a command that was given [`flags`].
    pub fn load(flags: &clap::ArgMatches, environment: &Environment) -> Result<Self, ConfigError> {
        let found = sources::find(flags, environment)?;
        let settings = Self::read(&found)?;
        settings.check_relations(&found)?;
        Ok(settings)
    }

    /// Bounds that only make sense together.
    fn check_relations(&self, found: &Found) -> Result<(), ConfigError> {
        let below_request = "a request must be able to answer before it is cut off";
        let request = ("request_timeout_ms", self.request_timeout_ms);
        let relations = [
            (
                ("redis_response_timeout_ms", self.redis_response_timeout_ms),
                "less than",
                request,
                below_request,
            ),
            (
                ("cold_timeout_ms", self.cold_timeout_ms),
                "less than",
                request,
                below_request,
            ),
            (
                (
                    "database_acquire_timeout_ms",
                    self.database_acquire_timeout_ms,
                ),
                "less than",
                request,
                below_request,
            ),
            (
                ("gather_operations_max", self.gather_operations_max as u64),
                "at most",
                ("queue_operations_max", self.queue_operations_max as u64),
                "a script call is filled from the queue",
            ),
            (
                ("slice_seconds", self.slice_seconds),
                "at most",
                ("resident_ttl_seconds", self.resident_ttl_seconds),
                "what is used in every slice should stay resident",
            ),
        ];
        for (left, relation, right, why) in relations {
            let holds = if relation == "less than" {
                left.1 < right.1
            } else {
                left.1 <= right.1
            };
            if !holds {
                return Err(ConfigError::Relation {
                    left: found.described(left.0, left.1),
                    relation,
                    right: found.described(right.0, right.1),
                    why,
                    flagged: found.is_flag(left.0) || found.is_flag(right.0),
                });
            }
        }
        Ok(())
    }

    /// Refuses to go without the keys that `rule` asks for.
    pub fn check_keys(&self, rule: KeyRule) -> Result<(), ConfigError> {
        let mut addresses = [Some(self.listen), self.admin_listen].into_iter().flatten();
        let loopback = addresses.all(|address| address.ip().is_loopback());
        if rule == KeyRule::OptionalOnLoopback && loopback {
            return Ok(());
        }
        if !self.names_writers() {
            required("service_key", &self.service_key)?;
        }
        if !self.names_admins() {
            required("admin_token", &self.admin_token)?;
        }
        Ok(())
    }

    /// Whether somebody may write beside the holder of the service key.
    pub fn names_writers(&self) -> bool {
        let tokens = self.jwt_secret.is_some() || self.jwt_keys.is_some();
        tokens || self.keys.iter().any(|key| key.has(Right::Write))
    }

    /// Whether somebody may administer beside the holder of the admin token.
    pub fn names_admins(&self) -> bool {
        self.keys.iter().any(|key| key.has(Right::Admin))
    }

    /// Where changes are posted to and with what they are signed, if `feed` is `webhook`.
    pub fn require_webhook(&self) -> Result<Option<(&WebhookUrl, &WebhookSecrets)>, ConfigError> {
        if self.feed != FeedTarget::Webhook {
            return Ok(None);
        }
        let url = self.feed_webhook_url.as_ref();
        let url = url.ok_or(needed("feed_webhook_url"))?;
        let secrets = self.feed_webhook_secret.as_ref();
        Ok(Some((url, secrets.ok_or(needed("feed_webhook_secret"))?)))
    }

    /// The address of Redis, for commands that cannot go without.
    pub fn require_redis_url(&self) -> Result<&Secret, ConfigError> {
        required("redis_url", &self.redis_url)
    }

    /// The address of the database, for commands that cannot go without.
    pub fn require_database_url(&self) -> Result<&Secret, ConfigError> {
        required("database_url", &self.database_url)
    }
}

fn needed(setting: &'static str) -> ConfigError {
    ConfigError::Needed {
        setting,
        by: "feed = webhook",
    }
}

fn required<'a>(
    setting: &'static str,
    value: &'a Option<Secret>,
) -> Result<&'a Secret, ConfigError> {
    value.as_ref().ok_or(ConfigError::Missing { setting })
}

#[cfg(test)]
mod tests;
