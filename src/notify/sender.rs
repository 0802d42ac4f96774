//! One thread a target: it waits for messages, tries each up to three times, and ends in bounded
//! time. A target that hangs delays its own thread and nothing else.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::TRY;
use super::deliver::{Again, SendFailure};
use super::notice::Notice;
use super::notification::Notification;
use super::outbox::{Next, Outbox, Pace};
use super::text;

/// How many times a message is tried.
const TRIES: u32 = 3;
/// The pauses between tries.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// The longest pause that a receiver may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often undelivered messages are logged while a target is down.
const REPORT_AGAIN: Duration = Duration::from_secs(300);
/// The pause between tries of a daemon that ends.
const SHORT_PAUSE: Duration = Duration::from_millis(250);

/// What a worker sends, and in which order.
pub(super) trait Queue: Send + 'static {
    /// One thing to send.
    type Item: Send;

    /// What to do now.
    fn next(&mut self, now: Instant, pace: Pace) -> Next<Self::Item>;
    /// How many events wait.
    fn len(&self) -> u64;
    /// How many events an item is about.
    fn events(item: &Self::Item) -> u64;
    /// What it is, for the log.
    fn describe(item: &Self::Item) -> String;
    /// It was given up on.
    fn gave_up(&mut self, item: &Self::Item);
}

impl Queue for Outbox {
    type Item = Notification;

    fn next(&mut self, now: Instant, pace: Pace) -> Next<Notification> {
        Self::next(self, now, pace)
    }

    fn len(&self) -> u64 {
        Self::len(self)
    }

    fn events(message: &Notification) -> u64 {
        message.events()
    }

    fn describe(message: &Notification) -> String {
        text::headline(message)
    }

    fn gave_up(&mut self, message: &Notification) {
        Self::gave_up(self, message);
    }
}

/// A thread that sends what a queue holds.
#[derive(Debug)]
pub(super) struct Sender<Q> {
    name: String,
    shared: Arc<SenderShared<Q>>,
}

#[derive(Debug)]
struct SenderShared<Q> {
    state: Mutex<SenderState<Q>>,
    changed: Condvar,
}

#[derive(Debug)]
struct SenderState<Q> {
    queue: Q,
    /// How many events are being sent.
    in_hand: u64,
    /// Set once the daemon ends: until when messages may be sent.
    ending: Option<Instant>,
    ended: bool,
}

impl<Q: Queue> Sender<Q> {
    /// Starts the thread. `name` is the target's, for the log.
    pub(super) fn start(
        name: String,
        queue: Q,
        deliver: impl FnMut(&Q::Item, Duration) -> Result<(), SendFailure> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(SenderShared {
            state: Mutex::new(SenderState {
                queue,
                in_hand: 0,
                ending: None,
                ended: false,
            }),
            changed: Condvar::new(),
        });
        let thread = SenderThread {
            name: name.clone(),
            shared: Arc::clone(&shared),
            deliver,
            outage: TargetOutage::default(),
        };
        std::thread::Builder::new()
            .name("notify".to_owned())
            .spawn(move || thread.run())?;
        Ok(Self { name, shared })
    }

    /// Changes the queue; never waits for a message that is being sent.
    pub(super) fn with(&self, change: impl FnOnce(&mut Q)) {
        change(&mut self.shared.lock().queue);
        self.shared.changed.notify_all();
    }

    /// Asks the thread to send what it has until then, and to end.
    pub(super) fn end(&self, until: Instant) {
        self.shared.lock().ending = Some(until);
        self.shared.changed.notify_all();
    }

    /// Waits until the thread has ended, at most until `until`. Logs what was not sent.
    pub(super) fn wait(&self, until: Instant) {
        let mut state = self.shared.lock();
        while !state.ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.wait(state, left);
        }
        let name = &self.name;
        match state.queue.len() + state.in_hand {
            0 => {}
            1 => tracing::warn!("1 notification to {name} was not delivered in time"),
            n => {
                tracing::warn!("{n} notifications to {name} were not delivered in time");
            }
        }
    }
}

impl Sender<Outbox> {
    /// Takes an event to send.
    pub(super) fn push(&self, notice: Arc<Notice>) {
        self.with(|outbox| outbox.push(notice));
    }
}

impl<Q> SenderShared<Q> {
    fn lock(&self) -> MutexGuard<'_, SenderState<Q>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, SenderState<Q>>,
        limit: Duration,
    ) -> MutexGuard<'a, SenderState<Q>> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// What the log reports of a target that accepts nothing: its first failure, then one every five
/// minutes, and its end.
#[derive(Debug, Default)]
struct TargetOutage {
    /// How many messages failed since the last success.
    failed: u64,
    /// When a failure was last logged, and how many had failed by then.
    reported: Option<(Instant, u64)>,
}

