//! The store over any [`Route`]: each operation calls a script and reads its reply. It is the only
//! implementation of [`Store`] on Redis, except for the majority of several nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;
use tokio::sync::OnceCell;

use super::codec::call::Call;
use super::codec::history::StreamEntries;
use super::codec::keys::LockKeys;
use super::codec::reply::{integer, text};
use super::codec::unacknowledged;
use super::codec::{
    attempt, begin, claim, condition, daemon_request, finish, forget, history, hosts, jobs, keep,
    ledger, listed_jobs, manual, pause, register, registry, renew, returned, settle,
};
use super::conn::link::Link;
use super::conn::pubsub::Listener;
use super::conn::{barrier, presence};
use super::failure::RedisFailure;
use super::missing_replicas::{MissingReplicas, give_back};
use super::route::{ClusterRoute, Route, ScriptReply, ServerRoute};
use super::script::{FORMAT, Script, Scripts};
use super::{BATCH, RESPONSE_TIMEOUT};
use crate::names::{HostName, JobName, Prefix, RunId};
use crate::store::{
    Attempt, Beginning, Claim, ClaimReply, ClusterSettings, Condition, DaemonRequest, Entry, Filed,
    FiledRequest, Fingerprint, Finish, FinishReply, Forget, Forgotten, History, HostInfo,
    HostReport, JobReport, Keeping, Ledger, ListedJobs, Listing, Lock, ManualNote, ManualRun,
    OutputChunk, PauseReply, PauseRequest, RedisSettings, Registered, Registration, RenewReply,
    Renewal, Replaced, Replacement, RequestReply, Returned, Seen, SentinelSettings, Settle, Store,
    StoreError, StoreNodes, relocate::follow,
};
use crate::time::Timestamp;

/// One of the scripts.
type Which = fn(&Scripts) -> &Script;

/// The store on Redis.
#[derive(Debug)]
pub(in crate::store) struct RedisStore {
    route: Arc<dyn Route>,
    scripts: Arc<Scripts>,
    listener: Arc<Listener>,
    /// The longest TTL of the registered job list, in milliseconds.
    longest: AtomicU64,
    missing_replicas: MissingReplicas,
    /// Set once the marker of the store has been read and has the format of this version, or none.
    format: OnceCell<()>,
}

/// Each connects at its first operation.
impl RedisStore {
    /// The store on one server.
    pub(in crate::store) fn single(settings: &RedisSettings) -> Self {
        Self::over(ServerRoute::to(settings), Arc::new(Scripts::new()))
    }

    /// The store on the server at the other end of this link.
    pub(super) fn by(link: Arc<Link>) -> Self {
        Self::over(ServerRoute::by(link), Arc::new(Scripts::new()))
    }

    /// The store on the master that the Sentinels name.
    pub(in crate::store) fn sentinel(settings: &SentinelSettings) -> Self {
        Self::over(ServerRoute::to_master(settings), Arc::new(Scripts::new()))
    }

    /// The store on a Cluster.
    pub(in crate::store) fn cluster(settings: &ClusterSettings) -> Result<Self, StoreError> {
        let scripts = Arc::new(Scripts::new());
        let route = ClusterRoute::to(settings, Arc::clone(&scripts))?;
        Ok(Self::over(route, scripts))
    }

    fn over(route: impl Route + 'static, scripts: Arc<Scripts>) -> Self {
        let route = Arc::new(route);
        Self {
            listener: Listener::new(Arc::clone(&route) as _),
            route,
            scripts,
            longest: AtomicU64::new(0),
            missing_replicas: MissingReplicas::default(),
            format: OnceCell::new(),
        }
    }

    pub(super) fn prefix(&self) -> &Prefix {
        self.route.prefix()
    }

