//! The attempts of a run: which of them count, and which record stands for them.

use cronlatch::config::{OnLost, Scope};
use cronlatch::names::RunId;
use cronlatch::time::Timestamp;

use super::super::Facts;
use super::reruns::tries_used_up;
use super::{MOVES, SPAWNS, UNDER_WAY};
use crate::plan::JobPlan;
use crate::trace::{Added, Ended, Hindered, Life, Span, Start};

pub(super) fn life_of<'a>(facts: &'a Facts<'_>, host: usize, then: i64) -> Option<&'a Life> {
    let mut lives = facts.trace.lives.iter();
    lives.rfind(|it| it.host == host && it.from <= then)
}

pub(super) fn first_attempt<'a>(facts: &'a Facts<'_>, run: &'a Start) -> &'a Start {
    let mut starts = facts.trace.starts.iter();
    starts.find(|it| it.run_id == run.run_id).unwrap_or(run)
}

/// `AttemptUnderWay`: the host died just after it started the attempt, or could not tell the store.
pub(in crate::judge) fn attempt_under_way(facts: &Facts<'_>, last: &Start) -> bool {
    let end = last.end.unwrap_or(facts.end);
    let around = Span {
        from: last.begin - UNDER_WAY,
        until: end + 1,
    };
    let troubled = |it: &crate::trace::Trouble| it.host == last.host && it.span.meets(around);
    end - last.begin < UNDER_WAY
        || facts.trace.troubles.iter().any(troubled)
        || facts.trace.outages.iter().any(|it| it.meets(around))
}

/// `AttemptNotBegun`: an attempt is counted before it is started, and the host died in between; `last`
/// is the attempt before it. A store that stood still as the attempt was to be counted counts it when it goes on,
/// also if the host has given the run up meanwhile, and died before it could say so. A host that stood still
/// counts it when it goes on, too, and may die within two seconds of that.
pub(in crate::judge) fn attempt_not_begun(
    facts: &Facts<'_>,
    plan: &JobPlan,
    last: &Start,
    counted: u32,
) -> bool {
    let delay = plan.retry.map_or(0, |(_, delay)| delay * 4);
    let end = last.end.unwrap_or(facts.end);
    let counting = Span {
        from: end,
        until: end + delay + UNDER_WAY,
    };
    let away = facts.trace.outages.iter().filter(|it| it.meets(counting));
    let stood_still = facts.trace.troubles.iter().filter(|it| {
        let stands_still = matches!(it.how, Hindered::Stopped | Hindered::Suspended);
        stands_still && it.host == last.host && it.span.meets(counting)
    });
    let goes_on = stood_still.map(|it| it.span.until + UNDER_WAY);
    let back = away.map(|it| it.until).chain(goes_on).max();
    let back = back.unwrap_or(counting.until);
    let counting = Span {
        until: counting.until.max(back),
        ..counting
    };
    let mut lives = facts.trace.lives.iter();
    let died_with = matches!(last.ended, Some(Ended::WithMachine | Ended::WithDaemon));
    counted == last.attempt + 1
        && !died_with
        && !tries_used_up(plan, last)
        && lives.any(|it| {
            let dies = it.until.is_some_and(|until| counting.holds(until));
            it.host == last.host && it.killed && dies
        })
}

/// `Beside`: of the runs of a job without a lock that overlap the ledger keeps the newest alone; the
/// others have a provisional record and are not run again. A run whose host died counts as going on
/// until its lease ends.
pub(in crate::judge) fn beside(facts: &Facts<'_>, plan: &JobPlan, run: &Start) -> bool {
    let died = matches!(run.ended, Some(Ended::WithMachine | Ended::WithDaemon));
    let lease_end = facts.lease_end(run).filter(|_| died);
    let end = run.end.unwrap_or(facts.end);
    let end = end.max(lease_end.unwrap_or(end));
    let first = first_attempt(facts, run);
    let begin = first.begin;
    let newer = |it: &Start| {
        let of_host = it.job == run.job && it.host == run.host && it.run_id != run.run_id;
        // Two may begin within a millisecond: then the fence says which is newer.
        let later = (begin, first.fence) < (it.begin, it.fence);
        of_host && later && it.begin <= end + SPAWNS
    };
    // One that was granted to a host that died before it could begin is on record alone.
    let not_begun = |it: &Added| {
        let granted = it.record.started_at.map(Timestamp::millis);
        let of_host = it.lock == run.lock && it.record.job.as_str() == run.job;
        let id = it.record.run_id.as_ref();
        let begun = |id: &RunId| facts.trace.starts.iter().any(|it| it.run_id == id.as_str());
        of_host
            && id.is_some_and(|id| !begun(id))
            && granted.is_some_and(|at| begin < at && at <= end + SPAWNS)
    };
    plan.scope == Scope::None
        && (facts.trace.starts.iter().any(newer) || facts.trace.added.iter().any(not_begun))
}

