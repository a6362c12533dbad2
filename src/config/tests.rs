//! The table, its sources and its errors, without touching the process's own environment.

use std::collections::HashSet;
use std::path::PathBuf;

use super::*;

const ALL: [Group; 9] = [
    Group::Service,
    Group::Redis,
    Group::Database,
    Group::Jobs,
    Group::Residents,
    Group::Gathering,
    Group::Feed,
    Group::Http,
    Group::Log,
];

fn load(flags_given: &[&str], variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let command = clap::Command::new("thumbd")
        .no_binary_name(true)
        .arg(clap::Arg::new(CONFIG_FLAG).long(CONFIG_FLAG))
        .args(flags(&ALL));
    let matches = command.try_get_matches_from(flags_given).unwrap();
    Settings::load(&matches, &variables.iter().copied().collect())
}

/// The error's text, with the directory of temporary files taken out.
fn problem(flags_given: &[&str], variables: &[(&str, &str)]) -> String {
    load(flags_given, variables).unwrap_err().to_string()
}

struct Files(tempfile::TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        Self(directory)
    }

    fn path(&self, name: &str) -> String {
        self.0
            .path()
            .join(name)
            .into_os_string()
            .into_string()
            .unwrap()
    }

    fn toml_problem(text: &str) -> String {
        let files = Self::new(&[("thumbd.toml", text)]);
        let path = files.path("thumbd.toml");
        problem(&["--config", &path], &[]).replace(&path, "FILE")
    }
}

#[test]
fn defaults_are_read_and_hold_together() {
    let settings = load(&[], &[]).unwrap();
    assert_eq!(
        format!("{settings:?}"),
        format!("{:?}", Settings::default())
    );
    assert_eq!(settings.listen.to_string(), "127.0.0.1:7468");
    assert_eq!(settings.compensate_cron.as_str(), "0 0 2 * * *");
    assert_eq!(settings.time_zone, chrono_tz::UTC);
    assert_eq!((settings.partitions, settings.slice_seconds), (1, 10));
    assert!(settings.migrate_at_start && !settings.read_requires_key);
    assert!(
        settings
            .kinds
            .allows(&crate::domain::Kind::parse("anything").unwrap())
    );
    assert!(settings.redis_url.is_none());
}

#[test]
fn names_are_unique_and_every_help_is_one_sentence() {
    let mut names = HashSet::new();
    for setting in table() {
        assert!(names.insert(setting.name), "{} twice", setting.name);
        assert!(
            setting.help.ends_with('.') && !setting.help.contains('\n'),
            "{}",
            setting.name
        );
        assert!(
            setting.default.is_some() || setting.example.is_some(),
            "{}",
            setting.name
        );
        for (end, word) in [
            ("_ms", "milliseconds"),
            ("_seconds", "econds"),
            ("bytes_max", "bytes"),
        ] {
            if setting.name.ends_with(end) {
                assert!(
                    setting.help.contains(word),
                    "{} does not say its unit",
                    setting.name
                );
            }
        }
    }
}

#[test]
fn flags_win_over_environment_over_toml_over_default() {
    let files = Files::new(&[(
        "a.toml",
        "partitions = 2\nslice_seconds = 20\nkey_prefix = \"toml\"\n",
    )]);
    let path = files.path("a.toml");
    let variables = [
        ("THUMBD_CONFIG", path.as_str()),
        ("THUMBD_PARTITIONS", "3"),
        ("THUMBD_SLICE_SECONDS", "30"),
    ];
    let settings = load(&["--partitions", "4"], &variables).unwrap();
    assert_eq!(settings.partitions, 4);
    assert_eq!(settings.slice_seconds, 30);
    assert_eq!(settings.key_prefix, "toml");
    assert_eq!(settings.keep_seconds, 60);
}

#[test]
fn the_flag_config_wins_over_its_variable() {
    let files = Files::new(&[("a.toml", "partitions = 2"), ("b.toml", "partitions = 3")]);
    let (a, b) = (files.path("a.toml"), files.path("b.toml"));
    let settings = load(&["--config", &b], &[("THUMBD_CONFIG", &a)]).unwrap();
    assert_eq!(settings.partitions, 3);
}

