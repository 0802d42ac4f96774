//! What waits in the ledger: for the lock, for a host, or to be run again.

use std::time::Duration;

use cronlatch::names::JobName;
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Finish, FinishReply, GapAnswer, Kind, Late,
    Outcome, Overlap, Range, RunStatus,
};
use cronlatch::time::Timestamp;

use super::{BACK, LONG, Scene, Subject, begin, token};

const DECIDED: ClaimReply = ClaimReply::AlreadyClaimed(RunStatus::Decided);

impl Scene {
    async fn waiting(&self) -> Vec<(Timestamp, Kind)> {
        let asked = [(self.job.clone(), self.lock.clone())];
        let report = self.store.jobs(&asked).await.unwrap().remove(0);
        let heads = report.waiting.iter();
        heads.map(|head| (head.scheduled_at, head.kind)).collect()
    }

    /// Claims the `n`th occurrence, which has to wait.
    async fn enters(&self, who: &str, n: u64, overlap: Overlap) {
        let claim = self.claim_with(who, self.due(n), overlap);
        let reply = self.send(&claim).await;
        assert!(
            matches!(reply, ClaimReply::Waits { entered: true, .. }),
            "{reply:?}"
        );
    }

    /// Takes the lock for no job.
    async fn hold(&self, who: &str) {
        Self::granted(&self.send(&self.bare(who)).await);
    }

    async fn release(&self, who: &str) {
        let finish = Finish {
            job: None,
            ..self.ending(who)
        };
        assert_eq!(self.finish(&finish).await, FinishReply::Released);
    }

    async fn reasons(&self) -> Vec<(Outcome, Option<Timestamp>, String)> {
        let records = self.history().await.into_iter();
        records
            .map(|r| (r.outcome, r.scheduled_at, r.reason.unwrap_or_default()))
            .collect()
    }
}

pub(crate) async fn a_queue_keeps_its_order_and_its_limit(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.hold("x").await;
    let queue = Overlap::Queue { limit: 2 };
    scene.enters("a", 1, queue).await;
    scene.enters("b", 2, queue).await;
    let third = scene.claim_with("c", scene.due(3), queue);
    assert_eq!(scene.send(&third).await, ClaimReply::QueueFull);
    let at = |n| (scene.at(n), Kind::Queue);
    assert_eq!(scene.waiting().await, [at(1), at(2)]);
    assert_eq!(scene.last().await, Some(scene.at(3)));
    scene.release("x").await;
    let registration = cronlatch::store::Registration {
        job: scene.job.clone(),
        lock: scene.lock.clone(),
        fingerprint: scene.due(1).fingerprint,
        ttl: LONG,
    };
    let registered = scene.store.register(&[registration]).await.unwrap();
    let head = registered[0].head.expect("one waits");
    assert_eq!((head.scheduled_at, head.kind), at(1));
    assert_eq!(head.deadline, scene.due(1).deadline);
    // The lock is free, and the second waits for the first all the same.
    let reply = scene.send(&scene.claim("d", 2)).await;
    let waits = ClaimReply::Waits {
        head,
        entered: true,
        by: None,
        remaining: Some(Duration::ZERO),
    };
    assert_eq!(reply, waits);
    for (who, n) in [("e", 1), ("f", 2)] {
        Scene::granted(&scene.send(&scene.claim(who, n)).await);
        scene.finish(&scene.success(who, n)).await;
    }
    let expected = [Outcome::Skipped, Outcome::Succeeded, Outcome::Succeeded];
    assert_eq!(scene.outcomes().await, expected);
    assert_eq!(scene.waiting().await, []);
}

pub(crate) async fn a_newer_occurrence_supersedes_what_waits(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.hold("x").await;
    scene.enters("a", 1, Overlap::Wait).await;
    scene.enters("b", 2, Overlap::Wait).await;
    assert_eq!(scene.waiting().await, [(scene.at(2), Kind::Queue)]);
    let told = scene.reasons().await;
    assert_eq!(
        (told[0].0, told[0].1),
        (Outcome::Skipped, Some(scene.at(1)))
    );
    assert!(told[0].2.starts_with("superseded"), "{}", told[0].2);
    scene.release("x").await;
    let next = scene.claim_with("c", scene.due(3), Overlap::Wait);
    let reply = scene.send(&next).await;
    assert!(
        matches!(
            reply,
            ClaimReply::Waits {
                entered: false,
                by: None,
                ..
            }
        ),
        "{reply:?}"
    );
    assert_eq!(scene.last().await, Some(scene.at(2)));
    let first = scene.claim_with("d", scene.due(2), Overlap::Wait);
    Scene::granted(&scene.send(&first).await);
}

