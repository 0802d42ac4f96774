//! The watchdog's table: which leases are due, when each ends, what a reply or a failure means.
//!
//! Plain data without clock, thread or store: every instant is passed in, so that tests can try
//! any order of events.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::lost::LeaseLost;
use crate::ground::timing;
use crate::store::{RenewReply, Renewal};
use crate::time::BootInstant;

/// The first pause after a failed renewal; it doubles up to the response time-out.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// Leases that are due within this share of their TTL are renewed together.
const WINDOW_SHARE: u32 = 30;
/// The longest such window.
const WINDOW_MAX: Duration = Duration::from_secs(1);

/// Names a lease within the watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A lease that is to be renewed.
#[derive(Debug, Clone)]
pub struct RenewedLease {
    /// The request that renews it.
    pub renewal: Renewal,
    /// No renewal is sent after this; `None`: the lease is renewed for as long as it is held.
    pub renew_until: Option<BootInstant>,
}

impl RenewedLease {
    fn ttl(&self) -> Duration {
        self.renewal.grant.ttl
    }

    fn may_renew(&self, at: BootInstant) -> bool {
        self.renew_until.is_none_or(|until| at <= until)
    }
}

/// One call of `renew`: leases of the same TTL, so that one response time-out fits all of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    pub sent: BootInstant,
    pub ids: Vec<LeaseId>,
    pub renewals: Vec<Renewal>,
}

/// What the reply to a batch changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub extended: Vec<(LeaseId, BootInstant)>,
    pub lost: Vec<(LeaseId, LeaseLost)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RenewalPhase {
    /// Renewed; may be renewed a little early, together with others.
    Resting,
    /// A renewal was sent at this instant and has no reply yet.
    Sent(BootInstant),
    /// The last renewal failed.
    Failed,
}

#[derive(Debug)]
struct LeaseEntry {
    lease: RenewedLease,
    ends: BootInstant,
    next: BootInstant,
    phase: RenewalPhase,
    failures: u32,
}

/// All leases that are held, by when they are due and by when they end.
#[derive(Debug, Default)]
pub struct LeaseTable {
    entries: HashMap<LeaseId, LeaseEntry>,
    due: BTreeSet<(BootInstant, LeaseId)>,
    ends: BTreeSet<(BootInstant, LeaseId)>,
}

impl LeaseTable {
    /// Adds a lease; returns when it ends.
    pub fn add(&mut self, id: LeaseId, lease: RenewedLease) -> BootInstant {
        let ends = lease.renewal.grant.ends();
        let next = (lease.renewal.grant.sent).plus(timing::renew_every(lease.ttl()));
        if lease.may_renew(next) {
            self.due.insert((next, id));
        }
        self.ends.insert((ends, id));
        let entry = LeaseEntry {
            lease,
            ends,
            next,
            phase: RenewalPhase::Resting,
            failures: 0,
        };
        self.entries.insert(id, entry);
        ends
    }