impl TargetOutage {
    /// Notes a failure. If it is to be logged, returns how many others were not logged before it.
    fn failed(&mut self, now: Instant) -> Option<u64> {
        self.failed += 1;
        let before = match self.reported {
            Some((at, _)) if now.saturating_duration_since(at) < REPORT_AGAIN => return None,
            Some((_, count)) => count,
            None => 0,
        };
        self.reported = Some((now, self.failed));
        Some(self.failed - before - 1)
    }

    /// Notes a success. Returns how many messages had failed before it, if any.
    fn succeeded(&mut self) -> Option<u64> {
        let before = std::mem::take(self);
        (before.failed > 0).then_some(before.failed)
    }
}

struct SenderThread<Q, D> {
    name: String,
    shared: Arc<SenderShared<Q>>,
    deliver: D,
    outage: TargetOutage,
}

impl<Q: Queue, D: FnMut(&Q::Item, Duration) -> Result<(), SendFailure>> SenderThread<Q, D> {
    fn run(mut self) {
        while let Some(item) = self.take() {
            let sent = self.send(&item);
            self.report(&item, &sent);
            let mut state = self.shared.lock();
            if sent.is_err() {
                state.queue.gave_up(&item);
            }
            state.in_hand = 0;
        }
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
    }

    fn report(&mut self, item: &Q::Item, sent: &Result<(), (String, u32)>) {
        let (name, what) = (&self.name, Q::describe(item));
        let Err((why, tries)) = sent else {
            tracing::debug!("notified {name}: {what}");
            match self.outage.succeeded() {
                None => {}
                Some(1) => tracing::info!("{name} accepts messages again; 1 was not delivered"),
                Some(n) => tracing::info!("{name} accepts messages again; {n} were not delivered"),
            }
            return;
        };
        let s = if *tries == 1 { "y" } else { "ies" };
        let text = format!("cannot notify {name}: {why}; gave up after {tries} tr{s}: {what}");
        match self.outage.failed(Instant::now()) {
            None => tracing::debug!("{text}"),
            Some(0) => tracing::error!("{text}"),
            Some(n) => tracing::error!("{text} (and {n} more since the last report)"),
        }
    }

    /// Waits for the next item; `None` once the daemon ends and nothing is left, or no time.
    fn take(&self) -> Option<Q::Item> {
        let mut state = self.shared.lock();
        loop {
            let now = Instant::now();
            if state.ending.is_some_and(|until| now >= until) {
                return None;
            }
            let pace = match state.ending {
                Some(_) => Pace::Closing,
                None => Pace::Steady,
            };
            let limit = match state.queue.next(now, pace) {
                Next::Send(item) => {
                    state.in_hand = Q::events(&item);
                    return Some(item);
                }
                Next::Idle if pace == Pace::Closing => return None,
                Next::Idle => Duration::from_secs(3600),
                Next::WaitUntil(at) => at.saturating_duration_since(now),
            };
            state = self.shared.wait(state, limit);
        }
    }

    /// Sends an item; the error has the last reason and the number of tries.
    fn send(&mut self, item: &Q::Item) -> Result<(), (String, u32)> {
        let mut tries = 0;
        loop {
            let limit = self.limit();
            if limit.is_zero() {
                return Err(("the daemon ends".to_owned(), tries));
            }
            tries += 1;
            let SendFailure { why, again } = match (self.deliver)(item, limit) {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            let pause = match again {
                Again::Never => return Err((why, tries)),
                _ if tries == TRIES => return Err((why, tries)),
                Again::Later => PAUSES[usize::try_from(tries - 1).unwrap_or(1).min(1)],
                Again::After(pause) => pause.min(LONGEST_PAUSE),
            };
            tracing::debug!("try {tries} to notify {} failed: {why}", self.name);
            self.pause(pause);
        }
    }

    /// How long the next try may take.
    fn limit(&self) -> Duration {
        let ending = self.shared.lock().ending;
        let left = ending.map(|until| until.saturating_duration_since(Instant::now()));
        left.map_or(TRY, |left| left.min(TRY))
    }

    /// Waits between two tries; shortly if the daemon ends.
    fn pause(&self, pause: Duration) {
        let began = Instant::now();
        let mut state = self.shared.lock();
        loop {
            let pause = match state.ending {
                Some(_) => pause.min(SHORT_PAUSE),
                None => pause,
            };
            let left = pause.saturating_sub(began.elapsed());
            if left.is_zero() {
                return;
            }
            state = self.shared.wait(state, left);
        }
    }
}

#[cfg(test)]
mod tests;
