//! `history`, `status`, `trigger` and `init`, as a person and as a program uses them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::redis::PASSWORD;
use crate::support::{
    Daemon, Mode, Output, Proxy, RedisServer, RunLog, command, tree, wait_for, wait_until,
};

/// A job list, and a directory for whatever the commands keep.
struct Site {
    dir: tempfile::TempDir,
    mark: String,
}

impl Site {
    fn new(list: &Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // JSON is YAML.
        fs::write(dir.path().join("jobs.yaml"), list.to_string()).unwrap();
        Self {
            dir,
            mark: tree::new_mark(),
        }
    }

    fn list(&self) -> PathBuf {
        self.dir.path().join("jobs.yaml")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command::command(command::BINARY);
        command
            .args(args)
            .env("CRONLATCH_CONFIG", self.list())
            .env("CRONLATCH_HOST", "here")
            .env("STATE_DIRECTORY", self.dir.path())
            .env(tree::MARK_VARIABLE, &self.mark);
        command
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Output {
        command::output(self.command(args))
    }

    #[track_caller]
    fn history(&self, args: &[&str]) -> Vec<Value> {
        let args = [&["history", "--json"], args].concat();
        self.run(&args).expect_code(0).json_lines()
    }

    #[track_caller]
    fn status(&self) -> Value {
        let status = self.run(&["status", "--json"]).expect_code(0);
        status.json_lines().remove(0)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        tree::kill_all(&self.mark);
    }
}

/// A job that is due once a year and does this.
fn job(name: &str, command: &str) -> Value {
    json!({ "name": name, "schedule": "0 0 1 1 *", "command": command })
}

#[test]
fn trigger_wait_shows_output_and_answers_by_the_outcome() {
    let site = Site::new(&json!({ "jobs": [
        job("good", "echo well done"),
        job("bad", "echo alas >&2; exit 3"),
    ]}));
    let good = site
        .run(&["trigger", "--here", "good", "--wait"])
        .expect_code(0);
    assert!(good.stderr.contains("well done"), "{good:#?}");
    assert!(good.stdout.contains("succeeded"), "{good:#?}");
    site.run(&["trigger", "--here", "bad", "--wait"])
        .expect_code(3);

    let [good, bad] = &site.history(&[])[..] else {
        panic!("two runs, two records");
    };
    assert_eq!(good["kind"], "manual");
    assert_eq!(good["scheduled_at"], Value::Null);
    assert_eq!(good["outcome"], "succeeded");
    assert_eq!(good["host"], "here");
    assert_eq!(good["output_tail"], "well done");
    assert_eq!(bad["outcome"], "failed");
    assert_eq!(bad["exit_code"], 3);

    let table = site.run(&["history", "--output"]).expect_code(0).stdout;
    assert!(
        table.contains("by hand") && table.contains("alas"),
        "{table}"
    );
}

#[test]
fn trigger_returns_once_the_run_is_granted_and_the_run_goes_on_alone() {
    let runs = RunLog::new();
    let redis = RedisServer::start();
    let site = Site::new(&json!({
        "store": redis.url(),
        "jobs": [job("slow", &runs.endless_job()), job("quick", "true")],
    }));
    let granted = site.run(&["trigger", "--here", "slow"]).expect_code(0);
    let run_id = granted.stdout.trim();
    wait_until("the job has begun", || !runs.entries().is_empty());
    assert_eq!(runs.entries()[0].run_id, run_id);

    let status = site.status();
    let slow = &status["jobs"][0];
    assert_eq!(slow["running"]["run_id"], run_id);
    assert_eq!(slow["running"]["host"], "here");
    assert_eq!(slow["running"]["orphaned"], false);
    assert_eq!(slow["lock"]["by_another"], false);
    let value = slow["lock"]["value"].as_str().unwrap();
    assert!(
        value.ends_with(":***"),
        "it would release the lock: {value}"
    );

    // The lock is held: a second run is refused, waited for or not.
    let refused = site.run(&["trigger", "--here", "slow"]).expect_code(75);
    assert!(
        refused
            .stderr
            .contains("job slow is in progress on here (run "),
        "{refused:#?}"
    );
    site.run(&["trigger", "--here", "slow", "--wait"])
        .expect_code(75);
    let other = site
        .run(&["trigger", "--here", "quick", "--json"])
        .expect_code(0);
    assert!(other.json_lines()[0]["run_id"].is_string());

    // The program that carries the run ends it on a signal, and reports that.
    let carrier = wait_for("a process carries the run", || {
        tree::members(&site.mark).into_iter().find(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.contains("slow") && line.contains("--detached")
        })
    });
    let carrier = nix::unistd::Pid::from_raw(carrier);
    nix::sys::signal::kill(carrier, Signal::SIGTERM).unwrap();
    wait_until("the record is there", || {
        let history = site.history(&["slow"]);
        history.iter().any(|record| record["outcome"] == "stopped")
    });
    wait_until("nothing of it is left", || {
        tree::members(&site.mark).is_empty()
    });
}

