//! The renewal.

use super::recovery::renew_forgotten;
use super::state::{Clock, Effect, JobState, Key, LockState};
use crate::store::{RenewReply, Renewal};

/// Extends a lease whose token matches, and its lease end.
///
/// A lock that vanished before its lease end (evicted, deleted) is set again: its holder still
/// has the right to it. One that is over is not, even if nobody took it: its job may be dead.
/// Only a store that has just lost data asks more: see [`super::recovery`]. `job` is the state of
/// the job whose run the lease was granted for.
pub fn renew(
    lock: &mut LockState,
    job: &mut Option<JobState>,
    clock: Clock,
    renewal: &Renewal,
) -> (RenewReply, Vec<Effect>) {
    let token = &renewal.grant.token;
    let exclusive = renewal.grant.lock.exclusive;
    let granted = lock.is_granted_to(token);
    let reply = match &lock.key {
        _ if !exclusive => {
            if granted {
                RenewReply::Renewed
            } else {
                RenewReply::Absent
            }
        }
        Key::Value { text, .. } if text == token.as_str() => RenewReply::Renewed,
        Key::Value { .. } | Key::OtherType { .. } => RenewReply::Taken,
        Key::Absent if granted && lock.lease_end > clock.lease => RenewReply::Renewed,
        Key::Absent => RenewReply::Absent,
    };
    if reply == RenewReply::Renewed {
        lock.take(exclusive, token, clock.after(renewal.grant.ttl));
        return (reply, Vec::new());
    }
    renew_forgotten(lock, job, clock, renewal, reply)
}
