//! What a store answers.

use std::time::Duration;

use super::request::{Fingerprint, HostInfo};
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
    },
    /// It was due before the store lost its data, and nobody can know whether it ran: recorded as
    /// `unknown`, and `last` moved over it.
    Unknown,
    /// The deadline has passed; recorded as `missed`, and `last` moved over it.
    TooLate,
    /// Another lease holds the lock. With [`super::Overlap::Skip`] the occurrence was recorded as
    /// `skipped` and `last` moved; with `Wait` nothing was changed.
    Held {
        /// The holder: the host of its token, or a foreign value (at most 100 characters).
        by: String,
        /// How long the lease lasts unless renewed; `None` when the key has no TTL at all, which
        /// a person must look at.
        remaining: Option<Duration>,
    },
    /// This token finished before: the claim is a late copy, and nothing happens.
    Finished,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReply {
    /// The lock was ours and is free.
    Released,
    /// The lock was not ours any more; record and verdict are written all the same.
    Lost,
}

/// A job's ledger as registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// From where on this schedule's occurrences are undecided: the watermark, or the instant
    /// this fingerprint was first seen, whichever is later.
    pub decided_until: Timestamp,
    /// The store's clock.
    pub now: Timestamp,
    /// A run that is open, this host's or another's.
    pub open: Option<OpenRun>,
    /// How long claims wait yet, because the store is new or may have lost data; usually zero.
    pub recovering: Duration,
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

/// What the store knows of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobReport {
    /// The job.
    pub job: JobName,
    /// How far its occurrences are decided; `None` for a job never seen.
    pub last: Option<Timestamp>,
    /// Its open run.
    pub open: Option<OpenRun>,
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
