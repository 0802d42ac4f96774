//! Explains instants that the history, the ledger or the schedule alone decide.

use super::explanation::{ExplainAnswer, Explanation, RunFact, begin};
use super::facts::OccurrenceFacts;
use super::hosts::decisions;
use super::undecided::pause_at;
use crate::cli::history;
use crate::config::show_duration;
use crate::names::HostName;
use crate::schedule::Mismatch;
use crate::store::{Kind, Outcome};
use crate::time::Timestamp;

/// The history has a verdict.
pub(super) fn of_record(facts: &OccurrenceFacts, at: Timestamp) -> Option<Explanation> {
    let record = facts.record_of(at)?;
    let host = record
        .host
        .as_ref()
        .map_or("an unknown host", HostName::as_str);
    let reason = record
        .reason
        .as_ref()
        .map_or_else(String::new, |why| format!(": {why}"));
    let word = record.outcome.word();
    let ran = record.started_at.is_some();
    let (answer, text) = match record.outcome {
        Outcome::Skipped => (
            ExplainAnswer::Skipped,
            format!("skipped by host {host}{reason}"),
        ),
        Outcome::Missed => (
            ExplainAnswer::Missed,
            format!("missed, recorded by host {host}{reason}"),
        ),
        Outcome::Unknown if !ran => (ExplainAnswer::Unknown, format!("unknown{reason}")),
        _ => (
            ExplainAnswer::Ran,
            format!("ran on host {host}: {word}{reason}"),
        ),
    };
    let pause = pause_at(facts, at).filter(|_| answer == ExplainAnswer::Skipped);
    let answer = pause.map_or(answer, |_| ExplainAnswer::Paused);
    let mut explanation = begin(facts, at, answer, text);
    let winner = (answer == ExplainAnswer::Ran).then_some(host);
    explanation.hosts = decisions(facts, at, winner);
    explanation.run = Some(RunFact::of(record));
    if let (Some(count), Some(from), Some(until)) =
        (record.count, record.scheduled_at, record.until)
    {
        explanation.details.push(format!(
            "one record stands for {count} occurrences, from {from} to {until}"
        ));
    }
    if answer == ExplainAnswer::Ran {
        explanation.explain_delay(facts, (at, record.kind), record.started_at);
    }
    if answer == ExplainAnswer::Skipped && record.by.is_some() {
        explanation.add_holder(facts, record);
    }
    if let Some(usage) = &record.usage {
        let (cpu, memory) = (history::cpu(usage), history::memory(usage));
        explanation.details.push(format!(
            "it used {cpu} of CPU time and at most {memory} of memory"
        ));
    }
    if record.attempts > 1 {
        let attempts = record.attempts;
        explanation
            .details
            .push(format!("it took {attempts} attempts"));
    }
    if facts.job.schedule.mismatch(at).is_some() {
        let text = if record.count.is_some() {
            "the schedule of this list does not have this instant: it lies between two of these \
             occurrences, or was due by an earlier schedule"
        } else {
            "the schedule of this list does not have this instant: it was due by an earlier one"
        };
        explanation.details.push(text.to_owned());
    }
    Some(explanation)
}

/// It runs now.
pub(super) fn of_open_run(facts: &OccurrenceFacts, at: Timestamp) -> Option<Explanation> {
    let open = facts.report.open.as_ref()?;
    if open.scheduled_at != Some(at) {
        return None;
    }
    let since = open.started_at;
    let text = format!("runs on host {} since {since}", open.by);
    let mut explanation = begin(facts, at, ExplainAnswer::Running, text);
    explanation.hosts = decisions(facts, at, Some(&open.by));
    explanation.run = Some(open_fact(facts));
    explanation.explain_delay(facts, (at, Kind::Schedule), Some(since));
    if open.remaining.is_zero() {
        explanation.details.push(format!(
            "its lease has expired without a result: host {} does not respond, and another host \
             records this run as interrupted or reruns it",
            open.by
        ));
    }
    Some(explanation)
}

fn open_fact(facts: &OccurrenceFacts) -> RunFact {
    let open = facts.report.open.as_ref();
    RunFact {
        job: facts.job.name.to_string(),
        run_id: open.map(|open| open.run_id.to_string()),
        host: open.map(|open| open.by.clone()),
        started_at: open.map(|open| open.started_at),
        finished_at: None,
        outcome: None,
        usage: None,
    }
}

/// The ledger has accepted it.
pub(super) fn of_waiting(facts: &OccurrenceFacts, at: Timestamp) -> Option<Explanation> {
    let mut waiting = facts.report.waiting.iter().enumerate();
    let (place, head) = waiting.find(|(_, head)| head.scheduled_at == at)?;
    let what = match head.kind {
        Kind::Rerun => "to be run again, because its first run did not end",
        _ => "for its lock",
    };
    let text = format!("waits {what}, until {} at the latest", head.deadline);
    let mut explanation = begin(facts, at, ExplainAnswer::Waiting, text);
    if place > 0 {
        explanation
            .details
            .push(format!("{place} other occurrences are before it"));
    }
    explanation.add_current_holder(facts);
    Some(explanation)
}

/// The schedule does not have it.
pub(super) fn of_schedule(facts: &OccurrenceFacts, at: Timestamp) -> Option<Explanation> {
    let schedule = &facts.job.schedule;
    let (field, why) = match schedule.mismatch(at)? {
        Mismatch::Field { name, wants, is } => {
            let zone = schedule.zone();
            let why = match wants {
                Some(wants) => format!(
                    "the {name} of `{schedule}` is `{wants}`, and at this instant it is {is} ({zone})"
                ),
                None => format!(
                    "at this instant the {name} is {is} ({zone}), which `{schedule}` does not have"
                ),
            };
            (Some(name), why)
        }
        Mismatch::ClockChange => (
            None,
            format!(
                "a clock change in {} moves or repeats this local time",
                schedule.zone()
            ),
        ),
        Mismatch::Period(period) => (
            Some("every"),
            format!(
                "it is not a multiple of {}, counted from 1970-01-01T00:00:00Z",
                show_duration(period)
            ),
        ),
    };
    let mut explanation = begin(facts, at, ExplainAnswer::NotDue, format!("not due: {why}"));
    explanation.field = field;
    explanation.hosts.clear();
    let by_hand = facts.records.iter().find(|record| {
        let from = record.started_at.is_some_and(|from| from <= at);
        record.kind == Kind::Manual && from && record.finished_at.is_some_and(|to| at <= to)
    });
    if let Some(record) = by_hand {
        let run = RunFact::of(record).named();
        explanation
            .details
            .push(format!("{run} was in progress, started by hand"));
    }
    Some(explanation)
}
