//! Jobs that are paused: what a host records of what was due meanwhile, and what it runs alone.

use super::super::Policy;
use super::super::event::{Action, ClaimSpec, Event, OccurrenceNotice};
use super::bench::{Bench, granted, policy, secs};
use crate::config::{CatchUp, OnStoreDown};

use crate::store::{ClaimReply, DroppedRange, Outcome, Pause};

fn pause(since: i64, until: Option<i64>) -> Pause {
    Pause {
        asked_at: secs(since),
        since: secs(since),
        until: until.map(secs),
        by: "alice@web1".to_owned(),
        resumed_by: None,
        reason: "a new disk".to_owned(),
    }
}

fn gap(last: i64, pauses: Vec<Pause>) -> ClaimReply {
    ClaimReply::Gap {
        last: secs(last),
        horizon: None,
        decided_beyond: Vec::new(),
        pauses,
    }
}

fn shown(drops: &[DroppedRange]) -> Vec<(Outcome, i64, i64, u64)> {
    let second = |at: crate::time::Timestamp| at.millis() / 1000;
    let drops = drops.iter();
    drops
        .map(|it| {
            let range = it.range;
            (
                it.outcome,
                second(range.from),
                second(range.until),
                range.count,
            )
        })
        .collect()
}

fn dropped(spec: &ClaimSpec) -> Vec<(Outcome, i64, i64, u64)> {
    shown(&spec.gap.as_ref().expect("an answer to the gap").drop)
}

#[test]
fn a_gap_is_parted_at_the_pauses_in_it() {
    let mut bench = Bench::new(policy());
    bench.due(1100);
    let spec = bench.claim(1100);
    // In the second one nothing was due.
    let pauses = vec![pause(1030, Some(1050)), pause(1071, Some(1079))];
    bench.answer(&spec, gap(1000, pauses));
    assert!(
        bench.said(1100, &OccurrenceNotice::Dropped(7)),
        "of what was missed alone"
    );
    let again = bench.claim(1100);
    assert_eq!(
        dropped(&again),
        [
            (Outcome::Missed, 1010, 1020, 2),
            (Outcome::Skipped, 1030, 1040, 2),
            (Outcome::Missed, 1050, 1070, 3),
            (Outcome::Missed, 1080, 1090, 2),
        ]
    );
    let answer = again.gap.expect("an answer to the gap");
    assert_eq!(answer.drop[1].reason, "paused by alice@web1: a new disk");
}

#[test]
fn what_ran_without_the_store_does_not_hide_a_pause() {
    let mut bench = Bench::new(policy());
    bench.due(1090);
    let spec = bench.claim(1090);
    bench.answer(
        &spec,
        ClaimReply::Gap {
            last: secs(1000),
            horizon: None,
            decided_beyond: vec![secs(1020)],
            // Nothing was due during the first one.
            pauses: vec![pause(1043, Some(1044)), pause(1060, Some(1071))],
        },
    );
    assert_eq!(
        dropped(&bench.claim(1090)),
        [
            (Outcome::Missed, 1010, 1010, 1),
            (Outcome::Missed, 1030, 1040, 2),
            (Outcome::Missed, 1050, 1050, 1),
            (Outcome::Skipped, 1060, 1070, 2),
            (Outcome::Missed, 1080, 1080, 1),
        ]
    );
}

#[test]
fn what_policy_drops_by_itself_is_parted_too() {
    let mut bench = Bench::fresh(
        vec![policy().with(|it| {
            it.catch_up = CatchUp::None;
            it.start_deadline = std::time::Duration::from_secs(5);
        })],
        None,
    );
    bench.at(1058);
    bench.registered(1000);
    let drops = bench.action();
    bench.answer_drops(&drops, gap(1000, vec![pause(1020, Some(1040))]));
    let Action::Drops(spec) = bench.action() else {
        panic!("nothing is dropped");
    };
    assert_eq!(
        shown(&spec.answer.drop),
        [
            (Outcome::Missed, 1010, 1010, 1),
            (Outcome::Skipped, 1020, 1030, 2),
            (Outcome::Missed, 1040, 1050, 2),
        ]
    );
}

#[test]
fn a_paused_occurrence_is_decided_and_the_next_one_is_claimed() {
    let mut bench = Bench::new(policy());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, ClaimReply::Paused(pause(1005, None)));
    assert!(bench.said(
        1010,
        &OccurrenceNotice::Paused("alice@web1: a new disk".to_owned())
    ));
    bench.nothing();
    bench.due(1020);
    let spec = bench.claim(1020);
    assert_eq!(spec.gap, None);
    bench.grant(&spec);
}

fn runs_alone() -> Policy {
    policy().with(|it| it.on_store_down = OnStoreDown::Run)
}

#[test]
fn a_host_that_knows_of_a_pause_does_not_run_the_job_without_the_store() {
    let mut bench = Bench::new(runs_alone());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, ClaimReply::Paused(pause(1005, Some(1035))));
    bench.due(1020);
    let spec = bench.claim(1020);
    bench.no_reply(&spec);
    assert!(matches!(bench.action(), Action::Cancel { .. }));
    bench.due(1030);
    bench.nothing();
    // By then the pause is over.
    bench.due(1040);
    bench.started_alone(1040);
}

#[test]
fn a_host_that_is_granted_a_claim_knows_that_the_job_was_resumed() {
    let mut bench = Bench::new(runs_alone());
    bench.due(1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, ClaimReply::Paused(pause(1005, None)));
    bench.due(1020);
    let spec = bench.claim(1020);
    bench.answer(&spec, granted());
    bench.started(1020);
    bench.ended();
    bench.closed();
    bench.feed(Event::StoreDown);
    bench.due(1030);
    bench.started_alone(1030);
}
