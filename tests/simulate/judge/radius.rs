//! G8: what befalls one job or host affects that one alone.

use super::facts::Subject;
use super::policies::{SETTLED, found};
use super::verdicts::had_time_to_tell;
use super::{Facts, Rule, Violation, excuse};
use crate::plan::StoreKind;
use crate::trace::Span;

/// For how long a host must have been left alone when an occurrence comes due.
const BEFORE: i64 = 2_000;

/// How long a healthy host takes at most to decide an occurrence whose lock is free: `spread`, what hosts
/// that returned it need, and on several nodes the votes.
fn decides(store: StoreKind) -> i64 {
    match store {
        StoreKind::Redis | StoreKind::Sqlite => 3_000,
        StoreKind::Quorum(_) => 5_000,
    }
}

/// While a host that has the job is left alone and has a place, and the job's lock is free, each occurrence
/// starts or gets its verdict within a bound, whatever befalls other hosts (wrong clocks, missing resources,
/// full or dead hosts) and other jobs (locks that cannot be used).
pub(super) fn held_up(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    let whole = Span {
        from: facts.plan.start,
        until: facts.end,
    };
    for subject in &facts.subjects {
        for at in subject.occurrences(whole) {
            if let Some((host, by)) = undecided(facts, subject, at) {
                let text = format!("{at} is undecided at {by}; host-{host} could have started it");
                all.push(found(Rule::Radius, at, subject, text));
            }
        }
    }
    all
}

/// The first host that had enough time for an occurrence, and until when, if nobody decided it by then.
fn undecided(facts: &Facts<'_>, subject: &Subject<'_>, at: i64) -> Option<(usize, i64)> {
    let due = at + subject.delay;
    let plan = subject.plan_at(at);
    let while_due = Span {
        from: due,
        until: facts.end.min(due + plan.start_deadline),
    };
    let quiet_since = |host: usize, until: i64| {
        let around = Span {
            from: due - BEFORE,
            until,
        };
        let mut quiet = facts.quiet[host].iter();
        quiet.any(|it| it.from <= around.from && around.until <= it.until)
    };
    // Nobody owes it if every host that had it has left the job before another one told the store of it.
    let mut owes = subject.listed_since(at);
    let told_late = subject.regimes.iter().filter(|it| it.is_due(at));
    owes.extend(told_late.filter(|it| had_time_to_tell(facts, subject, it, at)));
    let chances = excuse::chances(facts, subject, while_due);
    let long = chances.into_iter().filter_map(|(host, chance)| {
        let mut owes = owes.iter().filter(|it| it.host == host);
        let regime = owes.find(|it| it.span.meets(chance))?;
        let from = chance.from.max(regime.acts_on(at));
        let by = from + decides(facts.plan.store);
        (by <= chance.until && quiet_since(host, by)).then_some((host, by))
    });
    let (host, by) = long.min_by_key(|(_, by)| *by)?;
    let started = subject.starts_of(at).any(|it| it.begin <= by);
    let is_of_it = |span: Span| span.holds(at);
    let mut added = subject.added.iter().filter(|it| it.at <= by);
    let recorded = added.any(|it| super::facts::span_of(&it.record).is_some_and(is_of_it));
    let agreed = Span {
        from: due - SETTLED,
        until: by,
    };
    (!started
        && !recorded
        && facts.plan_between(subject, agreed).is_some()
        && !excuse::lost_meanwhile(facts, agreed))
    .then_some((host, by))
}
