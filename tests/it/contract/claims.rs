//! Who is granted what.

use std::time::Duration;

use cronlatch::names::HostName;
use cronlatch::store::protocol::LEAD;
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, Due, Finish, FinishReply, IfPaused, Kind, Outcome, Overlap,
    RenewReply, RunStatus,
};

use super::{LONG, SHORT, Scene, Subject, eventually, run_id};

/// The same claim that waits for the lock instead of skipping.
fn waiting(mut claim: Claim) -> Claim {
    if let ClaimTarget::Occurrence { overlap, .. } = &mut claim.what {
        *overlap = Overlap::Wait;
    }
    claim
}

pub(crate) async fn an_occurrence_is_granted_once_even_when_the_lock_is_free_again(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    Scene::granted(&scene.send(&scene.claim("a", 1)).await);
    let finish = scene.success("a", 1);
    assert_eq!(scene.finish(&finish).await, FinishReply::Released);
    let reply = subject.another().claim(&scene.claim("b", 1)).await.unwrap();
    assert_eq!(reply, ClaimReply::AlreadyClaimed(RunStatus::Decided));
    assert_eq!(scene.outcomes().await, [Outcome::Succeeded]);
    assert_eq!(scene.last().await, Some(scene.at(1)));
}

pub(crate) async fn the_same_claim_again_gets_the_same_answer(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    for claim in [scene.claim("a", 1), scene.bare("b")] {
        let first = Scene::granted(&scene.send(&claim).await);
        for store in [subject.store(), subject.another()] {
            assert_eq!(Scene::granted(&store.claim(&claim).await.unwrap()), first);
        }
        // Over, but taken by nobody: it is ours again.
        subject.expire(&scene.lock).await;
        assert_eq!(Scene::granted(&scene.send(&claim).await), first);
        let finish = Finish {
            token: claim.token,
            ..scene.success("a", 1)
        };
        assert_eq!(scene.finish(&finish).await, FinishReply::Released);
    }
}

pub(crate) async fn a_copy_of_a_claim_that_arrives_after_its_finish_is_not_granted(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    let manual = Claim {
        what: ClaimTarget::Manual {
            job: scene.job.clone(),
            if_paused: IfPaused::Refuse,
        },
        ..scene.bare("m")
    };
    for claim in [scene.claim("a", 1), scene.bare("b"), manual] {
        Scene::granted(&scene.send(&claim).await);
        let finish = Finish {
            token: claim.token.clone(),
            ..scene.success("a", 1)
        };
        assert_eq!(scene.finish(&finish).await, FinishReply::Released);
        assert_eq!(scene.send(&claim).await, ClaimReply::Finished);
    }
    Scene::granted(&scene.send(&scene.bare("c")).await);
}

pub(crate) async fn a_claim_cancelled_before_it_arrives_is_not_granted(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    assert_eq!(scene.give_back("a").await, FinishReply::Lost);
    assert_eq!(scene.send(&scene.claim("a", 1)).await, ClaimReply::Finished);
    Scene::granted(&scene.send(&scene.claim("b", 1)).await);
}

pub(crate) async fn the_loser_learns_who_runs_it(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.claim("a", 1)).await;
    let ClaimReply::AlreadyClaimed(RunStatus::Running {
        by,
        run_id: run,
        attempt,
        remaining,
    }) = scene.send(&scene.claim("b", 1)).await
    else {
        panic!("not told");
    };
    assert_eq!((by.as_str(), run, attempt), ("host-a", run_id("a"), 1));
    assert!(remaining > LONG / 2 && remaining <= LONG, "{remaining:?}");
}

