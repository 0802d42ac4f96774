//! The verdicts of occurrences behind one that waits for a place.

use std::sync::Arc;
use std::time::Duration;

use super::super::bench::{Bench, Every, head, policy, secs, waits_for};
use super::{FIRST, SECOND, full, full_of, settles_theirs, theirs};
use crate::config::{CatchUp, OnCrash, OnOverlap, OnStoreDown};
use crate::engine::core::Policy;
use crate::engine::core::event::{Action, Event, OccurrenceNotice};
use crate::store::{ClaimReply, Head, Kind, OpenRun, Registered};

#[test]
fn what_lies_behind_one_that_waits_for_a_place_is_dropped_after_that() {
    let mut bench = full();
    bench.due_of(SECOND, 1010);
    bench.feed(Event::StoreDown);
    for at in [1020, 1030, 1040] {
        bench.due_of(SECOND, at);
    }
    bench.feed(Event::StoreUp);
    bench.at(1050);
    bench.looked();
    bench.due_of(SECOND, 1050);
    bench.feed(Event::NotSettled { job: SECOND });
    assert_eq!(bench.action(), Action::QueryLedger { job: SECOND });
    bench.registered_of(SECOND, 1000);
    bench.feed(Event::RunEnded { job: FIRST });
    let spec = bench.claim(1010);
    bench.grant(&spec);
    assert_eq!(bench.action(), Action::Register { job: SECOND });
    bench.registered_of(SECOND, 1010);
    let Action::Drops(spec) = bench.action() else {
        panic!("nothing is dropped");
    };
    let range = spec.answer.drop[0].range;
    assert_eq!((range.from, range.until), (secs(1020), secs(1040)));
}

#[test]
fn the_verdict_of_a_head_does_not_wait_behind_what_waits_for_a_place() {
    let queue = policy().with(|it| it.on_overlap = OnOverlap::Queue { limit: 2 });
    let mut bench = full_of(&[policy(), queue, policy()]);
    bench.feed(Event::RunEnded { job: FIRST });
    bench.due_of(SECOND, 1010);
    let spec = bench.claim(1010);
    bench.answer(&spec, waits_for(1010, 20));
    bench.waits();
    bench.feed(Event::RunClosed { job: FIRST });
    bench.at(1020);
    bench.due_of(FIRST, 1020);
    let spec = bench.claim(1020);
    bench.grant(&spec);
    bench.due_of(SECOND, 1020);
    assert!(bench.said(1020, &OccurrenceNotice::Full));
    bench.at(1311);
    bench.looked();
    let spec = bench.claim(1010);
    bench.answer(&spec, ClaimReply::TooLate);
    assert_eq!(bench.action(), Action::QueryLedger { job: SECOND });
    assert!(
        bench.said(1020, &OccurrenceNotice::Full),
        "it waits for a place again"
    );
    bench.nothing();
}

#[test]
fn the_verdict_of_what_was_left_to_others_does_not_wait_behind_what_waits_for_a_place() {
    let none = Policy {
        calendar: Arc::new(Every(30)),
        ..policy()
    }
    .with(|it| {
        it.start_deadline = Duration::from_secs(30);
        it.catch_up = CatchUp::None;
    });
    let mut bench = Bench::fresh(vec![policy(), none], Some(1));
    bench.registered_of(FIRST, 1000);
    bench.registered_of(SECOND, 980);
    bench.at(1010);
    bench.due_of(FIRST, 1010);
    let spec = bench.claim(1010);
    bench.grant(&spec);
    bench.at(1020);
    bench.due_of(SECOND, 1020);
    assert!(bench.said(1020, &OccurrenceNotice::Full));
    bench.at(1021);
    bench.looked();
    assert_eq!(bench.action(), Action::Register { job: SECOND });
    bench.registered_of(SECOND, 980);
    let Action::Drops(spec) = bench.action() else {
        panic!("nothing is dropped");
    };
    let range = spec.answer.drop[0].range;
    assert_eq!((range.from, range.until), (secs(990), secs(990)));
}

#[test]
fn the_verdict_of_a_former_head_does_not_wait_behind_a_rerun_that_waits_for_a_place() {
    let rerun = policy().with(|it| it.on_crash = OnCrash::Rerun { max_reruns: 1 });
    let mut bench = full_of(&[policy(), rerun, policy()]);
    let found = |head: Head| Event::LedgerQueried {
        job: SECOND,
        open: None,
        head: Some(head),
        behind: None,
    };
    bench.feed(found(head(1005, Kind::Queue)));
    bench.at(1200);
    bench.looked();
    bench.feed(found(Head {
        deadline: secs(3000),
        ..head(1000, Kind::Rerun)
    }));
    bench.nothing();
    bench.at(1306);
    bench.looked();
    let spec = bench.claim(1005);
    bench.answer(&spec, ClaimReply::TooLate);
    assert_eq!(bench.action(), Action::QueryLedger { job: SECOND });
    bench.feed(Event::RunEnded { job: FIRST });
    bench.nothing();
    bench.feed(found(Head {
        deadline: secs(3000),
        ..head(1000, Kind::Rerun)
    }));
    let spec = bench.claim(1000);
    assert_eq!(spec.kind, Kind::Rerun);
}

