//! What waits is in the ledger: hosts that restart, join or come later continue it.

use super::records;
use crate::support::{Daemon, RedisServer, RunLog, wait_until};

/// How many occurrences of the first job wait.
fn waiting(daemon: &Daemon) -> usize {
    let status = daemon
        .ask(&["status", "--json"])
        .expect_code(0)
        .json_lines();
    status[0]["jobs"][0]["waiting"]
        .as_array()
        .map_or(0, Vec::len)
}

#[test]
fn a_queue_outlives_the_only_host_and_a_control_character_of_its_output_stays_off_the_terminal() {
    let redis = RedisServer::start();
    let log = RunLog::new();
    let list = |every: &str| {
        format!(
            r#"store: {}
jobs:
  - name: slow
    every: {every}
    on_overlap: queue
    command: '{}; printf "\033]0;pwned\007"'
"#,
            redis.url(),
            log.job("1.6")
        )
    };
    let mut first = Daemon::on("one", list("1s")).start();
    // The next run may begin before the drain does.
    wait_until("four occurrences wait", || waiting(&first) >= 4);
    assert_eq!(first.terminate().code(), Some(0));
    let ran = log.entries().len();
    let left = waiting(&first);
    assert!(left >= 3, "a drain drops nothing that waits: {left}");
    // The same list on another host: it has never seen what waits.
    let second = Daemon::on("two", list("1s")).start();
    wait_until("it has run all that waited", || {
        log.entries().iter().filter(|run| run.ended).count() >= ran + left
    });
    let runs = log.entries();
    let order: Vec<_> = runs.iter().map(|run| run.scheduled).collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(order, sorted, "in order");
    log.assert_each_once();
    let waited: Vec<_> = runs[ran..ran + left].iter().map(|run| &run.host).collect();
    assert!(waited.iter().all(|host| *host == "two"), "{waited:?}");
    let dropped = |record: &&serde_json::Value| record["outcome"] == "missed";
    let history = records(&second, "slow");
    let before = sorted[ran + left - 1];
    let missed: Vec<_> = history
        .iter()
        .filter(dropped)
        .filter(|record| {
            let at = record["scheduled_at"]
                .as_str()
                .map(cronlatch::time::Timestamp::parse);
            at.and_then(Result::ok)
                .map(cronlatch::time::Timestamp::millis)
                <= before
        })
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
    let shown = second.ask(&["history", "--output"]).expect_code(0).stdout;
    assert!(shown.contains("pwned"), "{shown}");
    assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
}
