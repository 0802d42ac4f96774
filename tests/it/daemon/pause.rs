//! Pausing jobs while daemons run.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{assert_no_silence, has, instant, records, verdicts, wait_record};
use crate::support::{Daemon, Proxy, RedisServer, RunLog, wait_until};

fn list(store: &str, runs: &RunLog, more: &str) -> String {
    format!(
        "\
store: {store}
jobs:
  - name: tick
    every: 1s
    lock: {{ ttl: 3s }}
    {more}
    command: '{}'
",
        runs.job("0.02")
    )
}

/// Pauses a job and returns what `--json` prints of it.
#[track_caller]
fn pause(daemon: &Daemon, args: &[&str]) -> Value {
    let args = [&["pause", "--json"], args].concat();
    let mut printed = daemon.ask(&args).expect_code(0).json_lines();
    assert_eq!(printed.len(), 1, "{printed:#?}");
    printed.remove(0)
}

fn is_paused(record: &Value) -> bool {
    record["outcome"] == "skipped" && has(&record["reason"], "paused by ")
}

/// No run of an occurrence from the pause's beginning to its end has begun.
#[track_caller]
fn assert_none_between(runs: &RunLog, since: DateTime<Utc>, until: DateTime<Utc>) {
    let between = since.timestamp_millis()..until.timestamp_millis();
    for entry in runs.entries() {
        let scheduled = entry.scheduled.expect("an occurrence");
        assert!(
            !between.contains(&scheduled),
            "it ran in the pause: {entry:?}"
        );
    }
}

fn three_hosts_pause_and_resume(store: &str) {
    let runs = RunLog::new();
    let jobs = list(store, &runs, "timeout: 5s");
    let start = || ["one", "two", "three"].map(|host| Daemon::on(host, jobs.as_str()).start());
    let mut hosts = start();
    wait_until("two runs have ended", || runs.entries().len() >= 2);
    let paused = pause(&hosts[0], &["tick", "--reason", "a new disk"]);
    let since = instant(&paused["since"]).expect("the beginning of the pause");
    assert_eq!(
        (&paused["job"], &paused["reason"]),
        (&"tick".into(), &"a new disk".into())
    );
    wait_record(&mut hosts[1], "tick", "paused", is_paused);
    let status = hosts[2].ask(&["status"]).expect_code(0).stdout;
    assert!(status.contains("paused by "), "{status}");
    assert!(status.contains(": a new disk"), "{status}");
    for host in &mut hosts {
        host.terminate();
    }
    hosts = start();
    let restarted = Utc::now();
    wait_record(
        &mut hosts[0],
        "tick",
        "paused after the restart",
        |record| {
            let until = instant(&record["until"]).or(instant(&record["scheduled_at"]));
            is_paused(record) && until > Some(restarted)
        },
    );
    let json = hosts[0]
        .ask(&["status", "--json"])
        .expect_code(0)
        .json_lines();
    let job = &json[0]["jobs"][0];
    assert_eq!(job["paused"]["reason"], "a new disk", "{job:#?}");
    let told = hosts[0].ask(&["resume", "t*"]).expect_code(0).stdout;
    assert!(
        told.contains("job tick: resumed; it was paused by "),
        "{told}"
    );
    let began = runs.entries().len();
    wait_until("it runs again", || runs.entries().len() >= began + 2);
    let resumed = runs.entries()[began].scheduled.expect("an occurrence");
    let resumed = DateTime::from_timestamp_millis(resumed).expect("an instant");
    assert_none_between(&runs, since, resumed);
    let json = hosts[0]
        .ask(&["status", "--json"])
        .expect_code(0)
        .json_lines();
    assert!(json[0]["jobs"][0].get("paused").is_none(), "{json:#?}");
    runs.assert_each_once();
    let records = records(&hosts[0], "tick");
    assert_no_silence(&records);
    verdicts(&records);
}

