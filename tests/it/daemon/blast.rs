//! What is wrong with the data or the rights of one job stays with that job.

use crate::support::redis::documented_rights;
use crate::support::{Daemon, RedisServer, RunLog, cronlatch, wait_until};

use super::{assert_no_silence, has, records, wait_record};

/// What the log says when an outage begins.
const OUTAGE: &[&str] = &["the store is unreachable"];

/// The entries of the log that belong to a job.
fn runs(log: &RunLog, job: &str) -> usize {
    let entries = log.entries();
    entries.iter().filter(|entry| entry.job == job).count()
}

/// The seconds for which a job ran.
fn seconds(log: &RunLog, job: &str) -> Vec<i64> {
    let entries = log.entries();
    let of_job = entries.iter().filter(|entry| entry.job == job);
    of_job
        .filter_map(|entry| Some(entry.scheduled? / 1000))
        .collect()
}

/// Each occurrence from the first that ran to the last ran, and once.
#[track_caller]
fn assert_each_ran_once(log: &RunLog, job: &str) {
    let mut seconds = seconds(log, job);
    seconds.sort_unstable();
    let first = seconds.first().copied().unwrap_or_default();
    let expected: Vec<i64> = (first..).take(seconds.len()).collect();
    assert_eq!(seconds, expected, "{job} ran once for each occurrence");
}

/// What is damaged is named with a way to repair it, and the rest is shown.
#[track_caller]
fn assert_reported(host: &Daemon, damaged: &[(&str, &str, &str)]) {
    let status = host.ask(&["status", "--json"]).expect_code(0);
    let status = status.json_lines().remove(0);
    let jobs = status["jobs"].as_array().expect("a list").clone();
    let of = |name: &str| {
        jobs.iter()
            .find(|job| job["name"] == name)
            .expect("it is listed")
    };
    for (job, kind, key) in damaged.iter().copied() {
        let found = &of(job)["damaged"];
        assert_eq!(
            (&found["kind"], &found["key"]),
            (&kind.into(), &key.into()),
            "{job}"
        );
        assert!(
            kind == "forbidden" || has(&found["repair"], "cronlatch forget"),
            "{found}"
        );
    }
    assert!(of("well").get("damaged").is_none());
    assert!(of("long")["running"].is_object());
    assert_eq!(
        status["hosts"].as_array().map(Vec::len),
        Some(2),
        "{status}"
    );
    let text = host.ask(&["status"]).expect_code(0).stdout;
    assert!(text.contains("last is not a number"), "{text}");

    // The odd entry hides nothing but itself.
    let history = host.ask(&["history"]).expect_code(0);
    assert!(history.stderr.contains("job stream"), "{}", history.stderr);
    assert!(history.stderr.contains("\"many\""), "{}", history.stderr);
    assert!(records(host, "stream").len() > 3);
    assert!(history.stderr.contains("job runs"), "{}", history.stderr);

    let doctor = host.ask(&["doctor", "--json"]).expect_code(1).stdout;
    for named in [
        "app-lock",
        "job ledger",
        "job runs",
        "job state",
        "job stream",
    ] {
        assert!(doctor.contains(named), "doctor names {named}: {doctor}");
    }
}

