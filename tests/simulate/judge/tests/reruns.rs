//! Reruns: when one is in time, and what is on record if none started.

use cronlatch::config::OnCrash;
use cronlatch::store::Outcome;
use cronlatch::store::protocol::{REASON_INTERRUPTED, REASON_NOT_RERUN};

use super::fleets::{crash, crash_on};
use super::{START, index_of_run, span, start, trouble, verdict};
use crate::judge::Rule;
use crate::plan::{JobPlan, StoreKind};
use crate::trace::{Ended, Held, Hindered, PutBack, Span, Start, Trace};

/// The lock's lease, under the token of a run of this host.
fn held(run_id: &str, host: usize, from: i64, until: i64) -> Held {
    Held {
        exclusive: true,
        at: START + from,
        lock: "job".to_owned(),
        token: Some(format!("host-{host}:1:{run_id}:0")),
        until: START + until,
    }
}

/// The run waits for its rerun from then on.
fn waits(died: &Start, at: i64) -> PutBack {
    PutBack {
        at: START + at,
        job: died.job.clone(),
        run_id: died.run_id.clone(),
        due: died.at.unwrap(),
    }
}

/// The run of 20 s has died, and its lease ends at 23 s: until 28 s it may be run again. A rerun is granted
/// then, once another job has had the lock, or not.
fn rerun_at(granted: i64, put_back: Option<i64>, other: Option<(i64, i64)>) -> bool {
    let rules = crash(
        |_| {},
        |trace| {
            let died = trace.starts[index_of_run(trace, 20_000)].clone();
            trace.added.push(verdict(&died, Outcome::Interrupted));
            let mut again = start(1, 20_000, granted + 5, granted + 50);
            (again.run_id, again.attempt) = ("again".to_owned(), 2);
            trace.added.push(verdict(&again, Outcome::Succeeded));
            trace.starts.push(again);
            let other = other.map(|(from, until)| held("other", 0, from, until));
            trace.held.extend(other);
            trace.held.push(held("again", 1, granted, granted + 3_000));
            trace.put_back.extend(put_back.map(|at| waits(&died, at)));
        },
    );
    rules.contains(&Rule::RerunWindow)
}

#[test]
fn a_rerun_has_its_window_from_the_end_of_the_lease() {
    assert!(!rerun_at(27_990, None, None));
    assert!(rerun_at(28_010, None, None));
}

#[test]
fn under_a_lock_that_another_job_has_had_a_rerun_has_its_window_from_when_the_crash_is_noticed() {
    let other = Some((24_000, 26_500));
    assert!(!rerun_at(31_000, Some(26_600), other));
    assert!(rerun_at(31_700, Some(26_600), other));
    assert!(rerun_at(31_000, Some(23_500), other), "noticed before");
    assert!(rerun_at(31_000, Some(26_600), None), "nobody had it");
    assert!(!rerun_at(31_000, None, other), "noticed by the claim");
    let at_once = Some((26_600, 26_700));
    assert!(!rerun_at(31_000, Some(26_600), at_once));
    assert!(rerun_at(31_000, Some(26_599), at_once), "noticed before");
    assert!(rerun_at(31_000, Some(31_000), None), "it is the rerun's");
}

#[test]
fn nodes_that_stood_still_as_a_host_died_may_have_renewed_its_lease_for_another_ttl() {
    // The lease of the dead host would have ended at 23 s.
    let too_late = |store: StoreKind, still: (i64, i64), granted: i64, died: i64| {
        let rules = crash_on(
            store,
            |_| {},
            |trace| {
                trace.outages.push(span(still.0, still.1));
                (trace.lives[0].until, trace.lives[0].killed) = (Some(START + died), true);
                let mut again = start(1, 20_000, granted + 5, granted + 50);
                (again.run_id, again.attempt) = ("again".to_owned(), 2);
                trace.starts.push(again);
                trace.held.push(held("again", 1, granted, granted + 3_000));
            },
        );
        rules.contains(&Rule::RerunWindow)
    };
    let (nodes, still) = (StoreKind::Quorum(3), (21_000, 22_500));
    // Until 26.5 s, with its window until 31.5 s.
    assert!(!too_late(nodes, still, 31_000, 22_000));
    assert!(too_late(nodes, still, 33_000, 22_000));
    assert!(too_late(StoreKind::Redis, still, 31_000, 22_000));
    assert!(
        too_late(nodes, (24_000, 25_000), 31_000, 24_500),
        "it was over"
    );
    assert!(too_late(nodes, still, 31_000, 30_000), "its host lived");
}

