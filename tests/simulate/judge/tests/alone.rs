//! Excuses about runs without the store, and hosts that have only their own clocks.

use cronlatch::config::{OnStoreDown, Scope};
use cronlatch::names::{HostName, RunId};
use cronlatch::store::Outcome;
use cronlatch::time::Timestamp;

use super::{
    START, added, broken, by_clock, index_of_run, plan, span, start, trouble, unstarted, verdict,
};
use crate::judge::Rule;
use crate::plan::{Plan, StoreKind, host_name};
use crate::trace::{Admitted, Ended, Hindered, Life, Reloaded, Told, Trace};

fn without_store() -> Plan {
    plan(|job| job.on_store_down = OnStoreDown::Run)
}

/// Host 1 runs what is due at 20 s without the store, and its own claim was decided then.
fn decided_at(at: i64, reason: &str, lossy: bool) -> bool {
    let rules = broken(&without_store(), |trace| {
        unstarted(trace, 20_000, Outcome::Skipped, reason);
        let skipped = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
        let skipped = skipped.unwrap();
        skipped.at = START + at;
        skipped.record.host = Some(HostName::parse(&host_name(1)).unwrap());
        let mut run = start(1, 20_000, 21_000, 28_000);
        run.fence = None;
        trace.added.push(verdict(&run, Outcome::Succeeded));
        trace.starts.push(run);
        let how = if lossy {
            Hindered::Lossy
        } else {
            Hindered::Network
        };
        trace.troubles.push(trouble(1, 19_000, 23_000, how));
    });
    rules.contains(&Rule::Untrue)
}

#[test]
fn what_became_of_an_unanswered_claim_its_host_does_not_know() {
    let overlap = "overlap: the lock was held";
    assert!(!decided_at(20_500, overlap, false));
    assert!(!decided_at(20_500, "the queue was full", false));
    assert!(!decided_at(20_500, "paused by alice@host", false));
    assert!(decided_at(21_500, "paused by alice@host", false));
    assert!(decided_at(20_500, "superseded", false));
    assert!(decided_at(21_500, overlap, false), "nothing arrives late");
    assert!(!decided_at(21_500, overlap, true));
    assert!(decided_at(26_500, overlap, true));
}

#[test]
fn a_host_that_runs_the_job_without_the_store_starts_nothing_else_of_it() {
    let missed = |hosts: std::ops::Range<usize>, until: i64| {
        broken(&without_store(), |trace| {
            unstarted(
                trace,
                20_000,
                Outcome::Missed,
                "its start deadline had passed",
            );
            for host in hosts {
                let mut alone = start(host, 15_000, 15_001, until);
                alone.fence = None;
                trace.starts.push(alone);
            }
        })
        .contains(&Rule::Missed)
    };
    assert!(!missed(0..2, 24_000));
    assert!(missed(0..1, 24_000), "the other host was there");
    assert!(missed(0..2, 21_000), "there was time");
}

#[test]
fn a_host_with_another_lock_tells_of_its_run_without_the_store_under_that() {
    let untrue = |list: usize, lock: &str| {
        let mut plan = without_store();
        plan.lists.push(plan.lists[0].clone());
        plan.lists[1].jobs[0].lock = Some("other".to_owned());
        broken(&plan, |trace| {
            trace.outages.push(span(19_900, 21_000));
            trace.lives[1].list = list;
            unstarted(
                trace,
                20_000,
                Outcome::Missed,
                "its start deadline had passed",
            );
            let mut run = start(1, 20_000, 20_200, 21_000);
            (run.fence, run.lock) = (None, lock.to_owned());
            let mut told = verdict(&run, Outcome::Succeeded);
            told.lock = lock.to_owned();
            trace.added.push(told);
            trace.starts.push(run);
        })
        .contains(&Rule::Untrue)
    };
    assert!(!untrue(1, "other"));
    assert!(
        untrue(0, "other"),
        "the host has the job under the same lock by now"
    );
    assert!(untrue(0, "job"));
}

