//! The replies of a store. They contain the store's clock and durations, never the clock of the host
//! that sent the request.

use std::fmt;
use std::time::Duration;

use super::key_fault::KeyFault;
use super::lock::{Fingerprint, LockRef};
use super::pause::Pause;
use super::record::Kind;
use super::request::HostInfo;
use super::summary::Summary;
use crate::names::{JobName, RunId};
use crate::time::Timestamp;

/// The reply to a claim, in the order in which the rules are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimReply {
    /// The caller holds the lease, and the run is open.
    Granted {
        /// The fencing token: larger than any before for this lock.
        fence: u64,
        /// 1, or more when a crashed run is run again.
        attempt: u32,
        /// The store's clock at the reply. A copy of the claim gets the instant of its own reply.
        at: Timestamp,
        /// How long after the reply the run may start, by the store's clock, to the microsecond: zero
        /// unless the claim came ahead of its instant ([`Due::lead`](super::Due::lead)).
        starts_in: Duration,
    },
    /// The store is new or may have lost data. It grants nothing until every lease that it may have
    /// lost has been renewed or has expired. Nothing was changed.
    Recovering {
        /// How long to wait before claiming again.
        remaining: Duration,
    },
    /// The occurrence is in the future by the store's clock.
    Early {
        /// How long to wait before claiming again.
        by: Duration,
    },
    /// The ledger has decided this occurrence already.
    AlreadyClaimed(RunStatus),
    /// Occurrences before this one are undecided.
    Gap {
        /// The ledger's watermark: everything up to it is decided, or was due before this schedule
        /// counted. Nothing was changed.
        last: Timestamp,
        /// Set if the store ever lost data: undecided occurrences up to this instant must be dropped
        /// as `unknown`.
        horizon: Option<Timestamp>,
        /// Occurrences after `last` that are decided nevertheless, ascending, because hosts ran them
        /// without the store. The gap answer must not drop any of them.
        decided_beyond: Vec<Timestamp>,
        /// The pauses of the job. The gap answer must not drop as missed what was due during one.
        pauses: Vec<Pause>,
    },
    /// The occurrence was due before the store lost its data, so the store cannot know whether it ran.
    /// It was recorded as `unknown`, and `last` moved over it.
    Unknown,
    /// The deadline has passed. The occurrence was recorded as `missed`, and `last` moved over it.
    TooLate,
    /// The deadline has passed and nothing was decided ([`super::Late::Leave`]).
    Stale,
    /// The ledger is ahead of the store's clock, which was set back or was wrong before. The job waits
    /// until the clock has caught up with the ledger.
    Ahead {
        /// How far the ledger is ahead.
        by: Duration,
    },
    /// The occurrence waits, or another occurrence must run before it.
    Waits {
        /// The first entry of the waiting list. Only this one can be claimed.
        head: Head,
        /// Whether the claimed occurrence is in the ledger now. If not, it must be claimed again once
        /// the head has been decided.
        entered: bool,
        /// The holder of the lock; `None` when the lock is free.
        by: Option<String>,
        /// How long that lease lasts unless renewed; zero when the lock is free, `None` when its
        /// key has no TTL at all.
        remaining: Option<Duration>,
    },
    /// The job is paused, or was when the occurrence was due. The occurrence was recorded as
    /// `skipped`, and `last` moved over it; a manual run was not started.
    Paused(Pause),
    /// The queue is full: the occurrence was recorded as `skipped`, and `last` moved over it.
    QueueFull,
    /// The ranges of [`super::ClaimTarget::Drops`] are recorded.
    Dropped,
    /// Another lease holds the lock. With [`super::Overlap::Skip`] the occurrence was recorded as
    /// `skipped` and `last` moved.
    Held {
        /// The holder: the host of its token, or the value of another program (at most 100 bytes).
        by: String,
        /// How long the lease lasts unless renewed; `None` if the key has no TTL, which a person must
        /// fix.
        remaining: Option<Duration>,
    },
    /// This token has finished: the claim is a late copy and changes nothing.
    Finished,
    /// The job now uses another lock, and its ledger has moved there. Nothing was changed.
    Moved {
        /// That lock.
        to: LockRef,
    },
}

impl ClaimReply {
    /// Returns the reply as it reads `passed` later: what is left until the start is shorter by that.
    #[must_use]
    pub(crate) fn after(mut self, passed: Duration) -> Self {
        if let Self::Granted { starts_in, .. } = &mut self {
            *starts_in = starts_in.saturating_sub(passed);
        }
        self
    }
}

