//! What a network and an operator do to a connection, and to the server behind it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use cronlatch::store::{ClaimReply, Fingerprint, FinishReply, RenewReply, Renewal};

use super::{
    claim, expect_refused, expect_unreachable, finish, grant, lock, renew, renewal, store,
    wait_back,
};
use crate::support::wait::{INTERVAL, LIMIT};
use crate::support::{Mode, Proxy, RedisServer};

#[tokio::test]
async fn scripts_that_the_server_forgot_are_sent_again() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let first = claim();
    let granted = grant(&store, &first).await;
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(grant(&store, &first).await, granted);
    // More than one script's worth, none of them known any more.
    server.command(&["SCRIPT", "FLUSH"]);
    let batch: Vec<Renewal> = (0..1201).map(|_| renewal(&first)).collect();
    let replies = store.renew(&batch).await.unwrap();
    assert_eq!(replies, vec![RenewReply::Renewed; 1201]);
    server.command(&["SCRIPT", "FLUSH"]);
    let released = store.finish(&finish(&first)).await.unwrap();
    assert_eq!(released, FinishReply::Released);
}

#[tokio::test]
async fn a_server_that_was_away_is_found_again() {
    let mut server = RedisServer::start();
    let store = store(&server.url());
    grant(&store, &claim()).await;
    server.stop();
    expect_unreachable(store.claim(&claim()).await);
    expect_unreachable(store.renew(&[renewal(&claim())]).await);
    server.restart();
    wait_back(&store).await;
    grant(&store, &claim()).await;
    server.kill_clients();
    wait_back(&store).await;
}

/// The answer is lost in three ways; the same claim, sent again, gets what it would have got.
#[tokio::test]
async fn a_claim_whose_answer_was_lost_gets_it_when_sent_again() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let store = store(&server.url_via(proxy.port()));
    // So that the script is known, and the claim one round trip.
    grant(&store, &claim()).await;
    for mode in [Mode::CutReply, Mode::DropReplies] {
        server.flush();
        wait_back(&store).await;
        let first = claim();
        proxy.set(mode);
        expect_unreachable(store.claim(&first).await);
        let kept = server.text(&["HGET", "cronlatch:{backup}:state", "fence"]);
        assert!(!kept.is_empty(), "{mode:?}: the server got it");
        proxy.set(Mode::Pass);
        wait_back(&store).await;
        assert_eq!(grant(&store, &first).await.to_string(), kept, "{mode:?}");
    }
}

#[tokio::test]
async fn a_half_open_connection_is_given_up() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let store = store(&server.url_via(proxy.port()));
    let first = claim();
    grant(&store, &first).await;
    proxy.set(Mode::DropAll);
    expect_unreachable(store.renew(&[renewal(&first)]).await);
    proxy.set(Mode::Pass);
    // The old connection would still swallow everything: what was lost in it comes no more.
    wait_back(&store).await;
    assert!(proxy.accepted() > 1);
    assert_eq!(renew(&store, &first).await, RenewReply::Renewed);
    proxy.set(Mode::Refuse);
    expect_unreachable(store.claim(&first).await);
    proxy.set(Mode::Pass);
    wait_back(&store).await;
}

#[tokio::test]
async fn a_slow_server_is_waited_for_and_one_that_is_too_slow_is_not() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let store = store(&server.url_via(proxy.port()));
    let first = claim();
    grant(&store, &first).await;
    proxy.set(Mode::Delay(Duration::from_millis(20)));
    assert_eq!(renew(&store, &first).await, RenewReply::Renewed);
    server.pause();
    proxy.set(Mode::Pass);
    // No request queues behind another: all fail at about the same time.
    let began = std::time::Instant::now();
    let many: Vec<_> = (0..40)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.claim(&claim()).await })
        })
        .collect();
    for one in many {
        expect_unreachable(one.await.unwrap());
    }
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    assert!(proxy.accepted() < 5, "{} connections", proxy.accepted());
    server.resume();
    wait_back(&store).await;
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_waited_for() {
    let mut server = RedisServer::builder()
        .arg("--key-load-delay")
        .arg("20000")
        .arg("--loading-process-events-interval-bytes")
        .arg("1024")
        .arg("--rdbcompression")
        .arg("no")
        .start();
    // A minute's worth, of which it does a few keys between one look at its clients and the next.
    let populate = "for i = 1, 3000 do redis.call('SET', 'k' .. i, string.rep('x', 400)) end";
    server.command(&["EVAL", populate, "0"]);
    server.command(&["SAVE"]);
    server.crash_and_restart();
    let store = store(&server.url());
    let said = expect_unreachable(store.claim(&claim()).await);
    assert!(said.contains("LOADING"), "{said}");
    server.config("key-load-delay", "0");
    wait_back(&store).await;
    server.declare_new();
    grant(&store, &claim()).await;
}

