//! What a store answers.

use std::fmt;
use std::time::Duration;

use super::fault::KeyFault;
use super::record::Kind;
use super::request::{Fingerprint, HostInfo, LockRef};
use crate::names::{JobName, RunId};
use crate::time::Timestamp;

/// The answer to a claim, in the order in which the rules are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimReply {
    /// The lease is ours and the run is open.
    Granted {
        /// The fencing token: larger than any before for this lock.
        fence: u64,
        /// 1, or more when a crashed run is run again.
        attempt: u32,
        /// The store's clock when it answered; a copy of the claim is told its own instant.
        at: Timestamp,
    },
    /// The store is new, or may have lost data: nothing is granted until every lease that it may
    /// have forgotten is renewed or over. Nothing was changed.
    Recovering {
        /// How long to wait before asking again.
        remaining: Duration,
    },
    /// The occurrence still lies in the store's future.
    Early {
        /// How long to wait before asking again.
        by: Duration,
    },
    /// The ledger has decided this occurrence already.
    AlreadyClaimed(RunStatus),
    /// Occurrences before this one are undecided.
    Gap {
        /// The ledger's watermark: everything up to it is decided (or not this schedule's to
        /// decide). Nothing was changed.
        last: Timestamp,
        /// If the store ever lost data: what was due up to here, and is undecided, is to be
        /// dropped as `unknown`.
        horizon: Option<Timestamp>,
        /// Occurrences after `last` that are decided all the same, ascending: hosts ran them
        /// without the store. The answer drops none of them.
        beyond: Vec<Timestamp>,
    },
    /// It was due before the store lost its data, and nobody can know whether it ran: recorded as
    /// `unknown`, and `last` moved over it.
    Unknown,
    /// The deadline has passed; recorded as `missed`, and `last` moved over it.
    TooLate,
    /// The deadline has passed and nothing was decided ([`super::Late::Leave`]).
    Stale,
    /// The ledger is ahead of the store's clock: that clock was set back, or was wrong once. The
    /// job waits until the clock has caught up with the ledger.
    Ahead {
        /// How far the ledger is ahead.
        by: Duration,
    },
    /// The occurrence waits, or another one must run before it.
    Waits {
        /// The first of the waiting list: the only one that a claim is granted for.
        head: Head,
        /// Whether the claimed occurrence is in the ledger now. If not, it is to be claimed again
        /// once the head has been decided.
        entered: bool,
        /// The holder of the lock; `None` when the lock is free.
        by: Option<String>,
        /// How long that lease lasts unless renewed; zero when the lock is free, `None` when its
        /// key has no TTL at all.
        remaining: Option<Duration>,
    },
    /// The queue is full: the occurrence was recorded as `skipped`, and `last` moved over it.
    QueueFull,
    /// The ranges of [`super::ClaimTarget::Drops`] are recorded.
    Dropped,
    /// Another lease holds the lock. With [`super::Overlap::Skip`] the occurrence was recorded as
    /// `skipped` and `last` moved.
    Held {
        /// The holder: the host of its token, or a foreign value (at most 100 characters).
        by: String,
        /// How long the lease lasts unless renewed; `None` when the key has no TTL at all, which
        /// a person must look at.
        remaining: Option<Duration>,
    },
    /// This token finished before: the claim is a late copy, and nothing happens.
    Finished,
    /// The job uses another lock by now, and its ledger lies there. Nothing was changed.
    Moved {
        /// That lock.
        to: LockRef,
    },
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

/// What the ledger knows of an occurrence that is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStatus {
    /// Its run is open.
    Running {
        /// The host that has it.
        by: String,
        /// The run.
        run_id: RunId,
        /// Which attempt it is.
        attempt: u32,
        /// How long its lease lasts unless renewed; zero when it is over.
        remaining: Duration,
    },
    /// It ran, was skipped or was missed; or the ledger has gone past it.
    Decided,
}

/// The answer to one renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewReply {
    /// The lease lasts for its TTL from now.
    Renewed,
    /// Another token holds the lock: final.
    Taken,
    /// The lock is gone, and so is our right to it.
    Absent,
    /// Of several nodes too few answered, and too few refused: nothing is lost yet, ask again.
    Unanswered,
}

/// The answer to `finish`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReply {
    /// The lock was ours and is free.
    Released,
    /// The lock was not ours any more; record and verdict are written all the same.
    Lost,
    /// The ledger has moved: the request is to be sent again, for this lock. Stores do that
    /// themselves and never return it.
    Moved {
        /// The lock that the job uses by now.
        to: LockRef,
    },
}

