//! A node that was away, or lost its data, is brought up before the others fail.

use std::collections::HashMap;
use std::time::Duration;

use cronlatch::store::{NodeStanding, Outcome, Store};
use cronlatch::time::Timestamp;

use super::{LONG, Scene, TTL, job, lock};
use crate::contract::eventually;
use crate::support::hosts::host_info;
use crate::support::{Mode, Proxy, RedisServer};

const RUNS: &str = "cronlatch:{l}:runs:j";
const LEDGER: &str = "cronlatch:{l}:job:j";
const FAILURES: &str = "cronlatch:failures";

/// The run of each record that a node has, and the number of the proposal that it came with.
fn ballots(server: &RedisServer) -> Vec<(String, String)> {
    let redis::Value::Array(entries) = server.command(&["XRANGE", RUNS, "-", "+"]) else {
        panic!("not a stream");
    };
    let of = |entry: redis::Value| {
        let (_, fields): (String, HashMap<String, String>) =
            redis::from_redis_value(entry).unwrap();
        let field = |name| fields.get(name).cloned().unwrap_or_default();
        (field("run_id"), field("ballot"))
    };
    entries.into_iter().map(of).collect()
}

/// Says that a host lives, as a daemon does every few seconds.
async fn announce(store: &dyn Store) {
    let host = host_info("h");
    // A node may be away, and a busy machine late.
    drop(store.announce(&host, Duration::from_secs(30)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_outlives_the_nodes_that_took_it() {
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let proxies: Vec<Proxy> = servers.iter().map(|s| Proxy::to(s.port())).collect();
    let urls: Vec<String> = servers
        .iter()
        .zip(&proxies)
        .map(|(server, proxy)| server.url_via(proxy.port()))
        .collect();
    let mut scene = Scene::by_way_of(servers, &urls, LONG).await;
    scene.granted("a", 1).await;
    scene.finish("a", 1).await;
    proxies[2].set(Mode::Refuse);
    for (who, n) in [("b", 2), ("c", 3)] {
        scene.granted(who, n).await;
        scene.finish(who, n).await;
    }
    // The first verdict, or not even that, if it was late to reply.
    assert!(scene.servers[2].number(&["XLEN", RUNS]) <= 1);
    proxies[2].set(Mode::Pass);
    // What is decided next tells it that it was away, and who decides gives it what it lacks.
    let mut n = 4;
    eventually("the third node has all verdicts", async || {
        let who = format!("d{n}");
        scene.granted(&who, n).await;
        scene.finish(&who, n).await;
        n += 1;
        let told = scene.servers[2].number(&["XLEN", RUNS]);
        (told == i64::try_from(n - 1).unwrap()).then_some(())
    })
    .await;
    let before = scene.outcomes().await;
    assert_eq!(before.len(), usize::try_from(n - 1).unwrap(), "{before:?}");
    // A copied record keeps the number of its proposal.
    let decided = [ballots(&scene.servers[0]), ballots(&scene.servers[1])].concat();
    for (run_id, ballot) in ballots(&scene.servers[2]) {
        let ballot = ballot.parse::<u64>().expect(&run_id);
        assert!(
            decided.contains(&(run_id, ballot.to_string())),
            "{decided:?}"
        );
    }
    // Those that took the verdicts at first: one loses its data, the other is down.
    scene.servers[0].restart();
    scene.servers[1].stop();
    assert_eq!(
        scene.outcomes().await,
        before,
        "none lost, none twice, in order"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_forgot_is_told_of_each_job_though_none_falls_due() {
    let mut scene = Scene::new(TTL).await;
    scene.granted("a", 1).await;
    scene.finish("a", 1).await;
    let last = scene.start.plus(Duration::from_millis(1));
    let last = format!("\"last\":\"{last}\"");
    scene.servers[0].restart();
    let jobs = [(job(), lock())];
    // Its wait begins though nobody claims anything.
    eventually("the loss is noticed", async || {
        announce(&*scene.store).await;
        (scene.servers[0].number(&["EXISTS", "cronlatch:node"]) == 1).then_some(())
    })
    .await;
    eventually("the ledger is repaired", async || {
        announce(&*scene.store).await;
        let ledger = scene.servers[0].text(&["HGET", LEDGER, "ledger"]);
        ledger.contains(&last).then_some(())
    })
    .await;
    eventually("and the history", async || {
        announce(&*scene.store).await;
        (scene.servers[0].number(&["XLEN", RUNS]) == 1).then_some(())
    })
    .await;
    let nodes = scene.store.condition(&jobs).await.unwrap().nodes;
    assert!(
        nodes.iter().all(|n| n.standing == NodeStanding::Counts),
        "{nodes:?}"
    );
    // So it does for what is decided next, with one of the others down.
    scene.servers[1].stop();
    scene.granted("b", 2).await;
    scene.finish("b", 2).await;
    let at = |n| Some(scene.start.plus(Duration::from_millis(n)));
    assert_eq!(
        scene.outcomes().await,
        [(at(2), Outcome::Succeeded), (at(1), Outcome::Succeeded)]
    );
}

/// The result of a run replaces the record that it was interrupted. If it is a success, no failure says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_succeeded_after_all_is_no_failure_though_one_node_missed_its_result() {
    let scene = Scene::new(LONG).await;
    scene.granted("a", 1).await;
    scene.ends("a", 1, Outcome::Failed).await;
    eventually("all nodes have the failure", async || {
        let has = |server: &RedisServer| server.number(&["XLEN", FAILURES]) == 1;
        scene.servers.iter().all(has).then_some(())
    })
    .await;
    let at = |n| Some(scene.start.plus(Duration::from_millis(n)));
    // Its place in the list is behind the failure's on each node, also if all is of one millisecond.
    let later = format!(
        "{}-0",
        Timestamp::now().plus(Duration::from_secs(1)).millis()
    );
    let interrupted = |server: &RedisServer| {
        let at = at(2).unwrap().millis().to_string();
        let record = ["job", "j", "run_id", "run-b", "kind", "schedule"];
        let times = ["scheduled_at", at.as_str(), "finished_at", at.as_str()];
        let verdict = ["outcome", "interrupted", "host", "h", "attempts", "1"];
        let add = ["XADD", FAILURES, later.as_str()];
        server.command(&[&add[..], &record, &times, &verdict].concat());
    };
    let failures = async || {
        let failures = scene.store.failures(&[], 10).await.unwrap().records;
        let of = |it: &cronlatch::store::Record| (it.scheduled_at, it.outcome);
        failures.iter().map(of).collect::<Vec<_>>()
    };
    // The others have removed it. While one of them is late to reply, it may be on record.
    interrupted(&scene.servers[2]);
    eventually("both others deny it", async || {
        (failures().await == [(at(1), Outcome::Failed)]).then_some(())
    })
    .await;
    // Two of three nodes have it, so perhaps nobody has replaced it.
    interrupted(&scene.servers[1]);
    let both = [(at(2), Outcome::Interrupted), (at(1), Outcome::Failed)];
    assert_eq!(failures().await, both);
}
