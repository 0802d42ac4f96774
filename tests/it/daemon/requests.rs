//! Requests to daemons: `trigger` and `kill`.

use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{has, records, wait_outcome};
use crate::support::cluster::Replicas;
use crate::support::redis::{documented_cluster_rights, documented_rights};
use crate::support::sentinel::{Door, Sentinel, Watched, url};
use crate::support::{Cluster, Daemon, RedisServer, RunLog, command, wait_until};

/// A list without anything due soon: what runs is asked for.
fn list(store: &str, jobs: &[(&str, &str, &str)]) -> String {
    let jobs = jobs.iter().map(|(name, more, command)| {
        format!(
            r#"  - name: {name}
    schedule: "0 0 1 1 *"
    kill_grace: 500ms
    {more}
    command: '{command}'
"#
        )
    });
    format!("store: {store}\njobs:\n{}", jobs.collect::<String>())
}

fn newest(daemon: &Daemon, job: &str) -> Value {
    let mut records = records(daemon, job);
    records.sort_by_key(|record| record["started_at"].to_string());
    records.pop().unwrap_or_default()
}

/// The run of a job that status shows, once there is one.
#[track_caller]
fn running(daemon: &mut Daemon, job: &str) -> String {
    let mut found = None;
    daemon.wait_until("the job runs", |daemon| {
        let status = daemon.ask(&["status", "--json"]).expect_code(0);
        let status = status.json_lines().remove(0);
        let jobs = status["jobs"].as_array().cloned().unwrap_or_default();
        let job = jobs.into_iter().find(|it| it["name"] == job);
        found = job.and_then(|job| Some(job["running"]["run_id"].as_str()?.to_owned()));
        found.is_some()
    });
    found.expect("it was waited for")
}

/// Starts a command of `cronlatch` and does not wait for it.
fn spawn(daemon: &Daemon, args: &[&str]) -> Child {
    let mut asked = command::command(command::BINARY);
    asked
        .args(args)
        .env("CRONLATCH_CONFIG", daemon.list())
        .env("CRONLATCH_HOST", "elsewhere")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    asked.spawn().expect("the program starts")
}

/// What every kind of store must carry: a run on another host that is followed, and a run that is
/// killed from another host.
fn requests_reach_the_other_host(store: &str) {
    let runs = RunLog::new();
    let job = format!("{}; echo $WHERE; echo alas >&2; exit 7", runs.begin());
    let jobs = list(
        store,
        &[
            ("hand", "retry: { attempts: 1 }", &job),
            ("endless", "retry: { attempts: 3 }", &runs.endless_job()),
        ],
    );
    let one = Daemon::on("one", jobs.as_str()).start();
    let mut two = Daemon::on("two", jobs.as_str())
        .env("WHERE", "there")
        .start();
    let asked = [
        "trigger", "hand", "--on", "two", "--wait", "--reason", "a test",
    ];
    let done = one.ask(&asked).expect_code(7);
    assert_eq!(done.stdout, "there\n");
    assert!(done.stderr.starts_with("alas\n"), "{done:#?}");
    assert!(done.stderr.contains("failed (7)"), "{done:#?}");
    let record = newest(&one, "hand");
    assert_eq!(
        (&record["host"], &record["kind"]),
        (&"two".into(), &"manual".into())
    );
    assert!(has(&record["by"], "@one"), "{record:#}");
    assert!(has(&record["reason"], "triggered by "), "{record:#}");
    assert!(has(&record["reason"], ": a test"), "{record:#}");

    let started = one.ask(&["trigger", "endless", "--on", "two", "--json"]);
    let started = started.expect_code(0).json_lines().remove(0);
    assert_eq!(started["host"], "two");
    let run = running(&mut two, "endless");
    assert_eq!(started["run_id"], *run);
    let held = one
        .ask(&["trigger", "endless", "--on", "one"])
        .expect_code(75);
    let in_progress = format!("job endless is in progress on two (run {run}, since ");
    assert!(held.stderr.contains(&in_progress), "{held:#?}");
    let killed = one.ask(&["kill", "endless", "--reason", "it hangs", "--wait"]);
    let killed = killed.expect_code(0).stdout;
    assert_eq!(
        killed,
        format!("run {run} of job endless on two has ended: stopped\n")
    );
    let record = newest(&one, "endless");
    assert_eq!(
        (&record["outcome"], &record["attempts"]),
        (&"stopped".into(), &1.into())
    );
    assert!(has(&record["by"], "@one"), "{record:#}");
    assert!(has(&record["reason"], ": it hangs"), "{record:#}");
    let again = one.ask(&["kill", &run]).expect_code(75);
    assert_eq!(
        again.stderr,
        format!("error: run {run} of job endless has ended already: stopped\n")
    );

    let status = one
        .ask(&["status", "--json"])
        .expect_code(0)
        .json_lines()
        .remove(0);
    let requests = status["requests"].as_array().cloned().unwrap_or_default();
    let shown: Vec<_> = requests
        .iter()
        .map(|it| {
            [
                &it["what"],
                &it["job"],
                &it["host"],
                &it["state"],
                &it["reason"],
            ]
        })
        .map(|fields| fields.map(|field| field.as_str().unwrap_or("-")).join(" "))
        .collect();
    assert_eq!(
        shown,
        [
            "kill endless two killed it hangs",
            "trigger endless one refused ",
            "trigger endless two started ",
            "trigger hand two started a test",
        ]
    );
    assert_eq!(requests[0]["runs"], serde_json::json!([run]));
    let people = one.ask(&["status"]).expect_code(0).stdout;
    assert!(people.contains("it hangs"), "{people}");
}

