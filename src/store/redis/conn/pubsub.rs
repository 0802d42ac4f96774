//! Messages about released locks and returned occurrences: a second connection, in subscribed mode, that
//! all waiting tasks share.
//!
//! Messages only shorten waits. A waiting task asks the store again after [`LONGEST_WAIT`] at the
//! latest, or every [`POLL`] if the server does not allow to subscribe. A lost message therefore delays
//! a task, and breaks nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tracing::warn;

use super::connect::connect;
use super::hello::Part;
use crate::ground::tasks;
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::failure::RedisFailure;
use crate::store::{RedisSettings, Returned, Seen};

/// The longest wait for a message.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How often tasks ask the store while they cannot subscribe.
const POLL: Duration = Duration::from_secs(1);

/// For this long after the subscription, and after each message, the next message may have been missed:
/// the store may have executed a claim before the message and replied after it.
const FRESH: Duration = Duration::from_secs(2);

/// The longest wait on a channel during [`FRESH`].
const FRESH_WAIT: Duration = Duration::from_millis(200);

/// A channel that no task has used for this long is unsubscribed.
const IDLE: Duration = Duration::from_secs(60);

/// How often the connection is checked and idle channels are unsubscribed.
const TICK: Duration = Duration::from_secs(5);

/// How many messages are kept for tasks that have not read them yet.
const LATEST: usize = 64;

/// Whether the text of a message on the channel matters. On the channel of a lock it does not.
fn has_text(channel: &str) -> bool {
    channel.ends_with(":returned")
}

/// Names the servers on which messages are received. Any of them will do.
pub(in crate::store::redis) trait PubSubEndpoints:
    Send + Sync + std::fmt::Debug
{
    /// Returns the servers as they are known now.
    fn endpoints(&self) -> Endpoints;
}

/// Servers on which messages are received.
#[derive(Debug)]
pub(in crate::store::redis) struct Endpoints {
    /// In the order in which to try them.
    pub(in crate::store::redis) servers: Vec<RedisSettings>,
    /// The role that they must have.
    pub(in crate::store::redis) part: Part,
}

/// A new connection for messages.
struct NewSubscriber {
    connection: MultiplexedConnection,
    /// The URL of its server, without password.
    shown: String,
    pushes: UnboundedReceiver<PushInfo>,
}

#[derive(Debug)]
pub(in crate::store::redis) struct Listener {
    endpoints: Arc<dyn PubSubEndpoints>,
    channels: Mutex<Channels>,
    /// Held while connecting or subscribing, so that it is done once.
    changing: tokio::sync::Mutex<()>,
    has_warned: AtomicBool,
}

#[derive(Debug, Default)]
struct Channels {
    connection: Option<MultiplexedConnection>,
    /// The URL of the server, without password.
    shown: String,
    generation: u64,
    known: HashMap<String, Subscription>,
}

#[derive(Debug)]
struct Subscription {
    /// Counts the messages. It is closed when the connection ends.
    releases: watch::Sender<u64>,
    /// The newest messages, if their texts matter.
    latest: VecDeque<String>,
    /// When the channel was subscribed or the last message arrived.
    eventful: Instant,
    used: Instant,
}

impl Listener {
    pub(in crate::store::redis) fn new(endpoints: Arc<dyn PubSubEndpoints>) -> Arc<Self> {
        Arc::new(Self {
            endpoints,
            channels: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            has_warned: AtomicBool::new(false),
        })
    }

