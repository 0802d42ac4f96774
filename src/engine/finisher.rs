//! Delivers results to the store: at once, and if that fails again in order until they arrive.
//!
//! A run's lease is renewed until the store has its result or the lease expires, so that no other
//! run begins between the end of a job and its record. Undelivered results are soon written to the
//! [spool](super::spool), so that they survive a daemon that is killed. Those that remain when the
//! daemon ends are returned for the spool.

mod disk;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::core::JobIx;
use super::reporter::Reporter;
use super::spool::Spool;
use super::turns::RequestTurns;
use crate::ground::tasks::{self, SpawnBoxed as _};
use crate::lease::Lease;
use crate::names::JobName;
use crate::run::random;
use crate::store::{Finish, FinishReply, KeyFault, Outcome, Store, StoreError};
use disk::Disk;

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// How often results are retried that cannot be written because of their own job's keys.
const UNUSABLE_DELAY: Duration = Duration::from_secs(5);
/// The shortest time between a failed delivery and the write of the spool, because many fail at
/// once.
const SPOOL_AFTER: Duration = Duration::from_millis(200);
/// The pause between two writes of the spool, as a multiple of the time that a write takes.
const SPOOL_REST: u32 = 20;
/// How long the message to other hosts about a returned occurrence may take.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(1);

/// A verdict, or the cancellation of a claim, to be delivered.
#[derive(Debug)]
pub(crate) struct PendingFinish {
    /// The request to deliver.
    pub(crate) finish: Finish,
    /// The run's lease, held until the delivery.
    pub(crate) lease: Option<Lease>,
    /// The job whose lane waits for it.
    pub(crate) job: Option<JobIx>,
    /// Whether it is in the spool as well.
    pub(crate) spooled: bool,
}

/// What the finisher reports to the daemon's loop.
#[derive(Debug)]
pub(super) enum FinisherNotice {
    /// The result of a run of this job has reached the store, or must not hold up the job any longer.
    RunClosed(JobIx),
    /// The store did not accept a result.
    StoreFailed(StoreError),
}

/// Takes notices without waiting.
type Notices = Box<dyn Fn(FinisherNotice) + Send>;

enum Order {
    PendingFinish(Box<PendingFinish>),
    Retry,
    End(EndRequest),
}

/// The order to deliver what can be delivered until then, and to end.
struct EndRequest {
    limit: Instant,
    /// Receives what is left.
    rest: oneshot::Sender<Vec<Finish>>,
}

/// The handle of the finisher's task.
#[derive(Debug, Clone)]
pub(crate) struct Finisher {
    inbox: mpsc::UnboundedSender<Order>,
    outstanding: watch::Receiver<usize>,
}

impl Finisher {
    /// Starts the task on the current runtime.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        spool: Spool,
        notices: impl Fn(FinisherNotice) + Send + 'static,
        reporter: Reporter,
    ) -> Self {
        let (inbox, orders) = mpsc::unbounded_channel();
        let (count, outstanding) = watch::channel(0);
        let task = FinishTask {
            store,
            spool,
            notices: Box::new(notices),
            reporter,
            count,
            backlog: BTreeMap::new(),
            unusable: BTreeMap::new(),
            unusable_at: Instant::now(),
            tries: JoinSet::new(),
            announcing: JoinSet::new(),
            turns: RequestTurns::of_finishes(),
            outages: Arc::default(),
            under_way: BTreeMap::new(),
            retrying: false,
            next_number: 0,
            spooled: 0,
            spool_at: None,
            spool_after: SPOOL_AFTER,
            disk: Disk::Works,
            delay: FIRST_DELAY,
            retry_at: Instant::now(),
        };
        tasks::spawn(task.run(orders));
        Self { inbox, outstanding }
    }

    /// Takes a finish to deliver; never waits.
    pub(crate) fn send(&self, pending: PendingFinish) {
        // The task ends only when the process does.
        let _ = self.inbox.send(Order::PendingFinish(Box::new(pending)));
    }

    /// The store replies again, so the finisher retries without waiting for the end of a delay.
    pub(crate) fn retry_now(&self) {
        let _ = self.inbox.send(Order::Retry);
    }

    /// Waits until everything is delivered, at most `limit`.
    pub(crate) async fn idle(&self, limit: Duration) {
        let mut outstanding = self.outstanding.clone();
        let idle = outstanding.wait_for(|count| *count == 0);
        let _ = tokio::time::timeout(limit, idle).await;
    }

    /// Delivers what can be delivered within `limit`, ends the task, and returns the rest.
    pub(crate) async fn end(&self, limit: Duration) -> Vec<Finish> {
        let (rest, left) = oneshot::channel();
        let limit = Instant::now() + limit;
        if self
            .inbox
            .send(Order::End(EndRequest { limit, rest }))
            .is_err()
        {
            return Vec::new();
        }
        left.await.unwrap_or_default()
    }
}

