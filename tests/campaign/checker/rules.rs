//! The rules, one function each: a story in, everything that breaks the rule out.

use std::collections::{BTreeMap, BTreeSet};

use cronlatch::store::{Outcome, Record};

use super::{JobRule, Rule, SharedBy, Span, Story, Verdicts, Violation};
use crate::support::runlog::Entry;

pub(super) const ALL: [fn(&Story) -> Vec<Violation>; 8] = [
    exclusion,
    once,
    early,
    missed,
    skipped_for_the_store,
    fencing,
    silence,
    untrue,
];

/// How long hosts take after a time without any of them until they have decided what came due, in
/// milliseconds: they wait for those whose clocks are behind.
const DECIDED: i64 = 6_000;

/// G1. A run lives from its beginning to its last sign of life, and no other run of its lock
/// begins in between.
fn exclusion(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    for runs in by_lock(story).values() {
        let mut longest: Option<&Entry> = None;
        for run in runs {
            if let Some(before) = longest
                && run.start < before.last_sign
                && run.run_id != before.run_id
            {
                found.push(Violation {
                    rule: Rule::Exclusion,
                    at: run.start,
                    text: format!("{before:?}\n  {run:?}"),
                });
            }
            if longest.is_none_or(|before| before.last_sign < run.last_sign) {
                longest = Some(run);
            }
        }
    }
    found
}

/// G2. Runs of one occurrence: one, and as many more as the job's reruns allow. A job that runs
/// without the store is asked only while everybody reaches it.
fn once(story: &Story) -> Vec<Violation> {
    let mut runs: BTreeMap<(&str, &str, i64), BTreeSet<&str>> = BTreeMap::new();
    let mut found = Vec::new();
    for run in &story.runs {
        let Some(due) = run.scheduled else { continue };
        let job = rule_of(story, &run.job);
        if job.is_some_and(|job| job.runs_without_store) && !is_calm(story, due) {
            continue;
        }
        let party = job.map_or("", |job| job.party(&run.host));
        let of = runs.entry((&run.job, party, due)).or_default();
        of.insert(&run.run_id);
        let allowed = 1 + job.map_or(0, |job| job.reruns() as usize);
        if of.len() > allowed {
            found.push(Violation {
                rule: Rule::Once,
                at: run.start,
                text: format!("the {}. run of {} due at {due}: {run:?}", of.len(), run.job),
            });
        }
    }
    found
}

/// G2. Nothing begins before it is due, by the clock of any server. What runs without the store
/// knows only what its host measured of that clock.
fn early(story: &Story) -> Vec<Violation> {
    let without_store = |run: &Entry| {
        let job = rule_of(story, &run.job);
        run.fence == 0 && job.is_some_and(|job| job.runs_without_store)
    };
    let runs = story.runs.iter().filter(|run| !without_store(run));
    runs.filter(|run| {
        run.scheduled
            .is_some_and(|due| run.start + story.clock_ahead < due)
    })
    .map(|run| Violation {
        rule: Rule::Early,
        at: run.start,
        text: format!("{run:?}"),
    })
    .collect()
}

/// G3. What came due in a quiet time is neither missed nor unknown.
fn missed(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    for job in story
        .jobs
        .iter()
        .filter(|job| job.verdicts == Verdicts::All)
    {
        for record in records_of(story, job) {
            if !matches!(record.outcome, Outcome::Missed | Outcome::Unknown) {
                continue;
            }
            let dues = occurrences(job, span_of(record));
            let quiet = dues
                .into_iter()
                .find(|due| story.quiet.iter().any(|span| span.holds(*due)));
            if let Some(due) = quiet {
                found.push(Violation {
                    rule: Rule::Missed,
                    at: due,
                    text: format!("{} due at {due}: {record:?}", job.name),
                });
            }
        }
    }
    found
}

