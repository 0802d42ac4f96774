//! How leases and runs end: renewed, finished, given back, settled, released.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cronlatch::names::LockName;
use cronlatch::store::manual::settle_ended;
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, DroppedRange, Due, Fingerprint, Finish, FinishReply, GapAnswer,
    Grant, IfPaused, Kind, Lock, ManualRun, Outcome, Range, RenewReply, Returned, RunStatus, Seen,
};
use cronlatch::time::BootInstant;

use super::{LONG, SHORT, Scene, Subject, eventually, run_id, token};

pub(crate) async fn a_finish_is_written_once_however_often_it_comes(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.claim("a", 1)).await;
    let finish = scene.success("a", 1);
    for store in [subject.store(), subject.another(), subject.store()] {
        assert_eq!(store.finish(&finish).await.unwrap(), FinishReply::Released);
    }
    // Also when the lock is another's by then.
    scene.send(&scene.bare("b")).await;
    assert_eq!(scene.finish(&finish).await, FinishReply::Released);
    assert_eq!(scene.renew("b").await, RenewReply::Renewed);
    assert_eq!(scene.outcomes().await, [Outcome::Succeeded]);
}

pub(crate) async fn a_finish_without_the_lock_touches_nothing_of_another(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.claim("a", 1)).await;
    subject.expire(&scene.lock).await;
    scene.send(&scene.claim("b", 2)).await;
    let finish = scene.success("a", 1);
    for _ in 0..2 {
        assert_eq!(scene.finish(&finish).await, FinishReply::Lost);
    }
    assert_eq!(scene.renew("b").await, RenewReply::Renewed);
    assert_eq!(scene.outcomes().await, [Outcome::Succeeded]);
    let running = scene.send(&scene.claim("c", 2)).await;
    assert!(
        matches!(&running, ClaimReply::AlreadyClaimed(RunStatus::Running { by, .. }) if by == "host-b"),
        "{running:?}"
    );
}

pub(crate) async fn what_is_given_back_may_be_taken_by_another(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.claim("a", 1)).await;
    assert_eq!(scene.give_back("a").await, FinishReply::Released);
    assert_eq!(scene.last().await, Some(scene.at(1)));
    assert_eq!(scene.give_back("a").await, FinishReply::Released);
    let reply = scene.send(&scene.claim("b", 1)).await;
    assert_eq!(Scene::granted(&reply).1, 1);
    assert!(scene.history().await.is_empty());
}

pub(crate) async fn what_is_given_back_after_a_later_one_waits_again(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.claim("a", 1)).await;
    scene.send(&scene.claim("b", 2)).await;
    assert_eq!(scene.give_back("a").await, FinishReply::Released);
    assert_eq!(scene.last().await, Some(scene.at(2)));
    let reply = scene.send(&scene.claim("c", 1)).await;
    assert_eq!(Scene::granted(&reply).1, 1);
    assert_eq!(scene.outcomes().await, [Outcome::Skipped]);
}

pub(crate) async fn a_rerun_that_is_given_back_is_still_to_be_rerun(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let due = Due {
        max_reruns: 1,
        ..scene.due(1)
    };
    scene.send(&scene.claim_due("a", due.clone())).await;
    subject.expire(&scene.lock).await;
    let second = scene.send(&scene.claim_due("b", due.clone())).await;
    assert_eq!(Scene::granted(&second).1, 2);
    assert_eq!(scene.give_back("b").await, FinishReply::Released);
    let third = scene.send(&scene.claim_due("c", due)).await;
    assert_eq!(Scene::granted(&third).1, 2);
    assert_eq!(scene.outcomes().await, [Outcome::Interrupted]);
}

pub(crate) async fn what_is_given_back_stays_decided_by_a_run_without_the_store(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.claim("a", 1)).await;
    scene.finish(&scene.success("alone", 1)).await;
    // Those that are decided beyond it do not displace it.
    scene.finish(&scene.success("later", 3)).await;
    assert_eq!(scene.give_back("a").await, FinishReply::Released);
    let reply = scene.send(&scene.claim("b", 1)).await;
    assert_eq!(reply, ClaimReply::AlreadyClaimed(RunStatus::Decided));
    let outcomes = scene.outcomes().await;
    assert_eq!(outcomes, [Outcome::Succeeded, Outcome::Succeeded]);
    assert_eq!(scene.register().await.decided_beyond, [scene.at(3)]);
}

