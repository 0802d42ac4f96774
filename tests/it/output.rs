//! The complete output of runs, in files under the state directory.

mod disk;
mod logs;

use std::path::{Path, PathBuf};

use crate::support::{Daemon, wait_for};

/// The output files of a state directory, by name.
fn files(state: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(state.join("output"))
        .into_iter()
        .flatten()
        .flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// What the command wrote to a stream, as a file has it.
fn restored(file: &Path, stream: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in std::fs::read(file)
        .unwrap_or_default()
        .split(|b| *b == b'\n')
    {
        let mut parts = line.splitn(4, |byte| *byte == b' ').skip(1);
        if parts.next() == Some(stream.as_bytes()) {
            let whole = parts.next() == Some(b"F");
            bytes.extend_from_slice(parts.next().unwrap_or_default());
            bytes.extend(whole.then_some(b'\n'));
        }
    }
    bytes
}

/// A daemon whose state directory is this one.
fn on(state: &Path, jobs: impl Into<String>) -> crate::support::daemon::Builder {
    Daemon::on("host", jobs).env("STATE_DIRECTORY", state.display().to_string())
}

/// Waits until one of these files holds this text, and returns it.
#[track_caller]
fn wait_file(state: &Path, text: &str) -> PathBuf {
    wait_for(&format!("an output file holds {text:?}"), || {
        let holds = |file: &PathBuf| {
            let bytes = std::fs::read(file).unwrap_or_default();
            String::from_utf8_lossy(&bytes).contains(text)
        };
        files(state).into_iter().find(holds)
    })
}

#[test]
fn the_output_of_a_failure_is_kept_whole_and_that_of_a_success_is_not() {
    let state = tempfile::tempdir().unwrap();
    let copy = state.path().join("copy");
    // 300 KB of what no text can hold, and far more than a record keeps.
    let list = format!(
        "\
jobs:
  - name: bad
    every: 1s
    command: 'head -c 300000 /dev/urandom > {copy}.new; mv {copy}.new {copy}; cat {copy}; echo to-stderr >&2; exit 3'
  - {{ name: good, every: 1s, command: 'echo fine; until [ -s {copy} ]; do sleep 0.05; done' }}
",
        copy = copy.display(),
    );
    let mut daemon = on(state.path(), list)
        .arg("--log-level")
        .arg("error")
        .start();
    wait_file(state.path(), "\"outcome\":\"failed\"");
    daemon.terminate();
    let kept = files(state.path());
    assert!(!kept.is_empty());
    for file in &kept {
        assert!(file.to_string_lossy().contains("/bad@"), "{kept:?}");
        assert_eq!(restored(file, "stderr"), b"to-stderr\n");
        assert_eq!(restored(file, "stdout").len(), 300_000);
    }
    let newest = kept.last().unwrap();
    assert!(restored(newest, "stdout") == std::fs::read(&copy).unwrap());
}

#[test]
fn what_a_run_wrote_survives_the_sudden_death_of_its_daemon() {
    let state = tempfile::tempdir().unwrap();
    let list = "jobs:\n  - { name: job, every: 1s, command: 'echo before; sleep 1000' }\n";
    let mut daemon = on(state.path(), list).start();
    let file = wait_file(state.path(), "before");
    daemon.kill();
    assert_eq!(restored(&file, "stdout"), b"before\n");
    // The next daemon keeps it, and leaves it as it is.
    let mut next = on(
        state.path(),
        "jobs: [{ name: other, every: 1s, command: 'exit 1' }]",
    )
    .start();
    wait_file(state.path(), "\"outcome\":\"failed\"");
    assert!(next.terminate().success());
    assert_eq!(restored(&file, "stdout"), b"before\n");
}

#[test]
fn a_reload_changes_which_output_is_kept() {
    let state = tempfile::tempdir().unwrap();
    let list = |keep: &str| {
        format!(
            "output: {{ keep: {keep} }}\njobs:\n  - {{ name: job, every: 1s, command: echo hello }}\n"
        )
    };
    let mut daemon = on(state.path(), list("none")).start();
    daemon.wait_log(&["finished after", "succeeded"]);
    assert!(files(state.path()).is_empty());
    std::fs::write(daemon.list(), list("all")).unwrap();
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    daemon.wait_log(&["settings changed (output)"]);
    wait_file(state.path(), "\"outcome\":\"succeeded\"");
    assert!(daemon.terminate().success());
}
