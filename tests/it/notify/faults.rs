//! Receivers that are slow, refuse, hang, fail and come back. Runs never notice.

use std::time::Duration;

use chrono::{Timelike as _, Utc};

use crate::support::receiver::Refusing;
use crate::support::{Daemon, Receiver, Reply, RunLog, command, wait_until};

use super::{list, occurrences, program, singles, wait_request};

#[test]
fn targets_that_hang_delay_no_run() {
    let receiver = Receiver::start().with_reply(Reply::Hang);
    let dir = tempfile::tempdir().unwrap();
    let hangs = dir.path().join("hangs");
    program(&hangs, "exec sleep 1000");
    let log = RunLog::new();
    let events = "on: [started, succeeded, late, long]";
    let targets = [
        format!("web: {{ webhook: '{}', {events} }}", receiver.url("/web")),
        format!("program: {{ command: [{}], {events} }}", hangs.display()),
        format!(
            "mail: {{ mail: root, sendmail: {}, {events} }}",
            hangs.display()
        ),
    ];
    let job = format!(
        "{{ name: tick, every: 1s, on_overlap: queue, notify: [web, program, mail], \
         ping: '{}', command: '{}' }}",
        receiver.url("/ping/{status}"),
        log.job("0"),
    );
    let daemon = Daemon::on("web1", list(None, &targets, &[job])).start();
    // None of these is ever answered.
    wait_request(&receiver, "/web", |_| true);
    wait_request(&receiver, "/ping/start", |_| true);
    let before = log.entries().len();
    wait_until("five more runs have ended", || {
        let ended = log.entries().into_iter().filter(|entry| entry.ended);
        ended.count() >= before + 5
    });
    drop(daemon);
    log.assert_each_once();
    log.assert_none_missing(1000);
    // Three tries take longer than this test: both still wait for the first message.
    assert_eq!(receiver.at("/web").len(), 1);
}

#[test]
fn a_target_that_fails_and_comes_back_receives_the_message_once() {
    let receiver = Receiver::start().with_next_replies([Reply::Status(500), Reply::Status(503)]);
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [failed] }}",
        receiver.url("/")
    )];
    let job = "{ name: broken, every: 1s, notify: ops, command: 'false' }".to_owned();
    let mut daemon = Daemon::on("web1", list(None, &targets, &[job])).start();
    wait_until("two messages were sent", || receiver.at("/").len() >= 4);
    assert!(daemon.terminate().success());
    let ids: Vec<_> = receiver
        .at("/")
        .iter()
        .map(|it| it.json()["id"].clone())
        .collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2]);
    assert!(!ids[3..].contains(&ids[0]), "sent again: {ids:#?}");
    assert_eq!(daemon.lines_with(&["cannot notify"]), 0, "{}", daemon.log());
}

#[test]
fn a_message_that_was_given_up_is_counted_in_the_next_one() {
    let refusing = Refusing::new();
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [failed] }}",
        refusing.url("/")
    )];
    let job = "{ name: broken, every: 1s, notify: ops, command: 'false' }".to_owned();
    let mut daemon = Daemon::on("web1", list(None, &targets, &[job])).start();
    daemon.wait_log(&["cannot notify ops (webhook)", "gave up after 3 tries"]);
    let receiver = refusing.start();
    let next = wait_request(&receiver, "/", |_| true).json();
    let undelivered = next["undelivered"].as_u64().unwrap();
    assert!(undelivered >= 1, "{next}");
    let text = next["text"].as_str().unwrap();
    assert!(text.contains("could not be delivered"), "{text}");
}

#[test]
fn a_redirect_is_not_followed_and_not_tried_again() {
    let elsewhere = Receiver::start();
    let receiver = Receiver::start().with_reply(Reply::Redirect(elsewhere.url("/stolen")));
    let targets = [format!(
        "ops: {{ webhook: '{}', headers: {{ Authorization: hunter2 }}, on: [failed] }}",
        receiver.url("/")
    )];
    let job = "{ name: broken, every: 1s, notify: ops, command: 'false' }".to_owned();
    let mut daemon = Daemon::on("web1", list(None, &targets, &[job])).start();
    daemon.wait_log(&["cannot notify ops", "a redirect", "gave up after 1 try"]);
    drop(daemon);
    assert_eq!(elsewhere.received().len(), 0);
}

