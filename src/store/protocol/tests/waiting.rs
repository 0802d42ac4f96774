//! The rules of the waiting list and of the ledger's clock, by name.

use std::time::Duration;

use super::{World, attempt, job, record, token_of};
use crate::names::{HostName, RunId};
use crate::store::protocol::{
    self, Effect, Ending, LEAD, LEDGER_AHEAD, LockState, Open, Past, REASON_INTERRUPTED,
    REASON_NOT_NEWEST, REASON_NOT_RERUN, REASON_QUEUE_FULL, REASON_SUPERSEDED, REASON_TOO_LATE,
    REASON_WINDOW_OVER, Waiting,
};
use crate::store::{
    Attempt, Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Fingerprint, Finish, FinishReply,
    GapAnswer, IfPaused, Kind, Late, Outcome, Overlap, Range, Record, RunStatus,
};
use crate::time::Timestamp;

const SECOND: Duration = Duration::from_secs(1);
const QUEUE: Overlap = Overlap::Queue { limit: 2 };

impl World {
    /// A world whose lock is held under the token `x`, for no job.
    fn held() -> Self {
        let mut world = Self::registered();
        world.send(&world.of_lock("x"));
        world
    }

    fn release(&mut self, token: &str) {
        let finish = Finish {
            job: None,
            ..self.ending(token)
        };
        assert_eq!(self.finish_with(&finish), FinishReply::Released);
    }

    /// Claims an occurrence of now, and moves on by a second.
    fn enters(&mut self, token: &str, overlap: Overlap) -> Due {
        let due = self.due();
        let reply = self.send(&self.with_overlap(token, due.clone(), overlap));
        assert!(
            matches!(reply, ClaimReply::Waits { entered: true, .. }),
            "{reply:?}"
        );
        self.pass(1000);
        due
    }

    /// Grants an occurrence of now to `token`, whose lease ends without a result.
    fn crashes(&mut self, token: &str, due: &Due) {
        let reply = self.send(&self.occurrence(token, due.clone()));
        assert!(matches!(reply, ClaimReply::Granted { .. }), "{reply:?}");
        self.pass(30_000);
    }

    fn list(&self) -> &[Waiting] {
        &self.job.as_ref().expect("the job is known").waiting
    }

    fn waiting_at(&self) -> Vec<Timestamp> {
        self.list().iter().map(|entry| entry.scheduled_at).collect()
    }

    fn open(&self) -> &Open {
        let open = self.job.as_ref().and_then(|job| job.open.as_ref());
        open.expect("a run is open")
    }

    fn note_attempt(&mut self, token: &str, attempt: u32) -> bool {
        let attempt = Attempt {
            lock: self.name_of_lock(),
            token: token_of(token),
            job: job(),
            attempt,
        };
        protocol::note_attempt(&mut self.job, &attempt)
    }

    fn drops(&self, token: &str, if_last: Timestamp, ranges: &[Range]) -> Claim {
        let drop = |range: &Range| DroppedRange {
            range: *range,
            outcome: Outcome::Skipped,
            reason: "the store was away".to_owned(),
        };
        Claim {
            what: ClaimTarget::Drops {
                job: job(),
                fingerprint: Fingerprint("f1".into()),
                answer: GapAnswer {
                    if_last,
                    drop: ranges.iter().map(drop).collect(),
                },
                keep: crate::store::Retention::of_records(100),
            },
            ..self.of_lock(token)
        }
    }

    /// Outcome, occurrence and reason of each record.
    fn told(&self) -> Vec<(Outcome, Option<Timestamp>, &str)> {
        let told = |r: &'_ Record| (r.outcome, r.scheduled_at);
        self.records
            .iter()
            .map(|r| {
                let (outcome, at) = told(r);
                (outcome, at, r.reason.as_deref().unwrap_or_default())
            })
            .collect()
    }
}

fn with_rerun(due: Due) -> Due {
    Due {
        max_reruns: 1,
        ..due
    }
}

