//! The output of runs over HTTP, and `logs` on another host.

use std::io::BufRead as _;
use std::path::Path;

use super::openapi::{assert_described, description};
use super::{ACT, READ, Reply, address, ask, get, list, serving, write_tokens};
use crate::support::{Daemon, RedisServer, command, wait_for, wait_until};

/// A job that fails after a file is there.
fn waits_for(go_on: &Path) -> String {
    let wait = format!("while ! [ -e {} ]; do sleep 0.05; done", go_on.display());
    format!(
        "{{ name: job, every: 1s, command: 'echo one; echo err >&2; {wait}; printf two; exit 3' }}"
    )
}

#[test]
fn the_output_of_a_run_is_served_while_it_goes_on_to_who_has_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let go_on = dir.path().join("go-on");
    let list = super::with_tokens(dir.path(), &[&waits_for(&go_on), super::QUIET]);
    let mut daemon = Daemon::on("web1", list).start();
    let at = address(&mut daemon);
    let token = format!("Authorization: Bearer {READ}");
    let logs = |query: &str| ask(at, "GET", &format!("/api/v1/logs?{query}"), &[&token]);
    let texts = |reply: &Reply| -> Vec<String> {
        let lines = reply
            .body
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        let lines = lines.filter(|line: &serde_json::Value| line["stream"] != "note");
        lines
            .map(|line| line["text"].as_str().unwrap().to_owned())
            .collect()
    };
    let begun = wait_for("both lines are there", || {
        let reply = logs("job=job");
        (reply.status == 200 && texts(&reply).len() == 2).then_some(reply)
    });
    assert_eq!(begun.headers["cronlatch-progress"], "in-progress");
    assert_described(&description()["paths"]["/api/v1/logs"]["get"], &begun);
    let note: serde_json::Value = serde_json::from_str(begun.body.lines().next().unwrap()).unwrap();
    let run = note["run_id"].as_str().unwrap().to_owned();
    let offset = begun.headers["cronlatch-offset"].clone();
    assert_eq!(offset, "8");
    assert_eq!(texts(&logs(&format!("run={run}&stream=stderr"))), ["err"]);

    std::fs::write(&go_on, "").unwrap();
    let rest = wait_for("it has ended", || {
        let reply = logs(&format!("run={run}&from={offset}"));
        (reply.headers["cronlatch-progress"] == "complete").then_some(reply)
    });
    assert_eq!(texts(&rest), ["two"], "only what came since");
    assert_eq!(rest.headers["cronlatch-offset"], "11");
    assert!(rest.body.contains("\"event\":\"ended\""), "{}", rest.body);

    get(at, "/api/v1/logs?job=job").error(401);
    logs("job=quiet").error(404);
    logs("run=01a200cc-51c1-772e-90ed-bdf0bfb054e1").error(404);
    for wrong in [
        "",
        "run=../../etc/passwd",
        "job=job&stream=x",
        "job=job&from=-1",
        "x=1",
    ] {
        logs(wrong).error(400);
    }
}

#[test]
fn without_tokens_the_output_is_for_nobody_on_tcp() {
    let mut daemon = Daemon::on("web1", serving(&[super::QUIET])).start();
    let at = address(&mut daemon);
    assert!(
        get(at, "/api/v1/logs?job=quiet")
            .error(403)
            .contains("token_file")
    );
}

