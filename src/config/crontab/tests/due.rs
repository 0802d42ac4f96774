//! When imported jobs are due: compared, minute by minute, with the rules of cron.
//!
//! The reference reads the five fields and matches a minute as Vixie cron and its descendants do: a
//! bit for each value, and the day fields joined by *or* unless one of them begins with `*`.

use chrono::{DateTime, Datelike as _, TimeDelta, Timelike as _, Utc};
use proptest::prelude::*;

use super::{import, valid};
use crate::config::crontab::{CrontabKind, ReadOptions};
use crate::time::Timestamp;

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The schedule of a crontab as bits.
struct CronEntry {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    any_day: bool,
    any_weekday: bool,
}

impl CronEntry {
    fn new(schedule: &str) -> Self {
        let five = match schedule {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            five => five,
        };
        let fields: Vec<&str> = five.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.try_into().expect("five fields");
        let mut weekdays = bits(weekday, 0, 7, &DAYS);
        // Sunday is 0 and 7.
        if weekdays & (1 | 1 << 7) != 0 {
            weekdays |= 1 | 1 << 7;
        }
        Self {
            minutes: bits(minute, 0, 59, &[]),
            hours: bits(hour, 0, 23, &[]),
            days: bits(day, 1, 31, &[]),
            months: bits(month, 1, 12, &MONTHS),
            weekdays,
            any_day: day.starts_with('*'),
            any_weekday: weekday.starts_with('*'),
        }
    }

    fn is_due(&self, at: DateTime<Utc>) -> bool {
        let has = |bits: u64, value: u32| bits >> value & 1 == 1;
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, at.weekday().num_days_from_sunday());
        let is_day = if self.any_day || self.any_weekday {
            day && weekday
        } else {
            day || weekday
        };
        is_day
            && has(self.minutes, at.minute())
            && has(self.hours, at.hour())
            && has(self.months, at.month())
    }
}

/// A list of `*`, `a`, `a-b`, each perhaps with a step.
fn bits(field: &str, low: u32, high: u32, names: &[&str]) -> u64 {
    let number = |text: &str| -> u32 {
        let name = names
            .iter()
            .position(|name| text.eq_ignore_ascii_case(name));
        match name {
            Some(index) => u32::try_from(index).expect("few names") + low,
            None => text.parse().expect("a number"),
        }
    };
    let mut bits = 0;
    for item in field.split(',') {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, step.parse().expect("a step")),
            None => (item, 1),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (low, high),
            Some((from, to)) => (number(from), number(to)),
            None => (number(range), number(range)),
        };
        let mut value = from;
        while value <= to {
            bits |= 1 << value;
            value += step;
        }
    }
    bits
}

/// Compares the first occurrences of each line from 2028 on, a leap year, with the reference.
#[track_caller]
fn assert_due_as_under_cron(schedules: &[String]) {
    const ENOUGH: usize = 200;
    let text = format!("CRON_TZ=UTC\n{} /bin/x\n", schedules.join(" /bin/x\n"));
    let options = ReadOptions {
        kind: Some(CrontabKind::User),
        owner: None,
    };
    let list = valid("jobs.yaml", &import("x", &text, &options).list().text);
    assert_eq!(list.jobs.len(), schedules.len());
    let start = Timestamp::parse("2028-01-01T00:00:00Z").expect("a time");
    for (schedule, job) in schedules.iter().zip(&list.jobs) {
        let cron = CronEntry::new(schedule);
        let days = 366 * 5;
        let mut expected = Vec::new();
        let mut day = start.to_utc() + TimeDelta::minutes(1);
        let end = start.to_utc() + TimeDelta::days(days);
        while day < end && expected.len() < ENOUGH {
            // Days without any match are passed over as a whole.
            let midnight = day.date_naive();
            let noon = CronEntry {
                minutes: u64::MAX,
                hours: u64::MAX,
                ..CronEntry::new(schedule)
            };
            if noon.is_due(day) {
                while day.date_naive() == midnight && expected.len() < ENOUGH {
                    if cron.is_due(day) {
                        expected.push(day);
                    }
                    day += TimeDelta::minutes(1);
                }
            } else {
                day += TimeDelta::days(1);
                day -= TimeDelta::minutes(i64::from(day.hour() * 60 + day.minute()));
            }
        }
        let until = Timestamp::from_secs(end.timestamp() - 1);
        let found: Vec<_> = job.schedule.between(start, until).take(ENOUGH).collect();
        let found: Vec<_> = found.into_iter().map(Timestamp::to_utc).collect();
        assert_eq!(found, expected, "{schedule}");
    }
}

