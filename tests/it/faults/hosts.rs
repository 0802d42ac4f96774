//! Faults of hosts: wrong clocks, daemons that stop or die, jobs that leave something behind.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{assert_no_silence, history, list, record_of, stubborn};
use crate::support::proxy::Mode;
use crate::support::{Daemon, Proxy, RedisServer, RunLog, cronlatch, tree, wait_for, wait_until};

#[test]
fn hosts_with_wrong_clocks_run_each_occurrence_once_and_none_early() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    // Queued, so that a machine on which a run takes longer than a second skips nothing.
    let list = list(
        &runs.job("0.05"),
        &json!({ "on_overlap": "queue", "queue_limit": 100 }),
    );
    let url = redis.url();
    let mut hosts: Vec<Daemon> = [("behind", -1500), ("true", 0), ("ahead", 700)]
        .map(|(name, shift)| {
            let daemon = Daemon::on(name, &list).store(&url);
            daemon.clock_shifted_by(shift).spawn()
        })
        .into();
    hosts.iter_mut().for_each(Daemon::wait_ready);
    let before = runs.entries().len();
    hosts[0].wait_until("six occurrences have run under all three clocks", |_| {
        runs.entries().len() >= before + 6
    });
    for host in &mut hosts {
        assert!(host.terminate().success());
    }
    runs.assert_each_once();
    runs.assert_none_early();
    runs.assert_none_missing(1000);
    runs.assert_no_overlap();
    runs.assert_fences_rise();
    let records = history(&hosts[0], &redis, "job");
    assert_no_silence(&records);
    for record in &records {
        assert_began_on_time(record);
    }
}

/// Records name the store's time, whatever the clock of the host shows. It is measured to within 50 ms.
#[track_caller]
fn assert_began_on_time(record: &Value) {
    let millis = |field: &str| {
        let instant = cronlatch::time::Timestamp::parse(record[field].as_str()?).ok()?;
        Some(instant.millis())
    };
    let times = millis("scheduled_at").zip(millis("started_at"));
    let (due, began) = times.unwrap_or_else(|| panic!("it has no times: {record}"));
    assert!(due <= began + 50, "it began before it was due: {record}");
    assert!(
        began <= millis("finished_at").unwrap_or(0),
        "it ended first: {record}"
    );
}

/// How many runs there were; fails if one began before its instant.
#[track_caller]
fn none_early(runs: &std::path::Path) -> usize {
    let text = std::fs::read_to_string(runs).unwrap_or_default();
    for line in text.lines() {
        let (due, began) = line.split_once(' ').unwrap();
        let due = cronlatch::time::Timestamp::parse(due).unwrap().millis();
        assert!(due <= began.parse().unwrap(), "ran early: {text}");
    }
    text.lines().count()
}

#[test]
fn a_fast_host_runs_without_the_store_by_the_store_s_clock_also_after_a_restart() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port());
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    let command = format!(
        "unset LD_PRELOAD FAKETIME; echo $CRONLATCH_SCHEDULED_AT $(date +%s%3N) >> {}",
        runs.display()
    );
    let list = list(&command, &json!({ "on_store_down": "run" }));
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let fast = || {
        let daemon = Daemon::on("fast", &list).store(&redis.url_via(proxy.port()));
        let daemon = daemon.env("STATE_DIRECTORY", state.to_str().unwrap());
        daemon.clock_shifted_by(20_000)
    };
    let mut daemon = fast().start();
    daemon.wait_until("it runs under a lock", |_| none_early(&runs) >= 2);
    proxy.set(Mode::Refuse);
    daemon.wait_log(&["running without a lock"]);
    let before = none_early(&runs);
    daemon.wait_until("it runs alone", |_| none_early(&runs) >= before + 2);
    daemon.terminate();
    let mut daemon = fast().spawn();
    daemon.wait_log(&["running without a lock"]);
    let before = none_early(&runs);
    daemon.wait_until("it runs alone again", |_| none_early(&runs) >= before + 2);

    proxy.set(Mode::Pass);
    daemon.wait_log(&["the store is reachable again"]);
    daemon.wait_log(&["started job=", "fence="]);
    let after = none_early(&runs);
    daemon.wait_until("it goes on under locks", |_| none_early(&runs) >= after + 2);
    assert!(daemon.terminate().success());
    for record in history(&daemon, &redis, "job") {
        // Nobody was there between the two daemons.
        let ran = !record["run_id"].is_null();
        let wanted = if ran { "succeeded" } else { "missed" };
        assert_eq!(record["outcome"], wanted, "{record:#?}");
    }
}

