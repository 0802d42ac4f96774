//! `claim`: its call and its reply. The script is `scripts/claim.lua`.

use std::time::Duration;

use redis::Value;

use super::call::{Call, flag, millis, optional_instant};
use super::fields::{decided_beyond, pause, pauses};
use super::keys::{self, Key, LockKeys, job_keys};
use super::record::from_word;
use super::reply::Items;
use super::summary::retention;
use crate::names::{Prefix, RunId};
use crate::store::protocol::{counted, lead_of, least_wait};
use crate::store::redis::failure::RedisFailure;
use crate::store::{
    Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Head, IfPaused, Late, Overlap, Retention,
    RunStatus,
};

/// `longest` is the longest TTL of the job list behind the claim; zero without a list. The TTL of the
/// claim itself counts too. `all_failures` is the key of the failures of all jobs.
pub(in crate::store::redis) fn call(
    prefix: &Prefix,
    claim: &Claim,
    longest: Duration,
    all_failures: Option<Key<'_>>,
) -> Call {
    let has_job = claim.what.job().is_some();
    let least = least_wait(has_job, longest);
    let longest = longest.max(counted(claim.ttl, has_job));
    let keys = LockKeys::of(prefix, &claim.lock);
    let mut call = Call::default();
    call.key(&keys.lock())
        .key(&keys.state())
        .key(&keys::store(prefix));
    if let Some(job) = claim.what.job() {
        job_keys(&mut call, (keys, job), all_failures);
    }
    call.arg(&flag(claim.lock.exclusive))
        .arg(claim.token.as_str())
        .arg(&millis(claim.ttl))
        .arg(&claim.run_id);
    match &claim.what {
        ClaimTarget::Lock => {
            call.arg("lock")
                .arg(&longest.as_millis())
                .arg(&least.as_millis());
        }
        ClaimTarget::Manual { if_paused, .. } => {
            call.arg("manual")
                .arg(&longest.as_millis())
                .arg(match if_paused {
                    IfPaused::Refuse => "refuse",
                    IfPaused::Run => "run",
                });
        }
        ClaimTarget::Occurrence {
            kind,
            due,
            overlap,
            keep,
            ..
        } => {
            call.arg("occurrence")
                .arg(&longest.as_millis())
                .arg(kind.word());
            occurrence(&mut call, due, *overlap, *keep);
        }
        ClaimTarget::Drops {
            fingerprint,
            answer,
            keep,
            ..
        } => {
            call.arg("drops")
                .arg(&longest.as_millis())
                .arg(&*fingerprint.0)
                .arg(&retention(*keep))
                .arg(&answer.if_last.millis());
            ranges(&mut call, &answer.drop);
        }
    }
    call
}

fn occurrence(call: &mut Call, due: &Due, overlap: Overlap, keep: Retention) {
    call.arg(&due.scheduled_at.millis())
        .arg(&due.not_before.millis())
        .arg(&due.deadline.millis())
        .arg(&optional_instant(due.prev))
        .arg(&*due.fingerprint.0);
    match overlap {
        Overlap::Skip => call.arg("skip"),
        Overlap::Wait => call.arg("wait"),
        Overlap::Queue { limit } => call.arg(&limit),
    };
    match due.late {
        Late::Miss => call.arg("miss").arg(""),
        Late::Leave => call.arg("leave").arg(""),
        Late::CatchUp { until, newer } => call.arg(&until.millis()).arg(&optional_instant(newer)),
    };
    call.arg(&due.rerun_window.as_millis())
        .arg(&due.max_reruns)
        .arg(&due.max_attempts)
        .arg(&retention(keep))
        .arg(&optional_instant(due.gap.as_ref().map(|gap| gap.if_last)))
        .arg(&lead_of(due).as_millis());
    if let Some(gap) = &due.gap {
        ranges(call, &gap.drop);
    }
}

fn ranges(call: &mut Call, drops: &[DroppedRange]) {
    for drop in drops {
        call.arg(&drop.range.from.millis())
            .arg(&drop.range.until.millis())
            .arg(&drop.range.count)
            .arg(drop.outcome.word())
            .arg(&drop.reason);
    }
}

pub(in crate::store::redis) fn read(
    prefix: &Prefix,
    value: Value,
) -> Result<ClaimReply, RedisFailure> {
    let mut items = Items::of_text_or_list(value)?;
    let tag = items.text()?;
    Ok(match tag.as_str() {
        "granted" => ClaimReply::Granted {
            fence: items.unsigned()?,
            attempt: items.unsigned()?,
            at: items.timestamp()?,
            starts_in: Duration::from_micros(items.unsigned()?),
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
            decided_beyond: decided_beyond(&items.text()?)?,
            pauses: pauses(&items.text()?)?,
        },
        "too_late" => ClaimReply::TooLate,
        "stale" => ClaimReply::Stale,
        "dropped" => ClaimReply::Dropped,
        "paused" => ClaimReply::Paused(pause(&items.text()?)?),
        "queue_full" => ClaimReply::QueueFull,
        "ahead" => ClaimReply::Ahead {
            by: items.duration()?,
        },
        "waits" => ClaimReply::Waits {
            head: Head {
                scheduled_at: items.timestamp()?,
                kind: from_word(&items.text()?)?,
                deadline: items.timestamp()?,
            },
            entered: items.integer()? == 1,
            by: Some(items.text()?).filter(|by| !by.is_empty()),
            remaining: items.optional_duration()?,
        },
        "held" => ClaimReply::Held {
            by: items.text()?,
            remaining: items.optional_duration()?,
        },
        "finished" => ClaimReply::Finished,
        "moved" => ClaimReply::Moved {
            to: keys::lock_of(prefix, &items.text()?),
        },
        other => {
            return Err(RedisFailure::corrupt(format!(
                "the reply to a claim is {other:?}"
            )));
        }
    })
}
