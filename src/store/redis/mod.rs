//! The store on one Redis or Valkey server, or on whichever one its Sentinels name as master:
//! every operation is one script call.
//!
//! [`link`] holds the connection and rebuilds it, [`listen`] another one that hears of releases.
//! The rules are in `scripts/*.lua`; here are only their calls and the reading of their answers.

mod barrier;
mod claim;
mod cluster;
mod connect;
mod failure;
mod finish;
mod inspect;
mod keys;
mod link;
mod listen;
pub(super) mod node;
mod reading;
mod record;
mod reply;
mod script;
mod sentinel;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

pub(super) use cluster::ClusterStore;
pub(crate) use cluster::{Layout, layout_of};
pub(crate) use connect::connection_info;
pub(crate) use inspect::{Inspector, NoAnswer};
pub(crate) use keys::check_raw_in_cluster;

pub(crate) use sentinel::master_of;

use self::barrier::Trace;
use self::connect::Part;
use self::failure::Failure;
use self::keys::LockKeys;
use self::link::{Call, Link, RESPONSE_TIMEOUT};
use self::listen::Listener;
use self::reply::{Items, integer, text};
use self::script::{Script, Scripts};
use self::sentinel::Sentinels;
use super::{
    Claim, ClaimReply, Condition, Finish, FinishReply, HostInfo, HostReport, JobReport, Lock,
    Record, RedisSettings, Registered, Registration, RenewReply, Renewal, SentinelSettings, Settle,
    Store, StoreError,
};
use crate::names::{JobName, Prefix};
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
}

impl RedisStore {
    /// A store that connects when it is first asked.
    pub(super) fn new(settings: &RedisSettings) -> Result<Self, StoreError> {
        connection_info(settings).map_err(|e| {
            StoreError::Refused(format!("{} is not a store URL: {e}", settings.shown()))
        })?;
        Ok(Self {
            link: Link::new(settings, Part::Alone),
            listener: Listener::new(settings.clone()),
            scripts: Scripts::new(),
            longest: AtomicU64::new(0),
        })
    }

    /// The store on whichever server the Sentinels name as master.
    pub(super) fn watched(settings: &SentinelSettings) -> Self {
        let sentinels = Sentinels::new(settings);
        Self {
            link: Link::to_master(settings, Arc::clone(&sentinels)),
            listener: Listener::new(sentinels),
            scripts: Scripts::new(),
            longest: AtomicU64::new(0),
        }
    }

    fn prefix(&self) -> &Prefix {
        &self.link.settings().prefix
    }

    async fn run(&self, script: &Script, call: &Call) -> Result<Value, Failure> {
        self.link.run(script, call, RESPONSE_TIMEOUT).await
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
    ) -> Result<impl Iterator<Item = RenewReply> + use<>, Failure> {
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
                        lock = renewal.lock.name,
                        run = %renewal.tenure.run_id,
                        "the store has lost data, and this lease with it: taken back by its holder"
                    );
                }
            }
        }
        Ok(replies.into_iter().flatten())
    }

    /// How many keys begin with our prefix.
    async fn count_keys(&self) -> Result<u64, Failure> {
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
        let reply = claim::read(answer)?;
        if matches!(reply, ClaimReply::Granted { .. }) {
            way.replicated(Trace::Message, RESPONSE_TIMEOUT).await?;
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
                    .ok_or_else(|| StoreError::Corrupt("a renewal was not answered".to_owned()))?;
                replies.push(reply);
            }
        }
        Ok(replies)
    }

    async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
        let call = finish::finish_call(self.prefix(), finish);
        let answer = self.run(&self.scripts.finish, &call).await?;
        Ok(finish::finish_read(answer)?)
    }

    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError> {
        let call = finish::settle_call(self.prefix(), settle);
        let answer = self.run(&self.scripts.settle, &call).await?;
        Ok(finish::settle_read(&answer)?)
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

    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError> {
        let call = reading::announce_call(self.prefix(), host, valid_for)?;
        self.run(&self.scripts.announce, &call).await?;
        Ok(())
    }

    async fn released(&self, lock: &Lock, limit: Duration) -> Result<(), StoreError> {
        let keys = LockKeys::of(self.prefix(), lock);
        self.listener.wait(&keys.released, limit).await;
        Ok(())
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
    ) -> Result<Vec<Record>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let command = reading::history_command(self.prefix(), job, lock, limit);
        let answer = self.link.send(&command).await?;
        Ok(reading::history_read(answer, job)?)
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
