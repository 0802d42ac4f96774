//! What a change of the local clock does to an occurrence, in words for people.

use std::fmt;

use chrono::NaiveDateTime;

use super::zone::LocalClock;
use super::{Rule, Schedule};
use crate::time::Timestamp;

/// What the local clock does around an occurrence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remark {
    /// The clock jumped over the time meant, so the job runs right after the jump.
    AfterGap {
        /// What the clock would have shown at the jump.
        from: NaiveDateTime,
        /// What it showed.
        until: NaiveDateTime,
    },
    /// The clock shows this time again later; this is the first pass.
    FirstPass,
    /// The clock has shown this time before.
    SecondPass,
    /// The clock was changed between the previous occurrence and this one.
    Changed {
        /// What the clock would have shown at the change.
        from: NaiveDateTime,
        /// What it showed.
        until: NaiveDateTime,
    },
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |t: &NaiveDateTime| t.format("%H:%M").to_string();
        let day_and_time = |t: &NaiveDateTime| t.format("%Y-%m-%d %H:%M").to_string();
        match self {
            Self::AfterGap { from, until } if from.date() != until.date() => write!(
                f,
                "moved: the clock jumps from {} to {}",
                day_and_time(from),
                day_and_time(until)
            ),
            Self::AfterGap { from, until } => write!(
                f,
                "moved: the clock jumps from {} to {}",
                time(from),
                time(until)
            ),
            Self::FirstPass => f.write_str("first pass: the clock shows this time twice"),
            Self::SecondPass => f.write_str("second pass: the clock showed this time before"),
            Self::Changed { from, until } => {
                let direction = if from < until { "forward" } else { "back" };
                if from.date() != until.date() {
                    let (from, until) = (day_and_time(from), day_and_time(until));
                    return write!(f, "the clock went {direction} from {from} to {until}");
                }
                write!(
                    f,
                    "the clock went {direction} from {} to {} on {}",
                    time(from),
                    time(until),
                    from.format("%Y-%m-%d")
                )
            }
        }
    }
}

impl Schedule {
    /// What the local clock does around `occurrence`, if anything; a change since `previous` is
    /// reported if it is at most about a year ago.
    pub fn remark(&self, previous: Timestamp, occurrence: Timestamp) -> Option<Remark> {
        const YEAR: i64 = 400 * 86_400;
        let calendar = match &self.0.rule {
            Rule::Fixed(calendar) => Some(calendar),
            Rule::Wildcard(_) => None,
            Rule::Every(_) => return None,
        };
        let clock = LocalClock::new(self.0.zone);
        let instant = occurrence.millis().div_euclid(1000);
        let since = previous.millis().div_euclid(1000).max(instant - YEAR);
        let change = clock.change_before(since, instant);
        if let (Some(calendar), Some(change)) = (calendar, change)
            && change.at == instant
            && change.from < change.until
            && calendar.next_from(change.until) != Some(change.until)
        {
            let (from, until) = (local(change.from)?, local(change.until)?);
            return Some(Remark::AfterGap { from, until });
        }
        match clock.pass(instant) {
            Some(1) => return Some(Remark::FirstPass),
            Some(_) => return Some(Remark::SecondPass),
            None => {}
        }
        let change = change?;
        Some(Remark::Changed {
            from: local(change.from)?,
            until: local(change.until)?,
        })
    }
}

fn local(seconds: i64) -> Option<NaiveDateTime> {
    chrono::DateTime::from_timestamp(seconds, 0).map(|t| t.naive_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_clock_over_a_day_is_told_with_its_dates() {
        let at = |day, hour| {
            let date = chrono::NaiveDate::from_ymd_opt(2011, 12, day).expect("a date");
            date.and_hms_opt(hour, 0, 0).expect("a time")
        };
        let moved = |from, until| Remark::AfterGap { from, until }.to_string();
        assert_eq!(
            moved(at(30, 2), at(30, 3)),
            "moved: the clock jumps from 02:00 to 03:00"
        );
        assert_eq!(
            moved(at(30, 0), at(31, 0)),
            "moved: the clock jumps from 2011-12-30 00:00 to 2011-12-31 00:00"
        );
        let changed = |from, until| Remark::Changed { from, until }.to_string();
        assert_eq!(
            changed(at(30, 2), at(30, 3)),
            "the clock went forward from 02:00 to 03:00 on 2011-12-30"
        );
        assert_eq!(
            changed(at(30, 0), at(31, 0)),
            "the clock went forward from 2011-12-30 00:00 to 2011-12-31 00:00"
        );
    }
}
