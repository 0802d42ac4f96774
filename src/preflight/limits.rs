//! Whether the limits of this process suffice for as many runs at once as its list allows.

use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit};

use super::{Finding, Subject, ids};
use crate::guard::{self, TaskLimit};

/// Files that the daemon has open without any run: its runtime, its connections, its log.
const FILES: u64 = 64;
/// The files of a run: its output and its error output.
const FILES_OF_RUN: u64 = 2;
/// The daemon's threads, its guard, and a reserve for other processes of the account.
const PROCESSES: u64 = 32;
/// The processes of a run: the command and its reaper.
const PROCESSES_OF_RUN: u64 = 2;

/// What may run at once.
#[derive(Debug, Clone, Copy)]
struct Load {
    runs: u64,
    /// Whether `max_running` sets the number; otherwise each job may run once.
    is_limited: bool,
}

pub(super) fn look(subject: &Subject) -> Vec<Finding> {
    let Some(load) = load(subject) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    // The daemon raises its limit of files to the hard one.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        found.push(files(load, hard));
    }
    if let Some(limit) = guard::user_limit() {
        found.push(processes(load, limit));
    }
    if let Some(limit) = guard::task_limit() {
        found.push(tasks(load, &limit));
    }
    found
}

fn load(subject: &Subject) -> Option<Load> {
    let list = subject.list.as_ref()?;
    let mine =
        |job: &&Arc<crate::config::Job>| job.enabled && job.policies.hosts.matches(&subject.host);
    let jobs = list.jobs.iter().filter(mine).count();
    let max = list.max_running.map_or(jobs, |max| max.get().min(jobs));
    Some(Load {
        runs: u64::try_from(max).unwrap_or(u64::MAX),
        is_limited: max < jobs,
    })
}

impl Load {
    fn text(self) -> String {
        let why = if self.is_limited {
            "max_running"
        } else {
            "one of each job"
        };
        match self.runs {
            1 => format!("1 run at once ({why})"),
            n => format!("{n} runs at once ({why})"),
        }
    }
}

const HARM: &str =
    "further runs do not start here; their occurrences are returned, and other hosts may run them";

fn files(load: Load, limit: u64) -> Finding {
    let needed = FILES + FILES_OF_RUN * load.runs;
    let text = format!(
        "{limit} open files allowed, {needed} needed for {}",
        load.text()
    );
    if limit < needed {
        ids::FILES.warning(
            "this host",
            format!("{text}: {HARM}"),
            "raise LimitNOFILE= of the unit (`ulimit -Hn`), or lower max_running",
        )
    } else {
        ids::FILES.ok("this host", text)
    }
}

fn processes(load: Load, limit: u64) -> Finding {
    let needed = PROCESSES + PROCESSES_OF_RUN * load.runs;
    let text = format!(
        "{limit} processes allowed to this account, {needed} needed for {}",
        load.text()
    );
    if limit < needed {
        ids::PROCESSES.warning(
            "this host",
            format!("{text}: {HARM}"),
            "raise LimitNPROC= of the unit (`ulimit -u`), or lower max_running",
        )
    } else {
        ids::PROCESSES.ok("this host", text)
    }
}

/// A control group counts threads as well, which are few compared with the processes of the runs.
fn tasks(load: Load, limit: &TaskLimit) -> Finding {
    let needed = PROCESSES + PROCESSES_OF_RUN * load.runs;
    let text = format!(
        "{} processes and threads allowed to the control group {} (pids.max), {needed} needed for {}",
        limit.tasks,
        limit.group.display(),
        load.text()
    );
    if limit.tasks < needed {
        ids::PROCESSES.warning(
            "this host",
            format!("{text}: {HARM}"),
            "raise TasksMax= of the unit or of the slice it is in, or lower max_running",
        )
    } else {
        ids::PROCESSES.ok("this host", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Severity::{Ok, Warning};

    #[test]
    fn a_limit_is_enough_if_all_that_may_run_at_once_fits() {
        let load = |runs| Load {
            runs,
            is_limited: true,
        };
        assert_eq!(files(load(500), 1024).severity, Warning);
        assert_eq!(files(load(480), 1024).severity, Ok);
        assert_eq!(processes(load(50), 131).severity, Warning);
        assert_eq!(processes(load(50), 132).severity, Ok);
        let of_group = |tasks| TaskLimit {
            group: "/sys/fs/cgroup/system.slice".into(),
            tasks,
        };
        assert_eq!(tasks(load(50), &of_group(131)).severity, Warning);
        assert_eq!(tasks(load(50), &of_group(132)).severity, Ok);
        let text = files(load(500), 1024).text;
        assert!(text.contains("1024") && text.contains("1064"), "{text}");
    }
}
