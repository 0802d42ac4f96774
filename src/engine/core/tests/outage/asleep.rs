//! A host that was stopped or suspended during an outage.

use std::time::Duration;

use super::super::bench::{Bench, JOB, policy};
use super::{back, cut_off, down};
use crate::config::{CatchUp, OnStoreDown};
use crate::engine::core::Policy;
use crate::engine::core::event::{Action, Event, JobIx, OccurrenceNotice};
use crate::store::Kind;

#[test]
fn what_a_host_slept_through_is_caught_up_whatever_is_to_be_done_without_the_store() {
    for on_store_down in [OnStoreDown::Run, OnStoreDown::Skip] {
        let (mut bench, _) = cut_off(down(on_store_down).with(|it| it.catch_up = CatchUp::All));
        bench.action();
        bench.at(1035);
        bench.due(1020);
        bench.due(1030);
        bench.nothing();
        if on_store_down == OnStoreDown::Run {
            bench.ended();
            bench.closed();
        }
        back(&mut bench);
        assert_eq!(bench.action(), Action::Register { job: JOB });
        bench.registered(1010);
        assert_eq!(bench.claim(1020).kind, Kind::CatchUp, "{on_store_down:?}");
    }
}

#[test]
fn what_came_due_just_before_a_host_awoke_is_not_judged_by_an_outage_that_may_be_over() {
    for on_store_down in [OnStoreDown::Run, OnStoreDown::Skip] {
        let (mut bench, _) = cut_off(down(on_store_down));
        bench.action();
        bench.at(1031);
        bench.due(1020);
        bench.due(1030);
        bench.nothing();
        if on_store_down == OnStoreDown::Run {
            bench.ended();
            bench.closed();
        }
        back(&mut bench);
        assert_eq!(bench.action(), Action::Register { job: JOB });
        bench.registered(1010);
        let spec = bench.claim(1030);
        assert_eq!(spec.kind, Kind::CatchUp, "{on_store_down:?}");
    }
}

#[test]
fn a_host_that_notices_by_one_job_that_it_slept_acts_on_the_outage_for_none_at_once() {
    let other = JobIx(1);
    let mut bench = Bench::fresh(vec![policy(), down(OnStoreDown::Run)], None);
    for job in [JOB, other] {
        bench.registered_of(job, 1000);
    }
    bench.feed(Event::StoreDown);
    bench.at(1019);
    bench.due_of(JOB, 1010);
    bench.at(1031);
    bench.due_of(JOB, 1020);
    bench.due_of(other, 1030);
    bench.nothing();
    back(&mut bench);
    assert_eq!(bench.action(), Action::Register { job: JOB });
    assert_eq!(bench.action(), Action::Register { job: other });
}

/// A host whose store failed at 1010, and that was asleep until 1019. Then 1020 comes due.
fn awake(policy: Policy) -> Bench {
    let is_run = policy.on_store_down == OnStoreDown::Run;
    let (mut bench, _) = cut_off(policy);
    bench.action();
    if is_run {
        bench.ended();
        bench.closed();
    }
    bench.at(1019);
    bench.feed(Event::Awake);
    bench.due(1020);
    bench.nothing();
    bench
}

#[test]
fn what_comes_due_as_a_host_awakes_waits_for_the_answer_of_a_store_that_may_be_back() {
    for on_store_down in [OnStoreDown::Run, OnStoreDown::Skip] {
        let mut bench = awake(down(on_store_down));
        back(&mut bench);
        assert_eq!(bench.action(), Action::Register { job: JOB });
        bench.registered(1000);
        let spec = bench.claim(1020);
        assert_eq!(spec.kind, Kind::Schedule, "{on_store_down:?}");
    }
}

#[test]
fn what_comes_due_as_a_host_awakes_has_its_policy_once_the_store_has_not_answered() {
    let mut bench = awake(down(OnStoreDown::Run));
    bench.at(1022);
    bench.started_alone(1020);
    bench.nothing();
    let mut bench = awake(down(OnStoreDown::Skip));
    bench.at(1022);
    assert!(bench.said(1020, &OccurrenceNotice::StoreDown));
    bench.due(1030);
    assert!(bench.said(1030, &OccurrenceNotice::StoreDown));
    bench.nothing();
}

#[test]
fn a_claim_without_a_reply_is_sent_again_after_a_sleep_before_its_policy_counts() {
    for on_store_down in [OnStoreDown::Run, OnStoreDown::Skip] {
        let mut bench = Bench::new(down(on_store_down));
        bench.due(1010);
        let spec = bench.claim(1010);
        bench.at(1019);
        bench.feed(Event::Awake);
        bench.no_reply(&spec);
        assert!(matches!(bench.action(), Action::Cancel { .. }));
        bench.nothing();
        back(&mut bench);
        assert_eq!(bench.action(), Action::Register { job: JOB });
        bench.registered(1000);
        let again = bench.claim(1010);
        assert_eq!(again.kind, Kind::Schedule, "{on_store_down:?}");
    }
}

#[test]
fn what_comes_due_as_a_host_awakes_runs_without_the_store_within_its_start_deadline() {
    let mut bench =
        awake(down(OnStoreDown::Run).with(|it| it.start_deadline = Duration::from_secs(2)));
    bench.at(1021);
    bench.started_alone(1020);
}