#[test]
fn what_was_told_under_a_lock_that_the_store_never_heard_of_stays_there() {
    let untrue = |heard: Option<i64>, restarts: bool| {
        let mut plan = without_store();
        plan.lists.push(plan.lists[0].clone());
        plan.lists[1].jobs[0].lock = Some("other".to_owned());
        broken(&plan, |trace| {
            trace.outages.push(span(19_900, 21_000));
            let list_from = |list, at| Reloaded {
                at: START + at,
                life: 1,
                list,
            };
            if restarts {
                let first = trace.lives.pop().unwrap();
                let ends = [
                    (0, 0, Some(14_900)),
                    (1, 15_000, Some(21_900)),
                    (0, 22_000, None),
                ];
                trace.lives.extend(ends.map(|(list, from, until)| Life {
                    list,
                    from: START + from,
                    until: until.map(|until| START + until),
                    ..first
                }));
            } else {
                trace.reloads = vec![list_from(1, 15_000), list_from(0, 22_000)];
            }
            trace.admitted.extend(heard.map(|at| Admitted {
                at: START + at,
                host: 1,
                job: "job".to_owned(),
            }));
            let why = "its start deadline had passed";
            unstarted(trace, 20_000, Outcome::Missed, why);
            let mut run = start(1, 20_000, 20_200, 21_000);
            (run.fence, run.lock) = (None, "other".to_owned());
            let mut told = verdict(&run, Outcome::Succeeded);
            told.lock = "other".to_owned();
            trace.added.push(told);
            trace.starts.push(run);
        })
        .contains(&Rule::Untrue)
    };
    for restarts in [false, true] {
        assert!(!untrue(None, restarts));
        let back = untrue(Some(22_500), restarts);
        assert!(!back, "when the list had changed back");
        assert!(untrue(Some(16_000), restarts), "the ledger had moved");
    }
}

#[test]
fn a_ledger_that_has_moved_does_not_know_of_a_run_without_the_store_either() {
    let contradicts = |fence: Option<u64>, skipped: i64| {
        let mut plan = without_store();
        plan.lists.push(plan.lists[0].clone());
        plan.lists[1].jobs[0].scope = Scope::Host;
        broken(&plan, |trace| {
            trace.reloads.extend((0..2).map(|life| Reloaded {
                at: START + 22_000,
                life,
                list: 1,
            }));
            unstarted(trace, 20_000, Outcome::Skipped, "");
            let skip = trace.added.iter_mut();
            let skip = skip.filter(|it| it.record.run_id.is_none()).last().unwrap();
            (skip.at, skip.lock) = (START + skipped, "job@host-0".to_owned());
            let mut run = start(1, 20_000, 20_200, 28_000);
            run.fence = fence;
            let mut told = verdict(&run, Outcome::Succeeded);
            told.lock = "job@host-0".to_owned();
            trace.added.push(told);
            trace.starts.push(run);
        })
        .contains(&Rule::TwoVerdicts)
    };
    assert!(!contradicts(None, 23_000));
    assert!(contradicts(None, 28_500), "it had been told");
    assert!(contradicts(Some(20_200), 23_000), "the store granted it");
}

#[test]
fn nobody_else_knows_of_a_run_without_the_store_that_could_not_be_started() {
    let contradicts = |skipped: i64, by: usize, fence: Option<u64>| {
        broken(&without_store(), |trace| {
            trace.outages.push(span(19_900, 22_000));
            unstarted(trace, 20_000, Outcome::Skipped, "");
            let skip = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
            let skip = skip.unwrap();
            skip.at = START + skipped;
            skip.record.host = Some(HostName::parse(&host_name(by)).unwrap());
            let mut failed = added(23_000, 20_000, Outcome::Failed, "cannot start a process");
            failed.record.run_id = Some(RunId::from_text("run-short"));
            failed.record.host = Some(HostName::parse(&host_name(1)).unwrap());
            failed.record.finished_at = Some(Timestamp::from_millis(START + 20_010));
            failed.record.fence = fence;
            trace.added.push(failed);
        })
        .contains(&Rule::TwoVerdicts)
    };
    assert!(!contradicts(22_500, 0, None));
    assert!(contradicts(23_500, 0, None), "it had been told");
    assert!(contradicts(22_500, 1, None), "the host itself knew");
    assert!(contradicts(22_500, 0, Some(20_000)), "the store granted it");
}

