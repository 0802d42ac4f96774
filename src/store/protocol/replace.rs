//! `replace`: the single step of which moves of ledgers consist. [`relocate`](crate::store::relocate)
//! puts the steps in order.

use super::clock::Clock;
use super::lock::{Ending, LockState};
use crate::store::contract::{JobState, Ledger, Replaced, Replacement};

/// Returns the whole ledger and the state of the lease of its open run.
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

/// Replaces a ledger if it is still as it was read and none of its runs holds a lease.
///
/// The same request gets the same reply again. A late copy finds another ledger and changes nothing,
/// because every move has its own number.
pub fn replace(
    lock: &mut LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    replacement: &Replacement,
) -> Replaced {
    if job.as_ref() == Some(&replacement.new) {
        return Replaced::Done;
    }
    // A holder may be about to restore its lease.
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
    // If their results ever arrive, they replace the records that are written here.
    let crashed = replacement.new.waiting.iter();
    for crashed in crashed.filter_map(|entry| entry.crashed.as_ref()) {
        if lock.ending(&crashed.token).is_none() {
            lock.remember(&crashed.token, Ending::Interrupted);
        }
    }
    *job = Some(replacement.new.clone());
    Replaced::Done
}
