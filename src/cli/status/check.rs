//! `status --check`: what is wrong, as monitoring systems want it.
//!
//! Output and exit status are those of Nagios plugins, which Icinga, Sensu, Zabbix and others run as well:
//! the first line is the summary.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::report::{HostStatus, JobStatus, StatusReport, VanishedHost};
use crate::cli::output;
use crate::config::Job;
use crate::ground::sorting::SortShort as _;
use crate::store::Outcome;
use crate::time::Timestamp;

/// How bad something is. The exit status is its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    Ok,
    Warning,
    Critical,
    /// The store cannot be read.
    Unknown,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Warning => "WARNING",
            Self::Critical => "CRITICAL",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// The exit status of a plugin.
    pub(super) fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Ok => 0,
            Self::Warning => 1,
            Self::Critical => 2,
            Self::Unknown => 3,
        })
    }
}

/// Something that is wrong.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct CheckFinding {
    level: Level,
    /// The job that it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
    /// The host that it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    problem: String,
}

/// The result of the check. Field names are an interface (`status --check --json`).
#[derive(Debug, Serialize)]
pub(super) struct CheckResult {
    /// The worst level of the problems.
    pub(super) status: Level,
    /// The worst first.
    problems: Vec<CheckFinding>,
    #[serde(skip)]
    summary: String,
}

impl CheckResult {
    /// Judges what `status` found out about the jobs of a list.
    pub(super) fn of(report: &StatusReport, jobs: &[Arc<Job>], max_age: Option<Duration>) -> Self {
        let mut problems = of_store(report);
        problems.extend(report.hosts.iter().filter_map(of_host));
        problems.extend(
            report
                .vanished
                .iter()
                .map(|host| of_vanished(host, report.now)),
        );
        for (status, job) in report.jobs.iter().zip(jobs) {
            let judge = |status| {
                let age = max_age.and_then(|max_age| too_old(status, job, report.now, max_age));
                of_job(status, report.now).or(age)
            };
            let found = judged_on(status).into_iter().filter_map(|(host, on_host)| {
                let (level, problem) = judge(on_host)?;
                let job = Some(status.name.clone());
                Some(CheckFinding {
                    level,
                    job,
                    host: host.cloned(),
                    problem,
                })
            });
            problems.extend(found);
        }
        problems.sort_short_by_key(|problem| std::cmp::Reverse(problem.level));
        let (hosts, jobs) = (report.hosts.len(), report.jobs.len());
        Self {
            status: problems.first().map_or(Level::Ok, |worst| worst.level),
            problems,
            summary: format!("{}, {}", counted(jobs, "job"), counted(hosts, "live host")),
        }
    }

    /// The store cannot be read.
    pub(super) fn unknown(reason: String) -> Self {
        Self {
            status: Level::Unknown,
            problems: vec![CheckFinding {
                level: Level::Unknown,
                job: None,
                host: None,
                problem: reason.clone(),
            }],
            summary: reason,
        }
    }

    /// The output of a plugin: a summary, then a line for each problem.
    pub(super) fn text(&self) -> String {
        let word = self.status.word();
        if matches!(self.status, Level::Ok | Level::Unknown) {
            return format!("{word}: {}\n", self.summary);
        }
        let of_level = |level| {
            let problems = self.problems.iter();
            problems.filter(|problem| problem.level == level).count()
        };
        let mut counts = Vec::new();
        for (level, name) in [(Level::Critical, "critical"), (Level::Warning, "warning")] {
            match of_level(level) {
                0 => {}
                n if level == Level::Warning && n > 1 => counts.push(format!("{n} {name}s")),
                n => counts.push(format!("{n} {name}")),
            }
        }
        let mut text = format!("{word}: {} ({})\n", counts.join(", "), self.summary);
        for problem in &self.problems {
            let _ = write!(text, "{}: ", problem.level.word().to_lowercase());
            if let Some(job) = &problem.job {
                let _ = write!(text, "job {job}: ");
            }
            if let Some(host) = &problem.host {
                let _ = write!(text, "host {host}: ");
            }
            let _ = writeln!(text, "{}", problem.problem);
        }
        text
    }
}

fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// What is wrong with the store, or with all hosts.
fn of_store(report: &StatusReport) -> Vec<CheckFinding> {
    let mut found = Vec::new();
    let mut add = |level, problem| {
        found.push(CheckFinding {
            level,
            job: None,
            host: None,
            problem,
        });
    };
    if report.hosts.is_empty() && report.away.is_none() {
        let problem = format!(
            "no daemon reports to {}: none is up, or none can write to this store (`cronlatch doctor`)",
            report.store
        );
        add(Level::Critical, problem);
    }
    if let Some(away) = &report.away {
        add(Level::Critical, away.clone());
    }
    if let Some(why) = &report.takes_no_writes {
        add(Level::Critical, format!("nothing is claimed: {why}"));
    }
    if let Some(until) = report.recovering_until {
        let problem = format!("the store grants no locks until {until}: it is new or lost data");
        add(Level::Warning, problem);
    }
    let counting = report.nodes.iter().filter(|node| node.counts()).count();
    let all = report.nodes.len();
    if counting < all {
        let quorum = all / 2 + 1;
        let level = if counting < quorum {
            Level::Critical
        } else {
            Level::Warning
        };
        add(
            level,
            format!("{counting} of {all} nodes count, and {quorum} must"),
        );
    }
    found
}

