//! Another job list while the daemon runs.

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;

use super::{assert_no_silence, has, records, verdicts, wait_outcome};
use crate::support::{Daemon, RedisServer, RunLog, wait_until};

fn tick(log: &RunLog, extra: &str) -> String {
    format!(
        "  - name: tick
    every: 1s
    start_deadline: 60s
    catch_up: all
    on_overlap: queue
    queue_limit: 100
    lock: {{ ttl: 3s{extra} }}
    kill_grace: 200ms
    command: '{}'
",
        log.job("0.05")
    )
}

/// Puts another list in the place of the one at this path, in one step.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("a writable directory");
    fs::rename(&new, path).expect("a writable directory");
}

/// Gives the daemon another list, and waits until it is in force.
#[track_caller]
fn reload(daemon: &mut Daemon, text: &str) {
    let before = daemon.lines_with(&["reloaded "]);
    replace(&daemon.list(), text);
    daemon.signal(Signal::SIGHUP);
    daemon.wait_until("it has reloaded", |daemon| {
        daemon.lines_with(&["reloaded "]) > before
    });
}

#[test]
fn a_run_ends_under_the_definition_that_it_began_with_and_the_log_names_what_changed() {
    let log = RunLog::new();
    let dir = tempfile::tempdir().expect("a directory");
    let (go_on, old, new) = ("go-on", "old", "new").into_paths(dir.path());
    let list = |seen: &str, more: &str| {
        format!(
            "jobs:\n  - {{ name: slow, every: 1s, command: 'while ! [ -e {go_on} ]; do sleep 0.05; \
             done; echo x >> {seen}' }}\n{more}{}",
            tick(&log, "")
        )
    };
    let gone = "  - { name: gone, schedule: '@yearly', command: 'true' }\n";
    let added = "  - { name: added, every: 1s, command: 'true' }\n";
    let mut daemon = Daemon::on("host", list(&old, gone)).start();
    daemon.wait_log(&["started", "job=slow"]);
    daemon.wait_until("it runs", |_| log.entries().len() > 1);
    reload(&mut daemon, &list(&new, added));
    daemon.wait_log(&[
        "1 job added (added), 1 job changed (slow: command), 1 job removed (gone), 1 unchanged",
    ]);
    wait_outcome(&mut daemon, "added", "succeeded");
    fs::write(&go_on, "").expect("a writable directory");
    wait_until("the old run has ended, and a new one", || {
        fs::exists(&new).expect("a directory")
    });
    assert_eq!(fs::read_to_string(&old).expect("it was written"), "x\n");
    assert_eq!(daemon.terminate().code(), Some(0));
    log.assert_each_once();
    log.assert_none_missing(1000);
    assert_no_silence(&records(&daemon, "tick"));
}

#[test]
fn the_log_tells_jobs_that_are_disabled_or_meant_for_other_hosts_from_those_that_are_gone() {
    let list = |more: &str| {
        format!(
            "jobs:\n  - {{ name: d, schedule: '@yearly', command: 'true'{more} }}\n  \
             - {{ name: other, schedule: '@yearly', command: 'true' }}\n"
        )
    };
    let mut daemon = Daemon::on("host", list("")).start();
    reload(&mut daemon, &list(", enabled: false"));
    daemon.wait_log(&["1 job disabled (d), 1 unchanged"]);
    reload(&mut daemon, &list(""));
    daemon.wait_log(&["1 job enabled (d), 1 unchanged"]);
    reload(&mut daemon, &list(", hosts: [elsewhere]"));
    daemon.wait_log(&["1 job no longer meant for this host (d), 1 unchanged"]);
    reload(&mut daemon, &list(""));
    daemon.wait_log(&["1 job now meant for this host (d), 1 unchanged"]);
}

/// Paths of files of a directory, as text.
trait IntoPaths {
    fn into_paths(self, dir: &Path) -> (String, String, String);
}

impl IntoPaths for (&str, &str, &str) {
    fn into_paths(self, dir: &Path) -> (String, String, String) {
        let path = |name: &str| dir.join(name).display().to_string();
        (path(self.0), path(self.1), path(self.2))
    }
}

fn status(daemon: &Daemon) -> String {
    let said = daemon.notices().into_iter().rev();
    let mut lines = said.filter_map(|notice| {
        let status = notice.lines().find_map(|line| line.strip_prefix("STATUS="));
        status.map(str::to_owned)
    });
    lines.next().expect("it has said something")
}