#[test]
fn the_record_of_a_run_by_hand_that_the_store_does_not_take_is_kept_and_delivered_later() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port());
    let runs = RunLog::new();
    let go_on = tempfile::NamedTempFile::new().unwrap();
    let waits = format!(
        "while [ -e {} ]; do sleep 0.05; done",
        go_on.path().display()
    );
    let script = format!("{}; {waits}; {}", runs.begin(), RunLog::end());
    let list = json!({ "store": redis.url_via(proxy.port()), "jobs": [job("a", &script)] });
    let site = Site::new(&list);
    let mut trigger = site.command(&["trigger", "--here", "a", "--wait"]);
    let log = site.dir.path().join("said");
    let said = fs::File::create(&log).unwrap();
    let mut trigger = trigger.stderr(said).spawn().unwrap();
    wait_until("the job has begun", || !runs.entries().is_empty());
    proxy.set(Mode::Refuse);
    drop(go_on);
    // The script has ended earlier: a signal in between would stop the run.
    wait_until("trigger has seen the job end", || {
        let said = fs::read_to_string(&log).unwrap();
        said.contains("finished after")
    });
    // Nobody wants to wait for the store.
    let pid = nix::unistd::Pid::from_raw(trigger.id().try_into().unwrap());
    nix::sys::signal::kill(pid, Signal::SIGINT).unwrap();
    let ended = wait_for("trigger ends", || trigger.try_wait().unwrap());
    let said = fs::read_to_string(&log).unwrap();
    assert_eq!(ended.code(), Some(69), "{said}");
    let kept = || {
        let files = fs::read_dir(site.dir.path()).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name.starts_with("undelivered-here+") && name.contains('@'))
            .count()
    };
    assert!(said.contains("it is kept in") && kept() == 1, "{said}");

    proxy.set(Mode::Pass);
    let state = site.dir.path().display().to_string();
    let mut daemon = Daemon::on("here", list.to_string())
        .env("STATE_DIRECTORY", state)
        .start();
    daemon.wait_until("the record is there", |_| {
        let run_id = &runs.entries()[0].run_id;
        let records = site.history(&["a"]);
        (records.iter()).any(|r| r["run_id"] == **run_id && r["outcome"] == "succeeded")
    });
    wait_until("nothing is kept", || kept() == 0);
    let records = site.history(&["a"]);
    assert_eq!(records.len(), 1, "{records:#?}");
    assert_eq!(records[0]["kind"], "manual");
}

#[test]
fn trigger_says_what_is_wrong_before_anything_runs() {
    let mut elsewhere = job("elsewhere", "true");
    elsewhere["hosts"] = json!(["db*"]);
    let site = Site::new(&json!({ "jobs": [job("nightly-backup", "true"), elsewhere] }));
    let typo = site
        .run(&["trigger", "--here", "nightly-bakcup"])
        .expect_code(64);
    assert!(
        typo.stderr.contains("did you mean nightly-backup?"),
        "{typo:#?}"
    );
    let host = site
        .run(&["trigger", "--here", "elsewhere"])
        .expect_code(64);
    assert!(host.stderr.contains("its hosts are db*"), "{host:#?}");
    fs::write(site.list(), "jobs: 7").unwrap();
    site.run(&["trigger", "--here", "nightly-backup"])
        .expect_code(78);
    site.run(&["status"]).expect_code(78);
}

