//! A server that restarts or is emptied, as the store's callers see it.

use std::sync::Arc;
use std::time::Duration;

use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, Due, Finish, FinishReply, Grant, GrantedRun, Kind, Outcome,
    Overlap, RenewReply, Renewal, RunStatus, Store,
};
use cronlatch::time::{BootInstant, Timestamp};

use super::{claim, fence, finish, grant, store, wait_back};
use crate::support::RedisServer;
use crate::support::claims::due;
use crate::support::wait::{INTERVAL, LIMIT};

const TTL: Duration = Duration::from_secs(2);

fn short() -> Claim {
    Claim {
        ttl: TTL,
        ..claim()
    }
}

/// The renewal of a holder that knows what it was granted.
fn knowing(claim: &Claim, fence: u64) -> Renewal {
    let run = match &claim.what {
        ClaimTarget::Lock | ClaimTarget::Manual { .. } | ClaimTarget::Drops { .. } => None,
        ClaimTarget::Occurrence { job, kind, due, .. } => Some(GrantedRun {
            job: job.clone(),
            scheduled_at: Some(due.scheduled_at),
            attempt: 1,
            kind: *kind,
            started_at: Timestamp::now(),
            terms: cronlatch::store::RunTerms::NONE,
        }),
    };
    Renewal {
        grant: Grant::of(claim, fence, BootInstant::BOOT),
        run,
    }
}

async fn renew(store: &Arc<dyn Store>, renewal: &Renewal) -> RenewReply {
    store.renew(std::slice::from_ref(renewal)).await.unwrap()[0]
}

/// Claims until the store has recovered; the fence of the grant.
async fn grant_when_recovered(store: &Arc<dyn Store>) -> u64 {
    let began = std::time::Instant::now();
    loop {
        match store.claim(&short()).await {
            Ok(ClaimReply::Recovering { remaining }) => {
                assert!(remaining <= TTL, "{remaining:?}");
                tokio::time::sleep(remaining.max(INTERVAL)).await;
            }
            answer => return fence(answer),
        }
        assert!(began.elapsed() < LIMIT, "it does not recover");
    }
}

