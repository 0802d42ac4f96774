//! How a lane handles the replies to its claims.

use std::time::Duration;

use super::event::{Action, ClaimId, OccurrenceNotice};
use super::gap::{self, Gap};
use super::lane::{Lane, LedgerAheadReport, LedgerSync, Phase};
use super::occurrence::{Aim, Occurrence, Origin, in_order};
use super::policy::Policy;
use super::shared::{Mode, Shared, TimerKind};
use super::waiting::Waits;
use crate::config::CatchUp;
use crate::store::{
    ClaimReply, GapAnswer, Grant, Kind, Late, Outcome, Overlap, RunStatus, RunTerms,
};
use crate::time::Timestamp;

/// A claim of this lane that was granted.
#[derive(Debug)]
pub(super) struct GrantedClaim {
    pub(super) claim: ClaimId,
    pub(super) grant: Grant,
    /// 1, or more for a rerun.
    pub(super) attempt: u32,
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// The longest wait before an early occurrence is claimed again. The reply may come from a store whose
/// clock is wrong for a moment: while some of several nodes are silent, a node with a slow clock may
/// decide what is due.
const EARLY_POLL: Duration = Duration::from_secs(1);

/// A skipped occurrence whose reply comes this long after its turn had waited for something else until then.
const SKIPPED_LATE: Duration = Duration::from_secs(2);

/// Reports a clock that is ahead of the store's by this much.
const CLOCK_AHEAD: Duration = Duration::from_secs(5);

impl Lane {
    pub(super) fn replied(&mut self, shared: &mut Shared, answered: ClaimId, reply: ClaimReply) {
        let (claim, occ, placed) = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Claiming { claim, occ, placed } if claim == answered => (claim, occ, placed),
            Phase::Dropping { claim, until } if claim == answered => {
                self.dropped(shared, until, reply);
                return;
            }
            other => {
                // The claim was cancelled; the driver sends the cancellation.
                self.phase = other;
                return;
            }
        };
        if placed {
            shared.free_place();
        }
        self.apply_reply(shared, claim, *occ, reply);
    }

    /// Acts on the reply to the claim of an occurrence.
    fn apply_reply(
        &mut self,
        shared: &mut Shared,
        claim: ClaimId,
        occ: Occurrence,
        reply: ClaimReply,
    ) {
        match reply {
            // Grants are events of their own, and these requests drop nothing.
            ClaimReply::Granted { .. } | ClaimReply::Dropped => {}
            ClaimReply::Early { by } => self.early(shared, claim, occ, by),
            ClaimReply::Recovering { remaining } => {
                self.recovering(shared, claim, occ, remaining);
            }
            ClaimReply::AlreadyClaimed(status) => {
                self.already_claimed(shared, &occ, status);
                self.refused(shared, &occ);
            }
            ClaimReply::Finished => self.refused(shared, &occ),
            ClaimReply::Unknown => {
                self.refused_with(shared, &occ, OccurrenceNotice::Unknown);
            }
            ClaimReply::TooLate => {
                self.refused_with(shared, &occ, OccurrenceNotice::TooLate);
            }
            ClaimReply::Paused(pause) => {
                self.notes.learn_pause(&pause);
                self.refused_with(shared, &occ, OccurrenceNotice::Paused(pause.cause()));
            }
            ClaimReply::QueueFull => self.queue_full(shared, &occ),
            ClaimReply::Ahead { by } => {
                let now = shared.now.utc;
                self.compare_ledger(shared, now.plus(by), now);
                self.refused(shared, &occ);
            }
            ClaimReply::Stale => self.stale(shared, claim, occ),
            ClaimReply::Held { by, remaining } => self.held(shared, &occ, by, remaining),
            ClaimReply::Waits {
                head,
                entered,
                by,
                remaining,
            } => {
                let waits = Waits {
                    head,
                    entered,
                    holder: by,
                    remaining,
                };
                self.waits(shared, occ, &waits);
            }
            ClaimReply::Gap {
                last,
                horizon,
                decided_beyond,
                pauses,
            } => {
                self.notes.learn(decided_beyond);
                self.notes.learn_pauses(pauses);
                self.gap(shared, occ, last, horizon);
            }
            ClaimReply::Moved { .. } => {
                if occ.origin == Origin::Lane {
                    self.pending.push_front(Occurrence { gap: None, ..occ });
                }
                // The driver must first find out under which lock the job runs now.
                self.absent(shared);
            }
        }
    }

