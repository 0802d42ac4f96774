//! What may be done over HTTP, by whom, and what is recorded of it.

use serde_json::{Value, json};

use super::{ACT, READ, address, ask, post, send, serving, with_tokens};
use crate::support::{Daemon, wait_for, wait_until};

fn status(daemon: &Daemon) -> Value {
    daemon
        .ask(&["status", "--json"])
        .expect_code(0)
        .json_lines()
        .remove(0)
}

#[test]
fn who_acts_over_http_is_recorded_and_the_fleet_does_it() {
    let dir = tempfile::tempdir().unwrap();
    let slow = "{ name: slow, schedule: '@yearly', command: 'sleep 600', kill_grace: 1s }";
    let list = with_tokens(dir.path(), &[slow, super::QUIET]);
    let mut daemon = Daemon::on("web1", list).start();
    let at = address(&mut daemon);
    let act = |path: &str, body: Value| post(at, path, ACT, &body.to_string());

    let body = json!({ "jobs": ["q*"], "for": "2h", "reason": "new disk" });
    let reply = act("/api/v1/pause", body);
    assert_eq!(reply.status, 200, "{reply:#?}");
    assert_eq!(reply.json()["by"], "alice+http@web1");
    let paused = status(&daemon)["jobs"][1]["paused"].clone();
    assert_eq!(
        (&paused["by"], &paused["reason"]),
        (&"alice+http@web1".into(), &"new disk".into())
    );
    assert!(paused["until"].is_string(), "{paused:#}");
    let refused = act("/api/v1/trigger", json!({ "job": "quiet" }));
    assert!(refused.error(409).contains("paused"), "{refused:#?}");
    assert_eq!(act("/api/v1/resume", json!({ "all": true })).status, 200);
    assert!(status(&daemon)["jobs"][1]["paused"].is_null());

    let reply = act(
        "/api/v1/trigger",
        json!({ "job": "slow", "reason": "to see it" }),
    );
    assert_eq!(reply.status, 200, "{reply:#?}");
    let run = reply.json()["run_id"].as_str().unwrap().to_owned();
    wait_until("it runs", || {
        status(&daemon)["jobs"][0]["running"]["run_id"] == run.as_str()
    });
    act("/api/v1/trigger", json!({ "job": "slow" })).error(409);
    let reply = act("/api/v1/kill", json!({ "run": run, "reason": "enough" }));
    assert_eq!(reply.json()["run_id"], run.as_str(), "{reply:#?}");
    let record = wait_for("it has ended", || {
        let said = daemon.ask(&["history", "slow", "--json"]).expect_code(0);
        said.json_lines()
            .into_iter()
            .find(|record| record["run_id"] == run.as_str())
    });
    assert_eq!(
        (&record["outcome"], &record["by"]),
        (&"stopped".into(), &"alice+http@web1".into())
    );
    let reason = record["reason"].as_str().unwrap();
    assert!(
        reason.contains("to see it") && reason.contains("enough"),
        "{reason}"
    );
    act("/api/v1/kill", json!({ "run": run })).error(409);
    let asked: Vec<Value> = status(&daemon)["requests"].as_array().unwrap().clone();
    assert!(asked.len() >= 4, "{asked:#?}");
    assert!(
        asked.iter().all(|it| it["by"] == "alice+http@web1"),
        "{asked:#?}"
    );
    assert!(!daemon.log().contains(ACT));
}

#[test]
fn only_a_token_with_the_right_to_act_acts_and_only_from_this_site_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::on("web1", with_tokens(dir.path(), &[super::QUIET])).start();
    let at = address(&mut daemon);
    let body = "{\"all\": true}";
    let path = "/api/v1/pause";
    let token = format!("Authorization: Bearer {ACT}");
    let json = "Content-Type: application/json";
    let with = |headers: &[&str]| send(at, path, headers, body);

    with(&[json]).error(401);
    let unknown = "Authorization: Bearer 00000000000000000000000000000000";
    with(&[unknown, json]).error(401);
    let error = post(at, path, READ, body).error(403);
    assert!(error.contains("prometheus may only read"), "{error}");
    for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        with(&[&token, json, &format!("Origin: {origin}")]).error(403);
    }
    for media in [
        "Content-Type: text/plain",
        "Content-Type: application/x-www-form-urlencoded",
        "X: y",
    ] {
        with(&[&token, media]).error(415);
    }
    let reply = ask(at, "GET", path, &[&token]);
    reply.error(405);
    assert_eq!(reply.headers["allow"], "POST");
    send(at, "/api/v1/status", &[&token, json], body).error(405);
    for (path, wrong) in [
        (path, ""),
        (path, "[]"),
        (path, "{}"),
        (path, "{\"jobs\": [\"nothing\"]}"),
        (path, "{\"all\": true, \"jobs\": [\"quiet\"]}"),
        (path, "{\"all\": true, \"for\": \"soon\"}"),
        (path, "{\"all\": true, \"for\": \"0s\"}"),
        (path, "{\"all\": true, \"until\": \"2020-01-01T00:00:00Z\"}"),
        (path, "{\"all\": true, \"reason\": \"a\\nb\"}"),
        ("/api/v1/pause?all=true", body),
        ("/api/v1/trigger", "{\"job\": \"quite\"}"),
        ("/api/v1/kill", "{\"job\": \"nothing\"}"),
        ("/api/v1/kill", "{\"run\": \"quiet\"}"),
        ("/api/v1/kill", "{\"job\": \"quiet\", \"signal\": \"HUPP\"}"),
    ] {
        post(at, path, ACT, wrong).error(400);
    }
    let large = format!("{{\"reason\": \"{}\"}}", "x".repeat(65_536));
    post(at, path, ACT, &large).error(413);
    // A chunked body has no length in its head.
    let chunked = format!(
        "POST {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n{token}\r\n{json}\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    let reply = super::exchange(super::connect(at), &chunked).expect("a reply");
    reply.error(413);
    assert!(
        status(&daemon)["jobs"][0]["paused"].is_null(),
        "nothing was done"
    );
    assert_eq!(
        with(&[&token, json, &format!("Origin: http://{at}")]).status,
        200
    );
    assert!(status(&daemon)["jobs"][0]["paused"].is_object());
}

#[test]
fn a_server_without_tokens_does_nothing() {
    let mut daemon = Daemon::on("web1", serving(&[super::QUIET])).start();
    let at = address(&mut daemon);
    for path in ["pause", "resume", "trigger", "kill"] {
        let error = post(at, &format!("/api/v1/{path}"), ACT, "{\"all\": true}").error(403);
        assert!(error.contains("token_file"), "{error}");
    }
}
