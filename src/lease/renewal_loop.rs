//! The watchdog's loop: it sleeps until a renewal is due, sends it to the store, and reports to the
//! guard and the holders.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::command::{BackgroundFinish, LeaseFields, LeaseState, LeaseSubscriber, WatchdogCommand};
use super::lost::LeaseLost;
use super::table::{Batch, LeaseId, LeaseTable};
use crate::ground::tasks::SpawnBoxed as _;
use crate::ground::timing;
use crate::names::RunId;
use crate::store::{RenewReply, Store, StoreError, apart, deliver};
use crate::time::{BootInstant, Timestamp};

/// The loop wakes at least this often, so that a hang can be distinguished from idleness.
const BEAT: Duration = Duration::from_secs(1);
/// A renewal is given up after this long. Longer than the response time-out, after which it is
/// sent again: the store has time to notice a dead link and to build a new one, and a reply that
/// still arrives counts.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);

/// Passes on the new ends of renewed leases, so that the processes which run under them are killed
/// in time. Implemented by the guard's client.
///
/// The watchdog thread calls it directly: a busy runtime elsewhere then cannot let a job die whose
/// lease is valid.
pub trait ExtendRuns: Send + std::fmt::Debug {
    /// Lets each run continue until the instant that is given with it.
    fn extend(&self, runs: &[(RunId, BootInstant)]) -> io::Result<()>;
}

/// When the loop last woke, in nanoseconds since boot.
#[derive(Debug, Default)]
pub(super) struct Heartbeat(AtomicU64);

impl Heartbeat {
    pub(super) fn at(&self) -> BootInstant {
        BootInstant::from_duration(Duration::from_nanos(self.0.load(Ordering::Relaxed)))
    }

    pub(super) fn beat(&self, now: BootInstant) {
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

/// The loop and its state. `clock` is the boot clock; tests pass one that they can move.
pub(super) struct RenewalLoop<C> {
    pub(super) store: Arc<dyn Store>,
    pub(super) deadlines: Option<Box<dyn ExtendRuns>>,
    pub(super) commands: mpsc::UnboundedReceiver<WatchdogCommand>,
    pub(super) heartbeat: Arc<Heartbeat>,
    pub(super) clock: C,
    table: LeaseTable,
    /// Whether it was logged that renewals fail, and none has succeeded since.
    is_failure_logged: bool,
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
            is_failure_logged: false,
            subscribers: HashMap::new(),
            attempts: JoinSet::new(),
            finishing: JoinSet::new(),
        }
    }