/// The answer to `forget`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forgotten {
    /// Nothing of it is left.
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

/// A job's ledger as registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// From where on this schedule's occurrences are undecided: the watermark, or the instant
    /// this fingerprint was first seen, whichever is later.
    pub decided_until: Timestamp,
    /// Later occurrences that are decided all the same, ascending: hosts ran them without the
    /// store.
    pub beyond: Vec<Timestamp>,
    /// The store's clock.
    pub now: Timestamp,
    /// A run that is open, this host's or another's.
    pub open: Option<OpenRun>,
    /// The first of the job's waiting list.
    pub head: Option<Head>,
    /// How long claims wait yet, because the store is new or may have lost data; usually zero.
    pub recovering: Duration,
    /// The job uses another lock by now: this ledger counts no longer.
    pub moved: bool,
}

/// What a store says of its own data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// When it lost data, or was first used without having been declared new (`init`); of several
    /// nodes: when so many of them did that claims wait.
    pub lost_at: Option<Timestamp>,
    /// How long claims wait yet on that account; usually zero.
    pub recovering: Duration,
    /// Each node, where a majority of several decides; else empty.
    pub nodes: Vec<NodeCondition>,
}

/// One node among several of which a majority decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCondition {
    /// Its URL, without password.
    pub node: String,
    /// Whether it counts.
    pub standing: NodeStanding,
    /// How far its clock is from the one that decides what is due, the lower median of the clocks
    /// of all nodes that answer. `None` when it does not answer.
    pub clock: Option<NodeClock>,
    /// The jobs asked about for which it does not count, because it cannot use one of their keys.
    pub unusable: Vec<(JobName, KeyFault)>,
}

/// How far a node's clock is from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeClock {
    /// In milliseconds; positive when the node is ahead.
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
    /// It does.
    Counts,
    /// It answers, and has not been used yet, nor declared new (`init`): the first request makes
    /// it wait as after a loss of data.
    New,
    /// It lost its data, or another process has taken it over: it does not count yet.
    Recovering {
        /// When that was noticed, by its own clock.
        lost_at: Timestamp,
        /// For how long yet.
        remaining: Duration,
    },
    /// It lost its data, and counts again for all but these.
    Repairing {
        /// When that was noticed, by its own clock.
        lost_at: Timestamp,
        /// How many of the jobs asked about it has not been told of since.
        jobs: usize,
    },
    /// It does not answer, or refuses.
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
    /// The host that has it.
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

/// Claims of a job that too few replicas acknowledged (`wait_replicas`), while none has been
/// acknowledged since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unacknowledged {
    /// The server whose replicas they are, without password.
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

/// What the store knows of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobReport {
    /// The job.
    pub job: JobName,
    /// How far its occurrences are decided; `None` for a job never seen.
    pub last: Option<Timestamp>,
    /// Its open run.
    pub open: Option<OpenRun>,
    /// The occurrences that wait, in the order in which they will run.
    pub waiting: Vec<Head>,
    /// Why its claims are not granted, if replicas are missed; always `None` where the store waits
    /// for none.
    pub unacknowledged: Option<Unacknowledged>,
    /// Who holds its lock, cronlatch or not.
    pub holder: Option<LockHolder>,
    /// The last fencing token given out under its lock.
    pub fence: u64,
    /// The schedules seen, oldest first, with the store's clock at first sight.
    pub fingerprints: Vec<(Fingerprint, Timestamp)>,
}

/// A host that announced itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostReport {
    /// What it said.
    pub info: HostInfo,
    /// The store's clock when it last did.
    pub seen_at: Timestamp,
}

/// How far a host has read the announcements of returned occurrences.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Numbers the connections; 0 before the first.
    connection: u64,
    /// Messages of that connection.
    count: u64,
}

impl Seen {
    /// So many messages of this connection were read.
    pub(crate) fn at(connection: u64, count: u64) -> Self {
        Self { connection, count }
    }

    /// Returns how many messages came until `later`; `None` when some may have been missed.
    pub(crate) fn new_until(&self, later: &Self) -> Option<u64> {
        let same = self.connection == later.connection;
        same.then(|| later.count.saturating_sub(self.count))
    }
}

/// The jobs of which other hosts have returned occurrences undecided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Returned {
    /// These; empty when there are none.
    Jobs(Vec<JobName>),
    /// Any may be concerned.
    Any,
}
