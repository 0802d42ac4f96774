//! The lane of one job: its occurrences in strict order, one claim at a time.

use std::collections::VecDeque;
use std::time::Duration;

use super::event::{Action, ClaimId, ClaimSpec, JobIx, Now, Said};
use super::occurrence::{Aim, Notes, Occurrence, Origin, Why, in_order};
use super::open_run::OpenRunWatch;
use super::policy::Policy;
use super::shared::{Mode, Shared, StoreState, TimerKind};
use crate::config::{OnOverlap, OnStoreDown};
use crate::store::{Head, Kind, Overlap};
use crate::time::{BootInstant, Timestamp};

/// A host that notices an occurrence this late was not running when it came due: the machine was
/// suspended, the process stopped, or the clock set forward.
const LATE: Duration = Duration::from_secs(30);

/// A host that notices an occurrence within this time was running when it came due.
const PROMPT: Duration = Duration::from_secs(1);

/// What the lane does about its foremost occurrence.
#[derive(Debug)]
pub(super) enum Phase {
    /// Nothing.
    Idle,
    /// A claim is out; `placed` when it keeps a place of the host taken.
    Claiming {
        claim: ClaimId,
        occ: Occurrence,
        placed: bool,
    },
    /// The ledger is to record what policy drops.
    Dropping { claim: ClaimId, until: Timestamp },
    /// The store's clock has not come to it, or this host's turn has not (`spread`).
    Early { claim: ClaimId, occ: Occurrence },
    /// The host is full.
    Parked { claim: ClaimId, occ: Occurrence },
}

/// What the lane knows of the job's waiting list.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) head: Head,
    /// Names the wait for a release.
    pub(super) claim: ClaimId,
    /// Whether the head is to be claimed as soon as the lane is idle.
    pub(super) ready: bool,
}

/// Whether the lane knows how far the ledger has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LedgerSync {
    /// It does, except where [`Lane::needs_ledger_sync`] or [`Occurrence::needs_ledger_sync`] is
    /// set: the lane's own claims follow one another.
    Known,
    /// A registration is under way.
    Asked,
    /// Something is undecided that another host, whose clock is behind, may be about to claim.
    Grace,
    /// A registration is under way, and its answer counts.
    AskedAgain,
    /// A registration is under way, and until it is answered nothing at all is claimed: the job may
    /// use another lock by now.
    Entering,
}

/// Whether the store has answered a registration of the job since this daemon started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Acquaintance {
    /// It has not.
    New,
    /// It has.
    Registered,
}

/// What was said of a ledger that is ahead of the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Nothing, or the ledger is not ahead any more.
    Unsaid,
    /// That it is ahead, and what follows from that.
    Said,
}

/// An occurrence so far ahead of the clock was fired by another clock.
const PREMATURE: Duration = Duration::from_millis(250);

/// One job.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) job: JobIx,
    pub(super) policy: Policy,
    /// When the daemon began to run the job as it is.
    pub(super) began_at: BootInstant,
    pub(super) phase: Phase,
    /// Behind the foremost, ascending.
    pub(super) pending: VecDeque<Occurrence>,
    pub(super) notes: Notes,
    pub(super) watch: Option<OpenRunWatch>,
    /// Another host returned an occurrence while a claim or a registration of this lane was out.
    pub(super) returned_meanwhile: bool,
    /// The head of the waiting list, as far as this host knows it.
    pub(super) wait: Option<Wait>,
    /// This lane skipped occurrences that another host may have claimed since. No reply to a claim
    /// will report those runs, so the lane must query the ledger.
    pub(super) may_have_missed_run: bool,
    pub(super) sync: LedgerSync,
    pub(super) acquaintance: Acquaintance,
    /// After all pending occurrences, others came due that this lane does not claim one by one: it
    /// must ask the ledger about them.
    pub(super) needs_ledger_sync: bool,
    /// Whether it has been said that the ledger is ahead of the store's clock.
    pub(super) ahead: Ahead,
    /// The newest occurrence that was looked at.
    pub(super) seen_until: Option<Timestamp>,
    /// Runs of this host whose processes live.
    pub(super) running: usize,
    /// Runs that ended here, with a verdict that the store has not got yet.
    pub(super) closing: usize,
}

impl Lane {
    pub(super) fn new(job: JobIx, policy: Policy, now: BootInstant) -> Self {
        Self {
            job,
            policy,
            began_at: now,
            phase: Phase::Idle,
            pending: VecDeque::new(),
            notes: Notes::default(),
            watch: None,
            returned_meanwhile: false,
            wait: None,
            may_have_missed_run: false,
            sync: LedgerSync::Asked,
            acquaintance: Acquaintance::New,
            needs_ledger_sync: false,
            ahead: Ahead::Unsaid,
            seen_until: None,
            running: 0,
            closing: 0,
        }
    }

