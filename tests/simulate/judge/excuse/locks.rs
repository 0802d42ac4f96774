//! Locks that are held, or seem to be, and runs that need none.

use cronlatch::config::{OnLost, Scope};

use super::super::Facts;
use super::super::facts::{Regime, Subject, without};
use super::PROMPT;
use super::hosts::{chances, chances_while};
use crate::plan::{JobPlan, StoreKind, host_name};
use crate::trace::{Foreign, Hindered, Span, Start, Trouble};

/// A free lock that is seen for a shorter time is somebody else's before a host can claim it.
const FREE_FOR: i64 = 1_500;
/// A guard that wakes with its machine ends overdue jobs within so many milliseconds.
const KILLS_AFTER_WAKING: i64 = 50;
/// Hosts that wait for a lock look at it again within so many milliseconds.
const LOOKS_AGAIN: i64 = 5_500;
/// The longest time that hosts which contend for one lock on several nodes back off.
const STEPS_ASIDE: i64 = 10_000;

/// `JustAwake`: a suspended machine cannot end its jobs in time; it does so first of all when it
/// wakes, and the fencing token covers what they do until then.
pub(in crate::judge) fn just_awake(facts: &Facts<'_>, run: &Start, other: &Start) -> bool {
    let end = run.end.unwrap_or(facts.end);
    facts.trace.troubles.iter().any(|trouble| {
        let awake = trouble.span.until + KILLS_AFTER_WAKING;
        trouble.how == Hindered::Suspended
            && trouble.host == run.host
            && (trouble.span.from..=awake).contains(&end)
            && trouble.span.from <= other.begin
    })
}

/// `LockBusy`: from the instant to the deadline others held the lock whenever a host could have
/// taken it, all but for moments; the lock that the host's list gave the job then. A host that was full
/// could not have ([`full_host`]).
pub(super) fn lock_busy(facts: &Facts<'_>, subject: &Subject<'_>, span: Span) -> bool {
    lock_busy_for(facts, subject, span, |_| true)
}

/// As [`lock_busy`], for a run whose window is over then: a place or a lock that is free only afterwards is of no
/// use to it.
pub(in crate::judge) fn lock_busy_until(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    span: Span,
    over: i64,
) -> bool {
    let mut chances = chances(facts, subject, span).into_iter();
    !chances.any(|(_, chance)| is_long(chance, span) && chance.from < over)
}

/// As [`lock_busy`], whenever one of these hosts could have taken it.
pub(super) fn lock_busy_for(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    span: Span,
    is_meant: impl Fn(&Regime<'_>) -> bool,
) -> bool {
    let mut chances = chances_while(&facts.quiet, facts, subject, span, is_meant).into_iter();
    !chances.any(|(_, chance)| is_long(chance, span))
}

/// Whether a host can make use of a chance within the span: a shorter one is somebody else's before that.
pub(super) fn is_long(chance: Span, span: Span) -> bool {
    chance.until - chance.from >= FREE_FOR.min((span.until - span.from) / 2 + 1)
}

/// `UnheardRelease`: a program that deletes or overwrites a key announces no release. A host that
/// waits for the lock looks again after five seconds at the latest, and until then the lock is as
/// good as held.
pub(super) fn known_free(facts: &Facts<'_>, lock: &str, span: Span) -> Vec<Span> {
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
    let free = unheard.fold(facts.free(lock, span), without);
    untold_returns(facts, lock).fold(free, without)
}

/// `UntoldReturn`: a host tells the others that it has returned an occurrence once it has the store's reply. If its
/// network loses that, they look again when the lease would have ended, and until then the lock is as good as
/// held.
fn untold_returns<'a>(facts: &'a Facts<'_>, lock: &'a str) -> impl Iterator<Item = Span> + 'a {
    let held = move || facts.trace.held.iter().filter(move |it| it.lock == lock);
    let changes = held().zip(held().skip(1));
    changes.filter_map(move |(held, freed)| {
        let released = freed.token.is_none() && held.exclusive;
        let token = held.token.as_deref().filter(|_| released)?;
        let replies = Span {
            from: freed.at,
            until: freed.at + PROMPT,
        };
        let loses = |it: &&Trouble| {
            let loses = matches!(it.how, Hindered::Network | Hindered::Lossy);
            loses && it.span.meets(replies)
        };
        let mut lossy = facts.trace.troubles.iter().filter(loses).peekable();
        lossy.peek()?;
        let (host, run_id) = holder_of(facts, token);
        let is_untold = lossy.any(|it| Some(it.host) == host);
        let begun = || facts.trace.starts.iter().any(|it| it.run_id == run_id);
        (is_untold && !begun()).then_some(Span {
            from: freed.at,
            until: held.until,
        })
    })
}

/// The host and the run of a token.
pub(super) fn holder_of<'a>(facts: &Facts<'_>, token: &'a str) -> (Option<usize>, &'a str) {
    let mut parts = token.split(':');
    let (host, run_id) = (parts.next(), parts.nth(1));
    let mut hosts = 0..facts.plan.hosts.len();
    let host = hosts.find(|it| Some(host_name(*it).as_str()) == host);
    (host, run_id.unwrap_or_default())
}

/// `BeingTaken`: a claim that has reached some of several nodes keeps others out from then on. It is
/// granted, under the same token, a moment later.
pub(in crate::judge) fn being_taken(facts: &Facts<'_>, lock: &str, at: i64) -> bool {
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
pub(in crate::judge) fn renewed_unheard(facts: &Facts<'_>, lock: &str, at: i64) -> bool {
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

/// As [`renewed_unheard`], of a run whose host died while the nodes stood still. Returns until when its lease lasts
/// at most.
pub(in crate::judge) fn unheard_lease_end(
    facts: &Facts<'_>,
    run: &Start,
    plan: &JobPlan,
    lease_end: i64,
) -> i64 {
    if !matches!(facts.plan.store, StoreKind::Quorum(_)) {
        return lease_end;
    }
    let lease = Span {
        from: run.begin,
        until: lease_end,
    };
    let died = |still: &&Span| {
        let mut lives = facts.trace.lives.iter().filter(|it| it.host == run.host);
        lives.any(|it| it.killed && it.until.is_some_and(|until| still.holds(until)))
    };
    let outages = facts.trace.outages.iter();
    let stood_still = outages.filter(|it| lease.holds(it.from)).filter(died);
    let renewed = stood_still.map(|it| it.until + PROMPT + plan.ttl);
    renewed
        .max()
        .map_or(lease_end, |until| until.max(lease_end))
}

/// `OptedOut`: a job without a lock (`scope: none`) and a run that may outlive its lease (`on_lost: continue`)
/// exclude nobody. What counts is the list under which the run was granted.
pub(in crate::judge) fn opted_out(facts: &Facts<'_>, start: &Start) -> bool {
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
pub(in crate::judge) fn begun_out_of_order(
    facts: &Facts<'_>,
    before: &Start,
    start: &Start,
) -> bool {
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

/// `ClaimInDoubt`: a claim whose answer was lost holds the lock for at most one TTL, although nothing
/// runs; a start deadline that is no longer may pass meanwhile.
pub(in crate::judge) fn claim_in_doubt(facts: &Facts<'_>, plan: &JobPlan, due: i64) -> bool {
    let claimed = Span {
        from: due,
        until: due + 1_000,
    };
    let lossy = |it: &crate::trace::Trouble| {
        matches!(it.how, Hindered::Network | Hindered::Lossy) && it.span.meets(claimed)
    };
    plan.start_deadline <= plan.ttl + 500 && facts.trace.troubles.iter().any(lossy)
}
