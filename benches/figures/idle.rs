//! What a daemon takes while none of its jobs is due, with few and with many jobs.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use chrono::{Timelike as _, Utc};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::say;
use crate::surroundings::{Daemon, Redis};

/// Numbers of jobs and their goals: memory in megabytes, share of a core in percent.
const SIZES: [(usize, f64, f64); 3] = [(1, 8.0, 0.1), (10_000, 25.0, 0.1), (100_000, 120.0, 0.1)];
/// A daemon returns memory that its start has used 5 s and 90 s after it.
const SETTLED: Duration = Duration::from_secs(110);
const WATCHED: Duration = Duration::from_secs(60);
/// A daemon works on for a moment after it is ready, which must not delay the start of the next one.
const APART: Duration = Duration::from_secs(5);

/// One daemon at rest.
struct Resting {
    jobs: usize,
    goals: (f64, f64),
    kind: &'static str,
    ready_after: Duration,
    daemon: Daemon,
    _redis: Option<Redis>,
    _dir: tempfile::TempDir,
}

pub(crate) fn measure() -> Result<(), String> {
    let mut resting = Vec::new();
    for (jobs, memory, share) in SIZES {
        for kind in ["redis", "sqlite"] {
            resting.push(Resting::start(kind, jobs, (memory, share))?);
            thread::sleep(APART);
        }
    }
    // All of them at once: at rest they do not disturb one another.
    thread::sleep(SETTLED);
    let before: Vec<(Duration, Instant)> = resting
        .iter()
        .map(|one| Ok((processor_time(one.daemon.pid())?, Instant::now())))
        .collect::<Result<_, String>>()?;
    thread::sleep(WATCHED);
    for (one, (before, since)) in resting.iter().zip(before) {
        one.report(before, since)?;
    }
    Ok(())
}

impl Resting {
    fn start(kind: &'static str, jobs: usize, goals: (f64, f64)) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        let redis = (kind == "redis").then(Redis::start).transpose()?;
        let store = match &redis {
            Some(redis) => redis.url(),
            None => format!("sqlite:{}", dir.path().join("store.db").display()),
        };
        let list = list(jobs);
        let began = Instant::now();
        let daemon = Daemon::start(dir.path(), &list, &store)?;
        Ok(Self {
            jobs,
            goals,
            kind,
            ready_after: began.elapsed(),
            daemon,
            _redis: redis,
            _dir: dir,
        })
    }

    fn report(&self, before: Duration, since: Instant) -> Result<(), String> {
        let pid = self.daemon.pid();
        let spent = processor_time(pid)?.saturating_sub(before);
        let share = spent.as_secs_f64() / since.elapsed().as_secs_f64() * 100.0;
        let (memory_goal, share_goal) = self.goals;
        say(&format!(
            "idle, {:6} jobs, {:6}   {:6.1} MB ({:5.1} MB of its own; goal {memory_goal} MB)   \
             {share:.2} % of a core (goal {share_goal} %)   ready after {:.2} s",
            self.jobs,
            self.kind,
            memory(pid, "VmRSS")?,
            memory(pid, "RssAnon")?,
            self.ready_after.as_secs_f64()
        ));
        Ok(())
    }
}

/// Jobs that are due once a day in twelve hours, at many different seconds.
fn list(jobs: usize) -> String {
    let hour = (Utc::now().hour() + 12) % 24;
    let jobs: Vec<_> = (0..jobs)
        .map(|n| {
            serde_json::json!({
                "name": format!("job-{n}"),
                "schedule": format!("{} {} {hour} * * *", n % 60, n / 60 % 60),
                "command": ["/bin/true"],
            })
        })
        .collect();
    format!("{:#}", serde_json::json!({ "jobs": jobs }))
}

/// What all threads of the process have used, also those that have ended.
fn processor_time(pid: u32) -> Result<Duration, String> {
    let pid = Pid::from_raw(pid.cast_signed());
    let clock = clock_getcpuclockid(pid).map_err(|e| format!("the clock of {pid}: {e}"))?;
    let time = clock_gettime(clock).map_err(|e| format!("the clock of {pid}: {e}"))?;
    Ok(time.into())
}

/// A figure of the process's status (`VmRSS`, `RssAnon`), in megabytes.
fn memory(pid: u32, which: &str) -> Result<f64, String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
    let value = status.lines().find_map(|line| line.strip_prefix(which));
    let kilobytes = value.and_then(|value| {
        let value = value.trim_start_matches(':').trim().trim_end_matches(" kB");
        value.parse::<f64>().ok()
    });
    kilobytes
        .map(|kb| kb / 1024.0)
        .ok_or_else(|| format!("no {which}"))
}
