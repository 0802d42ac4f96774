//! G3 and G7: rules about what is on record.

use std::collections::BTreeMap;

use cronlatch::config::CatchUp;
use cronlatch::store::{Kind, Outcome};
use cronlatch::time::Timestamp;

use super::facts::{Regime, Subject, span_of};
use super::{Facts, Rule, Violation, excuse};
use crate::plan::JobPlan;
use crate::store::shown;
use crate::trace::{Added, Ended, Span, Start};

/// How long after its last deadline a verdict may be waited for.
const PROMPT: i64 = 10_000;

fn found(rule: Rule, at: i64, subject: &Subject<'_>, text: String) -> Violation {
    Violation {
        rule,
        at,
        job: subject.name.to_owned(),
        text,
    }
}

/// When an occurrence can be started at the latest.
fn last_deadline(plan: &JobPlan, due: i64) -> i64 {
    let window = match plan.catch_up {
        CatchUp::None => 0,
        CatchUp::Latest | CatchUp::All => plan.catch_up_window,
    };
    due + plan.start_deadline.max(window)
}

/// Every occurrence has a verdict in time, and every run a record of its own.
pub(super) fn silence(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    let whole = Span {
        from: facts.plan.start,
        until: facts.end,
    };
    for subject in &facts.subjects {
        for at in subject.occurrences(whole) {
            let lost = excuse::lost_data(facts, at) || excuse::lost_verdict(subject, at);
            if lost || !is_known(facts, subject, at) {
                continue;
            }
            let plan = subject.plan_at(at);
            let deadline = last_deadline(plan, at + subject.delay);
            let rerun = excuse::rerun_waits(facts, plan, subject, at);
            let deadline = rerun.map_or(deadline, |until| deadline.max(until));
            let runs: Vec<_> = subject.starts_of(at).collect();
            // A run in hand is the verdict to come; what becomes of it is judged below.
            if !runs.is_empty() {
                continue;
            }
            let mut due_there = subject.regimes.iter().filter(|it| it.is_due(at));
            let from = due_there.next().map_or(deadline, |regime| {
                excuse::moves_by(facts, subject, regime, deadline)
            });
            let by = facts.quiet_for_due(subject, at, (from, PROMPT));
            let Some(by) = by.or_else(|| quiet_heirs(facts, subject, at, from)) else {
                continue;
            };
            if excuse::two_schedules(facts, subject, at, by - PROMPT)
                || excuse::passed_there(facts, subject, at, by - PROMPT)
            {
                continue;
            }
            let first = subject.records_of(at).map(|added| added.at).min();
            if excuse::decided_there(facts, subject, at) {
                continue;
            }
            if excuse::held_back(
                facts,
                subject,
                Span {
                    from: at,
                    until: by,
                },
            ) {
                continue;
            }
            if by <= facts.end && first.is_none_or(|first| first > by) {
                let text = format!("{at} has no verdict by {by}; there is one at {first:?}");
                all.push(found(Rule::Silence, at, subject, text));
            }
        }
    }
    for start in &facts.trace.starts {
        all.extend(silent_run(facts, start));
    }
    all
}

/// As [`Facts::quiet_for_due`], of hosts that each have a ledger of their own since no host shares that of the
/// fleet any more: what waited there is one of theirs to decide.
fn quiet_heirs(facts: &Facts<'_>, subject: &Subject<'_>, at: i64, from: i64) -> Option<i64> {
    // The hosts that shared it had the occurrence's schedule to the end.
    let listed = subject.listed_since(at);
    let ended = subject.regimes.iter().map(|it| it.span.until).max()?;
    if listed.iter().all(|it| it.span.until < ended) {
        return None;
    }
    let is_alike = |it: &Regime<'_>| listed.iter().any(|listed| listed.is_alike(it));
    let from = from.max(ended);
    let others = facts.subjects.iter().filter(|it| it.name == subject.name);
    let heirs = others.filter(|it| subject.host.is_none() && it.host.is_some());
    let quiet = heirs.filter_map(|heir| {
        let goes_on = |it: &&Regime<'_>| it.span.from <= ended && ended < it.span.until;
        let mut later = heir.regimes.iter().filter(goes_on);
        let regime = later.find(|it| is_alike(it))?;
        let from = excuse::moves_by(facts, heir, regime, from);
        let by = facts.quiet_as(heir, regime, (from, PROMPT))?;
        let waits = Span {
            from: at,
            until: by,
        };
        (!excuse::held_back(facts, heir, waits)).then_some(by)
    });
    quiet.min()
}

