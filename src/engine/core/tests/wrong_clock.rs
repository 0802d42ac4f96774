//! A host whose clock is too far from the store's makes no claims. Nor does one that other hosts did not
//! see for a while, before it has registered its jobs again.

use std::time::Duration;

use super::super::event::{Action, Event, OccurrenceNotice};
use super::super::policy::Policy;
use super::bench::{Bench, JOB, decided, gap, head, policy, waits_for};
use crate::config::{CatchUp, OnCrash, OnStoreDown};
use crate::store::{ClaimReply, Kind};

#[track_caller]
fn registers(bench: &mut Bench) {
    let action = bench.action();
    assert!(matches!(action, Action::Register { .. }), "{action:?}");
}

#[test]
fn nothing_is_claimed_while_the_clock_is_wrong_and_the_ledger_is_asked_once_it_is_right() {
    let mut bench = Bench::new(policy());
    bench.feed(Event::ClockWrong);
    bench.due(1010);
    bench.due(1020);
    bench.nothing();
    bench.feed(Event::ClockRight);
    registers(&mut bench);
    bench.registered(1010);
    let spec = bench.claim(1020);
    bench.answer(&spec, decided());
    bench.due(1030);
    bench.claim(1030);
}

#[test]
fn what_others_decided_meanwhile_is_not_claimed_again() {
    let mut bench = Bench::new(policy());
    bench.feed(Event::ClockWrong);
    bench.due(1010);
    bench.feed(Event::ClockRight);
    registers(&mut bench);
    bench.registered(1010);
    bench.nothing();
}

#[test]
fn what_came_due_before_a_host_was_to_claim_is_left_to_the_ledger() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let before = bench.claim(1010);
    bench.due(1020);
    bench.feed(Event::StartedAnew);
    bench.answer(&before, decided());
    registers(&mut bench);
    bench.registered(1020);
    bench.nothing();
    bench.due(1030);
    bench.claim(1030);
}

#[test]
fn an_early_occurrence_is_claimed_when_the_store_s_clock_turns_out_right_after_all() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    let by = Duration::from_secs(25);
    bench.answer(&spec, ClaimReply::Early { by });
    assert!(bench.said(1010, &OccurrenceNotice::ClockAhead(by)));
    bench.nothing();
    bench.at(1011);
    let spec = bench.claim(1010);
    bench.answer(&spec, ClaimReply::Early { by });
    assert!(!bench.said(1010, &OccurrenceNotice::ClockAhead(by)));
    bench.at(1012);
    let spec = bench.claim(1010);
    bench.grant(&spec);
}

#[test]
fn a_claim_that_is_out_is_answered_but_leads_to_no_further_one() {
    let mut bench = Bench::new(policy().with(|it| it.catch_up = CatchUp::All));
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.feed(Event::ClockWrong);
    bench.answer(&spec, gap(990));
    bench.nothing();
    bench.feed(Event::ClockRight);
    bench.claim(1000);
}

#[test]
fn a_wrong_clock_at_the_start_holds_back_what_is_to_be_caught_up() {
    let mut bench = Bench::fresh(vec![policy()], None);
    bench.feed(Event::ClockWrong);
    bench.registered(980);
    bench.nothing();
    bench.feed(Event::ClockRight);
    bench.claim(1000);
}

/// The store is away, and the clock is ten seconds ahead; nobody knows yet.
fn ahead_and_alone() -> Bench {
    let mut bench = Bench::new(policy().with(|it| it.on_store_down = OnStoreDown::Run));
    bench.ahead = 10;
    bench.feed(Event::StoreDown);
    bench
}

#[test]
fn what_a_fast_clock_called_due_is_taken_back_and_claimed_at_its_time() {
    let mut bench = Bench::new(policy());
    bench.ahead = 25;
    bench.at(1006);
    bench.due_of(JOB, 1030);
    let spec = bench.claim(1030);
    bench.at(1016);
    bench.due_of(JOB, 1040);
    bench.ahead = 0;
    bench.feed(Event::ClockSet);
    let cancel = Action::Cancel {
        job: JOB,
        claim: spec.claim,
    };
    assert_eq!(bench.action(), cancel);
    registers(&mut bench);
    // This was on its way when the clock was set.
    bench.due_of(JOB, 1050);
    bench.registered(1010);
    bench.nothing();
    bench.due(1020);
    bench.claim(1020);
}

#[test]
fn a_skip_that_a_fast_clock_foretold_is_forgotten() {
    let mut bench = Bench::new(policy().with(|it| it.on_store_down = OnStoreDown::Skip));
    bench.ahead = 25;
    bench.feed(Event::StoreDown);
    bench.at(1016);
    bench.due_of(JOB, 1030);
    bench.due_of(JOB, 1040);
    bench.nothing();
    bench.ahead = 0;
    bench.feed(Event::ClockSet);
    bench.feed(Event::StoreUp);
    registers(&mut bench);
    bench.registered(1010);
    bench.nothing();
    bench.due(1020);
    assert_eq!(bench.claim(1020).gap, None);
}

#[test]
fn what_ran_alone_before_the_clock_was_known_does_not_run_again_here() {
    let mut bench = ahead_and_alone();
    bench.due_of(JOB, 1010);
    bench.started_alone(1010);
    bench.ended();
    bench.ahead = 0;
    bench.feed(Event::ClockSet);
    bench.due(1010);
    bench.nothing();
    bench.due(1020);
    bench.started_alone(1020);
}

#[test]
fn a_slow_clock_does_not_run_alone_what_was_due_before_the_daemon_started() {
    let mut bench = ahead_and_alone();
    // By the corrected clock the daemon began at 1020, so 1000 and 1010 were due before.
    bench.ahead = 20;
    bench.feed(Event::ClockSet);
    bench.due_of(JOB, 1000);
    bench.due_of(JOB, 1010);
    bench.nothing();
    bench.at(1010);
    bench.due_of(JOB, 1030);
    bench.started_alone(1030);
}

