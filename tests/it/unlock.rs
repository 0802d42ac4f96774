//! `unlock`: releases a lock whose holder is gone.

use std::fs;
use std::path::Path;
use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::support::command::{BINARY, Output, command, cronlatch, exit_of, output};
use crate::support::{Daemon, RedisServer, wait_until};

#[test]
fn a_live_holder_keeps_its_lock_unless_forced_and_its_run_has_one_record() {
    let redis = RedisServer::start();
    let job = json!({
        "name": "slow", "every": "1s", "command": "sleep 600", "kill_grace": "200ms",
        "lock": { "name": "shared", "ttl": "3s" }, "on_overlap": "skip",
    });
    let list = json!({ "store": redis.url(), "jobs": [job] });
    let mut daemon = Daemon::on("one", list.to_string()).start();
    let starts = |daemon: &Daemon| daemon.lines_with(&["started", "job=slow"]);
    daemon.wait_until("a run has begun", |daemon| starts(daemon) == 1);
    let refused = daemon
        .ask(&["unlock", "slow", "--yes"])
        .expect_code(75)
        .stderr;
    assert!(
        refused.contains("lock shared is held by one ("),
        "{refused}"
    );
    assert!(refused.contains("its daemon reported "), "{refused}");
    assert!(refused.contains("--force"), "{refused}");
    let asked = daemon
        .ask(&["unlock", "slow", "--force"])
        .expect_code(64)
        .stderr;
    assert!(asked.contains("add --yes"), "{asked}");
    assert_eq!(starts(&daemon), 1, "nothing was released");

    let args = [
        "unlock", "shared", "--force", "--yes", "--reason", "it hangs", "--json",
    ];
    let report = daemon.ask(&args).expect_code(0).json_lines().remove(0);
    assert_eq!(report["lock"], "shared");
    assert_eq!(report["released"], true);
    assert_eq!(report["job"], "slow");
    let run = report["run_id"]
        .as_str()
        .expect("a run of the job")
        .to_owned();
    daemon.wait_until("another run has begun", |daemon| starts(daemon) >= 2);
    daemon.wait_log(&["finished", &run]);
    let history = daemon.ask(&["history", "slow", "--json"]).expect_code(0);
    let records = history.json_lines();
    let of_run: Vec<&Value> = records.iter().filter(|it| it["run_id"] == run).collect();
    assert_eq!(of_run.len(), 1, "{of_run:#?}");
    assert_eq!(of_run[0]["outcome"], "interrupted");
    let reason = of_run[0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("its lock was released by "), "{reason}");
    assert!(reason.ends_with("@one: it hangs"), "{reason}");
}

#[test]
fn the_lock_of_another_program_is_released_and_a_key_of_another_type_is_not() {
    let redis = RedisServer::start();
    let unlock = |args: &[&str]| -> Output {
        let url = redis.url();
        cronlatch(&[&["unlock", "--store", &url], args].concat())
    };
    let free = unlock(&["deploy"]).expect_code(0).stdout;
    assert_eq!(free, format!("lock deploy is free in {}\n", redis.url()));
    redis.command(&["SET", "cronlatch:{deploy}:lock", "somebody"]);
    let asked = unlock(&["deploy"]).expect_code(64).stderr;
    assert!(
        asked.contains("held by somebody (without an end)"),
        "{asked}"
    );
    let done = unlock(&["deploy", "--yes"]).expect_code(0).stdout;
    assert_eq!(done, "lock deploy is released; it was held by somebody\n");
    assert_eq!(redis.number(&["EXISTS", "cronlatch:{deploy}:lock"]), 0);

    redis.command(&["SET", "app:lock", "worker 7"]);
    unlock(&["--key", "app:lock", "--yes"]).expect_code(0);
    assert_eq!(redis.number(&["EXISTS", "app:lock"]), 0);

    redis.command(&["HSET", "app:hash", "field", "value"]);
    let refused = unlock(&["--key", "app:hash", "--yes", "--force"])
        .expect_code(75)
        .stderr;
    assert!(refused.contains("a type that no lock has"), "{refused}");
    assert_eq!(redis.number(&["EXISTS", "app:hash"]), 1);
}

