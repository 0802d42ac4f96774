//! The records that the protocol writes itself (hosts write those of the runs that they finish), and when two of
//! them become one ranged record.

use super::clock::Clock;
use super::effect::Effect;
use super::lock::{Ending, LockState, holder};
use crate::names::{HostName, JobName, Token};
use crate::store::contract::{
    Crashed, DroppedRange, JobState, Kind, Open, Outcome, Record, Retention, Waiting,
};
use crate::time::Timestamp;

/// The reason of a skipped occurrence.
pub const REASON_OVERLAP: &str = "overlap: the lock was held";
/// The reason of a missed occurrence.
pub const REASON_TOO_LATE: &str = "its start deadline had passed";
/// The reason of an interrupted run.
pub const REASON_INTERRUPTED: &str = "its lease expired before its host reported a result";
/// The reason of the provisional record of a run of a job without a lock, which may still be going on.
pub const REASON_NEWER_RUN: &str = "another run of the job began before its host reported a result \
                                    (scope: none); the result replaces this record";
/// The reason of an interrupted run that its host closed without a record.
pub const REASON_NO_VERDICT: &str = "its host closed it without a verdict";
/// The reason of a waiting occurrence that was skipped.
pub const REASON_SUPERSEDED: &str = "superseded: a newer occurrence took its place";
/// The reason of an occurrence that found the queue full.
pub const REASON_QUEUE_FULL: &str = "the queue was full";
/// The reason of an occurrence that was not caught up because of a newer one.
pub const REASON_NOT_NEWEST: &str = "a newer occurrence came due (catch_up: latest)";
/// The reason of an occurrence that was too old to be caught up.
pub const REASON_WINDOW_OVER: &str = "its catch_up_window had passed";
/// The reason of an interrupted run whose rerun did not start.
pub const REASON_NOT_RERUN: &str =
    "its lease expired before its host reported a result; no rerun started in time";
/// The reason of an `unknown` occurrence.
pub const REASON_UNKNOWN: &str = "due before the store lost data: it may have run already";
/// The reason of an `unknown` run.
pub const REASON_UNKNOWN_END: &str = "the store lost data: how it ended is not known";

pub(super) fn append(record: Record, keep: Option<Retention>) -> Effect {
    Effect::Append {
        record: Box::new(record),
        keep,
        follows: None,
        replaces: false,
    }
}

/// Adds a record that moves the watermark forward from `last`.
pub(super) fn append_after(last: Timestamp, record: Record, keep: Option<Retention>) -> Effect {
    Effect::Append {
        record: Box::new(record),
        keep,
        follows: Some(last),
        replaces: false,
    }
}

fn blank(job: &JobName, kind: Kind, outcome: Outcome, clock: Clock) -> Record {
    Record {
        finished_at: Some(clock.utc()),
        ..Record::blank(job.clone(), kind, outcome)
    }
}

/// How an occurrence is decided without a result, and why.
#[derive(Clone, Copy)]
pub(super) struct NoResult<'a> {
    pub(super) outcome: Outcome,
    pub(super) reason: &'a str,
}

impl<'a> NoResult<'a> {
    pub(super) fn new(outcome: Outcome, reason: &'a str) -> Self {
        Self { outcome, reason }
    }

    pub(super) fn skipped(reason: &'a str) -> Self {
        Self::new(Outcome::Skipped, reason)
    }

    pub(super) fn missed(reason: &'a str) -> Self {
        Self::new(Outcome::Missed, reason)
    }
}

/// The verdict of an occurrence that is not started, decided by a claim under `token`.
pub(super) fn not_started(
    (job, kind): (&JobName, Kind),
    scheduled_at: Timestamp,
    why: NoResult<'_>,
    token: &Token,
    clock: Clock,
) -> Record {
    Record {
        scheduled_at: Some(scheduled_at),
        host: HostName::parse(&holder(token.as_str())).ok(),
        reason: Some(why.reason.to_owned()),
        ..blank(job, kind, why.outcome, clock)
    }
}

/// The record of occurrences that a policy drops.
pub(super) fn dropped(job: &JobName, drop: &DroppedRange, token: &Token, clock: Clock) -> Record {
    let many = drop.range.count > 1;
    Record {
        until: many.then_some(drop.range.until),
        count: many.then_some(drop.range.count),
        ..not_started(
            (job, Kind::Schedule),
            drop.range.from,
            NoResult::new(drop.outcome, &drop.reason),
            token,
            clock,
        )
    }
}

/// The record of an open run for which no host has given a result.
pub(super) fn of_open(job: &JobName, open: &Open, why: NoResult<'_>, clock: Clock) -> Record {
    Record {
        run_id: Some(open.run_id.clone()),
        scheduled_at: open.scheduled_at,
        started_at: Some(open.started_at),
        host: HostName::parse(&open.host).ok(),
        reason: Some(why.reason.to_owned()),
        attempts: open.attempt,
        fence: Some(open.fence),
        ..blank(job, open.kind, why.outcome, clock)
    }
}