    /// Fails if the store was written by a version that keeps other things in the keys. Claims and
    /// renewals check that each time, and what only reads does it here, once.
    async fn check_format(&self) -> Result<(), RedisFailure> {
        let check = async || {
            let marker = self.route.format_marker();
            let mut command = redis::cmd("HGET");
            command.arg(&marker).arg("format");
            match self.route.read(&marker, &command).await {
                Ok(Value::BulkString(format)) if format != FORMAT.as_bytes() => {
                    let format = String::from_utf8_lossy(&format).into_owned();
                    Err(RedisFailure::corrupt(format!(
                        "the store has format {format}, written by another version; this cronlatch \
                         ({}) uses {FORMAT}: use the version that the other hosts have",
                        env!("CARGO_PKG_VERSION")
                    )))
                }
                // Another part of a Cluster may be usable.
                Err(failure) if failure.is_outage() && self.route.all_failures().is_some() => {
                    Err(failure)
                }
                // The request itself meets what is wrong.
                Ok(_) | Err(_) => Ok(()),
            }
        };
        self.format.get_or_try_init(check).await.copied()
    }

    /// Runs a script and returns its reply.
    async fn run(&self, script: &Script, call: Call) -> Result<Value, RedisFailure> {
        self.check_format().await?;
        let reply = self.route.run(script, call, RESPONSE_TIMEOUT).await?;
        Ok(reply.value)
    }

