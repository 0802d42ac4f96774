//! Jobs whose lock or scope changes, and ledgers that move.

use cronlatch::config::Scope;
use cronlatch::store::protocol::is_provisional;

use super::super::facts::{Regime, Subject};
use super::super::{Facts, pauses};
use super::{MOVES, OWN_CLOCK, PROMPT};
use crate::trace::{Added, Hindered, Life, Ordered, Span};

/// How long a host that died still counts as alive.
const COUNTS_AS_LIVE: i64 = 30_000;
/// What a list says of a job's lock.
type Lock = (String, Scope);

/// `RunUnderOldLock`: while a run of the job goes on under another lock, its ledger stays there, and no host
/// claims anything of the job under the lock of its new list.
pub(super) fn under_another_lock<'a>(
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
pub(in crate::judge) fn moves_by(
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
pub(in crate::judge) fn copy_after_move(before: &Added, again: &Added) -> bool {
    before.lock != again.lock && before.record == again.record
}

/// `LeftBehind`: a job that moves leaves its history under the lock that it had. What stood for a run
/// there is not replaced by a result that comes after the job has moved on, and history shows what lies
/// under the job's lock alone.
pub(in crate::judge) fn left_behind(before: &Added, result: &Added) -> bool {
    before.lock != result.lock && is_provisional(&before.record)
}

/// `HeldBack`: while a host whose list has another lock or scope for the job lives, or counts as
/// living for a while after it died, or until its network no longer loses what it tells as it ends, the hosts
/// with the new list claim nothing of it; then they need a moment. If that is over before `span` ends, there was
/// time.
pub(in crate::judge) fn held_back(facts: &Facts<'_>, subject: &Subject<'_>, span: Span) -> bool {
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
pub(super) fn holds(facts: &Facts<'_>, subject: &Subject<'_>) -> Vec<(usize, Span)> {
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
pub(in crate::judge) fn decided_there(facts: &Facts<'_>, subject: &Subject<'_>, at: i64) -> bool {
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

/// `ResumedElsewhere`: the ledger may have moved to another lock and back since the pause. What people ask for
/// in between is kept under that lock, and the ledger brings it along.
pub(in crate::judge) fn resumed_elsewhere(
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
pub(in crate::judge) fn under_its_old_scope(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    at: i64,
) -> bool {
    let mut regimes = facts.regimes_of(subject.name);
    regimes.any(|it| it.is_due_by(at, OWN_CLOCK) && it.is_of_scope_other_than(subject))
}