    /// Waits for a message on the channel, at most `limit` and often less. Returns at once after it has
    /// subscribed to the channel, because the message may have come before.
    pub(in crate::store::redis) async fn wait(self: &Arc<Self>, channel: &str, limit: Duration) {
        if let Some((mut releases, longest)) = self.enter(channel) {
            // The caller asks the store again in either case.
            let _ = tokio::time::timeout(limit.min(longest), releases.changed()).await;
            return;
        }
        match tokio::time::timeout(limit, self.subscribe(channel)).await {
            Ok(Ok(())) => self.has_warned.store(false, Ordering::Relaxed),
            Ok(Err(failure)) => {
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    warn!(
                        error = failure.text(),
                        "cannot subscribe to lock releases; polling every {POLL:?} instead"
                    );
                }
                tokio::time::sleep(limit.min(POLL)).await;
            }
            Err(_) => {}
        }
    }

    /// Subscribes to a channel until the returned receiver is dropped. The receiver changes with each
    /// message and closes with the connection.
    pub(super) async fn messages(
        self: &Arc<Self>,
        channel: &str,
    ) -> Result<watch::Receiver<u64>, RedisFailure> {
        loop {
            if let Some((messages, _)) = self.enter(channel) {
                return Ok(messages);
            }
            self.subscribe(channel).await?;
        }
    }

    /// Returns the servers on which messages are received, in the order in which they are tried.
    pub(in crate::store::redis) fn endpoints(&self) -> Endpoints {
        self.endpoints.endpoints()
    }

    /// Waits until a message on the channel names jobs after `seen`, at most `limit`. Returns
    /// [`Returned::Any`] if a message may have been missed.
    pub(in crate::store::redis) async fn returned(
        self: &Arc<Self>,
        channel: &str,
        seen: &mut Seen,
        limit: Duration,
    ) -> Result<Returned, RedisFailure> {
        let is_empty = |news: &Option<(Returned, _)>| matches!(news, Some((Returned::Jobs(jobs), _)) if jobs.is_empty());
        let mut news = self.since(channel, seen);
        if is_empty(&news)
            && let Some((_, mut releases)) = news
        {
            // If it closes, the connection has ended and the channel is gone.
            let _ = tokio::time::timeout(limit, releases.changed()).await;
            news = self.since(channel, seen);
        }
        if let Some((returned, _)) = news {
            return Ok(returned);
        }
        let subscribed = tokio::time::timeout(limit, self.subscribe(channel)).await;
        subscribed.unwrap_or_else(|_| {
            let text = "the subscription was not confirmed in time";
            Err(RedisFailure::unreachable(text.to_owned()))
        })?;
        Ok(self
            .since(channel, seen)
            .map_or(Returned::Any, |(returned, _)| returned))
    }

    /// Returns the messages since `seen`, and moves `seen` forward. `None` if the channel is not
    /// subscribed.
    fn since(&self, channel: &str, seen: &mut Seen) -> Option<(Returned, watch::Receiver<u64>)> {
        let mut channels = self.channels();
        let generation = channels.generation;
        let known = channels.known.get_mut(channel)?;
        known.used = Instant::now();
        let releases = known.releases.subscribe();
        let count = *releases.borrow();
        let before = std::mem::replace(seen, Seen::at(generation, count));
        let new = before
            .new_until(seen)
            .and_then(|new| usize::try_from(new).ok());
        let returned = match new.filter(|new| *new <= known.latest.len()) {
            Some(new) => {
                let jobs = known.latest.iter().take(new);
                Returned::Jobs(jobs.filter_map(|job| job.parse().ok()).collect())
            }
            None => Returned::Any,
        };
        Some((returned, releases))
    }

    fn enter(&self, channel: &str) -> Option<(watch::Receiver<u64>, Duration)> {
        let mut channels = self.channels();
        let known = channels.known.get_mut(channel)?;
        known.used = Instant::now();
        let longest = if known.eventful.elapsed() < FRESH {
            FRESH_WAIT
        } else {
            LONGEST_WAIT
        };
        Some((known.releases.subscribe(), longest))
    }

    async fn subscribe(self: &Arc<Self>, channel: &str) -> Result<(), RedisFailure> {
        let _changing = self.changing.lock().await;
        if self.channels().known.contains_key(channel) {
            return Ok(());
        }
        let (mut connection, generation) = self.connection().await?;
        let shown = self.channels().shown.clone();
        connection
            .subscribe(channel)
            .await
            .map_err(|e| RedisFailure::of(&shown, &e))?;
        let now = Instant::now();
        let mut channels = self.channels();
        if channels.generation == generation && channels.connection.is_some() {
            let (releases, _) = watch::channel(0);
            channels.known.insert(
                channel.to_owned(),
                Subscription {
                    releases,
                    latest: VecDeque::new(),
                    eventful: now,
                    used: now,
                },
            );
        }
        Ok(())
    }

    async fn connection(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64), RedisFailure> {
        {
            let channels = self.channels();
            if let Some(connection) = &channels.connection {
                return Ok((connection.clone(), channels.generation));
            }
        }
        let NewSubscriber {
            mut connection,
            shown,
            pushes,
        } = self.connect_to_one().await?;
        connection.set_response_timeout(RESPONSE_TIMEOUT);
        let mut channels = self.channels();
        channels.generation += 1;
        channels.connection = Some(connection.clone());
        channels.shown = shown;
        let generation = channels.generation;
        tasks::spawn(pump(
            Arc::downgrade(self),
            connection.clone(),
            generation,
            pushes,
        ));
        Ok((connection, generation))
    }

    async fn connect_to_one(&self) -> Result<NewSubscriber, RedisFailure> {
        let Endpoints { servers, part } = self.endpoints.endpoints();
        let mut failed = RedisFailure::unreachable("there is no server to subscribe to".to_owned());
        for server in servers {
            let (sender, pushes) = unbounded_channel();
            match connect(&server, part, sender).await {
                Ok(connection) => {
                    return Ok(NewSubscriber {
                        connection,
                        shown: server.shown(),
                        pushes,
                    });
                }
                Err(failure) => failed = failure,
            }
        }
        Err(failed)
    }

    fn receive(&self, push: PushInfo) {
        let mut data = push.data.into_iter();
        let Some(Value::BulkString(channel)) = data.next() else {
            return;
        };
        let channel = String::from_utf8_lossy(&channel).into_owned();
        if let Some(known) = self.channels().known.get_mut(&channel) {
            known.eventful = Instant::now();
            if let Some(Value::BulkString(message)) = data.next().filter(|_| has_text(&channel)) {
                known.latest.truncate(LATEST - 1);
                known
                    .latest
                    .push_front(String::from_utf8_lossy(&message).into_owned());
            }
            known.releases.send_modify(|count| *count += 1);
        }
    }

    /// Drops the connection, which wakes all tasks that wait on it.
    fn drop_connection(&self, generation: u64) {
        let mut channels = self.channels();
        if channels.generation == generation {
            channels.connection = None;
            channels.known.clear();
        }
    }

    /// Removes and returns the channels that no task uses. Returns `None` once the last channel is gone.
    fn leave_idle(&self, generation: u64) -> Option<Vec<String>> {
        let mut channels = self.channels();
        let idle: Vec<String> = channels
            .known
            .iter()
            .filter(|(_, known)| {
                known.used.elapsed() > IDLE && known.releases.receiver_count() == 0
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in &idle {
            channels.known.remove(name);
        }
        let last = !idle.is_empty() && channels.known.is_empty();
        if last && channels.generation == generation {
            channels.connection = None;
            return None;
        }
        Some(idle)
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        // No code that holds the guard can panic in the middle of a change.
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes messages from one connection to the waiting tasks, until the connection ends.
async fn pump(
    listener: Weak<Listener>,
    mut connection: MultiplexedConnection,
    generation: u64,
    mut pushes: UnboundedReceiver<PushInfo>,
) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        // Both are cancel-safe: a message stays in the channel, and a tick is repeated.
        let push = tokio::select! {
            push = pushes.recv() => Some(push),
            _ = tick.tick() => None,
        };
        let Some(listener) = listener.upgrade() else {
            return;
        };
        let is_usable = match push {
            Some(Some(push)) if push.kind == PushKind::Message => {
                listener.receive(push);
                true
            }
            Some(Some(push)) => push.kind != PushKind::Disconnection,
            Some(None) => false,
            None => keep_up(&listener, &mut connection, generation).await,
        };
        if !is_usable {
            listener.drop_connection(generation);
            return;
        }
    }
}

/// Unsubscribes idle channels and checks the connection. Returns whether the connection is usable.
async fn keep_up(
    listener: &Listener,
    connection: &mut MultiplexedConnection,
    generation: u64,
) -> bool {
    // No task may subscribe to a channel while it is being unsubscribed.
    let _changing = listener.changing.lock().await;
    let Some(idle) = listener.leave_idle(generation) else {
        return false;
    };
    for channel in idle {
        if connection.unsubscribe(channel).await.is_err() {
            return false;
        }
    }
    let shown = listener.channels().shown.clone();
    match redis::cmd("PING").exec_async(connection).await {
        Ok(()) => true,
        // The server replied: one that cannot save its data to disk rejects even this.
        Err(error) => RedisFailure::of(&shown, &error).rejects_writes(),
    }
}
