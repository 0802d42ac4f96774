//! The operations of a store. A default implementation applies where a store lacks a feature, such as
//! the registry.

use std::time::Duration;

use async_trait::async_trait;

use super::daemon_request::{DaemonRequest, Filed, FiledRequest, OutputChunk, RequestReply};
use super::error::StoreError;
use super::grant::Renewal;
use super::ledger::{Ledger, Replaced, Replacement};
use super::listed_jobs::ListedJobs;
use super::lock::{Fingerprint, Lock};
use super::manual::{ManualNote, ManualRun};
use super::nodes::StoreNodes;
use super::pause::{PauseReply, PauseRequest};
use super::record::History;
use super::registry::{Beginning, Entry, HostJobs, JobsRevision, Keeping, Listing};
use super::reply::{
    ClaimReply, Condition, FinishReply, Forgotten, HostReport, JobReport, Registered, RenewReply,
    Returned, RunStatus, Seen,
};
use super::request::{Attempt, Claim, Finish, Forget, HostInfo, Registration, Settle};
use crate::ground::sorting::SortShort as _;
use crate::names::{HostName, JobName, RunId};
use crate::time::Timestamp;

/// A store. Every implementation passes the same test suite (`tests/it/contract`).
///
/// All instants in requests and replies come from the store's clock or from schedules. A reply never
/// depends on the clock of the host that sent the request.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Claims an occurrence and its lock, or returns why it does not. See
    /// [`protocol::claim`](crate::store::protocol::claim).
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError>;

    /// Returns how another host has claimed the occurrence, if a claim of which no copy was sent would be
    /// refused for that reason; `None` if the claim must be sent. Writes nothing, and takes the store less
    /// time than a claim that is refused.
    ///
    /// If a copy of the claim was sent, its run may be the one that is returned. The state key of the lock is
    /// not read: the next claim reports damage of it.
    async fn already_claimed(&self, claim: &Claim) -> Result<Option<RunStatus>, StoreError> {
        let _ = claim;
        Ok(None)
    }

    /// Extends the leases whose token matches; one reply per renewal, in order.
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>, StoreError>;

    /// A number for the part of the store that keeps the lock, where parts can fail one by one.
    /// Leases on different shards are renewed separately, so that none waits for another's server.
    fn shard(&self, lock: &Lock) -> u64 {
        let _ = lock;
        0
    }

    /// Writes verdict and record, closes the run, releases the lock by its token and notifies the
    /// hosts that wait for it.
    ///
    /// This also cancels a claim that got no reply: the store remembers the token as finished, so
    /// that a copy of the claim that arrives later is not granted.
    async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError>;

    /// Closes an open run that its host did not close before its lease expired, and records
    /// `interrupted`. Returns whether it did so.
    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError>;

    /// Pauses or resumes a job. See [`protocol::pause`](crate::store::protocol::pause).
    async fn pause(&self, request: &PauseRequest) -> Result<PauseReply, StoreError> {
        let _ = request;
        Ok(PauseReply::Unknown)
    }

    /// Notes that a further attempt of a run is about to start, so that a rerun after a crash
    /// continues the count. Returns false if the run is not open under the token any more.
    async fn note_attempt(&self, attempt: &Attempt) -> Result<bool, StoreError>;

    /// Registers the jobs: creates the ledger of a new job, and adds the fingerprint of a changed
    /// schedule.
    async fn register(&self, jobs: &[Registration]) -> Result<Vec<Registered>, StoreError>;

    /// Creates the ledgers of new jobs and moves those of jobs that were disabled up to the
    /// instant from which they count; done once, before a host first registers them. Returns, for
    /// each job, whether it could. See [`protocol::begin`](crate::store::protocol::begin).
    ///
    /// This and the next three methods do nothing in a store without a registry.
    async fn begin(&self, jobs: &[Beginning]) -> Result<Vec<bool>, StoreError> {
        Ok(vec![true; jobs.len()])
    }

    /// Returns the entries of all hosts for each of these jobs, in the order of the request. See
    /// [`registry`](super::registry).
    async fn listings(&self, jobs: &[JobName]) -> Result<Vec<Listing>, StoreError> {
        Ok(vec![Listing::default(); jobs.len()])
    }

    /// Writes the entries of `host` for these jobs.
    async fn enlist(
        &self,
        host: &HostName,
        entries: &[(JobName, Entry)],
    ) -> Result<(), StoreError> {
        let _ = (host, entries);
        Ok(())
    }

    /// Keeps the data of these jobs for the given time from now. A store deletes data that no host
    /// has kept or used for thirty days, and data of one host after a week.
    async fn keep(&self, jobs: &[Keeping]) -> Result<(), StoreError> {
        let _ = jobs;
        Ok(())
    }

    /// Returns the jobs that the list of `host` has enabled, by its newest entries.
    async fn listed_by(&self, host: &HostName) -> Result<Vec<JobName>, StoreError> {
        let listed = self.listed_since(host, None).await?;
        Ok(listed.map(|listed| listed.jobs).unwrap_or_default())
    }

    /// Returns the same with their revision, or `None` if it still is `known`: then nothing was written
    /// since, and no data were lost. A store of several nodes leaves out jobs that are
    /// listed only by nodes whose revision is still the `known` one.
    async fn listed_since(
        &self,
        host: &HostName,
        known: Option<&JobsRevision>,
    ) -> Result<Option<HostJobs>, StoreError> {
        let _ = (host, known);
        Ok(Some(HostJobs::default()))
    }

    /// Notes a run by hand that is about to be claimed, so that any daemon can record its end.
    /// See [`manual`](crate::store::manual).
    async fn note_manual(&self, run: &ManualRun) -> Result<(), StoreError> {
        let _ = run;
        Ok(())
    }

    /// Returns the runs by hand that are noted.
    async fn manual_runs(&self) -> Result<Vec<ManualNote>, StoreError> {
        Ok(Vec::new())
    }

    /// Forgets the notes of these runs.
    async fn forget_manual(&self, runs: &[RunId]) -> Result<(), StoreError> {
        let _ = runs;
        Ok(())
    }

    /// Keeps a request for the daemon of its host until `deadline`, by the store's clock, and notifies
    /// that daemon. The same request again changes nothing.
    async fn file_request(
        &self,
        request: &DaemonRequest,
        deadline: Timestamp,
    ) -> Result<Filed, StoreError> {
        let _ = (request, deadline);
        Err(StoreError::refused("it carries no requests to daemons"))
    }

    /// Returns the requests to the daemon of `host`, or to all daemons.
    async fn requests(&self, host: Option<&HostName>) -> Result<Vec<FiledRequest>, StoreError> {
        let _ = host;
        Ok(Vec::new())
    }

    /// Takes a request. Returns true once for each request, and never after its deadline.
    async fn take_request(&self, id: &RunId) -> Result<bool, StoreError> {
        let _ = id;
        Ok(false)
    }

    /// Writes the reply to a request.
    async fn reply_to_request(&self, id: &RunId, reply: &RequestReply) -> Result<(), StoreError> {
        let _ = (id, reply);
        Ok(())
    }

    /// Waits until a request to the daemon of `host` is announced, at most `limit`. May return early
    /// without one; the caller reads the requests in any case. One caller at a time: a store may remember
    /// what it has reported.
    async fn request_filed(&self, host: &HostName, limit: Duration) -> Result<(), StoreError> {
        let _ = host;
        tokio::time::sleep(limit.min(Duration::from_secs(1))).await;
        Ok(())
    }

    /// Keeps a part of the output of a triggered run until it is read. Returns the number of the part
    /// that the reader wants next.
    async fn send_output(
        &self,
        run: &RunId,
        number: u64,
        chunk: &OutputChunk,
    ) -> Result<u64, StoreError> {
        let _ = (run, chunk);
        Ok(number)
    }

    /// Returns the parts of the output from this number on, in order, and deletes those before it.
    async fn receive_output(
        &self,
        run: &RunId,
        from: u64,
    ) -> Result<Vec<(u64, OutputChunk)>, StoreError> {
        let _ = (run, from);
        Ok(Vec::new())
    }

    /// Reads a whole ledger.
    ///
    /// This and [`Store::replace`] move a ledger to another lock; see
    /// [`relocate`](crate::store::relocate).
    async fn ledger(&self, job: &JobName, lock: &Lock) -> Result<Ledger, StoreError> {
        let _ = (job, lock);
        Ok(Ledger::default())
    }

    /// Replaces a ledger if it is still as it was read. See
    /// [`protocol::replace`](crate::store::protocol::replace).
    async fn replace(&self, replacement: &Replacement) -> Result<Replaced, StoreError> {
        let _ = replacement;
        Ok(Replaced::Done)
    }

    /// Announces that this host is up. The announcement expires after `valid_for`; zero removes it,
    /// unless another daemon under the name of this host has replaced it.
    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError>;

    /// Waits until a release of the lock is announced, at most `limit`. May return early without a
    /// release; the caller claims again in any case.
    async fn released(&self, lock: &Lock, limit: Duration) -> Result<(), StoreError>;

    /// Announces to other hosts that an occurrence of the job was returned undecided. The message
    /// may get lost; it only shortens their wait.
    async fn tell_returned(&self, job: &JobName) -> Result<(), StoreError> {
        let _ = job;
        Ok(())
    }

    /// Waits until another host announces a returned occurrence after `seen`, at most `limit`. A
    /// store that does not name the jobs returns [`Returned::Any`] when there may be one; the default
    /// does so after at most a second. May return up to a second later than `limit`.
    async fn returned(&self, seen: &mut Seen, limit: Duration) -> Result<Returned, StoreError> {
        let _ = seen;
        tokio::time::sleep(limit.min(Duration::from_secs(1))).await;
        Ok(Returned::Any)
    }

    /// Returns why the store takes no writes although it replies: its memory is full, it lacks replicas,
    /// or it cannot save its data to disk. `None` if it takes them or that is not known. In a Cluster
    /// this is about the server that lists the hosts.
    async fn takes_no_writes(&self) -> Option<String> {
        None
    }

    /// Returns the store's own clock.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Returns each job's ledger and the holder of its lock, in the order of the request.
    async fn jobs(&self, jobs: &[(JobName, Lock)]) -> Result<Vec<JobReport>, StoreError>;

    /// Returns the newest `limit` records of the job, newest first, and the faults of entries that
    /// cannot be read. Failures are kept apart from other records, so there may be older ones among them.
    async fn history(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<History, StoreError>;

    /// Returns the newest `limit` failures of all jobs, newest first, without output if they are many. In
    /// a Cluster, where jobs lie on different servers, those of `jobs`.
    async fn failures(
        &self,
        jobs: &[(JobName, Lock)],
        limit: usize,
    ) -> Result<History, StoreError> {
        let mut failures = History::default();
        for (job, lock) in jobs {
            let history = self.history(job, lock, limit).await?;
            failures.records.extend(history.records);
        }
        failures
            .records
            .retain(|record| record.outcome.is_failure());
        failures
            .records
            .sort_short_by_key(|record| std::cmp::Reverse(record.finished_at));
        failures.records.truncate(limit);
        Ok(failures)
    }

    /// Returns the hosts whose announcements have not expired.
    async fn hosts(&self) -> Result<Vec<HostReport>, StoreError>;

    /// Returns the hosts that announced themselves to any server of the store. Of several nodes, every
    /// reachable one is asked and not only a majority: a host whose list names other nodes may share
    /// just one of them with this host.
    async fn peers(&self) -> Result<Vec<HostReport>, StoreError> {
        self.hosts().await
    }

    /// Returns the hosts whose announcements expired within the last [`VANISHED_FOR`]: their daemons did
    /// not report that they stop, and have not reported again.
    ///
    /// [`VANISHED_FOR`]: super::registry::VANISHED_FOR
    async fn vanished(&self) -> Result<Vec<HostReport>, StoreError> {
        Ok(Vec::new())
    }

    /// Keeps the jobs of a list for [`LIST_KEPT_FOR`] from now. Without the jobs, keeps those that the
    /// store has. Returns whether it has them then.
    ///
    /// [`LIST_KEPT_FOR`]: super::listed_jobs::LIST_KEPT_FOR
    async fn keep_list(
        &self,
        list: &Fingerprint,
        jobs: Option<&ListedJobs>,
    ) -> Result<bool, StoreError> {
        let _ = (list, jobs);
        Ok(true)
    }

    /// Returns the jobs of the list with this fingerprint, if a daemon had it lately.
    async fn listed_jobs(&self, list: &Fingerprint) -> Result<Option<ListedJobs>, StoreError> {
        let _ = list;
        Ok(None)
    }

    /// Returns which servers decide, or `None` if every host that finds this store uses the same
    /// servers.
    async fn nodes(&self) -> Result<Option<StoreNodes>, StoreError> {
        Ok(None)
    }

    /// Returns whether the store lost data and therefore delays claims, and, of several nodes, which
    /// of them count and for which of these jobs. Changes nothing. By default the store has lost
    /// nothing.
    async fn condition(&self, jobs: &[(JobName, Lock)]) -> Result<Condition, StoreError> {
        let _ = jobs;
        Ok(Condition::default())
    }

    /// Deletes the job's ledger and history, its entries in the registry, and the state of its lock if
    /// no other job uses that. Also deletes them if they are damaged.
    async fn forget(&self, forget: &Forget) -> Result<Forgotten, StoreError>;

    /// Makes [`daemons`](Self::daemons) find this host's daemon while the returned future is polled.
    async fn attend(&self, host: &HostName) {
        let _ = host;
        std::future::pending::<()>().await;
    }

    /// Returns the daemons that are connected, whether or not the data name them. Directly after a
    /// loss of all data they do not. A store that cannot lose its data returns none.
    async fn daemons(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// Initialises a new, empty store. If keys of cronlatch exist already, writes nothing and returns
    /// how many.
    async fn init(&self) -> Result<Option<u64>, StoreError>;
}
