//! The watchdog's loop: sleeps until something is due, asks the store, tells guard and holders.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::finish::finish_until;
use super::handle::LeaseState;
use super::table::{Batch, LeaseId, LeaseTable, Terms};
use super::watchdog::{ExtendRuns, Keepsake, LeaseLost};
use crate::ground::timing;
use crate::names::RunId;
use crate::store::{Finish, RenewReply, Store, StoreError, apart};
use crate::time::BootInstant;

/// The loop goes round at least this often, so that a hang can be told from idleness.
const BEAT: Duration = Duration::from_secs(1);
/// A renewal is given up after this long. Longer than the response time-out, after which it is
/// sent again, so that the store has the time to notice a dead link and to build a new one; an
/// answer that still comes counts.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);

/// What handles ask of the thread.
#[derive(Debug)]
pub(super) enum WatchdogCommand {
    Hold(LeaseId, LeaseSubscriber, Box<Terms>),
    /// The holder renewed the lease itself, with a request sent at this instant.
    Renewed(LeaseId, BootInstant),
    LetGo(LeaseId),
    Finish(Box<PendingRelease>),
}

/// A release, or the end of a claim in doubt, that nobody waits for.
#[derive(Debug)]
pub(super) struct PendingRelease {
    /// The lease that ends with it, if it is held.
    pub(super) lease: Option<LeaseId>,
    pub(super) finish: Finish,
    pub(super) limit: Duration,
    pub(super) until_done: Keepsake,
}

/// Whom to tell about a lease.
#[derive(Debug)]
pub(super) struct LeaseSubscriber {
    pub(super) state: watch::Sender<LeaseState>,
    /// The run whose deadline the guard keeps.
    pub(super) run: Option<RunId>,
    /// Why the lease has not been renewed since it last was.
    pub(super) trouble: watch::Sender<Option<StoreError>>,
    /// For the log.
    pub(super) lock: String,
    /// Dropped with the subscriber.
    pub(super) _while_held: Option<Keepsake>,
    /// It was logged that this lease alone cannot be renewed.
    pub(super) complained: bool,
}

/// When the loop last went round, in nanoseconds since boot.
#[derive(Debug, Default)]
pub(super) struct Heartbeat(AtomicU64);

impl Heartbeat {
    pub(super) fn at(&self) -> BootInstant {
        BootInstant::from_duration(Duration::from_nanos(self.0.load(Ordering::Relaxed)))
    }

    pub(super) fn strike(&self, now: BootInstant) {
        let nanos = u64::try_from(now.to_duration().as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanos, Ordering::Relaxed);
    }
}

struct RenewalResult {
    sent: BootInstant,
    ids: Vec<LeaseId>,
    result: Result<Vec<Result<RenewReply, StoreError>>, StoreError>,
}

enum LoopEvent {
    Time,
    WatchdogCommand(WatchdogCommand),
    RenewalResult(RenewalResult),
    Closed,
}

/// The loop and what it owns. `clock` is the boot clock; tests pass one that they can move.
pub(super) struct RenewalLoop<C> {
    pub(super) store: Arc<dyn Store>,
    pub(super) deadlines: Option<Box<dyn ExtendRuns>>,
    pub(super) commands: mpsc::UnboundedReceiver<WatchdogCommand>,
    pub(super) heartbeat: Arc<Heartbeat>,
    pub(super) clock: C,
    table: LeaseTable,
    /// That renewals fail was said, and none has succeeded since.
    complained: bool,
    subscribers: HashMap<LeaseId, LeaseSubscriber>,
    attempts: JoinSet<RenewalResult>,
    finishing: JoinSet<()>,
}

impl<C: Fn() -> BootInstant> RenewalLoop<C> {
    pub(super) fn new(
        store: Arc<dyn Store>,
        deadlines: Option<Box<dyn ExtendRuns>>,
        commands: mpsc::UnboundedReceiver<WatchdogCommand>,
        heartbeat: Arc<Heartbeat>,
        clock: C,
    ) -> Self {
        Self {
            store,
            deadlines,
            commands,
            heartbeat,
            clock,
            table: LeaseTable::default(),
            complained: false,
            subscribers: HashMap::new(),
            attempts: JoinSet::new(),
            finishing: JoinSet::new(),
        }
    }

