//! `max_running`.

use super::super::event::{Action, Event, JobIx, Said};
use super::bench::{Bench, decided, granted, policy, secs};

const FIRST: JobIx = JobIx(0);
const SECOND: JobIx = JobIx(1);
const THIRD: JobIx = JobIx(2);

/// Three jobs on a host with one place; the first has it.
fn full() -> Bench {
    let mut bench = Bench::fresh(vec![policy(), policy(), policy()], Some(1));
    for job in [FIRST, SECOND, THIRD] {
        bench.feed(Event::Registered {
            job,
            decided_until: secs(1000),
            store_now: secs(1000),
            open: None,
        });
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
    assert!(bench.said(1010, &Said::Full));
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
fn at_its_deadline_a_parked_occurrence_gets_its_verdict_and_is_never_run() {
    let mut bench = full();
    bench.due_of(SECOND, 1010);
    bench.nothing();
    bench.at(1312);
    let spec = bench.claim(1010);
    assert!(spec.deadline < secs(1312));
    bench.answer(&spec, granted());
    let cancel = Action::Cancel {
        job: SECOND,
        claim: spec.claim,
    };
    assert_eq!(bench.action(), cancel);
    bench.feed(Event::RunEnded { job: FIRST });
    bench.nothing();
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
