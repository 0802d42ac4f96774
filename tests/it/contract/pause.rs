//! Pauses: what a paused job starts, what was due during a pause, and which request counts.

use cronlatch::names::JobName;
use cronlatch::store::relocate::{Destination, Relocated, Relocation, relocate};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, DroppedRange, GapAnswer, IfPaused, Kind, Lock, LockId, Outcome,
    Overlap, Pause, PauseOrder, PauseReply, PauseRequest, Range,
};
use cronlatch::time::Timestamp;

use super::{Scene, Subject, run_id, token};

const ALICE: &str = "alice@web1";
const BOB: &str = "bob@web2";

impl Scene {
    fn pause(&self, n: u64, until: Option<u64>) -> PauseRequest {
        PauseRequest {
            job: self.job.clone(),
            lock: self.lock.clone(),
            order: PauseOrder::Pause {
                until: until.map(|until| self.at(until)),
                reason: "a new disk".to_owned(),
            },
            by: ALICE.to_owned(),
            asked_at: self.at(n),
        }
    }

    fn resume(&self, n: u64) -> PauseRequest {
        PauseRequest {
            order: PauseOrder::Resume,
            by: BOB.to_owned(),
            ..self.pause(n, None)
        }
    }

    async fn order(&self, request: &PauseRequest) -> PauseReply {
        self.store.pause(request).await.expect("the store answers")
    }

    fn manual(&self, who: &str, if_paused: IfPaused) -> Claim {
        Claim {
            what: ClaimTarget::Manual {
                job: self.job.clone(),
                if_paused,
            },
            ..self.claim(who, 1)
        }
    }

    /// The verdicts about occurrences that did not run: instant, outcome and reason, oldest first.
    async fn unstarted(&self) -> Vec<(Timestamp, Outcome, String)> {
        let records = self.history().await.into_iter();
        let records = records.filter(|record| record.run_id.is_none());
        records
            .map(|record| {
                let at = record.scheduled_at.expect("an occurrence");
                (at, record.outcome, record.reason.expect("a reason"))
            })
            .collect()
    }
}

fn paused(reply: &ClaimReply) -> &Pause {
    match reply {
        ClaimReply::Paused(pause) => pause,
        other => panic!("not paused: {other:?}"),
    }
}

/// The verdict about what [`Scene::pause`] skips.
fn verdict() -> (Outcome, String) {
    (
        Outcome::Skipped,
        "paused by alice@web1: a new disk".to_owned(),
    )
}

pub(crate) async fn a_paused_job_starts_nothing_and_its_occurrences_are_skipped(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    Scene::granted(&scene.send(&scene.claim("a", 1)).await);
    scene.finish(&scene.success("a", 1)).await;
    assert_eq!(scene.order(&scene.pause(2, None)).await, PauseReply::Done);
    let reply = scene.send(&scene.claim("b", 2)).await;
    assert_eq!(paused(&reply).by, ALICE);
    assert!(matches!(
        scene.send(&scene.claim("c", 2)).await,
        ClaimReply::AlreadyClaimed(_)
    ));
    let other = scene.report().await;
    assert_eq!(other.last, Some(scene.at(2)));
    assert_eq!(other.pauses.len(), 1);
    assert_eq!(scene.register().await.pauses, other.pauses);
    assert_eq!(scene.order(&scene.resume(5)).await, PauseReply::Done);
    Scene::granted(&scene.send(&scene.claim("d", 5)).await);
    scene.finish(&scene.success("d", 5)).await;
    let (outcome, reason) = verdict();
    assert_eq!(
        scene.unstarted().await,
        [(scene.at(2), outcome, reason.clone())]
    );
    let pause = scene.report().await.pauses.remove(0);
    assert_eq!((pause.since, pause.until), (scene.at(2), Some(scene.at(5))));
    assert_eq!(pause.resumed_by.as_deref(), Some(BOB));
}

pub(crate) async fn what_was_due_during_a_pause_is_skipped_after_it(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.order(&scene.pause(3, None)).await;
    scene.order(&scene.resume(6)).await;
    Scene::granted(&scene.send(&scene.claim("a", 2)).await);
    scene.finish(&scene.success("a", 2)).await;
    paused(&scene.send(&scene.claim("b", 3)).await);
    paused(&scene.send(&scene.claim("c", 5)).await);
    Scene::granted(&scene.send(&scene.claim("d", 6)).await);
    scene.finish(&scene.success("d", 6)).await;
    let skipped: Vec<_> = scene.unstarted().await;
    assert!(
        skipped
            .iter()
            .all(|(_, outcome, reason)| (*outcome, reason.clone()) == verdict()),
        "{skipped:?}"
    );
}

