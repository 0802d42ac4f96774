//! `cronlatch next`, and the examples of `docs/schedules.md`.

use std::path::Path;

use super::support::command::{self, BINARY};
use super::support::{Output, cronlatch};

const LIST: &str = r#"
defaults: { timezone: Europe/Berlin }
jobs:
  - { name: nightly, schedule: "30 2 * * *", command: ["true"] }
  - { name: often, every: 15m, command: ["true"] }
  - { name: idle, schedule: "@daily", enabled: false, command: ["true"] }
"#;

fn next(args: &[&str]) -> Output {
    cronlatch(&[&["next"], args].concat())
}

/// A shell in which `cronlatch` is the program under test.
fn shell(script: &str) -> Output {
    let directory = Path::new(BINARY).parent().expect("a directory");
    let mut shell = command::command("/bin/sh");
    shell.args(["-c", script]);
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{}:{path}", directory.display()));
    command::output(shell)
}

#[test]
fn the_examples_of_the_page_on_schedules_are_true() {
    let page = include_str!("../../docs/schedules.md");
    let mut examples = 0;
    for block in page.split("```console\n").skip(1) {
        let (block, _) = block.split_once("```").expect("the block ends");
        for example in block.split_inclusive('\n').fold(Vec::new(), join) {
            let (script, expected) = example.split_once('\n').expect("a command line");
            let script = script.strip_prefix("$ ").expect("a prompt");
            let said = shell(script);
            assert_eq!(
                format!("{}{}", said.stdout, said.stderr),
                expected,
                "{script}"
            );
            examples += 1;
        }
    }
    assert_eq!(examples, 7);
}

/// Gathers lines into examples, each of which begins with a prompt.
fn join(mut examples: Vec<String>, line: &str) -> Vec<String> {
    match examples.last_mut() {
        Some(example) if !line.starts_with("$ ") => example.push_str(line),
        _ => examples.push(line.to_owned()),
    }
    examples
}

#[test]
fn a_list_prints_a_json_object_for_each_job() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("jobs.yaml");
    std::fs::write(&file, LIST).expect("the file is written");
    let file = file.to_str().expect("a plain path");
    let said = next(&[
        file,
        "--from",
        "2026-03-29T02:00:00+02:00",
        "--count=2",
        "--json",
    ]);
    assert_eq!(
        said.expect_code(0).stdout,
        concat!(
            r#"{"job":"nightly","schedule":"30 2 * * *","timezone":"Europe/Berlin","#,
            r#""occurrences":["2026-03-29T01:00:00Z","2026-03-30T00:30:00Z"]}"#,
            "\n",
            r#"{"job":"often","schedule":"every 15m","timezone":"UTC","#,
            r#""occurrences":["2026-03-29T00:15:00Z","2026-03-29T00:30:00Z"]}"#,
            "\n",
            r#"{"job":"idle","schedule":"@daily","timezone":"Europe/Berlin","occurrences":[]}"#,
            "\n",
        )
    );
    let said = next(&[file, "--job", "often", "--from=2026-03-29T00:00:00Z", "-n1"]);
    assert_eq!(
        said.expect_code(0).stdout,
        "often: every 15m (UTC)\n\
         LOCAL                           UTC\n\
         Sun 2026-03-29 00:15:00 +00:00  2026-03-29T00:15:00Z\n"
    );
    let said = next(&[file, "--job", "oftn"]).expect_code(64);
    assert!(said.stderr.contains("did you mean often?"), "{said:?}");
}

#[test]
fn wrong_use_and_wrong_expressions_have_their_exit_codes() {
    let wrong = next(&["--expr", "* * * * *", "--tz", "Europe/Berlni"]).expect_code(64);
    assert!(
        wrong.stderr.contains("did you mean `Europe/Berlin`?"),
        "{wrong:?}"
    );
    next(&[]).expect_code(64);
    next(&["--expr", "* * * * *", "--count", "0"]).expect_code(64);
    next(&["--expr", "* * * * *", "--from", "yesterday"]).expect_code(64);
    next(&["--expr", "61 * * * *"]).expect_code(78);
    next(&["/nowhere/jobs.yaml"]).expect_code(78);
}
