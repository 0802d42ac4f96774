//! The end of a run, or of a claim that nobody will use.

use super::history::{REASON_GIVEN_BACK_LATE, REASON_NO_VERDICT, append, of_open};
use super::recovery::is_forgotten;
use super::state::{Clock, Effect, Ending, JobState, Key, LockState};
use crate::names::JobName;
use crate::store::{Finish, FinishReply, Outcome};

/// Writes verdict and record, closes the run, then releases by token.
///
/// `job` is the state of the job that the request names, or its record does.
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
    if let Some(record) = &finish.record {
        effects.push(Effect::Append {
            record: Box::new(record.clone()),
            keep: Some(finish.keep),
            follows: job.as_ref().map(|job| job.last),
        });
        if let Some(scheduled_at) = record.scheduled_at {
            let last = record.until.unwrap_or(scheduled_at);
            let state = job.get_or_insert_with(|| JobState::starting_after(last));
            state.last = state.last.max(last);
        }
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

/// Closes the open run if it is this token's. A verdict comes with the request, or is written
/// here, or the occurrence is undecided again.
fn close(name: &JobName, job: &mut JobState, clock: Clock, finish: &Finish) -> Option<Effect> {
    job.open_under(&finish.token)?;
    let mut open = job.open.take()?;
    let scheduled_at = open.scheduled_at?;
    if finish.record.is_some() {
        return None;
    }
    let keep = Some(finish.keep);
    if !finish.give_back {
        let why = (Outcome::Interrupted, REASON_NO_VERDICT);
        return Some(append(of_open(name, &open, why, clock), keep));
    }
    if open.attempt > 1 {
        open.attempt -= 1;
        open.fence = 0;
        job.open = Some(open);
        return None;
    }
    if job.last == scheduled_at {
        job.last = open.prev_last;
        return None;
    }
    let why = (Outcome::Missed, REASON_GIVEN_BACK_LATE);
    let mut record = of_open(name, &open, why, clock);
    (record.started_at, record.fence, record.attempts) = (None, None, 0);
    Some(append(record, keep))
}

/// Releases by token and remembers the answer.
fn release(
    lock: &mut LockState,
    clock: Clock,
    finish: &Finish,
    effects: &mut Vec<Effect>,
) -> FinishReply {
    let token = &finish.token;
    let exclusive = finish.lock.exclusive;
    let granted = lock.is_granted_to(token);
    let held = exclusive && lock.key_holds(token);
    let forgotten = is_forgotten(lock, clock);
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
    let (reply, ending) = if held || forgotten || (granted && !exclusive) {
        (FinishReply::Released, Ending::Released)
    } else {
        (FinishReply::Lost, Ending::Lost)
    };
    lock.remember(token, ending);
    reply
}