/// Whether the store knew of the job on this schedule by then.
fn is_known(facts: &Facts<'_>, subject: &Subject<'_>, at: i64) -> bool {
    let mut regimes = subject.regimes.iter().filter(|regime| regime.is_due(at));
    regimes.any(|regime| {
        let quiet = &facts.quiet[regime.host];
        let quiet = quiet
            .iter()
            .any(|span| span.from.max(regime.span.from) <= at && regime.span.from < span.until);
        quiet && (regime.told <= at || had_time_to_tell(facts, subject, regime, at))
    })
}

/// Whether a host that has told nothing by then could have done so: it was quiet for long, no other host
/// held the job back, and no run of the job went on under the lock that its list had before.
pub(super) fn had_time_to_tell(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    regime: &Regime<'_>,
    at: i64,
) -> bool {
    let since = Span {
        from: regime.span.from,
        until: at,
    };
    let free = excuse::moves_by(facts, subject, regime, since.from);
    let by = facts.quiet_on(subject, regime.host, (free, PROMPT));
    by.is_some_and(|by| by <= at) && !excuse::held_back(facts, subject, since)
}

fn silent_run(facts: &Facts<'_>, start: &Start) -> Option<Violation> {
    let end = start.end?;
    let attempts = || (facts.trace.starts.iter()).filter(|it| it.run_id == start.run_id);
    if attempts().any(|it| it.begin > start.begin) {
        return None;
    }
    // The store was told of the run when it granted the first one.
    let first_begin = attempts().map(|it| it.begin).min()?;
    let is_fleet =
        |it: &&Subject<'_>| it.name == start.job && it.host.is_none_or(|host| host == start.host);
    let subject = facts.subjects.iter().find(is_fleet)?;
    let plan = subject.plan_at(start.begin);
    let died = !matches!(start.ended, Some(Ended::Itself(_)))
        || excuse::died_unreported(facts, plan, start);
    let cut = excuse::was_in_trouble(facts, start.host, end);
    let from = end + if died || cut { plan.ttl } else { 0 };
    let repeated = excuse::to_be_repeated(facts, plan, start).filter(|_| died || cut);
    let from = repeated.map_or(from, |until| from.max(until));
    // Further attempts may be waiting for their time.
    let from = from + plan.retry.map_or(0, |(_, delay)| delay * 4);
    // Only its host reports a run without the store, and not if the host dies.
    let alone = start.fence.is_none();
    let dies = facts.trace.lives.iter().any(|life| {
        life.host == start.host && life.killed && life.until.is_some_and(|it| it >= start.begin)
    });
    let lost = [first_begin, start.begin, end].map(|at| excuse::lost_data(facts, at));
    if alone && dies || lost.contains(&true) {
        return None;
    }
    if excuse::lost_result(facts, start) {
        return None;
    }
    // Only its own host knows of a run without the store.
    let by = if alone {
        facts.quiet_on(subject, start.host, (from, PROMPT))?
    } else {
        facts.quiet_for(subject, from, PROMPT)?
    };
    let due = Span {
        from: end,
        until: by,
    };
    if excuse::held_back(facts, subject, due) {
        return None;
    }
    let of_it = |it: &&Added| {
        !it.lost
            && it
                .record
                .run_id
                .as_ref()
                .is_some_and(|id| id.as_str() == start.run_id)
    };
    let first = facts.trace.added.iter().filter(of_it).map(|it| it.at).min();
    (first.is_none_or(|first| first > by)).then(|| {
        let text = format!("{start:?} has no record by {by}; there is one at {first:?}");
        found(Rule::Silence, start.begin, subject, text)
    })
}

