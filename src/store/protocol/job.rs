//! The questions that the rules ask about the ledger of a job, and its small changes. The ledger
//! itself is data of the [`contract`](crate::store::contract).

use super::clock::Clock;
use super::lock::LockState;
use crate::names::Token;
use crate::store::contract::{
    DECIDED_BEYOND_KEPT, FINGERPRINTS_KEPT, Fingerprint, Head, JobState, Kind, Lock, LockRef, Open,
    OpenRun, Summary, Waiting,
};
use crate::time::Timestamp;
use std::ops::RangeInclusive;

impl JobState {
    /// Returns an empty ledger: occurrences after `last` count.
    pub fn starting_after(last: Timestamp) -> Self {
        Self {
            last,
            decided_beyond: Vec::new(),
            open: None,
            waiting: Vec::new(),
            fingerprints: Vec::new(),
            moved: None,
            pauses: Vec::new(),
            summary: Summary::default(),
        }
    }

    /// Returns the lock that the job uses instead of `lock`, if this ledger is a tombstone.
    pub fn moved_from(&self, lock: &Lock) -> Option<&LockRef> {
        let moved = self.moved.as_ref()?;
        (!moved.to.is(lock)).then_some(&moved.to)
    }

    /// Returns the number of the move with whose data this ledger began; 0 if it began without a move.
    pub(in crate::store) fn began_with(&self) -> u64 {
        self.moved.as_ref().map_or(0, |moved| moved.since)
    }

    /// Notes that an occurrence is decided although earlier ones may not be. If there are too many of
    /// these, the watermark moves over the oldest.
    ///
    /// A ledger without a schedule was created by such a result, and the next result may be for an
    /// earlier occurrence, so all are kept until a move. That of the open run is kept too, see
    /// [`decide_open`](Self::decide_open).
    pub(crate) fn decide_beyond(&mut self, at: Timestamp) {
        let last = self.last;
        if self.is_begun() && at <= last {
            return;
        }
        self.forget_decided();
        self.note_decided(at);
        let surplus = self
            .decided_beyond
            .len()
            .saturating_sub(DECIDED_BEYOND_KEPT);
        let open = self.open.as_ref().and_then(|open| open.scheduled_at);
        let open = open.filter(|at| self.decided_beyond.contains(at));
        if let Some(newest) = self.decided_beyond.drain(..surplus).next_back() {
            self.last = last.max(newest);
        }
        if let Some(open) = open {
            self.note_decided(open);
        }
    }

    /// Notes that the occurrence of the open run is decided if another run's result, under `token`, covers
    /// it. The open run may be returned before it begins, and its occurrence must not wait again then.
    pub(super) fn decide_open(&mut self, token: &Token, decided: &RangeInclusive<Timestamp>) {
        let other = self.open.as_ref().filter(|open| open.token != *token);
        let at = other.and_then(|open| open.scheduled_at);
        if let Some(at) = at.filter(|at| decided.contains(at)) {
            self.forget_decided();
            self.note_decided(at);
        }
    }

    /// Whether the ledger knows a schedule. One that a result created knows none until the job is registered.
    fn is_begun(&self) -> bool {
        !self.fingerprints.is_empty()
    }

    /// Forgets what the watermark has passed, except for the occurrence of the open run.
    fn forget_decided(&mut self) {
        let open = self.open.as_ref().and_then(|open| open.scheduled_at);
        if self.is_begun() {
            self.decided_beyond
                .retain(|known| *known > self.last || Some(*known) == open);
        }
    }

    /// Notes an occurrence as decided, wherever the watermark is.
    pub(crate) fn note_decided(&mut self, at: Timestamp) {
        if !self.decided_beyond.contains(&at) {
            self.decided_beyond.push(at);
            self.decided_beyond.sort_unstable();
        }
    }