    /// Goes on until every handle and every lease is dropped, and what was to be finished is.
    pub(super) async fn run(mut self) {
        loop {
            let event = self.next_event().await;
            let now = (self.clock)();
            self.heartbeat.strike(now);
            // First of all: after a stop of the process an answer may lie ready that came when
            // the lease was already over.
            self.expire(now);
            match event {
                LoopEvent::Time => {}
                LoopEvent::Closed => break,
                LoopEvent::WatchdogCommand(command) => {
                    self.obey(command);
                    while let Ok(command) = self.commands.try_recv() {
                        self.obey(command);
                    }
                    self.expire(now);
                }
                LoopEvent::RenewalResult(answer) => self.take(answer, now),
            }
            for batch in self.table.ask(now) {
                self.send(batch);
            }
        }
        while self.finishing.join_next().await.is_some() {}
    }

    async fn next_event(&mut self) -> LoopEvent {
        let now = (self.clock)();
        let wait = self
            .table
            .next_wake()
            .map_or(BEAT, |wake| wake.since(now).min(BEAT));
        // Every arm is cancel-safe: a timer, `recv` and `join_next`.
        tokio::select! {
            biased;
            command = self.commands.recv() => command.map_or(LoopEvent::Closed, LoopEvent::WatchdogCommand),
            Some(done) = self.attempts.join_next() => done.map_or(LoopEvent::Time, LoopEvent::RenewalResult),
            Some(_) = self.finishing.join_next() => LoopEvent::Time,
            () = tokio::time::sleep(wait) => LoopEvent::Time,
        }
    }

    fn obey(&mut self, command: WatchdogCommand) {
        match command {
            WatchdogCommand::Hold(id, subscriber, terms) => {
                self.table.add(id, *terms);
                self.subscribers.insert(id, subscriber);
            }
            WatchdogCommand::Renewed(id, sent) => {
                self.table.renewed(id, sent);
            }
            WatchdogCommand::LetGo(id) => {
                self.table.remove(id);
                self.subscribers.remove(&id);
            }
            WatchdogCommand::Finish(finishing) => self.finish(*finishing),
        }
    }

    fn finish(&mut self, finishing: PendingRelease) {
        let PendingRelease {
            lease,
            finish,
            limit,
            until_done,
        } = finishing;
        // Until the store has answered, nobody who waits in this process would get the lock.
        let subscriber = lease.and_then(|id| {
            self.table.remove(id);
            self.subscribers.remove(&id)
        });
        let store = Arc::clone(&self.store);
        self.finishing.spawn(async move {
            if let Err(error) = finish_until(&*store, &finish, limit).await {
                tracing::warn!(
                    lock = finish.lock.name,
                    "cannot release the lock: {error}; it expires after its TTL"
                );
            }
            drop((subscriber, until_done));
        });
    }

    fn expire(&mut self, now: BootInstant) {
        for id in self.table.expire(now) {
            self.lose(id, LeaseLost::Expired);
        }
    }

