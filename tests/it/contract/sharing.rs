//! Locks that several jobs or programs share, and those that nobody shares.

use cronlatch::names::{HostName, LockName};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, FinishReply, IfPaused, Lock, Outcome, RenewReply, RunStatus,
};

use super::{Foreign, LONG, Scene, Subject};

/// Two jobs under one lock.
async fn two(subject: &impl Subject) -> (Scene, Scene) {
    let lock = Lock::named(&LockName::parse("shared").unwrap());
    let first = Scene::of(subject, lock.clone(), "one").await;
    let second = Scene::of(subject, lock, "two").await;
    (first, second)
}

pub(crate) async fn jobs_that_share_a_lock_exclude_each_other(subject: &impl Subject) {
    let (one, two) = two(subject).await;
    let (first, _) = Scene::granted(&one.send(&one.claim("a", 1)).await);
    assert!(matches!(
        two.send(&two.claim("b", 1)).await,
        ClaimReply::Held { .. }
    ));
    assert_eq!(two.outcomes().await, [Outcome::Skipped]);
    assert!(
        one.history().await.is_empty(),
        "each has a history of its own"
    );
    assert_eq!(one.last().await, Some(one.at(1)));
    one.finish(&one.success("a", 1)).await;
    let (second, _) = Scene::granted(&two.send(&two.claim("c", 2)).await);
    assert!(second > first, "and the fences are the lock's");
}

pub(crate) async fn a_shared_lock_lost_under_one_job_is_not_given_to_the_other(
    subject: &impl Subject,
) {
    let (one, two) = two(subject).await;
    one.send(&one.claim("a", 1)).await;
    subject.evict(&one.lock).await;
    assert!(matches!(
        two.send(&two.claim("b", 1)).await,
        ClaimReply::Held { .. }
    ));
    subject.expire(&one.lock).await;
    Scene::granted(&two.send(&two.claim("c", 2)).await);
    // The first job's run is an orphan now; the other job's grant has not touched it.
    assert!(one.history().await.is_empty());
    assert_eq!(one.renew("a").await, RenewReply::Taken);
    assert!(one.settle("a").await);
    assert_eq!(one.outcomes().await, [Outcome::Interrupted]);
    assert_eq!(two.renew("c").await, RenewReply::Renewed);
}

pub(crate) async fn without_exclusion_runs_overlap_and_each_has_one_verdict(
    subject: &impl Subject,
) {
    let name = LockName::parse("l").unwrap();
    let lock = |host: &str| Lock {
        exclusive: false,
        ..Lock::of_host(&name, &HostName::parse(host).unwrap())
    };
    let here = Scene::with_lock(subject, lock("h1")).await;
    let there = Scene::with_lock(subject, lock("h2")).await;
    let manual = |who: &str| Claim {
        what: ClaimTarget::Manual {
            job: here.job.clone(),
            if_paused: IfPaused::Refuse,
        },
        ..here.claim(who, 1)
    };
    Scene::granted(&here.send(&here.claim("a", 1)).await);
    Scene::granted(&there.send(&there.claim("b", 1)).await);
    assert_eq!(here.renew("a").await, RenewReply::Renewed);
    Scene::granted(&here.send(&here.claim("c", 2)).await);
    Scene::granted(&here.send(&manual("d")).await);
    // Each occurrence once all the same.
    let again = here.send(&here.claim("e", 1)).await;
    assert_eq!(again, ClaimReply::AlreadyClaimed(RunStatus::Decided));
    for who in ["a", "c"] {
        here.finish(&here.success(who, 1)).await;
    }
    assert_eq!(
        here.outcomes().await,
        [Outcome::Succeeded, Outcome::Succeeded]
    );
    assert_eq!(here.renew("d").await, RenewReply::Renewed);
    assert_eq!(there.renew("b").await, RenewReply::Renewed);
}

pub(crate) async fn a_raw_key_is_a_lock_of_its_own(subject: &impl Subject) {
    let raw = Scene::with_lock(subject, Lock::raw("app:{orders}:lock")).await;
    let named = Scene::new(subject).await;
    Scene::granted(&raw.send(&raw.claim("a", 1)).await);
    Scene::granted(&named.send(&named.claim("b", 1)).await);
    assert!(matches!(
        raw.send(&raw.bare("c")).await,
        ClaimReply::Held { .. }
    ));
    assert_eq!(raw.renew("a").await, RenewReply::Renewed);
    assert_eq!(
        raw.finish(&raw.success("a", 1)).await,
        FinishReply::Released
    );
    assert_eq!(raw.outcomes().await, [Outcome::Succeeded]);
    Scene::granted(&raw.send(&raw.bare("d")).await);
}

pub(crate) async fn a_foreign_value_under_a_raw_key_is_respected(subject: &impl Subject) {
    let key = "app-lock";
    let scene = Scene::with_lock(subject, Lock::raw(key)).await;
    let value = Foreign::Value("someone else", Some(LONG));
    if !subject.foreign(key, value).await {
        return;
    }
    let reply = scene.send(&scene.claim("a", 1)).await;
    let ClaimReply::Held { by, remaining } = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(by, "someone else");
    assert!(remaining.is_some_and(|left| left > LONG / 2 && left <= LONG));
    assert_eq!(scene.renew("a").await, RenewReply::Taken);
    assert_eq!(scene.finish(&scene.ending("a")).await, FinishReply::Lost);
    assert!(matches!(
        scene.send(&scene.bare("b")).await,
        ClaimReply::Held { .. }
    ));
    // A lock without TTL is reported as such, because a person must act.
    subject.foreign(key, Foreign::Value("for ever", None)).await;
    let by = "for ever".to_owned();
    let reply = scene.send(&scene.bare("c")).await;
    assert_eq!(
        reply,
        ClaimReply::Held {
            by,
            remaining: None
        }
    );
}

pub(crate) async fn a_key_of_another_type_counts_as_held(subject: &impl Subject) {
    let key = "app-list";
    let scene = Scene::with_lock(subject, Lock::raw(key)).await;
    if !subject.foreign(key, Foreign::List).await {
        return;
    }
    assert!(matches!(
        scene.send(&scene.claim("a", 1)).await,
        ClaimReply::Held { .. }
    ));
    assert_eq!(scene.renew("a").await, RenewReply::Taken);
    assert_eq!(scene.finish(&scene.ending("a")).await, FinishReply::Lost);
    assert!(matches!(
        scene.send(&scene.bare("b")).await,
        ClaimReply::Held { .. }
    ));
}
