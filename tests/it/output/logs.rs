//! `cronlatch logs`.

use std::fs;
use std::process::{Command, Stdio};

use super::{on, wait_file};
use crate::support::{Daemon, Output, RedisServer, command, wait_until};

/// A job that writes to both streams and fails.
const FAILING: &str = "jobs:\n  - { name: job, every: 1s, command: 'printf \"one\\ntwo\"; sleep 0.2; \
                       echo err >&2; exit 3' }\n";

pub(super) fn ask(state: &std::path::Path, list: &std::path::Path, args: &[&str]) -> Output {
    command::output(on_host(state, list, args))
}

/// A command on the host of the daemon.
fn on_host(state: &std::path::Path, list: &std::path::Path, args: &[&str]) -> Command {
    let mut logs = command::command(command::BINARY);
    logs.args(args)
        .env("CRONLATCH_CONFIG", list)
        .env("CRONLATCH_HOST", "host")
        .env("STATE_DIRECTORY", state);
    logs
}

/// The run of an output file.
fn run_of(file: &std::path::Path) -> String {
    let name = file.file_name().unwrap().to_str().unwrap();
    let (_, run) = name.split_once('@').unwrap();
    run.strip_suffix(".log").unwrap().to_owned()
}

#[test]
fn the_output_of_a_run_is_shown_by_run_and_by_job_and_in_every_form() {
    let state = tempfile::tempdir().unwrap();
    let mut daemon = on(state.path(), FAILING).start();
    let file = wait_file(state.path(), "\"outcome\":\"failed\"");
    let run = run_of(&file);
    let by_run = ask(state.path(), &daemon.list(), &["logs", &run]).expect_code(0);
    assert_eq!(by_run.stdout, "one\ntwoerr\n");
    assert!(
        by_run
            .stderr
            .contains(&format!("-- run {run} of job job on host host, due "))
    );
    assert!(by_run.stderr.ends_with("-- failed --\n"), "{by_run:?}");
    let times = ask(state.path(), &daemon.list(), &["logs", &run, "-t"]).expect_code(0);
    let lines: Vec<&str> = times
        .stdout
        .lines()
        .map(|line| line.split_once(' ').unwrap().1)
        .collect();
    assert_eq!(lines, ["stdout one", "stdout two", "stderr err"]);
    let errors = ask(
        state.path(),
        &daemon.list(),
        &["logs", &run, "--stream", "stderr"],
    );
    assert_eq!(errors.expect_code(0).stdout, "err\n");
    let json = ask(state.path(), &daemon.list(), &["logs", &run, "--json"]).expect_code(0);
    let lines = json.json_lines();
    assert_eq!(lines[0]["event"], "begun");
    assert_eq!(lines[1]["text"], "one");
    assert_eq!(
        (&lines[2]["text"], &lines[2]["complete"]),
        (&"two".into(), &false.into())
    );
    assert_eq!(lines.last().unwrap()["outcome"], "failed");
    assert!(daemon.terminate().success());
    // The newest run of the job, from the embedded store.
    let by_job = ask(state.path(), &daemon.list(), &["logs", "job"]).expect_code(0);
    assert_eq!(by_job.stdout, "one\ntwoerr\n");
    let unknown = ask(state.path(), &daemon.list(), &["logs", "jop"]).expect_code(64);
    assert!(unknown.stderr.contains("did you mean job?"), "{unknown:?}");
}

#[test]
fn a_run_in_progress_is_followed_to_its_end() {
    let state = tempfile::tempdir().unwrap();
    let go = state.path().join("go");
    let list = format!(
        "\
jobs:
  - name: job
    every: 1s
    command: 'echo begin; until [ -e {} ]; do sleep 0.05; done; echo end'
",
        go.display()
    );
    let mut daemon = on(state.path(), list).start();
    wait_file(state.path(), "begin");
    let shown = fs::File::create(state.path().join("shown")).unwrap();
    let mut follower = on_host(state.path(), &daemon.list(), &["logs", "job", "--follow"]);
    follower.stdout(shown).stderr(Stdio::null());
    let mut follower = follower.spawn().unwrap();
    let text = || fs::read_to_string(state.path().join("shown")).unwrap();
    daemon.wait_until("the follower has shown what is there", |_| {
        text() == "begin\n"
    });
    assert_eq!(follower.try_wait().unwrap(), None);
    fs::write(&go, "").unwrap();
    // It succeeds, so that its file is removed while it is followed.
    assert!(command::exit_of(&mut follower).unwrap().success());
    assert_eq!(text(), "begin\nend\n");
    daemon.terminate();
}

#[test]
fn a_run_that_has_just_begun_and_has_written_nothing_is_found() {
    let state = tempfile::tempdir().unwrap();
    let list = "jobs:\n  - { name: job, every: 1s, command: exec sleep 1000 }\n";
    let mut daemon = on(state.path(), list).start();
    daemon.wait_log(&["started"]);
    let shown = ask(state.path(), &daemon.list(), &["logs", "job"]).expect_code(0);
    assert_eq!(shown.stdout, "");
    daemon.kill();
}

