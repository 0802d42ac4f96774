//! What the policies of jobs mean, by their documentation.

use cronlatch::config::{CatchUp, OnOverlap, OnStoreDown};
use cronlatch::store::protocol::{
    REASON_NOT_NEWEST, REASON_OVERLAP, REASON_QUEUE_FULL, REASON_SUPERSEDED, REASON_TOO_LATE,
    REASON_WINDOW_OVER,
};
use cronlatch::store::{Kind, Outcome, Record};

use super::rules::{is_calm, is_forgotten, occurrences, records_of, rule_of, span_of};
use super::{Away, Dark, JobRule, Rule, SharedBy, Sight, Span, Story, Verdicts, Violation, Write};
use crate::support::runlog::Entry;

pub(super) const ALL: [fn(&Story) -> Vec<Violation>; 3] = [reasons, caught_up, too_late];

/// The usual `catch_up_window`, in milliseconds.
const WINDOW: i64 = 3_600_000;
/// How far a host's clock is set at most, in milliseconds; hosts judge the window by their own.
const STEPPED: i64 = 60_000;
/// How long a lock may be held before its run begins, and after the run has ended, in milliseconds.
const AROUND_RUN: i64 = 1_000;
/// How far apart two looks at a lock are at most, in milliseconds.
const LOOKS: i64 = 150;
/// By how much two instants of one decision may differ, in milliseconds.
const GRAIN: i64 = 20;
/// How long hosts claim what comes due before they know that the store is away, in milliseconds.
const NOT_NOTICED: i64 = 1_200;
/// How long it may take until the last daemon is dead, in milliseconds.
const DIES: i64 = 500;
/// How long before the end of a dark time a daemon may have been started, in milliseconds.
const STARTS: i64 = 1_000;

/// A skip or a miss names a reason that holds.
fn reasons(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    for record in story.records.iter().filter(|it| it.run_id.is_none()) {
        let (Some(job), Some(_)) = (rule_of(story, record.job.as_str()), record.scheduled_at)
        else {
            continue;
        };
        if let Some(why) = wrong_reason(story, job, record) {
            found.push(Violation {
                rule: Rule::Reason,
                at: span_of(record).until,
                text: format!("{why}: {record:?}"),
            });
        }
    }
    found
}

fn wrong_reason(story: &Story, job: &JobRule, record: &Record) -> Option<&'static str> {
    let reason = record.reason.as_deref().unwrap_or_default();
    // Of a range, the last one was decided when the record was written.
    let at = span_of(record).until;
    let decided = record
        .finished_at
        .map_or(at, cronlatch::time::Timestamp::millis);
    let catches_up = |how: CatchUp| job.may(|it| it.catch_up == how);
    let wrong = |holds: bool, why: &'static str| (!holds).then_some(why);
    let is_newer = at + job.interval <= decided + AROUND_RUN;
    match (record.outcome, reason) {
        (Outcome::Missed, REASON_TOO_LATE) => wrong(
            at + story.deadline <= decided,
            "its deadline had not passed",
        ),
        (Outcome::Missed, REASON_WINDOW_OVER) => wrong(
            at + WINDOW <= decided + STEPPED && !job.must(|it| it.catch_up == CatchUp::None),
            "its window had not passed",
        ),
        (Outcome::Missed, REASON_NOT_NEWEST) => {
            wrong(catches_up(CatchUp::Latest) && is_newer, "it was the newest")
        }
        (Outcome::Missed, _) if reason.contains("(catch_up: latest)") => wrong(
            catches_up(CatchUp::Latest),
            "the job has another `catch_up`",
        ),
        (Outcome::Missed, _) if reason.contains("(catch_up: none)") => {
            wrong(catches_up(CatchUp::None), "the job has another `catch_up`")
        }
        (Outcome::Missed, _) if reason.contains("(older than catch_up_window)") => wrong(
            at + WINDOW <= decided + STEPPED && catches_up(CatchUp::All),
            "its window had not passed",
        ),
        (Outcome::Skipped, REASON_OVERLAP) => wrong_overlap(story, job, at, decided),
        (Outcome::Skipped, REASON_SUPERSEDED) => {
            // What is caught up waits for its lock, and `latest` means the newest.
            let caught_up = record.kind == Kind::CatchUp && catches_up(CatchUp::Latest);
            let waits = job.may(|it| it.on_overlap == OnOverlap::Wait) || caught_up;
            wrong(waits, "the job does not wait").or(wrong(is_newer, "nothing is newer"))
        }
        (Outcome::Skipped, REASON_QUEUE_FULL) => {
            let queues = |it: &OnOverlap| matches!(it, OnOverlap::Queue { .. });
            wrong(
                job.may(|it| queues(&it.on_overlap)),
                "the job does not queue",
            )
        }
        (Outcome::Skipped, _) if reason.contains("on_store_down: skip") => wrong(
            job.may(|it| it.on_store_down == OnStoreDown::Skip),
            "the job has another `on_store_down`",
        ),
        (Outcome::Skipped, _) if reason.contains("while the store was unreachable") => wrong(
            job.may(|it| it.on_store_down == OnStoreDown::Run),
            "the job does not run without the store",
        ),
        _ => None,
    }
}

