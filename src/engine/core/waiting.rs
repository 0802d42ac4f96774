//! How a lane handles the job's waiting list, which is in the ledger. It claims the head when the
//! lock may be free, and when the head's deadline has passed, so that its verdict is recorded.

use std::time::Duration;

use super::event::{Action, ClaimId, OccurrenceNotice};
use super::lane::{Lane, LedgerSync, Phase, Wait};
use super::occurrence::{Aim, Occurrence, Origin, surely_over};
use super::shared::{Mode, Shared, StoreState, TimerKind};
use crate::config::OnLost;
use crate::store::{Head, Kind, Late, Overlap};
use crate::time::Timestamp;

/// The shortest wait for a release, so that a claim which the store always rejects does not become
/// a busy loop.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);

/// How long after a failed try the verdict of an entry behind the head is asked for again.
const BEHIND_AGAIN: Duration = Duration::from_secs(1);

/// Returns the occurrence of an entry of the waiting list, to be claimed.
fn head_of(head: Head, aim: Aim) -> Occurrence {
    Occurrence {
        at: head.scheduled_at,
        kind: head.kind,
        deadline: head.deadline,
        overlap: Overlap::Wait,
        late: Late::Leave,
        aim,
        gap: None,
        origin: Origin::Head,
        blocked: false,
        needs_ledger_sync: false,
    }
}

/// The reply to a claim that did not get the lock.
pub(super) struct Waits {
    pub(super) head: Head,
    pub(super) entered: bool,
    /// The holder of the lock; `None` when it is free.
    pub(super) holder: Option<String>,
    pub(super) remaining: Option<Duration>,
}

impl Lane {
    /// The claim found the lock held, or another occurrence before it.
    pub(super) fn waits(&mut self, shared: &mut Shared, mut occ: Occurrence, waits: &Waits) {
        if occ.origin == Origin::Watch {
            self.unwatch(shared);
        }
        if let Some(holder) = &waits.holder
            && occ.origin == Origin::Lane
        {
            if waits.remaining.is_none() {
                self.report(shared, occ.at, OccurrenceNotice::NoEnd(holder.clone()));
            }
            self.report(shared, occ.at, OccurrenceNotice::Waiting(holder.clone()));
        }
        if occ.origin == Origin::Lane {
            self.query_if_run_missed(shared);
            self.may_have_missed_run = false;
        }
        let free = waits.holder.is_none();
        self.await_head(shared, waits.head, waits.remaining.filter(|_| !free), free);
        if waits.entered || occ.origin != Origin::Lane {
            self.notes.forget_before(occ.at);
            self.note_decided(occ.at);
        } else {
            // The store has applied the drops that the claim contained.
            occ.gap = None;
            occ.blocked = true;
            self.pending.push_front(occ);
        }
        self.advance(shared);
    }

    /// Waits for the lock on behalf of the head of the waiting list.
    fn await_head(
        &mut self,
        shared: &mut Shared,
        head: Head,
        remaining: Option<Duration>,
        is_free: bool,
    ) {
        if shared.mode == Mode::Draining {
            return;
        }
        self.note_former_head(shared, head);
        let claim = shared.new_claim();
        let late = surely_over(head.deadline).max(shared.now.utc.plus(SHORTEST_WAIT));
        shared.arm_utc(late, self.job, TimerKind::HeadLate(claim));
        self.wait = Some(Box::new(Wait {
            head,
            claim,
            ready: is_free,
        }));
        // This host's own run has the lock, and its end triggers the claim.
        if is_free || self.keeps_lock() || self.closing > 0 {
            return;
        }
        let limit = remaining
            .map_or(self.policy.poll, |left| left + Duration::from_millis(5))
            .min(self.policy.poll)
            .max(SHORTEST_WAIT);
        shared.act(Action::AwaitRelease {
            job: self.job,
            claim,
            limit,
        });
    }

    /// Whether a run of this host has the lock until it ends. One that goes on without its lease
    /// (`on_lost: continue`) keeps it from nobody.
    fn keeps_lock(&self) -> bool {
        self.running > 0 && self.policy.on_lost == OnLost::Kill
    }

    /// Waits because the head is due only after `after`: it was added under a wrong clock.
    /// Occurrences that come due before do not wait for it.
    pub(super) fn await_instant(&mut self, shared: &mut Shared, after: Duration) {
        let claim = shared.new_claim();
        if let Some(wait) = &mut self.wait {
            wait.claim = claim;
            let at = shared.now.boot.plus(after.max(SHORTEST_WAIT));
            shared.arm(at, self.job, TimerKind::HeadLate(claim));
        }
        for occ in &mut self.pending {
            occ.blocked = false;
        }
    }

