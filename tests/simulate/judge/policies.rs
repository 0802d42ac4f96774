//! What each policy means, by its documentation.

use cronlatch::config::{CatchUp, OnOverlap, OnStoreDown, Scope};
use cronlatch::store::protocol::{REASON_OVERLAP, REASON_TOO_LATE};
use cronlatch::store::{Kind, Outcome};

use super::facts::{Subject, span_of};
use super::{Facts, Rule, Violation, excuse, pauses};
use crate::plan::{JobPlan, StoreKind};
use crate::store::shown;
use crate::trace::{Added, Span};

/// For how long all lists must have agreed about a job before it is judged by what they say.
pub(super) const SETTLED: i64 = 10_000;

pub(super) fn found(rule: Rule, at: i64, subject: &Subject<'_>, text: String) -> Violation {
    Violation {
        rule,
        at,
        job: subject.name.to_owned(),
        text,
    }
}

/// A skip or a miss names a reason that holds.
pub(super) fn reasons(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        // What another decision has overtaken is not shown.
        let shown_still = |it: &&&Added| !it.lost && !it.replaced;
        for added in subject.added.iter().filter(shown_still) {
            let at = span_of(&added.record).map_or(added.at, |span| span.from);
            let since = Span {
                from: at.min(added.at) - SETTLED,
                until: added.at.max(at) + 1,
            };
            let Some(plan) = facts.plan_between(subject, since) else {
                continue;
            };
            if let Some(why) = wrong_reason(facts, subject, plan, added) {
                let text = format!("{why}: {}", shown(&added.record));
                all.push(found(Rule::Reason, added.at, subject, text));
            }
        }
    }
    all
}

fn wrong_reason(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    plan: &JobPlan,
    added: &Added,
) -> Option<&'static str> {
    let record = &added.record;
    let at = span_of(record)?.until - 1;
    let due = at + subject.delay;
    if record.outcome == Outcome::Missed && record.reason.as_deref() == Some(REASON_TOO_LATE) {
        let deadline = due + plan.start_deadline;
        let early = added.at + excuse::OWN_CLOCK < deadline;
        return early.then_some("its deadline had not passed");
    }
    if record.outcome != Outcome::Skipped {
        return None;
    }
    let reason = record.reason.as_deref().unwrap_or("");
    if pauses::is_skipped(record) {
        let unfounded = pauses::is_unfounded(facts, subject, added);
        return unfounded.then_some("the job was not paused");
    }
    if reason == REASON_OVERLAP {
        let lock = &added.lock;
        // Within a millisecond a lock can be held and free. Several nodes record it a little after
        // they were asked.
        let asked = match facts.plan.store {
            StoreKind::Quorum(_) => 20 + excuse::asked_before(facts, added.at),
            StoreKind::Redis | StoreKind::Sqlite => 1,
        };
        let then = Span {
            from: added.at - asked,
            until: added.at + 2,
        };
        if plan.scope == Scope::None {
            return Some("the job takes no lock");
        }
        if plan.on_overlap != OnOverlap::Skip {
            return Some("the job does not skip");
        }
        let free = facts.free(lock, then) == [then];
        let free = free
            && !excuse::being_taken(facts, lock, added.at)
            && !excuse::renewed_unheard(facts, lock, added.at);
        return free.then_some("nobody held the lock");
    }
    if reason.contains("superseded") {
        // What is caught up waits for its lock, and `latest` means the newest.
        let caught_up = record.kind == Kind::CatchUp && plan.catch_up == CatchUp::Latest;
        if plan.on_overlap != OnOverlap::Wait && !caught_up {
            return Some("the job does not wait");
        }
        let newer = Span {
            from: at + 1,
            until: added.at + 1_001,
        };
        let none = subject.occurrences(newer).is_empty()
            && excuse::inherited(facts, subject, newer).is_empty();
        return none.then_some("nothing is newer");
    }
    if reason.contains("queue was full") {
        let OnOverlap::Queue { limit } = plan.on_overlap else {
            return Some("the job does not queue");
        };
        // Decided when it came due, or when it was recorded.
        let was_full = [due, due + 20, due + 100, added.at].into_iter();
        let mut was_full = was_full.map(|then| waiting(facts, subject, (at, added), then) >= limit);
        return (!was_full.any(|full| full)).then_some("the queue was not full");
    }
    if reason.contains("on_store_down: skip") {
        return (plan.on_store_down != OnStoreDown::Skip).then_some("the job does not skip");
    }
    if reason.contains("run before went on") {
        return (plan.on_store_down != OnStoreDown::Run).then_some("the job does not run alone");
    }
    None
}

