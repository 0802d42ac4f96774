//! The watchdog's book: which leases are due, when each ends, what an answer or a failure means.
//!
//! Plain data without clock, thread or store: every instant is passed in, so that the rules can
//! be tested in any order of events.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::timing;
use super::watchdog::LeaseLost;
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
pub(super) struct LeaseId(pub(super) u64);

/// What renewal needs to know of a lease.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) lock: Lock,
    pub(super) token: Token,
    pub(super) ttl: Duration,
    pub(super) tenure: Tenure,
    /// When the answered claim was sent.
    pub(super) sent: BootInstant,
}

/// One call of `renew`: leases of one TTL, so that one response time-out fits them all.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) sent: BootInstant,
    pub(super) ids: Vec<LeaseId>,
    pub(super) renewals: Vec<Renewal>,
}

/// What the answer to a batch changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) extended: Vec<(LeaseId, BootInstant)>,
    pub(super) lost: Vec<(LeaseId, LeaseLost)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Renewed; may be renewed a little early, together with others.
    Resting,
    /// A renewal was sent then, and is not answered.
    Asked(BootInstant),
    /// The last renewal failed.
    Failed,
}

#[derive(Debug)]
struct Entry {
    terms: Terms,
    ends: BootInstant,
    next: BootInstant,
    phase: Phase,
    failures: u32,
}

/// All leases held, ordered by when they are due and by when they end.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: HashMap<LeaseId, Entry>,
    due: BTreeSet<(BootInstant, LeaseId)>,
    ends: BTreeSet<(BootInstant, LeaseId)>,
}

impl Book {
    /// Takes a lease in; answers when it ends.
    pub(super) fn add(&mut self, id: LeaseId, terms: Terms) -> BootInstant {
        let ends = timing::ends(terms.sent, terms.ttl);
        let next = terms.sent.plus(timing::renew_every(terms.ttl));
        self.due.insert((next, id));
        self.ends.insert((ends, id));
        let entry = Entry {
            terms,
            ends,
            next,
            phase: Phase::Resting,
            failures: 0,
        };
        self.entries.insert(id, entry);
        ends
    }

