//! A replica that takes its master's place without the last of what that granted.

use std::sync::Arc;
use std::time::Duration;

use cronlatch::names::JobName;
use cronlatch::store::protocol::SUCCESSOR_SKEW;
use cronlatch::store::{Claim, ClaimReply, Due, Fingerprint, Kind, Outcome, Overlap, Store, What};
use cronlatch::time::Timestamp;

use super::{claim, fence, finish, grant, lock, store};
use crate::support::RedisServer;
use crate::support::sentinel::replica_of;
use crate::support::wait::{INTERVAL, LIMIT};

const MARKER: &str = "cronlatch:store";

fn job() -> JobName {
    JobName::parse("j").unwrap()
}

/// A claim of an occurrence, under a lease so short that one can wait for it.
fn of(at: Timestamp) -> Claim {
    Claim {
        ttl: Duration::from_secs(2),
        what: What::Occurrence {
            job: job(),
            kind: Kind::Schedule,
            due: Due {
                scheduled_at: at,
                not_before: at,
                deadline: at.plus(Duration::from_secs(3600)),
                prev: None,
                fingerprint: Fingerprint("f".to_owned()),
                gap: None,
                max_reruns: 0,
            },
            overlap: Overlap::Wait,
            keep: 10,
        },
        ..claim()
    }
}

/// Claims until the occurrence is judged: when it is due, and the store has recovered.
async fn judged(store: &Arc<dyn Store>, at: Timestamp) -> ClaimReply {
    let claim = of(at);
    let began = std::time::Instant::now();
    loop {
        match store.claim(&claim).await.unwrap() {
            ClaimReply::Recovering { remaining } | ClaimReply::Early { by: remaining } => {
                tokio::time::sleep(remaining.max(INTERVAL)).await;
            }
            judged => return judged,
        }
        assert!(began.elapsed() < LIMIT, "it does not recover");
    }
}

async fn expect_unknown(store: &Arc<dyn Store>, at: Timestamp) {
    assert_eq!(judged(store, at).await, ClaimReply::Unknown);
    let history = store.history(&job(), &lock(), 10).await.unwrap();
    assert_eq!(history[0].outcome, Outcome::Unknown);
    assert_eq!(history[0].scheduled_at, Some(at));
}

/// When a server noticed that it may have lost data.
fn lost_at(server: &RedisServer) -> Timestamp {
    Timestamp::from_millis(server.number(&["HGET", MARKER, "lost_at"]))
}

/// The clock of the old master is 900 ms ahead, and so 700 ms after its replica was put in its
/// place are over there at once.
#[tokio::test]
async fn what_a_master_ahead_granted_and_did_not_replicate_is_not_granted_again() {
    let master = RedisServer::with().clock_shifted_by(900).start();
    let replica = replica_of(&master, master.port(), RedisServer::with());
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    let (old, new) = (store(&master.url()), store(&replica.url()));
    let ahead = old.now().await.unwrap().since(new.now().await.unwrap());
    assert!(ahead > Duration::from_millis(700), "{ahead:?}");

    new.claim(&claim()).await.unwrap();
    let at = lost_at(&replica).plus(Duration::from_millis(700));
    let first = of(at);
    let granted = grant(&old, &first).await;
    old.finish(&finish(&first)).await.unwrap();
    expect_unknown(&new, at).await;
    let after = lost_at(&replica).plus(SUCCESSOR_SKEW + Duration::from_millis(1));
    assert!(fence(Ok(judged(&new, after).await)) > granted);
}