pub(crate) async fn a_run_without_the_store_decides_its_occurrence_and_none_before_it(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    let last = scene.start;
    let finish = scene.success("a", 3);
    assert_eq!(scene.finish(&finish).await, FinishReply::Lost);
    assert_eq!(scene.last().await, Some(last));
    let reply = scene.send(&scene.claim("b", 3)).await;
    assert_eq!(reply, ClaimReply::AlreadyClaimed(RunStatus::Decided));
    // Nothing comes before the third by the schedule of that claim.
    assert_eq!(scene.last().await, Some(scene.at(3)));

    scene.finish(&scene.success("c", 6)).await;
    // The fifth was in another host's hands meanwhile, and the fourth was passed over.
    let registered = scene.register().await;
    assert_eq!(registered.decided_until, scene.at(3));
    assert_eq!(registered.decided_beyond, [scene.at(6)]);
    let fifth = Due {
        prev: Some(scene.at(4)),
        ..scene.due(5)
    };
    let gap = |last| ClaimReply::Gap {
        last: scene.at(last),
        horizon: None,
        decided_beyond: vec![scene.at(6)],
        pauses: Vec::new(),
    };
    let reply = scene.send(&scene.claim_due("d", fifth.clone())).await;
    assert_eq!(reply, gap(3));
    let drop = |from, until| DroppedRange {
        range: Range {
            from: scene.at(from),
            until: scene.at(until),
            count: until - from + 1,
        },
        outcome: Outcome::Missed,
        reason: "nobody was up in time".to_owned(),
    };
    let answered = |due: &Due, last, drop| Due {
        gap: Some(GapAnswer {
            if_last: scene.at(last),
            drop,
        }),
        ..due.clone()
    };
    let right = answered(&fifth, 3, vec![drop(4, 4)]);
    Scene::granted(&scene.send(&scene.claim_due("d", right)).await);
    scene.finish(&scene.success("d", 5)).await;

    // A host that does not know of the sixth would drop it.
    let eighth = Due {
        prev: Some(scene.at(7)),
        ..scene.due(8)
    };
    let wrong = answered(&eighth, 5, vec![drop(6, 7)]);
    assert_eq!(scene.send(&scene.claim_due("e", wrong)).await, gap(5));
    let wrong = Claim {
        what: ClaimTarget::Drops {
            job: scene.job.clone(),
            fingerprint: Fingerprint("f1".into()),
            answer: GapAnswer {
                if_last: scene.at(5),
                drop: vec![drop(6, 7)],
            },
            keep: cronlatch::store::Retention::of_records(100),
        },
        ..scene.claim("f", 8)
    };
    assert_eq!(scene.send(&wrong).await, gap(5));
    let right = answered(&eighth, 5, vec![drop(7, 7)]);
    Scene::granted(&scene.send(&scene.claim_due("e", right)).await);
    assert_eq!(scene.last().await, Some(scene.at(8)));
    let dropped = scene.history().await.into_iter();
    let dropped = dropped.filter(|record| record.outcome == Outcome::Missed);
    let dropped: Vec<_> = dropped.filter_map(|record| record.scheduled_at).collect();
    assert_eq!(dropped, [scene.at(4), scene.at(7)]);
}

pub(crate) async fn a_run_closed_without_a_verdict_gets_one(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.claim("a", 1)).await;
    let finish = scene.ending("a");
    assert_eq!(scene.finish(&finish).await, FinishReply::Released);
    let history = scene.history().await;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].outcome, Outcome::Interrupted);
    assert_eq!(history[0].scheduled_at, Some(scene.at(1)));
}

