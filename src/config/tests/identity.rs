//! Fingerprints change with the meaning of a list, and with nothing else.

use super::{job, list};

fn of(text: &str) -> String {
    list(text).fingerprint.0.to_string()
}

fn schedule(fields: &str) -> String {
    let text = format!(
        "\
jobs:
  - name: j
    command: x
{fields}"
    );
    list(&text).jobs.remove(0).fingerprint.0.to_string()
}

#[test]
fn order_comments_spelling_and_files_do_not_matter() {
    let one = "\
jobs:
  - { name: a, every: 60s, command: [x], env: { A: '1', B: 2 } }
  - { name: b, schedule: '0  3 * * *', command: y }
";
    let other = "\
# the same
history: 100
defaults: { timezone: UTC }
jobs:
  - name: b
    command: \"y\"
    schedule: 0 3 * * *
  - name: a
    env: { B: 2, A: 1 }
    every: 1m      # a minute
    on_overlap: skip
    command: [\"x\"]
";
    assert_eq!(of(one), of(other));
    let (_dir, path) = super::directory(&[
        (
            "b.yaml",
            "jobs: [{ name: a, every: 60s, command: [x], env: { A: 1, B: 2 } }]",
        ),
        (
            "a.yaml",
            "jobs: [{ name: b, schedule: '0 3 * * *', command: y }]",
        ),
    ]);
    let environment = crate::config::environment::Environment::of(&[]);
    let merged = crate::config::load_in(&path, &environment).map(|l| l.fingerprint.0.to_string());
    assert_eq!(merged.ok(), Some(of(one)));
}

#[test]
fn the_store_does_not_matter_hosts_may_reach_it_by_different_names() {
    let text = job("");
    assert_eq!(of(&text), of(&format!("store: redis://10.0.0.5\n{text}")));
}

#[test]
fn the_address_of_a_target_does_not_matter_hosts_may_reach_it_by_different_names() {
    let with = |url: &str| {
        let job = job("notify: a");
        of(&format!("notify: {{ a: {{ slack: '{url}' }} }}\n{job}"))
    };
    assert_eq!(with("https://a/1"), with("https://b/2"));
    let of_ping = |url: &str| list(&job(&format!("ping: {url}"))).jobs.remove(0);
    let (one, other) = (of_ping("https://a/1"), of_ping("https://a/2"));
    assert_ne!(one.alerts, other.alerts);
    assert!(crate::config::is_unchanged(&one, &other));
    assert!(crate::config::changed_fields(&one, &other).is_empty());
}

#[test]
fn where_a_host_serves_http_does_not_matter() {
    let text = job("");
    let with = format!("http: {{ listen: 127.0.0.1:7171 }}\n{text}");
    assert_eq!(of(&text), of(&with));
}

#[test]
fn every_change_of_meaning_changes_the_fingerprint_of_the_list() {
    let mut seen = std::collections::BTreeMap::new();
    let changes = [
        "",
        "jitter: 1m",
        "enabled: false",
        "hosts: [a]",
        "hosts: [a, b]",
        "lock: { ttl: 1m }",
        "lock: { name: x }",
        "lock: { key: x }",
        "lock: { scope: host }",
        "lock: { scope: none }",
        "on_overlap: wait",
        "on_overlap: queue",
        "on_overlap: queue\nqueue_limit: 3",
        "start_deadline: 1m",
        "catch_up: all",
        "catch_up: none",
        "catch_up_window: 2h",
        "on_crash: rerun",
        "on_crash: rerun\nmax_reruns: 1",
        "on_lost: continue",
        "on_store_down: run",
        "on_store_down: skip",
        "timeout: 1m",
        "kill_grace: 1s",
        "kill_signal: INT",
        "retry: { attempts: 2 }",
        "retry: { attempts: 2, delay: 1s }",
        "retry: { attempts: 2, max_delay: 1h }",
        "retry: { attempts: 2, jitter: false }",
        "success_exit_codes: [0, 1]",
        "user: a",
        "group: a",
        "umask: 022",
        "nice: 1",
        "working_dir: /",
        "env: { A: b }",
        "env: { A: c }",
        "env_file: /x",
        "ping: https://a/b",
        "late_after: 2m",
        "long_after: 2m",
        "expect_success_within: 2m",
    ];
    let plain = list(&job("")).jobs.remove(0);
    for fields in changes {
        let text = job(fields);
        let changed = list(&text).jobs.remove(0);
        for (one, other) in [(&plain, &changed), (&changed, &plain)] {
            let named = crate::config::changed_fields(one, other);
            let is_unchanged = crate::config::is_unchanged(one, other);
            assert_eq!(is_unchanged, named.is_empty(), "{fields}");
            assert_eq!(is_unchanged, fields.is_empty(), "{fields}");
        }
        assert!(crate::config::is_unchanged(&changed, &list(&text).jobs[0]));
        if let Some(same) = seen.insert(of(&text), fields.to_owned()) {
            panic!("{same:?} and {fields:?} have the same fingerprint");
        }
    }
    for top in [
        "history: 5",
        "max_running: 3",
        "drain_timeout: 1s",
        "output: none",
        "output: { keep: all }",
        "output: { for: 1d }",
        "output: { per_run: 1MiB }",
        "output: { total: 1TiB }",
        "notify: { a: { mail: x } }",
        "notify: { b: { mail: x } }",
        "notify: { a: { mail: x, on: [failed] } }",
        "notify: { a: { mail: x, after: 2 } }",
        "notify: { a: { mail: x, repeat: 1h } }",
    ] {
        let text = format!("{top}\n{}", job(""));
        assert!(seen.insert(of(&text), top.to_owned()).is_none(), "{top}");
    }
}

#[test]
fn pipefail_counts_only_where_it_differs_from_the_default_of_the_shell() {
    let with = |fields: &str| {
        of(&format!(
            "\
jobs:
  - name: j
    every: 1h
    command: a | b
    shell: {fields}
"
        ))
    };
    let bash = with("/bin/bash");
    assert_eq!(bash, with("/bin/bash\n    pipefail: true"));
    assert_ne!(bash, with("/bin/bash\n    pipefail: false"));
    let zsh = with("/bin/zsh");
    assert_eq!(zsh, with("/bin/zsh\n    pipefail: false"));
    assert_ne!(zsh, with("/bin/zsh\n    pipefail: true"));
}

#[test]
fn the_fields_that_differ_are_named_whichever_of_two_jobs_has_them() {
    let with = |fields: &str| {
        let text = format!(
            "\
jobs:
  - name: j
    every: 1h
    shell: /bin/bash
    {fields}
"
        );
        list(&text).jobs.remove(0)
    };
    let plain = with("command: a");
    let changed = with("command: a\n    pipefail: false\n    user: root");
    for fields in [
        crate::config::changed_fields(&plain, &changed),
        crate::config::changed_fields(&changed, &plain),
    ] {
        let names: std::collections::BTreeSet<_> = fields.iter().map(String::as_str).collect();
        assert_eq!(names, ["pipefail", "user"].into());
    }
    let list = with("command: [a]");
    assert_eq!(crate::config::changed_fields(&plain, &list), ["command"]);
    assert!(crate::config::changed_fields(&plain, &plain).is_empty());
}

#[test]
fn a_schedules_fingerprint_is_its_text_its_zone_and_its_delay() {
    let hourly = schedule("    schedule: '0 * * * *'\n");
    assert_eq!(
        hourly,
        schedule("    schedule: 0  *  * * *\n    timeout: 3s\n")
    );
    for other in [
        "    schedule: '1 * * * *'\n",
        "    schedule: '0 * * * *'\n    timezone: Europe/Berlin\n",
        "    schedule: '0 * * * *'\n    jitter: 30m\n",
        "    every: 1h\n",
    ] {
        assert_ne!(hourly, schedule(other), "{other}");
    }
}
