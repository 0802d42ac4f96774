//! The fields of a job that the core needs.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{CatchUp, Job, OnCrash, OnLost, OnOverlap, OnStoreDown, Scope};
use crate::names::HostName;
use crate::schedule::Spread;
use crate::store::protocol::LEAD;
use crate::store::{Late, RunTerms};
use crate::time::Timestamp;

/// The instants of a job: a schedule, or a simple replacement in tests.
pub(crate) trait OccurrenceSource: std::fmt::Debug + Send + Sync {
    /// Returns the first occurrence strictly after `from`.
    fn next_after(&self, from: Timestamp) -> Option<Timestamp>;
    /// Returns the last occurrence strictly before `before`.
    fn last_before(&self, before: Timestamp) -> Option<Timestamp>;
    /// Returns the interval between occurrences if it is constant.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Exclusion {
    /// They do, through a lock.
    Lock,
    /// They overlap freely.
    None,
}

/// A job's policies. It dereferences to those that jobs share.
#[derive(Debug, Clone)]
pub struct Policy {
    /// When it is due.
    pub(crate) calendar: Arc<dyn OccurrenceSource>,
    /// How long after its instant it may start (`jitter`).
    pub(crate) delay: Duration,
    /// How this host's claims are delayed.
    pub(crate) spread: Spread,
    /// The policies that do not depend on the job's name and schedule.
    pub(crate) shared: Arc<SharedPolicy>,
}

impl Deref for Policy {
    type Target = SharedPolicy;

    fn deref(&self) -> &SharedPolicy {
        &self.shared
    }
}

/// The policies that most jobs of a list have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SharedPolicy {
    /// How late it may start, after its delay.
    pub(crate) start_deadline: Duration,
    /// Whether runs exclude one another (`scope: none`: they do not).
    pub(crate) exclusion: Exclusion,
    /// What happens when the lock is held.
    pub(crate) on_overlap: OnOverlap,
    /// What happens to undecided occurrences of the past.
    pub(crate) catch_up: CatchUp,
    /// How old those may be.
    pub(crate) catch_up_window: Duration,
    /// What happens when its host dies.
    pub(crate) on_crash: OnCrash,
    /// How many attempts a run may have, retries and reruns counted; 0 (no limit) if it has no `retry`, or one
    /// of a single attempt.
    pub max_attempts: u32,
    /// What happens to a run whose lease is lost.
    pub(crate) on_lost: OnLost,
    /// What happens while the store is unreachable.
    pub(crate) on_store_down: OnStoreDown,
    /// How long to wait for the message of a release before claiming again. Short for raw keys,
    /// which other programs release without a message.
    pub(crate) poll: Duration,
    /// How long a recent undecided occurrence is left to hosts whose clocks are behind before it
    /// counts as missed.
    pub(crate) skew: Duration,
}

/// The shared policies of a list, each once.
#[derive(Debug, Default)]
pub(super) struct SharedPolicies(HashSet<Arc<SharedPolicy>>);

impl SharedPolicies {
    /// Lets a job share its policies with a job that has equal ones.
    pub(super) fn share(&mut self, policy: &mut Policy) {
        match self.0.get(&policy.shared) {
            Some(equal) => policy.shared.clone_from(equal),
            None => drop(self.0.insert(Arc::clone(&policy.shared))),
        }
    }

    /// Forgets those that no job has any more.
    pub(super) fn forget_unused(&mut self) {
        self.0.retain(|shared| Arc::strong_count(shared) > 1);
    }
}

/// How far clocks drift apart within hours without a working time service.
const FLEET_SKEW: Duration = Duration::from_secs(3);

/// The host that claims, and the fleet around it.
#[derive(Debug, Clone, Copy)]
pub struct ClaimContext<'a> {
    /// This host.
    pub host: &'a HostName,
    /// Whether other machines use the store.
    pub shared: bool,
    /// The list's `spread`.
    pub spread: Duration,
    /// The list's `max_running`.
    pub max_running: Option<NonZeroUsize>,
}

impl ClaimContext<'_> {
    /// Only hosts that share ledger and lock compete and can disagree about the time.
    fn competes_for(&self, job: &Job) -> bool {
        self.shared && job.lock.scope == Scope::Fleet
    }
}