#[test]
fn a_job_that_is_paused_starts_on_none_of_three_hosts_until_it_is_resumed() {
    let redis = RedisServer::start();
    three_hosts_pause_and_resume(&redis.url());
}

#[test]
fn a_pause_holds_for_the_daemons_on_one_file_too() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    three_hosts_pause_and_resume(&format!("sqlite:{}/store.db", dir.path().display()));
}

#[test]
fn a_pause_with_an_end_is_over_by_itself() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let mut host = Daemon::on("one", list(&redis.url(), &runs, "timeout: 5s")).start();
    wait_until("a run has ended", || !runs.entries().is_empty());
    let paused = pause(&host, &["--all", "--for", "3s"]);
    let since = instant(&paused["since"]).expect("the beginning of the pause");
    let until = instant(&paused["until"]).expect("the end of the pause");
    wait_record(&mut host, "tick", "paused", is_paused);
    wait_until("it runs again", || {
        let after = until.timestamp_millis();
        runs.entries()
            .iter()
            .any(|entry| entry.scheduled >= Some(after))
    });
    assert_none_between(&runs, since, until);
    let told = host.ask(&["resume", "tick"]).expect_code(0).stdout;
    // A run may be in progress.
    assert!(told.starts_with("job tick: it was not paused"), "{told}");
}

#[test]
fn a_claim_that_is_under_way_while_its_job_is_paused_starts_nothing() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port());
    let jobs = list(&redis.url_via(proxy.port()), &runs, "start_deadline: 1h");
    let mut host = Daemon::on("one", jobs).start();
    wait_until("a run has ended", || !runs.entries().is_empty());
    proxy.keep_back("occurrence");
    host.wait_until("a claim is under way", |_| proxy.has_kept());
    pause(&host, &["tick"]);
    // A fence is the instant of its grant in microseconds, and the server's clock is this machine's. What
    // was kept back may be a copy of a claim that was granted before the store had the pause: then the
    // reply has the fence of that time.
    let paused = Utc::now();
    let paused_at = u64::try_from(paused.timestamp_micros()).expect("after 1970");
    let answered = proxy.deliver();
    let number = |line: &str| line.strip_prefix(':')?.parse::<u64>().ok();
    let fence = answered
        .contains("granted")
        .then(|| answered.lines().find_map(number));
    if let Some(fence) = fence {
        assert!(
            fence.is_some_and(|fence| fence < paused_at),
            "{paused}: {answered}"
        );
    }
    wait_record(&mut host, "tick", "paused", is_paused);
    for entry in runs.entries() {
        assert!(entry.fence < paused_at, "{paused}: {entry:?}");
    }
}

#[test]
fn a_run_by_hand_of_a_paused_job_is_refused_unless_it_says_otherwise() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let jobs = list(&redis.url(), &runs, "timeout: 5s").replace("every: 1s", "every: 24h");
    let host = Daemon::on("one", jobs).start();
    pause(&host, &["tick", "--until", "2999-01-01"]);
    let refused = host
        .ask(&["trigger", "--here", "tick", "--wait"])
        .expect_code(75);
    assert!(
        refused.stderr.contains("job tick is paused by "),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("until 2999"), "{}", refused.stderr);
    assert!(runs.entries().is_empty());
    let all_the_same = ["trigger", "--here", "tick", "--wait", "--even-if-paused"];
    host.ask(&all_the_same).expect_code(0);
    assert_eq!(runs.entries().len(), 1);
}

#[test]
fn a_host_that_has_its_own_ledger_of_a_job_is_paused_with_the_others() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let jobs = list(&redis.url(), &runs, "timeout: 5s").replace("ttl: 3s", "ttl: 3s, scope: host");
    let mut hosts = ["one", "two"].map(|host| Daemon::on(host, jobs.as_str()).start());
    wait_until("it ran on both", || {
        let entries = runs.entries();
        ["one", "two"]
            .iter()
            .all(|host| entries.iter().any(|entry| entry.host == *host))
    });
    pause(&hosts[0], &["tick"]);
    for (host, name) in hosts.iter_mut().zip(["one", "two"]) {
        wait_record(host, "tick", "paused", |record| {
            is_paused(record) && record["host"] == name
        });
    }
    // A host that joins now is paused from its first occurrence on.
    let mut third = Daemon::on("three", jobs.as_str()).start();
    wait_record(&mut third, "tick", "paused on the third host", |record| {
        is_paused(record) && record["host"] == "three"
    });
    assert!(runs.entries().iter().all(|entry| entry.host != "three"));
}

