//! Excuses about locks: who keeps whom out, and what a run does that has lost its own.

use cronlatch::config::{OnLost, OnOverlap, OnStoreDown, Scope};
use cronlatch::store::Outcome;
use cronlatch::store::protocol::REASON_INTERRUPTED;

use super::{
    START, added, broken, index_of_run, lease, plan, span, start, trouble, unstarted, verdict,
};
use crate::judge::Rule;
use crate::plan::{Act, ForeignKey, NodeAct, Plan, StoreKind};
use crate::trace::{Added, Admitted, Ended, Foreign, Held, Hindered, Reloaded};
use crate::world::World;

#[test]
fn a_key_that_never_ends_was_released_at_no_time() {
    let rules = broken(&plan(|_| {}), |trace| {
        let why = "its start deadline had passed";
        unstarted(trace, 20_000, Outcome::Missed, why);
        let span = span(24_000, i64::MAX - START);
        let deleted = false;
        let foreign = Foreign { span, deleted };
        trace.foreign.push(("job".to_owned(), foreign));
    });
    assert!(rules.contains(&Rule::Missed));
}

#[test]
fn runs_that_exclude_nobody_may_begin_in_another_order_than_they_were_granted() {
    let broken_by = |on_lost: OnLost, granted: [i64; 2]| {
        broken(&plan(|job| job.on_lost = on_lost), |trace| {
            let runs = granted.map(|due| index_of_run(trace, due));
            for (nr, at) in runs.into_iter().enumerate() {
                let token = format!("host-0:1:{}:0", trace.starts[at].run_id);
                let from = 20_001 + i64::try_from(nr).unwrap();
                trace.held.push(lease("job", &token, from, from + 3_000));
            }
            // The one that begins first has the higher token.
            let [first, second] = [20_000, 25_000].map(|due| index_of_run(trace, due));
            let fence = trace.starts[first].fence;
            trace.starts[first].fence = trace.starts[second].fence;
            trace.starts[second].fence = fence;
        })
        .contains(&Rule::Fencing)
    };
    assert!(!broken_by(OnLost::Continue, [25_000, 20_000]));
    assert!(broken_by(OnLost::Continue, [20_000, 25_000]));
    assert!(broken_by(OnLost::Kill, [25_000, 20_000]));
}

/// The occurrence of 20 s is skipped while a claim has reached a node, and is granted then.
fn skipped_beside_a_claim(store: StoreKind, reached: i64, granted: i64, token: &str) -> bool {
    let plan = Plan {
        store,
        ..plan(|_| {})
    };
    let rules = broken(&plan, |trace| {
        unstarted(
            trace,
            20_000,
            Outcome::Skipped,
            "overlap: the lock was held",
        );
        let decided = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
        decided.unwrap().at = START + 20_050;
        let (lock, claim) = ("job".to_owned(), "host-1:1:other:0".to_owned());
        trace.reached.push((START + reached, lock.clone(), claim));
        trace.held.push(Held {
            at: START + granted,
            lock,
            token: Some(token.to_owned()),
            until: START + granted + 3_000,
            exclusive: true,
        });
    });
    rules.contains(&Rule::Reason)
}

#[test]
fn a_claim_keeps_others_out_once_it_has_reached_a_node_if_it_is_granted_soon() {
    let (nodes, token) = (StoreKind::Quorum(3), "host-1:1:other:0");
    assert!(!skipped_beside_a_claim(nodes, 20_030, 20_200, token));
    assert!(skipped_beside_a_claim(nodes, 20_060, 20_200, token));
    assert!(skipped_beside_a_claim(nodes, 20_030, 31_000, token));
    let another = "host-1:1:another:0";
    assert!(skipped_beside_a_claim(nodes, 20_030, 20_200, another));
}

/// A lease of 3 s ends at 20 s, the store stands still before, and the occurrence of 20 s is skipped at 20.05 s.
fn skipped_after_a_standstill(store: StoreKind, still: (i64, i64), token: Option<&str>) -> bool {
    let plan = Plan {
        store,
        ..plan(|_| {})
    };
    let rules = broken(&plan, |trace| {
        let why = "overlap: the lock was held";
        unstarted(trace, 20_000, Outcome::Skipped, why);
        let decided = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
        decided.unwrap().at = START + 20_050;
        trace.outages.push(span(still.0, still.1));
        trace.held.push(Held {
            at: START + 17_000,
            lock: "job".to_owned(),
            token: token.map(str::to_owned),
            until: START + 20_000,
            exclusive: true,
        });
    });
    rules.contains(&Rule::Reason)
}