#[test]
fn a_list_that_cannot_be_used_is_refused_and_the_old_one_goes_on() {
    let log = RunLog::new();
    let good = format!("jobs:\n{}", tick(&log, ""));
    let mut daemon = Daemon::on("host", good.as_str()).start();
    daemon.wait_until("it runs", |_| !log.entries().is_empty());
    let list = daemon.list();
    let refused = |daemon: &mut Daemon, times: usize, words: &[&str]| {
        daemon.signal(Signal::SIGHUP);
        daemon.wait_until("it is refused", |daemon| {
            daemon.lines_with(&["reload refused"]) == times
        });
        assert!(daemon.lines_with(words) > 0, "{words:?}");
        daemon.wait_until("its status says so", |daemon| {
            status(daemon).contains("new job list refused at")
        });
        let ready = |notice: &String| notice.starts_with("READY=1");
        daemon.wait_until("the manager is told that the reload is over", |daemon| {
            daemon.notices().iter().filter(|it| ready(it)).count() == times + 1
        });
    };
    replace(
        &list,
        "\
jobs:
  - { name: a, every: 0s, command: x }
  - { nme: b }
",
    );
    refused(
        &mut daemon,
        1,
        &["error in the new job list", "jobs.yaml:2:"],
    );
    assert!(daemon.lines_with(&["error in the new job list", "jobs.yaml:3:"]) > 0);
    fs::remove_file(&list).expect("it is there");
    refused(
        &mut daemon,
        2,
        &["error in the new job list", "cannot be read"],
    );
    replace(&list, &format!("store: sqlite:/nowhere/else.db\n{good}"));
    refused(
        &mut daemon,
        3,
        &[
            "changes the store from ",
            "Restart the daemon to change the store",
        ],
    );
    assert!(
        status(&daemon).contains("it changes the store from "),
        "{}",
        status(&daemon)
    );
    let wrong_advice = ["changes the store", "cronlatch check"];
    assert_eq!(daemon.lines_with(&wrong_advice), 0);
    assert_eq!(
        daemon.lines_with(&["cronlatch check"]),
        2,
        "for the two lists before"
    );
    let before = log.entries().len();
    daemon.wait_until("the old list goes on", |_| log.entries().len() > before + 1);
    reload(&mut daemon, &good);
    daemon.wait_log(&["nothing has changed"]);
    daemon.wait_until("its status is as it was", |daemon| {
        !status(daemon).contains("refused")
    });
    let reloading = |notice: &String| {
        notice.starts_with("RELOADING=1\nMONOTONIC_USEC=") && !notice.contains("USEC=0")
    };
    assert_eq!(
        daemon.notices().iter().filter(|it| reloading(it)).count(),
        4
    );
    assert_eq!(daemon.terminate().code(), Some(0));
    log.assert_each_once();
    log.assert_none_missing(1000);
}

#[test]
fn a_changed_schedule_starts_from_now_and_a_job_that_is_enabled_too() {
    let list = |every: &str, enabled: bool| {
        format!(
            "\
jobs:
  - {{ name: job, every: {every}, catch_up: all, command: 'true' }}
  - {{ name: off, every: 1s, catch_up: all, enabled: {enabled}, command: 'true' }}
"
        )
    };
    let mut daemon = Daemon::on("host", list("24h", false)).start();
    // What the new schedule would have had before is nobody's.
    wait_until("some seconds have an occurrence of neither", || {
        daemon.lines_with(&["ready"]) > 0 && chrono::Utc::now().timestamp() % 2 == 0
    });
    let before = chrono::Utc::now();
    reload(&mut daemon, &list("1s", true));
    for job in ["job", "off"] {
        wait_outcome(&mut daemon, job, "succeeded");
        let records = records(&daemon, job);
        let first = super::instant(&records[0]["scheduled_at"]);
        assert!(first >= Some(before), "{before} {records:#?}");
        assert_no_silence(&records);
    }
}

