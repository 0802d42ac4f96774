//! The embedded store: one `SQLite` file, one machine, any number of processes.
//!
//! Every operation runs the [`protocol`](super::protocol) inside a write transaction, and replies when the
//! transaction is on the disk. A separate thread does the work, so that a slow disk does not block the
//! runtime. The requests that are queued by then share the next transaction.
//!
//! Lease ends are counted on `CLOCK_BOOTTIME` and belong to one boot of the machine: setting the wall
//! clock ends no lease, and a restart ends all of them. The ledger is in UTC.

mod clock;
mod context;
mod daemon_request;
mod error;
mod history;
mod hosts;
mod lifetimes;
mod listed_jobs;
mod manual;
mod operations;
mod path_check;
mod registry;
mod rows;
mod schema;
mod worker;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use self::path_check::network_file_system;

use self::context::WorkContext;
use self::error::SqliteFailure;
use self::worker::{Access, Worker};
use super::{
    Attempt, Beginning, Claim, ClaimReply, DaemonRequest, Entry, Filed, FiledRequest, Fingerprint,
    Finish, FinishReply, Forget, Forgotten, History, HostInfo, HostJobs, HostReport, JobReport,
    JobsRevision, Keeping, Ledger, ListedJobs, Listing, Lock, ManualNote, ManualRun, OutputChunk,
    PauseReply, PauseRequest, Registered, Registration, RenewReply, Renewal, Replaced, Replacement,
    RequestReply, Returned, Seen, Settle, Store, StoreError, relocate::follow,
};
use crate::names::{HostName, JobName, RunId};
use crate::time::{BootInstant, Timestamp};

/// How often a waiting task checks for releases by other processes.
const RELEASE_POLL: Duration = Duration::from_millis(50);

/// The least time between two reports of returned occurrences.
const RETURNED_APART: Duration = Duration::from_millis(500);

/// The number that stands for the file in a [`Seen`], which is made for connections.
const FILE: u64 = 1;

/// The embedded store. It opens the file at its first operation, and again after a failure.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    worker: Worker,
    /// Notified of every release in this process.
    freed: Arc<Notify>,
    /// The longest TTL that was requested so far, in milliseconds.
    longest_ttl: Arc<AtomicU64>,
    /// How many changes of the file the listener for requests has seen.
    seen_by_requests: AtomicU64,
}

impl SqliteStore {
    /// Returns the store on the file at `path`, and starts its thread.
    pub(crate) fn new(path: &Path) -> Result<Self, StoreError> {
        Self::on(Some(path))
    }

    /// An empty store that ends with this value.
    pub(crate) fn in_memory() -> Result<Self, StoreError> {
        Self::on(None)
    }

    fn on(path: Option<&Path>) -> Result<Self, StoreError> {
        let freed = Arc::new(Notify::new());
        let longest_ttl = Arc::new(AtomicU64::new(0));
        let worker = Worker::start(path, Arc::clone(&freed), Arc::clone(&longest_ttl))
            .map_err(|e| StoreError::refused_by("cannot start a thread", e))?;
        Ok(Self {
            worker,
            freed,
            longest_ttl,
            seen_by_requests: AtomicU64::new(0),
        })
    }

