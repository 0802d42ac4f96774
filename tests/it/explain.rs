//! `cronlatch explain`, about real daemons.

use serde_json::Value;

use crate::support::{Daemon, RedisServer, wait_for};

/// The answer about an instant of the job.
fn explained(daemon: &Daemon, at: &str) -> Value {
    let said = daemon
        .ask(&["explain", "job", "--json", "--at", at])
        .expect_code(0);
    said.json_lines().remove(0)
}

/// The newest record with this outcome, once there is one.
fn record(daemon: &Daemon, outcome: &str) -> Value {
    wait_for(&format!("a record: {outcome}"), || {
        let said = daemon.ask(&["history", "--json", "job"]).expect_code(0);
        let mut records = said.json_lines().into_iter().rev();
        records.find(|record| record["outcome"] == outcome)
    })
}

#[test]
fn who_ran_it_and_what_the_other_host_did() {
    let redis = RedisServer::start();
    let list = format!(
        "\
store: {}
jobs:
  - {{ name: job, every: 1s, command: 'true' }}
  - {{ name: off, every: 1s, command: 'true', enabled: false }}
",
        redis.url()
    );
    let one = Daemon::on("one", list.clone()).start();
    let other = Daemon::on("other", list).start();
    wait_for("both hosts are there", || {
        let said = one.ask(&["status", "--json"]).expect_code(0);
        let status = said.json_lines().remove(0);
        (status["hosts"].as_array()?.len() == 2).then_some(())
    });
    // After both had started.
    let hosts = |answer: &Value| -> Vec<String> {
        let all = answer["hosts"].as_array().unwrap().iter();
        let mut words: Vec<String> = all
            .map(|h| h["decision"].as_str().unwrap().to_owned())
            .collect();
        words.sort();
        words
    };
    let answer = wait_for("a run that both could claim", || {
        let answer = explained(
            &other,
            record(&other, "succeeded")["scheduled_at"].as_str()?,
        );
        (hosts(&answer) == ["lost", "won"]).then_some(answer)
    });
    assert_eq!(answer["answer"], "ran");
    let winner = answer["run"]["host"].as_str().unwrap();
    let text = format!("ran on host {winner}: succeeded");
    assert_eq!(answer["text"], text);
    assert!(answer["late_ms"].as_u64().is_some());
    let people = one.ask(&["explain", "job"]).expect_code(0);
    assert!(people.stdout.starts_with("job, "), "{people:?}");
    let off = one.ask(&["explain", "off"]).expect_code(0);
    assert!(
        off.stdout
            .contains(": disabled: this list has `enabled: false`"),
        "{off:?}"
    );
    let unknown = one.ask(&["explain", "jop"]).expect_code(64);
    assert!(unknown.stderr.contains("did you mean job?"), "{unknown:?}");
    let early = explained(&one, "2020-01-01T00:00:00Z");
    assert_eq!(early["answer"], "before_first_seen");
    let odd = explained(&one, "2020-01-01T00:00:00.5Z");
    assert_eq!(
        (&odd["answer"], &odd["field"]),
        (&"not_due".into(), &"every".into())
    );
    let future = explained(&one, "2100-01-01T00:00:00Z");
    assert_eq!(future["answer"], "future");
    assert_eq!(hosts(&future), ["may_run", "may_run"]);
}

#[test]
fn a_skip_names_the_run_that_held_the_lock() {
    let list = "jobs:\n  - { name: job, every: 1s, command: 'sleep 1000' }\n";
    let daemon = Daemon::on("host", list).start();
    let skipped = record(&daemon, "skipped");
    let at = skipped["scheduled_at"].as_str().unwrap();
    let answer = explained(&daemon, at);
    assert_eq!(answer["answer"], "skipped");
    let running = daemon
        .ask(&["status", "--json"])
        .expect_code(0)
        .json_lines()
        .remove(0);
    let run = &running["jobs"][0]["running"]["run_id"];
    assert!(run.is_string(), "{running}");
    assert_eq!(answer["held_by"]["run_id"], *run);
    let due = running["jobs"][0]["running"]["scheduled_at"]
        .as_str()
        .unwrap();
    assert_eq!(explained(&daemon, due)["answer"], "running");
}

#[test]
fn a_store_that_grants_nothing_yet_is_named_as_the_reason() {
    let redis = RedisServer::builder().unmarked().start();
    let list = format!(
        "\
store: {}
defaults: {{ lock: {{ ttl: 2m }} }}
jobs:
  - {{ name: later, every: 1s, command: 'true' }}
  - {{ name: never, every: 1s, command: 'true', start_deadline: 1s, catch_up: none }}
",
        redis.url()
    );
    let daemon = Daemon::on("host", list).start();
    for (job, decision) in [("never", "waits"), ("later", "may_run")] {
        let explained = wait_for("the host reports", || {
            let said = daemon.ask(&["explain", job, "--json"]).expect_code(0);
            let explained = said.json_lines().remove(0);
            let is_it = explained["hosts"][0]["decision"] == decision;
            is_it.then_some(explained)
        });
        // Such a store registers nothing, either.
        assert_eq!(explained["answer"], "before_first_seen", "{explained:#}");
        let text = explained["text"].to_string();
        assert!(text.contains("a daemon with this list is up"), "{text}");
        let details = explained["details"].to_string();
        assert!(details.contains("grants no locks until"), "{explained:#}");
    }
}

#[test]
fn a_job_whose_hosts_match_no_live_host_is_not_called_unknown() {
    let list = "jobs:\n  - { name: job, every: 1m, command: 'true', hosts: [db-*] }\n";
    let mut daemon = Daemon::on("web1", list).start();
    daemon.wait_log(&["ready"]);
    let answer = wait_for("the host reports", || {
        let said = daemon.ask(&["explain", "job", "--json"]).expect_code(0);
        let answer = said.json_lines().remove(0);
        (answer["hosts"].as_array()?.len() == 1).then_some(answer)
    });
    assert_eq!(answer["answer"], "no_host", "{answer:#}");
    let text = answer["text"].as_str().unwrap();
    assert!(text.contains("`hosts` (db-*) match no live host"), "{text}");
}