    /// Runs a script for many entries, in as many calls as the route needs. Returns each reply with the
    /// entries of its call.
    async fn run_each<'a, I>(
        &self,
        which: Which,
        entries: &'a [I],
        call: impl Fn(&Prefix, &[I]) -> Call,
    ) -> Result<Vec<(&'a [I], Value)>, RedisFailure> {
        self.check_format().await?;
        let batching = self.route.batching();
        let calls = entries.chunks(batching.size()).map(|batch| {
            let (route, scripts) = (Arc::clone(&self.route), Arc::clone(&self.scripts));
            let call = call(self.prefix(), batch);
            async move {
                let reply = route.run(which(&scripts), call, RESPONSE_TIMEOUT).await?;
                Ok(reply.value)
            }
        });
        let replies = batching.make(calls.collect::<Vec<_>>()).await?;
        Ok(entries.chunks(batching.size()).zip(replies).collect())
    }

    /// Sends the call that writes or removes the note about missing replicas. Its failure does not
    /// affect the claim.
    async fn note(&self, call: Option<Call>) {
        if let Some(call) = call
            && let Err(failure) = self.run(&self.scripts.unacknowledged, call).await
        {
            tracing::debug!("{}", failure.text());
        }
    }

    /// Reads the newest records of a stream.
    pub(super) async fn stream(
        &self,
        key: &str,
        job: Option<&JobName>,
        limit: usize,
    ) -> Result<StreamEntries, StoreError> {
        self.check_format().await?;
        let (mut all, mut after) = (StreamEntries::default(), None);
        let mut left = limit;
        while left > 0 {
            let count = left.min(history::PAGE);
            let command = history::command(key, after.as_deref(), count);
            let reply = self.route.read(key, &command).await?;
            let before = all.len();
            after = history::read(reply, job, key, &mut all)?;
            let read = all.len() - before;
            left -= read;
            if read < count {
                break;
            }
        }
        Ok(all)
    }

    /// The longest TTL of the registered job list; zero without a list.
    fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }

    /// Returns whether a job may be forgotten, and deletes nothing.
    pub(in crate::store) async fn may_forget(
        &self,
        request: &Forget,
    ) -> Result<Forgotten, StoreError> {
        self.forget_in(request, forget::ForgetStep::Look).await
    }

    async fn forget_in(
        &self,
        request: &Forget,
        step: forget::ForgetStep,
    ) -> Result<Forgotten, StoreError> {
        let all_failures = self.route.all_failures();
        let call = forget::call(self.prefix(), request, step, all_failures.as_deref());
        let reply = self.run(&self.scripts.forget, call).await?;
        Ok(forget::read(reply)?)
    }

    /// Returns the `run_id` of the server process, which a restart changes.
    pub(in crate::store) async fn server(&self) -> Result<String, StoreError> {
        let mut info = ::redis::cmd("INFO");
        info.arg("server");
        let servers = self.route.servers().await?;
        let nobody = || StoreError::unreachable("there is no server");
        let link = servers.first().ok_or_else(nobody)?;
        let reply = text(link.send(&info).await?)?;
        Ok(barrier::run_id_in(&link.settings().shown(), &reply)?)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError> {
        let all_failures = self.route.all_failures();
        let all_failures = all_failures.as_deref();
        let call = claim::call(self.prefix(), claim, self.longest(), all_failures);
        let script = &self.scripts.claim;
        let ScriptReply { value, origin } = self.route.run(script, call, RESPONSE_TIMEOUT).await?;
        let clear = unacknowledged::clear_call(self.prefix(), claim, &value);
        let reply = claim::read(self.prefix(), value)?;
        if matches!(reply, ClaimReply::Granted { .. }) {
            if let Err(failure) = self.route.replicated(&origin, RESPONSE_TIMEOUT).await {
                let Some((finish, waits)) = give_back(claim, &failure) else {
                    return Err(failure.into());
                };
                self.missing_replicas
                    .note(&origin.server(), claim, &failure);
                let note = unacknowledged::note_call(self.prefix(), claim, &failure);
                self.note(note).await;
                let call = finish::call(self.prefix(), &finish, all_failures);
                self.run(&self.scripts.finish, call).await?;
                return Ok(waits);
            }
            self.missing_replicas.over(|| origin.server());
            self.note(clear).await;
        }
        Ok(reply)
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
            let call = finish::call(self.prefix(), &finish, all_failures.as_deref());
            let reply = self.run(&self.scripts.finish, call).await?;
            Ok(finish::read(self.prefix(), reply)?)
        })
        .await
    }

    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError> {
        let all_failures = self.route.all_failures();
        let call = settle::call(self.prefix(), settle, all_failures.as_deref());
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
            registry::listed_read(self.prefix(), host, reply)?;
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

    async fn listed_by(&self, host: &HostName) -> Result<Vec<JobName>, StoreError> {
        let call = registry::listed_call(self.prefix(), host, &[]);
        let reply = self.run(&self.scripts.listed, call).await?;
        Ok(registry::listed_read(self.prefix(), host, reply)?)
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
        let reply = self.run(&self.scripts.requests, call).await?;
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
        let ScriptReply { value, origin } = self.route.run(script, call, RESPONSE_TIMEOUT).await?;
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
        self.listener.wait(&keys.released, limit).await;
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
        if limit == 0 {
            return Ok(History::default());
        }
        let keys = LockKeys::of(self.prefix(), lock);
        // In this order: a failure that is removed from the first meanwhile is in the second.
        let runs = self.stream(&keys.runs(job), Some(job), limit).await?;
        let failures = match self.stream(&keys.failures(job), Some(job), limit).await {
            Err(StoreError::Key(fault)) => StreamEntries {
                unreadable: vec![fault],
                ..StreamEntries::default()
            },
            failures => failures?,
        };
        Ok(history::merged(runs, failures, limit).into())
    }

    async fn failures(
        &self,
        jobs: &[(JobName, Lock)],
        limit: usize,
    ) -> Result<History, StoreError> {
        if limit == 0 {
            return Ok(History::default());
        }
        if let Some(all) = self.route.all_failures() {
            return Ok(self.stream(&all, None, limit).await?.into());
        }
        let mut found = StreamEntries::default();
        for (job, lock) in jobs {
            let failures = LockKeys::of(self.prefix(), lock).failures(job);
            let failures = self.stream(&failures, Some(job), limit).await?;
            found = history::merged(found, failures, limit);
        }
        Ok(found.into())
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
        let reply = self.run(&self.scripts.listed_jobs, call).await?;
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
            registry::listed_read(self.prefix(), host, reply)?;
        }
        let entries = entries + u64::from(!hosts.is_empty());
        Ok(Forgotten::Done { entries })
    }

    async fn attend(&self, host: &HostName) {
        // Before the first request no Sentinel has named a master yet.
        while self.listener.endpoints().0.is_empty() && self.route.servers().await.is_err() {
            tokio::time::sleep(presence::RETRY).await;
        }
        let publish = |command| {
            let route = Arc::clone(&self.route);
            async move {
                let mut failure = RedisFailure::unreachable("there is no server".to_owned());
                // In a Cluster a message that is published on one server is received on all.
                for link in route.servers().await? {
                    match link.send(&command).await {
                        Ok(value) => return Ok(value),
                        Err(error) => failure = error,
                    }
                }
                Err(failure)
            }
        };
        presence::attend(&self.listener, self.prefix(), host, publish).await;
    }

    async fn daemons(&self) -> Result<Vec<String>, StoreError> {
        // This finds the servers that the endpoints then name.
        self.route.servers().await?;
        let (servers, part) = self.listener.endpoints();
        presence::daemons(&servers, part, self.prefix()).await
    }

    async fn init(&self) -> Result<Option<u64>, StoreError> {
        let mut count = 0;
        for link in self.route.servers().await? {
            count += link.count_keys().await?;
        }
        if count > 0 {
            return Ok(Some(count));
        }
        let call = |_: &Prefix, markers: &[String]| {
            let mut call = Call::default();
            for marker in markers {
                call.key(marker);
            }
            call
        };
        // Another host may have begun in between.
        let mut marked = 0;
        let markers = self.route.markers();
        for (_, reply) in self.run_each(|s| &s.init, &markers, call).await? {
            marked += u64::from(integer(&reply)? != 1);
        }
        Ok((marked > 0).then_some(marked))
    }
}

