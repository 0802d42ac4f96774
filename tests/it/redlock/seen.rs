//! What `status` and `doctor` say of the nodes, and how many questions that takes.

use std::fs;
use std::time::Duration;

use cronlatch::names::{JobName, LockName};
use cronlatch::store::{Fingerprint, Lock, NodeStanding, Registration, StoreError};
use serde_json::{Value, json};

use super::{LONG, Scene, job, lock, proxied, store_at, urls};
use crate::contract::eventually;
use crate::support::{Mode, Output, RedisServer, cronlatch};

/// A list on these nodes, in a directory of its own.
fn list(nodes: &[String]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let list = json!({
        "store": { "redis": nodes },
        "jobs": [{ "name": "j", "schedule": "@daily", "lock": { "name": "l" }, "command": "true" }],
    });
    fs::write(dir.path().join("jobs.yaml"), list.to_string()).unwrap();
    dir
}

fn ask(dir: &tempfile::TempDir, what: &[&str]) -> Output {
    let path = dir.path().join("jobs.yaml");
    let path = path.to_str().unwrap();
    cronlatch(&[what, &["-c", path]].concat())
}

fn standings(dir: &tempfile::TempDir) -> Vec<Value> {
    let said = ask(dir, &["status", "--json"]).expect_code(0).json_lines();
    said[0]["nodes"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_says_which_nodes_count_and_when_another_one_may_fail() {
    let mut scene = Scene::new(LONG).await;
    scene.granted("a", 1).await;
    let dir = list(&urls(&scene.servers));
    let of = |nodes: &[Value], server: &RedisServer| {
        let url = server.url();
        let node = nodes.iter().find(|node| node["node"] == url.as_str());
        node.unwrap_or_else(|| panic!("{nodes:#?}")).clone()
    };
    let all = standings(&dir);
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|n| n["standing"] == "counts"), "{all:#?}");
    let said = ask(&dir, &["status"]).expect_code(0).stdout;
    assert!(!said.contains("nodes count"), "{said}");

    scene.servers[1].stop();
    let away = of(&standings(&dir), &scene.servers[1]);
    assert_eq!(away["standing"], "away");
    assert!(away["error"].as_str().unwrap().contains("is unreachable"));
    let said = ask(&dir, &["status"]).expect_code(0).stdout;
    assert!(
        said.contains("2 of 3 nodes count, and 2 must: if one more fails"),
        "{said}"
    );

    scene.servers[1].restart();
    let back = of(&standings(&dir), &scene.servers[1]);
    assert_eq!(back["standing"], "recovering", "{back}");
    assert!(back["recovering_until"].is_string(), "{back}");

    // As if its wait were over.
    scene.servers[1].command(&["HSET", "cronlatch:node", "lost_at", "1", "until", "1"]);
    let back = of(&standings(&dir), &scene.servers[1]);
    assert_eq!(
        (&back["standing"], &back["jobs_left"]),
        (&json!("repairing"), &json!(1)),
        "{back}"
    );
    let said = ask(&dir, &["status"]).expect_code(0).stdout;
    assert!(
        said.contains("do not restart another node before"),
        "{said}"
    );

    scene.servers[0].stop();
    scene.servers[2].stop();
    let said = ask(&dir, &["status"]).expect_code(69).stderr;
    assert!(said.contains("1 of 3 nodes respond, and 2 must"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_majority_recovers_says_so_and_for_how_long() {
    let mut scene = Scene::new(LONG).await;
    for server in &mut scene.servers[..2] {
        server.restart();
    }
    let jobs = [(job(), lock())];
    let told = eventually("both are noticed", async || {
        let _ = scene.store.jobs(&jobs).await;
        let told = scene.store.condition(&jobs).await.ok()?;
        let recovers = |n: &cronlatch::store::NodeCondition| {
            matches!(n.standing, NodeStanding::Recovering { .. })
        };
        (told.nodes.iter().filter(|n| recovers(n)).count() == 2).then_some(told)
    })
    .await;
    assert!(told.lost_at.is_some(), "{told:?}");
    assert!(told.recovering > LONG / 2, "{told:?}");
    let dir = list(&urls(&scene.servers));
    let said = ask(&dir, &["status"]).expect_code(0).stdout;
    assert!(said.contains("no locks are granted until"), "{said}");
    assert!(
        said.contains("1 of 3 nodes count, and 2 must: no locks are granted"),
        "{said}"
    );
}

#[test]
fn doctor_judges_each_node_of_a_list_and_finds_the_rest_beside_a_dead_one() {
    let mut servers: Vec<RedisServer> = (0..3)
        .map(|_| RedisServer::builder().unmarked().start())
        .collect();
    let urls = urls(&servers);
    let dir = list(&urls);
    let findings = || {
        let said = ask(&dir, &["doctor", "--json"]);
        let found = said.json_lines().remove(0)["findings"].take();
        (found.as_array().unwrap().clone(), said.code())
    };
    let of = |found: &[Value], id: &str, subject: &str| -> Vec<String> {
        found
            .iter()
            .filter(|f| f["id"] == id && f["subject"] == subject)
            .map(|f| f["severity"].as_str().unwrap().to_owned())
            .collect()
    };
    let (found, code) = findings();
    assert_eq!(code, 0, "{found:#?}");
    for (server, url) in servers.iter().zip(&urls) {
        for id in ["store.version", "store.eviction", "store.latency"] {
            assert_eq!(of(&found, id, url), ["ok"], "{id}");
        }
        assert_eq!(of(&found, "store.persistence", url), ["warning"]);
        assert_eq!(
            of(&found, "store.nodes", url),
            ["hint"],
            "never declared new"
        );
        assert_eq!(
            server.number(&["DBSIZE"]),
            0,
            "nothing is left behind by looking"
        );
    }

    servers[0].config("maxmemory-policy", "allkeys-lru");
    servers[1].stop();
    let (found, code) = findings();
    assert_eq!(code, 1, "a danger: {found:#?}");
    assert_eq!(of(&found, "store.eviction", &urls[0]), ["danger"]);
    assert_eq!(of(&found, "store.eviction", &urls[2]), ["ok"]);
    assert_eq!(of(&found, "store.reachable", &urls[1]), ["warning"]);
    assert_eq!(of(&found, "store.version", &urls[1]), Vec::<String>::new());

    // One of three nodes recovers.
    servers[0].config("maxmemory-policy", "noeviction");
    let marker = [
        "HSET",
        "cronlatch:node",
        "server",
        "0123",
        "longest",
        "3600000",
    ];
    servers[2].command(&marker);
    let (found, code) = findings();
    assert_eq!(code, 0, "{found:#?}");
    assert_eq!(of(&found, "store.nodes", &urls[2]), ["warning"]);

    servers[2].stop();
    let (found, code) = findings();
    assert_eq!(code, 69, "without a majority there is no store: {found:#?}");
    assert_eq!(of(&found, "store.eviction", &urls[0]), ["ok"]);
}

#[test]
fn doctor_finds_one_server_under_two_names_and_a_replica_among_the_nodes() {
    let (one, two) = (
        RedisServer::builder().unix().start(),
        RedisServer::builder().unmarked().start(),
    );
    let by_port = one.url_on_port();
    let dir = list(&[one.url(), by_port, two.url()]);
    two.command(&["REPLICAOF", "127.0.0.1", &one.port().to_string()]);
    let said = ask(&dir, &["doctor", "--json"]);
    let found = said.json_lines().remove(0)["findings"].take();
    let dangers: Vec<&str> = found
        .as_array()
        .unwrap()
        .iter()
        .filter(|f| f["id"] == "store.nodes" && f["severity"] == "danger")
        .map(|f| f["text"].as_str().unwrap())
        .collect();
    let about = |what: &str| dangers.iter().filter(|text| text.contains(what)).count();
    assert_eq!(about("the same server"), 1, "{found:#?}");
    assert_eq!(about("replica"), 1, "{found:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_jobs_none_waits_for_the_answer_about_another() {
    const JOBS: usize = 40;
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let (proxies, by_proxy) = proxied(&servers);
    let store = store_at(&by_proxy);
    assert_eq!(store.init().await.unwrap(), None);
    let jobs: Vec<(JobName, Lock)> = (0..JOBS)
        .map(|n| {
            let name = format!("j{n}");
            (
                JobName::parse(&name).unwrap(),
                Lock::named(&LockName::parse(&name).unwrap()),
            )
        })
        .collect();
    let registrations: Vec<Registration> = jobs
        .iter()
        .map(|(job, lock)| Registration {
            job: job.clone(),
            lock: lock.clone(),
            fingerprint: Fingerprint("f".into()),
            ttl: Duration::from_secs(30),
        })
        .collect();
    let registered = eventually("they are registered", async || {
        store.register(&registrations).await.ok()
    })
    .await;
    assert_eq!(registered.len(), JOBS);
    let reports = eventually("they are reported", async || store.jobs(&jobs).await.ok()).await;
    let named = reports.iter().map(|report| &report.job);
    assert!(
        named.eq(jobs.iter().map(|(job, _)| job)),
        "in the order asked"
    );

    // The servers get what is asked, and no answer comes back: who asks one by one asks once.
    for proxy in &proxies {
        proxy.set(Mode::DropReplies);
    }
    for server in &servers {
        server.command(&["CONFIG", "RESETSTAT"]);
    }
    let asked = || {
        let calls = |server: &RedisServer| {
            let stats = server.text(&["INFO", "commandstats"]);
            let of = stats.split("cmdstat_evalsha:calls=").nth(1);
            of.and_then(|rest| rest.split(',').next()?.parse::<usize>().ok())
        };
        servers.iter().filter_map(calls).max().unwrap_or(0)
    };
    let refused = store.jobs(&jobs).await;
    assert!(
        matches!(refused, Err(StoreError::Unreachable(_))),
        "{refused:?}"
    );
    let before = asked();
    assert!(before >= JOBS, "{before} questions about {JOBS} jobs");
    for proxy in &proxies {
        proxy.set(Mode::Pass);
    }
    eventually("the nodes answer again", async || {
        store.jobs(&jobs).await.ok()
    })
    .await;
    for proxy in &proxies {
        proxy.set(Mode::DropReplies);
    }
    for server in &servers {
        server.command(&["CONFIG", "RESETSTAT"]);
    }
    let refused = store.register(&registrations).await;
    assert!(
        matches!(refused, Err(StoreError::Unreachable(_))),
        "{refused:?}"
    );
    let before = asked();
    assert!(before >= JOBS, "{before} questions about {JOBS} jobs");
}
