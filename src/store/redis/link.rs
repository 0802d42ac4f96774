//! The link: a connection that is rebuilt whenever it is in doubt.
//!
//! The client library does not reconnect by itself when an answer is late or the server has
//! become read-only. Here any such answer makes the connection a thing of the past: the next
//! operation finds a new one or fails within its limit. At most one attempt to connect is under
//! way, and all who need it wait for that one; nothing is queued for a server that is down, and
//! no script is sent twice but after `NOSCRIPT`, which says that the first was not run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, RedisError, Value};
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::barrier::{Barrier, Trace};
use super::connect::{CONNECT_TIMEOUT, Part, connect};
use super::failure::Failure;
use super::script::Script;
use super::sentinel::Sentinels;
use crate::store::{RedisSettings, SentinelSettings};

/// How long a server may take to answer an operation.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often the Sentinels are asked whether the master is still the same.
const LOOK_AT_MASTER: Duration = Duration::from_secs(1);

/// What a script is called with.
#[derive(Debug, Clone, Default)]
pub(super) struct Call {
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<Vec<u8>>,
}

impl Call {
    pub(super) fn key(&mut self, key: impl Into<String>) -> &mut Self {
        self.keys.push(key.into());
        self
    }

    pub(super) fn arg(&mut self, arg: &(impl ToString + ?Sized)) -> &mut Self {
        self.args.push(arg.to_string().into_bytes());
        self
    }
}

#[derive(Debug)]
pub(super) struct Link {
    settings: RedisSettings,
    part: Part,
    /// Who says where the server is; without them it is where the settings say.
    sentinels: Option<Arc<Sentinels>>,
    shown: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    live: Option<Live>,
    attempt: Option<watch::Receiver<Option<Result<Live, Failure>>>>,
    generations: u64,
    /// Since when the store does not answer; told once, and quietly: whoever asks knows better
    /// what it means.
    outage: Option<Instant>,
    /// The eviction policy that was warned of.
    evicts: Option<String>,
}

#[derive(Debug, Clone)]
struct Live {
    connection: MultiplexedConnection,
    /// What a claim or a renewal passes when replicas are to know of it.
    barrier: Option<Arc<Barrier>>,
    generation: u64,
}

/// The way by which an answer came.
#[derive(Debug)]
pub(super) struct Way {
    link: Arc<Link>,
    barrier: Option<Arc<Barrier>>,
    generation: u64,
}

impl Way {
    /// Waits until as many replicas as configured know what was answered this way.
    pub(super) async fn replicated(
        &self,
        trace: Trace<'_>,
        limit: Duration,
    ) -> Result<(), Failure> {
        let Some(barrier) = &self.barrier else {
            return Ok(());
        };
        let passed = barrier.pass(trace, limit).await;
        if passed.as_ref().is_err_and(Failure::wants_rebuild) {
            self.link.give_up(self.generation);
        }
        passed
    }
}

/// A connection as made.
struct Connected {
    connection: MultiplexedConnection,
    barrier: Option<Arc<Barrier>>,
    server: RedisSettings,
}

impl Link {
    pub(super) fn new(settings: &RedisSettings, part: Part) -> Arc<Self> {
        Arc::new(Self {
            settings: settings.clone(),
            part,
            sentinels: None,
            shown: settings.shown(),
            state: Mutex::new(State::default()),
        })
    }

    /// A link to whichever server is master.
    pub(super) fn to_master(settings: &SentinelSettings, sentinels: Arc<Sentinels>) -> Arc<Self> {
        Arc::new(Self {
            settings: settings.servers.clone(),
            part: Part::Watched,
            shown: format!("the master {}", settings.master),
            sentinels: Some(sentinels),
            state: Mutex::new(State::default()),
        })
    }

    pub(super) fn settings(&self) -> &RedisSettings {
        &self.settings
    }

    /// Runs a script: by its digest, and in full when the server does not know it.
    pub(super) async fn run(
        self: &Arc<Self>,
        script: &Script,
        call: &Call,
        limit: Duration,
    ) -> Result<Value, Failure> {
        self.run_by(script, call, limit)
            .await
            .map(|(value, _)| value)
    }

    /// The same, and the way by which the answer came.
    pub(super) async fn run_by(
        self: &Arc<Self>,
        script: &Script,
        call: &Call,
        limit: Duration,
    ) -> Result<(Value, Way), Failure> {
        let mut live = self.connection(limit).await?;
        live.connection.set_response_timeout(limit);
        let mut answer = script
            .by_digest(call)
            .query_async(&mut live.connection)
            .await;
        if let Err(e) = &answer
            && e.code() == Some("NOSCRIPT")
        {
            // After a restart or SCRIPT FLUSH. EVAL runs it and makes it known again.
            answer = script.in_full(call).query_async(&mut live.connection).await;
        }
        let value = self.judge(live.generation, answer)?;
        Ok((value, self.way(live)))
    }

