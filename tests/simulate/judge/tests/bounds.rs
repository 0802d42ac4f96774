//! Excuses that end: what is forgiven near a fault is not forgiven for ever.

use cronlatch::config::{CatchUp, OnLost, OnStoreDown, Scope};
use cronlatch::store::Outcome;
use cronlatch::store::protocol::REASON_SUPERSEDED;

use super::{
    START, broken, index_of_run, lease, plan, span, start, trouble, under_own_lock, unstarted,
};
use crate::judge::Rule;
use crate::plan::{Act, JobPlan, NodeAct, Plan, StoreKind, When};
use crate::trace::{Ended, Hindered, Reloaded};

#[test]
fn what_ran_is_forgotten_by_a_loss_of_that_time_and_not_by_an_earlier_one() {
    let out_of_order = |loss: Option<i64>| {
        broken(&plan(|_| {}), |trace| {
            let at = index_of_run(trace, 20_000);
            let late = &mut trace.starts[at];
            (late.begin, late.end) = (START + 41_000, Some(START + 41_100));
            trace
                .losses
                .extend(loss.map(|from| span(from, from + 4_000)));
        })
        .contains(&Rule::Order)
    };
    assert!(out_of_order(None));
    assert!(!out_of_order(Some(38_000)));
    assert!(out_of_order(Some(10_000)), "long before");
}

#[test]
fn occurrences_run_in_order_once_all_lists_agree() {
    let mut lists = plan(|_| {});
    lists.lists.push(lists.lists[0].clone());
    lists.lists[1].jobs[0].start_deadline = 4_000;
    let out_of_order = |reloaded: i64| {
        broken(&lists, |trace| {
            let at = index_of_run(trace, 20_000);
            let late = &mut trace.starts[at];
            (late.begin, late.end) = (START + 26_000, Some(START + 26_100));
            trace.reloads.extend((0..2).map(|life| Reloaded {
                at: START + reloaded,
                life,
                list: 1,
            }));
        })
        .contains(&Rule::Order)
    };
    assert!(out_of_order(10_000));
    assert!(out_of_order(40_000));
    assert!(!out_of_order(22_000), "it came due under the list before");
}

/// The host of the run of 20 s dies at 20.1 s, and its lease is extended then.
fn extended(store: StoreKind, acts: Vec<(i64, Act)>, at: i64, outage: Option<(i64, i64)>) -> bool {
    let plan = Plan {
        store,
        acts,
        ..plan(|_| {})
    };
    let rules = broken(&plan, |trace| {
        let died = index_of_run(trace, 20_000);
        trace.starts[died].ended = Some(Ended::WithMachine);
        trace.added[died].record.outcome = Outcome::Interrupted;
        let token = format!("host-0:1:{}:0", trace.starts[died].run_id);
        trace.held.push(lease("job", &token, at, at + 3_000));
        let outage = outage.map(|(from, until)| span(from, until));
        trace.outages.extend(outage);
    });
    rules.contains(&Rule::Progress)
}

#[test]
fn what_a_dead_host_has_sent_arrives_within_seconds_or_when_the_store_goes_on() {
    let redis = |at, outage| extended(StoreKind::Redis, Vec::new(), at, outage);
    assert!(!redis(25_000, None));
    assert!(redis(25_200, None));
    assert!(!redis(34_500, Some((21_000, 34_000))));
    assert!(redis(36_000, Some((21_000, 34_000))));
    assert!(redis(36_000, Some((30_000, 36_000))), "a later outage");
    let how = NodeAct::Freeze { lasts: 10_000 };
    let acts = vec![(22_000, Act::Node { node: 0, how })];
    assert!(!extended(StoreKind::Quorum(3), acts.clone(), 32_500, None));
    assert!(extended(StoreKind::Quorum(3), acts, 34_000, None));
}

#[test]
fn a_short_start_deadline_may_pass_while_a_host_waits_for_silent_nodes() {
    let missed = |deadline: i64, spread: i64, silent: usize, refuses: bool| {
        let lasts = 20_000;
        let down = |node| {
            (
                10_000,
                Act::Node {
                    node,
                    how: NodeAct::Down { lasts, refuses },
                },
            )
        };
        let mut plan = Plan {
            store: StoreKind::Quorum(5),
            acts: (0..silent).map(down).collect(),
            ..plan(|job| job.start_deadline = deadline)
        };
        plan.lists[0].spread = spread;
        broken(&plan, |trace| {
            unstarted(
                trace,
                20_000,
                Outcome::Missed,
                "its start deadline had passed",
            );
        })
        .contains(&Rule::Missed)
    };
    assert!(!missed(1_000, 500, 2, false));
    assert!(missed(1_000, 500, 1, false), "one node takes less");
    assert!(missed(1_000, 0, 2, false), "it claims at once");
    assert!(missed(3_000, 500, 2, false), "there was time");
    assert!(missed(1_000, 500, 2, true), "they refuse at once");
}

