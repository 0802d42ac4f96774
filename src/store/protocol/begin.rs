//! `begin`: where the ledger of a job begins, before a host registers the job for the first time. The
//! registry decides from when a job counts.

use super::clock::Clock;
use crate::store::Beginning;
use crate::store::contract::JobState;

/// Creates the ledger of a new job, or moves the ledger of a job that was disabled up to the instant
/// from which the job counts. Neither writes a record, because earlier occurrences never counted.
///
/// Returns whether it was done. While the store recovers from a loss of data it creates no ledger,
/// because another host may be about to restore the lost one.
pub fn begin(job: &mut Option<JobState>, clock: Clock, beginning: &Beginning) -> bool {
    let now = clock.utc();
    let at = beginning.counts.at.min(now);
    // The job was listed before the loss, so its ledger was lost.
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
    // Only the ledger under the current lock of the job counts.
    if state.moved_from(&beginning.lock).is_some() {
        return true;
    }
    // A ledger without a schedule was created by a manual run, or by a holder after a loss.
    if beginning.counts.again || state.fingerprints.is_empty() {
        state.last = state.last.max(at);
    }
    let first_seen = forgotten.and(clock.past.forgot(clock)).unwrap_or(now);
    state.note(&beginning.fingerprint, first_seen);
    true
}
