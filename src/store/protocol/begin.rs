//! Where the ledger of a job begins that a host is about to register for the first time.

use super::state::{Clock, JobState};
use crate::store::Beginning;

/// Creates the ledger of a new job, or moves that of a job that was disabled up to the instant
/// from which the job counts. Neither leaves a record: what was due before never counted.
///
/// Returns whether it could. While the store recovers from a loss of data it creates no ledger,
/// because another host may be about to restore what the store has forgotten.
pub fn begin(job: &mut Option<JobState>, clock: Clock, beginning: &Beginning) -> bool {
    let now = clock.utc();
    let at = beginning.counts.at.min(now);
    // Listed before the loss, so the store has forgotten its ledger.
    let forgotten = clock.past.lost_at().filter(|lost_at| at < *lost_at);
    let Some(state) = job else {
        if clock.past.recovering(clock, beginning.ttl).is_some() {
            return false;
        }
        let start = forgotten.unwrap_or(at);
        let state = job.insert(JobState::starting_after(start));
        state.note(&beginning.fingerprint, start);
        return true;
    };
    // Only the ledger under the lock that the job uses counts.
    if state.moved_from(&beginning.lock).is_some() {
        return true;
    }
    // A ledger without a schedule was made by a manual run, or by a holder after a loss.
    if beginning.counts.again || state.fingerprints.is_empty() {
        state.last = state.last.max(at);
    }
    let first_seen = forgotten.and(clock.past.forgot(clock)).unwrap_or(now);
    state.note(&beginning.fingerprint, first_seen);
    true
}
