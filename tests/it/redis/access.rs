//! Who may in: passwords, users with few rights, TLS, sockets, and servers that will not do.

use std::time::Duration;

use cronlatch::store::{Claim, KeyFaultKind, Lock, StoreError};

use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::{
    claim, expect_refused, expect_unreachable, finish, grant, lock, renewal, store, store_with,
};
use crate::contract::eventually;
use crate::support::RedisServer;
use crate::support::redis::{PASSWORD, documented_rights};

#[tokio::test]
async fn the_documented_rights_suffice_and_nothing_is_denied() {
    let server = RedisServer::builder()
        .user("cronlatch", documented_rights())
        .unmarked()
        .start();
    let store = store(&server.url());
    assert_eq!(store.init().await.unwrap(), None);
    let first = claim();
    grant(&store, &first).await;
    store.renew(&[renewal(&first)]).await.unwrap();
    store.released(&lock(), Duration::ZERO).await.unwrap();
    store.finish(&finish(&first)).await.unwrap();
    let denied = server.command(&["ACL", "LOG"]);
    assert!(
        matches!(&denied, redis::Value::Array(none) if none.is_empty()),
        "{denied:?}"
    );
    // A key that is not ours is out of reach.
    let raw = Claim {
        lock: Lock::raw("app:lock"),
        ..claim()
    };
    match store.claim(&raw).await {
        Err(StoreError::Key(fault)) => {
            assert_eq!(fault.kind, KeyFaultKind::Forbidden);
            assert_eq!(fault.key, "app:lock");
            assert!(fault.repair(None).contains("~app:lock"), "{fault:?}");
        }
        other => panic!("the one key should be refused: {other:?}"),
    }
}

#[tokio::test]
async fn an_empty_store_is_declared_new_once() {
    let server = RedisServer::builder().unmarked().start();
    let store = store(&server.url());
    assert_eq!(store.init().await.unwrap(), None);
    assert_eq!(server.text(&["HGET", "cronlatch:store", "format"]), "1");
    let run_id = server.text(&["HGET", "cronlatch:store", "run_id"]);
    assert!(server.text(&["INFO", "server"]).contains(&run_id));
    assert_eq!(store.init().await.unwrap(), Some(1));
    server.command(&["HSET", "cronlatch:store", "format", "2"]);
    let newer = store.claim(&claim()).await;
    assert!(matches!(newer, Err(StoreError::Corrupt(_))), "{newer:?}");
}

#[tokio::test]
async fn a_password_is_wanted_and_its_file_read_anew() {
    let server = RedisServer::builder().password().start();
    let plain = server.url_with("");
    let said = expect_refused(store(&plain).claim(&claim()).await);
    assert!(said.contains("password_file"), "{said}");
    let said = expect_refused(store(&server.url_with(":wrong@")).claim(&claim()).await);
    assert!(
        said.contains("does not accept") && !said.contains("wrong"),
        "{said}"
    );
    grant(&store(&server.url()), &claim()).await;

    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    let first = claim();
    let store = store_with(&plain, Some(file.clone()), None);
    let said = expect_refused(store.claim(&first).await);
    assert!(said.contains("cannot be read"), "{said}");
    std::fs::write(&file, "wrong\n").unwrap();
    expect_refused(store.claim(&first).await);
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    server.flush();
    grant(&store, &first).await;
}

#[tokio::test]
async fn a_user_without_rights_is_told_which_are_missing() {
    let server = RedisServer::builder()
        .user("poor", "~cronlatch:* +evalsha +eval +time")
        .start();
    let said = expect_refused(store(&server.url()).claim(&claim()).await);
    assert!(said.contains("docs/stores.md"), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
}

#[tokio::test]
async fn tls_trusts_the_authority_it_is_given_and_no_other() {
    let server = RedisServer::builder().tls().password().start();
    let url = server.url();
    let store = store_with(&url, None, Some(server.ca_file()));
    grant(&store, &claim()).await;
    let said = expect_unreachable(super::store(&url).claim(&claim()).await);
    assert!(said.contains("certificate"), "{said}");
    let other = RedisServer::builder().tls().start();
    let store = store_with(&url, None, Some(other.ca_file()));
    let said = expect_unreachable(store.claim(&claim()).await);
    assert!(said.contains("certificate"), "{said}");
    let plain = url.replace("rediss", "redis");
    let said = expect_refused(store_with(&plain, None, Some(server.ca_file())).now().await);
    assert!(said.contains("rediss://"), "{said}");
}

#[tokio::test]
async fn a_server_with_tls_where_it_is_not_expected_and_without_it_is_named() {
    let with_tls = RedisServer::builder().tls().start();
    let url = with_tls.url().replace("rediss://", "redis://");
    let expected = "uses TLS: write rediss:// instead of redis:// (with Sentinels, `tls: true`), or \
                    correct the port";
    expect_reason(&url, &format!("{url} {expected}")).await;
    let without = RedisServer::builder().password().start();
    let url = without.url().replace("redis://", "rediss://");
    let expected = "does not use TLS: write redis:// instead of rediss:// (with Sentinels, leave out \
                    `tls: true`), or correct the port";
    let shown = url.replace(PASSWORD, "***");
    expect_reason(&url, &format!("{shown} {expected}")).await;
    // The first look of `doctor` has a connection of its own.
    eventually("doctor says so", async || {
        let doctor = crate::support::cronlatch(&["doctor", "--json", "--store", &url]);
        doctor.stdout.contains("does not use TLS").then_some(())
    })
    .await;
}

/// Waits until this is the reason why a store is unreachable. On a busy machine it is found out too late at times.
async fn expect_reason(url: &str, reason: &str) {
    eventually(reason, async || {
        let said = expect_unreachable(store(url).now().await);
        (said == reason).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_slow_server_with_tls_is_used_whatever_a_second_connection_finds() {
    let server = RedisServer::builder().tls().start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = listener.local_addr().unwrap().port();
    let back = server.port();
    tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut first = [0];
            client.peek(&mut first).await.unwrap();
            // The greeting of TLS has no reply until somebody has asked without TLS.
            if first == [0x16] {
                held.push(client);
                continue;
            }
            client.write_all(b"+PONG\r\n").await.unwrap();
            for mut client in held.drain(..) {
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", back)).await.unwrap();
                    drop(copy_bidirectional(&mut client, &mut server).await);
                });
            }
        }
    });
    let store = store_with(&server.url_via(front), None, Some(server.ca_file()));
    eventually("the server is used", async || store.now().await.ok()).await;
}

#[tokio::test]
async fn a_unix_socket_will_do() {
    let server = RedisServer::builder().unix().start();
    let url = server.url();
    assert!(url.starts_with("redis+unix:///"), "{url}");
    grant(&store(&url), &claim()).await;
    let url = format!("{url}?db=3");
    assert_eq!(store(&url).init().await.unwrap(), None);
    grant(&store(&url), &claim()).await;
}

#[tokio::test]
async fn a_cluster_node_is_refused() {
    let server = RedisServer::builder()
        .arg("--cluster-enabled")
        .arg("yes")
        .arg("--cluster-port")
        .arg("0")
        .unmarked()
        .start();
    let said = expect_refused(store(&server.url()).now().await);
    assert!(said.contains("Cluster"), "{said}");
}
