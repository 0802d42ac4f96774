//! One claim at a time, in order; drain.

use std::time::Duration;

use super::super::event::{Action, Event, OccurrenceNotice};
use super::bench::{Bench, JOB, decided, gap, policy, running, secs};
use crate::store::{ClaimReply, GapAnswer, Kind, Overlap};

#[test]
fn a_due_occurrence_is_claimed_with_its_predecessor_and_its_deadline() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    assert_eq!(spec.prev, Some(secs(1000)));
    assert_eq!(spec.not_before, secs(1010));
    assert_eq!(spec.deadline, secs(1310));
    assert_eq!((spec.kind, spec.overlap), (Kind::Schedule, Overlap::Skip));
    bench.grant(&spec);
    bench.nothing();
}

#[test]
fn jitter_moves_start_and_deadline_and_not_the_occurrence() {
    let mut bench = Bench::new(super::super::Policy {
        delay: Duration::from_secs(3),
        ..policy()
    });
    bench.at(1013);
    bench.due(1010);
    let spec = bench.claim(1010);
    assert_eq!(spec.not_before, secs(1013));
    assert_eq!(spec.deadline, secs(1313));
}

#[test]
fn claims_of_a_job_go_out_one_by_one_in_order() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.due(1020);
    bench.due(1030);
    bench.nothing();
    bench.answer(&first, decided());
    let second = bench.claim(1020);
    bench.nothing();
    bench.answer(&second, decided());
    bench.claim(1030);
}

#[test]
fn a_firing_that_comes_twice_or_late_again_counts_once() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.due(1010);
    bench.answer(&first, decided());
    bench.due(1000);
    bench.nothing();
}

#[test]
fn a_clock_that_is_ahead_waits_and_asks_again() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.answer(
        &first,
        ClaimReply::Early {
            by: Duration::from_secs(2),
        },
    );
    bench.due(1020);
    let again = bench.claim(1010);
    assert_ne!(again.claim, first.claim, "a new claim has a new token");
    bench.grant(&again);
    bench.claim(1020);
}

#[test]
fn the_grant_of_an_older_claim_is_given_back_and_changes_nothing() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.answer(&first, decided());
    bench.due(1020);
    let second = bench.claim(1020);
    bench.grant_in_vain(&first);
    bench.nothing();
    bench.grant(&second);
}

#[test]
fn a_gap_without_occurrences_of_this_schedule_is_answered_by_nothing_dropped() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.answer(&first, gap(1005));
    let again = bench.claim(1010);
    let answer = GapAnswer {
        if_last: secs(1005),
        drop: Vec::new(),
    };
    assert_eq!(again.gap, Some(answer));
}

#[test]
fn too_late_and_finished_go_on_to_the_next() {
    for reply in [ClaimReply::TooLate, ClaimReply::Finished] {
        let mut bench = Bench::new(policy());
        bench.due(1010);
        let first = bench.claim(1010);
        bench.due(1020);
        bench.answer(&first, reply);
        bench.claim(1020);
    }
}

#[test]
fn a_drain_cancels_the_claim_that_is_out_and_makes_no_new_one() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.due(1020);
    bench.feed(Event::Drain);
    let cancel = Action::Cancel {
        job: JOB,
        claim: first.claim,
    };
    assert_eq!(bench.action(), cancel);
    bench.grant_in_vain(&first);
    bench.due(1030);
    bench.nothing();
}

#[test]
fn a_drain_lets_nothing_be_rerun() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.answer(&first, running(20));
    bench.feed(Event::Drain);
    bench.at(1100);
    bench.nothing();
}

#[test]
fn the_next_claim_waits_for_the_verdict_of_our_own_run() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.grant(&first);
    bench.at(1019);
    bench.ended();
    bench.due(1020);
    bench.nothing();
    bench.closed();
    bench.claim(1020);
}

#[test]
fn an_occurrence_noticed_half_a_minute_late_is_for_catch_up_to_judge() {
    // The machine slept, or its clock was set forward.
    let mut bench = Bench::new(policy());
    bench.at(1500);
    bench.due_of(JOB, 1010);
    bench.due_of(JOB, 1020);
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.nothing();
    bench.registered(1000);
    let spec = bench.claim(1500);
    assert_eq!(spec.kind, Kind::CatchUp);
}

#[test]
fn a_loser_says_who_won() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.answer(&first, running(20));
    assert!(bench.said(1010, &OccurrenceNotice::LostTo("other".to_owned())));
}