#[tokio::test]
async fn a_master_that_was_demoted_is_left_and_found_again() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let first = claim();
    grant(&store, &first).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let said = expect_refused(store.renew(&[renewal(&first)]).await);
    assert!(said.contains("READONLY"), "{said}");
    // The connection was rebuilt, and says so by itself.
    let said = expect_refused(store.renew(&[renewal(&first)]).await);
    assert!(said.contains("replica"), "{said}");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(renew(&store, &first).await, RenewReply::Renewed);
}

#[tokio::test]
async fn with_memory_full_leases_are_renewed_and_given_back_and_none_is_granted() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let first = claim();
    grant(&store, &first).await;
    server.config("maxmemory-policy", "noeviction");
    server.config("maxmemory", "1");
    let said = expect_refused(store.claim(&claim()).await);
    assert!(said.contains("maxmemory"), "{said}");
    assert!(said.contains(&store.takes_no_writes().await.unwrap()));
    assert_eq!(renew(&store, &first).await, RenewReply::Renewed);
    let released = store.finish(&finish(&first)).await.unwrap();
    assert_eq!(released, FinishReply::Released);
    server.config("maxmemory", "0");
    assert_eq!(store.takes_no_writes().await, None);
    grant(&store, &claim()).await;
}

#[tokio::test]
async fn without_the_replicas_that_it_wants_a_server_rejects_writes_and_is_read() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let first = claim();
    grant(&store, &first).await;
    server.config("min-replicas-to-write", "1");
    let claimed = store.claim(&first).await.unwrap_err();
    let shown = claimed.to_string();
    assert!(
        shown.starts_with("the store cannot be used: redis://")
            && shown.contains("lower min-replicas-to-write"),
        "{shown}"
    );
    // For a daemon it is an outage: no run may be judged by a renewal that was rejected.
    expect_unreachable::<()>(Err(claimed));
    expect_unreachable(store.renew(&[renewal(&first)]).await);
    assert!(store.requests(None).await.unwrap().is_empty());
    let list = Fingerprint("c0ffee".into());
    assert_eq!(store.listed_jobs(&list).await.unwrap(), None);
    let why = store.takes_no_writes().await.unwrap();
    assert!(shown.ends_with(&why), "{why}");
    server.config("min-replicas-to-write", "0");
    assert_eq!(store.takes_no_writes().await, None);
    assert_eq!(renew(&store, &first).await, RenewReply::Renewed);
}

#[tokio::test]
async fn a_server_that_cannot_save_its_data_rejects_writes_and_is_read() {
    let server = RedisServer::start();
    let store = store(&server.url());
    let first = claim();
    grant(&store, &first).await;
    server.break_snapshots();
    let claimed = store.claim(&first).await.unwrap_err();
    let shown = claimed.to_string();
    assert!(
        shown.starts_with("the store cannot be used: redis://")
            && shown.contains("its snapshot or its append-only file")
            && shown.contains("BGSAVE"),
        "{shown}"
    );
    // For a daemon it is an outage: no run may be judged by a renewal that was rejected.
    expect_unreachable::<()>(Err(claimed));
    expect_unreachable(store.renew(&[renewal(&first)]).await);
    assert!(store.requests(None).await.unwrap().is_empty());
    let why = store.takes_no_writes().await.unwrap();
    assert!(shown.ends_with(&why), "{why}");
    server.mend_snapshots();
    assert_eq!(store.takes_no_writes().await, None);
    assert_eq!(renew(&store, &first).await, RenewReply::Renewed);
}

