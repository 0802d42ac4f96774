//! What a job is given, and how its end is judged.

use super::{has, records, wait_record};
use crate::support::{Daemon, faketime};

/// Waits for the first record of each job that ran.
#[track_caller]
fn first_runs(list: &str, jobs: &[&str]) -> (Daemon, Vec<serde_json::Value>) {
    let mut daemon = Daemon::on("host", list).start();
    let ran = |record: &serde_json::Value| !record["run_id"].is_null();
    let runs = jobs
        .iter()
        .map(|job| wait_record(&mut daemon, job, "a run", ran));
    let runs = runs.collect();
    (daemon, runs)
}

#[test]
fn an_end_is_judged_by_code_signal_and_time() {
    let list = "
jobs:
  - { name: fine, every: 1s, command: 'exit 3', success_exit_codes: [0, 3] }
  - { name: bad, every: 1s, command: 'echo out; echo err >&2; exit 4' }
  - { name: killed, every: 1s, command: 'kill -9 0' }
  - { name: slow, every: 1s, command: [sleep, '60'], timeout: 300ms }
  - { name: absent, every: 1s, command: [/no/such/program] }
  - { name: again, every: 1s, command: 'test $CRONLATCH_ATTEMPT = 3', retry: { attempts: 3, delay: 10ms } }
";
    let jobs = ["fine", "bad", "killed", "slow", "absent", "again"];
    let (daemon, runs) = first_runs(list, &jobs);
    let [fine, bad, killed, slow, absent, again] = runs.as_slice() else {
        panic!("six jobs");
    };
    assert_eq!(
        (&fine["outcome"], &fine["exit_code"]),
        (&"succeeded".into(), &3.into())
    );
    assert_eq!(
        (&bad["outcome"], &bad["exit_code"]),
        (&"failed".into(), &4.into())
    );
    let tail = bad["output_tail"].as_str().expect("a tail");
    assert!(tail.contains("out") && tail.contains("err"), "{tail}");
    assert_eq!(
        (&killed["outcome"], &killed["signal"]),
        (&"failed".into(), &9.into())
    );
    assert_eq!(slow["outcome"], "timed_out");
    assert_eq!(
        (&absent["outcome"], &absent["attempts"]),
        (&"failed".into(), &0.into())
    );
    assert!(has(&absent["reason"], "/no/such/program"), "{absent:#}");
    let absent = ["ERROR", "not started: cannot run", "job=absent"];
    assert!(daemon.lines_with(&absent) > 0);
    assert_eq!(daemon.lines_with(&["finished after", "job=absent"]), 0);
    assert_eq!(
        (&again["outcome"], &again["attempts"]),
        (&"succeeded".into(), &3.into())
    );
    for fields in [["INFO", "out"], ["WARN", "err"]] {
        let [level, text] = fields;
        let words = [
            level,
            text,
            "job=bad",
            "run_id=",
            "scheduled_at=",
            "host=host",
        ];
        assert!(daemon.lines_with(&words) > 0, "{words:?}");
    }
}

