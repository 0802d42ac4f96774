//! Claims and renewals that must be known to the replica of their slot's primary.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cronlatch::store::{Claim, ClaimReply, RenewReply, Store, StoreError, check_url, open};

use super::{answer, claim, declare_new, finish, grant, renew, renewal, send_keys, store};
use crate::support::Cluster;
use crate::support::claims::expect_missing_replica;
use crate::support::cluster::Replicas;
use crate::support::command::{BINARY, command, exit_of};
use crate::support::redis::{PASSWORD, documented_cluster_rights};
use crate::support::sentinel::caught_up;
use crate::support::wait::{INTERVAL, LIMIT, wait_until};

/// As the page has them for `wait_replicas`.
fn rights() -> String {
    format!("{} +wait", documented_cluster_rights())
}

/// A store whose claims and renewals one replica must know.
fn careful(url: &str) -> Arc<dyn Store> {
    let mut settings = check_url(url).unwrap();
    for seed in settings.servers_mut() {
        seed.wait_replicas = 1;
    }
    open(&settings).unwrap()
}

/// Asks until the reply names the missing replica. On a busy machine the server itself may be
/// unreachable first.
async fn until_short<T, F>(mut ask: F)
where
    T: std::fmt::Debug,
    F: AsyncFnMut() -> Result<T, StoreError>,
{
    let began = std::time::Instant::now();
    loop {
        match ask().await {
            Err(StoreError::PartUnreachable(said)) if said.contains("0 of 1 replicas") => return,
            Err(StoreError::Unreachable(said) | StoreError::PartUnreachable(said)) => {
                assert!(began.elapsed() < LIMIT, "{said}");
            }
            other => panic!("counts though no replica knows of it: {other:?}"),
        }
    }
}

/// How many writes to hashes came to a replica since it was asked to count anew.
fn hashes_written(cluster: &Cluster, replica: usize) -> u64 {
    let info = cluster.servers[replica].text(&["INFO", "commandstats"]);
    let line = info.lines().find(|line| line.starts_with("cmdstat_hset:"));
    let calls = line.and_then(|line| line.split_once("calls=")?.1.split(',').next());
    calls.and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_replica_of_its_primary_does_not_know_does_not_count() {
    let cluster = Cluster::start(Replicas::OneEach, &rights());
    let url = cluster.url_of(&[0, 1, 2]);
    let (plain, careful) = (store(&url), careful(&url));
    declare_new(&cluster, &plain).await;
    let [hit, spared] = [0, 1].map(|primary| claim(&cluster.name_on(primary, "lock")));
    for one in [&hit, &spared] {
        grant(&careful, one).await;
        assert_eq!(renew(&careful, one).await, RenewReply::Renewed);
    }

    // What is waited for was written by the connection that waits: later servers ask no more.
    let mut written = [0, 0];
    for (store, count) in [&plain, &careful].into_iter().zip(&mut written) {
        caught_up(&cluster.servers[0], 1);
        cluster.servers[3].command(&["CONFIG", "RESETSTAT"]);
        assert_eq!(renew(store, &hit).await, RenewReply::Renewed);
        caught_up(&cluster.servers[0], 1);
        *count = hashes_written(&cluster, 3);
    }
    assert!(written[1] > written[0], "{written:?}");

    cluster.servers[3].pause();
    let late = claim(&cluster.name_on(0, "other"));
    until_short(async || careful.renew(&[renewal(&hit)]).await).await;
    until_short(async || careful.claim(&late).await).await;
    assert_eq!(renew(&careful, &spared).await, RenewReply::Renewed);
    assert_eq!(renew(&plain, &hit).await, RenewReply::Renewed);
    let lock = claim(&cluster.name_on(0, "unreplicated")).lock;
    expect_missing_replica(&careful, &lock, cluster.servers[0].port()).await;
    // What is given up takes its claim back, replicas or not.
    finish(&careful, &late).await;
    let again = answer(async || plain.claim(&late).await).await;
    assert_eq!(again, ClaimReply::Finished);
    cluster.servers[3].resume();
    assert_eq!(renew(&careful, &hit).await, RenewReply::Renewed);

    moving(&cluster, &careful, &hit).await;
}

/// A slot on its way: its lease is renewed where it lies, and where it is going.
async fn moving(cluster: &Cluster, careful: &Arc<dyn Store>, hit: &Claim) {
    let slot = cluster.slot(&hit.lock.name).to_string();
    let [source, target] = [0, 1].map(|at| &cluster.servers[at]);
    let [from, to] = [source, target].map(|server| server.text(&["CLUSTER", "MYID"]));
    target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]);
    source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]);
    assert_eq!(renew(careful, hit).await, RenewReply::Renewed);
    send_keys(cluster, &slot, source.port(), target.port());
    assert_eq!(renew(careful, hit).await, RenewReply::Renewed);
    cluster.servers[4].pause();
    until_short(async || careful.renew(&[renewal(hit)]).await).await;
    cluster.servers[4].resume();
    for server in [target, source] {
        server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to]);
    }
    assert_eq!(renew(careful, hit).await, RenewReply::Renewed);
}