    async fn write<T, F>(&self, run: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&WorkContext<'_>) -> Result<T, SqliteFailure> + Send + 'static,
    {
        self.worker.ask(Access::Write, run).await
    }

    async fn read<T, F>(&self, run: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&WorkContext<'_>) -> Result<T, SqliteFailure> + Send + 'static,
    {
        self.worker.ask(Access::Read, run).await
    }

    fn note_ttl(&self, ttl: Duration) {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        self.longest_ttl.fetch_max(millis, Ordering::Relaxed);
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError> {
        self.note_ttl(claim.ttl);
        let claim = claim.clone();
        let claim = move |work: &WorkContext<'_>| {
            let reply = operations::claim(work, &claim)?;
            Ok((reply, work.now.read))
        };
        // To write the grant to the disk may take longer than the lead of a claim.
        let (reply, read) = self.write(claim).await?;
        Ok(reply.after(BootInstant::now().since(read)))
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>, StoreError> {
        for renewal in renewals {
            self.note_ttl(renewal.grant.ttl);
        }
        let renewals = renewals.to_vec();
        self.write(move |work| operations::renew(work, &renewals))
            .await
    }

    async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
        follow(finish, |finish| async move {
            self.write(move |work| operations::finish(work, &finish))
                .await
        })
        .await
    }

    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError> {
        let settle = settle.clone();
        self.write(move |work| operations::settle(work, &settle))
            .await
    }

    async fn pause(&self, request: &PauseRequest) -> Result<PauseReply, StoreError> {
        let request = request.clone();
        self.write(move |work| operations::pause(work, &request))
            .await
    }

    async fn note_attempt(&self, attempt: &Attempt) -> Result<bool, StoreError> {
        let attempt = attempt.clone();
        self.write(move |work| operations::note_attempt(work, &attempt))
            .await
    }

    async fn register(&self, jobs: &[Registration]) -> Result<Vec<Registered>, StoreError> {
        let jobs = jobs.to_vec();
        self.write(move |work| operations::register(work, &jobs))
            .await
    }

    async fn begin(&self, jobs: &[Beginning]) -> Result<Vec<bool>, StoreError> {
        let jobs = jobs.to_vec();
        self.write(move |work| registry::begin(work, &jobs)).await
    }

    async fn listings(&self, jobs: &[JobName]) -> Result<Vec<Listing>, StoreError> {
        let jobs = jobs.to_vec();
        self.read(move |work| registry::listings(work, &jobs)).await
    }

    async fn enlist(
        &self,
        host: &HostName,
        entries: &[(JobName, Entry)],
    ) -> Result<(), StoreError> {
        let (host, entries) = (host.clone(), entries.to_vec());
        self.write(move |work| registry::enlist(work, &host, &entries))
            .await
    }

    async fn keep(&self, jobs: &[Keeping]) -> Result<(), StoreError> {
        let jobs = jobs.to_vec();
        self.write(move |work| {
            lifetimes::keep(work, &jobs)?;
            registry::forget_old(work.db, &work.now)?;
            Ok(())
        })
        .await
    }

    async fn listed_since(
        &self,
        host: &HostName,
        known: Option<&JobsRevision>,
    ) -> Result<Option<HostJobs>, StoreError> {
        let (host, known) = (host.clone(), known.cloned());
        self.read(move |work| registry::listed_since(work, &host, known.as_ref()))
            .await
    }

    async fn note_manual(&self, run: &ManualRun) -> Result<(), StoreError> {
        let run = run.clone();
        self.write(move |work| manual::note(work, &run)).await
    }

    async fn manual_runs(&self) -> Result<Vec<ManualNote>, StoreError> {
        self.read(manual::all).await
    }

    async fn forget_manual(&self, runs: &[RunId]) -> Result<(), StoreError> {
        let runs = runs.to_vec();
        self.write(move |work| manual::forget(work, &runs)).await
    }

    async fn file_request(
        &self,
        request: &DaemonRequest,
        deadline: Timestamp,
    ) -> Result<Filed, StoreError> {
        let request = request.clone();
        self.write(move |work| daemon_request::file(work, &request, deadline))
            .await
    }

    async fn requests(&self, host: Option<&HostName>) -> Result<Vec<FiledRequest>, StoreError> {
        let host = host.cloned();
        self.read(move |work| daemon_request::list(work, host.as_ref()))
            .await
    }

    async fn take_request(&self, id: &RunId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.write(move |work| daemon_request::take(work, &id))
            .await
    }

    async fn reply_to_request(&self, id: &RunId, reply: &RequestReply) -> Result<(), StoreError> {
        let (id, reply) = (id.clone(), reply.clone());
        self.write(move |work| daemon_request::reply(work, &id, &reply))
            .await
    }

    async fn request_filed(&self, _: &HostName, limit: Duration) -> Result<(), StoreError> {
        let seen = self.seen_by_requests.load(Ordering::Relaxed);
        let changed = self.worker.changed_since(Some(seen));
        // After the limit the caller reads the requests in any case.
        if let Ok(changes) = tokio::time::timeout(limit, changed).await {
            self.seen_by_requests.store(changes?, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn send_output(
        &self,
        run: &RunId,
        number: u64,
        chunk: &OutputChunk,
    ) -> Result<u64, StoreError> {
        let (run, chunk) = (run.clone(), chunk.clone());
        self.write(move |work| daemon_request::send(work, (&run, number), &chunk))
            .await
    }

    async fn receive_output(
        &self,
        run: &RunId,
        from: u64,
    ) -> Result<Vec<(u64, OutputChunk)>, StoreError> {
        let run = run.clone();
        self.write(move |work| daemon_request::receive(work, &run, from))
            .await
    }

    async fn ledger(&self, job: &JobName, lock: &Lock) -> Result<Ledger, StoreError> {
        let (job, lock) = (job.clone(), lock.clone());
        self.read(move |work| operations::ledger(work, &job, &lock))
            .await
    }

    async fn replace(&self, replacement: &Replacement) -> Result<Replaced, StoreError> {
        let replacement = replacement.clone();
        self.write(move |work| operations::replace(work, &replacement))
            .await
    }

    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError> {
        let host = host.clone();
        self.write(move |work| hosts::announce(work, &host, valid_for))
            .await
    }

    /// The file announces nothing, so each change may have been a return.
    async fn returned(&self, seen: &mut Seen, limit: Duration) -> Result<Returned, StoreError> {
        let changed = self.worker.changed_since(Seen::at(FILE, 0).new_until(seen));
        let Ok(changes) = tokio::time::timeout(limit, changed).await else {
            return Ok(Returned::Jobs(Vec::new()));
        };
        let changes = changes?;
        // Others may write all the time, and each report has the caller read ledgers.
        tokio::time::sleep(RETURNED_APART).await;
        // Not before: a caller that stops waiting must be told again.
        *seen = Seen::at(FILE, changes);
        Ok(Returned::Any)
    }

    async fn released(&self, lock: &Lock, limit: Duration) -> Result<(), StoreError> {
        let end = Instant::now() + limit;
        loop {
            // Wait for the notification before the check, so that no release is missed between them.
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let asked = lock.clone();
            if self
                .read(move |work| operations::is_free(work, &asked))
                .await?
            {
                return Ok(());
            }
            let next = end.min(Instant::now() + RELEASE_POLL);
            let _ = tokio::time::timeout_at(next, freed).await;
            if Instant::now() >= end {
                return Ok(());
            }
        }
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.read(|work| Ok(work.now.clock.utc())).await
    }

    async fn jobs(&self, jobs: &[(JobName, Lock)]) -> Result<Vec<JobReport>, StoreError> {
        let jobs = jobs.to_vec();
        self.read(move |work| operations::jobs(work, &jobs)).await
    }

    async fn history(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<History, StoreError> {
        let (job, lock) = (job.clone(), lock.clone());
        self.read(move |work| history::newest(work, &job, &lock, limit))
            .await
    }

    async fn failures(&self, _: &[(JobName, Lock)], limit: usize) -> Result<History, StoreError> {
        self.read(move |work| history::failures(work, limit)).await
    }

    async fn hosts(&self) -> Result<Vec<HostReport>, StoreError> {
        self.read(hosts::living).await
    }

    async fn vanished(&self) -> Result<Vec<HostReport>, StoreError> {
        self.read(hosts::vanished).await
    }

    async fn keep_list(
        &self,
        list: &Fingerprint,
        jobs: Option<&ListedJobs>,
    ) -> Result<bool, StoreError> {
        let (list, jobs) = (list.clone(), jobs.cloned());
        self.write(move |work| listed_jobs::keep(work, &list, jobs.as_ref()))
            .await
    }

    async fn listed_jobs(&self, list: &Fingerprint) -> Result<Option<ListedJobs>, StoreError> {
        let list = list.clone();
        self.read(move |work| listed_jobs::read(work, &list)).await
    }

    async fn forget(&self, request: &Forget) -> Result<Forgotten, StoreError> {
        let request = request.clone();
        self.write(move |work| operations::forget(work, &request))
            .await
    }

    async fn init(&self) -> Result<Option<u64>, StoreError> {
        self.write(schema::init).await
    }
}