#[tokio::test]
async fn a_server_of_another_kind_is_reported_in_one_line() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let reply = b"<!DOCTYPE HTML>\n<title>Bad request</title>\n";
            drop(connection.write_all(reply).await);
            // Until the client leaves.
            drop(tokio::io::copy(&mut connection, &mut tokio::io::sink()).await);
        }
    });
    let store = store(&format!("redis://{address}"));
    let said = expect_unreachable(store.now().await);
    let expected = format!(
        "redis://{address} answers, but not as a Redis server does: correct the address or the port"
    );
    assert_eq!(said, expected);
}

#[tokio::test]
async fn a_lock_without_ttl_is_reported_and_left_alone() {
    let server = RedisServer::start();
    let store = store(&server.url());
    server.command(&["SET", "cronlatch:{backup}:lock", "by hand"]);
    let held = ClaimReply::Held {
        by: "by hand".to_owned(),
        remaining: None,
    };
    assert_eq!(store.claim(&claim()).await.unwrap(), held);
    let holder = store
        .jobs(&[("backup".parse().unwrap(), lock())])
        .await
        .unwrap();
    assert_eq!(holder[0].holder.as_ref().unwrap().remaining, None);
    assert_eq!(server.text(&["GET", "cronlatch:{backup}:lock"]), "by hand");
}

/// Collects what is logged on this thread.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Collects until the guard is dropped.
    fn collect(&self) -> tracing::subscriber::DefaultGuard {
        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .finish();
        tracing::subscriber::set_default(subscriber)
    }
}

#[tokio::test]
async fn a_server_that_evicts_is_warned_of_once() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let server = RedisServer::builder()
        .arg("--maxmemory-policy")
        .arg("allkeys-lru")
        .start();
    let store = store(&server.url());
    for _ in 0..2 {
        wait_back(&store).await;
        let began = std::time::Instant::now();
        while !lines.text().contains("allkeys-lru") {
            assert!(began.elapsed() < LIMIT, "{}", lines.text());
            tokio::time::sleep(INTERVAL).await;
        }
        server.kill_clients();
    }
    // Another store of this process on the same server: a daemon has several.
    let other = super::store(&server.url());
    wait_back(&other).await;
    server.kill_clients();
    wait_back(&other).await;
    assert_eq!(lines.text().matches("allkeys-lru").count(), 1);
}

#[tokio::test]
async fn an_outage_and_its_end_are_logged_once_each() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let mut server = RedisServer::builder().password().start();
    let store = store(&server.url());
    grant(&store, &claim()).await;
    server.stop();
    for _ in 0..5 {
        expect_unreachable(store.claim(&claim()).await);
    }
    server.restart();
    wait_back(&store).await;
    for _ in 0..5 {
        store.now().await.unwrap();
    }
    let log = lines.text();
    assert_eq!(log.matches("is unreachable").count(), 1, "{log}");
    assert_eq!(log.matches("reachable again").count(), 1, "{log}");
    assert!(!log.contains(crate::support::redis::PASSWORD), "{log}");
}

#[tokio::test]
async fn of_many_requests_after_a_restart_one_sends_the_text_of_the_script() {
    const CLAIMS: usize = 100;
    let server = RedisServer::start();
    let store = store(&server.url());
    store.init().await.expect("the server answers");
    let mut before = 0;
    for _ in 0..2 {
        server.command(&["SCRIPT", "FLUSH"]);
        let claims = (0..CLAIMS).map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.claim(&claim()).await })
        });
        for claim in claims.collect::<Vec<_>>() {
            claim.await.expect("no panic").expect("the server answers");
        }
        let stats = server.text(&["INFO", "commandstats"]);
        let in_full = stats.split("cmdstat_eval:calls=").nth(1);
        let in_full = in_full.and_then(|rest| rest.split(',').next()?.parse::<u32>().ok());
        let in_full = in_full.expect("scripts were sent in full");
        if before > 0 {
            assert_eq!(in_full - before, 1);
        }
        before = in_full;
    }
}
