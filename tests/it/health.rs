//! The health file and `cronlatch health`, for container managers.

use std::fs;

use serde_json::json;

use crate::support::{Daemon, Output, command};

fn health(file: &str, options: &[&str]) -> Output {
    let mut health = command::command(command::BINARY);
    health.arg("health").arg(file).args(options);
    command::output(health)
}

/// A file that the daemon may write, and its path as an argument.
fn file(dir: &tempfile::TempDir) -> String {
    dir.path().join("health").display().to_string()
}

#[test]
fn a_daemon_reports_that_it_is_alive_ready_and_stopping() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(&dir);
    let none = health(&file, &[]).expect_code(69);
    assert!(
        none.stderr.contains("cannot read the health file"),
        "{none:#?}"
    );

    let release = dir.path().join("release");
    let command = format!(
        "until [ -e {} ]; do sleep 0.05; done; echo \"[$CRONLATCH_HEALTH_FILE]\"",
        release.display()
    );
    let list = json!({ "jobs": [{ "name": "job", "every": "1s", "command": command }] });
    let mut daemon = Daemon::on("one", list.to_string())
        .env("CRONLATCH_HEALTH_FILE", file.as_str())
        .start();
    daemon.wait_until("it is ready", |_| health(&file, &["--ready"]).code() == 0);
    daemon.wait_until("its status follows", |_| {
        health(&file, &[]).stdout == "ready: 1 job, 1 running\n"
    });
    // It reports again although nothing changes.
    let before = fs::read_to_string(&file).unwrap();
    daemon.wait_until("it reports again", |_| {
        fs::read_to_string(&file).unwrap() != before
    });

    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    daemon.wait_until("it stops", |_| {
        health(&file, &[])
            .stdout
            .starts_with("stopping: 1 job, 1 running")
    });
    let stopping = health(&file, &["--ready"]).expect_code(69);
    assert!(
        stopping.stderr.starts_with("error: stopping"),
        "{stopping:#?}"
    );
    fs::write(&release, "").unwrap();
    assert!(daemon.wait_exit().success());
    // Only the daemon is asked with it.
    assert!(daemon.log().contains("INFO [] job=job"), "{}", daemon.log());
}

#[test]
fn a_daemon_that_no_longer_reports_is_not_alive() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(&dir);
    let since_boot = fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = since_boot.split(' ').next().unwrap().parse().unwrap();
    #[expect(clippy::cast_possible_truncation, reason = "whole seconds since boot")]
    let report = |seconds_ago: f64| {
        let millis = ((seconds - seconds_ago) * 1000.0) as i64;
        fs::write(&file, format!("ready {millis} 1 job, 0 running\n")).unwrap();
        health(&file, &[])
    };
    let silent = report(60.0).expect_code(69);
    let text = "error: the daemon has not reported for 1m";
    assert!(silent.stderr.starts_with(text), "{silent:#?}");
    report(1.0).expect_code(0);
    fs::write(&file, "something else\n").unwrap();
    let other = health(&file, &[]).expect_code(69);
    assert!(other.stderr.contains("not a health file"), "{other:#?}");
}

#[test]
fn a_daemon_that_waits_for_its_store_before_it_starts_is_alive_and_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let file = file(&dir);
    let list = json!({ "store": "redis://127.0.0.1:1", "strict": true,
        "jobs": [{ "name": "job", "every": "1h", "command": "true" }] });
    let mut daemon = Daemon::on("one", list.to_string())
        .arg("--health-file")
        .arg(&file)
        .spawn();
    daemon.wait_until("it reports what it waits for", |_| {
        health(&file, &[])
            .stdout
            .starts_with("starting: waiting until the store can be checked")
    });
    health(&file, &["--ready"]).expect_code(69);
    assert!(daemon.terminate().success());
}

#[test]
fn a_health_file_that_cannot_be_written_is_an_error_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("jobs.yaml"), "jobs: []\n").unwrap();
    let mut run = command::command(command::BINARY);
    run.args(["run", "jobs.yaml", "--health-file", "/proc/none/health"])
        .current_dir(dir.path())
        .env("STATE_DIRECTORY", dir.path());
    let refused = command::output(run).expect_code(74);
    assert!(
        refused.stderr.contains("cannot write the health file"),
        "{refused:#?}"
    );
}