#[test]
fn nodes_that_continue_may_renew_the_lease_of_a_host_that_has_died_meanwhile() {
    let (nodes, token) = (StoreKind::Quorum(3), Some("host-1:1:other:0"));
    let skipped = skipped_after_a_standstill;
    assert!(!skipped(nodes, (18_000, 19_500), token));
    assert!(skipped(StoreKind::Redis, (18_000, 19_500), token));
    assert!(skipped(nodes, (18_000, 19_500), None), "it was released");
    assert!(skipped(nodes, (20_500, 21_000), token), "it went on then");
    assert!(skipped(nodes, (12_000, 15_500), token), "before the lease");
}

#[test]
fn what_another_decision_has_overtaken_still_fills_the_queue() {
    let wrong = |replaced: bool| {
        // The occurrence of the very beginning was never decided.
        let queue = plan(|job| job.on_overlap = OnOverlap::Queue { limit: 2 });
        let rules = broken(&queue, |trace| {
            let why = "the queue was full";
            unstarted(trace, 25_000, Outcome::Skipped, why);
            let skip = added(20_001, 20_000, Outcome::Skipped, why);
            trace.added.push(Added { replaced, ..skip });
            let at = index_of_run(trace, 20_000);
            trace.starts[at].begin = START + 26_000;
            trace.added[at].at = START + 26_100;
        });
        rules.contains(&Rule::Reason)
    };
    assert!(!wrong(true));
    assert!(wrong(false));
}

#[test]
fn what_was_reported_under_a_lock_that_the_store_does_not_know_fills_the_queue() {
    let wrong = |lock: &str, fence: Option<u64>, told: bool| {
        // The occurrence of the very beginning was never decided.
        let mut lists = plan(|job| {
            job.on_overlap = OnOverlap::Queue { limit: 2 };
            job.on_store_down = OnStoreDown::Run;
        });
        lists.lists.push(lists.lists[0].clone());
        lists.lists[1].jobs[0].lock = Some("other".to_owned());
        let rules = broken(&lists, |trace| {
            for (at, list) in [(29_900, 1), (30_500, 0)] {
                let (at, life) = (START + at, 0);
                trace.reloads.push(Reloaded { at, life, list });
            }
            if told {
                let (at, host, job) = (START + 29_950, 0, "job".to_owned());
                trace.admitted.push(Admitted { at, host, job });
            }
            let at = index_of_run(trace, 30_000);
            (trace.starts[at].fence, trace.starts[at].lock) = (fence, lock.to_owned());
            trace.added[at].lock = lock.to_owned();
            trace.added[at].record.fence = fence;
            unstarted(trace, 45_000, Outcome::Skipped, "the queue was full");
        });
        rules.contains(&Rule::Reason)
    };
    assert!(!wrong("other", None, false));
    assert!(wrong("job", None, false), "the ledger knows it");
    assert!(wrong("other", Some(30_005), false), "it was granted there");
    assert!(wrong("other", None, true), "the lock was known");
}

#[test]
fn what_comes_due_while_a_job_counts_although_no_list_has_it_takes_the_place_of_what_waits() {
    let wrong = |cut: bool| {
        let mut lists = plan(|job| job.on_overlap = OnOverlap::Wait);
        lists.lists.push(lists.lists[0].clone());
        lists.lists[1].jobs.clear();
        let rules = broken(&lists, |trace| {
            for life in 0..2 {
                for (at, list) in [(28_000, 1), (33_000, 0)] {
                    let at = START + at;
                    trace.reloads.push(Reloaded { at, life, list });
                }
            }
            if cut {
                let cut = trouble(0, 27_900, 32_000, Hindered::Network);
                trace.troubles.push(cut);
            }
            let why = "superseded: a newer occurrence took its place";
            unstarted(trace, 25_000, Outcome::Skipped, why);
            let unstarted = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
            unstarted.unwrap().at = START + 33_500;
        });
        rules.contains(&Rule::Reason)
    };
    assert!(!wrong(true));
    assert!(wrong(false), "the host could tell that it has not");
}

