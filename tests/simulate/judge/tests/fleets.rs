//! Excuses about changed lists, hosts that come back, and data that were lost.

use cronlatch::config::{CatchUp, OnCrash, OnStoreDown, Scope};
use cronlatch::names::RunId;
use cronlatch::store::Outcome;
use cronlatch::time::Timestamp;

use super::{
    START, added, broken, clock_step, index_of_run, plan, span, start, trouble, truth,
    under_own_lock, unstarted, verdict,
};
use crate::judge::{Rule, judge};
use crate::plan::{Act, JobPlan, NodeAct, Plan, StoreKind, When};
use crate::trace::{Admitted, Ended, Held, Hindered, Life, Reloaded, Trace};
use crate::world::World;

/// Both hosts live so: from when, until when, with which list.
fn lives(trace: &mut Trace, lives: &[(i64, i64, usize)]) {
    trace.lives.clear();
    for host in 0..2 {
        for (from, until, list) in lives {
            trace.lives.push(Life {
                host,
                list: *list,
                from: START + from,
                until: (*until < 60_000).then_some(START + until),
                drains: None,
                killed: false,
                measured: Some(START + from),
            });
            trace.admitted.push(Admitted {
                at: START + from,
                host,
                job: "job".to_owned(),
            });
        }
    }
}

fn forget(trace: &mut Trace, from: i64, until: i64) {
    let gone = span(from, until);
    let is_gone = |due: Option<i64>| due.is_some_and(|due| gone.holds(due));
    trace.starts.retain(|it| !is_gone(it.at));
    let due = |it: &crate::trace::Added| it.record.scheduled_at.map(Timestamp::millis);
    trace.added.retain(|it| !is_gone(due(it)));
}

/// A job that is run again, and whose run of 20 s dies.
pub(super) fn crash(edit: impl FnOnce(&mut JobPlan), forge: impl FnOnce(&mut Trace)) -> Vec<Rule> {
    crash_on(StoreKind::Redis, edit, forge)
}

pub(super) fn crash_on(
    store: StoreKind,
    edit: impl FnOnce(&mut JobPlan),
    forge: impl FnOnce(&mut Trace),
) -> Vec<Rule> {
    let plan = plan(|job| {
        job.on_crash = OnCrash::Rerun { max_reruns: 1 };
        edit(job);
    });
    let plan = Plan { store, ..plan };
    broken(&plan, |trace| {
        let at = index_of_run(trace, 20_000);
        trace.added.remove(at);
        let run = &mut trace.starts[at];
        (run.end, run.ended) = (Some(START + 20_500), Some(Ended::WithMachine));
        let token = format!("host-0:1:{}:0", run.run_id);
        trace.held.push(Held {
            exclusive: true,
            at: START + 20_000,
            lock: "job".to_owned(),
            token: Some(token),
            until: START + 23_000,
        });
        forge(trace);
    })
}

#[test]
fn a_run_is_not_run_again_once_its_tries_are_used_up() {
    let tries = |tries: u32| crash(|job| job.retry = Some((tries, 500)), |_| {});
    assert!(!tries(1).contains(&Rule::NoRerun));
    assert!(tries(2).contains(&Rule::NoRerun));
}

#[test]
fn a_machine_that_crashes_is_suspended_no_longer_though_its_daemon_died_before() {
    let (host, list) = (0, 0);
    let lasts = 20_000;
    let suspended = |crash: Option<i64>| {
        let mut acts = vec![
            (0, Act::Start { host, list }),
            (5_000, Act::Suspend { host, lasts }),
            (6_000, Act::Kill { host }),
        ];
        acts.extend(crash.map(|at| (at, Act::Crash { host })));
        let plan = Plan {
            acts,
            ..plan(|_| {})
        };
        let mut world = World::new(&plan, false);
        world.run();
        world.sim.trace.troubles[0].span
    };
    assert_eq!(suspended(Some(8_000)), span(5_000, 8_000));
    assert_eq!(suspended(None), span(5_000, 25_000));
}

#[test]
fn a_rerun_that_never_began_may_have_been_the_last_try() {
    let tries = |tries: u32| {
        let job = |job: &mut JobPlan| {
            job.on_crash = OnCrash::Rerun { max_reruns: 3 };
            job.retry = Some((tries, 500));
        };
        crash(job, |trace| {
            let mut granted = added(24_000, 20_000, Outcome::Interrupted, "");
            granted.record.run_id = Some(RunId::from_text("run-granted"));
            granted.record.attempts = 2;
            trace.added.push(granted);
        })
    };
    assert!(!tries(2).contains(&Rule::NoRerun));
    assert!(tries(3).contains(&Rule::NoRerun));
}

#[test]
fn a_rerun_is_excused_when_nobody_was_there_within_its_window_and_not_before() {
    let back_on = |store: StoreKind, from: i64| {
        let forge = |trace: &mut Trace| lives(trace, &[(0, 20_600, 0), (from, 60_000, 0)]);
        crash_on(store, |_| {}, forge)
    };
    let back = |from: i64| back_on(StoreKind::Redis, from);
    assert!(back(23_000).contains(&Rule::NoRerun));
    assert!(!back(26_000).contains(&Rule::NoRerun));
    // Several nodes need a second to agree.
    assert!(back(23_500).contains(&Rule::NoRerun));
    assert!(!back_on(StoreKind::Quorum(3), 23_500).contains(&Rule::NoRerun));
    assert!(back_on(StoreKind::Quorum(3), 22_500).contains(&Rule::NoRerun));
}

