//! Which claims are granted ahead of their instant: those about which nothing is unusual.
//!
//! Before its instant an occurrence is only ever granted. A held lock, a gap, a pause, or anything that
//! waits may be over by then, so all of these are `Early` until the instant.

use super::clock::{Clock, lead_of};
use super::lock::{Key, LockState};
use crate::store::contract::{Claim, Due, JobState};

/// Whether this is the next occurrence of an idle job with a free lock and nothing else in its ledger.
///
/// On Redis only the short way grants ahead (`scripts/granted.lua`), under these conditions and some of its
/// own: no note about missing replicas, and no key or field that it would have to report. What it does not
/// grant is `Early` until the instant, so it may ask for more than this, but never for less.
///
/// The caller has checked that the claim did not finish, that the job uses this lock, and that the store
/// does not recover.
pub(super) fn is_usual(
    (lock, job): (&LockState, Option<&JobState>),
    clock: Clock,
    claim: &Claim,
    due: &Due,
) -> bool {
    let (Some(job), Some(prev)) = (job, due.prev) else {
        return false;
    };
    let now = clock.utc();
    let is_free = claim.lock.exclusive && lock.key == Key::Absent && lock.token.is_none();
    let is_idle = job.open.is_none()
        && job.waiting.is_empty()
        && job.decided_beyond(job.last).is_empty()
        && job.pauses.is_empty();
    let is_next = due.gap.is_none()
        && job
            .fingerprints
            .iter()
            .any(|(it, _)| *it == due.fingerprint)
        && job.fingerprints.iter().all(|(_, seen)| *seen <= now)
        && job.last < due.scheduled_at
        && job.last <= now
        && prev <= job.base(&due.fingerprint);
    is_free
        && is_idle
        && is_next
        && due.not_before <= now.plus(lead_of(due))
        && now <= due.deadline
        && !clock.past.is_unknowable(due.scheduled_at)
}
