//! G1, G2, G4 to G6, attempts, order and places: rules about what ran.

use std::collections::{BTreeMap, BTreeSet};

use cronlatch::config::OnCrash;
use cronlatch::store::Outcome;

use super::facts::Subject;
use super::{Facts, Rule, Violation, excuse};
use crate::trace::{Ended, Held, Span, Start};

fn found(rule: Rule, start: &Start, text: String) -> Violation {
    Violation {
        rule,
        at: start.begin,
        job: start.job.clone(),
        text,
    }
}

fn shown(start: &Start) -> String {
    format!(
        "{} attempt {} of {:?} on host-{} from {} to {:?} ({:?})",
        start.run_id, start.attempt, start.at, start.host, start.begin, start.end, start.ended
    )
}

/// The granted runs of each lock, by when they began.
fn by_lock<'a>(facts: &Facts<'a>) -> BTreeMap<&'a str, Vec<&'a Start>> {
    let mut locks: BTreeMap<&str, Vec<&Start>> = BTreeMap::new();
    for start in facts.trace.starts.iter().filter(|it| it.fence.is_some()) {
        locks.entry(&start.lock).or_default().push(start);
    }
    for starts in locks.values_mut() {
        starts.sort_by_key(|start| (start.begin, start.fence));
    }
    locks
}

pub(super) fn exclusion(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for starts in by_lock(facts).values() {
        let mut longest: Option<&Start> = None;
        for start in starts.iter().filter(|it| !excuse::opted_out(facts, it)) {
            if let Some(before) = longest
                && before.run_id != start.run_id
                && before.end.is_none_or(|end| start.begin < end)
                && !excuse::just_awake(facts, before, start)
            {
                let text = format!("{} and {}", shown(before), shown(start));
                all.push(found(Rule::Exclusion, start, text));
            }
            let end = |it: &Start| it.end.unwrap_or(i64::MAX);
            if longest.is_none_or(|before| end(before) < end(start)) {
                longest = Some(start);
            }
        }
    }
    all
}

fn max_reruns(facts: &Facts<'_>, job: &str) -> usize {
    let jobs = facts.plan.lists.iter().flat_map(|list| &list.jobs);
    let of_it = jobs
        .filter(|it| it.name == job)
        .map(|it| match it.on_crash {
            OnCrash::Ignore => 0,
            OnCrash::Rerun { max_reruns } => max_reruns as usize,
        });
    of_it.max().unwrap_or(0)
}

pub(super) fn once(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        let mut runs: BTreeMap<i64, Vec<&Start>> = BTreeMap::new();
        let mut alone: BTreeMap<(i64, usize), &str> = BTreeMap::new();
        for start in &subject.starts {
            let Some(at) = start.at else { continue };
            let of_it = runs.entry(at).or_default();
            if of_it.iter().any(|it| it.run_id == start.run_id) {
                continue;
            }
            if start.fence.is_none() {
                // Each host may run it once; its retries are of one run.
                let first = alone.entry((at, start.host)).or_insert(&start.run_id);
                let retry = *first == start.run_id && start.attempt > 1;
                let another = *first != start.run_id && !excuse::never_measured(facts, start);
                if another || !retry && !excuse::asked_out(facts, start) {
                    let text = format!("without the store: {}", shown(start));
                    all.push(found(Rule::Once, start, text));
                }
                continue;
            }
            let mut allowed = 1 + max_reruns(facts, subject.name);
            if allowed > 1 {
                allowed += excuse::lost_count(facts, of_it);
            }
            allowed += excuse::owed_together(facts, subject, at, start.begin);
            of_it.push(start);
            if of_it.len() > allowed {
                let text = format!("run {} of {at}: {}", of_it.len(), shown(start));
                all.push(found(Rule::Once, start, text));
            }
        }
    }
    all
}

pub(super) fn early(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        for start in &subject.starts {
            if start.fence.is_some() && start.at.is_some_and(|at| start.begin < at) {
                all.push(found(Rule::Early, start, shown(start)));
            }
        }
    }
    all
}