pub(crate) async fn who_asks_first_learns_what_the_claim_would_reply(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let ask = async |claim: &Claim| {
        let known = subject.another().already_claimed(claim).await;
        known.expect("the store answers")
    };
    let learns = async |claim: &Claim| {
        let known = ask(claim).await;
        assert_eq!(known.is_some(), subject.answers_first(), "{known:?}");
        let reply = scene.send(claim).await;
        match (known, reply) {
            (None, reply) => assert!(matches!(reply, ClaimReply::AlreadyClaimed(_)), "{reply:?}"),
            (
                Some(RunStatus::Running {
                    by,
                    run_id,
                    attempt,
                    remaining,
                }),
                ClaimReply::AlreadyClaimed(RunStatus::Running {
                    by: claimed_by,
                    run_id: run,
                    attempt: nth,
                    remaining: left,
                }),
            ) => {
                assert_eq!((by, run_id, attempt), (claimed_by, run, nth));
                assert!(remaining >= left && left > LONG / 2 && remaining <= LONG);
            }
            (Some(known), reply) => assert_eq!(reply, ClaimReply::AlreadyClaimed(known)),
        }
    };
    let first = scene.claim("a", 1);
    assert_eq!(ask(&first).await, None, "nobody has claimed it");
    Scene::granted(&scene.send(&first).await);
    learns(&scene.claim("b", 1)).await;
    let next = scene.claim("c", 2);
    assert_eq!(
        ask(&next).await,
        None,
        "the lock is held, but it is undecided"
    );
    assert_eq!(ask(&scene.bare("d")).await, None);
    scene.finish(&scene.success("a", 1)).await;
    learns(&scene.claim("e", 1)).await;
    assert_eq!(ask(&next).await, None);
    Scene::granted(&scene.send(&next).await);
    // It is not the newest any more.
    assert_eq!(ask(&scene.claim("f", 1)).await, None);
    let manual = Claim {
        what: ClaimTarget::Manual {
            job: scene.job.clone(),
            if_paused: IfPaused::Refuse,
        },
        ..scene.bare("g")
    };
    assert_eq!(ask(&manual).await, None);
}

pub(crate) async fn an_early_claim_is_told_how_long_to_wait_and_leaves_no_trace(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    let due = Due {
        not_before: scene.start.plus(super::BACK * 2),
        ..scene.due(1)
    };
    let reply = scene.send(&scene.claim_due("a", due)).await;
    let ClaimReply::Early { by } = reply else {
        panic!("not early: {reply:?}");
    };
    assert!(by > Duration::from_secs(60 * 50) && by <= Duration::from_secs(3600));
    assert_eq!(scene.last().await, Some(scene.start));
    Scene::granted(&scene.send(&scene.claim("b", 1)).await);
}

pub(crate) async fn a_claim_ahead_of_its_instant_is_granted_for_it(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let near = scene
        .store
        .now()
        .await
        .unwrap()
        .plus(Duration::from_millis(900));
    let due = Due {
        not_before: near,
        prev: Some(scene.start),
        lead: LEAD,
        ..scene.due(1)
    };
    // However long the lead that a claim asks for, the store grants no earlier than its own.
    let far = Due {
        not_before: near.plus(LEAD * 60),
        lead: LEAD * 100,
        ..due.clone()
    };
    let reply = scene.send(&scene.claim_due("c", far)).await;
    assert!(matches!(reply, ClaimReply::Early { .. }), "{reply:?}");
    let first = scene.claim_due("a", due.clone());
    let reply = scene.send(&first).await;
    let ClaimReply::Granted { at, starts_in, .. } = reply else {
        panic!("not granted: {reply:?}");
    };
    let left = near.since(at);
    let passed = scene.store.now().await.unwrap().since(at) + Duration::from_millis(1);
    assert!(starts_in <= left && left <= starts_in + passed, "{reply:?}");
    assert_eq!(scene.last().await, Some(scene.at(1)));
    let other = scene.send(&scene.claim_due("b", due)).await;
    assert!(
        matches!(&other, ClaimReply::AlreadyClaimed(RunStatus::Running { by, .. }) if by == "host-a"),
        "{other:?}"
    );
    // A copy of the claim waits for what is left.
    let reply = scene.send(&first).await;
    let ClaimReply::Granted {
        starts_in: later, ..
    } = reply
    else {
        panic!("not granted: {reply:?}");
    };
    assert!(later < starts_in, "{later:?} of {starts_in:?}");
}

pub(crate) async fn before_its_instant_a_claim_finds_a_held_lock_and_decides_nothing(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    Scene::granted(&scene.send(&scene.claim("a", 1)).await);
    let due = Due {
        not_before: scene.start.plus(super::BACK * 2),
        prev: Some(scene.at(1)),
        lead: LEAD,
        ..scene.due(2)
    };
    let far = scene.send(&scene.claim_due("b", due.clone())).await;
    assert!(matches!(far, ClaimReply::Early { .. }), "{far:?}");
    let not_before = scene
        .store
        .now()
        .await
        .unwrap()
        .plus(Duration::from_millis(900));
    let near = Due { not_before, ..due };
    let reply = scene.send(&scene.claim_due("c", near)).await;
    if scene.store.now().await.unwrap() < not_before {
        assert!(matches!(reply, ClaimReply::Early { .. }), "{reply:?}");
        assert_eq!(scene.last().await, Some(scene.at(1)));
    }
}

