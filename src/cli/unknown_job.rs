//! The errors for a job and for a lock that are not in the list.

use super::Failure;
use super::nearest::nearest_name;
use crate::config::JobList;
use crate::names::{JobName, LockName};

/// Returns the error for a job that is not in the list, with a suggestion.
pub(super) fn unknown_job(job: &JobName, list: &JobList) -> Failure {
    not_listed(job, list, "")
}

/// Returns the error for a job of which neither the list nor the store has anything, with a suggestion.
pub(super) fn job_without_data(job: &JobName, list: &JobList, store: &str) -> Failure {
    not_listed(job, list, &format!(", and {store} has no data about it"))
}

fn not_listed(job: &JobName, list: &JobList, rest: &str) -> Failure {
    let names = list.jobs.iter().map(|entry| entry.name.as_str());
    let help = suggestion(job.as_str(), names);
    Failure::Usage(format!(
        "no job {job} in {}{rest}{help}",
        list.path.display()
    ))
}

/// Returns the error for a lock that neither the list nor the store has, with a suggestion.
pub(super) fn unknown_lock(name: &LockName, list: &JobList, store: &str) -> Failure {
    let jobs = list.jobs.iter();
    let names = jobs.flat_map(|job| [job.name.as_str(), job.lock.name.as_str()]);
    let help = suggestion(name.as_str(), names);
    Failure::Usage(format!(
        "no job or lock {name} in {}; nothing holds a lock of this name in {store}{help}",
        list.path.display()
    ))
}

/// Returns the line that suggests the most similar of these names; empty if none is similar.
fn suggestion<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> String {
    nearest_name(word, names)
        .map_or_else(String::new, |name| format!("\nhelp: did you mean {name}?"))
}
