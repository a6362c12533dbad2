//! Help texts and the shape of the command line.

use super::*;

#[test]
fn the_command_line_is_well_formed() {
    command().debug_assert();
}

#[test]
fn help_names_every_command() {
    insta::assert_snapshot!(command().term_width(100).render_help());
}

#[test]
fn help_of_serve_names_every_setting() {
    let mut command = command().term_width(140);
    command.build();
    let help = command
        .find_subcommand_mut("serve")
        .unwrap()
        .render_long_help()
        .to_string();
    for setting in table() {
        let flag = format!("--{} ", setting.name.replace('_', "-"));
        assert!(
            help.contains(&setting.variable()),
            "{} is missing",
            setting.name
        );
        assert_eq!(help.contains(&flag), !setting.secret, "{flag}");
    }
    insta::assert_snapshot!(help);
}

#[test]
fn help_of_load_tells_the_format() {
    let mut command = command().term_width(100);
    command.build();
    insta::assert_snapshot!(command.find_subcommand_mut("load").unwrap().render_help());
}

#[test]
fn global_flags_stand_before_or_behind_the_command() {
    for arguments in [
        ["thumbd", "--log", "debug", "flush"],
        ["thumbd", "flush", "--log", "debug"],
    ] {
        let matches = command().try_get_matches_from(arguments).unwrap();
        let (_, flush) = matches.subcommand().unwrap();
        assert_eq!(
            Settings::load(flush, &Environment::default()).unwrap().log,
            "debug"
        );
    }
}

#[test]
fn secrets_are_no_flags() {
    for flag in [
        "--service-key",
        "--admin-token",
        "--redis-url",
        "--database-url",
    ] {
        let error = command()
            .try_get_matches_from(["thumbd", "serve", flag, "x"])
            .unwrap_err();
        assert_eq!(error.exit_code(), i32::from(USAGE), "{flag}");
    }
}

#[test]
fn causes_stand_on_one_line() {
    let error = anyhow::anyhow!("low\n  level\r\n").context("high");
    assert_eq!(one_line(error.as_ref()), "high: low level");
}
