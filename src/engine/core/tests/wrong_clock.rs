//! A host whose clock is too far from the store's makes no claims.

use super::super::event::{Action, Event};
use super::super::policy::Policy;
use super::bench::{Bench, decided, gap, policy};
use crate::config::CatchUp;

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
fn a_claim_that_is_out_is_answered_but_leads_to_no_further_one() {
    let mut bench = Bench::new(Policy {
        catch_up: CatchUp::All,
        ..policy()
    });
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
