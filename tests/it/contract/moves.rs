//! A job's ledger moves to another lock.

use std::time::{Duration, Instant};

use cronlatch::names::HostName;
use cronlatch::store::protocol::LEAD;
use cronlatch::store::relocate::{Destination, MoveStep, Relocated, Relocation, relocate};
use cronlatch::store::{
    Claim, ClaimReply, Due, Kind, Lock, LockId, LockRef, Outcome, Overlap, Registration, Replaced,
    RunStatus,
};

use super::{LONG, SHORT, Scene, Subject, eventually};

fn host() -> HostName {
    HostName::parse("one").expect("a name")
}

impl Scene {
    /// The same job under another lock.
    fn under(&self, lock: &LockId) -> Self {
        Self {
            store: std::sync::Arc::clone(&self.store),
            lock: lock.on(&host()),
            job: self.job.clone(),
            start: self.start,
        }
    }

    async fn relocation(&self, lock: &LockId, others: Vec<Lock>) -> Relocation {
        let destination = Destination {
            job: &self.job,
            lock,
            host: &host(),
            ttl: LONG,
            now: self.store.now().await.unwrap(),
            counts_from: self.start,
        };
        Relocation::new(&destination, others)
    }

    /// Moves the ledger to `lock`, as a host does whose list names it.
    async fn moves(&self, lock: &LockId, others: Vec<Lock>) -> Relocated {
        let relocation = self.relocation(lock, others).await;
        relocate(&*self.store, relocation).await.unwrap()
    }

    async fn refuses(&self, who: &str, n: u64, to: &LockId) {
        let reply = self.send(&self.claim(who, n)).await;
        let to = LockRef::of(&to.on(&host()));
        assert_eq!(reply, ClaimReply::Moved { to });
    }

    async fn registers_as_moved(&self) -> bool {
        let registration = Registration {
            job: self.job.clone(),
            lock: self.lock.clone(),
            fingerprint: self.due(1).fingerprint,
            ttl: LONG,
        };
        let registered = self.store.register(&[registration]).await.unwrap();
        assert!(!registered[0].moved || registered[0].head.is_none());
        registered[0].moved
    }

    async fn runs(&self, who: &str, n: u64) {
        Self::granted(&self.send(&self.claim(who, n)).await);
        self.finish(&self.success(who, n)).await;
    }
}

fn fleet(name: &str) -> LockId {
    LockId::Fleet(name.into())
}

pub(crate) async fn a_ledger_moves_with_all_it_knows_there_and_back(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    // A raw key may even share its hash tag with the named lock, and so the place of the ledger.
    for (t, other) in [("p", fleet("n")), ("q", LockId::Raw("l".into()))] {
        let t = |who: &str| format!("{t}{who}");
        let job = format!("j{other}").replace(' ', "-");
        let scene = Scene::of(subject, scene.lock.clone(), &job).await;
        let old = fleet("l");
        let there = scene.under(&other);
        scene.runs(&t("a"), 1).await;
        Scene::granted(&scene.send(&scene.bare(&t("x"))).await);
        let queue = Overlap::Queue { limit: 9 };
        let waits = scene.claim_with(&t("b"), scene.due(2), queue);
        scene.send(&waits).await;
        scene
            .finish(&cronlatch::store::Finish {
                job: None,
                ..scene.ending(&t("x"))
            })
            .await;
        for round in 0..2_u64 {
            let n = 3 + 10 * round;
            let from = vec![scene.lock.clone()];
            let moved = scene.moves(&other, from.clone()).await;
            assert_eq!(
                moved,
                Relocated::Home { from: from.clone() },
                "round {round}"
            );
            // The same move again finds nothing to do.
            let again = scene.moves(&other, from).await;
            assert_eq!(again, Relocated::Home { from: Vec::new() });
            scene.refuses(&t("c"), n, &other).await;
            assert!(scene.registers_as_moved().await);
            assert!(!there.registers_as_moved().await);
            if round == 0 {
                // The head of the queue goes first, and what was decided stays decided.
                let reply = there.send(&there.claim(&t("d"), n)).await;
                assert!(matches!(reply, ClaimReply::Waits { .. }), "{reply:?}");
                there.runs(&t("e"), 2).await;
            }
            let decided = there.send(&there.claim(&t("f"), 1)).await;
            assert!(
                matches!(decided, ClaimReply::AlreadyClaimed(_)),
                "{decided:?}"
            );
            there.runs(&t(&format!("g{round}")), n).await;
            let back = scene.moves(&old, vec![there.lock.clone()]).await;
            assert!(matches!(back, Relocated::Home { .. }), "{back:?}");
            there.refuses(&t("h"), n + 1, &old).await;
            let decided = scene.send(&scene.claim(&t("i"), n)).await;
            assert!(
                matches!(decided, ClaimReply::AlreadyClaimed(_)),
                "{decided:?}"
            );
            scene.runs(&t(&format!("k{round}")), n + 1).await;
        }
    }
}

