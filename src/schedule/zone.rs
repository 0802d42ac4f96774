//! From local times to instants, by Debian's rules for changes of the local clock.
//!
//! This is written by hand because croner follows other rules than Debian's cron when the clock changes.
//!
//! Instants and local times are whole seconds since the epoch. `L(t)` is the reading of the local
//! clock at the instant `t`. The rules, each in one line:
//!
//! - A *fixed* job runs when the local clock first reaches or passes its time: the time `c`
//!   becomes the instant `min { t : L(t) >= c }`. So a time inside a gap becomes the end of the gap,
//!   once for all times in the gap; a repeated time means its first pass.
//! - A *wildcard* job runs at every instant `t` whose `L(t)` matches, and at no other.

use chrono_tz::Tz;

use super::calendar::Calendar;
use super::offsets;

/// How far back a clock change can still matter: no zone's clock was ever set by more than a day,
/// and no zone is further than this from UTC.
const REACH: i64 = 26 * 3600;
/// No zone has changed its clock twice within this many seconds and ended where it began. So equal
/// offsets this far apart mean no change in between.
const STEP: i64 = 86_400;

/// The local clock of a zone.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalClock {
    zone: Tz,
}

/// A change of the local clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct OffsetChange {
    /// The instant.
    pub(super) at: i64,
    /// What the clock would have shown there without it.
    pub(super) from: i64,
    /// What it shows.
    pub(super) until: i64,
}

impl LocalClock {
    pub(super) fn new(zone: Tz) -> Self {
        Self { zone }
    }

    /// The first instant after `from` at which a fixed job is due.
    pub(super) fn next_fixed(self, calendar: &Calendar, from: i64) -> Option<i64> {
        // first_reach(c) > from just when the clock has not shown c or more up to `from`.
        let local = calendar.next_from(self.highest_reading(from) + 1)?;
        Some(self.first_reach(local))
    }

    /// The last instant at or before `until` at which a fixed job is due.
    pub(super) fn last_fixed(self, calendar: &Calendar, until: i64) -> Option<i64> {
        let local = calendar.last_until(self.highest_reading(until))?;
        Some(self.first_reach(local))
    }

    /// The first instant after `from` whose local time matches.
    pub(super) fn next_wildcard(self, calendar: &Calendar, from: i64) -> Option<i64> {
        let mut from = from + 1;
        loop {
            let offset = self.offset(from);
            let next = calendar.next_from(from + offset)? - offset;
            match self.first_change(from, next) {
                Some(change) => from = change,
                None => return Some(next),
            }
        }
    }

    /// The last instant at or before `until` whose local time matches.
    pub(super) fn last_wildcard(self, calendar: &Calendar, until: i64) -> Option<i64> {
        let mut until = until;
        loop {
            let offset = self.offset(until);
            let last = calendar.last_until(until + offset)? - offset;
            match self.last_change(last, until) {
                Some(change) => until = change - 1,
                None => return Some(last),
            }
        }
    }

    /// The last change of the clock in (`since`, `until`].
    pub(super) fn change_before(self, since: i64, until: i64) -> Option<OffsetChange> {
        let at = self.last_change(since, until)?;
        Some(OffsetChange {
            at,
            from: at + self.offset(at - 1),
            until: at + self.offset(at),
        })
    }

    /// All changes of the clock in (`since`, `until`].
    pub(super) fn changes(self, since: i64, until: i64) -> Vec<OffsetChange> {
        let mut changes = Vec::new();
        let mut start = since;
        while let Some(at) = self.first_change(start, until) {
            changes.push(OffsetChange {
                at,
                from: at + self.offset(at - 1),
                until: at + self.offset(at),
            });
            start = at;
        }
        changes
    }

    /// Which showing of its local time an instant is, when the clock shows that time twice.
    pub(super) fn pass(self, instant: i64) -> Option<u8> {
        let local = instant + self.offset(instant);
        if self.first_reach(local) < instant {
            return Some(2);
        }
        let change = self.first_change(instant, instant + REACH)?;
        (change + self.offset(change) <= local).then_some(1)
    }

    /// The highest reading of the local clock up to `until`: above its present one while the
    /// clock repeats times.
    fn highest_reading(self, until: i64) -> i64 {
        let mut start = until - REACH;
        let mut highest = i64::MIN;
        while let Some(change) = self.first_change(start, until) {
            highest = highest.max(change - 1 + self.offset(start));
            start = change;
        }
        highest.max(until + self.offset(start))
    }

    /// The first instant at which the local clock shows `local` or more.
    fn first_reach(self, local: i64) -> i64 {
        let mut start = local - REACH;
        loop {
            let reach = start.max(local - self.offset(start));
            match self.first_change(start, reach) {
                Some(change) => start = change,
                None => return reach,
            }
        }
    }

    /// The first instant in (`after`, `until`] with another offset than `after` has.
    fn first_change(self, after: i64, until: i64) -> Option<i64> {
        let offset = self.offset(after);
        let mut same = after;
        while same < until {
            let mut other = until.min(same + STEP);
            if self.offset(other) == offset {
                same = other;
                continue;
            }
            while other - same > 1 {
                let middle = same + (other - same) / 2;
                if self.offset(middle) == offset {
                    same = middle;
                } else {
                    other = middle;
                }
            }
            return Some(other);
        }
        None
    }

    /// The instant in (`after`, `until`] from which on, up to `until`, the offset is that of
    /// `until`; `None` when it is the same all along.
    fn last_change(self, after: i64, until: i64) -> Option<i64> {
        let offset = self.offset(until);
        let mut same = until;
        while same > after {
            let mut other = after.max(same - STEP);
            if self.offset(other) == offset {
                same = other;
                continue;
            }
            while same - other > 1 {
                let middle = other + (same - other) / 2;
                if self.offset(middle) == offset {
                    same = middle;
                } else {
                    other = middle;
                }
            }
            return Some(same);
        }
        None
    }

    /// How many seconds the local clock is ahead of UTC at an instant.
    fn offset(self, instant: i64) -> i64 {
        offsets::ahead(self.zone, instant)
    }
}
