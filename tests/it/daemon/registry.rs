//! From when a job counts: enabling or adding it, or adding a host, runs nothing of the past.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::{instant, records};
use crate::support::redis::documented_rights;
use crate::support::{Daemon, RedisServer};

/// A list with a job that ran all the time, and these.
fn list(store: &str, jobs: &str) -> String {
    format!(
        "\
store: {store}
defaults: {{ catch_up: all, lock: {{ ttl: 3s }}, kill_grace: 200ms }}
jobs:
  - {{ name: always, every: 1s, command: 'true' }}
{jobs}"
    )
}

fn due(record: &Value) -> DateTime<Utc> {
    instant(&record["scheduled_at"]).expect("an occurrence")
}

/// Waits until `job` has run an occurrence that was due after `from`.
#[track_caller]
fn wait_run_after(daemon: &mut Daemon, job: &str, from: DateTime<Utc>) {
    daemon.wait_until(&format!("{job} runs"), |daemon| {
        let ran = |record: &Value| due(record) > from && record["outcome"] == "succeeded";
        records(daemon, job).iter().any(ran)
    });
}

#[test]
fn what_was_due_while_a_job_was_disabled_or_removed_is_neither_run_nor_recorded() {
    let redis = RedisServer::start();
    let job = |name: &str, more: &str| {
        format!("  - {{ name: {name}, every: 1s, command: 'true'{more} }}\n")
    };
    let all = ["off", "removed", "kept"]
        .map(|name| job(name, ""))
        .concat();
    let fewer = job("off", ", enabled: false") + &job("kept", ", enabled: false");
    let (all, fewer) = (list(&redis.url(), &all), list(&redis.url(), &fewer));
    // Another host has one of the jobs enabled all the time, and goes down with the first.
    let keeper = list(&redis.url(), &job("kept", ""));
    let mut second = Daemon::on("two", keeper.as_str()).start();
    let mut first = Daemon::on("one", all.as_str()).start();
    for name in ["off", "removed", "kept"] {
        wait_run_after(&mut first, name, DateTime::UNIX_EPOCH);
    }
    first.terminate();
    second.kill();
    let mut without = Daemon::on("one", fewer.as_str()).start();
    let disabled = Utc::now();
    wait_run_after(
        &mut without,
        "always",
        disabled + chrono::TimeDelta::seconds(3),
    );
    without.terminate();
    let enabled = Utc::now();
    let mut again = Daemon::on("one", all.as_str()).start();
    for name in ["off", "removed", "kept"] {
        wait_run_after(&mut again, name, enabled);
    }
    for name in ["off", "removed"] {
        let records = records(&again, name);
        let past = |record: &&Value| (disabled..enabled).contains(&due(record));
        let past: Vec<_> = records.iter().filter(past).collect();
        assert!(past.is_empty(), "{name} was not enabled: {past:#?}");
    }
    // A host that was only down has the job enabled: what came due meanwhile is caught up.
    let kept = records(&again, "kept");
    let caught_up = kept.iter().filter(|record| record["kind"] == "catch_up");
    assert!(caught_up.count() >= 2, "{kept:#?}");
}

#[test]
fn on_a_store_without_init_a_new_job_and_a_new_host_start_from_now() {
    let redis = RedisServer::builder().unmarked().start();
    let new = "  - { name: new, every: 1s, command: 'true' }\n";
    let on_each = "  - { name: each, every: 1s, command: 'true', lock: { scope: host } }\n";
    let mut first = Daemon::on("one", list(&redis.url(), on_each)).start();
    let began = Utc::now();
    let later = began + chrono::TimeDelta::seconds(3);
    wait_run_after(&mut first, "always", later);
    wait_run_after(&mut first, "each", later);
    let added = Utc::now();
    let mut second = Daemon::on("two", list(&redis.url(), &format!("{new}{on_each}"))).start();
    wait_run_after(&mut second, "new", added);
    second.wait_until("the new host runs the job of each host", |daemon| {
        let ran = |record: &Value| record["host"] == "two" && record["outcome"] == "succeeded";
        records(daemon, "each").iter().any(ran)
    });
    for name in ["new", "each"] {
        let mut records = records(&second, name);
        // The history of a job on each host shows the other one, too.
        records.retain(|record| record["host"] == "two");
        let oldest = records.first().map(due);
        assert!(oldest > Some(added), "{name}: {records:#?}");
    }
}

#[test]
fn a_job_that_was_withdrawn_and_is_listed_all_the_same_is_removed() {
    const LISTED: &str = "cronlatch:listed:one";
    let redis = RedisServer::start();
    let is_listed = || redis.number(&["HEXISTS", LISTED, "removed"]) == 1;
    let job = "  - { name: removed, every: 1s, command: 'true' }\n";
    let mut with_it = Daemon::on("one", list(&redis.url(), job)).start();
    with_it.wait_until("it is listed", |_| is_listed());
    with_it.terminate();
    let mut without = Daemon::on("one", list(&redis.url(), "")).start();
    without.wait_until("it is withdrawn", |_| !is_listed());
    without.terminate();
    // As a late copy does, or a node that was away.
    redis.command(&["HSET", LISTED, "removed", "1"]);
    let mut again = Daemon::on("one", list(&redis.url(), "")).start();
    again.wait_until("it is removed", |_| !is_listed());
}

#[test]
fn one_job_whose_entry_cannot_be_written_keeps_no_other_out_of_the_registry() {
    let rights = documented_rights();
    let redis = RedisServer::builder().user("cronlatch", rights).start();
    let jobs = ["a", "b", "c"]
        .map(|name| format!("  - {{ name: {name}, every: 1s, command: 'true' }}\n"))
        .concat();
    let mut daemon = Daemon::on("one", list(&redis.url(), &jobs)).start();
    let listed = |job: &str| {
        let key = format!("cronlatch:{{{job}}}:listing");
        redis.number(&["HEXISTS", &key, "one"]) == 1
    };
    daemon.wait_until("all are listed", |_| {
        ["a", "b", "c"].into_iter().all(listed)
    });
    // Every key but the entry of `b`.
    redis.command(&["ACL", "SETUSER", "cronlatch", "resetkeys"]);
    for key in [
        "store",
        "hosts",
        "listed:*",
        "{always}:*",
        "{a}:*",
        "{c}:*",
        "{b}:lo*",
        "{b}:[sjr]*",
    ] {
        redis.command(&["ACL", "SETUSER", "cronlatch", &format!("~cronlatch:{key}")]);
    }
    redis.command(&["FLUSHALL"]);
    daemon.wait_until("the others are listed again", |_| {
        ["always", "a", "c"].into_iter().all(listed)
    });
    assert!(!listed("b"));
    daemon.wait_log(&["job=b", "cannot register this job in the store"]);
}
