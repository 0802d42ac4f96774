//! Another job list while the daemon runs.

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::super::event::{Action, Event, JobIx, OccurrenceNotice};
use super::super::{LaneChange, ListedJob, NewList, Policy};
use super::bench::{Bench, Every, JOB, decided, gap, granted, head, held, policy, secs};
use crate::config::{CatchUp, OnOverlap, OnStoreDown};
use crate::store::{Kind, Overlap};

const NEW: JobIx = JobIx(1);

fn listed(job: JobIx, policy: Policy, change: LaneChange) -> ListedJob {
    ListedJob {
        job,
        policy,
        change,
    }
}

fn reload(bench: &mut Bench, jobs: Vec<ListedJob>) {
    let max_running = None;
    bench.feed(Event::Reload(NewList { jobs, max_running }));
}

fn kept(policy: Policy) -> Vec<ListedJob> {
    vec![listed(JOB, policy, LaneChange::Kept)]
}

/// The job at other instants.
fn rescheduled(job: JobIx, before: JobIx) -> Vec<ListedJob> {
    let policy = Policy {
        calendar: Arc::new(Every(7)),
        ..policy()
    };
    let before = Some(before);
    vec![listed(job, policy, LaneChange::New { before })]
}

fn moved() -> Vec<ListedJob> {
    vec![listed(NEW, policy(), LaneChange::Moved { before: JOB })]
}

#[track_caller]
fn registers(bench: &mut Bench, job: JobIx) {
    assert_eq!(bench.action(), Action::Register { job });
}

/// Starts the occurrence of second 1010.
fn running(policy: Policy) -> Bench {
    let mut bench = Bench::new(policy);
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.grant(&spec);
    bench
}

#[test]
fn a_job_that_is_kept_goes_on_where_it_is_under_its_new_policies() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    let queue = policy().with(|it| it.on_overlap = OnOverlap::Queue { limit: 3 });
    reload(&mut bench, kept(queue));
    bench.nothing();
    bench.grant(&spec);
    bench.due(1020);
    let next = bench.claim(1020);
    assert_eq!(next.overlap, Overlap::Queue { limit: 3 });
}

#[test]
fn what_waits_for_a_place_is_claimed_once_the_new_list_has_more_of_them() {
    let mut bench = Bench::fresh(vec![policy(), policy()], Some(1));
    for job in [JOB, NEW] {
        bench.registered_of(job, 1000);
    }
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.grant(&spec);
    bench.due_of(NEW, 1010);
    bench.nothing();
    bench.feed(Event::Reload(NewList {
        jobs: [JOB, NEW]
            .map(|job| listed(job, policy(), LaneChange::Kept))
            .into(),
        max_running: NonZeroUsize::new(2),
    }));
    assert_eq!(bench.claim(1010).job, NEW);
}

#[test]
fn a_changed_schedule_begins_with_a_registration_and_the_claim_that_was_out_is_cancelled() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    reload(&mut bench, rescheduled(NEW, JOB));
    let (job, claim) = (JOB, spec.claim);
    assert_eq!(bench.action(), Action::Cancel { job, claim });
    registers(&mut bench, NEW);
    // The old claim was granted all the same: the cancellation gives it back.
    bench.answer(&spec, granted());
    bench.nothing();
    bench.registered_of(NEW, 1010);
    bench.due_of(JOB, 1020);
    bench.nothing();
    bench.at(1022);
    bench.due_of(NEW, 1022);
    bench.claim(1022);
}

#[test]
fn what_came_due_and_waits_for_a_place_is_named_when_its_schedule_is_gone() {
    let mut bench = Bench::fresh(vec![policy(), policy()], Some(1));
    for job in [JOB, NEW] {
        bench.registered_of(job, 1000);
    }
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.grant(&spec);
    bench.due_of(NEW, 1010);
    reload(&mut bench, kept(policy()));
    assert!(bench.said(1010, &OccurrenceNotice::Replaced));
    bench.ended();
    bench.nothing();
}

