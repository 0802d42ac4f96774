//! The lane of one job: its occurrences in strict order, one claim at a time.

use std::collections::VecDeque;
use std::time::Duration;

use super::event::{Action, ClaimId, ClaimSpec, JobIx, OccurrenceNotice};
use super::occurrence::{Aim, NotClaimed, Notes, Occurrence, Origin};
use super::open_run::OpenRunWatch;
use super::policy::Policy;
use super::rivals::Rivals;
use super::shared::{Mode, Shared, StoreState, TimerKind};
use crate::config::OnStoreDown;
use crate::store::{Head, Kind};
use crate::time::{BootInstant, Timestamp};

/// What the lane does about its first occurrence, which has memory of its own: most jobs have none most of
/// the time.
#[derive(Debug)]
pub(super) enum Phase {
    /// Nothing.
    Idle,
    /// A claim was sent; `placed` if it occupies a place of this host.
    Claiming {
        claim: ClaimId,
        occ: Box<Occurrence>,
        placed: bool,
    },
    /// A request to record what policy drops was sent.
    Dropping { claim: ClaimId, until: Timestamp },
    /// The occurrence is not due yet by the store's clock, or this host claims it later (`spread`).
    Early {
        claim: ClaimId,
        occ: Box<Occurrence>,
    },
    /// The host has no free place.
    Parked {
        claim: ClaimId,
        occ: Box<Occurrence>,
    },
}

/// What the lane knows about the job's waiting list.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) head: Head,
    /// The number of the wait for a release.
    pub(super) claim: ClaimId,
    /// Whether the head is to be claimed as soon as the lane is idle.
    pub(super) ready: bool,
}

/// Whether the lane knows how far the ledger has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LedgerSync {
    /// It does, except where [`Lane::needs_ledger_sync`] or [`Occurrence::needs_ledger_sync`] is
    /// set.
    Known,
    /// A registration was sent.
    Registering,
    /// The lane waits before it judges recent undecided occurrences, because a host whose clock is
    /// behind may be about to claim them.
    Grace,
    /// A registration was sent after that wait; its reply is final.
    RegisteringAgain,
    /// A registration was sent, and the lane claims nothing until the reply: the job may use
    /// another lock by now.
    Rejoining,
}

/// Whether the store has replied to a registration of the job since this daemon started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegistrationState {
    /// It has not.
    Pending,
    /// It has.
    Done,
}

/// What the lane does when this host's own runs of the job are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterOwnRun {
    /// It continues with the next occurrence.
    Continue,
    /// It also queries the ledger: while this host ran the job without the store, another run may have
    /// been open there, and nobody watched it.
    Look,
}

/// Whether the log reports that the ledger is ahead of the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LedgerAheadReport {
    /// It does not, or the ledger is no longer ahead.
    NotReported,
    /// It does.
    Reported,
}