fn catch_up(due: Due, until: Timestamp, newer: Option<Timestamp>) -> Due {
    Due {
        late: Late::CatchUp { until, newer },
        ..due
    }
}

#[test]
fn a_queue_keeps_its_order_and_starts_nothing_but_its_head() {
    let mut world = World::held();
    let first = world.enters("a", QUEUE);
    let second = world.enters("b", QUEUE);
    assert_eq!(
        world.waiting_at(),
        [first.scheduled_at, second.scheduled_at]
    );
    world.release("x");
    // The lock is free, and neither the second nor a new one comes before the first.
    let head = |reply| match reply {
        ClaimReply::Waits {
            head,
            entered: true,
            by: None,
            remaining: Some(Duration::ZERO),
        } => head.scheduled_at,
        other => panic!("{other:?}"),
    };
    let reply = world.send(&world.occurrence("c", second.clone()));
    assert_eq!(head(reply), first.scheduled_at);
    let new = world.due();
    let reply = world.send(&world.with_overlap("d", new.clone(), Overlap::Queue { limit: 3 }));
    assert_eq!(head(reply), first.scheduled_at);
    for (n, due) in [first, second, new].into_iter().enumerate() {
        let token = format!("r{n}");
        assert_eq!(
            attempt(&world.send(&world.occurrence(&token, due.clone()))),
            1
        );
        assert_eq!(world.open().kind, Kind::Queue);
        let finish = world.succeeded(&token, due.scheduled_at);
        world.finish_with(&finish);
    }
    assert_eq!(world.outcomes(), [Outcome::Succeeded; 3]);
    assert!(world.list().is_empty());
}

#[test]
fn a_full_queue_skips_the_newcomer_and_counts_no_reruns() {
    let mut world = World::registered();
    let crashed = with_rerun(world.due());
    world.crashes("a", &crashed);
    world.send(&world.of_lock("x"));
    world.enters("b", QUEUE);
    world.enters("c", QUEUE);
    assert_eq!(world.list().len(), 3, "the rerun takes no place");
    let due = world.due();
    let reply = world.send(&world.with_overlap("d", due.clone(), QUEUE));
    assert_eq!(reply, ClaimReply::QueueFull);
    let at = due.scheduled_at;
    assert_eq!(
        world.told(),
        [(Outcome::Skipped, Some(at), REASON_QUEUE_FULL)]
    );
    assert_eq!(world.records[0].kind, Kind::Queue);
    let again = world.send(&world.with_overlap("e", due, QUEUE));
    assert_eq!(again, ClaimReply::AlreadyClaimed(RunStatus::Decided));
    assert_eq!(world.list().len(), 3);
}

#[test]
fn a_newer_occurrence_takes_the_place_of_what_yields_and_of_nothing_else() {
    let mut world = World::registered();
    let crashed = with_rerun(world.due());
    world.crashes("a", &crashed);
    world.send(&world.of_lock("x"));
    let queued = world.enters("b", QUEUE);
    let yielding = world.enters("c", Overlap::Wait);
    let newest = world.enters("d", Overlap::Wait);
    assert_eq!(
        world.waiting_at(),
        [
            crashed.scheduled_at,
            queued.scheduled_at,
            newest.scheduled_at
        ]
    );
    assert_eq!(
        world.told(),
        [(
            Outcome::Skipped,
            Some(yielding.scheduled_at),
            REASON_SUPERSEDED
        )]
    );
}

#[test]
fn a_new_occurrence_waits_behind_a_head_that_nobody_has_started_yet() {
    let mut world = World::held();
    let waiting = world.enters("a", Overlap::Wait);
    world.release("x");
    for overlap in [Overlap::Wait, Overlap::Skip] {
        let last = world.last();
        let reply = world.send(&world.with_overlap("b", world.due(), overlap));
        let ClaimReply::Waits {
            head,
            entered: false,
            by: None,
            remaining: Some(Duration::ZERO),
        } = reply
        else {
            panic!("{reply:?}");
        };
        assert_eq!(head.scheduled_at, waiting.scheduled_at);
        assert_eq!((world.last(), world.records.len()), (last, 0));
    }
    let reply = world.send(&world.occurrence("c", waiting));
    assert_eq!(attempt(&reply), 1);
}

