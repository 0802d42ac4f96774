//! The unit and its companions, judged by systemd itself and run by a real user manager.

mod system;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Output, RunLog, command, cronlatch, tree, wait_for, wait_until};

const SYSTEMD: &str = "/lib/systemd/systemd";
const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/systemd");

/// The shipped unit, with the program under test in the place of the installed one.
fn unit(exec_start: &str) -> String {
    let text = fs::read_to_string(format!("{SHIPPED}/cronlatch.service")).unwrap();
    let shipped = "ExecStart=/usr/bin/cronlatch run /etc/cronlatch/jobs.yaml";
    assert!(text.contains(shipped), "the unit starts something else");
    let program = exec_start.split(' ').next().unwrap();
    text.replace(shipped, &format!("ExecStart={exec_start}"))
        .replace("/usr/bin/cronlatch", program)
}

fn run(program: &str, args: &[&str]) -> Output {
    let mut command = command::command(program);
    command.args(args);
    command::output(command)
}

#[test]
fn systemd_finds_no_fault_in_the_unit_nor_in_its_drop_ins() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cronlatch.service");
    let started = format!("{} run /etc/cronlatch/jobs.yaml", command::BINARY);
    fs::write(&path, unit(&started)).unwrap();
    let path = path.to_str().unwrap();
    let plain = run("systemd-analyze", &["verify", path]).expect_code(0);
    assert_eq!(plain.stderr, "", "{plain:#?}");

    let drop_ins = dir.path().join("cronlatch.service.d");
    fs::create_dir(&drop_ins).unwrap();
    for entry in fs::read_dir(format!("{SHIPPED}/drop-ins")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), drop_ins.join(entry.file_name())).unwrap();
    }
    let strict = run("systemd-analyze", &["verify", path]).expect_code(0);
    assert_eq!(strict.stderr, "", "{strict:#?}");
    // The scale is 0 to 10 with one digit behind the point, here without the point.
    let judged = ["security", "--offline=true", "--threshold=30", path];
    run("systemd-analyze", &judged).expect_code(0);
}

#[test]
fn the_account_and_the_directory_of_the_lists_come_into_being() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("etc")).unwrap();
    let root = format!("--root={}", dir.path().display());
    let account = format!("{SHIPPED}/sysusers.d/cronlatch.conf");
    run("systemd-sysusers", &[&root, &account]).expect_code(0);
    let users = fs::read_to_string(dir.path().join("etc/passwd")).unwrap();
    assert!(users.starts_with("cronlatch:"), "{users}");

    let directory = format!("{SHIPPED}/tmpfiles.d/cronlatch.conf");
    run("systemd-tmpfiles", &[&root, "--create", &directory]).expect_code(0);
    assert!(dir.path().join("etc/cronlatch").is_dir());
}

#[test]
fn systemctl_start_waits_for_readiness_and_stop_drains() {
    let mut manager = Manager::start();
    let runs = RunLog::new();
    manager.install(&runs.job("2"), "");
    manager.systemctl(&["start", &manager.unit]).expect_code(0);
    assert_eq!(manager.property("ActiveState"), "active");

    wait_until("a job has begun", || !runs.entries().is_empty());
    manager.systemctl(&["stop", &manager.unit]).expect_code(0);
    assert_eq!(manager.property("Result"), "success");
    let entries = runs.entries();
    assert!(entries.iter().all(|entry| entry.ended), "{entries:#?}");

    let history = manager.history();
    let succeeded = history.iter().filter(|run| run["outcome"] == "succeeded");
    assert_eq!(succeeded.count(), entries.len(), "{history:#?}");
}