#[test]
fn a_run_of_the_old_definition_counts_for_the_new_one_until_its_result_is_delivered() {
    let mut bench = running(policy());
    reload(&mut bench, rescheduled(NEW, JOB));
    registers(&mut bench, NEW);
    bench.registered_of(NEW, 1010);
    bench.at(1015);
    bench.ended();
    bench.due_of(NEW, 1015);
    // Claimed now, it would find the lock held by the run that has just ended.
    bench.nothing();
    bench.closed();
    bench.claim(1015);
}

#[test]
fn runs_are_handed_on_from_list_to_list_and_their_places_are_free_once() {
    let mut bench = Bench::fresh(vec![policy()], Some(1));
    bench.registered(1000);
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.grant(&spec);
    let with_one_place = |bench: &mut Bench, jobs| {
        let max_running = NonZeroUsize::new(1);
        bench.feed(Event::Reload(NewList { jobs, max_running }));
    };
    with_one_place(&mut bench, rescheduled(NEW, JOB));
    registers(&mut bench, NEW);
    with_one_place(&mut bench, rescheduled(JobIx(2), NEW));
    registers(&mut bench, JobIx(2));
    // Gone, and back again.
    with_one_place(&mut bench, Vec::new());
    with_one_place(&mut bench, rescheduled(JobIx(3), JobIx(2)));
    registers(&mut bench, JobIx(3));
    bench.registered_of(JobIx(3), 1010);
    bench.at(1015);
    bench.due_of(JobIx(3), 1015);
    bench.nothing();
    bench.ended();
    bench.closed();
    let spec = bench.claim(1015);
    bench.grant(&spec);
    // The one place is taken again.
    bench.at(1022);
    bench.due_of(JobIx(3), 1022);
    bench.nothing();
}

#[test]
fn the_run_of_a_job_that_was_removed_frees_its_place() {
    let mut bench = Bench::fresh(vec![policy(), policy()], Some(1));
    for job in [JOB, NEW] {
        bench.registered_of(job, 1000);
    }
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.grant(&spec);
    bench.feed(Event::Reload(NewList {
        jobs: vec![listed(NEW, policy(), LaneChange::Kept)],
        max_running: NonZeroUsize::new(1),
    }));
    bench.due_of(NEW, 1010);
    bench.nothing();
    bench.ended();
    bench.claim(1010);
}

#[test]
fn a_job_that_moves_to_another_lock_takes_along_what_it_has_not_claimed() {
    let one_place = policy().with(|it| it.catch_up = CatchUp::None);
    let mut bench = Bench::fresh(vec![one_place.clone(), policy()], Some(1));
    for job in [JOB, JobIx(1)] {
        bench.registered_of(job, 1000);
    }
    bench.at(1010);
    bench.due_of(JobIx(1), 1010);
    let spec = bench.claim(1010);
    bench.grant(&spec);
    bench.due_of(JOB, 1010);
    bench.nothing();
    let before = JOB;
    reload(
        &mut bench,
        vec![
            listed(JobIx(1), policy(), LaneChange::Kept),
            listed(JobIx(2), one_place, LaneChange::Moved { before }),
        ],
    );
    registers(&mut bench, JobIx(2));
    bench.nothing();
    bench.registered_of(JobIx(2), 1000);
    assert_eq!(bench.claim(1010).job, JobIx(2));
}

#[test]
fn what_came_due_before_a_move_is_this_host_s_although_nothing_is_caught_up() {
    let none = policy().with(|it| it.catch_up = CatchUp::None);
    let mut bench = Bench::new(none.clone());
    bench.due(1010);
    let spec = bench.claim(1010);
    let before = JOB;
    reload(
        &mut bench,
        vec![listed(NEW, none, LaneChange::Moved { before })],
    );
    let (job, claim) = (JOB, spec.claim);
    assert_eq!(bench.action(), Action::Cancel { job, claim });
    registers(&mut bench, NEW);
    // The claim had not reached the store.
    bench.registered_of(NEW, 1000);
    bench.claim(1010);
}

#[test]
fn what_ran_without_the_store_is_not_run_again_under_another_lock() {
    let alone = policy().with(|it| {
        it.on_store_down = OnStoreDown::Run;
        it.catch_up = CatchUp::All;
    });
    let mut bench = Bench::new(alone.clone());
    bench.feed(Event::StoreDown);
    bench.due(1010);
    bench.started_alone(1010);
    let before = JOB;
    let jobs = vec![listed(NEW, alone, LaneChange::Moved { before })];
    reload(&mut bench, jobs);
    registers(&mut bench, NEW);
    bench.at(1012);
    bench.feed(Event::StoreUp);
    bench.registered_of(NEW, 1000);
    bench.nothing();
}