#[test]
fn a_run_that_is_to_be_repeated_has_its_record_once_it_is_too_late_for_that() {
    let told = |at: i64, reruns: bool| {
        let forge = |trace: &mut Trace| {
            let died = trace.starts[index_of_run(trace, 20_000)].clone();
            let mut record = verdict(&died, Outcome::Interrupted);
            record.at = START + at;
            trace.added.push(record);
        };
        let never = |job: &mut JobPlan| job.on_crash = OnCrash::Ignore;
        if reruns {
            crash(|_| {}, forge)
        } else {
            crash(never, forge)
        }
    };
    assert!(!told(37_000, true).contains(&Rule::Silence));
    assert!(told(37_000, false).contains(&Rule::Silence));
    assert!(told(39_000, true).contains(&Rule::Silence));
}

#[test]
fn a_run_whose_host_dies_before_its_next_attempt_has_crashed() {
    let silent = |died: Option<i64>, recorded: i64| {
        let retries = |job: &mut JobPlan| job.retry = Some((3, 500));
        let rules = crash(retries, |trace| {
            let at = index_of_run(trace, 20_000);
            trace.starts[at].ended = Some(Ended::Itself(1));
            let mut record = verdict(&trace.starts[at], Outcome::Interrupted);
            record.at = START + recorded;
            trace.added.push(record);
            if let Some(died) = died {
                trace.lives[0].until = Some(START + died);
                trace.lives[0].killed = true;
            }
        });
        rules.contains(&Rule::Silence)
    };
    assert!(!silent(Some(21_000), 37_000));
    assert!(
        silent(Some(21_000), 41_000),
        "its rerun was too late at 28 s"
    );
    assert!(silent(Some(26_000), 37_000), "its attempts were over");
    assert!(!silent(Some(20_400), 37_000), "it could report nothing");
    assert!(silent(Some(20_000), 37_000), "that was another daemon");
    assert!(silent(None, 37_000));
}

#[test]
fn a_lost_answer_to_a_claim_may_cost_a_start_deadline_that_is_shorter_than_a_ttl() {
    let missed = |deadline: i64, bad: bool| {
        broken(&plan(|job| job.start_deadline = deadline), |trace| {
            let why = "its start deadline had passed";
            unstarted(trace, 20_000, Outcome::Missed, why);
            let bad = bad.then(|| trouble(0, 20_000, 20_300, Hindered::Lossy));
            trace.troubles.extend(bad);
        })
    };
    assert!(!missed(3_000, true).contains(&Rule::Missed));
    assert!(missed(3_000, false).contains(&Rule::Missed));
    assert!(missed(5_000, true).contains(&Rule::Missed));
}

#[test]
fn a_vote_that_a_node_gives_late_may_cost_a_start_deadline_that_is_no_longer() {
    let missed = |deadline: i64, thaws: i64| {
        let how = NodeAct::Freeze { lasts: 8_000 };
        let plan = Plan {
            store: StoreKind::Quorum(3),
            acts: vec![(thaws - 8_000, Act::Node { node: 1, how })],
            ..plan(|job| job.start_deadline = deadline)
        };
        broken(&plan, |trace| {
            let why = "its start deadline had passed";
            unstarted(trace, 20_000, Outcome::Missed, why);
        })
        .contains(&Rule::Missed)
    };
    assert!(!missed(1_000, 20_000) && !missed(1_000, 18_600));
    assert!(missed(1_000, 18_400) && missed(1_000, 21_500));
    assert!(missed(3_000, 20_000));
}

#[test]
fn a_store_that_lost_its_data_may_have_forgotten_an_attempt() {
    let miscounted = |loss: i64| {
        broken(&plan(|_| {}), |trace| {
            let at = index_of_run(trace, 40_000);
            trace.starts[at].attempt = 2;
            trace.losses.push(span(loss, loss + 15_000));
        })
    };
    assert!(!miscounted(30_000).contains(&Rule::Attempts));
    assert!(miscounted(10_000).contains(&Rule::Attempts));
}

#[test]
fn a_rerun_repeats_the_number_of_an_attempt_that_the_store_has_forgotten() {
    let repeated = |loss: i64| {
        let job = plan(|job| {
            job.on_crash = OnCrash::Rerun { max_reruns: 1 };
            job.retry = Some((3, 500));
        });
        broken(&job, |trace| {
            // Long after the last loss of data that could excuse the occurrence itself.
            let at = index_of_run(trace, 20_000);
            let mut second = start(0, 20_000, 36_000, 38_500);
            second.run_id.clone_from(&trace.starts[at].run_id);
            let mut rerun = start(0, 20_000, 44_000, 44_100);
            (second.attempt, rerun.attempt) = (2, 2);
            trace.starts.extend([second, rerun]);
            trace.losses.push(span(loss, loss + 8_000));
        })
        .contains(&Rule::Attempts)
    };
    assert!(!repeated(35_500));
    assert!(repeated(36_500));
}

#[test]
fn a_lock_that_is_free_while_nobody_is_there_counts_as_busy() {
    let job = plan(|job| job.start_deadline = 10_000);
    let missed = |hosts: std::ops::Range<usize>| {
        broken(&job, |trace| {
            let why = "its start deadline had passed";
            unstarted(trace, 20_000, Outcome::Missed, why);
            let record = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
            record.unwrap().at = START + 30_050;
            trace.held.push(Held {
                exclusive: true,
                at: START + 19_900,
                lock: "job".to_owned(),
                token: Some("host-1:1:other:0".to_owned()),
                until: START + 25_500,
            });
            let stopped = hosts.map(|host| trouble(host, 25_200, 40_000, Hindered::Stopped));
            trace.troubles.extend(stopped);
        })
    };
    assert!(!missed(0..2).contains(&Rule::Missed));
    assert!(missed(0..1).contains(&Rule::Missed));
}

