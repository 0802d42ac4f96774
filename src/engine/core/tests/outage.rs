//! `on_store_down`, and what is made good when the store is back.

mod afterwards;
mod asleep;

use std::time::Duration;

use super::super::Policy;
use super::super::event::{Action, Event, JobIx, OccurrenceNotice};
use super::super::policy::Exclusion;
use super::bench::{Bench, JOB, decided, gap, policy, secs};
use crate::config::{CatchUp, OnOverlap, OnStoreDown};
use crate::store::{ClaimReply, Kind, Outcome, Overlap, Range};

fn down(on_store_down: OnStoreDown) -> Policy {
    policy().with(|it| it.on_store_down = on_store_down)
}

/// The claim of 1010 gets no answer.
fn cut_off(policy: Policy) -> (Bench, super::super::ClaimSpec) {
    let mut bench = Bench::new(policy);
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.no_reply(&spec);
    (bench, spec)
}

fn back(bench: &mut Bench) {
    bench.feed(Event::StoreUp);
}

#[test]
fn wait_uses_the_answer_that_comes_in_the_end() {
    let (mut bench, spec) = cut_off(down(OnStoreDown::Wait));
    bench.at(1015);
    bench.nothing();
    back(&mut bench);
    bench.grant(&spec);
}

#[test]
fn what_comes_due_meanwhile_is_judged_by_catch_up() {
    let (mut bench, spec) = cut_off(down(OnStoreDown::Wait));
    bench.due(1020);
    bench.due(1030);
    bench.nothing();
    back(&mut bench);
    bench.nothing();
    bench.answer(&spec, decided());
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.registered(1010);
    let newest = bench.claim(1030);
    assert_eq!(newest.kind, Kind::CatchUp);
    bench.answer(&newest, gap(1010));
    let newest = bench.claim(1030);
    let drops = newest.gap.expect("an answer to the gap").drop;
    assert_eq!(drops.len(), 1);
    assert_eq!(drops[0].outcome, Outcome::Missed);
}

#[test]
fn with_all_what_came_due_before_the_outage_was_noticed_is_not_skipped_for_an_overlap() {
    let mut bench = Bench::new(down(OnStoreDown::Wait).with(|it| it.catch_up = CatchUp::All));
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.grant(&spec);
    bench.ended();
    // Its verdict is on its way to a store that no longer answers.
    bench.due(1020);
    bench.nothing();
    bench.feed(Event::StoreDown);
    bench.at(1025);
    back(&mut bench);
    bench.closed();
    let spec = bench.claim(1020);
    assert_eq!(spec.overlap, Overlap::Queue { limit: u32::MAX });
    assert_eq!(spec.deadline, secs(1020 + 3600));
}

#[test]
fn with_none_the_newest_of_an_outage_still_runs_within_its_deadline() {
    let (mut bench, spec) = cut_off(down(OnStoreDown::Wait).with(|it| it.catch_up = CatchUp::None));
    bench.due(1020);
    bench.due(1030);
    back(&mut bench);
    bench.answer(&spec, decided());
    bench.action();
    bench.registered(1010);
    let newest = bench.claim(1030);
    assert_eq!(newest.kind, Kind::Schedule);
    assert_eq!(newest.deadline, secs(1330));
}

#[test]
fn at_the_start_deadline_the_claim_is_cancelled() {
    let (mut bench, spec) = cut_off(down(OnStoreDown::Wait));
    bench.at(1311);
    let cancel = Action::Cancel {
        job: JOB,
        claim: spec.claim,
    };
    assert_eq!(bench.action(), cancel);
    bench.grant_in_vain(&spec);
    bench.nothing();
    back(&mut bench);
    assert_eq!(bench.action(), Action::Register { job: JOB });
}

#[test]
fn skip_forgets_what_is_not_due_yet_by_the_clock_of_the_job_s_own_server() {
    let mut bench = Bench::new(down(OnStoreDown::Skip));
    bench.ahead = 3;
    bench.feed(Event::StoreDown);
    for (seconds, at) in [(1010, 1010), (1017, 1020)] {
        bench.at(seconds);
        bench.due_of(JOB, at);
        assert!(bench.said(at, &OccurrenceNotice::StoreDown));
    }
    bench.at(1019);
    back(&mut bench);
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.registered(1000);
    let spec = bench.claim(1020);
    let by = Duration::from_secs(1);
    bench.answer(&spec, ClaimReply::Early { by });
    bench.nothing();
    bench.at(1020);
    let spec = bench.claim(1020);
    bench.answer(&spec, gap(1000));
    let drops = bench.claim(1020).gap.expect("an answer to the gap").drop;
    assert_eq!(drops.len(), 1);
    assert_eq!(
        (drops[0].range.from, drops[0].range.until),
        (secs(1010), secs(1010))
    );
    assert_eq!(drops[0].outcome, Outcome::Skipped);
}

