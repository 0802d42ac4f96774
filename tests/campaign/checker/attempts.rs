//! In which order occurrences run, and how their attempts are counted.

use std::collections::{BTreeMap, BTreeSet};

use cronlatch::names::RunId;
use cronlatch::store::protocol::is_provisional;
use cronlatch::store::{Outcome, Record};

use super::rules::{is_calm, is_forgotten, records_of, rule_of, span_of};
use super::{JobRule, Rule, SharedBy, Span, Story, Violation};
use crate::support::runlog::Entry;

pub(super) const ALL: [fn(&Story) -> Vec<Violation>; 4] = [order, attempts, counted, given_up];

/// Granted runs of a job begin in the order of their occurrences; what is run again goes before
/// what is newer.
fn order(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    for job in story
        .jobs
        .iter()
        .filter(|it| it.shared_by == SharedBy::Fleet)
    {
        // A retry belongs to a run that began in order.
        let mut seen = BTreeSet::new();
        let first = granted(story, job).filter(|run| seen.insert(&run.run_id));
        let mut newest: Option<&Entry> = None;
        for run in first {
            if let Some(before) = newest
                && run.scheduled < before.scheduled
                && !is_lost_within(story, (run.scheduled.unwrap_or(run.start), run.start))
            {
                found.push(violation(Rule::Order, run, &format!("after {before:?}")));
            }
            if newest.is_none_or(|before| before.scheduled < run.scheduled) {
                newest = Some(run);
            }
        }
    }
    found
}

/// A store that loses its data after an occurrence came due may forget that newer ones have begun, and
/// which attempts were made.
fn is_lost_within(story: &Story, (from, until): (i64, i64)) -> bool {
    let since = Span { from, until };
    story.forgotten.iter().any(|span| span.meets(since))
}

/// The attempts of an occurrence count up; a run has a further one only after one that failed, and
/// only as many as `retry` allows.
fn attempts(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    for job in &story.jobs {
        let mut occurrences: BTreeMap<(&str, i64), Vec<&Entry>> = BTreeMap::new();
        for run in granted(story, job) {
            let Some(due) = run.scheduled else { continue };
            let of = occurrences.entry((job.party(&run.host), due)).or_default();
            of.push(run);
        }
        for ((_, due), entries) in occurrences {
            let last = entries.iter().map(|it| it.last_sign).max();
            // A crash is noticed when the lease is over.
            if is_lost_within(story, (due, last.unwrap_or(due) + story.ttl)) {
                continue;
            }
            let before = [None].into_iter().chain(entries.iter().copied().map(Some));
            for (before, next) in before.zip(&entries) {
                if let Some(why) = wrong_attempt(story, job, before, next) {
                    let text = format!("{why}, after {before:?}");
                    found.push(violation(Rule::Attempts, next, &text));
                }
            }
        }
    }
    found
}

fn wrong_attempt(
    story: &Story,
    job: &JobRule,
    before: Option<&Entry>,
    next: &Entry,
) -> Option<&'static str> {
    let due = next.scheduled?;
    if next.attempt > job.attempts() + job.reruns() {
        return Some("more attempts than `retry` and reruns allow");
    }
    if let Some(before) = before.filter(|it| it.run_id == next.run_id) {
        return if next.attempt != before.attempt + 1 {
            Some("an attempt that is not the next one")
        } else if next.start < before.last_sign {
            Some("two attempts at once")
        } else if next.attempt > job.attempts() {
            Some("more attempts than `retry` allows")
        } else if !before.ended || !(job.fails)(due, before.attempt) {
            Some("a further attempt although the one before did not fail")
        } else {
            None
        };
    }
    let expected = before.map_or(1, |before| before.attempt + 1);
    let slack = not_begun(story, job, due) + before.map_or(0, |it| counted_ahead(job, it));
    if next.attempt < expected {
        Some("a rerun repeats the number of an attempt")
    } else if next.attempt > expected + slack {
        Some("attempts are left out")
    } else if next.attempt > job.attempts() && job.must(|it| it.attempts > 1) {
        Some("a rerun although `retry` allows no further attempt")
    } else {
        None
    }
}

