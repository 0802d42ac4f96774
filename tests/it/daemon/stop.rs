//! How a daemon ends, and what it reports to its service manager.

use chrono::{DateTime, TimeDelta, Utc};
use nix::sys::signal::Signal;

use super::{has, records, wait_record};
use crate::support::daemon::{self, spool_file};
use crate::support::{Daemon, Proxy, RedisServer, RunLog, faketime, proxy::Mode, wait_until};

fn one_job(extra: &str, command: &str) -> String {
    format!("{extra}\njobs:\n  - {{ name: job, every: 1s, command: '{command}' }}\n")
}

/// A daemon whose job has begun.
fn busy(extra: &str, log: &RunLog, command: &str) -> Daemon {
    begun(Daemon::on("host", one_job(extra, command)), log)
}

/// The same, of a daemon that finds a file where its state directory should be.
fn busy_without_state(store: &str, log: &RunLog, command: &str) -> (Daemon, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("state");
    std::fs::write(&state, "").expect("a writable directory");
    let state = state.display().to_string();
    let daemon = Daemon::on("host", one_job(store, command)).env("STATE_DIRECTORY", state);
    (begun(daemon, log), dir)
}

fn begun(daemon: daemon::Builder, log: &RunLog) -> Daemon {
    let mut daemon = daemon.env("WATCHDOG_USEC", "200000").start();
    daemon.wait_until("the job has begun", |_| !log.entries().is_empty());
    daemon
}

#[test]
fn a_drain_lets_running_jobs_finish_and_exits_with_0() {
    let log = RunLog::new();
    let mut daemon = busy("", &log, &log.job("1.5"));
    daemon.wait_until("it gives a sign of life", |daemon| {
        daemon.notices().iter().any(|notice| notice == "WATCHDOG=1")
    });
    assert_eq!(daemon.terminate().code(), Some(0));
    let entries = log.entries();
    assert!(entries.iter().all(|entry| entry.ended), "{entries:?}");
    let said = daemon.notices().join("\n");
    for word in ["READY=1", "STOPPING=1", "EXTEND_TIMEOUT_USEC=", "STATUS="] {
        assert!(said.contains(word), "{word} is missing in {said}");
    }
    let runs = records(&daemon, "job");
    let succeeded = runs.iter().filter(|r| r["outcome"] == "succeeded");
    assert_eq!(succeeded.count(), entries.len(), "{runs:#?}");
}

#[test]
fn a_drain_reports_which_runs_it_waits_for() {
    let log = RunLog::new();
    let go_on = tempfile::NamedTempFile::new().expect("a file");
    let path = go_on.path().display().to_string();
    let command = format!("{}; while [ -e {path} ]; do sleep 0.05; done", log.begin());
    let mut daemon = busy("drain_timeout: 10m", &log, &command);
    daemon.signal(Signal::SIGTERM);
    daemon.wait_log(&["SIGTERM: draining; 1 run may take up to 10m", "job ("]);
    daemon.wait_until("the service manager knows it", |daemon| {
        let notices = daemon.notices();
        notices
            .iter()
            .any(|notice| notice.contains("; draining: job ("))
    });
    daemon.wait_log(&["draining: 1 run is still in progress", "up to 9m ", "job ("]);
    drop(go_on);
    assert_eq!(daemon.wait_exit().code(), Some(0));
}

#[test]
fn a_second_signal_ends_what_runs() {
    let log = RunLog::new();
    let mut daemon = busy("", &log, &log.endless_job());
    daemon.signal(Signal::SIGTERM);
    let first = when_said(&mut daemon, "SIGTERM: draining");
    // The daemon's clock is this one's: once this shows half a second more, so does its own.
    wait_until("half a second has passed since the first", || {
        Utc::now() - first > TimeDelta::milliseconds(600)
    });
    daemon.signal(Signal::SIGINT);
    assert_eq!(daemon.wait_exit().code(), Some(0));
    wait_until("nothing is left", || daemon.processes().is_empty());
    let runs = records(&daemon, "job");
    assert_eq!(runs[0]["outcome"], "stopped", "{runs:#?}");
}