#[test]
fn what_a_ledger_inherits_fills_the_queue() {
    let wrong = |begin: Option<i64>, enabled: bool| {
        // The occurrence of the very beginning was never decided.
        let mut lists = plan(|job| job.on_overlap = OnOverlap::Queue { limit: 2 });
        lists.lists.push(lists.lists[0].clone());
        lists.lists[0].jobs[0].enabled = enabled;
        lists.lists[1].jobs[0].scope = Scope::Host;
        let rules = broken(&lists, |trace| {
            trace.reloads.extend((0..2).map(|life| Reloaded {
                at: START + 27_000,
                life,
                list: 1,
            }));
            let own = "job@host-0".to_owned();
            let at = index_of_run(trace, 20_000);
            match begin {
                Some(begin) => trace.starts[at].begin = START + begin,
                None => drop(trace.starts.remove(at)),
            }
            trace.added.remove(at);
            unstarted(trace, 45_000, Outcome::Skipped, "the queue was full");
            let begun = START + 27_000;
            for start in trace.starts.iter_mut().filter(|it| it.begin > begun) {
                start.lock.clone_from(&own);
            }
            for added in trace.added.iter_mut().filter(|it| it.at > begun) {
                added.lock.clone_from(&own);
            }
        });
        rules.contains(&Rule::Reason)
    };
    assert!(!wrong(None, true), "it still waits");
    assert!(!wrong(Some(50_000), true), "it starts later");
    assert!(wrong(Some(20_005), true), "it ran under the old scope");
    assert!(wrong(None, false), "no list had it");
}

#[test]
fn what_ran_before_it_was_due_still_fills_the_queue() {
    let wrong = |told: i64| {
        // The occurrence of the very beginning was never decided.
        let queue = plan(|job| job.on_overlap = OnOverlap::Queue { limit: 2 });
        let rules = broken(&queue, |trace| {
            unstarted(trace, 25_000, Outcome::Skipped, "the queue was full");
            let mut alone = start(1, 20_000, 17_000, 17_500);
            alone.fence = None;
            let at = START + told;
            let told = verdict(&alone, Outcome::Succeeded);
            trace.added.push(Added { at, ..told });
            trace.starts.push(alone);
            let at = index_of_run(trace, 20_000);
            trace.starts[at].begin = START + 26_000;
            trace.added[at].at = START + 26_100;
        });
        rules.contains(&Rule::Reason)
    };
    assert!(!wrong(18_000));
    assert!(wrong(19_500));
}

#[test]
fn a_skip_that_another_decision_has_overtaken_needs_no_reason() {
    let wrong = |replaced: bool| {
        let rules = broken(&plan(|_| {}), |trace| {
            let why = "overlap: the lock was held";
            let skip = added(20_001, 20_000, Outcome::Skipped, why);
            trace.added.push(Added { replaced, ..skip });
        });
        rules.contains(&Rule::Reason)
    };
    assert!(!wrong(true));
    assert!(wrong(false));
}

#[test]
fn a_skip_may_be_as_old_as_what_the_other_nodes_said_while_one_is_silent() {
    let wrong = |released: i64, silent: i64| {
        let how = NodeAct::Freeze { lasts: 1_000 };
        let plan = Plan {
            store: StoreKind::Quorum(3),
            acts: vec![(silent, Act::Node { node: 0, how })],
            ..plan(|_| {})
        };
        let rules = broken(&plan, |trace| {
            let why = "overlap: the lock was held";
            unstarted(trace, 20_000, Outcome::Skipped, why);
            let decided = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
            decided.unwrap().at = START + 20_310;
            trace.held.push(Held {
                at: START + 19_000,
                lock: "job".to_owned(),
                token: Some("host-1:1:other:0".to_owned()),
                until: START + released,
                exclusive: true,
            });
        });
        rules.contains(&Rule::Reason)
    };
    assert!(!wrong(20_005, 19_500));
    assert!(wrong(19_980, 19_500), "it was free when they were asked");
    assert!(wrong(20_005, 30_000), "all nodes answer");
}