    fn way(self: &Arc<Self>, live: Live) -> Way {
        Way {
            link: Arc::clone(self),
            barrier: live.barrier,
            generation: live.generation,
        }
    }

    /// Sends one command.
    pub(super) async fn send(self: &Arc<Self>, command: &Cmd) -> Result<Value, Failure> {
        let sent = self.send_by(command, RESPONSE_TIMEOUT).await;
        sent.map(|(value, _)| value)
    }

    /// The same, and the way by which the answer came.
    pub(super) async fn send_by(
        self: &Arc<Self>,
        command: &Cmd,
        limit: Duration,
    ) -> Result<(Value, Way), Failure> {
        let mut live = self.connection(limit).await?;
        live.connection.set_response_timeout(limit);
        let answer = command.query_async(&mut live.connection).await;
        let value = self.judge(live.generation, answer)?;
        Ok((value, self.way(live)))
    }

    /// As [`Self::send_by`] under `ASKING`, on the same connection and with nothing in between.
    pub(super) async fn send_asking(
        self: &Arc<Self>,
        command: Cmd,
        limit: Duration,
    ) -> Result<(Value, Way), Failure> {
        let mut live = self.connection(limit).await?;
        live.connection.set_response_timeout(limit);
        let answer = redis::pipe()
            .cmd("ASKING")
            .ignore()
            .add_command(command)
            .query_async::<(Value,)>(&mut live.connection)
            .await
            .map(|(value,)| value);
        let value = self.judge(live.generation, answer)?;
        Ok((value, self.way(live)))
    }

    /// Which connection of this link's is in use; another number means another connection.
    pub(super) fn generation(&self) -> u64 {
        self.state().generations
    }

    fn judge(&self, generation: u64, answer: Result<Value, RedisError>) -> Result<Value, Failure> {
        match answer {
            Ok(value) => {
                self.say_up();
                Ok(value)
            }
            Err(e) => {
                let mut failure = Failure::of(&self.shown, &e);
                if self.sentinels.is_some() && failure.is_demotion() {
                    failure = failure.of_replaced();
                }
                if failure.wants_rebuild() {
                    self.give_up(generation);
                }
                if failure.is_outage() && failure.redirect().is_none() {
                    self.say_down(&failure);
                }
                Err(failure)
            }
        }
    }

    /// The connection, or the outcome of the attempt to make one, within `limit`.
    async fn connection(self: &Arc<Self>, limit: Duration) -> Result<Live, Failure> {
        let mut attempt = {
            let mut state = self.state();
            if let Some(live) = &state.live {
                return Ok(live.clone());
            }
            match &state.attempt {
                // A sender that is gone was killed with its runtime.
                Some(attempt) if attempt.has_changed().is_ok() => attempt.clone(),
                _ => {
                    let (done, attempt) = watch::channel(None);
                    state.attempt = Some(attempt.clone());
                    tokio::spawn(Arc::clone(self).attempt(done));
                    attempt
                }
            }
        };
        let limit = limit.min(CONNECT_TIMEOUT * 2);
        match tokio::time::timeout(limit, attempt.wait_for(Option::is_some)).await {
            Ok(Ok(outcome)) => match &*outcome {
                Some(outcome) => outcome.clone(),
                None => Err(self.no_connection(limit)),
            },
            Ok(Err(_)) | Err(_) => Err(self.no_connection(limit)),
        }
    }

    fn no_connection(&self, limit: Duration) -> Failure {
        Failure::unreachable(format!("no connection to {} within {limit:?}", self.shown))
    }