/// The first occurrence of a job's waiting list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Head {
    /// The occurrence.
    pub scheduled_at: Timestamp,
    /// How its run will be recorded.
    pub kind: Kind,
    /// When it is too late to start it.
    pub deadline: Timestamp,
}

/// What the ledger knows about a decided occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStatus {
    /// Its run is open.
    Running {
        /// The host that runs it.
        by: String,
        /// The run.
        run_id: RunId,
        /// Which attempt it is.
        attempt: u32,
        /// How long its lease lasts unless renewed; zero when it is over.
        remaining: Duration,
    },
    /// It ran, was skipped or was missed, or the watermark has passed it.
    Decided,
}

/// The reply to one renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewReply {
    /// The lease lasts for its TTL from now.
    Renewed,
    /// Another token holds the lock. This is final.
    Taken,
    /// The lock is gone, and the lease with it.
    Absent,
    /// Too few of several nodes replied, and too few rejected it: nothing is lost yet. Retry.
    Unanswered,
}

/// The reply to `finish`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReply {
    /// The caller held the lock, and it is free now.
    Released,
    /// The caller no longer held the lock. Record and verdict were written nevertheless.
    Lost,
    /// The ledger has moved, and the request must be sent again for this lock. Stores do that
    /// themselves and never return this reply.
    Moved {
        /// The lock that the job uses now.
        to: LockRef,
    },
}

/// The reply to `forget`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forgotten {
    /// Everything was deleted.
    Done {
        /// How many keys or rows were deleted.
        entries: u64,
    },
    /// A lease is held, and nothing was changed.
    Held {
        /// The host of its token, or a foreign value.
        by: String,
        /// How long it lasts; `None` without TTL.
        remaining: Option<Duration>,
    },
}

/// A job's ledger after its registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// This schedule's occurrences after this instant are undecided. It is the watermark, or the
    /// instant at which this fingerprint was first seen, whichever is later.
    pub decided_until: Timestamp,
    /// Later occurrences that are decided nevertheless, ascending, because hosts ran them without
    /// the store.
    pub decided_beyond: Vec<Timestamp>,
    /// The pauses that may still decide occurrences, oldest first.
    pub pauses: Vec<Pause>,
    /// The store's clock.
    pub now: Timestamp,
    /// The open run, on this host or another one.
    pub open: Option<OpenRun>,
    /// The first entry of the job's waiting list.
    pub head: Option<Head>,
    /// How much longer claims wait because the store is new or may have lost data; usually zero.
    pub recovering: Duration,
    /// Whether the job now uses another lock, so that this ledger no longer counts.
    pub moved: bool,
}

/// What a store knows about its own data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// When it lost data, or was first used without `init`. Of several nodes: when so many of them
    /// did that claims wait.
    pub lost_at: Option<Timestamp>,
    /// How much longer claims wait for that reason; usually zero.
    pub recovering: Duration,
    /// The nodes, if a majority of several decides; otherwise empty.
    pub nodes: Vec<NodeCondition>,
}

/// One of several nodes of which a majority decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCondition {
    /// Its URL, without password.
    pub node: String,
    /// Whether it counts.
    pub standing: NodeStanding,
    /// The difference between its clock and the deciding clock, which is the lower median of the
    /// clocks of all nodes that reply. `None` if this node does not reply.
    pub clock: Option<NodeClock>,
    /// Those of the requested jobs for which it does not count, because one of their keys cannot be
    /// used.
    pub unusable: Vec<(JobName, KeyFault)>,
}

/// The difference between a node's clock and another clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeClock {
    /// In milliseconds; positive if the node is ahead.
    pub offset_ms: i64,
    /// The measurement may be wrong by this much: half of its round trip.
    pub error: Duration,
}

impl NodeClock {
    /// Whether the clocks certainly differ by more than `limit`.
    pub fn exceeds(self, limit: Duration) -> bool {
        Duration::from_millis(self.offset_ms.unsigned_abs()).saturating_sub(self.error) > limit
    }

    /// Whether the clocks certainly differ by no more than `limit`.
    pub fn is_within(self, limit: Duration) -> bool {
        Duration::from_millis(self.offset_ms.unsigned_abs()) + self.error <= limit
    }
}

