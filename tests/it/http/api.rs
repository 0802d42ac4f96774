//! What the paths reply: the bytes that commands print, and health.

use regex_lite::Regex;

use super::{address, get, serving};
use crate::support::{Daemon, RedisServer, wait_for, wait_until};

/// What differs between two moments: instants, and counted-down milliseconds.
fn timeless(text: &str) -> String {
    let instants = Regex::new(r#""\d{4}-\d\d-\d\dT[0-9:.]+Z""#).unwrap();
    let millis = Regex::new(r#"(_ms":)-?\d+"#).unwrap();
    let text = instants.replace_all(text, "\"T\"");
    millis.replace_all(&text, "${1}0").into_owned()
}

#[test]
fn the_api_replies_with_the_bytes_of_the_commands() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let go_on = dir.path().join("go-on");
    let slow = format!(
        "{{ name: slow, every: 1s, command: 'while ! [ -e {} ]; do sleep 0.05; done' }}",
        go_on.display()
    );
    let quick = "{ name: web-1, every: 1s, command: 'echo ü; exit 3' }";
    let jobs = [slow.as_str(), quick, super::QUIET];
    let mut daemon = Daemon::on("web1", serving(&jobs))
        .store(&redis.url())
        .start();
    let at = address(&mut daemon);
    daemon.wait_log(&["started", "job=slow"]);
    wait_until("a run has its record", || {
        !get(at, "/api/v1/history?job=web-*").body.is_empty()
    });
    let said = |args: &[&str]| {
        let url = redis.url();
        let args = [args, &["--store", &url]].concat();
        daemon.ask(&args).expect_code(0).stdout
    };

    let reply = get(
        at,
        "/api/v1/history?job=web-%2A&limit=1&outcome=failed&since=2020-01-01T00:00:00Z",
    );
    assert_eq!(reply.headers["content-type"], "application/x-ndjson");
    let until = reply.json()["finished_at"].as_str().unwrap().to_owned();
    assert_eq!(reply.json()["exit_code"], 3);
    let path = format!("/api/v1/history?job=web-1&limit=500&until={until}");
    let args = ["history", "web-1", "--json", "-n", "500", "--until", &until];
    assert_eq!(get(at, &path).body, said(&args));

    let path = "/api/v1/jobs?from=2026-01-31T00:00:00Z&count=3";
    let listed = daemon.list().display().to_string();
    let args = [
        "next",
        &listed,
        "--json",
        "--from",
        "2026-01-31T00:00:00Z",
        "-n",
        "3",
    ];
    let next = daemon.ask(&args).expect_code(0).stdout;
    assert_eq!(get(at, path).body, next);
    assert_eq!(next.lines().count(), jobs.len());

    // The runs of `web-1` come and go: they are the same at some moment.
    let status = wait_for("status and HTTP agree", || {
        let reply = get(at, "/api/v1/status");
        let same = timeless(&reply.body) == timeless(&said(&["status", "--json"]));
        same.then_some(reply)
    });
    assert_eq!(status.headers["content-type"], "application/json");
    assert_eq!(status.headers["cache-control"], "no-store");
    let status = status.json();

    let runs = get(at, "/api/v1/runs").body;
    let run = runs.lines().find(|line| line.contains("\"job\":\"slow\""));
    let run: serde_json::Value = serde_json::from_str(run.unwrap()).unwrap();
    assert_eq!(run["run_id"], status["jobs"][0]["running"]["run_id"]);
    let hosts = get(at, "/api/v1/hosts").json();
    assert_eq!(hosts["name"], "web1");
    assert_eq!(hosts["pid"], daemon.pid());
    std::fs::write(&go_on, "").unwrap();
}

#[test]
fn wrong_parameters_are_explained() {
    let mut daemon = Daemon::on("web1", serving(&[super::QUIET])).start();
    let at = address(&mut daemon);
    for (path, part) in [
        ("/api/v1/status?job=a", "takes none"),
        ("/api/v1/history?jobs=a", "the parameters are job, limit"),
        ("/api/v1/history?limit=x", "invalid value 'x' for '--limit"),
        ("/api/v1/history?outcome=faild", "did you mean failed?"),
        ("/api/v1/history?job=nightly", "no job nightly"),
        ("/api/v1/history?job=no*", "matches \"no*\""),
        (
            "/api/v1/history?failed&outcome=failed",
            "cannot be used with",
        ),
        ("/api/v1/history?store=redis://x", "unknown parameter"),
        ("/api/v1/history?job=%zz", "hexadecimal"),
        ("/api/v1/jobs?count=0", "invalid value '0'"),
        ("/api/v1/jobs?count=9&job=--help", "no job --help"),
        ("/api/v1/jobs?job=quite", "did you mean quiet?"),
        ("/api/v1/jobs?from=soon", "not a time such as"),
    ] {
        let error = get(at, path).error(400);
        assert!(error.contains(part), "{path}: {error}");
    }
}

#[test]
fn a_dead_store_makes_the_host_unready_and_the_api_unavailable_until_it_is_back() {
    let mut redis = RedisServer::start();
    let list = serving(&[super::QUIET]);
    let mut daemon = Daemon::on("web1", list).store(&redis.url()).start();
    let at = address(&mut daemon);
    wait_until("it is ready", || get(at, "/readyz").status == 200);
    assert_eq!(
        get(at, "/readyz").json(),
        serde_json::json!({ "ready": true })
    );
    redis.stop();
    let unready = wait_for("it is not ready", || {
        let reply = get(at, "/readyz");
        (reply.status == 503).then_some(reply)
    });
    assert_eq!(unready.json()["ready"], false);
    let reason = unready.json()["reasons"][0].as_str().unwrap().to_owned();
    assert!(reason.contains("unreachable"), "{reason}");
    for view in ["status", "history", "runs", "hosts"] {
        let reply = get(at, &format!("/api/v1/{view}"));
        let error = reply.error(503);
        assert!(error.contains("unreachable"), "{view}: {error}");
        assert_eq!(reply.headers["retry-after"], "1");
    }
    // What needs no store goes on.
    assert_eq!(get(at, "/api/v1/jobs").status, 200);
    assert_eq!(
        get(at, "/healthz").json(),
        serde_json::json!({ "healthy": true })
    );
    redis.restart();
    wait_until("it is ready again", || get(at, "/readyz").status == 200);
    wait_until("the API is back", || {
        get(at, "/api/v1/status").status == 200
    });
}

#[test]
fn a_daemon_that_drains_serves_until_its_end_and_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let go_on = dir.path().join("go-on");
    let slow = format!(
        "{{ name: slow, every: 1s, command: 'while ! [ -e {} ]; do sleep 0.05; done' }}",
        go_on.display()
    );
    let mut daemon = Daemon::on("web1", serving(&[&slow])).start();
    let at = address(&mut daemon);
    daemon.wait_log(&["started", "job=slow"]);
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    wait_until("it says that it drains", || {
        get(at, "/readyz")
            .body
            .contains("\"the daemon is draining\"")
    });
    assert_eq!(get(at, "/readyz").status, 503);
    assert_eq!(get(at, "/healthz").status, 200);
    // What all hosts can read follows with the next announcement.
    wait_until("its announcement says so", || {
        get(at, "/api/v1/hosts").json()["draining"] == true
    });
    assert_eq!(get(at, "/api/v1/runs").json()["job"], "slow");
    std::fs::write(&go_on, "").unwrap();
    assert_eq!(daemon.wait_exit().code(), Some(0));
    assert!(std::net::TcpStream::connect(at).is_err());
}

#[test]
fn a_host_whose_clock_is_wrong_is_not_ready() {
    let redis = RedisServer::start();
    let list = serving(&[super::QUIET]);
    let builder = Daemon::on("web1", list).store(&redis.url());
    let mut daemon = builder.clock_shifted_by(120_000).start();
    let at = address(&mut daemon);
    wait_until("it says so", || {
        let reply = get(at, "/readyz");
        reply.status == 503 && reply.body.contains("max_clock_skew")
    });
}
