//! Pauses: nothing starts during one, and what is said to be skipped for one was.

use cronlatch::store::{Outcome, Pause, Record};
use cronlatch::time::Timestamp;

use super::facts::{Subject, span_of};
use super::{Facts, Rule, Violation, excuse};
use crate::trace::{Added, Ordered};

/// What the ledger under this lock kept of pauses then; within a millisecond, either.
fn kept<'a>(
    facts: &'a Facts<'_>,
    subject: &Subject<'_>,
    lock: &str,
    at: i64,
) -> Option<&'a Ordered> {
    let ordered = facts.trace.ordered.iter();
    let of_job = ordered.filter(|it| it.job == subject.name && it.lock == lock && it.at < at);
    of_job.max_by_key(|it| it.at)
}

pub(super) fn in_force(ordered: &Ordered, at: i64) -> Option<&Pause> {
    let newest = ordered.pauses.last();
    newest.filter(|it| it.is_in_force(Timestamp::from_millis(at)))
}

/// No run is granted while its job is paused.
pub(super) fn no_run_is_granted(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        for start in subject.starts.iter().filter(|it| it.fence.is_some()) {
            let granted = facts.granted(start);
            let Some(ordered) = kept(facts, subject, &start.lock, granted) else {
                continue;
            };
            let resumed = facts.trace.ordered.iter().any(|it| it.at == granted);
            if !resumed
                && in_force(ordered, granted).is_some()
                && !excuse::resumed_elsewhere(facts, subject, ordered, granted)
                && !excuse::lost_data(facts, ordered.at)
            {
                all.push(Violation {
                    rule: Rule::Paused,
                    at: start.begin,
                    job: subject.name.to_owned(),
                    text: format!("granted at {granted}, paused at {}: {start:?}", ordered.at),
                });
            }
        }
    }
    all
}

/// Whether this says that an occurrence was skipped for a pause.
pub(super) fn is_skipped(record: &Record) -> bool {
    let reason = record.reason.as_deref().unwrap_or("");
    record.outcome == Outcome::Skipped && reason.starts_with("paused by ")
}

/// Whether no pause explains the verdict.
pub(super) fn is_unfounded(facts: &Facts<'_>, subject: &Subject<'_>, added: &Added) -> bool {
    let Some(span) = span_of(&added.record) else {
        return false;
    };
    let last = Timestamp::from_millis(span.until - 1);
    let mut ordered = facts.trace.ordered.iter();
    !ordered.any(|it| {
        let covers = it.pauses.iter().any(|pause| pause.covers(last));
        it.job == subject.name && it.at <= added.at && (covers || in_force(it, added.at).is_some())
    })
}

/// Whether the job was paused at any time from `from` on.
pub(super) fn was_paused(facts: &Facts<'_>, subject: &Subject<'_>, from: i64) -> bool {
    let mut ordered = facts.trace.ordered.iter();
    ordered.any(|it| {
        let newest = it.pauses.last();
        it.job == subject.name
            && (it.at >= from
                || newest.is_some_and(|it| it.is_in_force(Timestamp::from_millis(from))))
    })
}