#[test]
fn a_rerun_stands_at_the_head_and_its_record_is_written_when_it_starts() {
    let mut world = World::registered();
    let due = with_rerun(world.due());
    world.send(&world.occurrence("a", due.clone()));
    world.pass(1000);
    let queued = world.enters("b", QUEUE);
    world.pass(30_000);
    // The first claim, for any occurrence, receives the rerun.
    let reply = world.send(&world.occurrence("c", queued.clone()));
    let ClaimReply::Waits { head, by: None, .. } = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(
        (head.scheduled_at, head.kind),
        (due.scheduled_at, Kind::Rerun)
    );
    let ended = due.scheduled_at.plus(SECOND * 30);
    assert_eq!(head.deadline, ended.plus(due.rerun_window));
    assert!(world.records.is_empty(), "a may still report");
    assert_eq!(
        world.lock.ending(&token_of("a")),
        Some(Ending::Interrupted),
        "and is not granted again"
    );
    assert_eq!(attempt(&world.send(&world.occurrence("d", due.clone()))), 2);
    let interrupted = &world.records[0];
    assert_eq!(interrupted.outcome, Outcome::Interrupted);
    assert_eq!(interrupted.run_id, Some(RunId::from_text("run-a")));
    assert_eq!(interrupted.attempts, 1);
    assert_eq!(
        interrupted.host.as_ref().map(HostName::as_str),
        Some("host-a")
    );
    assert_eq!(interrupted.reason.as_deref(), Some(REASON_INTERRUPTED));
    assert_eq!(world.open().terms.reruns, 1);
    assert_eq!(world.waiting_at(), [queued.scheduled_at]);
}

#[test]
fn what_waited_past_its_deadline_is_recorded_once() {
    let mut world = World::held();
    let queued = world.enters("a", QUEUE);
    world.pass(300_000);
    let reply = world.send(&world.occurrence("b", queued.clone()));
    assert_eq!(reply, ClaimReply::TooLate);
    let at = Some(queued.scheduled_at);
    assert_eq!(world.told(), [(Outcome::Missed, at, REASON_TOO_LATE)]);
    assert_eq!(world.records[0].kind, Kind::Queue);
    let again = world.send(&world.occurrence("c", queued));
    assert_eq!(again, ClaimReply::AlreadyClaimed(RunStatus::Decided));
    assert_eq!(world.records.len(), 1);
}

#[test]
fn a_rerun_that_nobody_started_in_time_ends_as_interrupted() {
    let mut world = World::registered();
    let due = with_rerun(world.due());
    world.crashes("a", &due);
    world.pass(300_001);
    // The claim of another occurrence finds it expired, and goes on.
    assert_eq!(attempt(&world.send(&world.occurrence("b", world.due()))), 1);
    let at = Some(due.scheduled_at);
    assert_eq!(world.told(), [(Outcome::Interrupted, at, REASON_NOT_RERUN)]);
    assert_eq!(world.records[0].run_id, Some(RunId::from_text("run-a")));
}

#[test]
fn a_rerun_that_was_given_back_and_expires_leaves_no_second_record() {
    let mut world = World::registered();
    let due = with_rerun(world.due());
    world.crashes("a", &due);
    assert_eq!(attempt(&world.send(&world.occurrence("b", due.clone()))), 2);
    world.give_back("b");
    world.pass(400_000);
    let reply = world.send(&world.occurrence("c", due));
    assert_eq!(reply, ClaimReply::TooLate);
    assert_eq!(world.outcomes(), [Outcome::Interrupted], "a's");
}