pub(crate) async fn a_pause_ends_by_itself(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let now = scene.store.now().await.expect("the store answers");
    let ahead = now.since(scene.start).as_secs() + 600;
    scene.order(&scene.pause(2, Some(ahead))).await;
    paused(&scene.send(&scene.claim("a", 2)).await);
    // The same pause with an end that has passed.
    scene.order(&scene.pause(3, Some(5))).await;
    paused(&scene.send(&scene.claim("b", 4)).await);
    Scene::granted(&scene.send(&scene.claim("c", 5)).await);
    assert_eq!(
        scene.order(&scene.resume(7)).await,
        PauseReply::NotPaused,
        "it has ended"
    );
}

pub(crate) async fn nothing_that_is_missed_hides_a_pause(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.order(&scene.pause(3, Some(5))).await;
    let drop = |from, until, outcome, reason: &str| DroppedRange {
        range: Range {
            from: scene.at(from),
            until: scene.at(until),
            count: until - from + 1,
        },
        outcome,
        reason: reason.to_owned(),
    };
    let claim = |who, drop| {
        let mut due = scene.due(8);
        due.prev = Some(scene.at(7));
        due.gap = Some(GapAnswer {
            if_last: scene.start,
            drop,
        });
        scene.claim_due(who, due)
    };
    let all = vec![drop(1, 7, Outcome::Missed, "missed")];
    let reply = scene.send(&claim("a", all.clone())).await;
    let ClaimReply::Gap { pauses, .. } = reply else {
        panic!("taken: {reply:?}");
    };
    assert_eq!(pauses, scene.report().await.pauses);
    let what = ClaimTarget::Drops {
        job: scene.job.clone(),
        fingerprint: scene.due(1).fingerprint,
        answer: GapAnswer {
            if_last: scene.start,
            drop: all,
        },
        keep: cronlatch::store::Retention::of_records(100),
    };
    let drops = Claim {
        what,
        ..scene.claim("b", 1)
    };
    let reply = scene.send(&drops).await;
    assert!(matches!(reply, ClaimReply::Gap { .. }), "{reply:?}");
    assert_eq!(scene.last().await, Some(scene.start));
    let parts = vec![
        drop(1, 2, Outcome::Missed, "missed"),
        drop(3, 4, Outcome::Skipped, "paused"),
        drop(5, 7, Outcome::Missed, "missed"),
    ];
    Scene::granted(&scene.send(&claim("c", parts)).await);
    assert_eq!(scene.outcomes().await.len(), 3);
}

pub(crate) async fn what_waits_is_skipped_when_a_paused_job_is_claimed(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let queue = Overlap::Queue { limit: 10 };
    Scene::granted(&scene.send(&scene.claim("a", 1)).await);
    for (who, n) in [("b", 2), ("c", 3)] {
        let reply = scene
            .send(&scene.claim_with(who, scene.due(n), queue))
            .await;
        assert!(matches!(reply, ClaimReply::Waits { .. }), "{reply:?}");
    }
    scene.order(&scene.pause(4, None)).await;
    // The run that goes on keeps its lease, and has its verdict.
    assert_eq!(
        scene.renew("a").await,
        cronlatch::store::RenewReply::Renewed
    );
    scene.finish(&scene.success("a", 1)).await;
    let head = scene.claim_with("d", scene.due(2), queue);
    paused(&scene.send(&head).await);
    assert!(scene.report().await.waiting.is_empty());
    let (outcome, reason) = verdict();
    let skipped = [2, 3].map(|n| (scene.at(n), outcome, reason.clone()));
    assert_eq!(scene.unstarted().await, skipped);
    assert_eq!(scene.outcomes().await.len(), 3);
}

pub(crate) async fn a_crashed_run_is_not_repeated_while_its_job_is_paused(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let mut due = scene.due(1);
    due.max_reruns = 3;
    let first = scene.claim_due("a", due.clone());
    Scene::granted(&scene.send(&first).await);
    scene.order(&scene.pause(2, None)).await;
    // A copy of the claim that was granted before is still granted.
    Scene::granted(&scene.send(&first).await);
    subject.expire(&scene.lock).await;
    paused(&scene.send(&scene.claim_due("b", due)).await);
    let records = scene.history().await;
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(records[0].outcome, Outcome::Interrupted);
    assert_eq!(records[0].run_id, Some(run_id("a")));
    let reason = records[0].reason.as_deref().expect("a reason");
    assert!(reason.contains("paused by alice@web1"), "{reason}");
}