pub(crate) async fn past_its_deadline_an_occurrence_is_missed_once(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    // Registered a moment ago: the deadline is one that has surely passed.
    let due = Due {
        deadline: scene.start.minus(Duration::from_secs(1)),
        ..scene.due(1)
    };
    let late = scene.claim_due("a", due.clone());
    assert_eq!(scene.send(&late).await, ClaimReply::TooLate);
    let other = scene.claim_due("b", due);
    let decided = ClaimReply::AlreadyClaimed(RunStatus::Decided);
    assert_eq!(scene.send(&other).await, decided);
    let history = scene.history().await;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].outcome, Outcome::Missed);
    assert_eq!(history[0].scheduled_at, Some(scene.at(1)));
    assert!(
        history[0]
            .reason
            .as_ref()
            .is_some_and(|r| r.contains("deadline"))
    );
    assert_eq!(
        history[0].host.as_ref().map(HostName::as_str),
        Some("host-a")
    );
    assert_eq!(scene.last().await, Some(scene.at(1)));
}

pub(crate) async fn with_skip_a_held_lock_decides_the_occurrence(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.claim("a", 1)).await;
    let ClaimReply::Held { by, remaining } = scene.send(&scene.claim("b", 2)).await else {
        panic!("not held");
    };
    assert_eq!(by, "host-a");
    assert!(remaining.is_some_and(|left| left > LONG / 2 && left <= LONG));
    assert_eq!(scene.last().await, Some(scene.at(2)));
    let history = scene.history().await;
    assert_eq!(history[0].outcome, Outcome::Skipped);
    assert_eq!(history[0].by.as_deref(), Some("host-a"));
    // The run itself goes on.
    assert_eq!(scene.renew("a").await, RenewReply::Renewed);
    let finish = scene.success("a", 1);
    assert_eq!(scene.finish(&finish).await, FinishReply::Released);
    assert_eq!(scene.last().await, Some(scene.at(2)));
}

pub(crate) async fn with_wait_a_held_lock_makes_the_occurrence_wait(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.claim("a", 1)).await;
    let second = waiting(scene.claim("b", 2));
    let reply = scene.send(&second).await;
    let ClaimReply::Waits {
        head,
        entered: true,
        by: Some(by),
        remaining: Some(remaining),
    } = reply
    else {
        panic!("{reply:?}");
    };
    assert_eq!((head.scheduled_at, head.kind), (scene.at(2), Kind::Queue));
    assert_eq!(by, "host-a");
    assert!(remaining > LONG / 2 && remaining <= LONG, "{remaining:?}");
    assert_eq!(scene.last().await, Some(scene.at(2)));
    let finish = scene.success("a", 1);
    scene.finish(&finish).await;
    Scene::granted(&scene.send(&second).await);
    assert_eq!(scene.outcomes().await, [Outcome::Succeeded]);
}

pub(crate) async fn a_lease_ends_by_itself_and_not_before(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let short = Claim {
        ttl: SHORT,
        ..scene.bare("a")
    };
    let began = std::time::Instant::now();
    scene.send(&short).await;
    let next = scene.bare("b");
    eventually("the lease ends", async || match scene.send(&next).await {
        ClaimReply::Granted { .. } => Some(()),
        ClaimReply::Held { .. } => None,
        other => panic!("{other:?}"),
    })
    .await;
    // The lease began after `began`, so that it cannot have ended before.
    assert!(began.elapsed() + Duration::from_millis(2) >= SHORT);
}

pub(crate) async fn fences_rise_whoever_takes_the_lock(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let mut newest = 0;
    for n in 1..=10 {
        let who = format!("w{n}");
        let (occurrence, bare) = (scene.claim(&who, n), scene.bare(&format!("b{n}")));
        for claim in [occurrence, bare] {
            let (fence, _) = Scene::granted(&scene.send(&claim).await);
            assert!(fence > newest, "{fence} after {newest}");
            newest = fence;
            if n % 2 == 0 {
                subject.expire(&scene.lock).await;
            } else {
                let finish = Finish {
                    token: claim.token,
                    ..scene.success(&who, n)
                };
                scene.finish(&finish).await;
            }
        }
    }
    let now = scene.store.now().await.unwrap();
    let micros = u64::try_from(now.millis()).unwrap() * 1000;
    assert!(
        newest.abs_diff(micros) < 3_600_000_000,
        "microseconds of UTC"
    );
}