pub(crate) async fn a_renewal_says_renewed_taken_or_absent(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    assert_eq!(scene.renew("a").await, RenewReply::Absent);
    scene.send(&scene.bare("a")).await;
    assert_eq!(scene.renew("a").await, RenewReply::Renewed);
    assert_eq!(scene.renew("b").await, RenewReply::Taken);
    subject.expire(&scene.lock).await;
    assert_eq!(scene.renew("a").await, RenewReply::Absent);
    scene.send(&scene.bare("b")).await;
    assert_eq!(scene.renew("a").await, RenewReply::Taken);
    assert_eq!(scene.renew("b").await, RenewReply::Renewed);
    scene.finish(&scene.ending("b")).await;
    assert_eq!(scene.renew("b").await, RenewReply::Absent);
    // What is renewed lasts: a short lease is still there after its first end.
    let short = Claim {
        ttl: SHORT,
        ..scene.bare("s")
    };
    scene.send(&short).await;
    let began = Instant::now();
    while began.elapsed() < SHORT * 3 {
        let renewal = scene.renewal("s");
        assert_eq!(
            scene.store.renew(&[renewal]).await.unwrap(),
            [RenewReply::Renewed]
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(matches!(
        scene.send(&scene.bare("t")).await,
        ClaimReply::Held { .. }
    ));
}

pub(crate) async fn a_lock_gone_before_its_lease_end_is_its_holders_alone(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.claim("a", 1)).await;
    subject.evict(&scene.lock).await;
    let ClaimReply::Held { by, remaining } = scene.send(&scene.bare("b")).await else {
        panic!("granted before its end");
    };
    assert_eq!(by, "host-a");
    assert!(remaining.is_some_and(|left| left > LONG / 2 && left <= LONG));
    assert_eq!(scene.renew("b").await, RenewReply::Absent);
    assert!(!scene.settle("a").await, "its lease is not over");
    assert_eq!(scene.renew("a").await, RenewReply::Renewed);
    assert_eq!(scene.renew("b").await, RenewReply::Taken);
    assert_eq!(
        scene.finish(&scene.success("a", 1)).await,
        FinishReply::Released
    );
    // One that was short is free once its end has come.
    let short = Claim {
        ttl: SHORT,
        ..scene.bare("s")
    };
    scene.send(&short).await;
    subject.evict(&scene.lock).await;
    let next = scene.bare("c");
    eventually("the lease ends", async || {
        matches!(scene.send(&next).await, ClaimReply::Granted { .. }).then_some(())
    })
    .await;
}

pub(crate) async fn many_leases_are_renewed_in_one_batch(subject: &impl Subject) {
    const LEASES: usize = 1100;
    let store = subject.store();
    let lock = |n: usize| Lock::named(&LockName::parse(&format!("many-{n}")).unwrap());
    let scene = Scene::new(subject).await;
    // As many claims at a time as a fleet makes, not as many as there are leases: what is shown
    // here is their renewal.
    let at_once = Arc::new(tokio::sync::Semaphore::new(100));
    let mut claiming = tokio::task::JoinSet::new();
    // Every tenth is held by somebody else, every eleventh by nobody.
    for n in (0..LEASES).filter(|n| n % 11 != 0) {
        let who = if n % 10 == 0 { "other" } else { "me" };
        let claim = Claim {
            lock: lock(n),
            ..scene.bare(who)
        };
        let (store, at_once) = (subject.store(), Arc::clone(&at_once));
        claiming.spawn(async move {
            let _turn = at_once.acquire().await;
            store.claim(&claim).await.unwrap()
        });
    }
    for reply in claiming.join_all().await {
        Scene::granted(&reply);
    }
    let renewals: Vec<_> = (0..LEASES)
        .map(|n| {
            Grant {
                lock: lock(n),
                token: token("me"),
                run_id: super::run_id("me"),
                fence: 0,
                ttl: LONG,
                sent: BootInstant::BOOT,
                starts_at: None,
            }
            .renewal()
        })
        .collect();
    let replies = store.renew(&renewals).await.unwrap();
    assert_eq!(replies.len(), LEASES);
    for (n, reply) in replies.into_iter().enumerate() {
        let expected = if n % 11 == 0 {
            RenewReply::Absent
        } else if n % 10 == 0 {
            RenewReply::Taken
        } else {
            RenewReply::Renewed
        };
        assert_eq!(reply, expected, "lease {n}");
    }
    assert_eq!(store.renew(&[]).await.unwrap(), []);
}

pub(crate) async fn an_orphan_is_settled_once_and_a_living_run_never(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    assert!(!scene.settle("a").await, "there is no run");
    scene.send(&scene.claim("a", 1)).await;
    assert!(!scene.settle("a").await, "it lives");
    subject.expire(&scene.lock).await;
    assert!(!scene.settle("b").await, "it is another");
    assert!(scene.settle("a").await);
    assert!(!scene.settle("a").await);
    let history = scene.history().await;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].outcome, Outcome::Interrupted);
    assert_eq!(history[0].run_id, Some(super::run_id("a")));
    let reply = scene.send(&scene.claim("b", 1)).await;
    assert_eq!(reply, ClaimReply::AlreadyClaimed(RunStatus::Decided));
    // The host was not dead after all: its word counts, and it holds nothing.
    let finish = scene.success("a", 1);
    assert_eq!(scene.finish(&finish).await, FinishReply::Lost);
    assert_eq!(scene.outcomes().await, [Outcome::Succeeded]);
}

