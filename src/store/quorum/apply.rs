//! Applies the rules of the protocol to what a majority knows.

use super::merge::MergedState;
use super::request::Transition;
use crate::store::protocol::{Clock, Effect, JobState, LockState, REASON_INTERRUPTED, summarize};
use crate::store::{Outcome, Record};

/// The reason recorded for a run whose lease expired before its host reported a result, and that too
/// few nodes know.
const REASON_DOUBT: &str = "its lease ended, and only a minority of the nodes knew of it: whether \
                            it ran cannot be told";

/// The result of the rules.
pub(super) struct AppliedRules<R> {
    pub(super) lock: LockState,
    pub(super) job: Option<JobState>,
    pub(super) doubt: bool,
    pub(super) transition: Transition<R>,
    pub(super) changed: bool,
}

/// Applies the rules to a copy of the merged state.
pub(super) fn apply_rules<R>(
    merged: &MergedState,
    rules: &impl Fn(&mut LockState, &mut Option<JobState>, Clock) -> Transition<R>,
) -> AppliedRules<R> {
    let (mut lock, mut job) = (merged.lock.clone(), merged.job.clone());
    let mut transition = rules(&mut lock, &mut job, merged.clock);
    let changed = lock != merged.lock
        || job != merged.job
        || transition.taken
        || !transition.effects.is_empty();
    let before = merged.job.as_ref().and_then(|job| job.open.as_ref());
    if let Some(open) = before.filter(|_| merged.is_in_doubt()) {
        for effect in &mut transition.effects {
            if let Effect::Append { record, .. } = effect {
                doubt(record, open.run_id.as_str());
            }
        }
    }
    summarize(&mut job, &transition.effects, merged.clock);
    let same_run = job
        .as_ref()
        .and_then(|job| job.open.as_ref())
        .is_some_and(|open| before.is_some_and(|before| before.token == open.token));
    AppliedRules {
        doubt: merged.is_in_doubt() && same_run && !transition.taken,
        lock,
        job,
        transition,
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
