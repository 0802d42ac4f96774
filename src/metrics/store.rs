//! A store whose requests are measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Metrics;
use crate::names::{HostName, JobName, RunId};
use crate::store::{
    Attempt, Beginning, Claim, ClaimReply, Condition, DaemonRequest, Entry, Filed, FiledRequest,
    Fingerprint, Finish, FinishReply, Forget, Forgotten, History, HostInfo, HostJobs, HostReport,
    JobReport, JobsRevision, Keeping, Ledger, ListedJobs, Listing, Lock, ManualNote, ManualRun,
    OutputChunk, PauseReply, PauseRequest, Registered, Registration, RenewReply, Renewal, Replaced,
    Replacement, RequestReply, Returned, RunStatus, Seen, Settle, Store, StoreError, StoreNodes,
};
use crate::time::Timestamp;

/// Passes every request on, and measures those that the store executes at once.
#[derive(Debug)]
pub(super) struct MeasuredStore {
    store: Arc<dyn Store>,
    metrics: Metrics,
}

impl MeasuredStore {
    pub(super) fn new(store: Arc<dyn Store>, metrics: Metrics) -> Self {
        Self { store, metrics }
    }

    async fn measured<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let reply = request.await;
        let error = reply.as_ref().err();
        self.metrics
            .store_replied(operation, began.elapsed(), error);
        reply
    }
}

#[async_trait]
impl Store for MeasuredStore {
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError> {
        self.measured("claim", self.store.claim(claim)).await
    }

    async fn already_claimed(&self, claim: &Claim) -> Result<Option<RunStatus>, StoreError> {
        // Not measured: most stores answer by themselves, without a request.
        self.store.already_claimed(claim).await
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>, StoreError> {
        let replies = self.measured("renew", self.store.renew(renewals)).await;
        self.metrics
            .renewed(renewals.len(), replies.as_deref().ok());
        replies
    }

    fn shard(&self, lock: &Lock) -> u64 {
        self.store.shard(lock)
    }

    async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
        self.measured("finish", self.store.finish(finish)).await
    }

    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError> {
        self.measured("other", self.store.settle(settle)).await
    }

    async fn pause(&self, request: &PauseRequest) -> Result<PauseReply, StoreError> {
        self.measured("other", self.store.pause(request)).await
    }

    async fn note_attempt(&self, attempt: &Attempt) -> Result<bool, StoreError> {
        self.measured("other", self.store.note_attempt(attempt))
            .await
    }

    async fn register(&self, jobs: &[Registration]) -> Result<Vec<Registered>, StoreError> {
        self.measured("register", self.store.register(jobs)).await
    }

    async fn begin(&self, jobs: &[Beginning]) -> Result<Vec<bool>, StoreError> {
        self.measured("register", self.store.begin(jobs)).await
    }

    async fn listings(&self, jobs: &[JobName]) -> Result<Vec<Listing>, StoreError> {
        self.measured("register", self.store.listings(jobs)).await
    }

    async fn enlist(
        &self,
        host: &HostName,
        entries: &[(JobName, Entry)],
    ) -> Result<(), StoreError> {
        self.measured("register", self.store.enlist(host, entries))
            .await
    }

    async fn keep(&self, jobs: &[Keeping]) -> Result<(), StoreError> {
        self.measured("register", self.store.keep(jobs)).await
    }

    async fn listed_by(&self, host: &HostName) -> Result<Vec<JobName>, StoreError> {
        self.measured("register", self.store.listed_by(host)).await
    }

    async fn listed_since(
        &self,
        host: &HostName,
        known: Option<&JobsRevision>,
    ) -> Result<Option<HostJobs>, StoreError> {
        self.measured("register", self.store.listed_since(host, known))
            .await
    }

    async fn note_manual(&self, run: &ManualRun) -> Result<(), StoreError> {
        self.measured("other", self.store.note_manual(run)).await
    }

    async fn manual_runs(&self) -> Result<Vec<ManualNote>, StoreError> {
        self.measured("other", self.store.manual_runs()).await
    }

    async fn forget_manual(&self, runs: &[RunId]) -> Result<(), StoreError> {
        self.measured("other", self.store.forget_manual(runs)).await
    }

    async fn ledger(&self, job: &JobName, lock: &Lock) -> Result<Ledger, StoreError> {
        self.measured("other", self.store.ledger(job, lock)).await
    }

    async fn replace(&self, replacement: &Replacement) -> Result<Replaced, StoreError> {
        self.measured("other", self.store.replace(replacement))
            .await
    }

    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError> {
        self.measured("announce", self.store.announce(host, valid_for))
            .await
    }