struct Try {
    number: u64,
    pending: Box<PendingFinish>,
    again: bool,
    result: Result<FinishReply, StoreError>,
}

struct FinishTask {
    store: Arc<dyn Store>,
    spool: Spool,
    notices: Notices,
    /// Takes each verdict that the store has.
    reporter: Reporter,
    /// How many results are being delivered.
    count: watch::Sender<usize>,
    /// Undelivered, in order.
    backlog: BTreeMap<u64, Box<PendingFinish>>,
    /// Undelivered because the keys of their own job cannot be used. They hold up nobody else.
    unusable: BTreeMap<u64, Box<PendingFinish>>,
    unusable_at: Instant,
    tries: JoinSet<Try>,
    /// Words to other hosts about what came back.
    announcing: JoinSet<()>,
    turns: RequestTurns,
    /// How often the store did not reply. What waits for its turn then joins the backlog.
    outages: Arc<AtomicU64>,
    /// What is being tried.
    under_way: BTreeMap<u64, Finish>,
    /// Whether the first of the backlog is being tried.
    retrying: bool,
    next_number: u64,
    /// How many of these results are in the spool.
    spooled: usize,
    /// When the spool is to be written; `None` while it has all that it should.
    spool_at: Option<Instant>,
    spool_after: Duration,
    disk: Disk,
    delay: Duration,
    retry_at: Instant,
}

