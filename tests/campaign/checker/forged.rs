//! The checker on forged stories: a true one passes, and each kind of lie is caught.

use cronlatch::config::{OnCrash, OnStoreDown};
use cronlatch::names::{HostName, JobName, RunId};
use cronlatch::store::{Kind, Outcome, Record};
use cronlatch::time::Timestamp;

use super::{JobRule, Rule, SharedBy, Span, Story, Verdicts};
use crate::policies::Policies;
use crate::support::runlog::Entry;

const JOBS: [JobRule; 3] = [
    rule("beat", "beat", 1_000, Policies::DEFAULT),
    rule(
        "left",
        "pair",
        2_000,
        Policies {
            on_crash: OnCrash::Rerun { max_reruns: 1 },
            ..Policies::DEFAULT
        },
    ),
    rule("right", "pair", 4_000, Policies::DEFAULT),
];

const fn rule(
    name: &'static str,
    lock: &'static str,
    interval: i64,
    policies: Policies,
) -> JobRule {
    JobRule {
        name,
        lock,
        interval,
        policies: [policies; 2],
        fails: JobRule::never,
        shared_by: SharedBy::Fleet,
        runs_without_store: false,
        verdicts: Verdicts::All,
    }
}

pub(super) fn run(job: &str, due: i64, start: i64, end: i64) -> Entry {
    Entry {
        job: job.to_owned(),
        run_id: format!("{job}-{due}-{start}"),
        host: "h1".to_owned(),
        fence: u64::try_from(start).unwrap() * 1_000,
        attempt: 1,
        scheduled: Some(due),
        pid: 1,
        start,
        last_sign: end,
        ended: true,
    }
}

pub(super) fn record(run: &Entry, outcome: Outcome) -> Record {
    Record {
        run_id: Some(RunId::from_text(&run.run_id)),
        scheduled_at: run.scheduled.map(Timestamp::from_millis),
        started_at: Some(Timestamp::from_millis(run.start)),
        finished_at: Some(Timestamp::from_millis(run.last_sign)),
        host: Some(HostName::parse(&run.host).unwrap()),
        exit_code: Some(0),
        attempts: run.attempt,
        fence: Some(run.fence),
        ..Record::blank(JobName::parse(&run.job).unwrap(), Kind::Schedule, outcome)
    }
}

pub(super) fn not_run(job: &str, due: i64, outcome: Outcome) -> Record {
    Record {
        run_id: None,
        started_at: None,
        exit_code: None,
        fence: None,
        attempts: 0,
        ..record(&run(job, due, due, due), outcome)
    }
}

/// Twelve seconds in which everything went well.
fn truth() -> Story {
    let mut runs = Vec::new();
    for due in (1_000..=12_000).step_by(1_000) {
        runs.push(run("beat", due, due + 5, due + 60));
    }
    for due in (2_000..=12_000).step_by(2_000) {
        runs.push(run("left", due, due + 5, due + 200));
    }
    for due in (4_000..=12_000).step_by(4_000) {
        runs.push(run("right", due, due + 210, due + 900));
    }
    let records = runs.iter().map(|run| record(run, Outcome::Succeeded));
    let records: Vec<Record> = records.collect();
    Story {
        jobs: JOBS.to_vec(),
        readings: vec![records.clone()],
        records,
        runs,
        faults: Vec::new(),
        decided: Some(Span {
            from: 1_000,
            until: 12_000,
        }),
        quiet: vec![Span {
            from: 0,
            until: 12_000,
        }],
        calm: vec![Span {
            from: 0,
            until: 12_000,
        }],
        dark: Vec::new(),
        forgotten: Vec::new(),
        clock_ahead: 0,
        clock_behind: 0,
        clock_spread: 0,
        sightings: Vec::new(),
        votes: false,
        deaths: Vec::new(),
        ttl: 3_000,
        deadline: 60_000,
    }
}

pub(super) fn forged(forge: impl FnOnce(&mut Story)) -> Option<Rule> {
    let mut story = truth();
    forge(&mut story);
    story.first_violation().map(|violation| {
        assert!(!violation.to_string().is_empty());
        assert!(!story.timeline(violation.at).is_empty());
        violation.rule
    })
}

/// The place of the beat's run that was due at this instant.
pub(super) fn beat(story: &Story, due: i64) -> usize {
    let is_it = |run: &Entry| run.job == "beat" && run.scheduled == Some(due);
    story.runs.iter().position(is_it).unwrap()
}

#[test]
fn a_true_story_passes() {
    assert_eq!(forged(|_| {}), None);
}

#[test]
fn a_run_that_lives_on_into_the_next_one_is_caught() {
    let found = forged(|story| {
        let at = beat(story, 3_000);
        story.runs[at].last_sign = 4_006;
    });
    assert_eq!(found, Some(Rule::Exclusion));
}

