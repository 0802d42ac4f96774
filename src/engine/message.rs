//! What reaches the daemon's loop from its tasks.

use super::core::{ClaimId, Event, JobIx};
use crate::preflight::Offset;
use crate::store::{ClaimReply, Registered, StoreError};
use crate::time::BootInstant;

/// A message of a task.
#[derive(Debug)]
pub(crate) enum Message {
    /// Something for the core as it is.
    Core(Event),
    /// A claim was answered.
    Answered {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
        /// The answer.
        reply: ClaimReply,
        /// When the copy that was answered was sent.
        sent: BootInstant,
    },
    /// A copy of a claim was not answered.
    ClaimFailed {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
        /// Why.
        error: StoreError,
    },
    /// The host's clock was compared with the store's.
    Clock(Offset),
    /// Some other request was not answered.
    StoreFailed(StoreError),
    /// The store answers.
    StoreAnswers,
    /// Jobs were registered.
    Registered(Vec<(JobIx, Registered)>),
    /// Jobs to be registered once more.
    RegisterAgain(Vec<JobIx>),
    /// These jobs could not be registered.
    NotRegistered(Vec<JobIx>, StoreError),
}