/// On a full host a rerun waits for a place that may start for long, and another entry is behind it.
fn rerun_before(bench: &mut Bench, behind: Option<Head>) {
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: None,
        head: Some(Head {
            deadline: secs(3000),
            ..head(1000, Kind::Rerun)
        }),
        behind,
    });
}

#[test]
fn the_verdicts_of_all_that_waits_behind_a_rerun_do_not_wait_for_its_place() {
    let mut bench = full();
    rerun_before(&mut bench, Some(head(1005, Kind::CatchUp)));
    bench.at(1305);
    bench.looked();
    bench.nothing();
    bench.at(1306);
    let spec = bench.claim(1005);
    bench.answer(&spec, ClaimReply::TooLate);
    assert_eq!(bench.action(), Action::QueryLedger { job: SECOND });
    rerun_before(&mut bench, Some(head(1008, Kind::CatchUp)));
    bench.nothing();
    bench.at(1309);
    bench.looked();
    bench.claim(1008);
}

#[test]
fn a_full_host_that_knows_only_the_head_looks_for_what_is_behind_it() {
    let mut bench = full();
    rerun_before(&mut bench, None);
    bench.nothing();
    bench.at(1015);
    assert_eq!(bench.action(), Action::QueryLedger { job: SECOND });
    bench.nothing();
}

#[test]
fn an_own_occurrence_that_becomes_too_late_behind_a_rerun_has_its_verdict_before_that_has_a_place()
{
    let short = policy().with(|it| {
        it.start_deadline = Duration::from_secs(15);
        it.catch_up_window = Duration::from_secs(5);
    });
    let mut bench = full_of(&[policy(), short, policy()]);
    rerun_before(&mut bench, None);
    bench.due_of(SECOND, 1010);
    bench.at(1025);
    bench.looked();
    bench.nothing();
    bench.at(1030);
    bench.looked();
    registered_anew(
        &mut bench,
        Some(Head {
            deadline: secs(3000),
            ..head(1000, Kind::Rerun)
        }),
    );
    let Action::Drops(spec) = bench.action() else {
        panic!("nothing is dropped");
    };
    let range = spec.answer.drop[0].range;
    assert_eq!((range.from, range.until), (secs(1010), secs(1020)));
}

#[test]
fn what_was_skipped_during_an_outage_is_on_record_before_what_comes_after_it_has_a_place() {
    let all = policy().with(|it| {
        it.on_store_down = OnStoreDown::Skip;
        it.catch_up = CatchUp::All;
    });
    let mut bench = Bench::fresh(vec![all], Some(1));
    bench.feed(Event::StoreDown);
    bench.at(1010);
    bench.due_of(FIRST, 1010);
    bench.feed(Event::StoreUp);
    bench.at(1020);
    bench.registered_of(FIRST, 980);
    for at in [990, 1000] {
        let spec = bench.claim(at);
        bench.grant(&spec);
        bench.nothing();
        if at == 990 {
            bench.ended();
            bench.closed();
        }
    }
    // The run of 1000 has the place, and 1020 waits for it.
    bench.at(1026);
    assert_eq!(bench.action(), Action::Register { job: FIRST });
    bench.registered_of(FIRST, 1000);
    let Action::Drops(spec) = bench.action() else {
        panic!("nothing is dropped");
    };
    let range = spec.answer.drop[0].range;
    assert_eq!((range.from, range.until), (secs(1010), secs(1010)));
}

#[test]
fn what_is_missed_is_on_record_although_a_head_takes_the_place_of_what_comes_after_it() {
    let mut bench = Bench::fresh(vec![policy()], Some(1));
    bench.at(1050);
    bench.feed(Event::Registered {
        job: FIRST,
        reply: Registered {
            pauses: Vec::new(),
            decided_until: secs(1000),
            decided_beyond: Vec::new(),
            now: secs(1050),
            open: None,
            head: Some(head(1000, Kind::Queue)),
            recovering: Duration::ZERO,
            moved: false,
        },
    });
    let spec = bench.claim(1000);
    bench.grant(&spec);
    assert_eq!(bench.action(), Action::QueryLedger { job: FIRST });
    assert!(bench.said(1050, &OccurrenceNotice::Full));
    bench.at(1056);
    assert_eq!(bench.action(), Action::Register { job: FIRST });
    bench.registered_of(FIRST, 1000);
    let Action::Drops(spec) = bench.action() else {
        panic!("nothing is dropped");
    };
    let range = spec.answer.drop[0].range;
    assert_eq!((range.from, range.until), (secs(1010), secs(1040)));
}

