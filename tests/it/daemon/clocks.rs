//! A store whose clock was ahead, and is set right: under the daemon, and while it is down. The
//! hosts of this machine are wrong and right together with it, as when its clock comes from a
//! battery until the network tells it the time.

use std::path::PathBuf;

use super::{has, instant};
use crate::support::{Daemon, RedisServer, RunLog, faketime};

const MINUTE: i64 = 60_000;
const DAYS_400: i64 = 400 * 24 * 60 * MINUTE;

/// A store, and the clock of the machine that it is on.
struct Machine {
    dir: tempfile::TempDir,
    redis: Option<RedisServer>,
}

impl Machine {
    /// One for each kind of store, with its clock ahead by so much.
    fn each_ahead_by(millis: i64) -> [Self; 2] {
        let redis = RedisServer::builder().clock_shifted_by(millis).start();
        [None, Some(redis)].map(|redis| {
            let machine = Self {
                dir: tempfile::tempdir().unwrap(),
                redis,
            };
            faketime::set(&machine.clock(), millis);
            machine
        })
    }

    fn clock(&self) -> PathBuf {
        self.dir.path().join("clock")
    }

    fn store(&self) -> String {
        let file = || format!("sqlite:{}", self.dir.path().join("store.db").display());
        self.redis.as_ref().map_or_else(file, RedisServer::url)
    }

    /// A daemon with jobs that are due every second.
    fn daemon(&self, jobs: &[&str], runs: &RunLog, ahead_by: i64) -> Daemon {
        let mut list = format!("store: '{}'\njobs:\n", self.store());
        for job in jobs {
            let command = runs.job("0.01");
            list += &format!("  - {{ name: {job}, every: 1s, command: '{command}' }}\n");
        }
        Daemon::on("host", list)
            .clock_shifted_by(ahead_by)
            .clock_in(self.clock())
            .start()
    }

    fn set_right(&mut self) {
        if let Some(redis) = &mut self.redis {
            redis.set_clock(0);
        }
        faketime::set(&self.clock(), 0);
    }
}

/// The last record of the ledger's correction, of which there is one, lies between what ran by the
/// wrong clock and what ran by the right one.
#[track_caller]
fn assert_corrected_once(daemon: &Daemon) {
    let history = daemon.ask(&["history", "tick", "--json", "-n", "100"]);
    let history = history.expect_code(0).json_lines();
    let corrections: Vec<_> = (0..history.len())
        .filter(|i| {
            has(
                &history[*i]["reason"],
                "the ledger was ahead of the store's clock",
            )
        })
        .collect();
    let [corrected] = corrections[..] else {
        panic!("{} corrections: {history:#?}", corrections.len());
    };
    let tomorrow = chrono::Utc::now() + chrono::Days::new(1);
    for (i, record) in history.iter().enumerate().filter(|(i, _)| *i != corrected) {
        let is_wrong = instant(&record["scheduled_at"]).unwrap() > tomorrow;
        assert_eq!(is_wrong, i < corrected, "record {i}: {history:#?}");
    }
}

#[test]
fn a_clock_far_ahead_that_is_set_right_under_the_daemon_stops_no_job() {
    for mut machine in Machine::each_ahead_by(DAYS_400) {
        let runs = RunLog::new();
        let mut host = machine.daemon(&["tick"], &runs, DAYS_400);
        host.wait_until("it runs by the wrong clock", |_| runs.entries().len() >= 2);
        machine.set_right();
        let tomorrow = chrono::Utc::now().timestamp_millis() + DAYS_400 / 400;
        host.wait_until("it runs by the right clock", |_| {
            let by_right = |due: i64| due < tomorrow;
            let entries = runs.entries().into_iter();
            entries
                .filter(|run| run.scheduled.is_some_and(by_right))
                .count()
                >= 3
        });
        let said = [
            "WARN",
            "tick",
            "the ledger of this job is 400d",
            "continues from now",
        ];
        assert_eq!(host.lines_with(&said), 1, "{}", host.log());
        assert_corrected_once(&host);
        assert!(host.terminate().success());
        runs.assert_each_once();
    }
}

#[test]
fn a_clock_far_ahead_that_is_set_right_between_two_daemons_stops_no_job() {
    for mut machine in Machine::each_ahead_by(DAYS_400) {
        let runs = RunLog::new();
        let mut wrong = machine.daemon(&["tick"], &runs, DAYS_400);
        wrong.wait_until("it runs by the wrong clock", |_| runs.entries().len() >= 2);
        assert!(wrong.terminate().success());
        machine.set_right();
        let count = runs.entries().len();
        let mut right = machine.daemon(&["tick"], &runs, 0);
        let again = |_: &Daemon| runs.entries().len() >= count + 2;
        right.wait_until("it runs by the right clock", again);
        let said = [
            "WARN",
            "tick",
            "the ledger of this job is 400d",
            "continues from now",
        ];
        assert_eq!(right.lines_with(&said), 1, "{}", right.log());
        assert_corrected_once(&right);
        assert!(right.terminate().success());
        runs.assert_each_once();
    }
}

#[test]
fn a_job_whose_ledger_is_less_than_three_hours_ahead_waits_and_says_so_once() {
    for mut machine in Machine::each_ahead_by(90 * MINUTE) {
        let runs = RunLog::new();
        let mut host = machine.daemon(&["tick"], &runs, 90 * MINUTE);
        host.wait_until("it runs by the wrong clock", |_| runs.entries().len() >= 2);
        machine.set_right();
        let said = [
            "WARN",
            "tick",
            "the ledger of this job is 1h30m",
            "the job waits until",
        ];
        host.wait_log(&said);
        let status = host.ask(&["status"]).expect_code(0).stdout;
        assert!(status.contains("waits until"), "{status}");
        let doctor = host.ask(&["doctor"]).stdout;
        assert!(doctor.contains("the job does not run until"), "{doctor}");
        assert!(host.terminate().success());
        let count = runs.entries().len();

        let others = RunLog::new();
        let mut host = machine.daemon(&["tick", "other"], &others, 0);
        host.wait_until("a new job runs", |_| others.entries().len() >= 3);
        assert!(others.entries().iter().all(|run| run.job == "other"));
        assert_eq!(host.lines_with(&said), 1, "{}", host.log());
        assert_eq!(runs.entries().len(), count);
        assert!(host.terminate().success());
        runs.assert_each_once();
    }
}