/// A run that was granted to a host which died before the command began counts as an attempt.
/// Returns how many the history names for an occurrence.
fn not_begun(story: &Story, job: &JobRule, due: i64) -> u32 {
    let begun = |id: &RunId| story.runs.iter().any(|run| run.run_id == id.as_str());
    let of_due = records_of(story, job).filter(|it| span_of(it).from == due);
    let not_begun = of_due.filter(|it| it.run_id.as_ref().is_some_and(|id| !begun(id)));
    u32::try_from(not_begun.count()).unwrap_or(u32::MAX)
}

/// An attempt is counted just before it starts: if its host dies, or is cut off, in between, one more
/// is counted than began.
fn counted_ahead(job: &JobRule, last: &Entry) -> u32 {
    let due = last.scheduled.unwrap_or(last.start);
    let goes_on = (job.fails)(due, last.attempt) && last.attempt < job.attempts();
    u32::from(last.ended && goes_on)
}

/// The record of a run names as many attempts as were started.
fn counted(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    for record in &story.records {
        let Some((job, first, last)) = begun(story, record) else {
            continue;
        };
        let due = last.scheduled.unwrap_or(last.start);
        let finished = record
            .finished_at
            .map_or(due, cronlatch::time::Timestamp::millis);
        if is_lost_within(story, (due, finished.max(last.last_sign))) {
            continue;
        }
        let least = if may_lack_attempts(job, record) {
            first.attempt
        } else {
            last.attempt
        };
        let most = match record.outcome {
            Outcome::Succeeded => last.attempt,
            _ => last.attempt + counted_ahead(job, last),
        };
        if !(least..=most).contains(&record.attempts) {
            let text = format!("the record counts {}: {record:?}", record.attempts);
            found.push(violation(Rule::Attempts, last, &text));
        }
    }
    found
}

/// Only of a run that may be run again does the store confirm each attempt before it starts. Of any
/// other run that its host did not report, the record names the attempts that the store received.
fn may_lack_attempts(job: &JobRule, record: &Record) -> bool {
    is_provisional(record) && job.may(|it| it.reruns() == 0)
}

/// A failed run had all its attempts, unless its host was disturbed: a daemon that stops makes none.
fn given_up(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    for record in &story.records {
        let Some((job, _, last)) = begun(story, record) else {
            continue;
        };
        let due = last.scheduled.unwrap_or(last.start);
        let is_calm = is_calm(story, due) && is_calm(story, last.last_sign);
        let early = job.must(|it| record.attempts < it.attempts);
        if record.outcome == Outcome::Failed && early && is_calm && !is_forgotten(story, due) {
            let text = format!("no further attempt: {record:?}");
            found.push(violation(Rule::Attempts, last, &text));
        }
    }
    found
}

/// The job of a record, and the first and the last attempt of its run that began.
fn begun<'a>(story: &'a Story, record: &Record) -> Option<(&'a JobRule, &'a Entry, &'a Entry)> {
    let run = record.run_id.as_ref()?;
    let job = rule_of(story, record.job.as_str())?;
    let of_run = || story.runs.iter().filter(|it| it.run_id == run.as_str());
    let first = of_run().min_by_key(|it| it.attempt)?;
    let last = of_run().max_by_key(|it| it.attempt)?;
    Some((job, first, last))
}

/// The attempts of a job's granted runs, in the order in which they began.
fn granted<'a>(story: &'a Story, job: &JobRule) -> impl Iterator<Item = &'a Entry> {
    let is_granted = |run: &&Entry| run.job == job.name && run.fence > 0;
    let mut runs: Vec<&Entry> = story.runs.iter().filter(is_granted).collect();
    runs.sort_by_key(|run| (run.start, run.fence));
    runs.into_iter()
}

fn violation(rule: Rule, run: &Entry, text: &str) -> Violation {
    Violation {
        rule,
        at: run.start,
        text: format!("{run:?}\n  {text}"),
    }
}