#[test]
fn a_run_that_may_outlive_its_lease_overlaps_and_its_fence_rises_all_the_same() {
    let overlapping = |edit: fn(&mut JobPlan), fence: u64| {
        let mut lists = plan(|_| {});
        lists.lists.push(lists.lists[0].clone());
        edit(&mut lists.lists[1].jobs[0]);
        broken(&lists, |trace| {
            trace.reloads.extend((0..2).map(|life| Reloaded {
                at: START + 10_000,
                life,
                list: 1,
            }));
            let at = index_of_run(trace, 20_000);
            trace.starts[at].end = Some(START + 25_050);
            let at = index_of_run(trace, 25_000);
            trace.starts[at].fence = Some(fence);
        })
    };
    let continues: fn(&mut JobPlan) = |job| job.on_lost = OnLost::Continue;
    assert!(!overlapping(continues, 25_000).contains(&Rule::Exclusion));
    assert!(overlapping(|_| {}, 25_000).contains(&Rule::Exclusion));
    assert!(overlapping(continues, 20_000).contains(&Rule::Fencing));
    assert!(!overlapping(continues, 25_000).contains(&Rule::Fencing));
}

#[test]
fn what_ran_under_the_list_before_excludes_others_whatever_the_list_says_later() {
    let mut lists = plan(|_| {});
    lists.lists.push(lists.lists[0].clone());
    lists.lists[1].jobs[0].on_lost = OnLost::Continue;
    let rules = broken(&lists, |trace| {
        trace.reloads.extend((0..2).map(|life| Reloaded {
            at: START + 40_000,
            life,
            list: 1,
        }));
        let at = index_of_run(trace, 20_000);
        trace.starts[at].end = Some(START + 25_050);
    });
    assert!(rules.contains(&Rule::Exclusion));
}

#[test]
fn the_fences_of_a_job_without_a_lock_rise() {
    let none = plan(|job| job.scope = Scope::None);
    let rules = broken(&none, |trace| {
        under_own_lock(trace);
        let at = index_of_run(trace, 20_000);
        trace.starts[at].fence = Some(1);
    });
    assert!(rules.contains(&Rule::Fencing), "{rules:?}");
}

#[test]
fn what_came_due_while_the_store_was_away_is_not_caught_up_if_the_job_says_so_and_the_rest_is() {
    let given_up = |down: OnStoreDown, outage: (i64, i64)| {
        let all = plan(|job| {
            (job.catch_up, job.catch_up_window) = (CatchUp::All, 30_000);
            job.on_store_down = down;
        });
        broken(&all, |trace| {
            let why = "the store was unreachable (on_store_down: skip)";
            unstarted(trace, 25_000, Outcome::Skipped, why);
            trace.outages.push(span(outage.0, outage.1));
            // Nobody is there from 17 s to 35 s, but for the time of the outage.
            for host in 0..2 {
                let how = Hindered::Stopped;
                trace.troubles.push(trouble(host, 17_000, outage.0, how));
                trace.troubles.push(trouble(host, outage.1, 35_000, how));
            }
        })
        .contains(&Rule::CatchUp)
    };
    assert!(!given_up(OnStoreDown::Skip, (24_000, 27_000)));
    assert!(given_up(OnStoreDown::Wait, (24_000, 27_000)));
    assert!(
        given_up(OnStoreDown::Skip, (29_000, 31_000)),
        "it was up then"
    );
}

#[test]
fn what_is_caught_up_is_superseded_only_while_others_have_its_lock() {
    let given_up = |held_until: i64| {
        let latest = plan(|job| (job.when, job.catch_up_window) = (When::Every(10_000), 60_000));
        broken(&latest, |trace| {
            unstarted(trace, 20_000, Outcome::Missed, "");
            unstarted(trace, 30_000, Outcome::Skipped, REASON_SUPERSEDED);
            for added in &mut trace.added {
                let superseded = added.record.reason.as_deref() == Some(REASON_SUPERSEDED);
                added.at = if superseded { START + 40_000 } else { added.at };
            }
            let stops = |host| trouble(host, 16_000, 32_000, Hindered::Stopped);
            trace.troubles.extend((0..2).map(stops));
            let token = "host-1:1:other:0";
            trace.held.push(lease("job", token, 31_000, held_until));
        })
        .contains(&Rule::CatchUp)
    };
    assert!(!given_up(40_000));
    assert!(given_up(36_000), "there was time");
}

