//! `doctor`, `strict`, clock skew and `spread`, against real servers set up badly and well.

mod several;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::redis::{PASSWORD, documented_rights};
use crate::support::{Daemon, Output, RedisServer, RunLog, command, faketime, wait_until};

/// A list for a store, with these fields besides.
fn list(store: &str, fields: &Value) -> String {
    let mut list = json!({
        "store": store,
        "jobs": [{ "name": "a", "schedule": "@daily", "command": "true" }],
    });
    let (list_fields, fields) = (list.as_object_mut().unwrap(), fields.as_object().unwrap());
    list_fields.extend(fields.clone());
    list.to_string()
}

/// A list in a directory of its own, which is the state directory, too.
struct Place(tempfile::TempDir);

impl Place {
    fn with(list: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("jobs.yaml"), list).unwrap();
        Self(dir)
    }

    fn doctor(&self, args: &[&str]) -> Output {
        let mut command = command::command(command::BINARY);
        command
            .args(["doctor", "-c"])
            .arg(self.0.path().join("jobs.yaml"))
            .args(args)
            .env("STATE_DIRECTORY", self.0.path());
        command::output(command)
    }

    /// The findings, and the exit code.
    fn findings(&self) -> (Vec<Value>, i32) {
        let said = self.doctor(&["--json"]);
        let findings = said.json_lines().remove(0)["findings"].take();
        (findings.as_array().unwrap().clone(), said.code())
    }
}

/// The severity of a finding, and what it says.
#[track_caller]
fn of<'a>(findings: &'a [Value], id: &str) -> (&'a str, &'a str) {
    let found = findings.iter().find(|finding| finding["id"] == id);
    let Some(found) = found else {
        panic!("no {id} in {findings:#?}");
    };
    let text = |field: &str| found[field].as_str().unwrap();
    assert!(!text("subject").is_empty());
    assert_eq!(text("fix").is_empty(), text("severity") == "ok", "{found}");
    (text("severity"), text("text"))
}

#[test]
fn a_server_that_cannot_save_its_data_is_judged_as_a_whole() {
    let server = RedisServer::start();
    let place = Place::with(&list(&server.url(), &json!({})));
    server.break_snapshots();
    let (found, code) = place.findings();
    assert_eq!(code, 1, "{found:#?}");
    assert_eq!(of(&found, "store.persistence").0, "danger");
    assert_eq!(of(&found, "store.latency").0, "ok");
}

#[test]
fn a_server_is_judged_by_its_settings_and_a_mended_one_anew() {
    let server = RedisServer::builder().unmarked().start();
    let place = Place::with(&list(&server.url(), &json!({})));
    let (found, code) = place.findings();
    assert_eq!(code, 0, "{found:#?}");
    // Nothing is left behind by looking.
    assert_eq!(server.number(&["DBSIZE"]), 0);
    assert_eq!(of(&found, "store.eviction").0, "ok");
    assert_eq!(of(&found, "store.version").0, "ok");
    assert_eq!(of(&found, "store.latency").0, "ok");
    assert_eq!(of(&found, "clock.offset").0, "ok");
    assert_eq!(of(&found, "store.replicas").0, "ok");
    // The default user may do anything.
    assert_eq!(of(&found, "store.rights").0, "hint");
    let (severity, text) = of(&found, "store.persistence");
    assert_eq!(severity, "warning");
    assert!(text.contains("nothing is written to disk"), "{text}");

    server.config("maxmemory-policy", "allkeys-lru");
    server.config("maxmemory", "1");
    server.config("appendonly", "yes");
    server.config("appendfsync", "no");
    server.config("min-replicas-to-write", "1");
    let (found, code) = place.findings();
    assert_eq!(code, 1, "a danger: {found:#?}");
    assert_eq!(found[0]["severity"], "danger", "the worst first");
    let (severity, text) = of(&found, "store.eviction");
    assert_eq!(severity, "danger");
    assert!(text.contains("allkeys-lru"), "{text}");
    assert_eq!(of(&found, "store.memory").0, "danger");
    assert_eq!(of(&found, "store.old-master").0, "danger");
    let (severity, text) = of(&found, "store.persistence");
    assert_eq!(severity, "warning");
    assert!(text.contains("appendfsync no"), "{text}");

    server.config("maxmemory-policy", "noeviction");
    server.config("maxmemory", "0");
    server.config("appendfsync", "everysec");
    server.config("min-replicas-to-write", "0");
    let (found, code) = place.findings();
    assert_eq!(code, 0, "{found:#?}");
    assert_eq!(of(&found, "store.persistence").0, "ok");
    assert_eq!(of(&found, "store.eviction").0, "ok");
}

