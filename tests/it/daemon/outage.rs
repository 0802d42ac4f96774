//! A store that is away.

use std::path::Path;

use super::{has, records, silent_second, wait_outcome, wait_record};
use crate::support::daemon::spool_file;
use crate::support::{Daemon, Proxy, RedisServer, RunLog, SmallDisk, proxy::Mode, wait_until};

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[test]
fn an_outage_names_runs_that_are_killed_and_runs_that_have_ended_apart() {
    let redis = RedisServer::start();
    let dir = tempfile::tempdir().expect("a directory");
    let go = dir.path().join("go");
    let list = format!(
        "\
store: {}
jobs:
  - {{ name: ends, schedule: '@yearly', command: 'while ! [ -e {} ]; do sleep 0.02; done', lock: {{ ttl: 12s, name: one }} }}
  - {{ name: lives, schedule: '@yearly', command: 'sleep 600', lock: {{ ttl: 12s, name: two }} }}
",
        redis.url(),
        go.display(),
    );
    let mut daemon = Daemon::on("host", &list).start();
    daemon.ask(&["trigger", "ends"]).expect_code(0);
    redis.pause();
    std::fs::write(&go, "").expect("a file");
    daemon.wait_log(&["the result of the run of ends, which has ended, waits for the store: "]);
    assert_eq!(daemon.lines_with(&["cannot renew"]), 0, "{}", daemon.log());
    redis.resume();
    wait_outcome(&mut daemon, "ends", "succeeded");
    daemon.ask(&["trigger", "lives"]).expect_code(0);
    redis.pause();
    let words = [
        "cannot renew the lease of lives: ",
        "Each run is killed before its lease expires; the lease expires at 20",
    ];
    daemon.wait_log(&words);
    redis.resume();
}

#[test]
fn each_job_says_what_happens_while_the_store_is_away() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port());
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| dir.path().join(name);
    let job = |name: &str, more: &str| {
        let file = file(name);
        format!(
            "  - {{ name: {name}, every: 1s, on_store_down: {name}, {more} command: 'echo . >> {}' }}\n",
            file.display()
        )
    };
    let list = format!(
        "store: {}\njobs:\n{}{}{}",
        redis.url_via(proxy.port()),
        job("wait", ""),
        job("run", ""),
        job("skip", ""),
    );
    let mut daemon = Daemon::on("host", list).start();
    let names = ["wait", "run", "skip"];
    wait_until("each has run", || names.iter().all(|n| lines(&file(n)) > 0));
    proxy.set(Mode::Refuse);
    daemon.wait_log(&["retrying. "]);
    let (waited, ran, skipped) = (
        lines(&file("wait")),
        lines(&file("run")),
        lines(&file("skip")),
    );
    wait_until("one ran without the store", || {
        lines(&file("run")) >= ran + 3
    });
    // One that was under way when the store went is all that there can be.
    assert!(lines(&file("wait")) <= waited + 1);
    assert!(lines(&file("skip")) <= skipped + 1);

    proxy.set(Mode::Pass);
    daemon.wait_log(&["the store is reachable again"]);
    let reason =
        |text: &'static str| move |record: &serde_json::Value| has(&record["reason"], text);
    wait_record(
        &mut daemon,
        "run",
        "without a lock",
        reason("without a lock"),
    );
    let skip = wait_record(
        &mut daemon,
        "skip",
        "skipped",
        reason("on_store_down: skip"),
    );
    assert_eq!(skip["outcome"], "skipped");
    let again: Vec<usize> = names.iter().map(|n| lines(&file(n))).collect();
    wait_until("all go on", || {
        (names.iter().zip(&again)).all(|(n, before)| lines(&file(n)) > *before)
    });
    // What came due while the lane asked the ledger waits for its turn, past a newer one that is
    // skipped.
    wait_until("nothing waits between two verdicts", || {
        (names.iter()).all(|name| silent_second(&records(&daemon, name)).is_none())
    });
    daemon.terminate();
    // The newest is caught up, unless the next one has come due by then; the others are not.
    let dropped = reason("no host could claim it in time (catch_up: latest)");
    assert!(records(&daemon, "wait").iter().any(dropped));
}

#[test]
fn a_daemon_starts_without_its_store_and_says_that_it_waits() {
    let mut redis = RedisServer::start();
    redis.stop();
    let list = format!(
        "\
store: {}
jobs:
  - {{ name: job, every: 1s, command: 'true', lock: {{ ttl: 2s }}, kill_grace: 0s }}
",
        redis.url()
    );
    let mut daemon = Daemon::on("host", list).start();
    let said = daemon.notices().join("\n");
    assert!(said.contains("waiting for the store"), "{said}");
    redis.restart();
    wait_outcome(&mut daemon, "job", "succeeded");
}

#[test]
fn an_answer_that_is_lost_is_asked_for_again_and_the_run_starts_once() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port());
    let log = crate::support::RunLog::new();
    let list = format!(
        "\
store: {}
jobs:
  - {{ name: job, every: 1s, command: '{}' }}
",
        redis.url_via(proxy.port()),
        log.job("0")
    );
    let mut daemon = Daemon::on("host", list).start();
    for rounds in 1..=3 {
        let before = log.entries().len();
        proxy.set(Mode::CutReply);
        daemon.wait_until("it runs on", |_| log.entries().len() > before + rounds % 2);
    }
    wait_until("nothing waits between two verdicts", || {
        silent_second(&records(&daemon, "job")).is_none()
    });
    daemon.terminate();
    log.assert_each_once();
}

