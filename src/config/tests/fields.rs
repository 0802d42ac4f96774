//! Every field is read, has its default, and is documented in the example.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{errors, job, list, read_with};
use crate::config::environment::Environment;
use crate::config::{
    CatchUp, Command, OnCrash, OnLost, OnOverlap, OnStoreDown, OutputPolicy, Retry, Scope,
    fields as job_fields, list as top_fields, load_in, lock, notify, output, store,
};
use crate::names::HostName;
use crate::store::{Endpoint, Retention, StoreSettings};
use crate::time::Timestamp;

const EXAMPLE: &str = include_str!("../../../jobs.example.yaml");

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn one(fields: &str) -> Arc<crate::config::Job> {
    list(&job(fields)).jobs.remove(0)
}

#[test]
fn the_example_loads_anywhere_without_warnings_and_fires_within_seconds() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs.example.yaml");
    let list = match load_in(&path, &Environment::of(&[])) {
        Ok(list) => list,
        Err(errors) => panic!("{errors}"),
    };
    assert_eq!(list.warnings, Vec::<String>::new());
    assert_eq!(list.store, None);
    let now = Timestamp::now();
    let soon = list.jobs.iter().filter(|job| {
        let next = job.schedule.next_after(now);
        next.is_some_and(|next| next.since(now) <= secs(15))
    });
    assert!(soon.count() >= 4);
    assert!(
        list.jobs
            .iter()
            .all(|j| j.process.user.is_none() && j.process.group.is_none())
    );
    assert!(list.jobs.iter().all(|j| j.process.nice.unwrap_or(0) >= 0));
}