/// The job of the first list, edited, is the second list.
fn two_lists(edit: impl FnOnce(&mut JobPlan)) -> Plan {
    let mut plan = plan(|_| {});
    plan.lists.push(plan.lists[0].clone());
    edit(&mut plan.lists[1].jobs[0]);
    plan
}

/// From 20 to 40 s the hosts have the second list; then 30 s is recorded as missed.
fn away(plan: &Plan, forge: impl FnOnce(&mut Trace)) -> Vec<Rule> {
    broken(plan, |trace| {
        forget(trace, 20_000, 40_000);
        lives(
            trace,
            &[(0, 20_000, 0), (20_000, 40_000, 1), (40_000, 60_000, 0)],
        );
        trace.added.push(added(41_000, 30_000, Outcome::Missed, ""));
        forge(trace);
    })
}

#[test]
fn a_job_that_is_back_on_its_schedule_counts_and_one_that_was_disabled_does_not() {
    let other = two_lists(|job| job.when = When::Every(7_000));
    assert!(!away(&other, |_| {}).contains(&Rule::DoesNotCount));
    let disabled = two_lists(|job| job.enabled = false);
    assert!(away(&disabled, |_| {}).contains(&Rule::DoesNotCount));
}

#[test]
fn a_schedule_counts_from_the_loss_that_made_the_store_forget_which_ones_it_knew() {
    let counts = |lost: Option<i64>, enabled: bool| {
        let mut plan = two_lists(|job| job.when = When::Every(7_000));
        plan.lists[0].jobs[0].enabled = enabled;
        let mut trace = truth();
        trace.losses.extend(lost.map(|at| span(at, at + 100)));
        lives(&mut trace, &[(0, 20_500, 0), (20_500, 60_000, 1)]);
        trace.starts.push(start(0, 18_000, 21_000, 21_100));
        let found = judge(&plan, &trace);
        let mut found = found.iter().filter(|it| it.at == START + 21_000);
        !found.any(|it| it.rule == Rule::DoesNotCount)
    };
    assert!(counts(Some(15_000), true));
    assert!(!counts(None, true));
    assert!(!counts(Some(19_000), true));
    assert!(!counts(Some(15_000), false));
    assert!(counts(Some(17_700), false), "added as the store recovers");
}

#[test]
fn what_the_store_never_saw_disabled_counts() {
    let disabled = two_lists(|job| job.enabled = false);
    let outage = |until| away(&disabled, |trace| trace.outages.push(span(19_000, until)));
    assert!(!outage(40_500).contains(&Rule::DoesNotCount));
    assert!(outage(28_000).contains(&Rule::DoesNotCount));
    assert!(
        !outage(30_000).contains(&Rule::DoesNotCount),
        "it tells within ten seconds"
    );
    let lossy = |until| {
        away(&disabled, |trace| {
            let bad = trouble(1, 19_000, until, Hindered::Lossy);
            trace.troubles.push(bad);
        })
    };
    assert!(!lossy(40_500).contains(&Rule::DoesNotCount));
    assert!(lossy(28_000).contains(&Rule::DoesNotCount));
    let afterwards = away(&disabled, |trace| trace.outages.push(span(22_000, 36_500)));
    assert!(
        afterwards.contains(&Rule::DoesNotCount),
        "it had told before"
    );
}

#[test]
fn what_the_store_forgot_was_disabled_counts_until_a_host_tells_it_again() {
    let counts = |data_from: i64, lost_at: i64, back: i64| {
        let mut disabled = two_lists(|job| job.enabled = false);
        for list in &mut disabled.lists {
            list.jobs[0].ttl = 3_000;
        }
        disabled.end = 160_000;
        let mut trace = truth();
        lives(
            &mut trace,
            &[(0, 20_000, 0), (20_000, back, 1), (back, 160_000, 0)],
        );
        for life in &mut trace.lives {
            life.until = life
                .until
                .or((life.from < START + back).then_some(START + back));
        }
        // The store recovers for a TTL and a second.
        trace.losses.push(span(data_from, lost_at + 4_000));
        let missed = added(back + 1_000, back - 5_000, Outcome::Missed, "");
        trace.added.push(missed);
        let found = judge(&disabled, &trace);
        let mut found = found.iter().filter(|it| it.at == START + back + 1_000);
        !found.any(|it| it.rule == Rule::DoesNotCount)
    };
    assert!(counts(19_500, 22_000, 45_000));
    assert!(!counts(19_500, 22_000, 100_000), "they told it again");
    assert!(!counts(19_500, 19_900, 45_000), "they told it afterwards");
    assert!(!counts(21_500, 21_900, 45_000), "that was not lost");
}

/// Host 0 has been without the job and has it again, and host 1 loses it at 20.5 s.
fn handed_over(told: i64, forge: impl FnOnce(&mut Trace)) -> Vec<Rule> {
    let mut lists = two_lists(|job| job.enabled = false);
    lists.lists[0].jobs[0].start_deadline = 10_000;
    lists.lists[1].jobs[0].start_deadline = 10_000;
    broken(&lists, |trace| {
        forget(trace, 20_000, 21_000);
        trace.admitted.push(Admitted {
            at: START + told,
            host: 0,
            job: "job".to_owned(),
        });
        trace.reloads.push(Reloaded {
            at: START + 20_500,
            life: 1,
            list: 1,
        });
        forge(trace);
    })
}

