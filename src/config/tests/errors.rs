//! What a person reads when a list is wrong: the whole text.

use super::{directory_errors, errors, job, read_with};

#[test]
fn a_file_full_of_mistakes_is_answered_with_all_of_them_at_once() {
    let text = errors(include_str!("mistakes.yaml"));
    insta::assert_snapshot!(text);
}

#[test]
fn a_command_that_is_a_number_is_refused_with_the_way_to_write_it() {
    let text = errors("jobs:\n  - { name: a, every: 1h, command: 5 }\n");
    assert!(
        text.contains("expected a list or a string, found a number"),
        "{text}"
    );
    assert!(text.contains("or quote it: `command: \"5\"`"), "{text}");
}

/// Lists that are not YAML, or not a list of jobs. The third one has a tab.
const NOT_YAML: &str = r#"jobs:
  - name: a
    schedule: * * * * *
    command: x
=====
jobs:
  - name: a
    schedule: @daily
    command: x
=====
jobs:
	- name: a
=====
jobs:
  - name: a
    command: echo: b: c
=====
jobs:
  - name: a
    command: [a, b
    every: 1h
=====
jobs:
  - name: a
    command: "a
    every: 1h
=====
jobs:
  - name: a
   every: 1h
=====
jobs:
  - name: a
    every 1h
    command: x
=====
jobs:
  - *a
=====
jobs:
  - name: !job a
=====
jobs: []
---
jobs: []
=====
jobs:
  - [a]: b
=====
- name: a
=====
hello
=====
=====
# nothing
=====
store: { sqlite: /x }
=====
jobs: 3
=====
jobs:
  a: { every: 1h }
=====
jobs:
  - a
  - {}
  -
"#;

#[test]
fn what_is_not_yaml_is_explained() {
    let all: Vec<String> = NOT_YAML
        .split("=====\n")
        .map(|text| format!("{text}-----\n{}", errors(text)))
        .collect();
    insta::assert_snapshot!(all.join("\n=====\n"));
}

#[test]
fn the_words_of_people_and_of_other_tools_are_understood() {
    let fields = [
        "command: \"/usr/bin/backup\" --all\n    every: 1h",
        "command: 'a' 'b'\n    every: 1h",
        "command: [\"a\" b]\n    every: 1h",
        "{ command: \"a\" b, every: 1h }",
        "{ name: Überweisung, every: 1h, command: x }",
        "{ name: 備份, every: 1h, command: x }",
        "{ name: j, schedule: every day at 2am, command: x }",
        "{ name: j, schedule: every 5 minutes, command: x }",
        "{ name: j, schedule: daily, command: x }",
        "{ name: j, every: day at 2am, command: x }",
        "{ name: j, schedule: every other day, command: x }",
        "{ name: j, schedule: every first monday, command: x }",
        "{ name: j, schedule: 1h, command: x }",
        "{ name: j, schedule: every 1h30m, command: x }",
        "{ name: j, schedule: CRON_TZ=Europe/Berlin 0 2 * * *, command: x }",
        "{ name: j, schedule: '@daily', command: x, timezone: CET-1CEST }",
        "{ name: j, every: 5 minutes, command: x }",
        "{ name: j, every: hour, command: x }",
        "{ name: j, schedule: '0 2 * * *', command: x, timezone: CEST }",
        "{ name: j, schedule: '0 2 * * *', command: x, timezone: UTC+2 }",
        "{ name: j, schedule: '0 2 * * *', command: x, jitter: auto }",
        "{ name: j, every: 1h, command: x, on_overlap: forbid }",
        "{ name: j, every: 1h, command: x, on_overlap: Allow }",
        "{ name: j, every: 1h, command: x, on_overlap: replace }",
        "{ name: j, every: 1h, command: x, on_overlap: false }",
        "{ name: j, every: 1h, command: x, concurrencyPolicy: Forbid }",
        "{ name: j, every: 1h, command: x, restartPolicy: OnFailure }",
        "{ name: j, every: 1h, command: x, retries: 3, retry_delay: 1s }",
        "{ name: j, every: 1h, command: x, handlerOn: y }",
        "{ name: j, every: 1h, command: x, max_instances: 1 }",
        "{ name: j, every: 1h, command: x, description: y }",
        "{ name: j, every: 1h, command: x, no-overlap: true }",
        "{ name: j, every: 1h, command: x, startingDeadlineSeconds: 100 }",
        "{ name: j, every: 1h, command: x, catch_up: true }",
        "{ name: j, every: 1h, command: x, on_crash: restart }",
        "{ name: j, every: 1h, command: x, maxActiveRuns: 1 }",
        "{ name: j, every: 1h, command: x, drain_timeout: 1m }",
        "{ name: j, every: 1h, command: x, lock: { on_lost: continue } }",
    ]
    .map(|fields| {
        let dash = if fields.starts_with('{') {
            ""
        } else {
            "name: j\n    "
        };
        format!("jobs:\n  - {dash}{fields}\n")
    });
    let tops = [
        "timezone: Europe/Berlin\njobs: []\n",
        "name: a\nschedule: '@daily'\ncommand: x\n",
        "apiVersion: batch/v1\nkind: CronJob\n",
        "http: { listen: '127.0.0.1:99999' }\njobs: []\n",
    ]
    .map(str::to_owned);
    let shown = |text: &String| format!("{text}-----\n{}", errors(text));
    let all: Vec<String> = fields.iter().chain(&tops).map(shown).collect();
    insta::assert_snapshot!(all.join("\n=====\n"));
}

#[test]
fn a_directory_names_both_places_of_what_stands_twice() {
    let text = directory_errors(&[
        (
            "a.yaml",
            "\
store: { sqlite: /a }
history: 5
jobs:
  - { name: x, every: 1h, command: a }
",
        ),
        (
            "b.yml",
            "\
history: 6
store: { sqlite: /b }
jobs:
  - { name: x, every: 1h, command: b }
",
        ),
        ("c.yaml", "defaults: { timezone: Europe/Berln }\njbos: []\n"),
    ]);
    insta::assert_snapshot!(text);
}

#[test]
fn a_missing_variable_and_a_wrong_value_from_the_environment_are_told_without_the_value() {
    let text = "\
store: ${STORE}
jobs:
  - name: a
    every: ${EVERY}
    command: echo ${HOMR}
    timeout: ${TIMEOUT:-soon}
    env: { X: '${Y%z}' }
";
    let result = read_with(
        text,
        &[
            ("STORE", "http://u:geheim@x"),
            ("EVERY", "geheim"),
            ("HOME", "/h"),
        ],
    );
    let shown = result.expect_err("four mistakes").to_string();
    assert!(!shown.contains("geheim"), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn jobs_that_share_a_lock_need_the_same_ttl() {
    let text = errors(
        "\
defaults: { every: 1h, lock: { ttl: 1m } }
jobs:
  - { name: a, every: 1h, command: x }
  - { name: b, every: 1h, command: x, lock: { name: a, ttl: 30s } }
  - { name: c, every: 1h, command: x, lock: { name: a, ttl: 30s, scope: host } }
  - { name: d, every: 1h, command: x, lock: { name: a, ttl: 30s, scope: none } }
  - { name: e, every: 1h, command: x, lock: { key: a, ttl: 30s } }
  - { name: f, every: 1h, command: x, lock: { key: a, ttl: 40s } }
  - { name: g, every: 1h, command: x, lock: { key: a, ttl: 40 } }
",
    );
    insta::assert_snapshot!(text);
}

#[test]
fn a_store_that_contradicts_itself_is_refused() {
    let text = [
        "{ redis: 'redis://h', sqlite: /x }",
        "{ sqlite: /x, password_file: /p, prefix: a }",
        "{ redis: 'redis://h', ca_file: /ca.pem }",
        "{ redis: 'redis://h', password_file: secret }",
        "{ prefix: x }",
        "{ redis: 'sqlite:/x' }",
        "[redis://a, redis://b]",
        "{ redis: [redis://a, 'redis://A:6379/1', redis://c] }",
        "{ redis: [redis://a, sqlite:/b, redis+cluster://c, redis://d/x] }",
        "{ redis: [], cluster: [a] }",
        "{ redis: [] }",
        "'redis://a,redis://b,redis://b'",
        "{ redis: redis://a, redlock: { tries: 2 } }",
        "{ redis: [redis://a, redis://b, redis://c], wait_replicas: 1 }",
        "{ redis: [redis://a, redis://b, redis://c], redlock: { tries: 0, retry_delay: [2s, 1s] } }",
        "{ redis: 'sqlite:/x', redlock: {} }",
        "{ redis: [redis://a, redis://b, redis://c], redlock: { retries: 3, retry_delay: [1h], at_start: run } }",
        "{ cluster: a }",
        "{ cluster: [a, 'a:6379', redis+unix:///x, 'b:x', rediss://c/2] }",
        "{ cluster: [] }",
        "{ cluster: }",
        "{ sentinel: mymaster }",
        "{ sentinel: { nodes: [a] } }",
        "{ sentinel: { master: my master, node: [a] } }",
        "{ sentinel: { master: m, nodes: [a, A.:26379, b?] } }",
        "{ sentinel: { master: m, nodes: [a], user: 'u:pw', database: x, tls: maybe } }",
        "{ sentinel: { master: m, nodes: [a], password_file: /p }, ca_file: /ca }",
        "{ sentinel: { master: m, nodes: [a] }, strict: true }",
        "",
        "{ url: 'redis://h', passwrd_file: /x }",
    ]
    .map(|store| errors(&format!("store: {store}\njobs: []\n")))
    .join("\n\n");
    insta::assert_snapshot!(text);
}

#[test]
fn no_error_shows_a_secret() {
    let wrong = [
        "store: redis://:geheim@h/x\n",
        "store: redis://geheim@h/x\n",
        "store: redis://u:ge heim@h/x\n",
        "store: u:geheim@h:6379\n",
        "store: http://u:geheim@h\n",
        "store: { redis: 'redis://:geheim@h', sqlite: /x }\n",
        "store: { redis: 'redis://:geheim@h', prefx: /x }\n",
        "store: { redis: 'redis+unix:///s?pass=geheim&x=1' }\n",
        "store: { redis: 'redis://h', password: geheim }\n",
        "store: { redis: ['redis://:geheim@h'] }\n",
        "store: { redis: ['redis://:geheim@h', 'redis://:geheim@h', 'redis://u:geheim@h/x'] }\n",
        "store: { cluster: ['redis://:geheim@h/x', 'redis://u:geheim@h', 'u:geheim@h'] }\n",
        "store: { sentinel: { master: m, nodes: ['redis://:geheim@h/x', 'http://:geheim@h'] } }\n",
        "store: redis://:geheim@a,redis://u:geheim@b\n",
        "store: redis://:geheim@h: x\n",
        "jobs:\n  - { name: a, every: 1h, command: a, env: { A: geheim, A: x } }\n",
        "jobs:\n  - { name: a, every: 1h, command: a, env: { CRONLATCH_A: geheim } }\n",
        "jobs:\n  - { name: a, every: 1, command: a, env: { DB_PASSWORD: geheim } }\n",
    ];
    for text in wrong {
        let shown = errors(text);
        assert!(
            !shown.contains("geheim") && !shown.contains("heim"),
            "{shown}"
        );
    }
}

#[test]
fn a_raw_key_whose_keys_would_spread_is_refused_in_a_cluster_alone() {
    let jobs = "jobs: [{ name: a, every: 1m, command: x, lock: { key: \"app}lock\" } }]\n";
    let text = errors(&format!("store: {{ cluster: [h] }}\n{jobs}"));
    insta::assert_snapshot!(text);
    super::list(&format!("store: {{ redis: 'redis://h' }}\n{jobs}"));
}

#[test]
fn a_control_character_is_named_at_its_place_with_the_way_to_write_it() {
    let said = errors(
        "# ü\njobs:\n  - name: a\n    every: 1h\n    command: \"echo é\u{1b}[1m\u{7}\"\n# \u{9b}\n",
    );
    for part in [
        "jobs.yaml:5:21: error: not valid YAML: the character ESC (U+001B) is not allowed\n",
        "= remove it, or write `\\e` within double quotes\n",
        "= further lines have such characters, the next one is line 6\n",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let said = errors("jobs: []\n# a\0b\n");
    for part in [
        "jobs.yaml:2:4: error: not valid YAML: the character NUL (U+0000) is not allowed\n",
        "= remove it\n",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn each_wrong_item_of_a_list_is_reported() {
    let fields = [
        "success_exit_codes: [256, -1, 1.5, 3]",
        "hosts: [\"[\", web, \"{\"]",
        "notify: [\"a b\", \"c d\"]",
    ];
    let lists = fields.map(job);
    let command = "jobs:\n  - { name: a, every: 1h, command: [ls, {}, []] }\n";
    let targets = "notify:\n  ops: { slack: 'https://example.com', on: [fail, bad] }\njobs: []\n";
    let all = lists.iter().map(String::as_str).chain([command, targets]);
    let said: Vec<String> = all.map(errors).collect();
    let wrong = [
        &["`256`", "`-1`", "`1.5`"][..],
        &["`[` is not a pattern", "`{` is not a pattern"],
        &["target name \"a b\"", "target name \"c d\""],
        &[
            "expected a string, found a mapping",
            "expected a string, found a list",
        ],
        &["`fail` is not an event", "`bad` is not an event"],
    ];
    for (said, wrong) in said.iter().zip(wrong) {
        assert!(said.ends_with(&format!("{} errors", wrong.len())), "{said}");
        assert!(wrong.iter().all(|part| said.contains(part)), "{said}");
    }
}
