//! JSON bodies: their type, their size, and a list under the one name that a call knows.

use std::cell::Cell;
use std::marker::PhantomData;

use axum::body::{Bytes, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::problem::Problem;

/// The body of a request that says that it is JSON. `limit` is that of its route, for the error's text.
pub(super) async fn read(request: Request, limit: usize) -> Result<Bytes, Problem> {
    if !is_json(request.headers()) {
        return Err(Problem::content_type());
    }
    // Who says at the head that it is too large need not send it.
    let said = request.body().size_hint().lower();
    if said > limit as u64 {
        return Err(Problem::body_too_large(limit));
    }
    Bytes::from_request(request, &())
        .await
        .map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Problem::body_too_large(limit),
            _ => Problem::body_invalid("the body ended early"),
        })
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

/// Reads `{"<name>": [item, …]}` with 1 to `limit` items.
pub(super) fn list<'de, T: Deserialize<'de>>(
    bytes: &'de [u8],
    name: &'static str,
    limit: usize,
) -> Result<Vec<T>, Problem> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let wrong = Cell::new(None);
    let visitor = Outer {
        name,
        limit,
        wrong: &wrong,
        item: PhantomData,
    };
    let list: Items<T> = json
        .deserialize_map(visitor)
        .and_then(|list| json.end().map(|()| list))
        .map_err(|error| {
            let problem = Problem::body_invalid(text(&error));
            match wrong.take() {
                Some(field) => problem.at(field),
                None => problem,
            }
        })?;
    if !(1..=limit).contains(&list.found) {
        return Err(Problem::count(name, limit, list.found));
    }
    Ok(list.items)
}

/// What is wrong, and where; serde_json counts from line 1 and column 0 where it has no place.
fn text(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_suffix(" at line 1 column 0") {
        Some(text) => text.to_owned(),
        None => text,
    }
}

/// What was read, and how many there were: beyond the limit they are only counted.
struct Items<T> {
    items: Vec<T>,
    found: usize,
}

struct Outer<'a, T> {
    name: &'static str,
    limit: usize,
    /// The field that is missing, unknown, or no list.
    wrong: &'a Cell<Option<String>>,
    item: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Outer<'_, T> {
    type Value = Items<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an object with the field {}", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut list = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if key != self.name {
                let key: String = key.chars().take(50).collect();
                let message = format!("unknown field {key:?}, expected {:?}", self.name);
                self.wrong.set(Some(key));
                return Err(A::Error::custom(message));
            }
            self.wrong.set(Some(self.name.to_owned()));
            if list.is_some() {
                return Err(A::Error::duplicate_field(self.name));
            }
            list = Some(map.next_value_seed(Inner {
                name: self.name,
                limit: self.limit,
                item: self.item,
            })?);
            self.wrong.set(None);
        }
        list.ok_or_else(|| {
            self.wrong.set(Some(self.name.to_owned()));
            A::Error::missing_field(self.name)
        })
    }
}

struct Inner<T> {
    name: &'static str,
    limit: usize,
    item: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> serde::de::DeserializeSeed<'de> for Inner<T> {
    type Value = Items<T>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Inner<T> {
    type Value = Items<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a list for {}", self.name)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.limit {
            match seq.next_element()? {
                Some(item) => items.push(item),
                None => break,
            }
        }
        let mut found = items.len();
        if found == self.limit {
            while seq.next_element::<IgnoredAny>()?.is_some() {
                found += 1;
            }
        }
        Ok(Items { items, found })
    }
}