#[test]
fn a_job_that_a_host_starts_with_counts_from_when_it_tells_the_store_if_its_list_lacked_it_before()
{
    let silent = |told: i64, list_before: usize| {
        let rules = handed_over(told, |trace| {
            let before = Life {
                list: list_before,
                until: Some(START + 17_000),
                ..trace.lives[0]
            };
            trace.lives[0].from = START + 17_000;
            trace.lives.insert(0, before);
            trace.reloads[0].life = 2;
        });
        rules.contains(&Rule::Silence)
    };
    assert!(!silent(21_000, 1));
    assert!(silent(19_000, 1));
    assert!(silent(21_000, 0), "it has had it all the time");
}

#[test]
fn a_job_that_a_host_had_too_briefly_to_tell_the_store_counts_from_when_a_later_daemon_does() {
    let silent = |first_told: Option<i64>| {
        let rules = handed_over(21_000, |trace| {
            let life = |list: usize, from: i64, until: i64| Life {
                list,
                from: START + from,
                until: Some(START + until),
                ..trace.lives[0]
            };
            let earlier = [life(1, 0, 16_000), life(0, 16_000, 17_000)];
            trace.lives[0].from = START + 17_000;
            trace.lives.splice(0..0, earlier);
            trace.reloads[0].life = 3;
            let told = first_told.map(|at| Admitted {
                at: START + at,
                ..trace.admitted[0].clone()
            });
            trace.admitted.splice(0..0, told);
        });
        rules.contains(&Rule::Silence)
    };
    assert!(!silent(None));
    assert!(silent(Some(16_500)));
}

#[test]
fn what_came_due_before_a_host_told_the_store_of_its_job_is_left_to_others_for_a_while() {
    let held_up = |had: i64, told: i64, left: i64, decided: i64| {
        let rules = handed_over(told, |trace| {
            trace.lives[0].list = 1;
            let reloaded = |at: i64, life, list| Reloaded {
                at: START + at,
                life,
                list,
            };
            trace.reloads = vec![reloaded(had, 0, 0), reloaded(left, 1, 1)];
            trace.added.push(added(
                decided,
                20_000,
                Outcome::Skipped,
                "paused by alice@host",
            ));
        });
        rules.contains(&Rule::Radius)
    };
    assert!(
        held_up(18_000, 18_010, 20_500, 24_000),
        "it knew of it in time"
    );
    assert!(!held_up(18_000, 20_010, 20_500, 24_000));
    assert!(held_up(18_000, 20_010, 20_500, 25_500));
    assert!(!held_up(18_000, 20_010, 19_900, 40_000), "nobody owes it");
    assert!(
        held_up(5_500, 22_000, 19_900, 40_000),
        "it had time to tell"
    );
}

#[test]
fn a_host_that_loses_the_job_meanwhile_misses_nothing() {
    let missed = |left: i64| {
        let rules = handed_over(0, |trace| {
            trace.reloads[0].at = START + left;
            trace.clocks.push(clock_step(10_000, 0, 25_000));
            trace.added.push(added(31_000, 20_000, Outcome::Missed, ""));
        });
        rules.contains(&Rule::Missed)
    };
    assert!(missed(50_000));
    assert!(!missed(20_500));
}

#[test]
fn what_was_due_under_another_scope_counts_and_what_was_disabled_does_not() {
    let moved = |enabled: bool| {
        let lists = two_lists(|job| (job.scope, job.enabled) = (Scope::Host, enabled));
        away(&lists, |_| {}).contains(&Rule::DoesNotCount)
    };
    assert!(!moved(true));
    assert!(moved(false));
}

#[test]
fn a_schedule_that_is_gone_leaves_its_last_occurrence_without_a_verdict() {
    let is_silent = |when: i64| {
        let plan = two_lists(|job| job.when = When::Every(when));
        let mut trace = truth();
        forget(&mut trace, 20_000, 21_000);
        lives(&mut trace, &[(0, 20_500, 0), (20_500, 60_000, 1)]);
        let found = judge(&plan, &trace);
        let mut silent = found.iter().filter(|it| it.rule == Rule::Silence);
        silent.any(|it| it.at == START + 20_000)
    };
    assert!(!is_silent(7_000));
    assert!(is_silent(5_000));
}

#[test]
fn a_late_occurrence_is_passed_by_another_schedule_while_some_host_has_that() {
    let is_silent = |schedule: i64| {
        let plan = two_lists(|job| job.when = When::Every(schedule));
        let mut trace = truth();
        forget(&mut trace, 30_000, 31_000);
        lives(&mut trace, &[(0, 60_000, 0)]);
        trace.lives[1].until = Some(START + 20_000);
        trace.lives.push(Life {
            list: 1,
            from: START + 20_000,
            until: Some(START + 40_000),
            ..trace.lives[1]
        });
        let found = judge(&plan, &trace);
        let mut silent = found.iter().filter(|it| it.rule == Rule::Silence);
        silent.any(|it| it.at == START + 30_000)
    };
    assert!(!is_silent(7_000));
    assert!(is_silent(5_000));
}

#[test]
fn an_occurrence_is_passed_by_a_schedule_that_comes_as_a_host_with_the_first_is_started_again() {
    let is_silent = |schedule: i64| {
        let plan = two_lists(|job| job.when = When::Every(schedule));
        let mut trace = truth();
        forget(&mut trace, 30_000, 31_000);
        lives(&mut trace, &[(0, 30_500, 0), (30_500, 60_000, 0)]);
        trace.lives[3].list = 1;
        let found = judge(&plan, &trace);
        let mut silent = found.iter().filter(|it| it.rule == Rule::Silence);
        silent.any(|it| it.at == START + 30_000)
    };
    assert!(!is_silent(7_000));
    assert!(is_silent(5_000));
}

