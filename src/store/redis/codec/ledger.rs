//! `ledger` and `replace`: their calls and replies. Both transfer a whole ledger, field by field.

use redis::Value;

use super::call::{Call, flag, millis, optional_instant};
use super::fields::{decided_beyond, fingerprints, pauses};
use super::keys::{self, LockKeys};
use super::record::from_word;
use super::reply::Items;
use super::summary;
use crate::names::{JobName, Prefix, RunId, Token};
use crate::store::protocol::{
    JobState, Moved, Open, decided_beyond_text, pauses_text, terms_of_text, terms_text,
    waiting_of_text, waiting_text,
};
use crate::store::redis::failure::RedisFailure;
use crate::store::{Ledger, Lock, Replaced, Replacement, RunTerms};
use crate::time::Timestamp;

pub(in crate::store::redis) fn ledger_call(prefix: &Prefix, job: &JobName, lock: &Lock) -> Call {
    let keys = LockKeys::of(prefix, lock);
    let mut call = Call::default();
    call.key(&keys.lock())
        .key(&keys.state())
        .key(&keys.job(job));
    call.arg(&flag(lock.exclusive));
    call
}

pub(in crate::store::redis) fn ledger_read(
    prefix: &Prefix,
    job: &JobName,
    value: Value,
) -> Result<Ledger, RedisFailure> {
    let mut items = Items::of(value)?;
    if items.is_empty() {
        return Ok(Ledger::default());
    }
    let unreadable =
        |what: &str| RedisFailure::corrupt(format!("a ledger's {what} cannot be read"));
    let last = instant(&items.text()?).ok_or_else(|| unreadable("watermark"))?;
    let mut state = JobState {
        fingerprints: fingerprints(&items.text()?)?,
        ..JobState::starting_after(last)
    };
    state.waiting = waiting_of_text(&items.text()?).ok_or_else(|| unreadable("waiting list"))?;
    let moved = items.text()?;
    if !moved.is_empty() {
        state.moved = Some(moved_of(prefix, &moved).ok_or_else(|| unreadable("lock"))?);
    }
    state.decided_beyond = decided_beyond(&items.text()?)?;
    state.pauses = pauses(&items.text()?)?;
    state.summary = summary::read(job, &items.text()?);
    let mut ledger = Ledger::default();
    if !items.is_empty() {
        state.open = Some(open(&mut items)?);
        ledger.remaining = items.duration()?;
        ledger.ended_at = match items.text()?.as_str() {
            "" => None,
            at => Some(instant(at).ok_or_else(|| unreadable("lease end"))?),
        };
    }
    Ok(Ledger {
        state: Some(state),
        ..ledger
    })
}

fn open(items: &mut Items) -> Result<Open, RedisFailure> {
    let unreadable = || RedisFailure::corrupt("an open run cannot be read".to_owned());
    let (run_id, token) = (items.text()?, items.text()?);
    let attempt = items.text()?.parse().map_err(|_| unreadable())?;
    let kind = from_word(&items.text()?)?;
    let fence = items.text()?.parse().map_err(|_| unreadable())?;
    let started_at = instant(&items.text()?).ok_or_else(unreadable)?;
    let host = items.text()?;
    let terms = terms_of_text(&items.text()?).unwrap_or(RunTerms::NONE);
    let scheduled_at = items.text()?;
    Ok(Open {
        scheduled_at: match scheduled_at.as_str() {
            "" => None,
            at => Some(instant(at).ok_or_else(unreadable)?),
        },
        run_id: RunId::from_text(&run_id),
        host,
        token: Token::from_text(&token),
        attempt,
        kind,
        fence,
        started_at,
        terms,
    })
}

pub(in crate::store::redis) fn replace_call(prefix: &Prefix, replacement: &Replacement) -> Call {
    let keys = LockKeys::of(prefix, &replacement.lock);
    let mut call = Call::default();
    call.key(&keys.lock())
        .key(&keys.state())
        .key(&keys::store(prefix))
        .key(&keys.job(&replacement.job));
    let expected = replacement.expected.as_ref();
    let expected = expected.map(|state| fields(prefix, state));
    let expected = expected.unwrap_or_default();
    call.arg(&flag(replacement.lock.exclusive))
        .arg(&millis(replacement.ttl))
        .arg(&expected.len());
    for field in expected.iter().chain(&fields(prefix, &replacement.new)) {
        call.arg(field);
    }
    call
}

pub(in crate::store::redis) fn replace_read(value: Value) -> Result<Replaced, RedisFailure> {
    let mut items = Items::of(value)?;
    Ok(match items.text()?.as_str() {
        "done" => Replaced::Done,
        "changed" => Replaced::Changed,
        "leased" => Replaced::Leased {
            remaining: items.duration()?,
        },
        "recovering" => Replaced::Recovering {
            remaining: items.duration()?,
        },
        other => {
            return Err(RedisFailure::corrupt(format!(
                "the reply to a replaced ledger is {other:?}"
            )));
        }
    })
}

/// Returns the fields of a ledger in the form of the scripts.
fn fields(prefix: &Prefix, state: &JobState) -> Vec<String> {
    let lines = state.fingerprints.iter();
    let lines = lines.map(|(fingerprint, seen)| format!("{} {}\n", seen.millis(), fingerprint.0));
    let mut fields = vec![
        state.last.millis().to_string(),
        lines.collect(),
        waiting_text(&state.waiting),
        (state.moved.as_ref()).map_or_else(String::new, |moved| moved_text(prefix, moved)),
        decided_beyond_text(&state.decided_beyond),
        pauses_text(&state.pauses),
        summary::text(&state.summary),
    ];
    if let Some(open) = &state.open {
        fields.extend([
            open.run_id.to_string(),
            open.token.as_str().to_owned(),
            open.attempt.to_string(),
            open.kind.word().to_owned(),
            open.fence.to_string(),
            open.started_at.millis().to_string(),
            open.host.clone(),
            terms_text(&open.terms),
            optional_instant(open.scheduled_at).to_string(),
        ]);
    }
    fields
}

/// `NUMBER SINCE KEY`.
fn moved_text(prefix: &Prefix, moved: &Moved) -> String {
    let lock = moved.to.lock();
    let key = LockKeys::of(prefix, &lock).lock();
    format!("{} {} {key}", moved.number, moved.since)
}

fn moved_of(prefix: &Prefix, text: &str) -> Option<Moved> {
    let mut words = text.splitn(3, ' ');
    Some(Moved {
        number: words.next()?.parse().ok()?,
        since: words.next()?.parse().ok()?,
        to: keys::lock_of(prefix, words.next()?),
    })
}

fn instant(text: &str) -> Option<Timestamp> {
    text.parse().ok().map(Timestamp::from_millis)
}