/// How many older occurrences of the job were due, not started and not decided by then.
fn waiting(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    (at, full): (i64, &Added),
    then: i64,
) -> usize {
    let before = Span {
        from: facts.plan.start,
        until: at,
    };
    let own = subject.occurrences(before);
    let mut inherited = excuse::inherited(facts, subject, before);
    inherited.retain(|due| !own.contains(due) && !was_decided_there(facts, subject, *due, then));
    let all = own.iter().chain(&inherited);
    let knows = |it: &Added| !excuse::reported_elsewhere(facts, subject, it, full);
    all.filter(|due| !is_decided(subject, **due, then, knows))
        .count()
}

/// Whether what a ledger might have inherited had been decided by then where it came due: by the fleet, or by
/// each host that owed it.
fn was_decided_there(facts: &Facts<'_>, subject: &Subject<'_>, due: i64, then: i64) -> bool {
    let passes_on = |it: &&Subject<'_>| it.host.is_none() || subject.host.is_none();
    let others = facts.subjects.iter().filter(|it| it.name == subject.name);
    let others = others
        .filter(|it| it.host != subject.host)
        .filter(passes_on);
    let owed: Vec<_> = others.filter(|it| it.counts_by(due, 0)).collect();
    !owed.is_empty() && owed.iter().all(|it| is_decided(it, due, then, |_| true))
}

/// Whether a run of the occurrence had been granted by then, or its verdict was on record that the ledger knows.
fn is_decided(subject: &Subject<'_>, due: i64, then: i64, knows: impl Fn(&Added) -> bool) -> bool {
    // A run without the store is undecided in the ledger until its host reports it.
    let mut granted = subject.starts_of(due).filter(|it| it.fence.is_some());
    // Nor is one decided whose record another decision overtook. What a host ran before it was due
    // by the store's clock is decided when it is due.
    let mut records = subject.records_of(due).filter(|it| !it.replaced);
    granted.any(|it| it.begin < then)
        || records.any(|it| it.at < then && due <= it.at + excuse::AHEAD && knows(it))
}

/// After a time in which nobody could act: `none` runs nothing that came due while no host was up, and of
/// what came due while the store was away what is in time; `latest` the newest alone, `all` each of them.
pub(super) fn catch_up(facts: &Facts<'_>) -> Vec<Violation> {
    let mut all = Vec::new();
    for subject in &facts.subjects {
        let dark = dark(facts, subject);
        for (n, span) in dark.iter().copied().enumerate() {
            let next = dark.get(n + 1).map(|next| next.from);
            let dark = span;
            let around = Span {
                from: dark.from - SETTLED,
                until: dark.until + SETTLED,
            };
            let Some(plan) = facts.plan_between(subject, around) else {
                continue;
            };
            if plan.scope == Scope::None {
                continue;
            }
            all.extend(caught_up(facts, subject, plan, (dark, next)));
        }
    }
    all
}

/// The spans in which no host that had the job could act and claim.
fn dark(facts: &Facts<'_>, subject: &Subject<'_>) -> Vec<Span> {
    let mut able: Vec<Span> = Vec::new();
    for regime in &subject.regimes {
        for span in &facts.trusted[regime.host] {
            let from = span.from.max(regime.span.from);
            let until = span.until.min(regime.span.until);
            if from < until {
                able.push(Span { from, until });
            }
        }
    }
    able.sort_by_key(|span| span.from);
    let mut dark = Vec::new();
    let mut since: Option<i64> = None;
    for span in able {
        if let Some(from) = since.filter(|from| *from < span.from) {
            let until = span.from;
            dark.push(Span { from, until });
        }
        since = Some(since.map_or(span.until, |since| since.max(span.until)));
    }
    dark
}

