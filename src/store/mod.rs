//! The store contract: what a lock, a ledger and a history must do, whatever keeps them.
//!
//! [`Store`] is narrow on purpose, and every operation is atomic and one round trip. The rules of
//! each operation are written once, as plain Rust, in [`protocol`]; the `SQLite` store executes
//! that very code, the Lua scripts of the Redis store are compared with it call by call.
//!
//! This module knows nothing of processes and schedules: it is told instants, never cron text.

pub(crate) mod endpoint;
mod error;
mod fault;
mod grant;
mod heartbeat;
pub mod manual;
mod nodes;
mod open;
pub mod protocol;
mod record;
pub(crate) mod redis;
mod redlock;
pub mod registry;
pub mod relocate;
mod reply;
mod request;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use std::time::Duration;

use async_trait::async_trait;

pub(crate) use endpoint::shown_url;
pub use endpoint::{
    ClusterSettings, Endpoint, RedisSettings, RedlockSettings, SentinelSettings, StartupQuorum,
    StoreSettings, check_url,
};
pub use error::{ErrorDetail, StoreError};
pub use fault::{KeyFault, KeyFaultKind, apart};
pub use grant::{Grant, GrantedRun, Renewal, RunTerms};
pub use manual::{ManualNote, ManualRun, NoteFate};
pub use nodes::StoreNodes;
pub use open::open;
pub use record::{History, Kind, Outcome, Range, Record};
pub(crate) use redis::check_raw_in_cluster as check_key_in_cluster;
pub use registry::{
    Admission, Beginning, CountsFrom, Entry, HeldJob, Keeping, Listing, LockId, Standing,
};
pub use relocate::{Ledger, Replaced, Replacement};
pub use reply::{
    ClaimReply, Condition, FinishReply, Forgotten, Head, HostReport, JobReport, LockHolder,
    NodeClock, NodeCondition, NodeStanding, OpenRun, Registered, RenewReply, Returned, RunStatus,
    Seen, Unacknowledged,
};
pub use request::{
    Attempt, Claim, ClaimTarget, DroppedRange, Due, Fingerprint, Finish, Forget, GapAnswer,
    HostInfo, Late, Lock, LockKey, LockRef, Overlap, Registration, Settle,
};

/// What a majority of nodes decides on, for the model that searches it for holes, and for the test
/// that compares a node with its plain form.
#[doc(hidden)]
pub mod majority {
    pub use super::redis::node::{
        Accepted, Ballot, Extended, Held, JobView, Lease, LockView, LongestTtl, LookAnswer, Mode,
        Node, Place, Proposal, Taken, View, finished_text,
    };
    pub use super::redlock::{
        Asker, Counting, Doubt, Here, Identity, Ledger, Member, Merged, Resolved, Seat, Trust,
        count, count_recovering, merge, quorum, resolve,
    };
}

