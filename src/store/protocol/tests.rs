//! One test for each rule of the protocol.

mod ahead;
mod loss;
mod waiting;
mod world;

use std::time::Duration;

use super::{Key, OTHER_TYPE, REASON_NEWER_RUN, holder, merge};
use crate::names::{HostName, RunId};
use crate::store::{
    Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Fingerprint, Finish, FinishReply, GapAnswer,
    Head, IfPaused, Kind, Late, Outcome, Overlap, Range, Record, RenewReply, RunStatus,
};
use crate::time::Timestamp;
use world::{TTL, attempt, fence};
pub(super) use world::{World, job, record, token_of};

#[test]
fn an_occurrence_is_granted_once_even_when_the_lock_is_free_again() {
    let mut world = World::registered();
    let due = world.due();
    let at = due.scheduled_at;
    assert!(fence(&world.send(&world.occurrence("a", due.clone()))) > 0);
    world.pass(50);
    let finish = world.succeeded("a", at);
    assert_eq!(world.finish_with(&finish), FinishReply::Released);
    let reply = world.send(&world.occurrence("b", due));
    assert_eq!(reply, ClaimReply::AlreadyClaimed(RunStatus::Decided));
    assert_eq!(world.outcomes(), [Outcome::Succeeded]);
}

#[test]
fn the_loser_learns_who_runs_it_and_for_how_long_the_lease_lasts() {
    let mut world = World::registered();
    let due = world.due();
    world.send(&world.occurrence("a", due.clone()));
    world.pass(10_000);
    let reply = world.send(&world.occurrence("b", due));
    assert_eq!(
        reply,
        ClaimReply::AlreadyClaimed(RunStatus::Running {
            by: "host-a".to_owned(),
            run_id: RunId::from_text("run-a"),
            attempt: 1,
            remaining: Duration::from_secs(20),
        })
    );
}

#[test]
fn the_same_claim_again_gets_the_same_answer_and_a_new_ttl() {
    let mut world = World::registered();
    let claim = world.occurrence("a", world.due());
    let first = world.send(&claim);
    world.pass(20_000);
    let again = world.send(&claim);
    assert_eq!(fence(&first), fence(&again));
    world.pass(20_000);
    assert_eq!(world.renew("a"), RenewReply::Renewed);
    assert!(world.records.is_empty());
}

#[test]
fn a_copy_of_a_claim_that_arrives_after_its_finish_is_not_granted() {
    for exclusive in [true, false] {
        let mut world = World::registered();
        world.exclusive = exclusive;
        for claim in [world.occurrence("a", world.due()), world.of_lock("b")] {
            world.send(&claim);
            world.finish_with(&Finish {
                token: claim.token.clone(),
                ..world.ending("a")
            });
            assert_eq!(world.send(&claim), ClaimReply::Finished);
        }
    }
}

#[test]
fn a_claim_cancelled_before_it_arrives_is_not_granted() {
    let mut world = World::registered();
    let claim = world.occurrence("a", world.due());
    assert_eq!(world.give_back("a"), FinishReply::Lost);
    assert_eq!(world.send(&claim), ClaimReply::Finished);
    assert_eq!(world.released, 0);
}

#[test]
fn an_own_lease_that_ended_untaken_is_taken_again_with_its_fence() {
    let mut world = World::registered();
    let claim = world.occurrence("a", world.due());
    let first = world.send(&claim);
    world.pass(40_000);
    assert_eq!(fence(&world.send(&claim)), fence(&first));
    assert!(world.lock.key_holds(&claim.token));
}

#[test]
fn an_own_lease_that_another_had_in_between_is_taken_again_with_a_higher_fence() {
    let mut world = World::registered();
    let claim = world.occurrence("a", world.due());
    world.send(&claim);
    world.pass(40_000);
    let other = fence(&world.send(&world.of_lock("b")));
    assert!(matches!(world.send(&claim), ClaimReply::Held { .. }));
    let finish = world.ending("b");
    world.finish_with(&finish);
    assert!(fence(&world.send(&claim)) > other);
}

