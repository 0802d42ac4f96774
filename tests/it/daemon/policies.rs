//! `on_overlap`, `catch_up`, `max_running`.

use chrono::Utc;

use super::{assert_no_silence, has, records, verdicts, wait_record};
use crate::support::{Daemon, RunLog, wait_until};

#[test]
fn overlaps_are_skipped_superseded_or_queued() {
    let list = "\
jobs:
  - { name: skips, every: 1s, command: sleep 1.3 }
  - { name: waits, every: 1s, command: sleep 2.3, on_overlap: wait }
  - { name: queues, every: 1s, command: sleep 2.3, on_overlap: queue, queue_limit: 1 }
";
    let mut daemon = Daemon::on("host", list).start();
    let skip = wait_record(&mut daemon, "skips", "a skip", |r| {
        r["outcome"] == "skipped"
    });
    assert_eq!(skip["by"], "host", "{skip:#}");
    let waited = |reason: &'static str| {
        move |record: &serde_json::Value| {
            record["outcome"] == "skipped" && has(&record["reason"], reason)
        }
    };
    wait_record(&mut daemon, "waits", "superseded", waited("superseded"));
    wait_record(&mut daemon, "queues", "full", waited("queue was full"));
    for job in ["waits", "queues"] {
        let late = |r: &serde_json::Value| r["kind"] == "queue" && r["outcome"] == "succeeded";
        wait_record(&mut daemon, job, "a run that waited", late);
    }
    daemon.terminate();
    for job in ["skips", "waits", "queues"] {
        assert_no_silence(&records(&daemon, job));
    }
}

#[test]
fn what_nobody_ran_is_caught_up_as_the_job_says() {
    let state = tempfile::tempdir().expect("a directory");
    let list = format!(
        "\
store: sqlite:{}
jobs:
  - {{ name: none, every: 1s, command: 'true', catch_up: none, start_deadline: 1s }}
  - {{ name: latest, every: 1s, command: 'true', catch_up: latest }}
  - {{ name: all, every: 1s, command: 'true', catch_up: all }}
",
        state.path().join("store.db").display()
    );
    let on = || Daemon::on("host", list.as_str());
    let mut first = on().start();
    for job in ["none", "latest", "all"] {
        wait_record(&mut first, job, "a run", |r| r["outcome"] == "succeeded");
    }
    first.kill();
    let killed_at = Utc::now().timestamp();
    wait_until("four occurrences have passed", || {
        Utc::now().timestamp() > killed_at + 4
    });
    let mut second = on().start();
    let later = move |r: &serde_json::Value| {
        r["kind"] == "schedule"
            && r["outcome"] == "succeeded"
            && super::instant(&r["scheduled_at"]).is_some_and(|at| at.timestamp() > killed_at + 5)
    };
    for job in ["none", "latest", "all"] {
        wait_record(&mut second, job, "a run at its time", later);
    }
    second.terminate();
    let runs = |job: &str| {
        let caught_up = |r: &&serde_json::Value| r["kind"] == "catch_up" && !r["run_id"].is_null();
        records(&second, job).iter().filter(caught_up).count()
    };
    assert_eq!((runs("none"), runs("latest")), (0, 1));
    assert!(runs("all") >= 3, "{:#?}", records(&second, "all"));
    for job in ["none", "latest", "all"] {
        let records = records(&second, job);
        assert_no_silence(&records);
        let missed = verdicts(&records)
            .values()
            .filter(|v| *v == "missed")
            .count();
        assert_eq!(missed == 0, job == "all", "{job}: {records:#?}");
    }
}

#[test]
fn a_full_host_waits_for_a_place() {
    let log = RunLog::new();
    let job = |name: &str| {
        let command = log.job("0.4");
        format!("  - {{ name: {name}, every: 2s, command: '{command}' }}\n")
    };
    let list = format!(
        "max_running: 1\njobs:\n{}{}{}",
        job("a"),
        job("b"),
        job("c")
    );
    let mut daemon = Daemon::on("host", list).start();
    daemon.wait_until("each has run", |_| {
        ["a", "b", "c"].iter().all(|name| {
            let entries = log.entries();
            entries
                .iter()
                .any(|entry| entry.job == *name && entry.ended)
        })
    });
    daemon.terminate();
    log.assert_no_overlap();
    assert!(daemon.lines_with(&["max_running"]) > 0);
}