    fn take(&mut self, answer: RenewalResult, now: BootInstant) {
        let RenewalResult { sent, ids, result } = answer;
        let replies = match result {
            Ok(replies) if replies.len() == ids.len() => replies,
            Ok(replies) => {
                tracing::error!(
                    asked = ids.len(),
                    answered = replies.len(),
                    "the store returned a different number of renewals than requested"
                );
                return self.table.failed(now, sent, &ids, spread());
            }
            Err(error) => {
                self.complain(ids.len(), &error);
                for id in &ids {
                    self.note(*id, &error);
                }
                return self.table.failed(now, sent, &ids, spread());
            }
        };
        self.complained = false;
        let (mut answered, mut replied, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (id, reply) in ids.into_iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    answered.push(id);
                    replied.push(reply);
                }
                Err(error) => {
                    self.complain_of(id, &error);
                    self.note(id, &error);
                    failed.push(id);
                }
            }
        }
        self.table.failed(now, sent, &failed, spread());
        let changes = self.table.answered(sent, &answered, &replied);
        self.tell_guard(&changes.extended);
        for (id, ends) in changes.extended {
            if let Some(subscriber) = self.subscribers.get(&id) {
                subscriber
                    .state
                    .send_if_modified(|state| state.extend(ends));
                subscriber.trouble.send_replace(None);
            }
        }
        for (id, why) in changes.lost {
            self.lose(id, why);
        }
    }

    /// Keeps the reason for the holder, who records it if the lease expires.
    fn note(&self, id: LeaseId, error: &StoreError) {
        if let Some(subscriber) = self.subscribers.get(&id) {
            subscriber.trouble.send_replace(Some(error.clone()));
        }
    }

    /// One lease cannot be renewed, and the others can. Logged once for each.
    fn complain_of(&mut self, id: LeaseId, error: &StoreError) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut subscriber.complained, true) {
            tracing::error!(
                lock = subscriber.lock,
                "cannot renew this lease: {error}; retrying until it expires"
            );
        }
    }

    /// Aloud once an outage: renewals are tried again several times a second.
    fn complain(&mut self, leases: usize, error: &StoreError) {
        if self.complained {
            tracing::debug!(leases, "cannot renew leases yet: {error}");
        } else {
            self.complained = true;
            tracing::warn!(leases, "cannot renew leases: {error}; retrying");
        }
    }

    fn tell_guard(&self, extended: &[(LeaseId, BootInstant)]) {
        let Some(deadlines) = &self.deadlines else {
            return;
        };
        let runs: Vec<(RunId, BootInstant)> = extended
            .iter()
            .filter_map(|(id, ends)| {
                let run = self.subscribers.get(id)?.run.clone()?;
                Some((run, timing::kill_at(*ends)))
            })
            .collect();
        if runs.is_empty() {
            return;
        }
        if let Err(error) = deadlines.extend(&runs) {
            tracing::error!("cannot send renewed deadlines to the guard: {error}");
        }
    }

    fn lose(&mut self, id: LeaseId, why: LeaseLost) {
        if let Some(subscriber) = self.subscribers.remove(&id) {
            // The holder knows what it means and says so: this may be a renewal that crossed the
            // release on its way.
            tracing::debug!(lock = subscriber.lock, "{why}");
            subscriber.state.send_if_modified(|state| state.lose(why));
        }
    }

    fn send(&mut self, batch: Batch) {
        let mut places: HashMap<u64, Batch> = HashMap::new();
        for (id, renewal) in batch.ids.into_iter().zip(batch.renewals) {
            let part = places
                .entry(self.store.place(&renewal.lock))
                .or_insert_with(|| Batch {
                    sent: batch.sent,
                    ids: Vec::new(),
                    renewals: Vec::new(),
                });
            part.ids.push(id);
            part.renewals.push(renewal);
        }
        for part in places.into_values() {
            self.send_part(part);
        }
    }

    fn send_part(&mut self, batch: Batch) {
        let store = Arc::clone(&self.store);
        let Batch {
            sent,
            ids,
            renewals,
        } = batch;
        self.attempts.spawn(async move {
            let renew = apart(renewals, |part| {
                let store = Arc::clone(&store);
                async move { store.renew(&part).await }
            });
            let renewed = tokio::time::timeout(ATTEMPT_LIMIT, renew).await;
            let result = renewed.unwrap_or_else(|_| {
                let text = format!("no reply to a renewal within {ATTEMPT_LIMIT:?}");
                Err(StoreError::unreachable(text))
            });
            RenewalResult { sent, ids, result }
        });
    }
}

fn spread() -> u8 {
    let mut byte = [0_u8];
    // Without randomness the retries of several hosts fall together, which is no harm.
    let _ = getrandom::fill(&mut byte);
    byte[0]
}
