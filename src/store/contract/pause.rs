//! Pauses of a job, as its ledger keeps them, and the requests that change them.
//!
//! The rules are in [`protocol::pause`](crate::store::protocol::pause).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lock::{Lock, LockRef};
use crate::names::JobName;
use crate::time::Timestamp;

/// How many pauses a ledger keeps. One that has ended matters until the watermark has passed it.
pub const PAUSES_KEPT: usize = 4;

/// A reason for a pause has at most this many bytes.
pub const REASON_LIMIT: usize = 300;

/// A pause of a job. An occurrence that is due during it is skipped, whenever it is claimed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pause {
    /// When the newest request about this pause was made, by the store's clock.
    pub asked_at: Timestamp,
    /// Its beginning.
    pub since: Timestamp,
    /// Its end, which is not part of it; `None` until somebody resumes the job.
    pub until: Option<Timestamp>,
    /// Who paused the job: `USER@HOST`.
    pub by: String,
    /// Who resumed the job before the pause would have ended.
    pub resumed_by: Option<String>,
    /// Why the job was paused; may be empty.
    pub reason: String,
}

impl Pause {
    /// Whether nothing of the job starts at `now`. The beginning does not count: the store's clock may
    /// have been set back since.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// Whether an occurrence of this instant is due during the pause.
    pub fn covers(&self, at: Timestamp) -> bool {
        self.since <= at && self.is_in_force(at)
    }

    /// Whether the pause and the instants from `from` to `until` have any instant in common.
    pub fn meets(&self, from: Timestamp, until: Timestamp) -> bool {
        self.since <= until && self.is_in_force(from)
    }

    /// Returns who paused the job, and why.
    pub fn cause(&self) -> String {
        match self.reason.as_str() {
            "" => self.by.clone(),
            reason => format!("{}: {reason}", self.by),
        }
    }

    /// Returns the reason that is recorded for a skipped occurrence.
    pub fn verdict(&self) -> String {
        format!("paused by {}", self.cause())
    }
}

/// Asks that a job be paused or resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseRequest {
    /// The job.
    pub job: JobName,
    /// The lock under which its ledger lies.
    pub lock: Lock,
    /// What to do.
    pub order: PauseOrder,
    /// Who asks: `USER@HOST`, without blanks.
    pub by: String,
    /// The store's clock when the request was made; later than that of every request that the
    /// requester has read. Of several requests the newest counts, in whatever order they arrive.
    pub asked_at: Timestamp,
}

/// What a [`PauseRequest`] asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PauseOrder {
    /// Start nothing of the job from now on.
    Pause {
        /// When the pause ends by itself.
        until: Option<Timestamp>,
        /// Why: one line, at most [`REASON_LIMIT`] bytes; may be empty.
        reason: String,
    },
    /// End the pause now.
    Resume,
}

/// The reply to a [`PauseRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PauseReply {
    /// The ledger contains the request.
    Done,
    /// The job is not paused, and there is nothing to resume. Nothing was changed.
    NotPaused,
    /// The ledger contains a newer request. Nothing was changed.
    Superseded,
    /// No host has registered the job under this lock.
    Unknown,
    /// The store may have lost the ledger. Nothing was changed.
    Recovering {
        /// How long to wait before asking again.
        remaining: Duration,
    },
    /// The ledger has moved to this lock.
    Moved {
        /// The lock that the job uses now.
        to: LockRef,
    },
}

/// What a manual run does if its job is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum IfPaused {
    /// It does not start.
    #[default]
    Refuse,
    /// It starts all the same.
    Run,
}