    /// One attempt to connect; a task of its own, so that a caller whose limit is short does not
    /// take the attempt down with it.
    async fn attempt(self: Arc<Self>, done: watch::Sender<Option<Result<Live, Failure>>>) {
        let (pushes, ended) = mpsc::unbounded_channel();
        let outcome = self.connect(pushes).await;
        let mut server = None;
        let outcome = {
            let mut state = self.state();
            state.attempt = None;
            outcome.map(|connected| {
                state.generations += 1;
                server = Some(connected.server);
                let live = Live {
                    connection: connected.connection,
                    barrier: connected.barrier,
                    generation: state.generations,
                };
                state.live = Some(live.clone());
                live
            })
        };
        match &outcome {
            Ok(live) => {
                tokio::spawn(Arc::clone(&self).watch_end(live.generation, ended));
                if let (Some(sentinels), Some(server)) = (&self.sentinels, server) {
                    let (link, sentinels) = (Arc::downgrade(&self), Arc::clone(sentinels));
                    tokio::spawn(watch_master(link, sentinels, live.generation, server));
                }
            }
            Err(failure) => self.say_down(failure),
        }
        let live = outcome.as_ref().ok().cloned();
        // Nobody may be waiting any more.
        let _ = done.send_replace(Some(outcome));
        if let Some(live) = live {
            self.warn_of_eviction(live.connection).await;
        }
    }

    /// Connects to the server that is to be used now, twice if its replicas are to be heard.
    async fn connect(&self, pushes: mpsc::UnboundedSender<PushInfo>) -> Result<Connected, Failure> {
        let server = match &self.sentinels {
            Some(sentinels) => sentinels.master().await?,
            None => self.settings.clone(),
        };
        let mut connection = connect(&server, self.part, pushes).await?;
        let barrier = Barrier::beside(&mut connection, &server, self.part).await?;
        Ok(Connected {
            connection,
            barrier,
            server,
        })
    }

    /// Notices that the server closed the connection while nothing was asked, so that the next
    /// operation is not the one to find out.
    async fn watch_end(
        self: Arc<Self>,
        generation: u64,
        mut pushes: mpsc::UnboundedReceiver<PushInfo>,
    ) {
        let weak = Arc::downgrade(&self);
        drop(self);
        while let Some(push) = pushes.recv().await {
            if push.kind == PushKind::Disconnection {
                break;
            }
        }
        if let Some(link) = weak.upgrade() {
            link.give_up(generation);
        }
    }

    /// A server that evicts forgets leases and ledgers: said once, and whenever it changes.
    async fn warn_of_eviction(&self, mut connection: MultiplexedConnection) {
        let mut command = redis::cmd("INFO");
        command.arg("memory");
        // Without the right to ask there is nothing to say.
        let Ok(info) = command.query_async::<String>(&mut connection).await else {
            return;
        };
        let policy = info
            .lines()
            .find_map(|line| line.strip_prefix("maxmemory_policy:"))
            .map(str::trim)
            .filter(|policy| *policy != "noeviction");
        let mut state = self.state();
        if state.evicts.as_deref() == policy {
            return;
        }
        state.evicts = policy.map(str::to_owned);
        drop(state);
        if let Some(policy) = policy {
            warn!(
                store = self.shown,
                "maxmemory-policy is {policy}: the server may forget leases, and what has run; set it to \
                 noeviction"
            );
        }
    }

    fn give_up(&self, generation: u64) {
        let mut state = self.state();
        if state
            .live
            .as_ref()
            .is_some_and(|live| live.generation == generation)
        {
            state.live = None;
        }
    }

    fn is_live(&self, generation: u64) -> bool {
        let state = self.state();
        state
            .live
            .as_ref()
            .is_some_and(|live| live.generation == generation)
    }

    fn say_down(&self, failure: &Failure) {
        let mut state = self.state();
        if state.outage.is_none() {
            state.outage = Some(Instant::now());
            drop(state);
            let what = self.part.called();
            if self.part == Part::InCluster {
                // Nobody else says so: the others go on.
                warn!(error = failure.text(), "{what} does not answer");
            } else {
                debug!(error = failure.text(), "{what} does not answer");
            }
        }
    }

    fn say_up(&self) {
        let Some(since) = self.state().outage.take() else {
            return;
        };
        let (what, seconds) = (self.part.called(), since.elapsed().as_secs_f64());
        let store = &self.shown;
        if self.part == Part::InCluster {
            info!(store, "{what} answers again, after {seconds:.1} s");
        } else {
            debug!(store, "{what} answers again, after {seconds:.1} s");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the guard can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves a server that answers as ever, but is not the master any more.
async fn watch_master(
    link: Weak<Link>,
    sentinels: Arc<Sentinels>,
    generation: u64,
    server: RedisSettings,
) {
    loop {
        tokio::time::sleep(LOOK_AT_MASTER).await;
        if !link.upgrade().is_some_and(|link| link.is_live(generation)) {
            return;
        }
        // Sentinels that do not answer are no reason to leave a server that does.
        let Ok(master) = sentinels.master().await else {
            continue;
        };
        if master.url != server.url {
            if let Some(link) = link.upgrade() {
                link.give_up(generation);
            }
            return;
        }
    }
}
