//! Forged verdicts and reasons: what is right passes, and each kind of wrong is caught.

use cronlatch::config::{CatchUp, OnOverlap, OnStoreDown};
use cronlatch::store::protocol::{
    REASON_NOT_NEWEST, REASON_OVERLAP, REASON_QUEUE_FULL, REASON_SUPERSEDED, REASON_TOO_LATE,
    REASON_WINDOW_OVER,
};
use cronlatch::store::{Kind, Outcome, Record};
use cronlatch::time::Timestamp;

use super::forged::{beat, forged, not_run, record, run};
use super::{Away, Dark, Holding, Rule, Sight, Sighting, Span, Story};
use crate::policies::Policies;

/// What the last reading of the history says.
fn reading(story: &mut Story) -> &mut Vec<Record> {
    story.readings.last_mut().unwrap()
}

#[test]
fn two_verdicts_of_one_run_are_caught() {
    let second = |outcome: Outcome| {
        move |story: &mut Story| {
            let mut other = story.records[beat(story, 5_000)].clone();
            other.outcome = outcome;
            reading(story).push(other);
        }
    };
    for outcome in [Outcome::Failed, Outcome::Interrupted, Outcome::Succeeded] {
        assert_eq!(forged(second(outcome)), Some(Rule::TwoVerdicts));
        let forgotten = |at: i64| {
            forged(|story| {
                second(outcome)(story);
                story.forgotten = vec![Span {
                    from: at,
                    until: at + 30,
                }];
            })
        };
        assert_eq!(forgotten(4_990), None, "due then");
        assert_eq!(forgotten(5_050), None, "recorded then");
        assert_eq!(forgotten(6_000), Some(Rule::TwoVerdicts));
    }
}

#[test]
fn a_result_that_changes_is_caught_and_one_that_replaces_a_provisional_record_is_not() {
    let became = |first: Outcome, then: Outcome| {
        forged(|story| {
            let mut other = story.records[beat(story, 5_000)].clone();
            other.outcome = first;
            let mut next = other.clone();
            next.outcome = then;
            story.readings = vec![vec![other], vec![next]];
        })
    };
    assert_eq!(became(Outcome::Interrupted, Outcome::Succeeded), None);
    assert_eq!(became(Outcome::Unknown, Outcome::Failed), None);
    assert_eq!(became(Outcome::Succeeded, Outcome::Succeeded), None);
    let two = Some(Rule::TwoVerdicts);
    assert_eq!(became(Outcome::Succeeded, Outcome::Failed), two);
    assert_eq!(became(Outcome::Succeeded, Outcome::Interrupted), two);
}

#[test]
fn two_verdicts_of_an_occurrence_that_was_not_started_are_caught() {
    let twice = |story: &mut Story| {
        let at = beat(story, 5_000);
        reading(story)[at] = not_run("beat", 5_000, Outcome::Skipped);
        let mut range = not_run("beat", 4_000, Outcome::Missed);
        range.until = Some(Timestamp::from_millis(5_000));
        let before = beat(story, 4_000);
        reading(story)[before] = range;
    };
    assert_eq!(forged(twice), Some(Rule::TwoVerdicts));
    let without_store = |calm: bool| {
        forged(|story| {
            twice(story);
            story.jobs[0].runs_without_store = true;
            if !calm {
                story.calm.clear();
            }
        })
    };
    assert_eq!(without_store(true), Some(Rule::TwoVerdicts));
    assert_eq!(without_store(false), None);
}

#[test]
fn a_verdict_without_a_run_beside_the_result_of_a_run_is_caught() {
    let beside = |outcome: Outcome| {
        forged(|story| {
            let at = beat(story, 5_000);
            reading(story)[at].outcome = outcome;
            reading(story).push(not_run("beat", 5_000, Outcome::Unknown));
        })
    };
    assert_eq!(beside(Outcome::Failed), Some(Rule::TwoVerdicts));
    assert_eq!(beside(Outcome::Interrupted), None, "it may be replaced");
}