fn wrong_overlap(story: &Story, job: &JobRule, at: i64, decided: i64) -> Option<&'static str> {
    if job.shared_by == SharedBy::NobodyWithoutLock {
        return Some("the job takes no lock");
    }
    if !job.may(|it| it.on_overlap == OnOverlap::Skip) {
        return Some("the job does not skip");
    }
    // By the true clock; the record has that of a server.
    let asked = decided - story.clock_ahead - GRAIN;
    let then = Span {
        from: if story.votes {
            // Nodes are asked one after the other, some of them several times.
            asked.min(at - story.clock_ahead)
        } else {
            asked
        },
        until: decided - story.clock_behind + GRAIN,
    };
    let free = job.shared_by == SharedBy::Fleet
        && !is_unseen(story, job, then)
        && !was_run(story, job, then)
        && !was_seen_held(story, job, then);
    free.then_some("nobody held the lock")
}

/// Whether it cannot be known if a lock was held. A claim that was not answered, or whose host died,
/// holds a lock without a run: only who watches the lock knows, and not all locks are watched. After a
/// loss of data a lock that nothing shows may be held.
fn is_unseen(story: &Story, job: &JobRule, then: Span) -> bool {
    let watched = story.sightings.iter().any(|seen| seen.lock == job.lock);
    let calm = is_calm(story, then.from) && is_calm(story, then.until);
    story.forgotten.iter().any(|span| span.meets(then)) || !watched && !calm
}

/// Whether a run had the lock. That of a run which did not end by itself lasts until its lease ends.
fn was_run(story: &Story, job: &JobRule, then: Span) -> bool {
    story.runs.iter().any(|run| {
        let same = rule_of(story, &run.job).is_some_and(|it| it.lock == job.lock);
        let lease = if run.ended { 0 } else { story.ttl };
        let held = Span {
            from: run.start - AROUND_RUN,
            until: run.last_sign + lease + AROUND_RUN,
        };
        same && run.fence > 0 && held.meets(then)
    })
}

fn was_seen_held(story: &Story, job: &JobRule, then: Span) -> bool {
    let then = Span {
        from: then.from - LOOKS,
        until: then.until + LOOKS,
    };
    let mut seen = story.sightings.iter().filter(|it| it.lock == job.lock);
    seen.any(|seen| {
        let held = match &seen.sight {
            Sight::Look { key, beside, .. } => key.is_some() || beside.is_some(),
            Sight::Write { write, .. } => !matches!(write, Write::Delete),
            Sight::Unknown => false,
        };
        held && then.holds(seen.at)
    })
}

/// What came due while nobody could claim it: `all` leaves nothing out, `latest` runs the newest
/// alone.
fn caught_up(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    let read = |job: &&JobRule| job.verdicts == Verdicts::All && !job.runs_without_store;
    for job in story.jobs.iter().filter(read) {
        for dark in &story.dark {
            let dues = dues_in(story, job, *dark);
            if job.must(|it| it.catch_up == CatchUp::All) {
                found.extend(left_out(story, job, &dues));
            }
            if job.must(|it| it.catch_up == CatchUp::Latest) {
                found.extend(not_newest(story, job, &dues, *dark));
            }
        }
    }
    found
}

/// The occurrences that certainly nobody claimed at their time. What came due before the hosts noticed
/// that the store is away was claimed, and so the first one after it may have been: its claim stands
/// until it is answered. Nothing is known of occurrences around a loss of data.
fn dues_in(story: &Story, job: &JobRule, dark: Dark) -> Vec<i64> {
    let Dark { span, why } = dark;
    let (noticed, in_doubt) = match why {
        Away::Hosts => (DIES, 0),
        Away::Store => (NOT_NOTICED, 1),
    };
    // An instant by the clock of a server that is ahead comes earlier.
    let inside = Span {
        from: span.from + story.clock_ahead + noticed,
        until: span.until + story.clock_behind - STARTS,
    };
    let lost = story.forgotten.iter().any(|lost| lost.meets(span));
    if lost || inside.until < inside.from {
        return Vec::new();
    }
    occurrences(job, inside)
        .into_iter()
        .skip(in_doubt)
        .collect()
}

fn left_out(story: &Story, job: &JobRule, dues: &[i64]) -> Vec<Violation> {
    let missed = records_of(story, job).filter(|it| it.outcome == Outcome::Missed);
    let missed = missed.filter_map(|record| {
        let due = dues.iter().find(|due| span_of(record).holds(**due))?;
        Some(Violation {
            rule: Rule::CatchUp,
            at: *due,
            text: format!("{} due at {due}, with `all`: {record:?}", job.name),
        })
    });
    missed.collect()
}

fn not_newest(story: &Story, job: &JobRule, dues: &[i64], dark: Dark) -> Vec<Violation> {
    let Some((_, older)) = dues.split_last() else {
        return Vec::new();
    };
    let is_older = |run: &&Entry| {
        let due = run.scheduled.is_some_and(|due| older.contains(&due));
        run.job == job.name && run.fence > 0 && due
    };
    let runs = story.runs.iter().filter(is_older);
    runs.map(|run| Violation {
        rule: Rule::CatchUp,
        at: run.start,
        text: format!(
            "not the newest, with `latest`; dark {:?}: {run:?}",
            dark.span
        ),
    })
    .collect()
}

/// `none` starts nothing after the start deadline, except what is run again.
fn too_late(story: &Story) -> Vec<Violation> {
    let mut found = Vec::new();
    for run in story
        .runs
        .iter()
        .filter(|it| it.attempt == 1 && it.fence > 0)
    {
        let Some(due) = run.scheduled else { continue };
        let none =
            rule_of(story, &run.job).is_some_and(|job| job.must(|it| it.catch_up == CatchUp::None));
        let latest = due + story.deadline - story.clock_behind + AROUND_RUN;
        if none && run.start > latest && !is_forgotten(story, due) {
            found.push(Violation {
                rule: Rule::CatchUp,
                at: run.start,
                text: format!("later than its start deadline, with `none`: {run:?}"),
            });
        }
    }
    found
}
