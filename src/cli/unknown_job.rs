//! The error for a job that is not in the list.

use super::Failure;
use super::nearest::nearest_name;
use crate::config::JobList;
use crate::names::JobName;

/// Returns the error for a job that is not in the list, with a suggestion.
pub(super) fn unknown_job(job: &JobName, list: &JobList) -> Failure {
    let names = list.jobs.iter().map(|entry| entry.name.as_str());
    let mut text = format!("no job {job} in {}", list.path.display());
    if let Some(name) = nearest_name(job.as_str(), names) {
        text += &format!("\nhelp: did you mean {name}?");
    }
    Failure::Usage(text)
}