#[test]
fn every_setting_has_a_variable_and_only_open_ones_a_flag() {
    let longs: HashSet<String> = flags(&ALL)
        .iter()
        .filter_map(|arg| arg.get_long().map(str::to_owned))
        .collect();
    for setting in table() {
        let text = setting.default.or(setting.example).unwrap();
        let name = format!("THUMBD_{}", setting.name.to_uppercase());
        // Only TOML has tables.
        let text = if setting.name == "keys" { "[]" } else { text };
        load(&[], &[(&name, text)]).unwrap();
        assert_eq!(
            longs.contains(&setting.name.replace('_', "-")),
            !setting.secret,
            "{}",
            setting.name
        );
        let file = format!("{name}_FILE");
        let unknown = matches!(
            load(&[], &[(&file, "/nowhere")]),
            Err(ConfigError::Unknown { .. })
        );
        assert_eq!(unknown, !setting.secret, "{file}");
    }
}

#[test]
fn secrets_come_from_files_and_are_not_shown() {
    let files = Files::new(&[
        ("key", "from-a-file\r\n"),
        (
            "thumbd.toml",
            "service_key_file = \"key\"\nadmin_token = \"from-toml\"\n",
        ),
    ]);
    let config = files.path("thumbd.toml");
    let settings = load(
        &["--config", &config],
        &[("THUMBD_ADMIN_TOKEN_FILE", &files.path("key"))],
    )
    .unwrap();
    assert_eq!(
        settings.service_key.as_ref().unwrap().expose(),
        "from-a-file"
    );
    assert_eq!(
        settings.admin_token.as_ref().unwrap().expose(),
        "from-a-file"
    );
    assert!(!format!("{settings:?} {}", settings.service_key.as_ref().unwrap()).contains("from-"));
    assert!(format!("{settings:?}").contains("service_key: Some([secret])"));
}

#[test]
fn errors_never_hold_a_secret() {
    for text in [
        "service_key = \"hunter2 hunter2\"",
        "service_key = \"hunter2",
        "service_key = [\"hunter2\"]",
        "service_key = \"hunter2\"\nservice_key = \"hunter2\"",
        "redis_url = \"hunter2://hunter2\"",
        "database_url = \"hunter2\"",
        "redis_url = hunter2",
        "feed_webhook_url = \"http://www.example.com/hunter2\"",
        "feed_webhook_url = \"hunter2\"",
        "feed_webhook_secret = \"hunter2\"",
    ] {
        let problem = Files::toml_problem(text);
        assert!(!problem.contains("hunter2"), "{problem}");
    }
    let problem = problem(
        &[],
        &[
            ("THUMBD_SERVICE_KEY", "hunter2"),
            ("THUMBD_SERVICE_KEY_FILE", "x"),
        ],
    );
    assert_eq!(
        problem,
        "THUMBD_SERVICE_KEY and THUMBD_SERVICE_KEY_FILE are both set: leave one of them out"
    );
}

