//! Runs whose host died, on a full host: their records need no place, and their reruns do.

use std::time::Duration;

use super::super::bench::{Bench, decided, head, policy, running, secs};
use super::{FIRST, SECOND, THIRD, full, full_of, settles_theirs, theirs};
use crate::config::OnCrash;
use crate::engine::core::event::{Action, Event, JobIx, OccurrenceNotice};
use crate::store::{Head, Kind, OpenRun, Registered};
use crate::time::BootInstant;

#[test]
fn a_full_host_asks_for_the_record_of_a_dead_run_that_is_not_run_again() {
    let rerun = policy().with(|it| it.on_crash = OnCrash::Rerun { max_reruns: 1 });
    let mut bench = full_of(&[policy(), policy(), rerun]);
    for job in [SECOND, THIRD] {
        bench.feed(Event::LedgerQueried {
            job,
            open: Some(theirs()),
            head: None,
            behind: None,
        });
    }
    bench.nothing();
    bench.at(1031);
    let spec = bench.claim(1000);
    assert_eq!(spec.job, SECOND);
    bench.answer(&spec, running(0));
    // The run of the third job is run again once a host has a place.
    for job in [THIRD, SECOND] {
        assert_eq!(bench.action(), settles_theirs(job));
    }
    bench.nothing();
}

#[test]
fn the_record_of_a_dead_run_does_not_wait_behind_what_waits_for_a_place() {
    let mut bench = full();
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: Some(theirs()),
        head: None,
        behind: None,
    });
    for job in [SECOND, THIRD] {
        bench.due_of(job, 1010);
    }
    bench.nothing();
    bench.at(1031);
    bench.looked();
    let spec = bench.claim(1000);
    bench.answer(&spec, running(20));
    bench.nothing();
    bench.feed(Event::RunEnded { job: FIRST });
    let spec = bench.claim(1010);
    assert_eq!(spec.job, SECOND, "it has kept its turn");
}

#[test]
fn the_record_of_a_dead_run_does_not_wait_behind_a_head_that_waits_for_a_place() {
    let mut bench = full();
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: Some(theirs()),
        head: Some(head(1010, Kind::Queue)),
        behind: None,
    });
    assert!(bench.said(1010, &OccurrenceNotice::Full));
    bench.at(1031);
    let spec = bench.claim(1000);
    bench.answer(&spec, decided());
    bench.nothing();
    bench.feed(Event::RunEnded { job: FIRST });
    let spec = bench.claim(1010);
    assert_eq!((spec.job, spec.kind), (SECOND, Kind::Queue));
}

#[test]
fn a_full_host_reruns_a_dead_run_when_it_has_a_place() {
    let rerun = policy().with(|it| {
        it.on_crash = OnCrash::Rerun { max_reruns: 1 };
        it.start_deadline = Duration::from_secs(3);
        it.catch_up_window = Duration::from_secs(60);
    });
    let mut bench = full_of(&[policy(), rerun.clone(), rerun]);
    for job in [SECOND, THIRD] {
        bench.feed(Event::LedgerQueried {
            job,
            open: Some(theirs()),
            head: None,
            behind: None,
        });
    }
    // The leases end at 1030, and the ledger says until when the reruns may start.
    bench.at(1031);
    let waiting = Head {
        deadline: secs(1090),
        ..head(1000, Kind::Rerun)
    };
    for job in [SECOND, THIRD] {
        assert_eq!(bench.action(), settles_theirs(job));
    }
    for job in [SECOND, THIRD] {
        settled_to(&mut bench, job, Some(waiting));
    }
    bench.at(1050);
    bench.looked();
    bench.nothing();
    bench.feed(Event::RunEnded { job: FIRST });
    let spec = bench.claim(1000);
    assert_eq!((spec.job, spec.kind), (SECOND, Kind::Rerun));
    bench.grant(&spec);
    assert_eq!(bench.action(), Action::QueryLedger { job: SECOND });
    bench.at(1089);
    bench.looked();
    bench.nothing();
    bench.at(1092);
    bench.looked();
    let verdict = bench.claim(1000);
    assert_eq!((verdict.job, verdict.kind), (THIRD, Kind::Rerun));
}

