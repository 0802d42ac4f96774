//! What jobs need of the machine that reads the list: users, groups and shells.

use std::collections::BTreeMap;

use super::environment::Environment;
use super::job::JobPart;
use super::model::Job;
use super::problem::Warning;
use super::program::Command;
use super::source::Span;

/// Returns a warning for each user, group and shell that this machine lacks, at the first job that
/// needs it. Jobs that are disabled, or that `hosts` keeps from this machine, need nothing.
pub(super) fn warnings(parts: &[JobPart], environment: &Environment) -> Vec<Warning> {
    let host = environment.host();
    let runs_here = |job: &Job| {
        job.enabled
            && (job.policies.hosts.0.is_empty()
                || host.as_ref().is_some_and(|h| job.policies.hosts.matches(h)))
    };
    let mut needed: BTreeMap<Need<'_>, (Span, usize)> = BTreeMap::new();
    for part in parts {
        let Some(job) = part.job.as_deref().filter(|job| runs_here(job)) else {
            continue;
        };
        for need in needs(job) {
            let (_, jobs) = needed.entry(need).or_insert((part.place, 0));
            *jobs += 1;
        }
    }
    needed
        .into_iter()
        .filter(|(need, _)| need.is_missing(environment))
        .map(|(need, (place, jobs))| Warning::new(place, need.warning(jobs)))
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need<'a> {
    User(&'a str),
    Group(&'a str),
    Shell(&'a str),
}

fn needs(job: &Job) -> Vec<Need<'_>> {
    let mut needs = Vec::new();
    needs.extend(job.process.user.as_deref().map(Need::User));
    needs.extend(job.process.group.as_deref().map(Need::Group));
    if let Command::Shell { shell, .. } = &*job.command {
        needs.extend(shell.to_str().map(Need::Shell));
    }
    needs
}

impl Need<'_> {
    fn is_missing(self, environment: &Environment) -> bool {
        match self {
            Self::User(name) => !environment.has_user(name),
            Self::Group(name) => !environment.has_group(name),
            Self::Shell(path) => !environment.has_program(path),
        }
    }

    fn warning(self, jobs: usize) -> String {
        let (what, name) = match self {
            Self::User(name) => ("user", name),
            Self::Group(name) => ("group", name),
            Self::Shell(path) => ("shell", path),
        };
        let which = match jobs {
            1 => "this job".to_owned(),
            2 => "this and one more job".to_owned(),
            n => format!("this and {} more jobs", n - 1),
        };
        format!("there is no {what} {name} on this machine: {which} will fail here")
    }
}
