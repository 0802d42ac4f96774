//! What a lane does while the store is unreachable, and what it catches up afterwards.

use std::time::Duration;

use super::answers::{held_back, join_backlog};
use super::event::{Action, ClaimId, DropSpec};
use super::gap;
use super::lane::{Acquaintance, Lane, LedgerSync, Phase};
use super::occurrence::{Occurrence, Origin, Why};
use super::policy::Exclusion;
use super::shared::{Mode, Shared, TimerKind};
use crate::config::{CatchUp, OnOverlap, OnStoreDown};
use crate::store::{GapAnswer, Head, OpenRun};
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
                self.needs_ledger_sync = true;
                self.let_go(shared, occ.at, Why::StoreDown);
                self.skip_pending(shared);
            }
            OnStoreDown::Run if current && !self.notes.is_paused(shared.now.utc) => {
                self.needs_ledger_sync = true;
                if self.overlaps_alone() {
                    self.cancel(shared, claim, placed);
                    self.pending.push_front(occ);
                } else {
                    self.note(occ.at, Why::RanAlone);
                    self.start_alone(shared, claim, occ.at);
                }
                self.advance(shared);
            }
            // What is in the ledger stays there; what is to be caught up is judged again. Neither
            // holds up what comes due meanwhile.
            OnStoreDown::Run | OnStoreDown::Skip => {
                self.cancel(shared, claim, placed);
                self.require_sync_before_pending();
                self.advance(shared);
            }
            OnStoreDown::Wait => {
                if self.policy.catch_up == CatchUp::All {
                    // They will meet this one's late run: no reason to skip them.
                    for later in &mut self.pending {
                        join_backlog(&self.policy, later);
                    }
                }
                shared.arm_utc(occ.deadline, self.job, TimerKind::Deadline(claim));
                self.phase = Phase::Claiming { claim, occ, placed };
            }
        }
    }

    /// The store answers, and cannot use this job's keys; the driver goes on asking. Nobody runs
    /// the job meanwhile: unlike in an outage, `on_store_down: run` would run it on every host.
    pub(super) fn unusable(&mut self, shared: &mut Shared, unusable: ClaimId) {
        if let Phase::Claiming { claim, occ, .. } = &self.phase
            && *claim == unusable
        {
            shared.arm_utc(occ.deadline, self.job, TimerKind::Deadline(*claim));
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
        self.needs_ledger_sync = true;
        self.advance(shared);
    }

    /// Answers whether the occurrence was dealt with.
    pub(super) fn due_while_down(&mut self, shared: &mut Shared, at: Timestamp) -> bool {
        self.needs_ledger_sync = true;
        match self.policy.on_store_down {
            OnStoreDown::Wait => true,
            OnStoreDown::Skip => {
                self.let_go(shared, at, Why::StoreDown);
                true
            }
            // The ledger skips it once the store is back.
            OnStoreDown::Run if self.notes.is_paused(shared.now.utc) => true,
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
        self.running > 0 && self.policy.exclusion == Exclusion::Lock
    }

    /// Runs what is due without asking anyone (`on_store_down: run`).
    pub(super) fn advance_alone(&mut self, shared: &mut Shared) {
        // What was to be caught up waits for the ledger.
        self.pending.retain(Occurrence::is_current);
        self.require_sync_before_pending();
        self.needs_ledger_sync = true;
        if self.notes.is_paused(shared.now.utc) {
            self.pending.clear();
        }
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
            self.note(occ.at, Why::RanAlone);
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

    /// The store is away. If it has not answered this daemon yet, what came due since the start came
    /// due without it, too: `catch_up` judges that with all the rest.
    pub(super) fn store_lost(&mut self) {
        if self.acquaintance == Acquaintance::New && self.policy.on_store_down == OnStoreDown::Wait
        {
            self.start_anew();
        }
    }

    /// The ledger's state: what lies between it and now is judged by `catch_up`.
    pub(super) fn registered(
        &mut self,
        shared: &mut Shared,
        (decided_until, store_now): (Timestamp, Timestamp),
        open: Option<OpenRun>,
        head: Option<Head>,
    ) {
        self.acquaintance = Acquaintance::Registered;
        let waited_for_place = self.take_back();
        self.compare_ledger(shared, decided_until, store_now);
        if let Some(open) = open {
            self.watch_open(shared, open);
        }
        self.heard_of_head(shared, head);
        self.returned_before_reply(shared);
        self.drop_late(shared.now.utc);
        self.await_future(shared, decided_until, store_now);
        if self.grants_grace(shared, decided_until, store_now) {
            return;
        }
        if self.sync == LedgerSync::AskedAgain {
            for occ in &mut self.pending {
                occ.overlap = held_back(&self.policy, occ.overlap);
            }
        }
        self.sync = LedgerSync::Known;
        self.drop_passed(shared.now.utc, decided_until);
        match self.pending.front_mut() {
            Some(first) => first.needs_ledger_sync = false,
            None => self.needs_ledger_sync = false,
        }
        let occs = self.undecided(shared, decided_until, store_now);
        if !occs.is_empty() {
            for occ in &mut self.pending {
                join_backlog(&self.policy, occ);
            }
        }
        for occ in occs.into_iter().rev() {
            self.pending.push_front(occ);
        }
        self.leave_out_claimed();
        // On a full host no claim may carry it there for long.
        let carried = !self.pending.is_empty() && shared.has_place();
        match self.phase {
            _ if carried => {}
            Phase::Idle => self.drop_undecided(shared, decided_until, None),
            // It lies behind the one that waits for a place.
            Phase::Parked { .. } => self.require_sync_before_pending(),
            _ => {}
        }
        if waited_for_place && !carried && !self.pending.is_empty() {
            self.hole_behind_foremost();
        }
        self.advance(shared);
    }

    /// What has only to wait is the foremost of what is pending: it is not entered once more. Returns
    /// whether it waited for a place.
    fn take_back(&mut self) -> bool {
        let waited_for_place = matches!(self.phase, Phase::Parked { .. });
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Early { occ, .. } | Phase::Parked { occ, .. } if occ.origin == Origin::Lane => {
                self.pending.push_front(occ);
            }
            other => {
                self.phase = other;
                return false;
            }
        }
        waited_for_place
    }

    /// What is undecided behind the foremost, which waits for a place, is asked about after it.
    fn hole_behind_foremost(&mut self) {
        match (self.pending.iter_mut().skip(1)).find(|occ| occ.origin == Origin::Lane) {
            Some(occ) => occ.needs_ledger_sync = true,
            None => self.needs_ledger_sync = true,
        }
    }

    /// An occurrence whose claim is under way is not claimed, or run without the store, once more.
    fn leave_out_claimed(&mut self) {
        if let Phase::Claiming { occ: claimed, .. } = &self.phase
            && claimed.origin == Origin::Lane
        {
            let at = claimed.at;
            let is_other = |occ: &Occurrence| occ.origin != Origin::Lane || occ.at != at;
            self.pending.retain(is_other);
        }
    }

    /// `latest`: what is pending is judged with all the rest if something newer came due that this
    /// lane does not claim one by one.
    fn drop_passed(&mut self, now: Timestamp, decided_until: Timestamp) {
        let Some(last) = self.pending.back().filter(|last| last.is_current()) else {
            return;
        };
        // What has only just come due is claimed in its turn.
        let now = now.minus(self.policy.delay);
        let before = self
            .seen_until
            .map_or(now, |seen| seen.min(now))
            .plus(MILLISECOND);
        let newest = self.newest_open(decided_until, before);
        let is_passed = self.needs_ledger_sync && newest.is_some_and(|newest| last.at < newest);
        if is_passed && self.policy.catch_up == CatchUp::Latest {
            self.pending.retain(|occ| !occ.is_current());
            self.needs_ledger_sync = false;
        }
    }

    /// Has the ledger record what is undecided and will not run, while no claim is about to
    /// carry it there.
    pub(super) fn drop_undecided(
        &mut self,
        shared: &mut Shared,
        last: Timestamp,
        horizon: Option<Timestamp>,
    ) {
        let end = self
            .left_to_others(shared)
            .unwrap_or(shared.now.utc.minus(self.policy.delay).plus(MILLISECOND));
        let end = (self.pending.front()).map_or(end, |first| end.min(first.at));
        if shared.mode == Mode::Draining || end <= last {
            return;
        }
        let now = shared.now.utc;
        let drop = gap::sort(&self.policy, &self.notes, (last, end), horizon, now).drop;
        let Some(until) = drop.iter().map(|drop| drop.range.until).max() else {
            return;
        };
        let claim = shared.new_claim();
        self.phase = Phase::Dropping { claim, until };
        shared.act(Action::Drops(DropSpec {
            job: self.job,
            claim,
            answer: GapAnswer {
                if_last: last,
                drop,
            },
        }));
    }

    /// With `catch_up: none`, the newest occurrence while another host may still start it.
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
        let is_first = matches!(self.sync, LedgerSync::Asked | LedgerSync::Entering);
        if !is_first || over <= now {
            return false;
        }
        self.sync = LedgerSync::Grace;
        let at = shared.now.boot.plus(over.since(now));
        shared.arm(at, self.job, TimerKind::Grace);
        true
    }

    /// The occurrences to be judged lie before this.
    fn undecided_before(&self, now: Timestamp) -> Timestamp {
        let next = now.minus(self.policy.delay).plus(MILLISECOND);
        (self.pending.front()).map_or(next, |first| next.min(first.at))
    }

    /// The occurrences up to now that nobody decided and that policy wants claimed, ascending.
    fn undecided(
        &mut self,
        shared: &mut Shared,
        decided_until: Timestamp,
        store_now: Timestamp,
    ) -> Vec<Occurrence> {
        let now = shared.now.utc;
        let before = self.undecided_before(now);
        let Some(newest) = self.newest_open(decided_until, before) else {
            return Vec::new();
        };
        self.seen_until = self.seen_until.max(Some(newest));
        let none = self.policy.catch_up == CatchUp::None;
        self.may_have_missed_run |= none || self.newest_open(decided_until, newest).is_some();
        if none {
            // Nothing may be claimed here for long, and by then nobody is granted it any more.
            let over = self.policy.deadline(newest).plus(MILLISECOND);
            shared.arm_utc(over, self.job, TimerKind::Look);
            shared.arm_utc(over, self.job, TimerKind::Resync);
        }
        match self.policy.catch_up {
            CatchUp::None if self.policy.deadline(newest) < now => Vec::new(),
            CatchUp::None if newest >= self.began(shared.now) => vec![self.current(newest)],
            CatchUp::None => Vec::new(),
            _ if self.policy.window_end(newest) <= now => Vec::new(),
            CatchUp::Latest if self.has_newer(store_now) || self.ran_newer(newest) => Vec::new(),
            CatchUp::Latest => vec![self.caught_up(newest)],
            CatchUp::All => self.all_in_window(decided_until, before, now),
        }
    }

    /// Whether what is pending is itself the newest that came due: `latest` runs that one alone.
    fn has_newer(&self, store_now: Timestamp) -> bool {
        let first = self.pending.front();
        first.is_some_and(|first| self.policy.not_before(first.at) <= store_now)
    }

    /// Whether a newer occurrence ran without the store: `latest` runs no older one after it.
    fn ran_newer(&self, newest: Timestamp) -> bool {
        self.notes.newest_ran().is_some_and(|ran| newest < ran)
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