#[test]
fn skip_is_not_recorded_while_a_host_with_a_slow_clock_may_still_claim_it() {
    let mut bench = Bench::new(down(OnStoreDown::Skip).with(|it| it.skew = Duration::from_secs(3)));
    bench.feed(Event::StoreDown);
    bench.due(1010);
    bench.at(1011);
    back(&mut bench);
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.registered(1000);
    bench.nothing();
    bench.at(1013);
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.registered(1010);
    bench.nothing();
}

#[test]
fn run_starts_at_once_without_the_store_and_under_the_same_claim() {
    let (mut bench, spec) = cut_off(down(OnStoreDown::Run));
    assert_eq!(bench.started_alone(1010), spec.claim);
    bench.ended();
    bench.due(1020);
    bench.started_alone(1020);
    bench.nothing();
}

#[test]
fn run_does_not_overlap_with_itself() {
    let (mut bench, _) = cut_off(down(OnStoreDown::Run));
    bench.started_alone(1010);
    bench.due(1020);
    assert!(bench.said(1020, &OccurrenceNotice::StillRunning));
    bench.nothing();
    let (mut bench, _) = cut_off(down(OnStoreDown::Run).with(|it| it.on_overlap = OnOverlap::Wait));
    bench.started_alone(1010);
    bench.due(1020);
    bench.nothing();
    bench.ended();
    bench.started_alone(1020);
}

#[test]
fn without_a_lock_runs_without_the_store_overlap() {
    let (mut bench, _) = cut_off(down(OnStoreDown::Run).with(|it| it.exclusion = Exclusion::None));
    bench.started_alone(1010);
    bench.due(1020);
    bench.started_alone(1020);
}

#[test]
fn what_ran_alone_is_not_run_again_when_the_store_is_back() {
    let (mut bench, _) = cut_off(down(OnStoreDown::Run));
    bench.started_alone(1010);
    back(&mut bench);
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.registered(1000);
    bench.nothing();
    bench.due(1020);
    let spec = bench.claim(1020);
    bench.answer(&spec, gap(1000));
    let spec = bench.claim(1020);
    assert_eq!(spec.gap.map(|gap| gap.drop), Some(Vec::new()));
}

#[test]
fn what_was_too_late_between_two_runs_without_the_store_is_missed() {
    let (mut bench, _) = cut_off(down(OnStoreDown::Run).with(|it| {
        it.on_overlap = OnOverlap::Wait;
        it.start_deadline = Duration::from_secs(3);
    }));
    bench.started_alone(1010);
    bench.due(1020);
    bench.at(1025);
    bench.ended();
    bench.due(1030);
    bench.started_alone(1030);
    bench.ended();
    back(&mut bench);
    bench.closed();
    bench.closed();
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.registered(1000);
    let drops = bench.action();
    let Action::Drops(spec) = &drops else {
        panic!("no verdict: {drops:?}");
    };
    let drops = spec.answer.drop.iter();
    let drops: Vec<_> = drops
        .map(|d| (d.outcome, d.range.from, d.range.until))
        .collect();
    assert_eq!(drops, [(Outcome::Missed, secs(1020), secs(1020))]);
}

#[test]
fn skip_cancels_and_records_the_skips_once_the_store_is_back() {
    let (mut bench, spec) = cut_off(down(OnStoreDown::Skip));
    let cancel = Action::Cancel {
        job: JOB,
        claim: spec.claim,
    };
    assert_eq!(bench.action(), cancel);
    bench.due(1020);
    bench.nothing();
    back(&mut bench);
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.registered(1000);
    let range = Range {
        from: secs(1010),
        until: secs(1020),
        count: 2,
    };
    let drops = bench.action();
    let Action::Drops(spec) = &drops else {
        panic!("nothing is recorded: {drops:?}");
    };
    assert_eq!(spec.answer.if_last, secs(1000));
    let recorded: Vec<_> = spec
        .answer
        .drop
        .iter()
        .map(|d| (d.outcome, d.range))
        .collect();
    assert_eq!(recorded, [(Outcome::Skipped, range)]);
    bench.due(1030);
    bench.nothing();
    bench.answer_drops(&drops, ClaimReply::Dropped);
    bench.claim(1030);
}