#[test]
fn trigger_takes_a_job_after_dashes_and_refuses_arguments_for_it() {
    let site = Site::new(&json!({ "jobs": [job("a", "true")] }));
    for args in [
        &["trigger", "--here", "a", "--", "x"][..],
        &["trigger", "--here", "--wait", "a", "--", "-x", "y"],
    ] {
        let refused = site.run(args).expect_code(64);
        assert!(
            refused.stderr.contains("takes no arguments"),
            "{refused:#?}"
        );
        assert!(
            refused.stderr.contains("cronlatch exec --lock a --"),
            "{refused:#?}"
        );
    }
    site.run(&["trigger", "--here", "a", "--"]).expect_code(0);
    wait_until("its record is there", || site.history(&["a"]).len() == 1);
}

#[test]
fn commands_that_start_no_job_do_without_the_secrets_of_notifications() {
    let mut noted = job("a", "true");
    noted["notify"] = json!(["ops"]);
    noted["ping"] = json!("healthchecks:${CHECK}");
    let site = Site::new(&json!({
        "notify": { "ops": { "slack": "${SLACK_URL}" } },
        "jobs": [noted],
    }));
    for args in [&["status"][..], &["history"], &["explain", "a"]] {
        site.run(args).expect_code(0);
    }
    // It gets as far as to the store, which does not know the job.
    let unknown = site.run(&["pause", "a"]).expect_code(64);
    assert!(
        unknown.stderr.contains("no host has registered it"),
        "{}",
        unknown.stderr
    );
    for args in [&["trigger", "--here", "a"][..], &["notify-test", "ops"]] {
        let refused = site.run(args).expect_code(78);
        assert!(refused.stderr.contains("is not set"), "{}", refused.stderr);
    }
}

#[test]
fn a_run_that_ctrl_c_ends_is_recorded_as_ended_by_it() {
    let runs = RunLog::new();
    let script = format!("{}; sleep 600", runs.begin());
    let site = Site::new(&json!({ "jobs": [job("a", &script)] }));
    let log = site.dir.path().join("said");
    let mut trigger = site.command(&["trigger", "--here", "a", "--wait"]);
    trigger.stderr(fs::File::create(&log).unwrap());
    let mut trigger = trigger.spawn().unwrap();
    wait_until("the job has begun", || !runs.entries().is_empty());
    let pid = nix::unistd::Pid::from_raw(trigger.id().try_into().unwrap());
    nix::sys::signal::kill(pid, Signal::SIGINT).unwrap();
    wait_for("trigger ends", || trigger.try_wait().unwrap());
    let record = site.history(&["a"]).remove(0);
    let why = "`cronlatch trigger` received SIGINT";
    assert_eq!(record["outcome"], "stopped", "{record}");
    let reason = record["reason"].as_str().unwrap();
    assert!(reason.ends_with(why), "{record}");
    let said = fs::read_to_string(&log).unwrap();
    assert!(said.contains(why) && !said.contains("daemon"), "{said}");
}