#[test]
fn an_occurrence_in_the_future_of_the_store_is_early_and_leaves_no_trace() {
    let mut world = World::registered();
    let due = Due {
        scheduled_at: world.now().plus(Duration::from_millis(1500)),
        not_before: world.now().plus(Duration::from_millis(1500)),
        ..world.due()
    };
    let before = world.job.clone();
    let by = Duration::from_millis(1500);
    let claim = world.occurrence("a", due);
    assert_eq!(world.send(&claim), ClaimReply::Early { by });
    assert_eq!(world.job, before);
    world.pass(1500);
    assert_eq!(attempt(&world.send(&claim)), 1);
}

#[test]
fn an_unknown_job_starts_from_the_occurrence_before_the_claimed_one() {
    let mut world = World::new();
    let prev = world.now().minus(Duration::from_secs(60));
    let due = Due {
        prev: Some(prev),
        deadline: prev,
        late: Late::Leave,
        ..world.due()
    };
    let claim = world.occurrence("a", due);
    assert_eq!(world.send(&claim), ClaimReply::Stale);
    assert_eq!(
        world.last(),
        prev,
        "the ledger is there although nothing was decided"
    );
}

#[test]
fn a_gap_is_answered_with_the_watermark_and_filled_in_one_step() {
    let mut world = World::registered();
    let start = world.last();
    let minute = |n: u64| start.plus(Duration::from_secs(60 * n));
    world.ms = minute(5).millis();
    let due = Due {
        scheduled_at: minute(5),
        prev: Some(minute(4)),
        ..world.due()
    };
    let claim = world.occurrence("a", due.clone());
    let before = world.job.clone();
    assert_eq!(
        world.send(&claim),
        ClaimReply::Gap {
            last: start,
            horizon: None,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
        }
    );
    assert_eq!(world.job, before);

    let answer = |if_last| GapAnswer {
        if_last,
        drop: vec![DroppedRange {
            range: Range {
                from: minute(1),
                until: minute(4),
                count: 4,
            },
            outcome: Outcome::Missed,
            reason: "catch_up: none".to_owned(),
        }],
    };
    let stale = Due {
        gap: Some(answer(minute(1))),
        ..due.clone()
    };
    let reply = world.send(&world.occurrence("a", stale));
    assert_eq!(
        reply,
        ClaimReply::Gap {
            last: start,
            horizon: None,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
        }
    );
    assert!(world.records.is_empty());

    let right = Due {
        gap: Some(answer(start)),
        ..due
    };
    assert_eq!(attempt(&world.send(&world.occurrence("a", right))), 1);
    assert_eq!(world.last(), minute(5));
    let dropped = &world.records[0];
    assert_eq!(
        (dropped.scheduled_at, dropped.until, dropped.count),
        (Some(minute(1)), Some(minute(4)), Some(4))
    );
    assert_eq!(dropped.host.as_ref().map(HostName::as_str), Some("host-a"));
}

#[test]
fn a_changed_schedule_has_no_gap_before_it_was_first_seen() {
    let mut world = World::registered();
    let before = world.last();
    world.pass(600_000);
    assert_eq!(world.register("f2").decided_until, world.now());
    assert_eq!(world.last(), before, "the watermark does not move for it");
    let old = Due {
        prev: Some(world.now().minus(Duration::from_secs(60))),
        ..world.due()
    };
    let new = Due {
        fingerprint: Fingerprint("f2".into()),
        ..old.clone()
    };
    let reply = world.send(&world.occurrence("a", old));
    assert_eq!(
        reply,
        ClaimReply::Gap {
            last: before,
            horizon: None,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
        }
    );
    assert_eq!(attempt(&world.send(&world.occurrence("b", new))), 1);
}

#[test]
fn of_four_schedules_the_one_first_seen_first_is_forgotten() {
    let mut world = World::registered();
    for name in ["f2", "f3", "f1", "f4"] {
        world.pass(1000);
        world.register(name);
    }
    let kept: Vec<_> = world.job.into_iter().flat_map(|j| j.fingerprints).collect();
    let names: Vec<_> = kept.iter().map(|(f, _)| &*f.0).collect();
    assert_eq!(names, ["f2", "f3", "f4"]);
}