    /// Removes a lease; replies to renewals that are under way then change nothing.
    pub fn remove(&mut self, id: LeaseId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.due.remove(&(entry.next, id));
            self.ends.remove(&(entry.ends, id));
        }
    }

    /// When the table next has something to do.
    pub fn next_wake(&self) -> Option<BootInstant> {
        let due = self.due.first().map(|(at, _)| *at);
        let end = self.ends.first().map(|(at, _)| *at);
        due.into_iter().chain(end).min()
    }

    /// Removes the leases that have ended by `now`, and returns them.
    ///
    /// Must be called before anything else whenever time may have passed: a reply that was read
    /// late must not revive a lease that its holder could not know to be valid.
    pub fn expire(&mut self, now: BootInstant) -> Vec<LeaseId> {
        let mut over = Vec::new();
        while let Some(&(end, id)) = self.ends.first()
            && end <= now
        {
            self.remove(id);
            over.push(id);
        }
        over
    }

    /// Returns the renewals to send now. Without a reply, each is due again after its response
    /// time-out.
    pub fn due(&mut self, now: BootInstant) -> Vec<Batch> {
        if self.due.first().is_none_or(|(next, _)| *next > now) {
            return Vec::new();
        }
        let candidates: Vec<LeaseId> = self
            .due
            .iter()
            .take_while(|(next, _)| *next <= now.plus(WINDOW_MAX))
            .map(|(_, id)| *id)
            .collect();
        let mut batches: BTreeMap<Duration, Batch> = BTreeMap::new();
        for id in candidates {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            if entry.next > now.plus(entry.window()) {
                continue;
            }
            let ttl = entry.lease.ttl();
            let batch = batches.entry(ttl).or_insert_with(|| Batch {
                sent: now,
                ids: Vec::new(),
                renewals: Vec::new(),
            });
            batch.ids.push(id);
            batch.renewals.push(entry.lease.renewal.clone());
            let again = now.plus(timing::response_timeout(ttl));
            entry.phase = RenewalPhase::Sent(now);
            let due = std::mem::replace(&mut entry.next, again);
            self.due.remove(&(due, id));
            if entry.lease.may_renew(again) {
                self.due.insert((again, id));
            }
        }
        batches.into_values().collect()
    }

    /// Applies the replies to a batch that was sent at `sent`. Leases that are no longer in the
    /// table are skipped.
    pub fn replied(
        &mut self,
        sent: BootInstant,
        ids: &[LeaseId],
        replies: &[RenewReply],
    ) -> Changes {
        let mut changes = Changes::default();
        for (&id, reply) in ids.iter().zip(replies) {
            let takes_lock = (self.entries.get(&id))
                .is_none_or(|entry| entry.lease.renewal.grant.lock.exclusive);
            let why = match reply {
                // `scope: none` takes no lock, so it cannot lose one: the store keeps the newest run
                // alone.
                RenewReply::Taken | RenewReply::Absent if !takes_lock => {
                    if let Some(ends) = self.renewed(id, sent) {
                        changes.extended.push((id, ends));
                    }
                    continue;
                }
                RenewReply::Renewed => {
                    if let Some(ends) = self.renewed(id, sent) {
                        changes.extended.push((id, ends));
                    }
                    continue;
                }
                RenewReply::Taken => LeaseLost::Taken,
                RenewReply::Absent => LeaseLost::Absent,
                // Due again after its response time-out.
                RenewReply::Unanswered => continue,
            };
            if self.entries.contains_key(&id) {
                self.remove(id);
                changes.lost.push((id, why));
            }
        }
        changes
    }

    /// Applies the success of a renewal that was sent at `sent`; returns the new end if it is
    /// later.
    pub fn renewed(&mut self, id: LeaseId, sent: BootInstant) -> Option<BootInstant> {
        let entry = self.entries.get_mut(&id)?;
        let ends = timing::ends(sent, entry.lease.ttl());
        if ends <= entry.ends {
            return None;
        }
        self.ends.remove(&(entry.ends, id));
        self.ends.insert((ends, id));
        self.due.remove(&(entry.next, id));
        entry.ends = ends;
        entry.next = sent.plus(timing::renew_every(entry.lease.ttl()));
        entry.phase = RenewalPhase::Resting;
        entry.failures = 0;
        if entry.lease.may_renew(entry.next) {
            self.due.insert((entry.next, id));
        }
        Some(ends)
    }

    /// Applies the failure of a batch. `spread` in 0..=255 draws the pause from its upper half; one
    /// value serves the whole batch, so that the batch stays together.
    pub fn failed(&mut self, now: BootInstant, sent: BootInstant, ids: &[LeaseId], spread: u8) {
        for &id in ids {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            // The failure of an older attempt does not concern the one that is under way.
            if entry.phase != RenewalPhase::Sent(sent) {
                continue;
            }
            let longest = timing::response_timeout(entry.lease.ttl());
            let pause = FIRST_RETRY
                .saturating_mul(1 << entry.failures.min(8))
                .min(longest);
            let next = now.plus(pause / 2 + pause / 2 * u32::from(spread) / 255);
            self.due.remove(&(entry.next, id));
            if entry.lease.may_renew(next) {
                self.due.insert((next, id));
            }
            entry.next = next;
            entry.phase = RenewalPhase::Failed;
            entry.failures += 1;
        }
    }
}

impl LeaseEntry {
    fn window(&self) -> Duration {
        match self.phase {
            RenewalPhase::Resting => (self.lease.ttl() / WINDOW_SHARE).min(WINDOW_MAX),
            RenewalPhase::Sent(_) | RenewalPhase::Failed => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