#[test]
fn a_drain_sends_what_waits() {
    let receiver = Receiver::start().with_reply(Reply::Held);
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [failed] }}",
        receiver.url("/")
    )];
    let job = "{ name: broken, every: 1s, notify: ops, command: 'false' }".to_owned();
    let mut daemon = Daemon::on("web1", list(None, &targets, &[job])).start();
    wait_request(&receiver, "/", |_| true);
    daemon.wait_until("three runs have failed", |daemon| {
        daemon.lines_with(&["finished after", "job=broken"]) >= 3
    });
    receiver.release();
    assert!(daemon.terminate().success());
    let failed = daemon.lines_with(&["finished after", "job=broken"]) as u64;
    assert_eq!(
        occurrences(&receiver.received(), "failed"),
        failed,
        "{}",
        daemon.log()
    );
    assert_eq!(daemon.lines_with(&["not delivered"]), 0, "{}", daemon.log());
}

#[test]
fn a_drain_gives_up_a_target_that_hangs() {
    let receiver = Receiver::start().with_reply(Reply::Hang);
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [failed] }}",
        receiver.url("/")
    )];
    let job = format!(
        "{{ name: broken, every: 1s, notify: ops, ping: '{}', command: 'false' }}",
        receiver.url("/ping/{status}")
    );
    let mut daemon = Daemon::on("web1", list(None, &targets, &[job])).start();
    wait_request(&receiver, "/", |_| true);
    wait_request(&receiver, "/ping/start", |_| true);
    assert!(daemon.terminate().success());
    daemon.wait_log(&["to ops (webhook)", "not delivered in time"]);
    daemon.wait_log(&["to url at", "not delivered in time"]);
}

#[test]
fn a_storm_of_a_thousand_failures_becomes_a_digest() {
    const JOBS: u64 = 1000;
    let receiver = Receiver::start();
    let dir = tempfile::tempdir().unwrap();
    let sendmail = super::sendmail(dir.path());
    let targets = [
        format!("ops: {{ webhook: '{}' }}", receiver.url("/")),
        format!("post: {{ mail: root, sendmail: {} }}", sendmail.display()),
    ];
    let due = Utc::now() + Duration::from_secs(10);
    let schedule = format!("{} {} {} * * *", due.second(), due.minute(), due.hour());
    let job = |n| {
        format!(
            "{{ name: job-{n}, schedule: '{schedule}', notify: [ops, post], command: 'exit 7' }}"
        )
    };
    let jobs: Vec<String> = (0..JOBS).map(job).collect();
    let mut daemon = Daemon::on("web1", list(None, &targets, &jobs)).start();
    assert!(Utc::now() < due, "the daemon was ready too late");
    daemon.wait_until("every job has failed", |daemon| {
        daemon.lines_with(&["finished after"]) as u64 == JOBS
    });
    assert!(daemon.terminate().success());
    let received = receiver.received();
    assert_eq!(occurrences(&received, "failed"), JOBS, "{received:#?}");
    let mails = super::mails(dir.path());
    // Each is allowed five at once, and one more in ten seconds.
    let allowed = 30;
    assert!(received.len() < allowed, "{} requests", received.len());
    assert!(mails.len() < allowed, "{} mails", mails.len());
    let digest = received.iter().map(|request| request.json());
    let largest = digest
        .filter_map(|json| json["counts"]["failed"].as_u64())
        .max();
    assert!(largest > Some(JOBS / 2), "{largest:?}");
    assert!(singles(&received, "failed").len() >= 4);
}

#[test]
fn as_process_1_of_a_container_the_daemon_leaves_programs_to_their_threads() {
    let dir = tempfile::tempdir().unwrap();
    let sendmail = super::sendmail(dir.path());
    let targets = [format!(
        "post: {{ mail: root, sendmail: {} }}",
        sendmail.display()
    )];
    let job = "{ name: broken, every: 1s, notify: post, command: 'false' }".to_owned();
    let file = dir.path().join("jobs.yaml");
    std::fs::write(&file, list(None, &targets, &[job])).unwrap();
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let mut unshare = command::command("unshare");
    unshare
        .args([
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            command::BINARY,
            "run",
        ])
        .arg(&file)
        .env("STATE_DIRECTORY", dir.path())
        .args(["--log-level", "debug"])
        .stderr(log.try_clone().unwrap())
        .stdout(log);
    let mut child = unshare.spawn().unwrap();
    let read = || std::fs::read_to_string(dir.path().join("log")).unwrap();
    wait_until("three mails were sent", || {
        assert!(child.try_wait().unwrap().is_none(), "{}", read());
        read().matches("notified post").count() >= 3 || read().contains("cannot notify")
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!read().contains("cannot notify"), "{}", read());
}
