//! The ledger of a job as data: what is decided, the open run, what waits, and a move to another lock.
//!
//! The rules that change it are in [`protocol`](crate::store::protocol).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::grant::RunTerms;
use super::lock::{Fingerprint, Lock, LockRef};
use super::pause::Pause;
use super::record::Kind;
use super::reply::Head;
use super::summary::Summary;
use crate::names::{JobName, RunId, Token};
use crate::time::Timestamp;

/// How many fingerprints a job remembers, so that a rolling deploy does not flip them.
pub const FINGERPRINTS_KEPT: usize = 3;

/// How many occurrences beyond the watermark a job remembers as decided.
pub const DECIDED_BEYOND_KEPT: usize = 100;

/// The ledger of a job: everything that a store keeps about it except its history.
///
/// The nodes of a Redlock keep it as JSON, so every field must survive a round trip through serde.
/// A field that is added later needs `#[serde(default)]`, or the nodes' ledgers need a new version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobState {
    /// The watermark: every occurrence up to it is decided.
    pub last: Timestamp,
    /// Occurrences after `last` that are decided because hosts ran them without the store, ascending,
    /// at most [`DECIDED_BEYOND_KEPT`]; also that of the open run, if another result has decided it.
    /// Occurrences between them may still be undecided. What `last` has passed is removed when the list
    /// next changes.
    ///
    /// The stores call it `beyond`: beyond the watermark.
    #[serde(default, rename = "beyond")]
    pub decided_beyond: Vec<Timestamp>,
    /// The run that was granted and has not ended.
    pub open: Option<Open>,
    /// The occurrences that the ledger has accepted and that have not run yet, in the order in which
    /// they will run. None of them is after `last`.
    #[serde(default)]
    pub waiting: Vec<Waiting>,
    /// The schedules seen and when each first was, oldest first, at most [`FINGERPRINTS_KEPT`].
    pub fingerprints: Vec<(Fingerprint, Timestamp)>,
    /// Which lock the job uses, if that ever changed.
    #[serde(default)]
    pub moved: Option<Moved>,
    /// The pauses that may still decide occurrences, oldest first, at most
    /// [`PAUSES_KEPT`](super::PAUSES_KEPT). Only the last one can be in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
    /// The newest verdicts, for people.
    #[serde(default)]
    pub summary: Summary,
}

/// The lock that a job uses now, noted in every ledger that the job had before.
///
/// If this is not the lock of the ledger itself, the ledger is a tombstone: it rejects every claim, and
/// keeps its data until the ledger under the other lock has begun with them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Moved {
    /// The move that wrote this. Later moves have greater numbers.
    pub number: u64,
    /// The move with whose data this ledger began; 0 if it began without a move.
    pub since: u64,
    /// The lock.
    pub to: LockRef,
}

/// An open run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Open {
    /// Its occurrence; `None` for a manual run.
    pub scheduled_at: Option<Timestamp>,
    /// The run.
    pub run_id: RunId,
    /// The token it was granted under.
    pub token: Token,
    /// The newest attempt, retries and reruns counted; starts at 1.
    pub attempt: u32,
    /// How it came to be.
    pub kind: Kind,
    /// Its fencing token.
    pub fence: u64,
    /// The store's clock at the grant.
    pub started_at: Timestamp,
    /// The host that runs it.
    pub host: String,
    /// What its claim asked for.
    pub terms: RunTerms,
}

/// An occurrence that waits for the lock, for a host, or for its rerun.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Waiting {
    /// The occurrence.
    pub scheduled_at: Timestamp,
    /// How its run will be recorded.
    pub kind: Kind,
    /// The latest instant at which it may start.
    pub deadline: Timestamp,
    /// Whether a newer occurrence takes its place.
    pub yields: bool,
    /// The number of earlier attempts.
    pub attempts: u32,
    /// The number of earlier reruns.
    pub reruns: u32,
    /// The run that is repeated, until its end is recorded.
    pub crashed: Option<Crashed>,
}

/// A run whose lease expired without a result, and which will be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Crashed {
    /// The run.
    pub run_id: RunId,
    /// The token it was granted under.
    pub token: Token,
    /// How it came to be.
    pub kind: Kind,
    /// Its fencing token.
    pub fence: u64,
    /// The store's clock at the grant.
    pub started_at: Timestamp,
    /// The host that ran it.
    pub host: String,
}

impl Waiting {
    /// Returns what a host needs in order to claim it.
    pub fn head(&self) -> Head {
        Head {
            scheduled_at: self.scheduled_at,
            kind: self.kind,
            deadline: self.deadline,
        }
    }
}

/// A ledger as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    /// Its state; `None` if there is no ledger.
    pub state: Option<JobState>,
    /// How long the lease of its open run lasts; zero without such a run.
    pub remaining: Duration,
    /// When that lease ended, by the store's clock; `None` while it lasts, or if it is not known.
    pub ended_at: Option<Timestamp>,
}

/// The request to replace a ledger if it is still as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    /// The job.
    pub job: JobName,
    /// The lock of the ledger.
    pub lock: Lock,
    /// The TTL of the job's leases. For this long after a loss of data nothing is replaced.
    pub ttl: Duration,
    /// The ledger as it was read.
    pub expected: Option<JobState>,
    /// What takes its place.
    pub new: JobState,
}

/// The reply to a [`Replacement`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// The ledger was replaced.
    Done,
    /// The ledger is not as it was read. Nothing was changed.
    Changed,
    /// A run of the ledger holds its lease. Nothing was changed.
    Leased {
        /// How long the lease lasts unless it is renewed.
        remaining: Duration,
    },
    /// The store may have lost data. Nothing was changed.
    Recovering {
        /// How long to wait before asking again.
        remaining: Duration,
    },
}
