//! The store on a real Redis Cluster: slots that move, primaries that die, all of it away.

mod access;
mod replicas;
mod slots;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cronlatch::names::{HostName, LockName, RunId, Token};
use cronlatch::store::{
    Claim, ClaimReply, ClaimTarget, Finish, FinishReply, Grant, Lock, RenewReply, Renewal, Store,
    StoreError, check_url, open,
};
use cronlatch::time::BootInstant;
use serde_json::json;

use crate::support::cluster::Replicas;
use crate::support::redis::documented_cluster_rights;
use crate::support::wait::LIMIT;
use crate::support::{Cluster, Daemon, RedisServer, RunLog, cronlatch};

fn store(url: &str) -> Arc<dyn Store> {
    open(&check_url(url).unwrap()).unwrap()
}

fn claim(name: &str) -> Claim {
    let run_id = RunId::new();
    Claim {
        lock: Lock::named(&LockName::parse(name).unwrap()),
        token: Token::new(&HostName::parse("h1").unwrap(), &run_id),
        run_id,
        ttl: Duration::from_secs(60),
        what: ClaimTarget::Lock,
    }
}

/// Asks until the store answers; a slot on its way may be nobody's for a moment.
async fn answer<T, F>(mut ask: F) -> T
where
    F: AsyncFnMut() -> Result<T, StoreError>,
{
    let began = std::time::Instant::now();
    loop {
        match ask().await {
            Err(StoreError::Unreachable(e) | StoreError::PartUnreachable(e)) => {
                assert!(began.elapsed() < LIMIT, "{e}");
            }
            answer => return answer.unwrap(),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Declares it new. On a busy machine part of that may go without an answer: then from the start.
async fn declare_new(cluster: &Cluster, store: &Arc<dyn Store>) {
    let began = std::time::Instant::now();
    loop {
        let answer = store.init().await;
        if matches!(answer, Ok(None)) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{answer:?}");
        for primary in &cluster.servers[..3] {
            primary.command(&["FLUSHALL"]);
        }
    }
}

async fn grant(store: &Arc<dyn Store>, claim: &Claim) {
    let began = std::time::Instant::now();
    loop {
        let reply = answer(async || store.claim(claim).await).await;
        if matches!(reply, ClaimReply::Granted { .. }) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "{reply:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn renewal(claim: &Claim) -> Renewal {
    Grant::of(claim, 1, BootInstant::BOOT).renewal()
}

async fn renew(store: &Arc<dyn Store>, claim: &Claim) -> RenewReply {
    let renewal = renewal(claim);
    answer(async || store.renew(std::slice::from_ref(&renewal)).await).await[0]
}

async fn finish(store: &Arc<dyn Store>, claim: &Claim) -> FinishReply {
    let finish = Finish {
        lock: claim.lock.clone(),
        token: claim.token.clone(),
        record: None,
        job: None,
        give_back: false,
        keep: cronlatch::store::Retention::of_records(10),
    };
    answer(async || store.finish(&finish).await).await
}

/// Sends a slot with its keys from one primary to another, as `redis-cli --cluster reshard` does.
fn reshard(cluster: &Cluster, slot: usize, from: usize, to: usize) {
    let slot = slot.to_string();
    let [source, target] = [from, to].map(|at| &cluster.servers[at]);
    let [from, to] = [source, target].map(|server| server.text(&["CLUSTER", "MYID"]));
    target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]);
    source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]);
    send_keys(cluster, &slot, source.port(), target.port());
    for server in [target, source] {
        server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &to]);
    }
}