    /// An occurrence of this host returns to the waiting list, and is claimed again once the store
    /// has it.
    pub(super) fn await_returned(&mut self, shared: &mut Shared, at: Timestamp, kind: Kind) {
        let head = Head {
            scheduled_at: at,
            kind,
            deadline: match kind {
                Kind::CatchUp => self.policy.window_end(at),
                // The window counts from the end of a lease that this host may not know, so this
                // may be early. The ledger decides.
                Kind::Rerun => self.policy.not_before(at).plus(self.policy.rerun_window()),
                Kind::Schedule | Kind::Queue | Kind::Manual => self.policy.deadline(at),
            },
        };
        self.await_head(shared, head, None, false);
    }

    /// Applies the waiting list that a read of the ledger returned: its head, and the entry behind it
    /// whose deadline passes first.
    pub(super) fn apply_waiting(
        &mut self,
        shared: &mut Shared,
        head: Option<Head>,
        behind: Option<Head>,
    ) {
        if let (Some(head), Some(behind)) = (head, behind) {
            self.note_behind(shared, head, behind);
        }
        self.apply_head(shared, head);
    }

    /// Applies the head of the waiting list.
    pub(super) fn apply_head(&mut self, shared: &mut Shared, head: Option<Head>) {
        match head {
            Some(head) if self.running > 0 || self.closing > 0 => {
                self.await_head(shared, head, None, false);
            }
            Some(head) => self.await_head(shared, head, None, true),
            // The read may be older than an entry that a claim has added since.
            None => {}
        }
    }

    /// The lock may be free.
    pub(super) fn woken(&mut self, shared: &mut Shared, woken: ClaimId) {
        if let Some(wait) = self.wait.as_mut().filter(|wait| wait.claim == woken) {
            wait.ready = true;
            self.advance(shared);
        }
    }

    /// The head's deadline has passed. Its verdict needs no place, so it does not wait behind an
    /// occurrence that waits for one.
    pub(super) fn head_due(&mut self, shared: &mut Shared, id: ClaimId) {
        if self.wait.as_ref().is_some_and(|wait| wait.claim == id) {
            self.set_aside();
        }
        self.woken(shared, id);
    }

    /// Remembers a head that another entry has come before, such as a run to be repeated.
    fn note_former_head(&mut self, shared: &mut Shared, head: Head) {
        let former = self.wait.as_ref().map(|wait| wait.head);
        if let Some(former) = former.filter(|it| it.scheduled_at != head.scheduled_at) {
            self.note_behind(shared, head, former);
        }
    }

    /// Remembers an entry behind the head, if its deadline is the first to pass.
    fn note_behind(&mut self, shared: &mut Shared, head: Head, entry: Head) {
        let is_first = entry.deadline < head.deadline
            && (self.behind.as_ref()).is_none_or(|behind| entry.deadline < behind.deadline);
        if is_first && shared.mode != Mode::Draining {
            self.behind = Some(Box::new(entry));
            let late = surely_over(entry.deadline);
            shared.arm_utc(late, self.job, TimerKind::BehindLate);
        }
    }

    /// The deadline of an entry behind the head has passed. Its verdict is recorded with any claim, but the
    /// head may wait for its lock or a place for long.
    pub(super) fn behind_due(&mut self, shared: &mut Shared) {
        let is_due = |it: &mut Box<Head>| surely_over(it.deadline) <= shared.now.utc;
        let Some(behind) = self.behind.take_if(is_due) else {
            return;
        };
        self.set_aside();
        let may_claim = matches!(self.phase, Phase::Idle)
            && self.sync != LedgerSync::Rejoining
            && shared.store == StoreState::Up
            && self.closing == 0;
        if may_claim {
            self.begin(shared, head_of(*behind, Aim::Verdict));
        } else {
            self.behind = Some(behind);
            let again = shared.now.boot.plus(BEHIND_AGAIN);
            shared.arm(again, self.job, TimerKind::BehindLate);
            self.advance(shared);
        }
    }

    /// The head of the waiting list, if it is to be claimed now.
    pub(super) fn ready_head(&mut self, now: Timestamp) -> Option<Occurrence> {
        let wait = self.wait.as_mut().filter(|wait| wait.ready)?;
        wait.ready = false;
        let aim = if surely_over(wait.head.deadline) <= now {
            Aim::Verdict
        } else {
            Aim::Run
        };
        Some(head_of(wait.head, aim))
    }

    /// The head was decided, by this host or another. The ledger knows the next head.
    pub(super) fn head_decided(&mut self, shared: &mut Shared) {
        self.wait = None;
        for occ in &mut self.pending {
            occ.blocked = false;
        }
        if shared.mode != Mode::Draining {
            shared.act(Action::QueryLedger { job: self.job });
        }
    }

    /// Returns the kind under which a granted run is recorded.
    pub(super) fn kind_of(occ: &Occurrence, attempt: u32) -> Kind {
        match occ.origin {
            Origin::Lane if attempt > 1 => Kind::Rerun,
            Origin::Watch => Kind::Rerun,
            Origin::Lane | Origin::Head => occ.kind,
        }
    }
}