/// A host whose list names the other lock reports there what it ran without the store.
pub(crate) async fn runs_without_the_store_move_along_in_whatever_order_they_are_reported(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    let other = fleet("n");
    let there = scene.under(&other);
    for (who, n) in [("a", 4), ("b", 2), ("c", 6), ("d", 2)] {
        there.finish(&there.success(who, n)).await;
    }
    scene.moves(&other, vec![scene.lock.clone()]).await;
    let registered = there.register().await;
    assert_eq!(registered.decided_until, scene.start);
    assert_eq!(registered.decided_beyond, [2, 4, 6].map(|n| scene.at(n)));
}

/// Neither a move that is finished nor a run without the store that the watermark has passed is unusual.
pub(crate) async fn after_a_move_a_claim_ahead_of_its_instant_is_granted(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    let other = fleet("n");
    let there = scene.under(&other);
    scene.moves(&other, vec![scene.lock.clone()]).await;
    there.finish(&there.success("a", 1)).await;
    there.runs("b", 2).await;
    let now = scene.store.now().await.unwrap();
    let due = Due {
        not_before: now.plus(Duration::from_millis(900)),
        prev: Some(scene.at(2)),
        lead: LEAD,
        ..scene.due(3)
    };
    Scene::granted(&there.send(&there.claim_due("c", due.clone())).await);
    let other = there.send(&there.claim_due("d", due)).await;
    assert!(
        matches!(&other, ClaimReply::AlreadyClaimed(RunStatus::Running { by, .. }) if by == "host-c"),
        "{other:?}"
    );
}

pub(crate) async fn a_move_waits_for_the_run_under_the_old_lock(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    Scene::granted(&scene.send(&scene.claim("a", 1)).await);
    let others = vec![scene.lock.clone()];
    let reply = scene.moves(&fleet("n"), others.clone()).await;
    let Relocated::Leased { lock, by, .. } = reply else {
        panic!("{reply:?}");
    };
    assert_eq!((lock, by.as_str()), (scene.lock.clone(), "host-a"));
    scene.finish(&scene.success("a", 1)).await;
    scene.runs("b", 2).await;
    let moved = scene.moves(&fleet("n"), others).await;
    assert!(matches!(moved, Relocated::Home { .. }), "{moved:?}");
}

