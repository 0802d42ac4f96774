//! Several hosts: each verdict is sent once, by the host that recorded it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Daemon, Receiver, RedisServer, wait_until};

use super::{list, occurrences, singles, wait_request};

const HOSTS: [&str; 3] = ["one", "two", "three"];

fn history(daemon: &Daemon, job: &str) -> Vec<Value> {
    daemon
        .ask(&["history", "--json", job])
        .expect_code(0)
        .json_lines()
}

fn count(records: &[Value], outcome: &str) -> u64 {
    let of = records.iter().filter(|record| record["outcome"] == outcome);
    of.map(|record| record["count"].as_u64().unwrap_or(1)).sum()
}

#[test]
fn three_hosts_send_each_verdict_once() {
    let redis = RedisServer::start();
    let receiver = Receiver::start();
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [started, failed, skipped] }}",
        receiver.url("/ops")
    )];
    let ping = |job: &str| receiver.url(&format!("/ping/{job}/{{status}}"));
    let jobs = [
        format!(
            "{{ name: broken, every: 1s, notify: ops, ping: '{}', command: 'false' }}",
            ping("broken")
        ),
        "{ name: slow, every: 1s, notify: ops, command: 'sleep 2.5' }".to_owned(),
    ];
    let text = list(Some(&redis.url()), &targets, &jobs);
    let mut hosts = HOSTS.map(|host| Daemon::on(host, text.as_str()).spawn());
    hosts.iter_mut().for_each(Daemon::wait_ready);
    wait_until("jobs failed and were skipped", || {
        count(&history(&hosts[0], "broken"), "failed") >= 8
            && count(&history(&hosts[0], "slow"), "skipped") >= 4
    });
    for host in &mut hosts {
        assert!(host.terminate().success());
        assert_eq!(host.lines_with(&["cannot notify"]), 0, "{}", host.log());
    }
    let (broken, slow) = (history(&hosts[0], "broken"), history(&hosts[0], "slow"));
    let received = receiver.at("/ops");
    assert_eq!(occurrences(&received, "failed"), count(&broken, "failed"));
    assert_eq!(occurrences(&received, "skipped"), count(&slow, "skipped"));
    let started = broken.len() as u64 + count(&slow, "succeeded") + count(&slow, "stopped");
    assert_eq!(occurrences(&received, "started"), started);
    let ids: Vec<Value> = ["started", "failed", "skipped"]
        .iter()
        .flat_map(|event| singles(&received, event))
        .map(|json| json["id"].clone())
        .collect();
    let different: BTreeSet<String> = ids.iter().map(Value::to_string).collect();
    assert_eq!(different.len(), ids.len(), "{ids:#?}");
    let pings = |status: &str| receiver.at(&format!("/ping/broken/{status}")).len() as u64;
    assert_eq!(pings("start"), count(&broken, "failed"));
    assert_eq!(pings("fail"), count(&broken, "failed"));
    let senders = received.iter().map(|it| it.json()["host"].clone());
    let senders: BTreeSet<String> = senders.map(|host| host.to_string()).collect();
    assert!(senders.len() > 1, "{senders:?}");
}

#[test]
fn the_host_that_records_a_run_as_interrupted_reports_it_lost() {
    let redis = RedisServer::start();
    let receiver = Receiver::start();
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [started, lost] }}",
        receiver.url("/")
    )];
    let job = "{ name: long, every: 1s, notify: ops, lock: { ttl: 3s }, command: 'sleep 600' }";
    let text = list(Some(&redis.url()), &targets, &[job.to_owned()]);
    let mut first = Daemon::on("one", text.as_str()).start();
    let started = wait_request(&receiver, "/", |it| it.json()["event"] == "started").json();
    let mut others = ["two", "three"].map(|host| Daemon::on(host, text.as_str()).start());
    first.kill();
    let of_run = |json: &Value| json["run_id"] == started["run_id"];
    let lost = wait_request(&receiver, "/", |it| {
        it.json()["event"] == "lost" && of_run(&it.json())
    });
    let lost = lost.json();
    assert_eq!(lost["record"]["outcome"], "interrupted");
    assert_eq!(lost["record"]["host"], "one");
    assert_ne!(lost["host"], "one", "{lost}");
    for host in &mut others {
        assert!(host.terminate().success());
    }
    let all = singles(&receiver.received(), "lost");
    assert_eq!(
        all.iter().filter(|json| of_run(json)).count(),
        1,
        "{all:#?}"
    );
}