#[test]
fn what_no_host_has_cannot_be_paused() {
    let redis = RedisServer::start();
    let runs = RunLog::new();
    let host = Daemon::on("one", list(&redis.url(), &runs, "timeout: 5s")).start();
    let refused = host.ask(&["pause", "nightly-*", "tick"]).expect_code(64);
    assert_eq!(
        refused.stderr,
        "error: no job matches nightly-*: nothing was changed\nhelp: jobs are tick\n"
    );
    let refused = host.ask(&["pause", "tic"]).expect_code(64);
    assert_eq!(
        refused.stderr,
        "error: no host and no list has a job tic: nothing was changed\nhelp: did you mean tick?\n"
    );
    let refused = host
        .ask(&["pause", "tick", "--until", "2001-01-01"])
        .expect_code(64);
    assert!(refused.stderr.contains("has passed"), "{}", refused.stderr);
    host.ask(&["pause"]).expect_code(64);
    let json = host.ask(&["status", "--json"]).expect_code(0).json_lines();
    assert!(json[0]["jobs"][0].get("paused").is_none(), "{json:#?}");
}

/// `[what, job, host, state, by, reason]` of each request that `status` shows, oldest first.
#[track_caller]
fn shown_requests(daemon: &Daemon) -> Vec<[String; 5]> {
    let status = daemon.ask(&["status", "--json"]).expect_code(0);
    let requests = status.json_lines()[0]["requests"].clone();
    let requests = requests.as_array().cloned().unwrap_or_default();
    let row = |it: &Value| {
        ["what", "job", "host", "state", "reason"]
            .map(|field| it[field].as_str().unwrap_or("null").to_owned())
    };
    requests.iter().rev().map(row).collect()
}

#[test]
fn what_commands_do_without_a_daemon_is_in_status_with_who_and_why() {
    let redis = RedisServer::start();
    let list = format!(
        "\
store: {}
jobs:
  - {{ name: one, every: 1s, command: 'true' }}
  - {{ name: two, every: 1s, command: 'true' }}
",
        redis.url()
    );
    let daemon = Daemon::on("web1", list).start();
    let mut daemon = daemon;
    super::wait_outcome(&mut daemon, "one", "succeeded");
    super::wait_outcome(&mut daemon, "two", "succeeded");
    daemon.ask(&["resume", "one"]).expect_code(0);
    assert!(shown_requests(&daemon).is_empty(), "nothing was changed");
    daemon
        .ask(&["pause", "*", "--reason", "new disk"])
        .expect_code(0);
    daemon
        .ask(&["resume", "one", "--reason", "it fits"])
        .expect_code(0);
    daemon
        .ask(&["forget", "two", "--force", "--reason", "moved"])
        .expect_code(0);
    redis.command(&["SET", "app", "somebody", "PX", "600000"]);
    daemon
        .ask(&[
            "unlock", "--key", "app", "--yes", "--force", "--reason", "it hangs",
        ])
        .expect_code(0);
    let row =
        |what: &str, job: &str, reason: &str| [what, job, "-", "done", reason].map(str::to_owned);
    assert_eq!(
        shown_requests(&daemon),
        [
            row("pause", "one, two", "new disk"),
            row("resume", "one", "it fits"),
            row("forget", "two", "moved"),
            row("unlock", "app", "it hangs"),
        ]
    );
    let people = daemon.ask(&["status"]).expect_code(0).stdout;
    assert!(
        people.contains("@web1") && people.contains("it hangs"),
        "{people}"
    );
}