#[test]
fn past_its_deadline_an_occurrence_is_missed_once() {
    let mut world = World::registered();
    let due = world.due();
    world.pass(300_001);
    let reply = world.send(&world.occurrence("a", due.clone()));
    assert_eq!(reply, ClaimReply::TooLate);
    assert_eq!(world.last(), due.scheduled_at);
    let reply = world.send(&world.occurrence("b", due));
    assert_eq!(reply, ClaimReply::AlreadyClaimed(RunStatus::Decided));
    assert_eq!(world.outcomes(), [Outcome::Missed]);
}

#[test]
fn with_skip_a_held_lock_decides_the_occurrence_and_leaves_the_run_alone() {
    let mut world = World::registered();
    world.send(&world.occurrence("a", world.due()));
    let open = world.job.as_ref().and_then(|job| job.open.clone());
    world.pass(1000);
    let due = world.due();
    let by = "host-a".to_owned();
    let reply = world.send(&world.occurrence("b", due.clone()));
    let remaining = Some(Duration::from_secs(29));
    assert_eq!(reply, ClaimReply::Held { by, remaining });
    assert_eq!(world.last(), due.scheduled_at);
    assert_eq!(world.job.as_ref().and_then(|job| job.open.clone()), open);
    assert_eq!(world.records[0].by.as_deref(), Some("host-a"));
    assert_eq!(world.outcomes(), [Outcome::Skipped]);
}

#[test]
fn with_wait_a_held_lock_puts_the_occurrence_into_the_waiting_list() {
    let mut world = World::registered();
    world.send(&world.of_lock("x"));
    let due = world.due();
    let claim = world.with_overlap("b", due.clone(), Overlap::Wait);
    let head = Head {
        scheduled_at: due.scheduled_at,
        kind: Kind::Queue,
        deadline: due.deadline,
    };
    let waits = ClaimReply::Waits {
        head,
        entered: true,
        by: Some("host-x".to_owned()),
        remaining: Some(TTL),
    };
    assert_eq!(world.send(&claim), waits);
    assert_eq!((world.last(), world.records.len()), (due.scheduled_at, 0));
}

#[test]
fn a_lock_gone_before_its_lease_end_is_not_granted_until_then() {
    let mut world = World::registered();
    world.send(&world.of_lock("a"));
    world.lock.key = Key::Absent;
    world.pass(29_999);
    let by = "host-a".to_owned();
    let remaining = Some(Duration::from_millis(1));
    let reply = world.send(&world.of_lock("b"));
    assert_eq!(reply, ClaimReply::Held { by, remaining });
    world.pass(1);
    assert_eq!(attempt(&world.send(&world.of_lock("b"))), 1);
}

#[test]
fn a_lock_gone_before_its_lease_end_is_set_again_by_its_holder() {
    let mut world = World::registered();
    world.send(&world.of_lock("a"));
    world.lock.key = Key::Absent;
    assert_eq!(world.renew("b"), RenewReply::Absent);
    assert_eq!(world.renew("a"), RenewReply::Renewed);
    assert!(world.lock.key_holds(&token_of("a")));
}

#[test]
fn a_lease_that_is_over_is_not_renewed_even_if_nobody_took_it() {
    let mut world = World::registered();
    world.send(&world.of_lock("a"));
    world.pass(30_000);
    assert_eq!(world.renew("a"), RenewReply::Absent);
    world.send(&world.of_lock("b"));
    assert_eq!(world.renew("a"), RenewReply::Taken);
}

#[test]
fn a_foreign_value_holds_the_lock_and_is_never_touched() {
    let mut world = World::registered();
    world.lock.key = Key::Value {
        text: "someone else".to_owned(),
        end: None,
    };
    let held = world.lock.key.clone();
    let reply = world.send(&world.of_lock("a"));
    let by = "someone else".to_owned();
    assert_eq!(
        reply,
        ClaimReply::Held {
            by,
            remaining: None
        }
    );
    assert_eq!(world.renew("a"), RenewReply::Taken);
    let finish = world.ending("a");
    assert_eq!(world.finish_with(&finish), FinishReply::Lost);
    assert_eq!(world.lock.key, held);
}

#[test]
fn a_key_of_another_type_counts_as_held() {
    let mut world = World::registered();
    world.lock.key = Key::OtherType { end: None };
    let by = OTHER_TYPE.to_owned();
    let reply = world.send(&world.of_lock("a"));
    assert_eq!(
        reply,
        ClaimReply::Held {
            by,
            remaining: None
        }
    );
}

