//! The short way of a claim.
//!
//! Of the hosts that claim an occurrence one wins, and all others learn that it is decided, or that
//! it runs. That depends on the ledger and the lock alone and changes neither, so it is answered
//! before anything else is looked at, the marker of the store included: no data that was lost or
//! replaced makes a decided occurrence undecided again. On Redis this takes a fraction of the time
//! of the full rules (`scripts/settled.lua`).

use super::claim::LEAD;
use super::state::{Clock, JobState, Key, LockState};
use crate::store::{Claim, ClaimReply, ClaimTarget, RunStatus};

/// Returns the reply to a claim that comes after another host's, or `None` if the full rules are
/// needed.
///
/// An idle ledger that has passed the occurrence has decided it. One with an open run of that very
/// occurrence has it running while the lock holds the run's token. Whatever else there is (an
/// occurrence that waits, a move to another lock, a schedule that is new, a watermark in the
/// future, a token of its own) is for the full rules.
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
        || job.moved.is_some()
        || !job.waiting.is_empty()
        || due.scheduled_at > job.last
        || job.last > now.plus(LEAD)
        || due.not_before > now
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
