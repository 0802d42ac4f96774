//! What a store that lost its data has forgotten.

use cronlatch::store::Outcome;
use cronlatch::store::protocol::FINISHED_KEPT;

use super::super::Facts;
use super::super::facts::{Subject, span_of};
use crate::trace::{Added, Span, Start};

/// A loss is noticed with the next request, and then the store recovers for a TTL.
const AS_IT_RECOVERS: i64 = 3_000;

/// `LostData`: the store lost data from around that time.
pub(in crate::judge) fn lost_data(facts: &Facts<'_>, at: i64) -> bool {
    facts.may_be_forgotten(at)
}

/// `ForgottenRun`: a store that lost its data does not know that a newer occurrence has run since, and may
/// grant an older one that it has found again.
pub(in crate::judge) fn forgotten_run(facts: &Facts<'_>, run: &Start) -> bool {
    facts.trace.losses.iter().any(|it| it.holds(run.begin))
}

/// `LostMeanwhile`: so it did at any time in a span.
pub(in crate::judge) fn lost_meanwhile(facts: &Facts<'_>, span: Span) -> bool {
    facts.trace.losses.iter().any(|it| it.meets(span)) || facts.may_be_forgotten(span.from)
}

/// `LostBeginning`: a store that lost its data does not know since when a job exists: what it calls
/// unknown afterwards may have been due before the job did exist, if it was due before the loss.
pub(in crate::judge) fn lost_beginning(facts: &Facts<'_>, added: &Added) -> bool {
    let Some(span) = span_of(&added.record) else {
        return false;
    };
    let mut losses = facts.trace.losses.iter();
    added.record.outcome == Outcome::Unknown
        && losses.any(|it| span.from <= it.until && it.from <= added.at)
}

/// `ForgottenSchedule`: a store that lost its data cannot tell a schedule that is new from one that it has
/// forgotten. It counts from the loss, if the job was enabled then on another one.
pub(in crate::judge) fn forgotten_schedule(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    at: i64,
) -> bool {
    let losses = || facts.trace.losses.iter().filter(|loss| loss.from <= at);
    let mut later = subject.regimes.iter().filter(|it| at < it.span.from);
    let enabled = subject.regimes.iter().any(|it| it.span.holds(at));
    // One that is added while the store recovers may have been there before the loss.
    let recovers = |then: i64| losses().any(|loss| then < loss.until + AS_IT_RECOVERS);
    let lost = losses().next().is_some();
    lost && later.any(|it| it.has_due(at) && (enabled || recovers(it.span.from)))
}

/// `ManyEnds`: the store knows a copy of a result by its token, and keeps the newest of those that
/// ended under the lock.
pub(in crate::judge) fn many_ends(facts: &Facts<'_>, before: &Added, again: &Added) -> bool {
    let between = |it: &&Added| {
        let then = before.at..=again.at;
        it.lock == again.lock && it.record.run_id.is_some() && then.contains(&it.at)
    };
    let same = before.record.outcome == again.record.outcome;
    same && facts.trace.added.iter().filter(between).count() > FINISHED_KEPT
}

/// `LostVerdict`, of a run.
pub(in crate::judge) fn lost_result(facts: &Facts<'_>, run: &Start) -> bool {
    let mut lost = facts.trace.added.iter().filter(|it| it.lost);
    lost.any(|it| (it.record.run_id.as_ref()).is_some_and(|id| id.as_str() == run.run_id))
}

/// `LostVerdict`: the verdict was on record, and the store lost it with its data.
pub(in crate::judge) fn lost_verdict(subject: &Subject<'_>, at: i64) -> bool {
    let mut lost = subject.added.iter().filter(|it| it.lost);
    lost.any(|it| span_of(&it.record).is_some_and(|span| span.holds(at)))
}

/// From when on the data were lost, and when.
pub(super) fn lost(facts: &Facts<'_>, loss: &Span) -> Span {
    let recovers = facts.plan.longest_ttl() + 1_000;
    let until = loss.until - recovers;
    Span { until, ..*loss }
}

/// `UnknownRange`: the record of a range stands for other occurrences as well. A result that arrives after
/// that does not replace it, if the store has lost that it granted the run.
pub(in crate::judge) fn unknown_range(
    facts: &Facts<'_>,
    run: &Start,
    result: &Added,
    other: &Added,
) -> bool {
    let record = &other.record;
    let is_range = record.outcome == Outcome::Unknown && record.until.is_some();
    is_range && other.at <= result.at && run.begin < other.at && forgotten_run(facts, run)
}
