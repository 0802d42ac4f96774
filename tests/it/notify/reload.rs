//! A reload puts other targets and events into force.

use nix::sys::signal::Signal;

use crate::support::{Daemon, Receiver};

use super::{list, occurrences, wait_request};

/// Gives the daemon another list, and waits until it is in force.
#[track_caller]
fn reload(daemon: &mut Daemon, text: &str) {
    let before = daemon.lines_with(&["reloaded "]);
    let new = daemon.list().with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, daemon.list()).unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.wait_until("it has reloaded", |daemon| {
        daemon.lines_with(&["reloaded "]) > before
    });
}

#[test]
fn a_list_without_notifications_gets_them_by_a_reload() {
    let receiver = Receiver::start();
    let silent = "jobs:\n  - { name: broken, every: 1s, command: 'false' }\n";
    let mut daemon = Daemon::on("web1", silent).start();
    daemon.wait_log(&["finished after", "job=broken"]);
    let targets = [format!(
        "ops: {{ webhook: '{}', on: [failed] }}",
        receiver.url("/ops")
    )];
    let job = format!(
        "{{ name: broken, every: 1s, notify: [ops], ping: '{}', command: 'false' }}",
        receiver.url("/ping/{status}")
    );
    reload(&mut daemon, &list(None, &targets, &[job]));
    daemon.wait_log(&["reloaded ", "settings changed (notify)"]);
    wait_request(&receiver, "/ops", |_| true);
    wait_request(&receiver, "/ping/fail", |_| true);
}

#[test]
fn a_target_that_moves_receives_what_waits_at_its_old_address() {
    let receiver = Receiver::start();
    let text = |path: &str, on: &str| {
        let targets = [format!(
            "ops: {{ webhook: '{}', on: [{on}] }}",
            receiver.url(path)
        )];
        let job = "{ name: broken, every: 1s, notify: [ops], command: 'false' }";
        list(None, &targets, &[job.to_owned()])
    };
    let mut daemon = Daemon::on("web1", text("/old", "failed")).start();
    wait_request(&receiver, "/old", |_| true);
    reload(&mut daemon, &text("/new", "failed"));
    wait_request(&receiver, "/new", |_| true);
    // The same address with another event: nothing is lost, and the event counts from now on.
    reload(&mut daemon, &text("/new", "started"));
    wait_request(&receiver, "/new", |it| {
        occurrences(std::slice::from_ref(it), "started") > 0
    });
    assert!(daemon.terminate().success());
    let failed = daemon.lines_with(&["finished after", "job=broken"]);
    assert!(failed >= 3, "{}", daemon.log());
    assert_eq!(daemon.lines_with(&["not delivered"]), 0, "{}", daemon.log());
}
