//! The local times that a cron expression names, as bit sets. Nothing here depends on a time zone.
//!
//! Local times are seconds since 1970-01-01T00:00:00 on the local clock. croner 4 computes the
//! same (a test compares the two), but keeps more than 5 KiB for each expression and searches
//! for a date that never comes up to the year 5000; 10,000 jobs have to fit into 40 MB.

use std::time::Duration;

use chrono::{Datelike as _, NaiveDate};

const DAY: i64 = 86_400;
/// 1970-01-01, counted in days from the day before 0001-01-01.
const EPOCH_FROM_CE: i64 = 719_163;
const FIRST_YEAR: i32 = 1;
const LAST_YEAR: i32 = 9999;

/// The times of day, months and days of an expression.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Calendar {
    /// Bits 0 to 59.
    pub(super) seconds: u64,
    /// Bits 0 to 59.
    pub(super) minutes: u64,
    /// Bits 0 to 23.
    pub(super) hours: u32,
    /// Bits 1 to 12.
    pub(super) months: u16,
    pub(super) days: Days,
}

/// The days of an expression: its day-of-month and weekday fields.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Days {
    /// Bits 1 to 31.
    pub(super) of_month: u32,
    /// `L`: the last day of the month.
    pub(super) last_of_month: bool,
    pub(super) weekdays: Weekdays,
    /// Whether a day must satisfy both fields, not just either.
    pub(super) join: Join,
}

/// The weekday field: bit 0 is Sunday in each mask.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Weekdays {
    /// Every week.
    pub(super) every: u8,
    /// `5L`: only the last such day of the month.
    pub(super) last: u8,
    /// `5#3`: only the n-th such day of the month, n - 1 being the index.
    pub(super) nth: [u8; 5],
}

/// How the two day fields are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Join {
    /// One of them begins with `*`.
    Both,
    /// Both are restricted.
    Either,
}

