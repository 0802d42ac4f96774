//! What a majority that was away, or lost its data, knows of a run that went on meanwhile: its
//! host reports first, and only then is the run judged.

use std::time::Duration;

use cronlatch::names::RunId;
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, FinishReply, Grant, GrantedRun, Kind, Outcome, RenewReply,
    Renewal, RunStatus, RunTerms, Settle, Store, StoreError,
};
use cronlatch::time::{BootInstant, Timestamp};

use super::{LONG, Scene, answer, is_decided, job, lock, settled, store_at, token};
use crate::contract::eventually;
use crate::support::RedisServer;

/// Long enough for a busy machine to do all that must be done before a recovery ends.
const TTL: Duration = Duration::from_secs(6);

fn run_id(who: &str) -> RunId {
    RunId::from_text(&format!("run-{who}"))
}

impl Scene {
    /// A renewal that brings what the store needs to take a forgotten lease back.
    fn renewal(&self, who: &str, n: u64, fence: u64) -> Renewal {
        let at = self.start.plus(Duration::from_millis(n));
        Renewal {
            grant: Grant {
                lock: lock(),
                token: token(who),
                run_id: run_id(who),
                fence,
                ttl: self.ttl,
                sent: BootInstant::BOOT,
                starts_at: None,
            },
            run: Some(GrantedRun {
                job: job(),
                scheduled_at: Some(at),
                attempt: 1,
                kind: Kind::Schedule,
                started_at: at,
                terms: RunTerms::NONE,
            }),
        }
    }

    async fn settles(&self, store: &dyn Store, who: &str) -> bool {
        let settle = Settle {
            lock: lock(),
            job: job(),
            run_id: run_id(who),
            keep: cronlatch::store::Retention::of_records(100),
        };
        eventually("the nodes answer", async || {
            store.settle(&settle).await.ok()
        })
        .await
    }