#[test]
fn lines_are_due_when_cron_runs_them() {
    let schedules = [
        "* * * * *",
        "*/5 * * * *",
        "*/7 * * * *",
        "0-30/7 */5 * * *",
        "5,10-20/3,59 0,12 * * *",
        "30 2 * * *",
        "0 0 1 * *",
        "0 0 29 2 *",
        "0 0 31 * *",
        // Both days are restricted: either is enough.
        "0 12 13 * 5",
        "0 0 1,15 * mon",
        "0 0 1-7 * 1",
        "0 0 31 2 fri",
        // One of them begins with `*`: both must match.
        "0 0 */2 * 1",
        "0 0 1-7 * */3",
        "0 0 */10 * *",
        // Names, in any case, in ranges and lists.
        "15 4 * JAN-mar,Dec *",
        "0 8 * * mon-fri",
        "0 8 * * sat,SUN",
        "0 8 * * Sun-Tue",
        "0 8 * 1-12/5 wed-sat/2",
        // 7 is Sunday.
        "0 9 * * 7",
        "0 9 * * 0",
        "0 9 * * 5-7",
        "0 9 * * 0-7",
        "0 9 * * 1-7/2",
        "0 9 * * */2",
        // A step beyond the range leaves the first value.
        "*/60 */24 */31 */12 *",
        "10-20/100 * * * *",
        "@hourly",
        "@daily",
        "@midnight",
        "@weekly",
        "@monthly",
        "@yearly",
        "@annually",
    ];
    assert_due_as_under_cron(&schedules.map(str::to_owned));
}

fn field(low: u32, high: u32, names: &'static [&'static str]) -> impl Strategy<Value = String> {
    let value = move |number: u32, named: bool| match names.get((number - low) as usize) {
        Some(name) if named => (*name).to_owned(),
        _ => number.to_string(),
    };
    let range = (low..=high, low..=high, any::<bool>()).prop_map(move |(a, b, named)| {
        format!("{}-{}", value(a.min(b), named), value(a.max(b), named))
    });
    let item = prop_oneof![
        3 => (low..=high, any::<bool>()).prop_map(move |(n, named)| value(n, named)),
        2 => range.clone(),
        2 => (range, 1_u32..70).prop_map(|(range, step)| format!("{range}/{step}")),
        1 => Just("*".to_owned()),
        1 => (1_u32..70).prop_map(|step| format!("*/{step}")),
    ];
    prop_oneof![
        3 => Just("*".to_owned()),
        4 => prop::collection::vec(item, 1..4).prop_map(|items| items.join(",")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_line_is_due_when_cron_runs_it(
        fields in (
            field(0, 59, &[]),
            field(0, 23, &[]),
            field(1, 31, &[]),
            field(1, 12, &MONTHS),
            field(0, 7, &DAYS),
        ),
    ) {
        let (minute, hour, day, month, weekday) = fields;
        let months = bits(&month, 1, 12, &MONTHS);
        let days = bits(&day, 1, 31, &[]);
        // A date that never comes is refused.
        let comes = (1..=12_u32).any(|month| {
            let length = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1];
            months >> month & 1 == 1 && (1..=length).any(|day| days >> day & 1 == 1)
        });
        prop_assume!(comes);
        assert_due_as_under_cron(&[format!("{minute} {hour} {day} {month} {weekday}")]);
    }
}