impl Calendar {
    /// The first matching local time at or after `local`.
    pub(super) fn next_from(&self, local: i64) -> Option<i64> {
        let (day, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        if self.is_matching_day(day)
            && let Some(time) = self.time_from(second)
        {
            return Some(day * DAY + time);
        }
        let day = self.day_from(day + 1)?;
        Some(day * DAY + self.time_from(0)?)
    }

    /// The last matching local time at or before `local`.
    pub(super) fn last_until(&self, local: i64) -> Option<i64> {
        let (day, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        if self.is_matching_day(day)
            && let Some(time) = self.time_until(second)
        {
            return Some(day * DAY + time);
        }
        let day = self.day_until(day - 1)?;
        Some(day * DAY + self.time_until(DAY - 1)?)
    }

    /// Whether the month and the day of a date match.
    pub(super) fn has_date(&self, date: NaiveDate) -> bool {
        let days = self.days_in(date.year(), date.month());
        has(days, i64::from(date.day()))
    }

    /// Whether no date ever matches.
    ///
    /// Months repeat in 14 kinds of years (leap or not, beginning on one of seven weekdays), all
    /// of which occur in these 28 years.
    pub(super) fn never_comes(&self) -> bool {
        (2001..2029).all(|year| (1..=12).all(|month| self.days_in(year, month) == 0))
    }

    /// The months of the month field that have no matching day in at least one year.
    pub(super) fn months_without_day(&self) -> Vec<u32> {
        let lacks = |month: &u32| (2001..2029).any(|year| self.days_in(year, *month) == 0);
        bits(self.months.into())
            .filter_map(|month| u32::try_from(month).ok())
            .filter(lacks)
            .collect()
    }

    /// Whether every hour of the day matches.
    pub(super) fn has_every_hour(&self) -> bool {
        self.hours == (1 << 24) - 1
    }

    /// The shortest distance of two matching local times.
    pub(super) fn shortest_distance(&self) -> Duration {
        let mut shortest = i64::MAX;
        let mut first = None;
        let mut last: Option<i64> = None;
        for minute in 0..1440 {
            if !(has(self.hours.into(), minute / 60) && has(self.minutes, minute % 60)) {
                continue;
            }
            for second in bits(self.seconds) {
                let time = minute * 60 + second;
                if let Some(last) = last {
                    shortest = shortest.min(time - last);
                }
                first = first.or(Some(time));
                last = Some(time);
                if shortest == 1 {
                    return Duration::from_secs(1);
                }
            }
        }
        if let (Some(first), Some(last)) = (first, last) {
            // No day in between can be shorter than this one.
            let overnight = first + DAY - last;
            if overnight < shortest {
                shortest = shortest.min(overnight + (self.shortest_day_distance() - 1) * DAY);
            }
        }
        Duration::from_secs(shortest.unsigned_abs())
    }

    /// The least number of days between two matching ones, over a whole Gregorian cycle.
    fn shortest_day_distance(&self) -> i64 {
        let mut shortest = 146_097;
        let mut last: Option<i64> = None;
        for year in 2000..2400 {
            for month in bits(self.months.into()) {
                let month = u32::try_from(month).unwrap_or(1);
                for day in bits(self.days_in(year, month)) {
                    let Some(day) = day_number(year, month, day) else {
                        continue;
                    };
                    shortest = last.map_or(shortest, |last| shortest.min(day - last));
                    last = Some(day);
                    if shortest == 1 {
                        return 1;
                    }
                }
            }
        }
        shortest
    }

    fn time_from(&self, second_of_day: i64) -> Option<i64> {
        let (hour, minute, second) = split(second_of_day);
        if has(self.hours.into(), hour) {
            if has(self.minutes, minute)
                && let Some(second) = next_bit(self.seconds, second)
            {
                return Some(hour * 3600 + minute * 60 + second);
            }
            if let Some(minute) = next_bit(self.minutes, minute + 1) {
                return Some(hour * 3600 + minute * 60 + next_bit(self.seconds, 0)?);
            }
        }
        let hour = next_bit(self.hours.into(), hour + 1)?;
        Some(hour * 3600 + next_bit(self.minutes, 0)? * 60 + next_bit(self.seconds, 0)?)
    }

    fn time_until(&self, second_of_day: i64) -> Option<i64> {
        let (hour, minute, second) = split(second_of_day);
        if has(self.hours.into(), hour) {
            if has(self.minutes, minute)
                && let Some(second) = last_bit(self.seconds, second)
            {
                return Some(hour * 3600 + minute * 60 + second);
            }
            if let Some(minute) = last_bit(self.minutes, minute - 1) {
                return Some(hour * 3600 + minute * 60 + last_bit(self.seconds, 59)?);
            }
        }
        let hour = last_bit(self.hours.into(), hour - 1)?;
        Some(hour * 3600 + last_bit(self.minutes, 59)? * 60 + last_bit(self.seconds, 59)?)
    }

    fn is_matching_day(&self, day: i64) -> bool {
        date(day).is_some_and(|date| {
            has(
                self.days_in(date.year(), date.month()),
                i64::from(date.day()),
            )
        })
    }

    /// The first matching day at or after `day`.
    fn day_from(&self, day: i64) -> Option<i64> {
        let start = date(day.max(day_number(FIRST_YEAR, 1, 1)?))?;
        let mut from = i64::from(start.day());
        for year in start.year()..=LAST_YEAR {
            let first_month = if year == start.year() {
                start.month()
            } else {
                1
            };
            for month in first_month..=12 {
                if let Some(day) = next_bit(self.days_in(year, month), from) {
                    return day_number(year, month, day);
                }
                from = 1;
            }
        }
        None
    }

    /// The last matching day at or before `day`.
    fn day_until(&self, day: i64) -> Option<i64> {
        let start = date(day.min(day_number(LAST_YEAR, 12, 31)?))?;
        let mut until = i64::from(start.day());
        for year in (FIRST_YEAR..=start.year()).rev() {
            let last_month = if year == start.year() {
                start.month()
            } else {
                12
            };
            for month in (1..=last_month).rev() {
                if let Some(day) = last_bit(self.days_in(year, month), until) {
                    return day_number(year, month, day);
                }
                until = 31;
            }
        }
        None
    }

    /// The matching days of a month, bits 1 to 31.
    fn days_in(&self, year: i32, month: u32) -> u64 {
        if !has(self.months.into(), i64::from(month)) {
            return 0;
        }
        let Some(first) = NaiveDate::from_ymd_opt(year, month, 1) else {
            return 0;
        };
        let length = u32::from(first.num_days_in_month());
        let weekday_of_first = first.weekday().num_days_from_sunday();
        let all = (2_u64 << length) - 2;
        let mut of_month = u64::from(self.days.of_month) & all;
        if self.days.last_of_month {
            of_month |= 1 << length;
        }
        let of_week = self.days.weekdays.in_month(length, weekday_of_first);
        match self.days.join {
            Join::Both => of_month & of_week,
            Join::Either => of_month | of_week,
        }
    }
}

impl Weekdays {
    /// The matching days, bits 1 to `length`.
    fn in_month(&self, length: u32, weekday_of_first: u32) -> u64 {
        let mut days = 0;
        for day in 0..length {
            let weekday = i64::from((weekday_of_first + day) % 7);
            let nth = self.nth.get(day as usize / 7).copied().unwrap_or(0);
            if has(self.every.into(), weekday)
                || has(nth.into(), weekday)
                || (day + 7 >= length && has(self.last.into(), weekday))
            {
                days |= 2 << day;
            }
        }
        days
    }
}

fn split(second_of_day: i64) -> (i64, i64, i64) {
    (
        second_of_day / 3600,
        second_of_day / 60 % 60,
        second_of_day % 60,
    )
}

fn date(day: i64) -> Option<NaiveDate> {
    let day = i32::try_from(day.checked_add(EPOCH_FROM_CE)?).ok()?;
    NaiveDate::from_num_days_from_ce_opt(day)
}

fn day_number(year: i32, month: u32, day: i64) -> Option<i64> {
    let date = NaiveDate::from_ymd_opt(year, month, u32::try_from(day).ok()?)?;
    Some(i64::from(date.num_days_from_ce()) - EPOCH_FROM_CE)
}

/// Whether bit `n`, 0 to 63, is set.
fn has(mask: u64, n: i64) -> bool {
    mask >> n & 1 == 1
}

/// The lowest set bit at or above `from`, 0 to 63.
fn next_bit(mask: u64, from: i64) -> Option<i64> {
    let above = mask >> from << from;
    (above != 0).then(|| i64::from(above.trailing_zeros()))
}

/// The highest set bit at or below `until`, -1 to 62.
fn last_bit(mask: u64, until: i64) -> Option<i64> {
    let below = mask & ((1 << (until + 1)) - 1);
    (below != 0).then(|| i64::from(below.ilog2()))
}

fn bits(mask: u64) -> impl Iterator<Item = i64> {
    (0..64).filter(move |n| has(mask, *n))
}
