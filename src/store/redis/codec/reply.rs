//! Reading the replies of scripts. A reply of an unexpected form is an error, never a default.

use std::time::Duration;

use redis::Value;

use crate::store::redis::failure::RedisFailure;
use crate::time::Timestamp;

/// The items of a reply, read one after another.
#[derive(Debug)]
pub(in crate::store::redis) struct Items {
    items: std::vec::IntoIter<Value>,
}

impl Items {
    pub(in crate::store::redis) fn of(value: Value) -> Result<Self, RedisFailure> {
        match value {
            Value::Array(items) => Ok(Self {
                items: items.into_iter(),
            }),
            other => Err(strange("a list", &other)),
        }
    }

    /// A text stands for a list of one item: the server writes it in half of the time.
    pub(super) fn of_text_or_list(value: Value) -> Result<Self, RedisFailure> {
        match value {
            Value::BulkString(_) => Self::of(Value::Array(vec![value])),
            list => Self::of(list),
        }
    }

    /// Whether all items were read.
    pub(in crate::store::redis) fn is_empty(&self) -> bool {
        self.items.len() == 0
    }

    pub(in crate::store::redis) fn next(&mut self) -> Result<Value, RedisFailure> {
        self.items
            .next()
            .ok_or_else(|| RedisFailure::corrupt("a reply is shorter than expected".to_owned()))
    }

    pub(in crate::store::redis) fn text(&mut self) -> Result<String, RedisFailure> {
        text(self.next()?)
    }

    pub(in crate::store::redis) fn integer(&mut self) -> Result<i64, RedisFailure> {
        integer(&self.next()?)
    }

    pub(super) fn unsigned<T: TryFrom<i64>>(&mut self) -> Result<T, RedisFailure> {
        let number = self.integer()?;
        T::try_from(number).map_err(|_| {
            RedisFailure::corrupt(format!("a reply contains the impossible number {number}"))
        })
    }

    pub(super) fn timestamp(&mut self) -> Result<Timestamp, RedisFailure> {
        self.integer().map(Timestamp::from_millis)
    }

    /// Reads an instant, or an empty text for `None`.
    pub(super) fn optional_timestamp(&mut self) -> Result<Option<Timestamp>, RedisFailure> {
        match self.next()? {
            Value::BulkString(bytes) if bytes.is_empty() => Ok(None),
            value => integer(&value).map(|millis| Some(Timestamp::from_millis(millis))),
        }
    }

    pub(super) fn duration(&mut self) -> Result<Duration, RedisFailure> {
        self.unsigned().map(Duration::from_millis)
    }

    /// Reads a duration, or -1 for `None`.
    pub(super) fn optional_duration(&mut self) -> Result<Option<Duration>, RedisFailure> {
        Ok(u64::try_from(self.integer()?)
            .ok()
            .map(Duration::from_millis))
    }
}

/// Reads a reply that is a list of lists.
pub(super) fn each<T>(
    value: Value,
    mut read: impl FnMut(Items) -> Result<T, RedisFailure>,
) -> Result<Vec<T>, RedisFailure> {
    let mut items = Items::of(value)?;
    let mut all = Vec::new();
    while !items.is_empty() {
        all.push(read(Items::of(items.next()?)?)?);
    }
    Ok(all)
}

pub(in crate::store::redis) fn text(value: Value) -> Result<String, RedisFailure> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text),
        other => Err(strange("a text", &other)),
    }
}

pub(in crate::store::redis) fn integer(value: &Value) -> Result<i64, RedisFailure> {
    match value {
        Value::Int(number) => Ok(*number),
        other => Err(strange("a number", other)),
    }
}

fn strange(wanted: &str, got: &Value) -> RedisFailure {
    RedisFailure::corrupt(format!("a reply should be {wanted}, but is {got:?}"))
}