pub(crate) async fn what_waits_past_its_deadline_is_missed(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.hold("x").await;
    let now = scene.store.now().await.unwrap();
    let due = Due {
        deadline: now.plus(Duration::from_millis(1500)),
        ..scene.due(1)
    };
    let claim = scene.claim_with("a", due.clone(), Overlap::Queue { limit: 9 });
    let reply = scene.send(&claim).await;
    assert!(
        matches!(reply, ClaimReply::Waits { entered: true, .. }),
        "{reply:?}"
    );
    super::eventually("its deadline passes", async || {
        (scene.store.now().await.unwrap() > due.deadline).then_some(())
    })
    .await;
    let again = scene.claim_due("b", due.clone());
    assert_eq!(scene.send(&again).await, ClaimReply::TooLate);
    let third = scene.claim_due("c", due);
    assert_eq!(scene.send(&third).await, DECIDED);
    let told = scene.reasons().await;
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].0, told[0].1), (Outcome::Missed, Some(scene.at(1))));
}

pub(crate) async fn a_late_occurrence_is_caught_up_or_missed_as_the_store_judges(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    let late = |n: u64, late| Due {
        deadline: scene.at(n),
        late,
        ..scene.due(n)
    };
    let window = scene.start.plus(BACK * 2);
    let catch_up = |until, newer| Late::CatchUp { until, newer };
    let left = scene.claim_due("a", late(1, Late::Leave));
    assert_eq!(scene.send(&left).await, ClaimReply::Stale);
    assert_eq!(scene.last().await, Some(scene.start));
    let over = scene.claim_due("b", late(1, catch_up(scene.at(2), None)));
    assert_eq!(scene.send(&over).await, ClaimReply::TooLate);
    let outdated = scene.claim_due("c", late(2, catch_up(window, Some(scene.at(3)))));
    assert_eq!(scene.send(&outdated).await, ClaimReply::TooLate);
    let told = scene.reasons().await;
    assert!(told[0].2.contains("catch_up_window"), "{}", told[0].2);
    assert!(told[1].2.contains("newer"), "{}", told[1].2);
    // It waits, whatever the job does on an overlap, and gives way to what is on time.
    scene.hold("x").await;
    let waits = scene.claim_due("d", late(3, catch_up(window, Some(window))));
    let reply = scene.send(&waits).await;
    assert!(
        matches!(reply, ClaimReply::Waits { entered: true, .. }),
        "{reply:?}"
    );
    assert_eq!(scene.waiting().await, [(scene.at(3), Kind::CatchUp)]);
    scene.release("x").await;
    Scene::granted(&scene.send(&scene.claim("e", 4)).await);
    assert_eq!(scene.outcomes().await, [Outcome::Missed; 3]);
    scene.finish(&scene.success("e", 4)).await;
    let all = scene.claim_due("f", late(5, catch_up(window, None)));
    Scene::granted(&scene.send(&all).await);
}

pub(crate) async fn a_late_result_cancels_the_rerun_and_replaces_the_interrupted_record(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    let due = |n| Due {
        max_reruns: 1,
        ..scene.due(n)
    };
    scene.send(&scene.claim_due("a", due(1))).await;
    subject.expire(&scene.lock).await;
    assert!(!scene.settle("a").await, "it is to be run again");
    assert_eq!(scene.waiting().await, [(scene.at(1), Kind::Rerun)]);
    assert_eq!(scene.outcomes().await, []);
    assert_eq!(
        scene.finish(&scene.success("a", 1)).await,
        FinishReply::Lost
    );
    assert_eq!(scene.waiting().await, []);
    assert_eq!(scene.send(&scene.claim_due("b", due(1))).await, DECIDED);
    // The rerun has begun already: only the record is replaced.
    scene.send(&scene.claim_due("c", due(2))).await;
    subject.expire(&scene.lock).await;
    let again = scene.send(&scene.claim_due("d", due(2))).await;
    assert_eq!(Scene::granted(&again).1, 2);
    let expected = [Outcome::Succeeded, Outcome::Interrupted];
    assert_eq!(scene.outcomes().await, expected);
    scene.finish(&scene.success("c", 2)).await;
    assert_eq!(scene.outcomes().await, [Outcome::Succeeded; 2]);
    let running = scene.send(&scene.claim_due("e", due(2))).await;
    assert!(
        matches!(&running, ClaimReply::AlreadyClaimed(RunStatus::Running { by, .. }) if by == "host-d"),
        "{running:?}"
    );
}

