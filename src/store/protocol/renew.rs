//! `renew`: the renewal of a lease. Only the token that holds the lock can renew it.

use super::clock::Clock;
use super::effect::Effect;
use super::lock::{Key, LockState};
use super::recovery::renew_forgotten;
use crate::store::contract::{JobState, RenewReply, Renewal};

/// Extends a lease whose token matches.
///
/// A lock that disappeared before its lease end (evicted, deleted) is set again, because its holder
/// still has the lease. A lease that has ended is not extended, even if the lock is free: its job may
/// have been killed. For a store that has just lost data see [`recovery`](super::recovery). `job` is the
/// state of the job whose run the lease was granted for.
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