#[test]
fn logs_on_another_host_reads_the_output_through_the_server_of_the_host() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let (go_on, tokens) = (dir.path().join("go-on"), dir.path().join("tokens"));
    write_tokens(&tokens, &format!("read desk {READ}\nact alice {ACT}\n"));
    let http = format!(
        "{{ listen: '0.0.0.0:0', token_file: {} }}",
        tokens.display()
    );
    let list = format!(
        "store: {}\n{}",
        redis.url(),
        list(&http, &[&waits_for(&go_on)])
    );
    // Other machines reach it under its name.
    let mut daemon = Daemon::on("localhost", list).start();
    let at = address(&mut daemon);
    let elsewhere = tempfile::tempdir().unwrap();
    let list = daemon.list();
    let there = |token: Option<&Path>, options: &[&str]| {
        let mut logs = command::command(command::BINARY);
        logs.args(["logs", "job", "--host", "desk"])
            .args(options)
            .env("CRONLATCH_CONFIG", &list)
            .env("STATE_DIRECTORY", elsewhere.path());
        if let Some(token) = token {
            logs.env("CRONLATCH_TOKEN_FILE", token);
        }
        command::output(logs)
    };
    wait_until("the first line can be read", || {
        let said = there(Some(&tokens), &[]);
        said.code() == 0 && said.stdout.contains("one\n")
    });
    let said = there(None, &[]).expect_code(69);
    let address = format!("http://localhost:{}", at.port());
    assert!(
        said.stderr.contains(&address) && said.stderr.contains("--token-file"),
        "{said:?}"
    );
    let wrong = dir.path().join("wrong");
    std::fs::write(&wrong, "0123456789abcdef0123456789abcde0\n").unwrap();
    let said = there(Some(&wrong), &[]).expect_code(69);
    assert!(said.stderr.contains("unknown token (401)"), "{said:?}");
    assert!(!said.stderr.contains("0123456789abcdef"), "{said:?}");

    let follower = std::thread::spawn({
        let (list, elsewhere, tokens) = (list.clone(), elsewhere.path().to_owned(), tokens.clone());
        move || {
            let mut logs = command::command(command::BINARY);
            logs.args(["logs", "job", "--host", "desk", "--follow"])
                .env("CRONLATCH_CONFIG", list)
                .env("CRONLATCH_TOKEN_FILE", tokens)
                .env("STATE_DIRECTORY", elsewhere);
            command::output(logs)
        }
    });
    std::fs::write(&go_on, "").unwrap();
    let said = follower.join().unwrap().expect_code(0);
    assert_eq!(said.stdout.replace("err\n", ""), "one\ntwo");
    for note in ["run ", "failed"] {
        assert_eq!(
            said.stderr.matches(&format!("-- {note}")).count(),
            1,
            "{said:?}"
        );
    }
    let json = there(Some(&tokens), &["--json"]).expect_code(0);
    assert!(!json.json_lines().is_empty());
}

#[test]
fn a_run_that_succeeded_is_read_from_its_host_if_hosts_keep_all_output() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    write_tokens(&tokens, &format!("read desk {READ}\n"));
    let http = format!(
        "{{ listen: '0.0.0.0:0', token_file: {} }}",
        tokens.display()
    );
    // More than a record keeps.
    let job = "{ name: job, schedule: '@yearly', command: 'seq 5000' }";
    let list = format!(
        "store: {}\noutput: {{ keep: all }}\n{}",
        redis.url(),
        list(&http, &[job])
    );
    let state = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::on("localhost", list)
        .env("STATE_DIRECTORY", state.path().display().to_string())
        .start();
    address(&mut daemon);
    daemon.ask(&["trigger", "job", "--wait"]).expect_code(0);
    let elsewhere = tempfile::tempdir().unwrap();
    let there = |options: &[&str]| {
        let mut logs = command::command(command::BINARY);
        logs.args(["logs", "job", "--host", "desk"])
            .args(options)
            .env("CRONLATCH_CONFIG", daemon.list())
            .env("STATE_DIRECTORY", elsewhere.path());
        command::output(logs)
    };
    let said = there(&[]).expect_code(69);
    assert!(said.stderr.contains("its output is there"), "{said:?}");
    let token = tokens.display().to_string();
    let said = there(&["--token-file", &token]).expect_code(0);
    assert_eq!(said.stdout.lines().count(), 5000, "{}", said.stderr);

    for file in std::fs::read_dir(state.path().join("output")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let said = there(&["--token-file", &token]).expect_code(0);
    assert!(said.stdout.ends_with("4999\n5000\n"), "{said:?}");
    assert!(said.stderr.contains("keeps no file of run"), "{said:?}");
}

#[test]
fn who_follows_a_run_of_another_host_to_a_success_is_told_that_its_file_is_gone() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let (go_on, tokens) = (dir.path().join("go-on"), dir.path().join("tokens"));
    write_tokens(&tokens, &format!("read desk {READ}\n"));
    let http = format!(
        "{{ listen: '0.0.0.0:0', token_file: {} }}",
        tokens.display()
    );
    let wait = format!("while ! [ -e {} ]; do sleep 0.05; done", go_on.display());
    let job = format!("{{ name: job, schedule: '@yearly', command: 'echo one; {wait}' }}");
    let list = format!("store: {}\n{}", redis.url(), list(&http, &[&job]));
    let mut daemon = Daemon::on("localhost", list).start();
    address(&mut daemon);
    daemon.ask(&["trigger", "job"]).expect_code(0);
    let elsewhere = tempfile::tempdir().unwrap();
    let mut logs = command::command(command::BINARY);
    logs.args(["logs", "job", "--host", "desk", "--follow"])
        .env("CRONLATCH_CONFIG", daemon.list())
        .env("CRONLATCH_TOKEN_FILE", &tokens)
        .env("STATE_DIRECTORY", elsewhere.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut follower = logs.spawn().unwrap();
    let mut first = String::new();
    let mut stdout = std::io::BufReader::new(follower.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    assert_eq!(first, "one\n");
    std::fs::write(&go_on, "").unwrap();
    let ended = follower.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{stderr}");
    assert!(
        stderr.contains("has ended") && stderr.contains("--output"),
        "{stderr}"
    );
}
