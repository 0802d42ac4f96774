//! The store whose master Sentinels decide about.

use std::sync::Arc;
use std::time::Duration;

use cronlatch::store::{
    Claim, Endpoint, Lock, RenewReply, Store, StoreError, StoreSettings, check_url, open,
};

use super::{expect_refused, expect_unreachable, finish, grant, renew, renewal, store, wait_back};
use crate::support::claims::expect_missing_replica;
use crate::support::redis::{PASSWORD, documented_rights, write_certificates};
use crate::support::sentinel::{Door, Sentinel, Watched, caught_up, replica_of, url};
use crate::support::wait::{INTERVAL, LIMIT};
use crate::support::{Daemon, RedisServer, RunLog, wait_until};

/// Two servers of which the first is the master, and three Sentinels.
struct Fleet {
    sentinels: Vec<Sentinel>,
    master: RedisServer,
    replica: RedisServer,
}

impl Fleet {
    fn start() -> Self {
        let master = server();
        let replica = replica_of(&master, master.port(), RedisServer::builder());
        let watched = Watched {
            master: master.port(),
            replicas: vec![replica.port()],
            user: None,
        };
        Self {
            sentinels: Sentinel::start(3, &watched, &Door::default()),
            master,
            replica,
        }
    }

    fn wait_failover(&self) {
        wait_until("the Sentinels name the replica", || {
            let named = self.sentinels.iter().filter_map(Sentinel::names);
            named.filter(|port| *port == self.replica.port()).count() >= 2
        });
    }
}

/// A claim whose lease is short: after a failover that is how long the new master waits.
fn claim() -> Claim {
    Claim {
        ttl: Duration::from_secs(3),
        ..super::claim()
    }
}

fn server() -> RedisServer {
    RedisServer::builder()
        .arg("--repl-diskless-sync-delay")
        .arg("0")
        .start()
}

/// Its role; empty while it tells nobody: a server that changes it closes its connections.
fn role(server: &RedisServer) -> String {
    let info = server.try_command(&["INFO", "replication"]).ok();
    let info = info.and_then(|info| ::redis::from_redis_value::<String>(info).ok());
    let info = info.unwrap_or_default();
    let role = info.lines().find_map(|line| line.strip_prefix("role:"));
    role.unwrap_or_default().to_owned()
}

/// Claims until the lock lies on this server.
async fn until_claimed_on(store: &Arc<dyn Store>, server: &RedisServer) {
    let began = std::time::Instant::now();
    loop {
        let claim = claim();
        let _ = store.claim(&claim).await;
        if server.text(&["GET", "cronlatch:{backup}:lock"]) == claim.token.as_str() {
            return;
        }
        assert!(began.elapsed() < LIMIT, "never claimed there");
        tokio::time::sleep(INTERVAL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_is_who_a_majority_of_the_sentinels_names() {
    let master = server();
    let mut sentinels = Sentinel::start(3, &Watched::only(&master), &Door::default());
    let url = url(&sentinels);
    let first = claim();
    grant(&store(&url), &first).await;
    assert_eq!(master.number(&["EXISTS", "cronlatch:{backup}:lock"]), 1);
    let said = refusal(&store(&url.replace("mymaster", "other"))).await;
    assert!(said.contains("no master named \"other\""), "{said}");
    assert!(said.contains("they know: mymaster"), "{said}");
    let server = format!("redis+sentinel://127.0.0.1:{}/mymaster", master.port());
    let said = refusal(&store(&server)).await;
    assert!(said.contains("is not a Sentinel"), "{said}");
    let one = format!("redis://127.0.0.1:{}", sentinels[0].port());
    let said = refusal(&store(&one)).await;
    assert!(said.contains("is a Sentinel: name its master"), "{said}");

    sentinels[0].stop();
    wait_back(&store(&url)).await;
    sentinels[1].stop();
    let said = expect_unreachable(store(&url).now().await);
    assert!(said.contains("1 of 3 Sentinels name the master"), "{said}");
}

/// With no right that is not documented.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_may_want_a_password_and_tls() {
    let master = RedisServer::builder().password().start();
    let rights = include_str!("../../../docs/stores.md")
        .lines()
        .find_map(|line| line.strip_prefix("user cronlatch-sentinel on >PASSWORD "))
        .expect("the page has the rule");
    let door = Door {
        tls: true,
        user: Some(("watcher".to_owned(), rights.to_owned())),
        ..Door::default()
    };
    let mut watched = Watched::only(&master);
    watched.user = Some("default");
    let sentinels = Sentinel::start(1, &watched, &door);
    let dir = tempfile::tempdir().unwrap();
    let secret = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, format!("{text}\n")).unwrap();
        Some(path)
    };
    let url = url(&sentinels).replace("127.0.0.1", "localhost");
    let StoreSettings::Sentinel(mut settings) = check_url(&url).unwrap() else {
        panic!("{url}");
    };
    settings.servers.password_file = secret("servers", PASSWORD);
    let sentinel = &mut settings.sentinels[0];
    let url = format!("rediss://watcher@localhost:{}", sentinels[0].port());
    sentinel.endpoint = Endpoint::parse(&url).unwrap();
    sentinel.ca_file = Some(sentinels[0].ca_file());
    sentinel.password_file = secret("sentinels", PASSWORD);
    let right = open(&StoreSettings::Sentinel(settings.clone())).unwrap();
    wait_back(&right).await;
    settings.sentinels[0].password_file = secret("wrong", "guessed");
    let wrong = open(&StoreSettings::Sentinel(settings)).unwrap();
    let said = refusal(&wrong).await;
    assert!(said.contains("does not accept the user name"), "{said}");
    assert!(!said.contains("guessed"), "{said}");
}