#[test]
fn replicas_are_weighed_by_what_a_failover_could_lose() {
    let server = RedisServer::builder()
        .arg("--repl-diskless-sync-delay")
        .arg("0")
        .start();
    let replica = RedisServer::builder().unmarked().start();
    replica.command(&["REPLICAOF", "127.0.0.1", &server.port().to_string()]);
    wait_until("the replica is in step", || {
        server
            .text(&["INFO", "replication"])
            .contains("state=online")
    });
    let place = Place::with(&list(&server.url(), &json!({})));
    let (found, _) = place.findings();
    let (severity, text) = of(&found, "store.replicas");
    assert_eq!(severity, "warning");
    assert!(text.contains("wait_replicas is 0"), "{text}");
    assert_eq!(of(&found, "store.old-master").0, "warning");

    server.config("min-replicas-to-write", "1");
    let (found, _) = place.findings();
    assert_eq!(of(&found, "store.old-master").0, "ok");
    server.config("min-replicas-max-lag", "60");
    let (found, _) = place.findings();
    let (severity, text) = of(&found, "store.old-master");
    assert_eq!(severity, "warning");
    assert!(text.contains("60 s"), "{text}");
}

#[test]
fn doctor_names_the_variables_of_notifications_that_are_not_set() {
    let server = RedisServer::start();
    let place = Place::with(&list(
        &server.url(),
        &json!({
            "notify": { "ops": { "slack": "${SLACK_URL}" } },
            "defaults": { "notify": ["ops"], "ping": "healthchecks:${CHECK:-${CHECK_ID}}" },
        }),
    ));
    let (found, code) = place.findings();
    assert_eq!(code, 0, "{found:#?}");
    let (severity, _) = of(&found, "list.variables");
    assert_eq!(severity, "hint");
    let unset = found.iter().filter(|it| it["id"] == "list.variables");
    let unset: Vec<&str> = unset.filter_map(|it| it["subject"].as_str()).collect();
    assert_eq!(unset, ["CHECK_ID", "SLACK_URL"]);
}

#[test]
fn the_rule_that_doctor_prints_is_enough_and_each_right_it_names_is_needed() {
    let server = RedisServer::builder().user("cronlatch", "-@all").start();
    let place = Place::with(&list(&server.url(), &json!({})));
    let (found, code) = place.findings();
    assert_eq!(
        code, 69,
        "nobody but a store that answers can be used: {found:#?}"
    );
    let rights = found.iter().find(|f| f["id"] == "store.rights");
    let rights = rights.unwrap_or_else(|| panic!("{found:#?}"));
    let fix = rights["fix"].as_str().unwrap();
    let (_, rule) = fix.split_once("ACL SETUSER ").unwrap();
    let rule = rule.replace("PASSWORD", PASSWORD);
    let words: Vec<&str> = ["ACL", "SETUSER"]
        .into_iter()
        .chain(rule.split(' '))
        .collect();
    server.command(&words);
    let (_, rights) = rule.split_once(&format!("{PASSWORD} ")).unwrap();
    assert!(documented_rights().starts_with(rights), "{rights}");
    let (found, code) = place.findings();
    assert_eq!(code, 0, "{found:#?}");
    assert_eq!(of(&found, "store.rights").0, "ok");

    for (right, back) in [("-xadd", "+xadd"), ("resetchannels", "&cronlatch:*")] {
        server.command(&["ACL", "SETUSER", "cronlatch", right]);
        let (found, code) = place.findings();
        assert_eq!(code, 1, "{found:#?}");
        assert_eq!(of(&found, "store.rights").0, "danger");
        server.command(&["ACL", "SETUSER", "cronlatch", back]);
    }
    let raw = json!({ "jobs": [{
        "name": "a", "schedule": "@daily", "command": "true", "lock": { "key": "app:x" },
    }] });
    let place = Place::with(&list(&server.url(), &raw));
    let (found, _) = place.findings();
    let (severity, text) = of(&found, "store.rights");
    assert_eq!(severity, "danger");
    assert!(text.contains("SET app:x"), "{text}");
}