#[test]
fn an_orphan_is_run_again_by_one_host_as_often_as_allowed() {
    let mut world = World::registered();
    let due = Due {
        max_reruns: 2,
        ..world.due()
    };
    let first = world.send(&world.occurrence("a", due.clone()));
    world.pass(30_000);
    let second = world.send(&world.occurrence("b", due.clone()));
    assert_eq!(attempt(&second), 2);
    assert!(fence(&second) > fence(&first));
    let loser = world.send(&world.occurrence("c", due.clone()));
    assert!(matches!(
        loser,
        ClaimReply::AlreadyClaimed(RunStatus::Running { attempt: 2, remaining, .. })
            if !remaining.is_zero()
    ));
    world.pass(30_000);
    assert_eq!(attempt(&world.send(&world.occurrence("c", due.clone()))), 3);
    world.pass(30_000);
    let spent = world.send(&world.occurrence("d", due));
    assert!(matches!(
        spent,
        ClaimReply::AlreadyClaimed(RunStatus::Running { attempt: 3, remaining, .. })
            if remaining.is_zero()
    ));
    assert!(world.settle("run-c"));
    assert_eq!(world.outcomes(), [Outcome::Interrupted; 3]);
}

#[test]
fn a_rerun_waits_for_a_held_lock_and_is_not_skipped() {
    let mut world = World::registered();
    let due = Due {
        max_reruns: 1,
        ..world.due()
    };
    world.send(&world.occurrence("a", due.clone()));
    world.pass(30_000);
    world.send(&world.of_lock("x"));
    let at = due.scheduled_at;
    let reply = world.send(&world.occurrence("b", due));
    let ClaimReply::Waits {
        head,
        entered: true,
        by: Some(by),
        ..
    } = reply
    else {
        panic!("{reply:?}");
    };
    assert_eq!((head.scheduled_at, head.kind), (at, Kind::Rerun));
    assert_eq!((by.as_str(), world.records.len()), ("host-x", 0));
}

#[test]
fn a_late_copy_of_an_interrupted_claim_is_not_granted_and_its_finish_replaces_its_record() {
    let mut world = World::registered();
    let due = Due {
        max_reruns: 3,
        ..world.due()
    };
    let first = world.occurrence("a", due.clone());
    world.send(&first);
    world.pass(30_000);
    world.send(&world.occurrence("b", due.clone()));
    world.pass(30_000);
    assert_eq!(world.send(&first), ClaimReply::Finished);
    let finish = world.succeeded("a", due.scheduled_at);
    assert_eq!(world.finish_with(&finish), FinishReply::Lost);
    assert_eq!(world.finish_with(&finish), FinishReply::Lost);
    assert_eq!(world.outcomes(), [Outcome::Succeeded]);
    assert!(
        world.job.and_then(|job| job.open).is_some(),
        "b's run is b's"
    );
}

#[test]
fn a_later_occurrence_that_replaces_an_orphan_records_it() {
    let mut world = World::registered();
    let at = world.now();
    world.send(&world.occurrence("a", world.due()));
    world.pass(60_000);
    world.send(&world.occurrence("b", world.due()));
    let orphan = &world.records[0];
    assert_eq!(orphan.outcome, Outcome::Interrupted);
    assert_eq!(orphan.scheduled_at, Some(at));
    assert_eq!(orphan.run_id, Some(RunId::from_text("run-a")));
    assert_eq!(orphan.host.as_ref().map(HostName::as_str), Some("host-a"));
}

#[test]
fn a_run_under_a_living_lease_is_not_settled() {
    let mut world = World::registered();
    world.send(&world.occurrence("a", world.due()));
    world.pass(29_999);
    assert!(!world.settle("run-a"));
    world.lock.key = Key::Absent;
    assert!(!world.settle("run-a"), "evicted, but its end has not come");
    world.pass(1);
    assert!(!world.settle("run-b"));
    assert!(world.settle("run-a"));
    assert!(!world.settle("run-a"));
    assert_eq!(world.outcomes(), [Outcome::Interrupted]);
}

