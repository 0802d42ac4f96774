//! What is forgiven, and when: each excuse has a name, and a test in [`super::tests`].

use std::collections::BTreeMap;

use cronlatch::config::{CatchUp, OnCrash, OnLost, OnStoreDown, Scope};
use cronlatch::names::RunId;
use cronlatch::store::protocol::{
    FINISHED_KEPT, REASON_NEWER_RUN, REASON_OVERLAP, REASON_QUEUE_FULL, REASON_SUPERSEDED,
    is_provisional,
};
use cronlatch::store::{Kind, Outcome};
use cronlatch::time::Timestamp;

use super::facts::{RECOVERS, Regime, Subject, span_of, without};
use super::{Facts, pauses, verdicts};
use crate::plan::{Act, JobPlan, NodeAct, StoreKind, host_name};
use crate::trace::{Added, Ended, Foreign, Hindered, Life, Ordered, PutBack, Span, Start, Trouble};

/// A free lock that is seen for a shorter time is somebody else's before a host can claim it.
const FREE_FOR: i64 = 1_500;
/// A guard that wakes with its machine ends overdue jobs within so many milliseconds.
const KILLS_AFTER_WAKING: i64 = 50;
/// What a host notices within so many milliseconds is at its time.
pub(super) const PROMPT: i64 = 1_000;
/// Clocks that differ by less are used as they are.
const SAME_CLOCK: i64 = 100;
/// What a host notices later than that came due while it was not there.
const LATE: i64 = 30_000;
/// A start that is so fresh when its host dies may not be on record.
const UNDER_WAY: i64 = 2_000;
/// A process begins so many milliseconds after its grant at the latest.
const SPAWNS: i64 = 100;
/// Hosts that wait for a lock look at it again within so many milliseconds.
const LOOKS_AGAIN: i64 = 5_500;
/// How long after an outage or with a bad network a host may take to tell what its list has.
const TELLS: i64 = 3_000;
/// How long a host that died still counts as alive.
const COUNTS_AS_LIVE: i64 = 30_000;
/// The longest time that a request takes through a bad network.
const ON_ITS_WAY: i64 = 5_000;
/// A loss is noticed with the next request, and then the store recovers for a TTL.
const AS_IT_RECOVERS: i64 = 3_000;
/// Hosts announce themselves so often.
const ANNOUNCES: i64 = 10_000;
/// A host that withdrew a job compares its list with the store's so often, and announces itself then.
const TELLS_AGAIN: i64 = 60_000 + ANNOUNCES + PROMPT;
/// What a list says of a job's lock.
type Lock = (String, Scope);
/// The longest time that hosts which contend for one lock on several nodes back off.
const STEPS_ASIDE: i64 = 10_000;
/// A node that answers does so within so many milliseconds.
const NODE_ANSWERS: i64 = 300;
/// How long a node's vote for a host keeps other hosts out.
const VOTE: i64 = 1_500;
/// Hosts that stepped aside look again within so many milliseconds.
const STEPS_BACK: i64 = 300;
/// A node that failed is not waited for within so many milliseconds.
const NODE_FAILED: i64 = 5_000;
/// The longest time before its instant at which the store decides an occurrence.
pub(super) const AHEAD: i64 = 1_000;
/// Hosts that are back begin to catch up within so many milliseconds: they leave the newest to hosts whose
/// clocks are behind.
pub(super) const CATCHES_UP: i64 = 4_500;
/// The longest time that moving a ledger takes.
const MOVES: i64 = 4_000;

/// `JustAwake`: a suspended machine cannot end its jobs in time; it does so first of all when it
/// wakes, and the fencing token covers what they do until then.
pub(super) fn just_awake(facts: &Facts<'_>, run: &Start, other: &Start) -> bool {
    let end = run.end.unwrap_or(facts.end);
    facts.trace.troubles.iter().any(|trouble| {
        let awake = trouble.span.until + KILLS_AFTER_WAKING;
        trouble.how == Hindered::Suspended
            && trouble.host == run.host
            && (trouble.span.from..=awake).contains(&end)
            && trouble.span.from <= other.begin
    })
}

/// `AskedOut`: the job asked to run without the store (`on_store_down: run`), and its host could
/// not reach it then.
pub(super) fn asked_out(facts: &Facts<'_>, run: &Start) -> bool {
    if run.fence.is_some() {
        return false;
    }
    let around = Span {
        from: run.begin - 8_000,
        until: run.begin + 1,
    };
    let cut = |it: &crate::trace::Trouble| {
        // One that cannot start processes reaches the store.
        it.host == run.host && it.span.meets(around) && it.how != Hindered::Short
    };
    facts.trace.outages.iter().any(|it| it.meets(around))
        || facts.trace.troubles.iter().any(cut)
        || facts.trace.losses.iter().any(|it| it.meets(around))
}

/// `NotTold`: of a run without the store only its own host knows, until it has told the store (of several
/// nodes, a majority) how the run ended. Before that, others may skip or miss the occurrence, and so may a later daemon of the
/// host. What others have entered into the waiting list the store itself misses, on any host's claim.
/// Nor does the host know what the store made of the claim that was not answered before it ran alone.
pub(super) fn not_told(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    run: &Start,
    added: &Added,
) -> bool {
    let own = subject.added.iter().filter(|it| {
        let id = it.record.run_id.as_ref();
        id.is_some_and(|id| id.as_str() == run.run_id)
    });
    // A host whose list gives the job another lock reports under that lock, until the job has
    // moved. If the list changes back before the store has heard of that lock, the record stays there.
    let is_elsewhere = |it: &&&Added| {
        let mut regimes = facts.regimes_of(subject.name);
        let named = regimes.any(|regime| {
            let untold =
                regime.span.holds(run.begin) && it.at.min(regime.span.until) <= regime.told;
            let of_host = regime.host == run.host && regime.lock() == it.lock;
            of_host && (regime.span.holds(added.at) || untold)
        });
        it.lock != added.lock && named
    };
    let told = own.filter(|it| !is_elsewhere(it));
    let told = told.filter_map(|it| facts.known_at(it)).min();
    let mut lives = facts.trace.lives.iter().filter(|it| it.host == run.host);
    let life = lives.rfind(|it| it.from <= run.begin);
    let knew = life.is_some_and(|it| it.until.is_none_or(|until| added.at < until));
    let host = host_name(run.host);
    let by_it = added
        .record
        .host
        .as_ref()
        .is_some_and(|it| it.as_str() == host);
    let waited = match added.record.kind {
        Kind::Queue => true,
        Kind::CatchUp => caught_up_by_another(facts, subject, run, added.at),
        _ => false,
    };
    let knew = by_it && knew && !waited && !is_of_unanswered_claim(facts, run, added);
    run.fence.is_none() && told.is_none_or(|told| added.at <= told) && !knew
}

/// Of a run without the store that could not be started its host has a record as well, and nobody else knows of
/// it before that. Returns when it was to begin.
pub(super) fn never_began(facts: &Facts<'_>, run: &Added) -> Option<Start> {
    let record = &run.record;
    let mut hosts = 0..facts.plan.hosts.len();
    let host = hosts.find(|it| {
        record
            .host
            .as_ref()
            .is_some_and(|of| of.as_str() == host_name(*it))
    })?;
    let begin = record.started_at.or(record.finished_at)?.millis();
    let is_alone = record.attempts == 0 && record.fence.is_none();
    is_alone.then_some(Start {
        job: record.job.to_string(),
        lock: run.lock.clone(),
        host,
        run_id: record.run_id.as_ref()?.as_str().to_owned(),
        at: record.scheduled_at.map(Timestamp::millis),
        attempt: 0,
        fence: None,
        begin,
        end: None,
        ended: None,
    })
}