/// The beat of 5,000 did not run for this reason, with these policies in one of the lists.
fn given(
    (outcome, reason): (Outcome, &'static str),
    policies: impl Fn(&mut Policies),
    forge: impl Fn(&mut Story, usize),
) -> Option<Rule> {
    forged(|story| {
        let at = beat(story, 5_000);
        story.runs.remove(at);
        story.records[at] = not_run("beat", 5_000, outcome);
        story.records[at].reason = Some(reason.to_owned());
        policies(&mut story.jobs[0].policies[1]);
        story.quiet.clear();
        forge(story, at);
    })
}

#[test]
fn a_reason_of_a_policy_that_no_list_has_is_caught() {
    let skipped = |reason| (Outcome::Skipped, reason);
    let missed = |reason| (Outcome::Missed, reason);
    let later = |by: i64| {
        move |story: &mut Story, at: usize| {
            story.records[at].finished_at = Some(Timestamp::from_millis(5_000 + by));
        }
    };
    let usual = |_: &mut Policies| {};
    let waits = |it: &mut Policies| it.on_overlap = OnOverlap::Wait;
    let queues = |it: &mut Policies| it.on_overlap = OnOverlap::Queue { limit: 1 };
    let skips = |it: &mut Policies| it.on_store_down = OnStoreDown::Skip;
    let none = |it: &mut Policies| it.catch_up = CatchUp::None;
    let reason = Some(Rule::Reason);

    let superseded = skipped(REASON_SUPERSEDED);
    assert_eq!(given(superseded, waits, later(1_000)), None);
    assert_eq!(given(superseded, usual, later(1_000)), reason);
    assert_eq!(
        given(superseded, waits, later(-1_500)),
        reason,
        "nothing is newer"
    );
    let caught_up = |story: &mut Story, at: usize| {
        story.records[at].kind = Kind::CatchUp;
    };
    assert_eq!(given(superseded, usual, caught_up), None);

    let full = skipped(REASON_QUEUE_FULL);
    assert_eq!(given(full, queues, later(10)), None);
    assert_eq!(given(full, waits, later(10)), reason);

    let down = skipped("the store was unreachable (on_store_down: skip)");
    assert_eq!(given(down, skips, later(10)), None);
    assert_eq!(given(down, usual, later(10)), reason);

    let older = missed("no host could claim it in time (catch_up: none)");
    assert_eq!(given(older, none, later(10)), None);
    assert_eq!(given(older, usual, later(10)), reason);
    let older = missed("no host could claim it in time (catch_up: latest)");
    assert_eq!(given(older, usual, later(10)), None);
    let both_none = |story: &mut Story, _: usize| {
        story.jobs[0].policies.iter_mut().for_each(none);
    };
    assert_eq!(given(older, usual, both_none), reason);
    assert_eq!(given(missed(REASON_NOT_NEWEST), usual, later(1_000)), None);
    assert_eq!(given(missed(REASON_NOT_NEWEST), usual, later(-500)), reason);
    assert_eq!(given(missed(REASON_NOT_NEWEST), usual, both_none), reason);
}

#[test]
fn what_is_missed_before_its_deadline_or_within_its_window_is_caught() {
    let after = |text: &'static str, by: i64| {
        let later = move |story: &mut Story, at: usize| {
            story.records[at].finished_at = Some(Timestamp::from_millis(5_000 + by));
        };
        given((Outcome::Missed, text), |_| {}, later)
    };
    assert_eq!(after(REASON_TOO_LATE, 59_999), Some(Rule::Reason));
    assert_eq!(after(REASON_TOO_LATE, 60_001), None);
    assert_eq!(after(REASON_WINDOW_OVER, 60_001), Some(Rule::Reason));
    assert_eq!(after(REASON_WINDOW_OVER, 3_600_001), None);
}