#[test]
fn what_is_given_back_may_be_taken_by_another() {
    let mut world = World::registered();
    let due = world.due();
    world.send(&world.occurrence("a", due.clone()));
    assert_eq!(world.give_back("a"), FinishReply::Released);
    assert_eq!(world.last(), due.scheduled_at);
    assert_eq!(world.give_back("a"), FinishReply::Released);
    assert_eq!(attempt(&world.send(&world.occurrence("b", due))), 1);
    assert!(world.records.is_empty());
}

#[test]
fn what_is_given_back_after_later_ones_were_decided_waits_again() {
    let mut world = World::registered();
    let due = world.due();
    world.send(&world.occurrence("a", due.clone()));
    world.pass(1000);
    world.send(&world.occurrence("b", world.due()));
    let last = world.last();
    world.give_back("a");
    assert_eq!(world.last(), last);
    assert_eq!(attempt(&world.send(&world.occurrence("c", due))), 1);
    assert_eq!(world.outcomes(), [Outcome::Skipped]);
}

#[test]
fn a_rerun_that_is_given_back_is_still_to_be_rerun() {
    let mut world = World::registered();
    let due = Due {
        max_reruns: 1,
        ..world.due()
    };
    world.send(&world.occurrence("a", due.clone()));
    world.pass(30_000);
    assert_eq!(attempt(&world.send(&world.occurrence("b", due.clone()))), 2);
    world.give_back("b");
    assert_eq!(attempt(&world.send(&world.occurrence("c", due))), 2);
    assert_eq!(world.outcomes(), [Outcome::Interrupted], "only a ran");
}

#[test]
fn a_run_closed_without_a_verdict_gets_one() {
    let mut world = World::registered();
    world.send(&world.occurrence("a", world.due()));
    let finish = world.ending("a");
    world.finish_with(&finish);
    assert_eq!(world.outcomes(), [Outcome::Interrupted]);
}

#[test]
fn a_finish_is_written_once_and_wakes_who_waits() {
    let mut world = World::registered();
    let due = world.due();
    world.send(&world.occurrence("a", due.clone()));
    let finish = world.succeeded("a", due.scheduled_at);
    for _ in 0..3 {
        assert_eq!(world.finish_with(&finish), FinishReply::Released);
    }
    assert_eq!((world.records.len(), world.released), (1, 1));
}

#[test]
fn a_finish_without_the_lock_touches_neither_lock_nor_run_of_another() {
    let mut world = World::registered();
    let at = world.now();
    world.send(&world.occurrence("a", world.due()));
    world.pass(60_000);
    world.send(&world.occurrence("b", world.due()));
    let (lock, job) = (world.lock.key.clone(), world.job.clone());
    let finish = world.succeeded("a", at);
    assert_eq!(world.finish_with(&finish), FinishReply::Lost);
    assert_eq!((world.lock.key.clone(), world.job.clone()), (lock, job));
    assert_eq!(world.outcomes(), [Outcome::Succeeded], "not interrupted");
    assert_eq!(world.renew("b"), RenewReply::Renewed);
}

#[test]
fn a_ledger_remembers_a_hundred_runs_without_the_store_and_then_passes_the_oldest() {
    let mut world = World::registered();
    let last = world.last();
    let nth = |n: u64| last.plus(Duration::from_secs(2 * n));
    world.pass(1_000_000);
    for n in (1..=100).rev() {
        let finish = world.succeeded(&n.to_string(), nth(n));
        world.finish_with(&finish);
    }
    let known = world.register("f1");
    assert_eq!(known.decided_until, last);
    assert_eq!(known.decided_beyond, (1..=100).map(nth).collect::<Vec<_>>());
    let finish = world.succeeded("101", nth(101));
    world.finish_with(&finish);
    let known = world.register("f1");
    assert_eq!(known.decided_until, nth(1));
    assert_eq!(known.decided_beyond, (2..=101).map(nth).collect::<Vec<_>>());
}

#[test]
fn a_ledger_begun_by_a_run_without_the_store_remembers_earlier_ones_too() {
    let mut world = World::new();
    let nth = |n: u64| world.now().plus(Duration::from_secs(n));
    let [first, second, third] = [1, 2, 3].map(nth);
    world.pass(60_000);
    for (who, at) in [("b", second), ("a", first), ("c", third)] {
        let finish = world.succeeded(who, at);
        world.finish_with(&finish);
    }
    let beyond = |world: &World| world.job.as_ref().map(|job| job.decided_beyond.clone());
    assert_eq!(beyond(&world), Some(vec![first, second, third]));
    // Who registers the job here is told what lies after the watermark alone.
    assert_eq!(world.register("f1").decided_beyond, [second, third]);
}

