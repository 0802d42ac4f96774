//! The waiting list of a job: what enters it, what leaves it, and in which order.
//!
//! An occurrence waits in the ledger, not on a host, so that hosts that join, wake up or restart
//! agree with the others. Only the first entry can be claimed.

use std::ops::RangeInclusive;

use super::clock::Clock;
use super::effect::Effect;
use super::history::{
    NoResult, REASON_INTERRUPTED, REASON_NOT_NEWEST, REASON_NOT_RERUN, REASON_QUEUE_FULL,
    REASON_SUPERSEDED, REASON_TOO_LATE, REASON_UNKNOWN, append, append_after, credit_to_claimant,
    not_started, of_lost_rerun,
};
use super::lock::{Ending, LockState};
use crate::names::{JobName, Token};
use crate::store::contract::{
    Crashed, JobState, Kind, Open, Outcome, Pause, Record, Retention, RunTerms, Waiting,
};
use crate::time::Timestamp;

/// The job whose list changes, and how its records are written.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) job: &'a JobName,
    /// The claim that decides.
    pub(super) token: &'a Token,
    pub(super) keep: Option<Retention>,
    pub(super) clock: Clock,
}

impl Context<'_> {
    fn record(&self, entry: &Waiting, why: NoResult<'_>) -> Record {
        let (job, at) = ((self.job, entry.kind), entry.scheduled_at);
        not_started(job, at, why, self.token, self.clock)
    }

    fn not_started(&self, entry: &Waiting, why: NoResult<'_>) -> Effect {
        append(self.record(entry, why), self.keep)
    }

    fn interrupted(&self, entry: &Waiting, crashed: &Crashed, reason: &str) -> Effect {
        let record = of_lost_rerun(self.job, entry, crashed, reason, self.clock);
        credit_to_claimant(append(record, self.keep), self.token)
    }

    /// The record of the run that a granted rerun repeats.
    pub(super) fn repeated(&self, entry: &Waiting) -> Option<Effect> {
        let crashed = entry.crashed.as_ref()?;
        Some(self.interrupted(entry, crashed, REASON_INTERRUPTED))
    }
}

/// Moves an open run whose lease has ended to the head of the waiting list, if it must be repeated. Its
/// deadline counts from the end of the lease. If the watermark was set back over its occurrence, the
/// run stays open, because the occurrence is undecided.
pub(super) fn await_rerun(job: &mut JobState, lock: &mut LockState, clock: Clock) {
    let last = job.last;
    let over = |open: &Open| {
        open.may_rerun()
            && open.scheduled_at.is_some_and(|at| at <= last)
            && lock.remaining(&open.token, clock).is_zero()
    };
    let Some(open) = job.open.take_if(|open| over(open)) else {
        return;
    };
    let Some(scheduled_at) = open.scheduled_at else {
        return;
    };
    if lock.ending(&open.token).is_none() {
        lock.remember(&open.token, Ending::Interrupted);
    }
    let since = lock.over_for(&open.token, clock).unwrap_or_default();
    job.put_back(Waiting {
        scheduled_at,
        kind: Kind::Rerun,
        deadline: clock.utc().minus(since).plus(open.terms.rerun_window),
        yields: false,
        attempts: open.attempt,
        reruns: open.terms.reruns + 1,
        crashed: Some(Crashed {
            run_id: open.run_id,
            token: open.token,
            kind: open.kind,
            fence: open.fence,
            started_at: open.started_at,
            host: open.host,
        }),
    });
}

/// Records and removes the entries that will not start: entries whose deadline has passed, and entries
/// from before a loss of data, because the store may have lost that they ran. A rerun that never started
/// adds a record only if the crashed run has none yet.
pub(super) fn expire(job: &mut JobState, context: Context<'_>) -> Vec<Effect> {
    let now = context.clock.utc();
    let past = context.clock.past;
    let unknown =
        |entry: &Waiting| entry.kind != Kind::Rerun && past.is_unknowable(entry.scheduled_at);
    let late = job
        .waiting
        .extract_if(.., |entry| entry.deadline < now || unknown(entry));
    late.filter_map(|entry| match &entry.crashed {
        _ if unknown(&entry) => {
            Some(context.not_started(&entry, NoResult::new(Outcome::Unknown, REASON_UNKNOWN)))
        }
        Some(crashed) => Some(context.interrupted(&entry, crashed, REASON_NOT_RERUN)),
        None if entry.kind == Kind::Rerun => None,
        None => Some(context.not_started(&entry, NoResult::missed(REASON_TOO_LATE))),
    })
    .collect()
}