#[test]
fn what_is_given_back_keeps_its_deadline_its_kind_and_its_place() {
    let mut world = World::held();
    let first = world.enters("a", Overlap::Wait);
    world.release("x");
    let later = Due {
        deadline: first.deadline.plus(SECOND * 999),
        ..first.clone()
    };
    world.send(&world.occurrence("b", later));
    world.pass(1000);
    let second = world.enters("c", QUEUE);
    world.give_back("b");
    assert_eq!(
        world.waiting_at(),
        [first.scheduled_at, second.scheduled_at]
    );
    let again = &world.list()[0];
    assert_eq!(again.deadline, first.deadline);
    assert_eq!((again.kind, again.yields), (Kind::Queue, true));
    assert_eq!((again.attempts, again.reruns), (0, 0));
    assert_eq!(
        world.last(),
        second.scheduled_at,
        "the watermark never falls"
    );
    assert!(world.records.is_empty());
}

#[test]
fn a_late_result_cancels_the_rerun() {
    let mut world = World::registered();
    let due = with_rerun(world.due());
    world.crashes("a", &due);
    assert!(!world.settle("run-a"));
    assert_eq!(world.waiting_at(), [due.scheduled_at]);
    let finish = world.succeeded("a", due.scheduled_at);
    assert_eq!(world.finish_with(&finish), FinishReply::Lost);
    assert!(world.list().is_empty());
    assert_eq!(world.outcomes(), [Outcome::Succeeded]);
    let reply = world.send(&world.occurrence("b", due));
    assert_eq!(reply, ClaimReply::AlreadyClaimed(RunStatus::Decided));
}

#[test]
fn a_late_result_replaces_the_provisional_record_of_its_run() {
    let mut world = World::registered();
    let due = world.due();
    world.crashes("a", &due);
    assert!(world.settle("run-a"));
    assert_eq!(world.outcomes(), [Outcome::Interrupted]);
    let finish = world.succeeded("a", due.scheduled_at);
    let clock = world.clock();
    let (reply, effects) = protocol::finish(&mut world.lock, &mut world.job, clock, &finish);
    assert_eq!(reply, FinishReply::Lost);
    assert!(
        matches!(effects[..], [Effect::Append { replaces: true, .. }]),
        "{effects:?}"
    );
    world.take_effects(effects);
    assert_eq!(world.outcomes(), [Outcome::Succeeded]);
}

#[test]
fn a_result_decides_what_waits_in_its_range() {
    let mut world = World::held();
    let first = world.enters("a", QUEUE);
    let second = world.enters("b", QUEUE);
    let ranged = Finish {
        record: Some(Record {
            until: Some(first.scheduled_at.plus(Duration::from_millis(500))),
            ..record(Some(first.scheduled_at), Outcome::Skipped)
        }),
        ..world.ending("c")
    };
    world.finish_with(&ranged);
    assert_eq!(world.waiting_at(), [second.scheduled_at]);
}

#[test]
fn what_is_given_back_does_not_wait_if_a_run_without_the_store_has_decided_it() {
    // More than the ledger keeps at the same time, too.
    for ahead in [0, 5, 101] {
        let mut world = World::registered();
        let due = world.due();
        world.send(&world.occurrence("a", due.clone()));
        world.pass(200_000);
        let alone = world.succeeded("alone", due.scheduled_at);
        world.finish_with(&alone);
        // Later ones that were decided too do not displace it.
        for n in 1..=ahead {
            let at = due.scheduled_at.plus(SECOND * n);
            let finish = world.succeeded(&format!("later-{n}"), at);
            world.finish_with(&finish);
        }
        world.give_back("a");
        assert!(world.list().is_empty(), "{:?}", world.list());
        let reply = world.send(&world.occurrence("b", due));
        let decided = ClaimReply::AlreadyClaimed(RunStatus::Decided);
        assert_eq!(reply, decided);
    }
}

#[test]
fn what_is_given_back_waits_if_results_decide_other_occurrences() {
    let mut world = World::registered();
    let due = world.due();
    world.send(&world.occurrence("a", due.clone()));
    world.pass(10_000);
    for at in [
        due.scheduled_at.minus(SECOND),
        due.scheduled_at.plus(SECOND),
    ] {
        let finish = world.succeeded(&at.to_string(), at);
        world.finish_with(&finish);
    }
    world.give_back("a");
    assert_eq!(world.waiting_at(), [due.scheduled_at]);
}

