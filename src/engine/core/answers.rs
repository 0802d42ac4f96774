//! What a lane makes of the store's answers to its claims.

use std::time::Duration;

use super::event::{Action, ClaimId, Said};
use super::gap;
use super::lane::{Lane, Phase};
use super::occ::{Aim, Occ, Why};
use super::shared::{Mode, Shared, TimerKind};
use crate::store::{ClaimReply, GapAnswer, Kind, Overlap, RunStatus};
use crate::time::Timestamp;

/// A clock so far ahead of the store's is worth a word.
const CLOCK_AHEAD: Duration = Duration::from_secs(5);

impl Lane {
    pub(super) fn answered(&mut self, shared: &mut Shared, answered: ClaimId, reply: ClaimReply) {
        let (claim, occ, placed) = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Claiming { claim, occ, placed } if claim == answered => (claim, occ, placed),
            other => {
                // Cancelled meanwhile; the cancellation reaches the store on its own.
                self.phase = other;
                return;
            }
        };
        if let ClaimReply::Granted { fence, attempt, .. } = reply {
            self.granted(shared, claim, &occ, placed, fence, attempt);
            return;
        }
        if placed {
            shared.free_place();
        }
        match reply {
            ClaimReply::Granted { .. } => {}
            ClaimReply::Early { by } => {
                if by >= CLOCK_AHEAD {
                    self.say(shared, occ.at, Said::ClockAhead(by));
                }
                self.ask_again(shared, claim, occ, by);
            }
            ClaimReply::Recovering { remaining } => {
                if occ.kind == Kind::Rerun {
                    self.watch_again(shared, remaining);
                    self.advance(shared);
                } else {
                    self.ask_again(shared, claim, occ, remaining);
                }
            }
            ClaimReply::AlreadyClaimed(status) => {
                self.already_claimed(shared, &occ, status);
                self.refused(shared, &occ);
            }
            ClaimReply::Finished => self.refused(shared, &occ),
            ClaimReply::Unknown => {
                if occ.kind == Kind::Rerun {
                    self.unwatch(shared);
                }
                self.say(shared, occ.at, Said::Unknown);
                self.refused(shared, &occ);
            }
            ClaimReply::TooLate => {
                self.say(shared, occ.at, Said::TooLate);
                self.refused(shared, &occ);
            }
            ClaimReply::Held { by, remaining } => self.held(shared, claim, occ, by, remaining),
            ClaimReply::Gap { last, horizon } => self.gap(shared, occ, last, horizon),
        }
    }

    fn ask_again(&mut self, shared: &mut Shared, claim: ClaimId, occ: Occ, after: Duration) {
        let at = shared.now.boot.plus(after.max(Duration::from_millis(1)));
        shared.arm(at, self.job, TimerKind::Early(claim));
        self.phase = Phase::Early { claim, occ };
    }

    fn granted(
        &mut self,
        shared: &mut Shared,
        claim: ClaimId,
        occ: &Occ,
        placed: bool,
        fence: u64,
        attempt: u32,
    ) {
        if occ.aim == Aim::Verdict || shared.mode == Mode::Draining {
            self.cancel(shared, claim, placed);
        } else {
            if occ.kind == Kind::Rerun {
                self.unwatch(shared);
            } else {
                self.blind = false;
            }
            self.running += 1;
            shared.act(Action::Start {
                job: self.job,
                claim,
                at: occ.at,
                kind: if attempt > 1 { Kind::Rerun } else { occ.kind },
                fence,
                attempt,
            });
        }
        self.decided(shared, occ);
    }

    /// The occurrence was decided without this host: with it all that this lane passed by before.
    fn refused(&mut self, shared: &mut Shared, occ: &Occ) {
        if occ.kind != Kind::Rerun {
            self.look(shared);
            self.blind = false;
        }
        self.decided(shared, occ);
    }

    /// The occurrence is decided, here or elsewhere: on to the next.
    fn decided(&mut self, shared: &mut Shared, occ: &Occ) {
        if occ.kind != Kind::Rerun {
            self.notes.forget_before(occ.at);
        }
        self.advance(shared);
    }

    fn already_claimed(&mut self, shared: &mut Shared, occ: &Occ, status: RunStatus) {
        match status {
            RunStatus::Running {
                by,
                run_id,
                remaining,
                ..
            } => {
                // A job has one open run.
                self.blind = false;
                if occ.kind != Kind::Rerun {
                    self.say(shared, occ.at, Said::LostTo(by));
                }
                if remaining.is_zero() {
                    // Over, and not to be run again.
                    self.unwatch(shared);
                    shared.act(Action::Settle {
                        job: self.job,
                        run_id,
                    });
                } else {
                    self.watch_run(shared, Some(occ.at), run_id, remaining);
                }
            }
            RunStatus::Decided => {
                if occ.kind == Kind::Rerun {
                    self.unwatch(shared);
                } else {
                    self.say(shared, occ.at, Said::Decided);
                }
            }
        }
    }

    fn held(
        &mut self,
        shared: &mut Shared,
        claim: ClaimId,
        mut occ: Occ,
        by: String,
        remaining: Option<Duration>,
    ) {
        if occ.kind == Kind::Rerun {
            // Another job under the same lock was quicker: ask again when it may be over.
            self.watch_again(shared, remaining.unwrap_or(self.policy.poll));
            self.advance(shared);
            return;
        }
        // Once is enough for an occurrence that waits.
        if remaining.is_none() && occ.kind != Kind::Queue {
            self.say(shared, occ.at, Said::NoEnd(by.clone()));
        }
        if occ.overlap == Overlap::Skip {
            self.say(shared, occ.at, Said::Skipped(by));
            self.refused(shared, &occ);
            return;
        }
        self.look(shared);
        self.blind = false;
        // Whatever was to be dropped is dropped now.
        occ.gap = None;
        self.say(shared, occ.at, Said::Waiting(by));
        if occ.kind == Kind::Schedule {
            occ.kind = Kind::Queue;
        }
        let limit = remaining
            .map_or(self.policy.poll, |r| r + Duration::from_millis(5))
            .min(self.policy.poll)
            .min(occ.deadline.since(shared.now.utc) + Duration::from_millis(1))
            .max(Duration::from_millis(20));
        if self.may_overtake(&occ) {
            self.let_go(shared, occ.at, Why::Superseded);
            self.keep_newest(shared);
            self.advance(shared);
            return;
        }
        self.phase = Phase::Waiting { claim, occ };
        shared.act(Action::AwaitRelease {
            job: self.job,
            claim,
            limit,
        });
    }

    fn gap(
        &mut self,
        shared: &mut Shared,
        mut occ: Occ,
        last: Timestamp,
        horizon: Option<Timestamp>,
    ) {
        let between = (last, occ.at);
        let sorted = gap::sort(&self.policy, &self.notes, between, horizon, shared.now.utc);
        let dropped: u64 = sorted.drop.iter().map(|d| d.range.count).sum();
        if dropped > 0 {
            self.say(shared, occ.at, Said::Dropped(dropped));
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
        self.pending.push_front(occ);
        for at in run.rev() {
            self.pending.push_front(self.caught_up(at));
        }
        let mut first = self.caught_up(first);
        first.gap = Some(answer);
        self.begin(shared, first);
    }

    /// An occurrence of the past that is run now. It waits for its lock: what is late already
    /// is not lost to the run that made it late.
    pub(super) fn caught_up(&self, at: Timestamp) -> Occ {
        Occ {
            at,
            kind: Kind::CatchUp,
            deadline: self.policy.window_end(at).max(self.policy.deadline(at)),
            overlap: Overlap::Wait,
            aim: Aim::Run,
            gap: None,
            hole: false,
        }
    }
}