#[test]
fn a_run_is_triggered_and_killed_on_another_host() {
    let redis = RedisServer::builder()
        .user("cronlatch", documented_rights())
        .start();
    requests_reach_the_other_host(&redis.url());
}

#[test]
fn the_embedded_store_carries_requests_between_its_daemons() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    requests_reach_the_other_host(&format!("sqlite:{}/store.db", dir.path().display()));
}

#[test]
fn a_majority_of_nodes_carries_requests_while_one_is_down() {
    let mut nodes = [(); 3].map(|()| RedisServer::start());
    let urls: Vec<_> = nodes.iter().map(RedisServer::url).collect();
    let init: Vec<&str> = urls.iter().flat_map(|url| ["--store", url]).collect();
    command::cronlatch(&[&["init"][..], &init].concat()).expect_code(0);
    nodes[1].stop();
    requests_reach_the_other_host(&format!("[{}]", urls.join(", ")));
}

#[test]
fn a_cluster_carries_requests() {
    let cluster = Cluster::start(Replicas::None, &documented_cluster_rights());
    let url = cluster.url_of(&[0, 1, 2]);
    command::cronlatch(&["init", "--store", &url]).expect_code(0);
    requests_reach_the_other_host(&url);
}

#[test]
fn a_master_behind_sentinels_carries_requests() {
    let redis = RedisServer::start();
    let sentinels = Sentinel::start(1, &Watched::only(&redis), &Door::default());
    requests_reach_the_other_host(&url(&sentinels));
}

#[test]
fn a_request_for_what_no_host_has_is_refused_and_says_what_there_is() {
    let redis = RedisServer::start();
    let jobs = list(
        &redis.url(),
        &[
            ("backup", "enabled: true", "true"),
            ("off", "enabled: false", "echo it runs"),
            ("elsewhere", "hosts: [db*]", "true"),
        ],
    );
    let host = Daemon::on("one", jobs).start();
    let asked = |args: &[&str], code: i32, text: &str| {
        let refused = host.ask(args).expect_code(code);
        assert!(refused.stderr.contains(text), "{refused:#?}");
    };
    asked(
        &["trigger", "bakcup"],
        64,
        "the job list of host one has no job bakcup",
    );
    asked(&["trigger", "elsewhere"], 64, "its hosts are db*");
    asked(
        &["trigger", "backup", "--on", "two"],
        69,
        "live hosts are one",
    );
    asked(&["kill", "bakcup"], 64, "did you mean backup?");
    asked(
        &["kill", "backup"],
        75,
        "no run of job backup is in progress",
    );
    let unknown = "01a200cc-51c1-772e-90ed-bdf0bfb054e1";
    asked(&["kill", unknown], 64, "no host has a run");
    asked(
        &["kill", "backup", "--signal", "HOPP"],
        64,
        "there is no signal HOPP",
    );
    // A command from a machine without a daemon and without a list finds the host that has the job.
    let far = |args: &[&str]| {
        let mut far = command::command(command::BINARY);
        far.args(args)
            .args(["--store", &redis.url(), "--host", "far"])
            .env("CRONLATCH_CONFIG", "");
        far.env_remove("CRONLATCH_CONFIG");
        command::output(far)
    };
    far(&["trigger", "backup", "--wait"]).expect_code(0);
    let refused = far(&["trigger", "bakcup"]).expect_code(64).stderr;
    assert!(refused.contains("did you mean backup?"), "{refused}");
    // A disabled job runs by hand.
    let done = host.ask(&["trigger", "off", "--wait"]).expect_code(0);
    assert_eq!(done.stdout, "it runs\n");
}

