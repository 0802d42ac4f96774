//! The requests of the daemon to the store, each in a task of its own.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, RwLock, mpsc, watch};

use super::clock::{ClockTrust, Measure};
use super::health::Health;
use super::held_back::{HeldBack, Neighbour};
use super::last_answer::LastAnswer;
use super::message::Message;
use super::namesake::{ReplacedNamesake, Sighting};
use super::newcomer::Newcomer;
use super::store_clock::Epoch;
use crate::engine::core::{ClaimId, Event, JobIx};
use crate::engine::finisher::Finisher;
use crate::engine::reporter::Reporter;
use crate::engine::turns::RequestTurns;
use crate::names::{HostName, JobName};
use crate::preflight::Offset;
use crate::run::random;
use crate::siblings::Siblings;
use crate::store::{
    Claimant, CopyReply, HostInfo, HostReport, JobReport, Lock, LockId, Registered, Registration,
    Returned, Seen, Settle, Store, StoreError,
};
use crate::time::BootInstant;

/// How many jobs are registered in one request.
const BATCH: usize = 500;
/// When jobs are registered again whose part of the store was away.
const REGISTER_AGAIN: Duration = Duration::from_secs(1);
/// How often a claim is sent again that has no reply while others have.
const ALONE: u32 = 3;
/// The longest pause before a request is repeated that failed because of one job's keys.
const UNUSABLE_PAUSE: Duration = Duration::from_secs(5);
/// A wall clock that moves by more during a measurement was stepped.
const STEP: Duration = Duration::from_millis(20);
/// How long one request for returned occurrences lasts.
const LISTEN: Duration = Duration::from_secs(5);
/// How soon after a failure they are asked for again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
/// How long the message that this host has stopped may take to reach the store.
const WITHDRAW: Duration = Duration::from_secs(1);
/// A host that has not announced itself for this long is removed.
const ANNOUNCED_FOR: Duration = Duration::from_secs(30);

/// What is done before jobs are registered.
#[derive(Debug)]
pub(super) struct Entrance {
    pub(super) host: HostName,
    /// The jobs that are to be entered.
    pub(super) newcomers: BTreeMap<JobIx, Newcomer>,
    pub(super) measure: Measure,
    /// This host's clock.
    pub(super) clock: ClockTrust,
    /// How far it may be off.
    pub(super) max_clock_skew: Duration,
    /// What this host says of itself, if it is to look first who uses other servers.
    pub(super) first: Option<HostInfo>,
    /// The same, if others are to see that this host lives before it looks who uses which lock.
    pub(super) announces: Option<HostInfo>,
    /// Whether to wait until all registrations that are under way are over.
    pub(super) waits_for_earlier: bool,
}

/// Why jobs cannot be registered now.
enum Obstacle {
    /// Another store is in use, for this reason.
    Disagreement(String),
    /// The store does not reply.
    Store(StoreError),
}

/// The way to store and loop, for all tasks.
#[derive(Debug, Clone)]
pub(super) struct TaskContext {
    pub(super) store: Arc<dyn Store>,
    pub(super) inbox: mpsc::UnboundedSender<Message>,
    pub(super) health: watch::Receiver<Health>,
    pub(super) turns: RequestTurns,
    pub(super) last_answer: LastAnswer,
    pub(super) siblings: Siblings,
    pub(super) replaced_namesake: ReplacedNamesake,
    /// Held by each registration. What enters jobs under an earlier list must not overtake the rest.
    pub(super) earlier: Arc<RwLock<()>>,
    pub(super) reporter: Reporter,
}

impl TaskContext {
    pub(super) fn tell(&self, message: Message) {
        // Fails only when the loop has ended, and then no message matters.
        let _ = self.inbox.send(message);
    }

    /// Waits a little, then until the store is believed to reply.
    async fn pause(&mut self, delay: &mut Duration) {
        tokio::time::sleep(delay.mul_f64(0.5 + random() / 2.0)).await;
        *delay = (*delay * 2).min(Duration::from_secs(2));
        let _ = self.health.wait_for(|health| *health == Health::Up).await;
    }