use crate::names::{HostName, JobName, RunId};

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

    /// A number for the part of the store that keeps the lock, where parts can fail one by one.
    /// Leases on different shards are renewed separately, so that none waits for another's server.
    fn shard(&self, lock: &Lock) -> u64 {
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

    /// Notes that a further attempt of a run is about to start, so that a rerun after a crash
    /// continues the count. Returns false if the run is not open under the token any more.
    async fn attempt(&self, attempt: &Attempt) -> Result<bool, StoreError>;

    /// Makes the jobs known: a ledger for a new one, the schedule's fingerprint for a changed one.
    async fn register(&self, jobs: &[Registration]) -> Result<Vec<Registered>, StoreError>;

    /// Creates the ledgers of new jobs and moves those of jobs that were disabled up to the
    /// instant from which they count; done once, before a host first registers them. Returns, for
    /// each job, whether it could. See [`protocol::begin`].
    ///
    /// This and the next three methods do nothing in a store without a registry.
    async fn begin(&self, jobs: &[Beginning]) -> Result<Vec<bool>, StoreError> {
        Ok(vec![true; jobs.len()])
    }

    /// What each host says about each of these jobs, in the order asked. See [`registry`].
    async fn listings(&self, jobs: &[JobName]) -> Result<Vec<Listing>, StoreError> {
        Ok(vec![Listing::default(); jobs.len()])
    }

    /// Writes what `host` says about these jobs.
    async fn enlist(
        &self,
        host: &HostName,
        entries: &[(JobName, Entry)],
    ) -> Result<(), StoreError> {
        let _ = (host, entries);
        Ok(())
    }

    /// Keeps what there is of these jobs for so long from now. A store deletes what no host has
    /// kept, or used, for thirty days, and what belongs to one host after a week.
    async fn keep(&self, jobs: &[Keeping]) -> Result<(), StoreError> {
        let _ = jobs;
        Ok(())
    }

    /// The jobs of which `host` last said that its list has them enabled.
    async fn listed_by(&self, host: &HostName) -> Result<Vec<JobName>, StoreError> {
        let _ = host;
        Ok(Vec::new())
    }

    /// Notes a run by hand that is about to be claimed, so that every daemon can look after it.
    /// See [`manual`].
    async fn note_manual(&self, run: &ManualRun) -> Result<(), StoreError> {
        let _ = run;
        Ok(())
    }

    /// The runs by hand that are noted.
    async fn manual_runs(&self) -> Result<Vec<ManualNote>, StoreError> {
        Ok(Vec::new())
    }

    /// Forgets the notes of these runs.
    async fn forget_manual(&self, runs: &[RunId]) -> Result<(), StoreError> {
        let _ = runs;
        Ok(())
    }

    /// Reads a whole ledger.
    ///
    /// This and [`Store::replace`] move a ledger to another lock; see [`relocate`].
    async fn ledger(&self, job: &JobName, lock: &Lock) -> Result<Ledger, StoreError> {
        let _ = (job, lock);
        Ok(Ledger::default())
    }

    /// Replaces a ledger that still is as it was read. See [`protocol::replace`].
    async fn replace(&self, replacement: &Replacement) -> Result<Replaced, StoreError> {
        let _ = replacement;
        Ok(Replaced::Done)
    }

    /// Says that this host lives; the word is forgotten after `valid_for`. Zero takes the word
    /// back: the host is listed no longer.
    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError>;

    /// Waits until a release of the lock is heard of, at most `limit`. May return early for no
    /// reason; the caller claims again and sees.
    async fn released(&self, lock: &Lock, limit: Duration) -> Result<(), StoreError>;

    /// Tells other hosts that an occurrence of the job came back undecided, so that they need not
    /// find out by themselves. It may get lost.
    async fn tell_returned(&self, job: &JobName) -> Result<(), StoreError> {
        let _ = job;
        Ok(())
    }

    /// Waits until another host announces a returned occurrence after `seen`, at most `limit`. A store
    /// that cannot tell says after at most a second that any job may be concerned.
    async fn returned(&self, seen: &mut Seen, limit: Duration) -> Result<Returned, StoreError> {
        let _ = seen;
        tokio::time::sleep(limit.min(Duration::from_secs(1))).await;
        Ok(Returned::Any)
    }

    /// The store's own clock.
    async fn now(&self) -> Result<crate::time::Timestamp, StoreError>;

    /// Each job's ledger and the holder of its lock, in the order asked.
    async fn jobs(&self, jobs: &[(JobName, Lock)]) -> Result<Vec<JobReport>, StoreError>;

    /// The job's newest records, newest first, at most `limit`, and what of them is unreadable.
    async fn history(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<History, StoreError>;

    /// The hosts that announced themselves and have not been silent for longer than they said.
    async fn hosts(&self) -> Result<Vec<HostReport>, StoreError>;

    /// The hosts that announced themselves to any server of the store. Of several nodes, all that
    /// answer are asked, and not a majority alone: a host whose list names other nodes may have one
    /// of them in common with this one.
    async fn peers(&self) -> Result<Vec<HostReport>, StoreError> {
        self.hosts().await
    }

    /// Which servers decide. `None` where every host that can find this store uses it the same way.
    async fn nodes(&self) -> Result<Option<StoreNodes>, StoreError> {
        Ok(None)
    }

    /// Whether the store has lost data, and waits on that account; of several nodes, which of
    /// them count, and for which of these jobs. Changes nothing. A store that cannot lose any
    /// data says so by default.
    async fn condition(&self, jobs: &[(JobName, Lock)]) -> Result<Condition, StoreError> {
        let _ = jobs;
        Ok(Condition::default())
    }

    /// Deletes the job's ledger and history, what hosts say about it, and the state of its lock if
    /// no other job uses that.
    ///
    /// Works although they are damaged.
    async fn forget(&self, forget: &Forget) -> Result<Forgotten, StoreError>;

    /// Makes [`daemons`](Self::daemons) find this host's daemon, for as long as it is polled.
    async fn attend(&self, host: &HostName) {
        let _ = host;
        std::future::pending::<()>().await;
    }

    /// The daemons that are connected, whether or not the data name them, which they do not straight
    /// after a loss of all data. A store that loses none has nothing to ask.
    async fn daemons(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// Declares an empty store new. Answers how many keys of ours are there already, if any; then
    /// nothing was written.
    async fn init(&self) -> Result<Option<u64>, StoreError>;
}