#[test]
fn a_host_that_does_not_react_in_time_does_not_act_later() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let jobs = list(&redis.url(), &[("hand", "timeout: 1m", &runs.job("0"))]);
    let mut host = Daemon::on("one", jobs).start();
    host.signal(Signal::SIGSTOP);
    let refused = host.ask(&["trigger", "hand"]).expect_code(69);
    assert!(
        refused.stderr.contains("will not act on it"),
        "{refused:#?}"
    );
    host.signal(Signal::SIGCONT);
    // The next request is read together with the one that is too late.
    host.ask(&["trigger", "hand", "--wait"]).expect_code(0);
    assert_eq!(runs.entries().len(), 1);
    let status = host.ask(&["status"]).expect_code(0).stdout;
    assert!(status.contains("expired"), "{status}");
    host.terminate();
}

#[test]
fn a_run_of_a_host_that_is_away_is_not_killed_and_its_end_is_explained() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let lock = "lock: { ttl: 30s }";
    let jobs = list(&redis.url(), &[("endless", lock, &runs.endless_job())]);
    let one = Daemon::on("one", jobs.as_str()).start();
    let mut two = Daemon::on("two", jobs.as_str()).start();
    one.ask(&["trigger", "endless", "--on", "two"])
        .expect_code(0);
    wait_until("it runs", || !runs.entries().is_empty());
    two.kill();
    redis.command(&["HDEL", "cronlatch:hosts", "two"]);
    let refused = one.ask(&["kill", "endless"]).expect_code(69).stderr;
    assert!(
        refused.contains("whose daemon does not report"),
        "{refused}"
    );
    assert!(
        refused.contains("recorded as interrupted once its lease"),
        "{refused}"
    );
}

#[test]
fn a_signal_reaches_a_run_and_ends_it_only_if_the_run_lets_it() {
    let redis = RedisServer::start();
    let heeds = "trap \"echo again\" HUP; trap \"exit 3\" USR1; echo up; \
                 while :; do sleep 0.05; done";
    let jobs = list(
        &redis.url(),
        &[
            ("heeds", "timeout: 1m", heeds),
            (
                "dies",
                "retry: { attempts: 3 }",
                "while :; do sleep 0.05; done",
            ),
        ],
    );
    let mut host = Daemon::on("one", jobs).start();
    host.ask(&["trigger", "heeds"]).expect_code(0);
    host.wait_log(&["heeds", "up"]);
    let told = host
        .ask(&["kill", "heeds", "--signal", "hup"])
        .expect_code(0)
        .stdout;
    assert!(told.ends_with(" on one got SIGHUP\n"), "{told}");
    host.wait_log(&["heeds", "again"]);
    host.ask(&["kill", "heeds", "--signal", "USR1", "--wait"])
        .expect_code(0);
    let record = newest(&host, "heeds");
    assert_eq!(
        (&record["outcome"], &record["exit_code"]),
        (&"failed".into(), &3.into())
    );

    host.ask(&["trigger", "dies"]).expect_code(0);
    let run = running(&mut host, "dies");
    host.ask(&["kill", &run, "--signal", "SIGKILL"])
        .expect_code(0);
    let record = wait_outcome(&mut host, "dies", "stopped");
    assert_eq!(
        (&record["run_id"], &record["attempts"]),
        (&(*run).into(), &1.into())
    );
    assert!(
        has(&record["reason"], "ended by SIGKILL, sent by "),
        "{record:#}"
    );
}

#[test]
fn a_scheduled_run_is_killed_while_it_waits_for_its_next_attempt() {
    let redis = RedisServer::start();
    let jobs = list(
        &redis.url(),
        &[(
            "flaky",
            "retry: { attempts: 5, delay: 1h, max_delay: 1h }",
            "exit 1",
        )],
    );
    let jobs = jobs.replace("schedule: \"0 0 1 1 *\"", "every: 1s");
    let mut host = Daemon::on("one", jobs).start();
    host.wait_log(&["flaky", "retrying in"]);
    host.ask(&["pause", "flaky"]).expect_code(0);
    host.ask(&["kill", "flaky", "--reason", "no hope"])
        .expect_code(0);
    let record = wait_outcome(&mut host, "flaky", "stopped");
    assert_eq!(record["attempts"], 1);
    assert!(
        has(&record["reason"], "killed by ") && has(&record["reason"], "no hope"),
        "{record:#}"
    );
}

