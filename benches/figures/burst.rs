//! Many jobs due at one instant: how long until the first and the last have begun, beside as many bare spawns.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::thread;
use std::time::Duration;

use chrono::{DateTime, Timelike as _, Utc};

use crate::mark::Mark;
use crate::surroundings::{Daemon, Redis, millis_between, until};
use crate::{mark, say};

/// The goals: the last start beside that of bare spawns, and the first start in milliseconds.
const GOAL: f64 = 1.1;
const GOAL_OF_FLEET: f64 = 1.2;
const FIRST: f64 = 3.0;

const HOSTS: usize = 3;
const JOBS_OF_FLEET: usize = 6_000;
const MINUTES: usize = 2;
const MINUTE: i64 = 60_000;

/// A thousand jobs at one instant.
pub(crate) fn thousand() -> Result<(), String> {
    at_once(1_000)
}

/// Five thousand jobs at one instant.
pub(crate) fn five_thousand() -> Result<(), String> {
    at_once(5_000)
}

fn at_once(jobs: usize) -> Result<(), String> {
    let redis = Redis::start()?;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let marks = dir.path().join("marks");
    // Far enough away for the daemon to be up and at rest.
    let due = Utc::now() + Duration::from_secs(20);
    let due = due.with_nanosecond(0).unwrap_or(due);
    let schedule = format!("{} {} {} * * *", due.second(), due.minute(), due.hour());
    let list = list(&marks, jobs, ("schedule", &schedule))?;
    let daemon = Daemon::start(dir.path(), &list, &redis.url())?;
    run_once_before(due)?;
    begun(&marks, jobs).map_err(|e| format!("{e}\n{}", daemon.log()))?;
    drop(daemon);
    let floor = floor(jobs)?;
    report(jobs, &starts(&marks, due), (floor, GOAL), "")
}

/// Three hosts that share one list, in which everything is due every minute.
pub(crate) fn fleet() -> Result<(), String> {
    let redis = Redis::start()?;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let marks = dir.path().join("marks");
    let list = list(&marks, JOBS_OF_FLEET, ("every", "1m"))?;
    let mut daemons = Vec::new();
    for host in 1..=HOSTS {
        let name = format!("host-{host}");
        let home = dir.path().join(&name);
        std::fs::create_dir(&home).map_err(|e| e.to_string())?;
        daemons.push(Daemon::start_as(&name, &home, &list, &redis.url())?);
    }
    let logs = || daemons.iter().map(Daemon::log).collect::<String>();
    let dues = minutes_after(Utc::now() + Duration::from_secs(20));
    // Hosts that are up soon run an earlier minute as well. One second before the first measured one, all jobs of the
    // earlier one have begun.
    let first = dues.first().map_or(Duration::ZERO, |due| {
        (*due - Utc::now()).to_std().unwrap_or_default()
    });
    thread::sleep(first.saturating_sub(Duration::from_secs(1)));
    let earlier = lines(&marks);
    for (due, minutes) in dues.iter().zip(1..) {
        run_once_before(*due)?;
        begun(&marks, earlier + minutes * JOBS_OF_FLEET).map_err(|e| format!("{e}\n{}", logs()))?;
    }
    // A job that starts twice does so late.
    thread::sleep(Duration::from_secs(5));
    drop(daemons);
    let floor = (floor(JOBS_OF_FLEET)?, GOAL_OF_FLEET);
    for due in dues {
        let place = format!(", {HOSTS} hosts, {}", due.format("%H:%M"));
        report(JOBS_OF_FLEET, &starts(&marks, due), floor, &place)?;
    }
    Ok(())
}

/// Runs the command once, a moment before an instant. Some machines take back the memory of a program that nobody has
/// run for a minute; the first jobs would then wait until the disk has read it, whatever starts them.
fn run_once_before(due: DateTime<Utc>) -> Result<(), String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut command = mark::command(&dir.path().join("marks"))?;
    let left = (due - Utc::now()).to_std().unwrap_or_default();
    thread::sleep(left.saturating_sub(Duration::from_millis(150)));
    let status = command.status().map_err(|e| e.to_string())?;
    let failed = || format!("the command has failed: {status}");
    status.success().then_some(()).ok_or_else(failed)
}