#[test]
fn a_manual_run_never_moves_the_watermark() {
    let mut world = World::registered();
    let before = world.last();
    let claim = Claim {
        what: ClaimTarget::Manual {
            job: job(),
            if_paused: IfPaused::Refuse,
        },
        ..world.of_lock("a")
    };
    assert_eq!(attempt(&world.send(&claim)), 1);
    assert!(matches!(
        world.send(&world.of_lock("b")),
        ClaimReply::Held { .. }
    ));
    let finish = Finish {
        record: Some(record(None, Outcome::Succeeded)),
        ..world.ending("a")
    };
    assert_eq!(world.finish_with(&finish), FinishReply::Released);
    assert_eq!(world.last(), before);
    assert!(world.job.and_then(|job| job.open).is_none());
}

#[test]
fn without_exclusion_no_key_is_written_and_runs_overlap_each_with_one_verdict() {
    let mut world = World::registered();
    world.exclusive = false;
    attempt(&world.send(&world.occurrence("a", world.due())));
    assert_eq!(world.lock.key, Key::Absent);
    world.pass(20_000);
    assert_eq!(world.renew("a"), RenewReply::Renewed);
    let next = Due {
        scheduled_at: world.due().scheduled_at.plus(Duration::from_secs(1)),
        ..world.due()
    };
    world.pass(1_000);
    assert_eq!(attempt(&world.send(&world.occurrence("b", next))), 1);
    // The first run goes on; if its host dies now, this is its verdict.
    assert_eq!(world.records.len(), 1);
    assert_eq!(world.records[0].outcome, Outcome::Interrupted);
    assert_eq!(world.records[0].reason.as_deref(), Some(REASON_NEWER_RUN));
    let finish = Finish {
        record: Some(record(None, Outcome::Succeeded)),
        ..world.ending("a")
    };
    assert_eq!(world.finish_with(&finish), FinishReply::Lost);
    assert_eq!(world.renew("b"), RenewReply::Renewed);
}

#[test]
fn only_the_newest_finished_tokens_are_remembered() {
    let mut world = World::registered();
    for n in 0..=super::FINISHED_KEPT {
        let finish = world.ending(&n.to_string());
        world.finish_with(&finish);
    }
    assert_eq!(world.lock.finished.len(), super::FINISHED_KEPT);
    assert_eq!(world.send(&world.of_lock("1")), ClaimReply::Finished);
    assert_eq!(attempt(&world.send(&world.of_lock("0"))), 1);
}

#[test]
fn a_holder_is_shown_by_its_host_and_a_foreign_value_by_its_beginning() {
    assert_eq!(holder("web-1:4711:0190-ab:00ff"), "web-1");
    assert_eq!(holder("web-1:pid:x:00ff"), "web-1:pid:x:00ff");
    assert_eq!(holder(&"é".repeat(80)), "é".repeat(50));
    assert_eq!(holder(""), "");
}

#[test]
fn equal_skips_in_a_row_become_one_range() {
    let at = |s| Some(Timestamp::from_secs(s));
    let skip = |s| Record {
        by: Some("h".to_owned()),
        ..record(at(s), Outcome::Skipped)
    };
    let two = merge(&skip(1), &skip(2), at(1)).expect("alike");
    let three = merge(&two, &skip(3), at(2)).expect("alike");
    assert_eq!(
        (three.scheduled_at, three.until, three.count),
        (at(1), at(3), Some(3))
    );
    assert_eq!(merge(&three, &skip(3), at(3)), None, "decided already");
    assert_eq!(merge(&three, &skip(5), at(4)), None, "4 may be running");
    let other = Record {
        by: Some("other".to_owned()),
        ..skip(4)
    };
    assert_eq!(merge(&three, &other, at(3)), None);
    let ran = record(at(4), Outcome::Succeeded);
    assert_eq!(merge(&record(at(3), Outcome::Succeeded), &ran, at(3)), None);
}
