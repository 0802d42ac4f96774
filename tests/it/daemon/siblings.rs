//! Daemons of one host with the same list, which use different stores: the move from an embedded
//! store to a server and back.

use std::path::Path;

use super::has;
use crate::support::{Daemon, RedisServer, RunLog, wait_until};

/// What the two daemons have in common, which tells them that theirs is the same list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Same {
    Path,
    StateDirectory,
}

/// The daemon on the new store claims nothing until the one on the old store has ended.
#[track_caller]
fn the_second_waits(before: &str, after: &str, same: Same) {
    let runs = RunLog::new();
    let dir = tempfile::tempdir().unwrap();
    let start = |host: &str, file: &Path, store: &str| {
        let text = format!(
            "store: '{store}'\njobs:\n  - {{ name: tick, every: 1s, command: '{}' }}\n",
            runs.job("0.01")
        );
        std::fs::write(file, text).unwrap();
        let daemon = Daemon::on(host, "").list(file);
        match same {
            Same::Path => daemon.start(),
            Same::StateDirectory => {
                let state = dir.path().display().to_string();
                daemon.env("STATE_DIRECTORY", state).start()
            }
        }
    };
    let first = dir.path().join("jobs.yaml");
    let second = match same {
        Same::Path => first.clone(),
        Same::StateDirectory => dir.path().join("new.yaml"),
    };
    let mut old = start("old", &first, before);
    old.wait_until("it runs", |_| runs.entries().len() >= 2);
    let mut new = start("new", &second, after);
    let words = [
        "ERROR",
        "claims nothing",
        "another daemon of this host",
        before,
    ];
    new.wait_log(&words);
    let said = ["WARN", "another daemon of this host", after, "it waits"];
    old.wait_log(&said);
    new.wait_until("status says why it waits", |new| {
        let status = new.ask(&["status", "--json"]).expect_code(0).json_lines();
        has(&status[0]["hosts"][0]["waits"], before)
    });
    if same == Same::Path {
        let doctor = new.ask(&["doctor"]).expect_code(1);
        assert!(
            doctor.stdout.contains("another daemon of this host"),
            "{doctor:?}"
        );
    }

    let count = runs.entries().len();
    old.wait_until("it goes on", |_| runs.entries().len() >= count + 2);
    assert!(runs.entries().iter().all(|run| run.host == "old"));
    assert!(old.terminate().success());
    new.wait_log(&["INFO", "this host continues"]);
    let by_new = || runs.entries().iter().any(|run| run.host == "new");
    wait_until("the other one runs the job", by_new);
    assert!(new.terminate().success());
    runs.assert_each_once();
    runs.assert_no_overlap();
}

fn file_in(dir: &tempfile::TempDir) -> String {
    format!("sqlite:{}", dir.path().join("store.db").display())
}

#[test]
fn a_daemon_on_redis_waits_for_its_predecessor_on_the_embedded_store() {
    let (redis, dir) = (RedisServer::start(), tempfile::tempdir().unwrap());
    the_second_waits(&file_in(&dir), &redis.url(), Same::Path);
}

#[test]
fn a_daemon_on_the_embedded_store_waits_for_its_predecessor_on_redis() {
    let (redis, dir) = (RedisServer::start(), tempfile::tempdir().unwrap());
    the_second_waits(&redis.url(), &file_in(&dir), Same::StateDirectory);
}

/// One that cannot reach its store sees its predecessor all the same.
#[test]
fn a_daemon_whose_store_is_unreachable_runs_nothing_beside_its_predecessor() {
    let (runs, dir) = (RunLog::new(), tempfile::tempdir().unwrap());
    let list = dir.path().join("jobs.yaml");
    let start = |host: &str, store: &str| {
        let text = format!(
            "\
store: '{store}'
jobs:
  - {{ name: tick, every: 1s, on_store_down: run, command: '{}' }}
",
            runs.job("0.01")
        );
        std::fs::write(&list, text).unwrap();
        Daemon::on(host, "").list(&list).spawn()
    };
    let mut old = start("old", &file_in(&dir));
    old.wait_until("it runs", |_| runs.entries().len() >= 2);
    let mut new = start("new", "redis://127.0.0.1:1");
    new.wait_log(&["ERROR", "claims nothing", "another daemon of this host"]);
    let count = runs.entries().len();
    old.wait_until("it goes on", |_| runs.entries().len() >= count + 3);
    assert!(runs.entries().iter().all(|run| run.host == "old"));
    assert!(old.terminate().success());
    new.wait_log(&["INFO", "this host continues"]);
    new.wait_until("it runs without its store", |_| {
        runs.entries().iter().any(|run| run.host == "new")
    });
    runs.assert_each_once();
    runs.assert_no_overlap();
}

/// Lists of their own are none of each other's business, nor are daemons that share a store.
#[test]
fn other_lists_and_the_same_store_hold_nobody_up() {
    let (redis, dir) = (RedisServer::start(), tempfile::tempdir().unwrap());
    let [first, second] = ["a.yaml", "b.yaml"].map(|file| dir.path().join(file));
    let text = |store: &str, job: &str| {
        format!("store: '{store}'\njobs: [{{ name: {job}, every: 1s, command: [\"true\"] }}]\n")
    };
    std::fs::write(&first, text(&redis.url(), "a")).unwrap();
    std::fs::write(&second, text(&file_in(&dir), "b")).unwrap();
    let start = |host: &str, list: &Path| {
        let state = dir.path().display().to_string();
        Daemon::on(host, "")
            .list(list)
            .env("STATE_DIRECTORY", state)
            .start()
    };
    let _first = start("h1", &first);
    for (host, list) in [("h1", &second), ("h2", &first)] {
        let mut daemon = start(host, list);
        daemon.wait_until("it claims", |daemon| {
            assert_eq!(daemon.lines_with(&["claims nothing"]), 0);
            daemon.lines_with(&["started job="]) > 0
        });
    }
}