    fn due(&self, n: u64) -> Timestamp {
        self.start.plus(Duration::from_millis(n))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_lost_its_data_takes_a_verdict_before_it_grants_anything() {
    let mut scene = Scene::new(LONG).await;
    scene.granted("a", 1).await;
    for server in &mut scene.servers[1..] {
        server.restart();
    }
    let early = answer(&*scene.store, &scene.claim("b", 2)).await;
    assert!(matches!(early, ClaimReply::Recovering { .. }), "{early:?}");
    scene.finish("a", 1).await;
    assert_eq!(
        scene.outcomes().await,
        [(Some(scene.due(1)), Outcome::Succeeded)]
    );
    // The verdict again: it is known, and so it is to those that came back empty.
    scene.finish("a", 1).await;
    scene.servers[0].stop();
    assert_eq!(
        scene.outcomes().await,
        [(Some(scene.due(1)), Outcome::Succeeded)]
    );
    let still = answer(&*scene.store, &scene.claim("c", 1)).await;
    assert!(matches!(still, ClaimReply::Recovering { .. }), "{still:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_all_nodes_forgot_is_brought_back_by_its_holder() {
    let mut scene = Scene::new(TTL).await;
    let fence = scene.granted("a", 1).await;
    for server in &mut scene.servers {
        server.restart();
    }
    let renewal = scene.renewal("a", 1, fence);
    eventually("the nodes know of the run again", async || {
        let replies = scene.store.renew(std::slice::from_ref(&renewal)).await;
        assert!(
            !matches!(
                replies.as_deref(),
                Ok([RenewReply::Taken | RenewReply::Absent])
            ),
            "{replies:?}"
        );
        let ledgers = scene.servers.iter().filter(|server| {
            let ledger = server.text(&["HGET", "cronlatch:{l}:job:j", "ledger"]);
            ledger.contains("run-a")
        });
        (ledgers.count() == 3).then_some(())
    })
    .await;
    let early = answer(&*scene.store, &scene.claim("b", 1)).await;
    assert!(matches!(early, ClaimReply::Recovering { .. }), "{early:?}");
    let reply = loop {
        let replies = scene.store.renew(std::slice::from_ref(&renewal)).await;
        assert!(
            !matches!(
                replies.as_deref(),
                Ok([RenewReply::Taken | RenewReply::Absent])
            ),
            "{replies:?}"
        );
        match answer(&*scene.store, &scene.claim("b", 1)).await {
            ClaimReply::Recovering { remaining } => {
                tokio::time::sleep(remaining.min(TTL / 4)).await;
            }
            reply => break reply,
        }
    };
    let ClaimReply::AlreadyClaimed(RunStatus::Running {
        run_id: running, ..
    }) = &reply
    else {
        panic!("it runs: {reply:?}");
    };
    assert_eq!(*running, run_id("a"));
    assert_eq!(scene.finish("a", 1).await, FinishReply::Released);
    let reply = settled(&*scene.store, &scene.claim("b", 1)).await;
    assert!(is_decided(&reply), "{reply:?}");
    assert_eq!(
        scene.outcomes().await,
        [(Some(scene.due(1)), Outcome::Succeeded)]
    );
    let since = Timestamp::now().since(scene.start).as_millis();
    let later = scene.granted("c", u64::try_from(since).unwrap()).await;
    assert!(later > fence, "fences rise");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_without_a_list_is_not_granted_under_a_shorter_ttl_before_its_holder_could_renew() {
    let mut servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let store = store_at(&super::urls(&servers));
    assert_eq!(store.init().await.unwrap(), None);
    let claim = |who: &str, ttl: u64| Claim {
        lock: lock(),
        token: token(who),
        run_id: run_id(who),
        ttl: Duration::from_secs(ttl),
        what: ClaimTarget::Lock,
    };
    super::granted(&*store, &claim("a", 60)).await;
    for server in &mut servers {
        server.crash_and_restart();
    }
    // A program that has just been started knows of nothing.
    let other = store_at(&super::urls(&servers));
    let answer = answer(&*other, &claim("b", 2)).await;
    let ClaimReply::Recovering { remaining } = answer else {
        panic!("granted: {answer:?}");
    };
    assert!(remaining > Duration::from_secs(15), "{remaining:?}");
}

/// Two of three nodes stand still until the lease of a run is over on all of them.
async fn frozen_for_a_lease(ttl: Duration) -> Scene {
    let scene = Scene::new(ttl).await;
    scene.granted("a", 1).await;
    // What a node gets only when it is resumed would begin a lease then.
    scene.renewed_everywhere("a").await;
    for server in &scene.servers[1..] {
        server.pause();
    }
    eventually("a majority is away", async || {
        scene.store.claim(&scene.claim("b", 2)).await.err()
    })
    .await;
    eventually("the lease is over", async || {
        let key = "cronlatch:{l}:lock";
        (scene.servers[0].number(&["EXISTS", key]) == 0).then_some(())
    })
    .await;
    for server in &scene.servers[1..] {
        server.resume();
    }
    scene
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_a_run_is_left_to_its_holder_for_one_ttl() {
    let scene = frozen_for_a_lease(TTL).await;
    let waits = answer(&*scene.store, &scene.claim("b", 2)).await;
    assert!(matches!(waits, ClaimReply::Recovering { .. }), "{waits:?}");
    assert!(!scene.settles(&*scene.store, "a").await);
    scene.finish("a", 1).await;
    assert_eq!(
        scene.outcomes().await,
        [(Some(scene.due(1)), Outcome::Succeeded)]
    );
    // With the verdict there is nothing to wait for.
    scene.granted("c", 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_a_run_whose_holder_is_gone_is_judged_after_one_ttl() {
    let scene = frozen_for_a_lease(super::TTL).await;
    let unanswered = |error: &StoreError| matches!(error, StoreError::Unreachable(_));
    eventually("the run is closed", async || {
        let settled = scene
            .store
            .settle(&Settle {
                lock: lock(),
                job: job(),
                run_id: run_id("a"),
                keep: cronlatch::store::Retention::of_records(100),
            })
            .await;
        assert!(settled.as_ref().err().is_none_or(unanswered), "{settled:?}");
        settled.ok().filter(|done| *done)
    })
    .await;
    assert_eq!(
        scene.outcomes().await,
        [(Some(scene.due(1)), Outcome::Interrupted)]
    );
}
