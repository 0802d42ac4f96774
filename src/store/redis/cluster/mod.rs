//! The store on a Redis Cluster: each lock with all that belongs to it in one slot, each slot on
//! one server.
//!
//! [`router`] finds the server and follows the slots as they move; [`slot`] says where keys lie.
//! Scripts, calls and answers are those of a single server. What concerns many locks is asked of
//! each on its own and in parallel, so that a server that is down holds only its own up.

mod fan;
mod map;
mod router;
mod slot;
mod slot_watcher;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use self::fan::{Which, fan_out};
use self::router::Router;
use self::slot_watcher::SlotWatcher;
use super::connect::Part;
use super::failure::RedisFailure;
use super::keys::{self, LockKeys};
use super::link::{Call, Link, RESPONSE_TIMEOUT};
use super::listen::{Listener, PubSubEndpoints};
use super::reply::{Items, integer, text};
use super::unacknowledged::{self, MissingReplicas};
use super::{claim, finish, forget, listen, manual, presence, reading, registry, relocate};
use crate::names::{HostName, JobName, Prefix, RunId};
use crate::store::{
    Attempt, Beginning, Claim, ClaimReply, ClusterSettings, Condition, Entry, Finish, FinishReply,
    Forget, Forgotten, History, HostInfo, HostReport, JobReport, Keeping, Ledger, Listing, Lock,
    ManualNote, ManualRun, RedisSettings, Registered, Registration, RenewReply, Renewal, Replaced,
    Replacement, Returned, Seen, Settle, Store, StoreError, StoreNodes, relocate::follow,
};
use crate::time::Timestamp;

/// The store on a Cluster.
#[derive(Debug)]
pub(in crate::store) struct ClusterStore {
    router: Arc<Router>,
    listener: Arc<Listener>,
    patrol: SlotWatcher,
    /// The longest TTL of the job list that registered here, in milliseconds.
    longest: AtomicU64,
    shortage: MissingReplicas,
}

/// How a Cluster is laid out, for those who judge whether it is set up well.
#[derive(Debug)]
pub(crate) struct Layout {
    /// How to get into each server that serves slots.
    pub(crate) primaries: Vec<RedisSettings>,
    /// How many slots are served by nobody.
    pub(crate) unserved: usize,
    /// Whether its servers find it in order.
    pub(crate) in_order: bool,
}

/// Asks the servers of a Cluster how it is laid out.
pub(crate) async fn layout_of(settings: &ClusterSettings) -> Result<Layout, StoreError> {
    Ok(Router::new(settings)?.layout().await?)
}

#[derive(Debug)]
struct AnyServer(Arc<Router>);

impl PubSubEndpoints for AnyServer {
    fn servers(&self) -> (Vec<RedisSettings>, Part) {
        // Whatever is published on one server of a Cluster is heard of on all.
        (self.0.everywhere(), Part::InCluster)
    }
}

impl ClusterStore {
    /// A store that connects when it is first asked.
    pub(in crate::store) fn new(settings: &ClusterSettings) -> Result<Self, StoreError> {
        let router = Arc::new(Router::new(settings)?);
        Ok(Self {
            listener: Listener::new(AnyServer(Arc::clone(&router))),
            patrol: SlotWatcher::default(),
            router,
            longest: AtomicU64::new(0),
            shortage: MissingReplicas::default(),
        })
    }

    fn prefix(&self) -> &Prefix {
        self.router.prefix()
    }

    fn longest(&self) -> Duration {
        Duration::from_millis(self.longest.load(Ordering::Relaxed))
    }

    /// Notes, or notes no longer, that claims of a job are not acknowledged. The claim counts or
    /// not whether that succeeds or fails.
    async fn note(&self, call: Option<Call>) {
        if let Some(call) = call
            && let Err(failure) = self.run(|s| &s.unacknowledged, call).await
        {
            tracing::debug!("{}", failure.text());
        }
    }

    async fn run(&self, which: Which, call: Call) -> Result<Value, RedisFailure> {
        fan::run(&self.router, which, call, RESPONSE_TIMEOUT).await
    }
}

