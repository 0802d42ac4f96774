//! Compares the implementation with a slow reference that is written as Debian documents the rules of its cron.
//!
//! The reference walks the real instants one by one and looks at the local clock. For fixed jobs, whose
//! minute and hour do not begin with `*`, it keeps the highest time that the clock has shown: each time the
//! clock exceeds it, the local times in between are checked, and if any matches, the job runs once.

use std::time::Duration;

use chrono::{DateTime, Datelike as _, NaiveDateTime, TimeZone as _, Timelike as _};
use chrono_tz::Tz;

use super::{at, cron};
use crate::schedule::Schedule;
use crate::time::Timestamp;

/// Where clocks change: zone, and an instant close to the change.
const CHANGES: [(&str, &str); 29] = [
    ("Europe/Berlin", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00:00Z"),
    ("America/New_York", "2026-03-08T07:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("Europe/Dublin", "2027-10-31T01:00:00Z"),
    // Half an hour.
    ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    // At midnight: a gap that swallows it, and an hour repeated across it.
    ("America/Havana", "2026-03-08T05:00:00Z"),
    ("America/Havana", "2026-11-01T05:00:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00:00Z"),
    ("America/Asuncion", "2024-10-06T04:00:00Z"),
    ("America/Santiago", "2026-04-05T03:00:00Z"),
    ("America/Santiago", "2026-09-06T04:00:00Z"),
    ("Africa/Cairo", "2026-04-23T22:00:00Z"),
    ("Africa/Cairo", "2026-10-29T21:00:00Z"),
    ("Asia/Beirut", "2026-03-28T22:00:00Z"),
    ("Asia/Tehran", "2022-09-21T19:30:00Z"),
    // Before midnight of Saturday, when it is Sunday in UTC.
    ("America/Nuuk", "2026-03-29T01:00:00Z"),
    // Back for Ramadan and forward again.
    ("Africa/Casablanca", "2026-02-15T02:00:00Z"),
    ("Africa/Casablanca", "2026-03-22T02:00:00Z"),
    // Two hours.
    ("Antarctica/Troll", "2026-03-29T01:00:00Z"),
    ("Antarctica/Troll", "2026-10-25T01:00:00Z"),
    // Offsets with quarters or halves of an hour.
    ("Pacific/Chatham", "2026-04-04T14:00:00Z"),
    ("Asia/Kathmandu", "1985-12-31T18:30:00Z"),
    ("Asia/Pyongyang", "2018-05-04T15:00:00Z"),
    // A whole day left out.
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Pacific/Kwajalein", "1993-08-21T12:00:00Z"),
    // No change at all.
    ("Asia/Tokyo", "2026-03-29T01:00:00Z"),
];

const BY_MINUTES: [&str; 34] = [
    "* * * * *",
    "*/5 * * * *",
    "*/7 * * * *",
    "0 * * * *",
    "30 * * * *",
    "0,30 */2 * * *",
    "59 */3 * * *",
    "* 0 * * *",
    "* 2 * * *",
    "*/20 2 * * *",
    "*/10 1-3 * * 0",
    "* 23 * * 6",
    "*/30 * 29 * *",
    "*/15 0 1 11 *",
    "0 0 * * *",
    "30 0 * * *",
    "5 0 * * 0",
    "0 1 * * *",
    "30 1 * * *",
    "0 2 * * *",
    "15 2 * * *",
    "30 2 * * *",
    "0 3 * * *",
    "0 2,3 * * *",
    "15,45 0,1,2,3 * * *",
    "0-59 2 * * *",
    "0-59/7 0-23 * * *",
    "0 0-23/2 * * *",
    "0 0-23 * * *",
    "59 23 * * *",
    "30 23 * * 6",
    "30 2 29 3 *",
    "0 12 30 12 *",
    "45 0-6 * * 0,6",
];

const BY_SECONDS: [&str; 7] = [
    "* * * * * *",
    "*/17 * * * * *",
    "59 59 * * * *",
    "30 30 2 * * *",
    "* 30 2 * * *",
    "0,30 0-59 0-3 * * *",
    "15 */10 0-3 * * *",
];

/// Whether one field names a value; tries each item.
fn field_names(field: &str, value: u32, least: u32, most: u32) -> bool {
    field.split(',').any(|item| {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let step: u32 = step.parse().expect("a step");
        let (low, high) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((low, high)) => (low.parse().expect("low"), high.parse().expect("high")),
            None => (range.parse().expect("one"), range.parse().expect("one")),
        };
        (low..=high).contains(&value) && (value - low).is_multiple_of(step)
    })
}

/// Whether the expression names a local time.
fn names(fields: &[&str], local: NaiveDateTime) -> bool {
    let [second, minute, hour, day, month, weekday] = fields else {
        panic!("six fields");
    };
    let day_named = field_names(day, local.day(), 1, 31);
    let weekday_named = field_names(weekday, local.weekday().num_days_from_sunday(), 0, 7);
    let days = if day.starts_with('*') || weekday.starts_with('*') {
        day_named && weekday_named
    } else {
        day_named || weekday_named
    };
    days && field_names(second, local.second(), 0, 59)
        && field_names(minute, local.minute(), 0, 59)
        && field_names(hour, local.hour(), 0, 23)
        && field_names(month, local.month(), 1, 12)
}

/// A window of real instants, and what the local clock shows at each.
struct Window {
    zone: Tz,
    step: u32,
    readings: Vec<(i64, NaiveDateTime)>,
}

impl Window {
    fn around(zone: &str, change: &str, reach: Duration, step: u32) -> Self {
        let zone: Tz = zone.parse().expect("an IANA zone");
        let reach = i64::try_from(reach.as_secs()).expect("a short window");
        let middle = at(change).millis() / 1000;
        let readings = (middle - reach..=middle + reach).filter(|t| t % i64::from(step) == 0);
        let readings = readings.map(|instant| {
            let utc = DateTime::from_timestamp(instant, 0).expect("in range");
            (
                instant,
                zone.from_utc_datetime(&utc.naive_utc()).naive_local(),
            )
        });
        Self {
            zone,
            step,
            readings: readings.collect(),
        }
    }

    /// The instants after the first one at which the expression is due.
    fn reference(&self, text: &str) -> Vec<i64> {
        let with_seconds = if self.step == 60 {
            format!("0 {text}")
        } else {
            text.to_owned()
        };
        let fields: Vec<&str> = with_seconds.split(' ').collect();
        let wildcard = fields[1].starts_with('*') || fields[2].starts_with('*');
        let step = chrono::TimeDelta::seconds(i64::from(self.step));
        let mut highest = self.readings[0].1;
        let mut due = Vec::new();
        for (instant, local) in &self.readings[1..] {
            let mut runs = false;
            if wildcard {
                runs = names(&fields, *local);
            }
            while highest < *local {
                highest += step;
                runs |= !wildcard && names(&fields, highest);
            }
            if runs {
                due.push(*instant);
            }
        }
        due
    }

    /// Compares the schedule with the reference: forward, backward, and from anywhere.
    fn check(&self, text: &str) -> usize {
        let schedule = cron(text, self.zone);
        let due = self.reference(text);
        let (first, last) = (self.readings[0].0, self.readings[self.readings.len() - 1].0);
        let found =
            seconds(schedule.between(Timestamp::from_secs(first), Timestamp::from_secs(last)));
        assert_eq!(found, due, "{text} in {}, forward", self.zone);

        let backward =
            std::iter::successors(schedule.last_before(Timestamp::from_secs(last + 1)), |t| {
                schedule.last_before(*t)
            });
        let mut found = seconds(backward.take_while(|t| *t > Timestamp::from_secs(first)));
        found.reverse();
        assert_eq!(found, due, "{text} in {}, backward", self.zone);

        self.check_starts(text, &schedule, &due);
        due.len()
    }

    fn check_starts(&self, text: &str, schedule: &Schedule, due: &[i64]) {
        let sampled = self.readings.iter().map(|(t, _)| t * 1000).step_by(61);
        let close = due.iter().step_by(due.len() / 40 + 1);
        let close = close.flat_map(|t| [t * 1000 - 1, t * 1000, t * 1000 + 1]);
        for from in sampled.chain(close) {
            let later = due.partition_point(|t| t * 1000 <= from);
            let Some(next) = due.get(later).map(|t| t * 1000) else {
                continue;
            };
            let found = schedule.next_after(Timestamp::from_millis(from));
            assert_eq!(
                found,
                Some(Timestamp::from_millis(next)),
                "{text} in {} after {}",
                self.zone,
                Timestamp::from_millis(from)
            );
        }
    }
}

fn seconds(instants: impl Iterator<Item = Timestamp>) -> Vec<i64> {
    instants.map(|t| t.millis() / 1000).collect()
}

#[test]
fn minutes_around_changes_of_the_clock_are_as_debian_has_them() {
    let mut checked = 0;
    for (zone, change) in CHANGES {
        // More than a day on each side, because some changes leave out a whole day.
        let window = Window::around(zone, change, Duration::from_secs(28 * 3600), 60);
        checked += BY_MINUTES
            .map(|text| window.check(text))
            .iter()
            .sum::<usize>();
    }
    assert!(checked > 100_000, "only {checked} occurrences");
}

#[test]
fn seconds_around_changes_of_the_clock_are_as_debian_has_them() {
    for (zone, change) in CHANGES.into_iter().step_by(3) {
        let window = Window::around(zone, change, Duration::from_secs(5400), 1);
        for text in BY_SECONDS {
            window.check(text);
        }
    }
}