pub(crate) async fn a_run_by_hand_heeds_a_pause_unless_it_says_otherwise(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.order(&scene.pause(2, None)).await;
    let refused = scene.manual("a", IfPaused::Refuse);
    paused(&scene.send(&refused).await);
    assert!(scene.history().await.is_empty());
    Scene::granted(&scene.send(&scene.manual("b", IfPaused::Run)).await);
    scene.finish(&scene.ending("b")).await;
    scene.order(&scene.resume(3)).await;
    Scene::granted(&scene.send(&refused).await);
}

pub(crate) async fn of_several_requests_the_newest_counts(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    assert_eq!(
        scene.order(&scene.resume(1)).await,
        PauseReply::NotPaused,
        "nobody paused it"
    );
    let (pause, resume) = (scene.pause(2, None), scene.resume(4));
    assert_eq!(scene.order(&pause).await, PauseReply::Done);
    assert_eq!(scene.order(&pause).await, PauseReply::Done, "a copy");
    assert_eq!(scene.order(&resume).await, PauseReply::Done);
    assert_eq!(scene.order(&resume).await, PauseReply::Done, "a copy");
    assert_eq!(
        scene.order(&pause).await,
        PauseReply::Superseded,
        "a late copy"
    );
    assert_eq!(
        scene.order(&scene.pause(3, None)).await,
        PauseReply::Superseded
    );
    Scene::granted(&scene.send(&scene.claim("a", 6)).await);
    // A further request while the job is paused: the pause began with the first.
    scene.order(&scene.pause(7, None)).await;
    let again = PauseRequest {
        by: BOB.to_owned(),
        ..scene.pause(8, None)
    };
    scene.order(&again).await;
    let pauses = scene.report().await.pauses;
    let newest = pauses.last().expect("a pause");
    assert_eq!(
        (newest.since, newest.by.as_str(), newest.until),
        (scene.at(7), BOB, None)
    );
}

pub(crate) async fn a_job_that_no_host_has_is_not_paused(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let request = PauseRequest {
        job: JobName::parse("other").expect("a name"),
        ..scene.pause(1, None)
    };
    assert_eq!(scene.order(&request).await, PauseReply::Unknown);
    let request = PauseRequest {
        order: PauseOrder::Resume,
        ..request
    };
    assert_eq!(scene.order(&request).await, PauseReply::Unknown);
}

pub(crate) async fn a_pause_moves_with_the_ledger(subject: &impl Subject) {
    let old = LockId::Fleet("l".into());
    let new = LockId::Fleet("n".into());
    let host = cronlatch::names::HostName::parse("h").expect("a name");
    let scene = Scene::with_lock(subject, old.on(&host)).await;
    scene.order(&scene.pause(2, None)).await;
    let before = scene.report().await.pauses;
    let now = scene.store.now().await.expect("the store answers");
    let destination = Destination {
        job: &scene.job,
        lock: &new,
        host: &host,
        ttl: super::LONG,
        now,
        counts_from: now,
    };
    let relocation = Relocation::new(&destination, vec![scene.lock.clone()]);
    let moved = relocate(&*scene.store, relocation).await;
    assert!(matches!(moved, Ok(Relocated::Home { .. })), "{moved:?}");
    let there = PauseRequest {
        lock: new.on(&host),
        ..scene.resume(9)
    };
    assert_eq!(
        scene.order(&scene.resume(9)).await,
        PauseReply::Moved {
            to: cronlatch::store::LockRef::of(&new.on(&host))
        }
    );
    let claim = Claim {
        lock: new.on(&host),
        token: token("a"),
        ..scene.claim("a", 3)
    };
    paused(&scene.send(&claim).await);
    let asked = [(scene.job.clone(), new.on(&host))];
    let reports = scene.store.jobs(&asked).await.expect("the store answers");
    assert_eq!(reports[0].pauses, before);
    assert_eq!(scene.order(&there).await, PauseReply::Done);
    let claim = Claim {
        lock: new.on(&host),
        ..scene.claim("b", 9)
    };
    Scene::granted(&scene.send(&claim).await);
}

pub(crate) async fn a_lock_without_exclusion_is_paused_like_any_other(subject: &impl Subject) {
    let lock = Lock {
        exclusive: false,
        ..Lock::named(&cronlatch::names::LockName::parse("l").expect("a name"))
    };
    let scene = Scene::with_lock(subject, lock).await;
    scene.order(&scene.pause(1, None)).await;
    let claim = scene.claim_with("a", scene.due(1), Overlap::Skip);
    paused(&scene.send(&claim).await);
    scene.order(&scene.resume(2)).await;
    let mut due = scene.due(2);
    due.deadline = scene.at(1);
    assert!(matches!(
        scene.send(&scene.claim_due("b", due)).await,
        ClaimReply::TooLate
    ));
    let last = scene.history().await.pop().expect("a record");
    assert_eq!((last.kind, last.outcome), (Kind::Schedule, Outcome::Missed));
}