fn of_vanished(host: &VanishedHost, now: Timestamp) -> CheckFinding {
    let ago = output::short(now.since(host.seen_at));
    CheckFinding {
        level: Level::Warning,
        job: None,
        host: Some(host.name.clone()),
        problem: format!("it has vanished: its daemon last reported {ago} ago and did not stop"),
    }
}

fn of_host(host: &HostStatus) -> Option<CheckFinding> {
    let claims_nothing = host.waits.as_ref().or(host.clock_wrong.as_ref());
    let (level, problem) = if let Some(waits) = claims_nothing {
        (Level::Critical, format!("it claims nothing: {waits}"))
    } else if let Some(lacks) = &host.lacks {
        (
            Level::Critical,
            format!("it starts no jobs: it lacks {lacks}"),
        )
    } else if let Some(other) = &host.namesake {
        let problem = format!("another daemon has the same name: {other}");
        (Level::Warning, problem)
    } else if host.config_differs {
        let jobs = host.differing_jobs.as_ref();
        let jobs = jobs.map_or_else(String::new, |jobs| format!(": it {}", jobs.text));
        (Level::Warning, format!("it has another job list{jobs}"))
    } else if let Some(held) = host.held_back.first() {
        let problem = format!("it holds back job {}: {}", held.job, held.reason);
        (Level::Warning, problem)
    } else {
        return None;
    };
    Some(CheckFinding {
        level,
        job: None,
        host: Some(host.name.clone()),
        problem,
    })
}

/// What is judged of a job: the job, or what each live host has of it if they have its occurrences for
/// themselves.
fn judged_on(job: &JobStatus) -> Vec<(Option<&String>, &JobStatus)> {
    let live = job.on_hosts.iter().filter(|on_host| on_host.live);
    let hosts: Vec<_> = live.map(|it| (Some(&it.host), &it.job)).collect();
    if hosts.is_empty() || job.matches_no_host {
        return vec![(None, job)];
    }
    hosts
}

/// The worst that is wrong with a job.
fn of_job(job: &JobStatus, now: Timestamp) -> Option<(Level, String)> {
    if !job.enabled {
        return None;
    }
    if let Some(damage) = &job.damaged {
        let problem = format!("it does not run: {} key {}", damage.kind, damage.key);
        return Some((Level::Critical, problem));
    }
    if job.matches_no_host {
        let problem = "its `hosts` match no live host".to_owned();
        return Some((Level::Critical, problem));
    }
    if let Some(since) = job.overdue_since {
        let late = output::short(now.since(since));
        let problem = format!("overdue for {late} (expect_success_within)");
        return Some((Level::Critical, problem));
    }
    if let Some(last) = &job.last
        && last.outcome.is_failure()
    {
        let word = last.outcome.word();
        let at = last.finished_at.map_or_else(String::new, |at| {
            format!(" {} ago", output::short(now.since(at)))
        });
        let run = (last.run_id.as_ref()).map_or_else(String::new, |run| format!(", run {run}"));
        return Some((Level::Critical, format!("{word}{at}{run}")));
    }
    if let Some(short) = &job.unacknowledged {
        let problem = format!(
            "nothing starts: {} of {} replicas acknowledge its claims",
            short.acknowledged, short.wanted
        );
        return Some((Level::Critical, problem));
    }
    if let Some(run) = job.running.as_ref().filter(|run| run.orphaned) {
        let problem = format!("its run on {0} is orphaned: {0} does not report", run.host);
        return Some((Level::Warning, problem));
    }
    if job.ledger_ahead_ms.is_some() {
        let problem = "its ledger is ahead of the store's clock: it waits".to_owned();
        return Some((Level::Warning, problem));
    }
    let last = job.last.as_ref().map(|last| last.outcome);
    let unresolved = last.filter(|it| matches!(it, Outcome::Missed | Outcome::Unknown));
    unresolved.map(|outcome| {
        let problem = format!("its newest occurrence is {}", outcome.word());
        (Level::Warning, problem)
    })
}

/// Whether a job that was due within `max_age` has not succeeded within it. A paused job is not expected
/// to run.
fn too_old(
    status: &JobStatus,
    job: &Job,
    now: Timestamp,
    max_age: Duration,
) -> Option<(Level, String)> {
    let since = now.minus(max_age);
    let due = job
        .schedule
        .next_after(since)
        .map(|at| at.plus(job.delay()));
    if !status.enabled || status.paused.is_some() || due.is_none_or(|due| due > now) {
        return None;
    }
    let success = status.last_success.as_ref();
    let Some(at) = success.and_then(|success| success.finished_at) else {
        let problem = "it has not succeeded yet".to_owned();
        return Some((Level::Warning, problem));
    };
    (at < since).then(|| {
        let age = output::short(now.since(at));
        let limit = output::short(max_age);
        (
            Level::Critical,
            format!("its last success is {age} ago, which is more than {limit} (--max-age)"),
        )
    })
}