/// Asks until the store is refused; a busy machine may miss a server first.
async fn refusal(store: &Arc<dyn Store>) -> String {
    let began = std::time::Instant::now();
    loop {
        match store.now().await {
            Err(StoreError::Unreachable(said)) => assert!(began.elapsed() < LIMIT, "{said}"),
            answer => return expect_refused(answer),
        }
    }
}

/// Asks until this is why the store cannot be reached; a busy machine may miss a server first.
async fn until_told(store: &Arc<dyn Store>, why: &str) {
    let began = std::time::Instant::now();
    loop {
        let said = expect_unreachable(store.now().await);
        if said.contains(why) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{said}");
    }
}

/// The Sentinels and the master they name, each with TLS and a user of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_users_hold_for_the_sentinels_and_for_the_master_they_name() {
    let certificates = tempfile::tempdir().unwrap();
    write_certificates(certificates.path());
    let master = RedisServer::builder()
        .tls_of(certificates.path())
        .user("cronlatch", documented_rights())
        .start();
    let door = Door {
        tls: true,
        certificates: Some(certificates.path().to_owned()),
        ..Door::default()
    };
    let sentinels = Sentinel::start(3, &Watched::only(&master), &door);
    let url = url(&sentinels).replace("redis+sentinel://", "rediss+sentinel://cronlatch@");
    let password = certificates.path().join("password");
    std::fs::write(&password, PASSWORD).unwrap();
    let StoreSettings::Sentinel(mut settings) = check_url(&url).unwrap() else {
        panic!("{url}");
    };
    settings.servers.password_file = Some(password);
    let mut settings = StoreSettings::Sentinel(settings);
    assert!(settings.set_ca_file(&master.ca_file()));
    let right = open(&settings).unwrap();
    let held = claim();
    grant(&right, &held).await;
    assert_eq!(renew(&right, &held).await, RenewReply::Renewed);
    right.finish(&finish(&held)).await.unwrap();

    // Another authority than the one that signed for them.
    let other = tempfile::tempdir().unwrap();
    write_certificates(other.path());
    settings.set_ca_file(&other.path().join("ca.pem"));
    until_told(&open(&settings).unwrap(), "certificate").await;
    // The Sentinels are believed, the server they name is not.
    let StoreSettings::Sentinel(half) = &mut settings else {
        panic!("{settings:?}");
    };
    for sentinel in &mut half.sentinels {
        sentinel.ca_file = Some(master.ca_file());
    }
    until_told(&open(&settings).unwrap(), "certificate").await;
}

/// It is made a replica in place: its connections stay open, and its Sentinels name it for a while
/// yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_master_that_is_a_replica_is_no_master_until_it_is_one_again() {
    let (named, other) = (server(), server());
    let sentinels = Sentinel::start(1, &Watched::only(&named), &Door::default());
    let store = store(&url(&sentinels));
    grant(&store, &claim()).await;
    named.command(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    // By the connection that is open, and by a new one: it may come back, or another in its place.
    expect_unreachable(store.claim(&claim()).await);
    let replica = "is named as master, but is a replica";
    until_told(&store, replica).await;
    until_told(&super::store(&url(&sentinels)), replica).await;
    named.command(&["REPLICAOF", "NO", "ONE"]);
    wait_back(&store).await;
    assert_eq!(role(&named), "master");
}

