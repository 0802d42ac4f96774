//! Where a server listens.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use super::{exchange, list};
use crate::support::{Daemon, cronlatch};

#[test]
fn a_port_in_use_is_a_clear_error() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let http = format!("{{ listen: '{address}' }}");
    let mut daemon = Daemon::on("web1", list(&http, &[super::QUIET])).spawn();
    assert_eq!(daemon.wait_exit().code(), Some(70));
    let parts = [
        &format!("cannot listen on {address}"),
        "it is in use",
        "change `listen`",
    ];
    assert_eq!(daemon.lines_with(&parts), 1);
}

fn ask(path: &Path) -> Option<u16> {
    let stream = UnixStream::connect(path).ok()?;
    let request = "GET /api/v1/jobs HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n";
    exchange(stream, request).map(|reply| reply.status)
}

#[test]
fn a_unix_socket_belongs_to_its_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("http.sock");
    let list = list(
        &format!("{{ listen: '{}' }}", path.display()),
        &[super::QUIET],
    );
    // What a daemon that was killed has left.
    drop(UnixListener::bind(&path).unwrap());
    let mut daemon = Daemon::on("web1", list.as_str()).start();
    daemon.wait_log(&["serving HTTP on", "http.sock"]);
    assert_eq!(ask(&path), Some(200));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);

    let mut second = Daemon::on("web2", list.as_str()).spawn();
    assert_eq!(second.wait_exit().code(), Some(70));
    assert_eq!(second.lines_with(&["http.sock", "it is in use"]), 1);
    assert_eq!(ask(&path), Some(200), "the first goes on");

    assert!(daemon.terminate().success());
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    let mut third = Daemon::on("web3", list).spawn();
    assert_eq!(third.wait_exit().code(), Some(70));
    assert_eq!(third.lines_with(&["not a socket"]), 1);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn what_cannot_be_an_address_is_explained_by_check() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.yaml");
    let long = format!("{{ listen: '/{}' }}", "x".repeat(104));
    for (http, part) in [
        (
            "{ listen: 7171 }",
            "write `127.0.0.1:7171` for this machine",
        ),
        ("{ listen: ':7171' }", "`0.0.0.0:7171` for all"),
        ("{ listen: 'localhost:80' }", "write `127.0.0.1:80`"),
        ("{ listen: 'web1:80' }", "names are not looked up"),
        ("{ listen: '127.0.0.1' }", "expected an address with a port"),
        ("{}", "`http` needs `listen`"),
        ("{ port: 80 }", "write `listen: 127.0.0.1:7171`"),
        ("7171", "expected a mapping"),
        (long.as_str(), "at most 103 bytes"),
        (
            "{ listen: '127.0.0.1:0', token_file: tokens }",
            "absolute path",
        ),
    ] {
        std::fs::write(&path, list(http, &[super::QUIET])).unwrap();
        let said = cronlatch(&["check", path.to_str().unwrap()]).expect_code(78);
        assert!(said.stderr.contains(part), "{http}: {}", said.stderr);
    }
}
