//! `claim`: its call and its answer.

use std::time::Duration;

use redis::Value;

use super::failure::Failure;
use super::keys::{self, LockKeys};
use super::link::Call;
use super::record::word;
use super::reply::Items;
use crate::names::{Prefix, RunId};
use crate::store::request::What;
use crate::store::{Claim, ClaimReply, Due, Overlap, RunStatus};
use crate::time::Timestamp;

/// `longest` is the longest TTL of the job list behind the claim; zero without one.
pub(super) fn call(prefix: &Prefix, claim: &Claim, longest: Duration) -> Call {
    let keys = LockKeys::of(prefix, &claim.lock);
    let mut call = Call::default();
    call.key(&keys.lock)
        .key(&keys.state)
        .key(keys::store(prefix));
    call.arg(&flag(claim.lock.exclusive))
        .arg(&claim.token)
        .arg(&millis(claim.ttl))
        .arg(&claim.run_id);
    match &claim.what {
        What::Lock => {
            call.arg("lock").arg(&longest.as_millis());
        }
        What::Manual { job } => {
            call.key(keys.job(job)).key(keys.runs(job));
            call.arg("manual").arg(&longest.as_millis());
        }
        What::Occurrence {
            job,
            kind,
            due,
            overlap,
            keep,
        } => {
            call.key(keys.job(job))
                .key(keys.runs(job))
                .arg("occurrence")
                .arg(&longest.as_millis())
                .arg(&word(kind));
            occurrence(&mut call, due, *overlap, *keep);
        }
    }
    call
}

fn occurrence(call: &mut Call, due: &Due, overlap: Overlap, keep: u32) {
    call.arg(&due.scheduled_at.millis())
        .arg(&due.not_before.millis())
        .arg(&due.deadline.millis())
        .arg(&optional(due.prev))
        .arg(&due.fingerprint.0)
        .arg(&match overlap {
            Overlap::Skip => "skip",
            Overlap::Wait => "wait",
        })
        .arg(&due.max_reruns)
        .arg(&keep)
        .arg(&optional(due.gap.as_ref().map(|gap| gap.if_last)));
    for drop in due.gap.iter().flat_map(|gap| &gap.drop) {
        call.arg(&drop.range.from.millis())
            .arg(&drop.range.until.millis())
            .arg(&drop.range.count)
            .arg(&word(drop.outcome))
            .arg(&drop.reason);
    }
}

pub(super) fn read(value: Value) -> Result<ClaimReply, Failure> {
    let mut items = Items::of(value)?;
    let tag = items.text()?;
    Ok(match tag.as_str() {
        "granted" => ClaimReply::Granted {
            fence: items.unsigned()?,
            attempt: items.unsigned()?,
            at: items.timestamp()?,
        },
        "early" => ClaimReply::Early {
            by: items.duration()?,
        },
        "running" => ClaimReply::AlreadyClaimed(RunStatus::Running {
            by: items.text()?,
            run_id: RunId::from_text(&items.text()?),
            attempt: items.unsigned()?,
            remaining: items.duration()?,
        }),
        "decided" => ClaimReply::AlreadyClaimed(RunStatus::Decided),
        "recovering" => ClaimReply::Recovering {
            remaining: items.duration()?,
        },
        "unknown" => ClaimReply::Unknown,
        "gap" => ClaimReply::Gap {
            last: items.timestamp()?,
            horizon: items.optional_timestamp()?,
        },
        "too_late" => ClaimReply::TooLate,
        "held" => ClaimReply::Held {
            by: items.text()?,
            remaining: items.optional_duration()?,
        },
        "finished" => ClaimReply::Finished,
        other => {
            return Err(Failure::corrupt(format!(
                "the answer to a claim is {other:?}"
            )));
        }
    })
}

pub(super) fn optional(at: Option<Timestamp>) -> String {
    at.map(|at| at.millis().to_string()).unwrap_or_default()
}

pub(super) fn flag(flag: bool) -> &'static str {
    if flag { "1" } else { "0" }
}

/// A TTL in milliseconds, as Redis takes it: at least one, and at most ten years.
pub(super) fn millis(ttl: Duration) -> u128 {
    const TEN_YEARS: u128 = 10 * 365 * 24 * 3600 * 1000;
    ttl.as_millis().clamp(1, TEN_YEARS)
}