#[test]
fn a_rerun_that_is_given_back_waits_whatever_a_run_without_the_store_decides() {
    let mut world = World::registered();
    let due = with_rerun(world.due());
    world.crashes("a", &due);
    assert_eq!(attempt(&world.send(&world.occurrence("b", due.clone()))), 2);
    let alone = world.succeeded("alone", due.scheduled_at);
    world.finish_with(&alone);
    world.give_back("b");
    assert_eq!(world.waiting_at(), [due.scheduled_at]);
}

#[test]
fn a_late_occurrence_is_caught_up_within_its_window() {
    let mut world = World::registered();
    let due = world.due();
    let until = due.deadline.plus(SECOND * 60);
    let due = catch_up(due, until, None);
    world.pass(300_001);
    assert_eq!(attempt(&world.send(&world.occurrence("a", due.clone()))), 1);
    assert_eq!(world.open().kind, Kind::CatchUp);
    assert_eq!(world.open().terms.deadline, until);
    world.give_back("a");
    world.pass(60_000);
    let reply = world.send(&world.occurrence("b", due.clone()));
    assert_eq!(reply, ClaimReply::TooLate);
    let at = Some(due.scheduled_at);
    assert_eq!(world.told(), [(Outcome::Missed, at, REASON_TOO_LATE)]);
}

#[test]
fn past_its_catch_up_window_an_occurrence_is_missed() {
    let mut world = World::registered();
    let due = world.due();
    let due = catch_up(due.clone(), due.deadline.plus(SECOND), None);
    world.pass(301_001);
    let reply = world.send(&world.occurrence("a", due.clone()));
    assert_eq!(reply, ClaimReply::TooLate);
    let at = Some(due.scheduled_at);
    assert_eq!(world.told(), [(Outcome::Missed, at, REASON_WINDOW_OVER)]);
    assert_eq!(world.records[0].kind, Kind::CatchUp);
}

#[test]
fn with_catch_up_latest_an_occurrence_is_missed_once_a_newer_one_is_due() {
    let mut world = World::registered();
    let due = world.due();
    let newer = due.scheduled_at.plus(SECOND * 400);
    let due = catch_up(due, newer, Some(newer));
    world.pass(400_000);
    let reply = world.send(&world.occurrence("a", due.clone()));
    assert_eq!(reply, ClaimReply::TooLate);
    let at = Some(due.scheduled_at);
    assert_eq!(world.told(), [(Outcome::Missed, at, REASON_NOT_NEWEST)]);
}

#[test]
fn what_waits_to_be_caught_up_gives_way_to_a_newer_occurrence_that_can_start() {
    let mut world = World::held();
    let due = world.due();
    let newer = due.scheduled_at.plus(SECOND * 3600);
    let late = catch_up(due, newer.plus(SECOND * 60), Some(newer));
    world.pass(300_001);
    let claim = world.occurrence("a", late.clone());
    // Held: it waits, although the job's own policy is to skip.
    world.send(&world.of_lock("y"));
    assert!(matches!(
        world.send(&claim),
        ClaimReply::Waits { entered: true, .. }
    ));
    world.release("y");
    assert_eq!(attempt(&world.send(&world.occurrence("b", world.due()))), 1);
    let at = Some(late.scheduled_at);
    assert_eq!(world.told(), [(Outcome::Missed, at, REASON_NOT_NEWEST)]);
}

#[test]
fn with_catch_up_all_each_occurrence_waits_however_many_there_are() {
    let mut world = World::held();
    let lates: Vec<Due> = (0..5)
        .map(|_| {
            world.pass(1000);
            let due = world.due();
            catch_up(due.clone(), due.deadline.plus(SECOND * 3600), None)
        })
        .collect();
    world.pass(400_000);
    world.send(&world.of_lock("y"));
    for (n, late) in lates.iter().enumerate() {
        let reply = world.send(&world.occurrence(&format!("c{n}"), late.clone()));
        assert!(
            matches!(reply, ClaimReply::Waits { entered: true, .. }),
            "{reply:?}"
        );
    }
    let expected: Vec<_> = lates.iter().map(|late| late.scheduled_at).collect();
    assert_eq!(world.waiting_at(), expected);
    assert!(world.records.is_empty());
}