#[test]
fn ctrl_c_ends_the_wait_for_a_run_of_a_daemon_and_not_the_run() {
    let redis = RedisServer::start();
    let runs = RunLog::new();
    let go_on = tempfile::NamedTempFile::new().unwrap();
    let waits = format!(
        "while [ -e {} ]; do sleep 0.05; done",
        go_on.path().display()
    );
    let script = format!("{}; {waits}; {}", runs.begin(), RunLog::end());
    let list = json!({ "store": redis.url(), "jobs": [job("slow", &script)] });
    let daemon = Daemon::on("one", list.to_string()).start();
    let mut trigger = command::command(command::BINARY);
    trigger
        .args(["trigger", "slow", "--wait"])
        .env("CRONLATCH_CONFIG", daemon.list())
        .env("CRONLATCH_HOST", "one")
        .stderr(std::process::Stdio::piped());
    let trigger = trigger.spawn().unwrap();
    wait_until("the job has begun", || !runs.entries().is_empty());
    let pid = nix::unistd::Pid::from_raw(trigger.id().try_into().unwrap());
    wait_until("it catches the signal", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        u64::from_str_radix(caught.unwrap().trim(), 16).unwrap() & 0b10 != 0
    });
    nix::sys::signal::kill(pid, Signal::SIGINT).unwrap();
    let ended = trigger.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("of job slow continues on host one"), "{said}");
    assert!(said.contains("`cronlatch kill "), "{said}");
    drop(go_on);
    wait_until("the run succeeds", || {
        let history = daemon.ask(&["history", "slow", "--json"]).json_lines();
        history
            .iter()
            .any(|record| record["outcome"] == "succeeded")
    });
}

/// Hosts may reach one store under different names. With other keys than theirs, a host would run all jobs
/// a second time.
#[test]
fn another_url_for_the_store_keeps_the_prefix_of_the_list() {
    let redis = RedisServer::start();
    let site = Site::new(&json!({
        "store": { "redis": "redis://127.0.0.1:1/0", "prefix": "team" },
        "jobs": [job("a", "true")],
    }));
    let url = redis.url();
    site.run(&["init", "--store", &url]).expect_code(0);
    let by_option = ["trigger", "--here", "a", "--wait", "--store", &url];
    site.run(&by_option).expect_code(0);
    assert_eq!(redis.number(&["EXISTS", "team:{a}:job:a"]), 1);
    assert_eq!(redis.number(&["EXISTS", "cronlatch:{a}:job:a"]), 0);
    let mut by_variable = site.command(&["history", "a", "--json"]);
    by_variable.env("CRONLATCH_STORE", &url);
    assert_eq!(command::output(by_variable).json_lines().len(), 1);
}

#[test]
fn what_only_the_store_is_made_of_reaches_no_job() {
    let redis = RedisServer::builder().password().start();
    let url = redis.url().replace(PASSWORD, "${REDIS_SECRET}");
    assert!(url.contains("${REDIS_SECRET}"), "{url}");
    let mut told = job("told", "env");
    told["env"] = json!({ "GIVEN": "${OTHER:-${REDIS_SECRET}}" });
    let site = Site::new(&json!({ "store": { "redis": url }, "jobs": [job("env", "env"), told] }));
    let run = |args: &[&str]| {
        let mut command = site.command(args);
        command.env("REDIS_SECRET", PASSWORD).env("PLAIN", "yes");
        command::output(command).expect_code(0).stderr
    };
    let seen = run(&["trigger", "--here", "env", "--wait"]);
    assert!(
        seen.contains("PLAIN=yes") && seen.contains("HOME="),
        "{seen}"
    );
    assert!(
        !seen.contains(PASSWORD) && !seen.contains("REDIS_SECRET"),
        "{seen}"
    );
    let told = run(&["trigger", "--here", "told", "--wait"]);
    assert!(told.contains(&format!("GIVEN={PASSWORD}")), "{told}");
    assert!(!told.contains("REDIS_SECRET="), "{told}");

    // Those of the daemon neither.
    let list = format!(
        "store: {}\njobs: [{{ name: d, every: 1s, command: env }}]\n",
        serde_json::to_string(&redis.url().replace(PASSWORD, "${REDIS_SECRET}")).unwrap()
    );
    let daemon = Daemon::on("here", list).env("REDIS_SECRET", PASSWORD);
    let mut daemon = daemon.env("PLAIN", "yes").start();
    daemon.wait_log(&["PLAIN=yes"]);
    assert!(!daemon.log().contains(PASSWORD), "{}", daemon.log());
}

