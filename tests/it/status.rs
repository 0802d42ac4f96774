//! `status --check` for monitoring systems, and `status --watch`.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::support::{Daemon, RedisServer, command, wait_for, wait_until};

/// What `status --check` prints and its exit status.
fn check(daemon: &Daemon, options: &[&str]) -> (i32, String) {
    let args = [&["status", "--check"], options].concat();
    let said = daemon.ask(&args);
    (said.code(), said.stdout)
}

fn list(jobs: &[&str]) -> String {
    format!("jobs:\n  - {}\n", jobs.join("\n  - "))
}

#[test]
fn a_fleet_without_problems_is_ok_and_a_failed_job_is_critical() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken");
    let job = format!(
        "{{ name: backup, every: 1s, command: 'test ! -e {}' }}",
        broken.display()
    );
    let quiet = "{ name: yearly, schedule: '@yearly', command: 'true' }";
    let mut daemon = Daemon::on("web1", list(&[&job, quiet])).start();
    wait_until("it has succeeded", || {
        check(&daemon, &["--max-age", "1h"]) == (0, "OK: 2 jobs, 1 live host\n".to_owned())
    });
    std::fs::write(&broken, "").unwrap();
    let text = wait_for("the failure is found", || {
        let (code, text) = check(&daemon, &[]);
        (code == 2).then_some(text)
    });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "CRITICAL: 1 critical (2 jobs, 1 live host)");
    assert!(
        lines[1].starts_with("critical: job backup: failed "),
        "{text}"
    );
    let (code, json) = check(&daemon, &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["status"]), (2, &"critical".into()));
    assert_eq!(json["problems"][0]["job"], "backup");
    assert!(daemon.terminate().success());
    let (code, text) = check(&daemon, &[]);
    assert_eq!(code, 2);
    assert!(text.contains("critical: no daemon is up\n"), "{text}");
}

#[test]
fn a_job_that_was_due_and_has_no_success_of_that_age_is_found() {
    let fails = "{ name: fails, every: 1s, command: 'false' }";
    let yearly = "{ name: yearly, schedule: '@yearly', command: 'true' }";
    let skips = "{ name: never, every: 1s, command: 'true', hosts: [db*] }";
    let mut daemon = Daemon::on("web1", list(&[fails, yearly, skips])).start();
    daemon.wait_ready();
    let text = wait_for("the failure is found", || {
        let (code, text) = check(&daemon, &["--max-age", "1h"]);
        (code == 2 && text.contains("job fails: failed")).then_some(text)
    });
    assert!(
        text.contains("job never: its `hosts` match no live host\n"),
        "{text}"
    );
    assert!(!text.contains("yearly"), "it was not due: {text}");
    let table = daemon.ask(&["status"]).expect_code(0).stdout;
    assert!(table.contains("its hosts match no live host"), "{table}");
    let wrong = daemon.ask(&["status", "--max-age", "1h"]).expect_code(64);
    assert!(wrong.stderr.contains("--check"), "{}", wrong.stderr);
}

#[test]
fn a_store_that_cannot_be_read_is_unknown() {
    let redis = RedisServer::start();
    let url = redis.url();
    let list = list(&["{ name: a, schedule: '@yearly', command: 'true' }"]);
    let mut daemon = Daemon::on("web1", list).store(&url).start();
    daemon.wait_ready();
    assert_eq!(check(&daemon, &["--store", &url]).0, 0);
    assert!(daemon.terminate().success());
    drop(redis);
    let (code, text) = check(&daemon, &["--store", &url]);
    assert_eq!(code, 3, "{text}");
    assert!(
        text.starts_with("UNKNOWN: the store is unreachable"),
        "{text}"
    );
}

#[test]
fn watch_shows_each_change_until_its_reader_is_gone() {
    let job = "{ name: ticks, every: 1s, command: 'true' }";
    let daemon = Daemon::on("web1", list(&[job])).start();
    let mut watch = command::command(command::BINARY);
    watch
        .args(["status", "--watch=100ms", "--json", "--config"])
        .arg(daemon.list())
        .env("STATE_DIRECTORY", daemon.list().parent().unwrap())
        .stdout(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut last = None;
    // Two different verdicts of the job pass by.
    let seen = lines.by_ref().filter_map(|line| {
        let status: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        let run = status["jobs"][0]["last"]["run_id"].as_str()?.to_owned();
        (last.replace(run.clone()) != Some(run.clone())).then_some(run)
    });
    assert_eq!(seen.take(2).count(), 2);
    drop(lines);
    assert!(watch.wait().unwrap().success());
}

/// A job that each host runs for itself, and that fails where a file is missing.
fn of_each_host(store: &str, file: &str) -> String {
    format!(
        "store: {store}\njobs:\n  - {{ name: collect, every: 1s, command: 'test -e {file}/$CRONLATCH_HOST', \
         lock: {{ scope: host }} }}\n"
    )
}

#[test]
fn a_job_that_each_host_has_for_itself_has_a_row_and_a_verdict_for_each() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("web1"), "").unwrap();
    let list = of_each_host(&redis.url(), &dir.path().display().to_string());
    let web1 = Daemon::on("web1", list.clone()).start();
    let mut web2 = Daemon::on("web2", list).start();
    let job = || web1.ask(&["status", "--json"]).expect_code(0).json_lines()[0]["jobs"][0].clone();
    let on = |job: &serde_json::Value, name: &str| {
        let rows = job["on_hosts"].as_array().cloned().unwrap_or_default();
        rows.into_iter().find(|row| row["host"] == name)
    };
    let outcome = |job: &serde_json::Value, name: &str| {
        on(job, name).is_some_and(|row| row["last"]["outcome"].is_string())
    };
    let found = wait_for("both have run it", || {
        let job = job();
        (outcome(&job, "web1") && outcome(&job, "web2")).then_some(job)
    });
    let (one, two) = (on(&found, "web1").unwrap(), on(&found, "web2").unwrap());
    assert_eq!(one["last"]["outcome"], "succeeded");
    assert_eq!(
        (&one["last"]["host"], &two["last"]["host"]),
        (&"web1".into(), &"web2".into())
    );
    assert_eq!(two["last"]["outcome"], "failed");
    assert!(
        two["last_success"].is_null() && two["next_at"].is_string(),
        "{two:#}"
    );
    let (code, text) = check(&web1, &[]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("critical: job collect: host web2: failed "),
        "{text}"
    );
    assert!(!text.contains("host web1"), "{text}");

    assert!(web2.terminate().success());
    assert_eq!(on(&job(), "web2").unwrap()["live"], false);
    let text = web1.ask(&["status"]).expect_code(0).stdout;
    let row = |host: &str| {
        let mut lines = text.lines();
        lines
            .find(|line| line.starts_with(&format!("  on {host} ")))
            .expect("a row")
    };
    assert!(row("web1").contains(" succeeded "), "{text}");
    assert!(
        row("web2").contains("host is down") && row("web2").contains(" failed (1) "),
        "{text}"
    );
    // The daemon of a host that is down is not judged by its last run.
    assert_eq!(check(&web1, &[]).0, 0);
}
