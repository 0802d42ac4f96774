//! `spread`: when a host's claims go out.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::event::{Action, Event, OccurrenceNotice};
use super::super::policy::Policy;
use super::bench::{Bench, decided, held, policy, secs};
use crate::config::OnStoreDown;
use crate::names::{HostName, JobName};
use crate::schedule::Spread;
use crate::time::Timestamp;

const WINDOW: Duration = Duration::from_secs(8);
/// Far beyond the window.
const NO_LIMIT: Duration = Duration::from_secs(3600);

fn of(host: &str, window: Duration) -> Spread {
    let host = HostName::parse(host).expect("a name");
    Spread::new(&host, &JobName::parse("j").expect("a name"), window)
}

/// How long web1 holds an occurrence of the bench back.
fn delay(seconds: i64, limit: u64) -> Duration {
    of("web1", WINDOW).delay(secs(seconds), Duration::from_secs(limit))
}

fn spread_policy() -> Policy {
    Policy {
        spread: of("web1", WINDOW),
        ..policy()
    }
}

/// The second at which the bench, which knows whole ones only, sees the claim go out.
fn turn(seconds: i64) -> i64 {
    seconds + i64::try_from(delay(seconds, 10).as_millis().div_ceil(1000)).expect("small")
}

/// An occurrence that web1 holds back for more than two seconds.
fn late_one() -> i64 {
    let mut all = (101..200).map(|tens| tens * 10);
    all.find(|at| turn(*at) > *at + 2).expect("one of many")
}

#[test]
fn delays_stay_within_the_window_and_its_limit_and_differ() {
    let mut seen = BTreeSet::new();
    for minute in 0..1000 {
        let at = Timestamp::from_secs(minute * 60);
        let delay = of("web1", WINDOW).delay(at, NO_LIMIT);
        assert!(delay < WINDOW);
        assert_eq!(delay, of("web1", WINDOW).delay(at, NO_LIMIT), "repeatable");
        assert!(of("web1", WINDOW).delay(at, Duration::from_secs(1)) < Duration::from_secs(1));
        seen.insert(delay.as_secs());
    }
    assert_eq!(seen.len(), 8, "all of the window is used: {seen:?}");
    assert_eq!(
        of("web1", Duration::ZERO).delay(secs(7), NO_LIMIT),
        Duration::ZERO
    );
}

#[test]
fn every_host_comes_first_about_as_often() {
    let hosts = ["web1", "web2", "web3", "web4"];
    let mut first = [0; 4];
    for minute in 0..2000 {
        let at = Timestamp::from_secs(minute * 60);
        let delays = hosts.map(|host| of(host, WINDOW).delay(at, NO_LIMIT));
        let least = delays.iter().min().expect("four of them");
        let winner = delays.iter().position(|delay| delay == least);
        first[winner.expect("one is the least")] += 1;
    }
    assert!(first.iter().all(|n| (400..600).contains(n)), "{first:?}");
}

#[test]
fn a_claim_goes_out_when_it_is_this_hosts_turn_and_not_before() {
    let at = late_one();
    let mut bench = Bench::new(spread_policy());
    bench.due(at);
    bench.nothing();
    bench.at(turn(at) - 1);
    bench.nothing();
    bench.at(turn(at));
    let spec = bench.claim(at);
    bench.grant(&spec);
}

#[test]
fn an_occurrence_that_is_skipped_at_this_hosts_turn_is_not_late() {
    let at = late_one();
    let mut bench = Bench::new(spread_policy());
    bench.due(at);
    bench.at(turn(at));
    let spec = bench.claim(at);
    bench.answer(&spec, held(20));
    assert!(bench.said(at, &OccurrenceNotice::Skipped("other".to_owned())));
}

#[test]
fn without_spread_it_goes_out_at_once() {
    let at = late_one();
    let mut bench = Bench::new(policy());
    bench.due(at);
    bench.claim(at);
}

#[test]
fn a_turn_never_lies_beyond_the_start_deadline_or_the_next_occurrence() {
    for tens in 101..160 {
        let at = tens * 10;
        let mut bench = Bench::new(
            Policy {
                spread: of("web1", Duration::from_secs(60)),
                ..policy()
            }
            .with(|it| it.start_deadline = Duration::from_secs(3)),
        );
        bench.due(at);
        bench.at(at + 3);
        let spec = bench.claim(at);
        assert!(spec.deadline >= secs(at + 3));

        let mut bench = Bench::new(Policy {
            spread: of("web1", Duration::from_secs(60)),
            ..policy()
        });
        bench.due(at);
        bench.at(at + 10);
        bench.claim(at);
    }
}

#[test]
fn an_occurrence_held_back_is_left_to_others_when_the_host_drains() {
    let at = late_one();
    let mut bench = Bench::new(spread_policy());
    bench.due(at);
    bench.feed(Event::Drain);
    bench.at(at + 100);
    bench.nothing();
}

#[test]
fn a_store_that_goes_away_before_the_turn_meets_the_jobs_policy() {
    let at = late_one();
    let mut bench = Bench::new(spread_policy().with(|it| it.on_store_down = OnStoreDown::Run));
    bench.due(at);
    bench.feed(Event::StoreDown);
    bench.nothing();
    bench.at(turn(at));
    bench.started_alone(at);
}

#[test]
fn what_is_caught_up_is_not_held_back_again() {
    let mut bench = Bench::new(spread_policy());
    bench.at(2000);
    bench.due_of(super::bench::JOB, 1010);
    let register = bench.action();
    assert!(matches!(register, Action::Register { .. }), "{register:?}");
    bench.registered(1000);
    let spec = bench.claim(2000);
    bench.answer(&spec, decided());
    let look = bench.action();
    assert!(matches!(look, Action::QueryLedger { .. }), "{look:?}");
    bench.nothing();
}
