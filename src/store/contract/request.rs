//! The requests to a store. Each contains everything that its rule needs, so that the store decides
//! in one step.

use std::time::Duration;

use super::lock::{Fingerprint, Lock};
use super::nodes::StoreNodes;
use super::pause::IfPaused;
use super::record::{Kind, Outcome, Range, Record};
use super::registry::HeldJob;
use super::retention::Retention;
use crate::names::{HostName, JobName, RunId, Token};
use crate::time::Timestamp;

/// What to do when the lock is held, decided inside the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// The occurrence is skipped, recorded, and `last` moves over it.
    Skip,
    /// The occurrence waits in the ledger and takes the place of those that yield to it, which
    /// are recorded as superseded (`on_overlap: wait`).
    Wait,
    /// The occurrence waits in the ledger behind those that wait already. If `limit` of them
    /// wait, it is skipped and recorded (`on_overlap: queue`, `catch_up: all`).
    Queue {
        /// At most this many occurrences wait, reruns not counted.
        limit: u32,
    },
}

/// What a claim does with an occurrence whose deadline has passed by the time the store executes
/// the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Late {
    /// Records it as missed.
    Miss,
    /// Treats it as a catch-up run with its own deadline.
    CatchUp {
        /// The end of the catch-up window; past it, the occurrence is recorded as missed.
        until: Timestamp,
        /// `catch_up: latest`: when the following occurrence may start. From then on this one
        /// is not the newest any more, and is recorded as missed.
        newer: Option<Timestamp>,
    },
    /// Decides nothing: the host has another plan for it (`on_store_down: run` or `skip`).
    Leave,
}

/// Occurrences that policy drops, recorded as one ranged record before the claim goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedRange {
    /// First and last of the dropped occurrences, and how many.
    pub range: Range,
    /// `Missed` (catch-up), `Skipped` (superseded, queue full) or `Unknown` (due before the store
    /// lost its data).
    pub outcome: Outcome,
    /// Why, in plain words.
    pub reason: String,
}

/// The occurrence that a claim is for, and what the ledger needs to judge it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The instant the schedule names.
    pub scheduled_at: Timestamp,
    /// When it may start: `scheduled_at` and the job's jitter. Before it the reply is `Early`.
    pub not_before: Timestamp,
    /// When it is too late to start.
    pub deadline: Timestamp,
    /// The schedule's preceding occurrence, if there is one.
    pub prev: Option<Timestamp>,
    /// The schedule that names the occurrence.
    pub fingerprint: Fingerprint,
    /// The answer to a `Gap`: what of it policy drops. Applied only if the ledger still stands
    /// at `if_last`; with it, `prev` is not judged again.
    pub gap: Option<GapAnswer>,
    /// What happens if the store executes the claim after `deadline`.
    pub late: Late,
    /// `on_crash: rerun`: how many reruns are allowed. A run whose lease ends without a result
    /// then stands at the head of the waiting list.
    pub max_reruns: u32,
    /// `retry.attempts`: how many attempts are allowed in all, reruns included; 0 means that only
    /// `max_reruns` limits them.
    pub max_attempts: u32,
    /// How long after the end of a crashed run's lease it may be run again.
    pub rerun_window: Duration,
    /// How long before `not_before` the store may already grant the claim, for that instant; at most
    /// [`LEAD`](crate::store::protocol::LEAD). Only a plain grant comes early: whatever else the
    /// reply would be, it is `Early` until then.
    pub lead: Duration,
}

/// How a host answers `Gap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapAnswer {
    /// The `last` the answer was computed from.
    pub if_last: Timestamp,
    /// What is dropped, in ascending order, all of it before `scheduled_at`.
    pub drop: Vec<DroppedRange>,
}

/// A claim: for an occurrence of a job, for a manual run of a job, or for a bare lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The lock.
    pub lock: Lock,
    /// Who asks; the same token for every copy of this claim.
    pub token: Token,
    /// The run that will be opened.
    pub run_id: RunId,
    /// How long the lease lasts unless renewed.
    pub ttl: Duration,
    /// What the claim is for.
    pub what: ClaimTarget,
}

impl Claim {
    /// Returns the request that cancels the claim: whatever a copy of it was or will be granted is
    /// released, and the occurrence of a job returns to its waiting list. `keep` is how many
    /// records the job's history keeps.
    pub fn cancellation(&self, keep: Retention) -> Finish {
        let job = self.what.job();
        Finish {
            job: job.cloned(),
            give_back: job.is_some(),
            keep,
            ..Finish::of_lock(self.lock.clone(), self.token.clone())
        }
    }
}

