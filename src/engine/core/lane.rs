//! The lane of one job: its occurrences in strict order, one claim at a time.

use std::collections::VecDeque;
use std::time::Duration;

use super::event::{Action, ClaimId, ClaimSpec, JobIx, Said};
use super::occ::{Aim, Notes, Occ, Why};
use super::policy::Policy;
use super::shared::{Mode, Shared, StoreState, TimerKind};
use super::watch::Watch;
use crate::config::{CatchUp, OnOverlap, OnStoreDown};
use crate::store::{Kind, Overlap};
use crate::time::Timestamp;

/// Whoever notices an occurrence so late slept through it: the machine was suspended, the process
/// stopped, or the clock set forward. `catch_up` then judges it with all the others.
const LATE: Duration = Duration::from_secs(30);

/// What the lane does about its foremost occurrence.
#[derive(Debug)]
pub(super) enum Phase {
    /// Nothing.
    Idle,
    /// A claim is out; `placed` when it keeps a place of the host taken.
    Claiming {
        claim: ClaimId,
        occ: Occ,
        placed: bool,
    },
    /// The lock is held; a release is awaited.
    Waiting { claim: ClaimId, occ: Occ },
    /// The store's clock has not come to it, or this host's turn has not (`spread`).
    Early { claim: ClaimId, occ: Occ },
    /// The host is full.
    Parked { claim: ClaimId, occ: Occ },
}

/// Whether the lane knows how far the ledger has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    /// It does, but for [`Lane::hole`] and [`Occ::hole`]: its own claims follow one another.
    Known,
    /// A registration is under way.
    Asked,
    /// Something is undecided that another host, whose clock is behind, may be about to claim.
    Grace,
    /// A registration is under way, and its answer counts.
    AskedAgain,
}

/// One job.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) job: JobIx,
    pub(super) policy: Policy,
    pub(super) phase: Phase,
    /// Behind the foremost, ascending.
    pub(super) pending: VecDeque<Occ>,
    pub(super) notes: Notes,
    pub(super) watch: Option<Watch>,
    /// Occurrences were passed by that another host may have been granted since: no answer to a
    /// claim of theirs would tell this lane of the run.
    pub(super) blind: bool,
    pub(super) sync: Sync,
    /// Behind all that is pending, occurrences came due that this lane does not claim one by one.
    pub(super) hole: bool,
    /// The newest occurrence that was looked at.
    pub(super) seen_until: Option<Timestamp>,
    /// The newest occurrence that was handed over as skipped.
    pub(super) skipped_until: Option<Timestamp>,
    /// Runs of this host whose processes live.
    pub(super) running: usize,
    /// Runs that ended here, with a verdict that the store has not got yet.
    pub(super) closing: usize,
    /// When this daemon started.
    pub(super) started_at: Timestamp,
}

impl Lane {
    pub(super) fn new(job: JobIx, policy: Policy, started_at: Timestamp) -> Self {
        Self {
            job,
            policy,
            phase: Phase::Idle,
            pending: VecDeque::new(),
            notes: Notes::default(),
            watch: None,
            blind: false,
            sync: Sync::Asked,
            hole: false,
            seen_until: None,
            skipped_until: None,
            running: 0,
            closing: 0,
            started_at,
        }
    }

    pub(super) fn due(&mut self, shared: &mut Shared, at: Timestamp) {
        if shared.mode == Mode::Draining || self.seen_until.is_some_and(|seen| at <= seen) {
            return;
        }
        self.seen_until = Some(at);
        if shared.held {
            self.hole = true;
            return;
        }
        if shared.store == StoreState::Down && self.due_while_down(shared, at) {
            return;
        }
        if shared.now.utc.since(self.policy.not_before(at)) > LATE {
            self.hole = true;
            self.advance(shared);
            return;
        }
        // What waits for the ledger waits for no lock.
        if let OnOverlap::Queue { limit } = self.policy.on_overlap
            && self.sync == Sync::Known
        {
            let waiting = self.pending.len() + usize::from(self.is_waiting());
            if waiting >= limit {
                self.let_go(shared, at, Why::QueueFull);
                return;
            }
        }
        let hole = std::mem::take(&mut self.hole);
        self.pending.push_back(Occ {
            hole,
            ..self.current(at)
        });
        self.overtake(shared);
        self.advance(shared);
    }

    /// An occurrence at its time.
    pub(super) fn current(&self, at: Timestamp) -> Occ {
        Occ {
            at,
            kind: Kind::Schedule,
            deadline: self.policy.deadline(at),
            overlap: match self.policy.on_overlap {
                OnOverlap::Skip => Overlap::Skip,
                OnOverlap::Wait | OnOverlap::Queue { .. } => Overlap::Wait,
            },
            aim: Aim::Run,
            gap: None,
            hole: false,
        }
    }

