//! The HTTP server of a daemon: real daemons, real sockets, clients that behave badly.

mod access;
mod actions;
mod api;
mod limits;
mod logs;
mod metrics;
mod openapi;
mod reload;
mod sockets;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use crate::support::Daemon;

const READ: &str = "0123456789abcdef0123456789abcdef";
const ACT: &str = "fedcba9876543210fedcba9876543210";

/// A job that is due once a year.
const QUIET: &str = "{ name: quiet, schedule: '@yearly', command: 'true' }";

/// A list with this `http:` and these jobs, each on one line.
fn list(http: &str, jobs: &[&str]) -> String {
    let jobs = jobs.join("\n  - ");
    format!("http: {http}\njobs:\n  - {jobs}\n")
}

/// A server on a port that the system chooses, for these jobs.
fn serving(jobs: &[&str]) -> String {
    list("{ listen: '127.0.0.1:0' }", jobs)
}

/// Where a daemon serves, by the newest line of its log.
#[track_caller]
pub(crate) fn address(daemon: &mut Daemon) -> SocketAddr {
    daemon.wait_log(&["serving HTTP on http://"]);
    let log = daemon.log();
    let place = log.rsplit_once("serving HTTP on http://").map(|it| it.1);
    let place = place.and_then(|it| it.split_once(',')).unwrap().0;
    place.parse().unwrap()
}

/// A reply that has arrived whole.
#[derive(Debug)]
pub(crate) struct Reply {
    status: u16,
    /// By name in small letters.
    headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Reply {
    #[track_caller]
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let Some(status) = status.and_then(|status| status.parse().ok()) else {
            panic!("not a reply: {text:?}");
        };
        let headers = lines.filter_map(|line| line.split_once(": "));
        Self {
            status,
            headers: headers
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect(),
            body: body.to_owned(),
        }
    }

    #[track_caller]
    fn json(&self) -> serde_json::Value {
        match serde_json::from_str(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("not JSON ({error}): {self:#?}"),
        }
    }

    /// The message and the hint of the error, which is JSON with the same status.
    #[track_caller]
    fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:#?}");
        assert_eq!(self.headers["content-type"], "application/json");
        let json = self.json();
        assert_eq!(json["error"]["status"], status, "{self:#?}");
        let hint = json["error"]["hint"].as_str().unwrap_or_default();
        format!("{}{hint}", json["error"]["message"].as_str().unwrap())
    }
}

/// Sends a text and returns everything that comes back until the server closes; `None` if the
/// connection breaks before a reply.
fn exchange(mut stream: impl Read + Write, request: &str) -> Option<Reply> {
    let _ = stream.write_all(request.as_bytes());
    let mut text = Vec::new();
    // A reset after the reply does not take the reply back.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text).into_owned();
    (!text.is_empty()).then(|| Reply::parse(&text))
}

fn connect(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(at).unwrap();
    let limit = Some(Duration::from_secs(90));
    stream.set_read_timeout(limit).unwrap();
    stream
}

/// A request with these further header lines.
#[track_caller]
fn ask(at: SocketAddr, method: &str, path: &str, headers: &[&str]) -> Reply {
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|header| header.starts_with("Host:")) {
        text += &format!("Host: {at}\r\n");
    }
    for header in headers {
        text += &format!("{header}\r\n");
    }
    text += "\r\n";
    exchange(connect(at), &text).expect("a reply")
}

#[track_caller]
pub(crate) fn get(at: SocketAddr, path: &str) -> Reply {
    ask(at, "GET", path, &[])
}

/// Sends a JSON object with a token.
#[track_caller]
fn post(at: SocketAddr, path: &str, token: &str, body: &str) -> Reply {
    let token = format!("Authorization: Bearer {token}");
    send(at, path, &[&token, "Content-Type: application/json"], body)
}

/// A POST with these further header lines.
#[track_caller]
fn send(at: SocketAddr, path: &str, headers: &[&str], body: &str) -> Reply {
    let headers = headers.join("\r\n");
    let text = format!(
        "POST {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n\r\n{body}",
        body.len()
    );
    exchange(connect(at), &text).expect("a reply")
}

/// A list for a server with the tokens of `prometheus`, who may read, and `alice`, who may act.
fn with_tokens(dir: &Path, jobs: &[&str]) -> String {
    let tokens = dir.join("tokens");
    write_tokens(
        &tokens,
        &format!("read prometheus {READ}\nact alice {ACT}\n"),
    );
    let http = format!(
        "{{ listen: '127.0.0.1:0', token_file: {} }}",
        tokens.display()
    );
    list(&http, jobs)
}

/// Writes a file of tokens that only its owner reads.
fn write_tokens(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(new, path).unwrap();
}