#[test]
fn a_host_that_starts_later_reports_the_run_that_its_claim_closes() {
    let redis = RedisServer::start();
    let receiver = Receiver::start();
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [started, lost] }}",
        receiver.url("/")
    )];
    let job = "{ name: long, every: 1s, notify: [ops], lock: { ttl: 3s }, command: 'sleep 600' }";
    let text = list(Some(&redis.url()), &targets, &[job.to_owned()]);
    let mut first = Daemon::on("one", text.as_str()).start();
    let started = wait_request(&receiver, "/", |it| it.json()["event"] == "started").json();
    first.kill();
    wait_until("the lease is over", || {
        redis.number(&["EXISTS", "cronlatch:{long}:lock"]) == 0
    });
    let mut second = Daemon::on("two", text.as_str()).start();
    second.wait_log(&["started", "job=long"]);
    assert!(second.terminate().success());
    let all = singles(&receiver.received(), "lost");
    let of_run = all
        .iter()
        .filter(|json| json["run_id"] == started["run_id"]);
    let senders: Vec<_> = of_run.map(|json| json["host"].clone()).collect();
    assert_eq!(senders, ["two"], "{all:#?}");
}

#[test]
fn a_success_on_another_host_is_reported_as_recovered() {
    let redis = RedisServer::start();
    let receiver = Receiver::start();
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    let targets = [format!(
        "ops: {{ webhook: '{}', after: 2, repeat: 6h }}",
        receiver.url("/")
    )];
    let job = format!(
        "{{ name: flaky, every: 1s, notify: ops, command: 'test -e {}' }}",
        good.display()
    );
    let text = list(Some(&redis.url()), &targets, &[job]);
    let mut first = Daemon::on("one", text.as_str()).start();
    let failed = wait_request(&receiver, "/", |_| true).json();
    assert_eq!(failed["event"], "failed");
    assert_eq!(failed["in_a_row"], 2, "{failed}");
    assert!(first.terminate().success());
    let mut second = Daemon::on("two", text.as_str()).start();
    second.wait_until("it failed there, too", |daemon| {
        daemon.lines_with(&["finished after", "job=flaky"]) >= 2
    });
    std::fs::write(&good, "").unwrap();
    let recovered = wait_request(&receiver, "/", |it| it.json()["event"] == "recovered").json();
    assert_eq!(recovered["host"], "two");
    second.wait_until("it succeeded again", |_| {
        let records = history(&first, "flaky");
        records
            .iter()
            .filter(|record| record["outcome"] == "succeeded")
            .count()
            >= 3
    });
    assert!(second.terminate().success());
    let events: Vec<_> = receiver
        .received()
        .iter()
        .map(|it| it.json()["event"].clone())
        .collect();
    assert_eq!(events, ["failed", "recovered"]);
}

#[test]
fn one_host_reports_a_job_as_overdue_and_a_restart_does_not_repeat_it() {
    let redis = RedisServer::start();
    let receiver = Receiver::start();
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [overdue] }}",
        receiver.url("/")
    )];
    let job =
        "{ name: broken, every: 1s, notify: ops, expect_success_within: 2s, command: 'false' }";
    // The history is soon too short to reach back to the beginning.
    let text = format!(
        "history: 5\n{}",
        list(Some(&redis.url()), &targets, &[job.to_owned()])
    );
    let mut hosts = HOSTS.map(|host| Daemon::on(host, text.as_str()).spawn());
    hosts.iter_mut().for_each(Daemon::wait_ready);
    let overdue = wait_request(&receiver, "/", |_| true).json();
    assert_eq!(overdue["event"], "overdue");
    assert_eq!(overdue["job"], "broken");
    for host in &mut hosts {
        assert!(host.terminate().success());
    }
    let mut again = HOSTS.map(|host| {
        Daemon::on(host, text.as_str())
            .arg("--log-level")
            .arg("debug")
            .spawn()
    });
    for host in &mut again {
        host.wait_log(&["it was reported as overdue before", "job=broken"]);
    }
    drop(again);
    assert_eq!(receiver.received().len(), 1, "{:#?}", receiver.received());
}