#[test]
fn a_retry_of_what_ran_by_the_wall_clock_is_excused_as_its_first_attempt_is() {
    let counts = |measured: i64| {
        let rules = broken(&without_store(), |trace| {
            trace.clocks[1].ahead = -25_000;
            trace.outages.push(span(10_000, 22_000));
            trace.lives[1].measured = Some(START + measured);
            let mut first = start(1, -5_000, 20_200, 20_300);
            (first.fence, first.ended) = (None, Some(Ended::Itself(1)));
            let mut second = first.clone();
            second.attempt = 2;
            (second.begin, second.end) = (START + 23_000, Some(START + 23_100));
            trace.starts.extend([first, second]);
        });
        !rules.contains(&Rule::DoesNotCount)
    };
    assert!(counts(22_000));
    assert!(!counts(20_000));
}

#[test]
fn what_was_decided_by_the_wall_clock_may_start_just_after_the_clock_is_known() {
    let foretold = |measured| {
        let rules = by_clock(&without_store(), 25_000, Some(measured), None);
        rules.contains(&Rule::Foretold)
    };
    // It begins at 20.2 s.
    assert!(!foretold(20_150));
    assert!(foretold(20_050));
}

#[test]
fn the_record_of_a_run_that_could_not_be_started_goes_by_the_wall_clock_as_well() {
    let foretold = |measured: i64, attempts: u32| {
        let rules = broken(&without_store(), |trace| {
            trace.clocks[1].ahead = 25_000;
            trace.lives[1].measured = Some(START + measured);
            let mut failed = added(20_000, 40_000, Outcome::Failed, "cannot start a process");
            failed.record.run_id = Some(RunId::from_text("run-short"));
            failed.record.host = Some(HostName::parse(&host_name(1)).unwrap());
            failed.record.attempts = attempts;
            trace.added.push(failed);
        });
        rules.contains(&Rule::Foretold)
    };
    assert!(!foretold(19_000, 0));
    assert!(foretold(10_000, 0), "it knew that this was not due");
    assert!(foretold(19_000, 1));
}

/// Host 1, whose clock is ahead, runs what is due at 40 s, and host 0 skips it when it is due.
fn skips_it(trace: &mut Trace) {
    trace.clocks[1].ahead = 25_000;
    trace.outages.push(span(10_000, 19_000));
    unstarted(
        trace,
        40_000,
        Outcome::Skipped,
        "overlap: the lock was held",
    );
    let mut run = start(1, 40_000, 18_000, 18_100);
    run.fence = None;
    trace.added.push(verdict(&run, Outcome::Succeeded));
    trace.starts.push(run);
}

#[test]
fn an_occurrence_that_ran_by_a_wrong_clock_has_its_own_verdict_when_it_is_due() {
    let untrue = |measured: Option<i64>| {
        let rules = broken(&without_store(), |trace| {
            skips_it(trace);
            trace.lives[1].measured = measured.map(|at| START + at);
        });
        rules.contains(&Rule::Untrue)
    };
    assert!(!untrue(Some(19_000)));
    assert!(untrue(Some(0)));
}

