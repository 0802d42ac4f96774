//! What the ledger is asked, and what is made good, once the store is back.

use std::time::Duration;

use super::super::bench::{Bench, JOB, decided, policy, secs};
use super::{back, cut_off, down};
use crate::config::{CatchUp, OnOverlap, OnStoreDown};
use crate::engine::core::Policy;
use crate::engine::core::event::{Action, Event, OccurrenceNotice};
use crate::store::{ClaimReply, Kind, Outcome, Range};

#[test]
fn a_store_that_recovers_is_asked_again_when_it_has_in_order_and_nothing_is_left_out() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    let remaining = Duration::from_secs(25);
    bench.answer(&spec, ClaimReply::Recovering { remaining });
    bench.due(1020);
    bench.due(1030);
    bench.nothing();
    bench.at(1035);
    let first = bench.claim(1010);
    assert_ne!(first.claim, spec.claim, "a claim of its own");
    bench.answer(&first, ClaimReply::Unknown);
    assert!(bench.said(1010, &OccurrenceNotice::Unknown));
    let second = bench.claim(1020);
    bench.grant(&second);
}

#[test]
fn what_lies_before_a_loss_is_unknown_and_what_lies_after_it_missed() {
    let mut bench = Bench::new(policy());
    bench.due(1060);
    let spec = bench.claim(1060);
    let (last, horizon) = (secs(1000), Some(secs(1030)));
    bench.answer(
        &spec,
        ClaimReply::Gap {
            last,
            horizon,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
        },
    );
    let answer = bench.claim(1060).gap.expect("an answer to the gap");
    let drops: Vec<_> = answer.drop.iter().map(|d| (d.outcome, d.range)).collect();
    let range = |from, until, count| Range {
        from: secs(from),
        until: secs(until),
        count,
    };
    let unknown = (Outcome::Unknown, range(1010, 1030, 3));
    assert_eq!(drops, [unknown, (Outcome::Missed, range(1040, 1050, 2))]);
}

/// A range over it would be refused again and again.
#[test]
fn no_range_that_is_dropped_reaches_over_what_another_schedule_has_decided() {
    let mut bench = Bench::new(policy());
    bench.due(1060);
    let spec = bench.claim(1060);
    bench.answer(
        &spec,
        ClaimReply::Gap {
            last: secs(1000),
            horizon: None,
            decided_beyond: vec![secs(1033)],
            pauses: Vec::new(),
        },
    );
    let answer = bench.claim(1060).gap.expect("an answer to the gap");
    let ranges = answer.drop.iter().map(|drop| drop.range);
    let ranges: Vec<_> = ranges.map(|it| (it.from, it.until, it.count)).collect();
    let range = |from, until, count| (secs(from), secs(until), count);
    assert_eq!(ranges, [range(1010, 1030, 3), range(1040, 1050, 2)]);
}

/// Hosts whose clocks may lie three seconds apart, and a job every second.
fn in_company() -> Policy {
    Policy {
        calendar: std::sync::Arc::new(super::super::bench::Every(1)),
        ..policy()
    }
    .with(|it| it.skew = Duration::from_secs(3))
}

fn asks(bench: &mut Bench) {
    assert_eq!(bench.action(), Action::Register { job: JOB });
}

#[test]
fn what_others_may_have_in_hand_is_left_to_them_though_a_newer_one_is_due() {
    for catch_up in [CatchUp::None, CatchUp::Latest, CatchUp::All] {
        let (mut bench, spec) = cut_off(in_company().with(|it| it.catch_up = catch_up));
        bench.due(1011);
        bench.due(1012);
        back(&mut bench);
        bench.due(1013);
        bench.answer(&spec, decided());
        asks(&mut bench);
        bench.registered(1010);
        bench.nothing();
        bench.at(1015);
        asks(&mut bench);
        bench.registered(1012);
        bench.claim(1013);
        bench.nothing();
    }
}

#[test]
fn what_was_pending_before_an_outage_is_claimed_before_the_ledger_is_asked() {
    let mut bench = Bench::new(in_company());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.due(1011);
    bench.no_reply(&spec);
    bench.due(1012);
    back(&mut bench);
    bench.due(1013);
    bench.answer(&spec, decided());
    let spec = bench.claim(1011);
    bench.answer(&spec, decided());
    asks(&mut bench);
    bench.registered(1011);
    bench.nothing();
    bench.at(1015);
    asks(&mut bench);
    bench.registered(1012);
    bench.claim(1013);
}