#[test]
fn a_stopped_daemon_loses_its_job_before_another_host_starts() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let list = list(&stubborn(&runs), &json!({}));
    let mut first = Daemon::on("first", &list).store(&redis.url()).start();
    first.wait_until("its job has begun", |_| !runs.entries().is_empty());
    let mut second = Daemon::on("second", &list).store(&redis.url()).start();
    first.signal(Signal::SIGSTOP);
    second.wait_until("it runs the job in the other's place", |_| {
        runs.entries().iter().any(|entry| entry.host == "second")
    });
    let ended = runs.entries().remove(0);
    assert!(!tree::is_alive(ended.pid));
    runs.assert_no_overlap();
    runs.assert_fences_rise();

    first.signal(Signal::SIGCONT);
    let record = record_of(&first, &redis, &ended.run_id);
    let outcome = record["outcome"].as_str().unwrap().to_owned();
    assert!(
        matches!(&*outcome, "interrupted" | "lease_lost"),
        "{record}"
    );
    runs.assert_no_overlap();
}

/// A job whose lease lasts for three seconds. It is due once a year: the tests start it by hand.
fn short_lease(command: &str) -> String {
    let lock = json!({ "ttl": "3s" });
    list(
        command,
        &json!({ "schedule": "@yearly", "lock": lock, "kill_grace": "200ms" }),
    )
}

/// Starts the run by hand on a host that is then stopped until its lease has expired. Returns the run, and
/// what the clock showed when the host continued.
fn stopped_during_a_run(first: &mut Daemon, redis: &RedisServer, runs: &RunLog) -> (String, i64) {
    first
        .ask(&["trigger", "job", "--store", &redis.url()])
        .expect_code(0);
    first.wait_until("its job has begun", |_| !runs.entries().is_empty());
    first.signal(Signal::SIGSTOP);
    let run = runs.entries().remove(0);
    wait_until("its process has ended", || !tree::is_alive(run.pid));
    wait_until("its lease has expired", || {
        redis.number(&["EXISTS", "cronlatch:{job}:lock"]) == 0
    });
    let continued = chrono::Utc::now().timestamp_millis();
    first.signal(Signal::SIGCONT);
    (run.run_id, continued)
}

/// How long a run took, as recorded, and when it had ended.
fn times(record: &Value) -> (i64, i64) {
    let millis = |field: &str| {
        let instant = cronlatch::time::Timestamp::parse(record[field].as_str().unwrap());
        instant.unwrap().millis()
    };
    let ended = millis("finished_at");
    (ended - millis("started_at"), ended)
}

#[test]
fn a_run_that_ended_by_itself_while_its_daemon_was_stopped_did_not_lose_its_lease() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let list = short_lease(&runs.job("0.3"));
    let dir = tempfile::tempdir().expect("a directory");
    let metrics = dir.path().join("cronlatch.prom");
    let first = Daemon::on("first", &list).store(&redis.url());
    let first = first.env("CRONLATCH_METRICS_FILE", metrics.display().to_string());
    let mut first = first.start();
    let (run_id, continued) = stopped_during_a_run(&mut first, &redis, &runs);
    let record = record_of(&first, &redis, &run_id);
    assert_eq!(record["outcome"], "succeeded", "{record}");
    assert_eq!(record["exit_code"], 0, "{record}");
    let (took, ended) = times(&record);
    assert!(took < 2_500 && ended < continued, "{took}: {record}");
    assert_eq!(
        first.lines_with(&["the lease was lost"]),
        0,
        "{}",
        first.log()
    );
    let page = wait_for("the metrics have its verdict", || {
        let page = std::fs::read_to_string(&metrics).ok()?;
        let is_it =
            |line: &str| line.starts_with("cronlatch_verdicts_total") && line.contains("succeeded");
        page.lines().any(is_it).then_some(page)
    });
    let none = "cronlatch_leases_lost_total{reason=\"expired\"} 0\n";
    assert!(page.contains(none), "{page}");
}