    /// Returns the occurrences after `base` that are decided although the watermark is before them.
    pub(super) fn decided_beyond(&self, base: Timestamp) -> Vec<Timestamp> {
        let beyond = self.decided_beyond.iter().copied();
        beyond.filter(|at| *at > base).collect()
    }

    /// Whether this ledger contains a run under `token` whose end is not recorded.
    pub(super) fn carries(&self, token: &Token) -> bool {
        let crashed = |entry: &Waiting| entry.crashed.as_ref().is_some_and(|it| it.token == *token);
        self.open_under(token).is_some() || self.waiting.iter().any(crashed)
    }

    /// Adds a schedule whose occurrences count from `beginning`, and removes the oldest of more than
    /// three. A ledger without any schedule was not created by a registration, and nothing after its
    /// beginning is decided.
    pub(super) fn note(&mut self, fingerprint: &Fingerprint, beginning: Timestamp) {
        if self
            .fingerprints
            .iter()
            .any(|(seen, _)| seen == fingerprint)
        {
            return;
        }
        let beginning = if self.fingerprints.is_empty() {
            beginning.min(self.last)
        } else {
            beginning
        };
        self.fingerprints.push((fingerprint.clone(), beginning));
        let surplus = self.fingerprints.len().saturating_sub(FINGERPRINTS_KEPT);
        self.fingerprints.drain(..surplus);
    }

    /// Returns the instant after which the schedule's occurrences are undecided.
    pub(super) fn base(&self, fingerprint: &Fingerprint) -> Timestamp {
        self.fingerprints
            .iter()
            .find(|(seen, _)| seen == fingerprint)
            .map_or(self.last, |(_, first)| self.last.max(*first))
    }

    /// Returns the first waiting occurrence.
    pub fn head(&self) -> Option<Head> {
        self.waiting.first().map(Waiting::head)
    }

    /// Returns an occurrence that never started to the waiting list: reruns to the front, others in the
    /// order of their instants.
    pub(crate) fn put_back(&mut self, entry: Waiting) {
        let before = |other: &Waiting| {
            other.kind == Kind::Rerun
                || (entry.kind != Kind::Rerun && other.scheduled_at < entry.scheduled_at)
        };
        let place = self
            .waiting
            .iter()
            .take_while(|other| before(other))
            .count();
        self.waiting.insert(place, entry);
    }

    /// Returns the occurrence of a run that never began to the waiting list, unless a run without the store
    /// has decided it in the meantime. A rerun depends only on the run that it repeats.
    pub(crate) fn give_back(&mut self, open: &Open, scheduled_at: Timestamp) {
        if open.kind == Kind::Rerun || !self.decided_beyond.contains(&scheduled_at) {
            self.put_back(given_back(open, scheduled_at));
        }
    }

    pub(super) fn open_under(&self, token: &Token) -> Option<&Open> {
        self.open.as_ref().filter(|open| open.token == *token)
    }
}

/// Returns the entry of an occurrence that was granted and returned before anything ran.
fn given_back(open: &Open, scheduled_at: Timestamp) -> Waiting {
    Waiting {
        scheduled_at,
        kind: open.kind,
        deadline: open.terms.deadline,
        yields: open.terms.yields,
        attempts: open.attempt.saturating_sub(1),
        reruns: open.terms.reruns,
        crashed: None,
    }
}

impl Open {
    /// Whether the run will be repeated once its lease is over.
    pub(crate) fn may_rerun(&self) -> bool {
        let terms = &self.terms;
        self.scheduled_at.is_some()
            && terms.reruns < terms.max_reruns
            && (terms.max_attempts == 0 || self.attempt < terms.max_attempts)
    }

    pub(super) fn report(&self, lock: &LockState, clock: Clock) -> OpenRun {
        OpenRun {
            scheduled_at: self.scheduled_at,
            run_id: self.run_id.clone(),
            by: self.host.clone(),
            attempt: self.attempt,
            started_at: self.started_at,
            remaining: lock.remaining(&self.token, clock),
        }
    }
}
