//! Keys that belong to no single job: those that can be written anew are, and all are named.

use serde_json::json;

use crate::support::cluster::Replicas;
use crate::support::redis::{documented_cluster_rights, documented_rights};
use crate::support::{Cluster, Daemon, RedisServer, cronlatch, wait_for};

const REBUILT: [&str; 2] = ["cronlatch:listed:one", "cronlatch:hosts"];
const LISTING: &str = "cronlatch:{waits}:listing";
const OUTAGE: &[&str] = &["the store is unreachable"];

fn list(store: &str) -> String {
    let job = |name: &str, on_store_down: &str| {
        json!({
            "name": name, "every": "1s", "command": "true", "on_store_down": on_store_down,
            "lock": { "ttl": "3s" }, "kill_grace": 0,
        })
    };
    json!({ "store": store, "jobs": [job("waits", "wait"), job("runs", "run")] }).to_string()
}

fn succeeded(daemon: &Daemon, job: &str) -> usize {
    daemon.lines_with(&["finished", "succeeded", &format!("job={job} ")])
}

/// Waits until each job has run twice more, under its lock.
fn wait_for_runs(daemon: &mut Daemon) {
    for job in ["waits", "runs"] {
        let before = succeeded(daemon, job);
        daemon.wait_until(&format!("{job} runs"), |daemon| {
            succeeded(daemon, job) >= before + 2
        });
    }
    assert_eq!(daemon.lines_with(&["without a lock"]), 0);
    assert_eq!(daemon.lines_with(OUTAGE), 0);
}

/// `damage` sets a key of the store to a string.
fn is_replaced_and_named(url: &str, damage: impl Fn(&str)) {
    cronlatch(&["init", "--store", url]);
    for key in REBUILT {
        damage(key);
    }
    let mut daemon = Daemon::on("one", list(url)).start();
    wait_for_runs(&mut daemon);
    for key in REBUILT {
        daemon.wait_log(&["WARN", "replaced the key", key]);
    }
    let before = daemon.lines_with(&["replaced the key"]);
    for key in REBUILT {
        damage(key);
    }
    daemon.wait_until("the hosts are written anew", |daemon| {
        daemon.lines_with(&["replaced the key"]) > before
    });
    wait_for_runs(&mut daemon);
    let status = daemon.ask(&["status", "--json"]).expect_code(0);
    assert_eq!(status.json_lines()[0]["hosts"][0]["name"], "one");
    // What a host says about one of its jobs is looked at with each announcement.
    damage(LISTING);
    daemon.wait_log(&["WARN", "replaced the key", LISTING]);
    wait_for_runs(&mut daemon);
    // The list of the host's jobs is read at a start and written once a day.
    daemon.terminate();
    damage(REBUILT[0]);
    let mut again = Daemon::on("one", list(url)).start();
    again.wait_log(&["WARN", "replaced the key", REBUILT[0]]);
    wait_for_runs(&mut again);
}

#[test]
fn shared_keys_of_another_type_are_replaced_on_a_single_server() {
    let redis = RedisServer::builder()
        .user("cronlatch", documented_rights())
        .start();
    is_replaced_and_named(&redis.url(), |key| {
        redis.command(&["DEL", key]);
        redis.command(&["SET", key, "junk"]);
    });
}

#[test]
fn shared_keys_of_another_type_are_replaced_on_several_nodes() {
    let nodes = [(); 3].map(|()| RedisServer::start());
    let urls = nodes.each_ref().map(RedisServer::url).join(",");
    is_replaced_and_named(&urls, |key| {
        for node in &nodes {
            node.command(&["DEL", key]);
            node.command(&["SET", key, "junk"]);
        }
    });
}

#[test]
fn shared_keys_of_another_type_are_replaced_in_a_cluster() {
    let cluster = Cluster::start(Replicas::None, &documented_cluster_rights());
    let url = cluster.url_of(&[0]);
    wait_for("it is declared new", || {
        let done = cronlatch(&["init", "--store", &url]);
        (done.code() == 0).then_some(())
    });
    is_replaced_and_named(&url, |key| {
        cluster.command(key, &["DEL", key]);
        cluster.command(key, &["SET", key, "junk"]);
    });
}

#[test]
fn a_marker_of_another_type_is_named_with_its_repair() {
    let redis = RedisServer::start();
    let mut daemon = Daemon::on("one", list(&redis.url())).start();
    wait_for_runs(&mut daemon);
    redis.command(&["DEL", "cronlatch:store"]);
    redis.command(&["SET", "cronlatch:store", "junk"]);
    daemon.wait_log(&[
        "ERROR",
        "cronlatch:store",
        "of another type",
        "DEL cronlatch:store",
    ]);
    let status = daemon.ask(&["status"]).expect_code(69).stderr;
    assert!(status.contains("DEL cronlatch:store"), "{status}");
    assert!(!status.contains("script"), "{status}");
    let doctor = daemon.ask(&["doctor", "--json"]).expect_code(1).stdout;
    assert!(doctor.contains("store.keys"), "{doctor}");
    assert!(doctor.contains("DEL cronlatch:store"), "{doctor}");
    redis.command(&["DEL", "cronlatch:store"]);
    let before = succeeded(&daemon, "waits");
    daemon.wait_until("it runs after one ttl", |daemon| {
        succeeded(daemon, "waits") > before
    });
}

#[test]
fn a_node_whose_marker_is_of_another_type_is_named_and_the_others_decide() {
    let nodes = [(); 3].map(|()| RedisServer::start());
    let urls = nodes.each_ref().map(RedisServer::url).join(",");
    cronlatch(&["init", "--store", &urls]);
    let mut daemon = Daemon::on("one", list(&urls)).start();
    wait_for_runs(&mut daemon);
    nodes[0].command(&["DEL", "cronlatch:node"]);
    nodes[0].command(&["SET", "cronlatch:node", "junk"]);
    wait_for_runs(&mut daemon);
    daemon.wait_log(&[&nodes[0].url(), "DEL cronlatch:node"]);
    let doctor = daemon.ask(&["doctor", "--json"]).stdout;
    assert!(doctor.contains("DEL cronlatch:node"), "{doctor}");
    let status = daemon.ask(&["status"]).stdout;
    assert!(status.contains(&nodes[0].url()), "{status}");
}
