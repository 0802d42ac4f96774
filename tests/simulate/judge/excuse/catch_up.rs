//! What is caught up, and what is left to a newer occurrence.

use cronlatch::store::protocol::REASON_SUPERSEDED;

use super::super::Facts;
use super::super::facts::{RECOVERS, Subject};
use super::attempts::life_of;
use super::hosts::chances_while;
use super::locks::{is_long, lock_busy};
use super::{CATCHES_UP, PROMPT, SPAWNS};
use crate::trace::{Added, Hindered, Span, Trouble};

/// What a host notices later than that came due while it was not there.
const LATE: i64 = 30_000;

/// `AtItsTime`: what a host notices within a second of its instant is not caught up, whatever
/// hindered the host at the instant itself; nor is what alone came due meanwhile and is noticed within
/// half a minute, for the host may just be slow.
pub(in crate::judge) fn at_its_time(due: i64, dark: Span, alone: bool) -> bool {
    dark.until <= due + if alone { LATE } else { PROMPT }
}

/// `NoticedAsItAwoke`: a host that awakes within a second of an instant claims what is due then, also if it
/// drains or dies at once. What it returns waits in the ledger until its start deadline, whatever comes due
/// before a host is there again.
pub(in crate::judge) fn noticed_as_it_awoke(
    facts: &Facts<'_>,
    subject: &Subject<'_>,
    at: i64,
) -> bool {
    let notices = super::notices(at + subject.delay);
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
pub(in crate::judge) fn dark_again(dark: Span, next: Option<i64>, added: &Added) -> bool {
    next.is_some_and(|next| next < dark.until + RECOVERS && next <= added.at)
}

/// `Superseded`: what is caught up waits for its lock like all else, and with `catch_up: latest` a newer
/// occurrence takes its place if others have had the lock since.
pub(in crate::judge) fn superseded(
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
pub(in crate::judge) fn still_waiting(
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