/// The run of 20 s is not run again, and this is its record.
fn unsaid(reason: &str, forge: impl FnOnce(&mut Trace)) -> bool {
    let rules = crash(
        |_| {},
        |trace| {
            let died = trace.starts[index_of_run(trace, 20_000)].clone();
            let mut record = verdict(&died, Outcome::Interrupted);
            record.at = START + 24_000;
            record.record.reason = Some(reason.to_owned());
            trace.added.push(record);
            forge(trace);
        },
    );
    rules.contains(&Rule::RerunWindow)
}

#[test]
fn that_no_rerun_started_is_on_record() {
    assert!(unsaid(REASON_INTERRUPTED, |_| {}));
    assert!(!unsaid(REASON_NOT_RERUN, |_| {}));
    let loss = |from| {
        unsaid(REASON_INTERRUPTED, |trace| {
            trace.losses.push(span(from, from + 500));
        })
    };
    assert!(!loss(21_000));
    assert!(loss(40_000));
}

/// The run of 20 s goes on without its lease and makes a last attempt then; a rerun began, or another run of the
/// occurrence that was before it.
#[test]
fn a_run_that_outlives_its_lease_may_make_its_last_attempt_after_its_rerun() {
    let unsaid = |other: Option<i64>| {
        let rules = crash(
            |job| job.on_crash = OnCrash::Rerun { max_reruns: 3 },
            |trace| {
                let died = trace.starts[index_of_run(trace, 20_000)].clone();
                let mut record = verdict(&died, Outcome::Interrupted);
                record.at = START + 24_000;
                record.record.reason = Some(REASON_INTERRUPTED.to_owned());
                trace.added.push(record);
                let mut last = start(0, 20_000, 25_000, 25_050);
                (last.run_id, last.attempt) = (died.run_id, 2);
                trace.starts.push(last);
                trace
                    .starts
                    .extend(other.map(|begin| start(1, 20_000, begin, begin + 50)));
            },
        );
        rules.contains(&Rule::RerunWindow)
    };
    assert!(!unsaid(Some(24_005)));
    assert!(unsaid(None));
    assert!(unsaid(Some(20_001)), "before the run");
}

#[test]
fn an_attempt_that_was_counted_and_never_began_may_be_the_last() {
    let wrong = |tries: u32, attempts: u32| {
        let rules = crash(
            |job| job.retry = Some((tries, 500)),
            |trace| {
                let died = trace.starts[index_of_run(trace, 20_000)].clone();
                let mut record = verdict(&died, Outcome::Interrupted);
                record.at = START + 24_000;
                record.record.reason = Some(REASON_INTERRUPTED.to_owned());
                record.record.attempts = attempts;
                trace.added.push(record);
            },
        );
        rules.contains(&Rule::RerunWindow) || rules.contains(&Rule::NoRerun)
    };
    assert!(!wrong(2, 2));
    assert!(wrong(2, 1));
    assert!(wrong(3, 2), "one was left");
}

#[test]
fn a_rerun_that_was_given_back_has_had_its_record_unless_nothing_kept_its_host_from_starting_it() {
    let given_back = |granted: i64, short: (i64, i64), host: usize| {
        unsaid(REASON_INTERRUPTED, |trace| {
            trace
                .held
                .push(held("given-back", 1, granted, granted + 10));
            let short = trouble(host, short.0, short.1, Hindered::Short);
            trace.troubles.push(short);
        })
    };
    assert!(!given_back(24_000, (23_900, 25_000), 1));
    assert!(
        given_back(24_000, (30_000, 32_000), 1),
        "it lacked nothing then"
    );
    assert!(given_back(24_000, (23_900, 25_000), 0), "another host did");
    assert!(given_back(19_000, (18_900, 20_000), 1), "before the run");
}

