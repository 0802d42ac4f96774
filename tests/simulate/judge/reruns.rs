//! `on_crash: rerun`: a run whose host died is run again, in time, or has the record that it was not.

use cronlatch::config::OnCrash;
use cronlatch::store::Outcome;
use cronlatch::store::protocol::REASON_INTERRUPTED;

use super::facts::Subject;
use super::policies::found;
use super::{Facts, Rule, Violation, excuse, pauses};
use crate::plan::{JobPlan, StoreKind};
use crate::trace::{Ended, Span, Start};

/// How long a rerun may take once its lock is free and a host quiet.
const RERUNS: i64 = 10_000;
/// How long it may take at all: others have the lock in between.
const RERUNS_AT_LAST: i64 = 30_000;

/// How late a store may grant a rerun: several nodes need a moment to agree.
fn takes(store: StoreKind) -> i64 {
    match store {
        StoreKind::Redis | StoreKind::Sqlite => 2,
        StoreKind::Quorum(_) => 1_000,
    }
}

/// A run whose host died is run again, as often as the job allows.
pub(super) fn lost_runs_are_repeated(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        for start in &subject.starts {
            let since = |until: i64| Span {
                from: start.begin,
                until,
            };
            let Some(plan) = facts.plan_between(subject, since(start.begin + 1)) else {
                continue;
            };
            let OnCrash::Rerun { max_reruns } = plan.on_crash else {
                continue;
            };
            if let Some(by) = lacks_rerun(facts, subject, (plan, max_reruns), start)
                && facts.plan_between(subject, since(by)).is_some()
            {
                let text = format!("nothing by {by} after {start:?}");
                all.push(found(Rule::NoRerun, start.begin, subject, text));
            }
        }
    }
    all
}

fn lacks_rerun(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    (plan, max_reruns): (&JobPlan, u32),
    start: &Start,
) -> Option<i64> {
    let died = matches!(start.ended, Some(Ended::WithMachine | Ended::WithDaemon));
    let (at, end) = (start.at?, start.end?);
    let later =
        subject.starts_of(at).any(|it| it.begin > start.begin) || is_repeated(subject, at, start);
    let told = subject.added.iter().any(|it| {
        let of_it = it
            .record
            .run_id
            .as_ref()
            .is_some_and(|id| id.as_str() == start.run_id);
        of_it && it.record.outcome != Outcome::Interrupted
    });
    let repeated = runs_of(subject, at) + excuse::reruns_not_begun(subject, at);
    if !died || later || told || start.fence.is_none() || repeated > max_reruns as usize {
        return None;
    }
    if excuse::lost_data(facts, start.begin)
        || excuse::lost_data(facts, end)
        || excuse::tries_used_up(plan, start)
        || excuse::last_try_not_begun(plan, subject, at)
    {
        return None;
    }
    if pauses::was_paused(facts, subject, start.begin) {
        return None;
    }
    if excuse::beside(facts, plan, start) || excuse::rerun_beside(facts, plan, subject, at) {
        return None;
    }
    let lease_end = facts.lease_end(start).unwrap_or(end + plan.ttl);
    let free_from = end.max(lease_end) + 500;
    let soon = facts.quiet_for(subject, free_from, RERUNS)?;
    if excuse::rerun_too_late(plan, lease_end, soon - RERUNS + takes(facts.plan.store)) {
        return None;
    }
    let at_last = facts.quiet_for(subject, free_from, RERUNS_AT_LAST);
    let busy = Span {
        from: free_from,
        until: soon,
    };
    let over = lease_end + excuse::rerun_window(plan);
    let within = Span {
        from: free_from,
        until: facts.end.min(over),
    };
    let chances = excuse::chances(facts, subject, within);
    let mut long = chances
        .iter()
        .filter(|(_, it)| it.from + RERUNS <= it.until);
    if let Some((_, chance)) = long.next() {
        return Some(chance.from + RERUNS);
    }
    let excused = excuse::lock_busy_until(facts, subject, busy, over)
        || excuse::held_back(facts, subject, busy);
    if excused && excuse::rerun_too_late(plan, lease_end, free_from + RERUNS_AT_LAST) {
        None
    } else if excused {
        at_last.filter(|by| *by <= facts.end)
    } else {
        Some(soon).filter(|by| *by <= facts.end)
    }
}