/// A run has one verdict, and an occurrence that was not started has one.
pub(super) fn two_verdicts(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        let mut runs: BTreeMap<&str, &Added> = BTreeMap::new();
        let mut dues: BTreeMap<i64, &Added> = BTreeMap::new();
        let final_ones = |it: &&&Added| !it.lost && !excuse::provisional(it);
        for added in subject.added.iter().filter(final_ones) {
            if let Some(id) = &added.record.run_id {
                if let Some(before) = runs.insert(id.as_str(), added)
                    && !excuse::many_ends(facts, before, added)
                    && !excuse::copy_after_move(before, added)
                    && !excuse::left_behind(before, added)
                {
                    let text = format!("{} and {}", shown(&before.record), shown(&added.record));
                    all.push(found(Rule::TwoVerdicts, added.at, subject, text));
                }
                continue;
            }
            let Some(span) = span_of(&added.record) else {
                continue;
            };
            for at in subject.occurrences(span) {
                if let Some(before) = dues.insert(at, added)
                    && !excuse::verdicts_owed_together(facts, subject, at, (before.at, added.at))
                {
                    let text = format!("{} and {}", shown(&before.record), shown(&added.record));
                    all.push(found(Rule::TwoVerdicts, added.at, subject, text));
                }
            }
        }
    }
    all
}

/// An occurrence that has the verdict of a run has no other one, whatever became of the run.
pub(super) fn ran_and_did_not(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        let counts = |it: &&&Added| !it.lost && !excuse::provisional(it);
        let of_run = |it: &&&Added| it.record.run_id.is_some();
        let (runs, others): (Vec<&&Added>, Vec<&&Added>) =
            subject.added.iter().filter(counts).partition(of_run);
        for run in runs {
            let Some(at) = run.record.scheduled_at.map(Timestamp::millis) else {
                continue;
            };
            let covers = |it: &&&&Added| span_of(&it.record).is_some_and(|span| span.holds(at));
            let other = others.iter().filter(covers);
            for other in other.filter(|other| contradict(facts, subject, at, (run, other))) {
                let text = format!("{} and {}", shown(&run.record), shown(&other.record));
                all.push(found(
                    Rule::TwoVerdicts,
                    run.at.max(other.at),
                    subject,
                    text,
                ));
            }
        }
    }
    all
}

/// Whether no excuse holds for the verdict of a run and one of no run on the same occurrence.
fn contradict(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    at: i64,
    (run, other): (&Added, &Added),
) -> bool {
    let order = (run.at.min(other.at), run.at.max(other.at));
    let id = run.record.run_id.as_ref();
    // Its lock may have been another one: a ledger moves with its job.
    let mut starts = facts.trace.starts.iter();
    let start = starts.find(|it| id.is_some_and(|id| id.as_str() == it.run_id));
    let never_began = excuse::never_began(facts, run);
    let start = start.or(never_began.as_ref());
    let unknown = |start: &Start| {
        excuse::not_told(facts, subject, start, other) || excuse::never_measured(facts, start)
    };
    let in_range = |start: &Start| excuse::unknown_range(facts, start, run, other);
    !start.is_some_and(|start| unknown(start) || in_range(start))
        && !excuse::lost_data(facts, at)
        && !excuse::verdicts_owed_together(facts, subject, at, order)
}

/// What is said not to have been started was not, and what succeeded did.
pub(super) fn untrue(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        for added in subject.added.iter().filter(|it| !it.lost && !it.replaced) {
            let record = &added.record;
            let Some(span) = span_of(record) else {
                continue;
            };
            let wrong = match record.outcome {
                Outcome::Skipped | Outcome::Missed => subject.starts.iter().any(|run| {
                    let order = (added.at.min(run.begin), added.at.max(run.begin));
                    run.at.is_some_and(|at| {
                        span.holds(at)
                            && !excuse::lost_data(facts, at)
                            && !excuse::verdicts_owed_together(facts, subject, at, order)
                    }) && !excuse::not_told(facts, subject, run, added)
                        && !excuse::never_measured(facts, run)
                }),
                // Of whatever scope the job was then.
                Outcome::Succeeded => !facts.trace.starts.iter().any(|it| {
                    it.job == subject.name
                        && record
                            .run_id
                            .as_ref()
                            .is_some_and(|id| id.as_str() == it.run_id)
                        && it.ended == Some(Ended::Itself(0))
                }),
                _ => false,
            };
            if wrong {
                all.push(found(Rule::Untrue, added.at, subject, shown(record)));
            }
        }
    }
    all
}