/// `WithoutItsLease`: a run that goes on without its lease (`on_lost: continue`) is over for the
/// store, which counts no attempt that it makes from then on.
pub(in crate::judge) fn without_its_lease(facts: &Facts<'_>, plan: &JobPlan, run: &Start) -> bool {
    let lease_end = facts.lease_end(run);
    plan.on_lost == OnLost::Continue && lease_end.is_some_and(|end| end <= run.begin)
}

/// `NotStarted`: an attempt that a host cannot start for want of resources has a number, and is not
/// counted as one that was made.
pub(in crate::judge) fn not_started(facts: &Facts<'_>, run: &[&Start], counted: u32) -> bool {
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return false;
    };
    let between = Span {
        from: first.begin,
        until: last.begin,
    };
    let short = |it: &crate::trace::Trouble| {
        it.how == Hindered::Short && it.host == first.host && it.span.meets(between)
    };
    let made = u32::try_from(run.len()).unwrap_or(0) + first.attempt - 1;
    counted == made && facts.trace.troubles.iter().any(short)
}

/// `CountedBeside`: the provisional record of such a run counts the attempts until the newer run was
/// granted, and stays if the host dies before the run ends; `last` is the last attempt that it counts,
/// `next` the first that it lacks.
pub(in crate::judge) fn counted_beside(
    facts: &Facts<'_>,
    plan: &JobPlan,
    last: &Start,
    next: &Start,
) -> bool {
    let mut lives = facts.trace.lives.iter();
    let dies = lives.any(|life| {
        life.host == next.host && life.killed && life.until.is_some_and(|it| it >= next.begin)
    });
    // A run that goes on as the simulation ends has not been reported, either.
    let mut of_run = facts.trace.starts.iter();
    let goes_on = of_run.any(|it| {
        let end = it.end.unwrap_or(facts.end);
        it.run_id == next.run_id && facts.end < end + MOVES
    });
    // The grant of the newer run is why the attempt was not counted.
    let granted = Span {
        from: last.begin - UNDER_WAY,
        until: next.begin + UNDER_WAY,
    };
    let newer = |it: &Start| {
        let of_host = it.job == next.job && it.host == next.host && it.run_id != next.run_id;
        of_host && granted.holds(it.begin)
    };
    plan.scope == Scope::None && (dies || goes_on) && facts.trace.starts.iter().any(newer)
}

/// `DiedUnreported`: the host died during the run, just after that had ended, or while it waited for its next
/// attempt. Then it counts as a crash, which others notice when the lease is over.
pub(in crate::judge) fn died_unreported(facts: &Facts<'_>, plan: &JobPlan, run: &Start) -> bool {
    let end = run.end.unwrap_or(facts.end);
    let waits = plan.retry.map_or(0, |(_, delay)| delay * 4);
    let unreported = Span {
        from: run.begin,
        until: end + waits + UNDER_WAY,
    };
    let mut lives = facts.trace.lives.iter().filter(|it| it.host == run.host);
    lives.any(|it| it.killed && it.until.is_some_and(|until| unreported.holds(until)))
}

/// `Provisional`: a run is called interrupted once its lease is over, or unknown after a loss of
/// data, and its host may replace that with the result. It is a verdict in time, and not a second
/// one.
pub(in crate::judge) fn provisional(added: &Added) -> bool {
    added.replaced
}

/// `ForgottenAttempt`: a store that lost its data has forgotten the attempts that were made since.
pub(in crate::judge) fn forgotten_attempt(facts: &Facts<'_>, last: &Start) -> bool {
    facts.trace.losses.iter().any(|it| it.holds(last.begin))
}
