//! Daemons whose nodes go away, or lose all they know, in the middle of a run: it ends with one
//! verdict, its own, and is not run again.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use cronlatch::time::Timestamp;
use serde_json::Value;

use super::urls;
use crate::support::runlog::Entry;
use crate::support::{Daemon, RedisServer, RunLog, cronlatch, wait_until};

/// Two daemons on three nodes, and a job whose runs end when they are told to.
struct Fleet {
    servers: Vec<RedisServer>,
    hosts: Vec<Daemon>,
    log: RunLog,
    may_end: PathBuf,
}

impl Fleet {
    fn start(servers: Vec<RedisServer>) -> Self {
        let log = RunLog::new();
        let may_end = log.path().with_file_name("may-end");
        let jobs = format!(
            "\
store: {{ redis: [{}] }}
defaults: {{ kill_grace: 200ms, lock: {{ ttl: 6s }}, catch_up: none }}
jobs:
  - {{ name: job, every: 2s, on_crash: rerun, command: '{}; until [ -e {} ]; do sleep 0.05; done; {}' }}
  - {{ name: tick, every: 1s, command: 'true' }}
",
            urls(&servers).join(", "),
            log.begin(),
            may_end.display(),
            RunLog::end(),
        );
        let urls = servers.iter().map(RedisServer::url).collect::<Vec<_>>();
        cronlatch(&["init", "--store", &urls.join(",")]).expect_code(0);
        let hosts: Vec<Daemon> = ["one", "two"]
            .map(|host| Daemon::on(host, jobs.as_str()).start())
            .into();
        let mut fleet = Self {
            servers,
            hosts,
            log,
            may_end,
        };
        let begun = fleet.log.path().to_owned();
        fleet.hosts[0].wait_until("it runs", |_| begun.exists());
        fleet
    }

    fn first(&self) -> Entry {
        self.log.entries()[0].clone()
    }

    /// The job may end.
    fn let_it_end(&mut self) {
        fs::write(&self.may_end, "").expect("a writable directory");
        let log = &self.log;
        self.hosts[0].wait_until("it ends", |_| log.entries()[0].ended);
    }

    fn records(&self, job: &str) -> Vec<Value> {
        let output = self.hosts[0].ask(&["history", "--json", "--limit", "1000", job]);
        output.expect_code(0).json_lines()
    }

    /// What is on record of the first occurrence that ran.
    fn verdicts(&self) -> Vec<String> {
        let first = self.first();
        let of_it = |record: &&Value| {
            let at = record["scheduled_at"].as_str().unwrap_or_default();
            let until = record["until"].as_str().unwrap_or(at);
            let due = first.scheduled.expect("it was due");
            !at.is_empty() && instant(at).millis() <= due && due <= instant(until).millis()
        };
        let records = self.records("job");
        let outcome = |record: &Value| record["outcome"].as_str().unwrap_or_default().to_owned();
        records.iter().filter(of_it).map(outcome).collect()
    }

    /// Waits until an occurrence has run that nobody was granted before this call: results of earlier runs may arrive
    /// meanwhile.
    fn wait_recovered(&mut self) {
        // No occurrence is granted earlier ahead of its instant.
        let since = Timestamp::now().plus(Duration::from_secs(1));
        let is_new = |record: &Value| {
            let due = record["scheduled_at"].as_str();
            record["outcome"] == "succeeded" && due.is_some_and(|at| instant(at) > since)
        };
        wait_until("jobs start again", || {
            self.records("tick").iter().any(is_new)
        });
    }
}

fn instant(text: &str) -> Timestamp {
    Timestamp::parse(text).expect("an instant")
}

#[test]
fn a_run_that_ends_while_a_majority_is_down_keeps_its_verdict() {
    let durable_server = || {
        let server = RedisServer::builder().arg("--appendonly").arg("yes");
        server.arg("--appendfsync").arg("always").start()
    };
    let mut fleet = Fleet::start((0..3).map(|_| durable_server()).collect());
    for server in &mut fleet.servers[1..] {
        server.stop();
    }
    fleet.let_it_end();
    let key = "cronlatch:{job}:lock";
    let servers = &fleet.servers;
    fleet.hosts[0].wait_until("its lease is over", |_| {
        servers[0].number(&["EXISTS", key]) == 0
    });
    for server in &mut fleet.servers[1..] {
        server.crash_and_restart();
    }
    fleet.wait_recovered();
    assert_eq!(fleet.verdicts(), ["succeeded"], "{}", fleet.hosts[0].log());
    fleet.log.assert_each_once();
    let first = fleet.first();
    assert!(first.ended && first.attempt == 1, "{first:#?}");
}

#[test]
fn a_run_that_all_nodes_forget_is_never_unknown_and_then_succeeds() {
    let mut fleet = Fleet::start((0..3).map(|_| RedisServer::start()).collect());
    for server in &mut fleet.servers {
        server.crash_and_restart();
    }
    fleet.wait_recovered();
    assert_eq!(
        fleet.verdicts(),
        [] as [&str; 0],
        "it runs:\n{}",
        fleet.hosts[0].log()
    );
    assert!(!fleet.first().ended);
    fleet.let_it_end();
    wait_until("it has a verdict", || !fleet.verdicts().is_empty());
    assert_eq!(fleet.verdicts(), ["succeeded"], "{}", fleet.hosts[0].log());
    fleet.log.assert_each_once();
}