#[test]
fn what_runs_without_the_store_is_not_dropped_after_two_changes_of_the_schedule() {
    let alone = policy().with(|it| it.on_store_down = OnStoreDown::Run);
    let mut bench = Bench::new(alone.clone());
    bench.feed(Event::StoreDown);
    bench.due(1010);
    bench.started_alone(1010);
    bench.feed(Event::StoreUp);
    registers(&mut bench, JOB);
    let other = Policy {
        calendar: Arc::new(Every(7)),
        ..alone.clone()
    };
    let change = |before| LaneChange::New {
        before: Some(before),
    };
    let newest = JobIx(NEW.0 + 1);
    reload(&mut bench, vec![listed(NEW, other, change(JOB))]);
    registers(&mut bench, NEW);
    reload(&mut bench, vec![listed(newest, alone, change(NEW))]);
    registers(&mut bench, newest);
    bench.at(1012);
    bench.registered_of(newest, 1000);
    bench.nothing();
}

#[test]
fn no_range_that_is_dropped_reaches_over_what_ran_without_the_store_by_another_schedule() {
    let alone = policy().with(|it| it.on_store_down = OnStoreDown::Run);
    let sevens = Policy {
        calendar: Arc::new(Every(7)),
        ..alone.clone()
    };
    let mut bench = Bench::new(sevens);
    bench.feed(Event::StoreDown);
    bench.due(1015);
    bench.started_alone(1015);
    bench.ended();
    bench.closed();
    bench.feed(Event::StoreUp);
    registers(&mut bench, JOB);
    let change = LaneChange::New { before: Some(JOB) };
    reload(&mut bench, vec![listed(NEW, alone, change)]);
    registers(&mut bench, NEW);
    bench.at(1035);
    bench.registered_of(NEW, 1000);
    let spec = bench.claim(1030);
    bench.answer(&spec, gap(1000));
    let answer = bench.claim(1030).gap.expect("an answer to the gap");
    let ranges = answer.drop.iter().map(|drop| drop.range);
    let ranges: Vec<_> = ranges.map(|it| (it.from, it.until)).collect();
    let [ten, twenty] = [secs(1010), secs(1020)];
    assert_eq!(ranges, [(ten, ten), (twenty, twenty)]);
}

#[test]
fn a_run_of_the_old_definition_that_could_not_start_is_found_in_the_ledger() {
    let mut bench = running(policy());
    reload(&mut bench, moved());
    registers(&mut bench, NEW);
    bench.registered_of(NEW, 1010);
    bench.feed(Event::RunNotStarted {
        job: JOB,
        at: secs(1010),
        kind: Kind::Schedule,
        until: None,
    });
    bench.nothing();
    bench.closed();
    registers(&mut bench, NEW);
}

#[test]
fn a_reply_to_what_an_earlier_list_asked_changes_nothing() {
    let mut bench = Bench::fresh(vec![policy()], None);
    reload(&mut bench, rescheduled(NEW, JOB));
    registers(&mut bench, NEW);
    bench.at(1025);
    bench.registered(1000);
    bench.found_head(Some(head(1000, Kind::Queue)));
    bench.nothing();
}

#[test]
fn a_host_that_drains_takes_no_other_list() {
    let mut bench = Bench::new(policy());
    bench.feed(Event::Drain);
    reload(&mut bench, rescheduled(NEW, JOB));
    bench.nothing();
}

#[test]
fn a_list_that_changes_nothing_leaves_a_job_what_it_waits_for() {
    let wait = policy().with(|it| it.on_overlap = OnOverlap::Wait);
    let mut bench = Bench::new(wait.clone());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, super::bench::waits_for(1010, 20));
    for _ in 0..10 {
        reload(&mut bench, kept(wait.clone()));
    }
    bench.wake();
    let again = bench.claim(1010);
    bench.answer(&again, decided());
    bench.looks();
    bench.nothing();
    bench.due(1020);
    let spec = bench.claim(1020);
    bench.answer(&spec, held(20));
}
