//! Disks that are full, limited or not safe: runs go on, and the log says what is missing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{files, on, wait_file};
use crate::support::{Daemon, RedisServer, SmallDisk, wait_until};

/// A job that writes far more than the small disk has, waits for nobody, and fails.
const FLOOD: &str = r#"jobs:
  - name: job
    every: 1s
    command: 'head -c 3000000 /dev/zero | tr "\0" "x" | fold -w 100; exit 3'
"#;

const STOPPED: [&str; 2] = ["WARN", "the output of this run is not stored any further"];

/// Waits until this many runs have ended as they should: the disk changes nothing for them.
#[track_caller]
fn wait_ended(daemon: &mut Daemon, runs: usize) {
    daemon.wait_until("the runs have ended by themselves", |daemon| {
        daemon.lines_with(&["finished after", "failed, exit code 3"]) >= runs
    });
}

#[test]
fn a_full_disk_stops_the_storage_and_never_the_run() {
    let state = tempfile::tempdir().unwrap();
    let output = state.path().join("output");
    fs::create_dir(&output).unwrap();
    let Some(disk) = SmallDisk::new(&output) else {
        eprintln!("SKIPPED: this process may not mount a file system");
        return;
    };
    let mut daemon = on(state.path(), FLOOD)
        .env("RUST_LOG", "cronlatch=warn,cronlatch::output=info")
        .start();
    wait_ended(&mut daemon, 3);
    assert_eq!(daemon.lines_with(&STOPPED), 1, "once, not for each run");
    assert_eq!(daemon.lines_with(&["almost full"]), 1);
    // A twentieth of the disk is left to others.
    let free = nix::sys::statvfs::statvfs(&output).unwrap();
    assert!(free.blocks_available() > 0);
    assert!(wait_file(state.path(), "\"event\":\"stopped\"").exists());
    let ask = |args: &[&str]| super::logs::ask(state.path(), &daemon.list(), args).expect_code(0);
    wait_until(
        "of a run without room, `logs` shows what its record has",
        || {
            let records = ask(&["history", "job", "--json"]).json_lines();
            let run = records.last().and_then(|record| record["run_id"].as_str());
            let said = run.map(|run| ask(&["logs", run]));
            said.is_some_and(|said| {
                said.stdout.contains("xxx") && said.stderr.contains("keeps no file of run")
            })
        },
    );
    disk.grow();
    for file in files(state.path()) {
        fs::remove_file(file).unwrap();
    }
    daemon.wait_log(&["the output of runs can be stored again"]);
    wait_until("a run is stored to its end", || {
        let text = |file: &PathBuf| fs::read_to_string(file).unwrap_or_default();
        let whole = |text: &String| text.contains("\"ended\"") && !text.contains("\"stopped\"");
        files(state.path())
            .iter()
            .map(text)
            .any(|text| whole(&text))
    });
    assert!(daemon.terminate().success());
    drop(disk);
}

#[test]
fn a_limit_of_file_sizes_ends_neither_run_nor_daemon() {
    let state = tempfile::tempdir().unwrap();
    // The limit is for the files of an embedded store, too.
    let redis = RedisServer::start();
    let mut daemon = on(state.path(), FLOOD)
        .store(&redis.url())
        .arg("--log-level")
        .arg("warn")
        .start();
    let limited = Command::new("prlimit")
        .args(["--fsize=200000", "--pid", &daemon.pid().to_string()])
        .status();
    assert!(limited.unwrap().success());
    daemon.wait_log(&STOPPED);
    wait_ended(&mut daemon, 2);
    assert!(
        daemon.lines_with(&["File too large"]) > 0,
        "{}",
        daemon.log()
    );
    assert!(daemon.terminate().success());
}

#[test]
fn a_directory_that_is_a_link_is_not_used_and_the_runs_go_on() {
    let state = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), state.path().join("output")).unwrap();
    let mut daemon = on(state.path(), FLOOD)
        .arg("--log-level")
        .arg("warn")
        .start();
    wait_ended(&mut daemon, 2);
    assert_eq!(daemon.lines_with(&STOPPED), 1);
    assert_eq!(daemon.lines_with(&["it is a symbolic link"]), 1);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    assert!(daemon.terminate().success());
}