/// The beat of 5,000 was skipped because the lock was held, as recorded at 5,900 by a server whose
/// clock is so far ahead.
fn overlapped(ahead: i64, forge: impl Fn(&mut Story)) -> Option<Rule> {
    let later = |story: &mut Story, at: usize| {
        story.records[at].finished_at = Some(Timestamp::from_millis(7_500 + ahead));
        // No other run is near.
        for due in [6_000, 7_000, 8_000, 9_000] {
            let at = beat(story, due);
            story.runs.remove(at);
            story.records.retain(|it| {
                it.job.as_str() != "beat" || it.scheduled_at != Some(Timestamp::from_millis(due))
            });
        }
        story.decided = None;
        (story.clock_ahead, story.clock_behind) = (ahead, ahead);
        story.sightings = vec![look(1_000, None)];
        forge(story);
    };
    given((Outcome::Skipped, REASON_OVERLAP), |_| {}, later)
}

fn look(at: i64, key: Option<Holding>) -> Sighting {
    Sighting {
        at,
        server: "server 0".to_owned(),
        lock: "beat",
        sight: Sight::Look {
            process: "p1".to_owned(),
            key,
            beside: None,
        },
    }
}

#[test]
fn a_skip_for_a_lock_that_nobody_held_is_caught() {
    for ahead in [0, 900] {
        assert_eq!(overlapped(ahead, |_| {}), Some(Rule::Reason));
        let long = |story: &mut Story| {
            story.runs.push(run("beat", 6_000, 6_005, 7_400));
            let told = record(story.runs.last().unwrap(), Outcome::Failed);
            story.records.push(told);
        };
        assert_eq!(overlapped(ahead, long), None);
    }
    let seen = |at: i64| {
        overlapped(0, move |story: &mut Story| {
            let held = Holding {
                token: "an-outsider-1".to_owned(),
                until: Some(at + 500),
            };
            story.sightings.push(look(at, Some(held)));
        })
    };
    assert_eq!(seen(7_450), None);
    assert_eq!(seen(6_500), Some(Rule::Reason));
    let killed = |story: &mut Story| {
        let at = beat(story, 4_000);
        story.runs[at].ended = false;
        story.records[at].outcome = Outcome::Interrupted;
    };
    assert_eq!(overlapped(0, killed), None, "its lease goes on");
    let waits = |story: &mut Story| {
        killed(story);
        for policies in &mut story.jobs[0].policies {
            policies.on_overlap = OnOverlap::Wait;
        }
    };
    assert_eq!(overlapped(0, waits), Some(Rule::Reason));
}

#[test]
fn who_held_a_lock_is_not_asked_where_nobody_saw_it() {
    let lost = |from: i64| {
        overlapped(0, move |story: &mut Story| {
            story.forgotten = vec![Span {
                from,
                until: from + 100,
            }];
        })
    };
    assert_eq!(lost(7_450), None);
    assert_eq!(lost(6_000), Some(Rule::Reason));
    let unwatched = |calm: bool| {
        overlapped(0, move |story: &mut Story| {
            story.sightings.clear();
            if !calm {
                story.calm.clear();
            }
        })
    };
    assert_eq!(unwatched(false), None);
    assert_eq!(unwatched(true), Some(Rule::Reason));
    let votes = overlapped(0, |story: &mut Story| {
        story.votes = true;
        let at = beat(story, 4_000);
        story.runs[at].last_sign = 5_900;
    });
    assert_eq!(votes, None, "nodes were asked since it was due");
}

/// From 3,000 to 8,500 nobody could claim the beat; with `catch_up` in both lists these ran at 9,200
/// and later, and the others are on record as missed.
fn dark(catch_up: CatchUp, ran: &[i64], forge: impl Fn(&mut Story)) -> Option<Rule> {
    forged(|story| {
        for policies in &mut story.jobs[0].policies {
            policies.catch_up = catch_up;
        }
        for other in &mut story.jobs[1..] {
            other.policies[0].catch_up = CatchUp::None;
        }
        story.quiet.clear();
        let span = Span {
            from: 2_500,
            until: 8_500,
        };
        story.dark = vec![Dark {
            span,
            why: Away::Hosts,
        }];
        let dues = (3_000..=7_000).step_by(1_000);
        for (nr, due) in (0..).zip(dues) {
            let at = beat(story, due);
            let start = 8_600 + 30 * nr;
            if ran.contains(&due) {
                story.runs[at].start = start;
                story.runs[at].last_sign = start + 10;
                story.runs[at].fence = u64::try_from(start).unwrap() * 1_000;
            } else {
                let lost = story.runs.remove(at);
                let of_run = |it: &&mut Record| {
                    it.run_id
                        .as_ref()
                        .is_some_and(|id| id.as_str() == lost.run_id)
                };
                let told = story.records.iter_mut().find(of_run).unwrap();
                *told = not_run("beat", due, Outcome::Missed);
            }
        }
        let at = beat(story, 8_000);
        story.runs[at].start = 8_800;
        story.runs[at].last_sign = 8_900;
        story.runs[at].fence = 8_800_000;
        story.runs.sort_by_key(|run| (run.start, run.fence));
        forge(story);
    })
}

