//! The store on one Redis or Valkey server, or on whichever one its Sentinels name as master:
//! every operation is one script call.
//!
//! [`link`] holds the connection and rebuilds it, [`listen`] another one that hears of releases.
//! The rules are in `scripts/*.lua`; here are only their calls and the reading of their answers.

mod barrier;
mod claim;
mod cluster;
mod connect;
mod exchange;
mod failure;
mod finish;
mod forget;
mod inspect;
mod keys;
mod link;
mod listen;
mod manual;
pub(super) mod node;
mod presence;
mod reading;
mod record;
mod registry;
mod relocate;
mod reply;
mod script;
mod sentinel;
mod teach;
mod unacknowledged;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

pub(super) use cluster::ClusterStore;
pub(crate) use cluster::{Layout, layout_of};
pub(crate) use inspect::{Inspector, NoAnswer};
pub(crate) use keys::check_raw_in_cluster;

pub(crate) use sentinel::master_of;

use self::barrier::Trace;
use self::connect::Part;
use self::failure::RedisFailure;
use self::keys::LockKeys;
use self::link::{Call, Link, RESPONSE_TIMEOUT};
use self::listen::Listener;
use self::reply::{Items, integer, text};
use self::script::{Script, Scripts};
use self::sentinel::Sentinels;
use self::unacknowledged::MissingReplicas;
use super::{
    Attempt, Beginning, Claim, ClaimReply, Condition, Entry, Finish, FinishReply, Forget,
    Forgotten, History, HostInfo, HostReport, JobReport, Keeping, Ledger, Listing, Lock,
    ManualNote, ManualRun, RedisSettings, Registered, Registration, RenewReply, Renewal, Replaced,
    Replacement, Returned, Seen, SentinelSettings, Settle, Store, StoreError, StoreNodes,
    relocate::follow,
};
use crate::names::{HostName, JobName, Prefix, RunId};
use crate::time::Timestamp;

/// How many leases, or jobs, one script takes: longer ones would hold everybody else up.
const BATCH: usize = 500;

/// The store on one server.
#[derive(Debug)]
pub(super) struct RedisStore {
    link: Arc<Link>,
    listener: Arc<Listener>,
    scripts: Scripts,
    /// In milliseconds.
    longest: AtomicU64,
    shortage: MissingReplicas,
}

impl RedisStore {
    /// A store that connects when it is first asked.
    pub(super) fn new(settings: &RedisSettings) -> Self {
        Self {
            link: Link::new(settings, Part::Alone),
            listener: Listener::new(settings.clone()),
            scripts: Scripts::new(),
            longest: AtomicU64::new(0),
            shortage: MissingReplicas::default(),
        }
    }

    /// The store on whichever server the Sentinels name as master.
    pub(super) fn watched(settings: &SentinelSettings) -> Self {
        let sentinels = Sentinels::new(settings);
        Self {
            link: Link::to_master(settings, Arc::clone(&sentinels)),
            listener: Listener::new(sentinels),
            scripts: Scripts::new(),
            longest: AtomicU64::new(0),
            shortage: MissingReplicas::default(),
        }
    }

    fn prefix(&self) -> &Prefix {
        &self.link.settings().prefix
    }

    async fn run(&self, script: &Script, call: &Call) -> Result<Value, RedisFailure> {
        self.link.run(script, call, RESPONSE_TIMEOUT).await
    }

    /// Notes, or notes no longer, that claims of a job are not acknowledged. The claim counts or
    /// not whether that succeeds or fails.
    async fn note(&self, call: Option<Call>) {
        if let Some(call) = call
            && let Err(failure) = self.run(&self.scripts.unacknowledged, &call).await
        {
            tracing::debug!("{}", failure.text());
        }
    }

