//! The fields of a job that the core needs.

use std::sync::Arc;
use std::time::Duration;

use super::spread::Spread;
use crate::config::{CatchUp, Job, OnCrash, OnOverlap, OnStoreDown, Scope};
use crate::names::HostName;
use crate::store::{Late, RunTerms};
use crate::time::Timestamp;

/// When a job is due; a schedule, or a simple stand-in in tests.
pub(crate) trait OccurrenceSource: std::fmt::Debug + Send + Sync {
    /// The first occurrence strictly after `from`.
    fn next_after(&self, from: Timestamp) -> Option<Timestamp>;
    /// The last occurrence strictly before `before`.
    fn last_before(&self, before: Timestamp) -> Option<Timestamp>;
    /// The distance of its occurrences, where it is constant.
    fn period(&self) -> Option<Duration>;
}

impl OccurrenceSource for Job {
    fn next_after(&self, from: Timestamp) -> Option<Timestamp> {
        self.schedule.next_after(from)
    }

    fn last_before(&self, before: Timestamp) -> Option<Timestamp> {
        self.schedule.last_before(before)
    }

    fn period(&self) -> Option<Duration> {
        self.schedule.period()
    }
}

/// Whether the runs of a job exclude one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exclusion {
    /// They do, by a lock.
    Lock,
    /// They overlap freely.
    None,
}

/// A job's policies.
#[derive(Debug, Clone)]
pub struct Policy {
    /// When it is due.
    pub(crate) calendar: Arc<dyn OccurrenceSource>,
    /// How long after its instant it starts.
    pub(crate) delay: Duration,
    /// How late it may start after that.
    pub(crate) start_deadline: Duration,
    /// Whether runs exclude one another (`scope: none`: they do not).
    pub(crate) exclusion: Exclusion,
    /// What happens when the lock is held.
    pub(crate) on_overlap: OnOverlap,
    /// What happens to what nobody decided.
    pub(crate) catch_up: CatchUp,
    /// How old that may be.
    pub(crate) catch_up_window: Duration,
    /// What happens when its host dies.
    pub(crate) on_crash: OnCrash,
    /// How many attempts a run may have, retries and reruns counted; 0 if it has no `retry`.
    pub max_attempts: u32,
    /// What happens while the store is away.
    pub(crate) on_store_down: OnStoreDown,
    /// How long to wait for news of a release before asking again all the same: short for keys
    /// that other programs release without a word.
    pub(crate) poll: Duration,
    /// How far the clocks of the hosts that share the ledger may lie apart without an occurrence
    /// being taken for missed that a slow one is about to claim.
    pub(crate) skew: Duration,
    /// How this host's claims are delayed.
    pub(crate) spread: Spread,
}

/// What clocks without a working time service come to within hours.
const FLEET_SKEW: Duration = Duration::from_secs(3);

/// Where claims are made, and in whose company.
#[derive(Debug, Clone, Copy)]
pub struct ClaimContext<'a> {
    /// This host.
    pub host: &'a HostName,
    /// Whether other machines, with clocks of their own, use the store.
    pub shared: bool,
    /// The list's `spread`.
    pub spread: Duration,
}

impl Policy {
    /// The policies of a job.
    pub fn of(job: &Arc<Job>, place: ClaimContext<'_>) -> Self {
        // Hosts compete, and disagree about the time, only where they share ledger and lock.
        let shared = place.shared && job.lock.scope == Scope::Fleet;
        Self {
            calendar: Arc::<Job>::clone(job),
            delay: job.delay(),
            start_deadline: job.start_deadline,
            exclusion: if job.lock.scope == Scope::None {
                Exclusion::None
            } else {
                Exclusion::Lock
            },
            on_overlap: job.on_overlap,
            catch_up: job.catch_up,
            catch_up_window: job.catch_up_window,
            on_crash: job.on_crash,
            max_attempts: job
                .retry
                .map_or(0, |retry| retry.attempts)
                .saturating_mul(u32::from(job.retry.is_some_and(|retry| retry.attempts > 1))),
            on_store_down: job.on_store_down,
            poll: if job.lock.key.is_some() {
                Duration::from_millis(500)
            } else {
                Duration::from_secs(5)
            },
            skew: if shared {
                FLEET_SKEW + place.spread
            } else {
                Duration::ZERO
            },
            spread: if shared {
                Spread::new(place.host, &job.name, place.spread)
            } else {
                Spread::default()
            },
        }
    }

    /// How many reruns a crash may bring.
    pub(super) fn max_reruns(&self) -> u32 {
        match self.on_crash {
            OnCrash::Ignore => 0,
            OnCrash::Rerun { max_reruns } => max_reruns,
        }
    }

    /// What a claim with this deadline asks the ledger to keep.
    pub(super) fn terms(&self, deadline: Timestamp) -> RunTerms {
        RunTerms {
            deadline,
            rerun_window: match self.catch_up {
                CatchUp::None => self.start_deadline,
                CatchUp::Latest | CatchUp::All => self.start_deadline.max(self.catch_up_window),
            },
            max_reruns: self.max_reruns(),
            max_attempts: self.max_attempts,
            reruns: 0,
            yields: false,
        }
    }

    /// What becomes of an occurrence that the store looks at after its deadline.
    pub(super) fn late(&self, at: Timestamp) -> Late {
        if self.on_store_down != OnStoreDown::Wait {
            return Late::Leave;
        }
        let newer = || {
            self.calendar
                .next_after(at)
                .map(|next| self.not_before(next))
        };
        match self.catch_up {
            CatchUp::None => Late::Miss,
            CatchUp::Latest => Late::CatchUp {
                until: self.window_end(at),
                newer: newer(),
            },
            CatchUp::All => Late::CatchUp {
                until: self.window_end(at),
                newer: None,
            },
        }
    }

    /// When an occurrence may start.
    pub(super) fn not_before(&self, at: Timestamp) -> Timestamp {
        at.plus(self.delay)
    }

    /// When it is too late to start one at its time.
    pub(super) fn deadline(&self, at: Timestamp) -> Timestamp {
        at.plus(self.delay).plus(self.start_deadline)
    }

    /// What lies before this is too old to be caught up.
    pub(super) fn window_start(&self, now: Timestamp) -> Timestamp {
        let oldest = now.minus(self.delay).minus(self.catch_up_window);
        oldest.plus(Duration::from_millis(1))
    }

    /// When it is too late to catch one up.
    pub(super) fn window_end(&self, at: Timestamp) -> Timestamp {
        at.plus(self.delay).plus(self.catch_up_window)
    }
}
