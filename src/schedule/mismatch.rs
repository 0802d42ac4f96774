//! Why an instant is not an occurrence: the first field of the schedule that does not match.

use std::time::Duration;

use chrono::{Datelike as _, Timelike as _};

use super::{Rule, Schedule};
use crate::time::Timestamp;

/// Why an instant is not an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// A field of the expression does not match.
    Field {
        /// `month`, `day-of-month and weekday`, `hour`, `minute` or `second`.
        name: &'static str,
        /// The text of the field; `None` for a nickname such as `@daily`, which has no fields.
        wants: Option<String>,
        /// What the local clock shows at the instant.
        is: String,
    },
    /// All fields match, and a change of the local clock moves or removes the occurrence.
    ClockChange,
    /// It is not a multiple of the period, counted from 1970-01-01T00:00:00Z.
    Period(Duration),
}

impl Schedule {
    /// Returns why `at` is not an occurrence; `None` if it is one.
    pub(crate) fn mismatch(&self, at: Timestamp) -> Option<Mismatch> {
        if self.is_occurrence(at) {
            return None;
        }
        let calendar = match &self.0.rule {
            Rule::Fixed(calendar) | Rule::Wildcard(calendar) => calendar,
            Rule::Every(interval) => return Some(Mismatch::Period(interval.period())),
        };
        let local = self.local(at);
        let texts: Vec<&str> = self.0.text.split(' ').collect();
        // With five fields the second is 0.
        let (seconds, texts) = match texts.as_slice() {
            [second, rest @ ..] if texts.len() == 6 => (*second, rest),
            rest => ("0", rest),
        };
        // A nickname is one word.
        let text = |n: usize| texts.get(n).filter(|_| texts.len() == 5).copied();
        let field = |name, wants: Option<&str>, is: String| {
            Some(Mismatch::Field {
                name,
                wants: wants.map(str::to_owned),
                is,
            })
        };
        let bit = |mask: u64, n: u32| mask >> n & 1 == 1;
        if !bit(calendar.months.into(), local.month()) {
            return field("month", text(3), local.month().to_string());
        }
        if !calendar.has_date(local.date_naive()) {
            let wants = text(2)
                .zip(text(4))
                .map(|(day, weekday)| format!("{day} {weekday}"));
            let is = local.format("%-d %a").to_string();
            return field("day-of-month and weekday", wants.as_deref(), is);
        }
        if !bit(calendar.hours.into(), local.hour()) {
            return field("hour", text(1), local.hour().to_string());
        }
        if !bit(calendar.minutes, local.minute()) {
            return field("minute", text(0), local.minute().to_string());
        }
        if !bit(calendar.seconds, local.second()) || at.millis() % 1000 != 0 {
            let millis = local.timestamp_subsec_millis();
            let is = match millis {
                0 => local.second().to_string(),
                _ => format!("{}.{millis:03}", local.second()),
            };
            return field("second", Some(seconds), is);
        }
        Some(Mismatch::ClockChange)
    }
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz;

    use super::*;

    #[track_caller]
    fn mismatch(expression: &str, at: &str) -> Option<Mismatch> {
        let schedule = Schedule::cron(expression, Tz::Europe__Berlin).expect("valid");
        schedule.mismatch(Timestamp::parse(at).expect("a time"))
    }

    #[test]
    fn the_first_field_that_does_not_match_is_named_in_local_time() {
        let field = |name, wants: &str, is: &str| {
            Some(Mismatch::Field {
                name,
                wants: (!wants.is_empty()).then(|| wants.to_owned()),
                is: is.to_owned(),
            })
        };
        let odd = "30 2 * 3 1-5";
        assert_eq!(mismatch(odd, "2026-03-02T01:30:00Z"), None);
        assert_eq!(
            mismatch(odd, "2026-04-01T01:30:00Z"),
            field("month", "3", "4")
        );
        let day = "day-of-month and weekday";
        assert_eq!(
            mismatch(odd, "2026-03-01T01:30:00Z"),
            field(day, "* 1-5", "1 Sun")
        );
        assert_eq!(
            mismatch(odd, "2026-03-02T02:30:00Z"),
            field("hour", "2", "3")
        );
        assert_eq!(
            mismatch(odd, "2026-03-02T01:31:00Z"),
            field("minute", "30", "31")
        );
        assert_eq!(
            mismatch(odd, "2026-03-02T01:30:07Z"),
            field("second", "0", "7")
        );
        assert_eq!(
            mismatch(odd, "2026-03-02T01:30:00.5Z"),
            field("second", "0", "0.500")
        );
        assert_eq!(
            mismatch("15 30 2 * * *", "2026-03-02T01:30:00Z"),
            field("second", "15", "0")
        );
        assert_eq!(
            mismatch("@daily", "2026-03-02T01:30:00Z"),
            field("hour", "", "2")
        );
    }

    #[test]
    fn a_repeated_time_and_a_period_have_answers_of_their_own() {
        // The second pass of 02:30.
        let second = mismatch("30 2 * * *", "2026-10-25T01:30:00Z");
        assert_eq!(second, Some(Mismatch::ClockChange));
        let period = Duration::from_secs(900);
        let every = Schedule::every(period).expect("valid");
        assert_eq!(
            every.mismatch(Timestamp::from_secs(901)),
            Some(Mismatch::Period(period))
        );
    }
}
