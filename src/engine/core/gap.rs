//! What lies between the ledger and an occurrence, and what the policies make of it.

use std::time::Duration;

use super::occurrence::Notes;
use super::policy::{Calendar, Policy};
use crate::config::CatchUp;
use crate::store::protocol::REASON_UNKNOWN;
use crate::store::{DroppedRange, Outcome, Range};
use crate::time::Timestamp;

/// What of a gap is dropped, and what is to be run first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sorted {
    /// Dropped, all of it before the first of `run`.
    pub(super) drop: Vec<DroppedRange>,
    /// To be claimed before the occurrence that met the gap, in order.
    pub(super) run: Vec<Timestamp>,
}

/// Sorts the occurrences in `(last, at)`.
///
/// With `catch_up: all` those young enough are run, the others dropped as missed; otherwise all
/// are dropped, for the newest one is the occurrence itself. What the lane let go earlier is
/// dropped with the reason it had then; what was due up to the horizon of a store that lost data,
/// as unknown.
pub(super) fn sort(
    policy: &Policy,
    notes: &Notes,
    (last, at): (Timestamp, Timestamp),
    horizon: Option<Timestamp>,
    now: Timestamp,
) -> Sorted {
    let mut sorted = Sorted::default();
    let mut from = last;
    if notes.is_empty() {
        // After a long silence there may be millions: counted, where they can be.
        let forgotten = horizon.map(|horizon| at.min(horizon.plus(Duration::from_millis(1))));
        if let Some(before) = forgotten
            && let Some(range) = range(policy.calendar.as_ref(), from, before)
        {
            from = range.until;
            sorted.drop.push(DroppedRange {
                range,
                outcome: Outcome::Unknown,
                reason: REASON_UNKNOWN.to_owned(),
            });
        }
        let edge = match policy.catch_up {
            CatchUp::All => at.min(policy.window_start(now)),
            CatchUp::None | CatchUp::Latest => at,
        };
        if let Some(range) = range(policy.calendar.as_ref(), from, edge) {
            from = range.until;
            sorted.drop.push(DroppedRange {
                range,
                outcome: Outcome::Missed,
                reason: missed(policy).to_owned(),
            });
        }
        if policy.catch_up != CatchUp::All {
            return sorted;
        }
    }
    let mut next = policy.calendar.next_after(from);
    // No range reaches over what has its record by another way.
    let mut follows = true;
    while let Some(t) = next.filter(|t| *t < at) {
        let verdict = match notes.of(t) {
            Some(why) => why.verdict().filter(|_| sorted.run.is_empty()),
            None if horizon.is_some_and(|horizon| t <= horizon) => {
                Some((Outcome::Unknown, REASON_UNKNOWN))
            }
            None if policy.catch_up == CatchUp::All && policy.window_end(t) > now => {
                sorted.run.push(t);
                None
            }
            None => Some((Outcome::Missed, missed(policy))),
        };
        if let Some((outcome, reason)) = verdict {
            let before = sorted.drop.last().map(|drop| drop.range.until);
            let parted = before.is_some_and(|before| notes.are_parted(before, t));
            add(&mut sorted.drop, t, (outcome, reason), follows && !parted);
        }
        follows = verdict.is_some();
        next = policy.calendar.next_after(t);
    }
    sorted
}

/// The occurrences in `(after, before)`.
fn range(calendar: &dyn Calendar, after: Timestamp, before: Timestamp) -> Option<Range> {
    let from = calendar.next_after(after).filter(|from| *from < before)?;
    let until = calendar.last_before(before)?;
    let count = if let Some(period) = calendar.period() {
        let steps = until.since(from).as_millis() / period.as_millis().max(1);
        u64::try_from(steps).unwrap_or(u64::MAX).saturating_add(1)
    } else {
        let next = |at: &Timestamp| calendar.next_after(*at).filter(|next| *next <= until);
        std::iter::successors(Some(from), next).map(|_| 1).sum()
    };
    Some(Range { from, until, count })
}

fn missed(policy: &Policy) -> &'static str {
    match policy.catch_up {
        CatchUp::None => "no host could claim it in time (catch_up: none)",
        CatchUp::Latest => "no host could claim it in time (catch_up: latest)",
        CatchUp::All => "no host could claim it in time (older than catch_up_window)",
    }
}

fn add(
    drops: &mut Vec<DroppedRange>,
    at: Timestamp,
    (outcome, reason): (Outcome, &str),
    follows: bool,
) {
    if let Some(last) = drops.last_mut()
        && follows
        && last.outcome == outcome
        && last.reason == reason
    {
        last.range.until = at;
        last.range.count += 1;
        return;
    }
    drops.push(DroppedRange {
        range: Range {
            from: at,
            until: at,
            count: 1,
        },
        outcome,
        reason: reason.to_owned(),
    });
}