pub(crate) async fn a_verdict_that_comes_after_the_move_replaces_the_provisional_one(
    subject: &impl Subject,
) {
    for max_reruns in [0, 1] {
        let job = format!("j{max_reruns}");
        let (old, new) = (fleet("l"), fleet("n"));
        let scene = Scene::of(subject, old.on(&host()), &job).await;
        let due = |n| Due {
            max_reruns,
            ..scene.due(n)
        };
        let names = ["a", "b"].map(|who| format!("{who}{max_reruns}"));
        let [first, second] = names.each_ref().map(String::as_str);
        Scene::granted(&scene.send(&scene.claim_due(first, due(1))).await);
        subject.expire(&scene.lock).await;
        scene.moves(&new, vec![scene.lock.clone()]).await;
        let there = scene.under(&new);
        // Whether it is repeated, or another occurrence follows: the run is on record.
        let next = if max_reruns == 0 { 2 } else { 1 };
        let reply = there.send(&there.claim_due(second, due(next))).await;
        assert_eq!(Scene::granted(&reply).1, 1 + max_reruns);
        assert_eq!(there.outcomes().await, [Outcome::Interrupted]);
        scene.finish(&scene.success(first, 1)).await;
        assert_eq!(there.outcomes().await, [Outcome::Succeeded]);
        scene.finish(&scene.success(first, 1)).await;
        assert_eq!(there.outcomes().await, [Outcome::Succeeded]);
        there.finish(&there.success(second, next)).await;
        assert_eq!(there.outcomes().await, [Outcome::Succeeded; 2]);
    }
}

pub(crate) async fn a_rerun_has_its_window_from_the_end_of_the_lease_across_a_move_too(
    subject: &impl Subject,
) {
    const WINDOW: Duration = Duration::from_secs(60);
    let first = Scene::new(subject).await;
    for (job, moves) in [("stays", false), ("moves", true)] {
        let (old, new) = (fleet(job), fleet("n"));
        let scene = Scene::of(subject, old.on(&host()), job).await;
        let due = Due {
            max_reruns: 1,
            rerun_window: WINDOW,
            ..scene.due(1)
        };
        let claim = Claim {
            ttl: SHORT,
            ..scene.claim_due(job, due.clone())
        };
        let earliest = first.store.now().await.unwrap().plus(SHORT);
        let claimed = Instant::now();
        Scene::granted(&scene.send(&claim).await);
        let claiming = claimed.elapsed();
        let latest = first.store.now().await.unwrap().plus(SHORT);
        let late = latest.plus(SHORT);
        eventually("the crash is noticed late", async || {
            (first.store.now().await.unwrap() > late).then_some(())
        })
        .await;
        let asked = Instant::now();
        let there = if moves {
            scene.moves(&new, vec![scene.lock.clone()]).await;
            scene.under(&new)
        } else {
            scene.settle(job).await;
            scene
        };
        let head = there.register().await.head.expect("the rerun waits");
        assert_eq!(
            (head.scheduled_at, head.kind),
            (due.scheduled_at, Kind::Rerun)
        );
        // Two clocks that count whole milliseconds may differ by one. Several nodes do not answer
        // at one instant: what each says of an end is as exact as the request was short.
        let exact = Duration::from_millis(1) + claiming + asked.elapsed();
        let ends = earliest.plus(WINDOW).minus(exact)..=latest.plus(WINDOW).plus(exact);
        assert!(ends.contains(&head.deadline), "{job}: {head:?}, {ends:?}");
    }
}

pub(crate) async fn a_step_of_a_move_that_comes_late_changes_nothing(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.runs("a", 1).await;
    let (old, new) = (fleet("l"), fleet("n"));
    let others = vec![scene.lock.clone()];
    // Every step of the move, to be sent again later.
    let mut relocation = scene.relocation(&new, others.clone()).await;
    let mut steps = Vec::new();
    loop {
        match relocation.step() {
            MoveStep::Read(lock) => {
                let ledger = scene.store.ledger(&scene.job, &lock).await.unwrap();
                relocation.read(&lock, ledger);
            }
            MoveStep::Replace(step) => {
                for _ in 0..2 {
                    let reply = scene.store.replace(&step).await.unwrap();
                    assert_eq!(reply, Replaced::Done, "the same step again");
                }
                relocation.replaced(Replaced::Done);
                steps.push(step);
            }
            MoveStep::Done(_) => break,
        }
    }
    assert_eq!(steps.len(), 2);
    let there = scene.under(&new);
    there.runs("b", 2).await;
    for step in &steps[1..] {
        let reply = scene.store.replace(step).await.unwrap();
        assert_eq!(reply, Replaced::Changed, "the new ledger has gone on");
    }
    scene.moves(&old, vec![there.lock.clone()]).await;
    for step in &steps {
        let reply = scene.store.replace(step).await.unwrap();
        assert_eq!(reply, Replaced::Changed, "the list was rolled back");
    }
    scene.runs("c", 3).await;
    there.refuses("d", 4, &old).await;
}