pub(crate) async fn of_many_hosts_one_is_granted_the_occurrence(subject: &impl Subject) {
    const HOSTS: usize = 12;
    let scene = Scene::new(subject).await;
    let stores: Vec<_> = (0..4).map(|_| subject.another()).collect();
    for n in 1..=3 {
        let mut asking = tokio::task::JoinSet::new();
        for host in 0..HOSTS {
            let store = std::sync::Arc::clone(&stores[host % stores.len()]);
            let who = format!("h{host}-{n}");
            let claim = waiting(scene.claim(&who, n));
            asking.spawn(async move { (who, store.claim(&claim).await.unwrap()) });
        }
        let mut granted = Vec::new();
        for (who, reply) in asking.join_all().await {
            match reply {
                ClaimReply::Granted { .. } => granted.push(who),
                ClaimReply::AlreadyClaimed(RunStatus::Running { .. }) => (),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(granted.len(), 1, "{granted:?}");
        let finish = scene.success(&granted[0], n);
        assert_eq!(scene.finish(&finish).await, FinishReply::Released);
    }
    assert_eq!(scene.outcomes().await, [Outcome::Succeeded; 3]);
}

pub(crate) async fn a_manual_run_never_moves_the_watermark(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let manual = Claim {
        what: ClaimTarget::Manual {
            job: scene.job.clone(),
            if_paused: IfPaused::Refuse,
        },
        ..scene.bare("m")
    };
    Scene::granted(&scene.send(&manual).await);
    let skipped = scene.send(&scene.claim("a", 1)).await;
    assert!(matches!(skipped, ClaimReply::Held { .. }));
    let finish = Finish {
        record: Some(cronlatch::store::Record {
            kind: Kind::Manual,
            ..scene.record(None, Outcome::Succeeded)
        }),
        ..scene.ending("m")
    };
    assert_eq!(scene.finish(&finish).await, FinishReply::Released);
    assert_eq!(scene.last().await, Some(scene.at(1)));
    // One whose host dies is recorded all the same.
    let other = Claim {
        token: super::token("n"),
        run_id: run_id("n"),
        ..manual
    };
    Scene::granted(&scene.send(&other).await);
    subject.expire(&scene.lock).await;
    Scene::granted(&scene.send(&scene.claim("b", 2)).await);
    let expected = [Outcome::Skipped, Outcome::Succeeded, Outcome::Interrupted];
    assert_eq!(scene.outcomes().await, expected);
    let orphan = &scene.history().await[2];
    assert_eq!((orphan.kind, orphan.scheduled_at), (Kind::Manual, None));
}

pub(crate) async fn an_orphan_is_run_again_as_often_as_allowed(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let due = Due {
        max_reruns: 2,
        ..scene.due(1)
    };
    let mut fences = Vec::new();
    for (who, nth) in [("a", 1), ("b", 2), ("c", 3)] {
        let reply = scene.send(&scene.claim_due(who, due.clone())).await;
        let (fence, attempt) = Scene::granted(&reply);
        assert_eq!(attempt, nth);
        fences.push(fence);
        // A copy of the same claim is not one more attempt.
        let copy = scene.send(&scene.claim_due(who, due.clone())).await;
        assert_eq!(Scene::granted(&copy), (fence, attempt));
        subject.expire(&scene.lock).await;
    }
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    let spent = scene.send(&scene.claim_due("d", due.clone())).await;
    let ClaimReply::AlreadyClaimed(RunStatus::Running {
        attempt, remaining, ..
    }) = spent
    else {
        panic!("{spent:?}");
    };
    assert_eq!((attempt, remaining), (3, Duration::ZERO));
    // A delayed copy of an interrupted attempt opens nothing.
    let copy = scene.send(&scene.claim_due("a", due)).await;
    assert_eq!(copy, ClaimReply::Finished);
    let history = scene.history().await;
    let runs: Vec<_> = history
        .iter()
        .map(|r| (r.outcome, r.kind, r.attempts, r.host.clone()))
        .collect();
    let host = |name| Some(HostName::parse(name).unwrap());
    assert_eq!(
        runs,
        [
            (Outcome::Interrupted, Kind::Schedule, 1, host("host-a")),
            (Outcome::Interrupted, Kind::Rerun, 2, host("host-b")),
        ]
    );
}

pub(crate) async fn a_rerun_waits_for_a_held_lock(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let due = Due {
        max_reruns: 1,
        ..scene.due(1)
    };
    scene.send(&scene.claim_due("a", due.clone())).await;
    subject.expire(&scene.lock).await;
    Scene::granted(&scene.send(&scene.bare("x")).await);
    let rerun = scene.claim_due("b", due);
    let reply = scene.send(&rerun).await;
    assert!(
        matches!(&reply, ClaimReply::Waits { head, entered: true, .. } if head.kind == Kind::Rerun),
        "{reply:?}"
    );
    assert!(scene.history().await.is_empty());
    let finish = scene.ending("x");
    scene.finish(&finish).await;
    assert_eq!(Scene::granted(&scene.send(&rerun).await).1, 2);
}