#[test]
fn a_killed_master_is_replaced_under_a_running_daemon() {
    let mut fleet = Fleet::start();
    let log = RunLog::new();
    let list = format!(
        "\
store: {}
jobs:
  - {{ name: tick, every: 1s, lock: {{ ttl: 3s }}, kill_grace: 100ms, command: '{}' }}
",
        url(&fleet.sentinels),
        log.job("0.01")
    );
    let mut daemon = Daemon::on("h1", list).start();
    daemon.wait_until("it runs", |_| !log.entries().is_empty());
    caught_up(&fleet.master, 1);
    fleet.master.stop();
    fleet.wait_failover();
    let runs = log.entries().len();
    daemon.wait_until("it runs on", |_| log.entries().len() > runs + 1);
    assert!(daemon.lines_with(&["Sentinel master mymaster has moved"]) > 0);
    // The old master comes back and believes for a while that it still is one.
    fleet.master.crash_and_restart();
    wait_until("it is a replica", || role(&fleet.master) == "slave");
    let runs = log.entries().len();
    daemon.wait_until("it runs on", |_| log.entries().len() > runs + 1);
    log.assert_each_once();
    log.assert_no_overlap();
    log.assert_fences_rise();
    daemon.terminate();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_is_left_and_so_when_it_wakes() {
    let fleet = Fleet::start();
    let store = store(&url(&fleet.sentinels));
    until_claimed_on(&store, &fleet.master).await;
    fleet.master.pause();
    fleet.wait_failover();
    until_claimed_on(&store, &fleet.replica).await;
    fleet.master.resume();
    wait_until("it is a replica", || role(&fleet.master) == "slave");
    until_claimed_on(&store, &fleet.replica).await;
}

/// The old master goes on answering us; its Sentinels and its replica cannot reach it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_master_that_still_answers_is_left() {
    let master = RedisServer::builder()
        .password()
        .arg("--repl-diskless-sync-delay")
        .arg("0")
        .start();
    // They come as a user of their own, who can be shut out.
    let user = |server: &RedisServer, how: &[&str]| {
        server.command(&[&["ACL", "SETUSER", "inner"], how].concat());
    };
    let rights = ["on", &format!(">{PASSWORD}"), "~*", "&*", "+@all"];
    user(&master, &rights);
    let with = ["--masteruser", "inner", "--masterauth", PASSWORD];
    let with = with
        .iter()
        .fold(RedisServer::builder().password(), |with, arg| with.arg(arg));
    let replica = replica_of(&master, master.port(), with);
    user(&replica, &rights);
    let watched = Watched {
        master: master.port(),
        replicas: vec![replica.port()],
        user: Some("inner"),
    };
    let fleet = Fleet {
        sentinels: Sentinel::start(3, &watched, &Door::default()),
        master,
        replica,
    };
    let url = url(&fleet.sentinels).replace("://", &format!("://:{PASSWORD}@"));
    let plain = store(&url);
    let mut settings = check_url(&url).unwrap();
    for server in settings.servers_mut() {
        server.wait_replicas = 1;
    }
    let careful = open(&settings).unwrap();
    let held = claim();
    grant(&careful, &held).await;
    wait_back(&plain).await;
    fleet.replica.pause();
    expect_missing_replica(&careful, &Lock::raw("unreplicated"), fleet.master.port()).await;
    fleet.replica.resume();
    caught_up(&fleet.master, 1);

    user(&fleet.master, &["off"]);
    fleet.master.command(&["CLIENT", "KILL", "USER", "inner"]);
    // Nobody outside the master knows of it any more: it does not count.
    expect_unreachable(careful.renew(&[renewal(&held)]).await);
    fleet.wait_failover();
    assert_eq!(role(&fleet.master), "master");
    fleet
        .replica
        .command(&["DEL", "cronlatch:{backup}:lock", "cronlatch:{backup}:state"]);
    until_claimed_on(&plain, &fleet.replica).await;
    assert_eq!(role(&fleet.master), "master");
}