#[test]
fn files_that_others_can_read_or_change_are_told_of() {
    let server = RedisServer::builder().password().start();
    let place = Place::with(&list(&server.url(), &json!({})));
    let path = place.0.path().join("jobs.yaml");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let judged = |place: &Place, path: &Path| {
        let (found, code) = place.findings();
        let subject = path.display().to_string();
        let finding = found.iter().find(|finding| finding["subject"] == *subject);
        let severity = finding.unwrap_or_else(|| panic!("{found:#?}"))["severity"].clone();
        (severity.as_str().unwrap().to_owned(), code)
    };
    mode(&path, 0o644);
    assert_eq!(judged(&place, &path), ("warning".to_owned(), 0));
    mode(&path, 0o640);
    assert_eq!(judged(&place, &path), ("ok".to_owned(), 0));
    mode(&path, 0o646);
    assert_eq!(judged(&place, &path), ("danger".to_owned(), 1));
    mode(&path, 0o600);

    let said = place.doctor(&[]).expect_code(0).stdout;
    assert!(said.contains("files.secrets"), "{said}");
    assert!(said.contains("0 dangers"), "{said}");
    assert!(!said.contains(PASSWORD), "{said}");
}

#[test]
fn without_its_store_doctor_looks_at_the_host_and_says_so_by_its_exit_code() {
    let mut server = RedisServer::start();
    let place = Place::with(&list(&server.url(), &json!({})));
    server.stop();
    let (found, code) = place.findings();
    assert_eq!(code, 69);
    assert_eq!(of(&found, "store.reachable").0, "danger");
    assert_eq!(of(&found, "clock.zone").0, "ok");

    let embedded = place.0.path().join("store.db");
    let place = Place::with(&list(&format!("sqlite:{}", embedded.display()), &json!({})));
    let (found, code) = place.findings();
    assert_eq!(code, 0, "{found:#?}");
    assert_eq!(of(&found, "store.place").0, "ok");
    assert_eq!(of(&found, "disk.space").0, "ok");
    assert!(!embedded.exists(), "a look makes nothing");
}

#[test]
fn an_embedded_store_that_cannot_be_used_is_a_danger() {
    let dir = tempfile::tempdir().unwrap();
    let garbage = dir.path().join("garbage.db");
    fs::write(&garbage, "this is no database".repeat(1_000)).unwrap();
    let directory = dir.path().join("directory.db");
    fs::create_dir(&directory).unwrap();
    let newer = dir.path().join("newer.db");
    let db = rusqlite::Connection::open(&newer).unwrap();
    db.execute_batch("CREATE TABLE other (a); PRAGMA user_version = 99;")
        .unwrap();
    for (path, says) in [
        (&garbage, "is not an SQLite database"),
        (&directory, "directory.db"),
        (&newer, "another program"),
    ] {
        let place = Place::with(&list(&format!("sqlite:{}", path.display()), &json!({})));
        let (found, code) = place.findings();
        assert_eq!(code, 69, "{found:#?}");
        let (severity, text) = of(&found, "store.reachable");
        assert_eq!(severity, "danger");
        assert!(text.contains(says), "{text}");
        assert!(
            text.ends_with("nothing starts until this is corrected"),
            "{text}"
        );
    }
    let place = Place::with(&list("sqlite:/proc/store.db", &json!({})));
    let (found, code) = place.findings();
    assert_eq!(code, 1, "{found:#?}");
    let (severity, text) = of(&found, "store.place");
    assert_eq!(severity, "danger");
    assert!(text.starts_with("no file can be made in /proc"), "{text}");
}

#[test]
fn a_strict_daemon_waits_for_its_store_and_then_refuses_a_dangerous_one() {
    let mut server = RedisServer::start();
    let strict = list(&server.url(), &json!({ "strict": true }));
    server.stop();
    let mut daemon = Daemon::on("web1", &strict).spawn();
    daemon.wait_log(&[
        "ERROR",
        "strict: the daemon has not started: the store is unreachable",
    ]);
    assert!(daemon.terminate().success(), "it hears SIGTERM meanwhile");

    let mut daemon = Daemon::on("web1", &strict).spawn();
    daemon.wait_log(&[
        "ERROR",
        "strict: the daemon has not started: the store is unreachable",
    ]);
    server.restart();
    daemon.wait_ready();
    assert!(daemon.terminate().success());

    server.config("maxmemory-policy", "volatile-lru");
    let mut daemon = Daemon::on("web1", &strict).spawn();
    assert_eq!(daemon.wait_exit().code(), Some(78));
    assert!(daemon.log().contains("volatile-lru"), "{}", daemon.log());
    let ready = daemon.notices().iter().any(|said| said.contains("READY=1"));
    assert!(!ready, "it looked before");

    // Otherwise the same is said, and nothing is refused.
    let mut daemon = Daemon::on("web1", list(&server.url(), &json!({}))).start();
    let about_the_server = format!("{}: nothing is written to disk", server.url());
    daemon.wait_log(&["store.persistence", &about_the_server]);
    assert_eq!(daemon.lines_with(&["finding=", "store.persistence"]), 1);
    assert!(daemon.terminate().success());
}

