//! What reaches the daemon's loop from its tasks.

use super::held_back::{HeldBack, Neighbour};
use super::list_source::ListRead;
use super::namesake::Sighting;
use super::newcomer::RegistryNews;
use super::rival::Rival;
use super::store_clock::Epoch;
use crate::engine::core::{ClaimId, Event, JobIx};
use crate::names::RunId;
use crate::preflight::Offset;
use crate::run::Assignment;
use crate::store::{
    CopyReply, DaemonRequest, Entry, FiledRequest, HostReport, OutputWish, Registered,
    RequestReply, Returned, StoreError,
};

/// A message of a task.
#[derive(Debug)]
pub(super) enum Message {
    /// Something for the core as it is.
    Core(Event),
    /// A copy of a claim, one of the requests in which it is sent, has a reply.
    Answered {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
        /// The reply.
        reply: CopyReply,
    },
    /// A copy of a claim failed, or was not sent because the store is down. The claim is sent
    /// again.
    ClaimFailed {
        /// The job.
        job: JobIx,
        /// The claim.
        claim: ClaimId,
        /// Why.
        error: StoreError,
    },
    /// The host's clock was compared with the store's, while its wall clock was at this epoch.
    Clock(Offset, Epoch),
    /// Other hosts have returned occurrences undecided.
    Returned(Returned),
    /// The store did not reply to some other request.
    StoreFailed(StoreError),
    /// The store replies.
    StoreAnswers,
    /// Jobs were entered into the store's registry, which precedes their registration.
    Entered(Vec<(JobIx, Entry)>),
    /// These jobs are not registered: hosts use another lock for them, or their ledgers cannot be moved yet.
    HeldBack(Vec<(JobIx, HeldBack)>),
    /// Hosts that hold jobs back on account of this one.
    Neighbours(Vec<Neighbour>),
    /// The hosts whose daemons report.
    Hosts(Vec<HostReport>),
    /// The hosts whose announcements have expired.
    Vanished(Vec<HostReport>),
    /// The announcement that another daemon has made under this host's name, if there is one.
    Namesake(Option<Sighting>),
    /// Who uses another store than this host.
    Rivals(Vec<Rival>),
    /// These jobs are not registered: another store is in use, for this reason.
    Disagreed(Vec<JobIx>, String),
    /// No host or daemon that uses another store keeps this one from claiming.
    Agreed,
    /// What a check of this host's entries in the store's registry found or did.
    Registry(Result<RegistryNews, StoreError>),
    /// The files of the job list have changed.
    ListChanged,
    /// The job list was read again.
    ListRead(Box<ListRead>),
    /// Jobs were registered: the store has replied with the state of their ledgers.
    Registered(Vec<(JobIx, Registered)>),
    /// Jobs to be registered once more.
    RegisterAgain(Vec<JobIx>),
    /// The requests to this daemon that the store keeps.
    Requests(Vec<FiledRequest>),
    /// This daemon has taken a request; `None` if it cannot read the request.
    RequestTaken(RunId, Option<DaemonRequest>),
    /// A run that somebody asked for was granted, or not.
    ClaimedByRequest(Box<ClaimedByRequest>),
    /// These jobs could not be registered.
    NotRegistered(Vec<JobIx>, StoreError),
}

/// A run that somebody asked for, and whether its claim was granted.
#[derive(Debug)]
pub(super) struct ClaimedByRequest {
    pub(super) request: RunId,
    /// What was asked and by whom, for the log.
    pub(super) asked: String,
    pub(super) output: OutputWish,
    pub(super) claimed: Result<Assignment, RequestReply>,
}