/// `on_store_down: skip`: only while the store is down for every host. In a quiet time it was up for
/// one of them, and that one runs what the others gave up.
fn skipped_for_the_store(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    for job in &story.jobs {
        for record in records_of(story, job) {
            let reason = record.reason.as_deref().unwrap_or_default();
            if record.outcome != Outcome::Skipped || !reason.contains("on_store_down: skip") {
                continue;
            }
            let dues = occurrences(job, span_of(record));
            let quiet = |due: &i64| story.quiet.iter().any(|span| span.holds(*due));
            if let Some(due) = dues.into_iter().find(quiet) {
                found.push(Violation {
                    rule: Rule::Missed,
                    at: due,
                    text: format!("{} due at {due}: {record:?}", job.name),
                });
            }
        }
    }
    found
}

/// G6. From run to run of a lock the fencing token grows.
fn fencing(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    for runs in by_lock(story).values() {
        for pair in runs.windows(2) {
            if let [before, run] = pair
                && run.run_id != before.run_id
                && run.fence <= before.fence
            {
                found.push(Violation {
                    rule: Rule::Fencing,
                    at: run.start,
                    text: format!("{before:?}\n  {run:?}"),
                });
            }
        }
    }
    found
}

/// G7. Every occurrence of the decided time has a verdict, and every run has one of its own.
fn silence(story: &Story) -> Vec<Violation> {
    let Some(decided) = story.decided else {
        return Vec::new();
    };
    let forgotten = |at: i64| is_forgotten(story, at);
    // A long run, or one with several attempts, has its record long after it was due: that may be lost
    // although the occurrence came due well before.
    let mut ends: BTreeMap<&str, i64> = BTreeMap::new();
    for run in &story.runs {
        let end = ends.entry(&run.run_id).or_insert(run.last_sign);
        *end = run.last_sign.max(*end);
    }
    let lost_at_its_end = |run: &Entry| {
        ends.get(run.run_id.as_str())
            .is_some_and(|end| forgotten(*end))
    };
    let mut found = Vec::new();
    for job in &story.jobs {
        let spans: Vec<Span> = records_of(story, job).map(span_of).collect();
        if job.verdicts != Verdicts::All {
            continue;
        }
        for due in occurrences(job, decided) {
            let mut runs = story.runs.iter();
            let lost = runs.any(|run| {
                run.job == job.name && run.scheduled == Some(due) && lost_at_its_end(run)
            });
            let lost = lost || was_decided_late_and_lost(story, due);
            if !forgotten(due) && !lost && !spans.iter().any(|span| span.holds(due)) {
                found.push(Violation {
                    rule: Rule::Silence,
                    at: due,
                    text: format!("{} due at {due} has no record", job.name),
                });
            }
        }
    }
    let recorded: BTreeSet<&str> = story
        .records
        .iter()
        .filter_map(|record| record.run_id.as_ref().map(cronlatch::names::RunId::as_str))
        .collect();
    for run in &story.runs {
        let is_due = run
            .scheduled
            .is_some_and(|due| decided.holds(due) && !forgotten(due) && !lost_at_its_end(run));
        let job = rule_of(story, &run.job);
        let is_read = job.is_none_or(|job| job.verdicts != Verdicts::None);
        if is_due && is_read && !recorded.contains(run.run_id.as_str()) {
            found.push(Violation {
                rule: Rule::Silence,
                at: run.start,
                text: format!("a run has no record: {run:?}"),
            });
        }
    }
    found
}

/// What came due while nobody could claim anything has its verdict a while after that time, and so a
/// loss of data may take the verdict although the occurrence came due well before it.
fn was_decided_late_and_lost(story: &Story, due: i64) -> bool {
    story.dark.iter().any(|dark| {
        let came_due = Span {
            from: dark.span.from + story.clock_behind,
            until: dark.span.until + story.clock_ahead,
        };
        let decided = Span {
            from: dark.span.until,
            until: dark.span.until + DECIDED,
        };
        came_due.holds(due) && story.forgotten.iter().any(|lost| lost.meets(decided))
    })
}