/// When the daemon logged the line with this text.
#[track_caller]
fn when_said(daemon: &mut Daemon, text: &str) -> DateTime<Utc> {
    daemon.wait_log(&[text]);
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains(text));
    line.and_then(faketime::instant_of).expect("a dated line")
}

#[test]
fn a_signal_repeated_at_once_is_one_word() {
    let log = RunLog::new();
    let go_on = tempfile::NamedTempFile::new().expect("a file");
    let waits = format!(
        "while [ -e {} ]; do sleep 0.05; done",
        go_on.path().display()
    );
    let command = format!("{}; {waits}; {}", log.begin(), RunLog::end());
    let mut daemon = busy("", &log, &command);
    daemon.signal(Signal::SIGTERM);
    let first = when_said(&mut daemon, "SIGTERM: draining");
    daemon.signal(Signal::SIGTERM);
    daemon.wait_until("the second was heard", |daemon| {
        daemon.lines_with(&["ignored a second SIGTERM"]) + daemon.lines_with(&["SIGTERM again"]) > 0
    });
    if daemon.lines_with(&["SIGTERM again"]) > 0 {
        // Only a machine that could not bring it in time may have made it a second word.
        let second = when_said(&mut daemon, "SIGTERM again");
        assert!(
            second - first >= TimeDelta::milliseconds(499),
            "{second} {first}"
        );
        return;
    }
    drop(go_on);
    assert_eq!(daemon.wait_exit().code(), Some(0));
    let runs = records(&daemon, "job");
    assert_eq!(runs[0]["outcome"], "succeeded", "{runs:#?}");
}

#[test]
fn a_host_that_stopped_is_not_listed_any_more() {
    let log = RunLog::new();
    let go_on = tempfile::NamedTempFile::new().expect("a file");
    let waits = format!(
        "while [ -e {} ]; do sleep 0.05; done",
        go_on.path().display()
    );
    let mut daemon = busy("", &log, &format!("{}; {waits}", log.begin()));
    let hosts = |daemon: &Daemon| {
        let said = daemon.ask(&["status", "--json"]).expect_code(0);
        said.json_lines()[0]["hosts"]
            .as_array()
            .expect("hosts")
            .clone()
    };
    daemon.signal(Signal::SIGTERM);
    daemon.wait_until("it is listed as draining", |daemon| {
        hosts(daemon).iter().any(|host| host["draining"] == true)
    });
    drop(go_on);
    assert_eq!(daemon.wait_exit().code(), Some(0));
    assert_eq!(hosts(&daemon), [] as [serde_json::Value; 0]);
}

#[test]
fn a_drain_is_bounded_by_its_time_out() {
    let log = RunLog::new();
    let mut daemon = busy("drain_timeout: 200ms", &log, &log.endless_job());
    assert_eq!(daemon.terminate().code(), Some(0));
    assert_eq!(daemon.lines_with(&["did not finish within"]), 1);
    let runs = records(&daemon, "job");
    assert_eq!(runs[0]["outcome"], "stopped", "{runs:#?}");
}

#[test]
fn a_drain_cancels_pending_retries() {
    let list = "\
jobs:
  - name: job
    every: 1s
    command: exit 7
    retry: { attempts: 5, delay: 1h, max_delay: 2h }
";
    let mut daemon = Daemon::on("host", list).start();
    daemon.wait_log(&["attempt failed, exit code 7; retrying in"]);
    assert_eq!(daemon.terminate().code(), Some(0));
    let runs = records(&daemon, "job");
    assert_eq!(runs[0]["outcome"], "failed", "{runs:#?}");
    assert!(has(&runs[0]["reason"], "no further attempt"), "{runs:#?}");
    assert_eq!(runs[0]["exit_code"], 7);
}

