//! The store on a Redis Cluster: each lock with all that belongs to it in one slot, each slot on
//! one server.
//!
//! [`router`] finds the server and follows the slots as they move; [`slot`] says where keys lie.
//! Scripts, calls and answers are those of a single server. What concerns many locks is asked of
//! each on its own and in parallel, so that a server that is down holds only its own up.

mod fan;
mod map;
mod patrol;
mod router;
mod slot;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use self::fan::{Which, fan_out};
use self::patrol::Patrol;
use self::router::Router;
use super::connect::Part;
use super::failure::Failure;
use super::keys::{self, LockKeys};
use super::link::{Call, Link, RESPONSE_TIMEOUT};
use super::listen::{Ears, Listener};
use super::reply::{Items, integer, text};
use super::{claim, finish, reading};
use crate::names::{JobName, Prefix};
use crate::store::{
    Claim, ClaimReply, ClusterSettings, Condition, Finish, FinishReply, HostInfo, HostReport,
    JobReport, Lock, Record, RedisSettings, Registered, Registration, RenewReply, Renewal, Settle,
    Store, StoreError,
};
use crate::time::Timestamp;

/// The store on a Cluster.
#[derive(Debug)]
pub(in crate::store) struct ClusterStore {
    router: Arc<Router>,
    listener: Arc<Listener>,
    patrol: Patrol,
    /// The longest TTL of the job list that registered here, in milliseconds.
    longest: AtomicU64,
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

impl Ears for AnyServer {
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
            patrol: Patrol::default(),
            router,
            longest: AtomicU64::new(0),
        })
    }

    fn prefix(&self) -> &Prefix {
        self.router.prefix()
    }

    async fn run(&self, which: Which, call: Call) -> Result<Value, Failure> {
        fan::run(&self.router, which, call, RESPONSE_TIMEOUT).await
    }
}

#[async_trait]
impl Store for ClusterStore {
    async fn claim(&self, claim: &Claim) -> Result<ClaimReply, StoreError> {
        let longest = Duration::from_millis(self.longest.load(Ordering::Relaxed));
        let call = claim::call(self.prefix(), claim, longest);
        let heard = fan::hear(&self.router, |s| &s.claim, call, RESPONSE_TIMEOUT).await?;
        let reply = claim::read(heard.value.clone())?;
        if matches!(reply, ClaimReply::Granted { .. }) {
            heard.replicated(&self.router, RESPONSE_TIMEOUT).await?;
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
        let call = finish::finish_call(self.prefix(), finish);
        Ok(finish::finish_read(self.run(|s| &s.finish, call).await?)?)
    }

    async fn settle(&self, settle: &Settle) -> Result<bool, StoreError> {
        let call = finish::settle_call(self.prefix(), settle);
        Ok(finish::settle_read(&self.run(|s| &s.settle, call).await?)?)
    }

    async fn register(&self, jobs: &[Registration]) -> Result<Vec<Registered>, StoreError> {
        let longest = jobs.iter().map(|job| job.ttl.as_millis()).max();
        let longest = u64::try_from(longest.unwrap_or_default()).unwrap_or(u64::MAX);
        self.longest.fetch_max(longest, Ordering::Relaxed);
        let registered = patrol::register(&self.router, jobs).await?;
        self.patrol.remember(&self.router, jobs);
        Ok(registered)
    }

    async fn announce(&self, host: &HostInfo, valid_for: Duration) -> Result<(), StoreError> {
        let call = reading::announce_call(self.prefix(), host, valid_for)?;
        self.run(|s| &s.announce, call).await?;
        Ok(())
    }

    async fn released(&self, lock: &Lock, limit: Duration) -> Result<(), StoreError> {
        let keys = LockKeys::of(self.prefix(), lock);
        self.listener.wait(&keys.released, limit).await;
        Ok(())
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
    ) -> Result<Vec<Record>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let command = reading::history_command(self.prefix(), job, lock, limit);
        let slot = slot::of(&LockKeys::of(self.prefix(), lock).runs(job));
        let answer = self.router.send(slot, &command).await?;
        Ok(reading::history_read(answer, job)?)
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
async fn renew(router: &Router, renewal: &Renewal, limit: Duration) -> Result<RenewReply, Failure> {
    let prefix = router.prefix();
    let read = |value| Ok::<_, Failure>(finish::renew_read(value, 1)?.into_iter().flatten().next());
    let call = finish::renew_call(prefix, std::slice::from_ref(renewal));
    let mut heard = fan::hear(router, |s| &s.renew, call, limit).await?;
    let mut reply = read(heard.value.clone())?;
    let forgotten = reply.is_none();
    if forgotten {
        let call = finish::reassert_call(prefix, &[renewal]);
        heard = fan::hear(router, |s| &s.reassert, call, limit).await?;
        reply = read(heard.value.clone())?;
    }
    let reply = reply.ok_or_else(|| Failure::corrupt("a renewal was not answered".to_owned()))?;
    if reply != RenewReply::Renewed {
        return Ok(reply);
    }
    heard.replicated(router, limit).await?;
    if forgotten {
        tracing::warn!(
            lock = renewal.lock.name,
            run = %renewal.tenure.run_id,
            "its server has lost data, and this lease with it: taken back by its holder"
        );
    }
    Ok(reply)
}

/// How many keys of one server begin with our prefix.
async fn count_keys(link: &Arc<Link>, prefix: &Prefix) -> Result<u64, Failure> {
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
