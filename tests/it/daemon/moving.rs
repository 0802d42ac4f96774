//! Moving a fleet to another store, as docs/stores.md has it.

use super::records;
use crate::support::{Daemon, RedisServer, RunLog, cronlatch};

/// A list on this store, with a job that writes into the log every second.
fn list(store: &str, log: &RunLog) -> String {
    format!(
        "store: '{store}'\njobs:\n  - {{ name: job, every: 1s, command: '{}' }}\n",
        log.job("0")
    )
}

fn start(list: &str) -> [Daemon; 2] {
    ["one", "two"].map(|host| Daemon::on(host, list).start())
}

/// Waits for a run that the log does not have yet; the number of runs then.
fn wait_runs(daemons: &mut [Daemon; 2], log: &RunLog, more_than: usize) -> usize {
    daemons[0].wait_until("the job runs", |_| log.entries().len() > more_than);
    log.entries().len()
}

#[test]
fn a_fleet_that_moves_as_the_page_says_runs_nothing_twice_and_its_fences_rise() {
    let page = include_str!("../../../docs/stores.md");
    let (_, section) = page
        .split_once("## Moving to another store")
        .expect("the page says how");
    let steps = [
        "systemctl stop cronlatch",
        "cronlatch status",
        "cronlatch init",
    ]
    .map(|step| section.find(step).expect(step));
    assert!(steps.is_sorted(), "{steps:?}");

    let log = RunLog::new();
    let dir = tempfile::tempdir().unwrap();
    let old = list(&format!("sqlite:{}/old.db", dir.path().display()), &log);
    let redis = RedisServer::builder().unmarked().start();
    let new = list(&redis.url(), &log);

    let mut daemons = start(&old);
    let runs = wait_runs(&mut daemons, &log, 1);
    for daemon in &mut daemons {
        daemon.terminate();
    }
    let stopped = daemons[0].ask(&["status", "--json"]).expect_code(0);
    let hosts = stopped.json_lines().remove(0)["hosts"].take();
    assert_eq!(hosts.as_array().map(Vec::len), Some(0), "{hosts}");

    cronlatch(&["init", "--store", &redis.url()]).expect_code(0);
    let mut moved = start(&new);
    wait_runs(&mut moved, &log, runs + 1);
    for daemon in &mut moved {
        daemon.terminate();
    }
    log.assert_each_once();
    let fences: Vec<u64> = log.entries().iter().map(|entry| entry.fence).collect();
    assert!(fences.is_sorted(), "{fences:?}");
    // What came before is still to be read in the old store.
    assert!(!records(&daemons[0], "job").is_empty());
}