    async fn file_request(
        &self,
        request: &DaemonRequest,
        deadline: Timestamp,
    ) -> Result<Filed, StoreError> {
        self.measured("other", self.store.file_request(request, deadline))
            .await
    }

    async fn requests(&self, host: Option<&HostName>) -> Result<Vec<FiledRequest>, StoreError> {
        self.measured("other", self.store.requests(host)).await
    }

    async fn take_request(&self, id: &RunId) -> Result<bool, StoreError> {
        self.measured("other", self.store.take_request(id)).await
    }

    async fn reply_to_request(&self, id: &RunId, reply: &RequestReply) -> Result<(), StoreError> {
        self.measured("other", self.store.reply_to_request(id, reply))
            .await
    }

    async fn request_filed(&self, host: &HostName, limit: Duration) -> Result<(), StoreError> {
        self.store.request_filed(host, limit).await
    }

    async fn send_output(
        &self,
        run: &RunId,
        number: u64,
        chunk: &OutputChunk,
    ) -> Result<u64, StoreError> {
        self.measured("other", self.store.send_output(run, number, chunk))
            .await
    }

    async fn receive_output(
        &self,
        run: &RunId,
        from: u64,
    ) -> Result<Vec<(u64, OutputChunk)>, StoreError> {
        self.measured("other", self.store.receive_output(run, from))
            .await
    }

    async fn takes_no_writes(&self) -> Option<String> {
        self.store.takes_no_writes().await
    }

    async fn released(&self, lock: &Lock, limit: Duration) -> Result<(), StoreError> {
        self.store.released(lock, limit).await
    }

    async fn tell_returned(&self, job: &JobName) -> Result<(), StoreError> {
        self.measured("other", self.store.tell_returned(job)).await
    }

    async fn returned(&self, seen: &mut Seen, limit: Duration) -> Result<Returned, StoreError> {
        self.store.returned(seen, limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.measured("other", self.store.now()).await
    }

    async fn jobs(&self, jobs: &[(JobName, Lock)]) -> Result<Vec<JobReport>, StoreError> {
        self.measured("read", self.store.jobs(jobs)).await
    }

    async fn history(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<History, StoreError> {
        self.measured("read", self.store.history(job, lock, limit))
            .await
    }

    async fn failures(
        &self,
        jobs: &[(JobName, Lock)],
        limit: usize,
    ) -> Result<History, StoreError> {
        self.measured("read", self.store.failures(jobs, limit))
            .await
    }

    async fn hosts(&self) -> Result<Vec<HostReport>, StoreError> {
        self.measured("read", self.store.hosts()).await
    }

    async fn peers(&self) -> Result<Vec<HostReport>, StoreError> {
        self.measured("read", self.store.peers()).await
    }

    async fn vanished(&self) -> Result<Vec<HostReport>, StoreError> {
        self.measured("read", self.store.vanished()).await
    }

    async fn keep_list(
        &self,
        list: &Fingerprint,
        jobs: Option<&ListedJobs>,
    ) -> Result<bool, StoreError> {
        self.measured("announce", self.store.keep_list(list, jobs))
            .await
    }

    async fn listed_jobs(&self, list: &Fingerprint) -> Result<Option<ListedJobs>, StoreError> {
        self.measured("read", self.store.listed_jobs(list)).await
    }

    async fn nodes(&self) -> Result<Option<StoreNodes>, StoreError> {
        self.measured("other", self.store.nodes()).await
    }

    async fn condition(&self, jobs: &[(JobName, Lock)]) -> Result<Condition, StoreError> {
        self.measured("read", self.store.condition(jobs)).await
    }

    async fn forget(&self, forget: &Forget) -> Result<Forgotten, StoreError> {
        self.measured("other", self.store.forget(forget)).await
    }

    async fn attend(&self, host: &HostName) {
        self.store.attend(host).await;
    }

    async fn daemons(&self) -> Result<Vec<String>, StoreError> {
        self.measured("other", self.store.daemons()).await
    }

    async fn init(&self) -> Result<Option<u64>, StoreError> {
        self.measured("other", self.store.init()).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// A method that is not passed on would have the default of the trait, silently.
    #[test]
    fn every_method_of_a_store_is_passed_on() {
        let methods = |source: &'static str| -> BTreeSet<&'static str> {
            let lines = source.lines().map(str::trim_start);
            let names = lines.filter_map(|line| {
                let line = line.strip_prefix("async ").unwrap_or(line);
                line.strip_prefix("fn ")?.split('(').next()
            });
            names.collect()
        };
        let of_trait = methods(include_str!("../store/contract/store.rs"));
        let passed_on = methods(include_str!("store.rs"));
        assert!(of_trait.contains("claim"), "{of_trait:?}");
        let missing: Vec<_> = of_trait.difference(&passed_on).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
