//! What a lane does with the reply to a registration: it catches up what the ledger has not decided.

use std::time::Duration;

use super::answers::{held_back, join_backlog};
use super::event::{Action, DropSpec};
use super::gap::{self, Gap};
use super::lane::{Lane, LedgerSync, Phase, RegistrationState};
use super::occurrence::{NotClaimed, Occurrence, Origin};
use super::shared::{Mode, Shared, TimerKind};
use crate::config::CatchUp;
use crate::store::{GapAnswer, Registered};
use crate::time::Timestamp;

/// Added to bounds that are exclusive where they are used, to include an instant.
const MILLISECOND: Duration = Duration::from_millis(1);

impl Lane {
    /// The store replied to a registration. `catch_up` judges the occurrences between the ledger's
    /// watermark and now.
    pub(super) fn registered(&mut self, shared: &mut Shared, reply: Registered) {
        let (decided_until, store_now) = (reply.decided_until, reply.now);
        self.notes.learn(reply.decided_beyond);
        self.notes.learn_pauses(reply.pauses);
        self.registration = RegistrationState::Done;
        // It may have been set back.
        self.decided_until = Some(decided_until);
        let waited_for_place = self.take_back();
        self.compare_ledger(shared, decided_until, store_now);
        // In a cluster, the server that keeps this job may be behind the one whose clock this host
        // measured. What is not due there yet was not skipped by the whole fleet.
        self.forget_skips_after(store_now.minus(self.policy.delay));
        if let Some(open) = reply.open {
            self.watch_open(shared, open);
        }
        self.apply_head(shared, reply.head);
        self.returned_before_reply(shared);
        self.drop_late(shared.now.utc);
        self.await_future(shared, decided_until, store_now);
        self.drop_passed(shared.now.utc, decided_until, waited_for_place);
        if self.start_grace(shared, decided_until, store_now) {
            // The head of the waiting list does not wait for hosts whose clocks are behind.
            self.advance(shared);
            return;
        }
        if self.sync == LedgerSync::RegisteringAgain {
            for occ in &mut self.pending {
                occ.overlap = held_back(&self.policy, occ.overlap);
            }
        }
        self.sync = LedgerSync::Known;
        match self.pending.front_mut() {
            Some(first) => first.needs_ledger_sync = false,
            None => self.needs_ledger_sync = false,
        }
        let occs = self.take_undecided(shared, decided_until, store_now);
        if !occs.is_empty() {
            for occ in &mut self.pending {
                join_backlog(&self.policy, occ);
            }
        }
        for occ in occs.into_iter().rev() {
            self.pending.push_front(occ);
        }
        self.remove_claimed_from_pending();
        // A full host may send no claim for a long time.
        let carried = !self.pending.is_empty() && shared.has_place();
        match self.phase {
            _ if carried => {}
            Phase::Idle => self.drop_undecided(shared, decided_until, None),
            // They are dropped once the lane has the reply about the rerun or the head.
            Phase::Claiming { ref occ, .. } | Phase::Early { ref occ, .. }
                if occ.origin != Origin::Lane =>
            {
                self.require_sync_before_pending();
            }
            _ => {}
        }
        if waited_for_place && !carried && !self.pending.is_empty() {
            self.require_sync_after_first();
        }
        self.advance(shared);
    }

