//! Daemons of two versions on one store, and a store of another format.
//!
//! The tests that need the program of another version are ignored: `make test-mixed PREVIOUS=COMMIT`
//! builds it and runs them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::support::{Daemon, RedisServer, RunLog, command, wait_until};

fn tick(store: &str, runs: &RunLog) -> String {
    format!(
        "store: {store}\njobs:\n  - name: tick\n    every: 1s\n    on_overlap: queue\n    \
         lock: {{ ttl: 3s }}\n    kill_grace: 200ms\n    command: '{}'\n",
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
    let mut old = command::command(previous());
    old.args(["history", "tick", "--store", &store]);
    let refused = command::output(old).expect_code(69).stderr;
    assert!(
        refused.contains("written by a newer cronlatch"),
        "{refused}"
    );
}