#[test]
fn a_slow_clock_does_not_claim_what_was_due_before_the_daemon_started() {
    for catch_up in [CatchUp::None, CatchUp::Latest] {
        let policy = Policy {
            calendar: std::sync::Arc::new(super::bench::Every(7)),
            ..policy()
        }
        .with(|it| it.catch_up = catch_up);
        let mut bench = Bench::fresh(vec![policy], None);
        // It is twelve seconds behind, so that 994 comes six seconds after the start at 1000.
        bench.ahead = -12;
        bench.at(1006);
        bench.due_of(JOB, 994);
        bench.ahead = 0;
        bench.feed(Event::ClockSet);
        bench.registered(987);
        // Since the start only this came due.
        bench.claim(1001);
    }
}

/// A year, by which the store's clock was wrong.
const YEAR: i64 = 31_536_000;

/// How often each of these was said since the last look.
fn ahead_said(bench: &mut Bench) -> [usize; 2] {
    let mut count = [0, 0];
    for action in bench
        .out
        .extract_if(.., |a| matches!(a, Action::Report { .. }))
    {
        match action {
            Action::Report {
                notice: OccurrenceNotice::LedgerAhead(_),
                ..
            } => count[0] += 1,
            Action::Report {
                notice: OccurrenceNotice::LedgerFarAhead(_),
                ..
            } => count[1] += 1,
            _ => {}
        }
    }
    count
}

#[test]
fn a_job_that_waits_for_the_clock_says_so_once() {
    let mut bench = Bench::new(policy());
    for at in [1010, 1020, 1030] {
        bench.due(at);
        let spec = bench.claim(at);
        let by = Duration::from_secs(5400 + 1010 - at.unsigned_abs());
        bench.answer(&spec, ClaimReply::Ahead { by });
        assert_eq!(ahead_said(&mut bench), [usize::from(at == 1010), 0]);
    }
    // It ran, and the clock was wrong once more.
    bench.due(1040);
    let spec = bench.claim(1040);
    bench.grant(&spec);
    bench.ended();
    bench.closed();
    bench.due(1050);
    let spec = bench.claim(1050);
    let by = Duration::from_secs(60);
    bench.answer(&spec, ClaimReply::Ahead { by });
    assert_eq!(ahead_said(&mut bench), [1, 0]);
}

#[test]
fn a_clock_that_was_set_back_is_said_of_each_job_once_with_what_becomes_of_it() {
    for (ahead, notice) in [(1, [0, 0]), (5_400, [1, 0]), (YEAR, [0, 1])] {
        let mut bench = Bench::new(policy());
        bench.ahead = ahead;
        bench.due_of(JOB, 1000 + ahead / 10 * 10);
        bench.out.clear();
        bench.ahead = 0;
        bench.feed(Event::ClockSet);
        bench.registered(1000 + ahead);
        assert_eq!(ahead_said(&mut bench), notice, "by {ahead} s");
        bench.out.clear();
        bench.due(1010);
        let spec = bench.claim(1010);
        bench.answer(&spec, decided());
        assert_eq!(ahead_said(&mut bench), [0, 0], "by {ahead} s");
    }
}

#[test]
fn a_run_of_the_future_whose_lease_is_over_does_not_stop_the_job_until_then() {
    let mut bench = Bench::fresh(vec![policy()], None);
    bench.registered_open(1000 + YEAR, 1000 + YEAR, 2);
    bench.at(1003);
    bench.nothing();
    bench.due(1010);
    bench.claim(1010);
}

#[test]
fn an_occurrence_of_the_future_that_waits_does_not_stop_the_job_until_then() {
    let mut bench = Bench::new(policy());
    bench.found_head(Some(head(2000, Kind::Queue)));
    bench.nothing();
    bench.due(1020);
    let spec = bench.claim(1020);
    bench.answer(&spec, decided());
    bench.nothing();
    // Its time comes.
    bench.at(2001);
    bench.claim(2000);
}

#[test]
fn a_host_that_was_absent_registers_its_job_before_it_claims() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let before = bench.claim(1010);
    bench.feed(Event::Absent { job: None });
    registers(&mut bench);
    bench.answer(&before, decided());
    bench.due(1020);
    bench.nothing();
    bench.registered(1010);
    bench.claim(1020);
}

#[test]
fn an_idle_host_that_was_absent_claims_nothing_that_it_waited_for_before_it_registers() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, waits_for(1010, 5));
    let woken = bench.waits();
    bench.feed(Event::Absent { job: None });
    registers(&mut bench);
    // Where the occurrence waits by now, only the ledger knows.
    bench.feed(woken);
    bench.due(1020);
    bench.nothing();
    bench.registered(1010);
    bench.claim(1020);
}

#[test]
fn a_host_that_was_absent_while_it_claimed_looks_after_no_run_before_it_registers() {
    let rerun = policy().with(|it| it.on_crash = OnCrash::Rerun { max_reruns: 1 });
    let mut bench = Bench::fresh(vec![rerun], None);
    bench.registered_open(1000, 1000, 15);
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.feed(Event::Absent { job: None });
    registers(&mut bench);
    let remaining = Duration::from_secs(5);
    bench.answer(&spec, ClaimReply::Recovering { remaining });
    // Under which lock the run is open by now, and what waits there, only the ledger knows.
    bench.at(1016);
    bench.found_head(Some(head(1000, Kind::Queue)));
    bench.nothing();
    bench.registered(1000);
    bench.claim(1000);
}
