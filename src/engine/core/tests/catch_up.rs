//! `catch_up`: what lies between the ledger and now.

use super::super::Policy;
use super::bench::{Bench, gap, held, policy, secs};
use crate::config::CatchUp;
use crate::store::{ClaimReply, Kind, Outcome, Overlap};

fn with(catch_up: CatchUp) -> Policy {
    Policy {
        catch_up,
        ..policy()
    }
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
    let answer = spec.gap.expect("an answer to the gap");
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
fn latest_outside_its_window_runs_nothing_and_has_it_recorded() {
    let policy = Policy {
        catch_up_window: std::time::Duration::from_secs(5),
        calendar: std::sync::Arc::new(super::bench::Every(100)),
        ..policy()
    };
    let mut bench = Bench::fresh(vec![policy], None);
    bench.at(1099);
    bench.registered(800);
    let spec = bench.claim(1000);
    assert!(spec.deadline <= secs(1000), "only its verdict is wanted");
    bench.answer(&spec, gap(800));
    assert_eq!(dropped(&mut bench, 1000), [(900, 900, 1)]);
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
    let policy = Policy {
        start_deadline: std::time::Duration::from_secs(5),
        ..none_every_30_seconds()
    };
    let mut bench = restarted(policy, 900);
    let spec = bench.claim(990);
    assert!(spec.deadline < secs(1000), "only its verdict is wanted");
    bench.answer(&spec, gap(900));
    assert_eq!(dropped(&mut bench, 990), [(930, 960, 2)]);
}

#[test]
fn all_runs_each_one_in_order_before_what_is_due_now() {
    let mut bench = restarted(with(CatchUp::All), 970);
    bench.due(1010);
    for at in [980, 990, 1000] {
        let spec = bench.claim(at);
        assert_eq!((spec.kind, spec.overlap), (Kind::CatchUp, Overlap::Wait));
        bench.grant(&spec);
    }
    let spec = bench.claim(1010);
    assert_eq!(spec.kind, Kind::Schedule);
}

#[test]
fn all_drops_what_is_older_than_its_window() {
    let policy = Policy {
        catch_up_window: std::time::Duration::from_secs(25),
        ..with(CatchUp::All)
    };
    let mut bench = restarted(policy, 900);
    let first = bench.claim(980);
    bench.answer(&first, gap(900));
    assert_eq!(dropped(&mut bench, 980), [(910, 970, 7)]);
}

#[test]
fn none_leaves_what_another_host_may_still_start() {
    let mut bench = restarted(none_every_30_seconds(), 900);
    bench.nothing();
    bench.due(1020);
    let spec = bench.claim(1020);
    bench.answer(&spec, gap(900));
    assert_eq!(dropped(&mut bench, 1020), [(930, 990, 3)]);
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
    bench.answer(&second, held(20));
    bench.wake();
    let second = bench.claim(1020);
    bench.grant(&second);
    bench.claim(1030);
}

#[test]
fn a_late_catch_up_gives_way_to_a_newer_occurrence() {
    let mut bench = restarted(with(CatchUp::Latest), 990);
    let spec = bench.claim(1000);
    bench.answer(&spec, held(60));
    bench.waits();
    bench.due(1010);
    bench.claim(1010);
}

#[test]
fn what_all_promises_gives_way_to_nothing() {
    let mut bench = restarted(with(CatchUp::All), 990);
    let spec = bench.claim(1000);
    bench.answer(&spec, held(60));
    bench.due(1010);
    bench.wake();
    bench.claim(1000);
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