    /// Waits for a turn at the part of the store that keeps the lock. Returns `None` when the store
    /// is found to be down before that.
    async fn turn(&mut self, lock: &Lock) -> Option<OwnedSemaphorePermit> {
        let part = self.store.shard(lock);
        // Cancel-safe: a place in the queue is given up, and nothing else.
        tokio::select! {
            turn = self.turns.take(part) => turn,
            _ = self.health.wait_for(|health| *health == Health::Down) => None,
        }
    }

    /// Sends copies of a claim until one has a reply, or the claim is given up.
    pub(super) async fn claim(mut self, job: JobIx, id: ClaimId, claimant: Claimant) {
        let mut delay = Duration::from_millis(50);
        let mut alone = 0;
        loop {
            let failed = |error| Message::ClaimFailed {
                job,
                claim: id,
                error,
            };
            let Some(turn) = self.turn(&claimant.claim().lock).await else {
                let text = "the store has not replied to earlier claims";
                self.tell(failed(StoreError::unreachable(text)));
                self.pause(&mut delay).await;
                continue;
            };
            let reply = claimant.send(&*self.store).await;
            drop(turn);
            match reply {
                Ok(CopyReply::NotSent) => return,
                Ok(reply) => {
                    self.last_answer.note();
                    self.reporter.claimed(claimant.claim(), &reply);
                    self.tell(Message::Answered {
                        job,
                        claim: id,
                        reply,
                    });
                    return;
                }
                Err(StoreError::Unreachable(detail)) if self.last_answer.is_recent() => {
                    alone += 1;
                    if alone > ALONE {
                        self.tell(failed(StoreError::PartUnreachable(detail)));
                    } else {
                        let lock = &claimant.claim().lock.name;
                        tracing::debug!(lock, "sending a claim again: {detail}");
                    }
                }
                Err(error) => {
                    if matches!(error, StoreError::Key(_)) {
                        self.last_answer.note();
                    }
                    self.tell(failed(error));
                }
            }
            self.pause(&mut delay).await;
        }
    }

    pub(super) async fn await_release(
        self,
        job: JobIx,
        claim: ClaimId,
        lock: Lock,
        limit: Duration,
    ) {
        if self.store.released(&lock, limit).await.is_err() {
            // The claim that follows reports that the store is unreachable.
            tokio::time::sleep(limit.min(Duration::from_secs(1))).await;
        }
        self.tell(Message::Core(Event::Woken { job, claim }));
    }

    /// Passes messages of other hosts about returned occurrences to the loop, until the loop ends.
    pub(super) async fn listen_for_returned(mut self) {
        let mut seen = Seen::default();
        while !self.inbox.is_closed() {
            let _ = self.health.wait_for(|health| *health == Health::Up).await;
            match self.store.returned(&mut seen, LISTEN).await {
                Ok(Returned::Jobs(jobs)) if jobs.is_empty() => {}
                Ok(returned) => self.tell(Message::Returned(returned)),
                Err(error) => {
                    // Without it, occurrences are found a little later.
                    tracing::debug!("cannot listen for returned occurrences: {error}");
                    tokio::time::sleep(LISTEN_AGAIN).await;
                }
            }
        }
    }

    pub(super) async fn settle(mut self, job: JobIx, settle: Settle) {
        let mut delay = Duration::from_millis(100);
        loop {
            let Some(turn) = self.turn(&settle.lock).await else {
                self.pause(&mut delay).await;
                continue;
            };
            let answer = self.store.settle(&settle).await;
            drop(turn);
            match answer {
                Ok(true) => {
                    tracing::error!(
                        job = %settle.job,
                        run_id = %settle.run_id,
                        "the lease of this run expired, and its daemon has not reported a result (it \
                         has died, or did not reach the store); recorded as interrupted, until a \
                         result arrives"
                    );
                    self.reporter.settled(&settle.job, &settle.run_id);
                    return;
                }
                Ok(false) => {
                    self.tell(Message::Core(Event::NotSettled { job }));
                    return;
                }
                Err(error) => self.tell(Message::StoreFailed(error)),
            }
            self.pause(&mut delay).await;
        }
    }

