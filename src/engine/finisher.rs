//! Verdicts on their way to the store: tried at once, then again in order until they arrive.
//!
//! A run's lease stays under renewal until its verdict is answered or the lease ends, so that no
//! other run begins between the end of a job and its record. What is undelivered when the daemon
//! ends is handed back for the [spool](super::spool).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::core::{Event, JobIx};
use super::message::Message;
use super::run::random;
use super::spool::Spool;
use crate::lease::Lease;
use crate::store::{Finish, FinishReply, Outcome, Store, StoreError};

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// A verdict, or the cancellation of a claim, to be delivered.
#[derive(Debug)]
pub(crate) struct Parcel {
    /// What to say.
    pub(crate) finish: Finish,
    /// Held until then.
    pub(crate) lease: Option<Lease>,
    /// The job whose lane waits for it.
    pub(crate) job: Option<JobIx>,
    /// Whether it is in the spool as well.
    pub(crate) spooled: bool,
}

enum Order {
    Parcel(Box<Parcel>),
    Retry,
    Close(Instant, oneshot::Sender<Vec<Finish>>),
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
        notices: mpsc::UnboundedSender<Message>,
    ) -> Self {
        let (inbox, orders) = mpsc::unbounded_channel();
        let (count, outstanding) = watch::channel(0);
        let task = Task {
            store,
            spool,
            notices,
            count,
            backlog: BTreeMap::new(),
            tries: JoinSet::new(),
            under_way: BTreeMap::new(),
            retrying: false,
            next_number: 0,
            spooled: 0,
            delay: FIRST_DELAY,
            retry_at: Instant::now(),
        };
        tokio::spawn(task.run(orders));
        Self { inbox, outstanding }
    }

    /// Takes a parcel; never waits.
    pub(crate) fn send(&self, parcel: Parcel) {
        // The task ends only when the process does.
        let _ = self.inbox.send(Order::Parcel(Box::new(parcel)));
    }

    /// The store answers again: no need to sit out a delay.
    pub(crate) fn retry_now(&self) {
        let _ = self.inbox.send(Order::Retry);
    }

    /// Waits until everything is delivered, at most `limit`.
    pub(crate) async fn idle(&self, limit: Duration) {
        let mut outstanding = self.outstanding.clone();
        let idle = outstanding.wait_for(|count| *count == 0);
        let _ = tokio::time::timeout(limit, idle).await;
    }

    /// Delivers what can be delivered within `limit` and answers the rest.
    pub(crate) async fn close(&self, limit: Duration) -> Vec<Finish> {
        let (answer, rest) = oneshot::channel();
        let close = Order::Close(Instant::now() + limit, answer);
        if self.inbox.send(close).is_err() {
            return Vec::new();
        }
        rest.await.unwrap_or_default()
    }
}

struct Try {
    number: u64,
    parcel: Box<Parcel>,
    again: bool,
    result: Result<FinishReply, StoreError>,
}

struct Task {
    store: Arc<dyn Store>,
    spool: Spool,
    notices: mpsc::UnboundedSender<Message>,
    /// How many parcels are in hand.
    count: watch::Sender<usize>,
    /// Undelivered, in order.
    backlog: BTreeMap<u64, Box<Parcel>>,
    tries: JoinSet<Try>,
    /// What is being tried.
    under_way: BTreeMap<u64, Finish>,
    /// Whether the first of the backlog is being tried.
    retrying: bool,
    next_number: u64,
    /// How many of the parcels in hand are in the spool.
    spooled: usize,
    delay: Duration,
    retry_at: Instant,
}