    fn early(&mut self, shared: &mut Shared, claim: ClaimId, occ: Occurrence, left: Duration) {
        if left >= CLOCK_AHEAD && occ.is_current() && self.told_early != Some(occ.at) {
            self.told_early = Some(occ.at);
            self.report(shared, occ.at, OccurrenceNotice::ClockAhead(left));
        }
        if occ.is_current() {
            self.rivals.early();
        }
        let after = match occ.origin {
            Origin::Lane => left.min(EARLY_POLL),
            Origin::Head | Origin::Watch => left,
        };
        self.not_yet(shared, claim, occ, after);
    }

    fn recovering(
        &mut self,
        shared: &mut Shared,
        claim: ClaimId,
        occ: Occurrence,
        remaining: Duration,
    ) {
        if occ.origin == Origin::Watch {
            self.watch_again(shared, remaining);
            self.advance(shared);
        } else {
            self.ask_again(shared, claim, occ, remaining);
        }
    }

    fn queue_full(&mut self, shared: &mut Shared, occ: &Occurrence) {
        self.report(shared, occ.at, OccurrenceNotice::QueueFull);
        // The reply does not name the head of the queue, which may be a returned occurrence that no
        // lane waits for.
        if self.wait.is_none() && self.running == 0 && self.closing == 0 {
            shared.act(Action::QueryLedger { job: self.job });
        }
        self.refused(shared, occ);
    }

    fn refused_with(&mut self, shared: &mut Shared, occ: &Occurrence, notice: OccurrenceNotice) {
        self.report(shared, occ.at, notice);
        self.refused(shared, occ);
    }

    /// The deadline has passed by the store's clock. The lane waits until it has passed by this
    /// host's clock too, because until then `catch_up` would claim the occurrence again at once.
    fn stale(&mut self, shared: &mut Shared, claim: ClaimId, occ: Occurrence) {
        let left = occ.deadline.plus(MILLISECOND).since(shared.now.utc);
        if left.is_zero() {
            self.require_sync_before_pending();
            self.advance(shared);
        } else {
            self.ask_again(shared, claim, occ, left);
        }
    }

    /// The ledger has recorded the dropped ranges, or has advanced in the meantime.
    fn dropped(&mut self, shared: &mut Shared, until: Timestamp, reply: ClaimReply) {
        match reply {
            ClaimReply::Dropped => {
                self.note_decided(until);
                self.notes
                    .forget_before(until.plus(Duration::from_millis(1)));
            }
            ClaimReply::Gap {
                last,
                horizon,
                decided_beyond,
                pauses,
            } if self.sync != LedgerSync::Rejoining
                && last < until
                && (horizon.is_some() || !pauses.is_empty()) =>
            {
                self.notes.learn(decided_beyond);
                self.notes.learn_pauses(pauses);
                self.drop_undecided(shared, last, horizon);
            }
            ClaimReply::Early { by } => {
                let at = shared.now.boot.plus(by + Duration::from_millis(1));
                shared.arm(at, self.job, TimerKind::Resync);
            }
            ClaimReply::Recovering { remaining } => {
                let at = shared.now.boot.plus(remaining);
                shared.arm(at, self.job, TimerKind::Resync);
            }
            ClaimReply::Moved { .. } => return self.absent(shared),
            _ => self.needs_ledger_sync = true,
        }
        self.advance(shared);
    }