/// Three hosts reload, one after the other and again and again, while a job is due every second.
fn rolls(store: &str, lists: &[&dyn Fn(&RunLog) -> String], signals: usize) {
    let log = RunLog::new();
    let list = |n: usize| format!("store: {store}\njobs:\n{}", lists[n % lists.len()](&log));
    let mut hosts: Vec<Daemon> = ["one", "two", "three"]
        .map(|name| Daemon::on(name, list(0)).start())
        .into();
    hosts[0].wait_until("it runs", |_| log.entries().len() >= 2);
    for n in 1..=lists.len() {
        for host in &mut hosts {
            for _ in 1..signals {
                host.signal(Signal::SIGHUP);
            }
            reload(host, &list(n));
        }
        let before = log.entries().len();
        hosts[0].wait_until("it goes on", |_| log.entries().len() >= before + 3);
    }
    let records = records(&hosts[0], "tick");
    for mut host in hosts {
        assert_eq!(host.terminate().code(), Some(0));
    }
    log.assert_each_once();
    log.assert_no_overlap();
    log.assert_none_missing(1000);
    assert_no_silence(&records);
    let all = verdicts(&records);
    assert!(
        all.values().all(|verdict| verdict == "succeeded"),
        "{all:?}"
    );
}

#[test]
fn no_occurrence_is_lost_or_doubled_while_three_hosts_reload_ten_times_a_second() {
    let redis = RedisServer::start();
    let other = "  - { name: other, every: 2s, command: 'true' }\n";
    rolls(
        &redis.url(),
        &[
            &|log| tick(log, ""),
            &|log| format!("{other}{}", tick(log, "")),
            &|log| tick(log, "").replace("start_deadline: 60s", "start_deadline: 50s"),
        ],
        10,
    );
}

#[test]
fn a_rolling_reload_may_change_the_lock_of_a_job() {
    let redis = RedisServer::start();
    rolls(
        &redis.url(),
        &[&|log| tick(log, ""), &|log| tick(log, ", name: another")],
        1,
    );
}

#[test]
fn signals_that_come_while_the_list_is_read_are_answered_by_one_reading() {
    let log = RunLog::new();
    let list = format!("jobs:\n{}", tick(&log, ""));
    let mut daemon = Daemon::on("host", list.as_str()).start();
    for n in 0..10 {
        daemon.signal(Signal::SIGHUP);
        // Each is delivered before the next one is sent: pending signals of one kind are one.
        let pid = daemon.pid();
        wait_until(&format!("signal {n} is delivered"), || {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
            pending.is_some_and(|mask| mask.trim().ends_with('0'))
        });
    }
    replace(
        &daemon.list(),
        &format!("{list}  - {{ name: last, every: 1s, command: 'true' }}\n"),
    );
    daemon.signal(Signal::SIGHUP);
    daemon.wait_log(&["1 job added (last)"]);
    let readings = daemon.lines_with(&["reloaded "]);
    assert!(readings < 6, "{readings}");
    wait_outcome(&mut daemon, "last", "succeeded");
}

#[test]
fn a_watched_list_is_read_when_it_changes_whether_file_or_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("lists");
    fs::create_dir(&path).expect("a writable directory");
    let job = |name: &str| format!("jobs: [{{ name: {name}, every: 1s, command: 'true' }}]\n");
    fs::write(path.join("a.yaml"), job("a")).expect("a writable directory");
    let mut daemon = Daemon::on("host", "").list(&path).arg("--watch").start();
    wait_outcome(&mut daemon, "a", "succeeded");
    fs::write(path.join("b.yaml"), job("b")).expect("a writable directory");
    daemon.wait_log(&["1 job added (b)"]);
    replace(&path.join("a.yaml"), &job("c"));
    daemon.wait_log(&["1 job added (c), 1 job removed (a)"]);
    wait_outcome(&mut daemon, "c", "succeeded");
    fs::remove_dir_all(&path).expect("it is there");
    daemon.wait_log(&["reload refused"]);
    let runs = |daemon: &Daemon| records(daemon, "c").len();
    fs::create_dir(&path).expect("a writable directory");
    fs::write(path.join("c.yaml"), job("c")).expect("a writable directory");
    daemon.wait_log(&["1 job removed (b)"]);
    let before = runs(&daemon);
    daemon.wait_until("it goes on", |daemon| runs(daemon) > before);
    assert!(has(&records(&daemon, "c")[0]["outcome"], "succeeded"));
    // The same files are back: what was refused last is the list that is in force.
    let away = dir.path().join("away");
    fs::rename(&path, &away).expect("it is there");
    daemon.wait_until("the missing list is refused", |daemon| {
        daemon.lines_with(&["reload refused"]) == 2
    });
    fs::rename(&away, &path).expect("it is there");
    daemon.wait_log(&["reloaded", "nothing has changed"]);
}
