//! What is right, and may still surprise: changes of the clock, uneven steps, days that months
//! lack, many jobs at one instant.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use chrono_tz::Tz;

use crate::config::{Job, JobList};
use crate::ground::sorting::SortShort as _;
use crate::schedule::{ChangeEffect, ClockChange, Schedule, UnevenStep};
use crate::time::Timestamp;

/// How far ahead changes of the clock are reported: one year, which covers both.
const YEAR: Duration = Duration::from_secs(366 * 86_400);
const DAY: Duration = Duration::from_secs(86_400);
/// This many jobs at one instant are worth a hint.
const MANY: usize = 20;
/// With more schedules than this only the next occurrence of each is counted.
const SCHEDULES_MAX: usize = 500;
/// A schedule of seconds is counted only so far.
const OCCURRENCES_MAX: usize = 1440;

/// The hints of a list, each a sentence or two.
pub(super) fn of(list: &JobList, now: Timestamp) -> Vec<String> {
    let jobs: Vec<&Job> = (list.jobs.iter().map(AsRef::as_ref))
        .filter(|job: &&Job| job.enabled)
        .collect();
    let mut hints = schedules(&jobs);
    hints.extend(clocks(&jobs, now));
    hints.extend(crowded(&jobs, now));
    hints
}

/// Names of jobs: all of a few, the first of many.
fn named(jobs: &[&Job]) -> String {
    const SHOWN: usize = 4;
    let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    match names.as_slice() {
        [only] => format!("job {only}"),
        few if few.len() <= SHOWN => format!("jobs {}", few.join(", ")),
        many => format!(
            "jobs {} and {} more",
            many[..SHOWN - 1].join(", "),
            many.len() - (SHOWN - 1)
        ),
    }
}

/// The hints about each schedule, given once for all jobs that share it.
fn schedules(jobs: &[&Job]) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    let mut by_text: HashMap<String, Vec<&Job>> = HashMap::new();
    for job in jobs {
        let text = job.schedule.to_string();
        let same = by_text.entry(text.clone()).or_default();
        if same.is_empty() {
            order.push(text);
        }
        same.push(job);
    }
    let mut hints = Vec::new();
    for text in order {
        let Some(jobs @ [first, ..]) = by_text.get(&text).map(Vec::as_slice) else {
            continue;
        };
        let steps = first.schedule.uneven_steps();
        let told = steps.iter().map(uneven).chain(lacking(&first.schedule));
        hints.extend(told.map(|hint| format!("{} (`{text}`): {hint}", named(jobs))));
    }
    hints
}

fn uneven(step: &UnevenStep) -> String {
    let UnevenStep {
        field,
        written,
        step,
        last,
        every,
    } = step;
    let way_out = every.as_ref().map_or_else(String::new, |every| {
        format!("; `every: {every}` keeps the distance")
    });
    match (*field, last) {
        (unit, Some(last)) => {
            let whole = match unit {
                "second" => "minute",
                "minute" => "hour",
                _ => "day",
            };
            let plural = if *last == 1 { "" } else { "s" };
            format!(
                "`{written}` is not every {step} {unit}s: it begins again with each {whole}, after \
                 a last step of {last} {unit}{plural}{way_out}"
            )
        }
        ("day-of-month", None) => format!(
            "`{written}` counts from the 1st of each month: the last step of a month is shorter, \
             down to one day"
        ),
        ("weekday", None) => format!("`{written}` counts from Sunday, and begins again with it"),
        ("month", None) => {
            format!("`{written}` counts from January, and begins again with each year")
        }
        (unit, None) => {
            format!("`{written}` is longer than the {unit} field: only {unit} 0 matches{way_out}")
        }
    }
}

fn lacking(schedule: &Schedule) -> Option<String> {
    const NAMES: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let months = schedule.months_without_day();
    let names: Vec<&str> = months
        .iter()
        .filter_map(|month| NAMES.get(*month as usize - 1).copied())
        .collect();
    match names.as_slice() {
        [] => None,
        // An expression that names February 29 is restricted to leap years on purpose.
        ["February"] if schedule.to_string().split(' ').rev().nth(1) == Some("2") => None,
        ["February"] => Some(
            "February does not have this day, but in leap years at most; `L` is the last day of \
             each month"
                .to_owned(),
        ),
        all if all.len() == 12 => {
            Some("many months have no such day, and then it does not run".to_owned())
        }
        some => Some(format!(
            "it does not run in {}, which have no such day; `L` is the last day of each month",
            listed(some)
        )),
    }
}

fn listed(names: &[&str]) -> String {
    match names {
        [head @ .., last] if !head.is_empty() => format!("{} and {last}", head.join(", ")),
        _ => names.concat(),
    }
}