#[test]
fn status_shows_hosts_that_differ_and_a_foreign_lock_that_never_ends_and_no_password() {
    let redis = RedisServer::builder().password().start();
    let url = redis.url();
    assert!(url.contains(PASSWORD), "the test is about this");
    let mut shared = job("shared", "true");
    shared["lock"] = json!({ "key": "app:nightly" });
    let site = Site::new(&json!({ "store": url, "jobs": [shared, job("plain", "true")] }));
    redis.command(&["SET", "app:nightly", "a-deploy-script"]);

    let status = site.status();
    let [shared, plain] = &status["jobs"].as_array().unwrap()[..] else {
        panic!("two jobs");
    };
    assert_eq!(shared["lock"]["held_by"], "a-deploy-script");
    assert_eq!(shared["lock"]["without_ttl"], true);
    assert_eq!(shared["lock"]["by_another"], true);
    assert_eq!(plain["lock"], Value::Null);
    assert!(
        plain["next_at"]
            .as_str()
            .unwrap()
            .ends_with("-01-01T00:00:00Z")
    );
    assert_eq!(status["hosts"], json!([]));
    assert!(!status.to_string().contains(PASSWORD));

    let text = site.run(&["status"]).expect_code(0).stdout;
    assert!(
        text.contains("has no TTL") && text.contains(":***@"),
        "{text}"
    );
    assert!(!text.contains(PASSWORD), "{text}");
    site.run(&["trigger", "--here", "shared"]).expect_code(75);
}

#[test]
fn status_marks_hosts_whose_list_differs_those_that_drain_and_orphaned_runs() {
    let redis = RedisServer::start();
    let runs = RunLog::new();
    let mut slow = job("slow", &runs.endless_job());
    slow["schedule"] = json!("* * * * * *");
    slow["lock"] = json!({ "ttl": "3s" });
    slow["kill_grace"] = json!("200ms");
    let list = json!({ "store": redis.url(), "jobs": [slow] });
    let other = json!({ "store": redis.url(), "jobs": [job("other", "true")] });
    let site = Site::new(&list);
    let mut same = Daemon::on("same", list.to_string()).start();
    let _other = Daemon::on("other", other.to_string()).start();
    same.wait_until("its job has begun", |_| !runs.entries().is_empty());
    let host = |name: &str| -> Value {
        let status = site.status();
        let hosts = status["hosts"].as_array().unwrap();
        hosts
            .iter()
            .find(|host| host["name"] == name)
            .cloned()
            .unwrap_or_default()
    };
    wait_until("both hosts are seen, one with another list", || {
        host("same")["config_differs"] == false && host("other")["config_differs"] == true
    });
    wait_until("the run is counted", || host("same")["running"] == 1);
    assert_eq!(host("same")["draining"], false);

    same.signal(Signal::SIGTERM);
    wait_until("it drains", || host("same")["draining"] == true);
    let text = site.run(&["status"]).expect_code(0).stdout;
    assert!(
        text.contains("draining") && text.contains("another job list"),
        "{text}"
    );

    // Nobody else has this job: what its host leaves open stays open, and is shown for it.
    same.kill();
    wait_until("the run is an orphan", || {
        site.status()["jobs"][0]["running"]["orphaned"] == true
    });
    let text = site.run(&["status"]).expect_code(0).stdout;
    assert!(text.contains("orphaned on same, started "), "{text}");
}

#[test]
fn init_declares_an_empty_store_new_and_refuses_one_in_use() {
    let redis = RedisServer::builder().unmarked().start();
    for store in [Some(redis.url()), None] {
        let mut list = json!({ "jobs": [job("a", "true")] });
        if let Some(url) = store {
            list["store"] = json!(url);
        }
        let site = Site::new(&list);
        site.run(&["init"]).expect_code(0);
        site.run(&["trigger", "--here", "a", "--wait"])
            .expect_code(0);
        let refused = site.run(&["init"]).expect_code(78);
        assert!(refused.stderr.contains("is not empty"), "{refused:#?}");
        assert_eq!(site.history(&[]).len(), 1, "init took nothing away");
    }
}

