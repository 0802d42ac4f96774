//! Messages about releases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cronlatch::store::{ClaimReply, Store};

use super::{claim, finish, grant, lock, store};
use crate::support::wait::{INTERVAL, LIMIT};
use crate::support::{Proxy, RedisServer};

fn subscribers(server: &RedisServer) -> usize {
    let channel = "cronlatch:{backup}:released";
    match server.command(&["PUBSUB", "NUMSUB", channel]) {
        redis::Value::Array(items) => match items.get(1) {
            Some(redis::Value::Int(count)) => usize::try_from(*count).unwrap(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Claims until it is granted, waiting for a message about a release in between. Returns how often
/// it was refused.
async fn acquire(store: Arc<dyn Store>) -> u32 {
    let asked = AtomicU32::new(0);
    acquire_counted(store, &asked).await;
    asked.into_inner()
}

async fn acquire_counted(store: Arc<dyn Store>, asked: &AtomicU32) {
    let claim = claim();
    loop {
        if let ClaimReply::Granted { .. } = store.claim(&claim).await.unwrap() {
            store.finish(&finish(&claim)).await.unwrap();
            return;
        }
        asked.fetch_add(1, Ordering::Relaxed);
        store.released(&lock(), LIMIT).await.unwrap();
    }
}

async fn wait_subscribed(server: &RedisServer, count: usize) {
    let began = std::time::Instant::now();
    while subscribers(server) != count {
        assert!(began.elapsed() < LIMIT, "{} listen", subscribers(server));
        tokio::time::sleep(INTERVAL).await;
    }
}

#[tokio::test]
async fn all_who_wait_in_all_processes_hear_of_a_release() {
    let server = RedisServer::start();
    let (here, there) = (store(&server.url()), store(&server.url()));
    let holder = claim();
    grant(&here, &holder).await;
    let waiting: Vec<_> = [&here, &here, &there]
        .map(|store| tokio::spawn(acquire(Arc::clone(store))))
        .into();
    // One connection for each store, however many wait.
    wait_subscribed(&server, 2).await;
    here.finish(&finish(&holder)).await.unwrap();
    for one in waiting {
        tokio::time::timeout(LIMIT, one).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn one_who_waits_outlives_the_loss_of_its_ear() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let (here, there) = (store(&server.url_via(proxy.port())), store(&server.url()));
    let holder = claim();
    grant(&there, &holder).await;
    let waiting = tokio::spawn(acquire(here));
    wait_subscribed(&server, 1).await;
    server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    wait_subscribed(&server, 1).await;
    there.finish(&finish(&holder)).await.unwrap();
    tokio::time::timeout(LIMIT, waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn who_may_not_listen_asks_from_time_to_time() {
    let server = RedisServer::builder()
        .user("deaf", "~cronlatch:* resetchannels +@all")
        .start();
    let (here, there) = (store(&server.url()), store(&server.url_with("")));
    let holder = claim();
    grant(&there, &holder).await;
    let asked = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&asked);
    let waiting = tokio::spawn(async move { acquire_counted(here, &counter).await });
    let refused = || asked.load(Ordering::Relaxed);
    while refused() == 0 {
        assert!(!waiting.is_finished());
        tokio::time::sleep(INTERVAL).await;
    }
    there.finish(&finish(&holder)).await.unwrap();
    tokio::time::timeout(LIMIT, waiting).await.unwrap().unwrap();
    assert!(refused() < 50, "asked {} times", refused());
}

#[tokio::test]
async fn a_server_that_cannot_save_its_data_is_still_listened_to() {
    let server = RedisServer::start();
    let here = store(&server.url());
    let waiting = tokio::spawn(async move {
        loop {
            here.released(&lock(), LIMIT).await.unwrap();
        }
    });
    wait_subscribed(&server, 1).await;
    let listener = || {
        let clients = server.text(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        clients.split(' ').next().unwrap_or_default().to_owned()
    };
    let before = listener();
    server.break_snapshots();
    // Such a server rejects even the message that only asks whether it is there.
    let rejected = || {
        let stats = server.text(&["INFO", "commandstats"]);
        let of_ping = stats.lines().find(|line| line.starts_with("cmdstat_ping:"));
        let rejected = of_ping.and_then(|line| line.split("rejected_calls=").nth(1));
        let count = rejected.and_then(|rest| rest.split(',').next());
        count.map_or(0, |count| count.parse().unwrap())
    };
    let began = std::time::Instant::now();
    while rejected() < 2 {
        assert!(
            began.elapsed() < LIMIT && !waiting.is_finished(),
            "{before}"
        );
        tokio::time::sleep(INTERVAL).await;
    }
    assert_eq!(listener(), before);
    waiting.abort();
}
