//! Hosts that have a job on different schedules or ledgers.

use cronlatch::config::Scope;

use super::super::facts::{Regime, Subject};
use super::super::{Facts, verdicts};
use super::loss::lost;
use super::{ANNOUNCES, PROMPT};
use crate::trace::Span;

/// How long after an outage or with a bad network a host may take to tell what its list has.
const TELLS: i64 = 3_000;
/// A host that withdrew a job compares its list with the store's so often, and announces itself then.
const TELLS_AGAIN: i64 = 60_000 + ANNOUNCES + PROMPT;

/// `TwoSchedules`: hosts had the job on different schedules until its deadline, or until any was there
/// again, also if the other schedule came as a host with the first one was started again. A job has one
/// ledger, under another scope as well: what one schedule has decided passes what the other had still to
/// come to.
pub(in crate::judge) fn two_schedules(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    at: i64,
    until: i64,
) -> bool {
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
pub(in crate::judge) fn passed_there(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    at: i64,
    until: i64,
) -> bool {
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

/// `NeverSeenDisabled`: a host that has had the job has had no second since in which it could tell
/// the store that it has not: its entry stands. A host that was hindered as its list changed tells with its
/// next announcement at the latest. What it told may be lost with the store's newest data; then it tells again
/// when it has noticed that, a minute later at the latest.
pub(in crate::judge) fn never_seen_disabled(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    at: i64,
) -> bool {
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

/// `OwedTogether`: hosts that each had a ledger of their own owe one run of what still waits on any of them
/// when the job gets a ledger of the fleet. With a ledger of its own again, a host may inherit it that has
/// run its own.
pub(in crate::judge) fn owed_together(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    at: i64,
    then: i64,
) -> usize {
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
pub(in crate::judge) fn verdicts_owed_together(
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
pub(in crate::judge) fn back_on_its_schedule(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    at: i64,
) -> bool {
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
pub(in crate::judge) fn inherited(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    before: Span,
) -> Vec<i64> {
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