/// One job.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) job: JobIx,
    pub(super) policy: Policy,
    /// When the daemon began to run this definition of the job.
    pub(super) began_at: BootInstant,
    pub(super) phase: Phase,
    /// The occurrences after the first, ascending.
    pub(super) pending: VecDeque<Occurrence>,
    pub(super) notes: Notes,
    pub(super) watch: Option<Box<OpenRunWatch>>,
    /// Another host returned an occurrence while this lane waited for the reply to a claim or
    /// registration.
    pub(super) returned_meanwhile: bool,
    /// The head of the waiting list, as far as this host knows it.
    pub(super) wait: Option<Box<Wait>>,
    /// A former head of the waiting list that is now behind one with a later deadline.
    pub(super) behind: Option<Box<Head>>,
    pub(super) after_own_run: AfterOwnRun,
    /// This lane skipped occurrences that another host may have claimed since. No reply to a claim
    /// will report those runs, so the lane must query the ledger.
    pub(super) may_have_missed_run: bool,
    pub(super) sync: LedgerSync,
    pub(super) registration: RegistrationState,
    /// Occurrences came due after all pending ones that this lane does not claim one by one, so it
    /// must query the ledger about them.
    pub(super) needs_ledger_sync: bool,
    /// Whether the log reports that the ledger is ahead of the store's clock.
    pub(super) ahead: LedgerAheadReport,
    pub(super) rivals: Rivals,
    /// The occurrence for which the log already reports that this host's clock is ahead.
    pub(super) told_early: Option<Timestamp>,
    /// The newest occurrence that the lane has handled.
    pub(super) seen_until: Option<Timestamp>,
    /// How far the ledger was decided when this lane last received its state.
    pub(super) decided_until: Option<Timestamp>,
    /// Runs of this host whose processes have not ended.
    pub(super) running: u32,
    /// Runs of this host that have ended, but whose verdict has not reached the store.
    pub(super) closing: u32,
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
            behind: None,
            after_own_run: AfterOwnRun::Continue,
            may_have_missed_run: false,
            sync: LedgerSync::Registering,
            registration: RegistrationState::Pending,
            needs_ledger_sync: false,
            ahead: LedgerAheadReport::NotReported,
            rivals: Rivals::default(),
            told_early: None,
            seen_until: None,
            decided_until: None,
            running: 0,
            closing: 0,
        }
    }

    /// Notes that before the pending occurrences there are some that this lane does not claim one
    /// by one.
    pub(super) fn require_sync_before_pending(&mut self) {
        match (self.pending.iter_mut()).find(|occ| occ.origin == Origin::Lane) {
            Some(occ) => occ.needs_ledger_sync = true,
            None => self.needs_ledger_sync = true,
        }
    }

    /// Leaves everything that came due so far to `catch_up`, which begins at the ledger's
    /// watermark.
    pub(super) fn start_anew(&mut self) {
        self.pending.retain(|occ| occ.origin != Origin::Lane);
        self.require_sync_before_pending();
    }

    /// This host may claim from now on.
    pub(super) fn claims_allowed(&mut self, shared: &mut Shared) {
        self.began_at = shared.now.boot;
        self.start_anew();
    }

    /// Leaves occurrences whose start deadline has passed to `catch_up`.
    pub(super) fn drop_late(&mut self, now: Timestamp) {
        let before = self.pending.len();
        self.pending
            .retain(|occ| occ.origin != Origin::Lane || occ.deadline >= now);
        if self.pending.len() < before {
            self.require_sync_before_pending();
        }
    }

    /// Notes why an occurrence is not claimed. The next claim reports it to the ledger.
    pub(super) fn leave_unclaimed(&mut self, shared: &mut Shared, at: Timestamp, why: NotClaimed) {
        self.note(at, why);
        self.may_have_missed_run = true;
        let notice = match why {
            NotClaimed::StoreDown => OccurrenceNotice::StoreDown,
            NotClaimed::StillRunning => OccurrenceNotice::StillRunning,
            NotClaimed::RanWithoutStore | NotClaimed::RanElsewhere => return,
        };
        self.report(shared, at, notice);
    }

    pub(super) fn note(&mut self, at: Timestamp, why: NotClaimed) {
        self.notes
            .add(self.policy.calendar.last_before(at), at, why);
    }

    /// Begins with the next occurrence if the lane is idle.
    pub(super) fn advance(&mut self, shared: &mut Shared) {
        if shared.mode == Mode::Draining || shared.clock_wrong {
            return;
        }
        let down = shared.store == StoreState::Down;
        if !matches!(self.phase, Phase::Idle) {
            if !down {
                self.sync_while_parked(shared);
            }
            return;
        }
        if down && self.policy.on_store_down == OnStoreDown::Run {
            match self.unsure_until(shared) {
                Some(until) => shared.arm(until, self.job, TimerKind::Unsure),
                None => self.advance_without_store(shared),
            }
            return;
        }
        // The verdict of this host's own run must arrive first. Until then the store considers the
        // lock held.
        if self.closing > 0 {
            return;
        }
        if !down
            && self.sync != LedgerSync::Rejoining
            && let Some(occ) = (self.due_rerun(shared)).or_else(|| self.ready_head(shared.now.utc))
        {
            self.begin(shared, occ);
        } else if self.sync != LedgerSync::Known {
            // The reply to the registration will show what is undecided before the pending ones.
        } else if self
            .pending
            .front()
            .map_or(self.needs_ledger_sync, |occ| occ.needs_ledger_sync)
        {
            // If the lane claimed the next one now, everything before it would be dropped as
            // missed, even what another host is about to claim.
            if !down {
                self.sync = LedgerSync::Registering;
                shared.act(Action::Register { job: self.job });
            }
        } else if self.wait.is_some() && self.pending.front().is_some_and(|occ| occ.blocked) {
            // The head of the waiting list goes first.
        } else if let Some(occ) = self.pending.pop_front() {
            self.begin(shared, occ);
        }
    }

    /// Whether the lane must query the ledger before it claims the next occurrence of its own.
    pub(super) fn needs_sync_now(&self) -> bool {
        let mut own = self.pending.iter().filter(|occ| occ.origin == Origin::Lane);
        own.next()
            .map_or(self.needs_ledger_sync, |occ| occ.needs_ledger_sync)
    }

    /// Claims an occurrence, or waits for a free place first.
    pub(super) fn begin(&mut self, shared: &mut Shared, occ: Occurrence) {
        if shared.clock_wrong {
            self.put_back(occ);
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
        let asks_first = self.asks_first(shared.now.utc, &occ);
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
            lead: self.lead(&occ),
            terms: self.policy.terms(occ.deadline),
            asks_first,
        }));
        self.returned_meanwhile = false;
        self.phase = Phase::Claiming {
            claim,
            occ: Box::new(occ),
            placed,
        };
    }

    /// Whether the store is asked first if another host has claimed an occurrence. Never at its instant or
    /// later: the question would make its start later, if this host wins.
    fn asks_first(&self, now: Timestamp, occ: &Occurrence) -> bool {
        self.is_ahead(now, occ) && occ.gap.is_none() && self.rivals.ask_first()
    }

    /// Whether an occurrence that runs at its time is not due yet.
    pub(super) fn is_ahead(&self, now: Timestamp, occ: &Occurrence) -> bool {
        occ.is_current() && now < self.policy.not_before(occ.at)
    }

    /// Returns when this host claims an occurrence (`spread`): always before its deadline and
    /// before the next occurrence, so that no host reaches the next one while another still delays
    /// this one.
    pub(super) fn turn(&self, occ: &Occurrence) -> Timestamp {
        if self.policy.spread.is_none() || !occ.is_current() {
            return occ.at.min(self.claimed_from(occ));
        }
        let start = self.policy.not_before(occ.at);
        let next = self.policy.calendar.next_after(occ.at);
        let interval = next.map_or(Duration::MAX, |next| next.since(occ.at));
        let limit = interval.min(occ.deadline.since(start));
        start.plus(self.policy.spread.delay(occ.at, limit))
    }

    /// Returns how long before its instant the store may grant an occurrence. What joined a backlog, or
    /// was granted before, is not claimed ahead.
    fn lead(&self, occ: &Occurrence) -> Duration {
        if occ.is_current() && occ.gap.is_none() {
            self.policy.lead()
        } else {
            Duration::ZERO
        }
    }

    /// Returns from when on this host claims an occurrence.
    pub(super) fn claimed_from(&self, occ: &Occurrence) -> Timestamp {
        self.policy.not_before(occ.at).minus(self.lead(occ))
    }

    /// The clock is correct again. Occurrences that can still start in time are claimed; `catch_up`
    /// judges the rest.
    pub(super) fn clock_right(&mut self, shared: &mut Shared) {
        self.drop_late(shared.now.utc);
        self.advance(shared);
    }

    /// The ledger is decided up to an occurrence.
    pub(super) fn note_decided(&mut self, until: Timestamp) {
        self.decided_until = self.decided_until.max(Some(until));
    }

    /// Continues with an occurrence that waited.
    pub(super) fn resume(&mut self, shared: &mut Shared, occ: Occurrence) {
        self.put_back(occ);
        self.advance(shared);
    }

    /// Has the lane begin with an occurrence as soon as it is idle. A rerun and a head are not among
    /// the pending ones: they need no registration, and what is undecided lies between them and the
    /// pending ones.
    pub(super) fn put_back(&mut self, occ: Occurrence) {
        match (occ.origin, &mut self.watch, &mut self.wait) {
            (Origin::Lane, ..) => self.pending.push_front(occ),
            (Origin::Watch, Some(watch), _) => watch.due = true,
            (Origin::Head, _, Some(wait)) => wait.ready = true,
            // The next reply to a registration names them again.
            (Origin::Watch | Origin::Head, ..) => {}
        }
    }

    pub(super) fn timer(&mut self, shared: &mut Shared, kind: TimerKind) {
        match kind {
            TimerKind::Watch => self.watch_due(shared),
            TimerKind::QueryLedger => self.query_if_run_missed(shared),
            TimerKind::Grace if self.sync == LedgerSync::Grace => {
                self.sync = LedgerSync::RegisteringAgain;
                shared.act(Action::Register { job: self.job });
            }
            TimerKind::Grace | TimerKind::Trial => {}
            TimerKind::Unsure => self.outage_confirmed(shared),
            TimerKind::HeadLate(id) => self.head_due(shared, id),
            TimerKind::BehindLate => self.behind_due(shared),
            TimerKind::Look(id) => self.look_while_parked(shared, id),
            TimerKind::Resync => self.resync(shared),
            TimerKind::Early(id) => match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Early { claim, occ } if claim == id => self.resume(shared, *occ),
                other => self.phase = other,
            },
            TimerKind::Deadline(id) => match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Parked { claim, occ } if claim == id => {
                    shared.forget_parked(self.job);
                    if occ.origin == Origin::Lane {
                        self.require_sync_before_pending();
                        self.advance(shared);
                    } else {
                        self.resume(shared, *occ);
                    }
                }
                Phase::Claiming { claim, placed, .. } if claim == id => {
                    self.give_up_claim(shared, claim, placed);
                }
                other => self.phase = other,
            },
        }
    }

    /// The processes of a run have ended.
    pub(super) fn run_ended(&mut self, shared: &mut Shared) {
        shared.free_place();
        self.running = self.running.saturating_sub(1);
        self.closing += 1;
        self.advance(shared);
    }

    /// This host did not start a run that it was granted. The occurrence returns to the waiting list,
    /// where another host or, once it has a place, this host can claim it.
    pub(super) fn run_not_started(&mut self, shared: &mut Shared, at: Timestamp, kind: Kind) {
        shared.free_place();
        self.running = self.running.saturating_sub(1);
        // Until the return has reached the store, a claim would receive this host's own run as the
        // reply.
        self.closing += 1;
        if shared.mode == Mode::Draining {
            return;
        }
        self.await_returned(shared, at, kind);
        self.advance(shared);
    }

    /// The store has the verdict of a run, and has released the lock.
    pub(super) fn run_closed(&mut self, shared: &mut Shared) {
        self.closing = self.closing.saturating_sub(1);
        // This host released the lock itself, so it need not wait for the store's message.
        if let Some(wait) = &mut self.wait {
            wait.ready = true;
        }
        self.advance(shared);
        self.look_after_own_run(shared);
    }

    /// Queries the ledger after a run without the store, unless a registration is to name the open run.
    fn look_after_own_run(&mut self, shared: &mut Shared) {
        if self.running > 0 || self.closing > 0 {
            return;
        }
        let after = std::mem::replace(&mut self.after_own_run, AfterOwnRun::Continue);
        if after == AfterOwnRun::Continue {
            return;
        }
        let is_registered = self.sync == LedgerSync::Known && !self.needs_sync_now();
        let may_ask = shared.mode == Mode::Working && shared.store == StoreState::Up;
        if is_registered && may_ask && self.watch.is_none() {
            shared.act(Action::QueryLedger { job: self.job });
        }
    }

    /// Ends the lane: other hosts, or this daemon's next start, handle what has not begun.
    pub(super) fn drain(&mut self, shared: &mut Shared) {
        self.pending.clear();
        self.watch = None;
        self.wait = None;
        self.behind = None;
        if let Phase::Claiming { claim, placed, .. } =
            std::mem::replace(&mut self.phase, Phase::Idle)
        {
            self.cancel(shared, claim, placed);
        }
    }

    /// Other hosts may have moved the job to another lock while they did not see this host. The
    /// reply to the registration names the open run and the head of the waiting list.
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
        self.sync = LedgerSync::Rejoining;
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

    pub(super) fn report(&self, shared: &mut Shared, at: Timestamp, notice: OccurrenceNotice) {
        shared.act(Action::Report {
            job: self.job,
            at,
            notice,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_lane_takes_little_memory() {
        // A daemon may have 100,000 of them.
        let size = size_of::<Lane>();
        assert!(size <= 240, "{size} bytes");
    }
}