/// Whether another host was there that may have entered the run's occurrence into the waiting list as one
/// to be caught up.
fn caught_up_by_another(facts: &Facts<'_>, subject: &Subject<'_>, run: &Start, then: i64) -> bool {
    let due = run.at.unwrap_or(run.begin);
    let meanwhile = Span {
        from: due,
        until: then,
    };
    let others = subject.regimes.iter().filter(|it| it.host != run.host);
    others
        .filter(|it| it.has_due(due) && it.span.meets(meanwhile))
        .any(|it| facts.able[it.host].iter().any(|able| able.meets(meanwhile)))
}

/// Whether the record may be what the store made of the claim that a run without the store began with:
/// it found the lock held, the queue full or the job paused, and was executed before the run began, or late.
fn is_of_unanswered_claim(facts: &Facts<'_>, run: &Start, added: &Added) -> bool {
    let thaws = away_until(facts, run.begin).map(|until| until + SPAWNS);
    let claimed = Span {
        from: run.begin - UNDER_WAY,
        until: run.begin + 1,
    };
    let lossy =
        |it: &&Trouble| it.host == run.host && it.how == Hindered::Lossy && it.span.meets(claimed);
    let lossy = facts.trace.troubles.iter().filter(lossy);
    let arrives = lossy.map(|_| run.begin + ON_ITS_WAY);
    let executed_by = thaws.into_iter().chain(arrives).max().unwrap_or(run.begin);
    let reason = added.record.reason.as_deref();
    let is_of_claim = matches!(reason, Some(REASON_OVERLAP | REASON_QUEUE_FULL))
        || pauses::is_skipped(&added.record);
    is_of_claim && added.at <= executed_by
}

/// When the store was there again that was away then; outages may follow one another.
fn away_until(facts: &Facts<'_>, then: i64) -> Option<i64> {
    let mut until = None;
    while let Some(outage) = (facts.trace.outages.iter()).find(|it| it.holds(until.unwrap_or(then)))
    {
        until = Some(outage.until);
    }
    until
}

/// `NeverMeasured`: a daemon that was started while the store was away, on a machine that has not
/// reached it since it was started, has only its wall clock to go by. What it runs was due by that
/// clock since it was started.
pub(super) fn never_measured(facts: &Facts<'_>, run: &Start) -> bool {
    // Its retries are of the same run.
    let begin = first_attempt(facts, run).begin;
    run.fence.is_none()
        && run.at.is_some_and(|at| {
            let life = life_of(facts, run.host, begin);
            let knew_nothing = |it: &&Life| it.measured.is_none_or(|knew| begin < knew + SPAWNS);
            life.filter(knew_nothing)
                .is_some_and(|life| was_due_by_wall_clock(facts, life, begin, at))
        })
}

/// As [`never_measured`], for the record of such a run, also of one that could not be started.
pub(super) fn told_by_wall_clock(facts: &Facts<'_>, subject: &Subject<'_>, added: &Added) -> bool {
    let record = &added.record;
    let id = record.run_id.as_ref();
    let mut runs = subject.starts.iter();
    let run = runs.find(|it| id.is_some_and(|id| id.as_str() == it.run_id));
    run.map_or_else(
        || id.is_some() && record.attempts == 0 && was_begun_by_wall_clock(facts, added),
        |run| never_measured(facts, run),
    )
}

fn was_begun_by_wall_clock(facts: &Facts<'_>, added: &Added) -> bool {
    let by = |it: &&Life| {
        let host = added.record.host.as_ref();
        host.is_some_and(|host| host.as_str() == host_name(it.host)) && it.from <= added.at
    };
    let (Some(life), Some(at)) = (
        facts.trace.lives.iter().rfind(by),
        added.record.scheduled_at,
    ) else {
        return false;
    };
    let until = life.measured.map_or(added.at, |knew| knew + SPAWNS);
    was_due_by_wall_clock(facts, life, until.min(added.at), at.millis())
}

/// Whether an occurrence came due by a host's wall clock between the daemon's start and then. A clock
/// that is stepped meanwhile passes over all that lies between.
fn was_due_by_wall_clock(facts: &Facts<'_>, life: &Life, then: i64, at: i64) -> bool {
    let clocks = facts.trace.clocks.iter();
    let clocks = clocks.filter(|step| step.host == life.host && step.at <= then);
    let offsets = || clocks.clone().map(|step| step.ahead);
    let by_wall_clock = Span {
        from: life.from + offsets().min().unwrap_or(0) - OWN_CLOCK,
        until: then + offsets().max().unwrap_or(0) + 1,
    };
    by_wall_clock.holds(at)
}

fn life_of<'a>(facts: &'a Facts<'_>, host: usize, then: i64) -> Option<&'a Life> {
    let mut lives = facts.trace.lives.iter();
    lives.rfind(|it| it.host == host && it.from <= then)
}

fn first_attempt<'a>(facts: &'a Facts<'_>, run: &'a Start) -> &'a Start {
    let mut starts = facts.trace.starts.iter();
    starts.find(|it| it.run_id == run.run_id).unwrap_or(run)
}

