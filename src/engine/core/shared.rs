//! What the lanes of all jobs share: clocks, places, timers, the state of the store.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroUsize;

use super::event::{Action, ClaimId, JobIx, Now};
use crate::time::{BootInstant, Timestamp};

/// Whether the store is reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreState {
    Up,
    Down,
}

/// Whether new claims are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Working,
    Draining,
}

/// Why a lane set a timer. A timer that finds its lane in another state does nothing, so most need
/// not be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerKind {
    /// The claim was too early, or this host claims later (`spread`).
    Early(ClaimId),
    /// The start deadline of an occurrence that waits for a place or for a reply.
    Deadline(ClaimId),
    /// The lease of another host's run is over.
    Watch,
    /// No host can be granted any more what this lane skipped, so the ledger shows the result.
    QueryLedger,
    /// The deadline of the head of the waiting list has passed, and its verdict is due.
    HeadLate(ClaimId),
    /// The deadline of an occurrence that is left to other hosts has passed.
    Resync,
    /// The wait for hosts whose clocks are behind is over.
    Grace,
    /// The deadline of an entry behind the head of the waiting list has passed, and its verdict is due.
    BehindLate,
    /// Another host may have run meanwhile what waits for a place on this host.
    Look(ClaimId),
    /// The store has had the time to reply to a host that was stopped or suspended.
    Unsure,
    /// A host that lacks resources may try one run. Lanes ignore this timer, because any timer
    /// makes the core check for parked jobs.
    Trial,
}

/// The state of a host that lacks resources to start processes.
#[derive(Debug, Clone, Copy)]
struct ShortagePause {
    /// There are no claims before this.
    until: BootInstant,
    /// One run is a trial: there are no further claims until it has started or ended.
    on_trial: bool,
}

/// The state that all lanes share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) now: Now,
    pub(super) store: StoreState,
    pub(super) mode: Mode,
    /// The host's clock is wrong, so there are no claims.
    pub(super) clock_wrong: bool,
    /// When this host last noticed that it had been stopped or suspended.
    pub(super) awake_since: Option<BootInstant>,
    pub(super) out: Vec<Action>,
    timers: BTreeSet<(BootInstant, JobIx, TimerKind)>,
    max_running: Option<NonZeroUsize>,
    places_taken: usize,
    parked: VecDeque<JobIx>,
    shortage: Option<ShortagePause>,
    next_claim: u64,
}

impl Shared {
    pub(super) fn new(max_running: Option<NonZeroUsize>, now: Now) -> Self {
        Self {
            now,
            store: StoreState::Up,
            mode: Mode::Working,
            clock_wrong: false,
            awake_since: None,
            out: Vec::new(),
            timers: BTreeSet::new(),
            max_running,
            places_taken: 0,
            parked: VecDeque::new(),
            shortage: None,
            next_claim: 0,
        }
    }

    /// This host was stopped or suspended.
    pub(super) fn awoke(&mut self) {
        self.awake_since = Some(self.now.boot);
    }

    /// Sets the maximum number of concurrent runs. Runs above it continue.
    pub(super) fn set_max_running(&mut self, max_running: Option<NonZeroUsize>) {
        self.max_running = max_running;
    }

    /// Returns a number that no other claim has.
    pub(super) fn new_claim(&mut self) -> ClaimId {
        self.next_claim += 1;
        ClaimId(self.next_claim)
    }

    /// Takes a place and returns true if one is free.
    pub(super) fn take_place(&mut self) -> bool {
        let free = self.has_place();
        if free {
            self.places_taken += 1;
            if let Some(shortage) = &mut self.shortage {
                shortage.on_trial = true;
            }
        }
        free
    }

    pub(super) fn free_place(&mut self) {
        if let Some(shortage) = &mut self.shortage {
            shortage.on_trial = false;
        }
        self.places_taken = self.places_taken.saturating_sub(1);
    }

    pub(super) fn has_place(&self) -> bool {
        let now = self.now.boot;
        self.max_running
            .is_none_or(|max| self.places_taken < max.get())
            && self
                .shortage
                .is_none_or(|shortage| shortage.until <= now && !shortage.on_trial)
    }

    /// Whether this host lacks resources to start processes.
    pub(super) fn is_short(&self) -> bool {
        self.shortage.is_some()
    }

    /// This host counts as full until `until`.
    pub(super) fn run_short_until(&mut self, until: BootInstant, job: JobIx) {
        self.shortage = Some(ShortagePause {
            until,
            on_trial: false,
        });
        if self.mode == Mode::Working {
            self.arm(until, job, TimerKind::Trial);
        }
    }

    pub(super) fn resources_back(&mut self) {
        self.shortage = None;
    }

    pub(super) fn park(&mut self, job: JobIx) {
        if !self.parked.contains(&job) {
            self.parked.push_back(job);
        }
    }

    /// Returns the job that has waited longest for a place, if there is a free place.
    pub(super) fn unpark(&mut self) -> Option<JobIx> {
        if self.has_place() {
            self.parked.pop_front()
        } else {
            None
        }
    }

    pub(super) fn forget_parked(&mut self, job: JobIx) {
        self.parked.retain(|parked| *parked != job);
    }

    pub(super) fn arm(&mut self, at: BootInstant, job: JobIx, kind: TimerKind) {
        self.timers.insert((at, job, kind));
    }

    pub(super) fn disarm(&mut self, at: BootInstant, job: JobIx, kind: TimerKind) {
        self.timers.remove(&(at, job, kind));
    }

    /// Arms a timer for an instant of the wall clock.
    pub(super) fn arm_utc(&mut self, at: Timestamp, job: JobIx, kind: TimerKind) {
        let boot = self.now.boot.plus(at.since(self.now.utc));
        self.arm(boot, job, kind);
    }

    pub(super) fn next_timer(&self) -> Option<BootInstant> {
        self.timers.first().map(|(at, ..)| *at)
    }

    pub(super) fn due_timer(&mut self) -> Option<(JobIx, TimerKind)> {
        let (at, ..) = self.timers.first()?;
        if *at > self.now.boot {
            return None;
        }
        self.timers.pop_first().map(|(_, job, kind)| (job, kind))
    }

    pub(super) fn clear_timers(&mut self) {
        self.timers.clear();
        self.parked.clear();
    }

    pub(super) fn act(&mut self, action: Action) {
        self.out.push(action);
    }
}