impl Policy {
    /// The same, but for changes of the shared policies.
    #[cfg(test)]
    pub(super) fn with(mut self, change: impl FnOnce(&mut SharedPolicy)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }

    /// Returns the policies of a job.
    pub fn of(job: &Arc<Job>, context: ClaimContext<'_>) -> Self {
        let competes = context.competes_for(job);
        let spread = if competes && !context.spread.is_zero() {
            Spread::new(context.host, &job.name, context.spread)
        } else {
            Spread::default()
        };
        Self {
            calendar: Arc::<Job>::clone(job),
            delay: job.delay(),
            spread,
            shared: Arc::new(SharedPolicy::of(job, competes, context.spread)),
        }
    }

    /// Whether this host claims the job's occurrences ahead of their instants. Without a lock every claim
    /// is decided at once; `spread` has its own order; and what happens while the store is down is
    /// decided at the instant.
    pub fn claims_ahead(&self) -> bool {
        self.spread.is_none() && self.shared.may_claim_ahead()
    }

    /// Returns how long before its instant an occurrence is claimed at the earliest. The ticker decides how early
    /// it is.
    pub(super) fn lead(&self) -> Duration {
        if self.claims_ahead() {
            LEAD
        } else {
            Duration::ZERO
        }
    }

    /// Returns what the store does with an occurrence if it executes the claim after the deadline.
    pub(super) fn if_late(&self, at: Timestamp) -> Late {
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

    /// Returns when an occurrence may start.
    pub(super) fn not_before(&self, at: Timestamp) -> Timestamp {
        at.plus(self.delay)
    }

    /// Returns the start deadline of an occurrence that runs at its time.
    pub(super) fn deadline(&self, at: Timestamp) -> Timestamp {
        at.plus(self.delay).plus(self.start_deadline)
    }

    /// Returns the instant before which occurrences are too old to catch up.
    pub(super) fn window_start(&self, now: Timestamp) -> Timestamp {
        let oldest = now.minus(self.delay).minus(self.catch_up_window);
        oldest.plus(Duration::from_millis(1))
    }

    /// Returns the deadline of an occurrence that is caught up.
    pub(super) fn window_end(&self, at: Timestamp) -> Timestamp {
        at.plus(self.delay).plus(self.catch_up_window)
    }
}

impl SharedPolicy {
    fn of(job: &Job, competes: bool, spread: Duration) -> Self {
        Self {
            start_deadline: job.policies.start_deadline,
            exclusion: if job.lock.scope == Scope::None {
                Exclusion::None
            } else {
                Exclusion::Lock
            },
            on_overlap: job.policies.on_overlap,
            catch_up: job.policies.catch_up,
            catch_up_window: job.policies.catch_up_window,
            on_crash: job.policies.on_crash,
            max_attempts: (job.policies.retry)
                .map(|retry| retry.attempts)
                .filter(|attempts| *attempts > 1)
                .unwrap_or(0),
            on_lost: job.policies.on_lost,
            on_store_down: job.policies.on_store_down,
            poll: if job.lock.key.is_some() {
                Duration::from_millis(500)
            } else {
                Duration::from_secs(5)
            },
            skew: if competes {
                FLEET_SKEW + spread
            } else {
                Duration::ZERO
            },
        }
    }

    fn may_claim_ahead(&self) -> bool {
        self.exclusion == Exclusion::Lock && self.on_store_down == OnStoreDown::Wait
    }

    /// Returns the maximum number of reruns after crashes.
    pub(super) fn max_reruns(&self) -> u32 {
        match self.on_crash {
            OnCrash::Ignore => 0,
            OnCrash::Rerun { max_reruns } => max_reruns,
        }
    }

    /// Returns how long after the end of a crashed run's lease a rerun may start.
    pub(super) fn rerun_window(&self) -> Duration {
        match self.catch_up {
            CatchUp::None => self.start_deadline,
            CatchUp::Latest | CatchUp::All => self.start_deadline.max(self.catch_up_window),
        }
    }

    /// Returns the terms of a claim with this deadline. A grant fills in `reruns` and `yields`.
    pub(super) fn terms(&self, deadline: Timestamp) -> RunTerms {
        RunTerms {
            deadline,
            rerun_window: self.rerun_window(),
            max_reruns: self.max_reruns(),
            max_attempts: self.max_attempts,
            reruns: 0,
            yields: false,
        }
    }
}
