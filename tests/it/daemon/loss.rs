//! A store that loses its data under a fleet.

use super::{assert_no_silence, has, instant, records, wait_outcome, wait_record};
use crate::support::{Daemon, RedisServer, RunLog, cronlatch};

/// A TTL in whose third a busy machine gets a renewal through.
const SHORT: &str = "kill_grace: 200ms, lock: { ttl: 3s }";

#[test]
fn a_job_lives_through_the_loss_of_all_data_and_nobody_runs_beside_it() {
    let redis = RedisServer::start();
    let log = RunLog::new();
    let list = format!(
        "\
store: {}
defaults: {{ {SHORT} }}
jobs:
  - {{ name: job, every: 1s, command: '{}' }}
",
        redis.url(),
        log.job("5"),
    );
    let mut hosts = ["one", "two"].map(|host| Daemon::on(host, list.as_str()).start());
    hosts[0].wait_until("it runs", |_| !log.entries().is_empty());
    redis.command(&["FLUSHALL"]);
    // Declared new, the store would start the next one beside it.
    let refused = hosts[0].ask(&["init"]).expect_code(78);
    assert!(
        refused
            .stderr
            .contains("2 daemons are connected (one, two)"),
        "{refused:#?}"
    );
    hosts[0].wait_until("the next one runs", |_| log.entries().len() > 1);
    let entries = log.entries();
    assert!(entries[0].ended, "{entries:#?}");
    let run_id = entries[0].run_id.clone();
    let record = wait_record(&mut hosts[1], "job", "of the first run", |record| {
        record["run_id"] == run_id.as_str()
    });
    assert_eq!(record["outcome"], "succeeded", "{record:#}");
    log.assert_no_overlap();
    log.assert_each_once();
    log.assert_fences_rise();
    assert_no_silence(&records(&hosts[0], "job"));
    let holder = hosts
        .iter()
        .filter(|host| host.lines_with(&["re-acquired"]) > 0);
    assert_eq!(holder.count(), 1, "its holder said that it took it back");
    for host in &mut hosts {
        let said = host.lines_with(&["nothing starts until"]);
        assert!(said <= 1, "once for one loss:\n{}", host.log());
        host.kill();
    }
}

#[test]
fn what_ran_after_the_snapshot_that_a_server_restarts_with_does_not_run_again() {
    let mut redis = RedisServer::start();
    let log = RunLog::new();
    let list = format!(
        "\
store: {}
defaults: {{ {SHORT} }}
jobs:
  - {{ name: job, every: 3s, catch_up: all, command: '{}' }}
",
        redis.url(),
        log.job("0"),
    );
    let mut hosts = ["one", "two"].map(|host| Daemon::on(host, list.as_str()).start());
    // Long before the next one, so that none is under way when it saves and when it crashes.
    let has_run = |count| move |host: &Daemon| records(host, "job").len() >= count;
    hosts[0].wait_until("it has run", has_run(1));
    redis.command(&["SAVE"]);
    hosts[0].wait_until("it has run again", has_run(2));
    redis.crash_and_restart();
    let before = log.entries().len();
    hosts[0].wait_until("it runs again", |_| log.entries().len() > before);
    log.assert_each_once();
    log.assert_fences_rise();
    let record = wait_outcome(&mut hosts[1], "job", "unknown");
    assert!(has(&record["reason"], "lost data"), "{record:#}");
    let known = records(&hosts[0], "job");
    let due = |record: &serde_json::Value| instant(&record["scheduled_at"]);
    for entry in log.entries() {
        let decided = known.iter().any(|record| {
            let at = entry.scheduled;
            let until = instant(&record["until"]).or(due(record));
            due(record).map(|t| t.timestamp_millis()) <= at
                && at <= until.map(|t| t.timestamp_millis())
        });
        assert!(decided, "{entry:#?} has no verdict: {known:#?}");
    }
}

#[test]
fn a_first_start_without_init_says_why_it_waits_and_until_when() {
    let redis = RedisServer::builder().unmarked().start();
    let list = format!(
        "\
store: {}
defaults: {{ {SHORT} }}
jobs:
  - {{ name: job, every: 1s, command: 'true' }}
",
        redis.url(),
    );
    let mut daemon = Daemon::on("host", list).start();
    daemon.wait_log(&["nothing starts until", "cronlatch init"]);
    let url = redis.url();
    let exec = |wait: &str| {
        let args = [
            "exec", "--store", &url, "--lock", "x", "--ttl", "4s", "--wait", wait,
        ];
        cronlatch(&[&args[..], &["--", "true"]].concat())
    };
    let refused = exec("0s").expect_code(75);
    assert!(refused.stderr.contains("lost its data"), "{refused:#?}");
    let status = daemon
        .ask(&["status", "--json"])
        .expect_code(0)
        .json_lines();
    assert!(status[0]["lost_data_at"].is_string(), "{status:#?}");
    exec("60s").expect_code(0);
    wait_outcome(&mut daemon, "job", "succeeded");
    daemon.wait_log(&["the store has recovered"]);
    assert_eq!(daemon.lines_with(&["nothing starts until"]), 1);
}
