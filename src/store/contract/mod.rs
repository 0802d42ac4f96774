//! The contract of a store: its operations ([`Store`]), and the requests, replies, records and errors
//! that cross it.
//!
//! It is data, and what follows from one value alone. The rules that decide a claim or a result are in
//! [`protocol`](super::protocol).

mod daemon_request;
mod error;
mod error_detail;
mod grant;
mod heartbeat;
mod key_fault;
mod ledger;
mod listed_jobs;
mod lock;
mod lock_id;
mod manual;
mod nodes;
mod pause;
mod record;
pub mod registry;
mod reply;
mod request;
mod retention;
mod store;
mod summary;

pub use self::daemon_request::{
    DaemonRequest, Filed, FiledRequest, Intervention, NO_HOST, NOTES_BELOW, OutputChunk,
    OutputWish, REQUEST_VALID_FOR, RefusalKind, RequestOrder, RequestReply,
};
pub(super) use self::daemon_request::{
    OUTPUT_KEPT_FOR, REQUEST_KEPT_FOR, REQUESTS_KEPT, StoredParts,
};
pub use self::error::StoreError;
pub use self::error_detail::ErrorDetail;
pub use self::grant::{Grant, GrantedRun, Renewal, RunTerms};
pub(super) use self::heartbeat::HostHeartbeat;
pub use self::key_fault::{KeyFault, KeyFaultKind};
pub use self::ledger::{
    Crashed, DECIDED_BEYOND_KEPT, FINGERPRINTS_KEPT, JobState, Ledger, Moved, Open, Replaced,
    Replacement, Waiting,
};
pub use self::listed_jobs::{JobDigest, LIST_KEPT_FOR, ListDifference, ListedJobs};
pub use self::lock::{Fingerprint, Lock, LockKey, LockRef};
pub use self::lock_id::LockId;
pub(super) use self::manual::NOTED_FOR;
pub use self::manual::{ManualNote, ManualRun, NoteFate, UNCLAIMED_FOR};
pub use self::nodes::StoreNodes;
pub use self::pause::{
    IfPaused, PAUSES_KEPT, Pause, PauseOrder, PauseReply, PauseRequest, REASON_LIMIT,
};
pub use self::record::{History, Kind, Outcome, Range, Record, RunUsage};
pub use self::registry::VANISHED_FOR;
pub use self::registry::{
    Admission, Beginning, CountsFrom, Entry, HeldJob, HostJobs, JobsRevision, Keeping, Listing,
    Standing,
};
pub use self::reply::{
    ClaimReply, Condition, FinishReply, Forgotten, Head, HostReport, JobReport, LockHolder,
    NodeClock, NodeCondition, NodeStanding, OpenRun, Registered, RenewReply, Returned, RunStatus,
    Seen, Unacknowledged,
};
pub use self::request::{
    Attempt, Claim, ClaimTarget, DroppedRange, Due, Finish, Forget, GapAnswer, HostInfo, Late,
    Overlap, Registration, Settle,
};
pub use self::retention::Retention;
pub use self::store::Store;
pub use self::summary::{FAILURES_NOTED, RECENT_KEPT, RecentOutcome, Summary};