    /// Lets a waiting occurrence go when a newer one may take its place.
    fn overtake(&mut self, shared: &mut Shared) {
        let Phase::Waiting { occ, .. } = &self.phase else {
            return;
        };
        if self.may_overtake(occ) {
            let at = occ.at;
            self.phase = Phase::Idle;
            self.let_go(shared, at, Why::Superseded);
        }
    }

    /// Whether the next pending occurrence supersedes one that has to wait: always where only
    /// the newest counts, never those that were promised to run one by one.
    pub(super) fn may_overtake(&self, occ: &Occ) -> bool {
        self.pending.front().is_some_and(Occ::is_current)
            && match occ.kind {
                Kind::CatchUp => self.policy.catch_up != CatchUp::All,
                Kind::Schedule | Kind::Queue => self.policy.on_overlap == OnOverlap::Wait,
                Kind::Rerun | Kind::Manual => false,
            }
    }

    /// With `wait`, of those that came due during one claim only the newest is worth another.
    pub(super) fn keep_newest(&mut self, shared: &mut Shared) {
        while self.policy.on_overlap == OnOverlap::Wait
            && self.pending.len() > 1
            && self.pending.front().is_some_and(Occ::is_current)
            && let Some(occ) = self.pending.pop_front()
        {
            self.let_go(shared, occ.at, Why::Superseded);
            if occ.hole {
                self.hole_before_pending();
            }
        }
    }

    /// Before what is pending lies something that this lane does not claim one by one.
    pub(super) fn hole_before_pending(&mut self) {
        match self.pending.iter_mut().find(|occ| occ.kind != Kind::Rerun) {
            Some(occ) => occ.hole = true,
            None => self.hole = true,
        }
    }

    /// Leaves those whose start deadline has passed to `catch_up`.
    pub(super) fn drop_late(&mut self, now: Timestamp) {
        let before = self.pending.len();
        self.pending
            .retain(|occ| occ.kind == Kind::Rerun || occ.deadline >= now);
        if self.pending.len() < before {
            self.hole_before_pending();
        }
    }

    /// Remembers why an occurrence is not claimed; the next claim tells the ledger.
    pub(super) fn let_go(&mut self, shared: &mut Shared, at: Timestamp, why: Why) {
        self.notes.add(at, why);
        self.blind = true;
        let said = match why {
            Why::Superseded => Said::Superseded,
            Why::QueueFull => Said::QueueFull,
            Why::StoreDown => Said::StoreDown,
            Why::StillRunning => Said::StillRunning,
            Why::RanAlone => return,
        };
        self.say(shared, at, said);
    }

    /// Goes on with what comes next, if nothing is under way.
    pub(super) fn advance(&mut self, shared: &mut Shared) {
        if shared.mode == Mode::Draining || shared.held || !matches!(self.phase, Phase::Idle) {
            return;
        }
        let down = shared.store == StoreState::Down;
        if down && self.policy.on_store_down == OnStoreDown::Run {
            self.advance_alone(shared);
            return;
        }
        // The verdict of our own run goes first: else the ledger would call the lock held.
        if self.closing > 0 {
            return;
        }
        if !down && let Some(occ) = self.due_rerun() {
            self.begin(shared, occ);
        } else if self.sync != Sync::Known {
            // What is undecided before the pending ones is about to be known.
        } else if self.pending.front().map_or(self.hole, |occ| occ.hole) {
            // Claimed at once, the next one would have all before it dropped as missed, those
            // included that another host has in hand.
            if !down {
                self.sync = Sync::Asked;
                shared.act(Action::Register { job: self.job });
            }
        } else if let Some(occ) = self.pending.pop_front() {
            self.begin(shared, occ);
        }
    }

    /// Claims an occurrence, or waits for a place first.
    pub(super) fn begin(&mut self, shared: &mut Shared, occ: Occ) {
        if shared.held {
            self.pending.push_front(occ);
            return;
        }
        let claim = shared.new_claim();
        let turn = self.turn(&occ);
        if turn > shared.now.utc {
            shared.arm_utc(turn, self.job, TimerKind::Early(claim));
            self.phase = Phase::Early { claim, occ };
            return;
        }
        let placed = occ.aim == Aim::Run;
        if placed && !shared.take_place() {
            self.park(shared, claim, occ);
            return;
        }
        shared.act(Action::Claim(ClaimSpec {
            job: self.job,
            claim,
            at: occ.at,
            prev: self.policy.calendar.last_before(occ.at),
            not_before: self.policy.not_before(occ.at),
            deadline: occ.deadline,
            kind: occ.kind,
            overlap: occ.overlap,
            gap: occ.gap.clone(),
            max_reruns: self.policy.max_reruns(),
        }));
        self.phase = Phase::Claiming { claim, occ, placed };
    }