#[test]
fn what_another_plan_is_for_is_left_undecided() {
    let mut world = World::registered();
    let last = world.last();
    let due = Due {
        late: Late::Leave,
        ..world.due()
    };
    world.pass(300_001);
    let claim = world.occurrence("a", due);
    assert_eq!(world.send(&claim), ClaimReply::Stale);
    assert_eq!((world.last(), world.records.len()), (last, 0));
}

#[test]
fn drops_are_recorded_unless_the_ledger_moved() {
    let mut world = World::registered();
    let (last, from) = (world.last(), world.now());
    world.pass(5000);
    let range = Range {
        from,
        until: world.now(),
        count: 6,
    };
    let stale = world.drops("a", last.minus(SECOND), &[range]);
    let horizon = None;
    assert_eq!(
        world.send(&stale),
        ClaimReply::Gap {
            last,
            horizon,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
        }
    );
    assert_eq!((world.last(), world.records.len()), (last, 0));
    let right = world.drops("b", last, &[range]);
    assert_eq!(world.send(&right), ClaimReply::Dropped);
    assert_eq!(world.last(), range.until);
    let dropped = &world.records[0];
    assert_eq!(
        (dropped.scheduled_at, dropped.until, dropped.count),
        (Some(from), Some(range.until), Some(6))
    );
    // A copy that comes late finds the ledger moved.
    let last = range.until;
    assert_eq!(
        world.send(&right),
        ClaimReply::Gap {
            last,
            horizon,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
        }
    );
    assert_eq!(world.records.len(), 1);
}

/// A host whose schedule is wrong about what lies before the occurrence.
#[test]
fn an_occurrence_before_what_is_dropped_does_not_take_the_watermark_back() {
    let mut world = World::registered();
    let (at, until) = (world.now().minus(SECOND * 5), world.now());
    let range = Range {
        from: until,
        until,
        count: 1,
    };
    let ClaimTarget::Drops { answer, .. } = world.drops("a", world.last(), &[range]).what else {
        panic!("drops");
    };
    let due = Due {
        scheduled_at: at,
        deadline: at,
        gap: Some(answer),
        ..world.due()
    };
    assert_eq!(world.send(&world.occurrence("a", due)), ClaimReply::TooLate);
    assert_eq!(world.last(), until);
}

#[test]
fn drops_take_no_lock_and_wait_until_their_occurrences_are_due() {
    let mut world = World::held();
    let last = world.last();
    let lock = world.lock.clone();
    let until = world.now().plus(LEAD + SECOND);
    let range = Range {
        from: world.now(),
        until,
        count: 3,
    };
    let claim = world.drops("a", last, &[range]);
    let by = LEAD + SECOND;
    assert_eq!(world.send(&claim), ClaimReply::Early { by });
    assert_eq!((world.last(), world.records.len()), (last, 0));
    world.pass(1000);
    assert_eq!(world.send(&claim), ClaimReply::Dropped);
    assert_eq!(world.lock, lock);
}

#[test]
fn a_result_from_a_host_with_a_fast_clock_does_not_move_the_ledger_past_the_stores() {
    let mut world = World::registered();
    let last = world.last();
    let within = world.now().plus(LEAD);
    let beyond = within.plus(Duration::from_millis(1));
    let finish = world.succeeded("a", beyond);
    world.finish_with(&finish);
    assert_eq!((world.last(), world.records.len()), (last, 1));
    let finish = world.succeeded("b", within);
    world.finish_with(&finish);
    assert_eq!(world.register("f1").decided_beyond, [within]);
}

