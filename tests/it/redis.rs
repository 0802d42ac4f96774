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

/// A long history is read in pages: each reply comes in time also on a slow network, where that of all
/// records would make the server seem silent.
#[tokio::test]
async fn a_long_history_is_read_in_pages_and_whole() {
    let server = RedisServer::start();
    let key = "cronlatch:{j}:runs:j";
    for second in 0..2_500 {
        let scheduled_at = (second * 1_000).to_string();
        server.command(&[
            "XADD",
            key,
            "*",
            "kind",
            "schedule",
            "outcome",
            "missed",
            "scheduled_at",
            &scheduled_at,
            "finished_at",
            &scheduled_at,
            "host",
            "one",
            "attempts",
            "0",
        ]);
    }
    let job = cronlatch::names::JobName::parse("j").unwrap();
    let store = store(&server.url());
    let read = async |limit: usize| {
        let lock = Lock::named(&LockName::parse("j").unwrap());
        let history = store.history(&job, &lock, limit).await.unwrap();
        assert!(history.unreadable.is_empty(), "{:?}", history.unreadable);
        let at = history.records.iter().map(|it| it.scheduled_at.unwrap());
        at.map(cronlatch::time::Timestamp::millis)
            .collect::<Vec<_>>()
    };
    let newest = |n: i64| {
        (0..n)
            .map(|back| (2_499 - back) * 1_000)
            .collect::<Vec<_>>()
    };
    assert_eq!(read(10_000).await, newest(2_500));
    assert_eq!(read(1_001).await, newest(1_001));
    assert_eq!(read(1_000).await, newest(1_000));
    let stats = server.text(&["INFO", "commandstats"]);
    let line = stats
        .lines()
        .find(|line| line.starts_with("cmdstat_xrevrange"));
    // Three pages of runs, two, and one; and the failures, of which there are none, three times.
    assert!(
        line.is_some_and(|line| line.contains("calls=9,")),
        "{line:?}"
    );
}