#[test]
fn after_a_dark_time_all_leaves_nothing_out() {
    let all = [3_000, 4_000, 5_000, 6_000, 7_000];
    let no_more = |_: &mut Story| {};
    assert_eq!(dark(CatchUp::All, &all, no_more), None);
    assert_eq!(dark(CatchUp::All, &all[1..], no_more), Some(Rule::CatchUp));
    let in_one_list = |story: &mut Story| story.jobs[0].policies[0].catch_up = CatchUp::None;
    assert_eq!(dark(CatchUp::All, &all[1..], in_one_list), None);
    let lost = |story: &mut Story| {
        story.forgotten = vec![Span {
            from: 8_000,
            until: 8_100,
        }];
    };
    assert_eq!(dark(CatchUp::All, &all[1..], lost), None);
}

#[test]
fn after_a_dark_time_latest_runs_the_newest_alone() {
    let no_more = |_: &mut Story| {};
    assert_eq!(dark(CatchUp::Latest, &[7_000], no_more), None);
    assert_eq!(
        dark(CatchUp::Latest, &[], no_more),
        None,
        "newer ones came due"
    );
    let older = dark(CatchUp::Latest, &[6_000], no_more);
    assert_eq!(older, Some(Rule::CatchUp));
    assert_eq!(dark(CatchUp::None, &[6_000], no_more), None, "in time");
}

#[test]
fn what_was_claimed_before_the_hosts_noticed_may_run_after_the_dark_time() {
    let store = |ran: &'static [i64]| {
        dark(CatchUp::Latest, ran, |story: &mut Story| {
            story.dark[0].why = Away::Store;
        })
    };
    // 3,000 was not noticed; 4,000 may have been claimed.
    assert_eq!(store(&[3_000, 4_000, 7_000]), None);
    assert_eq!(store(&[3_000, 5_000]), Some(Rule::CatchUp));
    let ahead = |by: i64| {
        dark(
            CatchUp::Latest,
            &[3_000, 7_000],
            move |story: &mut Story| {
                story.clock_ahead = by;
            },
        )
    };
    assert_eq!(ahead(0), Some(Rule::CatchUp));
    assert_eq!(ahead(600), None, "it was due before");
}

#[test]
fn with_none_nothing_starts_after_its_deadline() {
    let started = |deadline: i64, lost: bool| {
        dark(CatchUp::None, &[7_000], move |story: &mut Story| {
            story.deadline = deadline;
            if lost {
                story.forgotten = vec![Span {
                    from: 6_900,
                    until: 7_100,
                }];
            }
        })
    };
    assert_eq!(started(700, false), Some(Rule::CatchUp));
    assert_eq!(started(1_000, false), None);
    assert_eq!(started(700, true), None);
}

#[test]
fn the_verdict_of_what_came_due_in_a_dark_time_is_lost_with_the_data_after_it() {
    let lost = |due: i64, from: i64| {
        dark(CatchUp::None, &[7_000], move |story: &mut Story| {
            story.records.retain(|it| {
                it.job.as_str() != "beat" || it.scheduled_at != Some(Timestamp::from_millis(due))
            });
            story.forgotten = vec![Span {
                from,
                until: from + 500,
            }];
        })
    };
    assert_eq!(lost(5_000, 9_000), None);
    assert_eq!(lost(5_000, 15_000), Some(Rule::Silence), "it was recorded");
    assert_eq!(
        lost(2_000, 9_000),
        Some(Rule::Silence),
        "it came due before"
    );
}