fn caught_up(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    plan: &JobPlan,
    (dark, next): (Span, Option<i64>),
) -> Vec<Violation> {
    // What was due just before may have been claimed, what is due just after is not late.
    let inside = Span {
        from: dark.from + excuse::not_noticed(facts, subject, dark) - subject.delay,
        until: dark.until - subject.delay,
    };
    let mut dues = subject.occurrences(inside);
    let first = dues.first().copied();
    let alone = dues.len() == 1;
    dues.retain(|due| !excuse::on_store_down(facts, subject, plan, *due));
    dues.retain(|due| !excuse::noticed_as_it_awoke(facts, subject, *due));
    if dues.is_empty() || excuse::lost_data(facts, dark.until) {
        return Vec::new();
    }
    let began = |due: i64| {
        let granted = subject.starts_of(due).filter(|it| it.fence.is_some());
        granted.map(|it| it.begin).min()
    };
    let in_doubt = excuse::in_doubt(facts, dark);
    let mut all = Vec::new();
    for due in &dues {
        let Some(begin) = began(*due) else { continue };
        let again = excuse::rerun_of_not_begun(facts, plan, subject, *due);
        let deadline = due + subject.delay + plan.start_deadline;
        let wrong = match plan.catch_up {
            CatchUp::None if nobody_was_up(facts, subject, due + subject.delay) => {
                let at_its_time = excuse::at_its_time(due + subject.delay, dark, false);
                let stood_still = excuse::stood_still(facts, subject, (*due, &dues), dark)
                    && begin <= deadline + 50;
                (again.is_none() && !at_its_time && !stood_still)
                    .then_some("catch_up: none, and no host was up when it came due")
            }
            CatchUp::None => {
                let until = again.map_or(deadline, |again| again.max(deadline));
                let behind = excuse::node_behind_at(facts, dark, begin);
                (begin > until + 50 + behind).then_some("catch_up: none, and too late")
            }
            CatchUp::Latest => {
                let newer = dues.iter().filter(|newer| *newer > due);
                let mut newer = newer.map(|newer| newer + subject.delay);
                // By the host's own clock, or a node's, what is newer may not have been due yet.
                let clock = excuse::OWN_CLOCK.max(excuse::node_behind(facts, dark));
                let passed_over = newer.any(|newer| newer + clock < dark.until);
                let waited = excuse::waited_for_place(facts, subject, *due);
                (passed_over && !waited && !(Some(*due) == first && in_doubt))
                    .then_some("catch_up: latest, and not the newest")
            }
            CatchUp::All => None,
        };
        let until = due + subject.delay + plan.catch_up_window.max(plan.start_deadline);
        let until = again.map_or(until, |again| again.max(until));
        let wrong = wrong.or((begin > until + 50).then_some("older than the window"));
        if let Some(wrong) = wrong {
            let text = format!("{wrong}: {due} began at {begin}; dark from {dark:?}");
            all.push(found(Rule::CatchUp, begin, subject, text));
        }
    }
    let wanted = match plan.catch_up {
        CatchUp::None => &[],
        CatchUp::Latest => &dues[dues.len() - 1..],
        // What is in doubt was claimed at its time.
        CatchUp::All => &dues[usize::from(in_doubt && first == Some(dues[0]))..],
    };
    all.extend(not_caught_up(
        facts,
        subject,
        plan,
        (dark, wanted, alone),
        next,
    ));
    all
}

/// Whether no host that had the job was up then, or within the second in which it would have noticed what
/// came due: its daemon did not run, or was stopped, or its machine was suspended.
fn nobody_was_up(facts: &Facts<'_>, subject: &Subject<'_>, due: i64) -> bool {
    let notices = excuse::notices(due);
    let mut regimes = subject.regimes.iter().filter(|it| it.span.meets(notices));
    !regimes.any(|it| facts.up[it.host].iter().any(|up| up.meets(notices)))
}

/// What policy wants caught up, and was recorded as missed or skipped before it was too old.
fn not_caught_up(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    plan: &JobPlan,
    (dark, wanted, alone): (Span, &[i64], bool),
    next_dark: Option<i64>,
) -> Vec<Violation> {
    let mut all = Vec::new();
    let back = excuse::heard_from(facts, subject, dark);
    for due in wanted {
        let until = due + subject.delay + plan.catch_up_window;
        // The next one may have been due before anybody was back.
        let next = Span {
            from: due + 1,
            until: back + excuse::awaits_reports(facts, dark).max(excuse::CATCHES_UP),
        };
        let overtaken = plan.catch_up == CatchUp::Latest && !subject.occurrences(next).is_empty();
        let at_its_time = excuse::at_its_time(due + subject.delay, dark, alone);
        if until < back + 6_000 || overtaken || at_its_time {
            continue;
        }
        let waited = excuse::waited_for_place(facts, subject, *due);
        let given_up = subject.records_of(*due).find(|it| {
            it.record.run_id.is_none()
                && !(waited && it.record.outcome == Outcome::Skipped)
                && !pauses::is_skipped(&it.record)
                && matches!(it.record.outcome, Outcome::Missed | Outcome::Skipped)
                && it.at + excuse::OWN_CLOCK < until
                && !excuse::dark_again(dark, next_dark, it)
                && !excuse::superseded(facts, subject, it, dark)
                && !(plan.catch_up == CatchUp::Latest
                    && excuse::still_waiting(facts, subject, (*due, it), dark))
        });
        if let Some(added) = given_up {
            let text = format!("{due} was not caught up: {}", shown(&added.record));
            all.push(found(Rule::CatchUp, added.at, subject, text));
        }
    }
    all
}

/// A job without a lock is never refused or skipped for one.
pub(super) fn takes_no_lock(facts: &Facts<'_>) -> Vec<Violation> {
    let made = |(at, text): &(i64, String)| Violation {
        rule: Rule::TakesNoLock,
        at: *at,
        job: String::new(),
        text: text.clone(),
    };
    facts.trace.refused.iter().map(made).collect()
}
