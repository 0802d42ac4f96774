//! Daemons of two versions on one store, and a store of another format.
//!
//! The tests that need the program of another version are ignored: `make test-mixed PREVIOUS=COMMIT`
//! builds it and runs them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::cluster::Replicas;
use crate::support::redis::documented_cluster_rights;
use crate::support::{Cluster, Daemon, RedisServer, RunLog, command, cronlatch, wait_until};

fn tick(store: &str, runs: &RunLog) -> String {
    format!(
        "\
store: {store}
jobs:
  - name: tick
    every: 1s
    on_overlap: queue
    lock: {{ ttl: 3s }}
    kill_grace: 200ms
    command: '{}'
",
        runs.job("0.02")
    )
}

#[test]
fn a_daemon_that_finds_another_format_starts_nothing_and_says_why() {
    let redis = RedisServer::start();
    let runs = RunLog::new();
    redis.command(&["HSET", "cronlatch:store", "format", "2"]);
    let mut daemon = Daemon::on("one", tick(&redis.url(), &runs)).spawn();
    daemon.wait_log(&["the store has format 2, written by another version"]);
    assert!(runs.entries().is_empty());
    assert_eq!(redis.number(&["EXISTS", "cronlatch:{tick}:job:tick"]), 0);
    // As after a rollback of the other daemons.
    redis.command(&["HSET", "cronlatch:store", "format", "1"]);
    daemon.wait_until("it runs", |_| !runs.entries().is_empty());
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Each command that uses the store, with options that keep it from asking or waiting.
const COMMANDS: [&[&str]; 14] = [
    &["status"],
    &["status", "--json"],
    &["history"],
    &["history", "--failed"],
    &["history", "tick", "--json"],
    &["explain", "tick"],
    &["logs", "tick"],
    &["trigger", "tick"],
    &["trigger", "tick", "--here"],
    &["kill", "tick"],
    &["pause", "tick"],
    &["resume", "tick"],
    &["unlock", "tick", "--yes"],
    &["forget", "tick"],
];

/// The keys of a server: those that expire, and the others.
fn keys(server: &RedisServer) -> [BTreeSet<String>; 2] {
    let script = "local found = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
                  local kind = redis.call('PTTL', key) == -1 and 'stays ' or 'expires ' \
                  table.insert(found, kind .. key) end return table.concat(found, '\\n')";
    let found = server.text(&["EVAL", script, "0"]);
    ["expires ", "stays "].map(|kind| {
        let keys = found.lines().filter_map(|line| line.strip_prefix(kind));
        keys.map(str::to_owned).collect()
    })
}

/// Every command refuses a store of another format in words, and changes nothing. What earlier runs have
/// left may expire meanwhile.
#[track_caller]
fn every_command_refuses(store: &str, servers: &[&RedisServer], list: &Path) {
    let before: Vec<_> = servers.iter().map(|server| keys(server)).collect();
    let refused = |args: &[&str]| {
        let mut command = command::command(command::BINARY);
        let list = list.to_str().expect("UTF-8");
        command.args(args).args(["-c", list, "--store", store]);
        let output = command::output(command);
        let said = "the store has format 2, written by another version";
        let shown = format!("{}{}", output.stdout, output.stderr);
        assert!(shown.contains(said), "{args:?}: {shown}");
        output
    };
    for args in COMMANDS {
        refused(args).expect_code(69);
    }
    refused(&["status", "--check"]).expect_code(3);
    refused(&["doctor"]).expect_code(69);
    let mut exec = command::command(command::BINARY);
    exec.args(["exec", "--store", store, "--lock", "tick", "--", "true"]);
    let refused = command::output(exec).expect_code(69).stderr;
    assert!(refused.contains("the store has format 2"), "{refused}");
    for (server, [expired, stayed]) in servers.iter().zip(before) {
        let [expires, stays] = keys(server);
        assert_eq!(stays, stayed);
        assert!(expires.is_subset(&expired), "{expires:?} {expired:?}");
    }
}

fn written_list(store: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let list = dir.path().join("jobs.yaml");
    std::fs::write(&list, tick(store, &RunLog::new())).expect("it can be written");
    (dir, list)
}

#[test]
fn every_command_refuses_a_server_of_another_format() {
    let redis = RedisServer::start();
    let (_dir, list) = written_list(&redis.url());
    redis.command(&["HSET", "cronlatch:store", "format", "2"]);
    every_command_refuses(&redis.url(), &[&redis], &list);
}

/// What a node among several keeps of itself; the first request writes it.
const NODE_MARKER: &str = "cronlatch:node";

#[test]
fn every_command_and_daemon_refuses_nodes_of_another_format() {
    let nodes = [(); 3].map(|()| RedisServer::start());
    let store = nodes.each_ref().map(RedisServer::url).join(",");
    let (_dir, list) = written_list(&nodes[0].url());
    let runs = RunLog::new();
    let yaml = tick(&format!("[{store}]"), &runs);
    let mut daemon = Daemon::on("one", yaml.as_str()).start();
    // Two nodes are enough for a run; the third may hear of it later.
    daemon.wait_until("it runs, and every node has its marker", |_| {
        let is_marked = |node: &RedisServer| node.number(&["HEXISTS", NODE_MARKER, "format"]) == 1;
        !runs.entries().is_empty() && nodes.iter().all(is_marked)
    });
    daemon.terminate();
    for node in &nodes {
        for marker in ["cronlatch:store", NODE_MARKER] {
            assert_eq!(node.text(&["HGET", marker, "format"]), "1", "{marker}");
            node.command(&["HSET", marker, "format", "2"]);
        }
    }
    let ran = runs.entries().len();
    let mut daemon = Daemon::on("one", yaml.as_str()).spawn();
    daemon.wait_log(&["the store has format 2, written by another version"]);
    every_command_refuses(&store, &nodes.each_ref(), &list);
    assert_eq!(runs.entries().len(), ran);
    for node in &nodes {
        for marker in ["cronlatch:store", NODE_MARKER] {
            node.command(&["HSET", marker, "format", "1"]);
        }
    }
    daemon.wait_until("it runs", |_| runs.entries().len() > ran);
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// A Cluster has a marker in each part. Commands meet the one of the part that they ask first.
#[test]
fn every_command_and_daemon_refuses_a_cluster_of_another_format() {
    let cluster = Cluster::start(Replicas::None, &documented_cluster_rights());
    let store = cluster.url_of(&[0, 1, 2]);
    cronlatch(&["init", "--store", &store]).expect_code(0);
    let (_dir, list) = written_list(&store);
    let runs = RunLog::new();
    let yaml = tick(&store, &runs);
    let mut daemon = Daemon::on("one", yaml.as_str()).start();
    daemon.wait_until("it runs", |_| !runs.entries().is_empty());
    daemon.terminate();
    set_format_of_cluster(&cluster, "2");
    let ran = runs.entries().len();
    let mut daemon = Daemon::on("one", yaml.as_str()).spawn();
    daemon.wait_log(&["the store has format 2, written by another version"]);
    let servers: Vec<&RedisServer> = cluster.servers.iter().collect();
    every_command_refuses(&store, &servers, &list);
    assert_eq!(runs.entries().len(), ran);
    set_format_of_cluster(&cluster, "1");
    daemon.wait_until("it runs", |_| runs.entries().len() > ran);
    assert_eq!(daemon.terminate().code(), Some(0));
}

/// Writes this format into the markers of all parts.
fn set_format_of_cluster(cluster: &Cluster, format: &str) {
    let script = "local count = 0 for _, key in ipairs(redis.call('KEYS', '*:store')) do \
                  redis.call('HSET', key, 'format', ARGV[1]) count = count + 1 end return count";
    let markers = cluster.servers.iter();
    let markers = markers.map(|server| server.number(&["EVAL", script, "0", format]));
    assert!(markers.sum::<i64>() > 0, "the Cluster has no marker");
}

/// The program of another version.
fn previous() -> PathBuf {
    let path = std::env::var_os("CRONLATCH_PREVIOUS");
    PathBuf::from(path.expect("`make test-mixed PREVIOUS=COMMIT` names the program"))
}

/// Three hosts are upgraded one after the other: one is stopped, one is killed, one joins. Each
/// occurrence runs once, and none is missed.
fn upgrade(store: &str) {
    let runs = RunLog::new();
    let list = tick(store, &runs);
    let old = |host: &str| Daemon::on(host, list.as_str()).program(previous()).start();
    let new = |host: &str| Daemon::on(host, list.as_str()).start();
    let runs_on = |host: &str, since: usize| {
        wait_until(&format!("an occurrence runs on {host}"), || {
            runs.entries().iter().skip(since).any(|it| it.host == host)
        });
    };
    let mut hosts = ["one", "two"].map(old);
    wait_until("an occurrence has run", || !runs.entries().is_empty());
    let joined = new("three");
    runs_on("three", 0);
    hosts[0].terminate();
    let first = new("one");
    hosts[1].kill();
    let second = new("two");
    let after = runs.entries().len();
    wait_until("ten more have run", || runs.entries().len() >= after + 10);
    // Back to the old version, on Redis: a file of the new format it refuses.
    drop((first, second));
    if !store.starts_with("sqlite") {
        let back = old("one");
        runs_on("one", runs.entries().len());
        let status = back.ask(&["status", "--json"]).expect_code(0);
        let report = status.json_lines().remove(0);
        let hosts = report["hosts"].as_array().expect("a list").iter();
        let live: BTreeSet<_> = hosts.filter_map(|host| host["name"].as_str()).collect();
        // A host that was killed stays listed for a while.
        assert!(live.is_superset(&["one", "three"].into()), "{report}");
    }
    drop(joined);
    runs.assert_each_once();
    runs.assert_no_overlap();
    runs.assert_fences_rise();
}

#[test]
#[ignore = "needs the program of another version: make test-mixed"]
fn a_fleet_on_redis_is_upgraded_host_by_host_and_back() {
    upgrade(&RedisServer::start().url());
}

#[test]
#[ignore = "needs the program of another version: make test-mixed"]
fn the_daemons_of_one_file_are_upgraded_one_by_one() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = format!("sqlite:{}/store.db", dir.path().display());
    upgrade(&store);
    let old = |args: &[&str], store: &str| {
        let mut old = command::command(previous());
        old.args(args).args(["--store", store]);
        command::output(old)
    };
    let own = dir.path().join("own.db");
    old(&["init"], &format!("sqlite:{}", own.display())).expect_code(0);
    let said = old(&["history", "tick"], &store);
    if format_of(&own) == format_of(&dir.path().join("store.db")) {
        let said = said.expect_code(0).stdout;
        assert!(said.contains("succeeded"), "{said}");
    } else {
        let refused = said.expect_code(69).stderr;
        let why = "written by a newer cronlatch";
        assert!(refused.contains(why), "{refused}");
    }
}

/// The format of an embedded store: SQLite keeps it in the header of the file, as `user_version`.
fn format_of(file: &Path) -> Vec<u8> {
    std::fs::read(file).expect("a file")[60..64].to_vec()
}