#[test]
fn history_is_in_order_of_time_and_takes_a_limit_and_a_beginning() {
    let site = Site::new(&json!({ "jobs": [job("a", "true"), job("b", "false")] }));
    for name in ["a", "b", "a"] {
        site.run(&["trigger", "--here", name, "--wait"]);
    }
    let names = |args: &[&str]| -> Vec<String> {
        let history = site.history(args);
        let name = |record: &Value| record["job"].as_str().unwrap().to_owned();
        history.iter().map(name).collect()
    };
    assert_eq!(names(&[]), ["a", "b", "a"]);
    assert_eq!(names(&["a"]), ["a", "a"]);
    assert_eq!(names(&["--limit", "1"]), ["b", "a"]);
    assert_eq!(names(&["--since", "1h"]), ["a", "b", "a"]);
    assert!(names(&["--since", "2100-01-01T00:00:00Z"]).is_empty());
    site.run(&["history", "c"]).expect_code(64);
    let refused = site.run(&["history", "--since", "soon"]).expect_code(64);
    assert!(refused.stderr.contains("`yesterday`"), "{refused:#?}");
}

#[test]
fn history_names_the_runs_of_today_that_failed() {
    let site = Site::new(&json!({ "jobs": [
        job("web-good", "true"), job("web-bad", "false"), job("mail", "exit 3"),
    ]}));
    for name in ["web-good", "web-bad", "mail"] {
        site.run(&["trigger", "--here", name, "--wait"]);
    }
    let names = |args: &[&str]| -> Vec<String> {
        let history = site.history(args);
        let name = |record: &Value| record["job"].as_str().unwrap().to_owned();
        history.iter().map(name).collect()
    };
    assert_eq!(
        names(&["--failed", "--since", "yesterday"]),
        ["web-bad", "mail"]
    );
    assert_eq!(names(&["--failed", "web*"]), ["web-bad"]);
    assert_eq!(names(&["--job", "mail", "web-g*"]), ["web-good", "mail"]);
    assert_eq!(names(&["--outcome", "succeeded,missed"]), ["web-good"]);
    assert_eq!(names(&["--on", "her?", "--limit", "1"]).len(), 3);
    assert!(names(&["--on", "elsewhere"]).is_empty());
    assert!(names(&["--until", "yesterday"]).is_empty());

    let shown = site
        .run(&["history", "--until", "yesterday"])
        .expect_code(0);
    assert_eq!(shown.stdout, "no record passes these filters\n");
    let empty = site.run(&["history", "--since", "3h", "--until", "5h"]);
    let refused = empty.expect_code(64).stderr;
    assert!(refused.contains("is before --since"), "{refused}");
    let refused = site.run(&["history", "--outcome", "fail"]).expect_code(64);
    assert!(
        refused.stderr.contains("did you mean failed?"),
        "{refused:#?}"
    );
    let refused = site.run(&["history", "db*"]).expect_code(64);
    assert!(refused.stderr.contains("db*"), "{refused:#?}");
    let records = site.history(&["mail"]);
    let run_id = records[0]["run_id"].as_str().unwrap();
    let table = site.run(&["history", "mail"]).expect_code(0).stdout;
    assert!(table.contains(run_id), "{table}");
}

#[test]
fn history_of_a_job_on_each_host_shows_all_live_hosts() {
    let redis = RedisServer::start();
    let list = json!({ "store": redis.url(), "jobs": [{
        "name": "local", "every": "1s", "command": "true", "lock": { "scope": "host", "ttl": "5s" },
    }]});
    let site = Site::new(&list);
    let _there = Daemon::on("there", list.to_string()).start();
    let hosts = || -> std::collections::BTreeSet<String> {
        let history = site.history(&["local"]);
        let host = |record: &Value| record["host"].as_str().unwrap_or_default().to_owned();
        history.iter().map(host).collect()
    };
    wait_until("the run of another host is shown", || {
        hosts().contains("there")
    });
}

#[test]
fn a_store_that_is_not_there_is_said_to_be_so() {
    let list = json!({ "store": "redis://127.0.0.1:1/", "jobs": [job("a", "true")] });
    let site = Site::new(&list);
    for args in [
        &["history"][..],
        &["status"],
        &["init"],
        &["trigger", "--here", "a"],
    ] {
        let said = site.run(args).expect_code(69);
        assert!(said.stderr.contains("is unreachable"), "{said:#?}");
    }
}

