//! Faults of the store and on the way to it: away, slow, deaf; locks stolen and evicted.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use super::{assert_no_silence, history, list, record_of, stubborn};
use crate::support::{Daemon, Mode, Proxy, RedisServer, RunLog, tree, wait_until};

#[test]
fn a_stolen_lock_ends_the_job_and_stays_with_the_thief() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let list = list(&stubborn(&runs), &json!({}));
    let mut host = Daemon::on("host", &list).store(&redis.url()).start();
    host.wait_until("its job has begun", |_| !runs.entries().is_empty());
    let lock = "cronlatch:{job}:lock";
    redis.command(&["SET", lock, "thief", "PX", "600000"]);
    let robbed = runs.entries().remove(0);
    host.wait_until("the job is dead", |_| !tree::is_alive(robbed.pid));
    let record = record_of(&host, &redis, &robbed.run_id);
    assert_eq!(record["outcome"], "lease_lost", "{record}");
    assert_eq!(redis.text(&["GET", lock]), "thief");
    assert_eq!(runs.entries().len(), 1, "the thief's lock is respected");
}

#[test]
fn a_renewal_before_the_command_has_started_counts_for_the_command() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let dir = tempfile::tempdir().expect("a directory");
    let held_up = dir.path().join("env");
    nix::unistd::mkfifo(&held_up, nix::sys::stat::Mode::S_IRWXU).expect("a named pipe");
    let list = list(
        &runs.job("3"),
        &json!({ "env_file": held_up, "kill_grace": "750ms" }),
    );
    let mut host = Daemon::on("host", &list).store(&redis.url()).start();
    // The lease is renewed while the start waits for somebody to write the file.
    let mut before = i64::MAX;
    host.wait_until("its lease is renewed", |_| {
        let now = redis.number(&["PTTL", "cronlatch:{job}:lock"]);
        let is_renewed = now > before;
        before = if now > 0 { now } else { i64::MAX };
        is_renewed
    });
    std::fs::write(&held_up, "").expect("it is read");
    host.wait_until("its job has begun", |_| !runs.entries().is_empty());
    let run = runs.entries().remove(0);
    let record = record_of(&host, &redis, &run.run_id);
    assert_eq!(record["outcome"], "succeeded", "{record}");
}

#[test]
fn a_lock_that_is_stolen_while_the_command_is_prepared_leaves_the_occurrence_undecided() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let dir = tempfile::tempdir().expect("a directory");
    let held_up = dir.path().join("env");
    nix::unistd::mkfifo(&held_up, nix::sys::stat::Mode::S_IRWXU).expect("a named pipe");
    // Claimed at its instant, so nothing withdraws it.
    let list = list(
        &runs.job("0.1"),
        &json!({ "env_file": held_up, "on_store_down": "skip" }),
    );
    let host = Daemon::on("host", &list).store(&redis.url());
    let mut host = host.env("RUST_LOG", "cronlatch=debug").start();
    let lock = "cronlatch:{job}:lock";
    host.wait_until("a run is granted", |_| redis.number(&["EXISTS", lock]) == 1);
    let at = redis.number(&["HGET", "cronlatch:{job}:job:job", "scheduled_at"]);
    redis.command(&["SET", lock, "thief", "PX", "600000"]);
    host.wait_log(&["lease lost: another holder has the lock"]);
    let writer = std::fs::OpenOptions::new().write(true).open(&held_up);
    let other = dir.path().join("other");
    std::fs::write(&other, "").expect("a directory");
    std::fs::rename(&other, &held_up).expect("in the same directory");
    drop(writer.expect("it is read"));
    host.wait_log(&["not started: another holder took the lock before the command began"]);
    assert_eq!(runs.entries(), []);
    redis.command(&["DEL", lock]);
    host.wait_until("it runs after all", |_| {
        runs.entries().iter().any(|run| run.scheduled == Some(at))
    });
    runs.assert_each_once();
}

