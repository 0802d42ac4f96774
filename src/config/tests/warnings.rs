//! Warnings: what a list may contain, but what its author probably did not mean.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{job, list};
use crate::config::environment::Environment;
use crate::config::source::Source;
use crate::config::{list as whole, load_in};

fn only(text: &str) -> String {
    let warnings = list(text).warnings;
    let [warning] = warnings.as_slice() else {
        panic!("one warning, not {warnings:#?}")
    };
    warning.clone()
}

#[test]
fn a_list_that_is_plainly_meant_has_none() {
    assert_eq!(
        list(&job("lock: { name: x }")).warnings,
        Vec::<String>::new()
    );
}

#[test]
fn each_warning_names_its_place() {
    let text = [
        only("jobs: []\n"),
        only(&job("hosts: [web*, 'db 1']")),
        only(&job("timezone: Europe/Berlin")),
        only("jobs: [{ name: a, schedule: '@daily', command: x, timezone: EST }]"),
        only("jobs: [{ name: a, schedule: '@daily', command: x, timezone: Etc/GMT+2 }]"),
        only(&job("max_reruns: 2")),
        only(&job("queue_limit: 2")),
        only(&job("shell: /bin/bash")),
        only("jobs:\n  - { name: a, every: 1h, command: [echo hi] }\n"),
        only("store: { sqlite: relative.db }\njobs: [{ name: a, every: 1h, command: x }]\n"),
        // The lock of `c` is another one: with `scope: host` each host has its own.
        only(
            "\
jobs:
  - { name: a, every: 1h, command: x }
  - { name: b, every: 1h, command: x, lock: { name: a } }
  - { name: c, every: 1h, command: x, lock: { name: a, scope: host }, on_overlap: skip }
",
        ),
    ]
    .join("\n");
    insta::assert_snapshot!(text);
}

#[test]
fn habits_from_crontabs_and_shells_are_warned_of() {
    let command = |fields: &str| {
        only(&format!(
            "\
jobs:
  - name: j
    every: 1h
    {fields}
"
        ))
    };
    let text = [
        command("command: mysqldump app | gzip > x"),
        command("command: date \"+\\%F\""),
        command("command: server &"),
        command("command: [mysqldump, app, '|', gzip]"),
        command("command: ls ${HOME:-/}/x\n    user: backup"),
        command("command: ls\n    user: backup\n    env: { A: '${USER:-me}' }"),
        command("command: ls\n    env: { SHELL: /bin/bash }"),
        command("command: [ls]\n    pipefail: false"),
        command("command: ls\n    user: nemo"),
        command("command: ls\n    group: nemo"),
        command("command: ls\n    shell: /bin/missing"),
        only("defaults: { timezone: EST }\njobs: [{ name: a, schedule: '@daily', command: x }]\n"),
        only(
            "\
jobs:
  - { name: a, every: 1h, command: x, user: nemo }
  - { name: b, every: 1h, command: x, user: nemo }
",
        ),
    ]
    .join("\n");
    insta::assert_snapshot!(text);
    for fields in [
        "command: a | b\n    shell: /bin/bash",
        "command: a | b\n    pipefail: false",
        "command: ls\n    user: nemo\n    enabled: false",
        "command: ls\n    user: nemo\n    hosts: [other]",
        "command: ls $HOME $${HOME}\n    user: backup",
        "command: ls ${HOME:-/}",
        "command: [cut, -d, '|', -f, 1]",
    ] {
        let text = format!(
            "\
jobs:
  - name: j
    every: 1h
    {fields}
"
        );
        assert_eq!(list(&text).warnings, Vec::<String>::new(), "{fields}");
    }
}

#[test]
fn a_machine_outside_utc_is_told_that_schedules_are_in_utc() {
    let warnings = |zone: &str, text: &str| {
        let mut environment = Environment::of(&[]);
        environment.zone = Some(zone.to_owned());
        let source = Source::new(Path::new("jobs.yaml"), text.to_owned());
        match whole::read(Path::new("jobs.yaml"), &[source], &environment) {
            Ok(list) => list.warnings,
            Err(errors) => panic!("{errors}"),
        }
    };
    let cron = "\
jobs:
  - { name: a, schedule: '0 3 * * *', command: x }
  - { name: b, schedule: '0 3 * * *', command: x }
";
    let text = warnings("Europe/Berlin", cron).join("\n");
    insta::assert_snapshot!(text);
    for quiet in ["UTC", "Etc/UTC"] {
        assert!(warnings(quiet, cron).is_empty());
    }
    let zoned = format!("defaults: {{ timezone: UTC }}\n{cron}");
    assert!(warnings("Europe/Berlin", &zoned).is_empty());
    assert!(warnings("Europe/Berlin", &job("")).is_empty());
}

#[test]
fn a_password_in_a_file_for_everybody_is_warned_of() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.yaml");
    let warnings = |store: &str, mode: u32| {
        std::fs::write(&path, format!("store: {store}\n{}", job(""))).expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("its mode");
        let environment = Environment::of(&[("PW", "geheim")]);
        match load_in(&path, &environment) {
            Ok(list) => list.warnings,
            Err(errors) => panic!("{errors}"),
        }
    };
    let shown = warnings("redis://u:geheim@h", 0o644);
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(shown[0].contains("every user") && !shown[0].contains("geheim"));
    assert!(warnings("{ redis: 'redis://:geheim@h' }", 0o604).len() == 1);
    assert!(warnings("redis://u:geheim@h", 0o640).is_empty());
    assert!(warnings("redis://u@h", 0o644).is_empty());
    assert!(warnings("redis://u:${PW}@h", 0o644).is_empty());
}