    /// Runs until every handle and every lease is dropped and every release is delivered or given
    /// up.
    pub(super) async fn run(mut self) {
        loop {
            let event = self.next_event().await;
            let now = (self.clock)();
            self.heartbeat.beat(now);
            // First: after a stop of the process a reply may be waiting that came after the lease
            // had ended.
            self.expire(now);
            match event {
                LoopEvent::Time => {}
                LoopEvent::Closed => break,
                LoopEvent::WatchdogCommand(command) => {
                    self.apply(command);
                    while let Ok(command) = self.commands.try_recv() {
                        self.apply(command);
                    }
                    self.expire(now);
                }
                LoopEvent::RenewalResult(result) => self.finish_renewal(result, now),
            }
            for batch in self.table.due(now) {
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

    fn apply(&mut self, command: WatchdogCommand) {
        match command {
            WatchdogCommand::Hold(id, subscriber, lease) => {
                self.table.add(id, *lease);
                self.subscribers.insert(id, subscriber);
            }
            WatchdogCommand::Renewed(id, sent) => {
                self.table.renewed(id, sent);
            }
            WatchdogCommand::LetGo(id) => {
                self.table.remove(id);
                self.subscribers.remove(&id);
            }
            WatchdogCommand::Finish(pending) => self.finish(*pending),
        }
    }

    fn finish(&mut self, pending: BackgroundFinish) {
        let BackgroundFinish {
            lease,
            finish,
            limit,
            until_done,
        } = pending;
        // Kept until the store has replied: before that, a task of this process that waits for the
        // lock would not be granted it.
        let subscriber = lease.and_then(|id| {
            self.table.remove(id);
            self.subscribers.remove(&id)
        });
        let store = Arc::clone(&self.store);
        self.finishing.spawn_boxed(async move {
            if let Err(error) = deliver(&*store, &finish, limit).await {
                tracing::warn!(
                    job = finish.job.as_ref().map(tracing::field::display),
                    holder = finish.token.redacted(),
                    lock = finish.lock.name,
                    "cannot release the lock: {error}; it expires after its TTL"
                );
            }
            drop((subscriber, until_done));
        });
    }

    fn expire(&mut self, now: BootInstant) {
        for id in self.table.expire(now) {
            self.mark_lost(id, LeaseLost::Expired);
        }
    }

    fn finish_renewal(&mut self, result: RenewalResult, now: BootInstant) {
        let RenewalResult { sent, ids, result } = result;
        let replies = match result {
            Ok(replies) if replies.len() == ids.len() => replies,
            Ok(replies) => {
                tracing::error!(
                    asked = ids.len(),
                    answered = replies.len(),
                    "the store returned a different number of renewals than requested, which is a bug: please report it with this log; retrying"
                );
                return self.table.failed(now, sent, &ids, spread());
            }
            Err(error) => {
                self.log_failure(&ids, &error);
                for id in &ids {
                    self.keep_trouble(*id, &error);
                }
                return self.table.failed(now, sent, &ids, spread());
            }
        };
        self.is_failure_logged = false;
        let (mut replied, mut values, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (id, reply) in ids.into_iter().zip(replies) {
            match reply {
                Ok(reply) => {
                    replied.push(id);
                    values.push(reply);
                }
                Err(error) => {
                    self.log_failure_of(id, &error);
                    self.keep_trouble(id, &error);
                    failed.push(id);
                }
            }
        }
        self.table.failed(now, sent, &failed, spread());
        let changes = self.table.replied(sent, &replied, &values);
        for (id, ends) in &changes.extended {
            if let Some(subscriber) = self.subscribers.get(id) {
                subscriber
                    .state
                    .send_if_modified(|state| state.extend(*ends));
                subscriber.trouble.send_replace(None);
            }
        }
        // After the state: the guard ignores this for a process that it has not started yet, and who
        // starts one then reads the state.
        self.extend_in_guard(&changes.extended);
        for (id, why) in changes.lost {
            self.mark_lost(id, why);
        }
    }

    /// Keeps the reason for the holder, which records it if the lease expires.
    fn keep_trouble(&self, id: LeaseId, error: &StoreError) {
        if let Some(subscriber) = self.subscribers.get(&id) {
            subscriber.trouble.send_replace(Some(error.clone()));
        }
    }

    /// Logs, once for each lease, that it alone cannot be renewed.
    fn log_failure_of(&mut self, id: LeaseId, error: &StoreError) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut subscriber.is_failure_logged, true) {
            let LeaseFields {
                lock,
                run_id,
                job,
                scheduled_at,
            } = &subscriber.fields;
            tracing::error!(
                job = job.as_ref().map(tracing::field::display),
                %run_id,
                scheduled_at = scheduled_at.map(tracing::field::display),
                lock,
                "cannot renew this lease: {error}; retrying until it expires"
            );
        }
    }

    /// Logs a warning once an outage: renewals are retried several times a second.
    fn log_failure(&mut self, ids: &[LeaseId], error: &StoreError) {
        let leases = ids.len();
        if std::mem::replace(&mut self.is_failure_logged, true) {
            tracing::debug!(leases, "cannot renew leases yet: {error}");
            return;
        }
        let held = ids.iter().filter_map(|id| self.subscribers.get(id));
        let (ended, living): (Vec<_>, Vec<_>) =
            held.partition(|lease| lease.run_ended.load(Ordering::Relaxed));
        if !living.is_empty() {
            let of = leases_of(&living);
            tracing::warn!(
                leases = living.len(),
                "cannot renew {of}: {error}; retrying. {}{}",
                what_follows(&living),
                first_end(&living)
            );
        }
        if !ended.is_empty() {
            tracing::warn!(
                leases = ended.len(),
                "{}: {error}; retrying. If a lease expires first, another host may record its run as \
                 interrupted until the result arrives",
                results_of(&ended)
            );
        }
    }

    fn extend_in_guard(&self, extended: &[(LeaseId, BootInstant)]) {
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

    fn mark_lost(&mut self, id: LeaseId, why: LeaseLost) {
        if let Some(subscriber) = self.subscribers.remove(&id) {
            // Only at debug: this may be the reply to a renewal that crossed the release on its
            // way, and the holder logs what the loss means.
            let LeaseFields { lock, run_id, .. } = &subscriber.fields;
            tracing::debug!(%run_id, lock, "{why}");
            subscriber
                .state
                .send_if_modified(|state| state.mark_lost(why));
        }
    }

    fn send(&mut self, batch: Batch) {
        let mut places: HashMap<u64, Batch> = HashMap::new();
        for (id, renewal) in batch.ids.into_iter().zip(batch.renewals) {
            let part = places
                .entry(self.store.shard(&renewal.grant.lock))
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
        self.attempts.spawn_boxed(async move {
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

/// `the lease of backup`; of many only the first are named.
fn leases_of(leases: &[&LeaseSubscriber]) -> String {
    match leases {
        [one] => format!("the lease of {}", one.fields.label()),
        many => format!("the leases of {}", named(many)),
    }
}

/// What happens when these leases are not renewed: only of some the guard kills the run.
fn what_follows(leases: &[&LeaseSubscriber]) -> &'static str {
    let guarded = leases.iter().filter(|lease| lease.run.is_some()).count();
    if guarded == 0 {
        "Each is lost when it expires"
    } else if guarded == leases.len() {
        "Each run is killed before its lease expires"
    } else {
        "Each run without on_lost: continue is killed before its lease expires"
    }
}

/// `the result of the run of backup, which has ended, waits for the store`.
fn results_of(leases: &[&LeaseSubscriber]) -> String {
    match leases {
        [one] => format!(
            "the result of the run of {}, which has ended, waits for the store",
            one.fields.label()
        ),
        many => format!(
            "the results of {} runs, which have ended, wait for the store ({})",
            many.len(),
            named(many)
        ),
    }
}

fn named(leases: &[&LeaseSubscriber]) -> String {
    const SHOWN: usize = 3;
    let names: Vec<&str> = (leases.iter().take(SHOWN))
        .map(|lease| lease.fields.label())
        .collect();
    match leases.len().saturating_sub(SHOWN) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// When the first of these leases ends, by this host's clock.
fn first_end(leases: &[&LeaseSubscriber]) -> String {
    let ends = leases
        .iter()
        .filter_map(|lease| match *lease.state.borrow() {
            LeaseState::Held { ends } => Some(ends),
            LeaseState::Lost(_) => None,
        });
    let Some(first) = ends.min() else {
        return String::new();
    };
    let at = Timestamp::now().plus(first.remaining());
    let at = Timestamp::from_secs(at.millis().div_euclid(1_000));
    match leases.len() {
        1 => format!("; the lease expires at {at}"),
        _ => format!("; the first lease expires at {at}"),
    }
}

fn spread() -> u8 {
    let mut byte = [0_u8];
    // Without randomness, several hosts retry at the same time, which does no harm.
    let _ = getrandom::fill(&mut byte);
    byte[0]
}
