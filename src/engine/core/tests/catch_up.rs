//! `catch_up`: what lies between the ledger and now.

use super::super::Policy;
use super::super::event::{Action, Event};
use super::bench::{Bench, JOB, decided, gap, head, policy, secs, waits_for};
use crate::config::{CatchUp, OnOverlap};
use crate::store::{ClaimReply, GapAnswer, Kind, Outcome, Overlap};

fn with(catch_up: CatchUp) -> Policy {
    policy().with(|it| it.catch_up = catch_up)
}

/// A daemon that starts at 1000 and finds its ledger decided up to `last`.
fn restarted(policy: Policy, last: i64) -> Bench {
    let mut bench = Bench::fresh(vec![policy], None);
    bench.registered(last);
    bench
}

/// The ranges that a gap answer drops: first, last, count.
fn dropped(bench: &mut Bench, at: i64) -> Vec<(i64, i64, u64)> {
    let spec = bench.claim(at);
    ranges(&spec.gap.expect("an answer to the gap"))
}

/// The ranges that are dropped without a claim.
fn dropped_alone(bench: &mut Bench) -> Vec<(i64, i64, u64)> {
    match bench.action() {
        Action::Drops(spec) => ranges(&spec.answer),
        other => panic!("nothing is dropped: {other:?}"),
    }
}

fn ranges(answer: &GapAnswer) -> Vec<(i64, i64, u64)> {
    let drops = answer.drop.iter();
    drops
        .map(|drop| {
            assert_eq!(drop.outcome, Outcome::Missed);
            let range = drop.range;
            let seconds = |t: crate::time::Timestamp| t.millis() / 1000;
            (seconds(range.from), seconds(range.until), range.count)
        })
        .collect()
}

#[test]
fn latest_runs_the_newest_and_drops_the_others() {
    let mut bench = restarted(with(CatchUp::Latest), 900);
    let spec = bench.claim(1000);
    assert_eq!((spec.kind, spec.overlap), (Kind::CatchUp, Overlap::Wait));
    assert_eq!(spec.deadline, secs(1000 + 3600));
    bench.answer(&spec, gap(900));
    assert_eq!(dropped(&mut bench, 1000), [(910, 990, 9)]);
}

#[test]
fn latest_and_none_run_nothing_beside_what_came_due_as_the_host_woke_up() {
    for catch_up in [CatchUp::Latest, CatchUp::None] {
        let mut bench = Bench::new(with(catch_up));
        bench.at(1050);
        for at in [1010, 1020, 1030, 1040] {
            bench.due_of(JOB, at);
        }
        assert_eq!(bench.action(), Action::Register { job: JOB });
        bench.due_of(JOB, 1050);
        bench.registered(1000);
        let spec = bench.claim(1050);
        bench.answer(&spec, gap(1000));
        assert_eq!(dropped(&mut bench, 1050), [(1010, 1040, 4)]);
    }
}

#[test]
fn latest_runs_the_newest_of_an_outage_alone_and_not_what_came_due_before_it_was_noticed() {
    let mut bench = Bench::fresh(vec![with(CatchUp::Latest)], None);
    bench.due(1010);
    bench.feed(Event::StoreDown);
    bench.due(1020);
    bench.due(1030);
    bench.feed(Event::StoreUp);
    bench.at(1031);
    bench.registered(1000);
    let spec = bench.claim(1030);
    assert_eq!(spec.kind, Kind::CatchUp);
    bench.answer(&spec, gap(1000));
    assert_eq!(dropped(&mut bench, 1030), [(1010, 1020, 2)]);
    bench.nothing();
}

#[test]
fn latest_runs_what_came_due_as_the_store_came_back_alone_and_not_what_came_due_before_the_outage()
{
    let mut bench = Bench::new(with(CatchUp::Latest));
    bench.found_head(Some(head(1000, Kind::Queue)));
    let spec = bench.claim(1000);
    for at in [1010, 1020] {
        bench.due(at);
    }
    bench.no_reply(&spec);
    for at in [1030, 1040] {
        bench.due(at);
    }
    bench.feed(Event::Absent { job: None });
    assert_eq!(bench.action(), Action::Register { job: JOB });
    bench.feed(Event::StoreUp);
    bench.answer(&spec, decided());
    bench.looks();
    bench.due(1050);
    bench.registered(1000);
    let spec = bench.claim(1050);
    bench.answer(&spec, gap(1000));
    assert_eq!(dropped(&mut bench, 1050), [(1010, 1040, 4)]);
}

#[test]
fn latest_drops_nothing_that_came_due_while_host_and_store_were_up() {
    let mut bench = Bench::fresh(vec![with(CatchUp::Latest)], None);
    bench.due(1010);
    // A run of before was not settled: the ledger is asked, and there was no outage.
    bench.feed(Event::NotSettled { job: JOB });
    bench.at(1020);
    bench.registered(1000);
    let spec = bench.claim(1010);
    assert_eq!(spec.kind, Kind::Schedule);
}

#[test]
fn all_waits_for_what_was_claimed_before_the_outage_was_noticed() {
    let mut bench = Bench::new(with(CatchUp::All));
    bench.due(1010);
    let first = bench.claim(1010);
    bench.due(1020);
    bench.no_reply(&first);
    bench.feed(Event::StoreUp);
    bench.grant(&first);
    assert_eq!(
        bench.claim(1020).overlap,
        Overlap::Queue { limit: u32::MAX }
    );
}

#[test]
fn latest_outside_its_window_runs_nothing_and_has_it_recorded() {
    let policy = Policy {
        calendar: std::sync::Arc::new(super::bench::Every(100)),
        ..policy()
    }
    .with(|it| it.catch_up_window = std::time::Duration::from_secs(5));
    let mut bench = Bench::fresh(vec![policy], None);
    bench.at(1099);
    bench.registered(800);
    assert_eq!(dropped_alone(&mut bench), [(900, 1000, 2)]);
}

