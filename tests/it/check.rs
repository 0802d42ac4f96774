//! `cronlatch check`: what it says and what it exits with.

use std::fs::File;
use std::time::{Duration, Instant};

use crate::support::{command, cronlatch};

fn example() -> String {
    format!("{}/jobs.example.yaml", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_example_is_right_and_every_job_of_it_is_shown() {
    let said = cronlatch(&["check", &example(), "--host", "h"]).expect_code(0);
    for job in ["hello", "clock", "flaky", "slow", "nightly-report"] {
        let shown = said.stdout.lines().any(|line| line.starts_with(job));
        assert!(shown, "{job} is missing in {said:#?}");
    }
    assert!(!said.stdout.contains("warning"), "{said:#?}");
    let json = cronlatch(&["check", "--json", &example(), "--host", "h"]).expect_code(0);
    let [report] = json.json_lines().try_into().expect("one object");
    assert_eq!(report["ok"], true);
    assert_eq!(report["jobs"].as_array().map(Vec::len), Some(5));
}

#[test]
fn a_wrong_list_exits_with_78_and_names_every_place() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.yaml");
    let text = "\
jobs:
  - { name: a, evry: 5s, command: x }
  - { name: b, every: 5, command: x }
";
    std::fs::write(&path, text).expect("a file");
    let path = path.display().to_string();
    let said = cronlatch(&["check", &path]).expect_code(78);
    assert_eq!(said.stdout, "");
    for place in [
        ":2:16: error: `evry`",
        "did you mean `every`?",
        ":3:23: error: `5`",
        "write `5s`, `5m` or `5h`",
    ] {
        assert!(
            said.stderr.contains(place),
            "{place} is missing in {said:#?}"
        );
    }
    let json = cronlatch(&["check", "--json", &path]).expect_code(78);
    let [report] = json.json_lines().try_into().expect("one object");
    assert_eq!(report["ok"], false);
    assert_eq!(report["errors"][1]["line"], 3);
    assert_eq!(report["errors"][1]["column"], 23);
}

#[test]
fn a_file_that_is_not_there_is_a_configuration_error() {
    let said = cronlatch(&["check", "/nowhere/jobs.yaml"]).expect_code(78);
    assert!(
        said.stderr.contains("/nowhere/jobs.yaml: error:"),
        "{said:#?}"
    );
}

#[test]
fn a_machine_outside_utc_is_warned_unless_the_list_names_a_zone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.yaml");
    let job = "jobs: [{ name: a, schedule: '0 3 * * *', command: x }]\n";
    std::fs::write(&path, job).expect("a file");
    let check = |zone: &str| {
        let mut check = command::command(command::BINARY);
        check.arg("check").arg(&path).env("TZ", zone);
        command::output(check).expect_code(0).stdout
    };
    assert!(check("Asia/Tokyo").contains("Asia/Tokyo"));
    assert!(!check("UTC").contains("warning"));
}

/// A list that names no store is checked against the one that is given.
#[test]
fn a_raw_key_that_the_given_cluster_cannot_take_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.yaml");
    let text = "jobs:\n  - { name: a, every: 5s, command: x, lock: { key: 'a}b' } }\n";
    std::fs::write(&path, text).expect("a file");
    let path = path.display().to_string();
    cronlatch(&["check", &path]).expect_code(0);
    for command in ["check", "run"] {
        let said = cronlatch(&[command, &path, "--store", "redis+cluster://127.0.0.1:1"]);
        let said = said.expect_code(78);
        assert!(said.stderr.contains("job a: the key \"a}b\""), "{said:#?}");
    }
}

#[test]
fn hostile_lists_are_refused_at_once_with_78() {
    let dir = tempfile::tempdir().expect("a directory");
    let place = |name: &str| dir.path().join(name).display().to_string();
    let write = |name: &str, text: String| {
        std::fs::write(place(name), text).expect("a file");
        place(name)
    };
    let closed = |count: usize| format!("jobs: {}1{}\n", "[".repeat(count), "]".repeat(count));
    let nested = format!(
        "jobs: [{{ name: a, every: 5s, command: \"{}x{}\" }}]\n",
        "${A:-".repeat(50_000),
        "}".repeat(50_000)
    );
    nix::unistd::mkfifo(
        dir.path().join("fifo").as_path(),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .expect("a FIFO");
    File::create(place("big"))
        .and_then(|file| file.set_len(1 << 30))
        .expect("a sparse file");
    std::fs::create_dir(place("dir")).expect("a directory");
    nix::unistd::mkfifo(
        dir.path().join("dir/jobs.yaml").as_path(),
        nix::sys::stat::Mode::S_IRWXU,
    )
    .expect("a FIFO");
    for (list, said) in [
        (
            write("brackets", "[".repeat(200_000)),
            ":1:1001: error: not valid YAML: nested too deeply",
        ),
        (
            write("mappings", format!("x-a: {}", "{a: ".repeat(200_000))),
            "nested too deeply",
        ),
        (write("dashes", "- ".repeat(200_000)), "nested too deeply"),
        (write("open", "[".repeat(2_000)), "`[` or `{` is not closed"),
        (write("closed", closed(2_000)), "nested 128 levels deep"),
        (write("few", closed(200)), "nested 128 levels deep"),
        (write("defaults", nested), "nested defaults"),
        (place("fifo"), "this is a pipe, not a file"),
        (place("dir"), "this is a pipe, not a file"),
        ("/dev/zero".to_owned(), "this is a device, not a file"),
        (place("big"), "a job list has at most 64 MiB"),
    ] {
        let began = Instant::now();
        let output = cronlatch(&["check", &list]).expect_code(78);
        assert!(output.stderr.contains(said), "{list}: {}", output.stderr);
        // Each took a minute or more, or never ended.
        assert!(began.elapsed() < Duration::from_secs(20), "{list}");
    }
}
