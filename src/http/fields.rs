//! One item of a list: an object of texts. Whatever JSON it is, it is read, so that a wrong one does not spoil its neighbours.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::problem::Problem;

/// A JSON value of which only texts are of interest.
#[derive(Debug, Clone, Default)]
enum Value<'de> {
    #[default]
    Missing,
    Text(Cow<'de, str>),
    Other(&'static str),
    Twice,
}

/// The fields of an item.
#[derive(Debug, Default)]
pub(super) struct Fields<'de> {
    op: Value<'de>,
    user: Value<'de>,
    kind: Value<'de>,
    id: Value<'de>,
    unknown: Option<String>,
    not_object: Option<&'static str>,
}

impl<'de> Fields<'de> {
    /// Refuses what is no object of these fields. `place` is where the item stands, such as `operations[3]`.
    pub(super) fn check(&self, names: &[&str], place: &dyn fmt::Display) -> Result<(), Problem> {
        if let Some(found) = self.not_object {
            let detail = format!("{place} must be an object, not {found}");
            return Err(Problem::field(place.to_string(), detail));
        }
        let known = [("op", &self.op), ("user", &self.user)];
        let foreign = known
            .iter()
            .find(|(name, value)| !matches!(value, Value::Missing) && !names.contains(name));
        let unknown = self.unknown.as_deref().or(foreign.map(|(name, _)| *name));
        match unknown {
            Some(name) => {
                let detail = format!("unknown field; the fields are {}", names.join(", "));
                Err(Problem::field(format!("{place}.{name}"), detail))
            }
            None => Ok(()),
        }
    }

    pub(super) fn op(&self) -> Result<&str, Problem> {
        text(&self.op, "op")
    }
    pub(super) fn user(&self) -> Result<&str, Problem> {
        text(&self.user, "user")
    }
    pub(super) fn kind(&self) -> Result<&str, Problem> {
        text(&self.kind, "kind")
    }
    pub(super) fn id(&self) -> Result<&str, Problem> {
        text(&self.id, "id")
    }
}

fn text<'a>(value: &'a Value<'_>, name: &'static str) -> Result<&'a str, Problem> {
    let detail = match value {
        Value::Text(text) => return Ok(text),
        Value::Missing => format!("{name} is missing"),
        Value::Twice => format!("{name} is given more than once"),
        Value::Other(found @ "a number") if name != "op" => {
            format!("{name} must be a string, not {found}: large numbers lose digits on their way")
        }
        Value::Other(found) => format!("{name} must be a string, not {found}"),
    };
    Err(Problem::field(name, detail))
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(FieldsVisitor)
    }
}

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(ValueVisitor)
    }
}

/// The names of all JSON that is neither of interest nor a list or an object.
macro_rules! scalars {
    ($make:expr) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("JSON")
        }
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok($make("true or false"))
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok($make("a number"))
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok($make("a number"))
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok($make("a number"))
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok($make("null"))
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok($make("a list"))
        }
    };
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value<'de>;

    scalars!(Value::Other);

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Other("an object"))
    }
}

struct FieldsVisitor;

fn not_object<'de>(found: &'static str) -> Fields<'de> {
    Fields {
        not_object: Some(found),
        ..Fields::default()
    }
}

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    scalars!(not_object);

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(not_object("a string"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Fields::default();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            let slot = match &*key {
                "op" => &mut fields.op,
                "user" => &mut fields.user,
                "kind" => &mut fields.kind,
                "id" => &mut fields.id,
                other => {
                    fields.unknown = Some(other.chars().take(50).collect());
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            let value = map.next_value()?;
            *slot = match slot {
                Value::Missing => value,
                _ => Value::Twice,
            };
        }
        Ok(fields)
    }
}