pub(super) fn fencing(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for starts in by_lock(facts).into_values() {
        // A retry has the token of its run.
        let mut seen = BTreeSet::new();
        let runs: Vec<&Start> = starts
            .into_iter()
            .filter(|it| seen.insert(&it.run_id))
            .collect();
        for pair in runs.windows(2) {
            if let [before, start] = pair
                && start.fence <= before.fence
                && !excuse::begun_out_of_order(facts, before, start)
            {
                let text = format!("{} and {}", shown(before), shown(start));
                all.push(found(Rule::Fencing, start, text));
            }
        }
    }
    all
}

/// Attempts of an occurrence are counted through, a retry happens only within `retry.attempts`,
/// and the record names as many as were started.
pub(super) fn attempts(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        let dues: BTreeSet<i64> = subject.starts.iter().filter_map(|it| it.at).collect();
        for at in dues {
            if excuse::lost_data(facts, at) {
                continue;
            }
            let granted = subject.starts_of(at).filter(|it| it.fence.is_some());
            attempts_of(facts, subject, granted.copied().collect(), &mut all);
        }
    }
    all
}

fn attempts_of(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    mut starts: Vec<&Start>,
    all: &mut Vec<Violation>,
) {
    starts.sort_by_key(|start| start.begin);
    let plan = subject.plan_at(starts.first().map_or(0, |start| start.begin));
    let tries = plan.retry.map_or(1, |(attempts, _)| attempts);
    for pair in starts.windows(2) {
        let [before, start] = pair else { continue };
        let owed = || {
            let at = start.at.unwrap_or(start.begin);
            start.run_id != before.run_id
                && excuse::owed_together(facts, subject, at, start.begin) > 0
        };
        if start.attempt <= before.attempt
            && !owed()
            && !excuse::attempt_under_way(facts, before)
            && !excuse::without_its_lease(facts, plan, before)
            && !excuse::without_its_lease(facts, plan, start)
            && !excuse::forgotten_attempt(facts, before)
        {
            let text = format!("{} after {}", shown(start), shown(before));
            all.push(found(Rule::Attempts, start, text));
        }
        if start.run_id == before.run_id && start.attempt > tries {
            let text = format!("retry beyond {tries}: {}", shown(start));
            all.push(found(Rule::Attempts, start, text));
        }
    }
    for last in &starts {
        let later = |it: &&Start| it.run_id == last.run_id && it.attempt > last.attempt;
        if starts.iter().any(later) {
            continue;
        }
        let of_run = || starts.iter().filter(|it| it.run_id == last.run_id);
        let beside = |counted: u32| {
            let counts = of_run().find(|it| it.attempt == counted);
            let next = of_run().find(|it| it.attempt == counted + 1);
            let both = counts.zip(next);
            both.is_some_and(|(last, next)| excuse::counted_beside(facts, plan, last, next))
        };
        let records = subject.added.iter().filter(|it| {
            let of_it = it.record.run_id.as_ref();
            !it.lost
                && !excuse::provisional(it)
                && of_it.is_some_and(|id| id.as_str() == last.run_id)
        });
        for added in records {
            let counted = added.record.attempts;
            let lags = added.record.outcome == Outcome::Interrupted
                && (excuse::attempt_under_way(facts, last)
                    || excuse::attempt_not_begun(facts, plan, last, counted)
                    || excuse::without_its_lease(facts, plan, last)
                    || beside(counted));
            let run: Vec<&Start> = of_run().copied().collect();
            let lags = lags || excuse::not_started(facts, &run, counted);
            if counted != last.attempt && !lags && !excuse::forgotten_attempt(facts, last) {
                let text = format!("the record counts {counted}: {}", shown(last));
                all.push(found(Rule::Attempts, last, text));
            }
        }
    }
}

