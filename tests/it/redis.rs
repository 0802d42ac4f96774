//! The Redis store on a real server: the contract, the scripts compared with the plain functions,
//! and every fault of networks and operators.

mod access;
mod failover;
mod faults;
mod lifetimes;
mod listening;
mod loss;
mod property;
mod replicas;
mod scripts;
mod sentinel;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cronlatch::names::{HostName, LockName, RunId, Token};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, Finish, FinishReply, Grant, Lock, RenewReply, Renewal, Store,
    StoreError, StoreSettings, check_url, open,
};
use cronlatch::time::BootInstant;

use crate::support::RedisServer;
use crate::support::wait::{INTERVAL, LIMIT};

/// A store on a URL as a user writes it.
fn store(url: &str) -> Arc<dyn Store> {
    open(&check_url(url).unwrap()).unwrap()
}

/// A store with the files that a job list may name.
fn store_with(url: &str, password: Option<PathBuf>, ca: Option<PathBuf>) -> Arc<dyn Store> {
    let StoreSettings::Redis(mut settings) = check_url(url).unwrap() else {
        panic!("not a Redis URL: {url}");
    };
    settings.password_file = password;
    settings.ca_file = ca;
    open(&StoreSettings::Redis(settings)).unwrap()
}

/// Asks until the store answers again.
async fn wait_back(store: &Arc<dyn Store>) {
    let began = std::time::Instant::now();
    while let Err(e) = store.now().await {
        assert!(began.elapsed() < LIMIT, "the store does not come back: {e}");
        tokio::time::sleep(INTERVAL).await;
    }
}

#[track_caller]
fn expect_unreachable<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Unreachable(said)) => said.to_string(),
        other => panic!("should be unreachable: {other:?}"),
    }
}

#[track_caller]
fn expect_refused<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Refused(said) | StoreError::Replica(said)) => said.to_string(),
        other => panic!("should be refused: {other:?}"),
    }
}

/// Claims as a host does: a claim without an answer is sent again. A busy machine may take longer
/// than the store is given to answer. The fence of the grant.
async fn grant(store: &Arc<dyn Store>, claim: &Claim) -> u64 {
    let began = std::time::Instant::now();
    loop {
        match store.claim(claim).await {
            Err(StoreError::Unreachable(e)) => assert!(began.elapsed() < LIMIT, "{e}"),
            answer => return fence(answer),
        }
    }
}

/// Renews, and again while there is no answer.
async fn renew(store: &Arc<dyn Store>, claim: &Claim) -> RenewReply {
    let began = std::time::Instant::now();
    loop {
        match store.renew(&[renewal(claim)]).await {
            Err(StoreError::Unreachable(e)) => assert!(began.elapsed() < LIMIT, "{e}"),
            answer => return answer.unwrap()[0],
        }
    }
}

/// The fence of a grant.
#[track_caller]
fn fence(answer: Result<ClaimReply, StoreError>) -> u64 {
    match answer {
        Ok(ClaimReply::Granted { fence, .. }) => fence,
        other => panic!("should be granted: {other:?}"),
    }
}

fn lock() -> Lock {
    Lock::named(&LockName::parse("backup").unwrap())
}

/// A claim of the bare lock, as `exec` makes it.
fn claim() -> Claim {
    let run_id = RunId::new();
    Claim {
        lock: lock(),
        token: Token::new(&HostName::parse("h1").unwrap(), &run_id),
        run_id,
        ttl: Duration::from_secs(60),
        what: ClaimTarget::Lock,
    }
}

fn finish(claim: &Claim) -> Finish {
    Finish {
        lock: claim.lock.clone(),
        token: claim.token.clone(),
        record: None,
        job: None,
        give_back: false,
        keep: cronlatch::store::Retention::of_records(10),
    }
}

fn renewal(claim: &Claim) -> Renewal {
    Grant::of(claim, 0, BootInstant::BOOT).renewal()
}

#[tokio::test]
async fn a_lock_is_claimed_renewed_and_released() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let first = claim();
    let reply = store.claim(&first).await.unwrap();
    assert!(
        matches!(reply, ClaimReply::Granted { attempt: 1, .. }),
        "{reply:?}"
    );
    assert_eq!(
        server.text(&["GET", "cronlatch:{backup}:lock"]),
        first.token.as_str()
    );
    let reply = store.claim(&claim()).await.unwrap();
    assert!(matches!(reply, ClaimReply::Held { by, .. } if by == "h1"));
    assert_eq!(
        store.renew(&[renewal(&first)]).await.unwrap(),
        [RenewReply::Renewed]
    );
    assert_eq!(
        store.finish(&finish(&first)).await.unwrap(),
        FinishReply::Released
    );
    assert_eq!(store.claim(&first).await.unwrap(), ClaimReply::Finished);
    assert_eq!(server.number(&["EXISTS", "cronlatch:{backup}:lock"]), 0);
    assert!(server.text(&["HGET", "cronlatch:store", "run_id"]).len() == 40);
}
