//! Hearing of releases: a second connection, in subscribed mode, shared by all who wait.
//!
//! It only ever shortens a wait. Those who wait ask again after [`LONGEST_WAIT`] at the latest,
//! and when the server does not let us listen they ask every [`POLL`]; a message that is lost
//! delays, and breaks nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tracing::warn;

use super::connect::{Part, connect};
use super::failure::RedisFailure;
use super::link::{Call, RESPONSE_TIMEOUT};
use crate::names::{JobName, Prefix};
use crate::store::{RedisSettings, Returned, Seen};

/// The longest anybody waits for a message.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How often to ask when nothing can be heard.
const POLL: Duration = Duration::from_secs(1);

/// How long after a channel was subscribed, or told of a release, the next message may have been
/// missed: a claim that found the lock held may have been judged before, and answered after.
const FRESH: Duration = Duration::from_secs(2);

/// The longest wait on a channel that is fresh.
const FRESH_WAIT: Duration = Duration::from_millis(200);

/// A channel nobody asked for in this time is left.
const IDLE: Duration = Duration::from_secs(60);

/// How often the connection is tried, and idle channels are left.
const TICK: Duration = Duration::from_secs(5);

/// How many messages are kept for those who have not read them yet.
const LATEST: usize = 64;

/// The channel on which hosts name the jobs whose occurrences they return undecided.
pub(super) fn returned_channel(prefix: &Prefix) -> String {
    format!("{prefix}:returned")
}

/// Names a job on that channel.
pub(super) fn returned_call(prefix: &Prefix, job: &JobName) -> Call {
    let mut call = Call::default();
    call.arg(&returned_channel(prefix)).arg(job.as_str());
    call
}

/// On the channel of a lock, that there is a message says it all.
fn says_what(channel: &str) -> bool {
    channel.ends_with(":returned")
}

/// Where releases can be heard of: any of these servers will do.
pub(super) trait PubSubEndpoints: Send + Sync + std::fmt::Debug {
    /// The servers in the order in which they are to be tried, and what they are.
    fn endpoints(&self) -> (Vec<RedisSettings>, Part);
}

#[derive(Debug)]
pub(super) struct Listener {
    endpoints: Arc<dyn PubSubEndpoints>,
    channels: Mutex<Channels>,
    /// Held while connecting or subscribing, so that it is done once.
    changing: tokio::sync::Mutex<()>,
    told: AtomicBool,
}

#[derive(Debug, Default)]
struct Channels {
    connection: Option<MultiplexedConnection>,
    /// The server it leads to, without password.
    shown: String,
    generation: u64,
    known: HashMap<String, Channel>,
}

#[derive(Debug)]
struct Channel {
    /// Counts the messages; its end is the end of the connection.
    releases: watch::Sender<u64>,
    /// The last messages, where it matters what they say.
    latest: VecDeque<String>,
    /// When it was subscribed, or last told of a release.
    eventful: Instant,
    used: Instant,
}

impl Listener {
    pub(super) fn new(endpoints: Arc<dyn PubSubEndpoints>) -> Arc<Self> {
        Arc::new(Self {
            endpoints,
            channels: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            told: AtomicBool::new(false),
        })
    }

