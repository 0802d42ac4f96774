//! The store contract: what a lock, a ledger and a history must do, whatever keeps them.
//!
//! [`Store`] is narrow on purpose, and every operation is atomic and one round trip. The rules of
//! each operation are written once, as plain Rust, in [`protocol`]; the `SQLite` store executes
//! that very code, the Lua scripts of the Redis store are compared with it call by call.
//!
//! This module knows nothing of processes and schedules: it is told instants, never cron text.

mod open;
pub mod protocol;
mod record;
pub(crate) mod redis;
mod redlock;
mod reply;
mod request;
mod settings;
pub(crate) mod sqlite;
pub(crate) mod url;
mod word;

use std::time::Duration;

use async_trait::async_trait;

pub use open::open;
pub use record::{Kind, Outcome, Range, Record};
pub(crate) use redis::check_raw_in_cluster as check_key_in_cluster;
pub use reply::{
    ClaimReply, Condition, FinishReply, HostReport, JobReport, LockHolder, NodeCondition,
    NodeStanding, OpenRun, Registered, RenewReply, RunStatus,
};
pub use request::{
    Claim, Drop, Due, Fingerprint, Finish, GapAnswer, HostInfo, Lock, LockKey, Overlap,
    Registration, Renewal, RunTenure, Settle, Tenure, What,
};
pub use settings::{
    AtStart, ClusterSettings, RedisSettings, RedlockSettings, Secret, SentinelSettings,
    StoreSettings,
};
pub use url::check_url;

/// What a majority of nodes decides on, for the model that searches it for holes, and for the test
/// that compares a node with its plain form.
#[doc(hidden)]
pub mod majority {
    pub use super::redis::node::{
        Accepted, Ballot, Held, JobView, Lease, LockView, Mode, Node, Place, Proposal, Said, Taken,
        View, finished_text,
    };
    pub use super::redlock::{
        Counting, Here, Identity, Ledger, Member, Merged, Resolved, Seat, count, merge, quorum,
        resolve,
    };
}

use crate::names::JobName;

/// Why the store did not answer as asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nobody knows whether the operation happened: the link failed or the answer came too late.
    ///
    /// A claim that ends so is resent with the same token, or cancelled by `finish`.
    #[error("the store does not answer: {0}")]
    Unreachable(String),
    /// As [`Self::Unreachable`], and only for this lock and those beside it: a server of several
    /// is away, and what others keep can be reached.
    #[error("a part of the store does not answer: {0}")]
    PartUnreachable(String),
    /// The store answered, and refused: wrong password, no permission, out of memory, read-only.
    #[error("the store refused: {0}")]
    Refused(String),
    /// What the store holds is not what cronlatch writes, or belongs to a newer version.
    #[error("the store holds what this version cannot read: {0}")]
    Corrupt(String),
}

/// What any store does. One contract test suite (`tests/it/contract`) holds for every one.
///
/// All instants in requests and replies are the store's clock or derived from schedules; a reply
/// never depends on the clock of the host that asks.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Takes an occurrence and its lock, or says why not. See [`protocol::claim`].
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError>;

    /// Extends the leases whose token matches; one reply per renewal, in order.
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>, StoreError>;

    /// Which part of the store keeps the lock, where parts can fail one by one: leases of
    /// different parts are renewed apart, so that none waits for another's server.
    fn place(&self, lock: &Lock) -> u64 {
        let _ = lock;
        0
    }

    /// Writes verdict and record, closes the run, releases by token and wakes those who wait.
    ///
    /// Also what cancels a claim whose answer never came: its token is remembered as finished,
    /// so that a copy of the claim that arrives later is not granted.
    async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError>;

    /// Closes an open run whose lease is over and whose host did not, recording `interrupted`.
    ///
    /// Answers whether it did so.
    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError>;

    /// Makes the jobs known: a ledger for a new one, the schedule's fingerprint for a changed one.
    async fn register(&self, jobs: &[Registration]) -> Result<Vec<Registered>, StoreError>;

    /// Says that this host lives; the word is forgotten after `valid_for`. Zero takes the word
    /// back: the host is listed no longer.
    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError>;

    /// Waits until a release of the lock is heard of, at most `limit`. May return early for no
    /// reason; the caller claims again and sees.
    async fn released(&self, lock: &Lock, limit: Duration) -> Result<(), StoreError>;

    /// The store's own clock.
    async fn now(&self) -> Result<crate::time::Timestamp, StoreError>;

    /// Each job's ledger and the holder of its lock, in the order asked.
    async fn jobs(&self, jobs: &[(JobName, Lock)]) -> Result<Vec<JobReport>, StoreError>;

    /// The job's newest records, newest first, at most `limit`.
    async fn history(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// The hosts that announced themselves and have not been silent for longer than they said.
    async fn hosts(&self) -> Result<Vec<HostReport>, StoreError>;

    /// Whether the store has lost data, and waits on that account; of several nodes, which of
    /// them count, and for which of these jobs. Changes nothing. A store that cannot lose any
    /// data says so by default.
    async fn condition(&self, jobs: &[(JobName, Lock)]) -> Result<Condition, StoreError> {
        let _ = jobs;
        Ok(Condition::default())
    }

    /// Declares an empty store new. Answers how many keys of ours are there already, if any; then
    /// nothing was written.
    async fn init(&self) -> Result<Option<u64>, StoreError>;
}
