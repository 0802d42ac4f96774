//! `max_running`.

mod reruns;
mod verdicts;

use std::time::Duration;

use super::super::Policy;
use super::super::event::{Action, Event, JobIx, OccurrenceNotice};
use super::bench::{Bench, FENCE, decided, grant, granted, head, policy, secs};
use crate::names::RunId;
use crate::store::{ClaimReply, Kind, OpenRun};
use crate::time::seconds_after_boot;

const FIRST: JobIx = JobIx(0);
const SECOND: JobIx = JobIx(1);
const THIRD: JobIx = JobIx(2);

/// Three jobs on a host with one place; the first has it.
fn full() -> Bench {
    full_of(&[policy(), policy(), policy()])
}

/// Another host's run; its lease ends in 20 s.
fn theirs() -> OpenRun {
    OpenRun {
        scheduled_at: Some(secs(1000)),
        run_id: RunId::from_text("theirs"),
        by: "other".to_owned(),
        attempt: 1,
        started_at: secs(1000),
        remaining: Duration::from_secs(20),
    }
}

fn settles_theirs(job: JobIx) -> Action {
    Action::Settle {
        job,
        run_id: RunId::from_text("theirs"),
    }
}

fn full_of(policies: &[Policy; 3]) -> Bench {
    let mut bench = Bench::fresh(policies.to_vec(), Some(1));
    for job in [FIRST, SECOND, THIRD] {
        bench.registered_of(job, 1000);
    }
    bench.at(1010);
    bench.due_of(FIRST, 1010);
    let spec = bench.claim(1010);
    bench.grant(&spec);
    bench
}

#[test]
fn a_full_host_claims_nothing_until_a_place_is_free() {
    let mut bench = full();
    bench.due_of(SECOND, 1010);
    bench.due_of(THIRD, 1010);
    assert!(bench.said(1010, &OccurrenceNotice::Full));
    bench.nothing();
    bench.feed(Event::RunEnded { job: FIRST });
    let spec = bench.claim(1010);
    assert_eq!(spec.job, SECOND, "who waited longest");
    bench.nothing();
}

#[test]
fn a_claim_that_brings_nothing_frees_its_place() {
    let mut bench = full();
    bench.due_of(SECOND, 1010);
    bench.due_of(THIRD, 1010);
    bench.feed(Event::RunEnded { job: FIRST });
    let spec = bench.claim(1010);
    bench.answer(&spec, decided());
    let spec = bench.claim(1010);
    assert_eq!(spec.job, THIRD);
}

#[test]
fn at_its_deadline_a_parked_occurrence_is_left_to_catch_up() {
    let mut bench = full();
    bench.due_of(SECOND, 1010);
    bench.nothing();
    bench.at(1312);
    bench.looked();
    assert_eq!(bench.action(), Action::Register { job: SECOND });
    bench.nothing();
}

#[test]
fn a_full_host_has_recorded_what_nobody_may_start_any_more() {
    let short = || {
        policy().with(|it| {
            it.start_deadline = Duration::from_secs(15);
            it.catch_up_window = Duration::from_secs(5);
        })
    };
    let mut bench = full_of(&[short(), short(), short()]);
    bench.due_of(SECOND, 1010);
    bench.at(1020);
    bench.due_of(SECOND, 1020);
    bench.at(1026);
    bench.looked();
    assert_eq!(bench.action(), Action::Register { job: SECOND });
    bench.registered_of(SECOND, 1000);
    let action = bench.action();
    let Action::Drops(spec) = &action else {
        panic!("nothing is dropped: {action:?}");
    };
    let range = spec.answer.drop[0].range;
    assert_eq!((range.from, range.until), (secs(1010), secs(1010)));
    bench.answer_drops(&action, ClaimReply::Dropped);
    assert!(
        bench.said(1020, &OccurrenceNotice::Full),
        "the next one waits"
    );
    bench.nothing();
}