/// G7. No record of a run that never began, nor of one that is said not to have been started. What
/// was forgotten with the store's data cannot be told truly afterwards.
fn untrue(story: &Story) -> Vec<Violation> {
    let began: BTreeMap<&str, &Entry> = story
        .runs
        .iter()
        .map(|run| (run.run_id.as_str(), run))
        .collect();
    // What one host of several with ledgers of their own did not run, another may have run.
    let party = |job: &str, host: &str| {
        rule_of(story, job).map_or_else(String::new, |job| job.party(host).to_owned())
    };
    let started: BTreeSet<(&str, String, i64)> = story
        .runs
        .iter()
        .filter_map(|run| Some((run.job.as_str(), party(&run.job, &run.host), run.scheduled?)))
        .collect();
    let mut found = Vec::new();
    for record in &story.records {
        let by = record.host.as_ref().map_or("", |host| host.as_str());
        let by = party(record.job.as_str(), by);
        let at = span_of(record).from;
        let run_id = record.run_id.as_ref().map(cronlatch::names::RunId::as_str);
        let wrong = match record.outcome {
            // It says that the command came to a good end of its own.
            Outcome::Succeeded => {
                let run = run_id.and_then(|id| began.get(id));
                let fails = |run: &Entry| {
                    let job = rule_of(story, &run.job);
                    let due = run.scheduled.unwrap_or(run.start);
                    job.is_some_and(|job| (job.fails)(due, run.attempt))
                };
                run.is_none_or(|run| !run.ended || fails(run))
            }
            Outcome::Skipped | Outcome::Missed => {
                let job = rule_of(story, record.job.as_str());
                job.is_some_and(|job| {
                    // A host without the store may run what the others skip.
                    let is_asked = |due: &i64| !job.runs_without_store || is_calm(story, *due);
                    let mut dues = occurrences(job, span_of(record)).into_iter();
                    dues.any(|due| is_asked(&due) && started.contains(&(job.name, by.clone(), due)))
                })
            }
            _ => false,
        };
        let forgotten = story.forgotten.iter().any(|span| span.holds(at));
        if wrong && !forgotten {
            found.push(Violation {
                rule: Rule::Untrue,
                at,
                text: format!("{record:?}"),
            });
        }
    }
    found
}

/// Whether the store lost data around then.
pub(super) fn is_forgotten(story: &Story, at: i64) -> bool {
    story.forgotten.iter().any(|span| span.holds(at))
}

/// Whether nobody was troubled then.
pub(super) fn is_calm(story: &Story, at: i64) -> bool {
    story.calm.iter().any(|span| span.holds(at))
}

pub(super) fn rule_of<'a>(story: &'a Story, name: &str) -> Option<&'a JobRule> {
    story.jobs.iter().find(|job| job.name == name)
}

pub(super) fn records_of<'a>(
    story: &'a Story,
    job: &'a JobRule,
) -> impl Iterator<Item = &'a Record> {
    let records = story.records.iter();
    records.filter(|record| record.job.as_str() == job.name && record.scheduled_at.is_some())
}

pub(super) fn span_of(record: &Record) -> Span {
    let from = record
        .scheduled_at
        .map_or(0, cronlatch::time::Timestamp::millis);
    let until = record
        .until
        .map_or(from, cronlatch::time::Timestamp::millis);
    Span { from, until }
}

/// The job's instants within a span.
pub(super) fn occurrences(job: &JobRule, span: Span) -> Vec<i64> {
    let first = span.from.div_euclid(job.interval) * job.interval;
    let steps = (0..).map(|n| first + n * job.interval);
    steps
        .take_while(|due| *due <= span.until)
        .filter(|due| span.holds(*due))
        .collect()
}

/// The runs under each lock, in the order in which they began; those without a lock left out.
fn by_lock(story: &Story) -> BTreeMap<(&str, &str), Vec<&Entry>> {
    let mut locks: BTreeMap<(&str, &str), Vec<&Entry>> = BTreeMap::new();
    for run in story.runs.iter().filter(|run| run.fence > 0) {
        if let Some(job) = rule_of(story, &run.job)
            && job.shared_by != SharedBy::NobodyWithoutLock
        {
            let lock = (job.lock, job.party(&run.host));
            locks.entry(lock).or_default().push(run);
        }
    }
    for runs in locks.values_mut() {
        runs.sort_by_key(|run| (run.start, run.fence));
    }
    locks
}