#[test]
fn a_run_that_the_guard_killed_while_its_daemon_was_stopped_ended_then_and_is_not_killed_again() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let list = short_lease(&runs.job("60"));
    let mut first = Daemon::on("first", &list).store(&redis.url()).start();
    first.wait_ready();
    let (run_id, continued) = stopped_during_a_run(&mut first, &redis, &runs);
    let record = record_of(&first, &redis, &run_id);
    assert_eq!(record["outcome"], "lease_lost", "{record}");
    let (took, ended) = times(&record);
    assert!(took < 3_000 && ended < continued, "{took}: {record}");
    first.wait_log(&["ERROR", "finished after 2.", "lease lost"]);
    assert_eq!(first.lines_with(&["killing the run"]), 0, "{}", first.log());
}

#[test]
fn a_host_that_reports_late_replaces_the_interrupted_that_another_has_recorded() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let list = list(
        &runs.job("0.3"),
        &json!({ "schedule": "*/4 * * * * *", "lock": { "ttl": "3s" }, "kill_grace": "200ms" }),
    );
    let mut first = Daemon::on("first", &list).store(&redis.url()).start();
    first.wait_until("its job has begun", |_| !runs.entries().is_empty());
    first.signal(Signal::SIGSTOP);
    let run = runs.entries().remove(0);
    let second = Daemon::on("second", &list).store(&redis.url()).start();
    let of_run = || {
        let records = history(&second, &redis, "job").into_iter();
        let of_run = records.filter(|record| record["run_id"] == *run.run_id);
        of_run
            .map(|record| record["outcome"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    wait_until("the other host records it", || of_run() == ["interrupted"]);
    first.signal(Signal::SIGCONT);
    wait_until("its own host has reported", || of_run() == ["succeeded"]);
    runs.assert_no_overlap();
}

#[test]
fn a_killed_daemon_takes_its_jobs_along_and_another_host_runs_the_occurrence_again() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let list = list(
        &stubborn(&runs),
        &json!({ "schedule": "*/12 * * * * *", "on_crash": "rerun" }),
    );
    let mut hosts = ["one", "two"].map(|name| Daemon::on(name, &list).store(&redis.url()).start());
    hosts[0].wait_until("the job has begun", |_| !runs.entries().is_empty());
    let first = runs.entries().remove(0);
    let [one, two] = &mut hosts;
    let (holder, other) = if first.host == "one" {
        (one, two)
    } else {
        (two, one)
    };
    holder.kill();
    other.wait_until("it runs the occurrence again", |_| {
        runs.entries().iter().any(|entry| entry.attempt == 2)
    });
    let again = runs.entries().remove(1);
    assert_ne!(again.host, first.host);
    assert_eq!(again.scheduled, first.scheduled);
    assert!(!tree::is_alive(first.pid));
    runs.assert_no_overlap();
    runs.assert_fences_rise();
    wait_until("nothing of the killed host is left", || {
        holder.processes().is_empty()
    });
}

#[test]
fn a_process_left_behind_is_dead_before_the_lock_is_free() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    // The main process ends at once, with success; what it left signs on.
    let leaver = format!("{} & exit 0", stubborn(&runs));
    let list = list(&leaver, &json!({}));
    let mut host = Daemon::on("host", &list).store(&redis.url()).start();
    host.wait_until("three have run", |_| runs.entries().len() >= 3);
    assert!(host.terminate().success());
    runs.assert_no_overlap();
    assert!(
        runs.entries()
            .iter()
            .all(|entry| !tree::is_alive(entry.pid))
    );
    let records = history(&host, &redis, "job");
    let told = |record: &Value| {
        record["outcome"] == "succeeded"
            && record["reason"]
                .as_str()
                .is_some_and(|why| why.contains("left"))
    };
    assert!(records.iter().any(told), "{records:#?}");
}

#[test]
fn a_command_under_a_lock_and_a_job_under_the_same_exclude_one_another() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let list = list(
        &runs.endless_job(),
        &json!({ "lock": { "key": "app:deploy", "ttl": "3s" } }),
    );
    let mut host = Daemon::on("host", &list).store(&redis.url()).start();
    host.wait_until("its job has begun", |_| !runs.entries().is_empty());
    let url = redis.url();
    cronlatch(&["exec", "--key", "app:deploy", "--store", &url, "--", "true"]).expect_code(75);
}