#[track_caller]
fn expect_recovering(answer: &ClaimReply) {
    assert!(
        matches!(answer, ClaimReply::Recovering { .. }),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_store_that_was_never_declared_new_grants_nothing_for_one_ttl() {
    let server = RedisServer::builder().unmarked().start();
    let store = store(&server.url());
    store.register(&[listed(TTL)]).await.unwrap();
    expect_recovering(&store.claim(&short()).await.unwrap());
    let told = store.condition(&[]).await.unwrap();
    assert!(told.lost_at.is_some(), "{told:?}");
    grant_when_recovered(&store).await;
}

#[tokio::test]
async fn a_restarted_empty_server_waits_for_its_holders_and_fences_rise() {
    let mut server = RedisServer::start();
    let store = store(&server.url());
    store.register(&[listed(TTL)]).await.unwrap();
    let (held, crashed) = (short(), super::claim());
    let held_fence = grant(&store, &held).await;
    let other = Claim {
        ttl: TTL,
        lock: cronlatch::store::Lock::raw("cronlatch:other"),
        ..crashed
    };
    let other_fence = grant(&store, &other).await;
    server.crash_and_restart();
    wait_back(&store).await;
    expect_recovering(&store.claim(&short()).await.unwrap());
    // One holder lives.
    let renewal = knowing(&held, held_fence);
    assert_eq!(renew(&store, &renewal).await, RenewReply::Renewed);
    assert_eq!(
        server.text(&["GET", "cronlatch:{backup}:lock"]),
        held.token.as_str()
    );
    let released = store.finish(&finish(&held)).await.unwrap();
    assert_eq!(released, FinishReply::Released);
    // Its token has finished: a late renewal does not bring it back.
    assert_eq!(renew(&store, &renewal).await, RenewReply::Absent);
    let next = grant_when_recovered(&store).await;
    assert!(next > held_fence && next > other_fence);
}

#[tokio::test]
async fn a_holder_takes_its_lock_back_from_one_that_an_old_snapshot_brings_up() {
    let mut server = RedisServer::start();
    let store = store(&server.url());
    let first = super::claim();
    let first_fence = grant(&store, &first).await;
    server.command(&["SAVE"]);
    store.finish(&finish(&first)).await.unwrap();
    let second = super::claim();
    let second_fence = grant(&store, &second).await;
    server.crash_and_restart();
    wait_back(&store).await;
    let lock = || server.text(&["GET", "cronlatch:{backup}:lock"]);
    assert_eq!(lock(), first.token.as_str());
    let renewal = knowing(&second, second_fence);
    assert_eq!(renew(&store, &renewal).await, RenewReply::Renewed);
    assert_eq!(lock(), second.token.as_str());
    // Not the other way round.
    let stale = knowing(&first, first_fence);
    assert_eq!(renew(&store, &stale).await, RenewReply::Taken);
}

#[tokio::test]
async fn a_lease_that_ends_while_nobody_has_noticed_the_loss_is_released() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let held = short();
    grant(&store, &held).await;
    server.command(&["FLUSHALL"]);
    let released = store.finish(&finish(&held)).await.unwrap();
    assert_eq!(released, FinishReply::Released);
}

fn listed(ttl: Duration) -> cronlatch::store::Registration {
    cronlatch::store::Registration {
        job: "j".parse_job(),
        lock: super::lock(),
        fingerprint: cronlatch::store::Fingerprint("f".into()),
        ttl,
    }
}

/// How long a claim waits now.
async fn wait_of(store: &Arc<dyn Store>) -> Duration {
    match store.claim(&short()).await.unwrap() {
        ClaimReply::Recovering { remaining } => remaining,
        reply => panic!("{reply:?}"),
    }
}

#[tokio::test]
async fn a_lock_without_a_list_is_not_granted_under_a_shorter_ttl_before_its_holder_could_renew() {
    let mut server = RedisServer::start();
    let store = store(&server.url());
    let held = super::claim();
    let granted = grant(&store, &held).await;
    server.crash_and_restart();
    wait_back(&store).await;
    let answer = store.claim(&short()).await.unwrap();
    let ClaimReply::Recovering { remaining } = answer else {
        panic!("granted: {answer:?}");
    };
    assert!(remaining > Duration::from_secs(15), "{remaining:?}");
    // Nor once its own TTL has passed since.
    for field in ["lost_at", "until"] {
        server.command(&["HINCRBY", "cronlatch:store", field, "-5000"]);
    }
    expect_recovering(&store.claim(&short()).await.unwrap());
    let renewal = knowing(&held, granted);
    assert_eq!(renew(&store, &renewal).await, RenewReply::Renewed);
}

#[tokio::test]
async fn all_wait_for_the_longest_ttl_of_the_list() {
    let server = RedisServer::start();
    let store = store(&server.url());
    store
        .register(&[listed(Duration::from_secs(3600))])
        .await
        .unwrap();
    server.command(&["FLUSHALL"]);
    let remaining = wait_of(&store).await;
    assert!(remaining > Duration::from_secs(3000), "{remaining:?}");
    let told = store.condition(&[]).await.unwrap();
    assert!(told.recovering > Duration::from_secs(3000), "{told:?}");
}

#[tokio::test]
async fn a_ttl_that_no_list_has_had_for_as_long_as_itself_is_forgotten() {
    const DAY: Duration = Duration::from_secs(24 * 3600);
    let server = RedisServer::start();
    store(&server.url()).register(&[listed(DAY)]).await.unwrap();
    let kept = server.text(&["HGET", "cronlatch:store", "longest"]);
    for (hours, remembered) in [(20, true), (28, false)] {
        // The same data so many hours later.
        let later = RedisServer::builder()
            .clock_shifted_by(hours * 3_600_000)
            .start();
        later.command(&["HSET", "cronlatch:store", "longest", &kept]);
        let store = store(&later.url());
        store.register(&[listed(TTL)]).await.unwrap();
        later.command(&["HSET", "cronlatch:store", "run_id", "the one before"]);
        let remaining = wait_of(&store).await;
        assert_eq!(remaining > TTL * 2, remembered, "{hours} h: {remaining:?}");
    }
}

/// The server of a machine whose clock comes from a battery, until the network tells it the time.
#[tokio::test]
async fn a_loss_that_was_noticed_under_a_clock_far_ahead_is_waited_out_by_the_right_one() {
    let mut server = RedisServer::builder()
        .unmarked()
        .clock_shifted_by(400 * 24 * 3_600_000)
        .start();
    let store = store(&server.url());
    store.register(&[listed(TTL)]).await.unwrap();
    assert!(wait_of(&store).await <= Duration::from_secs(30));
    server.set_clock(0);
    // Fails for a wait that is longer than the TTL.
    grant_when_recovered(&store).await;
    let now = store.now().await.unwrap();
    let occurrence = Claim {
        lock: cronlatch::store::Lock::raw("another lock"),
        what: ClaimTarget::Occurrence {
            job: "j".parse_job(),
            kind: cronlatch::store::Kind::Schedule,
            due: crate::support::claims::due(now),
            overlap: cronlatch::store::Overlap::Wait,
            keep: cronlatch::store::Retention::of_records(10),
        },
        ..short()
    };
    let reply = store.claim(&occurrence).await.unwrap();
    assert!(matches!(reply, ClaimReply::Granted { .. }), "{reply:?}");
}

#[tokio::test]
async fn a_lock_with_a_long_ttl_and_no_job_makes_others_wait_no_longer_than_the_default_ttl() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let long = Claim {
        lock: cronlatch::store::Lock::raw("another lock"),
        ttl: Duration::from_secs(3600),
        ..claim()
    };
    let granted = grant(&store, &long).await;
    assert_eq!(
        renew(&store, &knowing(&long, granted)).await,
        RenewReply::Renewed
    );
    server.command(&["HSET", "cronlatch:store", "run_id", "the one before"]);
    let remaining = wait_of(&store).await;
    assert!(remaining > TTL * 2, "its TTL counts: {remaining:?}");
    assert!(remaining <= Duration::from_secs(30), "{remaining:?}");
    let another = Claim {
        lock: cronlatch::store::Lock::raw("a third lock"),
        ..long
    };
    let ClaimReply::Recovering { remaining } = store.claim(&another).await.unwrap() else {
        panic!("a lease of its own lock may be forgotten");
    };
    assert!(remaining > Duration::from_secs(3000), "{remaining:?}");
}

