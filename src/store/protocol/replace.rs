//! The one step that moves of ledgers are made of.

use super::state::{Clock, Ending, JobState, LockState};
use crate::store::{Ledger, Replaced, Replacement};

/// The whole ledger, and how the lease of its open run stands.
pub fn ledger(lock: &LockState, job: Option<&JobState>, clock: Clock) -> Ledger {
    let open = job.and_then(|job| job.open.as_ref());
    Ledger {
        state: job.cloned(),
        remaining: open
            .map(|open| lock.remaining(&open.token, clock))
            .unwrap_or_default(),
        ended_at: open
            .and_then(|open| lock.over_for(&open.token, clock))
            .map(|span| clock.utc().minus(span)),
    }
}

/// Replaces a ledger, if it still is as it was read and no run of it holds a lease.
///
/// The same request again gets the same reply. A copy that arrives late finds another ledger and
/// changes nothing, because every move has a number of its own.
pub fn replace(
    lock: &mut LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    replacement: &Replacement,
) -> Replaced {
    if job.as_ref() == Some(&replacement.new) {
        return Replaced::Done;
    }
    // A holder may be about to say that it lives.
    if let Some(remaining) = clock.past.recovering(clock, replacement.ttl) {
        return Replaced::Recovering { remaining };
    }
    if *job != replacement.expected {
        return Replaced::Changed;
    }
    if let Some(open) = job.as_ref().and_then(|job| job.open.as_ref()) {
        let remaining = lock.remaining(&open.token, clock);
        if !remaining.is_zero() {
            return Replaced::Leased { remaining };
        }
    }
    // Their verdicts, if they ever come, replace what is recorded about them here.
    let crashed = replacement.new.waiting.iter();
    for crashed in crashed.filter_map(|entry| entry.crashed.as_ref()) {
        if lock.ending(&crashed.token).is_none() {
            lock.remember(&crashed.token, Ending::Interrupted);
        }
    }
    *job = Some(replacement.new.clone());
    Replaced::Done
}
