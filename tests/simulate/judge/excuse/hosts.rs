//! Hosts that could not act, and when which of them could.

use cronlatch::config::CatchUp;
use cronlatch::store::Kind;

use super::super::Facts;
use super::super::facts::{Regime, Subject, without};
use super::attempts::life_of;
use super::catch_up::at_its_time;
use super::locks::{is_long, known_free, lock_busy_for};
use super::moves::{holds, under_another_lock};
use super::{ON_ITS_WAY, PROMPT};
use crate::plan::{Act, JobPlan, NodeAct, StoreKind};
use crate::trace::{Added, Hindered, Span, Trouble};

/// Clocks that differ by less are used as they are.
const SAME_CLOCK: i64 = 100;

/// `NotThere`: with `catch_up: none` a host starts only what came due while its daemon ran. What waits for a
/// place on a full host is missed if a host that has come since claims a newer occurrence first, unless it is in
/// the waiting list, which names it to all. As [`lock_busy`], among the hosts whose daemon has run since the
/// instant.
pub(in crate::judge) fn not_there(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    (plan, added): (&JobPlan, &Added),
    span: Span,
) -> bool {
    let was_there = |host: usize, then: i64| {
        life_of(facts, host, then).is_some_and(|life| life.from <= span.from)
    };
    let mut chances = chances(facts, subject, span).into_iter();
    plan.catch_up == CatchUp::None
        && added.record.kind == Kind::Schedule
        && !chances.any(|(host, chance)| is_long(chance, span) && was_there(host, chance.from))
}

/// `NotOnItsSchedule`: what no host has entered into the waiting list is known only to hosts that have the job
/// on a schedule by which it was due. Others may have a place for it, and do not claim it.
pub(in crate::judge) fn busy_on_its_schedule(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    (at, added): (i64, &Added),
    span: Span,
) -> bool {
    let has_waited = added.record.kind != Kind::Schedule;
    lock_busy_for(facts, subject, span, |it| has_waited || it.has_due(at))
}

/// When which host that was quiet could have started the job, within a span.
pub(in crate::judge) fn chances(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    span: Span,
) -> Vec<(usize, Span)> {
    chances_while(&facts.quiet, facts, subject, span, |_| true)
}

/// As [`chances`], for hosts that could act in these spans, for each host, and had a list that is meant.
pub(super) fn chances_while(
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

/// `FullHost`: a host that ran as many as its list allows claimed nothing meanwhile, and for a moment
/// afterwards had the place for the claims that had waited for it.
pub(super) fn full_host(facts: &Facts<'_>, host: usize) -> impl Iterator<Item = Span> {
    facts.full[host].iter().copied()
}

/// `WaitedForPlace`: what comes due on a full host waits for a place there, and not for the store or for
/// `catch_up`.
pub(in crate::judge) fn waited_for_place(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    at: i64,
) -> bool {
    let notices = super::notices(at + subject.delay);
    let mut regimes = subject.regimes.iter().filter(|it| it.is_due(at));
    regimes.any(|it| full_host(facts, it.host).any(|full| full.meets(notices)))
}

/// `UnheardReturn`: hosts that share a file look once a second whether another one gave an occurrence
/// back that it could not start; a start deadline that is no longer may pass meanwhile.
pub(in crate::judge) fn unheard_return(facts: &Facts<'_>, plan: &JobPlan, due: i64) -> bool {
    let short = |it: &Trouble| it.how == Hindered::Short && it.span.holds(due);
    facts.plan.store == StoreKind::Sqlite
        && plan.start_deadline <= PROMPT
        && facts.trace.troubles.iter().any(short)
}

/// `OnItsWay`: what a host sent before it died arrives late: after the longest time that a message takes, or
/// once a store or node that stood still meanwhile continues. Returns until when.
pub(in crate::judge) fn on_its_way(facts: &Facts<'_>, died: i64) -> i64 {
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

/// `OwnTrouble`: the host could not reach the store when its run ended; others learn of it when
/// the lease is over.
pub(in crate::judge) fn was_in_trouble(facts: &Facts<'_>, host: usize, at: i64) -> bool {
    let around = Span {
        from: at - 2_000,
        until: at + 2_000,
    };
    let mut troubles = facts.trace.troubles.iter();
    troubles.any(|it| it.host == host && it.span.meets(around))
        || facts.trace.outages.iter().any(|it| it.meets(around))
}

/// `HeardLate`: of a host whose network loses messages as the time ends in which nobody could act, the store
/// may hear nothing before that is over. Returns from when on the store can hear a host without loss.
pub(in crate::judge) fn heard_from(facts: &Facts<'_>, subject: &Subject<'_>, dark: Span) -> i64 {
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
pub(in crate::judge) fn stood_still(
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
