//! `on_overlap`: skip, wait, queue.

use std::time::Duration;

use super::super::Policy;
use super::super::event::{Event, OccurrenceNotice};
use super::bench::{Bench, JOB, head, held, policy, running, secs, waits_for};
use crate::config::{OnLost, OnOverlap};
use crate::store::{ClaimReply, Head, Kind, Overlap};

fn wait() -> Policy {
    policy().with(|it| it.on_overlap = OnOverlap::Wait)
}

fn queue(limit: usize) -> Policy {
    policy().with(|it| it.on_overlap = OnOverlap::Queue { limit })
}

#[test]
fn a_host_that_finds_the_queue_full_and_knows_of_nothing_that_waits_asks_for_the_head() {
    let mut bench = Bench::new(queue(1));
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, ClaimReply::QueueFull);
    bench.looks();
    bench.found_head(Some(head(1000, Kind::Queue)));
    bench.claim(1000);
}

#[test]
fn skip_leaves_the_decision_to_the_claim() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    assert_eq!(spec.overlap, Overlap::Skip);
    bench.answer(&spec, held(20));
    assert!(bench.said(1010, &OccurrenceNotice::Skipped("other".to_owned())));
    bench.nothing();
}

/// After an outage the occurrences that waited are claimed together. The log must not suggest that the
/// previous run hangs.
#[test]
fn an_occurrence_that_is_skipped_late_is_reported_as_late() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.at(1015);
    bench.answer(&spec, held(20));
    let late = OccurrenceNotice::SkippedLate {
        by: "other".to_owned(),
        late: Duration::from_secs(5),
    };
    assert!(bench.said(1010, &late));
}

#[test]
fn an_occurrence_with_jitter_is_not_late_while_it_waits_for_its_own_delay() {
    let mut bench = Bench::new(Policy {
        delay: Duration::from_secs(5),
        ..policy()
    });
    bench.at(1015);
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, held(20));
    assert!(bench.said(1010, &OccurrenceNotice::Skipped("other".to_owned())));
}

#[test]
fn wait_asks_again_once_the_lock_may_be_free() {
    let mut bench = Bench::new(wait());
    bench.due(1010);
    let spec = bench.claim(1010);
    assert_eq!(spec.overlap, Overlap::Wait);
    bench.answer(&spec, waits_for(1010, 20));
    bench.wake();
    let again = bench.claim(1010);
    assert_eq!(again.kind, Kind::Queue, "it had to wait");
    bench.grant(&again);
    bench.looks();
    bench.nothing();
}

#[test]
fn what_waits_is_claimed_beside_an_own_run_only_if_that_may_go_on_without_its_lease() {
    let beside_own_run = |on_lost: OnLost| {
        let mut bench = Bench::new(queue(1).with(|it| it.on_lost = on_lost));
        bench.due(1010);
        let own = bench.claim(1010);
        bench.grant(&own);
        bench.due(1020);
        let next = bench.claim(1020);
        bench.answer(&next, waits_for(1020, 20));
        bench
    };
    beside_own_run(OnLost::Kill).nothing();
    let mut goes_on = beside_own_run(OnLost::Continue);
    goes_on.wake();
    goes_on.claim(1020);
}

#[test]
fn a_newer_occurrence_is_claimed_while_another_waits() {
    let mut bench = Bench::new(wait());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.answer(&first, waits_for(1010, 60));
    bench.waits();
    bench.due(1020);
    let newer = bench.claim(1020);
    bench.answer(&newer, waits_for(1020, 50));
    bench.wake();
    bench.claim(1020);
}

#[test]
fn an_occurrence_that_the_ledger_refused_for_its_head_is_claimed_after_it() {
    let mut bench = Bench::new(policy());
    bench.due(1020);
    let spec = bench.claim(1020);
    let reply = ClaimReply::Waits {
        head: head(1010, Kind::Schedule),
        entered: false,
        by: None,
        remaining: Some(std::time::Duration::ZERO),
    };
    bench.answer(&spec, reply);
    let first = bench.claim(1010);
    bench.answer(&first, running(20));
    bench.looks();
    bench.claim(1020);
}

