//! The commented example file, written from the table. `docs/thumbd.example.toml` is its checked-in copy.

use std::fmt::Write as _;

use super::field::Shape;
use super::{Group, table};

/// A TOML file with every setting commented out: prose behind `# `, settings behind a bare `#`.
pub fn example() -> String {
    let mut text = String::from(
        "# Settings of thumbd, each with its default. Remove the # before a setting to change it.\n\
         # Flags and environment variables win over this file, which is named by --config or THUMBD_CONFIG.\n\
         # A setting NAME is also THUMBD_NAME in the environment and, if it is no secret, --name as a flag.\n\
         # A secret can also stand in a file of its own: NAME_file here, THUMBD_NAME_FILE in the environment.\n",
    );
    let mut tables = String::new();
    let mut group: Option<Group> = None;
    for setting in table() {
        // Tables end what stands outside of tables, so they come last.
        let is_table = matches!(setting.shape, Shape::Kinds | Shape::Tables);
        let out = if is_table { &mut tables } else { &mut text };
        if is_table {
            let heading = if setting.shape == Shape::Kinds {
                "Kinds"
            } else {
                "Keys"
            };
            let _ = writeln!(out, "\n# ---- {heading} ----");
        } else if group != Some(setting.group) {
            group = Some(setting.group);
            let _ = writeln!(out, "\n# ---- {} ----", setting.group.heading());
        }
        let secret = if setting.secret { " Secret." } else { "" };
        let _ = writeln!(
            out,
            "\n# {}{secret}\n# Allowed: {}.",
            setting.help, setting.allowed
        );
        let value = setting.default.or(setting.example).unwrap_or_default();
        let _ = match setting.shape {
            Shape::Text => writeln!(out, "#{} = {}", setting.name, toml::Value::from(value)),
            Shape::Integer | Shape::Boolean => writeln!(out, "#{} = {value}", setting.name),
            Shape::Kinds => writeln!(
                out,
                "#[kinds.{value}]\n#mirror_table = \"shop.{value}\"\n#mirror_id_column = \"id\"\n\
                 #mirror_count_column = \"thumb_count\"\n\
                 #user_operations_per_minute = 60\n#user_operations_burst = 30\n\
                 #toggle_cooldown_ms = 1000\n#toggle_cooldown_max_ms = 60000\n\
                 #likers = \"public\"\n#user_likes = \"service\""
            ),
            Shape::Tables => writeln!(out, "#[[{}]]\n#{value}", setting.name),
        };
    }
    text + &tables
}