#[test]
fn systemctl_restart_lets_a_running_job_end_and_goes_on() {
    let mut manager = Manager::start();
    let runs = RunLog::new();
    manager.install(&runs.job("2"), "");
    manager.systemctl(&["start", &manager.unit]).expect_code(0);
    let first = manager.property("MainPID");
    wait_until("a job runs", || {
        runs.entries().last().is_some_and(|entry| !entry.ended)
    });
    let begun = runs.entries().len();
    manager
        .systemctl(&["restart", &manager.unit])
        .expect_code(0);
    let second = manager.property("MainPID");
    assert_ne!(first, second);
    let entries = runs.entries();
    assert!(entries[..begun].iter().all(|e| e.ended), "{entries:#?}");
    let after = entries.len();
    wait_until("the new daemon runs jobs", || runs.entries().len() > after);
    assert_eq!(manager.property("MainPID"), second);
    manager.systemctl(&["stop", &manager.unit]).expect_code(0);
    assert_eq!(manager.property("Result"), "success");

    let history = manager.history();
    let outcome = |record: &serde_json::Value| record["outcome"].as_str().unwrap().to_owned();
    let outcomes: Vec<String> = history.iter().map(outcome).collect();
    let succeeded = outcomes.iter().filter(|outcome| *outcome == "succeeded");
    assert_eq!(succeeded.count(), runs.entries().len(), "{outcomes:?}");
    let orderly = ["succeeded", "skipped", "missed"];
    assert!(
        (outcomes.iter()).all(|outcome| orderly.contains(&outcome.as_str())),
        "{outcomes:?}"
    );
}

#[test]
fn the_watchdog_restarts_a_daemon_that_hangs_and_no_job_of_it_lives_on() {
    let mut manager = Manager::start();
    let runs = RunLog::new();
    manager.install(&runs.endless_job(), "WatchdogSec=4s\nRestartSec=100ms\n");
    manager.systemctl(&["start", &manager.unit]).expect_code(0);
    wait_until("a job has begun", || !runs.entries().is_empty());
    let job = runs.entries()[0].pid;
    let first: i32 = manager.property("MainPID").parse().unwrap();

    kill(Pid::from_raw(first), Signal::SIGSTOP).unwrap();
    wait_until("another daemon is up", || {
        let main: i32 = manager.property("MainPID").parse().unwrap();
        main != first && main != 0 && manager.property("ActiveState") == "active"
    });
    assert!(!tree::is_alive(first) && !tree::is_alive(job));
    assert_ne!(manager.property("NRestarts"), "0");
}

#[test]
fn systemctl_reload_puts_a_good_list_into_force_and_a_bad_one_not() {
    let mut manager = Manager::start();
    let runs = RunLog::new();
    manager.install(&runs.job("0"), "");
    manager.systemctl(&["start", &manager.unit]).expect_code(0);
    let pid = manager.property("MainPID");
    wait_until("a job has begun", || !runs.entries().is_empty());
    let reload = |manager: &Manager| {
        manager.systemctl(&["reload", &manager.unit]).expect_code(0);
    };

    fs::write(manager.list(), "jobs: [{ name: job }]").unwrap();
    reload(&manager);
    wait_until("the list is refused", || {
        let status = manager.property("StatusText");
        status.contains("new job list refused") && status.contains("jobs.yaml:1:")
    });
    wait_until("the unit is as it was", || {
        manager.property("ActiveState") == "active"
    });
    let before = runs.entries().len();
    wait_until("the old list goes on", || runs.entries().len() > before);

    manager.write_list("other", &runs.job("0"));
    reload(&manager);
    wait_until("the new list is in force", || {
        runs.entries().iter().any(|entry| entry.job == "other")
    });
    wait_until("the unit is as it was", || {
        manager.property("ActiveState") == "active"
            && !manager.property("StatusText").contains("refused")
    });
    assert_eq!(manager.property("MainPID"), pid);
    manager.systemctl(&["stop", &manager.unit]).expect_code(0);
    assert_eq!(manager.property("Result"), "success");
}

