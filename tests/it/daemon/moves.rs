//! A rolling restart that changes a job's lock: no occurrence runs twice, and none is lost.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{assert_no_silence, records, verdicts};
use crate::support::cluster::Replicas;
use crate::support::redis::documented_cluster_rights;
use crate::support::{Cluster, Daemon, RedisServer, RunLog};

fn list(store: &str, log: &RunLog, lock: &str) -> String {
    format!(
        "\
store: {store}
jobs:
  - name: tick
    every: 1s
    start_deadline: 60s
    catch_up: all
    on_overlap: queue
    queue_limit: 100
    lock: {{ ttl: 3s, {lock} }}
    kill_grace: 200ms
    command: '{}'
",
        log.job("0.05")
    )
}

fn runs_on(log: &RunLog, host: &str) -> usize {
    let entries = log.entries();
    entries.iter().filter(|entry| entry.host == host).count()
}

/// The hosts that `status` says hold the job back, and by whom.
fn held_back(daemon: &Daemon) -> Vec<(String, Vec<String>)> {
    let status = &daemon
        .ask(&["status", "--json"])
        .expect_code(0)
        .json_lines()[0];
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let hosts = status["hosts"].as_array().expect("a list").iter();
    hosts
        .flat_map(|host| {
            let held = host["held_back"].as_array().cloned().unwrap_or_default();
            let by = |held: &Value| {
                held["by"]
                    .as_array()
                    .expect("a list")
                    .iter()
                    .map(text)
                    .collect()
            };
            held.iter()
                .map(|held| (text(&host["name"]), by(held)))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Two hosts change from one lock to another, one after the other, and one changes back.
fn rolls_from(store: &str, before: &str, after: &str) {
    let log = RunLog::new();
    let (old, new) = (list(store, &log, before), list(store, &log, after));
    let mut one = Daemon::on("one", old.as_str()).start();
    let mut two = Daemon::on("two", old.as_str()).start();
    one.wait_until("it runs", |_| log.entries().len() >= 2);
    assert_eq!(one.terminate().code(), Some(0));
    // Host one comes back with the new list, and claims nothing while host two has the old one.
    let mut one = Daemon::on("one", new.as_str()).start();
    one.wait_log(&["tick", "two still uses"]);
    one.wait_until("status says so", |one| {
        held_back(one) == [("one".to_owned(), vec!["two".to_owned()])]
    });
    let text = one.ask(&["status"]).expect_code(0).stdout;
    assert!(text.contains("held back on one"), "{text}");
    let (idle, busy) = (runs_on(&log, "one"), runs_on(&log, "two"));
    two.wait_until("host two goes on", |_| runs_on(&log, "two") >= busy + 3);
    assert_eq!(runs_on(&log, "one"), idle, "host one holds the job back");
    two.wait_log(&["tick", "host one holds this job back"]);
    // A run by hand with the new list would not exclude those of host two.
    let refused = one.ask(&["trigger", "--here", "tick"]);
    let refused = refused.expect_code(75);
    assert!(
        refused.stderr.contains("two still uses"),
        "{}",
        refused.stderr
    );
    assert_eq!(two.terminate().code(), Some(0));
    one.wait_log(&["tick", "its ledger moved"]);
    one.wait_until("it goes on", |_| runs_on(&log, "one") >= idle + 3);
    assert_eq!(held_back(&one), []);
    // The other one follows, and then both are rolled back.
    let mut two = Daemon::on("two", new.as_str()).start();
    let there = log.entries().len();
    two.wait_until("both run", |_| log.entries().len() >= there + 2);
    assert_eq!(one.terminate().code(), Some(0));
    assert_eq!(two.terminate().code(), Some(0));
    let mut one = Daemon::on("one", old.as_str()).start();
    let there = log.entries().len();
    one.wait_until("it runs again", |_| log.entries().len() >= there + 3);
    let records = records(&one, "tick");
    assert_eq!(one.terminate().code(), Some(0));
    log.assert_each_once();
    log.assert_no_overlap();
    log.assert_none_missing(1000);
    assert_no_silence(&records);
    assert!(
        verdicts(&records)
            .values()
            .all(|verdict| verdict == "succeeded")
    );
}

#[test]
fn a_rolling_restart_may_change_the_name_of_a_lock() {
    let redis = RedisServer::start();
    rolls_from(&redis.url(), "name: tick", "name: other");
}

#[test]
fn a_host_with_another_lock_is_held_back_although_the_store_has_just_lost_who_uses_which() {
    let redis = RedisServer::start();
    let log = RunLog::new();
    let [old, new] = ["name: tick", "name: other"].map(|lock| list(&redis.url(), &log, lock));
    let mut two = Daemon::on("two", old.as_str()).start();
    two.wait_until("it runs", |_| log.entries().len() >= 2);
    // Host two finds out with its next claim, a second later.
    let there = log.entries().len();
    two.wait_until("it has just run", |_| log.entries().len() > there);
    redis.command(&["FLUSHALL"]);
    let mut one = Daemon::on("one", new.as_str()).start();
    one.wait_log(&["tick", "two still uses"]);
    let there = log.entries().len();
    two.wait_until("host two goes on", |_| log.entries().len() >= there + 3);
    assert_eq!(runs_on(&log, "one"), 0, "{:#?}", log.entries());
    assert_eq!(two.terminate().code(), Some(0));
    one.wait_until("it goes on alone", |_| runs_on(&log, "one") >= 2);
    log.assert_each_once();
    log.assert_no_overlap();
}

#[test]
fn a_host_that_slept_while_its_lock_was_changed_and_the_store_forgot_it_does_not_go_on() {
    let redis = RedisServer::start();
    let log = RunLog::new();
    let [old, new] = ["name: tick", "name: other"].map(|lock| list(&redis.url(), &log, lock));
    let mut two = Daemon::on("two", old.as_str()).start();
    two.wait_until("it runs", |_| log.entries().len() >= 2);
    two.signal(Signal::SIGSTOP);
    // Nothing says any more that host two lives, or where the ledger was.
    redis.command(&["FLUSHALL"]);
    let mut one = Daemon::on("one", new.as_str()).start();
    one.wait_until("it runs", |_| runs_on(&log, "one") >= 3);
    two.signal(Signal::SIGCONT);
    two.wait_log(&["tick", "one still uses"]);
    let there = runs_on(&log, "one");
    one.wait_until("it goes on", |_| runs_on(&log, "one") >= there + 2);
    log.assert_each_once();
    log.assert_no_overlap();
}

/// All that the store has, but for which server has it.
fn dumped(redis: &RedisServer) -> Vec<(String, redis::Value)> {
    let keys: Vec<String> = redis::from_redis_value(redis.command(&["KEYS", "*"])).expect("keys");
    let data = keys.into_iter().filter(|key| key != "cronlatch:store");
    let dump = |key: String| (key.clone(), redis.command(&["DUMP", &key]));
    data.map(dump).collect()
}

/// The store goes back to these data; no connection ends.
fn lose_newest(redis: &RedisServer, data: Vec<(String, redis::Value)>) {
    redis.command(&["FLUSHALL"]);
    for (key, dumped) in data {
        redis.restore(&key, dumped);
    }
}

#[test]
fn a_move_that_the_store_has_lost_is_made_again() {
    let redis = RedisServer::start();
    let log = RunLog::new();
    let [old, new] = ["name: tick", "name: other"].map(|lock| list(&redis.url(), &log, lock));
    let mut daemon = Daemon::on("one", old.as_str()).start();
    daemon.wait_until("it runs", |_| log.entries().len() >= 2);
    assert_eq!(daemon.terminate().code(), Some(0));
    let old_data = dumped(&redis);
    let mut daemon = Daemon::on("one", new.as_str()).start();
    let moved = ["tick", "its ledger moved"];
    daemon.wait_log(&moved);
    let there = log.entries().len();
    daemon.wait_until("it goes on", |_| log.entries().len() >= there + 2);
    // The daemon never sees the store away.
    lose_newest(&redis, old_data);
    daemon.wait_until("it moves once more", |daemon| {
        daemon.lines_with(&moved) == 2
    });
    let there = log.entries().len();
    daemon.wait_until("it goes on", |_| log.entries().len() >= there + 2);
    assert_eq!(daemon.lines_with(&["nothing starts until"]), 1);
    assert_eq!(daemon.terminate().code(), Some(0));
    log.assert_each_once();
    log.assert_no_overlap();
}

#[test]
fn a_host_that_claims_nothing_while_the_store_recovers_finds_that_a_move_is_lost() {
    let redis = RedisServer::start();
    let log = RunLog::new();
    let rare = |lock| list(&redis.url(), &log, lock).replace("every: 1s", "every: 24h");
    let [old, new] = ["name: tick", "name: other"].map(rare);
    let mut daemon = Daemon::on("one", old.as_str()).start();
    let ledger = "cronlatch:{tick}:job:tick";
    daemon.wait_until("it is registered", |_| {
        redis.command(&["EXISTS", ledger]) == redis::Value::Int(1)
    });
    assert_eq!(daemon.terminate().code(), Some(0));
    let old_data = dumped(&redis);
    let mut daemon = Daemon::on("one", new.as_str()).start();
    let moved = ["tick", "its ledger moved"];
    daemon.wait_log(&moved);
    lose_newest(&redis, old_data);
    daemon.wait_until("it moves once more", |daemon| {
        daemon.lines_with(&moved) == 2
    });
    assert_eq!(daemon.terminate().code(), Some(0));
}

#[test]
fn a_rolling_restart_may_change_a_lock_to_a_raw_key_of_the_same_hash_tag() {
    let redis = RedisServer::start();
    rolls_from(&redis.url(), "name: tick", "key: tick");
}

#[test]
fn a_rolling_restart_may_change_a_lock_on_a_cluster() {
    let cluster = Cluster::start(Replicas::None, &documented_cluster_rights());
    let url = cluster.url_of(&[0, 1, 2]);
    let init = crate::support::cronlatch(&["init", "--store", &url]);
    init.expect_code(0);
    assert!(cluster.slot("{tick}") != cluster.slot("{other}"));
    rolls_from(&url, "name: tick", "name: other");
}

#[test]
fn a_change_of_the_scope_runs_no_occurrence_of_the_fleet_again() {
    let redis = RedisServer::start();
    let log = RunLog::new();
    let scopes = ["scope: fleet", "scope: host", "scope: none", "scope: fleet"];
    for (n, scope) in scopes.into_iter().enumerate() {
        let list = list(&redis.url(), &log, scope);
        let mut hosts = ["one", "two"].map(|host| Daemon::on(host, list.as_str()).start());
        let before = ["one", "two"].map(|host| runs_on(&log, host));
        hosts[0].wait_until("they run", |_| match n {
            0 | 3 => log.entries().len() >= before[0] + before[1] + 3,
            _ => runs_on(&log, "one") >= before[0] + 3 && runs_on(&log, "two") >= before[1] + 3,
        });
        for host in &mut hosts {
            assert_eq!(host.terminate().code(), Some(0));
        }
    }
    // What the fleet ran, no host ran again; and each host ran an occurrence once.
    let mut seen = std::collections::BTreeSet::new();
    for entry in log.entries() {
        let run = (entry.scheduled, entry.host.clone());
        assert!(seen.insert(run), "twice: {entry:#?}");
    }
}

/// On Redis the hash tag of a lock says where the history of its jobs lies.
#[test]
fn a_history_that_an_earlier_lock_shares_is_shown_once() {
    let redis = RedisServer::start();
    let on = |lock: &str| {
        let list = format!(
            "\
store: {}
jobs:
  - {{ name: job, every: 1s, command: 'true', lock: {{ {lock} }} }}
",
            redis.url()
        );
        let mut daemon = Daemon::on("one", list).start();
        daemon.wait_log(&["finished", "succeeded", "job=job "]);
        daemon.terminate();
        daemon
    };
    on("key: 'app:{nightly}:lock'");
    let daemon = on("name: nightly");
    let runs: Vec<_> = records(&daemon, "job")
        .iter()
        .map(|record| record["run_id"].to_string())
        .collect();
    let once: std::collections::BTreeSet<_> = runs.iter().collect();
    assert!(once.len() >= 2, "{runs:?}");
    assert_eq!(runs.len(), once.len(), "{runs:?}");
    redis.command(&["XADD", "cronlatch:{nightly}:runs:job", "*", "outcome", "?"]);
    let told = daemon.ask(&["history", "job"]).stderr;
    assert_eq!(told.matches("cannot be shown").count(), 1, "{told}");
}