    /// Asks for the open run of a job.
    pub(super) async fn look(mut self, job: JobIx, (name, lock): (JobName, Lock)) {
        let asked = [(name, lock.clone())];
        let mut delay = Duration::from_millis(100);
        loop {
            let Some(turn) = self.turn(&lock).await else {
                self.pause(&mut delay).await;
                continue;
            };
            let answer = self.store.jobs(&asked).await;
            drop(turn);
            match answer {
                Ok(reports) => {
                    let report = reports.into_iter().next();
                    let waiting = report.as_ref();
                    let event = Event::LedgerQueried {
                        job,
                        head: waiting.and_then(|it| it.waiting.first().copied()),
                        behind: waiting.and_then(JobReport::first_due_behind_head),
                        open: report.and_then(|it| it.open),
                    };
                    self.tell(Message::Core(event));
                    return;
                }
                Err(error) => self.tell(Message::StoreFailed(error)),
            }
            self.pause(&mut delay).await;
        }
    }

    /// Registers jobs, once. Verdicts under way go first: they may decide what the ledger is
    /// about to be asked.
    ///
    /// Another daemon of this host that uses another store is found without this one, so that is
    /// looked at first. Then the clock is measured, where it is to be: claims follow the reply.
    pub(super) async fn register(
        self,
        jobs: Vec<(JobIx, Registration)>,
        entrance: Entrance,
        finisher: Finisher,
    ) {
        let earlier = Arc::clone(&self.earlier);
        let _under_way = if entrance.waits_for_earlier {
            earlier.write().await.downgrade()
        } else {
            earlier.read().await
        };
        let Entrance {
            host,
            mut newcomers,
            clock,
            ..
        } = match self.precede(entrance).await {
            Ok(entrance) => entrance,
            Err(obstacle) => {
                let all = jobs.into_iter().map(|(job, _)| job).collect();
                return self.tell(match obstacle {
                    Obstacle::Disagreement(reason) => Message::Disagreed(all, reason),
                    Obstacle::Store(error) => Message::NotRegistered(all, error),
                });
            }
        };
        finisher.idle(Duration::from_secs(2)).await;
        let mut batches = Batches::of(jobs);
        while let Some(batch) = batches.next() {
            let jobs: Vec<_> = batch.iter().map(|(job, _)| *job).collect();
            match self
                .enter_and_register((&host, clock), &batch, &newcomers)
                .await
            {
                Ok((held, answers)) => {
                    self.last_answer.note();
                    // A long list has much to register, so what is done is freed.
                    for job in &jobs {
                        newcomers.remove(job);
                    }
                    let jobs = jobs.into_iter().filter(|job| !held.contains_key(job));
                    let jobs: Vec<_> = jobs.collect();
                    self.tell(Message::HeldBack(held.into_iter().collect()));
                    let answers = jobs.into_iter().zip(answers).collect();
                    self.tell(Message::Registered(answers));
                }
                Err(error @ StoreError::PartUnreachable(_)) => {
                    if !batches.split(batch, (&*self.store, &host)) {
                        self.tell(Message::NotRegistered(jobs, error));
                    }
                }
                // The keys of one job cannot be used, so the other jobs are registered without it.
                Err(error @ StoreError::Key(_)) => {
                    if !batches.halve(batch) {
                        self.tell(Message::NotRegistered(jobs, error));
                    }
                }
                Err(error) => {
                    let rest = jobs.into_iter().chain(batches.rest()).collect();
                    self.tell(Message::NotRegistered(rest, error));
                    return;
                }
            }
        }
    }

    /// Enters the new jobs of a batch into the registry, and registers those that are not held back.
    /// Returns the jobs held back, and the replies for the others in their order.
    async fn enter_and_register(
        &self,
        host: (&HostName, ClockTrust),
        batch: &[(JobIx, Registration)],
        newcomers: &BTreeMap<JobIx, Newcomer>,
    ) -> Result<(BTreeMap<JobIx, HeldBack>, Vec<Registered>), StoreError> {
        // Entries stay in the map, because a batch that fails is entered again in parts.
        let new = batch
            .iter()
            .filter_map(|(job, _)| newcomers.get_key_value(job));
        let new: Vec<_> = new.map(|(job, new)| (*job, new.clone())).collect();
        let held: BTreeMap<_, _> = self.enter(host, new).await?.into_iter().collect();
        let rest = batch.iter().filter(|(job, _)| !held.contains_key(job));
        let rest: Vec<_> = rest.map(|(_, registration)| registration.clone()).collect();
        let registered = self.store.register(&rest).await?;
        Ok((held, registered))
    }

