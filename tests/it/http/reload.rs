//! A reload that changes `http:`.

use std::net::{SocketAddr, TcpListener, TcpStream};

use nix::sys::signal::Signal;

use super::{ACT, READ, Reply, address, ask, get, list, serving, write_tokens};
use crate::support::{Daemon, wait_until};

/// Gives the daemon another list, and waits until it is in force.
fn reload(daemon: &mut Daemon, text: &str) {
    let before = daemon.lines_with(&["reloaded "]);
    let path = daemon.list();
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.wait_until("it has reloaded", |daemon| {
        daemon.lines_with(&["reloaded "]) > before
    });
}

#[test]
fn a_reload_moves_the_server_shows_the_new_list_and_ends_it() {
    let mut daemon = Daemon::on("web1", serving(&[super::QUIET])).start();
    let first = address(&mut daemon);
    let more = "{ name: more, schedule: '@daily', command: 'true' }";
    reload(&mut daemon, &serving(&[super::QUIET, more]));
    wait_until("the new job is shown", || {
        get(first, "/api/v1/jobs").body.contains("\"more\"")
    });
    assert_eq!(daemon.lines_with(&["reloaded ", "(http)"]), 0);

    reload(&mut daemon, &list("{ listen: '[::1]:0' }", &[super::QUIET]));
    let second = address(&mut daemon);
    assert_eq!(get(second, "/api/v1/jobs").body.lines().count(), 1);
    assert_eq!(
        daemon.lines_with(&["reloaded ", "settings changed (http)"]),
        1
    );
    wait_until("the first is closed", || TcpStream::connect(first).is_err());
    wait_until("it is ready", || get(second, "/readyz").status == 200);

    // One that cannot be: the rest of the list is in force, the server goes on.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = format!("{{ listen: '{}' }}", taken.local_addr().unwrap());
    reload(&mut daemon, &list(&http, &[super::QUIET, more]));
    daemon.wait_log(&[
        "cannot apply the HTTP settings",
        "it is in use",
        "continuing on http://[::1]:",
    ]);
    assert_eq!(get(second, "/api/v1/jobs").body.lines().count(), 2);

    reload(&mut daemon, &format!("jobs:\n  - {}\n", super::QUIET));
    daemon.wait_log(&["HTTP is no longer served"]);
    wait_until("it is closed", || TcpStream::connect(second).is_err());
    reload(&mut daemon, &serving(&[super::QUIET]));
    daemon.wait_until("it serves again", |daemon| {
        daemon.lines_with(&["serving HTTP on http://"]) == 3
    });
    assert_eq!(get(address(&mut daemon), "/healthz").status, 200);
}

#[test]
fn a_reload_reads_the_tokens_again_and_keeps_them_if_they_are_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens");
    write_tokens(&path, &format!("read a {READ}\n"));
    let http = format!(
        "{{ listen: '127.0.0.1:0', token_file: {} }}",
        path.display()
    );
    let text = list(&http, &[super::QUIET]);
    let mut daemon = Daemon::on("web1", text.as_str()).start();
    let at = address(&mut daemon);
    let with = |at: SocketAddr, token: &str| -> Reply {
        let header = format!("Authorization: Bearer {token}");
        ask(at, "GET", "/api/v1/jobs", &[&header])
    };
    assert_eq!(with(at, READ).status, 200);
    assert_eq!(with(at, ACT).status, 401);
    write_tokens(&path, &format!("read b {ACT}\n"));
    reload(&mut daemon, &text);
    assert_eq!(with(at, READ).status, 401);
    assert_eq!(with(at, ACT).status, 200);
    write_tokens(&path, "nonsense\n");
    reload(&mut daemon, &text);
    daemon.wait_log(&[
        "cannot apply the HTTP settings",
        "line 1: expected",
        "as before",
    ]);
    assert_eq!(with(at, ACT).status, 200);
}
