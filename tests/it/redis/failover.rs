//! A replica that takes its master's place without the last of what that granted.

use std::sync::Arc;
use std::time::Duration;

use cronlatch::store::protocol::FORGOTTEN_AHEAD;
use cronlatch::store::{Claim, ClaimReply, ClaimTarget, Due, Kind, Outcome, Overlap, Store};
use cronlatch::time::Timestamp;

use super::{claim, fence, finish, grant, lock, store};
use crate::support::claims::{due, job};
use crate::support::sentinel::{caught_up, replica_of};
use crate::support::wait::{INTERVAL, LIMIT};
use crate::support::{RedisServer, wait_until};

const MARKER: &str = "cronlatch:store";

/// A claim of an occurrence, under a lease so short that one can wait for it.
fn of(at: Timestamp) -> Claim {
    Claim {
        ttl: Duration::from_secs(2),
        what: ClaimTarget::Occurrence {
            job: job(),
            kind: Kind::Schedule,
            due: Due {
                rerun_window: Duration::from_secs(3600),
                ..due(at)
            },
            overlap: Overlap::Wait,
            keep: cronlatch::store::Retention::of_records(10),
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
    let history = store.history(&job(), &lock(), 10).await.unwrap().records;
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
    let master = RedisServer::builder().clock_shifted_by(900).start();
    let replica = replica_of(&master, master.port(), RedisServer::builder());
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    let (old, new) = (store(&master.url()), store(&replica.url()));
    let ahead = old.now().await.unwrap().since(new.now().await.unwrap());
    assert!(ahead > Duration::from_millis(700), "{ahead:?}");

    let noticed = new.claim(&of(Timestamp::now())).await.unwrap();
    assert!(
        matches!(noticed, ClaimReply::Recovering { .. }),
        "{noticed:?}"
    );
    let at = lost_at(&replica).plus(Duration::from_millis(700));
    let first = of(at);
    let granted = grant(&old, &first).await;
    old.finish(&finish(&first)).await.unwrap();
    expect_unknown(&new, at).await;
    let after = lost_at(&replica).plus(FORGOTTEN_AHEAD + Duration::from_millis(1));
    assert!(fence(Ok(judged(&new, after).await)) > granted);
}

/// A server, and one that was its replica and went its own way.
fn parted() -> (RedisServer, RedisServer) {
    let server = RedisServer::builder()
        .arg("--repl-diskless-sync-delay")
        .arg("0");
    let master = server.clone().start();
    let replica = replica_of(&master, master.port(), server);
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    (master, replica)
}

/// Takes over all data of another server and goes on as a master, in the same process.
fn take_data_of(server: &RedisServer, other: &RedisServer) {
    let port = other.port().to_string();
    server.command(&["REPLICAOF", "127.0.0.1", &port]);
    caught_up(other, 1);
    server.command(&["REPLICAOF", "NO", "ONE"]);
}

/// The process stays the same, and so does the connection; its data are another's by now.
#[tokio::test]
async fn a_master_that_was_a_replica_meanwhile_may_have_forgotten() {
    let (master, replica) = parted();
    let store = store(&master.url());
    let at = store.now().await.unwrap();
    let first = of(at);
    let granted = grant(&store, &first).await;
    store.finish(&finish(&first)).await.unwrap();

    take_data_of(&master, &replica);
    let told = store.condition(&[]).await.unwrap();
    assert!(told.lost_at.is_some(), "{told:?}");
    expect_unknown(&store, at).await;
    let after = lost_at(&master).plus(FORGOTTEN_AHEAD + Duration::from_millis(1));
    assert!(fence(Ok(judged(&store, after).await)) > granted);
}

/// A first replica changes the replication id of a server that lost nothing.
#[tokio::test]
async fn a_first_replica_is_no_loss_of_data() {
    let master = RedisServer::start();
    let store = store(&master.url());
    let first = claim();
    let granted = grant(&store, &first).await;
    let before = master.text(&["HGET", MARKER, "replid"]);
    let _replica = replica_of(&master, master.port(), RedisServer::builder());
    let now =
        ::redis::from_redis_value::<String>(master.command(&["INFO", "replication"])).unwrap();
    assert!(
        !before.is_empty() && !now.contains(&before),
        "{before}\n{now}"
    );
    store.finish(&finish(&first)).await.unwrap();
    assert!(grant(&store, &claim()).await > granted);
}

#[tokio::test]
async fn a_node_that_was_a_replica_meanwhile_may_have_forgotten() {
    let (node, replica) = parted();
    let others = [RedisServer::start(), RedisServer::start()];
    let urls = [&others[0], &others[1], &node].map(RedisServer::url);
    let store = store(&urls.join(","));
    assert_eq!(store.init().await.unwrap(), None);
    // What the replica would have of it, had it not gone its own way before.
    let marker = node.command(&["DUMP", "cronlatch:node"]);
    replica.restore("cronlatch:node", marker);
    take_data_of(&node, &replica);
    grant(&store, &claim()).await;
    wait_until("the node says that it forgot", || {
        !node.text(&["HGET", "cronlatch:node", "lost_at"]).is_empty()
    });
    assert_eq!(others[0].text(&["HGET", "cronlatch:node", "lost_at"]), "");
}
