//! What is granted ahead of its instant.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::{assert_no_silence, instant, records, wait_record};
use crate::support::proxy::Mode;
use crate::support::{Daemon, Proxy, RedisServer, RunLog};

/// One way to the server and back takes twice as long. Claims then come as early as they may, and a run
/// that began as soon as it was granted would begin some 30 ms early.
const WAY: Duration = Duration::from_millis(8);

/// A server, and a slow way to it.
struct Far {
    redis: RedisServer,
    proxy: Proxy,
}

impl Far {
    fn start() -> Self {
        let redis = RedisServer::start();
        let proxy = Proxy::to(redis.port());
        proxy.set(Mode::Delay(WAY));
        Self { redis, proxy }
    }

    fn list(&self, runs: &RunLog) -> String {
        format!(
            "\
store: {}
jobs:
  - name: tick
    every: 1s
    lock: {{ ttl: 5s }}
    on_overlap: queue
    queue_limit: 100
    command: '{}'
",
            self.redis.url_via(self.proxy.port()),
            runs.job("0.02")
        )
    }

    /// The instant of the open run, in milliseconds, if that has not come by the server's clock, which is
    /// also the one of this process.
    fn granted_ahead(&self) -> Option<i64> {
        let key = "cronlatch:{tick}:job:tick";
        let kept = self
            .redis
            .command(&["HMGET", key, "status", "scheduled_at"]);
        let [status, at] = ::redis::from_redis_value::<[Option<String>; 2]>(kept).ok()?;
        let at: i64 = at?.parse().ok()?;
        (status? == "open" && now() < at).then_some(at)
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.expect("after 1970").as_millis()).expect("in time")
}

fn millis(value: &Value) -> Option<i64> {
    instant(value).map(|instant| instant.timestamp_millis())
}

#[test]
fn a_host_with_a_wrong_clock_that_claims_ahead_starts_nothing_before_the_instant() {
    let (far, runs) = (Far::start(), RunLog::new());
    let list = far.list(&runs);
    for (name, shift) in [("ahead", 700), ("behind", -1500)] {
        let daemon = Daemon::on(name, list.as_str()).clock_shifted_by(shift);
        let mut daemon = daemon.start();
        let mut at = None;
        daemon.wait_until("a run is granted ahead of its instant", |_| {
            at = far.granted_ahead();
            at.is_some()
        });
        let before = runs.entries().len();
        daemon.wait_until("it and three more have begun", |_| {
            runs.entries().len() >= before + 4
        });
        let record = wait_record(&mut daemon, "tick", "that run", |record| {
            millis(&record["scheduled_at"]) == at
        });
        assert!(millis(&record["started_at"]) >= at, "{record:#?}");
        assert!(daemon.terminate().success());
    }
    runs.assert_none_early();
    runs.assert_each_once();
    runs.assert_no_overlap();
}

/// The instant of the run that a daemon has returned because it was told to stop, in milliseconds.
fn returned_at(daemon: &Daemon) -> Option<i64> {
    let log = daemon.log();
    let text = "not started: the daemon stopped before its instant";
    let line = log.lines().find(|line| line.contains(text))?;
    let at = line.split("scheduled_at=").nth(1)?.split(' ').next()?;
    let at: DateTime<Utc> = at.parse().ok()?;
    Some(at.timestamp_millis())
}

/// The daemon is told to stop some milliseconds before the instant of a run that it was granted. If that
/// comes too late, the run begins, and is drained; then another daemon tries the next one.
#[test]
fn a_daemon_that_stops_just_before_the_instant_returns_the_occurrence_undecided() {
    let (far, runs) = (Far::start(), RunLog::new());
    let list = far.list(&runs);
    let mut returned = None;
    for before in [10, 20, 15, 25].into_iter().cycle() {
        let mut daemon = Daemon::on("one", list.as_str()).start();
        let mut at = None;
        daemon.wait_until("a run is granted ahead of its instant", |_| {
            at = far.granted_ahead();
            at.is_some()
        });
        let at = at.expect("it was waited for");
        let wait = u64::try_from(at - before - now()).unwrap_or(0);
        std::thread::sleep(Duration::from_millis(wait));
        daemon.signal(Signal::SIGTERM);
        assert_eq!(daemon.wait_exit().code(), Some(0));
        returned = returned_at(&daemon);
        if returned.is_some() {
            break;
        }
    }
    let at = returned.expect("the loop has ended");
    let of_it = |record: &Value| millis(&record["scheduled_at"]) == Some(at);
    let began = |at| runs.entries().iter().any(|run| run.scheduled == Some(at));
    assert!(!began(at), "it began: {:#?}", runs.entries());
    let mut daemon = Daemon::on("two", list.as_str()).start();
    let record = wait_record(&mut daemon, "tick", "the one that was returned", of_it);
    assert_eq!(record["outcome"], "succeeded", "{record:#?}");
    assert_eq!(record["host"], "two", "{record:#?}");
    daemon.terminate();
    let all = records(&daemon, "tick");
    assert_no_silence(&all);
    let others = all.iter().find(|it| {
        let outcome = it["outcome"].as_str().expect("an outcome");
        !["succeeded", "missed"].contains(&outcome)
    });
    assert!(others.is_none(), "{others:#?}");
    runs.assert_none_early();
    runs.assert_each_once();
}