/// None of its occurrences falls on the start of the daemon.
fn none_every_30_seconds() -> Policy {
    Policy {
        calendar: std::sync::Arc::new(super::bench::Every(30)),
        ..with(CatchUp::None)
    }
}

#[test]
fn none_has_recorded_what_nobody_may_start_any_more() {
    let policy =
        none_every_30_seconds().with(|it| it.start_deadline = std::time::Duration::from_secs(5));
    let mut bench = restarted(policy, 900);
    assert_eq!(dropped_alone(&mut bench), [(930, 990, 3)]);
}

#[test]
fn all_runs_each_one_in_order_before_what_is_due_now() {
    let mut bench = restarted(with(CatchUp::All), 970);
    bench.due(1010);
    for at in [980, 990, 1000] {
        let spec = bench.claim(at);
        let in_order = Overlap::Queue { limit: u32::MAX };
        assert_eq!((spec.kind, spec.overlap), (Kind::CatchUp, in_order));
        bench.grant(&spec);
    }
    let spec = bench.claim(1010);
    assert_eq!(spec.kind, Kind::Schedule);
}

#[test]
fn what_came_due_behind_the_backlog_of_all_is_not_too_late_on_its_account() {
    let policy =
        with(CatchUp::All).with(|it| it.start_deadline = std::time::Duration::from_secs(3));
    let mut bench = Bench::fresh(vec![policy], None);
    bench.due(1010);
    bench.registered(980);
    for at in [990, 1000] {
        let spec = bench.claim(at);
        bench.grant(&spec);
    }
    assert_eq!(bench.claim(1010).deadline, secs(1010 + 3600));
}

#[test]
fn what_came_due_behind_the_backlog_of_all_is_not_superseded_by_what_follows_it() {
    let policy = with(CatchUp::All).with(|it| it.on_overlap = OnOverlap::Wait);
    let mut bench = Bench::fresh(vec![policy], None);
    bench.due(1010);
    bench.registered(990);
    let spec = bench.claim(1000);
    bench.grant(&spec);
    let in_order = Overlap::Queue { limit: u32::MAX };
    assert_eq!(bench.claim(1010).overlap, in_order);
}

#[test]
fn what_came_due_behind_the_backlog_of_all_is_not_refused_by_a_queue_that_is_full_of_it() {
    let policy = with(CatchUp::All).with(|it| it.on_overlap = OnOverlap::Queue { limit: 1 });
    let mut bench = Bench::fresh(vec![policy], None);
    bench.due(1010);
    bench.registered(990);
    let spec = bench.claim(1000);
    bench.grant(&spec);
    let in_order = Overlap::Queue { limit: u32::MAX };
    assert_eq!(bench.claim(1010).overlap, in_order);
}

#[test]
fn all_drops_what_is_older_than_its_window() {
    let policy =
        with(CatchUp::All).with(|it| it.catch_up_window = std::time::Duration::from_secs(25));
    let mut bench = restarted(policy, 900);
    let first = bench.claim(980);
    bench.answer(&first, gap(900));
    assert_eq!(dropped(&mut bench, 980), [(910, 970, 7)]);
}

#[test]
fn none_leaves_what_another_host_may_still_start() {
    let mut bench = restarted(none_every_30_seconds(), 900);
    assert_eq!(dropped_alone(&mut bench), [(930, 960, 2)]);
    bench.out.clear();
    let mut bench = restarted(none_every_30_seconds(), 960);
    bench.nothing();
    bench.due(1020);
    let spec = bench.claim(1020);
    bench.answer(&spec, gap(960));
    assert_eq!(dropped(&mut bench, 1020), [(990, 990, 1)]);
}

#[test]
fn a_gap_met_later_brings_what_all_promises_first() {
    let mut bench = Bench::new(with(CatchUp::All));
    bench.due(1030);
    let spec = bench.claim(1030);
    bench.answer(&spec, gap(1000));
    let first = bench.claim(1010);
    assert_eq!(first.kind, Kind::CatchUp);
    bench.grant(&first);
    let second = bench.claim(1020);
    bench.answer(&second, waits_for(1020, 20));
    // What came due itself waits behind them, whatever `on_overlap` says.
    let third = bench.claim(1030);
    assert_eq!(third.overlap, Overlap::Queue { limit: u32::MAX });
}

#[test]
fn a_ledger_that_is_up_to_date_asks_for_nothing() {
    for catch_up in [CatchUp::None, CatchUp::Latest, CatchUp::All] {
        let mut bench = restarted(with(catch_up), 1000);
        bench.nothing();
    }
}

#[test]
fn occurrences_wait_until_the_ledger_is_known() {
    let mut bench = Bench::fresh(vec![policy()], None);
    bench.due(1010);
    bench.nothing();
    bench.registered(1000);
    let spec = bench.claim(1010);
    bench.answer(&spec, ClaimReply::TooLate);
    bench.nothing();
}

#[test]
fn a_year_of_seconds_is_counted_and_not_walked_through() {
    let policy = Policy {
        calendar: std::sync::Arc::new(super::bench::Every(2)),
        ..with(CatchUp::Latest)
    };
    let mut bench = Bench::fresh(vec![policy], None);
    bench.at(1000 + 10_000_000_000);
    bench.registered(1000);
    let spec = bench.claim(1000 + 10_000_000_000);
    bench.answer(&spec, gap(1000));
    let newest = 1000 + 10_000_000_000;
    let expected = [(1002, newest - 2, 4_999_999_999)];
    assert_eq!(dropped(&mut bench, newest), expected);
}
