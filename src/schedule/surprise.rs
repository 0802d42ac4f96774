//! Effects of a schedule that its author may not expect. `cronlatch check` shows them as hints.

use std::time::Duration;

use chrono::NaiveDateTime;
use chrono_tz::Tz;

use super::zone::LocalClock;
use super::{Rule, Schedule};
use crate::time::Timestamp;

/// A change of a zone's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockChange {
    /// When.
    pub(crate) at: Timestamp,
    /// What the clock would have shown without the change.
    pub(crate) from: NaiveDateTime,
    /// What it shows.
    pub(crate) until: NaiveDateTime,
}

impl ClockChange {
    /// The changes of a zone's clock in the time `ahead` of `now`.
    pub(crate) fn ahead(zone: Tz, now: Timestamp, ahead: Duration) -> Vec<Self> {
        let seconds = |at: Timestamp| at.millis().div_euclid(1000);
        let changes = LocalClock::new(zone).changes(seconds(now), seconds(now.plus(ahead)));
        let local = |at: i64| chrono::DateTime::from_timestamp(at, 0).map(|at| at.naive_utc());
        changes
            .into_iter()
            .filter_map(|change| {
                Some(Self {
                    at: Timestamp::from_secs(change.at),
                    from: local(change.from)?,
                    until: local(change.until)?,
                })
            })
            .collect()
    }
}

/// The effect of a clock change on a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChangeEffect {
    /// Its time is jumped over, and it runs right after the jump.
    Moved,
    /// Occurrences of that hour are jumped over.
    Skipped,
    /// Occurrences of that hour come twice.
    Doubled,
}

/// A step such as `*/7` that does not divide its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnevenStep {
    /// The name of the field.
    pub(crate) field: &'static str,
    /// As written: `*/7`.
    pub(crate) written: String,
    /// The step.
    pub(crate) step: u32,
    /// The last step before the field begins again; `None` when the step is so long that only the
    /// first value matches, and in fields of days.
    pub(crate) last: Option<u32>,
    /// The interval that keeps the distance, where the expression has no other condition.
    pub(crate) every: Option<String>,
}

/// The fields of cron text from the last to the first: name, number of values, letter of the unit.
const FIELDS: [(&str, u32, &str); 6] = [
    ("weekday", 7, ""),
    ("month", 12, ""),
    ("day-of-month", 31, ""),
    ("hour", 24, "h"),
    ("minute", 60, "m"),
    ("second", 60, "s"),
];

impl Schedule {
    /// What a change of the clock does to this schedule; `None` when it does nothing remarkable.
    /// A fixed time that comes twice runs the first time, which is no surprise.
    pub(crate) fn effect(&self, change: &ClockChange) -> Option<ChangeEffect> {
        let (calendar, is_fixed) = match &self.0.rule {
            Rule::Fixed(calendar) => (calendar, true),
            Rule::Wildcard(calendar) => (calendar, false),
            Rule::Every(_) => return None,
        };
        let from = change.from.and_utc().timestamp();
        let until = change.until.and_utc().timestamp();
        let touches = |low: i64, high: i64| {
            let next = calendar.next_from(low);
            next.is_some_and(|next| next < high)
        };
        if from < until && touches(from, until) {
            match is_fixed {
                true => Some(ChangeEffect::Moved),
                // In every hour: the clock may jump, the distances stay.
                false if calendar.has_every_hour() => None,
                false => Some(ChangeEffect::Skipped),
            }
        } else if until < from && touches(until, from) {
            (!is_fixed && !calendar.has_every_hour()).then_some(ChangeEffect::Doubled)
        } else {
            None
        }
    }

    /// The months in which it has no occurrence because they have no such day.
    pub(crate) fn months_without_day(&self) -> Vec<u32> {
        match &self.0.rule {
            Rule::Fixed(calendar) | Rule::Wildcard(calendar) => calendar.months_without_day(),
            Rule::Every(_) => Vec::new(),
        }
    }