#[test]
fn a_job_gets_the_environment_that_its_list_describes() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("secrets");
    std::fs::write(&file, "FROM_FILE=f\nBOTH=file\n").expect("a writable directory");
    let list = format!(
        "\
jobs:
  - name: shows
    every: 1s
    umask: '027'
    nice: 5
    working_dir: {}
    env_file: {}
    env: {{ BOTH: list, FROM_LIST: l }}
    command: echo $FROM_FILE $FROM_LIST $BOTH; umask; nice; pwd; env | grep -e CRONLATCH -e NOTIFY
",
        dir.path().display(),
        file.display(),
    );
    let (mut daemon, runs) = first_runs(&list, &["shows"]);
    let tail = runs[0]["output_tail"].as_str().expect("a tail").to_owned();
    assert!(tail.contains("f l list\n0027\n5\n"), "{tail}");
    assert!(
        tail.contains(&format!("{}\n", dir.path().display())),
        "{tail}"
    );
    let run_id = runs[0]["run_id"].as_str().expect("an id");
    let fence = &runs[0]["fence"];
    let at = runs[0]["scheduled_at"].as_str().expect("an instant");
    for line in [
        "CRONLATCH_JOB=shows".to_owned(),
        format!("CRONLATCH_RUN_ID={run_id}"),
        format!("CRONLATCH_SCHEDULED_AT={at}"),
        format!("CRONLATCH_FENCING_TOKEN={fence}"),
        "CRONLATCH_ATTEMPT=1".to_owned(),
        "CRONLATCH_HOST=host".to_owned(),
    ] {
        assert!(
            tail.lines().any(|l| l == line),
            "{line} is missing in {tail}"
        );
    }
    assert!(!tail.contains("NOTIFY_SOCKET"), "{tail}");

    std::fs::write(&file, "FROM_FILE=changed\n").expect("a writable directory");
    wait_record(&mut daemon, "shows", "the changed file", |r| {
        has(&r["output_tail"], "changed l list")
    });
    std::fs::write(&file, "what is this\n").expect("a writable directory");
    let failed = wait_record(&mut daemon, "shows", "the bad file", |r| {
        r["outcome"] == "failed"
    });
    assert!(has(&failed["reason"], "line 1"), "{failed:#}");
    assert!(!has(&failed["reason"], "what is this"), "{failed:#}");
}

#[test]
fn a_job_runs_as_its_user_with_that_users_groups_and_home() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let list = "\
jobs:
  - { name: as-nobody, every: 1s, user: nobody, working_dir: /, command: 'id -un; id -G; echo $USER $LOGNAME $HOME' }
  - { name: in-group, every: 1s, user: nobody, group: daemon, working_dir: /, command: 'id -gn' }
  - { name: as-nemo, every: 1s, user: no-such-user, command: 'true' }
  - { name: at-home, every: 1s, user: nobody, env: { HOME: /usr/lib }, command: pwd }
  - { name: homeless, every: 1s, user: nobody, env: { HOME: /no/such/home }, command: pwd }
";
    let jobs = ["as-nobody", "in-group", "as-nemo", "at-home", "homeless"];
    let (mut daemon, runs) = first_runs(list, &jobs);
    let user = nix::unistd::User::from_name("nobody")
        .expect("a database")
        .expect("nobody");
    let tail = runs[0]["output_tail"].as_str().expect("a tail");
    let expected = format!("nobody\n{}\nnobody nobody {}", user.gid, user.dir.display());
    assert_eq!(tail, expected);
    assert_eq!(runs[1]["output_tail"], "daemon");
    assert_eq!(runs[2]["outcome"], "failed");
    assert!(has(&runs[2]["reason"], "no-such-user"), "{:#}", runs[2]);
    // Without `working_dir` a job with a user runs at home, as under cron.
    assert_eq!(runs[3]["output_tail"], "/usr/lib");
    assert_eq!(runs[4]["output_tail"], "/");
    daemon.wait_log(&["WARN", "there is no user no-such-user on this machine"]);
}

#[test]
fn a_pipe_of_bash_fails_with_any_of_its_commands() {
    let list = "\
jobs:
  - { name: bash, every: 1s, shell: /bin/bash, command: 'false | true' }
  - { name: off, every: 1s, shell: /bin/bash, pipefail: false, command: 'false | true' }
  - { name: sh, every: 1s, command: 'false | true' }
";
    let (daemon, runs) = first_runs(list, &["bash", "off", "sh"]);
    let outcomes: Vec<_> = runs.iter().map(|run| &run["outcome"]).collect();
    assert_eq!(outcomes, ["failed", "succeeded", "succeeded"]);
    assert_eq!(daemon.lines_with(&["WARN", "the exit code of a pipe"]), 1);
}