/// The occurrences of a job run in order; what is run again goes before what is newer.
pub(super) fn order(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        let mut starts: Vec<&&Start> = subject
            .starts
            .iter()
            .filter(|it| it.fence.is_some())
            .collect();
        starts.sort_by_key(|start| start.begin);
        // A retry belongs to a run that began in order.
        let mut seen = BTreeSet::new();
        starts.retain(|start| seen.insert(start.run_id.as_str()));
        let mut newest: Option<&Start> = None;
        for start in starts {
            if let Some(before) = newest
                && start.at < before.at
                && facts.plan_between(subject, since(start)).is_some()
                && !excuse::forgotten_run(facts, before)
            {
                let text = format!("{} after {}", shown(start), shown(before));
                all.push(found(Rule::Order, start, text));
            }
            if newest.is_none_or(|before| before.at < start.at) {
                newest = Some(start);
            }
        }
    }
    all
}

/// From when an occurrence came due until it ran.
fn since(start: &Start) -> Span {
    Span {
        from: start.at.unwrap_or(start.begin),
        until: start.begin,
    }
}

/// How long it may take from a grant to the begin of the run, in milliseconds.
const GRANTED: i64 = 1_000;

pub(super) fn max_running(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for start in facts.trace.starts.iter().filter(|it| it.at.is_some()) {
        let mut lives = facts.trace.lives.iter().enumerate();
        let life = lives.rfind(|(_, it)| it.host == start.host && it.from <= start.begin);
        let Some((nr, life)) = life else { continue };
        // What was granted just before a reload may begin just after it.
        let lists = facts.trace.lists_of(nr);
        let in_force = lists.iter().enumerate().filter(|(n, (from, _))| {
            let until = lists.get(n + 1).map_or(i64::MAX, |(next, _)| *next);
            *from <= start.begin && start.begin - GRANTED < until
        });
        let limits = in_force.map(|(_, (_, list))| facts.plan.lists[*list].max_running);
        let limits: Option<Vec<usize>> = limits.collect();
        let Some(max) = limits.and_then(|limits| limits.into_iter().max()) else {
            continue;
        };
        let others = facts.trace.starts.iter().filter(|it| {
            it.host == start.host
                && it.at.is_some()
                && life.from <= it.begin
                && it.begin <= start.begin
                && it.end.is_none_or(|end| start.begin < end)
        });
        let count = others.count();
        if count > max {
            let text = format!("{count} at once, {max} allowed: {}", shown(start));
            all.push(found(Rule::MaxRunning, start, text));
        }
    }
    all
}

/// Nobody extends the lease of a run whose host is dead, and each lease ends after one TTL.
pub(super) fn progress(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    let dead = facts.trace.starts.iter().filter(|it| {
        matches!(it.ended, Some(Ended::WithMachine | Ended::WithDaemon)) && it.fence.is_some()
    });
    for start in dead {
        let Some(end) = start.end else { continue };
        let of_it = format!(":{}:", start.run_id);
        let by_it = |it: &&Held| {
            let token = it.token.as_ref();
            it.lock == start.lock && token.is_some_and(|token| token.contains(&of_it))
        };
        let until = excuse::on_its_way(facts, end);
        let ttl = facts.regimes_of(&start.job).map(|it| it.job.ttl).max();
        let ttl = ttl.unwrap_or_else(|| facts.plan.longest_ttl());
        let late = facts.trace.held.iter().filter(by_it).find(|held| {
            let for_long = held.until > held.at + ttl;
            (held.at > until || for_long) && !excuse::lost_data(facts, held.at)
        });
        if let Some(held) = late {
            let text = format!(
                "its lease was extended at {} until {}: {}",
                held.at,
                held.until,
                shown(start)
            );
            all.push(found(Rule::Progress, start, text));
        }
    }
    all
}

pub(super) fn own_lock(facts: &Facts<'_>) -> Vec<Violation> {
    let made = |(at, text): &(i64, String)| Violation {
        rule: Rule::OwnLock,
        at: *at,
        job: String::new(),
        text: text.clone(),
    };
    facts.trace.trespasses.iter().map(made).collect()
}