#[test]
fn all_runs_of_a_job_without_a_lock_are_killed() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let lock = "lock: { scope: none, ttl: 6s }";
    let jobs = list(&redis.url(), &[("free", lock, &runs.endless_job())]);
    let one = Daemon::on("one", jobs.as_str()).start();
    let _two = Daemon::on("two", jobs.as_str()).start();
    for host in ["one", "two", "one"] {
        one.ask(&["trigger", "free", "--on", host]).expect_code(0);
    }
    wait_until("all run", || runs.entries().len() == 3);
    // One that the ledger does not name any more.
    let first = runs
        .entries()
        .iter()
        .find(|it| it.host == "one")
        .map(|it| it.run_id.clone());
    let first = first.expect("a run on this host");
    one.ask(&["kill", &first, "--wait"]).expect_code(0);
    let killed = one
        .ask(&["kill", "free", "--wait", "--json"])
        .expect_code(0)
        .json_lines();
    let mut hosts: Vec<_> = killed.iter().map(|run| run["host"].clone()).collect();
    hosts.sort_by_key(ToString::to_string);
    assert_eq!(hosts, ["one", "two"]);
    assert!(
        killed.iter().all(|run| run["outcome"] == "stopped"),
        "{killed:#?}"
    );
}

#[test]
fn a_host_that_cannot_be_asked_is_reported_although_a_run_of_another_was_killed() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let lock = "lock: { scope: none, ttl: 30s }";
    let jobs = list(&redis.url(), &[("free", lock, &runs.endless_job())]);
    let one = Daemon::on("one", jobs.as_str()).start();
    let mut two = Daemon::on("two", jobs.as_str()).start();
    for host in ["one", "two"] {
        one.ask(&["trigger", "free", "--on", host]).expect_code(0);
    }
    wait_until("both run", || runs.entries().len() == 2);
    two.kill();
    redis.command(&["HDEL", "cronlatch:hosts", "two"]);
    let killed = one.ask(&["kill", "free", "--wait"]).expect_code(69);
    assert!(
        killed.stdout.ends_with(" on one has ended: stopped\n"),
        "{killed:#?}"
    );
    assert!(
        killed
            .stderr
            .contains("host two, whose daemon does not report, may have runs of job free"),
        "{killed:#?}"
    );
    // Which runs a dead host has is known of its newest alone.
    let unknown = "01a200cc-51c1-772e-90ed-bdf0bfb054e1";
    let refused = one.ask(&["kill", unknown]).expect_code(69);
    assert_eq!(
        refused.stderr,
        format!(
            "error: no live host has run {unknown}; host two, which does not report, may have it. \
             Nothing was done\n"
        )
    );
}

#[test]
fn a_run_that_no_host_has_is_not_looked_for_in_vain() {
    let redis = RedisServer::start();
    let lock = "lock: { scope: none }";
    let jobs = list(&redis.url(), &[("free", lock, "true")]);
    let one = Daemon::on("one", jobs.as_str()).start();
    let unknown = "01a200cc-51c1-772e-90ed-bdf0bfb054e1";
    let refused = one.ask(&["kill", unknown]).expect_code(64);
    assert_eq!(
        refused.stderr,
        format!(
            "error: no host has a run {unknown} in progress, and no history has it; nothing was \
             done\n"
        )
    );
}

#[test]
fn a_killed_run_is_reported_although_its_record_cannot_be_read() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let stubborn = format!("trap \"\" TERM; {}", runs.endless_job());
    let jobs = list(&redis.url(), &[("endless", "lock: { ttl: 2m }", &stubborn)]);
    let jobs = jobs.replace("kill_grace: 500ms", "kill_grace: 30s");
    let one = Daemon::on("one", jobs).start();
    one.ask(&["trigger", "endless"]).expect_code(0);
    wait_until("it runs", || !runs.entries().is_empty());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| one.ask(&["kill", "endless", "--wait"]));
        wait_until("it is being killed", || {
            one.log().contains("killing the run")
        });
        let history = "cronlatch:{endless}:runs:endless";
        redis.command(&["SET", history, "no stream"]);
        let killed = waits.join().expect("no panic").expect_code(69);
        assert!(
            killed.stdout.ends_with(" on one is being killed\n"),
            "{killed:#?}"
        );
        assert!(killed.stderr.contains(history), "{killed:#?}");
    });
}