#[test]
fn a_full_host_notices_that_another_host_runs_what_waits_for_a_place_here() {
    let mut bench = full();
    bench.due_of(SECOND, 1010);
    bench.nothing();
    bench.at(1015);
    assert_eq!(bench.action(), Action::QueryLedger { job: SECOND });
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: Some(OpenRun {
            scheduled_at: Some(secs(1010)),
            ..theirs()
        }),
        head: None,
        behind: None,
    });
    bench.at(1034);
    bench.nothing();
    bench.at(1036);
    let spec = bench.claim(1010);
    assert_eq!(spec.kind, Kind::Rerun, "for the record of the dead run");
}

/// The second job, whose ledger is decided until 1000, is registered anew.
fn registered_anew(bench: &mut Bench, head: Option<Head>) {
    let action = bench.action();
    assert_eq!(action, Action::Register { job: SECOND });
    bench.feed(Event::Registered {
        job: SECOND,
        reply: Registered {
            pauses: Vec::new(),
            decided_until: secs(1000),
            decided_beyond: Vec::new(),
            now: secs(1055),
            open: None,
            head,
            recovering: Duration::ZERO,
            moved: false,
        },
    });
}

/// What `catch_up: latest` does not run is recorded, from 1010 to 1040.
#[track_caller]
fn dropped(bench: &mut Bench) {
    let action = bench.action();
    let Action::Drops(spec) = &action else {
        panic!("nothing is dropped: {action:?}");
    };
    let range = spec.answer.drop[0].range;
    assert_eq!((range.from, range.until), (secs(1010), secs(1040)));
    bench.answer_drops(&action, ClaimReply::Dropped);
}

#[test]
fn what_a_dead_run_has_behind_it_is_dropped_while_its_rerun_waits_for_a_place() {
    let rerun = policy().with(|it| it.on_crash = OnCrash::Rerun { max_reruns: 1 });
    let mut bench = full_of(&[policy(), rerun, policy()]);
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: Some(theirs()),
        head: None,
        behind: None,
    });
    bench.at(1055);
    assert_eq!(bench.action(), settles_theirs(SECOND));
    bench.feed(Event::NotSettled { job: SECOND });
    registered_anew(&mut bench, Some(head(1000, Kind::Rerun)));
    dropped(&mut bench);
    bench.nothing();
    bench.at(1056);
    bench.feed(Event::RunEnded { job: FIRST });
    let spec = bench.claim(1000);
    assert_eq!((spec.job, spec.kind), (SECOND, Kind::Rerun));
    bench.grant(&spec);
    assert_eq!(bench.action(), Action::QueryLedger { job: SECOND });
    assert!(
        bench.said(1050, &OccurrenceNotice::Full),
        "it is claimed once"
    );
    bench.nothing();
}

#[test]
fn a_rerun_that_gets_its_place_does_not_wait_for_a_registration() {
    let rerun = policy().with(|it| it.on_crash = OnCrash::Rerun { max_reruns: 1 });
    let mut bench = full_of(&[policy(), rerun, policy()]);
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: None,
        head: Some(head(1000, Kind::Rerun)),
        behind: None,
    });
    bench.at(1055);
    bench.looked();
    bench.feed(Event::NotSettled { job: SECOND });
    assert_eq!(bench.action(), Action::Register { job: SECOND });
    bench.feed(Event::RunEnded { job: FIRST });
    let spec = bench.claim(1000);
    assert_eq!((spec.job, spec.kind), (SECOND, Kind::Rerun));
}

#[test]
fn what_lies_behind_a_head_is_dropped_while_that_waits_for_a_place() {
    let mut bench = full();
    let waiting = head(1000, Kind::Queue);
    bench.feed(Event::LedgerQueried {
        job: SECOND,
        open: None,
        head: Some(waiting),
        behind: None,
    });
    assert!(bench.said(1000, &OccurrenceNotice::Full));
    bench.at(1055);
    bench.looked();
    bench.feed(Event::NotSettled { job: SECOND });
    registered_anew(&mut bench, Some(waiting));
    dropped(&mut bench);
    bench.nothing();
    bench.feed(Event::RunEnded { job: FIRST });
    let spec = bench.claim(1000);
    assert_eq!((spec.job, spec.kind), (SECOND, Kind::Queue));
    bench.grant(&spec);
    assert_eq!(bench.action(), Action::QueryLedger { job: SECOND });
    assert!(
        bench.said(1050, &OccurrenceNotice::Full),
        "it is claimed once"
    );
    bench.nothing();
}
