//! What is granted ahead of its instant.

use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chrono::{DateTime, Utc};
use nix::sys::signal::{Signal, kill};
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

    /// The instant of the open run, in milliseconds.
    fn open(&self) -> Option<i64> {
        let key = "cronlatch:{tick}:job:tick";
        let kept = self
            .redis
            .command(&["HMGET", key, "status", "scheduled_at"]);
        let [status, at] = ::redis::from_redis_value::<[Option<String>; 2]>(kept).ok()?;
        let at: i64 = at?.parse().ok()?;
        (status? == "open").then_some(at)
    }

    /// The same, if the instant has not come by the server's clock, which is also the one of this process.
    fn granted_ahead(&self) -> Option<i64> {
        self.open().filter(|at| now() < *at)
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

/// The guard stands still over the instant, so the process cannot begin then.
#[test]
fn the_start_on_record_is_the_one_of_the_process_and_not_the_instant() {
    let (far, runs) = (Far::start(), RunLog::new());
    let mut daemon = Daemon::on("one", far.list(&runs)).start();
    daemon.wait_until("a run has begun", |_| !runs.entries().is_empty());
    let guard = daemon.guard();
    let (mut stands_still, mut at) = (false, None);
    let signal = |signal| kill(guard, signal).expect("it lives");
    daemon.wait_until("the guard stands still, and a run is granted ahead", |_| {
        match far.open() {
            None if !stands_still => {
                signal(Signal::SIGSTOP);
                stands_still = true;
                if far.open().is_some() {
                    signal(Signal::SIGCONT);
                    stands_still = false;
                }
            }
            None => {}
            Some(instant) if stands_still && now() < instant => at = Some(instant),
            // It began before, or it was granted late, as on a busy machine: the next one.
            Some(_) => {
                signal(Signal::SIGCONT);
                stands_still = false;
            }
        }
        at.is_some()
    });
    let at = at.expect("it was waited for");
    let wait = u64::try_from(at + 300 - now()).unwrap_or(0);
    std::thread::sleep(Duration::from_millis(wait));
    signal(Signal::SIGCONT);
    let record = wait_record(&mut daemon, "tick", "that run", |record| {
        millis(&record["scheduled_at"]) == Some(at)
    });
    // The host knows the server's clock to within some milliseconds.
    let late = Some(at + 250);
    assert!(millis(&record["started_at"]) >= late, "{record:#?}");
}

/// The instant of the run that a daemon has returned because it was told to stop, in milliseconds.
fn returned_at(daemon: &Daemon) -> Option<i64> {
    let log = daemon.log();
    let text = "not started: the daemon stopped before the command began";
    let line = log.lines().find(|line| line.contains(text))?;
    let at = line.split("scheduled_at=").nth(1)?.split(' ').next()?;
    let at: DateTime<Utc> = at.parse().ok()?;
    Some(at.timestamp_millis())
}

/// On a slow host the command is prepared until after the instant; here the file of its variables holds it up.
#[test]
fn a_daemon_that_stops_after_the_instant_and_before_the_command_is_ordered_returns_the_occurrence()
{
    let (far, runs) = (Far::start(), RunLog::new());
    let dir = tempfile::tempdir().expect("a directory");
    let [variables, pipe] = ["variables", "pipe"].map(|name| dir.path().join(name));
    std::fs::write(&variables, "").expect("a directory");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a named pipe");
    let list = far.list(&runs);
    let slow = format!("{list}    env_file: {}\n", variables.display());
    let mut daemon = Daemon::on("one", slow).start();
    daemon.wait_until("two runs have begun", |_| runs.entries().len() >= 2);
    std::fs::rename(&pipe, &variables).expect("in the same directory");
    let (mut ahead, mut writer) = (None, None);
    daemon.wait_until("a run that was granted ahead is being prepared", |_| {
        ahead = far.granted_ahead().or(ahead);
        // Succeeds once somebody reads; any other run goes on as soon as it is closed.
        let mut options = std::fs::OpenOptions::new();
        let for_writing = options.write(true).custom_flags(libc::O_NONBLOCK);
        writer = for_writing.open(&variables).ok();
        let is_held_up = writer.is_some() && ahead.is_some() && far.open() == ahead;
        writer = writer.take().filter(|_| is_held_up);
        is_held_up
    });
    let at = ahead.expect("it was waited for");
    daemon.wait_until("its instant has passed", |_| now() > at);
    daemon.signal(Signal::SIGTERM);
    daemon.wait_until("it stops", |daemon| {
        let stops = |notice: &String| notice.starts_with("STOPPING=1");
        daemon.notices().iter().any(stops)
    });
    drop(writer);
    assert_eq!(daemon.wait_exit().code(), Some(0));
    assert_eq!(returned_at(&daemon), Some(at), "{}", daemon.log());
    let mut daemon = Daemon::on("two", list).start();
    let record = wait_record(&mut daemon, "tick", "the one that was returned", |record| {
        millis(&record["scheduled_at"]) == Some(at)
    });
    assert_eq!(record["host"], "two", "{record:#?}");
    runs.assert_each_once();
}

/// The daemon is told to stop some milliseconds before the instant of a run that it was granted. If that
/// comes too late, the run begins, and is drained; then another daemon tries the next one.
#[test]
fn a_daemon_that_stops_just_before_the_instant_returns_the_occurrence_undecided() {
    let (far, runs) = (Far::start(), RunLog::new());
    let list = far.list(&runs);
    let mut returned = None;
    for before in [10, 20, 15, 25].into_iter().cycle().take(40) {
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
    let at = returned.expect("a daemon was in time to return it");
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
