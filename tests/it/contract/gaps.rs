//! What lies between the watermark and the occurrence that is claimed.

use std::time::Duration;

use cronlatch::names::JobName;
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Fingerprint, GapAnswer, Late, Outcome,
    Overlap, Range, RunStatus,
};

use super::{Scene, Subject, register};

fn dropped(scene: &Scene, from: u64, until: u64, reason: &str) -> DroppedRange {
    DroppedRange {
        range: Range {
            from: scene.at(from),
            until: scene.at(until),
            count: until - from + 1,
        },
        outcome: Outcome::Missed,
        reason: reason.to_owned(),
    }
}

pub(crate) async fn a_gap_is_answered_with_the_watermark_and_filled_in_one_step(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    let due = Due {
        prev: Some(scene.at(6)),
        ..scene.due(7)
    };
    let reply = scene.send(&scene.claim_due("a", due.clone())).await;
    let last = scene.start;
    assert_eq!(
        reply,
        ClaimReply::Gap {
            last,
            horizon: None,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
        }
    );
    assert_eq!(scene.last().await, Some(last));

    let filled = Due {
        gap: Some(GapAnswer {
            if_last: last,
            drop: vec![
                dropped(&scene, 1, 4, "outside the window"),
                DroppedRange {
                    outcome: Outcome::Skipped,
                    ..dropped(&scene, 5, 6, "superseded")
                },
            ],
        }),
        ..due
    };
    Scene::granted(&scene.send(&scene.claim_due("a", filled)).await);
    assert_eq!(scene.last().await, Some(scene.at(7)));
    let history = scene.history().await;
    let ranges: Vec<_> = history
        .iter()
        .map(|r| (r.outcome, r.scheduled_at, r.until, r.count))
        .collect();
    let at = |n| Some(scene.at(n));
    assert_eq!(
        ranges,
        [
            (Outcome::Missed, at(1), at(4), Some(4)),
            (Outcome::Skipped, at(5), at(6), Some(2)),
        ]
    );
    assert_eq!(history[0].reason.as_deref(), Some("outside the window"));
    let inside = scene.send(&scene.claim("b", 3)).await;
    assert_eq!(inside, ClaimReply::AlreadyClaimed(RunStatus::Decided));
}

pub(crate) async fn a_stale_gap_answer_changes_nothing(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let answered = |if_last| Due {
        prev: Some(scene.at(4)),
        gap: Some(GapAnswer {
            if_last,
            drop: vec![dropped(&scene, 1, 4, "too old")],
        }),
        ..scene.due(5)
    };
    // Two hosts see the gap; one is faster.
    Scene::granted(
        &scene
            .send(&scene.claim_due("a", answered(scene.start)))
            .await,
    );
    scene.finish(&scene.success("a", 5)).await;
    let records = scene.history().await.len();
    let late = Due {
        scheduled_at: scene.at(6),
        ..answered(scene.start)
    };
    let reply = scene.send(&scene.claim_due("b", late)).await;
    let last = scene.at(5);
    assert_eq!(
        reply,
        ClaimReply::Gap {
            last,
            horizon: None,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
        }
    );
    assert_eq!(scene.history().await.len(), records);
    assert_eq!(scene.last().await, Some(last));
    // With nothing left to drop, the answer to the gap is empty.
    let right = Due {
        gap: Some(GapAnswer {
            if_last: last,
            drop: Vec::new(),
        }),
        ..scene.due(6)
    };
    Scene::granted(&scene.send(&scene.claim_due("b", right)).await);
}

pub(crate) async fn an_unknown_job_starts_from_the_occurrence_before_the_claimed_one(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    let stranger = |job: &str, prev| {
        let claim = scene.claim("a", 5);
        Claim {
            what: ClaimTarget::Occurrence {
                job: JobName::parse(job).unwrap(),
                kind: cronlatch::store::Kind::Schedule,
                due: Due {
                    prev,
                    deadline: scene.start,
                    late: Late::Leave,
                    ..scene.due(5)
                },
                overlap: Overlap::Wait,
                keep: cronlatch::store::Retention::of_records(10),
            },
            ..claim
        }
    };
    let last = async |job: &str| {
        let asked = [(JobName::parse(job).unwrap(), scene.lock.clone())];
        scene.store.jobs(&asked).await.unwrap()[0].last
    };
    let with_prev = scene.send(&stranger("s1", Some(scene.at(4)))).await;
    assert_eq!(with_prev, ClaimReply::Stale);
    assert_eq!(last("s1").await, Some(scene.at(4)));
    scene.send(&stranger("s2", None)).await;
    let just_before = scene.at(5).minus(Duration::from_millis(1));
    assert_eq!(last("s2").await, Some(just_before));
}

pub(crate) async fn a_new_job_starts_from_now(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let job = JobName::parse("new").unwrap();
    let start = register(&*scene.store, &job, &scene.lock, "f1").await;
    let now = scene.store.now().await.unwrap();
    assert!(now.since(start) < Duration::from_secs(60));
    let again = register(&*scene.store, &job, &scene.lock, "f1").await;
    assert_eq!(again, start, "known jobs stay as they are");
    let scene = Scene {
        job,
        start,
        ..scene
    };
    assert_eq!(scene.last().await, Some(scene.start));
    let reply = scene.send(&scene.claim("a", 0)).await;
    assert_eq!(reply, ClaimReply::AlreadyClaimed(RunStatus::Decided));
}

pub(crate) async fn a_changed_schedule_has_no_gap_before_it_was_first_seen(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let seen = register(&*scene.store, &scene.job, &scene.lock, "f2").await;
    assert!(seen > scene.start);
    assert_eq!(scene.last().await, Some(scene.start), "it does not move");
    // What both schedules have as the preceding occurrence lies between the two instants.
    let old = Due {
        scheduled_at: seen.plus(Duration::from_millis(1)),
        prev: Some(seen),
        ..scene.due(5)
    };
    let last = scene.start;
    let reply = scene.send(&scene.claim_due("a", old.clone())).await;
    assert_eq!(
        reply,
        ClaimReply::Gap {
            last,
            horizon: None,
            decided_beyond: Vec::new(),
            pauses: Vec::new(),
        }
    );
    let new = Due {
        fingerprint: Fingerprint("f2".into()),
        ..old
    };
    Scene::granted(&scene.send(&scene.claim_due("b", new)).await);
}

pub(crate) async fn of_four_schedules_the_one_first_seen_first_is_forgotten(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    for schedule in ["f2", "f3", "f1", "f4"] {
        register(&*scene.store, &scene.job, &scene.lock, schedule).await;
    }
    let asked = [(scene.job.clone(), scene.lock.clone())];
    let report = scene.store.jobs(&asked).await.unwrap().remove(0);
    let names: Vec<_> = report
        .fingerprints
        .iter()
        .map(|(fingerprint, _)| &*fingerprint.0)
        .collect();
    assert_eq!(names, ["f2", "f3", "f4"]);
}