#[test]
fn skips_that_others_decided_are_not_recorded() {
    let (mut bench, _) = cut_off(down(OnStoreDown::Skip));
    bench.action();
    back(&mut bench);
    bench.action();
    bench.registered(1010);
    bench.nothing();
}

#[test]
fn a_daemon_that_starts_without_its_store_runs_alone_what_may() {
    let mut bench = Bench::fresh(vec![down(OnStoreDown::Run)], None);
    bench.due(1010);
    bench.nothing();
    bench.feed(Event::StoreDown);
    bench.started_alone(1010);
    bench.nothing();
}

#[test]
fn a_daemon_that_starts_without_its_store_catches_up_later() {
    let mut bench = Bench::fresh(vec![down(OnStoreDown::Wait)], None);
    bench.feed(Event::StoreDown);
    bench.due(1010);
    bench.due(1020);
    bench.nothing();
    back(&mut bench);
    bench.nothing();
    bench.registered(1000);
    bench.claim(1020);
}

#[test]
fn of_what_came_due_around_a_start_without_the_store_latest_runs_the_newest_alone() {
    let mut bench = Bench::fresh(vec![down(OnStoreDown::Wait)], None);
    bench.due(1010);
    bench.feed(Event::StoreDown);
    bench.due(1020);
    back(&mut bench);
    bench.due(1030);
    bench.nothing();
    bench.registered(1000);
    bench.claim(1030);
}

#[test]
fn what_another_host_ran_without_the_store_is_neither_dropped_nor_passed_by_latest() {
    let registered = |bench: &mut Bench, decided_until: i64, beyond: i64| {
        bench.feed(Event::Registered {
            job: JOB,
            reply: crate::store::Registered {
                pauses: Vec::new(),
                decided_until: secs(decided_until),
                decided_beyond: vec![secs(beyond)],
                now: secs(1030),
                open: None,
                head: None,
                recovering: std::time::Duration::ZERO,
                moved: false,
            },
        });
        let drops = bench.action();
        let Action::Drops(spec) = &drops else {
            panic!("nothing is recorded: {drops:?}");
        };
        let drops = spec.answer.drop.iter();
        let drops = drops.map(|d| (d.outcome, d.range.from, d.range.until));
        drops.collect::<Vec<_>>()
    };
    let (mut bench, _) = cut_off(down(OnStoreDown::Skip));
    bench.action();
    bench.due(1020);
    bench.due(1030);
    back(&mut bench);
    bench.action();
    let one = |outcome, at| (outcome, secs(at), secs(at));
    assert_eq!(
        registered(&mut bench, 1000, 1020),
        [one(Outcome::Skipped, 1010), one(Outcome::Skipped, 1030)]
    );

    let (mut bench, spec) = cut_off(down(OnStoreDown::Wait));
    bench.due(1020);
    bench.due(1030);
    back(&mut bench);
    bench.answer(&spec, decided());
    bench.action();
    assert_eq!(
        registered(&mut bench, 1010, 1030),
        [one(Outcome::Missed, 1020)]
    );
}

#[test]
fn an_outage_longer_than_the_window_leaves_a_verdict() {
    let (mut bench, _) = cut_off(
        Policy {
            calendar: std::sync::Arc::new(super::bench::Every(1010)),
            ..down(OnStoreDown::Wait)
        }
        .with(|it| {
            it.catch_up_window = Duration::from_secs(5);
            it.start_deadline = Duration::from_secs(5);
        }),
    );
    bench.at(1100);
    bench.action();
    back(&mut bench);
    bench.action();
    bench.registered(1000);
    let drops = bench.action();
    let Action::Drops(spec) = &drops else {
        panic!("no verdict: {drops:?}");
    };
    assert_eq!(spec.answer.drop[0].outcome, Outcome::Missed);
    assert_eq!(spec.answer.drop[0].range.from, secs(1010));
}

#[test]
fn what_other_servers_keep_is_claimed_while_the_server_of_one_lock_is_away() {
    let mut bench = Bench::fresh(vec![policy(), policy()], None);
    for job in [JobIx(0), JobIx(1)] {
        bench.feed(Event::Registered {
            job,
            reply: crate::store::Registered {
                pauses: Vec::new(),
                decided_until: secs(1000),
                decided_beyond: Vec::new(),
                now: secs(1000),
                open: None,
                head: None,
                recovering: std::time::Duration::ZERO,
                moved: false,
            },
        });
    }
    bench.nothing();
    bench.due(1010);
    let spec = bench.claim(1010);
    let (job, claim) = (spec.job, spec.claim);
    bench.feed(Event::NoReplyForLock { job, claim });
    bench.nothing();
    bench.feed(Event::Due {
        job: JobIx(1),
        at: secs(1010),
    });
    let other = bench.claim(1010);
    assert_eq!(other.job, JobIx(1));
    // And its own is still being asked for.
    bench.grant(&spec);
}

