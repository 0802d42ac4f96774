//! What must hold when clocks are wrong, daemons stop or die, and the store is away: several real
//! daemons on one real Redis, and the log that their jobs wrote.

mod hosts;
mod store;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Daemon, RedisServer, RunLog, wait_for};

/// A list with one job, which is due every second unless `fields` say otherwise.
fn list(command: &str, fields: &Value) -> String {
    let mut job = json!({
        "name": "job", "schedule": "* * * * * *", "command": command,
        "lock": { "ttl": "3s" }, "kill_grace": "200ms",
    });
    merge(&mut job, fields);
    json!({ "jobs": [job] }).to_string()
}

fn merge(job: &mut Value, fields: &Value) {
    for (name, value) in fields.as_object().unwrap() {
        job[name] = value.clone();
    }
}

/// A job that minds no SIGTERM and has a child in a session of its own; both give signs of life.
fn stubborn(runs: &RunLog) -> String {
    let sign = format!(
        "while :; do echo sign $CRONLATCH_RUN_ID $CRONLATCH_ATTEMPT $(date +%s%3N) >> {}; \
         sleep 0.05; done",
        runs.path().display()
    );
    format!(
        "trap \"\" TERM; {}; setsid sh -c '{sign}' & {sign}",
        runs.begin()
    )
}

/// The records of a job, oldest first.
#[track_caller]
fn history(daemon: &Daemon, redis: &RedisServer, job: &str) -> Vec<Value> {
    let url = redis.url();
    let args = ["history", job, "--json", "--limit", "1000", "--store", &url];
    daemon.ask(&args).expect_code(0).json_lines()
}

/// Waits for a record of this run, and answers it.
#[track_caller]
fn record_of(daemon: &Daemon, redis: &RedisServer, run_id: &str) -> Value {
    wait_for("the run is on record", || {
        let records = history(daemon, redis, "job");
        records
            .into_iter()
            .find(|record| record["run_id"] == run_id)
    })
}

/// Every second between the first and the last verdict has one.
#[track_caller]
fn assert_no_silence(records: &[Value]) {
    let millis = |value: &Value| {
        let instant = cronlatch::time::Timestamp::parse(value.as_str()?).ok()?;
        Some(instant.millis())
    };
    let mut decided = BTreeSet::new();
    for record in records {
        let Some(from) = millis(&record["scheduled_at"]) else {
            continue;
        };
        let until = millis(&record["until"]).unwrap_or(from);
        decided.extend((from..=until).step_by(1000));
    }
    for (one, next) in decided.iter().zip(decided.iter().skip(1)) {
        assert_eq!(next - one, 1000, "silence after {one}: {records:#?}");
    }
}