/// The store has not settled the run of a job: its rerun waits, or nothing does.
#[track_caller]
fn settled_to(bench: &mut Bench, job: JobIx, head: Option<Head>) {
    bench.feed(Event::NotSettled { job });
    assert_eq!(bench.action(), Action::Register { job });
    bench.feed(Event::Registered {
        job,
        reply: Registered {
            pauses: Vec::new(),
            decided_until: secs(1030),
            decided_beyond: Vec::new(),
            now: secs(1031),
            open: None,
            head,
            recovering: Duration::ZERO,
            moved: false,
        },
    });
}

/// The holder renewed its lease, and died then. The ledger knows until when the rerun may start; a claim
/// for the record would be granted, and returned.
#[test]
fn a_full_host_does_not_claim_a_rerun_whose_window_may_have_become_longer() {
    let rerun = policy().with(|it| {
        it.on_crash = OnCrash::Rerun { max_reruns: 1 };
        it.start_deadline = Duration::from_secs(8);
        it.catch_up_window = Duration::from_secs(8);
    });
    let mut bench = full_of(&[policy(), rerun, policy()]);
    bench.due_of(SECOND, 1010);
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: Some(OpenRun {
            remaining: Duration::from_secs(2),
            ..theirs()
        }),
        head: None,
        behind: None,
    });
    bench.nothing();
    bench.at(1013);
    assert_eq!(bench.action(), settles_theirs(SECOND));
    bench.feed(Event::NotSettled { job: SECOND });
    assert_eq!(bench.action(), Action::QueryLedger { job: SECOND });
    bench.nothing();
    let found = |open, head| Event::LedgerQueried {
        job: SECOND,
        open,
        head,
        behind: None,
    };
    let renewed = OpenRun {
        remaining: Duration::from_secs(2),
        ..theirs()
    };
    bench.feed(found(Some(renewed), None));
    bench.at(1014);
    bench.nothing();
    bench.at(1016);
    assert_eq!(bench.action(), settles_theirs(SECOND));
    bench.feed(Event::NotSettled { job: SECOND });
    assert_eq!(bench.action(), Action::QueryLedger { job: SECOND });
    let head = Head {
        deadline: secs(1023),
        ..head(1000, Kind::Rerun)
    };
    bench.feed(found(None, Some(head)));
    bench.feed(Event::RunEnded { job: FIRST });
    let spec = bench.claim(1000);
    assert_eq!((spec.job, spec.kind), (SECOND, Kind::Rerun));
}

/// `retry` has used up the attempts of the run, so its rerun never comes.
#[test]
fn the_record_of_a_dead_run_that_has_no_attempt_left_needs_no_place() {
    let rerun = policy().with(|it| {
        it.on_crash = OnCrash::Rerun { max_reruns: 1 };
        it.max_attempts = 2;
    });
    let mut bench = full_of(&[policy(), rerun, policy()]);
    bench.due_of(SECOND, 1010);
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: Some(theirs()),
        head: None,
        behind: None,
    });
    bench.at(1031);
    assert_eq!(bench.action(), settles_theirs(SECOND));
    bench.nothing();
    bench.feed(Event::RunEnded { job: FIRST });
    assert_eq!(bench.claim(1010).job, SECOND, "it has kept its turn");
}

#[test]
fn a_full_host_has_a_run_settled_once_a_second_while_the_store_refuses() {
    let rerun = policy().with(|it| it.on_crash = OnCrash::Rerun { max_reruns: 1 });
    let mut bench = full_of(&[policy(), rerun, policy()]);
    let dead = OpenRun {
        remaining: Duration::ZERO,
        ..theirs()
    };
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: Some(dead),
        head: None,
        behind: None,
    });
    bench.at(1011);
    bench.nothing();
    // What a registration says again does not put it off.
    let again = Event::Registered {
        job: SECOND,
        reply: Registered {
            pauses: Vec::new(),
            decided_until: secs(1010),
            decided_beyond: Vec::new(),
            now: secs(1011),
            open: Some(OpenRun {
                remaining: Duration::ZERO,
                ..theirs()
            }),
            head: None,
            recovering: Duration::ZERO,
            moved: false,
        },
    };
    bench.feed(again);
    assert_eq!(
        bench.next_timer().map(BootInstant::to_duration),
        Some(Duration::from_millis(1_011_025))
    );
    bench.at(1012);
    assert_eq!(bench.action(), settles_theirs(SECOND));
}
