//! Other hosts' runs whose lease ends.

use super::super::Policy;
use super::super::event::{Action, Event};
use super::bench::{Bench, JOB, decided, granted, head, policy, running, waits_for};
use crate::config::{OnCrash, OnOverlap, OnStoreDown};
use crate::names::RunId;
use crate::store::{ClaimReply, Kind};

fn rerun() -> Policy {
    policy().with(|it| it.on_crash = OnCrash::Rerun { max_reruns: 3 })
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
    assert_eq!((again.kind, again.terms.max_reruns), (Kind::Rerun, 3));
    bench.answer(
        &again,
        ClaimReply::Granted {
            fence: 8,
            attempt: 2,
            at: super::bench::secs(1016),
            starts_in: std::time::Duration::ZERO,
        },
    );
    let Action::Start { attempt, kind, .. } = bench.action() else {
        panic!("it is not started");
    };
    assert_eq!((attempt, kind), (2, Kind::Rerun));
    bench.looks();
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
    assert_eq!(again.terms.max_reruns, 0);
    bench.answer(&again, running(0));
    assert_eq!(bench.action(), settles("theirs"));
}

#[test]
fn the_crashed_run_goes_before_the_one_that_waits_for_its_lock() {
    let mut bench = Bench::new(rerun().with(|it| it.on_overlap = OnOverlap::Wait));
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, running(15));
    bench.due(1020);
    let second = bench.claim(1020);
    bench.answer(&second, waits_for(1020, 5));
    let woken = bench.waits();
    bench.at(1026);
    let again = bench.claim(1010);
    assert_eq!(again.kind, Kind::Rerun);
    bench.answer(&again, decided());
    bench.nothing();
    bench.feed(woken);
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
    let reply = ClaimReply::Waits {
        head: head(1010, Kind::Rerun),
        entered: true,
        by: Some("another job".to_owned()),
        remaining: Some(std::time::Duration::from_secs(3)),
    };
    bench.answer(&again, reply);
    bench.wake();
    let again = bench.claim(1010);
    bench.answer(&again, granted());
    bench.started(1010);
}

#[test]
fn an_orphaned_manual_run_is_closed_and_never_run_again() {
    let mut bench = Bench::fresh(vec![rerun()], None);
    bench.feed(super::super::Event::Registered {
        job: JOB,
        reply: crate::store::Registered {
            pauses: Vec::new(),
            decided_until: super::bench::secs(1000),
            decided_beyond: Vec::new(),
            now: super::bench::secs(1000),
            open: Some(crate::store::OpenRun {
                scheduled_at: None,
                run_id: RunId::from_text("by hand"),
                by: "other".to_owned(),
                attempt: 1,
                started_at: super::bench::secs(990),
                remaining: std::time::Duration::from_secs(3),
            }),
            head: None,
            recovering: std::time::Duration::ZERO,
            moved: false,
        },
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

fn query_ledger() -> Action {
    Action::QueryLedger { job: JOB }
}

/// The run of an occurrence that this host passed by.
fn ledger_queried(at: i64) -> Event {
    Event::LedgerQueried {
        job: JOB,
        open: Some(crate::store::OpenRun {
            scheduled_at: Some(super::bench::secs(at)),
            run_id: RunId::from_text("theirs"),
            by: "other".to_owned(),
            attempt: 1,
            started_at: super::bench::secs(at),
            remaining: std::time::Duration::from_secs(5),
        }),
        head: None,
        behind: None,
    }
}

/// A host that comes when two occurrences are undecided; `catch_up: latest` claims the second.
fn passed_one_by(policy: Policy) -> (Bench, super::super::event::ClaimSpec) {
    let mut bench = Bench::fresh(vec![policy], None);
    bench.at(1025);
    bench.registered(1000);
    let spec = bench.claim(1020);
    bench.nothing();
    (bench, spec)
}

#[test]
fn a_run_that_was_granted_after_this_host_passed_it_by_is_looked_after() {
    let (mut bench, spec) = passed_one_by(rerun());
    bench.answer(&spec, decided());
    assert_eq!(bench.action(), query_ledger());
    bench.feed(ledger_queried(1010));
    bench.nothing();
    bench.at(1031);
    let again = bench.claim(1010);
    assert_eq!(again.kind, Kind::Rerun);
    bench.answer(&again, decided());
    // Once is enough.
    bench.due(1030);
    let next = bench.claim(1030);
    bench.answer(&next, decided());
    bench.nothing();
}

#[test]
fn a_run_that_was_passed_by_goes_before_the_one_that_waits_for_its_lock() {
    let (mut bench, spec) = passed_one_by(rerun());
    bench.answer(&spec, waits_for(1020, 5));
    assert_eq!(bench.action(), query_ledger());
    bench.waits();
    bench.feed(ledger_queried(1010));
    bench.at(1031);
    let again = bench.claim(1010);
    assert_eq!(again.kind, Kind::Rerun);
}

#[test]
fn an_orphan_that_was_passed_by_is_closed() {
    let (mut bench, spec) = passed_one_by(policy());
    bench.answer(&spec, ClaimReply::TooLate);
    assert_eq!(bench.action(), query_ledger());
    bench.feed(ledger_queried(1010));
    bench.at(1031);
    let again = bench.claim(1010);
    bench.answer(&again, running(0));
    assert_eq!(bench.action(), settles("theirs"));
}

#[test]
fn without_catch_up_a_host_looks_when_nobody_can_be_granted_what_it_passed_by() {
    let mut bench = Bench::fresh(
        vec![
            Policy {
                calendar: std::sync::Arc::new(super::bench::Every(7)),
                ..policy()
            }
            .with(|it| {
                it.catch_up = crate::config::CatchUp::None;
                it.start_deadline = std::time::Duration::from_secs(30);
            }),
        ],
        None,
    );
    bench.feed(Event::Registered {
        job: JOB,
        reply: crate::store::Registered {
            pauses: Vec::new(),
            decided_until: super::bench::secs(980),
            decided_beyond: Vec::new(),
            now: super::bench::secs(1000),
            open: None,
            head: None,
            recovering: std::time::Duration::ZERO,
            moved: false,
        },
    });
    let drops = bench.action();
    assert!(matches!(drops, Action::Drops(_)), "{drops:?}");
    bench.answer_drops(&drops, ClaimReply::Dropped);
    bench.at(1024);
    bench.nothing();
    bench.at(1025);
    assert_eq!(bench.action(), query_ledger());
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.feed(ledger_queried(994));
    bench.at(1031);
    assert_eq!(bench.claim(994).kind, Kind::Rerun);
}

#[test]
fn who_passed_nothing_by_need_not_look() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, decided());
    bench.nothing();
}

#[test]
fn a_loser_that_hears_of_a_returned_occurrence_asks_for_it_at_once() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, running(30));
    bench.nothing();
    bench.at(1011);
    bench.feed(Event::Returned { job: Some(JOB) });
    bench.looks();
    bench.found_head(Some(head(1010, Kind::Schedule)));
    let again = bench.claim(1010);
    bench.answer(&again, granted());
    bench.started(1010);
    bench.looks();
    // The run that it looked after is its own by now.
    bench.at(1100);
    bench.nothing();
}