/// Removes all entries of a job that is paused, and records them as skipped. A rerun is not started
/// either: the crashed run gets its record.
pub(super) fn skip_all(job: &mut JobState, pause: &Pause, context: Context<'_>) -> Vec<Effect> {
    let reason = pause.verdict();
    let not_rerun = format!("{REASON_INTERRUPTED}; no rerun started: {reason}");
    let entries = job.waiting.drain(..);
    entries
        .filter_map(|entry| match &entry.crashed {
            Some(crashed) => Some(context.interrupted(&entry, crashed, &not_rerun)),
            None if entry.kind == Kind::Rerun => None,
            None => Some(context.not_started(&entry, NoResult::skipped(&reason))),
        })
        .collect()
}

/// Removes the entries beyond a watermark that was set back, and records the run of a rerun among
/// them.
pub(super) fn forget_future(job: &mut JobState, context: Context<'_>) -> Vec<Effect> {
    let last = job.last;
    let future = job
        .waiting
        .extract_if(.., |entry| entry.scheduled_at > last);
    future
        .filter_map(|entry| {
            let crashed = entry.crashed.as_ref()?;
            Some(context.interrupted(&entry, crashed, REASON_NOT_RERUN))
        })
        .collect()
}

/// Removes the caught-up occurrence that a newer one replaces (`catch_up: latest`).
pub(super) fn outdate(job: &mut JobState, context: Context<'_>) -> Vec<Effect> {
    let stale = |entry: &mut Waiting| entry.kind == Kind::CatchUp && entry.yields;
    let stale = job.waiting.extract_if(.., stale);
    stale
        .map(|entry| context.not_started(&entry, NoResult::missed(REASON_NOT_NEWEST)))
        .collect()
}

/// Enters an occurrence that takes the place of those that yield to it.
pub(super) fn supersede(job: &mut JobState, entry: Waiting, context: Context<'_>) -> Vec<Effect> {
    let superseded = job.waiting.extract_if(.., |other| other.yields);
    let effects = superseded
        .map(|other| context.not_started(&other, NoResult::skipped(REASON_SUPERSEDED)))
        .collect();
    job.last = job.last.max(entry.scheduled_at);
    job.waiting.push(entry);
    effects
}

/// Enters an occurrence behind those that wait, or records that the queue was full.
pub(super) fn enqueue(
    job: &mut JobState,
    entry: Waiting,
    limit: u32,
    context: Context<'_>,
) -> Result<(), Effect> {
    let waiting = job.waiting.iter().filter(|other| other.kind != Kind::Rerun);
    let full = waiting.count() >= usize::try_from(limit).unwrap_or(usize::MAX);
    let before = job.last;
    job.last = job.last.max(entry.scheduled_at);
    if full {
        let why = NoResult::skipped(REASON_QUEUE_FULL);
        return Err(append_after(
            before,
            context.record(&entry, why),
            context.keep,
        ));
    }
    job.waiting.push(entry);
    Ok(())
}

/// Removes the entries that a late result decides: the rerun of the run under `token`, and the
/// occurrences that are `decided`.
pub(super) fn settle_by_result(
    job: &mut JobState,
    token: &Token,
    decided: Option<&RangeInclusive<Timestamp>>,
) {
    job.waiting.retain(|entry| {
        let crashed = entry.crashed.as_ref().is_some_and(|c| c.token == *token);
        let is_decided = decided.is_some_and(|range| range.contains(&entry.scheduled_at));
        !crashed && (!is_decided || entry.kind == Kind::Rerun)
    });
}

/// The terms under which the head of the list runs.
pub(super) fn terms_of(entry: &Waiting, asked: RunTerms) -> RunTerms {
    RunTerms {
        deadline: entry.deadline,
        reruns: entry.reruns,
        yields: entry.yields,
        ..asked
    }
}