/// Starts `exec` under a lock, and waits until its command runs.
fn hold(store: &str, lock: &str, ttl: &str, dir: &Path) -> Child {
    let begun = dir.join(lock);
    let script = format!("touch {}; exec sleep 600", begun.display());
    let mut exec = command(BINARY);
    exec.args([
        "exec", "--store", store, "--lock", lock, "--ttl", ttl, "--", "sh", "-c",
    ]);
    let child = exec.arg(script).spawn().expect("the binary was built");
    wait_until("its command runs", || fs::exists(&begun).unwrap());
    child
}

#[test]
fn a_lease_that_is_renewed_is_alive_and_one_whose_holder_was_killed_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = format!("sqlite:{}", dir.path().join("store.db").display());
    let unlock = |name: &str| cronlatch(&["unlock", "--store", &store, name, "--yes"]);
    let mut alive = hold(&store, "alive", "3s", dir.path());
    let mut dead = hold(&store, "dead", "10m", dir.path());
    let refused = unlock("alive").expect_code(75).stderr;
    assert!(
        refused.contains("it has just renewed its lease"),
        "{refused}"
    );
    let signal = |child: &Child, signal| {
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
    };
    signal(&dead, Signal::SIGKILL);
    exit_of(&mut dead).expect("it was killed");
    let taken = ["exec", "--store", &store, "--lock", "dead", "--", "true"];
    cronlatch(&taken).expect_code(75);
    unlock("dead").expect_code(0);
    cronlatch(&taken).expect_code(0);
    signal(&alive, Signal::SIGTERM);
    exit_of(&mut alive).expect("it was ended");
    let free = unlock("alive").expect_code(0).stdout;
    assert_eq!(free, format!("lock alive is free in {store}\n"));
}

#[test]
fn a_name_that_neither_the_list_nor_the_store_has_is_an_error_with_a_suggestion() {
    let dir = tempfile::tempdir().expect("a directory");
    let list = dir.path().join("jobs.yaml");
    let store = format!("sqlite:{}", dir.path().join("store.db").display());
    let text = json!({ "store": store, "jobs": [
        { "name": "nightly-backup", "every": "1h", "command": "true", "lock": { "name": "long" } },
    ] });
    fs::write(&list, text.to_string()).expect("a file");
    let list = list.display().to_string();
    let unlock = |name: &str| cronlatch(&["unlock", "-c", &list, name]);
    cronlatch(&["init", "-c", &list]).expect_code(0);
    for (name, meant) in [("lonk", "long"), ("nightly-bakcup", "nightly-backup")] {
        let refused = unlock(name).expect_code(64).stderr;
        assert_eq!(
            refused,
            format!(
                "error: no job or lock {name} in {list}; nothing holds a lock of this name in {store}\n\
                 help: did you mean {meant}?\n"
            )
        );
    }
    for name in ["long", "nightly-backup"] {
        let free = unlock(name).expect_code(0).stdout;
        assert_eq!(free, format!("lock long is free in {store}\n"));
    }
    // Another program's lock has its key alone.
    let key = cronlatch(&["unlock", "-c", &list, "--key", "app:lock"]);
    let free = key.expect_code(0).stdout;
    assert_eq!(free, format!("lock app:lock is free in {store}\n"));
}

#[test]
fn without_a_list_and_a_store_it_says_where_it_has_looked() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |args: &[&str]| {
        let mut run = command(BINARY);
        run.args(args).env("XDG_STATE_HOME", dir.path());
        output(run)
    };
    let unlock = ["unlock", "nightly-backup"];
    let said = run(&unlock).expect_code(0);
    let looked = "warning: no job list was found, and there is no store sqlite:";
    assert!(said.stderr.contains(looked), "{said:?}");
    assert!(
        said.stdout
            .starts_with("lock nightly-backup is free in sqlite:"),
        "{said:?}"
    );
}