/// `AttemptUnderWay`: the host died just after it started the attempt, or could not tell the store.
pub(super) fn attempt_under_way(facts: &Facts<'_>, last: &Start) -> bool {
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
/// also if the host has given the run up meanwhile, and died before it could say so.
pub(super) fn attempt_not_begun(
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
    let back = away.map(|it| it.until).max().unwrap_or(counting.until);
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
pub(super) fn beside(facts: &Facts<'_>, plan: &JobPlan, run: &Start) -> bool {
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

/// `RerunBeside`: so it is with a rerun that its host could not start for want of resources, or because
/// its daemon died with the grant in hand: a newer run may be granted before the rerun is returned or its
/// lease ends, and then the rerun is not the newest.
pub(super) fn rerun_beside(
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

/// `WithoutItsLease`: a run that goes on without its lease (`on_lost: continue`) is over for the
/// store, which counts no attempt that it makes from then on.
pub(super) fn without_its_lease(facts: &Facts<'_>, plan: &JobPlan, run: &Start) -> bool {
    let lease_end = facts.lease_end(run);
    plan.on_lost == OnLost::Continue && lease_end.is_some_and(|end| end <= run.begin)
}

/// `NotStarted`: an attempt that a host cannot start for want of resources has a number, and is not
/// counted as one that was made.
pub(super) fn not_started(facts: &Facts<'_>, run: &[&Start], counted: u32) -> bool {
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
pub(super) fn counted_beside(
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

/// `RerunNotBegun`: a rerun that was granted to a host which died before it could begin is one of those
/// that are allowed. Returns how many the records name.
pub(super) fn reruns_not_begun(subject: &Subject<'_>, at: i64) -> usize {
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
pub(super) fn rerun_of_not_begun(
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
pub(super) fn rerun_waits(
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
pub(super) fn last_try_not_begun(plan: &JobPlan, subject: &Subject<'_>, at: i64) -> bool {
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
pub(super) fn tries_used_up(plan: &JobPlan, last: &Start) -> bool {
    plan.retry
        .is_some_and(|(attempts, _)| last.attempt >= attempts)
}

/// `RerunTooLate`: a rerun starts within the start deadline or the catch-up window, whichever is
/// longer, counted from the end of the lease.
pub(super) fn rerun_too_late(plan: &JobPlan, lease_end: i64, able_from: i64) -> bool {
    lease_end + rerun_window(plan) < able_from
}

pub(super) fn rerun_window(plan: &JobPlan) -> i64 {
    match plan.catch_up {
        CatchUp::None => plan.start_deadline,
        CatchUp::Latest | CatchUp::All => plan.start_deadline.max(plan.catch_up_window),
    }
}

/// `NoticedLate`: under a lock that another job has held since, the end of the crashed run's lease is no
/// longer known, and the window of a rerun counts from when a host noticed the crash. Returns from when.
pub(super) fn noticed_late(
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
pub(super) fn given_back(facts: &Facts<'_>, crashed: &Start) -> bool {
    let mut held = facts.trace.held.iter().filter(|it| it.lock == crashed.lock);
    held.any(|it| {
        let token = it.token.as_deref().unwrap_or_default();
        let mut parts = token.split(':');
        let (host, run_id) = (parts.next().unwrap_or_default(), parts.nth(1));
        let begun = |it: &Start| Some(it.run_id.as_str()) == run_id;
        let hosts = 0..facts.plan.hosts.len();
        let host = hosts.into_iter().find(|it| host_name(*it) == host);
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

/// `LockBusy`: from the instant to the deadline others held the lock whenever a host could have
/// taken it, all but for moments; the lock that the host's list gave the job then. A host that was full
/// could not have ([`full_host`]).
pub(super) fn lock_busy(facts: &Facts<'_>, subject: &Subject<'_>, span: Span) -> bool {
    lock_busy_for(facts, subject, span, |_| true)
}

/// As [`lock_busy`], for a run whose window is over then: a place or a lock that is free only afterwards is of no
/// use to it.
pub(super) fn lock_busy_until(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    span: Span,
    over: i64,
) -> bool {
    let mut chances = chances(facts, subject, span).into_iter();
    !chances.any(|(_, chance)| is_long(chance, span) && chance.from < over)
}

/// As [`lock_busy`], whenever one of these hosts could have taken it.
fn lock_busy_for(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    span: Span,
    is_meant: impl Fn(&Regime<'_>) -> bool,
) -> bool {
    let mut chances = chances_while(&facts.quiet, facts, subject, span, is_meant).into_iter();
    !chances.any(|(_, chance)| is_long(chance, span))
}

/// Whether a host can make use of a chance within the span: a shorter one is somebody else's before that.
fn is_long(chance: Span, span: Span) -> bool {
    chance.until - chance.from >= FREE_FOR.min((span.until - span.from) / 2 + 1)
}

/// `NotThere`: with `catch_up: none` a host starts only what came due while its daemon ran. What waits for a
/// place on a full host is missed if a host that has come since claims a newer occurrence first. As
/// [`lock_busy`], among the hosts whose daemon has run since the instant.
pub(super) fn not_there(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    plan: &JobPlan,
    span: Span,
) -> bool {
    let was_there = |host: usize, then: i64| {
        life_of(facts, host, then).is_some_and(|life| life.from <= span.from)
    };
    let mut chances = chances(facts, subject, span).into_iter();
    plan.catch_up == CatchUp::None
        && !chances.any(|(host, chance)| is_long(chance, span) && was_there(host, chance.from))
}

/// `NotOnItsSchedule`: what no host has entered into the waiting list is known only to hosts that have the job
/// on a schedule by which it was due. Others may have a place for it, and do not claim it.
pub(super) fn busy_on_its_schedule(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    (at, added): (i64, &Added),
    span: Span,
) -> bool {
    let has_waited = added.record.kind != Kind::Schedule;
    lock_busy_for(facts, subject, span, |it| has_waited || it.has_due(at))
}

/// When which host that was quiet could have started the job, within a span.
pub(super) fn chances(facts: &Facts<'_>, subject: &Subject<'_>, span: Span) -> Vec<(usize, Span)> {
    chances_while(&facts.quiet, facts, subject, span, |_| true)
}

/// As [`chances`], for hosts that could act in these spans, for each host, and had a list that is meant.
fn chances_while(
    acts: &[Vec<Span>],
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    span: Span,
    is_meant: impl Fn(&Regime<'_>) -> bool,
) -> Vec<(usize, Span)> {
    let holds = holds(facts, subject);
    let of_regime = |regime: &Regime<'_>| -> Vec<(usize, Span)> {
        let holds = holds.iter().filter(|(host, _)| *host == regime.host);
        let free = known_free(facts, &regime.lock(), span);
        let free = holds.fold(free, |free, (_, hold)| without(free, *hold));
        let free = under_another_lock(facts, subject, &regime.lock()).fold(free, without);
        // A host that runs the job without the store starts nothing else of it meanwhile.
        let alone = subject.starts.iter().filter(|it| it.fence.is_none());
        let alone = alone.filter(|it| it.host == regime.host).map(|it| Span {
            from: it.begin,
            until: it.end.unwrap_or(facts.end),
        });
        let free = alone.fold(free, without);
        let free = full_host(facts, regime.host).fold(free, without);
        let both = acts[regime.host].iter().flat_map(|acts| {
            free.iter().map(|free| Span {
                from: free.from.max(acts.from).max(regime.span.from),
                until: free.until.min(acts.until).min(regime.span.until),
            })
        });
        let both = both.filter(|it| it.from < it.until);
        both.map(|it| (regime.host, it)).collect()
    };
    let meant = subject.regimes.iter().filter(|it| is_meant(it));
    meant.flat_map(of_regime).collect()
}

/// `RunUnderOldLock`: while a run of the job goes on under another lock, its ledger stays there, and no host
/// claims anything of the job under the lock of its new list.
fn under_another_lock<'a>(
    facts: &'a Facts<'_>,
    subject: &Subject<'a>,
    lock: &'a str,
) -> impl Iterator<Item = Span> + 'a {
    // Also under the lock of another scope, which is another subject.
    let name = subject.name;
    let runs = facts.trace.starts.iter();
    let runs = runs.filter(move |it| it.job == name && it.lock != lock);
    runs.map(|it| Span {
        from: it.begin,
        until: it.end.unwrap_or(facts.end) + MOVES,
    })
}

/// When the ledger of the job can have moved to the lock of a host's list, not before `from`: the last run
/// under another lock must be over (`RunUnderOldLock`).
pub(super) fn moves_by(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    regime: &Regime<'_>,
    from: i64,
) -> i64 {
    let lock = regime.lock();
    let mut runs: Vec<Span> = under_another_lock(facts, subject, &lock).collect();
    runs.sort_by_key(|run| run.from);
    let later = |by: i64, run: &Span| {
        if run.from <= by {
            by.max(run.until)
        } else {
            by
        }
    };
    runs.iter().fold(from, later)
}

/// `CopyAfterMove`: a copy of a result that arrives when the job has moved to another lock is not
/// recognised there.
pub(super) fn copy_after_move(before: &Added, again: &Added) -> bool {
    before.lock != again.lock && before.record == again.record
}

/// `UnheardRelease`: a program that deletes or overwrites a key announces no release. A host that
/// waits for the lock looks again after five seconds at the latest, and until then the lock is as
/// good as held.
fn known_free(facts: &Facts<'_>, lock: &str, span: Span) -> Vec<Span> {
    let foreign = || {
        let foreign = facts.trace.foreign.iter().filter(|(of, _)| of == lock);
        foreign.map(|(_, it)| it)
    };
    // Who has not seen the new key does not know when it ends.
    let unseen = |it: &Foreign| {
        let brief = it.span.until.saturating_sub(it.span.from) < LOOKS_AGAIN;
        brief && foreign().any(|before| before.span.until == it.span.from)
    };
    let unheard = foreign().filter(|it| it.deleted || unseen(it));
    let unheard = unheard.map(|it| Span {
        from: it.span.until,
        until: it.span.until + LOOKS_AGAIN,
    });
    unheard.fold(facts.free(lock, span), without)
}

/// `BeingTaken`: a claim that has reached some of several nodes keeps others out from then on. It is
/// granted, under the same token, a moment later.
pub(super) fn being_taken(facts: &Facts<'_>, lock: &str, at: i64) -> bool {
    let mut reached = facts.trace.reached.iter();
    reached.any(|(when, of, token)| {
        let mut held = facts.trace.held.iter();
        let granted = held
            .find(|held| held.lock == lock && held.exclusive && held.token.as_ref() == Some(token));
        let later = granted.is_some_and(|held| at <= held.at && held.at < at + STEPS_ASIDE);
        of == lock && *when <= at && later
    })
}

/// `RenewedUnheard`: several nodes that stood still together renew the lease of their time when they continue,
/// though its host has died meanwhile and nobody hears of it. The lock is held for another TTL from then.
pub(super) fn renewed_unheard(facts: &Facts<'_>, lock: &str, at: i64) -> bool {
    let renewed = |still: &Span| {
        let mut held = facts.trace.held.iter().filter(|it| it.lock == lock);
        let newest = held.rfind(|it| it.at <= still.until);
        let lease = newest.filter(|it| it.token.is_some() && still.from < it.until);
        lease.is_some_and(|it| {
            let until = still.until + PROMPT + (it.until - it.at);
            (still.until..until).contains(&at)
        })
    };
    let is_quorum = matches!(facts.plan.store, StoreKind::Quorum(_));
    is_quorum && facts.trace.outages.iter().any(renewed)
}

/// `SilentNode`: a host that waits for a node which does not answer decides by what the others said
/// when they were asked, one time-out of a node ago. Returns how long ago that is at most.
pub(super) fn asked_before(facts: &Facts<'_>, at: i64) -> i64 {
    let waiting = Span {
        from: at - NODE_ANSWERS,
        until: at,
    };
    let silent = facts.plan.acts.iter().any(|(from, act)| match act {
        Act::Node {
            how: NodeAct::Down { lasts, .. } | NodeAct::Freeze { lasts } | NodeAct::Cut { lasts, .. },
            ..
        } => {
            let from = facts.plan.start + from;
            let until = from + lasts;
            Span { from, until }.meets(waiting)
        }
        _ => false,
    });
    if silent { NODE_ANSWERS } else { 0 }
}

/// `SlowNode`: a host does not wait for nodes that failed a moment ago, and of two clocks the earlier
/// decides what is due. Returns how far behind that may be after an outage.
pub(super) fn node_behind(facts: &Facts<'_>, dark: Span) -> i64 {
    let end = Span {
        from: dark.until - NODE_FAILED,
        until: dark.until + 1,
    };
    if !facts.trace.outages.iter().any(|it| it.meets(end)) {
        return 0;
    }
    let mut behind: BTreeMap<usize, i64> = BTreeMap::new();
    for (at, act) in &facts.plan.acts {
        if let Act::Node {
            node,
            how: NodeAct::Clock { offset },
        } = act
            && facts.plan.start + at < dark.until
        {
            behind.insert(*node, -offset);
        }
    }
    behind.into_values().max().unwrap_or(0).max(0)
}

/// As [`node_behind`], for what was claimed then: a while after the outage hosts wait for all nodes again.
pub(super) fn node_behind_at(facts: &Facts<'_>, dark: Span, then: i64) -> i64 {
    if then < dark.until + NODE_FAILED {
        node_behind(facts, dark)
    } else {
        0
    }
}

/// `LateVote`: a node that stood still gives its vote to whoever asked for it meanwhile, also to a process
/// that is gone, and for a second and a half others let that one finish what it began; a start deadline
/// that is no longer may pass.
pub(super) fn late_vote(facts: &Facts<'_>, plan: &JobPlan, due: i64) -> bool {
    let waiting = Span {
        from: due - VOTE,
        until: due + plan.start_deadline,
    };
    let goes_on = |(from, act): &(i64, Act)| match act {
        Act::Node {
            how: NodeAct::Freeze { lasts },
            ..
        } => waiting.holds(facts.plan.start + from + lasts),
        _ => false,
    };
    plan.start_deadline <= VOTE + STEPS_BACK && facts.plan.acts.iter().any(goes_on)
}

/// `FullHost`: a host that ran as many as its list allows claimed nothing meanwhile, and for a moment
/// afterwards had the place for the claims that had waited for it.
fn full_host(facts: &Facts<'_>, host: usize) -> impl Iterator<Item = Span> {
    facts.full[host].iter().copied()
}

/// `WaitedForPlace`: what comes due on a full host waits for a place there, and not for the store or for
/// `catch_up`.
pub(super) fn waited_for_place(facts: &Facts<'_>, subject: &Subject<'_>, at: i64) -> bool {
    let due = at + subject.delay;
    let notices = Span {
        from: due,
        until: due + PROMPT,
    };
    let mut regimes = subject.regimes.iter().filter(|it| it.is_due(at));
    regimes.any(|it| full_host(facts, it.host).any(|full| full.meets(notices)))
}

/// `UnheardReturn`: hosts that share a file look once a second whether another one gave an occurrence
/// back that it could not start; a start deadline that is no longer may pass meanwhile.
pub(super) fn unheard_return(facts: &Facts<'_>, plan: &JobPlan, due: i64) -> bool {
    let short = |it: &Trouble| it.how == Hindered::Short && it.span.holds(due);
    facts.plan.store == StoreKind::Sqlite
        && plan.start_deadline <= PROMPT
        && facts.trace.troubles.iter().any(short)
}

/// `LostData`: the store lost data from around that time.
pub(super) fn lost_data(facts: &Facts<'_>, at: i64) -> bool {
    facts.may_be_forgotten(at)
}

/// `OptedOut`: a job without a lock (`scope: none`) and a run that may outlive its lease (`on_lost: continue`)
/// exclude nobody. What counts is the list under which the run was granted.
pub(super) fn opted_out(facts: &Facts<'_>, start: &Start) -> bool {
    let granted = Span {
        from: facts.granted(start) - PROMPT,
        until: start.begin + 1,
    };
    let opts_out = |job: &JobPlan| job.scope == Scope::None || job.on_lost == OnLost::Continue;
    let regimes = facts.regimes_of(&start.job);
    let in_force = regimes.filter(|it| it.host == start.host && it.span.meets(granted));
    let jobs: Vec<&JobPlan> = in_force.map(|it| it.job).collect();
    if jobs.is_empty() {
        // By hand, of a job that no daemon of the host runs.
        let jobs = facts.plan.lists.iter().flat_map(|list| &list.jobs);
        return jobs.filter(|it| it.name == start.job).any(opts_out);
    }
    jobs.into_iter().any(opts_out)
}

/// `BegunOutOfOrder`: of runs that exclude nobody the one that was granted later may begin earlier. The fencing
/// tokens of the grants still rise.
pub(super) fn begun_out_of_order(facts: &Facts<'_>, before: &Start, start: &Start) -> bool {
    let granted = |run: &Start| {
        let of_it = format!(":{}:", run.run_id);
        let mut held = facts.trace.held.iter();
        held.position(|held| {
            let token = held.token.as_ref();
            held.lock == run.lock && token.is_some_and(|token| token.contains(&of_it))
        })
    };
    let in_order = granted(start).zip(granted(before));
    opted_out(facts, before)
        && opted_out(facts, start)
        && start.fence < before.fence
        && in_order.is_some_and(|(start, before)| start < before)
}

/// `OnItsWay`: what a host sent before it died arrives late: after the longest time that a message takes, or
/// once a store or node that stood still meanwhile continues. Returns until when.
pub(super) fn on_its_way(facts: &Facts<'_>, died: i64) -> i64 {
    let frozen = facts.plan.acts.iter().filter_map(|(at, act)| match act {
        Act::Node {
            how: NodeAct::Freeze { lasts },
            ..
        } => {
            let from = facts.plan.start + at;
            let until = from + lasts;
            Some(Span { from, until })
        }
        _ => None,
    });
    let mut spans: Vec<Span> = frozen.chain(facts.trace.outages.iter().copied()).collect();
    spans.sort_by_key(|span| span.from);
    let mut until = died + ON_ITS_WAY;
    for span in spans {
        if span.from <= until && died < span.until {
            until = until.max(span.until + PROMPT);
        }
    }
    until
}

/// `ForgottenRun`: a store that lost its data does not know that a newer occurrence has run since, and may
/// grant an older one that it has found again.
pub(super) fn forgotten_run(facts: &Facts<'_>, run: &Start) -> bool {
    facts.trace.losses.iter().any(|it| it.holds(run.begin))
}

/// `OnStoreDown`: what comes due on a host that is up while the store is away is not caught up: it runs
/// without the store, or is skipped.
pub(super) fn on_store_down(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    plan: &JobPlan,
    at: i64,
) -> bool {
    let due = at + subject.delay;
    let around = Span {
        from: due - PROMPT,
        until: due + PROMPT,
    };
    let away = |host: usize| {
        let mut troubles = facts.trace.troubles.iter().filter(|it| it.host == host);
        let cut = |it: &Trouble| matches!(it.how, Hindered::Network | Hindered::Lossy);
        facts.trace.outages.iter().any(|it| it.meets(around))
            || troubles.any(|it| cut(it) && it.span.meets(around))
    };
    let mut regimes = subject.regimes.iter().filter(|it| it.is_due(at));
    plan.on_store_down != OnStoreDown::Wait
        && regimes.any(|it| {
            let is_up = facts.up[it.host].iter().any(|up| up.meets(around));
            is_up && away(it.host)
        })
}

/// `LostMeanwhile`: so it did at any time in a span.
pub(super) fn lost_meanwhile(facts: &Facts<'_>, span: Span) -> bool {
    facts.trace.losses.iter().any(|it| it.meets(span)) || facts.may_be_forgotten(span.from)
}

/// `InDoubt`: the first occurrence after the store went away was claimed before anybody knew, and
/// may have been granted: with `on_store_down: wait` it is claimed until it is answered.
pub(super) fn in_doubt(facts: &Facts<'_>, dark: Span) -> bool {
    let cuts = facts
        .trace
        .troubles
        .iter()
        .filter(|it| it.how == Hindered::Network);
    let away = facts
        .trace
        .outages
        .iter()
        .copied()
        .chain(cuts.map(|it| it.span));
    away.into_iter().any(|it| it.meets(dark))
}

/// `AwaitsReports`: after an outage of several nodes, hosts wait for up to a TTL for the results of runs that
/// were open, and start nothing meanwhile. Returns for how long after a time in which nobody could act.
pub(super) fn awaits_reports(facts: &Facts<'_>, dark: Span) -> i64 {
    let mut outages = facts.trace.outages.iter();
    match facts.plan.store {
        StoreKind::Quorum(_) if outages.any(|it| it.meets(dark)) => {
            facts.plan.longest_ttl() + PROMPT
        }
        _ => 0,
    }
}

/// `NotNoticed`: what comes due before anybody can know that the store is away is claimed at its time,
/// and waits in its turn. One server has a second to answer; of several nodes each is asked three times.
pub(super) fn not_noticed(facts: &Facts<'_>, dark: Span) -> i64 {
    match facts.plan.store {
        StoreKind::Quorum(_) if in_doubt(facts, dark) => 4_200,
        _ => 1_200,
    }
}

/// `OwnTrouble`: the host could not reach the store when its run ended; others learn of it when
/// the lease is over.
pub(super) fn was_in_trouble(facts: &Facts<'_>, host: usize, at: i64) -> bool {
    let around = Span {
        from: at - 2_000,
        until: at + 2_000,
    };
    let mut troubles = facts.trace.troubles.iter();
    troubles.any(|it| it.host == host && it.span.meets(around))
        || facts.trace.outages.iter().any(|it| it.meets(around))
}

/// `OwnClock`: a host judges the deadline of what waits for a place of its own, and what is too old
/// to be caught up, by its own clock, which may be off by so much and still count as right.
pub(super) const OWN_CLOCK: i64 = 500;

/// `DiedUnreported`: the host died during the run, just after that had ended, or while it waited for its next
/// attempt. Then it counts as a crash, which others notice when the lease is over.
pub(super) fn died_unreported(facts: &Facts<'_>, plan: &JobPlan, run: &Start) -> bool {
    let end = run.end.unwrap_or(facts.end);
    let waits = plan.retry.map_or(0, |(_, delay)| delay * 4);
    let unreported = Span {
        from: run.begin,
        until: end + waits + UNDER_WAY,
    };
    let mut lives = facts.trace.lives.iter().filter(|it| it.host == run.host);
    lives.any(|it| it.killed && it.until.is_some_and(|until| unreported.holds(until)))
}

/// `LostBeginning`: a store that lost its data does not know since when a job exists: what it calls
/// unknown afterwards may have been due before the job did exist, if it was due before the loss.
pub(super) fn lost_beginning(facts: &Facts<'_>, added: &Added) -> bool {
    let Some(span) = span_of(&added.record) else {
        return false;
    };
    let mut losses = facts.trace.losses.iter();
    added.record.outcome == Outcome::Unknown
        && losses.any(|it| span.from <= it.until && it.from <= added.at)
}

/// `ForgottenSchedule`: a store that lost its data cannot tell a schedule that is new from one that it has
/// forgotten. It counts from the loss, if the job was enabled then on another one.
pub(super) fn forgotten_schedule(facts: &Facts<'_>, subject: &Subject<'_>, at: i64) -> bool {
    let losses = || facts.trace.losses.iter().filter(|loss| loss.from <= at);
    let mut later = subject.regimes.iter().filter(|it| at < it.span.from);
    let enabled = subject.regimes.iter().any(|it| it.span.holds(at));
    // One that is added while the store recovers may have been there before the loss.
    let recovers = |then: i64| losses().any(|loss| then < loss.until + AS_IT_RECOVERS);
    let lost = losses().next().is_some();
    lost && later.any(|it| it.has_due(at) && (enabled || recovers(it.span.from)))
}

/// `LeftBehind`: a job that moves leaves its history under the lock that it had. What stood for a run
/// there is not replaced by a result that comes after the job has moved on, and history shows what lies
/// under the job's lock alone.
pub(super) fn left_behind(before: &Added, result: &Added) -> bool {
    before.lock != result.lock && is_provisional(&before.record)
}

/// `ManyEnds`: the store knows a copy of a result by its token, and keeps the newest of those that
/// ended under the lock.
pub(super) fn many_ends(facts: &Facts<'_>, before: &Added, again: &Added) -> bool {
    let between = |it: &&Added| {
        let then = before.at..=again.at;
        it.lock == again.lock && it.record.run_id.is_some() && then.contains(&it.at)
    };
    let same = before.record.outcome == again.record.outcome;
    same && facts.trace.added.iter().filter(between).count() > FINISHED_KEPT
}

/// `HeldBack`: while a host whose list has another lock or scope for the job lives, or counts as
/// living for a while after it died, or until its network no longer loses what it tells as it ends, the hosts
/// with the new list claim nothing of it; then they need a moment. If that is over before `span` ends, there was
/// time.
pub(super) fn held_back(facts: &Facts<'_>, subject: &Subject<'_>, span: Span) -> bool {
    let holds = holds(facts, subject);
    let mut holds = holds.iter().map(|(_, hold)| hold);
    holds.any(|hold| hold.meets(span) && span.until <= hold.until)
}

/// How long other hosts assume that a host has a list that a reload has replaced: until it has
/// announced the new one.
fn until_told(facts: &Facts<'_>, host: usize, list: Span) -> Span {
    let mut until = list.until;
    let of_host = facts.trace.troubles.iter().filter(|it| it.host == host);
    let mut spans: Vec<Span> = of_host.map(|it| it.span).collect();
    spans.extend(&facts.trace.outages);
    spans.extend(&facts.trace.losses);
    spans.sort_by_key(|span| span.from);
    for span in spans {
        if span.from <= until + MOVES && until < span.until {
            until = span.until;
        }
    }
    Span { until, ..list }
}

/// Until when other hosts assume that a host has the list with which its daemon ended.
fn until_gone(facts: &Facts<'_>, life: &Life, list: Span) -> i64 {
    let (host, until) = (life.host, life.until.unwrap_or(facts.end));
    // A host that drains while the store is unreachable announces nothing either.
    let hindered = |how: Hindered| {
        let mut troubles = facts.trace.troubles.iter();
        troubles.any(|it| it.host == host && it.how == how && it.span.holds(until))
    };
    let untold = life.killed
        || hindered(Hindered::Network)
        || facts.trace.outages.iter().any(|it| it.holds(until));
    if untold {
        until + COUNTS_AS_LIVE
    } else if hindered(Hindered::Lossy) {
        let told = until_told(facts, host, Span { until, ..list }).until;
        told.min(until + COUNTS_AS_LIVE)
    } else {
        until
    }
}

/// `KnownByItsOldList`: a daemon announces that its host lives before it tells the store of its list. If it is
/// hindered in between, its host counts as having the list before. Returns when.
fn known_by_its_old_list(facts: &Facts<'_>, life: &Life) -> Option<Span> {
    let mut lives = facts.trace.lives.iter().filter(|it| it.host == life.host);
    let from = lives
        .find(|it| life.until.is_some_and(|until| until <= it.from))?
        .from;
    let until = until_told(facts, life.host, Span { from, until: from }).until;
    let until = until.min(from + COUNTS_AS_LIVE + PROMPT);
    (from < until).then_some(Span { from, until })
}

/// When which host was held back, as far as can be told.
fn holds(facts: &Facts<'_>, subject: &Subject<'_>) -> Vec<(usize, Span)> {
    let believed = |host: usize, list: &Span| -> Vec<Span> {
        let mut lives = facts.trace.lives.iter().filter(|it| it.host == host);
        let Some(life) = lives.rfind(|life| life.from <= list.from) else {
            return Vec::new();
        };
        if list.until < life.until.unwrap_or(facts.end) {
            return vec![until_told(facts, host, *list)];
        }
        let known = Span {
            from: list.from,
            until: until_gone(facts, life, *list),
        };
        let again = known_by_its_old_list(facts, life);
        std::iter::once(known).chain(again).collect()
    };
    let lived = |regimes: &mut dyn Iterator<Item = &Regime<'_>>| -> Vec<(usize, Lock, Span)> {
        let lived = regimes.flat_map(|regime| {
            let lock = (regime.job.lock_name().to_owned(), regime.job.scope);
            let believed = believed(regime.host, &regime.span).into_iter();
            believed.map(move |span| (regime.host, lock.clone(), span))
        });
        lived.collect()
    };
    let mine = lived(&mut subject.regimes.iter());
    let all = lived(&mut facts.regimes_of(subject.name));
    let mut holds = Vec::new();
    for (one, lock, first) in &mine {
        for (other, other_lock, second) in &all {
            if one != other && lock != other_lock && first.meets(*second) {
                let hold = Span {
                    from: first.from.max(second.from),
                    until: first.until.min(second.until) + MOVES,
                };
                holds.push((*one, hold));
            }
        }
    }
    holds
}

/// `DecidedThere`: while the lock of a job changes, what comes due may be decided in the ledger of
/// another scope, and is passed when the job moves.
pub(super) fn decided_there(facts: &Facts<'_>, subject: &Subject<'_>, at: i64) -> bool {
    let others = facts.subjects.iter().filter(|it| it.name == subject.name);
    let mut others = others.filter(|it| it.host != subject.host);
    let decides =
        |it: &Subject<'_>| it.starts_of(at).next().is_some() || it.records_of(at).next().is_some();
    let moves = subject.host.is_none()
        || facts
            .subjects
            .iter()
            .any(|it| it.name == subject.name && it.host.is_none());
    moves && others.any(decides)
}

/// `Provisional`: a run is called interrupted once its lease is over, or unknown after a loss of
/// data, and its host may replace that with the result. It is a verdict in time, and not a second
/// one.
pub(super) fn provisional(added: &Added) -> bool {
    added.replaced
}

/// `LostVerdict`, of a run.
pub(super) fn lost_result(facts: &Facts<'_>, run: &Start) -> bool {
    let mut lost = facts.trace.added.iter().filter(|it| it.lost);
    lost.any(|it| (it.record.run_id.as_ref()).is_some_and(|id| id.as_str() == run.run_id))
}

/// `LostVerdict`: the verdict was on record, and the store lost it with its data.
pub(super) fn lost_verdict(subject: &Subject<'_>, at: i64) -> bool {
    let mut lost = subject.added.iter().filter(|it| it.lost);
    lost.any(|it| span_of(&it.record).is_some_and(|span| span.holds(at)))
}

/// `TwoSchedules`: hosts had the job on different schedules until its deadline, or until any was there
/// again, also if the other schedule came as a host with the first one was started again. A job has one
/// ledger, under another scope as well: what one schedule has decided passes what the other had still to
/// come to.
pub(super) fn two_schedules(facts: &Facts<'_>, subject: &Subject<'_>, at: i64, until: i64) -> bool {
    let while_due = Span { from: at, until };
    subject.listed_since(at).into_iter().any(|mine| {
        let shared = |it: &&Regime<'_>| {
            subject.host.is_none() || it.job.scope == Scope::Fleet || it.host == mine.host
        };
        let others = facts.regimes_of(subject.name).filter(shared);
        let mut others = others.filter(|it| !it.is_alike(mine));
        others.any(|it| it.span.meets(mine.span) && it.span.meets(while_due))
    })
}

/// `PassedThere`: a host that has the job with a ledger of its own takes over that of the fleet, and counts
/// from when it had the job, which the store learns within a second. If the job has been disabled there
/// since the occurrence came due, nobody owes it any more when the job has a ledger of the fleet again.
pub(super) fn passed_there(facts: &Facts<'_>, subject: &Subject<'_>, at: i64, until: i64) -> bool {
    let since = |own: &Regime<'_>| {
        let mut since = own.span.from;
        let before = |it: &Regime<'_>, since| {
            it.host == own.host && it.span.from < since && since <= it.span.until
        };
        while let Some(first) = facts.regimes_of(subject.name).find(|it| before(it, since)) {
            since = first.span.from;
        }
        since
    };
    let mut own = facts.regimes_of(subject.name);
    subject.host.is_none()
        && own.any(|it| {
            it.is_of_scope_other_than(subject) && it.span.from <= until && at < since(it) + PROMPT
        })
}

/// `ForgottenAttempt`: a store that lost its data has forgotten the attempts that were made since.
pub(super) fn forgotten_attempt(facts: &Facts<'_>, last: &Start) -> bool {
    facts.trace.losses.iter().any(|it| it.holds(last.begin))
}

/// `ToBeRepeated`: a run that is to be repeated has its record when the rerun starts, or when it is
/// too late for one, also if that counts from when a host noticed the crash ([`noticed_late`]). Returns
/// until when.
pub(super) fn to_be_repeated(facts: &Facts<'_>, plan: &JobPlan, run: &Start) -> Option<i64> {
    let is_rerun = matches!(plan.on_crash, OnCrash::Rerun { .. });
    if !is_rerun || run.at.is_none() || tries_used_up(plan, run) {
        return None;
    }
    let lease_end = facts.lease_end(run)?;
    let from = noticed_late(facts, run, (run, lease_end)).unwrap_or(lease_end);
    Some(from.max(lease_end) + rerun_window(plan))
}

/// `ClaimInDoubt`: a claim whose answer was lost holds the lock for at most one TTL, although nothing
/// runs; a start deadline that is no longer may pass meanwhile.
pub(super) fn claim_in_doubt(facts: &Facts<'_>, plan: &JobPlan, due: i64) -> bool {
    let claimed = Span {
        from: due,
        until: due + 1_000,
    };
    let lossy = |it: &crate::trace::Trouble| {
        matches!(it.how, Hindered::Network | Hindered::Lossy) && it.span.meets(claimed)
    };
    plan.start_deadline <= plan.ttl + 500 && facts.trace.troubles.iter().any(lossy)
}

/// `NeverSeenDisabled`: a host that has had the job has had no second since in which it could tell
/// the store that it has not: its entry stands. A host that was hindered as its list changed tells with its
/// next announcement at the latest. What it told may be lost with the store's newest data; then it tells again
/// when it has noticed that, a minute later at the latest.
pub(super) fn never_seen_disabled(facts: &Facts<'_>, subject: &Subject<'_>, at: i64) -> bool {
    let begins = subject.regimes.iter().map(|it| it.span.from);
    let Some(until) = begins.filter(|begin| at < *begin).min() else {
        return false;
    };
    let hosts = 0..facts.able.len();
    hosts.into_iter().any(|host| {
        let of_host = facts.regimes_of(subject.name).filter(|it| it.host == host);
        let from = of_host.map(|it| it.span.until).filter(|end| *end <= at);
        from.max().is_some_and(|from| {
            let able = facts.able_and_heard(host, Span { from, until });
            let lost_at = |it: &Span| {
                let mut losses = facts.trace.losses.iter().map(|loss| lost(facts, loss));
                losses.rfind(|lost| lost.from <= it.from + PROMPT && it.from < lost.until)
            };
            let changed = Span {
                from,
                until: from + PROMPT,
            };
            let mut troubles = facts.trace.troubles.iter().filter(|it| it.host == host);
            let was_hindered = facts.trace.outages.iter().any(|it| it.meets(changed))
                || troubles.any(|it| it.span.meets(changed));
            let tells = if was_hindered {
                ANNOUNCES + PROMPT
            } else {
                TELLS
            };
            able.iter().all(|it| match lost_at(it) {
                Some(lost) => it.until < lost.until + TELLS_AGAIN,
                None => it.until - it.from < tells,
            })
        })
    })
}

/// From when on the data were lost, and when.
fn lost(facts: &Facts<'_>, loss: &Span) -> Span {
    let recovers = facts.plan.longest_ttl() + 1_000;
    let until = loss.until - recovers;
    Span { until, ..*loss }
}

/// `AtItsTime`: what a host notices within a second of its instant is not caught up, whatever
/// hindered the host at the instant itself; nor is what alone came due meanwhile and is noticed within
/// half a minute, for the host may just be slow.
pub(super) fn at_its_time(due: i64, dark: Span, alone: bool) -> bool {
    dark.until <= due + if alone { LATE } else { PROMPT }
}

/// `NoticedAsItAwoke`: a host that awakes within a second of an instant claims what is due then, also if it
/// drains or dies at once. What it returns waits in the ledger until its start deadline, whatever comes due
/// before a host is there again.
pub(super) fn noticed_as_it_awoke(facts: &Facts<'_>, subject: &Subject<'_>, at: i64) -> bool {
    let due = at + subject.delay;
    let notices = Span {
        from: due,
        until: due + PROMPT,
    };
    let ends_at_once = |host: usize, awake: i64| {
        let soon = Span {
            from: awake,
            until: awake + SPAWNS,
        };
        let life = life_of(facts, host, awake);
        let ends = life.and_then(|life| life.drains.or(life.until));
        ends.is_some_and(|end| soon.holds(end))
    };
    let awoke = |it: &&Trouble| {
        let stood_still = matches!(it.how, Hindered::Stopped | Hindered::Suspended);
        stood_still && notices.holds(it.span.until) && ends_at_once(it.host, it.span.until)
    };
    let mut hosts = facts.trace.troubles.iter().filter(awoke).map(|it| it.host);
    hosts.any(|host| {
        let mut regimes = subject.regimes.iter();
        regimes.any(|it| it.host == host && it.is_due(at))
    })
}

/// `DarkAgain`: nobody could act again before any host had recovered, and what came due then is newer.
pub(super) fn dark_again(dark: Span, next: Option<i64>, added: &Added) -> bool {
    next.is_some_and(|next| next < dark.until + RECOVERS && next <= added.at)
}

/// `Superseded`: what is caught up waits for its lock like all else, and with `catch_up: latest` a newer
/// occurrence takes its place if others have had the lock since.
pub(super) fn superseded(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    added: &Added,
    dark: Span,
) -> bool {
    let since = Span {
        from: dark.until,
        until: added.at.max(dark.until + 1),
    };
    let reason = added.record.reason.as_deref();
    reason == Some(REASON_SUPERSEDED) && lock_busy(facts, subject, since)
}

/// `StillWaiting`: what is caught up waits for its lock and for a place, and with `catch_up: latest` the next
/// occurrence takes its place if that comes due before any host could have started it.
pub(super) fn still_waiting(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    (at, added): (i64, &Added),
    dark: Span,
) -> bool {
    let newer = Span {
        from: at + 1,
        until: added.at - subject.delay + 1,
    };
    let Some(newer) = subject.occurrences(newer).first().copied() else {
        return false;
    };
    let waits = Span {
        from: dark.until + CATCHES_UP,
        until: newer + subject.delay,
    };
    let mut chances = chances_while(&facts.able, facts, subject, waits, |_| true).into_iter();
    waits.from < waits.until && !chances.any(|(_, chance)| is_long(chance, waits))
}

/// `HeardLate`: of a host whose network loses messages as the time ends in which nobody could act, the store
/// may hear nothing before that is over. Returns from when on the store can hear a host without loss.
pub(super) fn heard_from(facts: &Facts<'_>, subject: &Subject<'_>, dark: Span) -> i64 {
    let is_lossy = |regime: &Regime<'_>| {
        let mut troubles = facts
            .trace
            .troubles
            .iter()
            .filter(|it| it.host == regime.host);
        troubles.any(|it| it.how == Hindered::Lossy && it.span.holds(dark.until))
    };
    if !subject.regimes.iter().any(is_lossy) {
        return dark.until;
    }
    let heard = subject.regimes.iter().filter_map(|regime| {
        let since = Span {
            from: regime.span.from.max(dark.until),
            until: regime.span.until,
        };
        let heard = facts.able_and_heard(regime.host, since);
        heard.iter().map(|span| span.from).min()
    });
    heard.min().unwrap_or(facts.end)
}

/// `StoodStill`: a daemon that was stopped, or whose machine was suspended, ran when the occurrence came due,
/// and takes the newest for one that it noticed late: with `catch_up: none` it starts that one within its
/// start deadline, besides what it notices at its time.
pub(super) fn stood_still(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    (at, dues): (i64, &[i64]),
    dark: Span,
) -> bool {
    let due = at + subject.delay;
    let regimes = subject.regimes.iter().filter(|it| it.span.holds(due));
    // When a daemon that ran then went on.
    let went_on = regimes.filter_map(|regime| {
        let mut lives = facts.trace.lives.iter().filter(|it| it.host == regime.host);
        let life = lives.find(|it| it.from <= due && it.until.is_none_or(|until| due < until))?;
        let up = facts.up[regime.host].iter().map(|up| up.from);
        let next = up.filter(|from| due <= *from).min()?;
        life.until.is_none_or(|until| next <= until).then_some(next)
    });
    let Some(until) = went_on.min() else {
        return false;
    };
    let still = Span { until, ..dark };
    let mut newer = dues.iter().filter(|it| **it > at);
    newer.all(|it| at_its_time(it + subject.delay + SAME_CLOCK, still, false))
}

/// `LostCount`: a store that lost its data has forgotten how often a run was repeated since, and
/// repeats it again. Returns how many of the runs so far it may have forgotten.
pub(super) fn lost_count(facts: &Facts<'_>, before: &[&Start]) -> usize {
    let lost = |run: &&&Start| facts.trace.losses.iter().any(|it| it.holds(run.begin));
    before.iter().filter(lost).count()
}

/// `UnknownRange`: the record of a range stands for other occurrences as well. A result that arrives after
/// that does not replace it, if the store has lost that it granted the run.
pub(super) fn unknown_range(facts: &Facts<'_>, run: &Start, result: &Added, other: &Added) -> bool {
    let record = &other.record;
    let is_range = record.outcome == Outcome::Unknown && record.until.is_some();
    is_range && other.at <= result.at && run.begin < other.at && forgotten_run(facts, run)
}

/// `OwedTogether`: hosts that each had a ledger of their own owe one run of what still waits on any of them
/// when the job gets a ledger of the fleet. With a ledger of its own again, a host may inherit it that has
/// run its own.
pub(super) fn owed_together(facts: &Facts<'_>, subject: &Subject<'_>, at: i64, then: i64) -> usize {
    let owed = |it: &&Subject<'_>| {
        let is_another = it.host.is_some() && it.host != subject.host;
        is_another && may_owe(facts, it, at) && it.starts_of(at).next().is_none()
    };
    let is_shared = |it: &Regime<'_>| {
        it.is_of_scope_other_than(subject) && at < it.span.from && it.span.from <= then
    };
    let all = || facts.subjects.iter().filter(|it| it.name == subject.name);
    let shared = facts.regimes_of(subject.name).any(is_shared);
    usize::from(subject.host.is_some() && shared && all().any(|it| owed(&it)))
}

/// Whether the job was due then on the host that has this ledger, under whatever scope: the host may have taken
/// over the ledger of the fleet, in which it waited.
fn may_owe(facts: &Facts<'_>, own: &Subject<'_>, at: i64) -> bool {
    let mut of_host = facts
        .regimes_of(own.name)
        .filter(|it| Some(it.host) == own.host);
    of_host.any(|it| it.is_due(at))
}

/// So they owe one verdict of it together: a host may have given its own before, and give that of another
/// one, or run it, afterwards.
pub(super) fn verdicts_owed_together(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    at: i64,
    (before, again): (i64, i64),
) -> bool {
    let mut regimes = facts.regimes_of(subject.name);
    let shared = regimes.find(|it| {
        let since = it.span.from;
        it.is_of_scope_other_than(subject) && before < since && since <= again
    });
    let Some(shared) = shared.filter(|_| subject.host.is_some()) else {
        return false;
    };
    let mut all = facts.subjects.iter();
    all.any(|it| {
        let is_another = it.name == subject.name && it.host.is_some() && it.host != subject.host;
        let decided = it.starts_of(at).any(|run| run.begin < shared.span.from)
            || it.records_of(at).any(|it| it.at < shared.span.from);
        is_another && may_owe(facts, it, at) && !decided
    })
}

/// `BackOnItsSchedule`: the store keeps the newest three schedules of a job, so that a rolling deploy
/// does not flip them. A job that returns to one of them counts as if it had never left it; one that
/// was disabled meanwhile does not.
pub(super) fn back_on_its_schedule(facts: &Facts<'_>, subject: &Subject<'_>, at: i64) -> bool {
    let regimes = || facts.regimes_of(subject.name);
    if !regimes().any(|it| it.span.holds(at)) {
        return false;
    }
    let mut before = regimes().filter(|it| it.span.from <= at);
    before.any(|first| {
        let mut later = regimes().filter(|it| at < it.span.from);
        first.has_due(at) && later.any(|it| it.has_due(at))
    })
}

/// `Inherited`: a ledger keeps what waits when the job's scope or schedule changes, and a job that returns to a
/// schedule owes what came due on it meanwhile. That has its place in the queue. Returns the occurrences that
/// count without being on the ledger's own lists when they were due, ascending.
pub(super) fn inherited(facts: &Facts<'_>, subject: &Subject<'_>, before: Span) -> Vec<i64> {
    let regimes = facts.regimes_of(subject.name);
    let mut all: Vec<i64> = regimes.flat_map(|it| it.instants(before)).collect();
    all.sort_unstable();
    all.dedup();
    all.retain(|at| {
        let due = at + subject.delay;
        !subject.counts_by(*at, 0) && due < before.until && verdicts::counts(facts, subject, *at)
    });
    all
}

/// `ReportedElsewhere`: the result of a run without the store stays under a lock that the store did not know for
/// the job. In the ledger of `there`, under another lock, its occurrence waits.
pub(super) fn reported_elsewhere(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    result: &Added,
    there: &Added,
) -> bool {
    let alone = result.record.run_id.is_some() && result.record.fence.is_none();
    let mut regimes = facts.regimes_of(subject.name);
    let is_untold =
        |it: &Regime<'_>| it.lock() == result.lock && result.at.min(it.span.until) <= it.told;
    alone && result.lock != there.lock && regimes.any(is_untold)
}

/// `ResumedElsewhere`: the ledger may have moved to another lock and back since the pause. What people ask for
/// in between is kept under that lock, and the ledger brings it along.
pub(super) fn resumed_elsewhere(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    paused: &Ordered,
    granted: i64,
) -> bool {
    let since = facts.trace.ordered.iter().filter(|it| {
        let meanwhile = paused.at < it.at && it.at < granted;
        it.job == paused.job && it.lock != paused.lock && meanwhile
    });
    let newest = since.max_by_key(|it| it.at);
    newest.is_some_and(|it| {
        let mut regimes = facts.regimes_of(subject.name);
        let was_its_lock = regimes.any(|regime| {
            let began = regime.span.from;
            regime.lock() == it.lock && began <= it.at && paused.at < regime.span.until
        });
        was_its_lock && pauses::in_force(it, granted).is_none()
    })
}

/// `UnderItsOldScope`: a job whose scope changes keeps its ledger. What came due under the old scope
/// and was not decided there is decided under the new one.
pub(super) fn under_its_old_scope(facts: &Facts<'_>, subject: &Subject<'_>, at: i64) -> bool {
    let mut regimes = facts.regimes_of(subject.name);
    regimes.any(|it| it.is_due_by(at, OWN_CLOCK) && it.is_of_scope_other_than(subject))
}
