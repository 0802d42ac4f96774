//! Other hosts' runs whose lease ends.

use super::super::Policy;
use super::super::event::{Action, Event};
use super::bench::{Bench, JOB, decided, granted, held, policy, running};
use crate::config::{OnCrash, OnOverlap};
use crate::names::RunId;
use crate::store::{ClaimReply, Kind};

fn rerun() -> Policy {
    Policy {
        on_crash: OnCrash::Rerun { max_reruns: 3 },
        ..policy()
    }
}

fn settles(run_id: &str) -> Action {
    Action::Settle {
        job: JOB,
        run_id: RunId::from_text(run_id),
    }
}

#[test]
fn a_loser_asks_for_the_run_again_when_its_lease_is_over() {
    let mut bench = Bench::new(rerun());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, running(5));
    bench.nothing();
    bench.at(1014);
    bench.nothing();
    bench.at(1016);
    let again = bench.claim(1010);
    assert_eq!((again.kind, again.max_reruns), (Kind::Rerun, 3));
    bench.answer(
        &again,
        ClaimReply::Granted {
            fence: 8,
            attempt: 2,
            at: super::bench::secs(1016),
        },
    );
    let Action::Start { attempt, kind, .. } = bench.action() else {
        panic!("it is not started");
    };
    assert_eq!((attempt, kind), (2, Kind::Rerun));
    bench.at(1100);
    bench.nothing();
}

#[test]
fn a_lease_that_was_renewed_is_looked_after_again() {
    let mut bench = Bench::new(rerun());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, running(3));
    bench.at(1014);
    let again = bench.claim(1010);
    bench.answer(&again, running(3));
    bench.nothing();
    bench.at(1018);
    let again = bench.claim(1010);
    bench.answer(&again, decided());
    bench.at(1100);
    bench.nothing();
}

#[test]
fn without_rerun_the_orphan_is_closed() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, running(5));
    bench.at(1016);
    let again = bench.claim(1010);
    assert_eq!(again.max_reruns, 0);
    bench.answer(&again, running(0));
    assert_eq!(bench.action(), settles("theirs"));
}

#[test]
fn the_crashed_run_goes_before_the_one_that_waits_for_its_lock() {
    let mut bench = Bench::new(Policy {
        on_overlap: OnOverlap::Wait,
        ..rerun()
    });
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, running(15));
    bench.due(1020);
    let second = bench.claim(1020);
    bench.answer(&second, held(5));
    bench.waits();
    bench.at(1026);
    let again = bench.claim(1010);
    assert_eq!(again.kind, Kind::Rerun);
    bench.answer(&again, decided());
    bench.claim(1020);
}

#[test]
fn a_restarted_host_looks_after_the_run_it_left() {
    let mut bench = Bench::fresh(vec![rerun()], None);
    bench.registered_open(1000, 1000, 4);
    bench.nothing();
    bench.at(1005);
    let again = bench.claim(1000);
    assert_eq!(again.kind, Kind::Rerun);
}

#[test]
fn a_rerun_that_finds_the_lock_taken_asks_again_later() {
    let mut bench = Bench::new(rerun());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, running(2));
    bench.at(1013);
    let again = bench.claim(1010);
    bench.answer(&again, held(3));
    bench.nothing();
    bench.at(1017);
    let again = bench.claim(1010);
    bench.answer(&again, granted());
    bench.started(1010);
}

#[test]
fn an_orphaned_manual_run_is_closed_and_never_run_again() {
    let mut bench = Bench::fresh(vec![rerun()], None);
    bench.feed(super::super::Event::Registered {
        job: JOB,
        decided_until: super::bench::secs(1000),
        store_now: super::bench::secs(1000),
        open: Some(crate::store::OpenRun {
            scheduled_at: None,
            run_id: RunId::from_text("by hand"),
            by: "other".to_owned(),
            attempt: 1,
            started_at: super::bench::secs(990),
            remaining: std::time::Duration::from_secs(3),
        }),
    });
    bench.at(1004);
    assert_eq!(bench.action(), settles("by hand"));
    bench.nothing();
}

#[test]
fn a_run_that_is_not_open_any_more_when_it_is_settled_makes_the_lane_ask_the_ledger() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, running(0));
    assert_eq!(bench.action(), settles("theirs"));
    bench.nothing();
    bench.feed(Event::NotSettled { job: JOB });
    assert_eq!(bench.action(), Action::Register { job: JOB });
}