#[test]
fn a_rerun_is_missed_only_where_a_host_had_time_for_it() {
    let lacks = |other: Option<(i64, i64)>| {
        let forge = |trace: &mut Trace| {
            let other = other.map(|(from, until)| held("other", 0, from, until));
            trace.held.extend(other);
        };
        let wide = |job: &mut crate::plan::JobPlan| job.catch_up_window = 30_000;
        crash(wide, forge).contains(&Rule::NoRerun)
    };
    assert!(lacks(None));
    assert!(!lacks(Some((23_000, 53_000))));
    assert!(lacks(Some((23_000, 40_000))));
}

#[test]
fn a_lock_that_is_free_after_the_window_is_no_chance_for_a_rerun() {
    let lacks = |free_from: i64| {
        let forge = |trace: &mut Trace| trace.held.push(held("other", 0, 23_000, free_from));
        crash(|_| {}, forge).contains(&Rule::NoRerun)
    };
    assert!(!lacks(28_500), "until 28 s it may be run again");
    assert!(lacks(25_500));
}

#[test]
fn a_run_that_may_be_repeated_for_longer_because_its_crash_was_noticed_late_has_its_record_later() {
    let silent = |put_back: i64, other: bool| {
        let rules = crash(
            |_| {},
            |trace| {
                let died = trace.starts[index_of_run(trace, 20_000)].clone();
                if other {
                    trace.held.push(held("other", 0, 24_000, 29_500));
                }
                trace.put_back.push(waits(&died, put_back));
                let mut record = verdict(&died, Outcome::Interrupted);
                record.at = START + 44_000;
                record.record.reason = Some(REASON_NOT_RERUN.to_owned());
                trace.added.push(record);
            },
        );
        rules.contains(&Rule::Silence)
    };
    assert!(!silent(30_000, true), "until 35 s, and ten seconds");
    assert!(silent(28_000, true), "until 33 s");
    assert!(silent(30_000, false), "nobody else had the lock");
}

#[test]
fn what_was_granted_to_a_dead_host_and_waits_for_its_rerun_has_its_verdict_when_that_is_too_late() {
    let silent = |lease_end: i64, recorded: i64, reruns: bool| {
        let edit = |job: &mut JobPlan| {
            if !reruns {
                job.on_crash = OnCrash::Ignore;
            }
        };
        let rules = crash(edit, |trace| {
            let died = trace.starts.remove(index_of_run(trace, 20_000));
            trace.put_back.push(waits(&died, 26_000));
            trace.held[0].until = START + lease_end;
            let mut record = verdict(&died, Outcome::Interrupted);
            record.at = START + recorded;
            record.record.reason = Some(REASON_NOT_RERUN.to_owned());
            trace.added.push(record);
        });
        rules.contains(&Rule::Silence)
    };
    assert!(!silent(31_000, 45_900, true), "until 36 s, and ten seconds");
    assert!(silent(31_000, 46_100, true));
    assert!(silent(31_000, 45_900, false), "it is not run again");
    assert!(silent(23_000, 45_900, true), "until 28 s");
}

#[test]
fn a_run_that_the_store_has_forgotten_and_that_tried_again_since_need_not_have_a_record_if_its_host_dies()
 {
    let silent = |lost_at: i64| {
        let rules = crash(
            |job| job.retry = Some((2, 500)),
            |trace| {
                let at = index_of_run(trace, 20_000);
                let mut first = trace.starts[at].clone();
                (first.begin, first.end) = (START + 2_000, Some(START + 3_000));
                first.ended = Some(Ended::Itself(1));
                trace.starts[at].attempt = 2;
                trace.starts.push(first);
                let at = START + lost_at;
                trace.losses.push(Span {
                    from: at,
                    until: at,
                });
            },
        );
        rules.contains(&Rule::Silence)
    };
    assert!(!silent(11_000));
    assert!(silent(13_000), "the data of ten seconds are lost at most");
}