trait ParseJob {
    fn parse_job(&self) -> cronlatch::names::JobName;
}

impl ParseJob for str {
    fn parse_job(&self) -> cronlatch::names::JobName {
        cronlatch::names::JobName::parse(self).unwrap()
    }
}

/// A claim of an occurrence of the job `j`, by a host of its own each time.
fn occurrence(at: Timestamp) -> Claim {
    let due = Due {
        rerun_window: Duration::from_secs(3600),
        ..due(at)
    };
    Claim {
        what: ClaimTarget::Occurrence {
            job: "j".parse_job(),
            kind: Kind::Schedule,
            due,
            overlap: Overlap::Wait,
            keep: cronlatch::store::Retention::of_records(10),
        },
        ..short()
    }
}

#[tokio::test]
async fn what_is_settled_is_so_while_the_store_recovers() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let at = store.now().await.unwrap().minus(Duration::from_secs(60));
    let runs = occurrence(at);
    grant(&store, &runs).await;
    // The marker alone is lost.
    server.command(&["DEL", "cronlatch:store"]);
    let reply = store.claim(&occurrence(at)).await.unwrap();
    let ClaimReply::AlreadyClaimed(RunStatus::Running { run_id, .. }) = reply else {
        panic!("it runs: {reply:?}");
    };
    assert_eq!(run_id, runs.run_id);
    let ended = Finish {
        job: Some("j".parse_job()),
        ..finish(&runs)
    };
    store.finish(&ended).await.unwrap();
    let reply = store.claim(&occurrence(at)).await.unwrap();
    assert_eq!(reply, ClaimReply::AlreadyClaimed(RunStatus::Decided));
    let next = occurrence(at.plus(Duration::from_secs(1)));
    expect_recovering(&store.claim(&next).await.unwrap());
}

#[tokio::test]
async fn what_was_due_before_the_loss_is_unknown_and_what_runs_is_not_run_again() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let at = store.now().await.unwrap().minus(Duration::from_secs(60));
    let runs = occurrence(at);
    let granted = grant(&store, &runs).await;
    server.command(&["FLUSHALL"]);
    let renewal = knowing(&runs, granted);
    let began = std::time::Instant::now();
    // Held through the recovery.
    loop {
        assert_eq!(renew(&store, &renewal).await, RenewReply::Renewed);
        match store.claim(&occurrence(at)).await.unwrap() {
            ClaimReply::Recovering { .. } => tokio::time::sleep(INTERVAL * 10).await,
            answer => {
                let running = matches!(
                    &answer,
                    ClaimReply::AlreadyClaimed(RunStatus::Running { run_id, .. })
                        if *run_id == runs.run_id
                );
                assert!(running, "{answer:?}");
                break;
            }
        }
        assert!(began.elapsed() < LIMIT);
    }
    let before = at.plus(Duration::from_secs(30));
    let reply = store.claim(&occurrence(before)).await.unwrap();
    assert_eq!(reply, ClaimReply::Unknown);
    let history = store.history(&"j".parse_job(), &super::lock(), 10).await;
    let history = history.unwrap().records;
    assert_eq!(history.len(), 1);
    assert_eq!(history[0].outcome, Outcome::Unknown);
    assert_eq!(history[0].scheduled_at, Some(before));
}
