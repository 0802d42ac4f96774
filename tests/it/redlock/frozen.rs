//! Daemons on five nodes, a majority of which is paused for a while.

use cronlatch::time::Timestamp;

use super::urls;
use crate::support::{Daemon, RedisServer, RunLog, cronlatch};

/// A job of every second with a TTL of 3 s runs again at most so long after the nodes go on. That
/// it takes no longer than 6 s is promised; the rest is for a machine that is busy.
const BACK: i64 = 8_000;

#[test]
fn jobs_run_again_within_seconds_after_a_majority_of_five_nodes_stood_still() {
    let servers: Vec<RedisServer> = (0..5).map(|_| RedisServer::start()).collect();
    let store = urls(&servers).join(",");
    cronlatch(&["init", "--store", &store]).expect_code(0);
    let runs = RunLog::new();
    let jobs = format!(
        "jobs:\n  - {{ name: tick, every: 1s, lock: {{ ttl: 3s }}, kill_grace: 200ms, command: '{}' }}\n",
        runs.job("0.05")
    );
    let mut hosts =
        ["one", "two"].map(|host| Daemon::on(host, jobs.as_str()).store(&store).start());
    hosts[0].wait_until("it runs", |_| runs.entries().len() >= 2);
    for server in &servers[..3] {
        server.pause();
    }
    for host in &mut hosts {
        host.wait_log(&["retrying. "]);
    }
    for server in &servers[..3] {
        server.resume();
    }
    let thawed = Timestamp::now().millis();
    let since = || {
        let entries = runs.entries();
        entries.into_iter().find(|run| run.start > thawed)
    };
    hosts[0].wait_until("it runs again", |_| since().is_some());
    let back = since().expect("it runs again").start - thawed;
    let logs = hosts.each_ref().map(Daemon::log).join("\n---\n");
    assert!(back <= BACK, "it was back after {back} ms:\n{logs}");
    for host in &mut hosts {
        assert!(host.terminate().success());
    }
    runs.assert_each_once();
    runs.assert_no_overlap();
    runs.assert_fences_rise();
}
