//! What is asked of a store.

use std::time::Duration;

use super::record::{Kind, Outcome, Range, Record};
use crate::names::{HostName, JobName, LockName, RunId, Token};
use crate::time::Timestamp;

/// Which key holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LockKey {
    /// cronlatch's own layout: `PREFIX:{LOCK}:lock`.
    Named,
    /// A key that applications take themselves with `SET key token NX PX`; used as it is.
    Raw(String),
}

/// A lock: its name gives the place of state, ledger and history, its key the lock itself.
///
/// With a raw key the name is unused in Redis keys; the key's own hash tag, else the whole key,
/// takes its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lock {
    /// The lock's name; for `scope: host` and for `scope: none` it reads `LOCK@HOST`.
    pub name: String,
    /// Where the lock itself is.
    pub key: LockKey,
    /// False for `scope: none`: ledger and history are kept, no lock is taken.
    pub exclusive: bool,
}

impl Lock {
    /// A lock of the whole fleet.
    pub fn named(name: &LockName) -> Self {
        Self {
            name: name.to_string(),
            key: LockKey::Named,
            exclusive: true,
        }
    }

    /// A lock that applications share under their own key.
    pub fn raw(key: &str) -> Self {
        Self {
            name: key.to_owned(),
            key: LockKey::Raw(key.to_owned()),
            exclusive: true,
        }
    }

    /// A lock that only the daemons of one host compete for.
    pub fn of_host(name: &LockName, host: &HostName) -> Self {
        Self {
            name: format!("{name}@{host}"),
            key: LockKey::Named,
            exclusive: true,
        }
    }
}

/// The identity of a schedule: changes whenever the instants it names may change.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub String);

/// What to do when the lock is held, decided inside the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overlap {
    /// The occurrence is skipped, recorded, and `last` moves over it.
    Skip,
    /// Nothing is decided: the host asks again (`on_overlap: wait` and `queue`).
    Wait,
}

/// Occurrences that policy drops, recorded as one ranged record before the claim goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drop {
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
    /// When it may start: `scheduled_at` and the job's jitter. Before it the answer is `Early`.
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
    /// `on_crash: rerun` — how many reruns are allowed. A claim for an occurrence whose run is
    /// open under a lease that is over takes it again, with the next attempt.
    pub max_reruns: u32,
}

/// How a host answers `Gap`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GapAnswer {
    /// The `last` the answer was computed from.
    pub if_last: Timestamp,
    /// What is dropped, in ascending order, all of it before `scheduled_at`.
    pub drop: Vec<Drop>,
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
    pub what: What,
}

/// What a claim is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// `exec` and the library: the lock alone; neither ledger nor history.
    Lock,
    /// `trigger`: a run of the job outside its schedule; recorded, `last` stays.
    Manual {
        /// The job.
        job: JobName,
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
        /// How many records the job's history keeps.
        keep: u32,
    },
}

/// One lease to extend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewal {
    /// The lock.
    pub lock: Lock,
    /// The token it was granted under.
    pub token: Token,
    /// The lease then lasts this long from now.
    pub ttl: Duration,
    /// What its holder knows of it.
    pub tenure: Tenure,
}

/// What a holder knows of its lease: enough for a store that lost its data to take it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenure {
    /// The fencing token; 0 when it is not known: such a lease is never taken back.
    pub fence: u64,
    /// The run.
    pub run_id: RunId,
    /// The job's run; `None` for a bare lock.
    pub run: Option<RunTenure>,
}

impl Tenure {
    /// Of a lock without a job.
    pub fn of_lock(fence: u64, run_id: RunId) -> Self {
        Self {
            fence,
            run_id,
            run: None,
        }
    }
}

/// The run that a lease was granted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunTenure {
    /// The job.
    pub job: JobName,
    /// The occurrence; `None` for a manual run.
    pub scheduled_at: Option<Timestamp>,
    /// 1, or more when a crashed run is run again.
    pub attempt: u32,
    /// How the run came to be.
    pub kind: Kind,
    /// When it began, by the clock of its host.
    pub started_at: Timestamp,
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
    /// True when the claim is given up before anything ran: an open run of this token is closed
    /// **and its occurrence given back** (`last` returns to what it was), so that another host
    /// may take it.
    pub give_back: bool,
    /// How many records the job's history keeps.
    pub keep: u32,
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
    /// How many records the job's history keeps.
    pub keep: u32,
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
    /// How long its lease lasts unless renewed: so long the store waits, at least, after it lost
    /// its data.
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
    /// How many runs it has in hand.
    pub running: usize,
    /// The daemon's process id.
    pub pid: u32,
    /// True once it drains.
    pub draining: bool,
    /// When the daemon started, by its own clock.
    pub started_at: Timestamp,
    /// Its clock less the store's, in milliseconds, when it was last measured.
    pub clock_offset_ms: Option<i64>,
}