#[test]
fn after_each_of_several_outages_the_ledger_is_asked() {
    let (mut bench, spec) = cut_off(in_company().with(|it| it.catch_up = CatchUp::All));
    bench.due(1011);
    back(&mut bench);
    bench.due(1012);
    bench.feed(Event::StoreDown);
    bench.due(1013);
    back(&mut bench);
    bench.due(1014);
    bench.answer(&spec, decided());
    asks(&mut bench);
    bench.registered(1011);
    let spec = bench.claim(1012);
    bench.answer(&spec, decided());
    asks(&mut bench);
    bench.registered(1012);
    bench.nothing();
    bench.at(1016);
    asks(&mut bench);
    bench.registered(1013);
    let spec = bench.claim(1014);
    bench.grant(&spec);
    bench.nothing();
}

#[test]
fn of_what_waits_for_the_ledger_when_the_next_outage_begins_latest_runs_the_newest_alone() {
    let mut bench =
        Bench::new(down(OnStoreDown::Wait).with(|it| it.skew = Duration::from_secs(30)));
    bench.feed(Event::StoreDown);
    bench.due(1010);
    back(&mut bench);
    asks(&mut bench);
    bench.registered(1000);
    bench.due(1020);
    bench.nothing();
    bench.feed(Event::StoreDown);
    bench.due(1030);
    back(&mut bench);
    bench.due(1040);
    asks(&mut bench);
    bench.registered(1000);
    bench.claim(1040);
    bench.nothing();
}

#[test]
fn nothing_is_left_to_others_for_so_long_that_the_next_one_is_too_late() {
    let (mut bench, spec) = cut_off(in_company().with(|it| {
        it.start_deadline = Duration::from_secs(2);
        it.catch_up = CatchUp::All;
    }));
    bench.due(1011);
    back(&mut bench);
    bench.answer(&spec, decided());
    asks(&mut bench);
    bench.registered(1010);
    bench.due(1012);
    bench.nothing();
    bench.at(1013);
    asks(&mut bench);
    bench.registered(1010);
    let newest = bench.claim(1011);
    bench.answer(&newest, decided());
    assert_eq!(bench.claim(1012).kind, Kind::Schedule);
}

#[test]
fn what_became_too_late_before_the_ledger_answered_is_judged_by_catch_up() {
    let (mut bench, spec) = cut_off(policy());
    bench.due(1020);
    back(&mut bench);
    bench.due(1030);
    bench.answer(&spec, decided());
    asks(&mut bench);
    bench.feed(Event::StoreDown);
    bench.at(1395);
    back(&mut bench);
    bench.registered(1010);
    assert_eq!(bench.claim(1390).kind, Kind::CatchUp);
    bench.nothing();
}

#[test]
fn a_queue_that_waits_for_the_ledger_is_not_full() {
    let (mut bench, spec) =
        cut_off(in_company().with(|it| it.on_overlap = OnOverlap::Queue { limit: 1 }));
    bench.due(1011);
    back(&mut bench);
    bench.answer(&spec, decided());
    asks(&mut bench);
    bench.registered(1010);
    bench.due(1012);
    bench.due(1013);
    bench.at(1014);
    asks(&mut bench);
    bench.registered(1011);
    for second in [1012, 1013] {
        let spec = bench.claim(second);
        bench.answer(&spec, decided());
    }
    bench.nothing();
}

#[test]
fn an_occurrence_that_is_too_late_for_the_store_is_not_claimed_again_and_again() {
    let mut bench = Bench::new(down(OnStoreDown::Skip).with(|it| {
        it.catch_up = CatchUp::None;
        it.start_deadline = Duration::from_secs(3);
    }));
    bench.due(1010);
    let spec = bench.claim(1010);
    // The store's clock is ahead of this host's.
    bench.answer(&spec, ClaimReply::Stale);
    bench.nothing();
    bench.at(1014);
    let again = bench.claim(1010);
    bench.answer(&again, ClaimReply::Stale);
    asks(&mut bench);
    bench.registered(1000);
    let drops = bench.action();
    assert!(matches!(drops, Action::Drops(_)), "not recorded: {drops:?}");
}
