//! The watchdog's table: which leases are due, when each ends, what an answer or a failure means.
//!
//! Plain data without clock, thread or store: every instant is passed in, so that the rules can
//! be tested in any order of events.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::watchdog::LeaseLost;
use crate::ground::timing;
use crate::names::Token;
use crate::store::{Lock, RenewReply, Renewal, Tenure};
use crate::time::BootInstant;

/// The first pause after a failed renewal; it doubles up to the response time-out.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// Leases that are due within this share of their TTL are renewed together.
const WINDOW_SHARE: u32 = 30;
/// The longest such window.
const WINDOW_MAX: Duration = Duration::from_secs(1);

/// A lease within the watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// What renewal needs to know of a lease.
#[derive(Debug)]
pub struct Terms {
    pub lock: Lock,
    pub token: Token,
    pub ttl: Duration,
    pub tenure: Tenure,
    /// When the answered claim was sent.
    pub sent: BootInstant,
    /// No renewal is sent after this; `None`: the lease is renewed for as long as it is held.
    pub renew_until: Option<BootInstant>,
}

impl Terms {
    fn may_renew(&self, at: BootInstant) -> bool {
        self.renew_until.is_none_or(|until| at <= until)
    }
}

/// One call of `renew`: leases of one TTL, so that one response time-out fits them all.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    pub sent: BootInstant,
    pub ids: Vec<LeaseId>,
    pub renewals: Vec<Renewal>,
}

/// What the answer to a batch changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub extended: Vec<(LeaseId, BootInstant)>,
    pub lost: Vec<(LeaseId, LeaseLost)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RenewalPhase {
    /// Renewed; may be renewed a little early, together with others.
    Resting,
    /// A renewal was sent then, and is not answered.
    Asked(BootInstant),
    /// The last renewal failed.
    Failed,
}

#[derive(Debug)]
struct LeaseEntry {
    terms: Terms,
    ends: BootInstant,
    next: BootInstant,
    phase: RenewalPhase,
    failures: u32,
}

/// All leases held, ordered by when they are due and by when they end.
#[derive(Debug, Default)]
pub struct LeaseTable {
    entries: HashMap<LeaseId, LeaseEntry>,
    due: BTreeSet<(BootInstant, LeaseId)>,
    ends: BTreeSet<(BootInstant, LeaseId)>,
}

impl LeaseTable {
    /// Takes a lease in; answers when it ends.
    pub fn add(&mut self, id: LeaseId, terms: Terms) -> BootInstant {
        let ends = timing::ends(terms.sent, terms.ttl);
        let next = terms.sent.plus(timing::renew_every(terms.ttl));
        if terms.may_renew(next) {
            self.due.insert((next, id));
        }
        self.ends.insert((ends, id));
        let entry = LeaseEntry {
            terms,
            ends,
            next,
            phase: RenewalPhase::Resting,
            failures: 0,
        };
        self.entries.insert(id, entry);
        ends
    }

    /// Forgets a lease; answers to renewals that are under way then change nothing.
    pub fn remove(&mut self, id: LeaseId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.due.remove(&(entry.next, id));
            self.ends.remove(&(entry.ends, id));
        }
    }

    /// When there is something to do next.
    pub fn next_wake(&self) -> Option<BootInstant> {
        let due = self.due.first().map(|(at, _)| *at);
        let end = self.ends.first().map(|(at, _)| *at);
        due.into_iter().chain(end).min()
    }

    /// Strikes out the leases that are over by `now`. To be called before anything else whenever
    /// time may have passed: an answer that was read late must not revive a lease that its holder
    /// could not know to be valid.
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

    /// The renewals to send now. Until answered, each is due again after its response time-out.
    pub fn ask(&mut self, now: BootInstant) -> Vec<Batch> {
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
            let terms = &entry.terms;
            let batch = batches.entry(terms.ttl).or_insert_with(|| Batch {
                sent: now,
                ids: Vec::new(),
                renewals: Vec::new(),
            });
            batch.ids.push(id);
            batch.renewals.push(Renewal {
                lock: terms.lock.clone(),
                token: terms.token.clone(),
                ttl: terms.ttl,
                tenure: terms.tenure.clone(),
            });
            let again = now.plus(timing::response_timeout(terms.ttl));
            entry.phase = RenewalPhase::Asked(now);
            let due = std::mem::replace(&mut entry.next, again);
            self.due.remove(&(due, id));
            if entry.terms.may_renew(again) {
                self.due.insert((again, id));
            }
        }
        batches.into_values().collect()
    }

    /// Takes in the answer to a batch sent at `sent`. Leases no longer in the table are passed
    /// over.
    pub fn answered(
        &mut self,
        sent: BootInstant,
        ids: &[LeaseId],
        replies: &[RenewReply],
    ) -> Changes {
        let mut changes = Changes::default();
        for (&id, reply) in ids.iter().zip(replies) {
            let takes_lock = (self.entries.get(&id)).is_none_or(|entry| entry.terms.lock.exclusive);
            let why = match reply {
                // A lock that nobody holds cannot be lost: the store keeps the newest run alone.
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

    /// Takes in that a renewal sent at `sent` succeeded; returns the new end if it is later.
    pub fn renewed(&mut self, id: LeaseId, sent: BootInstant) -> Option<BootInstant> {
        let entry = self.entries.get_mut(&id)?;
        let ends = timing::ends(sent, entry.terms.ttl);
        if ends <= entry.ends {
            return None;
        }
        self.ends.remove(&(entry.ends, id));
        self.ends.insert((ends, id));
        self.due.remove(&(entry.next, id));
        entry.ends = ends;
        entry.next = sent.plus(timing::renew_every(entry.terms.ttl));
        entry.phase = RenewalPhase::Resting;
        entry.failures = 0;
        if entry.terms.may_renew(entry.next) {
            self.due.insert((entry.next, id));
        }
        Some(ends)
    }

    /// Takes in that a batch failed. `spread` in 0..=255 draws the pause from its upper half; it
    /// is drawn once per batch, so that the batch stays together.
    pub fn failed(&mut self, now: BootInstant, sent: BootInstant, ids: &[LeaseId], spread: u8) {
        for &id in ids {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            // An older attempt that fails says nothing about the one that is under way.
            if entry.phase != RenewalPhase::Asked(sent) {
                continue;
            }
            let longest = timing::response_timeout(entry.terms.ttl);
            let pause = FIRST_RETRY
                .saturating_mul(1 << entry.failures.min(8))
                .min(longest);
            let next = now.plus(pause / 2 + pause / 2 * u32::from(spread) / 255);
            self.due.remove(&(entry.next, id));
            if entry.terms.may_renew(next) {
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
            RenewalPhase::Resting => (self.terms.ttl / WINDOW_SHARE).min(WINDOW_MAX),
            RenewalPhase::Asked(_) | RenewalPhase::Failed => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests;