/// What comes due while a run without the store lasts runs after it.
fn runs_each_alone() -> Policy {
    down(OnStoreDown::Run).with(|it| it.on_overlap = OnOverlap::Queue { limit: 5 })
}

/// The store's clock is five seconds behind this host's, and says that all up to 1000 is decided.
fn registered_behind(bench: &mut Bench, job: JobIx) {
    bench.feed(Event::Registered {
        job,
        reply: crate::store::Registered {
            pauses: Vec::new(),
            decided_until: secs(1000),
            decided_beyond: Vec::new(),
            now: secs(1005),
            open: None,
            head: None,
            recovering: std::time::Duration::ZERO,
            moved: false,
        },
    });
}

#[test]
fn what_waits_for_a_place_when_the_job_is_registered_once_more_runs_alone_once() {
    let (first, second) = (JobIx(0), JobIx(1));
    let mut bench = Bench::fresh(vec![runs_each_alone(), runs_each_alone()], Some(1));
    bench.registered_of(first, 1000);
    bench.registered_of(second, 1000);
    bench.at(1010);
    bench.due_of(first, 1010);
    let spec = bench.claim(1010);
    bench.grant(&spec);
    bench.due_of(second, 1010);
    assert!(bench.said(1010, &OccurrenceNotice::Full));
    bench.feed(Event::Absent { job: None });
    registered_behind(&mut bench, second);
    bench.feed(Event::StoreDown);
    bench.out.clear();
    bench.feed(Event::RunEnded { job: first });
    bench.started_alone(1010);
    bench.feed(Event::RunEnded { job: second });
    bench.nothing();
}

#[test]
fn what_is_being_claimed_when_the_job_is_registered_once_more_runs_alone_once() {
    let mut bench = Bench::new(runs_each_alone());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.feed(Event::Absent { job: None });
    registered_behind(&mut bench, JOB);
    bench.out.clear();
    bench.no_reply(&spec);
    bench.started_alone(1010);
    bench.ended();
    bench.nothing();
}

#[test]
fn without_catch_up_nothing_starts_that_is_older_than_what_ran_without_the_store() {
    let mut bench = Bench::new(policy().with(|it| {
        it.catch_up = CatchUp::None;
        it.on_store_down = OnStoreDown::Run;
    }));
    bench.at(1035);
    bench.feed(Event::Awake);
    for at in [1010, 1020, 1030] {
        bench.due_of(JOB, at);
    }
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.feed(Event::StoreDown);
    bench.due(1040);
    bench.started_alone(1040);
    bench.ended();
    bench.closed();
    bench.feed(Event::StoreUp);
    bench.looked();
    bench.registered(1000);
    let Action::Drops(spec) = bench.action() else {
        panic!("nothing is dropped");
    };
    let range = spec.answer.drop[0].range;
    assert_eq!((range.from, range.until), (secs(1010), secs(1030)));
}

/// The reply to a claim that found undecided occurrences before its own, some of them from before a loss of data.
fn gap_after_a_loss(last: i64) -> ClaimReply {
    ClaimReply::Gap {
        last: secs(last),
        horizon: Some(secs(last + 20)),
        decided_beyond: Vec::new(),
        pauses: Vec::new(),
    }
}

#[test]
fn what_one_ledger_lacks_is_not_judged_while_the_job_may_have_another() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.feed(Event::Absent { job: None });
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.answer(&spec, gap_after_a_loss(980));
    bench.nothing();
    // The other ledger knows more.
    bench.registered(1000);
    assert_eq!(bench.claim(1010).gap, None);
}

#[test]
fn what_is_dropped_is_not_judged_again_while_the_job_may_have_another_ledger() {
    let mut bench = Bench::new(policy().with(|it| it.catch_up_window = Duration::from_secs(5)));
    bench.at(1037);
    let registers = |bench: &mut Bench| {
        bench.feed(Event::Absent { job: None });
        assert_eq!(bench.action(), Action::Register { job: JOB });
    };
    registers(&mut bench);
    bench.registered(1000);
    let drops = bench.action();
    registers(&mut bench);
    bench.answer_drops(&drops, gap_after_a_loss(1000));
    bench.nothing();
    bench.registered(1030);
    bench.nothing();
}