#[test]
fn a_paused_job_and_a_daemon_that_drains_start_nothing() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let jobs = list(
        &redis.url(),
        &[
            ("hand", "timeout: 1m", &runs.job("0")),
            ("endless", "timeout: 1h", &runs.endless_job()),
        ],
    );
    let mut host = Daemon::on("one", jobs).start();
    host.ask(&["pause", "hand", "--reason", "new disk"])
        .expect_code(0);
    let refused = host.ask(&["trigger", "hand"]).expect_code(75).stderr;
    assert!(
        refused.contains("paused by ") && refused.contains("new disk"),
        "{refused}"
    );
    host.ask(&["trigger", "hand", "--even-if-paused", "--wait"])
        .expect_code(0);
    assert_eq!(runs.entries().len(), 1);
    host.ask(&["trigger", "endless"]).expect_code(0);
    wait_until("it runs", || runs.entries().len() == 2);
    host.signal(Signal::SIGTERM);
    host.wait_log(&["draining", "endless"]);
    let refused = host
        .ask(&["trigger", "hand", "--on", "one"])
        .expect_code(75)
        .stderr;
    assert!(
        refused.contains("the daemon of one is draining"),
        "{refused}"
    );
    let refused = host
        .ask(&["trigger", "hand", "--host", "elsewhere"])
        .expect_code(64)
        .stderr;
    assert!(
        refused.starts_with(
            "error: no daemon can start job hand now: one is draining; nothing was started"
        ),
        "{refused}"
    );
    // The drain waits for the run by hand as for any other, and a kill ends the wait.
    host.ask(&["kill", "endless"]).expect_code(0);
    assert!(host.wait_exit().success());
    let refused = host.ask(&["trigger", "hand"]).expect_code(69).stderr;
    assert!(
        refused.starts_with("error: no daemon reports to "),
        "{refused}"
    );
}

#[test]
fn a_run_goes_on_when_the_one_who_waits_for_it_is_gone() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let chatty = format!(
        "{}; i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; {}",
        runs.begin(),
        RunLog::end()
    );
    let jobs = list(&redis.url(), &[("chatty", "timeout: 5m", &chatty)]);
    let mut host = Daemon::on("one", jobs).start();
    let mut waits = spawn(&host, &["trigger", "chatty", "--on", "one", "--wait"]);
    wait_until("it runs", || !runs.entries().is_empty());
    waits.kill().expect("a child of ours");
    waits.wait().expect("a child of ours");
    let record = wait_outcome(&mut host, "chatty", "succeeded");
    assert_eq!(record["kind"], "manual");
    // One who reads gets every line in order, or is told that some are missing.
    let read = host.ask(&["trigger", "chatty", "--wait"]).expect_code(0);
    let numbers: Vec<u32> = read
        .stdout
        .lines()
        .map(|line| {
            line.strip_prefix("line ")
                .and_then(|it| it.parse().ok())
                .expect(line)
        })
        .collect();
    assert!(numbers.is_sorted() && !numbers.is_empty());
    assert!(
        numbers.len() == 20_000 || read.stderr.contains("dropped"),
        "{}",
        numbers.len()
    );
}

#[test]
fn the_run_of_a_daemon_that_dies_is_recorded_for_the_one_who_waits() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let lock = "lock: { ttl: 3s }";
    let jobs = list(&redis.url(), &[("endless", lock, &runs.endless_job())]);
    let one = Daemon::on("one", jobs.as_str()).start();
    let mut two = Daemon::on("two", jobs.as_str()).start();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| one.ask(&["trigger", "endless", "--on", "two", "--wait"]));
        wait_until("it runs", || !runs.entries().is_empty());
        two.kill();
        let ended = waits.join().expect("no panic").expect_code(1);
        assert!(ended.stderr.contains("interrupted"), "{ended:#?}");
    });
}

#[test]
fn who_waits_for_the_run_of_the_last_daemon_is_told_that_it_died() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let lock = "lock: { ttl: 3s }";
    let jobs = list(&redis.url(), &[("endless", lock, &runs.endless_job())]);
    let mut only = Daemon::on("only", jobs.as_str()).start();
    let mut waits = spawn(&only, &["trigger", "endless", "--wait"]);
    wait_until("it runs", || !runs.entries().is_empty());
    only.kill();
    let status = waits.wait().expect("it can be waited for");
    assert_eq!(status.code(), Some(69));
}