#[test]
fn wrong_values_name_setting_source_and_range() {
    let texts = [
        problem(&["--partitions", "0"], &[]),
        problem(&["--partitions", "-3"], &[]),
        problem(&["--partitions", "99999999999999999999"], &[]),
        problem(&[], &[("THUMBD_LEASE_TTL_MS", "2999")]),
        problem(&[], &[("THUMBD_READ_REQUIRES_KEY", "yes")]),
        problem(&[], &[("THUMBD_SERVICE_KEY", "short")]),
        problem(&[], &[("THUMBD_REDIS_URL", "mysql://user:secret@host")]),
        problem(&["--compensate-cron", "0 2 * *"], &[]),
        problem(&["--compensate-cron", "0 0 25 * * *"], &[]),
        problem(&["--compensate-cron", "0 0 0 30 2 *"], &[]),
        problem(&["--time-zone", "Berlin"], &[]),
        problem(&["--log", "inof"], &[]),
        problem(&["--log", "thumbd=loud"], &[]),
        problem(&["--log-format", "xml"], &[]),
        problem(&["--feed", "http"], &[]),
        problem(
            &[],
            &[("THUMBD_FEED_WEBHOOK_URL", "http://www.example.com/")],
        ),
        problem(
            &[],
            &[("THUMBD_FEED_WEBHOOK_URL", "https://a:b@www.example.com/")],
        ),
        problem(&[], &[("THUMBD_FEED_WEBHOOK_SECRET", "whsec_c2hvcnQ=")]),
        problem(&["--kinds", "blog,,x"], &[]),
        problem(&["--key-prefix", "a:b"], &[]),
        problem(&["--listen", "7468"], &[]),
        Files::toml_problem("partitions = \"4\""),
        Files::toml_problem("partitions = 2000"),
        Files::toml_problem("[kinds]"),
        Files::toml_problem("[kinds.blog]\nuser_operations_per_minute = \"60\""),
        problem(&["--kinds", "blog+user_operations_per_minute=60"], &[]),
        problem(
            &[
                "--kinds",
                "blog+toggle_cooldown_ms=2+toggle_cooldown_max_ms=1",
            ],
            &[],
        ),
        problem(
            &["--kinds", "blog+toggle_cooldown_ms=1+toggle_cooldown_ms=1"],
            &[],
        ),
        problem(&["--kinds", "blog+burst=1"], &[]),
        Files::toml_problem("partitions = 1\nlisten 5"),
    ];
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn unknown_names_are_errors_and_get_a_hint() {
    let texts = [
        problem(&[], &[("THUMBD_PARTITION", "4")]),
        problem(&[], &[("THUMBD_SOMETHING_ELSE", "4")]),
        problem(&[], &[("THUMBD_PARTITIONS_FILE", "4")]),
        Files::toml_problem("partitons = 4"),
        Files::toml_problem("[kinds.blog]\ncolour = 1"),
        Files::toml_problem("[kinds.blog]\nuser_operation_burst = 1"),
        Files::toml_problem("kinds.blog = true"),
        Files::toml_problem("[redis]\nurl = 1"),
    ];
    insta::assert_snapshot!(texts.join("\n"));
    let links = [
        ("THUMBD_PORT", "tcp://x"),
        ("THUMBD_SERVICE_HOST", "x"),
        ("THUMBD_PORT_7468_TCP_ADDR", "x"),
    ];
    load(&[], &links).unwrap();
}

#[test]
fn an_unreadable_file_says_who_named_it() {
    let error = load(&[], &[("THUMBD_CONFIG", "/nowhere/thumbd.toml")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nowhere/thumbd.toml (named by THUMBD_CONFIG) cannot be read"
    );
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn relations_between_bounds_are_checked() {
    let texts = [
        problem(&["--redis-response-timeout-ms", "10000"], &[]),
        problem(
            &["--request-timeout-ms", "1500"],
            &[
                ("THUMBD_COLD_TIMEOUT_MS", "1500"),
                ("THUMBD_REDIS_RESPONSE_TIMEOUT_MS", "100"),
            ],
        ),
        problem(
            &["--gather-operations-max", "100"],
            &[("THUMBD_QUEUE_OPERATIONS_MAX", "99")],
        ),
        problem(
            &["--slice-seconds", "60"],
            &[("THUMBD_RESIDENT_TTL_SECONDS", "59")],
        ),
    ];
    insta::assert_snapshot!(texts.join("\n"));
    load(
        &["--gather-operations-max", "100"],
        &[("THUMBD_QUEUE_OPERATIONS_MAX", "100")],
    )
    .unwrap();
}

#[test]
fn only_the_command_line_makes_a_usage_error() {
    assert!(load(&["--partitions", "0"], &[]).unwrap_err().is_usage());
    assert!(
        load(&["--request-timeout-ms", "1000"], &[])
            .unwrap_err()
            .is_usage()
    );
    assert!(
        !load(&[], &[("THUMBD_PARTITIONS", "0")])
            .unwrap_err()
            .is_usage()
    );
}

#[test]
fn five_cron_fields_run_at_second_zero() {
    let settings = load(&["--compensate-cron", " 30  4 * * 1 "], &[]).unwrap();
    assert_eq!(settings.compensate_cron.as_str(), "0 30 4 * * 1");
}

#[test]
fn the_scheduler_takes_what_the_check_takes() {
    for text in [
        "0 0 2 * * *",
        "0 2 * * *",
        "*/5 * * * * *",
        "0 0 2 L * *",
        "0 0 2 * * MON#1",
        "0 0 2 1 1 *",
    ] {
        let cron = Cron::parse(text).unwrap();
        let job = tokio_cron_scheduler::Job::new_async_tz(
            cron.as_str(),
            chrono_tz::Europe::Berlin,
            |_, _| Box::pin(async {}),
        );
        assert!(job.is_ok(), "{text}");
    }
}

#[test]
fn kinds_close_the_list() {
    let files = Files::new(&[("a.toml", "[kinds.blog]\n[kinds.photo]\n")]);
    for settings in [
        load(&["--kinds", "blog, photo"], &[]).unwrap(),
        load(&["--config", &files.path("a.toml")], &[]).unwrap(),
    ] {
        let allows = |kind: &str| {
            settings
                .kinds
                .allows(&crate::domain::Kind::parse(kind).unwrap())
        };
        assert!(allows("blog") && allows("photo") && !allows("blgo"));
        assert_eq!(settings.kinds.names().unwrap().count(), 2);
    }
}

#[test]
fn limits_of_a_kind_are_keys_of_its_table_or_stand_behind_its_name() {
    let table = "[kinds.blog]\nuser_operations_per_minute = 7\nuser_operations_burst = 2\n\
                 [kinds.photo]\ntoggle_cooldown_ms = 1\ntoggle_cooldown_max_ms = 3600000\n[kinds.plain]\n";
    let files = Files::new(&[("a.toml", table)]);
    let text = "blog+user_operations_burst=2+user_operations_per_minute=7,\
                photo+toggle_cooldown_ms=1+toggle_cooldown_max_ms=3600000,plain";
    for settings in [
        load(&["--kinds", text], &[]).unwrap(),
        load(&["--config", &files.path("a.toml")], &[]).unwrap(),
    ] {
        let limits: Vec<KindLimits> = settings.kinds.limits().map(|(_, limits)| limits).collect();
        let [blog, photo, plain] = limits[..] else {
            panic!("{limits:?}");
        };
        let rate = blog.operations.unwrap();
        assert_eq!((rate.per_minute, rate.burst, blog.toggles), (7, 2, None));
        assert!(rate.interval_us() * 7 >= 60_000_000, "more than the rate");
        let toggles = photo.toggles.unwrap();
        assert_eq!((toggles.first_ms, toggles.max_ms), (1, 3_600_000));
        assert_eq!((photo.operations, plain), (None, KindLimits::default()));
        let without = settings.kinds.without_limits();
        assert!(without.limits().all(|(_, limits)| limits == plain));
    }
    for (name, other, min, max) in [
        (
            "user_operations_per_minute",
            "user_operations_burst",
            1,
            60_000,
        ),
        (
            "user_operations_burst",
            "user_operations_per_minute",
            1,
            10_000,
        ),
        ("toggle_cooldown_ms", "toggle_cooldown_max_ms", 1, 3_600_000),
    ] {
        let is = |value: u64, fits| {
            let rest = if name.starts_with("toggle") {
                3_600_000
            } else {
                1
            };
            let text = format!("[kinds.a]\n{name} = {value}\n{other} = {rest}");
            let files = Files::new(&[("a.toml", &text)]);
            let loaded = load(&["--config", &files.path("a.toml")], &[]);
            assert_eq!(loaded.is_ok(), fits, "{text}");
        };
        is(min, true);
        is(max, true);
        is(min - 1, false);
        is(max + 1, false);
    }
}

#[test]
fn who_sees_a_kind_is_set_in_its_table_or_behind_its_name() {
    let table = "[kinds.blog]\nlikers = \"self\"\nuser_likes = \"public\"\n\
                 [kinds.photo]\nlikers = \"service\"\n[kinds.plain]\n";
    let files = Files::new(&[("a.toml", table)]);
    let text = "blog+user_likes=public+likers=self,photo+likers=service,plain";
    for settings in [
        load(&["--kinds", text], &[]).unwrap(),
        load(&["--config", &files.path("a.toml")], &[]).unwrap(),
    ] {
        let seen = |kind| {
            let KindVisibility { likers, user_likes } = settings.kinds.visibility(kind);
            (likers, user_likes)
        };
        assert_eq!(seen("blog"), (Visibility::Own, Visibility::Public));
        assert_eq!(seen("photo"), (Visibility::Service, Visibility::Service));
        for unset in ["plain", "another"] {
            assert_eq!(seen(unset), (Visibility::Public, Visibility::Service));
        }
    }
    let with = |more: &str| Files::toml_problem(&format!("[kinds.blog]\n{more}"));
    let texts = [
        with("likers = \"nobody\""),
        with("likers = 1"),
        with("user_likes = \"self,photo\""),
        with("user_like = \"self\""),
        problem(&["--kinds", "blog+likers=public+likers=self"], &[]),
        problem(&["--kinds", "blog+user_likes"], &[]),
    ];
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn a_mirror_is_a_table_of_keys_or_a_short_text() {
    let table = "[kinds.blog]\nmirror_table = \"shop.blog\"\nmirror_id_column = \"id\"\n\
                 mirror_count_column = \"thumb_count\"\n[kinds.photo]\n";
    let files = Files::new(&[("a.toml", table)]);
    for settings in [
        load(&["--kinds", "blog:shop.blog/id/thumb_count, photo"], &[]).unwrap(),
        load(&["--config", &files.path("a.toml")], &[]).unwrap(),
    ] {
        assert_eq!(settings.kinds.names().unwrap().count(), 2);
        let mirrors: Vec<_> = settings.kinds.mirrors().collect();
        let mirror = Mirror::parse("shop.blog", "id", "thumb_count").unwrap();
        assert_eq!(mirrors.len(), 1);
        assert_eq!((mirrors[0].0.as_str(), mirrors[0].1), ("blog", &mirror));
    }
    let limits = "toggle_cooldown_ms = 1\ntoggle_cooldown_max_ms = 2\n";
    let files = Files::new(&[(
        "b.toml",
        &table.replace("[kinds.photo]", &format!("{limits}[kinds.photo]")),
    )]);
    let both = load(&["--config", &files.path("b.toml")], &[]).unwrap();
    assert_eq!(both.kinds.mirrors().count(), 1);
    assert_eq!(
        both.kinds
            .limits()
            .filter(|(_, one)| one.toggles.is_some())
            .count(),
        1
    );
    let with = |more: &str| Files::toml_problem(&format!("[kinds.blog]\n{more}"));
    let texts = [
        with("mirror_table = \"blog\"\nmirror_id_column = \"id\""),
        with("mirror_tabel = \"blog\""),
        with("mirror_table = 1\nmirror_id_column = \"id\"\nmirror_count_column = \"n\""),
        with("mirror_table = \"a`b\"\nmirror_id_column = \"id\"\nmirror_count_column = \"n\""),
        with("mirror_table = \"a.b.c\"\nmirror_id_column = \"id\"\nmirror_count_column = \"n\""),
        with("mirror_table = \"a,b\"\nmirror_id_column = \"id\"\nmirror_count_column = \"n\""),
        with("mirror_table = \"a\"\nmirror_id_column = \"id\"\nmirror_count_column = \"ID\""),
        problem(&["--kinds", "blog:blog/id"], &[]),
    ];
    insta::assert_snapshot!(texts.join("\n"));
}

#[test]
fn keys_are_asked_for_by_name() {
    let missing = |settings: &Settings, rule| settings.check_keys(rule).unwrap_err().to_string();
    let mut settings = Settings::default();
    assert!(
        missing(&settings, KeyRule::Required)
            .starts_with("service_key is not set: give THUMBD_SERVICE_KEY,")
    );
    settings.check_keys(KeyRule::OptionalOnLoopback).unwrap();
    settings.listen = "0.0.0.0:7468".parse().unwrap();
    assert!(missing(&settings, KeyRule::OptionalOnLoopback).starts_with("service_key"));
    settings.service_key = Some(Secret::new("12345678"));
    assert!(missing(&settings, KeyRule::Required).starts_with("admin_token"));
    settings.admin_token = Some(Secret::new("12345678"));
    settings.check_keys(KeyRule::Required).unwrap();
    assert!(
        settings
            .require_redis_url()
            .unwrap_err()
            .to_string()
            .starts_with("redis_url is not set")
    );
}

#[test]
fn a_webhook_needs_an_address_and_a_secret() {
    const URL: (&str, &str) = ("THUMBD_FEED_WEBHOOK_URL", "https://www.example.com/likes");
    const SECRET: (&str, &str) = (
        "THUMBD_FEED_WEBHOOK_SECRET",
        "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    );
    let missing = |given: &[(&str, &str)]| {
        let settings = load(&["--feed", "webhook"], given).unwrap();
        settings.require_webhook().unwrap_err().to_string()
    };
    insta::assert_snapshot!([missing(&[]), missing(&[SECRET]), missing(&[URL])].join("\n"));
    let settings = load(&["--feed", "webhook"], &[URL, SECRET]).unwrap();
    let (url, _) = settings.require_webhook().unwrap().unwrap();
    assert_eq!(url.origin(), "https://www.example.com");
    let shown = format!("{settings:?}");
    assert!(
        !shown.contains("AAAA") && !shown.contains("/likes"),
        "{shown}"
    );
    // Whoever switches it off for a while may leave the rest where it is.
    let settings = load(&["--feed", "stream"], &[URL, SECRET]).unwrap();
    assert!(settings.require_webhook().unwrap().is_none());
}

/// Run with `UPDATE_EXAMPLE=1` to write the file anew.
#[test]
fn the_checked_in_example_is_the_table() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/thumbd.example.toml");
    if std::env::var_os("UPDATE_EXAMPLE").is_some() {
        std::fs::write(&path, example()).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap();
    assert!(
        checked_in == example(),
        "docs/thumbd.example.toml is old: run this test with UPDATE_EXAMPLE=1"
    );
}

#[test]
fn the_example_with_everything_uncommented_is_the_defaults() {
    let uncommented: String = example()
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let keys: toml::Table = uncommented.parse().unwrap();
    assert_eq!(keys.len(), table().len());
    let files = Files::new(&[
        ("as-it-is.toml", &example()),
        ("uncommented.toml", &uncommented),
    ]);
    let untouched = load(&["--config", &files.path("as-it-is.toml")], &[]).unwrap();
    assert_eq!(
        format!("{untouched:?}"),
        format!("{:?}", Settings::default())
    );
    let mut settings = load(&["--config", &files.path("uncommented.toml")], &[]).unwrap();
    assert!(settings.check_keys(KeyRule::Required).is_ok());
    assert!(settings.require_redis_url().is_ok() && settings.require_database_url().is_ok());
    settings.kinds = Kinds::any();
    settings.keys.clear();
    settings.admin_listen = None;
    settings.cors_origins = None;
    (settings.feed_webhook_url, settings.feed_webhook_secret) = (None, None);
    settings.feed_webhook_ca_file = None;
    (settings.jwt_secret, settings.jwt_keys) = (None, None);
    (settings.jwt_issuer, settings.jwt_audience) = (None, None);
    (
        settings.service_key,
        settings.admin_token,
        settings.redis_url,
        settings.database_url,
    ) = (None, None, None, None);
    assert_eq!(
        format!("{settings:?}"),
        format!("{:?}", Settings::default())
    );
}
