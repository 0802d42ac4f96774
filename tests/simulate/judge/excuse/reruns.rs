//! Runs that are to be repeated, and why one is not, or late.

use cronlatch::config::{CatchUp, OnCrash, Scope};
use cronlatch::names::RunId;
use cronlatch::store::Outcome;
use cronlatch::store::protocol::REASON_NEWER_RUN;
use cronlatch::time::Timestamp;

use super::super::Facts;
use super::super::facts::Subject;
use super::locks::holder_of;
use super::{SPAWNS, UNDER_WAY};
use crate::plan::JobPlan;
use crate::trace::{Added, Hindered, Life, PutBack, Span, Start};

/// `RerunBeside`: so it is with a rerun that its host could not start for want of resources, or because
/// its daemon died with the grant in hand: a newer run may be granted before the rerun is returned or its
/// lease ends, and then the rerun is not the newest.
pub(in crate::judge) fn rerun_beside(
    facts: &Facts<'_>,
    plan: &JobPlan,
    subject: &Subject<'_>,
    at: i64,
) -> bool {
    let begun = |id: &RunId| subject.starts.iter().any(|it| it.run_id == id.as_str());
    let short = |then: i64| {
        let mut troubles = facts.trace.troubles.iter();
        troubles.any(|it| {
            it.how == Hindered::Short && Some(it.host) == subject.host && it.span.holds(then)
        })
    };
    let died = |then: i64| {
        let soon = Span {
            from: then,
            until: then + SPAWNS,
        };
        let mut lives = facts.trace.lives.iter();
        lives.any(|it| {
            it.killed
                && Some(it.host) == subject.host
                && it.until.is_some_and(|until| soon.holds(until))
        })
    };
    let mut records = subject.records_of(at);
    plan.scope == Scope::None
        && records.any(|it| {
            let granted = it.record.started_at.map(Timestamp::millis);
            let id = it.record.run_id.as_ref();
            it.record.reason.as_deref() == Some(REASON_NEWER_RUN)
                && id.is_some_and(|id| !begun(id))
                && granted.is_some_and(|then| short(then) || died(then))
        })
}

/// `RerunNotBegun`: a rerun that was granted to a host which died before it could begin is one of those
/// that are allowed. Returns how many the records name.
pub(in crate::judge) fn reruns_not_begun(subject: &Subject<'_>, at: i64) -> usize {
    not_begun(subject, at).count()
}

fn not_begun<'a>(subject: &'a Subject<'_>, at: i64) -> impl Iterator<Item = &'a &'a Added> {
    subject.records_of(at).filter(|it| {
        let id = it.record.run_id.as_ref();
        let begun = |id: &RunId| subject.starts.iter().any(|it| it.run_id == id.as_str());
        it.record.outcome == Outcome::Interrupted && id.is_some_and(|id| !begun(id))
    })
}

/// A first run that never began is run again too, and its rerun has its own window. Returns until when.
pub(in crate::judge) fn rerun_of_not_begun(
    facts: &Facts<'_>,
    plan: &JobPlan,
    subject: &Subject<'_>,
    at: i64,
) -> Option<i64> {
    let lease_end = |it: &&Added| {
        let id = it.record.run_id.as_ref()?;
        facts.lease_end_of(&it.lock, id.as_str())
    };
    let is_rerun = matches!(plan.on_crash, OnCrash::Rerun { .. });
    let ends = not_begun(subject, at).filter(|_| is_rerun);
    let last = ends.filter_map(lease_end).max()?;
    Some(last + rerun_window(plan))
}

/// `WaitsInVain`: a claim that the store executes after its host has died is granted to nobody. If the job is run
/// again, the occurrence waits for a rerun, which has its own window. Returns until when.
pub(in crate::judge) fn rerun_waits(
    facts: &Facts<'_>,
    plan: &JobPlan,
    subject: &Subject<'_>,
    at: i64,
) -> Option<i64> {
    if !matches!(plan.on_crash, OnCrash::Rerun { .. }) {
        return None;
    }
    let begun = |id: &str| subject.starts.iter().any(|it| it.run_id == id);
    let mut waits: Vec<&PutBack> = facts.trace.put_back.iter().collect();
    waits.retain(|it| it.job == subject.name && it.due == at && !begun(&it.run_id));
    let lease_end = |it: &&PutBack| {
        let of_it = format!(":{}:", it.run_id);
        let is_its = |token: &String| token.contains(&of_it);
        let held = facts.trace.held.iter();
        let held = held.filter(|it| it.token.as_ref().is_some_and(is_its));
        held.map(|it| it.until).max()
    };
    let last = waits.iter().filter_map(lease_end).max()?;
    Some(last + rerun_window(plan))
}