/// Takes a primary off the bus and its replica from it; it goes on answering, and believes that
/// it is alone.
fn isolate(cluster: &Cluster, primary: usize) {
    let server = &cluster.servers[primary];
    server.command(&["ACL", "SETUSER", "inner", "off"]);
    server.command(&["CLIENT", "KILL", "USER", "inner"]);
    for (at, other) in cluster.servers.iter().enumerate() {
        if at != primary {
            server.command(&["CLUSTER", "FORGET", &other.text(&["CLUSTER", "MYID"])]);
        }
    }
}

/// Replicas come as a user of their own, who can be shut out.
fn replicate_as_inner(cluster: &Cluster) {
    for server in &cluster.servers {
        let password = format!(">{PASSWORD}");
        server.command(&[
            "ACL", "SETUSER", "inner", "on", &password, "~*", "&*", "+@all",
        ]);
        server.config("masteruser", "inner");
        server.config("masterauth", PASSWORD);
    }
    for primary in &cluster.servers[..3] {
        primary.command(&["CLIENT", "KILL", "TYPE", "replica"]);
    }
    wait_until("the replicas come as they should", || {
        let of_inner = |server: &crate::support::RedisServer| {
            let clients = server.text(&["CLIENT", "LIST", "TYPE", "replica"]);
            clients.contains("user=inner")
        };
        cluster.servers[..3].iter().all(of_inner)
    });
    for primary in &cluster.servers[..3] {
        caught_up(primary, 1);
    }
}

/// A primary that is cut off, while its replica has taken its place, cannot keep a lease alive:
/// its holder is dead before the lock is another's.
#[test]
fn an_isolated_old_primary_keeps_no_lease_alive() {
    let cluster = Cluster::start(Replicas::OneEach, &rights());
    replicate_as_inner(&cluster);
    let name = cluster.name_on(0, "lock");
    let dir = tempfile::tempdir().unwrap();
    let [list, began, alive] = ["jobs.yaml", "began", "alive"].map(|file| dir.path().join(file));
    let text = format!(
        "store: {{ cluster: ['redis://cronlatch:{PASSWORD}@127.0.0.1:{}'], wait_replicas: 1 }}\n\
         jobs: []\n",
        cluster.servers[0].port()
    );
    std::fs::write(&list, text).unwrap();
    let script = format!(
        "touch {}; while :; do date +%s%3N > {}; sleep 0.05; done",
        began.display(),
        alive.display()
    );
    let mut exec = command(BINARY);
    exec.args(["exec", "--lock", &name, "--ttl", "3s", "--wait", "60s"])
        .args(["--kill-grace", "100ms", "-c"])
        .arg(&list)
        .args(["--", "/bin/sh", "-c", &script]);
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let mut exec = exec.stderr(log).spawn().unwrap();
    wait_until("the command has begun", || {
        assert!(exec.try_wait().unwrap().is_none());
        began.exists()
    });
    caught_up(&cluster.servers[0], 1);
    isolate(&cluster, 0);
    cluster.servers[3].command(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
    let granted = granted_anew(&cluster.url_of(&[3]), &name);
    // The old one answers as ever.
    let said = cluster.servers[0].text(&["CLUSTER", "INFO"]);
    assert!(said.contains("cluster_state:ok"), "{said}");
    assert_eq!(exit_of(&mut exec).unwrap().code(), Some(75));
    let last = std::fs::read_to_string(&alive).unwrap();
    let last: u128 = last.trim().parse().unwrap_or(0);
    assert!(
        last <= granted,
        "alive at {last}, granted to another at {granted}"
    );
}

/// When the lock is granted to another, in milliseconds since 1970.
#[tokio::main(flavor = "current_thread")]
async fn granted_anew(url: &str, name: &str) -> u128 {
    let store = store(url);
    let next = Claim {
        ttl: Duration::from_secs(3),
        ..claim(name)
    };
    let began = std::time::Instant::now();
    loop {
        match store.claim(&next).await {
            Ok(ClaimReply::Granted { .. }) => break,
            other => assert!(began.elapsed() < LIMIT, "never granted: {other:?}"),
        }
        tokio::time::sleep(INTERVAL).await;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_millis()
}