#[test]
fn an_occurrence_that_is_returned_before_the_loser_knows_that_it_lost_is_asked_for_at_once() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.feed(Event::Returned { job: Some(JOB) });
    bench.nothing();
    bench.answer(&spec, running(30));
    bench.looks();
    bench.found_head(Some(head(1010, Kind::Schedule)));
    bench.claim(1010);
}

#[test]
fn an_occurrence_that_is_returned_before_a_new_host_is_registered_is_asked_for_at_once() {
    let mut bench = Bench::fresh(vec![policy()], None);
    bench.feed(Event::Returned { job: None });
    bench.nothing();
    bench.registered_open(1000, 1000, 30);
    bench.looks();
}

#[test]
fn a_host_that_looks_after_no_run_does_not_ask_when_an_occurrence_is_returned() {
    let mut bench = Bench::new(policy());
    bench.feed(Event::Returned { job: None });
    bench.nothing();
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, granted());
    bench.started(1010);
    bench.feed(Event::Returned { job: None });
    bench.nothing();
}

#[test]
fn a_host_that_has_just_come_claims_a_rerun_that_waits_at_once() {
    let skewed = rerun().with(|it| it.skew = std::time::Duration::from_secs(3));
    let mut bench = Bench::fresh(vec![skewed], None);
    bench.at(1011);
    bench.feed(Event::Registered {
        job: JOB,
        reply: crate::store::Registered {
            pauses: Vec::new(),
            decided_until: super::bench::secs(1000),
            decided_beyond: Vec::new(),
            now: super::bench::secs(1011),
            open: None,
            head: Some(head(1000, Kind::Rerun)),
            recovering: std::time::Duration::ZERO,
            moved: false,
        },
    });
    // What came due at 1010 is left to hosts whose clocks are behind.
    assert_eq!(bench.claim(1000).kind, Kind::Rerun);
    bench.nothing();
}

#[test]
fn a_host_that_runs_without_the_store_looks_after_another_run_once_its_own_is_closed() {
    let mut bench = Bench::new(policy().with(|it| it.on_store_down = OnStoreDown::Run));
    bench.feed(Event::StoreDown);
    bench.due(1010);
    bench.started_alone(1010);
    bench.feed(Event::StoreUp);
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.registered(1000);
    bench.nothing();
    bench.ended();
    bench.closed();
    bench.looks();
    bench.nothing();
}

#[test]
fn a_lane_listens_for_returned_occurrences_while_it_awaits_a_reply_or_watches_a_run() {
    let mut bench = Bench::fresh(vec![policy()], None);
    assert_eq!(bench.core.listening, 1, "it is being registered");
    bench.registered(1000);
    assert_eq!(bench.core.listening, 0);
    bench.due(1010);
    let spec = bench.claim(1010);
    assert_eq!(bench.core.listening, 1, "it claims");
    bench.grant(&spec);
    assert_eq!(bench.core.listening, 0);
    let mut bench = Bench::fresh(vec![policy()], None);
    bench.registered_open(1000, 1000, 30);
    assert_eq!(
        bench.core.listening, 1,
        "it watches the run of another host"
    );
}
