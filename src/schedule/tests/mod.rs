//! Tests of schedules.

mod calendar;
mod oracle;
mod properties;
mod refusals;

use chrono_tz::Tz;

use super::Schedule;
use crate::time::Timestamp;

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).expect("an RFC 3339 time")
}

fn cron(text: &str, zone: Tz) -> Schedule {
    Schedule::cron(text, zone).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// The next `count` occurrences after `from`, in UTC.
fn next(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
    schedule
        .between(at(from), Timestamp::from_millis(i64::MAX))
        .take(count)
        .map(|t| t.to_string())
        .collect()
}
