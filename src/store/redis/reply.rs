//! Reading what the scripts answer.

use std::time::Duration;

use redis::Value;

use super::failure::RedisFailure;
use crate::time::Timestamp;

/// The items of an answer, taken one after the other.
#[derive(Debug)]
pub(super) struct Items {
    items: std::vec::IntoIter<Value>,
}

impl Items {
    pub(super) fn of(value: Value) -> Result<Self, RedisFailure> {
        match value {
            Value::Array(items) => Ok(Self {
                items: items.into_iter(),
            }),
            other => Err(strange("a list", &other)),
        }
    }

    /// Whether anything is left.
    pub(super) fn is_empty(&self) -> bool {
        self.items.len() == 0
    }

    pub(super) fn next(&mut self) -> Result<Value, RedisFailure> {
        self.items.next().ok_or_else(|| {
            RedisFailure::corrupt("an answer is shorter than it should be".to_owned())
        })
    }

    pub(super) fn text(&mut self) -> Result<String, RedisFailure> {
        text(self.next()?)
    }

    pub(super) fn integer(&mut self) -> Result<i64, RedisFailure> {
        integer(&self.next()?)
    }

    pub(super) fn unsigned<T: TryFrom<i64>>(&mut self) -> Result<T, RedisFailure> {
        let number = self.integer()?;
        T::try_from(number).map_err(|_| {
            RedisFailure::corrupt(format!("an answer holds {number}, which is impossible"))
        })
    }

    pub(super) fn timestamp(&mut self) -> Result<Timestamp, RedisFailure> {
        self.integer().map(Timestamp::from_millis)
    }

    /// An instant, or an empty text where there is none.
    pub(super) fn optional_timestamp(&mut self) -> Result<Option<Timestamp>, RedisFailure> {
        match self.next()? {
            Value::BulkString(bytes) if bytes.is_empty() => Ok(None),
            value => integer(&value).map(|millis| Some(Timestamp::from_millis(millis))),
        }
    }

    pub(super) fn duration(&mut self) -> Result<Duration, RedisFailure> {
        self.unsigned().map(Duration::from_millis)
    }

    /// A duration, or -1 where there is none.
    pub(super) fn optional_duration(&mut self) -> Result<Option<Duration>, RedisFailure> {
        Ok(u64::try_from(self.integer()?)
            .ok()
            .map(Duration::from_millis))
    }
}

pub(super) fn text(value: Value) -> Result<String, RedisFailure> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8(bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Ok(text),
        other => Err(strange("a text", &other)),
    }
}

pub(super) fn integer(value: &Value) -> Result<i64, RedisFailure> {
    match value {
        Value::Int(number) => Ok(*number),
        other => Err(strange("a number", other)),
    }
}

fn strange(wanted: &str, got: &Value) -> RedisFailure {
    RedisFailure::corrupt(format!("an answer should be {wanted}, and is {got:?}"))
}