    /// Does what precedes a registration: looks who uses another store, measures the clock, and
    /// announces this host.
    async fn precede(&self, mut entrance: Entrance) -> Result<Entrance, Obstacle> {
        if entrance.first.is_some()
            && let Some(reason) = self.siblings.obstacle().await
        {
            return Err(Obstacle::Disagreement(reason));
        }
        let measure = entrance.measure;
        if let Some(offset) = self.measure(measure).await.map_err(Obstacle::Store)? {
            entrance.clock = ClockTrust::of(offset, entrance.max_clock_skew);
        }
        if let Some(info) = entrance.first.take() {
            match self.look_for_rivals(info).await {
                Ok(Some(reason)) => return Err(Obstacle::Disagreement(reason)),
                Err(error @ StoreError::Unreachable(_)) => return Err(Obstacle::Store(error)),
                // A host that cannot be read delays nothing.
                Ok(None) | Err(_) => self.tell(Message::Agreed),
            }
        }
        if let Some(info) = entrance.announces.take()
            && let Err(error @ StoreError::Unreachable(_)) = self.tell_others(info).await
        {
            return Err(Obstacle::Store(error));
        }
        Ok(entrance)
    }

    /// Has jobs registered once more, after a while.
    pub(super) async fn register_soon(self, jobs: Vec<JobIx>) {
        self.register_after(jobs, REGISTER_AGAIN).await;
    }

    /// Has jobs registered once more when so much time has passed.
    pub(super) async fn register_after(self, jobs: Vec<JobIx>, wait: Duration) {
        tokio::time::sleep(wait).await;
        self.tell(Message::RegisterAgain(jobs));
    }

    /// Has jobs registered once more, whose part of the store or whose keys may be usable by then.
    pub(super) async fn register_later(self, jobs: Vec<JobIx>, error: &StoreError) {
        tokio::time::sleep(match error {
            StoreError::Key(_) => UNUSABLE_PAUSE,
            _ => REGISTER_AGAIN,
        })
        .await;
        self.tell(Message::RegisterAgain(jobs));
    }

    /// Sends a request that writes until the store replies: a store whose disk or memory is full
    /// still reads. Then the clocks are compared, before anything of the outage is
    /// reported or decided.
    pub(super) async fn probe(self, word: HostInfo, measure: Measure, mut delay: Duration) {
        loop {
            tokio::time::sleep(delay.mul_f64(0.5 + random() / 2.0)).await;
            let announced = match self.signed(word.clone()).await {
                Ok(word) => self.announce_self(&word).await,
                Err(error) => Err(error),
            };
            let announced = match announced {
                // Part of it is enough to go on.
                Ok(()) | Err(StoreError::PartUnreachable(_) | StoreError::Key(_)) => Ok(()),
                Err(error) => Err(error),
            };
            let measured = match announced {
                Ok(()) => self.measure(measure).await,
                Err(error) => Err(error),
            };
            match measured {
                Ok(_) | Err(StoreError::PartUnreachable(_)) => break,
                Err(error) => tracing::debug!("the store is still unreachable: {error}"),
            }
            delay = (delay * 2).min(Duration::from_secs(1));
        }
        self.tell(Message::StoreAnswers);
    }

    /// Measures how far this host's clock is from the store's, where it is to be.
    async fn measure(&self, measure: Measure) -> Result<Option<Offset>, StoreError> {
        if measure == Measure::Not {
            return Ok(None);
        }
        let mut epoch = Epoch::now();
        let mut offset = Offset::measure(&*self.store).await?;
        // A wall clock that is stepped in between makes the measurement unusable, too.
        while offset.is_unusable() || Epoch::now().distance(epoch) > STEP {
            epoch = Epoch::now();
            offset = Offset::measure(&*self.store).await?;
        }
        self.tell(Message::Clock(offset, epoch));
        Ok(Some(offset))
    }

    pub(super) async fn announce(self, mut info: HostInfo, measure: Measure) {
        match self.measure(measure).await {
            Ok(Some(offset)) => info.clock_offset_ms = Some(offset.millis),
            Ok(None) => {}
            Err(error) => {
                self.tell(Message::StoreFailed(error));
                return;
            }
        }
        match self.meet(info).await {
            Ok((info, hosts)) => {
                self.tell(Message::Neighbours(Neighbour::of(&info.host, &hosts)));
                let rivals = self.rivals(&info, &hosts).await;
                self.tell(Message::Rivals(rivals));
                self.tell(Message::Hosts(hosts));
            }
            Err(error) => self.tell(Message::StoreFailed(error)),
        }
    }