#[test]
fn a_provisional_interruption_is_a_verdict_in_time_and_not_a_second_one() {
    let late = |provisional: bool, replaced: bool| {
        broken(&plan(|_| {}), |trace| {
            let at = index_of_run(trace, 20_000);
            let mut interrupted = verdict(&trace.starts[at], Outcome::Interrupted);
            interrupted.at = START + 24_000;
            interrupted.replaced = replaced;
            trace.added[at].at = START + 45_000;
            trace.added.extend(provisional.then_some(interrupted));
        })
    };
    assert_eq!(late(true, true), []);
    assert!(late(true, false).contains(&Rule::TwoVerdicts));
    assert!(late(false, false).contains(&Rule::Silence));
}

#[test]
fn what_a_host_notices_within_a_second_is_not_caught_up() {
    let all = plan(|job| (job.catch_up, job.catch_up_window) = (CatchUp::All, 30_000));
    let awake = |at: i64| {
        broken(&all, |trace| {
            unstarted(
                trace,
                30_000,
                Outcome::Skipped,
                "overlap: the lock was held",
            );
            let both = |host| trouble(host, 21_000, at, Hindered::Stopped);
            trace.troubles.extend((0..2).map(both));
        })
    };
    assert!(!awake(30_900).contains(&Rule::CatchUp));
    assert!(awake(31_500).contains(&Rule::CatchUp));
}

#[test]
fn a_store_that_forgot_a_rerun_may_grant_another() {
    let rerun = plan(|job| job.on_crash = OnCrash::Rerun { max_reruns: 1 });
    let third = |lost: bool| {
        broken(&rerun, |trace| {
            for begin in [24_000, 31_000] {
                let mut again = start(1, 20_000, begin, begin + 100);
                again.attempt = u32::try_from(begin).unwrap();
                trace.added.push(verdict(&again, Outcome::Succeeded));
                trace.starts.push(again);
            }
            trace.losses.extend(lost.then(|| span(22_000, 30_000)));
        })
    };
    assert!(!third(true).contains(&Rule::Once));
    assert!(third(false).contains(&Rule::Once));
}

#[test]
fn a_host_whose_clock_is_behind_may_run_what_was_due_as_it_started() {
    let began = |from: i64| {
        broken(&plan(|_| {}), |trace| {
            lives(trace, &[(from, 60_000, 0)]);
        })
    };
    assert!(!began(5_100).contains(&Rule::DoesNotCount));
    assert!(began(5_700).contains(&Rule::DoesNotCount));
}

#[test]
fn a_verdict_that_was_lost_is_no_silence() {
    let silent = |recorded: bool| {
        broken(&plan(|_| {}), |trace| {
            forget(trace, 20_000, 21_000);
            let mut record = added(20_100, 20_000, Outcome::Skipped, "");
            record.lost = true;
            trace.added.extend(recorded.then_some(record));
            trace.losses.push(span(34_000, 38_000));
        })
    };
    assert!(!silent(true).contains(&Rule::Silence));
    assert!(silent(false).contains(&Rule::Silence));
}

#[test]
fn the_result_of_a_run_that_was_lost_is_no_silence() {
    let silent = |lost: bool| {
        let rules = broken(&plan(|_| {}), |trace| {
            let at = index_of_run(trace, 5_000);
            (trace.added[at].at, trace.added[at].lost) = (START + 34_000, lost);
            trace.losses.push(span(33_000, 38_000));
        });
        rules.contains(&Rule::Silence)
    };
    assert!(!silent(true));
    assert!(silent(false));
}

#[test]
fn a_copy_of_a_result_is_known_unless_many_others_came_in_between() {
    let twice = |others: i64, outcome: Outcome| {
        let rules = broken(&plan(|_| {}), |trace| {
            let at = index_of_run(trace, 20_000);
            for n in 0..others {
                let other = start(1, 20_000, 20_200 + n, 20_201 + n);
                trace.added.push(verdict(&other, Outcome::Failed));
            }
            let mut copy = trace.added[at].clone();
            copy.at = START + 22_000;
            copy.record.outcome = outcome;
            trace.added.push(copy);
        });
        rules.contains(&Rule::TwoVerdicts)
    };
    assert!(!twice(64, Outcome::Succeeded));
    assert!(twice(60, Outcome::Succeeded));
    assert!(twice(64, Outcome::Failed));
}

#[test]
fn another_schedule_under_another_scope_passes_what_its_ledger_is_moved_over() {
    let silent = |schedule: i64| {
        let mut lists = plan(|_| {});
        let mut own = lists.lists[0].clone();
        own.jobs[0].scope = Scope::Host;
        lists.lists.push(own);
        lists.lists[0].jobs[0].when = When::Every(schedule);
        let mut trace = truth();
        forget(&mut trace, 30_000, 31_000);
        trace.lives[1].list = 1;
        trace.lives[0].until = Some(START + 30_500);
        let found = judge(&lists, &trace);
        let mut silent = found.iter().filter(|it| it.rule == Rule::Silence);
        silent.any(|it| it.at == START + 30_000)
    };
    assert!(!silent(7_000));
    assert!(silent(5_000));
}

/// While both hosts are hindered so, 25 s and 35 s run besides one another. Host 0 runs another job from 24 s
/// until then.
fn two_of_latest(plan: &Plan, how: Hindered, other_until: i64) -> Vec<Rule> {
    broken(plan, |trace| {
        let mut other = start(0, 24_000, 24_000, other_until);
        (other.job, other.lock) = ("other".to_owned(), "other".to_owned());
        trace.starts.push(other);
        for due in [25_000, 35_000] {
            let at = index_of_run(trace, due);
            let begin = START + if due == 25_000 { 37_500 } else { 37_700 };
            let run = &mut trace.starts[at];
            (run.begin, run.end) = (begin, Some(begin + 100));
        }
        let both = |host| trouble(host, 21_000, 37_000, how);
        trace.troubles.extend((0..2).map(both));
    })
}