pub(crate) async fn a_release_wakes_who_waits_for_it(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    for (n, waiter) in [(1, subject.store()), (2, subject.another())] {
        let who = format!("a{n}");
        Scene::granted(&scene.send(&scene.claim(&who, n)).await);
        let lock = scene.lock.clone();
        let next = scene.bare(&format!("b{n}"));
        let (refused, is_refused) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn(async move {
            let mut refused = Some(refused);
            loop {
                match waiter.claim(&next).await.unwrap() {
                    ClaimReply::Granted { .. } => return,
                    ClaimReply::Held { .. } => {
                        refused.take().map(|refused| refused.send(()));
                        waiter.released(&lock, LONG).await.unwrap();
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        // The waiter was refused. It is woken even if the release precedes its subscription.
        is_refused.await.expect("the waiter claims first");
        let finish = scene.success(&who, n);
        assert_eq!(scene.finish(&finish).await, FinishReply::Released);
        let woken = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        woken.expect("woken long before its limit").unwrap();
        let finish = Finish {
            job: None,
            ..scene.ending(&format!("b{n}"))
        };
        assert_eq!(scene.finish(&finish).await, FinishReply::Released);
    }
}

pub(crate) async fn a_returned_occurrence_is_told_to_other_hosts(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let other = subject.another();
    // Behind Sentinels, the first request finds the master that is listened to.
    other.now().await.unwrap();
    let mut seen = Seen::default();
    // Subscribes; messages before this may have been missed.
    let begun = async {
        while other.returned(&mut seen, LONG).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let begun = tokio::time::timeout(Duration::from_secs(60), begun).await;
    begun.expect("it can listen");
    Scene::granted(&scene.send(&scene.claim("a", 1)).await);
    assert_eq!(scene.give_back("a").await, FinishReply::Released);
    scene.store.tell_returned(&scene.job).await.unwrap();
    let told = async {
        loop {
            match other.returned(&mut seen, LONG).await.unwrap() {
                // A store that does not name the job, such as SQLite.
                Returned::Any => return,
                Returned::Jobs(jobs) if jobs.contains(&scene.job) => return,
                Returned::Jobs(_) => {}
            }
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), told).await;
    told.expect("long before its limit");
}

pub(crate) async fn waiting_for_a_release_ends_at_its_limit(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.send(&scene.bare("a")).await;
    let waited = scene.store.released(&scene.lock, Duration::from_millis(50));
    let waited = tokio::time::timeout(Duration::from_secs(60), waited).await;
    waited.expect("at most its limit").unwrap();
}

pub(crate) async fn a_noted_run_by_hand_is_settled_once_its_lease_is_over(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let another = subject.another();
    let noted = async || {
        let notes = another.manual_runs().await.unwrap();
        let mut runs: Vec<_> = notes.into_iter().map(|note| note.run).collect();
        runs.sort_by(|a, b| a.run_id.cmp(&b.run_id));
        runs
    };
    assert_eq!(noted().await, []);
    let run = |who: &str| ManualRun {
        run_id: run_id(who),
        job: scene.job.clone(),
        lock: scene.lock.clone(),
    };
    scene.store.note_manual(&run("a")).await.unwrap();
    scene.store.note_manual(&run("b")).await.unwrap();
    scene.store.note_manual(&run("b")).await.unwrap();
    assert_eq!(noted().await, [run("a"), run("b")]);
    // It may still be claimed: the note stays.
    assert_eq!(
        settle_ended(&*another, cronlatch::store::Retention::DEFAULT)
            .await
            .unwrap(),
        None
    );
    assert_eq!(noted().await, [run("a"), run("b")]);
    scene.store.forget_manual(&[run_id("b")]).await.unwrap();
    let claim = Claim {
        what: ClaimTarget::Manual {
            job: scene.job.clone(),
            if_paused: IfPaused::Refuse,
        },
        ..scene.claim("a", 1)
    };
    Scene::granted(&scene.send(&claim).await);
    // While the run goes on, it is left alone.
    let left = settle_ended(&*another, cronlatch::store::Retention::DEFAULT)
        .await
        .unwrap();
    assert!(left.is_some_and(|left| left > Duration::ZERO && left <= LONG));
    assert_eq!(scene.outcomes().await, []);
    subject.expire(&scene.lock).await;
    assert_eq!(
        settle_ended(&*another, cronlatch::store::Retention::DEFAULT)
            .await
            .unwrap(),
        None
    );
    let records = scene.history().await;
    assert_eq!(scene.outcomes().await, [Outcome::Interrupted]);
    assert_eq!(records[0].run_id, Some(run_id("a")));
    assert_eq!(records[0].kind, Kind::Manual);
    assert_eq!(noted().await, []);
    assert_eq!(
        settle_ended(&*another, cronlatch::store::Retention::DEFAULT)
            .await
            .unwrap(),
        None
    );
    assert_eq!(scene.outcomes().await, [Outcome::Interrupted]);
}