pub(crate) async fn any_host_completes_a_move_that_stopped_half_way(subject: &impl Subject) {
    let scene = Scene::new(subject).await;
    scene.runs("a", 1).await;
    // The old ledger is a tombstone, and nothing has begun under the new lock.
    let mut relocation = scene
        .relocation(&fleet("n"), vec![scene.lock.clone()])
        .await;
    loop {
        match relocation.step() {
            MoveStep::Read(lock) => {
                let ledger = scene.store.ledger(&scene.job, &lock).await.unwrap();
                relocation.read(&lock, ledger);
            }
            MoveStep::Replace(step) => {
                assert_eq!(scene.store.replace(&step).await.unwrap(), Replaced::Done);
                break;
            }
            MoveStep::Done(done) => panic!("nothing was moved: {done:?}"),
        }
    }
    scene.refuses("b", 2, &fleet("n")).await;
    // Meanwhile the list names a third lock; its hosts know only of the first.
    let third = fleet("o");
    scene.moves(&third, vec![scene.lock.clone()]).await;
    let there = scene.under(&third);
    let decided = there.send(&there.claim("c", 1)).await;
    assert!(
        matches!(decided, ClaimReply::AlreadyClaimed(_)),
        "{decided:?}"
    );
    there.runs("d", 2).await;
    // The host that stopped goes on.
    if let MoveStep::Replace(step) = {
        relocation.replaced(Replaced::Done);
        relocation.step()
    } {
        scene.store.replace(&step).await.unwrap();
    }
    scene
        .under(&fleet("n"))
        .moves(&third, vec![scene.lock.clone()])
        .await;
    scene.under(&fleet("n")).refuses("e", 3, &third).await;
    let decided = there.send(&there.claim("f", 2)).await;
    assert!(
        matches!(decided, ClaimReply::AlreadyClaimed(_)),
        "{decided:?}"
    );
}

/// Takes the steps of a move before the first that `stops` names.
async fn step_until(scene: &Scene, relocation: &mut Relocation, stops: impl Fn(&Lock) -> bool) {
    loop {
        match relocation.step() {
            MoveStep::Read(lock) => {
                let ledger = scene.store.ledger(&scene.job, &lock).await.unwrap();
                relocation.read(&lock, ledger);
            }
            MoveStep::Replace(replacement) if stops(&replacement.lock) => return,
            MoveStep::Replace(replacement) => {
                relocation.replaced(scene.store.replace(&replacement).await.unwrap());
            }
            MoveStep::Done(over) => panic!("{over:?}"),
        }
    }
}

pub(crate) async fn two_hosts_that_move_a_ledger_at_once_bring_nothing_back(
    subject: &impl Subject,
) {
    let scene = Scene::new(subject).await;
    let new = fleet("n");
    let there = scene.under(&new);
    scene.runs("a", 1).await;
    Scene::granted(&scene.send(&scene.bare("x")).await);
    let queue = Overlap::Queue { limit: 9 };
    let waits = scene.claim_with("b", scene.due(2), queue);
    scene.send(&waits).await;
    let end = cronlatch::store::Finish {
        job: None,
        ..scene.ending("x")
    };
    scene.finish(&end).await;
    let others = vec![scene.lock.clone()];
    let mut first = scene.relocation(&new, others.clone()).await;
    let mut second = scene.relocation(&new, others).await;
    step_until(&scene, &mut first, |lock| *lock == there.lock).await;
    // The second host finds a move that seems to have stopped half way; then the first goes on.
    step_until(&scene, &mut second, |_| true).await;
    let moved = relocate(&*scene.store, first).await.unwrap();
    assert!(matches!(moved, Relocated::Home { .. }), "{moved:?}");
    there.runs("c", 2).await;
    let moved = relocate(&*scene.store, second).await.unwrap();
    assert!(matches!(moved, Relocated::Home { .. }), "{moved:?}");
    let reply = there.send(&there.claim("d", 2)).await;
    assert!(matches!(reply, ClaimReply::AlreadyClaimed(_)), "{reply:?}");
}

