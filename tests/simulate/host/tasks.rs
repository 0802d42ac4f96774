//! Requests that are sent again until the store answers, as `engine::daemon::tasks` sends them.

use std::time::Duration;

use cronlatch::engine::simulated::{ClaimId, JobIx};
use cronlatch::names::RunId;
use cronlatch::store::ManualNote;
use cronlatch::time::{BootInstant, Timestamp};

use super::registry::{Entering, Round};
use crate::message::Request;

/// How long the store may take to answer.
pub(super) const RESPONSE: Duration = Duration::from_secs(1);
/// The longest pause between two tries.
pub(super) const LONGEST_PAUSE: i64 = 2_000;

/// What a task is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errand {
    Claim(JobIx, ClaimId),
    Settle(JobIx),
    Look(JobIx),
}

/// A task, and what it is doing.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) errand: Errand,
    pub(super) request: Request,
    pub(super) pause: i64,
    pub(super) sent: BootInstant,
    /// It sleeps no longer, and waits for the store.
    pub(super) waits: bool,
    /// How often it was not answered while others were.
    pub(super) alone: u32,
}

/// What follows a comparison of the clocks.
#[derive(Debug, Clone)]
pub(super) enum Then {
    Announce,
    Register(Vec<JobIx>),
    /// The store is believed to be back.
    Up,
}

/// What a request is about.
#[derive(Debug, Clone)]
pub(super) enum Ask {
    Task(u64),
    Measure {
        sent: Timestamp,
        began: BootInstant,
        then: Then,
    },
    Enter(Box<Entering>),
    Register(Vec<JobIx>),
    Registry(Box<Round>),
    Announce,
    Probe,
    /// Which runs by hand are noted.
    Notes,
    /// Whether a noted run is open.
    Noted(Box<ManualNote>),
    /// The record of a noted run whose lease is over.
    Ends(RunId),
    /// Nothing depends on the reply.
    Nothing,
}
