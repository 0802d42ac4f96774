//! Two daemons under one host name, and one that is started again.

use serde_json::Value;

use crate::support::{Daemon, RedisServer};

const TOLD: [&str; 2] = [
    "ERROR",
    "another daemon announces itself under this host's name",
];

fn daemon(store: &str) -> Daemon {
    let list =
        format!("store: '{store}'\njobs:\n  - {{ name: tick, every: 1h, command: 'true' }}\n");
    Daemon::on("web1", list).start()
}

/// What `status` says of the only host.
fn host(daemon: &Daemon) -> Value {
    let status = daemon.ask(&["status", "--json"]).expect_code(0);
    status.json_lines()[0]["hosts"][0].clone()
}

#[track_caller]
fn wait_announcements(daemon: &mut Daemon, count: usize) {
    for _ in 0..count {
        let before = host(daemon)["seen_at"].clone();
        daemon.wait_until("it announces itself", |it| host(it)["seen_at"] != before);
    }
}

#[test]
fn two_daemons_under_one_host_name_are_told_and_a_restart_is_not() {
    let redis = RedisServer::start();
    let store = &redis.url();
    let mut first = daemon(store);
    first.wait_ready();
    first.kill();
    let mut again = daemon(store);
    // As often as it takes to notice another daemon.
    wait_announcements(&mut again, 2);
    assert_eq!(again.lines_with(&TOLD), 0, "its predecessor is dead");
    assert_eq!(host(&again)["namesake"], Value::Null);

    let mut other = daemon(store);
    again.wait_log(&TOLD);
    again.wait_log(&[TOLD[1], &format!("process {}", other.pid())]);
    other.wait_log(&[TOLD[1], &format!("process {}", again.pid())]);
    again.wait_until("status shows it", |it| host(it)["namesake"].is_string());
    let shown = again.ask(&["status"]).expect_code(0).stdout;
    assert!(
        shown.contains("two daemons have this name: see below"),
        "{shown}"
    );
    assert!(
        shown.contains("host web1: two daemons have this name: process"),
        "{shown}"
    );
    let doctor = again.ask(&["doctor", "--json"]).stdout;
    assert!(doctor.contains("host.names"), "{doctor}");
    let check = again.ask(&["status", "--check"]).expect_code(1).stdout;
    assert!(
        check.contains("host web1: another daemon has the same name"),
        "{check}"
    );
    assert_eq!(other.terminate().code(), Some(0));
    assert_eq!(host(&again)["pid"], again.pid(), "it is still announced");
    again.ask(&["status", "--check"]).expect_code(1);
    again.wait_log(&[
        "INFO",
        "no other daemon announces itself under this host's name",
    ]);
    again.wait_until("status shows it", |it| host(it)["namesake"].is_null());
    assert_eq!(again.lines_with(&TOLD), 1, "once in five minutes");
}

#[test]
fn two_daemons_under_one_host_name_are_told_on_a_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = format!("sqlite:{}/store.db", dir.path().display());
    let (mut one, mut two) = (daemon(&store), daemon(&store));
    one.wait_log(&TOLD);
    two.wait_log(&TOLD);
    let doctor = one.ask(&["doctor", "--json"]).stdout;
    assert!(doctor.contains("host.names"), "{doctor}");
    assert_eq!(two.terminate().code(), Some(0));
    assert_eq!(host(&one)["pid"], one.pid(), "it is still announced");
}
