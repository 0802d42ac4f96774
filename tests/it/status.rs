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
    assert!(
        text.contains("critical: no daemon reports to sqlite:"),
        "{text}"
    );
}

#[test]
fn a_host_that_claims_nothing_because_of_its_clock_is_critical() {
    let redis = RedisServer::start();
    let list = list(&["{ name: often, every: 1s, command: 'true' }"]);
    let list = format!("store: {}\n{list}", redis.url());
    let mut daemon = Daemon::on("web1", list).clock_shifted_by(-90_000).start();
    daemon.wait_log(&["ERROR", "1m30s behind the store's", "starts no due jobs"]);
    let behind = "its clock is 1m30s behind the store's (max_clock_skew 30s)";
    let text = wait_for("the check finds it", || {
        let (code, text) = check(&daemon, &[]);
        (code == 2).then_some(text)
    });
    let wanted = format!("critical: host web1: it claims nothing: {behind}");
    assert!(text.contains(&wanted), "{text}");
    let status = daemon.ask(&["status"]).expect_code(0).stdout;
    assert!(
        status.contains(&format!("claims nothing: {behind}")),
        "{status}"
    );
    let explained = daemon.ask(&["explain", "often"]).expect_code(0).stdout;
    assert!(explained.contains(behind), "{explained}");
    assert!(!explained.contains("may run the job"), "{explained}");
}

#[test]
fn a_store_that_takes_no_writes_is_critical_and_the_reason_is_shown() {
    let redis = RedisServer::start();
    let list = list(&["{ name: tick, every: 1h, command: 'true' }"]);
    let mut daemon = Daemon::on("web1", format!("store: {}\n{list}", redis.url())).start();
    daemon.wait_ready();
    wait_until("nothing is wrong", || check(&daemon, &[]).0 == 0);
    for setting in ["maxmemory", "min-replicas-to-write"] {
        redis.config(setting, "1");
        expect_no_writes(&daemon, setting);
        redis.config(setting, "0");
        wait_until("nothing is wrong", || check(&daemon, &[]).0 == 0);
    }
    redis.break_snapshots();
    expect_no_writes(&daemon, "append-only file");
    redis.mend_snapshots();
    wait_until("nothing is wrong", || check(&daemon, &[]).0 == 0);
}

/// Expects that every command that needs to know says why the store takes no writes.
#[track_caller]
fn expect_no_writes(daemon: &Daemon, setting: &str) {
    let (code, text) = check(daemon, &[]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("critical: nothing is claimed: redis://") && text.contains(setting),
        "{text}"
    );
    let status = daemon.ask(&["status"]).expect_code(0).stdout;
    assert!(
        status.contains(setting) && status.contains("web1"),
        "{status}"
    );
    let explained = daemon.ask(&["explain", "tick", "--json"]).expect_code(0);
    let explained = &explained.json_lines()[0];
    assert_eq!(explained["hosts"][0]["decision"], "waits", "{explained}");
    assert!(
        explained["details"].to_string().contains(setting),
        "{explained}"
    );
    let refused = daemon.ask(&["trigger", "tick"]).expect_code(69).stderr;
    assert!(
        refused.contains("nothing was started") && refused.contains(setting),
        "{refused}"
    );
}

#[test]
fn commands_that_find_nothing_in_a_store_that_nobody_named_say_where_they_looked() {
    let (absent, empty) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ask = |args: &[&str], state: &tempfile::TempDir| {
        let mut command = command::command(command::BINARY);
        command.args(args).env("XDG_STATE_HOME", state.path());
        command::output(command)
    };
    ask(&["init"], &empty).expect_code(0);
    let no_list = "no job list was found, ";
    let looked = format!("{no_list}so this looked in sqlite:");
    for (state, found) in [
        (&absent, format!("{no_list}and there is no store sqlite:")),
        (&empty, looked.clone()),
    ] {
        let said = ask(&["status", "--check"], state).expect_code(3).stdout;
        assert!(said.starts_with(&format!("UNKNOWN: {looked}")), "{said}");
        for (args, code) in [
            (&["status"][..], 0),
            (&["history", "backup"], 0),
            (&["logs", "backup"], 64),
            (&["forget", "backup"], 0),
            (&["pause", "backup"], 64),
            (&["kill", "backup"], 64),
            (&["trigger", "backup"], 69),
        ] {
            let said = ask(args, state).expect_code(code).stderr;
            let expected = format!("warning: {found}");
            assert!(said.contains(&expected), "{args:?}: {said}");
            assert_eq!(said.matches("warning: ").count(), 1, "{args:?}: {said}");
        }
    }
    let named = ["logs", "backup", "--store", "sqlite:/proc/self/cwd/none.db"];
    let dir = tempfile::tempdir().unwrap();
    let mut command = command::command(command::BINARY);
    command.args(named).current_dir(dir.path());
    let said = command::output(command).expect_code(64).stderr;
    assert!(!said.contains(no_list), "{said}");
}

