//! Requests and clients that behave badly.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{address, ask, connect, exchange, get, serving};
use crate::support::Daemon;

fn daemon() -> (Daemon, SocketAddr) {
    let mut daemon = Daemon::on("web1", serving(&[super::QUIET])).start();
    let at = address(&mut daemon);
    (daemon, at)
}

#[test]
fn what_is_not_served_is_an_error_in_json() {
    let (_daemon, at) = daemon();
    for path in [
        "/",
        "/api",
        "/api/v1/",
        "/api/v1/statu",
        "/api/v2/status",
        "/healthz/",
        "/../etc",
    ] {
        let error = get(at, path).error(404);
        assert!(error.contains("docs/http.md"), "{path}: {error}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"] {
        let reply = ask(at, method, "/api/v1/status", &["Content-Length: 0"]);
        reply.error(405);
        assert_eq!(reply.headers["allow"], "GET, HEAD", "{method}");
    }
    let long = "x".repeat(70_000);
    let request = format!(
        "POST /api/v1/status HTTP/1.1\r\nHost: {at}\r\nContent-Length: {}\r\n\r\n{long}",
        long.len()
    );
    let reply = exchange(connect(at), &request).expect("a reply");
    reply.error(413);
    let request = format!("GET /healthz HTTP/1.1\r\nX-Long: {long}\r\n\r\n");
    let reply = exchange(connect(at), &request).expect("a reply");
    assert_eq!(reply.status, 431);
    for garbage in [
        "garbage\r\n\r\n",
        "GET /healthz HTTP/9.9\r\n\r\n",
        "GET\0/ HTTP/1.1\r\n\r\n",
    ] {
        let reply = exchange(connect(at), garbage);
        assert!(reply.is_none_or(|reply| reply.status == 400), "{garbage:?}");
    }
    assert_eq!(get(at, "/healthz").status, 200);
}

#[test]
fn head_is_get_without_a_body() {
    let (_daemon, at) = daemon();
    for path in [
        "/healthz",
        "/api/v1/jobs?from=2026-01-01T00:00:00Z",
        "/nothing",
    ] {
        let (head, get) = (ask(at, "HEAD", path, &[]), get(at, path));
        assert_eq!(head.status, get.status);
        assert_eq!(head.headers["content-type"], get.headers["content-type"]);
        assert_eq!(head.headers["content-length"], get.body.len().to_string());
        assert_eq!(head.body, "", "{path}");
    }
}

/// Lets this process have so many sockets.
fn allow_files(count: u64) {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(
        hard >= count,
        "this test needs {count} files, `ulimit -Hn` is {hard}"
    );
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(count), hard).unwrap();
}

/// Clients that never complete a request, the last of which has just connected.
fn slow_clients(at: SocketAddr, count: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = connect(at);
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nX-Slow: ");
        stream
    };
    (0..count).map(connect).collect()
}

#[test]
fn a_thousand_slow_clients_keep_nobody_out() {
    allow_files(4_096);
    let (mut daemon, at) = daemon();
    let slow = slow_clients(at, 1_000);
    // At once: after a while slow clients lose their places anyway.
    for _ in 0..20 {
        assert_eq!(get(at, "/healthz").status, 200);
        assert_eq!(get(at, "/api/v1/jobs").status, 200);
    }
    // Those that were there first have lost their places to those that came later.
    for client in &slow[..500] {
        let mut end = Vec::new();
        let read = (&*client).read_to_end(&mut end);
        assert!(read.is_err() || end.is_empty(), "{end:?}");
    }
    drop(slow);
    assert!(daemon.terminate().success());
}

#[test]
fn a_client_that_sends_no_request_is_closed_after_a_while() {
    let (_daemon, at) = daemon();
    let mut client = slow_clients(at, 1).remove(0);
    let mut end = Vec::new();
    // Before the limit of `connect`, which is shorter than the lifetime of a connection.
    let read = client.read_to_end(&mut end);
    let timed_out = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    assert!(!read.as_ref().is_err_and(timed_out), "{read:?}");
}

#[test]
fn a_daemon_ends_although_clients_are_connected() {
    let (mut daemon, at) = daemon();
    let _slow = slow_clients(at, 10);
    let mut idle = connect(at);
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {at}\r\n\r\n");
    idle.write_all(request.as_bytes()).unwrap();
    idle.read_exact(&mut [0; 15]).unwrap();
    assert!(daemon.terminate().success());
}