    pub(super) fn due(&mut self, shared: &mut Shared, at: Timestamp) {
        if shared.mode == Mode::Draining || self.seen_until.is_some_and(|seen| at <= seen) {
            return;
        }
        if self.policy.not_before(at) > shared.now.utc.plus(PREMATURE) {
            // Fired before the clock was set: the ticker fires it again at its time.
            return;
        }
        self.seen_until = Some(at);
        if self.notes.of(at) == Some(Why::RanAlone) {
            // It ran before the clock was found to be ahead.
            self.needs_ledger_sync = true;
            return;
        }
        if self.policy.not_before(at) < self.began(shared.now) {
            // The clock was behind when this daemon began with the job. The ledger knows what became of it.
            self.needs_ledger_sync = true;
            return;
        }
        if shared.held {
            self.needs_ledger_sync = true;
            return;
        }
        // Nobody knows whether the store was away all that time.
        if self.slept_through(shared.now.utc, at) {
            self.needs_ledger_sync = true;
            self.advance(shared);
            return;
        }
        if shared.store == StoreState::Down && self.due_while_down(shared, at) {
            return;
        }
        let needs_ledger_sync = std::mem::take(&mut self.needs_ledger_sync);
        self.pending.push_back(Occurrence {
            needs_ledger_sync,
            ..self.current(at)
        });
        self.advance(shared);
    }

    /// Whether this host was not there when the occurrence came due: it notices it late, or
    /// together with the next one. `catch_up` then judges it with all the others.
    fn slept_through(&self, now: Timestamp, at: Timestamp) -> bool {
        let next = self.policy.calendar.next_after(at);
        now.since(self.policy.not_before(at)) > LATE
            || next.is_some_and(|next| self.policy.not_before(next) <= now)
            || (self.needs_ledger_sync && now.since(self.policy.not_before(at)) > PROMPT)
    }

    /// When this daemon began with the job, by the clock as it is known now.
    pub(super) fn began(&self, now: Now) -> Timestamp {
        now.utc.minus(now.boot.since(self.began_at))
    }

    /// An occurrence at its time.
    pub(super) fn current(&self, at: Timestamp) -> Occurrence {
        Occurrence {
            at,
            kind: Kind::Schedule,
            deadline: self.policy.deadline(at),
            overlap: match self.policy.on_overlap {
                OnOverlap::Skip => Overlap::Skip,
                OnOverlap::Wait => Overlap::Wait,
                OnOverlap::Queue { limit } => Overlap::Queue {
                    limit: u32::try_from(limit).unwrap_or(u32::MAX),
                },
            },
            late: self.policy.late(at),
            aim: Aim::Run,
            gap: None,
            origin: Origin::Lane,
            blocked: false,
            needs_ledger_sync: false,
        }
    }

    /// Before what is pending lies something that this lane does not claim one by one.
    pub(super) fn require_sync_before_pending(&mut self) {
        match (self.pending.iter_mut()).find(|occ| occ.origin == Origin::Lane) {
            Some(occ) => occ.needs_ledger_sync = true,
            None => self.needs_ledger_sync = true,
        }
    }

    /// Leaves all that came due so far to `catch_up`, which begins where the ledger does.
    pub(super) fn start_anew(&mut self) {
        self.pending.retain(|occ| occ.origin != Origin::Lane);
        self.require_sync_before_pending();
    }

    /// Leaves those whose start deadline has passed to `catch_up`.
    pub(super) fn drop_late(&mut self, now: Timestamp) {
        let before = self.pending.len();
        self.pending
            .retain(|occ| occ.origin != Origin::Lane || occ.deadline >= now);
        if self.pending.len() < before {
            self.require_sync_before_pending();
        }
    }

    /// Remembers why an occurrence is not claimed; the next claim tells the ledger.
    pub(super) fn let_go(&mut self, shared: &mut Shared, at: Timestamp, why: Why) {
        self.note(at, why);
        self.may_have_missed_run = true;
        let said = match why {
            Why::StoreDown => Said::StoreDown,
            Why::StillRunning => Said::StillRunning,
            Why::RanAlone | Why::RanElsewhere => return,
        };
        self.say(shared, at, said);
    }

    pub(super) fn note(&mut self, at: Timestamp, why: Why) {
        self.notes
            .add(self.policy.calendar.last_before(at), at, why);
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
        if !down
            && self.sync != LedgerSync::Entering
            && let Some(occ) = (self.due_rerun(shared)).or_else(|| self.ready_head(shared.now.utc))
        {
            self.begin(shared, occ);
        } else if self.sync != LedgerSync::Known {
            // What is undecided before the pending ones is about to be known.
        } else if self
            .pending
            .front()
            .map_or(self.needs_ledger_sync, |occ| occ.needs_ledger_sync)
        {
            // Claimed at once, the next one would have all before it dropped as missed, those
            // included that another host has in hand.
            if !down {
                self.sync = LedgerSync::Asked;
                shared.act(Action::Register { job: self.job });
            }
        } else if self.wait.is_some() && self.pending.front().is_some_and(|occ| occ.blocked) {
            // The head of the waiting list goes first.
        } else if let Some(occ) = self.pending.pop_front() {
            self.begin(shared, occ);
        }
    }