/// What a claim is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimTarget {
    /// `exec` and the library: the lock alone; neither ledger nor history.
    Lock,
    /// `trigger`: a run of the job outside its schedule; recorded, `last` stays.
    Manual {
        /// The job.
        job: JobName,
        /// What happens if the job is paused.
        if_paused: IfPaused,
    },
    /// An occurrence of the job.
    Occurrence {
        /// The job.
        job: JobName,
        /// `Schedule`, `CatchUp`, `Rerun` or `Queue`, for the record.
        kind: Kind,
        /// The occurrence.
        due: Due,
        /// What happens when the lock is held.
        overlap: Overlap,
        /// What the job's history keeps.
        keep: Retention,
    },
    /// Occurrences that policy drops while none is to be run: skips during an outage of the
    /// store, misses under `catch_up: none`. Takes no lock.
    Drops {
        /// The job.
        job: JobName,
        /// The schedule that names the occurrences.
        fingerprint: Fingerprint,
        /// The ranges, and the watermark that they were computed from.
        answer: GapAnswer,
        /// What the job's history keeps.
        keep: Retention,
    },
}

impl ClaimTarget {
    /// The job whose ledger the claim concerns; `None` for a bare lock.
    pub fn job(&self) -> Option<&JobName> {
        match self {
            Self::Lock => None,
            Self::Manual { job, .. } | Self::Occurrence { job, .. } | Self::Drops { job, .. } => {
                Some(job)
            }
        }
    }
}

/// The start of a further attempt of a run, noted in the ledger before the attempt starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The lock.
    pub lock: Lock,
    /// The token of the claim.
    pub token: Token,
    /// The job.
    pub job: JobName,
    /// The attempt that is about to start.
    pub attempt: u32,
}

/// The end of a run, or of a claim that nobody will use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finish {
    /// The lock.
    pub lock: Lock,
    /// The token of the claim.
    pub token: Token,
    /// The job whose run ends and what to record; `None` for `exec` and the library, and for a
    /// claim that is cancelled before anything ran.
    pub record: Option<Record>,
    /// The job whose open run this token may have; `None` for a bare lock.
    pub job: Option<JobName>,
    /// True when the claim is given up before anything ran: an open run of this token is closed and
    /// its occurrence returns to the waiting list, so that another host may take it. Messages say that it is
    /// *returned*.
    pub give_back: bool,
    /// What the job's history keeps.
    pub keep: Retention,
}

impl Finish {
    /// Returns the request that releases the lease of a bare lock.
    pub fn of_lock(lock: Lock, token: Token) -> Self {
        Self {
            lock,
            token,
            record: None,
            job: None,
            give_back: false,
            keep: Retention::of_records(0),
        }
    }
}

/// Asks that an orphaned run be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// The lock.
    pub lock: Lock,
    /// The job.
    pub job: JobName,
    /// The run, as `AlreadyClaimed` named it.
    pub run_id: RunId,
    /// What the job's history keeps.
    pub keep: Retention,
}

/// Asks that all that is kept of a job be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forget {
    /// The job.
    pub job: JobName,
    /// Its lock.
    pub lock: Lock,
    /// Whether the lock's state goes too: no other job uses the lock.
    pub with_lock: bool,
    /// Whether to do it although a lease is held. The lease itself stays.
    pub although_held: bool,
}

/// A job as a host's list has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The job.
    pub job: JobName,
    /// Its lock.
    pub lock: Lock,
    /// Its schedule.
    pub fingerprint: Fingerprint,
    /// How long its lease lasts unless renewed, and the shortest wait of the store after a loss of
    /// data.
    pub ttl: Duration,
}

/// What a host says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostInfo {
    /// The host.
    pub host: HostName,
    /// The fingerprint of its whole job list: `status` shows which hosts differ.
    pub config: Fingerprint,
    /// The version of cronlatch it runs.
    pub version: String,
    /// How many runs it has in progress.
    pub running: usize,
    /// The daemon's process id.
    pub pid: u32,
    /// True once it drains.
    pub draining: bool,
    /// When the daemon started, by its own clock.
    pub started_at: Timestamp,
    /// Its clock less the store's, in milliseconds, when it was last measured.
    pub clock_offset_ms: Option<i64>,
    /// What it has run out of, so that it starts no jobs; `None` while it starts them.
    pub lacks: Option<String>,
    /// Jobs of which it claims nothing while other hosts use another lock.
    pub held_back: Vec<HeldJob>,
    /// The servers that it lets decide; `None` if that is not known.
    pub nodes: Option<StoreNodes>,
    /// Why it claims nothing: another store is in use. `None` while it claims.
    pub waits: Option<String>,
    /// Why it claims nothing that is due: how far its clock is from the store's. `None` while that is within
    /// `max_clock_skew`.
    pub clock_wrong: Option<String>,
    /// For how long it was up when it said this, whatever its wall clock shows.
    pub up: Option<Duration>,
    /// Another live daemon that announces itself under the same name.
    pub namesake: Option<String>,
    /// The directory in which it keeps the output of runs; `None` if it has none.
    pub output: Option<String>,
    /// Where other machines reach its HTTP server; `None` if they do not.
    pub http: Option<String>,
}
