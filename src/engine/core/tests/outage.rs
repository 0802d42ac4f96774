//! `on_store_down`, and what is made good when the store is back.

use std::time::Duration;

use super::super::Policy;
use super::super::event::{Action, Event, JobIx, OccurrenceNotice};
use super::super::policy::Exclusion;
use super::bench::{Bench, JOB, decided, gap, policy, secs};
use crate::config::{CatchUp, OnOverlap, OnStoreDown};
use crate::store::{ClaimReply, Kind, Outcome, Overlap, Range};

fn down(on_store_down: OnStoreDown) -> Policy {
    Policy {
        on_store_down,
        ..policy()
    }
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
    let mut bench = Bench::new(Policy {
        catch_up: CatchUp::All,
        ..down(OnStoreDown::Wait)
    });
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
    let (mut bench, spec) = cut_off(Policy {
        catch_up: CatchUp::None,
        ..down(OnStoreDown::Wait)
    });
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
    let mut bench = Bench::new(Policy {
        skew: Duration::from_secs(3),
        ..down(OnStoreDown::Skip)
    });
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
    let (mut bench, _) = cut_off(Policy {
        on_overlap: OnOverlap::Wait,
        ..down(OnStoreDown::Run)
    });
    bench.started_alone(1010);
    bench.due(1020);
    bench.nothing();
    bench.ended();
    bench.started_alone(1020);
}

#[test]
fn what_a_host_slept_through_is_caught_up_whatever_is_to_be_done_without_the_store() {
    for on_store_down in [OnStoreDown::Run, OnStoreDown::Skip] {
        let (mut bench, _) = cut_off(Policy {
            catch_up: CatchUp::All,
            ..down(on_store_down)
        });
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
    let mut bench = awake(Policy {
        start_deadline: Duration::from_secs(2),
        ..down(OnStoreDown::Run)
    });
    bench.at(1021);
    bench.started_alone(1020);
}

#[test]
fn without_a_lock_runs_without_the_store_overlap() {
    let (mut bench, _) = cut_off(Policy {
        exclusion: Exclusion::None,
        ..down(OnStoreDown::Run)
    });
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
    let (mut bench, _) = cut_off(Policy {
        on_overlap: OnOverlap::Wait,
        start_deadline: Duration::from_secs(3),
        ..down(OnStoreDown::Run)
    });
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
    let (mut bench, _) = cut_off(Policy {
        catch_up_window: Duration::from_secs(5),
        calendar: std::sync::Arc::new(super::bench::Every(1010)),
        start_deadline: Duration::from_secs(5),
        ..down(OnStoreDown::Wait)
    });
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
        calendar: std::sync::Arc::new(super::bench::Every(1)),
        skew: Duration::from_secs(3),
        ..policy()
    }
}

fn asks(bench: &mut Bench) {
    assert_eq!(bench.action(), Action::Register { job: JOB });
}

#[test]
fn what_others_may_have_in_hand_is_left_to_them_though_a_newer_one_is_due() {
    for catch_up in [CatchUp::None, CatchUp::Latest, CatchUp::All] {
        let (mut bench, spec) = cut_off(Policy {
            catch_up,
            ..in_company()
        });
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
    let (mut bench, spec) = cut_off(Policy {
        catch_up: CatchUp::All,
        ..in_company()
    });
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
    let mut bench = Bench::new(Policy {
        skew: Duration::from_secs(30),
        ..down(OnStoreDown::Wait)
    });
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
    let (mut bench, spec) = cut_off(Policy {
        start_deadline: Duration::from_secs(2),
        catch_up: CatchUp::All,
        ..in_company()
    });
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
    let (mut bench, spec) = cut_off(Policy {
        on_overlap: OnOverlap::Queue { limit: 1 },
        ..in_company()
    });
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
    let mut bench = Bench::new(Policy {
        catch_up: CatchUp::None,
        start_deadline: Duration::from_secs(3),
        ..down(OnStoreDown::Skip)
    });
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

/// What comes due while a run without the store lasts runs after it.
fn runs_each_alone() -> Policy {
    Policy {
        on_overlap: OnOverlap::Queue { limit: 5 },
        ..down(OnStoreDown::Run)
    }
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
    let mut bench = Bench::new(Policy {
        catch_up: CatchUp::None,
        on_store_down: OnStoreDown::Run,
        ..policy()
    });
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