#[test]
fn a_host_that_was_not_there_learns_what_waits_from_the_ledger() {
    let mut bench = Bench::fresh(vec![queue(10)], None);
    bench.feed(Event::Registered {
        job: JOB,
        reply: crate::store::Registered {
            pauses: Vec::new(),
            decided_until: secs(1000),
            decided_beyond: Vec::new(),
            now: secs(1000),
            open: None,
            head: Some(head(980, Kind::Queue)),
            recovering: std::time::Duration::ZERO,
            moved: false,
        },
    });
    let first = bench.claim(980);
    bench.grant(&first);
    bench.looks();
    bench.found_head(Some(head(990, Kind::Queue)));
    bench.nothing();
    bench.ended();
    bench.closed();
    let second = bench.claim(990);
    bench.grant(&second);
}

#[test]
fn the_verdict_of_a_head_whose_deadline_passes_is_asked_for_then() {
    let mut bench =
        Bench::new(wait().with(|it| it.start_deadline = std::time::Duration::from_secs(5)));
    bench.due(1010);
    let spec = bench.claim(1010);
    let reply = ClaimReply::Waits {
        head: Head {
            deadline: secs(1015),
            ..head(1010, Kind::Queue)
        },
        entered: true,
        by: Some("other".to_owned()),
        remaining: Some(std::time::Duration::from_secs(60)),
    };
    bench.answer(&spec, reply);
    bench.waits();
    bench.at(1016);
    let late = bench.claim(1010);
    bench.answer(&late, ClaimReply::TooLate);
    assert!(bench.said(1010, &OccurrenceNotice::TooLate));
    bench.looks();
}

#[test]
fn waiting_ends_with_our_own_run_without_a_word_from_the_store() {
    let mut bench = Bench::new(wait());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.grant(&first);
    bench.due(1020);
    let second = bench.claim(1020);
    bench.answer(&second, waits_for(1020, 20));
    bench.nothing();
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
        ClaimReply::Waits {
            head: head(1010, Kind::Queue),
            entered: true,
            by: Some("somebody".to_owned()),
            remaining: None,
        },
    );
    assert!(bench.said(1010, &OccurrenceNotice::NoEnd("somebody".to_owned())));
    bench.wake();
    bench.claim(1010);
}

#[test]
fn queue_claims_the_head_of_the_list_after_each_run() {
    let mut bench = Bench::new(queue(10));
    bench.due(1010);
    let first = bench.claim(1010);
    assert_eq!(first.overlap, Overlap::Queue { limit: 10 });
    bench.grant(&first);
    for due in [1020, 1030, 1040] {
        bench.due(due);
        let spec = bench.claim(due);
        bench.answer(&spec, waits_for(1020, 20));
    }
    bench.ended();
    bench.closed();
    for (due, next) in [(1020, Some(1030)), (1030, Some(1040)), (1040, None)] {
        let spec = bench.claim(due);
        bench.grant(&spec);
        bench.looks();
        bench.found_head(next.map(|next| head(next, Kind::Queue)));
        bench.nothing();
        bench.ended();
        bench.closed();
    }
    bench.nothing();
}

#[test]
fn a_full_queue_is_reported() {
    let mut bench = Bench::new(queue(2));
    bench.due(1010);
    let first = bench.claim(1010);
    bench.answer(&first, ClaimReply::QueueFull);
    assert!(bench.said(1010, &OccurrenceNotice::QueueFull));
    bench.looks();
    bench.nothing();
}

#[test]
fn a_read_that_is_older_than_a_claim_does_not_make_the_lane_forget_what_waits() {
    let mut bench = Bench::new(wait());
    bench.due(1010);
    let first = bench.claim(1010);
    bench.grant(&first);
    bench.due(1020);
    let second = bench.claim(1020);
    bench.answer(&second, waits_for(1020, 20));
    bench.found_head(None);
    bench.ended();
    bench.closed();
    bench.claim(1020);
}
