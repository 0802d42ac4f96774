//! Forged orders and attempts: what is right passes, and each kind of wrong is caught.

use cronlatch::config::OnCrash;
use cronlatch::names::RunId;
use cronlatch::store::Outcome;

use super::forged::{beat, forged, not_run, record, run};
use super::{Rule, Span, Story};

/// The beat of 5,000 runs a second time at 5,100 under another run id, as a rerun does.
fn rerun(story: &mut Story, attempt: u32) {
    for policies in &mut story.jobs[0].policies {
        policies.on_crash = OnCrash::Rerun { max_reruns: 3 };
    }
    let at = beat(story, 5_000);
    story.runs[at].ended = false;
    story.records[at].outcome = Outcome::Interrupted;
    let mut again = run("beat", 5_000, 5_100, 5_150);
    again.attempt = attempt;
    story.records.push(record(&again, Outcome::Succeeded));
    story.runs.push(again);
}

#[test]
fn a_run_after_that_of_a_newer_occurrence_is_caught_unless_data_were_lost_in_between() {
    let late = |story: &mut Story| {
        let at = beat(story, 3_000);
        story.runs[at].start = 4_100;
        story.runs[at].last_sign = 4_150;
        story.runs[at].fence = 4_100_000;
    };
    assert_eq!(forged(late), Some(Rule::Order));
    let lost = |from: i64, until: i64| {
        forged(|story| {
            late(story);
            story.forgotten = vec![Span { from, until }];
        })
    };
    assert_eq!(lost(3_500, 3_600), None);
    assert_eq!(lost(1_000, 2_900), Some(Rule::Order), "it was over");
    assert_eq!(lost(4_200, 9_000), Some(Rule::Order), "it came later");
    // A rerun goes before what is newer.
    assert_eq!(forged(|story| rerun(story, 2)), None);
    let after = forged(|story| {
        rerun(story, 2);
        let again = story.runs.last_mut().unwrap();
        again.start = 6_100;
        again.last_sign = 6_150;
        again.fence = 6_100_000;
    });
    assert_eq!(after, Some(Rule::Order));
}

/// The first attempts of the beat of 5,000 fail, and its run has so many.
fn retries(story: &mut Story, attempts: u32) {
    story.jobs[0].fails = |due, attempt| due == 5_000 && attempt < 3;
    for policies in &mut story.jobs[0].policies {
        policies.attempts = 3;
    }
    let at = beat(story, 5_000);
    let first = story.runs[at].clone();
    for attempt in 2..=attempts {
        let mut next = first.clone();
        next.attempt = attempt;
        next.start = first.start + 100 * i64::from(attempt);
        next.last_sign = next.start + 50;
        story.runs.push(next);
    }
    story.records[at].attempts = attempts;
    if attempts < 3 {
        story.records[at].outcome = Outcome::Failed;
    }
}

#[test]
fn a_run_has_further_attempts_after_failures_and_as_many_as_retry_allows() {
    assert_eq!(forged(|story| retries(story, 3)), None);
    let wrong = |forge: fn(&mut Story)| {
        forged(|story| {
            retries(story, 3);
            forge(story);
        })
    };
    let attempts = Some(Rule::Attempts);
    let left_out: fn(&mut Story) = |story| {
        let second = story.runs.len() - 2;
        story.runs.remove(second);
    };
    assert_eq!(wrong(left_out), attempts);
    let repeated: fn(&mut Story) = |story| {
        story.runs.last_mut().unwrap().attempt = 2;
        let at = beat(story, 5_000);
        story.records[at].attempts = 2;
        story.records[at].outcome = Outcome::Failed;
    };
    assert_eq!(wrong(repeated), attempts);
    let no_failure: fn(&mut Story) = |story| {
        story.jobs[0].fails = |due, attempt| due == 5_000 && attempt < 2;
    };
    assert_eq!(wrong(no_failure), attempts);
    let at_once: fn(&mut Story) = |story| {
        let second = story.runs.len() - 2;
        story.runs[second].last_sign = 5_400;
    };
    assert_eq!(wrong(at_once), attempts);
    let in_one_list = |allowed: [u32; 2]| {
        forged(|story| {
            retries(story, 3);
            for (policies, allowed) in story.jobs[0].policies.iter_mut().zip(allowed) {
                policies.attempts = allowed;
            }
        })
    };
    assert_eq!(in_one_list([1, 3]), None);
    assert_eq!(in_one_list([2, 2]), attempts);
}

#[test]
fn a_run_that_failed_has_all_its_attempts_unless_something_was_troubled() {
    assert_eq!(forged(|story| retries(story, 2)), Some(Rule::Attempts));
    let troubled = forged(|story| {
        retries(story, 2);
        story.calm.clear();
    });
    assert_eq!(troubled, None);
    let without_retry = forged(|story| {
        retries(story, 1);
        story.jobs[0].policies[0].attempts = 1;
    });
    assert_eq!(without_retry, None);
}

