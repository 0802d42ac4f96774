//! A thousand jobs due at one instant: how long until the last has begun.

use chrono::{DateTime, Timelike as _, Utc};
use std::path::Path;
use std::time::Duration;

use crate::surroundings::{Daemon, Redis, millis_between, until};
use crate::{mark, say};

const JOBS: usize = 1_000;
const GOAL: f64 = 1.5;

pub(crate) fn measure() -> Result<(), String> {
    let redis = Redis::start()?;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let marks = dir.path().join("marks");
    // Far enough away for the daemon to be up and at rest.
    let due = Utc::now() + Duration::from_secs(20);
    let due = due.with_nanosecond(0).unwrap_or(due);
    let list = list(&marks, due)?;
    let daemon = Daemon::start(dir.path(), &list, &redis.url())?;
    until("every job has begun", || mark::read(&marks).len() >= JOBS)
        .map_err(|e| format!("{e}: {}\n{}", mark::read(&marks).len(), daemon.log()))?;
    drop(daemon);
    let instant = u128::try_from(due.timestamp()).unwrap_or(0) * 1_000_000_000;
    let ours = last(&marks, instant);
    let floor = floor()?;
    say(&format!(
        "1,000 jobs at once      {ours:8.0} ms   1,000 bare spawns {floor:8.0} ms   {:.2} times (goal {GOAL}), none lost",
        ours / floor
    ));
    Ok(())
}

fn list(marks: &Path, due: DateTime<Utc>) -> Result<String, String> {
    let argv = mark::argv(marks)?;
    let schedule = format!("{} {} {} * * *", due.second(), due.minute(), due.hour());
    let jobs: Vec<_> = (0..JOBS)
        .map(|n| {
            serde_json::json!({
                "name": format!("job-{n}"), "schedule": schedule, "command": argv,
            })
        })
        .collect();
    Ok(format!("{:#}", serde_json::json!({ "jobs": jobs })))
}

/// When the last one began, counted from `instant`.
fn last(marks: &Path, instant: u128) -> f64 {
    let began = mark::read(marks).into_iter().map(|(_, began)| began);
    millis_between(instant, began.max().unwrap_or(instant))
}

/// As many processes, one after the other from one thread, nothing else.
fn floor() -> Result<f64, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let marks = dir.path().join("marks");
    let instant = mark::now();
    let mut children = Vec::new();
    for _ in 0..JOBS {
        children.push(mark::command(&marks)?.spawn().map_err(|e| e.to_string())?);
    }
    for mut child in children {
        child.wait().map_err(|e| e.to_string())?;
    }
    Ok(last(&marks, instant))
}
