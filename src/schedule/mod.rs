//! Schedules: from cron text and intervals to occurrences, the same on every host.
//!
//! [`Schedule`] is pure: it names instants. The [`ticker`] fires them at their instants on
//! tokio-cron-scheduler. Nothing here depends on stores or processes.
//!
//! | file | story |
//! | --- | --- |
//! | `parse` | cron text -> fields, or an error with its columns |
//! | `calendar` | which *local* times a cron expression names, by bit sets |
//! | `zone` | local times -> instants, by Debian's rules for daylight saving |
//! | `offsets` | instant -> offset of a zone from UTC |
//! | `interval` | `every:`, and how close two occurrences of a schedule can be |
//! | `remark` | what a change of the clock does to an occurrence, for people |
//! | `spread` | which host comes first at an occurrence |
//! | `surprise` | what a schedule does that its author may not expect |
//! | `ticker` | instants -> firings |

mod calendar;
mod error;
mod interval;
mod mismatch;
mod offsets;
mod parse;
mod remark;
mod spread;
mod surprise;
pub mod ticker;
mod zone;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, FixedOffset, Offset as _, Utc};
use chrono_tz::Tz;

use self::calendar::Calendar;
pub use self::error::{CronError, IntervalError};
use self::interval::Interval;
pub(crate) use self::mismatch::Mismatch;
pub(crate) use self::parse::phrase::{Reading, reading};
pub use self::remark::Remark;
pub use self::spread::Spread;
pub(crate) use self::surprise::{ChangeEffect, ClockChange, UnevenStep};
use self::zone::LocalClock;
use crate::time::Timestamp;

/// 0001-01-01T00:00:00Z, the earliest instant that is computed.
const YEAR_ONE: i64 = -62_135_596_800;
/// 10000-01-01T00:00:00Z, the end of what is computed.
const YEAR_TEN_THOUSAND: i64 = 253_402_300_800;

/// When a job is due: an infinite set of instants.
///
/// Two schedules are equal when their texts (see [`Display`](fmt::Display)) and zones are. Clones share
/// their memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Schedule(Arc<Definition>);

#[derive(Debug, PartialEq, Eq)]
struct Definition {
    rule: Rule,
    zone: Tz,
    text: Box<str>,
}

#[derive(Debug, PartialEq, Eq)]
enum Rule {
    /// Cron text without `*` in minute and hour: at most once per local time.
    Fixed(Calendar),
    /// Cron text whose minute or hour begins with `*`: at every matching instant.
    Wildcard(Calendar),
    /// `every:`.
    Every(Interval),
}

impl Schedule {
    /// Reads cron text (five fields, six with seconds first, or a nickname such as `@daily`)
    /// whose fields are meant in `zone`.
    ///
    /// Refuses what cron would misread, and dates that never come; see `docs/schedules.md` for
    /// the dialect.
    pub fn cron(text: &str, zone: Tz) -> Result<Self, CronError> {
        let parsed = parse::cron(text)?;
        let rule = if parsed.wildcard {
            Rule::Wildcard(parsed.calendar)
        } else {
            Rule::Fixed(parsed.calendar)
        };
        Ok(Self::new(rule, zone, parsed.text))
    }

    /// The multiples of `period`, counted from 1970-01-01T00:00:00Z: at least one second, in
    /// whole milliseconds.
    pub fn every(period: Duration) -> Result<Self, IntervalError> {
        let interval = Interval::new(period)?;
        let text = format!("every {}", humantime::format_duration(period));
        Ok(Self::new(Rule::Every(interval), Tz::UTC, text))
    }

    fn new(rule: Rule, zone: Tz, text: String) -> Self {
        Self(Arc::new(Definition {
            rule,
            zone,
            text: text.into(),
        }))
    }

    /// The first occurrence strictly after `from`.
    ///
    /// `None` only beyond the year 9999: a schedule with no occurrences cannot be made.
    pub fn next_after(&self, from: Timestamp) -> Option<Timestamp> {
        let clock = LocalClock::new(self.0.zone);
        let second = from.millis().div_euclid(1000).max(YEAR_ONE);
        match &self.0.rule {
            Rule::Fixed(calendar) => clock.next_fixed(calendar, second).map(Timestamp::from_secs),
            Rule::Wildcard(calendar) => clock
                .next_wildcard(calendar, second)
                .map(Timestamp::from_secs),
            Rule::Every(interval) => interval.next_after(from),
        }
    }

    /// The last occurrence strictly before `before`; `None` only before the year 1.
    pub fn last_before(&self, before: Timestamp) -> Option<Timestamp> {
        let clock = LocalClock::new(self.0.zone);
        // The last whole second that lies strictly before.
        let second = before.millis().saturating_sub(1).div_euclid(1000);
        let second = second.min(YEAR_TEN_THOUSAND);
        match &self.0.rule {
            Rule::Fixed(calendar) => clock.last_fixed(calendar, second).map(Timestamp::from_secs),
            Rule::Wildcard(calendar) => clock
                .last_wildcard(calendar, second)
                .map(Timestamp::from_secs),
            Rule::Every(interval) => interval.last_before(before),
        }
    }

    /// The occurrences in (`after`, `until`], ascending.
    pub fn between(&self, after: Timestamp, until: Timestamp) -> Occurrences<'_> {
        Occurrences {
            schedule: self,
            after,
            until,
        }
    }

    /// Whether `instant` is an occurrence.
    pub fn is_occurrence(&self, instant: Timestamp) -> bool {
        self.next_after(Timestamp::from_millis(instant.millis().saturating_sub(1))) == Some(instant)
    }

    /// The shortest distance of two occurrences by the local clock. On the day of a change to or
    /// from daylight saving time two of them may come closer.
    pub fn interval(&self) -> Duration {
        match &self.0.rule {
            Rule::Fixed(calendar) | Rule::Wildcard(calendar) => calendar.shortest_distance(),
            Rule::Every(interval) => interval.period(),
        }
    }

    /// The constant distance of its occurrences, where there is one: `every:`.
    pub fn period(&self) -> Option<Duration> {
        match &self.0.rule {
            Rule::Fixed(_) | Rule::Wildcard(_) => None,
            Rule::Every(interval) => Some(interval.period()),
        }
    }

    /// The zone in which cron fields are read; UTC for intervals.
    pub fn zone(&self) -> Tz {
        self.0.zone
    }

    /// What the local clock of that zone shows at an instant.
    pub(crate) fn local(&self, at: Timestamp) -> DateTime<FixedOffset> {
        let ahead = offsets::ahead(self.0.zone, at.millis().div_euclid(1000));
        // No zone is a day ahead or behind.
        let offset = i32::try_from(ahead).ok().and_then(FixedOffset::east_opt);
        at.to_utc().with_timezone(&offset.unwrap_or(Utc.fix()))
    }
}

/// The text and the zone tell schedules apart, and a hash of them is short.
impl Hash for Schedule {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.0.text, self.0.zone).hash(state);
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The canonical text: fields with one space between them and names in capitals, or
/// `every 15m`.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.text)
    }
}

/// See [`Schedule::between`].
#[derive(Debug, Clone)]
pub struct Occurrences<'a> {
    schedule: &'a Schedule,
    after: Timestamp,
    until: Timestamp,
}

impl Iterator for Occurrences<'_> {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        let next = self.schedule.next_after(self.after)?;
        (next <= self.until).then(|| {
            self.after = next;
            next
        })
    }
}

impl std::iter::FusedIterator for Occurrences<'_> {}

#[cfg(test)]
mod tests;