#[test]
fn a_job_that_was_due_and_has_no_success_of_that_age_is_found() {
    let fails = "{ name: fails, every: 1s, command: 'false' }";
    let yearly = "{ name: yearly, schedule: '@yearly', command: 'true' }";
    let skips = "{ name: never, every: 1s, command: 'true', hosts: [db*] }";
    let typo = "{ name: typo, schedule: '@yearly', command: 'true', hosts: [web*, wbe2] }";
    let mut daemon = Daemon::on("web1", list(&[fails, yearly, skips, typo])).start();
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
    assert!(table.contains("no host matches wbe2\n"), "{table}");
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

#[test]
fn watch_sees_an_embedded_store_that_is_created_later_and_does_not_create_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("later.db");
    let store = format!("sqlite:{}", file.display());
    let mut watch = command::command(command::BINARY);
    watch
        .args(["status", "--watch=100ms", "--json", "--store", &store])
        .stdout(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut hosts = || {
        let line = lines.next().unwrap().unwrap();
        let status: serde_json::Value = serde_json::from_str(&line).unwrap();
        status["hosts"].as_array().unwrap().len()
    };
    assert_eq!(hosts(), 0);
    let list = list(&["{ name: yearly, schedule: '@yearly', command: 'true' }"]);
    let mut daemon = Daemon::on("web1", list).store(&store).start();
    wait_until("the page has the host", || hosts() == 1);
    daemon.kill();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    wait_until("the page has no host", || hosts() == 0);
    assert!(!file.exists());
    drop(lines);
    assert!(watch.wait().unwrap().success());
}

/// A job that each host runs for itself, and that fails where a file is missing.
fn of_each_host(store: &str, file: &str) -> String {
    format!(
        "\
store: {store}
jobs:
  - {{ name: collect, every: 1s, command: 'test -e {file}/$CRONLATCH_HOST', lock: {{ scope: host }} }}
"
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

#[test]
fn a_host_that_dies_without_notice_is_named_and_one_that_stops_is_not() {
    let redis = RedisServer::start();
    let list = format!(
        "store: {}\njobs:\n  - {{ name: quiet, schedule: '@yearly', command: 'true' }}\n",
        redis.url()
    );
    let mut stays = Daemon::on("web1", list.clone()).start();
    let mut stops = Daemon::on("web2", list.clone()).start();
    let mut dies = Daemon::on("web3", list.clone()).start();
    assert!(stops.terminate().success());
    dies.kill();
    stays.wait_log(&["host web3 has vanished", "did not stop in an orderly way"]);
    let status = stays
        .ask(&["status", "--json"])
        .expect_code(0)
        .json_lines()
        .remove(0);
    let names = |hosts: &serde_json::Value| -> Vec<String> {
        let hosts = hosts.as_array().unwrap().iter();
        hosts
            .map(|host| host["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&status["hosts"]), ["web1"]);
    assert_eq!(names(&status["vanished"]), ["web3"]);
    let text = stays.ask(&["status"]).expect_code(0).stdout;
    assert!(
        text.contains("\nhost web3 has vanished: its daemon last reported "),
        "{text}"
    );
    let (code, text) = check(&stays, &[]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("warning: host web3: it has vanished: "),
        "{text}"
    );
    assert!(!text.contains("web2"), "{text}");

    let _back = Daemon::on("web3", list).start();
    stays.wait_log(&["host web3, which had vanished, reports again"]);
    assert_eq!(check(&stays, &[]).0, 0);
    assert_eq!(stays.lines_with(&["has vanished"]), 1);
}

#[test]
fn a_host_with_another_list_is_named_with_the_jobs_that_differ() {
    let redis = RedisServer::start();
    let list = |jobs: &str| {
        let of_both = "{ name: same, schedule: '@yearly', command: 'true' }";
        format!(
            "\
store: {}
jobs:
  - {of_both}
{jobs}",
            redis.url()
        )
    };
    let job = |name: &str, command: &str| {
        format!("  - {{ name: {name}, schedule: '@yearly', command: '{command}' }}\n")
    };
    let ours = list(&(job("gone", "true") + &job("moved", "true")));
    let theirs = list(&(job("fresh", "true") + &job("moved", "false")));
    let mut one = Daemon::on("web1", ours.clone()).start();
    let mut other = Daemon::on("web2", theirs).start();
    let what = "has also job fresh; has another definition of job moved; lacks job gone";
    one.wait_log(&[
        "the job list of host web2 differs from that of this host: it",
        what,
    ]);
    other.wait_log(&[
        "the job list of host web1 differs from that of this host: it",
        "has also job gone; has another definition of job moved; lacks job fresh",
    ]);
    let status = one
        .ask(&["status", "--json"])
        .expect_code(0)
        .json_lines()
        .remove(0);
    let host = |at: usize| status["hosts"][at]["differing_jobs"].clone();
    assert_eq!(host(0), serde_json::Value::Null);
    assert_eq!(
        host(1),
        serde_json::json!({ "added": ["fresh"], "changed": ["moved"], "missing": ["gone"], "more": 0 })
    );
    let text = one.ask(&["status"]).expect_code(0).stdout;
    assert!(
        text.contains(&format!("\nthe list of host web2 {what}\n")),
        "{text}"
    );
    let (code, text) = check(&one, &[]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains(&format!(
            "warning: host web2: it has another job list: it {what}\n"
        )),
        "{text}"
    );
    let found = one.ask(&["doctor", "--json"]).stdout;
    assert!(
        found.contains("host.lists") && found.contains(what),
        "{found}"
    );

    // Once for each change, and when it is over.
    std::fs::write(other.list(), &ours).unwrap();
    other.signal(nix::sys::signal::Signal::SIGHUP);
    for daemon in [&mut one, &mut other] {
        daemon.wait_log(&["all live hosts have the same job list again"]);
        assert_eq!(daemon.lines_with(&["differs from that of this host"]), 1);
    }
    let status = one
        .ask(&["status", "--json"])
        .expect_code(0)
        .json_lines()
        .remove(0);
    assert_eq!(status["hosts"][1]["config_differs"], false);
    assert!(
        status["hosts"][1].get("differing_jobs").is_none(),
        "{status:#}"
    );
}

#[test]
fn a_job_list_that_cannot_be_used_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = dir.path().join("wrong.yaml");
    std::fs::write(
        &wrong,
        "jobs:\n  - { name: a, every: 1h }\n  - { name: a b }\n",
    )
    .unwrap();
    let absent = dir.path().join("absent.yaml");
    let check = |list: &std::path::Path, options: &[&str]| {
        let mut command = command::command(command::BINARY);
        command.args(["status", "--check"]).args(options);
        command.env("CRONLATCH_CONFIG", list);
        command.env("STATE_DIRECTORY", dir.path());
        command::output(command).expect_code(3).stdout
    };
    let text = check(&absent, &[]);
    let expected = format!("UNKNOWN: {}: this file cannot be read: ", absent.display());
    assert!(text.starts_with(&expected), "{text}");
    let text = check(&wrong, &[]);
    let expected = format!("UNKNOWN: {}:2:", wrong.display());
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.contains("more error"), "{text}");
    let json = check(&wrong, &["--json"]);
    assert!(json.contains("\"status\":\"unknown\""), "{json}");
}