#[test]
fn a_verdict_that_cannot_be_delivered_is_delivered_by_the_next_start() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port());
    let log = RunLog::new();
    let state = tempfile::tempdir().expect("a directory");
    let go_on = state.path().join("go-on");
    let command = format!(
        "{}; while ! [ -e {} ]; do sleep 0.05; done; {}",
        log.begin(),
        go_on.display(),
        RunLog::end()
    );
    let store = format!("store: {}", redis.url_via(proxy.port()));
    let list = one_job(&store, &command);
    let on = |list: &str| {
        let state = state.path().display().to_string();
        Daemon::on("host", list).env("STATE_DIRECTORY", state)
    };
    let mut first = on(&list).start();
    first.wait_until("the job has begun", |_| !log.entries().is_empty());
    let run_id = log.entries()[0].run_id.clone();
    proxy.set(Mode::Refuse);
    std::fs::write(&go_on, "").expect("a writable directory");
    wait_until("the job has ended", || log.entries()[0].ended);
    assert_eq!(first.terminate().code(), Some(0));
    assert_eq!(
        first.lines_with(&["did not accept the results of 1 run;", "undelivered-host+"]),
        1
    );
    let kept = || spool_file(state.path(), "host").is_some();
    assert!(kept());

    proxy.set(Mode::Pass);
    let mut second = on(&list).start();
    let record = wait_record(&mut second, "job", "the run's", |r| r["run_id"] == *run_id);
    assert_eq!(record["outcome"], "succeeded");
    wait_until("the spool is empty", || !kept());
}

#[test]
fn a_list_with_errors_exits_with_78_and_names_them_all() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.yaml");
    let list = "jobs:\n  - { name: a, schedule: '61 * * * *', command: x }\n  - { nam: b }\n";
    std::fs::write(&path, list).expect("a writable directory");
    let said = crate::support::cronlatch(&["run".as_ref(), path.as_os_str()]).expect_code(78);
    assert!(
        said.stderr.contains("61") && said.stderr.contains("nam"),
        "{said:#?}"
    );
}

#[test]
fn verdicts_that_can_be_neither_delivered_nor_kept_are_named_and_the_exit_is_not_0() {
    let redis = RedisServer::start();
    let log = RunLog::new();
    let store = format!("store: {}", redis.url());
    let (mut daemon, _dir) = busy_without_state(&store, &log, &log.job("1"));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(redis.pid()), Signal::SIGKILL)
        .expect("a child of ours");
    assert_eq!(daemon.terminate().code(), Some(70));
    let run = log.entries()[0].run_id.clone();
    let words = [
        "ERROR",
        "the result of this run is lost",
        "job=job",
        "run_id=",
        &run,
        "scheduled_at=",
        "host=host",
    ];
    assert_eq!(daemon.lines_with(&words), 1);
    assert!(daemon.log().contains("the results of 1 run are lost"));
}

#[test]
fn results_that_cannot_be_kept_on_disk_are_reported_when_it_happens_and_when_it_works_again() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port());
    let log = RunLog::new();
    let store = format!(
        "store: {}\ndefaults: {{ on_store_down: run }}",
        redis.url_via(proxy.port())
    );
    let (mut daemon, dir) = busy_without_state(&store, &log, &log.job("0"));
    proxy.set(Mode::Refuse);
    let cannot = ["ERROR", "cannot write undelivered results to", "lost"];
    daemon.wait_log(&cannot);
    let before = log.entries().len();
    daemon.wait_until("more runs end", |_| log.entries().len() > before + 3);
    assert_eq!(daemon.lines_with(&cannot), 1, "once:\n{}", daemon.log());
    let state = dir.path().join("state");
    std::fs::remove_file(&state).expect("a file of ours");
    daemon.wait_log(&["INFO", "undelivered results can be written to disk again"]);
    let spool = spool_file(&state, "host").expect("it was written");

    // What is damaged is reported once, by the next start.
    assert!(daemon.terminate().success());
    let mut kept = std::fs::read_to_string(&spool).expect("it was written");
    kept += "{\"store\":\"on";
    std::fs::write(&spool, kept).expect("a writable directory");
    let state = spool.parent().expect("a directory").display().to_string();
    let mut next = Daemon::on(
        "host",
        std::fs::read_to_string(daemon.list()).expect("a list"),
    )
    .env("STATE_DIRECTORY", state)
    .start();
    next.wait_log(&["delivering", "that an earlier daemon could not deliver"]);
    let before = log.entries().len();
    next.wait_until("more runs end", |_| log.entries().len() > before + 3);
    assert!(next.terminate().success());
    assert_eq!(
        next.lines_with(&["WARN", "is damaged"]),
        1,
        "{}",
        next.log()
    );
}
