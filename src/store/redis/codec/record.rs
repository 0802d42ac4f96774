//! A record as an entry of a stream: names and values, with instants in milliseconds.
//!
//! The scripts write records too, so the names here are also in `scripts/history.lua`.

use std::borrow::Cow;

use redis::Value;

use super::reply::{Items, text};
use crate::names::{HostName, JobName, RunId};
use crate::store::redis::failure::RedisFailure;
use crate::store::{ErrorDetail, KeyFault, KeyFaultKind, Kind, Outcome, Record, RunUsage};
use crate::time::Timestamp;

pub(super) fn from_word<T: serde::de::DeserializeOwned>(word: &str) -> Result<T, RedisFailure> {
    serde_json::from_value(serde_json::Value::String(word.to_owned()))
        .map_err(|e| RedisFailure::corrupt(ErrorDetail::of(format!("a record holds {word:?}"), e)))
}

/// Returns the names and values of a record, without the fields that are `None`.
pub(in crate::store::redis) fn pairs(record: &Record) -> Vec<(&'static str, Cow<'_, str>)> {
    let number = |number: Option<i64>| number.map(|number| Cow::from(number.to_string()));
    let millis = |at: Option<Timestamp>| number(at.map(Timestamp::millis));
    [
        (
            "run_id",
            record.run_id.as_ref().map(|id| id.as_str().into()),
        ),
        ("kind", Some(record.kind.word().into())),
        ("scheduled_at", millis(record.scheduled_at)),
        ("until", millis(record.until)),
        ("count", record.count.map(|n| n.to_string().into())),
        ("started_at", millis(record.started_at)),
        ("finished_at", millis(record.finished_at)),
        (
            "host",
            record.host.as_ref().map(|host| host.as_str().into()),
        ),
        ("outcome", Some(record.outcome.word().into())),
        ("reason", record.reason.as_deref().map(Cow::from)),
        ("by", record.by.as_deref().map(Cow::from)),
        ("exit_code", number(record.exit_code.map(i64::from))),
        ("signal", number(record.signal.map(i64::from))),
        ("attempts", Some(record.attempts.to_string().into())),
        ("fence", record.fence.map(|n| n.to_string().into())),
        ("output_tail", record.output_tail.as_deref().map(Cow::from)),
        ("usage", record.usage.map(|usage| usage_text(usage).into())),
    ]
    .into_iter()
    .filter_map(|(name, value)| value.map(|value| (name, value)))
    .collect()
}

/// Returns the id of an entry of the stream.
pub(in crate::store::redis) fn id_of(entry: &Value) -> String {
    match entry {
        Value::Array(parts) => parts.first().cloned().map(text),
        _ => None,
    }
    .and_then(Result::ok)
    .unwrap_or_default()
}

/// The value of a field of an entry of the stream, if it has the field.
pub(in crate::store) fn field(entry: &Value, name: &str) -> Option<String> {
    let Value::Array(parts) = entry else {
        return None;
    };
    let Value::Array(fields) = parts.get(1)? else {
        return None;
    };
    let mut pairs = fields.chunks_exact(2);
    let is_it = |pair: &&[Value]| text(pair[0].clone()).is_ok_and(|it| it == name);
    text(pairs.find(is_it)?[1].clone()).ok()
}

/// Returns the fault of an entry that cannot be read.
pub(in crate::store::redis) fn unreadable(
    runs: &str,
    id: &str,
    failure: &RedisFailure,
) -> KeyFault {
    KeyFault {
        key: runs.to_owned(),
        kind: KeyFaultKind::Damaged,
        detail: failure
            .detail()
            .reworded(format!("entry {id}: {}", failure.text())),
    }
}

/// Reads a record from an entry of the stream, `[id, [name, value, …]]`. Skips names that a later
/// version may have added.
pub(in crate::store::redis) fn read(job: &JobName, entry: Value) -> Result<Record, RedisFailure> {
    let mut entry = Items::of(entry)?;
    entry.next()?;
    let mut fields = Items::of(entry.next()?)?;
    let mut record = blank(job);
    while !fields.is_empty() {
        let name = fields.text()?;
        let value = text(fields.next()?)?;
        set(&mut record, &name, value)?;
    }
    Ok(record)
}

