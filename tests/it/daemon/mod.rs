//! The main job: from a list to runs that happen once.

mod ahead;
mod blast;
mod burst;
mod clocks;
mod crash;
mod fleet;
mod journal;
mod loss;
mod manual;
mod moves;
mod moving;
mod namesakes;
mod outage;
mod pause;
mod policies;
mod process;
mod registry;
mod reload;
mod requests;
mod resources;
mod shared_keys;
mod siblings;
mod stop;
mod waiting;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::Value;

use crate::support::Daemon;

/// What the history of a job says, oldest first.
#[track_caller]
fn records(daemon: &Daemon, job: &str) -> Vec<Value> {
    let output = daemon.ask(&["history", "--json", job]);
    let mut records = output.expect_code(0).json_lines();
    records.sort_by_key(|record| instant(&record["scheduled_at"]));
    records
}

/// Waits until the history of a job has a record that fits, and answers it.
#[track_caller]
fn wait_record(daemon: &mut Daemon, job: &str, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let mut found = None;
    daemon.wait_until(&format!("{job} has a record: {what}"), |daemon| {
        found = records(daemon, job).into_iter().find(|record| fits(record));
        found.is_some()
    });
    found.expect("it was waited for")
}

#[track_caller]
fn wait_outcome(daemon: &mut Daemon, job: &str, outcome: &str) -> Value {
    wait_record(daemon, job, outcome, |record| record["outcome"] == outcome)
}

fn instant(value: &Value) -> Option<DateTime<Utc>> {
    value.as_str()?.parse().ok()
}

fn has(value: &Value, text: &str) -> bool {
    value.as_str().is_some_and(|value| value.contains(text))
}

/// The verdicts of a job that is due every second, by second; fails when a second has several.
#[track_caller]
fn verdicts(records: &[Value]) -> BTreeMap<i64, String> {
    let mut verdicts = BTreeMap::new();
    for record in records {
        let Some(from) = instant(&record["scheduled_at"]) else {
            continue;
        };
        let until = instant(&record["until"]).unwrap_or(from);
        for second in from.timestamp()..=until.timestamp() {
            let outcome = record["outcome"].as_str().expect("an outcome").to_owned();
            let before = verdicts.insert(second, outcome);
            assert_eq!(before, None, "two verdicts of {second}: {records:#?}");
        }
    }
    verdicts
}

/// Every second between the first and the last verdict has one (G7).
#[track_caller]
fn assert_no_silence(records: &[Value]) {
    if let Some(second) = silent_second(records) {
        panic!("{second} has no verdict: {records:#?}");
    }
}

/// The first second between the first and the last verdict that has none: it still waits, or it was
/// lost.
#[track_caller]
fn silent_second(records: &[Value]) -> Option<i64> {
    let verdicts = verdicts(records);
    let (Some(first), Some(last)) = (verdicts.keys().next(), verdicts.keys().last()) else {
        panic!("no records at all");
    };
    (*first..=*last).find(|second| !verdicts.contains_key(second))
}
