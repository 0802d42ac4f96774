//! `attempt`: counts the attempts of a run. A rerun after a crash continues the count.

use crate::store::contract::{Attempt, JobState};

/// Notes that a further attempt of the open run is about to start. Returns false, and changes
/// nothing, if the run is not open under this token.
pub fn note_attempt(job: &mut Option<JobState>, attempt: &Attempt) -> bool {
    let here = job
        .as_mut()
        .filter(|job| job.moved_from(&attempt.lock).is_none());
    let open = here.and_then(|job| job.open.as_mut());
    let Some(open) = open.filter(|open| open.token == attempt.token) else {
        return false;
    };
    open.attempt = open.attempt.max(attempt.attempt);
    true
}
