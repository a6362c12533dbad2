//! Takes the scripts' replies apart.

use redis::Value;

use super::HotError;

/// The elements of an array reply, taken from the front.
pub(super) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    pub(super) fn new(value: Value) -> Result<Self, HotError> {
        match value {
            Value::Array(values) => Ok(Self(values.into_iter())),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn next(&mut self) -> Result<Value, HotError> {
        self.0
            .next()
            .ok_or_else(|| HotError::Protocol("a reply is too short".into()))
    }

    pub(super) fn int(&mut self) -> Result<i64, HotError> {
        int(&self.next()?)
    }

    pub(super) fn unsigned(&mut self) -> Result<u64, HotError> {
        let value = self.int()?;
        u64::try_from(value).map_err(|_| HotError::Protocol(format!("{value} is negative")))
    }

    pub(super) fn int_or_nil(&mut self) -> Result<Option<i64>, HotError> {
        match self.next()? {
            Value::Nil => Ok(None),
            other => int(&other).map(Some),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, HotError> {
        text(self.next()?)
    }

    pub(super) fn text_or_nil(&mut self) -> Result<Option<String>, HotError> {
        match self.next()? {
            Value::Nil => Ok(None),
            other => text(other).map(Some),
        }
    }
}

pub(super) fn int(value: &Value) -> Result<i64, HotError> {
    match value {
        Value::Int(number) => Ok(*number),
        other => Err(unexpected(other)),
    }
}

pub(super) fn text(value: Value) -> Result<String, HotError> {
    match value {
        Value::BulkString(bytes) => {
            String::from_utf8(bytes).map_err(|_| HotError::Protocol("a text is not UTF-8".into()))
        }
        Value::SimpleString(text) => Ok(text),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn unexpected(value: &Value) -> HotError {
    // The type alone: values hold user ids.
    let what = match value {
        Value::Nil => "nil",
        Value::Int(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "a text",
        Value::Array(_) => "an array",
        _ => "another type",
    };
    HotError::Protocol(format!("{what} where something else was expected"))
}
