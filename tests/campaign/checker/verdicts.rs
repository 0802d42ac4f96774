//! G7: a run and an occurrence have one verdict, and it stays.
//!
//! Only what one reading of the history said at once can contradict itself: a record that was read
//! earlier may have been merged with another one since.

use std::collections::BTreeMap;

use cronlatch::store::Record;
use cronlatch::store::protocol::is_provisional;

use super::rules::{is_calm, is_forgotten, occurrences, rule_of, span_of};
use super::{JobRule, Rule, SharedBy, Story, Violation};

pub(super) const ALL: [fn(&Story) -> Vec<Violation>; 2] = [two_verdicts, changed];

fn two_verdicts(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    for reading in &story.readings {
        for job in &story.jobs {
            found.extend(two_verdicts_in(story, job, reading));
        }
    }
    found
}

fn two_verdicts_in(story: &Story, job: &JobRule, reading: &[Record]) -> Vec<Violation> {
    let mut found = Vec::new();
    if job.shared_by != SharedBy::Fleet {
        return found;
    }
    let mut report = |due: i64, one: &Record, other: &Record| {
        if !is_excused(story, job, due, [one, other]) {
            found.push(violation(job, due, one, other));
        }
    };
    let of_job = || {
        let records = reading.iter();
        records.filter(|it| it.job.as_str() == job.name && it.scheduled_at.is_some())
    };
    let mut runs: BTreeMap<&str, &Record> = BTreeMap::new();
    let mut ran: BTreeMap<i64, &Record> = BTreeMap::new();
    for record in of_job() {
        let Some(run) = &record.run_id else { continue };
        let due = span_of(record).from;
        // A result replaces the provisional record, so that it is not there any more.
        if let Some(other) = runs.insert(run.as_str(), record) {
            report(due, other, record);
        }
        if !is_provisional(record) {
            ran.insert(due, record);
        }
    }
    let mut not_started: BTreeMap<i64, &Record> = BTreeMap::new();
    for record in of_job().filter(|it| it.run_id.is_none()) {
        for due in occurrences(job, span_of(record)) {
            let other = not_started.insert(due, record);
            for other in other.into_iter().chain(ran.get(&due).copied()) {
                report(due, other, record);
            }
        }
    }
    found
}

/// The result of a run is final: no later reading has another one.
fn changed(story: &Story) -> Vec<Violation> {
    let mut results: BTreeMap<&str, &Record> = BTreeMap::new();
    let mut found = Vec::new();
    for record in story.readings.iter().flatten() {
        let (Some(run), Some(job)) = (&record.run_id, rule_of(story, record.job.as_str())) else {
            continue;
        };
        let before = if is_provisional(record) {
            results.get(run.as_str()).copied()
        } else {
            results.insert(run.as_str(), record)
        };
        let is_other = |before: &&Record| {
            (before.outcome, before.attempts) != (record.outcome, record.attempts)
        };
        let due = span_of(record).from;
        if let Some(before) = before.filter(is_other)
            && !is_excused(story, job, due, [before, record])
        {
            found.push(violation(job, due, before, record));
        }
    }
    found
}

fn violation(job: &JobRule, due: i64, one: &Record, other: &Record) -> Violation {
    Violation {
        rule: Rule::TwoVerdicts,
        at: due,
        text: format!("{} due at {due}: {one:?}\n  {other:?}", job.name),
    }
}

/// What was recorded around a loss of data may be lost, and decided once more. Only its host knows of
/// a run without the store until it reaches it again; others decide the occurrence meanwhile.
fn is_excused(story: &Story, job: &JobRule, due: i64, records: [&Record; 2]) -> bool {
    let finished = records.map(|it| {
        it.finished_at
            .map_or(due, cronlatch::time::Timestamp::millis)
    });
    let lost = [due].into_iter().chain(finished);
    lost.into_iter().any(|at| is_forgotten(story, at))
        || job.runs_without_store && !is_calm(story, due)
}