/// No verdict before the occurrence is due by the store's clock.
pub(super) fn foretold(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        for added in subject.added.iter().filter(|it| !it.lost) {
            let Some(span) = span_of(&added.record) else {
                continue;
            };
            if added.at < span.until - 1 - excuse::AHEAD
                && !excuse::told_by_wall_clock(facts, subject, added)
            {
                let text = format!("at {}: {}", added.at, shown(&added.record));
                all.push(found(Rule::Foretold, added.at, subject, text));
            }
        }
    }
    all
}

/// Whether an occurrence may run or have a verdict: a list had it when it was due.
pub(super) fn counts(facts: &Facts<'_>, subject: &Subject<'_>, at: i64) -> bool {
    subject.counts_by(at, excuse::OWN_CLOCK)
        || excuse::back_on_its_schedule(facts, subject, at)
        || excuse::under_its_old_scope(facts, subject, at)
        || excuse::never_seen_disabled(facts, subject, at)
        || excuse::forgotten_schedule(facts, subject, at)
}

/// Nothing runs or is recorded that no list had when it was due.
pub(super) fn does_not_count(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        let counts = |at: i64| counts(facts, subject, at);
        for start in &subject.starts {
            let at = start.at.filter(|at| !counts(*at));
            if let Some(at) = at.filter(|_| !excuse::never_measured(facts, start)) {
                let text = format!("{at} ran: {start:?}");
                all.push(found(Rule::DoesNotCount, start.begin, subject, text));
            }
        }
        for added in subject.added.iter().filter(|it| !it.lost) {
            let Some(span) = span_of(&added.record) else {
                continue;
            };
            let ends = [span.from, span.until - 1];
            if !ends.iter().all(|at| counts(*at))
                && added.record.kind != Kind::Manual
                && !excuse::lost_data(facts, span.from)
                && !excuse::lost_beginning(facts, added)
                && !excuse::told_by_wall_clock(facts, subject, added)
            {
                let text = shown(&added.record);
                all.push(found(Rule::DoesNotCount, added.at, subject, text));
            }
        }
    }
    all
}

/// What came due while a host and the store were up is neither missed nor unknown.
pub(super) fn missed(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        let records = subject.added.iter().filter(|it| {
            let outcome = it.record.outcome;
            !it.lost
                && it.record.run_id.is_none()
                && matches!(outcome, Outcome::Missed | Outcome::Unknown)
        });
        for added in records {
            let Some(span) = span_of(&added.record) else {
                continue;
            };
            for at in subject.occurrences(span) {
                if missed_in_quiet(facts, subject, at, added) {
                    let text = format!("{at}: {}", shown(&added.record));
                    all.push(found(Rule::Missed, at, subject, text));
                    break;
                }
            }
        }
    }
    all
}

fn missed_in_quiet(facts: &Facts<'_>, subject: &Subject<'_>, at: i64, added: &Added) -> bool {
    let plan = subject.plan_at(at);
    let due = at + subject.delay;
    let deadline = due + plan.start_deadline;
    let around = Span {
        from: due - 2_000,
        until: due + plan.start_deadline.min(5_000),
    };
    let busy = Span {
        from: due,
        until: deadline.min(added.at).max(due + 1),
    };
    facts.some_host_quiet(subject, at, around)
        && !excuse::held_back(facts, subject, busy)
        && !excuse::lost_data(facts, at)
        && !excuse::claim_in_doubt(facts, plan, due)
        && !excuse::late_vote(facts, plan, due)
        && !excuse::silent_nodes(facts, plan, due)
        && !excuse::unheard_return(facts, plan, due)
        && !excuse::busy_on_its_schedule(facts, subject, (at, added), busy)
        && !excuse::not_there(facts, subject, (plan, added), busy)
}
