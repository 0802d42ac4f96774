//! A store whose requests are measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Metrics;
use crate::names::{HostName, JobName, RunId};
use crate::store::{
    Attempt, Beginning, Claim, ClaimReply, Condition, Entry, Finish, FinishReply, Forget,
    Forgotten, History, HostInfo, HostReport, JobReport, Keeping, Ledger, Listing, Lock,
    ManualNote, ManualRun, PauseReply, PauseRequest, Registered, Registration, RenewReply, Renewal,
    Replaced, Replacement, Returned, Seen, Settle, Store, StoreError, StoreNodes,
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

    async fn attempt(&self, attempt: &Attempt) -> Result<bool, StoreError> {
        self.measured("other", self.store.attempt(attempt)).await
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