    pub(super) fn ask_again(
        &mut self,
        shared: &mut Shared,
        claim: ClaimId,
        occ: Occurrence,
        after: Duration,
    ) {
        let at = shared.now.boot.plus(after.max(Duration::from_millis(1)));
        shared.arm(at, self.job, TimerKind::Early(claim));
        self.phase = Phase::Early {
            claim,
            occ: Box::new(occ),
        };
    }

    /// A claim was granted.
    pub(super) fn granted(&mut self, shared: &mut Shared, granted: GrantedClaim) {
        let (occ, placed) = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Claiming { claim, occ, placed } if claim == granted.claim => (occ, placed),
            other => {
                // This lane no longer waits for the claim.
                self.phase = other;
                shared.act(Action::GiveBack {
                    job: self.job,
                    grant: granted.grant,
                });
                return;
            }
        };
        if occ.aim == Aim::Verdict || shared.mode == Mode::Draining {
            if placed {
                shared.free_place();
            }
            shared.act(Action::GiveBack {
                job: self.job,
                grant: granted.grant,
            });
        } else {
            self.start(shared, &occ, granted);
        }
        self.decided(shared, &occ);
    }

    fn start(&mut self, shared: &mut Shared, occ: &Occurrence, granted: GrantedClaim) {
        if occ.origin != Origin::Watch {
            self.may_have_missed_run = false;
        }
        self.ahead = LedgerAheadReport::NotReported;
        if occ.is_current() {
            self.rivals.won(self.is_ahead(shared.now.utc, occ));
        }
        self.notes.learn_resumed(shared.now.utc);
        self.running += 1;
        shared.act(Action::Start {
            job: self.job,
            claim: granted.claim,
            at: occ.at,
            kind: Self::kind_of(occ, granted.attempt),
            grant: granted.grant,
            attempt: granted.attempt,
            terms: RunTerms {
                reruns: granted.attempt.saturating_sub(1),
                yields: occ.overlap == Overlap::Wait && occ.origin == Origin::Lane,
                ..self.policy.terms(occ.deadline)
            },
        });
        if occ.origin == Origin::Watch {
            self.unwatch(shared);
            self.head_decided(shared);
        } else {
            self.unwatch_own(shared, occ.at);
        }
    }

    /// The occurrence was decided without this host, and so was everything that this lane skipped
    /// before it.
    fn refused(&mut self, shared: &mut Shared, occ: &Occurrence) {
        match occ.origin {
            Origin::Lane => {
                self.query_if_run_missed(shared);
                self.may_have_missed_run = false;
            }
            Origin::Watch | Origin::Head => {}
        }
        self.decided(shared, occ);
    }

    /// The occurrence is decided, by this host or another. Continues with the next one.
    fn decided(&mut self, shared: &mut Shared, occ: &Occurrence) {
        match occ.origin {
            Origin::Lane => {
                self.notes.forget_before(occ.at);
                self.note_decided(occ.at);
            }
            Origin::Head => self.head_decided(shared),
            Origin::Watch => {}
        }
        self.advance(shared);
    }

    fn already_claimed(&mut self, shared: &mut Shared, occ: &Occurrence, status: RunStatus) {
        if occ.is_current() {
            self.rivals.lost(self.is_ahead(shared.now.utc, occ));
        }
        match status {
            RunStatus::Running {
                by,
                run_id,
                remaining,
                ..
            } => {
                // A job has at most one open run, and the reply names it.
                self.may_have_missed_run = false;
                if occ.origin == Origin::Lane {
                    self.report(shared, occ.at, OccurrenceNotice::LostTo(by));
                }
                if remaining.is_zero() {
                    // Its lease is over, and policy does not rerun it.
                    self.unwatch(shared);
                    shared.act(Action::Settle {
                        job: self.job,
                        run_id,
                    });
                } else {
                    self.watch_run(shared, Some(occ.at), run_id, remaining);
                    self.returned_before_reply(shared);
                }
            }
            RunStatus::Decided => {
                if occ.origin == Origin::Watch {
                    self.unwatch(shared);
                } else {
                    self.report(shared, occ.at, OccurrenceNotice::Decided);
                }
            }
        }
    }

    fn held(
        &mut self,
        shared: &mut Shared,
        occ: &Occurrence,
        by: String,
        remaining: Option<Duration>,
    ) {
        if remaining.is_none() {
            self.report(shared, occ.at, OccurrenceNotice::NoEnd(by.clone()));
        }
        let due = self.policy.not_before(occ.at).max(self.turn(occ));
        let late = shared.now.utc.since(due);
        let notice = if late < SKIPPED_LATE {
            OccurrenceNotice::Skipped(by)
        } else {
            OccurrenceNotice::SkippedLate { by, late }
        };
        self.report(shared, occ.at, notice);
        self.refused(shared, occ);
    }

    fn gap(
        &mut self,
        shared: &mut Shared,
        mut occ: Occurrence,
        last: Timestamp,
        horizon: Option<Timestamp>,
    ) {
        if self.sync == LedgerSync::Rejoining {
            // The ledger of the job may be under another lock, and what this one lacks may be decided there.
            self.put_back(Occurrence { gap: None, ..occ });
            return self.advance(shared);
        }
        let gap = Gap { last, at: occ.at };
        let sorted = gap::sort(&self.policy, &self.notes, gap, horizon, shared.now.utc);
        // What was skipped in an outage or a pause was reported then.
        let missed = sorted
            .drop
            .iter()
            .filter(|it| it.outcome == Outcome::Missed);
        let missed: u64 = missed.map(|it| it.range.count).sum();
        if missed > 0 {
            self.report(shared, occ.at, OccurrenceNotice::Dropped(missed));
        }
        let answer = GapAnswer {
            if_last: last,
            drop: sorted.drop,
        };
        let mut run = sorted.run.into_iter();
        let Some(first) = run.next() else {
            occ.gap = Some(answer);
            self.begin(shared, occ);
            return;
        };
        occ.gap = None;
        join_backlog(&self.policy, &mut occ);
        self.pending.push_front(occ);
        for at in run.rev() {
            self.pending.push_front(self.caught_up(at));
        }
        let mut first = self.caught_up(first);
        first.gap = Some(answer);
        self.begin(shared, first);
    }

    /// Returns a past occurrence that runs now. It waits for the lock instead of being skipped,
    /// because the run that holds the lock is what made it late.
    pub(super) fn caught_up(&self, at: Timestamp) -> Occurrence {
        Occurrence {
            at,
            kind: Kind::CatchUp,
            deadline: self.policy.window_end(at).max(self.policy.deadline(at)),
            overlap: match self.policy.catch_up {
                CatchUp::All => Overlap::Queue { limit: u32::MAX },
                CatchUp::None | CatchUp::Latest => Overlap::Wait,
            },
            late: Late::Miss,
            aim: Aim::Run,
            gap: None,
            origin: Origin::Lane,
            blocked: false,
            needs_ledger_sync: false,
        }
    }
}

/// Lets an occurrence that came due behind a backlog join it: the backlog neither causes it to be
/// skipped nor, with `catch_up: all`, makes it too late.
pub(super) fn join_backlog(policy: &Policy, occ: &mut Occurrence) {
    occ.overlap = held_back(policy, occ.overlap);
    if policy.catch_up == CatchUp::All {
        occ.deadline = occ.deadline.max(policy.window_end(occ.at));
    }
}

/// Returns the overlap policy of an occurrence that this host delayed. It overlaps others only
/// because of the delay, so it is not skipped; with `catch_up: all` it is also neither superseded
/// by the next one nor rejected by a full queue.
pub(super) fn held_back(policy: &Policy, overlap: Overlap) -> Overlap {
    match policy.catch_up {
        CatchUp::All => Overlap::Queue { limit: u32::MAX },
        CatchUp::None | CatchUp::Latest => in_order(overlap),
    }
}
