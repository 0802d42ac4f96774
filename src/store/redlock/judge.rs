//! The rules of the protocol, applied to what a majority knows.

use super::transact::Outcomes;
use super::view::Merged;
use crate::store::protocol::{Clock, Effect, JobState, LockState, REASON_INTERRUPTED};
use crate::store::{Outcome, Record};

/// Why a run is `unknown` whose lease ended without a word.
const REASON_DOUBT: &str = "its lease ended, and only a minority of the nodes knew of it: whether \
                            it ran cannot be told";

/// The state after the rules were applied.
pub(super) struct Judged<R> {
    pub(super) lock: LockState,
    pub(super) job: Option<JobState>,
    pub(super) doubt: bool,
    pub(super) outcomes: Outcomes<R>,
    pub(super) changed: bool,
}

/// Applies the rules; the states that were found stay as they are.
pub(super) fn judge<R>(
    merged: &Merged,
    rules: &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Outcomes<R>,
) -> Judged<R> {
    let (mut lock, mut job) = (merged.lock.clone(), merged.job.clone());
    let mut outcomes = rules(&mut lock, &mut job, merged.clock);
    let changed =
        lock != merged.lock || job != merged.job || outcomes.taken || !outcomes.effects.is_empty();
    let before = merged.job.as_ref().and_then(|job| job.open.as_ref());
    if let Some(open) = before.filter(|_| merged.is_in_doubt()) {
        for effect in &mut outcomes.effects {
            if let Effect::Append { record, .. } = effect {
                doubt(record, open.run_id.as_str());
            }
        }
    }
    let same_run = job
        .as_ref()
        .and_then(|job| job.open.as_ref())
        .is_some_and(|open| before.is_some_and(|before| before.token == open.token));
    Judged {
        doubt: merged.is_in_doubt() && same_run && !outcomes.taken,
        lock,
        job,
        outcomes,
        changed,
    }
}

fn doubt(record: &mut Record, run: &str) {
    let of_it = record.run_id.as_ref().is_some_and(|id| id.as_str() == run);
    if of_it && record.reason.as_deref() == Some(REASON_INTERRUPTED) {
        record.outcome = Outcome::Unknown;
        record.reason = Some(REASON_DOUBT.to_owned());
    }
}
