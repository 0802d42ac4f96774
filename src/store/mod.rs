//! Stores: what keeps locks, ledgers and history, and how a host uses it.
//!
//! - [`contract`]: the trait [`Store`] and the requests, replies, records and errors that cross it.
//!   Every operation is atomic and takes one round trip.
//! - [`protocol`]: the rules of each operation, written once as plain Rust. The `SQLite` store executes
//!   this code; the Lua scripts of the Redis store are compared with it call by call.
//! - [`endpoint`]: the URL of a store, parsed once.
//! - [`redis`], [`quorum`] and [`sqlite`]: the stores. [`open()`] chooses one.
//! - `claimant` and `retry`: one claim until it is decided, and requests that are retried.
//! - [`apart`](fn@apart), [`manual`] and [`relocate`]: what hosts do with any store in several requests.
//!
//! No module here knows processes or schedules: a store receives instants, never cron text.

mod apart;
mod claimant;
pub mod contract;
pub(crate) mod endpoint;
pub mod manual;
mod open;
pub mod protocol;
#[doc(hidden)]
pub mod quorum;
pub(crate) mod redis;
pub mod relocate;
mod retry;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(test)]
pub(crate) mod stub;

pub use apart::apart;
pub(crate) use claimant::{CANCEL_LIMIT, Claimant, CopyReply, deliver};
pub use contract::{
    Admission, Attempt, Beginning, Claim, ClaimReply, ClaimTarget, Condition, CountsFrom,
    DaemonRequest, DroppedRange, Due, Entry, ErrorDetail, Filed, FiledRequest, Fingerprint, Finish,
    FinishReply, Forget, Forgotten, GapAnswer, Grant, GrantedRun, Head, HeldJob, History, HostInfo,
    HostJobs, HostReport, IfPaused, Intervention, JobReport, JobsRevision, Keeping, KeyFault,
    KeyFaultKind, Kind, Late, Ledger, Listing, Lock, LockHolder, LockId, LockKey, LockRef,
    ManualNote, ManualRun, NO_HOST, NOTES_BELOW, NodeClock, NodeCondition, NodeStanding, NoteFate,
    OpenRun, Outcome, OutputChunk, OutputWish, Overlap, Pause, PauseOrder, PauseReply,
    PauseRequest, REASON_LIMIT, REQUEST_VALID_FOR, Range, RecentOutcome, Record, RefusalKind,
    Registered, Registration, RenewReply, Renewal, Replaced, Replacement, RequestOrder,
    RequestReply, Retention, Returned, RunStatus, RunTerms, Seen, Settle, Standing, Store,
    StoreError, StoreNodes, Summary, Unacknowledged, registry,
};
pub use contract::{JobDigest, LIST_KEPT_FOR, ListDifference, ListedJobs, RunUsage, VANISHED_FOR};
pub(crate) use endpoint::shown_url;
pub use endpoint::{
    ClusterSettings, Endpoint, RedisSettings, RedlockSettings, RetryDelay, SentinelSettings,
    StartupQuorum, StoreSettings, check_url,
};
pub use open::open;
#[cfg(feature = "program")]
pub(crate) use open::{is_absent, open_empty};
pub(crate) use redis::check_raw_in_cluster as check_key_in_cluster;
#[doc(hidden)]
pub use redis::measured;
#[cfg(feature = "program")]
pub(crate) use retry::{RetryPace, retry};