#[test]
fn the_example_shows_every_field_with_a_comment() {
    let shown = |field: &str| {
        EXAMPLE.lines().any(|line| {
            let words = line.trim_start_matches(['#', ' ', '-']);
            words.strip_prefix(field).is_some_and(|rest| {
                rest.strip_prefix(':')
                    .is_some_and(|rest| rest.contains(" # "))
            })
        })
    };
    let fields: BTreeSet<&str> = [
        job_fields::JOB.fields,
        job_fields::RETRY.fields,
        lock::LOCK.fields,
        store::STORE.fields,
        top_fields::TOP.fields,
        notify::TARGET.fields,
        output::OUTPUT.fields,
    ]
    .concat()
    .into_iter()
    .collect();
    let is_built = |field: &&str| !top_fields::TOP.not_yet.iter().any(|(key, _)| key == field);
    let missing: Vec<&str> = fields
        .into_iter()
        .filter(is_built)
        .filter(|f| !shown(f))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn the_defaults_of_the_example_are_the_defaults() {
    // Every line of the example's last job that names a default must mean what leaving it out
    // means.
    let job = one("");
    assert_eq!(job.jitter, Duration::ZERO);
    assert_eq!(job.lock.ttl, secs(30));
    assert_eq!(job.lock.name.as_str(), "j");
    assert_eq!(job.lock.scope, Scope::Fleet);
    assert_eq!(job.lock.key, None);
    assert_eq!(job.policies.on_overlap, OnOverlap::Skip);
    assert_eq!(job.policies.start_deadline, secs(300));
    assert_eq!(job.policies.catch_up, CatchUp::Latest);
    assert_eq!(job.policies.catch_up_window, secs(3600));
    assert_eq!(job.policies.on_crash, OnCrash::Ignore);
    assert_eq!(job.policies.on_lost, OnLost::Kill);
    assert_eq!(job.policies.on_store_down, OnStoreDown::Wait);
    assert_eq!(job.policies.timeout, None);
    assert_eq!(job.policies.kill.signal, Signal::SIGTERM);
    assert_eq!(job.policies.kill.grace, Duration::from_millis(7500));
    assert_eq!(job.policies.retry, None);
    assert_eq!(job.policies.success_exit_codes, [0].into());
    assert!(job.enabled);
    assert!(
        job.policies
            .hosts
            .matches(&HostName::parse("any").expect("a name"))
    );
    assert_eq!(
        (
            &job.process.user,
            &job.process.group,
            job.process.umask,
            job.process.nice
        ),
        (&None, &None, None, None)
    );
    let list = list(&super::job(""));
    assert_eq!(list.drain_timeout, secs(60));
    assert_eq!(list.history, Retention::DEFAULT);
    assert_eq!(list.output, OutputPolicy::default());
    assert_eq!(list.max_running, None);
}

#[test]
fn automatic_jitter_spreads_over_the_interval_and_leaves_cron_text_alone() {
    let jitter = |fields: &str| {
        let text =
            format!("defaults: {{ jitter: auto }}\njobs: [{{ name: j, command: x, {fields} }}]");
        list(&text).jobs[0].jitter
    };
    assert_eq!(jitter("every: 5m"), secs(300));
    assert_eq!(jitter("every: 1d"), secs(3600));
    assert_eq!(jitter("schedule: '@daily'"), Duration::ZERO);
    assert_eq!(jitter("every: 5m, jitter: 1s"), secs(1));
    // Jobs of one interval start at different instants, all within it.
    let delays: BTreeSet<Duration> = (0..20)
        .map(|n| {
            let job = format!("jobs: [{{ name: j{n}, every: 5m, command: x, jitter: auto }}]");
            list(&job).jobs[0].delay()
        })
        .collect();
    assert!(delays.len() > 15 && delays.iter().all(|delay| *delay < secs(300)));
}

#[test]
fn a_job_that_takes_no_lock_has_its_own_lock_name() {
    let name = |scope: &str| {
        let job = one(&format!("lock: {{ name: shared, scope: {scope} }}"));
        job.lock.name.as_str().to_owned()
    };
    assert_eq!(name("host"), "shared");
    assert_ne!(name("none"), "shared");
}

#[test]
fn every_field_is_read() {
    let job = one("\
jitter: 1m
enabled: false
hosts: [web*, 'db-?']
lock: { ttl: 1m, name: shared, scope: host }
on_overlap: queue
queue_limit: 7
start_deadline: 10s
catch_up: all
catch_up_window: 2d
on_crash: rerun
max_reruns: 5
on_lost: continue
on_store_down: skip
timeout: 1h30m
kill_grace: 0
kill_signal: sigint
retry: { attempts: 4, delay: 1s, max_delay: 8s, jitter: false }
success_exit_codes: [0, 3]
user: 1000
group: staff
umask: 022
nice: -5
working_dir: /srv
env: { A: 1, B: yes, C: 1.10, D: '', E: 0x1f, F: true }
env_file: /etc/x
timezone: Asia/Kolkata");
    assert_eq!(job.jitter, secs(60));
    assert!(!job.enabled);
    assert_eq!(job.policies.hosts.0, ["web*", "db-?"]);
    assert!(
        !job.policies
            .hosts
            .matches(&HostName::parse("db-10").expect("a name"))
    );
    assert_eq!(job.lock.ttl, secs(60));
    assert_eq!(job.lock.name.as_str(), "shared");
    assert_eq!(job.lock.scope, Scope::Host);
    assert_eq!(job.policies.on_overlap, OnOverlap::Queue { limit: 7 });
    assert_eq!(job.policies.start_deadline, secs(10));
    assert_eq!(job.policies.catch_up, CatchUp::All);
    assert_eq!(job.policies.catch_up_window, secs(2 * 86_400));
    assert_eq!(job.policies.on_crash, OnCrash::Rerun { max_reruns: 5 });
    assert_eq!(job.policies.on_lost, OnLost::Continue);
    assert_eq!(job.policies.on_store_down, OnStoreDown::Skip);
    assert_eq!(job.policies.timeout, Some(secs(5400)));
    assert_eq!(job.policies.kill.signal, Signal::SIGINT);
    assert_eq!(job.policies.kill.grace, Duration::ZERO);
    assert_eq!(
        job.policies.retry,
        Some(Retry {
            attempts: 4,
            delay: secs(1),
            max_delay: secs(8),
            jitter: false
        })
    );
    assert_eq!(job.policies.success_exit_codes, [0, 3].into());
    assert_eq!(job.process.user.as_deref(), Some("1000"));
    assert_eq!(job.process.group.as_deref(), Some("staff"));
    assert_eq!(job.process.umask, Some(0o022));
    assert_eq!(job.process.nice, Some(-5));
    assert_eq!(job.process.working_dir.as_deref(), Some(Path::new("/srv")));
    assert_eq!(job.process.env_file.as_deref(), Some(Path::new("/etc/x")));
    let env: Vec<_> = job
        .process
        .env
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    // Values reach the job as they are written, whatever YAML takes them for.
    assert_eq!(env, ["A=1", "B=yes", "C=1.10", "D=", "E=0x1f", "F=true"]);
}

#[test]
fn a_lock_that_others_take_makes_the_job_wait() {
    assert_eq!(
        one("lock: { name: x }").policies.on_overlap,
        OnOverlap::Wait
    );
    let job = one("lock: { key: 'app:{x}:lock' }");
    assert_eq!(job.policies.on_overlap, OnOverlap::Wait);
    assert_eq!(job.lock.key.as_deref(), Some("app:{x}:lock"));
    assert_eq!(
        one("lock: { name: x }\non_overlap: skip")
            .policies
            .on_overlap,
        OnOverlap::Skip
    );
}

#[test]
fn umasks_are_octal_however_they_are_written() {
    for (text, mask) in [
        ("022", 0o22),
        ("'0027'", 0o27),
        ("77", 0o77),
        ("0o077", 0o77),
        ("0", 0),
    ] {
        assert_eq!(
            one(&format!("umask: {text}")).process.umask,
            Some(mask),
            "{text}"
        );
    }
}

#[test]
fn a_command_is_a_list_or_a_text() {
    let of = |command: &str| {
        let text = format!(
            "\
jobs:
  - name: j
    every: 1h
    command: {command}
"
        );
        Command::clone(&list(&text).jobs.remove(0).command)
    };
    assert_eq!(
        of("[a, -n, 5, 1.10, true]"),
        Command::Argv(["a", "-n", "5", "1.10", "true"].map(str::to_owned).to_vec())
    );
    let shell = |shell: &str, script: &str| Command::Shell {
        shell: shell.into(),
        script: script.to_owned(),
        pipefail: shell == "/bin/bash",
    };
    assert_eq!(of("echo $$$$ $HOME"), shell("/bin/sh", "echo $$ $HOME"));
    assert_eq!(of("|\n      a\n      b"), shell("/bin/sh", "a\nb\n"));
    assert_eq!(of("a\n    shell: /bin/bash"), shell("/bin/bash", "a"));
    assert_eq!(of("true"), shell("/bin/sh", "true"));
}

#[test]
fn pipefail_is_for_shells_that_know_it() {
    let of = |fields: &str| {
        let text = format!(
            "\
jobs:
  - name: j
    every: 1h
    command: a
    {fields}
"
        );
        match Command::clone(&list(&text).jobs.remove(0).command) {
            Command::Shell { pipefail, .. } => pipefail,
            Command::Argv(argv) => panic!("{argv:?}"),
        }
    };
    assert!(of("shell: /usr/local/bin/bash"));
    assert!(!of("shell: /bin/bash\n    pipefail: false"));
    assert!(!of("shell: /bin/sh"));
    assert!(of("shell: /bin/zsh\n    pipefail: true"));
    let refused = super::errors(
        &super::job("command: a\npipefail: true").replace("    command: [\"true\"]\n", ""),
    );
    assert!(
        refused.contains("/bin/sh may not know `pipefail`") && refused.contains("/bin/bash"),
        "{refused}"
    );
}

#[test]
fn jobs_inherit_defaults_field_by_field_and_can_refuse_them() {
    let list = list(
        "\
defaults:
  lock: { ttl: 1m }
  retry: { attempts: 5, delay: 2s }
  env: { A: base, B: base }
  timeout: 1h
  timezone: Europe/Berlin
  on_overlap: wait
jobs:
  - name: a
    schedule: '0 3 * * *'
    command: x
    lock: { name: shared }
    retry: { attempts: 2 }
    env: { B: own, C: own }
  - { name: b, schedule: '0 3 * * *', command: x, timezone: UTC, timeout: none, retry: none }
",
    );
    let [a, b] = list.jobs.as_slice() else {
        panic!("two jobs")
    };
    assert_eq!(a.lock.ttl, secs(60));
    assert_eq!(a.lock.name.as_str(), "shared");
    assert_eq!(
        a.policies.retry.map(|r| (r.attempts, r.delay)),
        Some((2, secs(2)))
    );
    let env: Vec<_> = a
        .process
        .env
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    assert_eq!(env, ["A=base", "B=own", "C=own"]);
    assert_eq!(a.policies.timeout, Some(secs(3600)));
    assert_eq!(a.schedule.zone().name(), "Europe/Berlin");
    assert_eq!(b.schedule.zone().name(), "UTC");
    assert_eq!((b.policies.timeout, b.policies.retry), (None, None));
    assert_eq!(b.policies.on_overlap, OnOverlap::Wait);
}

#[test]
fn none_is_no_word_for_what_cannot_be_undone() {
    for field in [
        "lock: none",
        "env: none",
        "user:",
        "timeout:",
        "lock:",
        "jitter: none",
    ] {
        let shown = super::errors(&job(field));
        assert!(shown.contains("1 error"), "{shown}");
    }
    let inherited = "defaults: { retry: none }\n";
    let list = list(&format!("{inherited}{}", job("retry: { attempts: 2 }")));
    assert_eq!(list.jobs[0].policies.retry.map(|r| r.attempts), Some(2));
}

#[test]
fn anchors_and_merge_keys_work_and_own_fields_win() {
    let list = list(
        "\
x-common: &common
  every: 1h
  command: [x]
  timeout: 5m
x-more: &more { timeout: 9m, nice: 3 }
jobs:
  - { name: a, <<: *common }
  - name: b
    <<: [*common, *more]
    command: [y]
  - &c
    name: c
    every: 2h
    command: &word [z]
  - { <<: *c, name: d, command: *word }
",
    );
    let shown: Vec<_> = list
        .jobs
        .iter()
        .map(|j| {
            (
                j.name.as_str(),
                j.schedule.interval(),
                j.policies.timeout,
                j.process.nice,
            )
        })
        .collect();
    let hours = |n: u64| secs(n * 3600);
    assert_eq!(
        shown,
        [
            ("a", hours(1), Some(secs(300)), None),
            ("b", hours(1), Some(secs(300)), Some(3)),
            ("c", hours(2), None, None),
            ("d", hours(2), None, None),
        ]
    );
    assert_eq!(*list.jobs[1].command, Command::Argv(vec!["y".to_owned()]));
}

#[test]
fn variables_are_replaced_in_every_kind_of_value() {
    let list = read_with(
        "\
store: { sqlite: '${DIR}/db' }
history: ${N}
jobs:
  - name: ${NAME}
    every: ${EVERY:-5m}
    command: [\"${DIR}/x\", '$$HOME']
    enabled: ${ON:-false}
    env: { A: \"${NAME}-1\" }
",
        &[("DIR", "/d"), ("N", "7"), ("NAME", "n")],
    );
    let list = list.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(
        list.store,
        Some(StoreSettings::Sqlite {
            path: "/d/db".into()
        })
    );
    assert_eq!(list.history, Retention::of_records(7));
    let job = &list.jobs[0];
    assert_eq!(job.name.as_str(), "n");
    assert_eq!(
        *job.command,
        Command::Argv(vec!["/d/x".into(), "$HOME".into()])
    );
    assert!(!job.enabled);
    assert_eq!(job.process.env["A"], "n-1");
}

#[test]
fn a_store_is_a_url_or_a_mapping() {
    let store = |text: &str| match list(&format!("store: {text}\njobs: []\n")).store {
        Some(StoreSettings::Redis(redis)) => redis,
        other => panic!("{other:?}"),
    };
    let plain = store("rediss://u@h:6380/2");
    let expected = Endpoint::parse("rediss://u@h:6380/2").expect("a sound URL");
    assert_eq!(plain.endpoint, expected);
    assert_eq!(plain.prefix.as_str(), "cronlatch");
    let full =
        store("{ redis: 'rediss://h', password_file: /p, ca_file: /ca.pem, prefix: team-a }");
    assert_eq!(full.password_file.as_deref(), Some(Path::new("/p")));
    assert_eq!(full.ca_file.as_deref(), Some(Path::new("/ca.pem")));
    assert_eq!(full.prefix.as_str(), "team-a");
    let embedded = list("store: sqlite:/var/lib/x.db\njobs: []\n").store;
    let path = "/var/lib/x.db".into();
    assert_eq!(embedded, Some(StoreSettings::Sqlite { path }));
}

#[test]
fn the_daemon_has_its_spread_its_strictness_and_its_bearable_skew() {
    let quiet = list("jobs: []\n");
    assert_eq!((quiet.spread, quiet.strict), (Duration::ZERO, false));
    assert_eq!(quiet.max_clock_skew, secs(30));
    let list = list(
        "\
spread: 5s
strict: true
max_clock_skew: 2s
jobs: []
",
    );
    assert_eq!((list.spread, list.strict), (secs(5), true));
    assert_eq!(list.max_clock_skew, secs(2));
    let refused = super::errors("spread: 2m\nstrict: perhaps\njobs: []\n");
    assert!(
        refused.contains("jobs.yaml:1:9") && refused.contains("jobs.yaml:2:9"),
        "{refused}"
    );
}

#[test]
fn the_history_keeps_failures_apart_and_for_a_time() {
    let whole = list("history: { records: 10, failures: 200, keep: 365d }\njobs: []\n");
    let year = Duration::from_secs(365 * 86_400);
    let expected = Retention {
        records: 10,
        failures: 200,
        age: year,
    };
    assert_eq!(whole.history, expected);
    let part = list("history: { failures: 5 }\njobs: []\n");
    assert_eq!(
        part.history,
        Retention {
            failures: 5,
            ..Retention::DEFAULT
        }
    );
    assert_ne!(part.fingerprint, list("jobs: []\n").fingerprint);
    let errors = errors("history: { runs: 5, keep: 1m, failures: many }\njobs: []\n");
    for part in ["did you mean `records`?", "keep: 1m", "many"] {
        assert!(errors.contains(part), "{errors}");
    }
}

#[test]
fn a_job_that_leaves_most_fields_out_takes_little_memory() {
    // A list may have 100,000 of them. What most jobs leave out belongs into `JobPolicies`, `ProcessSettings`
    // or `Alerts`, which equal jobs share.
    let size = size_of::<crate::config::Job>();
    assert!(size <= 160, "{size} bytes");
    let list = "jobs:\n  - { name: a, schedule: '@daily', command: [x] }\n  - { name: b, schedule: '@daily', command: [y] }\n";
    let list = self::list(list);
    let [a, b] = &list.jobs[..] else {
        panic!("{} jobs", list.jobs.len());
    };
    assert!(Arc::ptr_eq(&a.process, &b.process));
    assert!(Arc::ptr_eq(&a.alerts, &b.alerts));
    assert!(Arc::ptr_eq(&a.policies, &b.policies));
    assert!(Arc::ptr_eq(&a.fingerprint.0, &b.fingerprint.0));
}

#[test]
fn jobs_with_the_same_schedule_have_the_fingerprints_of_their_own_delays() {
    let job = |name: &str, jitter: &str| {
        format!("  - {{ name: {name}, schedule: '@daily', jitter: {jitter}, command: x }}\n")
    };
    let jobs = ["none 0s", "one 1h", "two 1h", "again 0s", "three 1h"];
    let jobs = jobs.map(|job| job.split_once(' ').expect("a jitter"));
    let together = jobs.map(|(name, jitter)| job(name, jitter)).concat();
    let together = list(&format!("jobs:\n{together}")).jobs;
    for ((name, jitter), of_all) in jobs.iter().zip(&together) {
        let alone = &list(&format!("jobs:\n{}", job(name, jitter))).jobs[0];
        assert_eq!(of_all.fingerprint, alone.fingerprint, "{name}");
    }
    let [none, one, two, again, three] = &together[..] else {
        panic!("{} jobs", together.len());
    };
    assert_eq!(none.fingerprint, again.fingerprint);
    for (a, b) in [(none, one), (one, two), (two, three), (one, three)] {
        assert_ne!(a.fingerprint, b.fingerprint, "{} and {}", a.name, b.name);
    }
}