#[test]
fn a_bad_network_and_a_full_host_are_no_time_in_which_nobody_could_act() {
    let mut latest = plan(|job| (job.start_deadline, job.catch_up_window) = (30_000, 30_000));
    let wrong = |plan: &Plan, how: Hindered, until: i64| {
        two_of_latest(plan, how, until).contains(&Rule::CatchUp)
    };
    assert!(wrong(&latest, Hindered::Stopped, 26_000));
    assert!(!wrong(&latest, Hindered::Lossy, 26_000));
    latest.lists[0].max_running = Some(1);
    assert!(!wrong(&latest, Hindered::Stopped, 26_000));
    assert!(wrong(&latest, Hindered::Stopped, 24_900), "it had a place");
    latest.lists[0].max_running = Some(2);
    assert!(wrong(&latest, Hindered::Stopped, 26_000));
}

#[test]
fn what_a_host_claims_as_it_awakes_waits_in_the_ledger_if_its_daemon_ends_at_once() {
    let latest = plan(|job| (job.start_deadline, job.catch_up_window) = (30_000, 30_000));
    // From 21 s to 37 s both hosts can act for a moment at most, as they awake. Then they end, or have no network.
    let wrong = |awake: i64, ends: Option<i64>| {
        broken(&latest, |trace| {
            for host in 0..2 {
                let asleep = trouble(host, 21_000, awake, Hindered::Suspended);
                trace.troubles.push(asleep);
                let Some(ends) = ends else {
                    let cut = trouble(host, 21_000, 37_000, Hindered::Network);
                    trace.troubles.push(cut);
                    continue;
                };
                trace.lives.push(Life {
                    from: START + 37_000,
                    ..trace.lives[host]
                });
                let life = &mut trace.lives[host];
                (life.drains, life.until) = (Some(START + ends), Some(START + ends));
            }
            for (due, begin) in [(30_000, 37_500), (35_000, 37_700)] {
                let at = index_of_run(trace, due);
                let run = &mut trace.starts[at];
                (run.begin, run.end) = (START + begin, Some(START + begin + 100));
            }
            forget(trace, 25_000, 25_001);
        })
        .contains(&Rule::CatchUp)
    };
    assert!(!wrong(30_700, Some(30_700)));
    assert!(wrong(29_900, Some(29_900)), "it was not due");
    assert!(wrong(31_100, Some(31_100)), "it was noticed late");
    assert!(wrong(30_700, None), "its daemon goes on");
}

#[test]
fn a_host_that_is_full_as_the_store_goes_away_notices_that_when_it_has_a_place() {
    let mut latest = plan(|job| (job.start_deadline, job.catch_up_window) = (30_000, 30_000));
    latest.lists[0].max_running = Some(1);
    // It is due at 30 s and 35 s, and both run once the store is back, or the hosts go on, at 37 s.
    let wrong = |full_until: i64, away: bool| {
        broken(&latest, |trace| {
            let mut other = start(0, 18_000, 18_000, full_until);
            (other.job, other.lock) = ("other".to_owned(), "other".to_owned());
            trace.starts.push(other);
            if away {
                trace.outages.push(span(18_500, 37_000));
            } else {
                let stops = |host| trouble(host, 18_500, 37_000, Hindered::Stopped);
                trace.troubles.extend((0..2).map(stops));
            }
            for (due, begin) in [(30_000, 37_500), (35_000, 37_700)] {
                let at = index_of_run(trace, due);
                let run = &mut trace.starts[at];
                (run.begin, run.end) = (START + begin, Some(START + begin + 100));
            }
            forget(trace, 20_000, 25_001);
        })
        .contains(&Rule::CatchUp)
    };
    assert!(!wrong(28_900, true));
    assert!(wrong(23_700, true), "it had noticed");
    assert!(wrong(28_900, false), "the store was there");
}

#[test]
fn what_a_host_slept_through_is_caught_up_though_its_network_was_bad_before() {
    let caught_up = |down: OnStoreDown| {
        let skips = plan(|job| {
            (job.catch_up, job.catch_up_window) = (CatchUp::All, 30_000);
            job.on_store_down = down;
        });
        let rules = broken(&skips, |trace| {
            let why = "the store was unreachable (on_store_down: skip)";
            unstarted(trace, 25_000, Outcome::Skipped, why);
            let both = |host| trouble(host, 21_000, 31_000, Hindered::Suspended);
            trace.troubles.extend((0..2).map(both));
            trace
                .troubles
                .push(trouble(1, 19_500, 20_500, Hindered::Lossy));
        });
        !rules.contains(&Rule::CatchUp)
    };
    assert!(!caught_up(OnStoreDown::Skip));
    assert!(!caught_up(OnStoreDown::Wait));
}

#[test]
fn a_rerun_that_was_granted_to_a_dying_host_is_one_of_those_allowed() {
    let lacks = |granted: bool| {
        crash(
            |_| {},
            |trace| {
                let mut rerun = start(1, 20_000, 24_000, 24_000);
                rerun.run_id = "run-never-begun".to_owned();
                let interrupted = verdict(&rerun, Outcome::Interrupted);
                trace.added.extend(granted.then_some(interrupted));
            },
        )
        .contains(&Rule::NoRerun)
    };
    assert!(!lacks(true));
    assert!(lacks(false));
}