/// Returns a record without any field.
pub(super) fn blank(job: &JobName) -> Record {
    Record::blank(job.clone(), Kind::Schedule, Outcome::Unknown)
}

pub(super) fn set(record: &mut Record, name: &str, value: String) -> Result<(), RedisFailure> {
    match name {
        "run_id" => record.run_id = Some(RunId::from_text(&value)),
        "kind" => record.kind = from_word(&value)?,
        "scheduled_at" => record.scheduled_at = Some(instant(&value)?),
        "until" => record.until = Some(instant(&value)?),
        "count" => record.count = Some(number(&value)?),
        "started_at" => record.started_at = Some(instant(&value)?),
        "finished_at" => record.finished_at = Some(instant(&value)?),
        // The token of another program names no host.
        "host" => record.host = HostName::parse(&value).ok(),
        "outcome" => record.outcome = from_word(&value)?,
        "reason" => record.reason = Some(value),
        "by" => record.by = Some(value),
        "exit_code" => record.exit_code = Some(number(&value)?),
        "signal" => record.signal = Some(number(&value)?),
        "attempts" => record.attempts = number(&value)?,
        "fence" => record.fence = Some(number(&value)?),
        "output_tail" => record.output_tail = Some(value),
        // It decides nothing, so one that cannot be read spoils no record.
        "usage" => record.usage = usage_of(&value),
        _ => {}
    }
    Ok(())
}

/// CPU time in ms and memory in bytes.
fn usage_text(usage: RunUsage) -> String {
    format!("{} {}", usage.cpu_ms, usage.peak_memory_bytes)
}

fn usage_of(text: &str) -> Option<RunUsage> {
    let (cpu, memory) = text.split_once(' ')?;
    Some(RunUsage {
        cpu_ms: cpu.parse().ok()?,
        peak_memory_bytes: memory.parse().ok()?,
    })
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, RedisFailure> {
    text.parse()
        .map_err(|_| RedisFailure::corrupt(format!("a record holds {text:?} instead of a number")))
}

fn instant(text: &str) -> Result<Timestamp, RedisFailure> {
    number(text).map(Timestamp::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(record: &Record) -> Value {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let fields = pairs(record)
            .iter()
            .flat_map(|(name, value)| [bulk(name), bulk(value)])
            .collect();
        Value::Array(vec![bulk("1-0"), Value::Array(fields)])
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let job = JobName::parse("j").expect("a name");
        let at = |n| Some(Timestamp::from_millis(n));
        let full = Record {
            job: job.clone(),
            run_id: Some(RunId::from_text("r")),
            kind: Kind::CatchUp,
            scheduled_at: at(1),
            until: at(2),
            count: Some(3),
            started_at: at(4),
            finished_at: at(5),
            host: HostName::parse("h").ok(),
            outcome: Outcome::TimedOut,
            reason: Some("why\nnot".to_owned()),
            by: Some("who".to_owned()),
            exit_code: Some(-1),
            signal: Some(9),
            attempts: 2,
            fence: Some(1_700_000_000_000_001),
            output_tail: Some(String::new()),
            usage: Some(RunUsage {
                cpu_ms: 1_234,
                peak_memory_bytes: 8_192_000,
            }),
        };
        let bare = Record {
            run_id: None,
            scheduled_at: None,
            until: None,
            count: None,
            started_at: None,
            finished_at: None,
            host: None,
            reason: None,
            by: None,
            exit_code: None,
            signal: None,
            fence: None,
            output_tail: None,
            usage: None,
            ..full.clone()
        };
        for record in [full, bare.clone()] {
            assert_eq!(read(&job, entry(&record)).expect("reads"), record);
        }
        for unreadable in ["", "1", "x 1", "1 2 3"] {
            let mut record = bare.clone();
            set(&mut record, "usage", unreadable.to_owned()).expect("reads");
            assert_eq!(record, bare, "{unreadable:?}");
        }
    }
}