    /// The longest TTL of the job list that registered here; zero without one.
    fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }

    /// Asks again for the leases that the store may have forgotten (`None` in `first`).
    async fn reassert(
        &self,
        batch: &[Renewal],
        first: &[Option<RenewReply>],
        limit: Duration,
    ) -> Result<impl Iterator<Item = RenewReply> + use<>, RedisFailure> {
        let forgotten: Vec<&Renewal> = batch
            .iter()
            .zip(first)
            .filter_map(|(renewal, reply)| reply.is_none().then_some(renewal))
            .collect();
        let mut replies = Vec::new();
        if !forgotten.is_empty() {
            let call = finish::reassert_call(self.prefix(), &forgotten);
            let script = &self.scripts.reassert;
            let (answer, way) = self.link.run_by(script, &call, limit).await?;
            way.replicated(Trace::Message, limit).await?;
            replies = finish::renew_read(answer, forgotten.len())?;
            for (renewal, reply) in forgotten.iter().zip(&replies) {
                if *reply == Some(RenewReply::Renewed) {
                    tracing::warn!(
                        lock = renewal.grant.lock.name,
                        run = %renewal.grant.run_id,
                        "the store lost data, including this lease; the holder re-acquired it"
                    );
                }
            }
        }
        Ok(replies.into_iter().flatten())
    }

    /// Whether a job may be forgotten; deletes nothing.
    pub(super) async fn may_forget(&self, request: &Forget) -> Result<Forgotten, StoreError> {
        self.forget_in(request, forget::ForgetStep::Look).await
    }

    async fn forget_in(
        &self,
        request: &Forget,
        step: forget::ForgetStep,
    ) -> Result<Forgotten, StoreError> {
        let call = forget::call(self.prefix(), request, step);
        let answer = self.run(&self.scripts.forget, &call).await?;
        Ok(forget::read(answer)?)
    }

    /// Which server process this is: its `run_id`, which a restart changes.
    pub(super) async fn server(&self) -> Result<String, StoreError> {
        let mut info = ::redis::cmd("INFO");
        info.arg("server");
        let answer = text(self.link.send(&info).await?)?;
        Ok(barrier::run_id_in(&self.link.settings().shown(), &answer)?)
    }

    /// How many keys begin with our prefix.
    async fn count_keys(&self) -> Result<u64, RedisFailure> {
        let mut cursor = "0".to_owned();
        let mut count = 0_u64;
        loop {
            let mut command = redis::cmd("SCAN");
            command
                .arg(&cursor)
                .arg("MATCH")
                .arg(format!("{}:*", self.prefix()))
                .arg("COUNT")
                .arg(1000);
            let mut answer = Items::of(self.link.send(&command).await?)?;
            cursor = text(answer.next()?)?;
            let mut found = Items::of(answer.next()?)?;
            while !found.is_empty() {
                found.next()?;
                count += 1;
            }
            if cursor == "0" {
                return Ok(count);
            }
        }
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError> {
        let call = claim::call(self.prefix(), claim, self.longest());
        let script = &self.scripts.claim;
        let (answer, way) = self.link.run_by(script, &call, RESPONSE_TIMEOUT).await?;
        let clear = unacknowledged::clear_call(self.prefix(), claim, &answer);
        let reply = claim::read(self.prefix(), answer)?;
        if matches!(reply, ClaimReply::Granted { .. }) {
            if let Err(failure) = way.replicated(Trace::Message, RESPONSE_TIMEOUT).await {
                let Some((finish, waits)) = unacknowledged::give_back(claim, &failure) else {
                    return Err(failure.into());
                };
                self.shortage.note(&way.server(), claim, &failure);
                let note = unacknowledged::note_call(self.prefix(), claim, &failure);
                self.note(note).await;
                let call = finish::finish_call(self.prefix(), &finish);
                self.run(&self.scripts.finish, &call).await?;
                return Ok(waits);
            }
            self.shortage.over(|| way.server());
            self.note(clear).await;
        }
        Ok(reply)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>, StoreError> {
        let limit = finish::renew_limit(renewals);
        let mut replies = Vec::with_capacity(renewals.len());
        for batch in renewals.chunks(BATCH) {
            let call = finish::renew_call(self.prefix(), batch);
            let script = &self.scripts.renew;
            let (answer, way) = self.link.run_by(script, &call, limit).await?;
            way.replicated(Trace::Message, limit).await?;
            let first = finish::renew_read(answer, batch.len())?;
            let mut second = self.reassert(batch, &first, limit).await?;
            for reply in first {
                let reply = reply
                    .or_else(|| second.next())
                    .ok_or_else(|| StoreError::corrupt("a renewal was not answered".to_owned()))?;
                replies.push(reply);
            }
        }
        Ok(replies)
    }

    async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
        follow(finish, |finish| async move {
            let call = finish::finish_call(self.prefix(), &finish);
            let answer = self.run(&self.scripts.finish, &call).await?;
            Ok(finish::finish_read(self.prefix(), answer)?)
        })
        .await
    }

    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError> {
        let call = finish::settle_call(self.prefix(), settle);
        let answer = self.run(&self.scripts.settle, &call).await?;
        Ok(finish::settle_read(&answer)?)
    }

    async fn attempt(&self, attempt: &Attempt) -> Result<bool, StoreError> {
        let call = finish::attempt_call(self.prefix(), attempt);
        let answer = self.run(&self.scripts.attempt, &call).await?;
        Ok(finish::attempt_read(&answer)?)
    }

    async fn register(&self, jobs: &[Registration]) -> Result<Vec<Registered>, StoreError> {
        let longest = jobs.iter().map(|job| job.ttl.as_millis()).max();
        let longest = u64::try_from(longest.unwrap_or_default()).unwrap_or(u64::MAX);
        self.longest.fetch_max(longest, Ordering::Relaxed);
        let mut all = Vec::with_capacity(jobs.len());
        for batch in jobs.chunks(BATCH) {
            let call = reading::register_call(self.prefix(), batch);
            let answer = self.run(&self.scripts.register, &call).await?;
            all.extend(reading::register_read(answer)?);
        }
        Ok(all)
    }

    async fn begin(&self, jobs: &[Beginning]) -> Result<Vec<bool>, StoreError> {
        let mut all = Vec::with_capacity(jobs.len());
        for batch in jobs.chunks(BATCH) {
            let call = registry::begin_call(self.prefix(), batch);
            let answer = self.run(&self.scripts.begin, &call).await?;
            all.extend(registry::begin_read(answer)?);
        }
        Ok(all)
    }

    async fn listings(&self, jobs: &[JobName]) -> Result<Vec<Listing>, StoreError> {
        let mut all = Vec::with_capacity(jobs.len());
        for batch in jobs.chunks(BATCH) {
            let call = registry::listings_call(self.prefix(), batch);
            let answer = self.run(&self.scripts.listings, &call).await?;
            all.extend(registry::listings_read(answer, batch)?);
        }
        Ok(all)
    }

    async fn enlist(
        &self,
        host: &HostName,
        entries: &[(JobName, Entry)],
    ) -> Result<(), StoreError> {
        for batch in entries.chunks(BATCH) {
            // In this order: a job that the host remembers but never entered is harmless.
            let call = registry::listed_call(self.prefix(), host, batch);
            let answer = self.run(&self.scripts.listed, &call).await?;
            registry::listed_read(self.prefix(), host, answer)?;
            let call = registry::enlist_call(self.prefix(), host, batch);
            let answer = self.run(&self.scripts.enlist, &call).await?;
            registry::enlist_read(self.prefix(), batch, answer)?;
        }
        Ok(())
    }

    async fn keep(&self, jobs: &[Keeping]) -> Result<(), StoreError> {
        for batch in jobs.chunks(BATCH) {
            let call = registry::keep_call(self.prefix(), batch);
            self.run(&self.scripts.keep, &call).await?;
        }
        Ok(())
    }

    async fn listed_by(&self, host: &HostName) -> Result<Vec<JobName>, StoreError> {
        let call = registry::listed_call(self.prefix(), host, &[]);
        let answer = self.run(&self.scripts.listed, &call).await?;
        Ok(registry::listed_read(self.prefix(), host, answer)?)
    }

    async fn note_manual(&self, run: &ManualRun) -> Result<(), StoreError> {
        let call = manual::note_call(self.prefix(), run);
        self.run(&self.scripts.manual, &call).await?;
        Ok(())
    }

    async fn manual_runs(&self) -> Result<Vec<ManualNote>, StoreError> {
        let call = manual::list_call(self.prefix());
        let answer = self.run(&self.scripts.manual, &call).await?;
        Ok(manual::list_read(answer)?)
    }

    async fn forget_manual(&self, runs: &[RunId]) -> Result<(), StoreError> {
        for batch in runs.chunks(BATCH) {
            let call = manual::forget_call(self.prefix(), batch);
            self.run(&self.scripts.manual, &call).await?;
        }
        Ok(())
    }

    async fn ledger(&self, job: &JobName, lock: &Lock) -> Result<Ledger, StoreError> {
        let call = relocate::ledger_call(self.prefix(), job, lock);
        let answer = self.run(&self.scripts.ledger, &call).await?;
        Ok(relocate::ledger_read(self.prefix(), answer)?)
    }

    async fn replace(&self, replacement: &Replacement) -> Result<Replaced, StoreError> {
        let call = relocate::replace_call(self.prefix(), replacement);
        let script = &self.scripts.replace;
        let (answer, way) = self.link.run_by(script, &call, RESPONSE_TIMEOUT).await?;
        way.replicated(Trace::Message, RESPONSE_TIMEOUT).await?;
        Ok(relocate::replace_read(answer)?)
    }

    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError> {
        let call = reading::announce_call(self.prefix(), host, valid_for, self.longest())?;
        let answer = self.run(&self.scripts.announce, &call).await?;
        Ok(reading::announce_read(self.prefix(), answer)?)
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
        let call = listen::returned_call(self.prefix(), job);
        self.run(&self.scripts.returned, &call).await?;
        Ok(())
    }

    async fn returned(&self, seen: &mut Seen, limit: Duration) -> Result<Returned, StoreError> {
        let channel = listen::returned_channel(self.prefix());
        Ok(self.listener.returned(&channel, seen, limit).await?)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let answer = self.run(&self.scripts.now, &Call::default()).await?;
        Ok(Timestamp::from_millis(integer(&answer)?))
    }

    async fn jobs(&self, jobs: &[(JobName, Lock)]) -> Result<Vec<JobReport>, StoreError> {
        let mut all = Vec::with_capacity(jobs.len());
        for batch in jobs.chunks(BATCH) {
            let call = reading::jobs_call(self.prefix(), batch);
            let answer = self.run(&self.scripts.jobs, &call).await?;
            all.extend(reading::jobs_read(answer, batch)?);
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
        let runs = LockKeys::of(self.prefix(), lock).runs(job);
        let command = reading::history_command(&runs, limit);
        let answer = self.link.send_on(&command, &runs).await?;
        Ok(reading::history_read(answer, job, &runs)?)
    }

    async fn hosts(&self) -> Result<Vec<HostReport>, StoreError> {
        let mut call = Call::default();
        call.key(keys::hosts(self.prefix()));
        let answer = self.run(&self.scripts.hosts, &call).await?;
        Ok(reading::hosts_read(answer)?)
    }

    async fn condition(&self, _: &[(JobName, Lock)]) -> Result<Condition, StoreError> {
        let mut call = Call::default();
        call.key(keys::store(self.prefix()));
        let answer = self.run(&self.scripts.condition, &call).await?;
        Ok(reading::condition_read(answer)?)
    }

    async fn forget(&self, request: &Forget) -> Result<Forgotten, StoreError> {
        let forgotten = self.forget_in(request, forget::ForgetStep::Delete).await?;
        if let Forgotten::Done { entries } = forgotten {
            let call = registry::unlist_call(self.prefix(), &request.job);
            let hosts = registry::unlist_read(self.run(&self.scripts.unlist, &call).await?)?;
            for host in &hosts {
                let call = registry::unlisted_call(self.prefix(), host, &request.job);
                let answer = self.run(&self.scripts.listed, &call).await?;
                registry::listed_read(self.prefix(), host, answer)?;
            }
            let entries = entries + u64::from(!hosts.is_empty());
            return Ok(Forgotten::Done { entries });
        }
        Ok(forgotten)
    }

    async fn attend(&self, host: &HostName) {
        // The first request finds out who is master, if Sentinels name it.
        while self.listener.servers().0.is_empty() && self.now().await.is_err() {
            tokio::time::sleep(presence::RETRY).await;
        }
        let publish = |command| {
            let link = Arc::clone(&self.link);
            async move { link.send(&command).await }
        };
        presence::attend(&self.listener, self.prefix(), host, publish).await;
    }

    async fn daemons(&self) -> Result<Vec<String>, StoreError> {
        // Also finds the master, if Sentinels name it.
        self.now().await?;
        let (servers, part) = self.listener.servers();
        presence::daemons(&servers, part, self.prefix()).await
    }

    async fn init(&self) -> Result<Option<u64>, StoreError> {
        let count = self.count_keys().await?;
        if count > 0 {
            return Ok(Some(count));
        }
        let mut call = Call::default();
        call.key(keys::store(self.prefix()));
        // Somebody else may have begun in between.
        match integer(&self.run(&self.scripts.init, &call).await?)? {
            1 => Ok(None),
            _ => Ok(Some(1)),
        }
    }
}