#[test]
fn json_lines_about_a_run_carry_job_run_occurrence_and_host() {
    let list = "jobs:\n  - { name: job, every: 1s, command: echo said }\n";
    let mut daemon = Daemon::on("host", list).arg("--log-format=json").start();
    daemon.wait_log(&["\"said\""]);
    daemon.terminate();
    let log = daemon.log();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is one object"))
        .collect();
    for message in ["started", "said"] {
        let line = lines.iter().find(|line| line["message"] == message);
        let line = line.unwrap_or_else(|| panic!("no {message} in {log}"));
        assert_eq!(
            (&line["job"], &line["host"]),
            (&"job".into(), &"host".into())
        );
        assert!(
            line["run_id"].is_string() && line["scheduled_at"].is_string(),
            "{line}"
        );
    }
    assert!(!records(&daemon, "job").is_empty());
}

#[test]
fn lines_for_the_journal_begin_with_their_level_and_have_no_time() {
    let list = "jobs:\n  - { name: job, every: 1s, command: 'echo out; echo err >&2; exit 7' }\n";
    let mut daemon = Daemon::on("host", list).on_journal().start();
    let (out, err) = (["<6>out", "job=job"], ["<4>err", "job=job"]);
    daemon.wait_until("its job has spoken", |daemon| {
        daemon.lines_with(&out) > 0 && daemon.lines_with(&err) > 0
    });
    assert!(daemon.lines_with(&["<6>ready"]) > 0);
    assert!(daemon.terminate().success());
    let log = daemon.log();
    for line in log.lines() {
        let level = line.strip_prefix('<').and_then(|line| line.split_once('>'));
        let (level, text) = level.unwrap_or_else(|| panic!("no level: {line}"));
        assert!(["3", "4", "6", "7"].contains(&level), "{line}");
        assert_eq!(
            faketime::instant_of(text.split("scheduled_at=").next().unwrap()),
            None,
            "{line}"
        );
    }
}

#[test]
fn a_record_has_the_cpu_time_and_the_peak_memory_of_the_whole_tree() {
    const MIB: u64 = 1 << 20;
    // A process in the background that counts, one that has 64 MiB at once, and twice the same.
    let counts = "(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done) & wait";
    let list = format!(
        "\
jobs:
  - {{ name: idle, every: 1s, command: 'true' }}
  - {{ name: counts, every: 1s, command: '{counts}' }}
  - {{ name: large, every: 1s, command: 'dd if=/dev/zero of=/dev/null bs=64M count=1' }}
  - {{ name: twice, every: 1s, command: '{counts}; exit 1', retry: {{ attempts: 2, delay: 1ms }} }}
  - {{ name: absent, every: 1s, command: [/no/such/program] }}
"
    );
    let jobs = ["idle", "counts", "large", "twice"];
    let (mut daemon, runs) = first_runs(&list, &jobs);
    let used = |at: usize, what: &str| {
        let usage = &runs[at]["usage"];
        usage[what]
            .as_u64()
            .unwrap_or_else(|| panic!("no {what} in {:#}", runs[at]))
    };
    assert!(used(0, "peak_memory_bytes") < 60 * MIB, "{:#}", runs[0]);
    assert!(used(2, "peak_memory_bytes") >= 64 * MIB, "{:#}", runs[2]);
    // Far less than it takes anywhere, and more than it takes to do nothing.
    assert!(used(1, "cpu_ms") >= 20, "{:#}", runs[1]);
    assert!(used(3, "cpu_ms") >= 40, "{:#}", runs[3]);
    let absent = wait_record(&mut daemon, "absent", "no run", |_| true);
    assert!(absent.get("usage").is_none(), "{absent:#}");

    let at = runs[2]["scheduled_at"].as_str().unwrap();
    let text = daemon
        .ask(&["explain", "large", "--at", at])
        .expect_code(0)
        .stdout;
    assert!(text.contains(" of CPU time and at most "), "{text}");
    let text = daemon.ask(&["history", "large"]).expect_code(0).stdout;
    assert!(text.contains(" CPU ") && text.contains(" MiB "), "{text}");
}