fn send_keys(cluster: &Cluster, slot: &str, from: u16, to: u16) {
    let source = cluster.servers.iter().find(|s| s.port() == from).unwrap();
    loop {
        let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", slot, "10"]);
        let keys: Vec<String> = ::redis::from_redis_value(keys).unwrap();
        if keys.is_empty() {
            return;
        }
        let port = to.to_string();
        let mut words = vec![
            "MIGRATE",
            "127.0.0.1",
            &port,
            "",
            "0",
            "5000",
            "REPLACE",
            "KEYS",
        ];
        words.extend(keys.iter().map(String::as_str));
        source.command(&words);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_are_followed_while_claims_go_on() {
    let cluster = Cluster::start(Replicas::None, &documented_cluster_rights());
    let name = cluster.name_on(0, "lock");
    let slot = cluster.slot(&name);
    let text = slot.to_string();
    let store = store(&cluster.url_of(&[1]));
    declare_new(&cluster, &store).await;
    let ids: Vec<String> = cluster
        .servers
        .iter()
        .map(|server| server.text(&["CLUSTER", "MYID"]))
        .collect();

    // Its keys have moved before the slot, so its owner redirects each request once (ASK).
    let first = claim(&name);
    grant(&store, &first).await;
    cluster.servers[1].command(&["CLUSTER", "SETSLOT", &text, "IMPORTING", &ids[0]]);
    cluster.servers[0].command(&["CLUSTER", "SETSLOT", &text, "MIGRATING", &ids[1]]);
    send_keys(
        &cluster,
        &text,
        cluster.servers[0].port(),
        cluster.servers[1].port(),
    );
    assert_eq!(renew(&store, &first).await, RenewReply::Renewed);
    let keys = |at: usize| cluster.servers[at].number(&["CLUSTER", "COUNTKEYSINSLOT", &text]);
    assert_eq!(keys(0), 0);
    assert!(keys(1) > 0);

    // It has arrived: its old owner sends us on for good.
    for at in [1, 0] {
        cluster.servers[at].command(&["CLUSTER", "SETSLOT", &text, "NODE", &ids[1]]);
    }
    assert_eq!(renew(&store, &first).await, RenewReply::Renewed);

    // It wanders with its keys while others want the lock.
    let ended = Arc::new(AtomicBool::new(false));
    let rivals = std::thread::spawn({
        let (url, name, ended) = (cluster.url_of(&[2]), name.clone(), Arc::clone(&ended));
        move || rivals(&url, &name, &ended)
    });
    for (from, to) in [(1, 2), (2, 0), (0, 1)] {
        assert_eq!(renew(&store, &first).await, RenewReply::Renewed);
        reshard(&cluster, slot, from, to);
        assert_eq!(renew(&store, &first).await, RenewReply::Renewed);
    }
    ended.store(true, Ordering::SeqCst);
    assert_eq!(finish(&store, &first).await, FinishReply::Released);
    rivals.join().unwrap();

    // Two in one command, whose slots lie on different servers.
    let names = [cluster.name_on(0, "a"), cluster.name_on(2, "b")];
    let both = names.map(|name| claim(&name));
    for one in &both {
        grant(&store, one).await;
    }
    let renewals: Vec<Renewal> = both.iter().map(renewal).collect();
    let replies = answer(async || store.renew(&renewals).await).await;
    assert_eq!(replies, [RenewReply::Renewed; 2]);

    refusals(&cluster, &store).await;
}

/// Another host, which wants a lock that is held until `ended` says otherwise, and then takes it
/// ten times.
#[tokio::main(flavor = "current_thread")]
async fn rivals(url: &str, name: &str, ended: &AtomicBool) {
    let store = store(url);
    let mut granted = 0;
    while granted < 10 {
        let rival = Claim {
            ttl: Duration::from_secs(1),
            ..claim(name)
        };
        let reply = answer(async || store.claim(&rival).await).await;
        if matches!(reply, ClaimReply::Granted { .. }) {
            assert!(
                ended.load(Ordering::SeqCst),
                "granted while another holds it"
            );
            finish(&store, &rival).await;
            granted += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What a Cluster cannot do is said in words.
async fn refusals(cluster: &Cluster, store: &Arc<dyn Store>) {
    let spread = Claim {
        lock: Lock::raw("a}b"),
        ..claim("x")
    };
    match store.claim(&spread).await {
        Err(StoreError::Refused(why)) => assert!(why.contains("hash tag"), "{why}"),
        other => panic!("{other:?}"),
    }
    let single = cluster.servers[0].url();
    match self::store(&single).claim(&claim("x")).await {
        Err(StoreError::Refused(why)) => assert!(why.contains("redis+cluster://"), "{why}"),
        other => panic!("{other:?}"),
    }
}

fn list(jobs: &[(&str, &RunLog)]) -> String {
    let jobs: Vec<_> = jobs
        .iter()
        .map(|(name, runs)| {
            json!({
                "name": name, "schedule": "* * * * * *", "command": runs.job("0"),
                "lock": { "ttl": "2500ms" }, "kill_grace": "200ms",
            })
        })
        .collect();
    json!({ "jobs": jobs }).to_string()
}

/// How many runs have begun.
fn count(runs: &RunLog) -> usize {
    runs.entries().len()
}

/// What the primary of the first job keeps cannot be told, and the second job can.
fn commands_show_the_rest(host: &Daemon, url: &str, [hit, spared]: &[String; 2]) {
    let said = host
        .ask(&["status", "--json", "--store", url])
        .expect_code(0);
    let status: serde_json::Value = serde_json::from_str(&said.stdout).expect("JSON");
    let away = status["away"].as_str().expect("a part is away");
    assert!(away.contains("part of the store"), "{away}");
    for job in status["jobs"].as_array().expect("jobs") {
        let is_hit = job["name"] == hit.as_str();
        assert_eq!(job["unreachable"] == true, is_hit, "{status}");
        assert_eq!(job["last"].is_null(), is_hit, "{status}");
    }
    let said = host.ask(&["history", "--store", url]).expect_code(69);
    assert!(said.stdout.contains(spared.as_str()), "{}", said.stdout);
    assert!(!said.stdout.contains(hit.as_str()), "{}", said.stdout);
    assert!(said.stderr.contains("missing above"), "{}", said.stderr);
    let said = host.ask(&["doctor", "--store", url]);
    assert!(said.stdout.contains("store.reachable"), "{}", said.stdout);
    assert!(
        !said.stdout.contains("no occurrence is started"),
        "{}",
        said.stdout
    );
}

#[test]
fn a_dead_primary_holds_up_its_own_locks_alone_and_until_its_replica_takes_over() {
    let mut cluster = Cluster::start(Replicas::OneEach, &documented_cluster_rights());
    let names = [0, 1].map(|primary| cluster.name_on(primary, "job"));
    let (hit, spared) = (RunLog::new(), RunLog::new());
    let list = list(&[(&names[0], &hit), (&names[1], &spared)]);
    let url = cluster.url_of(&[0, 2]);
    cronlatch(&["init", "--store", &url]).expect_code(0);
    let mut hosts = ["h1", "h2"].map(|host| Daemon::on(host, &list).store(&url).start());
    hosts[0].wait_until("both jobs run", |_| count(&hit) > 1 && count(&spared) > 1);

    let replica_is = |cluster: &Cluster, role: &str| {
        let said = cluster.servers[3].text(&["INFO", "replication"]);
        said.contains(&format!("role:{role}"))
    };
    // Its replica may not take over yet.
    cluster.servers[3].config("cluster-replica-no-failover", "yes");
    cluster.servers[0].stop();
    let before = count(&hit);
    let others = count(&spared);
    hosts[0].wait_until("the other job goes on", |_| count(&spared) > others + 1);
    assert!(replica_is(&cluster, "slave"));
    assert!(count(&hit) <= before + 1, "who granted that?");
    commands_show_the_rest(&hosts[0], &url, &names);
    cluster.servers[3].config("cluster-replica-no-failover", "no");
    let resumed = count(&hit);
    hosts[0].wait_until("the job goes on", |_| count(&hit) > resumed + 1);
    assert!(replica_is(&cluster, "master"));

    // Of the seeds one is left, and it is enough.
    let said = cronlatch(&["status", "--json", "--store", &url]);
    said.expect_code(0);

    // All of it away, and back.
    for server in &mut cluster.servers {
        server.stop();
    }
    for server in &mut cluster.servers {
        server.crash_and_restart();
    }
    cluster.wait_in_order();
    let (hits, others) = (count(&hit), count(&spared));
    hosts[0].wait_until("both jobs go on", |_| {
        count(&hit) > hits && count(&spared) > others
    });
    for runs in [&hit, &spared] {
        runs.assert_each_once();
        runs.assert_no_overlap();
        runs.assert_fences_rise();
    }
    for mut host in hosts {
        assert!(host.terminate().success());
    }
}

#[test]
fn a_server_that_belongs_to_no_cluster_is_logged_once() {
    let redis = RedisServer::start();
    let url = redis.url().replace("redis://", "redis+cluster://");
    let list = list(&[("often", &RunLog::new())]);
    let mut daemon = Daemon::on("h1", list).store(&url).start();
    daemon.wait_log(&["ready, but the store cannot be used", "Cluster"]);
    let warning = ["a server of the store cannot be used", "redis+cluster://"];
    assert_eq!(daemon.lines_with(&warning), 1);
}