    /// Waits until a release is heard of on the channel, at most `limit`; often less. A channel
    /// that was just subscribed answers at once: the release may have come before.
    pub(super) async fn wait(self: &Arc<Self>, channel: &str, limit: Duration) {
        if let Some((mut releases, longest)) = self.enter(channel) {
            // Either way the caller asks again.
            let _ = tokio::time::timeout(limit.min(longest), releases.changed()).await;
            return;
        }
        match tokio::time::timeout(limit, self.subscribe(channel)).await {
            Ok(Ok(())) => self.told.store(false, Ordering::Relaxed),
            Ok(Err(failure)) => {
                if !self.told.swap(true, Ordering::Relaxed) {
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

    /// Subscribes to a channel for as long as what this returns is kept: it changes with each
    /// message, and ends with the connection.
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

    /// The servers that are listened to, in the order in which they are tried.
    pub(super) fn endpoints(&self) -> (Vec<RedisSettings>, Part) {
        self.endpoints.endpoints()
    }

    /// Waits until jobs are named on the channel of [`returned_channel`] since `seen`, at most
    /// `limit`. Names any job when a message may have been missed.
    pub(super) async fn returned(
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
            // Its end is the end of the connection: then the channel is gone.
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

    /// What came since `seen`, which is moved on; `None` when the channel is not subscribed.
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
                Channel {
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
        let (mut connection, shown, pushes) = self.connect_to_one().await?;
        connection.set_response_timeout(RESPONSE_TIMEOUT);
        let mut channels = self.channels();
        channels.generation += 1;
        channels.connection = Some(connection.clone());
        channels.shown = shown;
        let generation = channels.generation;
        tokio::spawn(pump(
            Arc::downgrade(self),
            connection.clone(),
            generation,
            pushes,
        ));
        Ok((connection, generation))
    }

    async fn connect_to_one(
        &self,
    ) -> Result<(MultiplexedConnection, String, UnboundedReceiver<PushInfo>), RedisFailure> {
        let (servers, part) = self.endpoints.endpoints();
        let mut failed = RedisFailure::unreachable("there is no server to listen to".to_owned());
        for server in servers {
            let (sender, pushes) = unbounded_channel();
            match connect(&server, part, sender).await {
                Ok(connection) => return Ok((connection, server.shown(), pushes)),
                Err(failure) => failed = failure,
            }
        }
        Err(failed)
    }

    fn told_of(&self, push: PushInfo) {
        let mut data = push.data.into_iter();
        let Some(Value::BulkString(channel)) = data.next() else {
            return;
        };
        let channel = String::from_utf8_lossy(&channel).into_owned();
        if let Some(known) = self.channels().known.get_mut(&channel) {
            known.eventful = Instant::now();
            if let Some(Value::BulkString(message)) = data.next().filter(|_| says_what(&channel)) {
                known.latest.truncate(LATEST - 1);
                known
                    .latest
                    .push_front(String::from_utf8_lossy(&message).into_owned());
            }
            known.releases.send_modify(|count| *count += 1);
        }
    }

    /// Forgets the connection and wakes all who wait on it.
    fn lose(&self, generation: u64) {
        let mut channels = self.channels();
        if channels.generation == generation {
            channels.connection = None;
            channels.known.clear();
        }
    }

    /// The channels that nobody uses any more, forgotten; `None` when that were the last ones.
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
        // Nothing that holds the guard can panic half-way through a change.
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries messages from one connection to those who wait, until it ends.
async fn pump(
    listener: Weak<Listener>,
    mut connection: MultiplexedConnection,
    generation: u64,
    mut pushes: UnboundedReceiver<PushInfo>,
) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        // Both are cancel-safe: a message stays in the channel, a tick comes again.
        let push = tokio::select! {
            push = pushes.recv() => Some(push),
            _ = tick.tick() => None,
        };
        let Some(listener) = listener.upgrade() else {
            return;
        };
        let goes_on = match push {
            Some(Some(push)) if push.kind == PushKind::Message => {
                listener.told_of(push);
                true
            }
            Some(Some(push)) => push.kind != PushKind::Disconnection,
            Some(None) => false,
            None => keep_up(&listener, &mut connection, generation).await,
        };
        if !goes_on {
            listener.lose(generation);
            return;
        }
    }
}

/// Leaves idle channels and tries the connection; whether it goes on.
async fn keep_up(
    listener: &Listener,
    connection: &mut MultiplexedConnection,
    generation: u64,
) -> bool {
    // Nobody may subscribe anew to a channel that is about to be left.
    let _changing = listener.changing.lock().await;
    let Some(idle) = listener.leave_idle(generation) else {
        return false;
    };
    for channel in idle {
        if connection.unsubscribe(channel).await.is_err() {
            return false;
        }
    }
    redis::cmd("PING").exec_async(connection).await.is_ok()
}