    /// Forgets a lease; answers to renewals that are under way then change nothing.
    pub(super) fn remove(&mut self, id: LeaseId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.due.remove(&(entry.next, id));
            self.ends.remove(&(entry.ends, id));
        }
    }

    /// When there is something to do next.
    pub(super) fn next_wake(&self) -> Option<BootInstant> {
        let due = self.due.first().map(|(at, _)| *at);
        let end = self.ends.first().map(|(at, _)| *at);
        due.into_iter().chain(end).min()
    }

    /// Strikes out the leases that are over by `now`. To be called before anything else whenever
    /// time may have passed: an answer that was read late must not revive a lease that its holder
    /// could not know to be valid.
    pub(super) fn expire(&mut self, now: BootInstant) -> Vec<LeaseId> {
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
    pub(super) fn ask(&mut self, now: BootInstant) -> Vec<Batch> {
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
            entry.phase = Phase::Asked(now);
            let due = std::mem::replace(&mut entry.next, again);
            self.due.remove(&(due, id));
            self.due.insert((again, id));
        }
        batches.into_values().collect()
    }

    /// Takes in the answer to a batch sent at `sent`. Leases no longer in the book are passed
    /// over.
    pub(super) fn answered(
        &mut self,
        sent: BootInstant,
        ids: &[LeaseId],
        replies: &[RenewReply],
    ) -> Changes {
        let mut changes = Changes::default();
        for (&id, reply) in ids.iter().zip(replies) {
            let why = match reply {
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

    fn renewed(&mut self, id: LeaseId, sent: BootInstant) -> Option<BootInstant> {
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
        entry.phase = Phase::Resting;
        entry.failures = 0;
        self.due.insert((entry.next, id));
        Some(ends)
    }

    /// Takes in that a batch failed. `spread` in 0..=255 draws the pause from its upper half; it
    /// is drawn once per batch, so that the batch stays together.
    pub(super) fn failed(
        &mut self,
        now: BootInstant,
        sent: BootInstant,
        ids: &[LeaseId],
        spread: u8,
    ) {
        for &id in ids {
            let Some(entry) = self.entries.get_mut(&id) else {
                continue;
            };
            // An older attempt that fails says nothing about the one that is under way.
            if entry.phase != Phase::Asked(sent) {
                continue;
            }
            let longest = timing::response_timeout(entry.terms.ttl);
            let pause = FIRST_RETRY
                .saturating_mul(1 << entry.failures.min(8))
                .min(longest);
            let next = now.plus(pause / 2 + pause / 2 * u32::from(spread) / 255);
            self.due.remove(&(entry.next, id));
            self.due.insert((next, id));
            entry.next = next;
            entry.phase = Phase::Failed;
            entry.failures += 1;
        }
    }
}

impl Entry {
    fn window(&self) -> Duration {
        match self.phase {
            Phase::Resting => (self.terms.ttl / WINDOW_SHARE).min(WINDOW_MAX),
            Phase::Asked(_) | Phase::Failed => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Batch, Book, Changes, LeaseId, Terms};
    use crate::lease::LeaseLost;
    use crate::names::{RunId, Token};
    use crate::store::{Lock, RenewReply, Tenure};
    use crate::time::BootInstant;

    const TTL: Duration = Duration::from_secs(30);

    fn at(seconds: f64) -> BootInstant {
        BootInstant::from_duration(Duration::from_secs_f64(1000.0 + seconds))
    }

    fn terms(sent: f64) -> Terms {
        Terms {
            lock: Lock::raw("k"),
            token: Token::from_text("t"),
            ttl: TTL,
            tenure: Tenure::of_lock(1, RunId::from_text("r")),
            sent: at(sent),
        }
    }

    fn ids(batches: &[Batch]) -> Vec<Vec<u64>> {
        batches
            .iter()
            .map(|b| b.ids.iter().map(|id| id.0).collect())
            .collect()
    }

    fn one(sent: f64) -> Book {
        let mut book = Book::default();
        book.add(LeaseId(1), terms(sent));
        book
    }

    #[test]
    fn a_lease_is_renewed_every_third_of_its_ttl_counted_from_the_send() {
        let mut book = one(0.0);
        assert_eq!(book.next_wake(), Some(at(10.0)));
        assert!(book.ask(at(9.99)).is_empty());
        assert_eq!(ids(&book.ask(at(10.0))), [[1]]);
        let changes = book.answered(at(10.0), &[LeaseId(1)], &[RenewReply::Renewed]);
        assert_eq!(changes.extended, [(LeaseId(1), at(39.7))]);
        assert_eq!(book.next_wake(), Some(at(20.0)));
    }

    #[test]
    fn leases_due_close_together_go_in_one_call() {
        let mut book = Book::default();
        for n in 0..10_000_u32 {
            book.add(LeaseId(u64::from(n)), terms(f64::from(n) / 10_001.0));
        }
        book.add(LeaseId(99_999), terms(1.5));
        let batches = book.ask(at(10.0));
        assert_eq!(batches.len(), 1);
        assert_eq!(batches[0].renewals.len(), 10_000);
        assert!(!batches[0].ids.contains(&LeaseId(99_999)));
    }

    #[test]
    fn an_unanswered_renewal_is_sent_again_and_not_with_every_neighbour() {
        let mut book = one(0.0);
        book.ask(at(10.0));
        book.add(LeaseId(2), terms(0.3));
        assert_eq!(ids(&book.ask(at(10.3))), [[2]]);
        assert_eq!(ids(&book.ask(at(11.0))), [[1]]);
    }

    #[test]
    fn a_failed_renewal_is_retried_soon_and_until_the_end() {
        let mut book = one(0.0);
        let mut now = at(10.0);
        let mut tries = 0;
        while book.expire(now).is_empty() {
            for batch in book.ask(now) {
                tries += 1;
                book.failed(now, batch.sent, &batch.ids, 255);
            }
            now = book.next_wake().expect("a lease is held");
        }
        assert_eq!(now, at(29.7));
        assert!(tries > 20, "tried {tries} times");
        assert_eq!(book.next_wake(), None);
    }

    #[test]
    fn the_first_retry_comes_within_a_twentieth_of_a_second() {
        for spread in [0, 128, 255] {
            let mut book = one(0.0);
            book.ask(at(10.0));
            book.failed(at(10.1), at(10.0), &[LeaseId(1)], spread);
            let pause = book.next_wake().expect("held").since(at(10.1));
            assert!(pause >= Duration::from_millis(25), "{pause:?}");
            assert!(pause <= Duration::from_millis(50), "{pause:?}");
        }
    }

    #[test]
    fn an_older_attempt_that_fails_does_not_hurry_the_newer_one() {
        let mut book = one(0.0);
        book.ask(at(10.0));
        book.ask(at(11.0));
        book.failed(at(11.5), at(10.0), &[LeaseId(1)], 0);
        assert_eq!(book.next_wake(), Some(at(12.0)));
    }

    #[test]
    fn a_late_answer_counts_from_its_own_send() {
        let mut book = one(0.0);
        book.ask(at(10.0));
        book.ask(at(11.0));
        let changes = book.answered(at(10.0), &[LeaseId(1)], &[RenewReply::Renewed]);
        assert_eq!(changes.extended, [(LeaseId(1), at(39.7))]);
        let changes = book.answered(at(11.0), &[LeaseId(1)], &[RenewReply::Renewed]);
        assert_eq!(changes.extended, [(LeaseId(1), at(40.7))]);
        // Answers that come out of order never shorten a lease.
        let changes = book.answered(at(10.0), &[LeaseId(1)], &[RenewReply::Renewed]);
        assert_eq!(changes, Changes::default());
        assert!(book.expire(at(40.6)).is_empty());
        assert_eq!(book.expire(at(40.7)), [LeaseId(1)]);
    }

    #[test]
    fn a_lease_taken_or_absent_is_lost_at_once_and_once() {
        for (reply, why) in [
            (RenewReply::Taken, LeaseLost::Taken),
            (RenewReply::Absent, LeaseLost::Absent),
        ] {
            let mut book = one(0.0);
            book.ask(at(10.0));
            let changes = book.answered(at(10.0), &[LeaseId(1)], &[reply]);
            assert_eq!(changes.lost, [(LeaseId(1), why)]);
            let changes = book.answered(at(10.0), &[LeaseId(1)], &[reply]);
            assert_eq!(changes, Changes::default());
            assert_eq!(book.next_wake(), None);
        }
    }

    #[test]
    fn an_answer_for_a_lease_let_go_changes_nothing() {
        let mut book = one(0.0);
        book.ask(at(10.0));
        book.remove(LeaseId(1));
        let changes = book.answered(at(10.0), &[LeaseId(1)], &[RenewReply::Renewed]);
        assert_eq!(changes, Changes::default());
        book.failed(at(10.1), at(10.0), &[LeaseId(1)], 0);
        assert_eq!(book.next_wake(), None);
        assert!(book.ask(at(100.0)).is_empty());
    }

    #[test]
    fn a_process_that_wakes_late_loses_the_lease_whatever_answer_lies_ready() {
        let mut book = one(0.0);
        book.ask(at(10.0));
        assert_eq!(book.expire(at(30.0)), [LeaseId(1)]);
        let changes = book.answered(at(10.0), &[LeaseId(1)], &[RenewReply::Renewed]);
        assert_eq!(changes, Changes::default());
        assert!(book.ask(at(30.0)).is_empty());
    }

    #[test]
    fn leases_of_different_length_are_asked_for_separately() {
        let mut book = one(0.0);
        let short = Terms {
            ttl: Duration::from_secs(3),
            ..terms(9.0)
        };
        book.add(LeaseId(2), short);
        assert_eq!(ids(&book.ask(at(10.0))), [[2], [1]]);
    }
}