/// A user manager of our own, with one unit: the shipped one.
struct Manager {
    child: Child,
    mark: String,
    unit: String,
    dir: tempfile::TempDir,
    /// Managers of one machine share a control group here and there: one at a time.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Manager {
    /// Starts one. A machine on which none can start fails the test: it has been shown nothing.
    #[track_caller]
    fn start() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // systemd's tools refuse to work where this is missing, as it is in containers.
        if nix::unistd::geteuid().is_root() {
            fs::create_dir_all("/run/systemd/system").unwrap();
            // The system manager makes this one, and a namespace needs it to hide a directory.
            fs::create_dir_all("/run/systemd/inaccessible/dir").unwrap();
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["run", "home", "config/systemd/user"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let log = File::create(dir.path().join("log")).unwrap();
        let mark = tree::new_mark();
        let mut command = surroundings(dir.path(), SYSTEMD);
        command.arg("--user").env(tree::MARK_VARIABLE, &mark);
        command
            .stdout(log.try_clone().unwrap())
            .stderr(Stdio::from(log));
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("no user manager: cannot run {SYSTEMD}: {error}"),
        };
        let mut manager = Self {
            child,
            mark,
            unit: format!("cronlatch-{}.service", std::process::id()),
            dir,
            _alone: alone,
        };
        wait_until("the user manager answers", || {
            let ended = manager.child.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "no user manager: {ended:?}\n{}",
                manager.log()
            );
            manager.systemctl(&["list-units"]).code() == 0
        });
        manager
    }

    /// Writes the shipped unit for a list with one job, due every second, and these settings more.
    fn install(&mut self, script: &str, settings: &str) {
        self.write_list("job", script);
        let list = self.list();
        let units = self.dir.path().join("config/systemd/user");
        let started = format!("{} run {}", command::BINARY, list.display());
        fs::write(units.join(&self.unit), unit(&started)).unwrap();
        let drop_in = units.join(format!("{}.d", self.unit));
        fs::create_dir(&drop_in).unwrap();
        let log = self.dir.path().join("daemon-log");
        let own = format!(
            "[Service]\nStandardOutput=append:{0}\nStandardError=append:{0}\n{settings}",
            log.display()
        );
        fs::write(drop_in.join("test.conf"), own).unwrap();
        self.systemctl(&["daemon-reload"]).expect_code(0);
    }

    /// Writes a list with one job, due every second.
    fn write_list(&self, name: &str, script: &str) {
        let job = serde_json::json!({
            "name": name, "schedule": "* * * * * *", "command": script,
            "lock": { "ttl": "3s" }, "kill_grace": "200ms",
        });
        // JSON is YAML.
        let list = serde_json::json!({ "jobs": [job] });
        fs::write(self.list(), list.to_string()).unwrap();
    }

    fn list(&self) -> PathBuf {
        self.dir.path().join("jobs.yaml")
    }

    /// The embedded store, in the unit's state directory: there is one database file in it.
    fn store(&self) -> PathBuf {
        let state = self.dir.path().join("config/cronlatch");
        wait_for("the embedded store is there", || {
            let files = fs::read_dir(&state).ok()?.filter_map(Result::ok);
            files.map(|file| file.path()).find(|path| {
                fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"SQLite format 3\0"))
            })
        })
    }

    /// The records of the embedded store.
    fn history(&self) -> Vec<serde_json::Value> {
        let list = self.list();
        let store = format!("sqlite:{}", self.store().display());
        let args = ["history", "-c", list.to_str().unwrap(), "--store", &store];
        let args = [&args[..], &["--json"]].concat();
        cronlatch(&args).expect_code(0).json_lines()
    }

    fn systemctl(&self, args: &[&str]) -> Output {
        let mut command = surroundings(self.dir.path(), "systemctl");
        command.arg("--user").arg("--no-pager").args(args);
        command::output(command)
    }

    fn property(&self, name: &str) -> String {
        let args = ["show", "--value", "-p", name, &self.unit];
        self.systemctl(&args)
            .expect_code(0)
            .stdout
            .trim()
            .to_owned()
    }

    fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        format!("{}\n--- daemon ---\n{}", read("log"), read("daemon-log"))
    }
}

/// A command that finds its way to the manager of this directory.
fn surroundings(dir: &Path, program: &str) -> Command {
    let mut command = command::command(program);
    command
        .env("HOME", dir.join("home"))
        .env("XDG_RUNTIME_DIR", dir.join("run"))
        .env("XDG_CONFIG_HOME", dir.join("config"))
        .env_remove("DBUS_SESSION_BUS_ADDRESS");
    command
}

impl Drop for Manager {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- user manager ---\n{}---", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        tree::kill_all(&self.mark);
        // Only when empty, and only where it is ours to remove: on a machine run by systemd it is
        // not, for there it holds files or a manager that keeps it.
        if fs::read_to_string("/proc/1/comm").is_ok_and(|name| name.trim() != "systemd") {
            let _ = fs::remove_dir("/run/systemd/system");
        }
    }
}