    async fn tell_others(&self, info: HostInfo) -> Result<HostInfo, StoreError> {
        let info = self.signed(info).await?;
        self.announce_self(&info).await?;
        Ok(info)
    }

    pub(super) async fn announce_self(&self, me: &HostInfo) -> Result<(), StoreError> {
        self.replaced_namesake.note_sent(me);
        self.store.announce(me, ANNOUNCED_FOR).await
    }

    async fn meet(&self, info: HostInfo) -> Result<(HostInfo, Vec<HostReport>), StoreError> {
        // Before its announcement replaces that of another daemon under the same name.
        let before = self.store.peers().await;
        if let Ok(hosts) = &before {
            self.replaced_namesake
                .note_seen(hosts, &info, BootInstant::now());
        }
        let info = self.tell_others(info).await?;
        let hosts = match before {
            Ok(hosts) => {
                self.tell(Message::Namesake(Sighting::among(&hosts, &info)));
                hosts
            }
            // The announcement has made the key usable, perhaps.
            Err(_) => self.store.peers().await?,
        };
        Ok((info, hosts))
    }

    /// Removes this host's announcement, or puts back that of a live namesake. If that fails, the announcement
    /// expires by itself.
    pub(super) async fn withdraw(&self, info: HostInfo) {
        match tokio::time::timeout(WITHDRAW, self.take_back(&info)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(
                "cannot remove this host from the announced hosts; \
                                               its entry expires: {error}"
            ),
            Err(_) => tracing::debug!(
                "cannot remove this host from the announced hosts; its \
                                       entry expires: no reply in {WITHDRAW:?}"
            ),
        }
    }

    async fn take_back(&self, me: &HostInfo) -> Result<(), StoreError> {
        let hosts = self.store.peers().await;
        let is_there = hosts
            .as_ref()
            .is_ok_and(|hosts| Sighting::among(hosts, me).is_none());
        if let Ok(hosts) = &hosts {
            self.replaced_namesake
                .note_seen(hosts, me, BootInstant::now());
        }
        match self.replaced_namesake.to_put_back(BootInstant::now()) {
            Some((namesake, valid_for)) if is_there => {
                self.store.announce(&namesake, valid_for).await
            }
            _ => self.store.announce(me, Duration::ZERO).await,
        }
    }
}

/// Registrations still to be sent.
struct Batches(VecDeque<Vec<(JobIx, Registration)>>);

impl Batches {
    fn of(jobs: Vec<(JobIx, Registration)>) -> Self {
        let mut jobs = jobs.into_iter().peekable();
        let batch = || {
            jobs.peek()?;
            Some(jobs.by_ref().take(BATCH).collect())
        };
        Self(std::iter::from_fn(batch).collect())
    }

    fn next(&mut self) -> Option<Vec<(JobIx, Registration)>> {
        self.0.pop_front()
    }

    /// Part of the store did not reply. If the batch was for several parts, each gets its own request.
    fn split(
        &mut self,
        batch: Vec<(JobIx, Registration)>,
        (store, host): (&dyn Store, &HostName),
    ) -> bool {
        // The listing of a job lies where a lock of the job's name would.
        let listing = |job: &JobName| LockId::Fleet(job.as_str().into()).on(host);
        let mut parts: BTreeMap<(u64, u64), Vec<_>> = BTreeMap::new();
        for (ix, job) in batch {
            let shards = (store.shard(&job.lock), store.shard(&listing(&job.job)));
            parts.entry(shards).or_default().push((ix, job));
        }
        let several = parts.len() > 1;
        if several {
            self.0.extend(parts.into_values());
        }
        several
    }

    /// Asks for each half on its own, if the batch was for several jobs.
    fn halve(&mut self, mut batch: Vec<(JobIx, Registration)>) -> bool {
        let several = batch.len() > 1;
        if several {
            let second = batch.split_off(batch.len() / 2);
            self.0.push_front(second);
            self.0.push_front(batch);
        }
        several
    }

    fn rest(self) -> impl Iterator<Item = JobIx> {
        self.0.into_iter().flatten().map(|(job, _)| job)
    }
}

#[cfg(test)]
pub(super) mod tests;
