//! The short path of a claim, for the hosts that lose.
//!
//! Of the hosts that claim an occurrence one wins. The others only need to know that it is decided or
//! running, which depends on the ledger and the lock and changes neither. Therefore this is checked
//! before everything else, including the marker of the store: a loss of data never makes a decided
//! occurrence undecided. On Redis it takes a fraction of the time of the full rules
//! (`scripts/settled.lua`).

use super::clock::{Clock, LEAD, lead_of};
use super::lock::{Key, LockState};
use crate::store::contract::{Claim, ClaimReply, ClaimTarget, JobState, RunStatus};

/// Returns the reply to a claim that comes after another host's, or `None` if the full rules are
/// needed.
///
/// If the watermark has passed the occurrence and no run is open, the occurrence is decided. If the open
/// run is of this occurrence and the lock holds its token, it is running. All other cases (an occurrence
/// that waits, a move to another lock, a new schedule, a watermark in the future, the claim's own token)
/// need the full rules.
pub fn settled(
    lock: &LockState,
    job: Option<&JobState>,
    clock: Clock,
    claim: &Claim,
) -> Option<ClaimReply> {
    let ClaimTarget::Occurrence { due, .. } = &claim.what else {
        return None;
    };
    let (job, now) = (job?, clock.utc());
    let token = &claim.token;
    let own = lock.is_granted_to(token)
        || claim.lock.exclusive && lock.key_holds(token)
        || lock.ending(token).is_some();
    let is_known = job
        .fingerprints
        .iter()
        .any(|(it, _)| *it == due.fingerprint);
    if own
        || !is_known
        || job.moved_from(&claim.lock).is_some()
        || !job.waiting.is_empty()
        || due.scheduled_at > job.last
        || job.last > now.plus(LEAD)
        || due.not_before > now.plus(lead_of(due))
    {
        return None;
    }
    let Some(open) = &job.open else {
        return Some(ClaimReply::AlreadyClaimed(RunStatus::Decided));
    };
    let is_held = matches!(
        &lock.key,
        Key::Value { text, end: Some(_) } if text == open.token.as_str()
    );
    let runs = open.scheduled_at == Some(due.scheduled_at)
        && open.token != *token
        && claim.lock.exclusive
        && is_held;
    runs.then(|| {
        ClaimReply::AlreadyClaimed(RunStatus::Running {
            by: open.host.clone(),
            run_id: open.run_id.clone(),
            attempt: open.attempt,
            remaining: lock.remaining(&open.token, clock),
        })
    })
}