#[test]
fn damaged_keys_and_missing_rights_of_single_jobs_leave_the_others_alone() {
    let redis = RedisServer::builder()
        .user("cronlatch", documented_rights())
        .start();
    let log = RunLog::new();
    let job = |name: &str, more: &str, command: &str| {
        format!("  - {{ name: {name}, every: 1s, {more} command: '{command}' }}\n")
    };
    let (short, endless) = (log.job("0"), log.endless_job());
    // A run that takes longer than a second on a busy machine makes no occurrence skipped.
    let queue = "on_overlap: queue, queue_limit: 100,";
    let small = "lock: { ttl: 3s }, kill_grace: 0s,";
    let list = format!(
        "store: {}\njobs:\n{}{}{}{}{}{}{}{}",
        redis.url(),
        job("well", queue, &short),
        job("alone", &format!("on_store_down: run, {queue}"), &short),
        job("long", small, &endless),
        job(
            "foreign",
            "lock: { key: app-lock }, on_store_down: run,",
            &short
        ),
        job("ledger", "", &short),
        job("runs", "", &short),
        job("state", small, &endless),
        job("stream", queue, &short),
    );
    let hosts = ["one", "two"];
    // A field among the hosts that nobody can read; nothing would ever start.
    redis.command(&["HSET", "cronlatch:hosts", "odd", "garbage"]);
    let mut hosts = hosts.map(|host| Daemon::on(host, list.as_str()).start());
    let healthy = ["well", "alone", "long", "ledger", "runs", "state", "stream"];
    wait_until("each job has run whose keys are sound", || {
        healthy.iter().all(|job| runs(&log, job) > 0)
    });
    assert_eq!(runs(&log, "foreign"), 0, "it has no right to its lock");

    redis.command(&["HSET", "cronlatch:{ledger}:job:ledger", "last", "yesterday"]);
    redis.command(&["SET", "cronlatch:{runs}:runs:runs", "x"]);
    redis.command(&["SET", "cronlatch:{state}:state", "x"]);
    redis.command(&[
        "XADD",
        "cronlatch:{stream}:runs:stream",
        "*",
        "attempts",
        "many",
    ]);
    let before = ["well", "alone", "stream"].map(|job| runs(&log, job));
    let damaged = [
        ("foreign", "forbidden", "app-lock"),
        ("ledger", "damaged", "cronlatch:{ledger}:job:ledger"),
        ("runs", "damaged", "cronlatch:{runs}:runs:runs"),
        ("state", "damaged", "cronlatch:{state}:state"),
    ];
    for (job, kind, key) in damaged {
        wait_until(&format!("a log names {key} of {job}"), || {
            let words = [job, kind, key, "To repair it"];
            hosts.iter().any(|host| host.lines_with(&words) > 0)
        });
    }
    wait_until(
        "the lease of the damaged lock is over and its run ended",
        || {
            hosts
                .iter()
                .any(|host| host.lines_with(&["job=state", "lease"]) > 0)
        },
    );
    wait_until("the others run on, well past that", || {
        let now = ["well", "alone", "stream"].map(|job| runs(&log, job));
        now.iter()
            .zip(before)
            .all(|(now, before)| *now >= before + 5)
    });
    for job in ["well", "alone", "stream"] {
        assert_each_ran_once(&log, job);
        assert_no_silence(&records(&hosts[0], job));
    }
    assert_eq!(runs(&log, "long"), 1, "its lease was renewed all the time");
    assert_eq!(runs(&log, "foreign"), 0, "nobody ran it without its lock");
    for host in &hosts {
        assert_eq!(host.lines_with(OUTAGE), 0, "the store is up");
    }

    assert_reported(&hosts[0], &damaged);

    // Forgotten, it starts from now.
    let before = runs(&log, "ledger");
    let refused = hosts[0].ask(&["forget", "ledger"]).expect_code(75);
    let reported = "host one reported ";
    assert!(refused.stderr.contains(reported), "{}", refused.stderr);
    hosts[0]
        .ask(&["forget", "ledger", "--force"])
        .expect_code(0);
    hosts[0].wait_until("the forgotten job runs again", |_| {
        runs(&log, "ledger") > before
    });

    // Repaired by hand, it goes on; the verdict of the run that it kept waiting arrives.
    redis.command(&["DEL", "cronlatch:{runs}:runs:runs"]);
    wait_record(&mut hosts[0], "runs", "a verdict", |record| {
        record["outcome"] == "succeeded"
    });
    let kept = redis.text(&["HGET", "cronlatch:hosts", "odd"]);
    assert_eq!(kept, "", "the unreadable entry has been removed");
    let removed = |host: &Daemon| host.lines_with(&["odd", "garbage", "removed"]);
    assert_eq!(hosts.iter().map(removed).sum::<usize>(), 1);
}

/// A history that a majority of nodes cannot use holds its job up; on one node alone it does not,
/// and `status`, `doctor` and the log name what is damaged there.
#[test]
fn what_is_damaged_on_some_nodes_is_named_and_holds_up_only_what_they_decide() {
    let nodes = [(); 3].map(|()| RedisServer::start());
    let urls = nodes.each_ref().map(RedisServer::url);
    cronlatch(&["init", "--store", &urls.join(",")]);
    let job = |name: &str| serde_json::json!({ "name": name, "every": "1s", "command": "true" });
    let list = serde_json::json!({ "store": { "redis": urls }, "jobs": [job("well"), job("ill")] });
    let mut host = Daemon::on("one", list.to_string()).start();
    let recorded = |host: &Daemon, job: &str| records(host, job).len();
    let runs_on = |host: &mut Daemon, job: &str| {
        let before = recorded(host, job);
        host.wait_until(&format!("{job} runs on"), |host| {
            recorded(host, job) >= before + 3
        });
    };
    runs_on(&mut host, "ill");
    let damage = |node: &RedisServer, key: &str| {
        node.command(&["DEL", key]);
        node.command(&["SET", key, "x"]);
    };

    let (ledger, history) = ("cronlatch:{ill}:job:ill", "cronlatch:{ill}:runs:ill");
    damage(&nodes[0], ledger);
    host.wait_log(&["WARN", ledger, &urls[0], "delete the key on this node"]);
    runs_on(&mut host, "ill");
    let status = host.ask(&["status"]).expect_code(0).stdout;
    let named = format!("{} does not count for the job ill: {ledger}", urls[0]);
    assert!(status.contains(&named), "{status}");
    assert!(!status.contains("if one more fails"), "{status}");
    let json = host.ask(&["status", "--json"]).expect_code(0).json_lines();
    let of_node = &json[0]["nodes"][0];
    assert_eq!(of_node["standing"], "counts", "{of_node}");
    assert_eq!(of_node["damaged"][0]["key"], ledger, "{of_node}");
    let doctor = host.ask(&["doctor", "--json"]).stdout;
    assert!(
        doctor.contains(&format!("job ill on {}", urls[0])),
        "{doctor}"
    );
    nodes[0].command(&["DEL", ledger]);
    host.wait_until("the others write it anew", |_| {
        nodes[0].number(&["EXISTS", ledger]) == 1
    });

    for node in &nodes[..2] {
        damage(node, history);
    }
    host.wait_log(&["ERROR", "ill", history, "To repair it"]);
    runs_on(&mut host, "well");
    for node in &nodes[..2] {
        node.command(&["DEL", history]);
    }
    runs_on(&mut host, "ill");
    assert_no_silence(&records(&host, "ill"));
    assert_eq!(host.lines_with(OUTAGE), 0, "the nodes are up");
}
