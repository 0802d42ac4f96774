//! What happens while the store is away, and what is made good when it is back.

use std::time::Duration;

use super::event::{Action, ClaimId};
use super::lane::{Lane, Phase, Sync};
use super::occ::{Occ, Why};
use super::shared::{Shared, TimerKind};
use crate::config::{CatchUp, OnOverlap, OnStoreDown};
use crate::store::{OpenRun, Overlap};
use crate::time::Timestamp;

const MILLISECOND: Duration = Duration::from_millis(1);

impl Lane {
    /// A claim got no answer; the driver goes on asking.
    pub(super) fn unanswered(&mut self, shared: &mut Shared, unanswered: ClaimId) {
        let (claim, occ, placed) = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Claiming { claim, occ, placed } if claim == unanswered => (claim, occ, placed),
            other => {
                self.phase = other;
                return;
            }
        };
        let current = occ.is_current();
        match self.policy.on_store_down {
            OnStoreDown::Skip if current => {
                self.cancel(shared, claim, placed);
                self.hole = true;
                self.let_go(shared, occ.at, Why::StoreDown);
                self.skip_pending(shared);
            }
            OnStoreDown::Run if current => {
                self.hole = true;
                if self.overlaps_alone() {
                    self.cancel(shared, claim, placed);
                    self.pending.push_front(occ);
                } else {
                    self.notes.add(occ.at, Why::RanAlone);
                    self.start_alone(shared, claim, occ.at);
                }
                self.advance(shared);
            }
            OnStoreDown::Wait | OnStoreDown::Run | OnStoreDown::Skip => {
                shared.arm_utc(occ.deadline, self.job, TimerKind::Deadline(claim));
                self.phase = Phase::Claiming { claim, occ, placed };
            }
        }
    }

    fn skip_pending(&mut self, shared: &mut Shared) {
        for occ in std::mem::take(&mut self.pending) {
            if occ.is_current() {
                self.let_go(shared, occ.at, Why::StoreDown);
            }
        }
    }

    /// The start deadline has passed without an answer: from here on the occurrence is one of
    /// those that `catch_up` judges when the store is back.
    pub(super) fn give_up(&mut self, shared: &mut Shared, claim: ClaimId, placed: bool) {
        self.cancel(shared, claim, placed);
        self.pending.clear();
        self.hole = true;
        self.advance(shared);
    }

    /// Answers whether the occurrence was dealt with.
    pub(super) fn due_while_down(&mut self, shared: &mut Shared, at: Timestamp) -> bool {
        self.hole = true;
        match self.policy.on_store_down {
            OnStoreDown::Wait => true,
            OnStoreDown::Skip => {
                self.let_go(shared, at, Why::StoreDown);
                true
            }
            OnStoreDown::Run => {
                let skip = self.policy.on_overlap == OnOverlap::Skip && self.overlaps_alone();
                if skip {
                    self.let_go(shared, at, Why::StillRunning);
                }
                skip
            }
        }
    }

    fn overlaps_alone(&self) -> bool {
        self.running > 0
    }

    /// Runs what is due without asking anyone (`on_store_down: run`).
    pub(super) fn advance_alone(&mut self, shared: &mut Shared) {
        // What was to be caught up waits for the ledger.
        self.pending.retain(Occ::is_current);
        self.hole_before_pending();
        self.hole = true;
        while !self.overlaps_alone()
            && let Some(occ) = self.pending.pop_front()
        {
            let claim = shared.new_claim();
            if occ.deadline < shared.now.utc {
                continue;
            }
            if !shared.take_place() {
                self.park(shared, claim, occ);
                return;
            }
            self.notes.add(occ.at, Why::RanAlone);
            self.start_alone(shared, claim, occ.at);
        }
        if self.policy.on_overlap == OnOverlap::Skip {
            for occ in std::mem::take(&mut self.pending) {
                self.let_go(shared, occ.at, Why::StillRunning);
            }
        }
    }

    fn start_alone(&mut self, shared: &mut Shared, claim: ClaimId, at: Timestamp) {
        self.running += 1;
        shared.act(Action::StartAlone {
            job: self.job,
            claim,
            at,
        });
    }

    /// The ledger's word: what lies between it and now is judged by `catch_up`.
    pub(super) fn registered(
        &mut self,
        shared: &mut Shared,
        decided_until: Timestamp,
        store_now: Timestamp,
        open: Option<OpenRun>,
    ) {
        if let Some(open) = open {
            self.watch_open(shared, open);
        }
        self.drop_late(shared.now.utc);
        self.await_future(shared, decided_until, store_now);
        if self.grants_grace(shared, decided_until, store_now) {
            return;
        }
        if self.sync == Sync::AskedAgain {
            // They overlap for no other reason than that they were held back: none shall be
            // skipped for that.
            for occ in &mut self.pending {
                occ.overlap = Overlap::Wait;
            }
        }
        self.sync = Sync::Known;
        match self.pending.front_mut() {
            Some(first) => first.hole = false,
            None => self.hole = false,
        }
        self.record_skips(shared, decided_until);
        let occs = self.undecided(shared, decided_until);
        for occ in occs.into_iter().rev() {
            self.pending.push_front(occ);
        }
        self.advance(shared);
    }

    /// What is due by this host's clock and not by the store's was not missed by anybody: it is
    /// claimed at its time.
    fn await_future(&mut self, shared: &Shared, decided_until: Timestamp, store_now: Timestamp) {
        let end = self.undecided_before(shared.now.utc);
        let mut from = decided_until.max(store_now.minus(self.policy.delay));
        let mut future = Vec::new();
        while let Some(at) = self.policy.calendar.next_after(from)
            && at < end
        {
            if self.notes.of(at).is_none() {
                future.push(self.current(at));
            }
            from = at;
        }
        self.seen_until = self.seen_until.max(future.last().map(|occ| occ.at));
        for occ in future.into_iter().rev() {
            self.pending.push_front(occ);
        }
    }

    /// Occurrences of the last moments are left to hosts whose clocks are a little behind: judged
    /// by catch-up at once, they would be dropped just before those hosts come to them.
    fn grants_grace(
        &mut self,
        shared: &mut Shared,
        decided_until: Timestamp,
        now: Timestamp,
    ) -> bool {
        let before = self.undecided_before(shared.now.utc);
        let newest = self.newest_open(decided_until, before);
        // Once it is too late to start it, nobody is about to; nor is this host's next one too
        // late by then.
        let grace = self.policy.skew.min(self.policy.start_deadline);
        let Some(over) = newest.map(|newest| self.policy.not_before(newest).plus(grace)) else {
            return false;
        };
        if self.sync != Sync::Asked || over <= now {
            return false;
        }
        self.sync = Sync::Grace;
        let at = shared.now.boot.plus(over.since(now));
        shared.arm(at, self.job, TimerKind::Grace);
        true
    }

    /// The occurrences to be judged lie before this.
    fn undecided_before(&self, now: Timestamp) -> Timestamp {
        let next = now.minus(self.policy.delay).plus(MILLISECOND);
        (self.pending.front()).map_or(next, |first| next.min(first.at))
    }

    /// Hands over the skips that nobody else decided. Until they are recorded the lane makes no
    /// claims, or the ledger would ask about them a second time.
    fn record_skips(&mut self, shared: &mut Shared, decided_until: Timestamp) {
        let skips = self
            .notes
            .take(|note| note.why == Why::StoreDown && note.range.until > decided_until);
        for note in skips {
            self.closing += 1;
            shared.act(Action::RecordSkips {
                job: self.job,
                range: note.range,
            });
            // Kept, so that catch-up does not take them for missed.
            self.skipped_until = Some(note.range.until);
        }
    }

    /// The occurrences up to now that nobody decided and that policy wants claimed, ascending.
    fn undecided(&mut self, shared: &mut Shared, decided_until: Timestamp) -> Vec<Occ> {
        let decided_until = decided_until.max(self.skipped_until.unwrap_or(decided_until));
        let now = shared.now.utc;
        let before = self.undecided_before(now);
        let Some(newest) = self.newest_open(decided_until, before) else {
            return Vec::new();
        };
        self.seen_until = self.seen_until.max(Some(newest));
        let none = self.policy.catch_up == CatchUp::None;
        self.blind |= none || self.newest_open(decided_until, newest).is_some();
        if none {
            // Nothing may be claimed here for long, and by then nobody is granted it any more.
            let over = self.policy.deadline(newest).plus(MILLISECOND);
            shared.arm_utc(over, self.job, TimerKind::Look);
        }
        let verdict = || vec![self.caught_up(newest).for_verdict()];
        match self.policy.catch_up {
            CatchUp::None if newest >= self.started_at => vec![self.current(newest)],
            // Another host may be about to start it.
            CatchUp::None if self.policy.deadline(newest) >= now => Vec::new(),
            CatchUp::None => verdict(),
            _ if self.policy.window_end(newest) <= now => verdict(),
            CatchUp::Latest => vec![self.caught_up(newest)],
            CatchUp::All => self.all_in_window(decided_until, before, now),
        }
    }

    fn newest_open(&self, decided_until: Timestamp, before: Timestamp) -> Option<Timestamp> {
        let mut at = self.policy.calendar.last_before(before)?;
        while at > decided_until {
            if self.notes.of(at).is_none() {
                return Some(at);
            }
            at = self.policy.calendar.last_before(at)?;
        }
        None
    }

    fn all_in_window(
        &self,
        decided_until: Timestamp,
        before: Timestamp,
        now: Timestamp,
    ) -> Vec<Occ> {
        let oldest = now
            .minus(self.policy.delay)
            .minus(self.policy.catch_up_window);
        let mut from = decided_until.max(oldest);
        let mut occs = Vec::new();
        while let Some(at) = self.policy.calendar.next_after(from)
            && at < before
        {
            if self.notes.of(at).is_none() {
                occs.push(self.caught_up(at));
            }
            from = at;
        }
        occs
    }
}