/// The record of an interrupted run whose rerun never started.
pub(super) fn of_lost_rerun(
    job: &JobName,
    entry: &Waiting,
    crashed: &Crashed,
    reason: &str,
    clock: Clock,
) -> Record {
    Record {
        run_id: Some(crashed.run_id.clone()),
        scheduled_at: Some(entry.scheduled_at),
        started_at: Some(crashed.started_at),
        host: HostName::parse(&crashed.host).ok(),
        reason: Some(reason.to_owned()),
        attempts: entry.attempts,
        fence: Some(crashed.fence),
        ..blank(job, crashed.kind, Outcome::Interrupted, clock)
    }
}

/// The record of a watermark that was set back from `last`.
pub(super) fn set_back(job: &JobName, last: Timestamp, token: &Token, clock: Clock) -> Record {
    Record {
        host: HostName::parse(&holder(token.as_str())).ok(),
        reason: Some(format!(
            "the ledger was ahead of the store's clock by {} s; the job continues from now",
            last.since(clock.utc()).as_secs()
        )),
        ..blank(job, Kind::Schedule, Outcome::Unknown, clock)
    }
}

/// Closes the open run of a job, with a record, and remembers its token. Its lease is over, or (`scope: none`)
/// another run begins. In the second case the run may still be going on: the ledger holds only the newest run,
/// so this record is provisional.
pub(super) fn interrupt(
    job: (&JobName, &mut JobState),
    lock: &mut LockState,
    keep: Option<Retention>,
    clock: Clock,
) -> Option<Effect> {
    let (name, state) = job;
    let open = state.open.take()?;
    if lock.ending(&open.token).is_none() {
        lock.remember(&open.token, Ending::Interrupted);
    }
    let reason = if lock.remaining(&open.token, clock).is_zero() {
        REASON_INTERRUPTED
    } else {
        REASON_NEWER_RUN
    };
    let why = NoResult::new(Outcome::Interrupted, reason);
    Some(append(of_open(name, &open, why, clock), keep))
}

/// Names the host whose claim found that the lease of a run was over. That host sends the notifications about
/// the run; it reads the record in the history, because the reply to its claim does not contain it.
pub(super) fn credit_to_claimant(mut effect: Effect, token: &Token) -> Effect {
    if let Effect::Append { record, .. } = &mut effect
        && record.reason.as_deref() != Some(REASON_NEWER_RUN)
    {
        record.by = Some(holder(token.as_str()));
    }
    effect
}

/// Whether a record stands for a run only until its host reports a result: the run was recorded
/// as interrupted when its lease was over, or unknown when the store had lost data.
pub fn is_provisional(record: &Record) -> bool {
    let outcome = record.outcome;
    record.run_id.is_some() && matches!(outcome, Outcome::Interrupted | Outcome::Unknown)
}

/// Whether the result of a run replaces this record: one that stands for the run ([`is_provisional`]), or one
/// that calls its occurrence `unknown`. A store that has lost that it granted the run knows only that the
/// occurrence came due.
pub fn is_replaced_by(known: &Record, result: &Record) -> bool {
    let is_stand_in = match &known.run_id {
        Some(run_id) => result.run_id.as_ref() == Some(run_id) && is_provisional(known),
        None => {
            known.outcome == Outcome::Unknown
                && known.until.is_none()
                && known.scheduled_at.is_some()
                && known.scheduled_at == result.scheduled_at
                && result.run_id.is_some()
        }
    };
    is_stand_in && known.job == result.job
}

/// Makes one ranged record of two that follow each other with the same verdict, or `None`.
///
/// Merges only skipped, missed and unknown occurrences of the same job, kind, outcome, reason and `by`. Their
/// hosts may differ: the range names the last one. Merges only if
/// the watermark was at the end of `newest` when `next` was decided (`follows`): the range must not seem
/// to contain an occurrence between the two, whose run may still be open.
pub fn merge(newest: &Record, next: &Record, follows: Option<Timestamp>) -> Option<Record> {
    let plain = |r: &Record| {
        r.run_id.is_none()
            && matches!(
                r.outcome,
                Outcome::Skipped | Outcome::Missed | Outcome::Unknown
            )
    };
    let from = newest.scheduled_at?;
    let until = newest.until.unwrap_or(from);
    let next_from = next.scheduled_at?;
    let alike = plain(newest)
        && plain(next)
        && next_from > until
        && follows == Some(until)
        && (newest.job.as_str(), newest.kind, newest.outcome)
            == (next.job.as_str(), next.kind, next.outcome)
        && (&newest.reason, &newest.by) == (&next.reason, &next.by);
    alike.then(|| Record {
        scheduled_at: Some(from),
        until: Some(next.until.unwrap_or(next_from)),
        count: Some(newest.count.unwrap_or(1) + next.count.unwrap_or(1)),
        ..next.clone()
    })
}