impl Task {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut closing: Option<(Instant, oneshot::Sender<Vec<Finish>>)> = None;
        loop {
            let limit = closing.as_ref().map(|(limit, _)| *limit);
            let done = self.backlog.is_empty() && self.tries.is_empty();
            if limit.is_some_and(|limit| done || Instant::now() >= limit) {
                break;
            }
            let wake = limit.map_or(self.retry_at, |limit| limit.min(self.retry_at));
            // Every arm is cancel-safe: a channel, a join set, a timer.
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Parcel(parcel)) => self.take(parcel),
                    Some(Order::Retry) => self.retry_at = Instant::now(),
                    Some(Order::Close(limit, answer)) => {
                        self.retry_at = Instant::now();
                        closing = Some((limit, answer));
                    }
                    None => return,
                },
                Some(tried) = self.tries.join_next() => match tried {
                    Ok(tried) => self.tried(tried),
                    Err(error) => tracing::error!("delivering a verdict broke off: {error}"),
                },
                () = tokio::time::sleep_until(wake), if !self.backlog.is_empty() || limit.is_some() => {
                    self.retry();
                }
            }
        }
        if let Some((_, answer)) = closing {
            // A try that is under way may or may not have arrived; once more does no harm.
            self.tries.abort_all();
            let mut rest = self.under_way;
            rest.extend(
                self.backlog
                    .into_iter()
                    .map(|(n, parcel)| (n, parcel.finish)),
            );
            let _ = answer.send(rest.into_values().collect());
        }
    }

    fn take(&mut self, parcel: Box<Parcel>) {
        let number = self.next_number;
        self.next_number += 1;
        self.spooled += usize::from(parcel.spooled);
        self.count.send_modify(|count| *count += 1);
        // What goes to the same part of the store keeps its order.
        let place = self.store.place(&parcel.finish.lock);
        let waits =
            (self.backlog.values()).any(|before| self.store.place(&before.finish.lock) == place);
        if waits {
            self.backlog.insert(number, parcel);
        } else {
            self.attempt(number, parcel, false);
        }
    }

    fn attempt(&mut self, number: u64, parcel: Box<Parcel>, again: bool) {
        let store = Arc::clone(&self.store);
        self.under_way.insert(number, parcel.finish.clone());
        self.tries.spawn(async move {
            let result = store.finish(&parcel.finish).await;
            Try {
                number,
                parcel,
                again,
                result,
            }
        });
    }

    /// Tries the oldest of the backlog.
    fn retry(&mut self) {
        self.release_lost();
        if self.retrying {
            self.retry_at = Instant::now() + LONGEST_DELAY;
            return;
        }
        if let Some((number, parcel)) = self.backlog.pop_first() {
            self.retrying = true;
            self.attempt(number, parcel, true);
        } else {
            self.retry_at = Instant::now() + LONGEST_DELAY;
        }
    }

    /// A lease that has ended hinders nobody any more: its lane may go on.
    fn release_lost(&mut self) {
        for parcel in self.backlog.values_mut() {
            if parcel
                .lease
                .as_ref()
                .is_some_and(|l| l.validity().is_zero())
            {
                parcel.lease = None;
                if let Some(job) = parcel.job.take() {
                    let _ = self.notices.send(Message::Core(Event::RunClosed { job }));
                }
            }
        }
    }

    fn tried(&mut self, tried: Try) {
        let Try {
            number,
            parcel,
            again,
            result,
        } = tried;
        self.retrying = self.retrying && !again;
        self.under_way.remove(&number);
        match result {
            Ok(reply) => {
                self.delay = FIRST_DELAY;
                self.retry_at = Instant::now();
                self.delivered(*parcel, reply);
            }
            Err(error) => {
                // One that is refused, or whose server is away, must not hold up the others.
                let number = if matches!(error, StoreError::Unreachable(_)) {
                    number
                } else {
                    self.next_number += 1;
                    self.next_number - 1
                };
                self.backlog.insert(number, parcel);
                self.retry_at = Instant::now() + self.delay.mul_f64(0.5 + random() / 2.0);
                if again {
                    self.delay = (self.delay * 2).min(LONGEST_DELAY);
                }
                let _ = self.notices.send(Message::StoreFailed(error));
            }
        }
    }

    fn delivered(&mut self, parcel: Parcel, reply: FinishReply) {
        let Parcel {
            finish,
            lease,
            job,
            spooled,
        } = parcel;
        if let Some(record) = &finish.record
            && reply == FinishReply::Lost
            && record.fence.is_some()
            && record.outcome != Outcome::LeaseLost
        {
            tracing::warn!(
                job = %record.job,
                "the lease was over before the run's verdict reached the store"
            );
        }
        drop(lease);
        self.count.send_modify(|count| *count -= 1);
        if let Some(job) = job {
            let _ = self.notices.send(Message::Core(Event::RunClosed { job }));
        }
        if spooled {
            self.spooled -= 1;
            if self.spooled == 0 {
                self.spool.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests;