/// `2.1 s ahead of`, `0.3 s behind`.
impl fmt::Display for NodeClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = Duration::from_millis(self.offset_ms.unsigned_abs()).as_secs_f64();
        let side = if self.offset_ms < 0 {
            "behind"
        } else {
            "ahead of"
        };
        write!(f, "{seconds:.1} s {side}")
    }
}

/// Whether a node counts in a majority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeStanding {
    /// It counts.
    Counts,
    /// It replies, but was never used and not initialised (`init`): after the first request it waits
    /// as after a loss of data.
    New,
    /// It lost its data, or another process has taken its place. It does not count yet.
    Recovering {
        /// When that was noticed, by its own clock.
        lost_at: Timestamp,
        /// How much longer.
        remaining: Duration,
    },
    /// It lost its data, and counts again for all jobs except these.
    Repairing {
        /// When that was noticed, by its own clock.
        lost_at: Timestamp,
        /// How many of the requested jobs it has not received from the other nodes since.
        jobs: usize,
    },
    /// It does not reply, or rejects requests.
    Away {
        /// Why.
        error: String,
    },
}

/// An open run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    /// Its occurrence; `None` for a manual run.
    pub scheduled_at: Option<Timestamp>,
    /// The run.
    pub run_id: RunId,
    /// The host that runs it.
    pub by: String,
    /// Which attempt it is.
    pub attempt: u32,
    /// When it was granted.
    pub started_at: Timestamp,
    /// How long its lease lasts unless renewed; zero when it is over.
    pub remaining: Duration,
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// The value of the lock: a token, or what another program wrote.
    pub value: String,
    /// The host of the token, or the value itself.
    pub by: String,
    /// How long it lasts; `None` without TTL.
    pub remaining: Option<Duration>,
}

/// Claims of a job that too few replicas acknowledged (`wait_replicas`); gone once a claim of the job
/// is acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unacknowledged {
    /// The URL of the server whose replicas these are, without password.
    pub server: String,
    /// How many replicas acknowledged the newest claim.
    pub acknowledged: u32,
    /// How many must (`wait_replicas`).
    pub wanted: u32,
    /// The first occurrence that was not granted.
    pub since: Timestamp,
    /// The store's clock when the newest claim was returned.
    pub at: Timestamp,
}

/// What the store knows about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobReport {
    /// The job.
    pub job: JobName,
    /// The watermark; `None` for a job that the store does not know.
    pub last: Option<Timestamp>,
    /// Its open run.
    pub open: Option<OpenRun>,
    /// The occurrences that wait, in the order in which they will run.
    pub waiting: Vec<Head>,
    /// Its pauses, oldest first; only the last one can be in force.
    pub pauses: Vec<Pause>,
    /// Set if its claims are not granted because replicas are missing. Always `None` without
    /// `wait_replicas`.
    pub unacknowledged: Option<Unacknowledged>,
    /// The holder of its lock, a run or another program.
    pub holder: Option<LockHolder>,
    /// The last fencing token given out under its lock.
    pub fence: u64,
    /// The schedules seen, oldest first, with the store's clock at first sight.
    pub fingerprints: Vec<(Fingerprint, Timestamp)>,
    /// Its newest verdicts.
    pub summary: Summary,
}

impl JobReport {
    /// Returns the occurrence that waits behind another and whose deadline passes first.
    pub fn first_due_behind_head(&self) -> Option<Head> {
        let behind = self.waiting.iter().skip(1);
        behind.min_by_key(|entry| entry.deadline).copied()
    }
}

/// A host that announced itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostReport {
    /// What it announced.
    pub info: HostInfo,
    /// The store's clock at its newest announcement.
    pub seen_at: Timestamp,
}

/// How far a host has read the announcements of returned occurrences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The number of the connection; 0 before the first.
    connection: u64,
    /// How many messages of that connection were read.
    count: u64,
}

impl Seen {
    /// Returns the position after `count` messages of this connection.
    pub(crate) fn at(connection: u64, count: u64) -> Self {
        Self { connection, count }
    }

    /// Returns how many messages arrived until `later`, or `None` if some may have been missed.
    pub(crate) fn new_until(&self, later: &Self) -> Option<u64> {
        let same = self.connection == later.connection;
        same.then(|| later.count.saturating_sub(self.count))
    }
}

/// The jobs whose occurrences other hosts have returned undecided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Returned {
    /// These jobs; may be empty.
    Jobs(Vec<JobName>),
    /// Possibly any job.
    Any,
}
