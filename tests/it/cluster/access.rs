//! A Cluster with TLS, passwords and users of few rights.

use std::time::Duration;

use cronlatch::store::{RenewReply, Store, StoreError, StoreSettings, check_url, open};
use serde_json::{Value, json};

use super::{claim, declare_new, finish, grant, renew};
use crate::support::redis::{PASSWORD, documented_cluster_rights, write_certificates};
use crate::support::wait::{LIMIT, wait_for};
use crate::support::{Cluster, Output, cronlatch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_users_hold_for_every_server_that_is_found_through_one() {
    let dir = tempfile::tempdir().unwrap();
    write_certificates(dir.path());
    let cluster = Cluster::start_with_tls(&documented_cluster_rights(), dir.path());
    let password = dir.path().join("password");
    std::fs::write(&password, PASSWORD).unwrap();
    let seed = format!("rediss://cronlatch@localhost:{}", cluster.servers[0].port());
    let url = seed.replace("rediss://", "rediss+cluster://");
    let with = |ca: &std::path::Path| {
        let mut settings = check_url(&url).unwrap();
        assert!(settings.set_ca_file(ca));
        for seed in settings.servers_mut() {
            seed.password_file = Some(password.clone());
        }
        open_as(&settings)
    };
    let store = with(&dir.path().join("ca.pem"));
    declare_new(&cluster, &store).await;
    for primary in 0..3 {
        let one = claim(&cluster.name_on(primary, "lock"));
        grant(&store, &one).await;
        assert_eq!(renew(&store, &one).await, RenewReply::Renewed);
        store.released(&one.lock, Duration::ZERO).await.unwrap();
        finish(&store, &one).await;
    }
    for server in &cluster.servers {
        let denied = server.command(&["ACL", "LOG"]);
        let denied: Vec<redis::Value> = redis::from_redis_value(denied).unwrap();
        assert!(denied.is_empty(), "{denied:?}");
    }

    let other = tempfile::tempdir().unwrap();
    write_certificates(other.path());
    let stranger = with(&other.path().join("ca.pem"));
    let began = std::time::Instant::now();
    loop {
        match stranger.now().await {
            Err(StoreError::Unreachable(said)) if said.contains("certificate") => break,
            Err(StoreError::Unreachable(said)) => assert!(began.elapsed() < LIMIT, "{said}"),
            other => panic!("{other:?}"),
        }
    }

    // One that is not named lets the user do less.
    cluster.servers[2].command(&["ACL", "SETUSER", "cronlatch", "-hset"]);
    let list = dir.path().join("jobs.yaml");
    let text = json!({
        "store": { "cluster": [seed], "password_file": password, "ca_file": dir.path().join("ca.pem") },
        "jobs": [],
    });
    std::fs::write(&list, text.to_string()).unwrap();
    let list = list.display().to_string();
    let (said, rights) = tokio::task::spawn_blocking(move || every_right(&list, 3))
        .await
        .unwrap();
    assert!(!said.stdout.contains(PASSWORD), "{}", said.stdout);
    said.expect_code(1);
    let subject = rights[0]["subject"].as_str().unwrap();
    assert_eq!(rights[0]["severity"], "danger", "the worst first");
    assert!(
        subject.ends_with(&format!(":{}", cluster.servers[2].port())),
        "{subject}"
    );
    assert!(
        rights[0]["text"].as_str().unwrap().contains("HSET"),
        "{rights:#?}"
    );
}

/// What `doctor` says, and of it what it says about rights, once it has reached so many servers: a
/// busy machine may miss one.
fn every_right(list: &str, servers: usize) -> (Output, Vec<Value>) {
    wait_for("doctor reaches all servers", || {
        let said = cronlatch(&["doctor", "-c", list, "--json"]);
        let findings = said.json_lines().remove(0)["findings"].take();
        let findings = findings.as_array().unwrap().iter().cloned();
        let rights: Vec<_> = findings.filter(|f| f["id"] == "store.rights").collect();
        (rights.len() == servers).then_some((said, rights))
    })
}

fn open_as(settings: &StoreSettings) -> std::sync::Arc<dyn Store> {
    open(settings).unwrap()
}
