//! Several hosts, one list.

use crate::support::runlog::Entry;
use crate::support::{Daemon, RedisServer, RunLog, wait_until};

use super::{assert_no_silence, records};

/// `until` must hold before the hosts stop.
fn three_hosts_run_each_occurrence_once(store: &str, until: impl Fn() -> bool) {
    let log = RunLog::new();
    let jobs = format!(
        "\
store: {store}
jobs:
  - name: tick
    every: 1s
    on_overlap: queue
    queue_limit: 100
    command: '{}'
",
        log.job("0.05")
    );
    let mut hosts: Vec<Daemon> = ["one", "two", "three"]
        .map(|host| Daemon::on(host, jobs.as_str()).spawn())
        .into();
    for host in &mut hosts {
        host.wait_ready();
    }
    wait_until("four runs have ended", || {
        log.entries().iter().filter(|entry| entry.ended).count() >= 4
    });
    wait_until("the store has what it should", until);
    for host in &mut hosts {
        assert_eq!(host.terminate().code(), Some(0));
    }
    log.assert_each_once();
    log.assert_no_overlap();
    log.assert_none_early();
    log.assert_fences_rise();
    log.assert_none_missing(1000);
    let records = records(&hosts[0], "tick");
    assert_no_silence(&records);
    let succeeded = |record: &&serde_json::Value| record["outcome"] == "succeeded";
    assert_eq!(
        records.iter().filter(succeeded).count(),
        log.entries().len(),
        "each run has its record: {records:#?}"
    );
}

/// Whether a host has asked the server if another one had claimed an occurrence.
fn was_asked(redis: &RedisServer) -> bool {
    let script = include_str!("../../../src/store/redis/scripts/already_claimed.lua");
    let lines = script.lines().map(str::trim_start);
    let lines = lines.map(|line| if line.starts_with("--") { "" } else { line });
    let text = format!("#!lua\n{}", lines.collect::<Vec<_>>().join("\n"));
    let digest = ::redis::Script::new(&text).get_hash().to_owned();
    let known = redis.command(&["SCRIPT", "EXISTS", &digest]);
    ::redis::from_redis_value(known).is_ok_and(|known: Vec<bool>| known == [true])
}

#[test]
fn three_hosts_on_one_redis_run_each_occurrence_once_and_ask_before_they_claim() {
    let redis = RedisServer::start();
    three_hosts_run_each_occurrence_once(&redis.url(), || was_asked(&redis));
}

#[test]
fn three_daemons_on_one_file_run_each_occurrence_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shared.db");
    three_hosts_run_each_occurrence_once(&format!("sqlite:{}", path.display()), || true);
}

#[test]
fn a_job_for_other_hosts_and_a_disabled_one_do_not_run() {
    let log = RunLog::new();
    let command = log.job("0");
    let jobs = format!(
        "\
jobs:
  - {{ name: theirs, every: 1s, hosts: [db-*], command: '{command}' }}
  - {{ name: off, every: 1s, enabled: false, command: '{command}' }}
  - {{ name: ours, every: 1s, hosts: ['web-?'], command: '{command}' }}
"
    );
    let daemon = Daemon::on("web-1", jobs).start();
    wait_until("ours ran twice", || log.entries().len() >= 2);
    drop(daemon);
    assert!(log.entries().iter().all(|entry| entry.job == "ours"));
}

#[test]
fn without_scope_every_host_runs_every_occurrence_and_runs_that_overlap_lose_nothing() {
    let redis = RedisServer::start();
    let log = RunLog::new();
    let jobs = format!(
        "store: {}\njobs:\n  - {{ name: each, every: 1s, lock: {{ scope: none }}, command: '{}' }}\n",
        redis.url(),
        log.job("1.5")
    );
    let mut one = Daemon::on("one", jobs.as_str()).start();
    let _two = Daemon::on("two", jobs.as_str()).start();
    wait_until("one occurrence has run on both", || {
        let entries = log.entries();
        let on = |host: &str| {
            let ours = entries.iter().filter(move |entry| entry.host == host);
            ours.filter_map(|entry| entry.scheduled)
                .collect::<std::collections::BTreeSet<_>>()
        };
        on("one").intersection(&on("two")).next().is_some()
    });
    wait_until("three runs of one host have ended", || {
        let entries = log.entries();
        let ended = |entry: &Entry| entry.host == "one" && entry.ended;
        entries.iter().filter(|entry| ended(entry)).count() >= 3
    });
    // Every result is delivered by then.
    assert_eq!(one.terminate().code(), Some(0));
    assert_eq!(one.lines_with(&["the lease expired"]), 0);
}