#[test]
fn a_success_of_an_attempt_that_fails_is_caught() {
    let found = forged(|story| {
        retries(story, 2);
        let at = beat(story, 5_000);
        story.records[at].outcome = Outcome::Succeeded;
    });
    assert_eq!(found, Some(Rule::Untrue));
}

#[test]
fn a_record_names_as_many_attempts_as_began() {
    let counts = |attempts: u32, outcome: Outcome, reruns: u32| {
        forged(|story| {
            retries(story, 2);
            story.calm.clear();
            let at = beat(story, 5_000);
            story.records[at].attempts = attempts;
            story.records[at].outcome = outcome;
            if reruns > 0 {
                for policies in &mut story.jobs[0].policies {
                    policies.on_crash = OnCrash::Rerun { max_reruns: reruns };
                }
            }
        })
    };
    let wrong = Some(Rule::Attempts);
    assert_eq!(counts(1, Outcome::Failed, 0), wrong);
    assert_eq!(counts(4, Outcome::Failed, 0), wrong);
    // A third was counted, and not started.
    assert_eq!(counts(3, Outcome::LeaseLost, 0), None);
    assert_eq!(counts(3, Outcome::Interrupted, 3), None);
    // Of a run that is not run again the store may not have received the count.
    assert_eq!(counts(1, Outcome::Interrupted, 0), None);
    assert_eq!(counts(0, Outcome::Interrupted, 0), wrong);
    assert_eq!(counts(1, Outcome::Interrupted, 3), wrong);
    let lost = forged(|story| {
        retries(story, 2);
        story.calm.clear();
        let at = beat(story, 5_000);
        story.records[at].attempts = 1;
        story.forgotten = vec![Span {
            from: 5_100,
            until: 5_150,
        }];
    });
    assert_eq!(lost, None);
}

#[test]
fn reruns_continue_the_count_of_attempts() {
    let numbered = |attempt: u32| forged(|story| rerun(story, attempt));
    assert_eq!(numbered(2), None);
    assert_eq!(numbered(1), Some(Rule::Attempts), "repeated");
    assert_eq!(numbered(3), Some(Rule::Attempts), "left out");
    assert_eq!(numbered(5), Some(Rule::Attempts), "too many");
    let lost = forged(|story| {
        rerun(story, 1);
        story.forgotten = vec![Span {
            from: 5_060,
            until: 5_090,
        }];
    });
    assert_eq!(lost, None, "the store forgot the first");
    // A rerun in between was granted to a host that died before it could begin.
    let begun_later = forged(|story| {
        rerun(story, 3);
        let mut between = not_run("beat", 5_000, Outcome::Interrupted);
        between.run_id = Some(RunId::from_text("never-began"));
        between.attempts = 2;
        story.records.push(between);
    });
    assert_eq!(begun_later, None);
    // The host died when the second attempt had been counted, and had not begun.
    let counted = |fails: fn(i64, u32) -> bool| {
        forged(move |story| {
            rerun(story, 3);
            let at = beat(story, 5_000);
            story.runs[at].ended = true;
            story.jobs[0].fails = fails;
            for policies in &mut story.jobs[0].policies {
                policies.attempts = 3;
            }
        })
    };
    assert_eq!(counted(|due, attempt| due == 5_000 && attempt == 1), None);
    assert_eq!(counted(|_, _| false), Some(Rule::Attempts));
    let used_up = forged(|story| {
        rerun(story, 2);
        for policies in &mut story.jobs[0].policies {
            policies.attempts = 1;
        }
        story.jobs[0].policies[0].attempts = 1;
    });
    assert_eq!(used_up, None, "without `retry` reruns alone count");
}

#[test]
fn a_rerun_beyond_what_retry_allows_is_caught() {
    let found = forged(|story| {
        retries(story, 3);
        let at = beat(story, 5_000);
        story.records[at].outcome = Outcome::Interrupted;
        for policies in &mut story.jobs[0].policies {
            policies.on_crash = OnCrash::Rerun { max_reruns: 3 };
        }
        let mut again = run("beat", 5_000, 5_500, 5_550);
        again.attempt = 4;
        story.records.push(record(&again, Outcome::Succeeded));
        story.runs.push(again);
    });
    assert_eq!(found, Some(Rule::Attempts));
}

#[test]
fn the_record_of_several_attempts_is_lost_with_the_data_at_the_end_of_the_last() {
    let lost = |from: i64| {
        forged(|story| {
            retries(story, 3);
            let at = beat(story, 5_000);
            story.records.remove(at);
            story.forgotten = vec![Span {
                from,
                until: from + 20,
            }];
        })
    };
    assert_eq!(lost(5_340), None);
    assert_eq!(lost(5_400), Some(Rule::Silence));
}