/// A late result covers the occurrence of the open run, again and again.
#[test]
fn what_the_watermark_has_passed_does_not_stay_among_the_decided_instants() {
    let mut world = World::registered();
    for round in 0..3 {
        world.pass(60_000);
        let (due, who) = (world.due(), format!("run{round}"));
        assert_eq!(
            attempt(&world.send(&world.occurrence(&who, due.clone()))),
            1
        );
        let late = world.succeeded(&format!("late{round}"), due.scheduled_at);
        world.finish_with(&late);
        let kept = world.job.as_ref().map(|job| job.decided_beyond.clone());
        assert_eq!(kept, Some(vec![due.scheduled_at]));
        let finish = world.ending(&who);
        world.finish_with(&finish);
    }
}

#[test]
fn a_ledger_ahead_of_the_clock_waits_for_it() {
    let mut world = World::registered();
    let due = world.due();
    world.send(&world.occurrence("a", due.clone()));
    let finish = world.succeeded("a", due.scheduled_at);
    world.finish_with(&finish);
    world.pass(-5000);
    let now = world.due();
    let by = SECOND * 5;
    let reply = world.send(&world.occurrence("b", now.clone()));
    assert_eq!(reply, ClaimReply::Ahead { by });
    assert_eq!(world.outcomes(), [Outcome::Succeeded]);
    // Up to a second is what hosts differ by.
    world.pass(4000);
    let reply = world.send(&world.occurrence("c", now));
    assert_eq!(reply, ClaimReply::AlreadyClaimed(RunStatus::Decided));
}

#[test]
fn a_ledger_far_ahead_of_the_clock_is_set_back_with_one_record() {
    let mut world = World::registered();
    let due = world.due();
    world.send(&world.occurrence("a", due.clone()));
    let finish = world.succeeded("a", due.scheduled_at);
    world.finish_with(&finish);
    world.records.clear();
    let far = i64::try_from(LEDGER_AHEAD.as_millis()).expect("small");
    world.pass(-far);
    let reply = world.send(&world.occurrence("b", world.due()));
    assert_eq!(reply, ClaimReply::Ahead { by: LEDGER_AHEAD });
    world.pass(-1);
    let now = world.due();
    assert_eq!(attempt(&world.send(&world.occurrence("c", now.clone()))), 1);
    assert_eq!(world.last(), now.scheduled_at);
    assert_eq!(world.outcomes(), [Outcome::Unknown]);
    assert_eq!(world.records[0].scheduled_at, None);
    let said = world.records[0].reason.clone().unwrap_or_default();
    assert!(
        said.contains("ahead of the store's clock by 10800 s"),
        "{said}"
    );
}

#[test]
fn a_ledger_that_is_set_back_keeps_nothing_waiting_from_the_future() {
    let mut world = World::registered();
    let crashed = with_rerun(world.due());
    world.crashes("a", &crashed);
    world.send(&world.of_lock("x"));
    let queued = world.enters("b", QUEUE);
    world.release("x");
    world.pass(-5 * 3_600_000);
    // The run of `a` and the one that waits are of instants that have not come yet.
    assert_eq!(attempt(&world.send(&world.occurrence("c", world.due()))), 1);
    assert!(world.list().is_empty());
    assert_eq!(world.outcomes(), [Outcome::Unknown, Outcome::Interrupted]);
    assert_eq!(world.records[1].run_id, Some(RunId::from_text("run-a")));
    let finish = world.ending("c");
    world.finish_with(&finish);
    world.pass(5 * 3_600_000);
    // Their time comes again.
    assert_eq!(attempt(&world.send(&world.occurrence("d", queued))), 1);
}

#[test]
fn a_run_from_the_future_of_a_ledger_that_was_set_back_does_not_wait_again() {
    let mut world = World::registered();
    let due = with_rerun(world.due());
    world.send(&world.occurrence("a", due));
    world.pass(-5 * 3_600_000);
    let skipped = world.due();
    let reply = world.send(&world.occurrence("b", skipped));
    assert!(matches!(reply, ClaimReply::Held { .. }), "{reply:?}");
    world.give_back("a");
    assert!(world.list().is_empty(), "it is undecided again");
    world.pass(1000);
    assert_eq!(attempt(&world.send(&world.occurrence("c", world.due()))), 1);
}

