//! Reads the reply of `scripts/prepare.lua`.

use std::time::Duration;

use redis::Value;

use super::{Ballot, JobView, KeyHolder, LockView, PrepareReply, PrepareStatus, ledger};
use crate::names::{RunId, Token};
use crate::store::redis::codec::reply::Items;
use crate::store::redis::failure::RedisFailure;
use crate::time::Timestamp;

pub(super) fn read_view(reply: Value) -> Result<PrepareReply, RedisFailure> {
    let mut items = Items::of(reply)?;
    let status = match items.text()?.as_str() {
        "promised" => PrepareStatus::Promised,
        "busy" => PrepareStatus::Busy,
        "preempted" => PrepareStatus::Preempted,
        "read" => PrepareStatus::Read,
        other => return Err(RedisFailure::corrupt(format!("a node returned {other:?}"))),
    };
    let promised = number(&mut items)?;
    let micros = number(&mut items)?;
    let server = items.text()?;
    let lost_at = optional(&mut items)?;
    let recovering = Duration::from_millis(number(&mut items)?);
    let longest = Duration::from_millis(number(&mut items)?);
    let (lock_known, job_known) = (items.text()? == "1", items.text()? == "1");
    let (kind, value) = (items.text()?, items.text()?);
    let remaining = u64::try_from(number::<i64>(&mut items)?)
        .ok()
        .map(Duration::from_millis);
    let held = match kind.as_str() {
        "value" => KeyHolder::Value(value, remaining),
        "other" => KeyHolder::OtherType(remaining),
        _ => KeyHolder::Nobody,
    };
    let fence = number(&mut items)?;
    let token = Some(items.text()?).filter(|token| !token.is_empty());
    let (left, over_for) = lease(&mut items)?;
    let run_id = Some(items.text()?).filter(|id| !id.is_empty());
    let finished = items.text()?;
    let lock = LockView {
        ballot: ballot(&mut items)?,
        fence,
        token: token.as_deref().map(Token::from_text),
        left,
        over_for,
        run_id: run_id.as_deref().map(RunId::from_text),
        finished,
    };
    Ok(PrepareReply {
        status,
        promised,
        micros,
        server,
        lost_at,
        recovering,
        longest,
        remembers: lock_known && job_known,
        held,
        lock,
        job: (!items.is_empty()).then(|| job(&mut items)).transpose()?,
    })
}

/// Returns the remaining time of a lease, and how long ago it ended.
fn lease(items: &mut Items) -> Result<(Duration, Option<Duration>), RedisFailure> {
    let Some(left) = items
        .text()
        .map(|text| (!text.is_empty()).then_some(text))?
    else {
        return Ok((Duration::ZERO, None));
    };
    let left: i64 = parsed(&left)?;
    let span = Duration::from_millis(left.unsigned_abs());
    Ok(if left > 0 {
        (span, None)
    } else {
        (Duration::ZERO, Some(span))
    })
}

fn job(items: &mut Items) -> Result<JobView, RedisFailure> {
    let ballot = ballot(items)?;
    ledger::read(&items.text()?, ballot)
}

fn ballot(items: &mut Items) -> Result<Ballot, RedisFailure> {
    Ok(Ballot {
        number: number(items)?,
        id: number(items)?,
    })
}

fn number<T: std::str::FromStr>(items: &mut Items) -> Result<T, RedisFailure> {
    parsed(&items.text()?)
}

fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, RedisFailure> {
    text.parse()
        .map_err(|_| RedisFailure::corrupt(format!("a node returned {text:?} instead of a number")))
}

fn optional(items: &mut Items) -> Result<Option<Timestamp>, RedisFailure> {
    let text = items.text()?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse()
        .map(|millis| Some(Timestamp::from_millis(millis)))
        .map_err(|_| {
            RedisFailure::corrupt(format!("a node returned {text:?} instead of an instant"))
        })
}