#[test]
fn a_claim_by_hand_that_is_overtaken_by_its_copy_is_granted_to_nobody_afterwards() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port());
    let lock = "cronlatch:{a}:lock";
    let list = json!({ "store": redis.url_via(proxy.port()), "jobs": [job("a", "true")] });
    let site = Site::new(&list);
    redis.command(&["SET", lock, "other:1:run:token", "PX", "600000"]);
    for command in [
        &["trigger", "--here", "a", "--wait"][..],
        &["exec", "--lock", "a", "--", "true"],
    ] {
        proxy.keep_back(if command[0] == "exec" {
            "lock"
        } else {
            "manual"
        });
        let refused = site.run(command).expect_code(75);
        assert!(refused.stderr.contains("held by other"), "{refused:#?}");
        assert!(proxy.has_kept());
        redis.command(&["DEL", lock]);
        let answer = proxy.deliver();
        assert!(answer.contains("finished"), "{answer}");
        assert_eq!(redis.number(&["EXISTS", lock]), 0);
        redis.command(&["SET", lock, "other:1:run:token", "PX", "600000"]);
    }
}

#[test]
fn sweep_is_for_the_unit_and_does_nothing_after_a_good_end() {
    let sweep = || {
        let mut sweep = command::command(command::BINARY);
        sweep.arg("sweep").env_remove("INVOCATION_ID");
        sweep
    };
    let alone = command::output(sweep()).expect_code(64);
    assert!(alone.stderr.contains("ExecStopPost="), "{alone:?}");
    for result in ["success", "signal"] {
        let mut nothing = sweep();
        nothing
            .env("INVOCATION_ID", "of-no-unit")
            .env("SERVICE_RESULT", result);
        let nothing = command::output(nothing).expect_code(0);
        assert_eq!(nothing.stderr, "", "{nothing:?}");
    }
}

#[test]
fn status_shows_the_last_success_and_failure_and_history_the_failures_of_removed_jobs() {
    let jobs = |names: &[Value]| json!({ "jobs": names });
    let (good, bad) = (job("good", "true"), job("bad", "echo alas; exit 3"));
    let site = Site::new(&jobs(&[good.clone(), bad]));
    site.run(&["trigger", "--here", "good", "--wait"])
        .expect_code(0);
    site.run(&["trigger", "--here", "bad", "--wait"])
        .expect_code(3);
    site.run(&["trigger", "--here", "bad", "--wait"])
        .expect_code(3);

    let status = site.status();
    let [good_status, bad_status] = &status["jobs"].as_array().unwrap()[..] else {
        panic!("two jobs: {status}");
    };
    assert_eq!(good_status["recent"], json!(["succeeded"]));
    assert_eq!(good_status["last_success"]["outcome"], "succeeded");
    assert_eq!(good_status["last_failure"], Value::Null);
    assert_eq!(bad_status["recent"], json!(["failed", "failed"]));
    assert_eq!(bad_status["last_success"], Value::Null);
    let failed = site.history(&["bad"]);
    let newest = &failed[1];
    assert_eq!(bad_status["last_failure"]["run_id"], newest["run_id"]);
    assert_eq!(bad_status["last"]["output_tail"], Value::Null);
    let text = site.run(&["status"]).expect_code(0).stdout;
    let run = format!("run {}", newest["run_id"].as_str().unwrap());
    assert!(text.contains(&run) && text.contains("FF"), "{text}");

    fs::write(site.list(), jobs(&[good]).to_string()).unwrap();
    let shown = site.history(&["--failed"]);
    let runs = |records: &[Value]| -> Vec<Value> {
        records.iter().map(|it| it["run_id"].clone()).collect()
    };
    assert_eq!(runs(&shown), runs(&failed));
    assert!(shown.iter().all(|record| record["job"] == "bad"));
}
