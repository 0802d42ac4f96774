//! Manual runs on a host with a daemon.

use std::path::Path;
use std::process::{Child, Command};

use serde_json::Value;

use super::records;
use crate::support::{Daemon, RedisServer, RunLog, command, wait_until};

/// `trigger JOB --wait`, as another host, with a daemon's list.
fn trigger(list: &Path, host: &str, job: &str) -> Child {
    let mut trigger: Command = command::command(command::BINARY);
    trigger
        .args(["trigger", "--here", job, "--wait"])
        .env("CRONLATCH_CONFIG", list)
        .env("CRONLATCH_HOST", host);
    trigger.spawn().expect("the program starts")
}

/// A run by hand whose process is killed gets its verdict, although no daemon has the job due.
fn a_killed_trigger_is_interrupted(store: &str) {
    let runs = RunLog::new();
    let list = format!(
        "\
store: {store}
jobs:
  - name: off
    enabled: false
    every: 1h
    lock: {{ ttl: 3s }}
    kill_grace: 200ms
    command: '{}'
",
        runs.endless_job()
    );
    let mut daemon = Daemon::on("other", list).start();
    let mut killed = trigger(&daemon.list(), "here", "off");
    wait_until("the job has begun", || !runs.entries().is_empty());
    killed.kill().expect("a child of ours");
    killed.wait().expect("a child of ours");
    let mut found = Vec::new();
    daemon.wait_until("the run has its verdict", |daemon| {
        found = records(daemon, "off");
        !found.is_empty()
    });
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0]["run_id"], *runs.entries()[0].run_id);
    assert_eq!(found[0]["outcome"], "interrupted");
    assert_eq!(found[0]["kind"], "manual");
    assert_eq!(found[0]["host"], "here");
    daemon.wait_log(&["off", "recorded as interrupted"]);
}

#[test]
fn a_run_by_hand_that_is_killed_is_recorded_although_no_host_has_its_job_due() {
    let redis = RedisServer::start();
    a_killed_trigger_is_interrupted(&redis.url());
}

#[test]
fn a_run_by_hand_that_is_killed_is_recorded_in_the_embedded_store_too() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = format!("sqlite:{}/store.db", dir.path().display());
    a_killed_trigger_is_interrupted(&store);
}

/// A job without a lock that goes on until `go` exists.
fn free_job(name: &str, schedule: &str, runs: &RunLog, go: &Path) -> String {
    let waits = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    let command = format!("{}; {waits}; {}", runs.begin(), RunLog::end());
    format!(
        "  - name: {name}
    {schedule}
    lock: {{ scope: none, ttl: 6s }}
    command: '{command}'
"
    )
}

/// Waits until these runs have succeeded, and have no other verdict.
fn wait_one_success_each(daemon: &mut Daemon, job: &str, run_ids: &[String]) {
    daemon.wait_until("each run has its verdict, and that alone", |daemon| {
        let records = records(daemon, job);
        run_ids.iter().all(|run_id| {
            let of_it = |record: &&Value| record["run_id"] == **run_id;
            let outcomes: Vec<_> = records
                .iter()
                .filter(of_it)
                .map(|it| &it["outcome"])
                .collect();
            outcomes == ["succeeded"]
        })
    });
}

#[test]
fn runs_of_a_job_without_a_lock_overlap_by_hand_and_by_schedule_and_each_has_one_verdict() {
    let redis = RedisServer::start();
    let (by_hand, scheduled) = (RunLog::new(), RunLog::new());
    let dir = tempfile::tempdir().expect("a temporary directory");
    let go = dir.path().join("go");
    let list = format!(
        "store: {}\njobs:\n{}{}",
        redis.url(),
        free_job("hand", "schedule: \"0 0 1 1 *\"", &by_hand, &go),
        free_job("tick", "every: 1s", &scheduled, &go),
    );
    let mut daemon = Daemon::on("here", list).start();
    let mut triggers = [0, 1].map(|_| trigger(&daemon.list(), "here", "hand"));
    let all_run = |log: &RunLog| {
        let entries = log.entries();
        entries.len() >= 2 && entries.iter().all(|entry| !entry.ended)
    };
    daemon.wait_until("runs of both jobs overlap", |_| {
        all_run(&by_hand) && all_run(&scheduled)
    });
    std::fs::write(&go, "").expect("a writable directory");
    for trigger in &mut triggers {
        assert!(trigger.wait().expect("a child of ours").success());
    }
    for (job, log) in [("hand", &by_hand), ("tick", &scheduled)] {
        let first = log.entries().into_iter().take(2);
        let run_ids: Vec<String> = first.map(|entry| entry.run_id).collect();
        wait_one_success_each(&mut daemon, job, &run_ids);
    }
}