#[test]
fn a_run_that_goes_on_without_its_lease_counts_its_attempts_alone() {
    let miscounts = |on_lost: OnLost, lease_end: i64| {
        let job = plan(|job| {
            job.on_lost = on_lost;
            job.retry = Some((2, 500));
        });
        let rules = broken(&job, |trace| {
            let at = index_of_run(trace, 20_000);
            let mut second = trace.starts[at].clone();
            trace.starts[at].ended = Some(Ended::Itself(1));
            second.attempt = 2;
            (second.begin, second.end) = (START + 24_000, Some(START + 26_100));
            trace.held.push(Held {
                exclusive: true,
                at: START + 20_000,
                lock: "job".to_owned(),
                token: Some(format!("host-0:1:{}:0", second.run_id)),
                until: START + lease_end,
            });
            let mut again = start(1, 20_000, 24_500, 24_600);
            again.attempt = 2;
            trace.added[at] = verdict(&second, Outcome::Succeeded);
            trace.added.push(verdict(&again, Outcome::Succeeded));
            trace.starts.extend([second, again]);
        });
        rules.contains(&Rule::Attempts)
    };
    assert!(!miscounts(OnLost::Continue, 23_000));
    assert!(miscounts(OnLost::Continue, 24_050));
    assert!(miscounts(OnLost::Kill, 23_000));
}

#[test]
fn a_dead_run_has_no_record_while_a_host_with_another_lock_counts_as_live() {
    let mut changed = plan(|_| {});
    let mut list = changed.lists[0].clone();
    list.jobs[0].lock = Some("other".to_owned());
    changed.lists.push(list);
    let silent = |died: i64, list: usize| {
        let rules = broken(&changed, |trace| {
            trace.lives[1].list = list;
            (trace.lives[0].until, trace.lives[0].killed) = (Some(START + died), true);
            let at = index_of_run(trace, 5_000);
            trace.added.remove(at);
            let run = &mut trace.starts[at];
            (run.end, run.ended) = (Some(START + died), Some(Ended::WithMachine));
        });
        rules.contains(&Rule::Silence)
    };
    assert!(!silent(6_000, 1));
    assert!(silent(6_000, 0), "the lists agree");
}

#[test]
fn the_record_of_a_run_that_lost_its_lease_lacks_what_it_did_since() {
    let miscounts = |lease_end: i64| {
        let job = plan(|job| {
            job.on_lost = OnLost::Continue;
            job.retry = Some((3, 500));
        });
        let rules = broken(&job, |trace| {
            let at = index_of_run(trace, 20_000);
            let mut third = trace.starts[at].clone();
            trace.starts[at].ended = Some(Ended::Itself(1));
            third.attempt = 2;
            (third.begin, third.end) = (START + 24_000, Some(START + 27_000));
            trace.held.push(Held {
                exclusive: true,
                at: START + 20_000,
                lock: "job".to_owned(),
                token: Some(format!("host-0:1:{}:0", third.run_id)),
                until: START + lease_end,
            });
            trace.starts.push(third);
            trace.added[at].record.outcome = Outcome::Interrupted;
        });
        rules.contains(&Rule::Attempts)
    };
    assert!(!miscounts(23_000));
    assert!(miscounts(25_000));
}

#[test]
fn a_changed_lock_is_busy_while_the_lock_is_that_each_list_names() {
    let mut changed = plan(|_| {});
    let mut list = changed.lists[0].clone();
    list.jobs[0].lock = Some("other".to_owned());
    changed.lists.push(list);
    let missed = |first: &str, second: &str| {
        let rules = broken(&changed, |trace| {
            for host in 0..2 {
                let mut life = trace.lives[host];
                trace.lives[host].until = Some(START + 30_000);
                (life.from, life.list) = (START + 30_000, 1);
                trace.lives.push(life);
            }
            let why = "its start deadline had passed";
            unstarted(trace, 20_000, Outcome::Missed, why);
            let decided = trace.added.iter_mut().find(|it| it.record.run_id.is_none());
            decided.unwrap().lock = "other".to_owned();
            for (lock, from, until) in [(first, 19_900, 23_100), (second, 29_900, 40_000)] {
                trace.held.push(Held {
                    at: START + from,
                    lock: lock.to_owned(),
                    token: Some("host-1:1:another:0".to_owned()),
                    until: START + until,
                    exclusive: true,
                });
            }
        });
        rules.contains(&Rule::Missed)
    };
    assert!(!missed("job", "other"));
    assert!(missed("other", "other"));
}