impl FinishTask {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut ending: Option<EndRequest> = None;
        loop {
            let limit = ending.as_ref().map(|end| end.limit);
            // What its own job's keys hold up is tried once more, and then handed back.
            let done =
                self.backlog.is_empty() && self.tries.is_empty() && self.announcing.is_empty();
            if limit.is_some_and(|limit| done || Instant::now() >= limit) {
                break;
            }
            let wake = limit.map_or(self.retry_at, |limit| limit.min(self.retry_at));
            // Every arm is cancel-safe: a channel, a join set, timers.
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::PendingFinish(pending)) => self.take(pending),
                    Some(Order::Retry) => self.retry_at = Instant::now(),
                    Some(Order::End(end)) => {
                        self.retry_at = Instant::now();
                        self.retry_unusable();
                        ending = Some(end);
                    }
                    None => return,
                },
                Some(tried) = self.tries.join_next() => match tried {
                    Ok(tried) => self.tried(tried),
                    Err(error) => tracing::error!("the task that delivers a result failed, which is a bug: please report it with this log: {error}"),
                },
                Some(_) = self.announcing.join_next() => {}
                () = tokio::time::sleep_until(self.unusable_at), if !self.unusable.is_empty() => {
                    self.retry_unusable();
                }
                () = until(self.spool_at) => self.spool().await,
                () = tokio::time::sleep_until(wake), if !self.backlog.is_empty() || limit.is_some() => {
                    self.retry();
                }
            }
        }
        if let Some(end) = ending {
            // A try that is under way may or may not have arrived; once more does no harm.
            self.tries.abort_all();
            let mut rest = self.under_way;
            rest.extend(
                self.backlog
                    .into_iter()
                    .chain(self.unusable)
                    .map(|(n, pending)| (n, pending.finish)),
            );
            let _ = end.rest.send(rest.into_values().collect());
        }
    }

    fn take(&mut self, pending: Box<PendingFinish>) {
        let number = self.next_number;
        self.next_number += 1;
        self.spooled += usize::from(pending.spooled);
        self.count.send_modify(|count| *count += 1);
        // What goes to the same part of the store keeps its order.
        let shard = self.store.shard(&pending.finish.lock);
        let waits =
            (self.backlog.values()).any(|before| self.store.shard(&before.finish.lock) == shard);
        if waits {
            self.backlog.insert(number, pending);
            self.spool_soon();
        } else {
            self.attempt(number, pending, false);
        }
    }

    fn attempt(&mut self, number: u64, pending: Box<PendingFinish>, again: bool) {
        let (store, turns) = (Arc::clone(&self.store), self.turns.clone());
        self.under_way.insert(number, pending.finish.clone());
        let (outages, before) = (Arc::clone(&self.outages), self.outages());
        self.tries.spawn_boxed(async move {
            let turn = turns.take(store.shard(&pending.finish.lock)).await;
            let result = if outages.load(Ordering::Relaxed) == before {
                store.finish(&pending.finish).await
            } else {
                let text = "the store has not replied to earlier results";
                Err(StoreError::unreachable(text.to_owned()))
            };
            if matches!(result, Err(StoreError::Unreachable(_))) {
                outages.fetch_add(1, Ordering::Relaxed);
            }
            drop(turn);
            Try {
                number,
                pending,
                again,
                result,
            }
        });
    }

    fn outages(&self) -> u64 {
        self.outages.load(Ordering::Relaxed)
    }

    /// Tries the oldest of the backlog.
    fn retry(&mut self) {
        self.release_lost();
        if self.retrying {
            self.retry_at = Instant::now() + LONGEST_DELAY;
            return;
        }
        if let Some((number, pending)) = self.backlog.pop_first() {
            self.retrying = true;
            self.attempt(number, pending, true);
        } else {
            self.retry_at = Instant::now() + LONGEST_DELAY;
        }
    }

    /// Retries all results that wait because of their own job's keys, concurrently.
    fn retry_unusable(&mut self) {
        self.unusable_at = Instant::now() + UNUSABLE_DELAY;
        for (number, pending) in std::mem::take(&mut self.unusable) {
            self.count.send_modify(|count| *count += 1);
            self.attempt(number, pending, false);
        }
    }

    /// Keeps a result that cannot be written because of its own job's keys. Its lease is no longer
    /// renewed, because other jobs may share the lock; the lock expires after its TTL.
    fn keep_unusable(&mut self, number: u64, mut pending: Box<PendingFinish>, fault: &KeyFault) {
        if pending.lease.take().is_some() || pending.job.is_some() {
            if let Some(record) = &pending.finish.record {
                tracing::error!(
                    job = %record.job,
                    run_id = record.run_id.as_ref().map(tracing::field::display),
                    scheduled_at = record.scheduled_at.map(tracing::field::display),
                    host = record.host.as_ref().map(tracing::field::display),
                    outcome = record.outcome.word(),
                    "cannot record the result of this run: {fault}; keeping the result and \
                     retrying. To repair it, {}",
                    fault.repair(Some(record.job.as_str()))
                );
            }
            if let Some(job) = pending.job.take() {
                (self.notices)(FinisherNotice::RunClosed(job));
            }
        }
        if self.unusable.is_empty() {
            self.unusable_at = Instant::now() + UNUSABLE_DELAY;
        }
        // Registrations wait for results that are being delivered, but not for this one.
        self.count.send_modify(|count| *count -= 1);
        self.unusable.insert(number, pending);
        self.spool_soon();
    }

    /// Lanes continue once the lease of their undelivered run has expired.
    fn release_lost(&mut self) {
        for pending in self.backlog.values_mut() {
            if pending
                .lease
                .as_ref()
                .is_some_and(|l| l.validity().is_zero())
            {
                pending.lease = None;
                if let Some(job) = pending.job.take() {
                    (self.notices)(FinisherNotice::RunClosed(job));
                }
            }
        }
    }

    fn tried(&mut self, tried: Try) {
        let Try {
            number,
            pending,
            again,
            result,
        } = tried;
        self.retrying = self.retrying && !again;
        self.under_way.remove(&number);
        match result {
            Ok(reply) => {
                self.delay = FIRST_DELAY;
                self.retry_at = Instant::now();
                self.delivered(*pending, &reply);
            }
            Err(StoreError::Key(fault)) => self.keep_unusable(number, pending, &fault),
            Err(error) => {
                // One that is refused, or whose server is away, must not hold up the others.
                let number = if matches!(error, StoreError::Unreachable(_)) {
                    number
                } else {
                    self.next_number += 1;
                    self.next_number - 1
                };
                self.backlog.insert(number, pending);
                self.spool_soon();
                self.retry_at = Instant::now() + self.delay.mul_f64(0.5 + random() / 2.0);
                if again {
                    self.delay = (self.delay * 2).min(LONGEST_DELAY);
                }
                (self.notices)(FinisherNotice::StoreFailed(error));
            }
        }
    }

    /// Sends a message to other hosts that an occurrence was returned undecided. The daemon ends
    /// after that only.
    fn announce(&mut self, job: Option<JobName>) {
        let Some(job) = job else { return };
        let (store, count) = (Arc::clone(&self.store), self.count.clone());
        count.send_modify(|count| *count += 1);
        self.announcing.spawn_boxed(async move {
            let told = tokio::time::timeout(ANNOUNCE_LIMIT, store.tell_returned(&job)).await;
            if !matches!(told, Ok(Ok(()))) {
                tracing::debug!(%job, "cannot notify other hosts of a returned occurrence: {told:?}");
            }
            count.send_modify(|count| *count -= 1);
        });
    }

    fn delivered(&mut self, pending: PendingFinish, reply: &FinishReply) {
        let PendingFinish {
            finish,
            lease,
            job,
            spooled,
        } = pending;
        if let Some(record) = &finish.record
            && *reply == FinishReply::Lost
            && record.fence.is_some()
            && finish.lock.exclusive
            && record.outcome != Outcome::LeaseLost
        {
            tracing::warn!(
                job = %record.job,
                run_id = record.run_id.as_ref().map(tracing::field::display),
                scheduled_at = record.scheduled_at.map(tracing::field::display),
                host = record.host.as_ref().map(tracing::field::display),
                "the result of this run arrived after its lease had expired; it is recorded. Another \
                 run may have started once the lease had expired; this one had ended by then, unless \
                 it has on_lost: continue"
            );
        }
        drop(lease);
        if let Some(record) = &finish.record {
            self.reporter.verdict(record);
        }
        if finish.give_back && *reply == FinishReply::Released {
            self.announce(finish.job);
        }
        self.count.send_modify(|count| *count -= 1);
        if let Some(job) = job {
            (self.notices)(FinisherNotice::RunClosed(job));
        }
        if spooled {
            self.spooled -= 1;
            if self.spooled == 0 {
                self.spool.clear();
                self.spool_at = None;
            } else {
                self.spool_soon();
            }
        }
    }

    fn spool_soon(&mut self) {
        let at = Instant::now() + self.spool_after;
        self.spool_at.get_or_insert(at);
    }

    /// Writes all that is undelivered to the spool, in place of what is there.
    async fn spool(&mut self) {
        self.spool_at = None;
        let mut all = self.under_way.clone();
        let held = self.backlog.iter().chain(&self.unusable);
        all.extend(held.map(|(number, pending)| (*number, pending.finish.clone())));
        let began = Instant::now();
        let spool = self.spool.clone();
        let undelivered: Vec<Finish> = all.into_values().collect();
        let written = tokio::task::spawn_blocking(move || spool.keep(&undelivered)).await;
        self.spool_after = SPOOL_AFTER.max(began.elapsed() * SPOOL_REST);
        let written = written.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        self.disk.report(&written, &self.spool);
        // What is under way is in the file as well. If it fails, the file is written again.
        if written.is_ok() {
            for pending in self.backlog.values_mut().chain(self.unusable.values_mut()) {
                self.spooled += usize::from(!pending.spooled);
                pending.spooled = true;
            }
        }
    }
}

/// Waits until then; for ever without an instant. Cancel-safe.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