/// Renews leases. Leases that the server may have lost are sent again with everything that it needs to
/// restore them.
async fn renew(
    route: &dyn Route,
    scripts: &Scripts,
    renewals: &[Renewal],
    limit: Duration,
) -> Result<Vec<RenewReply>, RedisFailure> {
    let call = renew::call(route.prefix(), renewals);
    let reply = route.run(&scripts.renew, call, limit).await?;
    let replies = acknowledged(route, reply, renewals.len(), limit).await?;
    let forgotten: Vec<&Renewal> = (renewals.iter().zip(&replies))
        .filter_map(|(renewal, reply)| reply.is_none().then_some(renewal))
        .collect();
    let mut restored = Vec::new();
    if !forgotten.is_empty() {
        let call = renew::reassert_call(route.prefix(), &forgotten);
        let reply = route.run(&scripts.reassert, call, limit).await?;
        restored = acknowledged(route, reply, forgotten.len(), limit).await?;
        for (renewal, reply) in forgotten.iter().zip(&restored) {
            if *reply == Some(RenewReply::Renewed) {
                tracing::warn!(
                    lock = renewal.grant.lock.name,
                    run_id = %renewal.grant.run_id,
                    "the store lost data, including this lease; the holder re-acquired it"
                );
            }
        }
    }
    let mut restored = restored.into_iter().flatten();
    let replies = replies.into_iter().map(|reply| {
        let reply = reply.or_else(|| restored.next());
        reply.ok_or_else(|| RedisFailure::corrupt("a renewal has no reply".to_owned()))
    });
    replies.collect()
}

/// Reads the replies to renewals and, if any lease was renewed, waits for the replicas. Other replies
/// grant nothing, and a holder must learn at once that its lease is lost.
async fn acknowledged(
    route: &dyn Route,
    ScriptReply { value, origin }: ScriptReply,
    count: usize,
    limit: Duration,
) -> Result<Vec<Option<RenewReply>>, RedisFailure> {
    let replies = renew::read(value, count)?;
    if replies.contains(&Some(RenewReply::Renewed)) {
        route.replicated(&origin, limit).await?;
    }
    Ok(replies)
}