#[test]
fn the_window_of_a_rerun_counts_from_the_end_of_a_lease_under_which_nothing_began() {
    let too_old = |reruns: bool, granted: bool, begin: i64| {
        let job = plan(|job| {
            if reruns {
                job.on_crash = OnCrash::Rerun { max_reruns: 1 };
            }
        });
        broken(&job, |trace| {
            let at = index_of_run(trace, 20_000);
            let rerun = &mut trace.starts[at];
            (rerun.begin, rerun.end) = (START + begin, Some(START + begin + 100));
            let both = |host| trouble(host, 18_500, 23_500, Hindered::Stopped);
            trace.troubles.extend((0..2).map(both));
            if granted {
                let mut dying = start(1, 20_000, 24_000, 24_000);
                dying.run_id = "run-never-begun".to_owned();
                trace.added.push(verdict(&dying, Outcome::Interrupted));
                trace.held.push(Held {
                    exclusive: true,
                    at: START + 24_000,
                    lock: "job".to_owned(),
                    token: Some("host-1:1:run-never-begun:0".to_owned()),
                    until: START + 27_000,
                });
            }
        })
        .contains(&Rule::CatchUp)
    };
    assert!(too_old(true, false, 27_500));
    assert!(!too_old(true, true, 27_500));
    assert!(too_old(false, true, 27_500), "the job is not run again");
    assert!(!too_old(true, true, 31_900));
    assert!(too_old(true, true, 32_500));
}

#[test]
fn what_nobody_was_there_for_is_passed_by_the_schedule_of_whoever_comes_first() {
    let silent = |schedule: i64| {
        let plan = two_lists(|job| job.when = When::Every(schedule));
        let mut trace = truth();
        forget(&mut trace, 20_000, 21_000);
        lives(
            &mut trace,
            &[(0, 20_500, 0), (30_000, 35_000, 1), (35_000, 60_000, 0)],
        );
        let found = judge(&plan, &trace);
        let mut silent = found.iter().filter(|it| it.rule == Rule::Silence);
        silent.any(|it| it.at == START + 20_000)
    };
    assert!(!silent(7_000));
    assert!(silent(5_000));
}

#[test]
fn what_came_due_before_a_host_had_the_job_disabled_is_passed_when_it_takes_the_ledger_over() {
    let silent = |enabled: bool, scope: Scope, before: usize| {
        let mut lists = two_lists(|job| job.enabled = enabled);
        let mut own = lists.lists[0].clone();
        own.jobs[0].scope = scope;
        lists.lists.push(own);
        let mut trace = truth();
        forget(&mut trace, 20_000, 21_000);
        let with_lists = [
            (0, 18_000, 0),
            (18_000, 22_000, before),
            (22_000, 25_000, 1),
            (25_000, 35_000, 2),
            (35_000, 60_000, 0),
        ];
        lives(&mut trace, &with_lists);
        // Host 1 has the job, and is down for good.
        trace.lives.retain(|it| it.host == 0 || it.from == START);
        trace.lives.last_mut().unwrap().until = Some(START + 19_000);
        let found = judge(&lists, &trace);
        let mut silent = found.iter().filter(|it| it.rule == Rule::Silence);
        silent.any(|it| it.at == START + 20_000)
    };
    assert!(!silent(false, Scope::Host, 1));
    assert!(!silent(false, Scope::Host, 2), "disabled afterwards");
    assert!(silent(true, Scope::Host, 2), "it was enabled all the time");
    assert!(silent(false, Scope::Fleet, 1), "the ledger stayed");
}

#[test]
fn that_a_host_has_a_job_the_store_learns_within_a_second() {
    let silent = |had: i64| {
        let mut lists = two_lists(|job| job.enabled = false);
        let mut own = lists.lists[0].clone();
        own.jobs[0].scope = Scope::Host;
        lists.lists.push(own);
        let mut trace = truth();
        forget(&mut trace, 20_000, 21_000);
        let with_lists = [
            (0, 18_000, 0),
            (18_000, had, 1),
            (had, 25_000, 2),
            (25_000, 60_000, 0),
        ];
        lives(&mut trace, &with_lists);
        // Host 1 has the job of the fleet, and ends.
        trace.lives.retain(|it| it.host == 0 || it.from == START);
        let ends = trace.lives.last_mut().unwrap();
        (ends.drains, ends.until) = (Some(START + 19_000), Some(START + 21_000));
        let found = judge(&lists, &trace);
        let mut silent = found.iter().filter(|it| it.rule == Rule::Silence);
        silent.any(|it| it.at == START + 20_000)
    };
    assert!(!silent(20_500), "it came due before");
    assert!(!silent(19_500));
    assert!(silent(18_500));
}

#[test]
fn what_waited_on_another_host_may_run_once_more_on_the_one_that_inherits_it() {
    let twice = |ran: bool, scope: Scope| {
        let mut lists = two_lists(|job| job.scope = scope);
        lists.lists[0].jobs[0].scope = Scope::Host;
        broken(&lists, |trace| {
            under_own_lock(trace);
            trace.lives[1].until = Some(START + 22_000);
            trace.lives.push(Life {
                list: 1,
                from: START + 22_000,
                until: None,
                ..trace.lives[1]
            });
            let first = index_of_run(trace, 20_000);
            trace.starts[first].end = Some(START + 23_000);
            let mut again = start(0, 20_000, 31_000, 31_100);
            again.lock = "job@host-0".to_owned();
            trace.starts.push(again);
            let mut own = start(1, 20_000, 20_005, 20_100);
            own.lock = "job@host-1".to_owned();
            trace.starts.extend(ran.then_some(own));
        })
    };
    // It is an attempt of the other host's run, which had none so far.
    for rule in [Rule::Once, Rule::Attempts] {
        assert!(!twice(false, Scope::Fleet).contains(&rule));
        assert!(
            twice(true, Scope::Fleet).contains(&rule),
            "nothing was owed"
        );
        assert!(
            twice(false, Scope::Host).contains(&rule),
            "each kept its own"
        );
    }
}