#[test]
fn a_claim_that_is_overtaken_by_its_copy_is_granted_to_nobody_afterwards() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port());
    let lock = "cronlatch:{job}:lock";
    redis.command(&["SET", lock, "other:1:run:token", "PX", "600000"]);
    let list = format!(
        "\
store: {}
jobs:
  - {{ name: job, every: 4s, on_overlap: wait, command: 'true' }}
",
        redis.url_via(proxy.port()),
    );
    proxy.keep_back("occurrence");
    let mut daemon = Daemon::on("host", list)
        .env("RUST_LOG", "cronlatch=debug")
        .start();
    // The same claim again, which was answered and decided nothing.
    daemon.wait_log(&["waiting:", "holds the lock"]);
    assert!(proxy.has_kept());
    daemon.terminate();
    redis.command(&["DEL", lock]);
    let answer = proxy.deliver();
    assert!(answer.contains("finished"), "{answer}");
    assert_eq!(redis.number(&["EXISTS", lock]), 0);
}

#[test]
fn a_full_disk_is_told_once_and_not_with_every_try() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(disk) = SmallDisk::new(directory.path()) else {
        return;
    };
    let ran = tempfile::NamedTempFile::new().expect("a file");
    let command = format!("echo . >> {}", ran.path().display());
    let mut daemon = Daemon::on(
        "host",
        format!("jobs:\n  - {{ name: job, every: 1s, command: '{command}' }}\n"),
    )
    .store(&format!("sqlite:{}/store.db", directory.path().display()))
    .env("RUST_LOG", "cronlatch=debug")
    .start();
    let filler = directory.path().join("filler");
    wait_until("the disk is full", || {
        std::fs::write(&filler, vec![0; 400 << 10]).is_err()
    });
    daemon.wait_until("it has tried again and again", |daemon| {
        daemon.lines_with(&["DEBUG", "disk is full"]) >= 6
    });
    assert_eq!(daemon.lines_with(&["ERROR", "retrying"]), 1);
    let is_back = |daemon: &Daemon| {
        let words = [
            ["the store is reachable again"],
            ["the store can be used again"],
        ];
        words.map(|words| daemon.lines_with(&words))
    };
    assert_eq!(is_back(&daemon), [0, 0], "it was full all the time");
    let before = lines(ran.path());
    std::fs::remove_file(&filler).expect("it is ours");
    disk.grow();
    daemon.wait_until("jobs run again", |_| lines(ran.path()) > before + 1);
    daemon.wait_log(&["the store can be used again"]);
    assert_eq!(is_back(&daemon), [0, 1]);
    assert!(daemon.terminate().success());
    drop(disk);
}

#[test]
fn the_end_of_an_outage_without_writes_is_told_as_such() {
    let fleet = |()| {
        let redis = RedisServer::start();
        let list = format!(
            "store: {}\njobs:\n  - {{ name: job, every: 1s, command: 'true' }}\n",
            redis.url()
        );
        let mut daemon = Daemon::on("host", list).start();
        daemon.wait_log(&["started job="]);
        (redis, daemon)
    };
    let mut fleets = [(); 3].map(fleet);
    let (settings, value) = (["maxmemory", "min-replicas-to-write"], ["1", "0"]);
    for (setting, (redis, _)) in settings.iter().zip(&fleets) {
        redis.config(setting, value[0]);
    }
    fleets[2].0.break_snapshots();
    for (_, daemon) in &mut fleets {
        daemon.wait_log(&["ERROR", "the store cannot be used: redis://"]);
    }
    for (setting, (redis, _)) in settings.iter().zip(&fleets) {
        redis.config(setting, value[1]);
    }
    fleets[2].0.mend_snapshots();
    for (_, daemon) in &mut fleets {
        daemon.wait_log(&["INFO", "the store takes writes again"]);
        // A busy machine may have had a short outage of another kind before.
        let log = daemon.log();
        let (_, since) = log
            .split_once("the store cannot be used: redis://")
            .expect("the outage was reported");
        assert!(!since.contains("reachable again"), "{since}");
    }
}

#[test]
fn a_verdict_that_could_not_be_delivered_survives_the_death_of_its_daemon() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port());
    let runs = RunLog::new();
    let dir = tempfile::tempdir().expect("a directory");
    let go = dir.path().join("go");
    let list = format!(
        "\
store: {}
jobs:
  - name: tick
    every: 1s
    command: '{}; until [ -e {} ]; do sleep 0.05; done; {}'
",
        redis.url_via(proxy.port()),
        runs.begin(),
        go.display(),
        RunLog::end(),
    );
    let start = || {
        let state = dir.path().display().to_string();
        Daemon::on("one", list.as_str())
            .env("STATE_DIRECTORY", state)
            .start()
    };
    let mut daemon = start();
    daemon.wait_until("a run has begun", |_| !runs.entries().is_empty());
    let run_id = runs.entries()[0].run_id.clone();
    proxy.set(Mode::Refuse);
    std::fs::write(&go, "").expect("a writable directory");
    let spool = || spool_file(dir.path(), "one");
    daemon.wait_until("its verdict is on disk", |_| {
        let kept = spool().and_then(|file| std::fs::read_to_string(file).ok());
        let kept = kept.unwrap_or_default();
        kept.contains(&run_id)
    });
    daemon.kill();
    proxy.set(Mode::Pass);
    let mut daemon = start();
    let record = wait_record(&mut daemon, "tick", "of the run", |record| {
        record["run_id"] == *run_id && record["outcome"] != "interrupted"
    });
    assert_eq!(record["outcome"], "succeeded", "{record:#?}");
    daemon.wait_until("nothing is kept", |_| spool().is_none());
}
