//! `finish`: the end of a run, or of a claim that was cancelled. A second copy changes nothing.

use super::clock::{Clock, LEAD};
use super::effect::Effect;
use super::lock::{Ending, Key, LockState};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::history::{NoResult, REASON_NO_VERDICT, append, of_open};
use super::recovery::is_forgotten;
use super::waiting;
use crate::names::{JobName, Token};
use crate::store::contract::{Finish, FinishReply, JobState, LockRef, Outcome, Record};
use crate::time::Timestamp;

/// Writes verdict and record, closes the run, and then releases the lock by its token.
///
/// `job` is the state of the job that the request or its record names.
pub fn finish(
    lock: &mut LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    finish: &Finish,
) -> (FinishReply, Vec<Effect>) {
    match lock.ending(&finish.token) {
        Some(Ending::Released) => return (FinishReply::Released, Vec::new()),
        Some(Ending::Lost) => return (FinishReply::Lost, Vec::new()),
        Some(Ending::Interrupted) | None => (),
    }
    let mut effects = Vec::new();
    if let Some(to) = moved(lock, job.as_ref(), finish) {
        free(lock, finish, &mut effects);
        return (FinishReply::Moved { to }, effects);
    }
    if let Some(record) = &finish.record {
        effects.push(Effect::Append {
            record: Box::new(record.clone()),
            keep: Some(finish.keep),
            follows: job.as_ref().map(|job| job.last),
            replaces: may_replace(lock, job.as_ref(), finish, record),
        });
        note_result(job, clock, (&finish.token, record));
    }
    let name = finish
        .job
        .as_ref()
        .or(finish.record.as_ref().map(|record| &record.job));
    if let (Some(name), Some(state)) = (name, job.as_mut()) {
        effects.extend(close(name, state, clock, finish));
    }
    let reply = release(lock, clock, finish, &mut effects);
    (reply, effects)
}

/// Whether something may be on record that this result replaces.
fn may_replace(lock: &LockState, job: Option<&JobState>, finish: &Finish, record: &Record) -> bool {
    let is_of_run = record.run_id.is_some() && record.scheduled_at.is_some();
    let is_open = job.is_some_and(|job| job.open_under(&finish.token).is_some());
    // So many runs without a lock may overlap that the oldest tokens are no longer remembered.
    !finish.lock.exclusive
        || lock.ending(&finish.token) == Some(Ending::Interrupted)
        // After a loss of data the ledger may not know the run, and have called its occurrence unknown.
        || is_of_run && !is_open
}

/// Returns the lock to send the request to, if the ledger is a tombstone: under the lock that the job
/// uses now the run may be open, or wait for its rerun. The record of a run that was interrupted before
/// the move is here.
fn moved(lock: &LockState, job: Option<&JobState>, finish: &Finish) -> Option<LockRef> {
    let job = job?;
    let to = job.moved_from(&finish.lock)?;
    let ended_here = lock.ending(&finish.token).is_some() && !job.carries(&finish.token);
    (!ended_here).then(|| to.clone())
}

/// Notes what a result decides, unless it is in the store's future: an occurrence that a host with a
/// fast clock considers due is decided when it is due.
///
/// A run without the store is beyond the watermark. Hosts may still hold earlier occurrences, so the
/// watermark does not move over them.
fn note_result(job: &mut Option<JobState>, clock: Clock, (token, record): (&Token, &Record)) {
    let range = (record.scheduled_at).map(|from| from..=record.until.unwrap_or(from));
    let is_due = |range: &&RangeInclusive<Timestamp>| *range.end() <= clock.utc().plus(LEAD);
    if let Some(range) = range.as_ref().filter(is_due) {
        let until = *range.end();
        // No host has registered the job here, so occurrences before the result are undecided.
        let before = match record.until {
            None => until.minus(Duration::from_millis(1)),
            Some(_) => until,
        };
        let state = job.get_or_insert_with(|| JobState::starting_after(before));
        if record.until.is_none() {
            state.decide_beyond(until);
        }
        // A range has no gaps.
        state.last = state.last.max(record.until.unwrap_or(state.last));
        state.decide_open(token, range);
    }
    if let Some(state) = job {
        waiting::settle_by_result(state, token, range.as_ref());
    }
}

/// Closes the open run if it has this token. The verdict is in the request or is written here, or the
/// occurrence waits again.
fn close(name: &JobName, job: &mut JobState, clock: Clock, finish: &Finish) -> Option<Effect> {
    job.open_under(&finish.token)?;
    let open = job.open.take()?;
    let scheduled_at = open.scheduled_at?;
    if finish.record.is_some() {
        return None;
    }
    if !finish.give_back {
        let why = NoResult::new(Outcome::Interrupted, REASON_NO_VERDICT);
        return Some(append(of_open(name, &open, why, clock), Some(finish.keep)));
    }
    // If the watermark was set back in the meantime, the occurrence is undecided and does not wait.
    if scheduled_at <= job.last {
        job.give_back(&open, scheduled_at);
    }
    None
}

/// Releases the lock by its token and remembers the reply.
fn release(
    lock: &mut LockState,
    clock: Clock,
    finish: &Finish,
    effects: &mut Vec<Effect>,
) -> FinishReply {
    let token = &finish.token;
    let exclusive = finish.lock.exclusive;
    let forgotten = is_forgotten(lock, clock);
    let freed = free(lock, finish, effects);
    let (reply, ending) = if freed.key || forgotten || (freed.state && !exclusive) {
        (FinishReply::Released, Ending::Released)
    } else {
        (FinishReply::Lost, Ending::Lost)
    };
    lock.remember(token, ending);
    reply
}

/// Where the token of a finish was found when its lock was released.
struct Freed {
    /// The state named it.
    state: bool,
    /// The key held it.
    key: bool,
}

/// Releases the lock by its token.
fn free(lock: &mut LockState, finish: &Finish, effects: &mut Vec<Effect>) -> Freed {
    let token = &finish.token;
    let granted = lock.is_granted_to(token);
    let held = finish.lock.exclusive && lock.key_holds(token);
    if held {
        lock.key = Key::Absent;
    }
    if granted {
        lock.token = None;
        lock.run_id = None;
        lock.lease_end = 0;
    }
    if held || granted {
        effects.push(Effect::Released);
    }
    Freed {
        state: granted,
        key: held,
    }
}
