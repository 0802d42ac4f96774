//! From an occurrence's instant to the first instruction of its job.

use std::thread;
use std::time::Duration;

use crate::surroundings::{Daemon, Redis, millis_between, percentile, until};
use crate::{mark, say};

const SAMPLES: usize = 100;

pub(crate) fn measure() -> Result<(), String> {
    let redis = Redis::start()?;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let marks = dir.path().join("marks");
    let job = serde_json::json!({
        "name": "tick", "schedule": "* * * * * *", "command": mark::argv(&marks)?,
    });
    let list = serde_json::json!({ "jobs": [job] }).to_string();
    let daemon = Daemon::start(dir.path(), &list, &redis.url())?;
    until("the job has run often enough", || {
        mark::read(&marks).len() >= SAMPLES
    })
    .map_err(|e| format!("{e}\n{}", daemon.log()))?;
    drop(daemon);
    let late: Vec<f64> = mark::read(&marks)
        .into_iter()
        .filter_map(|(due, began)| {
            let due = u128::try_from(due?).ok()? * 1_000_000;
            Some(millis_between(due, began))
        })
        .collect();
    let floor = floor()?;
    for percent in [50, 99] {
        let goal = if percent == 50 { 3.0 } else { 10.0 };
        say(&format!(
            "instant to job, p{percent}     {:8.2} ms   bare spawn {:8.2} ms   (goal {goal} ms)",
            percentile(&late, percent),
            percentile(&floor, percent),
        ));
    }
    Ok(())
}

/// The same program started by hand at a whole second, with nothing in between.
fn floor() -> Result<Vec<f64>, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let marks = dir.path().join("marks");
    let mut due = Vec::new();
    for _ in 0..SAMPLES {
        // What a sleep to an exact instant is late by is the daemon's own affair, not the floor's.
        thread::sleep(Duration::from_millis(100));
        due.push(mark::now());
        let mut child = mark::command(&marks)?.spawn().map_err(|e| e.to_string())?;
        child.wait().map_err(|e| e.to_string())?;
    }
    let began = mark::read(&marks).into_iter().map(|(_, began)| began);
    Ok(due
        .into_iter()
        .zip(began)
        .map(|(due, began)| millis_between(due, began))
        .collect())
}