#[test]
fn a_rerun_continues_the_count_of_attempts() {
    let mut world = World::registered();
    let due = with_rerun(world.due());
    world.send(&world.occurrence("a", due.clone()));
    assert!(world.note_attempt("a", 3));
    assert!(world.note_attempt("a", 2), "a copy that comes late");
    assert!(!world.note_attempt("b", 9), "it is a's run");
    world.pass(30_000);
    assert_eq!(attempt(&world.send(&world.occurrence("b", due))), 4);
    assert_eq!(world.records[0].attempts, 3);
}

#[test]
fn a_run_whose_attempts_are_spent_is_not_run_again() {
    let mut world = World::registered();
    let due = Due {
        max_reruns: 9,
        max_attempts: 3,
        ..world.due()
    };
    world.crashes("a", &due);
    assert_eq!(attempt(&world.send(&world.occurrence("b", due.clone()))), 2);
    assert!(world.note_attempt("b", 3));
    world.pass(30_000);
    let reply = world.send(&world.occurrence("c", due));
    assert!(
        matches!(
            reply,
            ClaimReply::AlreadyClaimed(RunStatus::Running { remaining, .. })
                if remaining.is_zero()
        ),
        "{reply:?}"
    );
    assert!(world.settle("run-b"));
}

#[test]
fn settling_a_run_that_may_be_rerun_makes_it_wait() {
    let mut world = World::registered();
    let due = with_rerun(world.due());
    world.crashes("a", &due);
    assert!(!world.settle("run-a"));
    assert_eq!(world.waiting_at(), [due.scheduled_at]);
    assert!(world.records.is_empty());
    assert!(world.job.as_ref().is_some_and(|job| job.open.is_none()));
}

#[test]
fn a_manual_run_neither_loses_a_rerun_nor_what_waits() {
    let mut world = World::registered();
    let due = with_rerun(world.due());
    world.crashes("a", &due);
    let manual = Claim {
        what: ClaimTarget::Manual {
            job: job(),
            if_paused: IfPaused::Refuse,
        },
        ..world.of_lock("m")
    };
    assert_eq!(attempt(&world.send(&manual)), 1);
    assert_eq!(world.waiting_at(), [due.scheduled_at]);
    assert!(world.records.is_empty());
    world.give_back("m");
    assert_eq!(world.waiting_at(), [due.scheduled_at]);
}

#[test]
fn registration_and_report_name_what_waits() {
    let mut world = World::held();
    let first = world.enters("a", QUEUE);
    let second = world.enters("b", QUEUE);
    let registered = world.register("f1");
    let head = registered.head.expect("one waits");
    assert_eq!(head.scheduled_at, first.scheduled_at);
    let report = protocol::report(&job(), &world.lock, true, world.job.as_ref(), world.clock());
    let at: Vec<_> = report
        .waiting
        .iter()
        .map(|head| head.scheduled_at)
        .collect();
    assert_eq!(at, [first.scheduled_at, second.scheduled_at]);
}

#[test]
fn what_waits_in_data_from_before_a_loss_is_not_run_again() {
    let mut world = World::held();
    let due = world.enters("b", Overlap::Wait);
    // The store comes back with these data; since they were saved, the occurrence may have run.
    let lost_at = world.now();
    world.past = Past {
        horizon: Some(lost_at),
        since: u64::try_from(lost_at.millis()).expect("positive"),
        ..Past::default()
    };
    world.lock = LockState::default();
    world.ms += 31_000;
    let claim = world.occurrence("c", due);
    assert_eq!(world.send(&claim), ClaimReply::Unknown);
    assert_eq!(world.list(), []);
    let last = world.records.last().expect("its verdict");
    assert_eq!(last.outcome, Outcome::Unknown);
}