    /// When it is this host's turn to claim an occurrence. Always before the deadline, and before
    /// the next occurrence is due: no host comes to that one while others still hold this back.
    fn turn(&self, occ: &Occ) -> Timestamp {
        if self.policy.spread.window.is_zero() || occ.kind != Kind::Schedule {
            return occ.at;
        }
        let start = self.policy.not_before(occ.at);
        let next = self.policy.calendar.next_after(occ.at);
        let interval = next.map_or(Duration::MAX, |next| next.since(occ.at));
        let limit = interval.min(occ.deadline.since(start));
        start.plus(self.policy.spread.delay(occ.at, limit))
    }

    /// The clock is right again: what is still in time is claimed, the rest judged by `catch_up`.
    pub(super) fn released(&mut self, shared: &mut Shared) {
        self.drop_late(shared.now.utc);
        self.advance(shared);
    }

    pub(super) fn park(&mut self, shared: &mut Shared, claim: ClaimId, occ: Occ) {
        self.say(shared, occ.at, Said::Full);
        shared.park(self.job);
        shared.arm_utc(
            occ.deadline.plus(Duration::from_millis(1)),
            self.job,
            TimerKind::Deadline(claim),
        );
        self.phase = Phase::Parked { claim, occ };
    }

    /// A place is free, and this lane has waited longest.
    pub(super) fn unparked(&mut self, shared: &mut Shared) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Parked { occ, .. } => self.resume(shared, occ),
            other => self.phase = other,
        }
    }

    /// Goes on with the foremost occurrence after a pause.
    pub(super) fn resume(&mut self, shared: &mut Shared, occ: Occ) {
        self.pending.push_front(occ);
        self.advance(shared);
    }

    pub(super) fn woken(&mut self, shared: &mut Shared, woken: ClaimId) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Waiting { claim, occ } if claim == woken => self.resume(shared, occ),
            other => self.phase = other,
        }
    }

    pub(super) fn timer(&mut self, shared: &mut Shared, kind: TimerKind) {
        match kind {
            TimerKind::Watch => self.watch_due(shared),
            TimerKind::Look => self.look(shared),
            TimerKind::Grace if self.sync == Sync::Grace => {
                self.sync = Sync::AskedAgain;
                shared.act(Action::Register { job: self.job });
            }
            TimerKind::Grace => {}
            TimerKind::Early(id) => match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Early { claim, occ } if claim == id => self.resume(shared, occ),
                other => self.phase = other,
            },
            TimerKind::Deadline(id) => match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Parked { claim, occ } if claim == id => {
                    shared.forget_parked(self.job);
                    self.resume(shared, occ.for_verdict());
                }
                Phase::Claiming { claim, placed, .. } if claim == id => {
                    self.give_up(shared, claim, placed);
                }
                other => self.phase = other,
            },
        }
    }

    /// The processes of a run are gone.
    pub(super) fn run_ended(&mut self, shared: &mut Shared) {
        shared.free_place();
        self.running = self.running.saturating_sub(1);
        self.closing += 1;
        self.advance(shared);
    }

    /// A verdict has arrived, or nothing hinders the lock any more.
    pub(super) fn run_closed(&mut self, shared: &mut Shared) {
        self.closing = self.closing.saturating_sub(1);
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            // Our own release: no need to hear of it from the store.
            Phase::Waiting { occ, .. } => self.resume(shared, occ),
            other => {
                self.phase = other;
                self.advance(shared);
            }
        }
    }

    /// No new claims: what has not begun is left to other hosts, or to the next start.
    pub(super) fn drain(&mut self, shared: &mut Shared) {
        self.pending.clear();
        self.watch = None;
        if let Phase::Claiming { claim, placed, .. } =
            std::mem::replace(&mut self.phase, Phase::Idle)
        {
            self.cancel(shared, claim, placed);
        }
    }

    pub(super) fn cancel(&mut self, shared: &mut Shared, claim: ClaimId, placed: bool) {
        if placed {
            shared.free_place();
        }
        shared.act(Action::Cancel {
            job: self.job,
            claim,
        });
    }

    pub(super) fn say(&self, shared: &mut Shared, at: Timestamp, said: Said) {
        shared.act(Action::Say {
            job: self.job,
            at,
            said,
        });
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }
}
