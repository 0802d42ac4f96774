//! The operations of a store, each a call of a script and its reply.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;

use super::RedisStore;
use super::renewals::renew;
use crate::names::{HostName, JobName, RunId};
use crate::store::redis::codec::call::Call;
use crate::store::redis::codec::keys::LockKeys;
use crate::store::redis::codec::reply::integer;
use crate::store::redis::codec::{
    already_claimed, attempt, begin, condition, daemon_request, finish, forget, hosts, jobs, keep,
    ledger, listed_jobs, manual, pause, register, registry, renew, returned, settle,
};
use crate::store::redis::conn::presence;
use crate::store::redis::conn::pubsub::Endpoints;
use crate::store::redis::route::ScriptReply;
use crate::store::redis::{BATCH, RESPONSE_TIMEOUT};
use crate::store::{
    Attempt, Beginning, Claim, ClaimReply, Condition, DaemonRequest, Entry, Filed, FiledRequest,
    Fingerprint, Finish, FinishReply, Forget, Forgotten, History, HostInfo, HostJobs, HostReport,
    JobReport, JobsRevision, Keeping, Ledger, ListedJobs, Listing, Lock, ManualNote, ManualRun,
    OutputChunk, PauseReply, PauseRequest, Registered, Registration, RenewReply, Renewal, Replaced,
    Replacement, RequestReply, Returned, RunStatus, Seen, Settle, Store, StoreError, StoreNodes,
    relocate::follow,
};
use crate::time::Timestamp;

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError> {
        self.claim_with_replicas(claim).await
    }

    async fn already_claimed(&self, claim: &Claim) -> Result<Option<RunStatus>, StoreError> {
        let Some(call) = already_claimed::call(self.prefix(), claim) else {
            return Ok(None);
        };
        let script = &self.scripts.already_claimed;
        let reply = self.route.run(script, call, RESPONSE_TIMEOUT).await?;
        Ok(already_claimed::read(reply.value)?)
    }

    fn shard(&self, lock: &Lock) -> u64 {
        self.route.shard(lock)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>, StoreError> {
        let limit = renew::limit(renewals);
        let batching = self.route.batching();
        let calls = renewals.chunks(batching.size()).map(|batch| {
            let (route, scripts) = (Arc::clone(&self.route), Arc::clone(&self.scripts));
            let batch = batch.to_vec();
            async move { renew(&*route, &scripts, &batch, limit).await }
        });
        Ok(batching.make(calls.collect::<Vec<_>>()).await?.concat())
    }

    async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
        follow(finish, |finish| async move {
            let all_failures = self.route.all_failures();
            let call = finish::call(self.prefix(), &finish, all_failures);
            let reply = self.run(&self.scripts.finish, call).await?;
            Ok(finish::read(self.prefix(), reply)?)
        })
        .await
    }

    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError> {
        let all_failures = self.route.all_failures();
        let call = settle::call(self.prefix(), settle, all_failures);
        let reply = self.run(&self.scripts.settle, call).await?;
        Ok(settle::read(&reply)?)
    }

    async fn pause(&self, request: &PauseRequest) -> Result<PauseReply, StoreError> {
        let call = pause::call(self.prefix(), request);
        let reply = self.run(&self.scripts.pause, call).await?;
        Ok(pause::read(self.prefix(), reply)?)
    }

    async fn note_attempt(&self, attempt: &Attempt) -> Result<bool, StoreError> {
        let call = attempt::call(self.prefix(), attempt);
        let reply = self.run(&self.scripts.attempt, call).await?;
        Ok(attempt::read(&reply)?)
    }

    async fn register(&self, jobs: &[Registration]) -> Result<Vec<Registered>, StoreError> {
        let longest = jobs.iter().map(|job| job.ttl.as_millis()).max();
        let longest = u64::try_from(longest.unwrap_or_default()).unwrap_or(u64::MAX);
        self.longest.fetch_max(longest, Ordering::Relaxed);
        let replies = self.run_each(|s| &s.register, jobs, register::call);
        let mut all = Vec::with_capacity(jobs.len());
        for (_, reply) in replies.await? {
            all.extend(register::read(reply)?);
        }
        self.route.registered(jobs);
        Ok(all)
    }

    async fn begin(&self, jobs: &[Beginning]) -> Result<Vec<bool>, StoreError> {
        let replies = self.run_each(|s| &s.begin, jobs, begin::call);
        let mut all = Vec::with_capacity(jobs.len());
        for (_, reply) in replies.await? {
            all.extend(begin::read(reply)?);
        }
        Ok(all)
    }

    async fn listings(&self, jobs: &[JobName]) -> Result<Vec<Listing>, StoreError> {
        let replies = self.run_each(|s| &s.listings, jobs, registry::listings_call);
        let mut all = Vec::with_capacity(jobs.len());
        for (batch, reply) in replies.await? {
            all.extend(registry::listings_read(reply, batch)?);
        }
        Ok(all)
    }

    async fn enlist(
        &self,
        host: &HostName,
        entries: &[(JobName, Entry)],
    ) -> Result<(), StoreError> {
        // In this order, because a job that is noted for the host but has no entry is harmless.
        for batch in entries.chunks(BATCH) {
            let call = registry::listed_call(self.prefix(), host, batch);
            let reply = self.run(&self.scripts.listed, call).await?;
            registry::listed_written(self.prefix(), host, reply)?;
        }
        let replies = self.run_each(
            |s| &s.enlist,
            entries,
            |prefix, batch| registry::enlist_call(prefix, host, batch),
        );
        for (batch, reply) in replies.await? {
            registry::enlist_read(self.prefix(), batch, reply)?;
        }
        Ok(())
    }

    async fn keep(&self, jobs: &[Keeping]) -> Result<(), StoreError> {
        let replies = self.run_each(|s| &s.keep, jobs, keep::call);
        replies.await.map(drop)?;
        Ok(())
    }

    async fn listed_since(
        &self,
        host: &HostName,
        known: Option<&JobsRevision>,
    ) -> Result<Option<HostJobs>, StoreError> {
        let call = registry::listed_since_call(self.prefix(), host, known);
        let reply = self.run(&self.scripts.listed, call).await?;
        Ok(registry::listed_since_read(self.prefix(), host, reply)?)
    }

    async fn note_manual(&self, run: &ManualRun) -> Result<(), StoreError> {
        let call = manual::note_call(self.prefix(), run);
        self.run(&self.scripts.manual, call).await?;
        Ok(())
    }

    async fn manual_runs(&self) -> Result<Vec<ManualNote>, StoreError> {
        let call = manual::list_call(self.prefix());
        let reply = self.run(&self.scripts.manual, call).await?;
        Ok(manual::list_read(reply)?)
    }

    async fn forget_manual(&self, runs: &[RunId]) -> Result<(), StoreError> {
        for batch in runs.chunks(BATCH) {
            let call = manual::forget_call(self.prefix(), batch);
            self.run(&self.scripts.manual, call).await?;
        }
        Ok(())
    }

    async fn file_request(
        &self,
        request: &DaemonRequest,
        deadline: Timestamp,
    ) -> Result<Filed, StoreError> {
        let call = daemon_request::file_call(self.prefix(), request, deadline);
        let reply = self.run(&self.scripts.requests, call).await?;
        Ok(daemon_request::file_read(reply)?)
    }

    async fn requests(&self, host: Option<&HostName>) -> Result<Vec<FiledRequest>, StoreError> {
        let call = daemon_request::list_call(self.prefix(), host);
        // A daemon that lists requests must be able to take them: it would refuse them otherwise.
        let script = match host {
            Some(_) => &self.scripts.requests,
            None => &self.scripts.list_requests,
        };
        let reply = self.run(script, call).await?;
        Ok(daemon_request::list_read(reply)?)
    }

    async fn take_request(&self, id: &RunId) -> Result<bool, StoreError> {
        let call = daemon_request::take_call(self.prefix(), id);
        let reply = self.run(&self.scripts.requests, call).await?;
        Ok(daemon_request::take_read(&reply)?)
    }

    async fn reply_to_request(&self, id: &RunId, reply: &RequestReply) -> Result<(), StoreError> {
        let call = daemon_request::reply_call(self.prefix(), id, reply);
        self.run(&self.scripts.requests, call).await?;
        Ok(())
    }

    async fn request_filed(&self, host: &HostName, limit: Duration) -> Result<(), StoreError> {
        let channel = daemon_request::channel(self.prefix(), host);
        self.listener.wait(&channel, limit).await;
        Ok(())
    }

    async fn send_output(
        &self,
        run: &RunId,
        number: u64,
        chunk: &OutputChunk,
    ) -> Result<u64, StoreError> {
        let call = daemon_request::send_call(self.prefix(), (run, number), chunk);
        let reply = self.run(&self.scripts.output, call).await?;
        Ok(daemon_request::send_read(&reply)?)
    }

    async fn receive_output(
        &self,
        run: &RunId,
        from: u64,
    ) -> Result<Vec<(u64, OutputChunk)>, StoreError> {
        let call = daemon_request::receive_call(self.prefix(), run, from);
        let reply = self.run(&self.scripts.output, call).await?;
        Ok(daemon_request::receive_read(reply)?)
    }

    async fn ledger(&self, job: &JobName, lock: &Lock) -> Result<Ledger, StoreError> {
        let call = ledger::ledger_call(self.prefix(), job, lock);
        let reply = self.run(&self.scripts.ledger, call).await?;
        Ok(ledger::ledger_read(self.prefix(), job, reply)?)
    }

    async fn replace(&self, replacement: &Replacement) -> Result<Replaced, StoreError> {
        self.check_format().await?;
        let call = ledger::replace_call(self.prefix(), replacement);
        let script = &self.scripts.replace;
        let ScriptReply { value, origin, .. } =
            self.route.run(script, call, RESPONSE_TIMEOUT).await?;
        self.route.replicated(&origin, RESPONSE_TIMEOUT).await?;
        Ok(ledger::replace_read(value)?)
    }

    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError> {
        let call = hosts::announce_call(self.prefix(), host, valid_for, self.longest())?;
        let reply = self.run(&self.scripts.announce, call).await?;
        Ok(hosts::announce_read(self.prefix(), reply)?)
    }

    async fn nodes(&self) -> Result<Option<StoreNodes>, StoreError> {
        Ok(Some(StoreNodes::one()))
    }

    async fn released(&self, lock: &Lock, limit: Duration) -> Result<(), StoreError> {
        let keys = LockKeys::of(self.prefix(), lock);
        self.listener
            .wait(&keys.released().to_string(), limit)
            .await;
        Ok(())
    }

    async fn tell_returned(&self, job: &JobName) -> Result<(), StoreError> {
        let call = returned::call(self.prefix(), job);
        self.run(&self.scripts.returned, call).await?;
        Ok(())
    }

    async fn returned(&self, seen: &mut Seen, limit: Duration) -> Result<Returned, StoreError> {
        let channel = returned::channel(self.prefix());
        Ok(self.listener.returned(&channel, seen, limit).await?)
    }

    async fn takes_no_writes(&self) -> Option<String> {
        let call = condition::call(self.prefix());
        let failure = self.run(&self.scripts.writable, call).await.err()?;
        // Other requests report what else is wrong.
        failure.rejects_writes().then(|| failure.text().to_owned())
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let read = |value| Ok(Timestamp::from_millis(integer(&value)?));
        let error = match self.run(&self.scripts.now, Call::default()).await {
            Ok(value) => return read(value),
            Err(failure) => StoreError::from(failure),
        };
        if matches!(error, StoreError::PartUnreachable(_)) {
            // The script has no key, so any other server can run it.
            for link in self.route.servers().await? {
                let (script, call) = (&self.scripts.now, Call::default());
                if let Ok(value) = link.run(script, &call, RESPONSE_TIMEOUT).await {
                    return read(value);
                }
            }
        }
        Err(error)
    }

    async fn jobs(&self, jobs: &[(JobName, Lock)]) -> Result<Vec<JobReport>, StoreError> {
        let replies = self.run_each(|s| &s.jobs, jobs, jobs::call);
        let mut all = Vec::with_capacity(jobs.len());
        for (batch, reply) in replies.await? {
            all.extend(jobs::read(reply, batch)?);
        }
        Ok(all)
    }

    async fn history(
        &self,
        job: &JobName,
        lock: &Lock,
        limit: usize,
    ) -> Result<History, StoreError> {
        self.history_of(job, lock, limit).await
    }

    async fn failures(
        &self,
        jobs: &[(JobName, Lock)],
        limit: usize,
    ) -> Result<History, StoreError> {
        self.failures_of(jobs, limit).await
    }

    async fn hosts(&self) -> Result<Vec<HostReport>, StoreError> {
        let reply = self
            .run(&self.scripts.hosts, hosts::call(self.prefix()))
            .await?;
        Ok(hosts::read(reply)?)
    }

    async fn vanished(&self) -> Result<Vec<HostReport>, StoreError> {
        let call = hosts::vanished_call(self.prefix());
        let reply = self.run(&self.scripts.hosts, call).await?;
        Ok(hosts::read(reply)?)
    }

    async fn keep_list(
        &self,
        list: &Fingerprint,
        jobs: Option<&ListedJobs>,
    ) -> Result<bool, StoreError> {
        let call = listed_jobs::keep_call(self.prefix(), list, jobs);
        let reply = self.run(&self.scripts.listed_jobs, call).await?;
        Ok(listed_jobs::keep_read(&reply)?)
    }

    async fn listed_jobs(&self, list: &Fingerprint) -> Result<Option<ListedJobs>, StoreError> {
        let call = listed_jobs::read_call(self.prefix(), list);
        let reply = self.run(&self.scripts.read_listed_jobs, call).await?;
        Ok(listed_jobs::read(list, reply)?)
    }

    /// In a Cluster, the condition of the slot where the hosts announce themselves. Every slot has its
    /// own.
    async fn condition(&self, _: &[(JobName, Lock)]) -> Result<Condition, StoreError> {
        let call = condition::call(self.prefix());
        let reply = self.run(&self.scripts.condition, call).await?;
        Ok(condition::read(reply)?)
    }

    async fn forget(&self, request: &Forget) -> Result<Forgotten, StoreError> {
        let forgotten = self.forget_in(request, forget::ForgetStep::Delete).await?;
        let Forgotten::Done { entries } = forgotten else {
            return Ok(forgotten);
        };
        let call = registry::unlist_call(self.prefix(), &request.job);
        let hosts = registry::unlist_read(self.run(&self.scripts.unlist, call).await?)?;
        for host in &hosts {
            let call = registry::unlisted_call(self.prefix(), host, &request.job);
            let reply = self.run(&self.scripts.listed, call).await?;
            registry::listed_written(self.prefix(), host, reply)?;
        }
        let entries = entries + u64::from(!hosts.is_empty());
        Ok(Forgotten::Done { entries })
    }

    async fn attend(&self, host: &HostName) {
        self.attend_as(host).await;
    }

    async fn daemons(&self) -> Result<Vec<String>, StoreError> {
        // This finds the servers that the endpoints then name.
        self.route.servers().await?;
        let Endpoints { servers, part } = self.listener.endpoints();
        presence::daemons(&servers, part, self.prefix()).await
    }

    async fn init(&self) -> Result<Option<u64>, StoreError> {
        self.declare_new().await
    }
}