/// As [`tries_used_up`], by an attempt that never began: it was counted just before it was to start, or is that
/// of a rerun that was granted.
pub(in crate::judge) fn last_try_not_begun(plan: &JobPlan, subject: &Subject<'_>, at: i64) -> bool {
    let Some((tries, _)) = plan.retry else {
        return false;
    };
    let begun = |it: &Added| {
        let id = it.record.run_id.as_ref();
        let mut runs = subject.starts.iter();
        runs.any(|run| {
            id.is_some_and(|id| id.as_str() == run.run_id) && run.attempt >= it.record.attempts
        })
    };
    let mut of_runs = subject
        .records_of(at)
        .filter(|it| it.record.run_id.is_some());
    of_runs.any(|it| {
        it.record.outcome == Outcome::Interrupted && it.record.attempts >= tries && !begun(it)
    })
}

/// `TriesUsedUp`: a run that had all attempts which `retry` allows is not run again.
pub(in crate::judge) fn tries_used_up(plan: &JobPlan, last: &Start) -> bool {
    plan.retry
        .is_some_and(|(attempts, _)| last.attempt >= attempts)
}

/// `RerunTooLate`: a rerun starts within the start deadline or the catch-up window, whichever is
/// longer, counted from the end of the lease.
pub(in crate::judge) fn rerun_too_late(plan: &JobPlan, lease_end: i64, able_from: i64) -> bool {
    lease_end + rerun_window(plan) < able_from
}

pub(in crate::judge) fn rerun_window(plan: &JobPlan) -> i64 {
    match plan.catch_up {
        CatchUp::None => plan.start_deadline,
        CatchUp::Latest | CatchUp::All => plan.start_deadline.max(plan.catch_up_window),
    }
}

/// `NoticedLate`: under a lock that another job has held since, the end of the crashed run's lease is no
/// longer known, and the window of a rerun counts from when a host noticed the crash. Returns from when.
pub(in crate::judge) fn noticed_late(
    facts: &Facts<'_>,
    crashed: &Start,
    (rerun, granted): (&Start, i64),
) -> Option<i64> {
    let lease_end = facts.lease_end(crashed)?;
    let mut put_back = facts.trace.put_back.iter();
    let noticed = put_back.find(|it| it.run_id == crashed.run_id);
    let noticed = noticed.map_or(granted, |it| it.at);
    let own = [crashed, rerun].map(|it| format!(":{}:", it.run_id));
    let mut held = facts.trace.held.iter().filter(|it| it.lock == crashed.lock);
    let taken = held.any(|it| {
        let is_own = |token: &String| own.iter().any(|of| token.contains(of));
        let other = it.token.as_ref().is_some_and(|token| !is_own(token));
        // Within a millisecond either may have come first.
        other && lease_end <= it.at && it.at <= noticed
    });
    taken.then_some(noticed)
}

/// `GivenBack`: a rerun that was granted has the record of the run that it repeats written, and its host may
/// return it without having started it: the host lacked resources, drained or died, or did not get the
/// reply.
pub(in crate::judge) fn given_back(facts: &Facts<'_>, crashed: &Start) -> bool {
    let mut held = facts.trace.held.iter().filter(|it| it.lock == crashed.lock);
    held.any(|it| {
        let token = it.token.as_deref().unwrap_or_default();
        let (host, run_id) = holder_of(facts, token);
        let begun = |it: &Start| it.run_id == run_id;
        let unbegun = it.at > crashed.begin && !facts.trace.starts.iter().any(begun);
        unbegun && host.is_some_and(|host| gives_back(facts, host, it.at))
    })
}

/// Whether a host was about to return what it was granted then.
fn gives_back(facts: &Facts<'_>, host: usize, granted: i64) -> bool {
    let around = Span {
        from: granted - UNDER_WAY,
        until: granted + UNDER_WAY,
    };
    let mut lives = facts.trace.lives.iter().filter(|it| it.host == host);
    let ends = |it: &Life| {
        it.until
            .into_iter()
            .chain(it.drains)
            .any(|at| around.holds(at))
    };
    let mut troubles = facts.trace.troubles.iter().filter(|it| it.host == host);
    lives.any(ends)
        || troubles.any(|it| it.span.meets(around))
        || facts.trace.outages.iter().any(|it| it.meets(around))
}

/// `ToBeRepeated`: a run that is to be repeated has its record when the rerun starts, or when it is
/// too late for one, also if that counts from when a host noticed the crash ([`noticed_late`]). Returns
/// until when.
pub(in crate::judge) fn to_be_repeated(
    facts: &Facts<'_>,
    plan: &JobPlan,
    run: &Start,
) -> Option<i64> {
    let is_rerun = matches!(plan.on_crash, OnCrash::Rerun { .. });
    if !is_rerun || run.at.is_none() || tries_used_up(plan, run) {
        return None;
    }
    let lease_end = facts.lease_end(run)?;
    let from = noticed_late(facts, run, (run, lease_end)).unwrap_or(lease_end);
    Some(from.max(lease_end) + rerun_window(plan))
}

/// `LostCount`: a store that lost its data has forgotten how often a run was repeated since, and
/// repeats it again. Returns how many of the runs so far it may have forgotten.
pub(in crate::judge) fn lost_count(facts: &Facts<'_>, before: &[&Start]) -> usize {
    let lost = |run: &&&Start| facts.trace.losses.iter().any(|it| it.holds(run.begin));
    before.iter().filter(lost).count()
}