#[test]
fn old_data_bring_another_programs_key_back() {
    let spans = |store: StoreKind, saves: Act, returns: Act| {
        let key = ForeignKey {
            ttl: None,
            other_type: false,
        };
        let lock = "job".to_owned();
        let seize = Act::Seize {
            lock: lock.clone(),
            key,
        };
        let plan = Plan {
            store,
            acts: vec![
                (5_000, seize),
                (6_000, saves),
                (7_000, Act::Unseize { lock }),
                (8_000, returns),
            ],
            ..plan(|_| {})
        };
        let mut world = World::new(&plan, false);
        world.run();
        let spans = world.sim.trace.foreign.iter().map(|(_, it)| it.span);
        spans.collect::<Vec<_>>()
    };
    let there = [span(5_000, 7_000), span(8_000, i64::MAX - START)];
    let replica = spans(StoreKind::Redis, Act::ReplicaStops, Act::Failover);
    assert_eq!(replica, there);
    let nodes = spans(StoreKind::Quorum(3), Act::StoreSnapshot, Act::StoreRestore);
    assert_eq!(nodes, there);
    let wiped = spans(StoreKind::Quorum(3), Act::StoreSnapshot, Act::StoreWipe);
    assert_eq!(wiped, there[..1]);
}

#[test]
fn a_skip_that_a_run_overtook_is_no_record_any_more() {
    let untrue = |overtaken: bool| {
        let rules = broken(&plan(|_| {}), |trace| {
            let why = "superseded: a newer occurrence took its place";
            let mut skipped = added(20_001, 20_000, Outcome::Skipped, why);
            skipped.replaced = overtaken;
            trace.added.push(skipped);
        });
        rules.contains(&Rule::Untrue)
    };
    assert!(!untrue(true));
    assert!(untrue(false));
}

#[test]
fn what_came_due_while_all_were_away_has_no_verdict_while_they_are_held_back() {
    let mut changed = plan(|_| {});
    let mut list = changed.lists[0].clone();
    list.jobs[0].lock = Some("other".to_owned());
    changed.lists.push(list);
    let silent = |stopped_until: i64, list: usize| {
        let rules = broken(&changed, |trace| {
            let at = index_of_run(trace, 20_000);
            trace.starts.remove(at);
            trace.added.remove(at);
            // Host 0 has the old list, and stands still.
            let stops = trouble(0, 19_000, stopped_until, Hindered::Stopped);
            trace.troubles.push(stops);
            trace.lives[0].until = Some(START + stopped_until);
            trace.lives[1].until = Some(START + 20_500);
            let mut back = trace.lives[1];
            (back.from, back.until, back.list) = (START + 26_000, None, list);
            trace.lives.push(back);
        });
        rules.contains(&Rule::Silence)
    };
    assert!(!silent(50_000, 1));
    assert!(silent(30_000, 1), "there was time");
    assert!(silent(50_000, 0), "the lists agree");
}

#[test]
fn what_stood_for_a_run_under_another_lock_is_not_shown_beside_its_result() {
    let two = |lock: &str, outcome: Outcome| {
        let rules = broken(&plan(|_| {}), |trace| {
            let at = index_of_run(trace, 20_000);
            let mut before = trace.added[at].clone();
            before.record.outcome = outcome;
            before.record.reason = Some(REASON_INTERRUPTED.to_owned());
            before.lock = lock.to_owned();
            trace.added.insert(at, before);
        });
        rules.contains(&Rule::TwoVerdicts)
    };
    assert!(!two("other", Outcome::Interrupted));
    assert!(two("job", Outcome::Interrupted));
    assert!(two("other", Outcome::Failed));
}