/// A rerun is granted within its window, and a run that was not repeated though it might have been has the
/// record that no rerun started.
pub(super) fn in_their_window(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        let mut seen: Vec<&Start> = Vec::new();
        let mut starts: Vec<&Start> = subject.starts.clone();
        starts.retain(|it| it.fence.is_some());
        starts.sort_by_key(|it| it.begin);
        for start in starts {
            let before = seen.iter().rfind(|it| it.at == start.at);
            if let Some(before) = before.filter(|it| it.run_id != start.run_id)
                && let Some(until) = too_late(facts, subject, before, start)
            {
                let text = format!("its window was over at {until}: {start:?} after {before:?}");
                all.push(found(Rule::RerunWindow, start.begin, subject, text));
            }
            seen.push(start);
        }
        all.extend(unsaid(facts, subject));
    }
    all
}

/// Whether a rerun was granted after its window. Returns when that was over.
fn too_late(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    before: &Start,
    rerun: &Start,
) -> Option<i64> {
    let between = Span {
        from: before.begin,
        until: rerun.begin,
    };
    let plan = facts.plan_between(subject, between)?;
    if !matches!(plan.on_crash, OnCrash::Rerun { .. })
        || excuse::lost_meanwhile(facts, between)
        || excuse::owed_together(facts, subject, rerun.at?, rerun.begin) > 0
    {
        return None;
    }
    let granted = facts.granted(rerun);
    let lease_end = facts.lease_end(before)?;
    let lease_end = excuse::unheard_lease_end(facts, before, plan, lease_end);
    let from = excuse::noticed_late(facts, before, (rerun, granted)).unwrap_or(lease_end);
    let until = from.max(lease_end) + excuse::rerun_window(plan);
    let again = excuse::rerun_of_not_begun(facts, plan, subject, rerun.at?);
    let until = again.map_or(until, |again| again.max(until));
    let behind = excuse::node_behind(facts, between);
    (granted > until + takes(facts.plan.store) + behind).then_some(until)
}

/// The records of runs that might have been repeated, were not, and do not say so.
fn unsaid(facts: &Facts<'_>, subject: &Subject<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    let records = subject.added.iter().filter(|it| !it.lost && !it.replaced);
    for added in records.filter(|it| it.record.outcome == Outcome::Interrupted) {
        let of_it = |it: &&&Start| {
            let id = added.record.run_id.as_ref();
            id.is_some_and(|id| id.as_str() == it.run_id)
        };
        let Some(last) = subject.starts.iter().rfind(of_it) else {
            continue;
        };
        let reason = added.record.reason.as_deref();
        if reason == Some(REASON_INTERRUPTED) && might_rerun(facts, subject, last, added.at) {
            let text = format!("no record says that no rerun started: {last:?}");
            all.push(found(Rule::RerunWindow, added.at, subject, text));
        }
    }
    all
}

/// Whether the last attempt of a run that was interrupted had to be repeated, and was not.
fn might_rerun(facts: &Facts<'_>, subject: &Subject<'_>, last: &Start, recorded: i64) -> bool {
    let between = Span {
        from: last.begin,
        until: recorded,
    };
    let (Some(at), Some(plan)) = (last.at, facts.plan_between(subject, between)) else {
        return false;
    };
    let OnCrash::Rerun { max_reruns } = plan.on_crash else {
        return false;
    };
    if last.fence.is_none() || is_repeated(subject, at, last) {
        return false;
    }
    let lease_end = facts.lease_end(last).unwrap_or(recorded);
    runs_of(subject, at) + excuse::reruns_not_begun(subject, at) <= max_reruns as usize
        && lease_end + excuse::rerun_window(plan) < facts.end
        && !excuse::lost_meanwhile(facts, between)
        && !excuse::tries_used_up(plan, last)
        && !excuse::last_try_not_begun(plan, subject, at)
        && !excuse::given_back(facts, last)
}

/// Whether a rerun followed this run, perhaps before the run's last attempt: a run may outlive its lease.
fn is_repeated(subject: &Subject<'_>, at: i64, run: &Start) -> bool {
    let of_run = subject.starts_of(at).filter(|it| it.run_id == run.run_id);
    let began = of_run.map(|it| it.begin).min().unwrap_or(run.begin);
    let mut runs = subject.starts_of(at);
    runs.any(|it| it.run_id != run.run_id && it.begin > began)
}

/// How many runs of an occurrence the store granted and began.
fn runs_of(subject: &Subject<'_>, at: i64) -> usize {
    let mut runs: Vec<&str> = Vec::new();
    for it in subject.starts_of(at).filter(|it| it.fence.is_some()) {
        if !runs.contains(&it.run_id.as_str()) {
            runs.push(&it.run_id);
        }
    }
    runs.len()
}
