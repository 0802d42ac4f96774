//! `on_overlap`: skip, wait, queue.

use super::super::Policy;
use super::super::event::{Action, Said};
use super::bench::{Bench, gap, held, policy, secs};
use crate::config::OnOverlap;
use crate::store::{Drop, Kind, Outcome, Overlap, Range};

fn wait() -> Policy {
    Policy {
        on_overlap: OnOverlap::Wait,
        ..policy()
    }
}

fn queue(limit: usize) -> Policy {
    Policy {
        on_overlap: OnOverlap::Queue { limit },
        ..policy()
    }
}

fn skipped(from: i64, until: i64, count: u64, reason: &str) -> Drop {
    Drop {
        range: Range {
            from: secs(from),
            until: secs(until),
            count,
        },
        outcome: Outcome::Skipped,
        reason: reason.to_owned(),
    }
}

#[test]
fn skip_leaves_the_decision_to_the_claim() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    assert_eq!(spec.overlap, Overlap::Skip);
    bench.answer(&spec, held(20));
    assert!(bench.said(1010, &Said::Skipped("other".to_owned())));
    bench.nothing();
}

#[test]
fn wait_asks_again_once_the_lock_may_be_free() {
    let mut bench = Bench::new(wait());
    bench.due(1010);
    let spec = bench.claim(1010);
    assert_eq!(spec.overlap, Overlap::Wait);
    bench.answer(&spec, held(20));
    bench.wake();
    let again = bench.claim(1010);
    assert_eq!(again.kind, Kind::Queue, "it had to wait");
    bench.grant(&again);
}

#[test]
fn a_newer_occurrence_takes_the_place_of_the_waiting_one() {
    let mut bench = Bench::new(wait());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.answer(&first, held(60));
    bench.waits();
    bench.due(1020);
    let newer = bench.claim(1020);
    bench.answer(&newer, held(50));
    // What it passed by may have been granted to another since.
    let look = bench.action();
    assert!(matches!(look, Action::Look { .. }), "{look:?}");
    bench.waits();
    bench.due(1030);
    assert!(bench.said(1020, &Said::Superseded));
    let newest = bench.claim(1030);
    bench.answer(&newest, gap(1000));
    let newest = bench.claim(1030);
    let answer = newest.gap.expect("an answer to the gap");
    assert_eq!(answer.drop, [skipped(1010, 1020, 2, "superseded")]);
}

#[test]
fn what_came_due_during_one_claim_is_superseded_by_the_newest() {
    let mut bench = Bench::new(wait());
    bench.due(1010);
    let first = bench.claim(1010);
    for due in [1020, 1030, 1040] {
        bench.due(due);
    }
    bench.answer(&first, held(60));
    bench.claim(1040);
}

#[test]
fn waiting_ends_with_our_own_run_without_a_word_from_the_store() {
    let mut bench = Bench::new(wait());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.grant(&first);
    bench.due(1020);
    let second = bench.claim(1020);
    bench.answer(&second, held(20));
    bench.waits();
    bench.ended();
    bench.nothing();
    bench.closed();
    bench.claim(1020);
}

#[test]
fn a_lock_without_end_is_reported_and_asked_about_again() {
    let mut bench = Bench::new(wait());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(
        &spec,
        crate::store::ClaimReply::Held {
            by: "somebody".to_owned(),
            remaining: None,
        },
    );
    assert!(bench.said(1010, &Said::NoEnd("somebody".to_owned())));
    bench.wake();
    bench.claim(1010);
}

#[test]
fn queue_runs_every_occurrence_in_order() {
    let mut bench = Bench::new(queue(10));
    bench.due(1010);
    let first = bench.claim(1010);
    bench.grant(&first);
    bench.due(1020);
    let second = bench.claim(1020);
    bench.answer(&second, held(20));
    bench.waits();
    bench.due(1030);
    bench.due(1040);
    bench.ended();
    bench.closed();
    for due in [1020, 1030, 1040] {
        let spec = bench.claim(due);
        bench.grant(&spec);
        bench.ended();
        bench.closed();
    }
    bench.nothing();
}

#[test]
fn a_full_queue_drops_the_newcomer_and_says_so_to_the_ledger() {
    let mut bench = Bench::new(queue(2));
    bench.due(1010);
    let first = bench.claim(1010);
    bench.answer(&first, held(60));
    bench.waits();
    bench.due(1020);
    bench.due(1030);
    assert!(bench.said(1030, &Said::QueueFull));
    bench.closed();
    for due in [1010, 1020] {
        let spec = bench.claim(due);
        bench.grant(&spec);
        bench.ended();
        bench.closed();
    }
    bench.due(1040);
    let spec = bench.claim(1040);
    bench.answer(&spec, gap(1020));
    let spec = bench.claim(1040);
    let answer = spec.gap.expect("an answer to the gap");
    assert_eq!(answer.drop, [skipped(1030, 1030, 1, "the queue was full")]);
}