#[test]
fn an_overlap_behind_a_short_run_is_caught() {
    // `left` of 4,000 outlives `left` of 6,000, which is over when `left` of 8,000 begins.
    let found = forged(|story| {
        let is_it = |run: &&mut Entry| run.job == "left" && run.scheduled == Some(6_000);
        story.runs.iter_mut().find(is_it).unwrap().last_sign = 8_100;
        let is_it = |run: &&mut Entry| run.job == "right" && run.scheduled == Some(8_000);
        story.runs.iter_mut().find(is_it).unwrap().start = 8_050;
    });
    assert_eq!(found, Some(Rule::Exclusion));
}

#[test]
fn two_jobs_of_one_lock_at_once_are_caught() {
    let found = forged(|story| {
        let is_it = |run: &&mut Entry| run.job == "right" && run.scheduled == Some(4_000);
        let run = story.runs.iter_mut().find(is_it).unwrap();
        run.start = 4_100;
        run.fence = 4_100_000;
    });
    assert_eq!(found, Some(Rule::Exclusion));
}

#[test]
fn a_second_run_of_an_occurrence_is_caught() {
    let found = forged(|story| {
        let again = run("beat", 3_000, 3_500, 3_550);
        story.records.push(record(&again, Outcome::Succeeded));
        story.runs.push(again);
    });
    assert_eq!(found, Some(Rule::Once));
}

#[test]
fn a_rerun_is_allowed_where_the_job_asks_for_it_and_only_so_often() {
    let again = |story: &mut Story, start: i64| {
        let mut again = run("left", 2_000, start, start + 50);
        again.attempt = if start < 2_400 { 2 } else { 3 };
        story.records.push(record(&again, Outcome::Succeeded));
        story.runs.push(again);
    };
    assert_eq!(forged(|story| again(story, 2_300)), None);
    let found = forged(|story| {
        again(story, 2_300);
        again(story, 2_400);
    });
    assert_eq!(found, Some(Rule::Once));
}

#[test]
fn an_early_run_is_caught() {
    let found = forged(|story| {
        let at = beat(story, 3_000);
        story.runs[at].start = 2_999;
    });
    assert_eq!(found, Some(Rule::Early));
}

#[test]
fn a_missed_occurrence_is_caught_in_quiet_times_alone() {
    let miss = |story: &mut Story| {
        let at = beat(story, 3_000);
        story.runs.remove(at);
        story.records[at] = not_run("beat", 3_000, Outcome::Missed);
    };
    assert_eq!(forged(miss), Some(Rule::Missed));
    let found = forged(|story| {
        miss(story);
        story.quiet = vec![Span {
            from: 5_000,
            until: 12_000,
        }];
    });
    assert_eq!(found, None);
}

#[test]
fn a_skip_for_a_store_that_a_host_reached_is_caught_in_quiet_times_alone() {
    let skip = |reason: &'static str| {
        move |story: &mut Story| {
            story.jobs[0].policies[1].on_store_down = OnStoreDown::Skip;
            let at = beat(story, 3_000);
            story.runs.remove(at);
            story.records[at] = not_run("beat", 3_000, Outcome::Skipped);
            story.records[at].reason = Some(reason.to_owned());
        }
    };
    let for_the_store = skip("the store was unreachable (on_store_down: skip)");
    assert_eq!(forged(for_the_store), Some(Rule::Missed));
    assert_eq!(forged(skip("another reason")), None);
    let found = forged(|story| {
        for_the_store(story);
        story.quiet.clear();
    });
    assert_eq!(found, None);
}

#[test]
fn a_miss_within_a_range_is_caught() {
    let found = forged(|story| {
        for due in [3_000, 4_000, 5_000] {
            let at = beat(story, due);
            story.runs.remove(at);
            story.records.remove(at);
        }
        let mut range = not_run("beat", 3_000, Outcome::Unknown);
        range.until = Some(Timestamp::from_millis(5_000));
        range.count = Some(3);
        story.records.push(range);
    });
    assert_eq!(found, Some(Rule::Missed));
}

#[test]
fn a_fence_that_falls_or_stays_is_caught() {
    for fence in [3_005_000, 2_000_000] {
        let found = forged(|story| {
            let at = beat(story, 4_000);
            story.runs[at].fence = fence;
        });
        assert_eq!(found, Some(Rule::Fencing), "{fence}");
    }
}

#[test]
fn an_occurrence_without_a_verdict_is_caught() {
    let found = forged(|story| {
        let at = beat(story, 5_000);
        story.runs.remove(at);
        story.records.remove(at);
    });
    assert_eq!(found, Some(Rule::Silence));
}