/// A list with four jobs that are due every second.
fn every_second(runs: &RunLog, fields: &Value) -> String {
    let job = |i| {
        let name = format!("job{i}");
        json!({ "name": name, "every": "1s", "command": runs.job("0.01") })
    };
    let mut list = json!({ "jobs": [job(1), job(2), job(3), job(4)] });
    let fields = fields.as_object().unwrap().clone();
    list.as_object_mut().unwrap().extend(fields);
    list.to_string()
}

fn runs_on(runs: &RunLog, host: &str) -> usize {
    let entries = runs.entries();
    entries.iter().filter(|run| run.host == host).count()
}

#[test]
fn a_host_far_from_the_stores_clock_claims_nothing_and_status_shows_how_far() {
    let (server, runs) = (RedisServer::start(), RunLog::new());
    let tight = every_second(&runs, &json!({ "max_clock_skew": "5s" }));
    // It knows of every occurrence before the other does.
    let mut wrong = Daemon::on("wrong", &tight)
        .store(&server.url())
        .clock_shifted_by(20_000)
        .spawn();
    wrong.wait_log(&["max_clock_skew", "ahead"]);
    let wide = every_second(&runs, &json!({}));
    let mut off = Daemon::on("off", &wide)
        .store(&server.url())
        .clock_shifted_by(-2_500)
        .spawn();
    off.wait_until("it has run all jobs", |_| runs_on(&runs, "off") >= 8);
    assert_eq!(off.lines_with(&["WARN", "this host's clock is"]), 1);
    assert_eq!(wrong.lines_with(&["more than max_clock_skew"]), 1);
    assert_eq!(runs_on(&runs, "wrong"), 0, "{}", wrong.log());
    let mut hosts = Value::Null;
    off.wait_until("both have announced themselves", |daemon| {
        let said = daemon.ask(&["status", "--json", "--store", &server.url()]);
        hosts = said.expect_code(0).json_lines().remove(0)["hosts"].take();
        hosts.as_array().unwrap().len() == 2
    });
    let offset = |i: usize| hosts[i]["clock_offset_ms"].as_i64().unwrap();
    assert!((-4_500..=-1_500).contains(&offset(0)), "{hosts:#}");
    assert!((18_000..=22_000).contains(&offset(1)), "{hosts:#}");
}

#[test]
fn a_host_whose_clock_was_set_on_for_a_while_takes_part_again_when_it_is_right() {
    let (server, runs) = (RedisServer::start(), RunLog::new());
    let clocks = tempfile::tempdir().unwrap();
    let clock = clocks.path().join("clock");
    let tight = every_second(&runs, &json!({ "max_clock_skew": "5s" }));
    let mut host = Daemon::on("host", &tight)
        .store(&server.url())
        .clock_in(clock.clone())
        .start();
    host.wait_until("it runs jobs", |_| runs_on(&runs, "host") >= 2);
    faketime::set(&clock, 600_000);
    host.wait_log(&["max_clock_skew", "10m ahead"]);
    faketime::set(&clock, 0);
    host.wait_log(&["correct again"]);
    let right = chrono::Utc::now().timestamp_millis();
    let mut next = None;
    host.wait_until("it has run what came due since", |_| {
        let mut entries = runs.entries().into_iter();
        next = entries.find_map(|run| run.scheduled.filter(|due| *due > right));
        next.is_some()
    });
    assert!(
        next.is_some_and(|due| due < right + 60_000),
        "{next:?} after {right}"
    );
    assert!(host.terminate().success());
    runs.assert_each_once();
}

#[test]
fn with_spread_a_host_that_always_comes_late_has_its_share_too() {
    let (server, runs) = (RedisServer::start(), RunLog::new());
    let list = every_second(&runs, &json!({ "spread": "990ms" }));
    let mut hosts: Vec<Daemon> = [("first", 0), ("late", -400)]
        .map(|(name, shift)| {
            let daemon = Daemon::on(name, &list).store(&server.url());
            daemon.clock_shifted_by(shift).start()
        })
        .into();
    hosts[0].wait_until("both have run some", |_| {
        runs_on(&runs, "late") >= 3 && runs_on(&runs, "first") >= 3
    });
    for host in &mut hosts {
        assert!(host.terminate().success());
    }
    runs.assert_each_once();
    runs.assert_none_early();
}