/// The next full minutes from an instant on.
fn minutes_after(instant: DateTime<Utc>) -> Vec<DateTime<Utc>> {
    let first = (instant.timestamp_millis() / MINUTE + 1) * MINUTE;
    let dues = (first..).step_by(60_000).take(MINUTES);
    dues.filter_map(DateTime::from_timestamp_millis).collect()
}

/// Says when the first and the last job have begun. Fails if one was lost or has started twice.
fn report(
    jobs: usize,
    starts: &BTreeMap<String, Vec<f64>>,
    (floor, goal): (f64, f64),
    place: &str,
) -> Result<(), String> {
    let all = || starts.values().flatten().copied();
    let first = all().fold(f64::INFINITY, f64::min);
    let last = all().fold(f64::NEG_INFINITY, f64::max);
    say(&format!(
        "{jobs} jobs at once{place}   first {first:6.2} ms (goal {FIRST})   last {last:8.0} ms   \
         as many bare spawns {floor:8.0} ms   {:.2} times (goal {goal})",
        last / floor
    ));
    let doubled = starts.values().filter(|starts| starts.len() > 1).count();
    if starts.len() != jobs || doubled > 0 {
        let begun = starts.len();
        return Err(format!(
            "{begun} of {jobs} jobs have started, and {doubled} of them twice"
        ));
    }
    Ok(())
}

/// A list of so many jobs that are all due at once.
fn list(marks: &Path, jobs: usize, due: (&str, &str)) -> Result<String, String> {
    let argv = mark::argv(marks)?;
    let job = |n| serde_json::json!({ "name": format!("job-{n}"), due.0: due.1, "command": argv });
    let jobs: Vec<_> = (0..jobs).map(job).collect();
    Ok(format!("{:#}", serde_json::json!({ "jobs": jobs })))
}

/// Waits until so many jobs have begun.
fn begun(marks: &Path, jobs: usize) -> Result<(), String> {
    until("every job has begun", || lines(marks) >= jobs)
        .map_err(|e| format!("{e}: {}", lines(marks)))
}

/// How many marks there are. To read what they say takes much of the time that is to be measured.
fn lines(marks: &Path) -> usize {
    std::fs::read(marks).map_or(0, |text| text.split(|byte| *byte == b'\n').count() - 1)
}

/// When each job has begun that was due at this instant, in milliseconds after it.
fn starts(marks: &Path, due: DateTime<Utc>) -> BTreeMap<String, Vec<f64>> {
    let instant = due.timestamp_millis();
    let nanos = u128::try_from(instant).unwrap_or(0) * 1_000_000;
    let mut starts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for mark in mark::all(marks) {
        if mark.due == Some(instant) {
            let began = millis_between(nanos, mark.began);
            starts.entry(mark.job).or_default().push(began);
        }
    }
    starts
}

/// As many processes, one after the other from one thread, nothing else: when the last one has begun.
fn floor(processes: usize) -> Result<f64, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let marks = dir.path().join("marks");
    let instant = mark::now();
    let mut children = VecDeque::new();
    for _ in 0..processes {
        children.push_back(mark::command(&marks)?.spawn().map_err(|e| e.to_string())?);
        // A process that has ended counts towards the limit of processes until somebody waits for it.
        while let Some(first) = children.front_mut()
            && first.try_wait().map_err(|e| e.to_string())?.is_some()
        {
            children.pop_front();
        }
    }
    for mut child in children {
        child.wait().map_err(|e| e.to_string())?;
    }
    let began = mark::all(&marks)
        .into_iter()
        .map(|Mark { began, .. }| began);
    Ok(millis_between(instant, began.max().unwrap_or(instant)))
}
