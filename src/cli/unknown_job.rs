//! The error for a job that is not in the list.

use super::Failure;
use crate::config::JobList;
use crate::names::JobName;

/// Returns the error for a job that is not in the list, with a suggestion.
pub(super) fn unknown_job(job: &JobName, list: &JobList) -> Failure {
    let likeness = |name: &JobName| strsim::jaro_winkler(name.as_str(), job.as_str());
    let names = list.jobs.iter().map(|entry| &entry.name);
    let nearest = names.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let mut text = format!("no job {job} in {}", list.path.display());
    if let Some(name) = nearest.filter(|name| likeness(name) > 0.8) {
        text += &format!("\nhelp: did you mean {name}?");
    }
    Failure::Usage(text)
}