#[test]
fn a_run_without_a_file_is_followed_while_it_is_in_progress() {
    let state = tempfile::tempdir().unwrap();
    // No directory for files.
    fs::write(state.path().join("output"), "").unwrap();
    let go = state.path().join("go");
    let list = format!(
        "jobs:\n  - {{ name: job, every: 1s, command: 'echo hi; until [ -e {} ]; do sleep 0.05; done' }}\n",
        go.display()
    );
    let mut daemon = on(state.path(), list).start();
    daemon.wait_log(&["started"]);
    let said = fs::File::create(state.path().join("said")).unwrap();
    let mut follower = on_host(state.path(), &daemon.list(), &["logs", "job", "--follow"]);
    follower.stdout(Stdio::null()).stderr(said);
    let mut follower = follower.spawn().unwrap();
    // By now it has waited for the file of a run that has just begun.
    let said = || fs::read_to_string(state.path().join("said")).unwrap();
    wait_until("the follower waits for the run", || {
        said().contains("waiting while it is in progress")
    });
    // Others get an answer.
    let told = ask(state.path(), &daemon.list(), &["logs", "job"]).expect_code(69);
    assert!(told.stderr.contains("which is in progress"), "{told:?}");
    fs::write(&go, "").unwrap();
    let ended = command::exit_of(&mut follower).unwrap();
    let said = said();
    assert!(ended.success(), "{said}");
    assert!(said.contains("keeps no file of run"), "{said}");
    daemon.terminate();
}

#[test]
fn the_follower_of_a_run_whose_daemon_is_killed_ends() {
    let state = tempfile::tempdir().unwrap();
    let list = "jobs:\n  - { name: job, every: 1s, command: 'echo begin; sleep 1000' }\n";
    let mut daemon = on(state.path(), list).start();
    let run = run_of(&wait_file(state.path(), "begin"));
    daemon.kill();
    let shown = ask(state.path(), &daemon.list(), &["logs", &run, "-f"]).expect_code(0);
    assert_eq!(shown.stdout, "begin\n");
}

#[test]
fn of_a_run_that_succeeded_the_last_lines_are_shown() {
    let state = tempfile::tempdir().unwrap();
    let list = "jobs:\n  - { name: job, every: 1s, command: echo hello }\n";
    let mut daemon = on(state.path(), list).start();
    daemon.wait_log(&["finished after", "succeeded"]);
    let list = daemon.list();
    daemon.wait_until("its record is there", |_| {
        let records = ask(state.path(), &list, &["history", "--json", "job"]).expect_code(0);
        records.stdout.contains("succeeded")
    });
    assert!(daemon.terminate().success());
    let shown = ask(state.path(), &daemon.list(), &["logs", "job"]).expect_code(0);
    assert_eq!(shown.stdout, "hello\n");
    assert!(shown.stderr.contains("keeps no file of run"), "{shown:?}");
}

#[test]
fn another_host_names_the_host_and_the_file() {
    let redis = RedisServer::start();
    let state = tempfile::tempdir().unwrap();
    let list = format!("store: {}\n{FAILING}", redis.url());
    let mut daemon = on(state.path(), list).start();
    let file = wait_file(state.path(), "\"outcome\":\"failed\"");
    let run = run_of(&file);
    let elsewhere = tempfile::tempdir().unwrap();
    let there = |what: &str| {
        let mut logs = command::command(command::BINARY);
        logs.args(["logs", what, "--host", "desk"])
            .env("CRONLATCH_CONFIG", daemon.list())
            .env("STATE_DIRECTORY", elsewhere.path());
        command::output(logs)
    };
    // Its record comes after the end of its file.
    wait_until("the store knows the run", || there(&run).code() == 69);
    let said = there(&run);
    let place = format!(
        "ran on host host: its output is there, in {}",
        file.display()
    );
    assert!(said.stderr.contains(&place), "{said:?}");
    assert!(
        said.stderr
            .contains(&format!("run `cronlatch logs {run}` on host")),
        "{said:?}"
    );
    let said = there("job").expect_code(69);
    assert!(said.stderr.contains("ran on host host"), "{said:?}");
    // The host itself finds it without STATE_DIRECTORY: the daemon announced it.
    let mut logs = command::command(command::BINARY);
    logs.args(["logs", &run, "--host", "host"])
        .env("CRONLATCH_CONFIG", daemon.list())
        .env("STATE_DIRECTORY", elsewhere.path());
    assert_eq!(command::output(logs).expect_code(0).stdout, "one\ntwoerr\n");
    assert!(daemon.terminate().success());
}

#[test]
fn without_the_store_the_newest_output_of_this_host_is_shown() {
    let redis = RedisServer::start();
    let state = tempfile::tempdir().unwrap();
    let list = format!("store: {}\n{FAILING}", redis.url());
    let mut daemon = Daemon::on("host", list)
        .env("STATE_DIRECTORY", state.path().display().to_string())
        .start();
    wait_file(state.path(), "\"outcome\":\"failed\"");
    assert!(daemon.terminate().success());
    drop(redis);
    let said = ask(state.path(), &daemon.list(), &["logs", "job"]).expect_code(0);
    assert_eq!(said.stdout, "one\ntwoerr\n");
    assert!(said.stderr.starts_with("warning: "), "{said:?}");
}
