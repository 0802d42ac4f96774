//! From an occurrence's instant to the first instruction of its job, next to two lower bounds from
//! the same seconds: a process that was forked ahead of an instant and only executes, and a bare
//! spawn.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::surroundings::{Daemon, Redis, millis_between, percentile, until};
use crate::{mark, say};

const SAMPLES: usize = 100;
const SECOND: u128 = 1_000_000_000;
/// Where in a second a floor is measured; the daemon's job is due at its beginning.
const PREPARED_AT: u128 = 400_000_000;
const SPAWNED_AT: u128 = 700_000_000;
/// How long before its instant a process is prepared.
const AHEAD: u128 = 50_000_000;

pub(crate) fn measure() -> Result<(), String> {
    let redis = Redis::start()?;
    let stores = tempfile::tempdir().map_err(|e| e.to_string())?;
    let embedded = format!("sqlite:{}", stores.path().join("store.db").display());
    // What a job does while the store is down is decided at its instant, so it is not claimed ahead.
    let (ahead, at_its_instant) = ("wait", "skip");
    for (kind, url, on_store_down, shift) in [
        ("", redis.url(), ahead, 0.0),
        (" (embedded)", embedded, ahead, 0.0),
        (" (clock 1.5 s behind)", redis.url(), ahead, -1.5),
        (" (clock 0.7 s ahead)", redis.url(), ahead, 0.7),
        (" (claimed at it)", redis.url(), at_its_instant, 0.0),
    ] {
        let [late, prepared, spawned] = lateness(&url, on_store_down, shift)?;
        for percent in [50, 99] {
            let at = |values: &[f64]| percentile(values, percent);
            let (ours, prepared) = (at(&late), at(&prepared));
            say(&format!(
                "instant to job{kind}, p{percent} {ours:8.2} ms   prepared exec {prepared:8.2} ms   \
                 {:.1} times   bare spawn {:8.2} ms",
                ours / prepared,
                at(&spawned),
            ));
        }
    }
    Ok(())
}

/// Milliseconds from the instant: of the job of a daemon whose clock is shifted by so many seconds, of a
/// prepared process, and of a bare spawn.
fn lateness(store: &str, on_store_down: &str, shift: f64) -> Result<[Vec<f64>; 3], String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let file = |name: &str| dir.path().join(name);
    let job = serde_json::json!({
        "name": "tick", "schedule": "* * * * * *", "command": mark::argv(&file("ours"))?,
        "on_store_down": on_store_down,
        // The clock of the job is the machine's.
        "env": { "LD_PRELOAD": "" },
    });
    let list = serde_json::json!({ "jobs": [job] }).to_string();
    let daemon = if shift == 0.0 {
        Daemon::start(dir.path(), &list, store)?
    } else {
        Daemon::start_shifted(shift, dir.path(), &list, store)?
    };
    until("the job has run", || !mark::read(&file("ours")).is_empty())
        .map_err(|e| format!("{e}\n{}", daemon.log()))?;
    let first = (mark::now() / SECOND + 1) * SECOND;
    for second in (first..).step_by(1_000_000_000).take(SAMPLES) {
        sleep_until(second + PREPARED_AT - AHEAD);
        let mut child = mark::prepared(&file("prepared"), second + PREPARED_AT)?
            .spawn()
            .map_err(|e| e.to_string())?;
        child.wait().map_err(|e| e.to_string())?;
        sleep_until(second + SPAWNED_AT);
        let mut child = mark::command(&file("spawned"))?
            .spawn()
            .map_err(|e| e.to_string())?;
        child.wait().map_err(|e| e.to_string())?;
    }
    drop(daemon);
    let of_daemon = |(due, began): (Option<i64>, u128)| {
        let due = u128::try_from(due?).ok()? * 1_000_000;
        (due >= first).then(|| millis_between(due, began))
    };
    Ok([
        mark::read(&file("ours"))
            .into_iter()
            .filter_map(of_daemon)
            .collect(),
        of_floor(&file("prepared"), PREPARED_AT),
        of_floor(&file("spawned"), SPAWNED_AT),
    ])
}

fn of_floor(file: &Path, place: u128) -> Vec<f64> {
    let began = mark::read(file).into_iter().map(|(_, began)| began);
    began
        .map(|began| millis_between(began / SECOND * SECOND + place, began))
        .collect()
}

fn sleep_until(instant: u128) {
    let left = instant.saturating_sub(mark::now());
    thread::sleep(Duration::from_nanos(u64::try_from(left).unwrap_or(0)));
}