#[test]
fn a_full_host_still_asks_for_the_verdict_of_a_head_that_is_too_late() {
    let mut bench = full();
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: None,
        head: Some(head(1000, Kind::Queue)),
        behind: None,
    });
    assert!(bench.said(1000, &OccurrenceNotice::Full));
    bench.nothing();
    bench.at(1302);
    bench.looked();
    let spec = bench.claim(1000);
    bench.answer(&spec, granted());
    let give_back = Action::GiveBack {
        job: SECOND,
        grant: grant(FENCE),
    };
    assert_eq!(bench.action(), give_back, "granted against expectation");
}

/// The clocks of host and store may differ by a tenth of a second, and a claim that the store still considers in
/// time is granted.
#[test]
fn the_verdict_of_a_head_is_asked_for_when_it_is_too_late_by_the_store_s_clock_as_well() {
    let mut bench = full();
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: None,
        head: Some(head(1000, Kind::Queue)),
        behind: None,
    });
    bench.at(1300);
    let asks = bench.next_timer().expect("the deadline").to_duration();
    let deadline = Duration::from_secs(1300);
    assert!(asks > deadline + Duration::from_millis(100), "{asks:?}");
    assert!(asks < deadline + Duration::from_secs(1), "{asks:?}");
}

#[test]
fn places_are_never_more_than_allowed() {
    let mut bench = full();
    bench.due_of(SECOND, 1010);
    bench.due_of(THIRD, 1010);
    for job in [SECOND, THIRD] {
        bench.feed(Event::RunEnded {
            job: if job == SECOND { FIRST } else { SECOND },
        });
        let spec = bench.claim(1010);
        assert_eq!(spec.job, job);
        bench.grant(&spec);
        bench.nothing();
    }
}

/// The first job's run could not be started; no claims before this second.
fn not_started(bench: &mut Bench, until: u64) {
    bench.feed(Event::RunNotStarted {
        job: FIRST,
        at: secs(1010),
        kind: Kind::Schedule,
        until: Some(seconds_after_boot(until)),
    });
}

#[test]
fn a_host_that_lost_a_lease_before_the_start_claims_on() {
    let mut bench = full();
    bench.due_of(SECOND, 1010);
    bench.nothing();
    bench.feed(Event::RunNotStarted {
        job: FIRST,
        at: secs(1010),
        kind: Kind::Schedule,
        until: None,
    });
    let spec = bench.claim(1010);
    assert_eq!(spec.job, SECOND);
}

#[test]
fn a_host_that_lacks_resources_claims_nothing_and_then_tries_one_run() {
    let mut bench = full();
    bench.due_of(SECOND, 1010);
    bench.nothing();
    not_started(&mut bench, 1014);
    bench.feed(Event::RunClosed { job: FIRST });
    assert!(bench.said(1010, &OccurrenceNotice::Short));
    bench.nothing();
    bench.at(1013);
    bench.nothing();
    bench.at(1014);
    let spec = bench.claim(1010);
    assert_eq!(spec.job, SECOND, "who waited longest");
    bench.grant(&spec);
    bench.nothing();
    bench.feed(Event::ResourcesBack);
    bench.feed(Event::RunEnded { job: SECOND });
    let spec = bench.claim(1010);
    assert_eq!(spec.job, FIRST, "nobody else has taken it");
}

#[test]
fn a_trial_that_another_host_wins_makes_room_for_the_next() {
    let mut bench = Bench::fresh(vec![policy(), policy(), policy()], None);
    for job in [FIRST, SECOND, THIRD] {
        bench.registered_of(job, 1000);
    }
    bench.at(1010);
    bench.due_of(FIRST, 1010);
    let spec = bench.claim(1010);
    bench.grant(&spec);
    not_started(&mut bench, 1012);
    bench.due_of(SECOND, 1010);
    bench.due_of(THIRD, 1010);
    bench.nothing();
    bench.at(1012);
    let spec = bench.claim(1010);
    bench.nothing();
    bench.answer(&spec, decided());
    let next = bench.claim(1010);
    assert_ne!(next.job, spec.job);
    bench.nothing();
}