#[test]
fn a_store_away_for_longer_than_the_lease_ends_the_job_and_for_less_does_not() {
    let (redis, short, long) = (RedisServer::start(), RunLog::new(), RunLog::new());
    let job = |name: &str, command: &str, ttl: &str| {
        json!({
            "name": name, "schedule": "* * * * * *", "command": command,
            "lock": { "ttl": ttl }, "kill_grace": "200ms",
        })
    };
    let list = json!({ "jobs": [
        job("job", &stubborn(&short), "2500ms"),
        job("long", &long.endless_job(), "12s"),
    ]});
    let host = Daemon::on("host", list.to_string()).store(&redis.url());
    let mut host = host.start();
    host.wait_until("both have begun", |_| {
        !short.entries().is_empty() && !long.entries().is_empty()
    });
    let (short_run, long_run) = (short.entries().remove(0), long.entries().remove(0));
    // So that the outage falls on the instant at which the long lease is to be renewed.
    let lock = "cronlatch:{long}:lock";
    host.wait_until("a part of the long lease is over", |_| {
        redis.number(&["PTTL", lock]) < 9_500
    });
    redis.pause();
    host.wait_until("the one with the short lease is dead", |_| {
        !tree::is_alive(short_run.pid)
    });
    redis.resume();
    let record = record_of(&host, &redis, &short_run.run_id);
    assert_eq!(record["outcome"], "lease_lost", "{record}");
    host.wait_until("the long lease is renewed", |_| {
        redis.number(&["PTTL", lock]) > 10_000
    });
    assert!(tree::is_alive(long_run.pid));
    short.assert_no_overlap();
}

#[test]
fn a_grant_that_arrives_after_its_lease_starts_nothing() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let proxy = Proxy::to(redis.port());
    let list = list(&runs.job("0"), &json!({}));
    let url = redis.url_via(proxy.port());
    let mut host = Daemon::on("host", &list).store(&url).start();
    let lock = "cronlatch:{job}:lock";
    // Long enough to stop the daemon between the grant in the store and its answer.
    proxy.set(Mode::Delay(Duration::from_millis(300)));
    let has_run = |token: &str| {
        let run_id = token.split(':').nth(2).unwrap().to_owned();
        runs.entries().iter().any(|entry| entry.run_id == run_id)
    };
    loop {
        let mut token = String::new();
        host.wait_until("the store has granted a run", |_| {
            token = redis.text(&["GET", lock]);
            !token.is_empty()
        });
        host.signal(Signal::SIGSTOP);
        wait_until("its lease is over", || redis.number(&["EXISTS", lock]) == 0);
        if !has_run(&token) {
            break;
        }
        // Too slow: the run had begun before the stop. The next one will do.
        host.signal(Signal::SIGCONT);
    }
    redis.command(&["SET", lock, "another", "PX", "2000"]);
    let before = runs.entries().len();
    host.signal(Signal::SIGCONT);
    wait_until("the other holder is gone", || {
        let begun = runs.entries().len();
        let held = redis.text(&["GET", lock]) == "another";
        assert!(!held || begun == before, "a run began under another's lock");
        !held
    });
    proxy.set(Mode::Pass);
    host.wait_until("later occurrences run", |_| runs.entries().len() > before);
    runs.assert_each_once();
    runs.assert_no_overlap();
}

#[test]
fn a_store_that_is_slow_or_drops_answers_neither_doubles_nor_loses_an_occurrence() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let proxy = Proxy::to(redis.port());
    let list = list(
        &runs.job("0"),
        &json!({ "on_overlap": "queue", "queue_limit": 100, "catch_up": "all" }),
    );
    let bad = redis.url_via(proxy.port());
    let mut hosts = [("bad", &bad), ("good", &redis.url())]
        .map(|(name, url)| Daemon::on(name, &list).store(url).start());
    let modes = [
        Mode::Delay(Duration::from_millis(300)),
        Mode::CutReply,
        Mode::DropReplies,
        Mode::DropAll,
        Mode::Pass,
    ];
    for mode in modes {
        proxy.set(mode);
        let before = runs.entries().len();
        hosts[0].wait_until("two more have run", |_| runs.entries().len() >= before + 2);
    }
    for host in &mut hosts {
        assert!(host.terminate().success());
    }
    runs.assert_each_once();
    runs.assert_none_early();
    runs.assert_no_overlap();
    runs.assert_fences_rise();
    assert_no_silence(&history(&hosts[1], &redis, "job"));
}

#[test]
fn a_shared_lock_evicted_under_one_job_is_not_granted_to_another() {
    let (redis, runs) = (RedisServer::start(), RunLog::new());
    let shared = json!({ "name": "shared", "ttl": "3s" });
    let fields = json!({ "lock": shared, "on_overlap": "wait" });
    let holder = list(&stubborn(&runs), &fields);
    let waiter = list(&runs.job("0"), &fields).replace("\"job\"", "\"waiter\"");
    let mut first = Daemon::on("first", holder).store(&redis.url()).start();
    first.wait_until("its job has begun", |_| !runs.entries().is_empty());
    let mut second = Daemon::on("second", waiter).store(&redis.url()).start();
    // Nobody is left who could set the key again.
    first.signal(Signal::SIGSTOP);
    assert_eq!(redis.number(&["DEL", "cronlatch:{shared}:lock"]), 1);
    second.wait_until("the other job gets the lock", |_| runs.entries().len() > 1);
    runs.assert_no_overlap();
    runs.assert_fences_rise();
}
