//! Runs without the store, and what only their own host knows of them.

use cronlatch::config::OnStoreDown;
use cronlatch::store::Kind;
use cronlatch::store::protocol::{REASON_OVERLAP, REASON_QUEUE_FULL};
use cronlatch::time::Timestamp;

use super::super::facts::{Regime, Subject};
use super::super::{Facts, pauses};
use super::attempts::{first_attempt, life_of};
use super::hosts::full_host;
use super::{ON_ITS_WAY, OWN_CLOCK, PROMPT, SPAWNS, UNDER_WAY};
use crate::plan::{JobPlan, StoreKind, host_name};
use crate::trace::{Added, Hindered, Life, Span, Start, Trouble};

/// `AskedOut`: the job asked to run without the store (`on_store_down: run`), and its host could
/// not reach it then.
pub(in crate::judge) fn asked_out(facts: &Facts<'_>, run: &Start) -> bool {
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
pub(in crate::judge) fn not_told(
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
            let untold = it.at.min(regime.span.until) <= regime.told
                || !has_told_lock(facts, subject, regime, it.at);
            let untold = untold && regime.span.holds(run.begin);
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

/// Whether the host had told the store by then that it uses this lock for the job, since any of its lists had it.
fn has_told_lock(facts: &Facts<'_>, subject: &Subject<'_>, regime: &Regime<'_>, by: i64) -> bool {
    let host = regime.host;
    let regimes = facts.regimes_of(subject.name);
    let mut same = regimes.filter(|it| it.host == host && it.lock() == regime.lock());
    same.any(|same| {
        let mut admitted = facts.trace.admitted.iter();
        let here = |at: i64| same.span.holds(at) && at <= by;
        admitted.any(|it| it.host == host && it.job == subject.name && here(it.at))
    })
}

/// Of a run without the store that could not be started its host has a record as well, and nobody else knows of
/// it before that. Returns when it was to begin.
pub(in crate::judge) fn never_began(facts: &Facts<'_>, run: &Added) -> Option<Start> {
    let record = &run.record;
    let mut hosts = 0..facts.plan.hosts.len();
    let host = hosts.find(|it| {
        record
            .host
            .as_ref()
            .is_some_and(|of| of.as_str() == host_name(*it))
    })?;
    let shown = record.started_at.or(record.finished_at)?.millis();
    let begin = when_shown(facts, host, shown);
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

/// Returns when a host's wall clock showed this; the last time, if it was set back.
fn when_shown(facts: &Facts<'_>, host: usize, shown: i64) -> i64 {
    let of_host = facts.trace.clocks.iter().filter(|it| it.host == host);
    let mut steps = of_host.peekable();
    let mut when = shown;
    while let Some(step) = steps.next() {
        let until = steps.peek().map_or(i64::MAX, |next| next.at);
        let then = shown - step.ahead;
        if (step.at..until).contains(&then) {
            when = then;
        }
    }
    when
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
pub(in crate::judge) fn never_measured(facts: &Facts<'_>, run: &Start) -> bool {
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
pub(in crate::judge) fn told_by_wall_clock(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    added: &Added,
) -> bool {
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

/// `OnStoreDown`: what comes due on a host that is up while the store is away is not caught up: it runs
/// without the store, or is skipped.
pub(in crate::judge) fn on_store_down(
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

/// `InDoubt`: the first occurrence after the store went away was claimed before anybody knew, and
/// may have been granted: with `on_store_down: wait` it is claimed until it is answered.
pub(in crate::judge) fn in_doubt(facts: &Facts<'_>, dark: Span) -> bool {
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

/// `NotNoticed`: what comes due before anybody can know that the store is away is claimed at its time,
/// and waits in its turn. One server has a second to answer; of several nodes each is asked three times. A host
/// that is full as the store goes away asks for nothing before it has a place.
pub(in crate::judge) fn not_noticed(facts: &Facts<'_>, subject: &Subject<'_>, dark: Span) -> i64 {
    if !in_doubt(facts, dark) {
        return 1_200;
    }
    let answers = match facts.plan.store {
        StoreKind::Quorum(_) => 4_200,
        StoreKind::Redis | StoreKind::Sqlite => 1_200,
    };
    let there = subject.regimes.iter().filter(|it| it.span.holds(dark.from));
    let full = there.flat_map(|it| full_host(facts, it.host).filter(|it| it.holds(dark.from)));
    let asks = full.map(|full| full.until - dark.from).max();
    answers + asks.unwrap_or(0)
}

/// `ReportedElsewhere`: the result of a run without the store stays under a lock that the store did not know for
/// the job. In the ledger of `there`, under another lock, its occurrence waits.
pub(in crate::judge) fn reported_elsewhere(
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