/// What changes of the clock do within a year, each change once.
fn clocks(jobs: &[&Job], now: Timestamp) -> Vec<String> {
    let mut by_zone: BTreeMap<&str, (Tz, Vec<&Job>)> = BTreeMap::new();
    for job in jobs {
        let zone = job.schedule.zone();
        let entry = by_zone.entry(zone.name());
        entry.or_insert_with(|| (zone, Vec::new())).1.push(job);
    }
    let mut hints = Vec::new();
    for (zone, jobs) in by_zone.into_values() {
        for change in ClockChange::ahead(zone, now, YEAR) {
            let mut touched: BTreeMap<ChangeEffect, Vec<&Job>> = BTreeMap::new();
            for job in &jobs {
                if let Some(effect) = job.schedule.effect(&change) {
                    touched.entry(effect).or_default().push(job);
                }
            }
            for (effect, jobs) in touched {
                hints.push(changed(zone, &change, effect, &jobs));
            }
        }
    }
    hints
}

fn changed(zone: Tz, change: &ClockChange, effect: ChangeEffect, jobs: &[&Job]) -> String {
    let time = |at: &chrono::NaiveDateTime| at.format("%H:%M").to_string();
    let direction = if change.from < change.until {
        "jump"
    } else {
        "go back"
    };
    let (from, until) = (time(&change.from), time(&change.until));
    let one = jobs.len() == 1;
    let what = match effect {
        ChangeEffect::Moved if one => format!("it runs at {until} that day"),
        ChangeEffect::Moved => format!("they run at {until} that day"),
        ChangeEffect::Skipped => format!("occurrences between {from} and {until} do not come"),
        ChangeEffect::Doubled => format!("occurrences between {until} and {from} come twice"),
    };
    format!(
        "{}: the clocks of {} {direction} from {from} to {until} on {}; {what}",
        named(jobs),
        zone.name(),
        change.from.format("%Y-%m-%d")
    )
}

/// The fullest instant of the coming day, if it is very full.
fn crowded(jobs: &[&Job], now: Timestamp) -> Option<String> {
    // Jobs with the same schedule and delay share all instants.
    let mut same: HashMap<(String, &str, u128), Vec<&Job>> = HashMap::new();
    for job in jobs {
        let key = (
            job.schedule.to_string(),
            job.schedule.zone().name(),
            job.delay().as_millis(),
        );
        same.entry(key).or_default().push(job);
    }
    let most = if same.len() > SCHEDULES_MAX {
        1
    } else {
        OCCURRENCES_MAX
    };
    let mut at: HashMap<Timestamp, (usize, Vec<&Job>)> = HashMap::new();
    for jobs in same.values() {
        let Some(first) = jobs.first() else { continue };
        let coming = first.schedule.between(now, now.plus(DAY));
        for due in coming.take(most) {
            let (count, shown) = at.entry(due.plus(first.delay())).or_default();
            *count += jobs.len();
            shown.extend(jobs.iter().take(MANY - shown.len().min(MANY)));
        }
    }
    let (due, (count, mut shown)) = at
        .into_iter()
        .max_by_key(|(due, (count, _))| (*count, std::cmp::Reverse(*due)))?;
    if count < MANY {
        return None;
    }
    shown.sort_short_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
    let names: Vec<&str> = shown.iter().take(3).map(|job| job.name.as_str()).collect();
    Some(format!(
        "{count} jobs are due at {due}, among them {}: `jitter` spreads them (`jitter: 10m`, or \
         `jitter: auto` with `every`), `max_running` limits how many a host takes",
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(text: &str) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("jobs.yaml");
        std::fs::write(&path, text).expect("a file");
        let list = match crate::config::load(&path) {
            Ok(list) => list,
            Err(errors) => panic!("{errors}"),
        };
        let now = Timestamp::parse("2026-03-01T12:00:00Z").expect("a time");
        of(&list, now).join("\n")
    }

    #[test]
    fn what_may_surprise_is_told() {
        let text = "\
defaults: { timezone: Europe/Berlin }
jobs:
  - { name: seven, schedule: '*/7 * * * *', command: x }
  - { name: eight, schedule: '*/7 * * * *', command: x }
  - { name: ninety, schedule: '*/90 * * * *', command: x }
  - { name: five, schedule: '0 */5 * * mon', command: x }
  - { name: days, schedule: '0 12 */2 * *', command: x }
  - { name: ends, schedule: '0 12 31 * *', command: x }
  - { name: thirtieth, schedule: '0 12 30 * *', command: x }
  - { name: leap, schedule: '0 12 29 2 *', command: x }
  - { name: backup, schedule: '30 2 * * *', command: x }
  - { name: report, schedule: '45 2 * * *', command: x }
  - { name: poll, schedule: '*/15 2 * * *', command: x }
  - { name: off, schedule: '*/7 2 31 * *', command: x, enabled: false }
  - { name: plain, schedule: '*/15 * * * *', command: x }
  - { name: often, every: 5m, command: x }
";
        insta::assert_snapshot!(hints(text));
    }

    #[test]
    fn many_jobs_at_one_instant_are_told_unless_they_are_spread() {
        let list = |fields: &str, count: usize| {
            let jobs: Vec<String> = (0..count)
                .map(|n| format!("  - {{ name: j{n:02}, every: 1h, command: x{fields} }}\n"))
                .collect();
            hints(&format!("jobs:\n{}", jobs.concat()))
        };
        insta::assert_snapshot!(list("", 25));
        assert_eq!(list("", 19), "");
        assert_eq!(list(", jitter: auto", 25), "");
    }
}