pub(crate) async fn a_rerun_continues_the_count_of_attempts(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let due = Due {
        max_reruns: 9,
        max_attempts: 4,
        ..scene.due(1)
    };
    assert!(!scene.note_attempt("a", 2).await, "there is no run");
    scene.send(&scene.claim_due("a", due.clone())).await;
    assert!(scene.note_attempt("a", 3).await);
    assert!(scene.note_attempt("a", 2).await, "a copy that comes late");
    assert!(!scene.note_attempt("b", 9).await, "the run is another's");
    subject.expire(&scene.lock).await;
    let rerun = scene.send(&scene.claim_due("b", due.clone())).await;
    assert_eq!(Scene::granted(&rerun).1, 4);
    assert_eq!(scene.history().await[0].attempts, 3);
    subject.expire(&scene.lock).await;
    // Four are all that are allowed.
    let spent = scene.send(&scene.claim_due("c", due)).await;
    assert!(
        matches!(
            spent,
            ClaimReply::AlreadyClaimed(RunStatus::Running { attempt: 4, remaining, .. })
                if remaining.is_zero()
        ),
        "{spent:?}"
    );
}

fn drops(scene: &Scene, who: &str, if_last: Timestamp, range: Range) -> Claim {
    Claim {
        what: ClaimTarget::Drops {
            job: scene.job.clone(),
            fingerprint: scene.due(1).fingerprint,
            answer: GapAnswer {
                if_last,
                drop: vec![DroppedRange {
                    range,
                    outcome: Outcome::Skipped,
                    reason: "the store was away".to_owned(),
                }],
            },
            keep: cronlatch::store::Retention::of_records(100),
        },
        ..scene.bare(who)
    }
}

pub(crate) async fn drops_are_recorded_unless_the_ledger_moved(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    // It does not matter who holds the lock.
    scene.hold("x").await;
    let range = Range {
        from: scene.at(1),
        until: scene.at(4),
        count: 4,
    };
    let (last, horizon) = (scene.start, None);
    let stale = drops(&scene, "a", scene.at(1), range);
    assert_eq!(
        scene.send(&stale).await,
        ClaimReply::Gap {
            last,
            horizon,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
        }
    );
    assert_eq!(scene.outcomes().await, []);
    let right = drops(&scene, "b", scene.start, range);
    assert_eq!(scene.send(&right).await, ClaimReply::Dropped);
    let last = scene.at(4);
    assert_eq!(
        scene.send(&right).await,
        ClaimReply::Gap {
            last,
            horizon,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
        }
    );
    assert_eq!(scene.last().await, Some(last));
    let records = scene.history().await;
    assert_eq!(records.len(), 1);
    let told = (records[0].scheduled_at, records[0].until, records[0].count);
    assert_eq!(told, (Some(scene.at(1)), Some(last), Some(4)));
    let ahead = Range {
        from: scene.at(5),
        until: scene.start.plus(BACK * 2),
        count: 2,
    };
    let early = scene.send(&drops(&scene, "c", last, ahead)).await;
    assert!(matches!(early, ClaimReply::Early { .. }), "{early:?}");
    assert_eq!(scene.last().await, Some(last));
    scene.release("x").await;
}

pub(crate) async fn the_ledger_never_passes_the_clock_of_the_store(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let future = scene.start.plus(BACK * 2);
    let finish = Finish {
        record: Some(scene.record(Some(future), Outcome::Succeeded)),
        ..scene.ending("a")
    };
    scene.finish(&finish).await;
    assert_eq!(scene.last().await, Some(scene.start));
    assert_eq!(scene.outcomes().await, [Outcome::Succeeded]);
    Scene::granted(&scene.send(&scene.claim("b", 1)).await);
}

/// A ledger that begins in the store's future stands for one that was written under another clock.
pub(crate) async fn a_ledger_far_ahead_of_the_clock_is_set_back(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let now = scene.store.now().await.unwrap();
    let ahead = async |job: &str, by: Duration| {
        let job = JobName::parse(job).unwrap();
        begin(&*scene.store, &job, &scene.lock, now.plus(by)).await;
        Scene {
            store: subject.store(),
            lock: scene.lock.clone(),
            job,
            start: scene.start,
        }
    };
    let near = ahead("near", BACK * 2).await;
    let reply = near.send(&near.claim("a", 1)).await;
    assert!(
        matches!(reply, ClaimReply::Ahead { by } if by > BACK && by <= BACK * 2),
        "{reply:?}"
    );
    assert_eq!(near.last().await, Some(now.plus(BACK * 2)));
    let far = ahead("far", BACK * 4).await;
    Scene::granted(&far.send(&far.claim("b", 1)).await);
    assert_eq!(far.last().await, Some(far.at(1)));
    let records = far.history().await;
    assert_eq!(records.len(), 1);
    let told = (records[0].outcome, records[0].scheduled_at);
    assert_eq!(told, (Outcome::Unknown, None));
    let finish = Finish {
        token: token("b"),
        ..far.success("b", 1)
    };
    assert_eq!(far.finish(&finish).await, FinishReply::Released);
}