pub(crate) async fn ledgers_of_hosts_become_one_and_lose_no_run(subject: &impl Subject) {
    let hosts = ["one", "two"].map(|name| HostName::parse(name).unwrap());
    let own = LockId::Host("l".into());
    let scenes = [
        Scene::of(subject, own.on(&hosts[0]), "j").await,
        Scene::of(subject, own.on(&hosts[1]), "j").await,
    ];
    let due = |scene: &Scene, n| Due {
        max_reruns: 1,
        ..scene.due(n)
    };
    for (scene, (who, n)) in scenes.iter().zip([("a", 1), ("b", 2)]) {
        let claim = scene.claim_due(who, due(&scenes[0], n));
        Scene::granted(&scene.send(&claim).await);
        subject.expire(&scene.lock).await;
    }
    let locks: Vec<Lock> = scenes.iter().map(|scene| scene.lock.clone()).collect();
    scenes[0].moves(&fleet("l"), locks).await;
    let there = scenes[0].under(&fleet("l"));
    assert_eq!(there.last().await, Some(there.at(2)));
    // Both runs are repeated, and both have a record.
    for (who, n) in [("c", 1), ("d", 2)] {
        let reply = there.send(&there.claim_due(who, due(&there, n))).await;
        assert_eq!(Scene::granted(&reply).1, 2, "{n}");
        there.finish(&there.success(who, n)).await;
    }
    let mut outcomes = there.outcomes().await;
    outcomes.sort_by_key(|outcome| format!("{outcome:?}"));
    let (lost, done) = (Outcome::Interrupted, Outcome::Succeeded);
    assert_eq!(outcomes, [lost, lost, done, done]);
    // And back: the first host goes on with all of it, the other only begins where it ended.
    let shared = vec![there.lock.clone()];
    for (scene, host) in scenes.iter().zip(&hosts) {
        let destination = Destination {
            job: &scene.job,
            lock: &own,
            host,
            ttl: LONG,
            now: scene.store.now().await.unwrap(),
            counts_from: scene.start,
        };
        let relocation = Relocation::new(&destination, shared.clone());
        let moved = relocate(&*scene.store, relocation).await.unwrap();
        assert!(matches!(moved, Relocated::Home { .. }), "{moved:?}");
        assert_eq!(scene.last().await, Some(there.at(2)));
        scene.runs(host.as_str(), 3).await;
    }
    let reply = there.send(&there.claim("e", 4)).await;
    assert!(matches!(reply, ClaimReply::Moved { .. }), "{reply:?}");
    // A host that gives the lock another name takes its own ledger along, and no other host's.
    let renamed = LockId::Host("m".into());
    let destination = Destination {
        job: &there.job,
        lock: &renamed,
        host: &hosts[1],
        ttl: LONG,
        now: there.store.now().await.unwrap(),
        counts_from: there.start,
    };
    let others = vec![scenes[1].lock.clone(), there.lock.clone()];
    let relocation = Relocation::new(&destination, others);
    let moved = relocate(&*there.store, relocation).await.unwrap();
    assert!(matches!(moved, Relocated::Home { .. }), "{moved:?}");
    scenes[0].runs("f", 5).await;
    let reply = scenes[1].send(&scenes[1].claim("g", 5)).await;
    assert!(matches!(reply, ClaimReply::Moved { .. }), "{reply:?}");
}