#[test]
fn what_nobody_had_time_to_catch_up_before_the_store_was_away_again_is_not_the_newest_any_more() {
    let given_up = |again: i64| {
        let latest = plan(|job| (job.when, job.catch_up_window) = (When::Every(10_000), 60_000));
        broken(&latest, |trace| {
            unstarted(trace, 20_000, Outcome::Missed, "");
            unstarted(trace, 30_000, Outcome::Missed, "");
            for added in &mut trace.added {
                let missed = added.record.outcome == Outcome::Missed;
                added.at = if missed { START + 55_000 } else { added.at };
            }
            trace.outages.push(span(16_000, 32_000));
            trace.outages.push(span(again, 54_000));
        })
        .contains(&Rule::CatchUp)
    };
    assert!(!given_up(32_100));
    assert!(given_up(38_500), "there was time");
}

/// What came due at 10 s and 20 s is recorded at 41 s as not the newest: all hosts stood still until 22 s, the
/// next occurrence came due at 30 s, and another job ran on the hosts meanwhile, which may run one at a time.
fn overtaken(catch_up: CatchUp, runs: &[(usize, i64, i64)]) -> bool {
    let mut full = plan(|job| {
        (job.when, job.catch_up_window) = (When::Every(10_000), 60_000);
        job.catch_up = catch_up;
    });
    full.lists[0].max_running = Some(1);
    broken(&full, |trace| {
        for due in [10_000, 20_000] {
            unstarted(trace, due, Outcome::Missed, "a newer one came due");
        }
        for added in &mut trace.added {
            let missed = added.record.outcome == Outcome::Missed;
            added.at = if missed { START + 41_000 } else { added.at };
        }
        let stops = |host| trouble(host, 6_000, 22_000, Hindered::Stopped);
        trace.troubles.extend((0..2).map(stops));
        for (host, begin, end) in runs {
            let mut other = start(*host, 18_000, *begin, *end);
            (other.job, other.lock) = ("other".to_owned(), format!("other@{host}"));
            trace.starts.push(other);
        }
    })
    .contains(&Rule::CatchUp)
}

#[test]
fn what_is_caught_up_is_overtaken_only_while_no_host_has_a_place() {
    let both = [(0, 23_000, 42_000), (1, 23_000, 42_000)];
    assert!(!overtaken(CatchUp::Latest, &both));
    assert!(overtaken(CatchUp::All, &both), "all are caught up");
    assert!(overtaken(CatchUp::Latest, &both[..1]), "host 1 has a place");
    let later = [(0, 23_000, 42_000), (1, 30_000, 42_000)];
    assert!(overtaken(CatchUp::Latest, &later), "there was time");
}

/// With `on_store_down: skip`, the store is away until 20.5 s, and both hosts sleep until after that: what
/// came due at 25 s is skipped as they wake, and 20 s is caught up.
fn woken(down: OnStoreDown, (asleep, awake): (i64, i64)) -> bool {
    let latest = plan(|job| {
        (job.start_deadline, job.catch_up_window) = (30_000, 30_000);
        job.on_store_down = down;
    });
    broken(&latest, |trace| {
        let why = "the store was unreachable (on_store_down: skip)";
        unstarted(trace, 25_000, Outcome::Skipped, why);
        let at = index_of_run(trace, 20_000);
        let begin = START + awake + 700;
        let run = &mut trace.starts[at];
        (run.begin, run.end) = (begin, Some(begin + 100));
        run.fence = Some(u64::try_from(begin - START).unwrap());
        trace.outages.push(span(12_000, 20_500));
        let sleeps = |host| trouble(host, asleep, awake, Hindered::Suspended);
        trace.troubles.extend((0..2).map(sleeps));
    })
    .contains(&Rule::CatchUp)
}

#[test]
fn a_host_that_fell_asleep_in_an_outage_asks_again_before_it_acts_on_it() {
    assert!(woken(OnStoreDown::Skip, (14_000, 25_700)));
    assert!(woken(OnStoreDown::Wait, (14_000, 25_700)));
    assert!(woken(OnStoreDown::Skip, (14_000, 27_500)));
    assert!(woken(OnStoreDown::Skip, (11_000, 25_700)));
}