#[test]
fn what_another_host_took_over_from_the_fleet_may_run_once_more_on_the_one_that_inherits_it() {
    let twice = |listed_from: i64| {
        let mut lists = two_lists(|job| job.scope = Scope::Fleet);
        lists.lists[0].jobs[0].scope = Scope::Host;
        broken(&lists, |trace| {
            under_own_lock(trace);
            let of_host = trace.lives[1];
            let life = |list: usize, from: i64, until: Option<i64>| Life {
                list,
                from: START + from,
                until: until.map(|until| START + until),
                ..of_host
            };
            trace.lives[1] = life(1, listed_from, Some(20_500));
            let later = [life(0, 20_500, Some(22_000)), life(1, 22_000, None)];
            trace.lives.extend(later);
            let mut again = start(0, 20_000, 31_000, 31_100);
            again.lock = "job@host-0".to_owned();
            trace.starts.push(again);
        })
        .contains(&Rule::Once)
    };
    assert!(!twice(0));
    assert!(twice(20_200), "it did not have the job when that was due");
}

#[test]
fn what_waited_on_another_host_may_have_one_more_verdict_on_the_one_that_inherits_it() {
    let twice = |decided: bool, again: i64, scope: Scope| {
        let mut lists = two_lists(|job| job.scope = scope);
        lists.lists[0].jobs[0].scope = Scope::Host;
        broken(&lists, |trace| {
            under_own_lock(trace);
            forget(trace, 20_000, 20_001);
            trace.lives[1].until = Some(START + 22_000);
            trace.lives.push(Life {
                list: 1,
                from: START + 22_000,
                until: None,
                ..trace.lives[1]
            });
            for (host, then) in [(0, 20_100), (0, again), (1, 20_100)] {
                let why = "superseded: a newer occurrence took its place";
                let mut added = added(then, 20_000, Outcome::Skipped, why);
                added.lock = format!("job@host-{host}");
                let own = host == 0;
                trace.added.extend((own || decided).then_some(added));
            }
        })
        .contains(&Rule::TwoVerdicts)
    };
    assert!(!twice(false, 31_000, Scope::Fleet));
    assert!(twice(true, 31_000, Scope::Fleet), "nothing was owed");
    assert!(twice(false, 21_000, Scope::Fleet), "not shared yet");
    assert!(twice(false, 31_000, Scope::Host), "each kept its own");
}

#[test]
fn a_host_that_has_skipped_its_own_may_run_what_waited_on_another_one_when_it_inherits_that() {
    let untrue = |decided: bool, begin: i64, scope: Scope| {
        let mut lists = two_lists(|job| job.scope = scope);
        lists.lists[0].jobs[0].scope = Scope::Host;
        broken(&lists, |trace| {
            under_own_lock(trace);
            forget(trace, 20_000, 20_001);
            trace.lives[1].until = Some(START + 22_000);
            trace.lives.push(Life {
                list: 1,
                from: START + 22_000,
                until: None,
                ..trace.lives[1]
            });
            for host in [0, 1] {
                let why = "overlap: the lock was held";
                let mut added = added(20_100, 20_000, Outcome::Skipped, why);
                added.lock = format!("job@host-{host}");
                trace.added.extend((host == 0 || decided).then_some(added));
            }
            let mut inherited = start(0, 20_000, begin, begin + 100);
            inherited.lock = "job@host-0".to_owned();
            trace.starts.push(inherited);
        })
        .contains(&Rule::Untrue)
    };
    assert!(!untrue(false, 31_000, Scope::Fleet));
    assert!(untrue(true, 31_000, Scope::Fleet), "nothing was owed");
    assert!(untrue(false, 21_000, Scope::Fleet), "not shared yet");
    assert!(untrue(false, 31_000, Scope::Host), "each kept its own");
}

/// With `catch_up: none`, what was due then begins at a time; the hosts are down, or stand still, from 16 s to
/// 27 s.
fn without_catch_up(due: i64, begin: i64, how: Option<Hindered>) -> bool {
    let none = plan(|job| {
        (job.catch_up, job.start_deadline, job.catch_up_window) = (CatchUp::None, 8_000, 5_000);
    });
    let rules = broken(&none, |trace| {
        forget(trace, 16_000, due);
        forget(trace, due + 1, 27_000);
        let at = index_of_run(trace, due);
        let run = &mut trace.starts[at];
        (run.begin, run.end) = (START + begin, Some(START + begin + 50));
        match how {
            Some(how) => {
                let both = |host| trouble(host, 16_000, 27_000, how);
                trace.troubles.extend((0..2).map(both));
            }
            None => lives(trace, &[(0, 16_000, 0), (27_000, 60_000, 0)]),
        }
    });
    rules.contains(&Rule::CatchUp)
}

#[test]
fn without_catch_up_nothing_starts_that_came_due_while_no_host_was_up() {
    assert!(without_catch_up(25_000, 27_200, None));
    let due_at_the_start = without_catch_up(25_000, 25_200, Some(Hindered::Short));
    assert!(!due_at_the_start);
}

#[test]
fn without_catch_up_a_host_that_stood_still_starts_the_newest_in_time_and_nothing_else() {
    let stopped = Some(Hindered::Stopped);
    assert!(!without_catch_up(25_000, 27_200, stopped));
    assert!(without_catch_up(20_000, 27_200, stopped), "25 s is newer");
    assert!(without_catch_up(25_000, 33_200, stopped), "too late");
    assert!(!without_catch_up(25_000, 27_200, Some(Hindered::Suspended)));
}