#[async_trait]
impl Store for ClusterStore {
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError> {
        let call = claim::call(self.prefix(), claim, self.longest());
        let heard = fan::hear(&self.router, |s| &s.claim, call, RESPONSE_TIMEOUT).await?;
        let clear = unacknowledged::clear_call(self.prefix(), claim, &heard.value);
        let reply = claim::read(self.prefix(), heard.value.clone())?;
        if matches!(reply, ClaimReply::Granted { .. }) {
            if let Err(failure) = heard.replicated(&self.router, RESPONSE_TIMEOUT).await {
                let Some((finish, waits)) = unacknowledged::give_back(claim, &failure) else {
                    return Err(failure.into());
                };
                self.shortage.note(&heard.server(), claim, &failure);
                let note = unacknowledged::note_call(self.prefix(), claim, &failure);
                self.note(note).await;
                let call = finish::finish_call(self.prefix(), &finish);
                self.run(|s| &s.finish, call).await?;
                return Ok(waits);
            }
            self.shortage.over(|| heard.server());
            self.note(clear).await;
        }
        Ok(reply)
    }

    fn place(&self, lock: &Lock) -> u64 {
        self.router
            .place(slot::of(&LockKeys::of(self.prefix(), lock).state))
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<RenewReply>, StoreError> {
        let limit = finish::renew_limit(renewals);
        // One script for each lock: several in one would need one slot.
        let tasks = renewals.iter().cloned().map(|renewal| {
            let router = Arc::clone(&self.router);
            async move { renew(&router, &renewal, limit).await }
        });
        Ok(fan::all(tasks).await?)
    }

    async fn finish(&self, finish: &Finish) -> Result<FinishReply, StoreError> {
        follow(finish, |finish| async move {
            let call = finish::finish_call(self.prefix(), &finish);
            let answer = self.run(|s| &s.finish, call).await?;
            Ok(finish::finish_read(self.prefix(), answer)?)
        })
        .await
    }

    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError> {
        let call = finish::settle_call(self.prefix(), settle);
        Ok(finish::settle_read(&self.run(|s| &s.settle, call).await?)?)
    }

    async fn attempt(&self, attempt: &Attempt) -> Result<bool, StoreError> {
        let call = finish::attempt_call(self.prefix(), attempt);
        Ok(finish::attempt_read(
            &self.run(|s| &s.attempt, call).await?,
        )?)
    }

    async fn register(&self, jobs: &[Registration]) -> Result<Vec<Registered>, StoreError> {
        let longest = jobs.iter().map(|job| job.ttl.as_millis()).max();
        let longest = u64::try_from(longest.unwrap_or_default()).unwrap_or(u64::MAX);
        self.longest.fetch_max(longest, Ordering::Relaxed);
        let registered = slot_watcher::register(&self.router, jobs).await?;
        self.patrol.remember(&self.router, jobs);
        Ok(registered)
    }

    async fn begin(&self, jobs: &[Beginning]) -> Result<Vec<bool>, StoreError> {
        let calls = jobs
            .iter()
            .map(|job| registry::begin_call(self.prefix(), std::slice::from_ref(job)))
            .collect();
        let mut all = Vec::with_capacity(jobs.len());
        for answer in fan_out(&self.router, |s| &s.begin, calls, RESPONSE_TIMEOUT).await? {
            all.extend(registry::begin_read(answer)?);
        }
        Ok(all)
    }

    async fn listings(&self, jobs: &[JobName]) -> Result<Vec<Listing>, StoreError> {
        let calls = jobs
            .iter()
            .map(|job| registry::listings_call(self.prefix(), std::slice::from_ref(job)))
            .collect();
        let answers = fan_out(&self.router, |s| &s.listings, calls, RESPONSE_TIMEOUT).await?;
        let mut all = Vec::with_capacity(jobs.len());
        for (job, answer) in jobs.iter().zip(answers) {
            all.extend(registry::listings_read(answer, std::slice::from_ref(job))?);
        }
        Ok(all)
    }

    async fn enlist(
        &self,
        host: &HostName,
        entries: &[(JobName, Entry)],
    ) -> Result<(), StoreError> {
        let call = registry::listed_call(self.prefix(), host, entries);
        let answer = self.run(|s| &s.listed, call).await?;
        registry::listed_read(self.prefix(), host, answer)?;
        let calls = entries
            .iter()
            .map(|entry| registry::enlist_call(self.prefix(), host, std::slice::from_ref(entry)))
            .collect();
        let answers = fan_out(&self.router, |s| &s.enlist, calls, RESPONSE_TIMEOUT).await?;
        for (entry, answer) in entries.iter().zip(answers) {
            registry::enlist_read(self.prefix(), std::slice::from_ref(entry), answer)?;
        }
        Ok(())
    }

    async fn keep(&self, jobs: &[Keeping]) -> Result<(), StoreError> {
        let calls = jobs
            .iter()
            .map(|kept| registry::keep_call(self.prefix(), std::slice::from_ref(kept)))
            .collect();
        fan_out(&self.router, |s| &s.keep, calls, RESPONSE_TIMEOUT).await?;
        Ok(())
    }

    async fn listed_by(&self, host: &HostName) -> Result<Vec<JobName>, StoreError> {
        let call = registry::listed_call(self.prefix(), host, &[]);
        let answer = self.run(|s| &s.listed, call).await?;
        Ok(registry::listed_read(self.prefix(), host, answer)?)
    }

    async fn note_manual(&self, run: &ManualRun) -> Result<(), StoreError> {
        let call = manual::note_call(self.prefix(), run);
        self.run(|s| &s.manual, call).await?;
        Ok(())
    }

    async fn manual_runs(&self) -> Result<Vec<ManualNote>, StoreError> {
        let call = manual::list_call(self.prefix());
        Ok(manual::list_read(self.run(|s| &s.manual, call).await?)?)
    }

    async fn forget_manual(&self, runs: &[RunId]) -> Result<(), StoreError> {
        let call = manual::forget_call(self.prefix(), runs);
        self.run(|s| &s.manual, call).await?;
        Ok(())
    }

    async fn ledger(&self, job: &JobName, lock: &Lock) -> Result<Ledger, StoreError> {
        let call = relocate::ledger_call(self.prefix(), job, lock);
        let answer = self.run(|s| &s.ledger, call).await?;
        Ok(relocate::ledger_read(self.prefix(), answer)?)
    }

    async fn replace(&self, replacement: &Replacement) -> Result<Replaced, StoreError> {
        let call = relocate::replace_call(self.prefix(), replacement);
        let heard = fan::hear(&self.router, |s| &s.replace, call, RESPONSE_TIMEOUT).await?;
        heard.replicated(&self.router, RESPONSE_TIMEOUT).await?;
        Ok(relocate::replace_read(heard.value.clone())?)
    }

    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError> {
        let call = reading::announce_call(self.prefix(), host, valid_for, self.longest())?;
        let answer = self.run(|s| &s.announce, call).await?;
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
        self.run(|s| &s.returned, call).await?;
        Ok(())
    }

    async fn returned(&self, seen: &mut Seen, limit: Duration) -> Result<Returned, StoreError> {
        let channel = listen::returned_channel(self.prefix());
        Ok(self.listener.returned(&channel, seen, limit).await?)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let read = |answer| Ok(Timestamp::from_millis(integer(&answer)?));
        let away = match self.run(|s| &s.now, Call::default()).await {
            Ok(answer) => return read(answer),
            Err(failure) => StoreError::from(failure),
        };
        if matches!(away, StoreError::PartUnreachable(_)) {
            // It has no key: any other server's clock will do.
            for (_, link) in self.router.primaries().await? {
                let script = &self.router.scripts.now;
                if let Ok(answer) = link.run(script, &Call::default(), RESPONSE_TIMEOUT).await {
                    return read(answer);
                }
            }
        }
        Err(away)
    }

    async fn jobs(&self, jobs: &[(JobName, Lock)]) -> Result<Vec<JobReport>, StoreError> {
        let calls = jobs
            .iter()
            .map(|job| reading::jobs_call(self.prefix(), std::slice::from_ref(job)))
            .collect();
        let answers = fan_out(&self.router, |s| &s.jobs, calls, RESPONSE_TIMEOUT).await?;
        let mut reports = Vec::with_capacity(jobs.len());
        for (job, answer) in jobs.iter().zip(answers) {
            reports.extend(reading::jobs_read(answer, std::slice::from_ref(job))?);
        }
        Ok(reports)
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
        let answer = self.router.send(slot::of(&runs), &command).await;
        let answer = answer.map_err(|failure| failure.attributed_to(&runs))?;
        Ok(reading::history_read(answer, job, &runs)?)
    }

    async fn hosts(&self) -> Result<Vec<HostReport>, StoreError> {
        let mut call = Call::default();
        call.key(keys::hosts(self.prefix()));
        Ok(reading::hosts_read(self.run(|s| &s.hosts, call).await?)?)
    }

    /// That of the slot where the hosts announce themselves; every slot has one of its own.
    async fn condition(&self, _: &[(JobName, Lock)]) -> Result<Condition, StoreError> {
        let mut call = Call::default();
        call.key(keys::store(self.prefix()));
        let answer = self.run(|s| &s.condition, call).await?;
        Ok(reading::condition_read(answer)?)
    }

    async fn forget(&self, request: &Forget) -> Result<Forgotten, StoreError> {
        let call = forget::call(self.prefix(), request, forget::ForgetStep::Delete);
        let forgotten = forget::read(self.run(|s| &s.forget, call).await?)?;
        if let Forgotten::Done { entries } = forgotten {
            let call = registry::unlist_call(self.prefix(), &request.job);
            let hosts = registry::unlist_read(self.run(|s| &s.unlist, call).await?)?;
            for host in &hosts {
                let call = registry::unlisted_call(self.prefix(), host, &request.job);
                let answer = self.run(|s| &s.listed, call).await?;
                registry::listed_read(self.prefix(), host, answer)?;
            }
            let entries = entries + u64::from(!hosts.is_empty());
            return Ok(Forgotten::Done { entries });
        }
        Ok(forgotten)
    }

    async fn attend(&self, host: &HostName) {
        // What is published on one server is received on all.
        let publish = |command| {
            let router = Arc::clone(&self.router);
            async move {
                let primaries = router.primaries().await?;
                let any = primaries.first().map(|(_, link)| Arc::clone(link));
                let nobody =
                    || RedisFailure::unreachable("no server of the Cluster answers".to_owned());
                any.ok_or_else(nobody)?.send(&command).await
            }
        };
        presence::attend(&self.listener, self.prefix(), host, publish).await;
    }

    async fn daemons(&self) -> Result<Vec<String>, StoreError> {
        // Also learns where the servers are.
        self.router.primaries().await?;
        let (servers, part) = self.listener.servers();
        presence::daemons(&servers, part, self.prefix()).await
    }

    async fn init(&self) -> Result<Option<u64>, StoreError> {
        let mut count = 0;
        for (_, link) in self.router.primaries().await? {
            count += count_keys(&link, self.prefix()).await?;
        }
        if count > 0 {
            return Ok(Some(count));
        }
        let calls = (0..slot::SLOTS)
            .map(|slot| {
                let mut call = Call::default();
                call.key(slot::marker(self.prefix(), slot));
                call
            })
            .collect();
        // Somebody else may have begun in between.
        let mut marked = 0;
        for answer in fan_out(&self.router, |s| &s.init, calls, RESPONSE_TIMEOUT).await? {
            marked += u64::from(integer(&answer)? != 1);
        }
        Ok((marked > 0).then_some(marked))
    }
}

/// Renews one lease, and asks for it again when its server may have forgotten it.
async fn renew(
    router: &Router,
    renewal: &Renewal,
    limit: Duration,
) -> Result<RenewReply, RedisFailure> {
    let prefix = router.prefix();
    let read =
        |value| Ok::<_, RedisFailure>(finish::renew_read(value, 1)?.into_iter().flatten().next());
    let call = finish::renew_call(prefix, std::slice::from_ref(renewal));
    let mut heard = fan::hear(router, |s| &s.renew, call, limit).await?;
    let mut reply = read(heard.value.clone())?;
    let forgotten = reply.is_none();
    if forgotten {
        let call = finish::reassert_call(prefix, &[renewal]);
        heard = fan::hear(router, |s| &s.reassert, call, limit).await?;
        reply = read(heard.value.clone())?;
    }
    let reply =
        reply.ok_or_else(|| RedisFailure::corrupt("a renewal was not answered".to_owned()))?;
    if reply != RenewReply::Renewed {
        return Ok(reply);
    }
    heard.replicated(router, limit).await?;
    if forgotten {
        tracing::warn!(
            lock = renewal.grant.lock.name,
            run = %renewal.grant.run_id,
            "the server lost data, including this lease; the holder re-acquired it"
        );
    }
    Ok(reply)
}

/// How many keys of one server begin with our prefix.
async fn count_keys(link: &Arc<Link>, prefix: &Prefix) -> Result<u64, RedisFailure> {
    let mut cursor = "0".to_owned();
    let mut count = 0_u64;
    loop {
        let mut command = redis::cmd("SCAN");
        command
            .arg(&cursor)
            .arg("MATCH")
            .arg(format!("{prefix}:*"))
            .arg("COUNT")
            .arg(1000);
        let mut answer = Items::of(link.send(&command).await?)?;
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