    /// Moves an occurrence that only waits back to the front of `pending`, so that it is not added
    /// twice. Returns whether one of the lane's own waited for a place.
    ///
    /// A rerun or a head that waits for a place is claimed again after what the reply leads to: the
    /// verdicts of newer occurrences need no place.
    fn take_back(&mut self) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Early { occ, .. } if occ.origin == Origin::Lane => self.put_back(*occ),
            Phase::Parked { occ, .. } => {
                let is_own = occ.origin == Origin::Lane;
                self.put_back(*occ);
                return is_own;
            }
            other => self.phase = other,
        }
        false
    }

    /// Notes that the ledger must be queried after the first pending occurrence, which waits for a
    /// place.
    fn require_sync_after_first(&mut self) {
        match (self.pending.iter_mut().skip(1)).find(|occ| occ.origin == Origin::Lane) {
            Some(occ) => occ.needs_ledger_sync = true,
            None => self.needs_ledger_sync = true,
        }
    }

    /// Removes the occurrence whose claim is in progress, so that it is neither claimed twice nor
    /// run without the store.
    fn remove_claimed_from_pending(&mut self) {
        if let Phase::Claiming { occ: claimed, .. } = &self.phase
            && claimed.origin == Origin::Lane
        {
            let at = claimed.at;
            let is_other = |occ: &Occurrence| occ.origin != Origin::Lane || occ.at != at;
            self.pending.retain(is_other);
        }
    }

    /// With `catch_up: latest`, leaves pending occurrences to `catch_up` if a newer one came due that this
    /// lane does not claim one by one. What waited for a place keeps its turn before those that came due since.
    fn drop_passed(&mut self, now: Timestamp, decided_until: Timestamp, waited_for_place: bool) {
        if self.policy.catch_up != CatchUp::Latest {
            return;
        }
        if self.are_all_passed(now, decided_until) {
            self.pending.retain(|occ| !occ.is_current());
            self.needs_ledger_sync = false;
            return;
        }
        let gap = (1..self.pending.len()).rfind(|place| self.follows_gap(*place, decided_until));
        if let Some(newer) = gap.filter(|_| !waited_for_place) {
            let newer = self.pending.split_off(newer);
            self.pending.retain(|occ| !occ.is_current());
            self.pending.extend(newer);
        }
    }

    /// Whether the newest undecided occurrence is newer than all pending ones.
    fn are_all_passed(&self, now: Timestamp, decided_until: Timestamp) -> bool {
        let Some(last) = self.pending.back().filter(|last| last.is_current()) else {
            return false;
        };
        // An occurrence that has only just come due is claimed in its turn.
        let now = now.minus(self.policy.delay);
        let before = self
            .seen_until
            .map_or(now, |seen| seen.min(now))
            .plus(MILLISECOND);
        let newest = self.newest_undecided_here(decided_until, before);
        self.needs_ledger_sync && newest.is_some_and(|newest| last.at < newest)
    }

    /// Whether there are undecided occurrences between the pending one at this place and the one before.
    fn follows_gap(&self, place: usize, decided_until: Timestamp) -> bool {
        let (before, occ) = (&self.pending[place - 1], &self.pending[place]);
        let from = decided_until.max(before.at);
        occ.needs_ledger_sync && self.newest_undecided_here(from, occ.at).is_some()
    }

    /// Asks the ledger to record, as dropped, undecided occurrences that will not run, unless a claim is about to do
    /// so. What was due until `horizon` is `unknown`, because the store lost data.
    pub(super) fn drop_undecided(
        &mut self,
        shared: &mut Shared,
        decided_until: Timestamp,
        horizon: Option<Timestamp>,
    ) {
        let end = self
            .left_to_others(shared)
            .unwrap_or(shared.now.utc.minus(self.policy.delay).plus(MILLISECOND));
        let end = (self.pending.front()).map_or(end, |first| end.min(first.at));
        if shared.mode == Mode::Draining || end <= decided_until {
            return;
        }
        let now = shared.now.utc;
        let gap = Gap {
            last: decided_until,
            at: end,
        };
        let drop = gap::sort(&self.policy, &self.notes, gap, horizon, now).drop;
        let Some(until) = drop.iter().map(|drop| drop.range.until).max() else {
            return;
        };
        let claim = shared.new_claim();
        self.phase = Phase::Dropping { claim, until };
        shared.act(Action::Drops(DropSpec {
            job: self.job,
            claim,
            answer: GapAnswer {
                if_last: decided_until,
                drop,
            },
        }));
    }

    /// Returns the newest occurrence that another host may still start, with `catch_up: none`.
    fn left_to_others(&self, shared: &Shared) -> Option<Timestamp> {
        let now = shared.now.utc;
        let newest = self
            .policy
            .calendar
            .last_before(now.minus(self.policy.delay).plus(MILLISECOND))?;
        let is_left = self.policy.catch_up == CatchUp::None
            && newest < self.began(shared.now)
            && self.policy.deadline(newest) >= now;
        is_left.then_some(newest)
    }

    /// Adds occurrences that are due by this host's clock, or have fired ahead of their instants, and
    /// are not due by the store's clock. No host has missed them, so they are claimed at their time.
    fn await_future(&mut self, shared: &Shared, decided_until: Timestamp, store_now: Timestamp) {
        let seen = self.seen_until.map(|seen| seen.plus(MILLISECOND));
        let next = shared.now.utc.minus(self.policy.delay).plus(MILLISECOND);
        let next = next.max(seen.unwrap_or(next));
        let end = (self.pending.front()).map_or(next, |first| next.min(first.at));
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
        if self.pending.is_empty() && !future.is_empty() {
            // Nothing has come due after these.
            self.needs_ledger_sync = false;
        }
        self.seen_until = self.seen_until.max(future.last().map(|occ| occ.at));
        for occ in future.into_iter().rev() {
            self.pending.push_front(occ);
        }
    }

    /// Starts a wait if the newest undecided occurrence is recent, and returns whether it did. A
    /// host whose clock is a little behind may be about to claim it; judged now, it would be
    /// dropped first.
    fn start_grace(
        &mut self,
        shared: &mut Shared,
        decided_until: Timestamp,
        store_now: Timestamp,
    ) -> bool {
        let before = self.undecided_before(shared.now.utc);
        let newest = self.newest_claimable(decided_until, before);
        // After the start deadline no host will start it, so the wait is at most that long.
        let grace = self.policy.skew.min(self.policy.start_deadline);
        let Some(over) = newest.map(|newest| self.policy.not_before(newest).plus(grace)) else {
            return false;
        };
        let is_first = matches!(self.sync, LedgerSync::Registering | LedgerSync::Rejoining);
        if !is_first || over <= store_now {
            return false;
        }
        self.sync = LedgerSync::Grace;
        let at = shared.now.boot.plus(over.since(store_now));
        shared.arm(at, self.job, TimerKind::Grace);
        true
    }

    /// Returns the instant before which occurrences are judged.
    fn undecided_before(&self, now: Timestamp) -> Timestamp {
        let next = now.minus(self.policy.delay).plus(MILLISECOND);
        (self.pending.front()).map_or(next, |first| next.min(first.at))
    }

    /// Returns the undecided occurrences up to now that policy claims, ascending.
    fn take_undecided(
        &mut self,
        shared: &mut Shared,
        decided_until: Timestamp,
        store_now: Timestamp,
    ) -> Vec<Occurrence> {
        let now = shared.now.utc;
        let before = self.undecided_before(now);
        let Some(newest) = self.newest_undecided_here(decided_until, before) else {
            return Vec::new();
        };
        self.seen_until = self.seen_until.max(Some(newest));
        let none = self.policy.catch_up == CatchUp::None;
        self.may_have_missed_run |=
            none || self.newest_undecided_here(decided_until, newest).is_some();
        if none {
            // This host may claim nothing for a long time. After the deadline no host is granted the occurrence:
            // the first timer asks whether another host ran it, the second registers again.
            let over = self.policy.deadline(newest).plus(MILLISECOND);
            shared.arm_utc(over, self.job, TimerKind::QueryLedger);
            shared.arm_utc(over, self.job, TimerKind::Resync);
        }
        match self.policy.catch_up {
            CatchUp::None
                if self.policy.deadline(newest) < now
                    || self.has_newer(store_now)
                    || self.ran_newer(newest) =>
            {
                Vec::new()
            }
            CatchUp::None if newest >= self.began(shared.now) => vec![self.current(newest)],
            CatchUp::None => Vec::new(),
            _ if self.policy.window_end(newest) <= now => Vec::new(),
            CatchUp::Latest if self.has_newer(store_now) || self.ran_newer(newest) => Vec::new(),
            CatchUp::Latest => vec![self.caught_up(newest)],
            CatchUp::All => self.all_in_window(decided_until, before, now),
        }
    }

    /// Whether the first pending occurrence is newer and already due. `latest` runs only the
    /// newest, and so does `none` after this host stood still.
    fn has_newer(&self, store_now: Timestamp) -> bool {
        let first = self.pending.front();
        first.is_some_and(|first| self.policy.not_before(first.at) <= store_now)
    }

    /// Whether a newer occurrence ran without the store. `latest` runs no older one after it, and neither does
    /// `none` after this host stood still.
    fn ran_newer(&self, newest: Timestamp) -> bool {
        self.notes.newest_ran().is_some_and(|ran| newest < ran)
    }

    /// Returns the newest occurrence that this host has not decided.
    fn newest_undecided_here(
        &self,
        decided_until: Timestamp,
        before: Timestamp,
    ) -> Option<Timestamp> {
        self.newest(decided_until, before, |note| note.is_none())
    }

    /// Returns the newest occurrence that another host may still claim. One that this host skipped
    /// because it could not reach the store is among them.
    fn newest_claimable(&self, decided_until: Timestamp, before: Timestamp) -> Option<Timestamp> {
        self.newest(decided_until, before, |note| {
            matches!(note, None | Some(NotClaimed::StoreDown))
        })
    }

    fn newest(
        &self,
        decided_until: Timestamp,
        before: Timestamp,
        counts: impl Fn(Option<NotClaimed>) -> bool,
    ) -> Option<Timestamp> {
        let mut at = self.policy.calendar.last_before(before)?;
        while at > decided_until {
            if counts(self.notes.of(at)) {
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
    ) -> Vec<Occurrence> {
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