#[test]
fn a_run_without_a_record_of_its_own_is_caught() {
    let found = forged(|story| {
        let at = beat(story, 5_000);
        story.records[at].run_id = Some(RunId::from_text("another"));
        story.records[at].outcome = Outcome::Failed;
    });
    assert_eq!(found, Some(Rule::Silence));
}

#[test]
fn verdicts_lost_with_the_data_are_not_asked_for() {
    let found = forged(|story| {
        let at = beat(story, 5_000);
        story.records.remove(at);
        story.forgotten = vec![Span {
            from: 4_500,
            until: 5_500,
        }];
    });
    assert_eq!(found, None);
}

#[test]
fn the_verdict_of_a_long_run_is_lost_with_the_data_at_its_end() {
    let lost = |from: i64| {
        forged(|story| {
            let at = beat(story, 5_000);
            story.records.remove(at);
            story.runs[at].last_sign = 5_900;
            story.forgotten = vec![Span {
                from,
                until: from + 300,
            }];
        })
    };
    assert_eq!(lost(5_700), None);
    assert_eq!(lost(5_400), Some(Rule::Silence), "it was over before");
    assert_eq!(lost(6_100), Some(Rule::Silence), "there was time");
}

#[test]
fn a_success_that_never_was_is_caught() {
    let found = forged(|story| {
        let at = beat(story, 5_000);
        story.runs[at].ended = false;
    });
    assert_eq!(found, Some(Rule::Untrue));
    let found = forged(|story| {
        let at = beat(story, 5_000);
        story.runs.remove(at);
    });
    assert_eq!(found, Some(Rule::Untrue));
}

#[test]
fn a_skip_of_what_ran_is_caught() {
    let found = forged(|story| {
        story.records.push(not_run("beat", 5_000, Outcome::Skipped));
    });
    assert_eq!(found, Some(Rule::Untrue));
}

#[test]
fn a_host_with_a_ledger_of_its_own_may_miss_what_another_ran_and_not_what_it_ran() {
    let missed_by = |host: &'static str| {
        move |story: &mut Story| {
            story.jobs[0].shared_by = SharedBy::Nobody;
            story.jobs[0].verdicts = Verdicts::None;
            let mut missed = not_run("beat", 5_000, Outcome::Missed);
            missed.host = Some(HostName::parse(host).unwrap());
            story.records.push(missed);
        }
    };
    assert_eq!(forged(missed_by("h2")), None);
    assert_eq!(forged(missed_by("h1")), Some(Rule::Untrue));
}

#[test]
fn the_first_violation_is_told() {
    let mut story = truth();
    for due in [9_000, 3_000, 6_000] {
        let at = beat(&story, due);
        story.runs[at].start = due - 1;
    }
    assert_eq!(story.first_violation().unwrap().at, 2_999);
}

#[test]
fn a_job_with_a_lock_for_each_host_runs_once_on_each_and_without_a_lock_overlaps() {
    let on = |story: &mut Story, host: &str, shared_by: SharedBy, start: i64| {
        let job = story
            .jobs
            .iter_mut()
            .find(|job| job.name == "beat")
            .unwrap();
        job.shared_by = shared_by;
        job.verdicts = Verdicts::None;
        let mut again = run("beat", 3_000, start, start + 50);
        again.host = host.to_owned();
        story.runs.push(again);
    };
    let host = SharedBy::Nobody;
    assert_eq!(forged(|story| on(story, "h2", host, 3_010)), None);
    let twice = forged(|story| on(story, "h1", host, 3_500));
    assert_eq!(twice, Some(Rule::Once));
    let overlap = |shared_by| {
        move |story: &mut Story| {
            on(story, "h2", shared_by, 3_100);
            let at = beat(story, 3_000);
            story.runs[at].last_sign = 4_500;
        }
    };
    assert_eq!(forged(overlap(host)), Some(Rule::Exclusion));
    assert_eq!(forged(overlap(SharedBy::NobodyWithoutLock)), None);
}

#[test]
fn what_runs_without_the_store_may_run_twice_unless_all_is_calm() {
    let twice = |fence: u64| {
        move |story: &mut Story| {
            let job = story
                .jobs
                .iter_mut()
                .find(|job| job.name == "beat")
                .unwrap();
            job.runs_without_store = true;
            let mut again = run("beat", 3_000, 2_999, 3_040);
            again.fence = fence;
            again.host = "h2".to_owned();
            story.records.push(record(&again, Outcome::Succeeded));
            story.runs.push(again);
        }
    };
    assert_eq!(forged(twice(0)), Some(Rule::Once));
    let troubled = |fence| {
        forged(|story| {
            twice(fence)(story);
            story.calm.clear();
        })
    };
    assert_eq!(troubled(0), None);
    // With a fencing token it had the lock: then it is held to all that a lock promises.
    assert_eq!(troubled(2_999_000), Some(Rule::Early));
}
