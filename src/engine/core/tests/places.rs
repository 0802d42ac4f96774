//! `max_running`.

use std::sync::Arc;
use std::time::Duration;

use super::super::Policy;
use super::super::event::{Action, Event, JobIx, OccurrenceNotice};
use super::bench::{
    Bench, Every, FENCE, decided, grant, granted, head, policy, running, secs, waits_for,
};
use crate::config::{CatchUp, OnCrash, OnOverlap, OnStoreDown};
use crate::names::RunId;
use crate::store::{ClaimReply, Head, Kind, OpenRun, Registered};
use crate::time::BootInstant;

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
    let short = || Policy {
        start_deadline: Duration::from_secs(15),
        catch_up_window: Duration::from_secs(5),
        ..policy()
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
fn a_full_host_asks_for_the_record_of_a_dead_run_that_is_not_run_again() {
    let rerun = Policy {
        on_crash: OnCrash::Rerun { max_reruns: 1 },
        ..policy()
    };
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
    let rerun = Policy {
        on_crash: OnCrash::Rerun { max_reruns: 1 },
        start_deadline: Duration::from_secs(3),
        catch_up_window: Duration::from_secs(60),
        ..policy()
    };
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

fn settles_theirs(job: JobIx) -> Action {
    Action::Settle {
        job,
        run_id: RunId::from_text("theirs"),
    }
}

/// The holder renewed its lease, and died then. The ledger knows until when the rerun may start; a claim
/// for the record would be granted, and returned.
#[test]
fn a_full_host_does_not_claim_a_rerun_whose_window_may_have_become_longer() {
    let rerun = Policy {
        on_crash: OnCrash::Rerun { max_reruns: 1 },
        start_deadline: Duration::from_secs(8),
        catch_up_window: Duration::from_secs(8),
        ..policy()
    };
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
    let rerun = Policy {
        on_crash: OnCrash::Rerun { max_reruns: 1 },
        max_attempts: 2,
        ..policy()
    };
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
    let rerun = Policy {
        on_crash: OnCrash::Rerun { max_reruns: 1 },
        ..policy()
    };
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
    let queue = Policy {
        on_overlap: OnOverlap::Queue { limit: 2 },
        ..policy()
    };
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
        start_deadline: Duration::from_secs(30),
        catch_up: CatchUp::None,
        ..policy()
    };
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
    let rerun = Policy {
        on_crash: OnCrash::Rerun { max_reruns: 1 },
        ..policy()
    };
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
    let short = Policy {
        start_deadline: Duration::from_secs(15),
        catch_up_window: Duration::from_secs(5),
        ..policy()
    };
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
    let all = Policy {
        on_store_down: OnStoreDown::Skip,
        catch_up: CatchUp::All,
        ..policy()
    };
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
    let rerun = Policy {
        on_crash: OnCrash::Rerun { max_reruns: 1 },
        ..policy()
    };
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
    let rerun = Policy {
        on_crash: OnCrash::Rerun { max_reruns: 1 },
        ..policy()
    };
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
        until: BootInstant::from_duration(Duration::from_secs(until)),
    });
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