    /// Steps that begin anew before they are over.
    pub(crate) fn uneven_steps(&self) -> Vec<UnevenStep> {
        if matches!(self.0.rule, Rule::Every(_)) || self.0.text.starts_with('@') {
            return Vec::new();
        }
        let fields: Vec<&str> = self.0.text.split(' ').collect();
        let stars = fields.iter().filter(|field| **field == "*").count();
        let mut uneven = Vec::new();
        for (written, (field, size, unit)) in fields.iter().rev().zip(FIELDS) {
            let Some(step) = written.strip_prefix("*/") else {
                continue;
            };
            let Ok(step) = step.parse::<u32>() else {
                continue;
            };
            if step == 0 || (step < size && size % step == 0 && field != "day-of-month") {
                continue;
            }
            if step == 1 {
                continue;
            }
            // `*/7 * * * *`, and nothing else: the finer fields below it are at their first value.
            let is_alone = stars + 1 == fields.len()
                || (field != "minute"
                    && fields.iter().filter(|f| **f == "0").count() + stars + 1 == fields.len());
            uneven.push(UnevenStep {
                field,
                written: (*written).to_owned(),
                step,
                last: (step < size && !unit.is_empty()).then_some(size % step),
                every: (is_alone && !unit.is_empty()).then(|| format!("{step}{unit}")),
            });
        }
        uneven.reverse();
        uneven
    }
}

#[cfg(test)]
mod tests {
    use chrono_tz::Tz::{self, UTC};

    use super::*;

    fn cron(text: &str, zone: Tz) -> Schedule {
        Schedule::cron(text, zone).expect(text)
    }

    #[test]
    fn changes_of_the_clock_move_skip_and_double_what_lies_in_them() {
        let zone = Tz::Europe__Berlin;
        let now = Timestamp::parse("2026-01-01T00:00:00Z").expect("a time");
        let changes = ClockChange::ahead(zone, now, Duration::from_secs(366 * 86_400));
        let [spring, autumn] = changes.as_slice() else {
            panic!("two changes, not {changes:?}")
        };
        assert_eq!(spring.from.to_string(), "2026-03-29 02:00:00");
        assert_eq!(autumn.until.to_string(), "2026-10-25 02:00:00");
        for (text, in_spring, in_autumn) in [
            ("30 2 * * *", Some(ChangeEffect::Moved), None),
            ("30 2 * * MON-FRI", None, None),
            ("30 3 * * *", None, None),
            (
                "*/15 2 * * *",
                Some(ChangeEffect::Skipped),
                Some(ChangeEffect::Doubled),
            ),
            (
                "0 */2 * * *",
                Some(ChangeEffect::Skipped),
                Some(ChangeEffect::Doubled),
            ),
            ("*/15 * * * *", None, None),
            ("0 * * * *", None, None),
            ("@daily", None, None),
        ] {
            let schedule = cron(text, zone);
            assert_eq!(schedule.effect(spring), in_spring, "{text}");
            assert_eq!(schedule.effect(autumn), in_autumn, "{text}");
        }
        assert!(ClockChange::ahead(UTC, now, Duration::from_secs(86_400 * 400)).is_empty());
    }

    #[test]
    fn steps_that_do_not_divide_their_field_are_uneven() {
        let shown = |text: &str| -> Vec<String> {
            let steps = cron(text, UTC).uneven_steps();
            steps
                .iter()
                .map(|s| format!("{} {} {:?} {:?}", s.field, s.written, s.last, s.every))
                .collect()
        };
        for even in [
            "*/5 * * * *",
            "0 */6 * * *",
            "*/1 * * * *",
            "1-59/7 * * * *",
            "@hourly",
        ] {
            assert_eq!(shown(even), Vec::<String>::new(), "{even}");
        }
        assert_eq!(shown("*/7 * * * *"), [r#"minute */7 Some(4) Some("7m")"#]);
        assert_eq!(shown("*/90 * * * *"), [r#"minute */90 None Some("90m")"#]);
        assert_eq!(shown("0 */5 * * *"), [r#"hour */5 Some(4) Some("5h")"#]);
        assert_eq!(shown("0 */5 * * mon"), ["hour */5 Some(4) None"]);
        assert_eq!(shown("0 0 */2 * *"), ["day-of-month */2 None None"]);
        assert_eq!(shown("*/7 */5 * * * *"), ["second */7 Some(4) None"]);
    }

    #[test]
    fn months_that_lack_the_day_are_named() {
        let lacking = |text: &str| cron(text, UTC).months_without_day();
        assert_eq!(lacking("0 0 31 * *"), [2, 4, 6, 9, 11]);
        assert_eq!(lacking("0 0 30 * *"), [2]);
        assert_eq!(lacking("0 0 29 * *"), [2]);
        assert_eq!(lacking("0 0 29 2 *"), [2]);
        for none in [
            "0 0 28 * *",
            "0 0 L * *",
            "0 0 31 1,3 *",
            "0 0 31 * mon",
            "0 0 29-31,1 * *",
        ] {
            assert_eq!(lacking(none), Vec::<u32>::new(), "{none}");
        }
        assert_eq!(lacking("0 0 * * 1#5").len(), 12);
    }
}