    /// Claims an occurrence, or waits for a place first.
    pub(super) fn begin(&mut self, shared: &mut Shared, occ: Occurrence) {
        if shared.held {
            self.pending.push_front(occ);
            return;
        }
        let claim = shared.new_claim();
        let turn = self.turn(&occ);
        if turn > shared.now.utc {
            self.not_yet(shared, claim, occ, turn.since(shared.now.utc));
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
            late: occ.late,
            terms: self.policy.terms(occ.deadline),
        }));
        self.returned_meanwhile = false;
        self.phase = Phase::Claiming { claim, occ, placed };
    }

    /// When it is this host's turn to claim an occurrence. Always before the deadline, and before
    /// the next occurrence is due: no host comes to that one while others still hold this back.
    fn turn(&self, occ: &Occurrence) -> Timestamp {
        if self.policy.spread.window.is_zero() || !occ.is_current() {
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

    pub(super) fn park(&mut self, shared: &mut Shared, claim: ClaimId, occ: Occurrence) {
        let said = if shared.is_short() {
            Said::Short
        } else {
            Said::Full
        };
        self.say(shared, occ.at, said);
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
            Phase::Parked { occ, .. } => {
                if shared.is_short() {
                    // What was held back may meet the late run of a returned occurrence: no
                    // reason to skip it.
                    for occ in &mut self.pending {
                        occ.overlap = in_order(occ.overlap);
                    }
                }
                self.resume(shared, occ);
            }
            other => self.phase = other,
        }
    }

    /// Makes way for a claim that needs no place. What waits for one keeps its turn.
    pub(super) fn set_aside(&mut self) {
        match (&self.phase, &mut self.wait) {
            (Phase::Parked { occ, .. }, _) if occ.origin == Origin::Lane => {
                self.pending.push_front(occ.clone());
            }
            (Phase::Parked { occ, .. }, Some(wait)) if occ.origin == Origin::Head => {
                wait.ready = true;
            }
            _ => return,
        }
        self.phase = Phase::Idle;
    }

    /// Goes on with the foremost occurrence after a pause.
    pub(super) fn resume(&mut self, shared: &mut Shared, occ: Occurrence) {
        self.pending.push_front(occ);
        self.advance(shared);
    }

    pub(super) fn timer(&mut self, shared: &mut Shared, kind: TimerKind) {
        match kind {
            TimerKind::Watch => self.watch_due(shared),
            TimerKind::Look => self.look(shared),
            TimerKind::Grace if self.sync == LedgerSync::Grace => {
                self.sync = LedgerSync::AskedAgain;
                shared.act(Action::Register { job: self.job });
            }
            TimerKind::Grace | TimerKind::Trial => {}
            TimerKind::HeadLate(id) => self.head_due(shared, id),
            TimerKind::Resync => {
                self.needs_ledger_sync = true;
                self.advance(shared);
            }
            TimerKind::Early(id) => match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Early { claim, occ } if claim == id => self.resume(shared, occ),
                other => self.phase = other,
            },
            TimerKind::Deadline(id) => match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Parked { claim, occ } if claim == id => {
                    shared.forget_parked(self.job);
                    if occ.origin == Origin::Lane {
                        self.require_sync_before_pending();
                        self.advance(shared);
                    } else {
                        self.resume(shared, occ.for_verdict());
                    }
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

    /// This host lacked the resources to start a run. Its occurrence waits again: another host may
    /// take it, and so may this one once it has a place.
    pub(super) fn run_not_started(&mut self, shared: &mut Shared, at: Timestamp, kind: Kind) {
        shared.free_place();
        self.running = self.running.saturating_sub(1);
        // Until the store has it back, a claim of it would be answered with this host's own run.
        self.closing += 1;
        if shared.mode == Mode::Draining {
            return;
        }
        self.await_returned(shared, at, kind);
        self.advance(shared);
    }

    /// A verdict has arrived, or nothing hinders the lock any more.
    pub(super) fn run_closed(&mut self, shared: &mut Shared) {
        self.closing = self.closing.saturating_sub(1);
        // Our own release: no need to be told by the store.
        if let Some(wait) = &mut self.wait {
            wait.ready = true;
        }
        self.advance(shared);
    }

    /// No new claims: what has not begun is left to other hosts, or to the next start.
    pub(super) fn drain(&mut self, shared: &mut Shared) {
        self.pending.clear();
        self.watch = None;
        self.wait = None;
        if let Phase::Claiming { claim, placed, .. } =
            std::mem::replace(&mut self.phase, Phase::Idle)
        {
            self.cancel(shared, claim, placed);
        }
    }

    /// Hosts that did not see this one may have moved the job to another lock meanwhile. Which run is
    /// open, and what waits, the registration tells.
    pub(super) fn absent(&mut self, shared: &mut Shared) {
        self.unwatch(shared);
        self.wait = None;
        for occ in &mut self.pending {
            occ.blocked = false;
        }
        if matches!(self.sync, LedgerSync::Known | LedgerSync::Grace) {
            self.require_sync_before_pending();
            shared.act(Action::Register { job: self.job });
        }
        self.sync = LedgerSync::Entering;
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
}