#[test]
fn what_could_not_be_started_by_a_wrong_clock_has_its_own_verdict_when_it_is_due() {
    let contradicts = |ahead: i64, measured: i64| {
        broken(&without_store(), |trace| {
            trace.clocks[1].ahead = ahead;
            trace.outages.push(span(10_000, 19_000));
            trace.lives[1].measured = Some(START + measured);
            unstarted(trace, 40_000, Outcome::Missed, "nobody could claim it");
            let mut failed = added(19_500, 40_000, Outcome::Failed, "cannot start a process");
            failed.record.run_id = Some(RunId::from_text("run-short"));
            failed.record.host = Some(HostName::parse(&host_name(1)).unwrap());
            // At 18 s its clock shows that.
            let shown = START + 18_000 + ahead;
            failed.record.finished_at = Some(Timestamp::from_millis(shown));
            trace.added.push(failed);
        })
        .contains(&Rule::TwoVerdicts)
    };
    assert!(!contradicts(25_000, 19_000));
    assert!(contradicts(25_000, 10_000), "it knew that it was not due");
    assert!(contradicts(10_000, 19_000), "not due by its clock, either");
}

#[test]
fn a_machine_that_was_started_during_an_outage_may_run_by_its_clock_what_it_ran_before() {
    let twice = |measured: Option<i64>| {
        let rules = broken(&without_store(), |trace| {
            trace.clocks[1].ahead = -3_000;
            trace.outages.push(span(19_000, 35_000));
            let mut life = trace.lives[1];
            trace.lives[1].until = Some(START + 22_000);
            life.from = START + 22_500;
            life.measured = measured.map(|at| START + at);
            trace.lives.push(life);
            unstarted(trace, 20_000, Outcome::Skipped, "");
            trace.added.retain(|it| it.record.run_id.is_some());
            for begin in [21_000, 24_000] {
                let mut run = start(1, 20_000, begin, begin + 100);
                run.fence = None;
                trace.starts.push(run);
            }
        });
        rules.contains(&Rule::Once)
    };
    assert!(!twice(Some(35_000)));
    assert!(twice(Some(0)));
}

#[test]
fn the_result_of_a_run_may_be_recorded_under_another_scope() {
    let mut changed = plan(|_| {});
    let mut list = changed.lists[0].clone();
    list.jobs[0].scope = Scope::Host;
    changed.lists.push(list);
    let untrue = |code: i32| {
        let rules = broken(&changed, |trace| {
            let mut life = trace.lives[0];
            trace.lives[0].until = Some(START + 20_050);
            (life.from, life.list) = (START + 20_050, 1);
            trace.lives.push(life);
            let at = index_of_run(trace, 20_000);
            trace.added[at].lock = "job@host-0".to_owned();
            trace.starts[at].ended = Some(Ended::Itself(code));
        });
        rules.contains(&Rule::Untrue)
    };
    assert!(!untrue(0));
    assert!(untrue(1));
}

#[test]
fn several_nodes_know_of_a_run_without_the_store_once_a_majority_has_taken_its_result() {
    let untrue = |taken: &[(i64, u64)]| {
        let nodes = Plan {
            store: StoreKind::Quorum(3),
            ..plan(|job| job.on_store_down = OnStoreDown::Run)
        };
        broken(&nodes, |trace| {
            trace.outages.push(span(19_900, 21_000));
            unstarted(trace, 20_000, Outcome::Missed, "nobody could claim it");
            let missed = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
            missed.unwrap().at = START + 24_000;
            let mut run = start(1, 20_000, 20_200, 23_000);
            run.fence = None;
            trace.added.push(verdict(&run, Outcome::Succeeded));
            trace.told.extend(taken.iter().map(|(at, ballot)| Told {
                at: START + at,
                lock: "job".to_owned(),
                run_id: run.run_id.clone(),
                ballot: *ballot,
            }));
            trace.starts.push(run);
        })
        .contains(&Rule::Untrue)
    };
    assert!(!untrue(&[(23_002, 1)]), "one has it");
    assert!(untrue(&[(23_002, 1), (23_004, 1)]));
    assert!(!untrue(&[(23_002, 1), (23_900, 2)]), "two decisions");
    assert!(!untrue(&[(23_002, 1), (24_002, 1)]), "too late");
}
