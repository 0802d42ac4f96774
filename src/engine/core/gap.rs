//! A gap: the occurrences between the ledger and a claim, and which of them `catch_up` runs.

use std::time::Duration;

use super::occurrence::{NotClaimed, Notes};
use super::policy::{OccurrenceSource, Policy};
use crate::config::CatchUp;
use crate::store::protocol::REASON_UNKNOWN;
use crate::store::{DroppedRange, Outcome, Pause, Range};
use crate::time::Timestamp;

/// The occurrences of a gap that are dropped, and those that run first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sorted {
    /// The dropped ranges, all before the first of `run`.
    pub(super) drop: Vec<DroppedRange>,
    /// To be claimed before the occurrence whose claim found the gap, in ascending order.
    pub(super) run: Vec<Timestamp>,
}

/// Where a gap lies. Neither instant is part of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// Everything up to here is decided.
    pub(super) last: Timestamp,
    /// The occurrence behind the gap, or its end.
    pub(super) at: Timestamp,
}

/// The verdict on an occurrence that is dropped.
#[derive(Debug)]
struct DropVerdict {
    outcome: Outcome,
    reason: String,
}

impl DropVerdict {
    fn new(outcome: Outcome, reason: impl Into<String>) -> Self {
        Self {
            outcome,
            reason: reason.into(),
        }
    }
}

/// Divides the occurrences of a gap into those to drop and those to run.
///
/// With `catch_up: all`, those within the window run and older ones are dropped as missed.
/// Otherwise all are dropped, because the occurrence behind the gap is the newest. An occurrence that the
/// lane left unclaimed is dropped with the reason it had then; one that was due up to the `horizon`
/// of a store that lost data, as unknown; one that was due during a pause, as skipped.
pub(super) fn sort(
    policy: &Policy,
    notes: &Notes,
    gap: Gap,
    horizon: Option<Timestamp>,
    now: Timestamp,
) -> Sorted {
    let mut sorted = Sorted::default();
    let mut from = gap.last;
    if notes.has_no_instants() {
        (sorted.drop, from) = drop_ranges(policy, notes, gap, horizon, now);
        if policy.catch_up != CatchUp::All {
            return sorted;
        }
    }
    let mut next = policy.calendar.next_after(from);
    // No range may cover an occurrence that has a record of its own.
    let mut follows = true;
    while let Some(t) = next.filter(|t| *t < gap.at) {
        let verdict = match notes.of(t) {
            Some(why) => verdict_on(why).filter(|_| sorted.run.is_empty()),
            None if horizon.is_some_and(|horizon| t <= horizon) => {
                Some(DropVerdict::new(Outcome::Unknown, REASON_UNKNOWN))
            }
            None if policy.catch_up == CatchUp::All && policy.window_end(t) > now => {
                sorted.run.push(t);
                None
            }
            None => Some(unclaimed(policy, notes.pause_covering(t))),
        };
        let is_dropped = verdict.is_some();
        if let Some(verdict) = verdict {
            let before = sorted.drop.last().map(|drop| drop.range.until);
            // Missed occurrences may be on both sides of a pause; the ledger rejects a range that
            // covers the pause.
            let parted = before.is_some_and(|before| {
                notes.are_parted(before, t)
                    || verdict.outcome == Outcome::Missed && notes.was_paused_between(before, t)
            });
            add(&mut sorted.drop, t, verdict, follows && !parted);
        }
        follows = is_dropped;
        next = policy.calendar.next_after(t);
    }
    sorted
}

/// Returns the ranges to drop of the occurrences of a gap, and the instant up to which they reach.
///
/// After a long outage there may be millions, so ranges are counted without visiting each where possible.
fn drop_ranges(
    policy: &Policy,
    notes: &Notes,
    Gap { last, at }: Gap,
    horizon: Option<Timestamp>,
    now: Timestamp,
) -> (Vec<DroppedRange>, Timestamp) {
    let (mut drop, mut from) = (Vec::new(), last);
    let mut push = |end, verdict: DropVerdict| {
        if let Some(range) = range(policy.calendar.as_ref(), from, end) {
            from = range.until;
            drop.push(DroppedRange {
                range,
                outcome: verdict.outcome,
                reason: verdict.reason,
            });
        }
    };
    if let Some(horizon) = horizon {
        let end = at.min(horizon.plus(Duration::from_millis(1)));
        push(end, DropVerdict::new(Outcome::Unknown, REASON_UNKNOWN));
    }
    let edge = match policy.catch_up {
        CatchUp::All => at.min(policy.window_start(now)),
        CatchUp::None | CatchUp::Latest => at,
    };
    for (end, pause) in parts(notes, edge) {
        push(end, unclaimed(policy, pause));
    }
    (drop, from)
}

/// Returns the occurrences in `(after, before)`.
pub(super) fn range(
    calendar: &dyn OccurrenceSource,
    after: Timestamp,
    before: Timestamp,
) -> Option<Range> {
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

/// Returns the parts into which the pauses divide the time before `edge`: the end of each, and the pause
/// during which it lies.
fn parts(notes: &Notes, edge: Timestamp) -> Vec<(Timestamp, Option<&Pause>)> {
    let mut parts = Vec::new();
    for pause in notes.pauses() {
        parts.push((edge.min(pause.since), None));
        parts.push((
            pause.until.map_or(edge, |until| edge.min(until)),
            Some(pause),
        ));
    }
    parts.push((edge, None));
    parts
}

/// Returns the verdict about an occurrence that no host claimed in time.
fn unclaimed(policy: &Policy, pause: Option<&Pause>) -> DropVerdict {
    match pause {
        Some(pause) => DropVerdict::new(Outcome::Skipped, pause.verdict()),
        None => DropVerdict::new(Outcome::Missed, missed(policy)),
    }
}

/// Returns the verdict on an occurrence that the lane did not claim; `None` if the run's own result is the
/// record.
fn verdict_on(why: NotClaimed) -> Option<DropVerdict> {
    let reason = match why {
        NotClaimed::StoreDown => "the store was unreachable (on_store_down: skip)",
        NotClaimed::StillRunning => {
            "the previous run was still in progress while the store was unreachable"
        }
        NotClaimed::RanWithoutStore | NotClaimed::RanElsewhere => return None,
    };
    Some(DropVerdict::new(Outcome::Skipped, reason))
}

fn missed(policy: &Policy) -> &'static str {
    match policy.catch_up {
        CatchUp::None => "no host could claim it in time (catch_up: none)",
        CatchUp::Latest => "no host could claim it in time (catch_up: latest)",
        CatchUp::All => "no host could claim it in time (older than catch_up_window)",
    }
}

fn add(drops: &mut Vec<DroppedRange>, at: Timestamp, verdict: DropVerdict, follows: bool) {
    if let Some(last) = drops.last_mut()
        && follows
        && last.outcome == verdict.outcome
        && last.reason == verdict.reason
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
        outcome: verdict.outcome,
        reason: verdict.reason,
    });
}
