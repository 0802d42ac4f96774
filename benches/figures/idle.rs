//! What a daemon with ten thousand jobs takes while none of them is due.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use chrono::{Timelike as _, Utc};

use crate::say;
use crate::surroundings::{Daemon, Redis};

const JOBS: usize = 10_000;
const WATCHED: Duration = Duration::from_secs(30);

pub(crate) fn measure() -> Result<(), String> {
    let redis = Redis::start()?;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    // Twelve hours from now, every day: due far away, and all schedules different.
    let hour = (Utc::now().hour() + 12) % 24;
    let jobs: Vec<_> = (0..JOBS)
        .map(|n| {
            serde_json::json!({
                "name": format!("job-{n}"),
                "schedule": format!("{} {} {hour} * * *", n % 60, n / 60 % 60),
                "command": ["/bin/true"],
            })
        })
        .collect();
    let list = format!("{:#}", serde_json::json!({ "jobs": jobs }));
    let daemon = Daemon::start(dir.path(), &list, &redis.url())?;
    let pid = daemon.pid();
    // Ready is not yet at rest.
    thread::sleep(Duration::from_secs(5));
    let (before, began) = (ticks(pid)?, Instant::now());
    thread::sleep(WATCHED);
    let (after, took) = (ticks(pid)?, began.elapsed());
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .unwrap_or(100);
    #[expect(clippy::cast_precision_loss, reason = "a few ticks")]
    let share = (after - before) as f64 / per_second as f64 / took.as_secs_f64() * 100.0;
    let rss = resident(pid)?;
    // The floor of memory: what the library and its text take with nothing to do.
    let floor = floor(&redis)?;
    say(&format!(
        "idle with 10,000 jobs   {rss:8.1} MB   with one job {floor:8.1} MB   (goal 40 MB); {share:.2} % of a core (goal 0.2 %)"
    ));
    Ok(())
}

fn floor(redis: &Redis) -> Result<f64, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let list = r#"{"jobs":[{"name":"one","schedule":"0 0 1 1 *","command":["/bin/true"]}]}"#;
    let daemon = Daemon::start(dir.path(), list, &redis.url())?;
    resident(daemon.pid())
}

/// User and system time of the process, in ticks.
fn ticks(pid: u32) -> Result<i64, String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| e.to_string())?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    let field = |n: usize| fields.get(n).and_then(|field| field.parse::<i64>().ok());
    match (field(11), field(12)) {
        (Some(user), Some(system)) => Ok(user + system),
        _ => Err(format!("no times in {stat:?}")),
    }
}

/// The resident set, in megabytes.
fn resident(pid: u32) -> Result<f64, String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes
        .map(|kb| kb / 1024.0)
        .ok_or_else(|| "no VmRSS".to_owned())
}
