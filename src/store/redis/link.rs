//! The link: a connection that is rebuilt whenever it is in doubt.
//!
//! The client library does not reconnect by itself when an answer is late or the server has
//! become read-only. Here any such answer makes the connection a thing of the past: the next
//! operation finds a new one or fails within its limit. At most one attempt to connect is under
//! way, and all who need it wait for that one; nothing is queued for a server that is down, and
//! no script is sent twice but after `NOSCRIPT`, which says that the first was not run. How many
//! requests are in flight, and when the server counts as silent, is the business of
//! [`super::exchange`].

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, PushInfo, PushKind, RedisError, Value};
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use super::barrier::{Barrier, Trace};
use super::connect::{CONNECT_TIMEOUT, Part, connect};
use super::exchange::{Exchange, NoReply, within};
use super::failure::RedisFailure;
use super::keys;
use super::reply::{Items, text};
use super::script::Script;
use super::teach::Taught;
use crate::store::{RedisSettings, SentinelSettings};

/// How long a server may be silent while it is asked something.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// On how many connections in turn a request waits to be sent.
const CONNECTIONS: usize = 2;

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

/// Names the server that a link connects to, where that changes.
#[async_trait]
pub(super) trait ServerSource: Debug + Send + Sync {
    /// Returns the server to use now.
    async fn server(&self) -> Result<RedisSettings, RedisFailure>;
}

/// A connection to one server, rebuilt whenever it is in doubt.
#[derive(Debug)]
pub(super) struct Link {
    settings: RedisSettings,
    part: Part,
    /// Where the server is; without one it is where the settings say.
    source: Option<Arc<dyn ServerSource>>,
    shown: String,
    taught: Taught,
    state: Mutex<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    live: Option<Live>,
    attempt: Option<watch::Receiver<Option<Result<Live, RedisFailure>>>>,
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
    exchange: Exchange,
    /// What a claim or a renewal passes when replicas are to know of it.
    barrier: Option<Arc<Barrier>>,
    generation: u64,
}

/// The connection by which a reply came.
#[derive(Debug)]
pub(super) struct ConnectionHandle {
    link: Arc<Link>,
    barrier: Option<Arc<Barrier>>,
    generation: u64,
}

impl ConnectionHandle {
    /// The URL of the server, without password.
    pub(super) fn server(&self) -> String {
        self.link.settings().shown()
    }

    /// Waits until as many replicas as configured know what was answered this way.
    pub(super) async fn replicated(
        &self,
        trace: Trace<'_>,
        limit: Duration,
    ) -> Result<(), RedisFailure> {
        let Some(barrier) = &self.barrier else {
            return Ok(());
        };
        let passed = barrier.pass(trace, limit).await;
        if passed.as_ref().is_err_and(RedisFailure::wants_rebuild) {
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
            source: None,
            shown: settings.shown(),
            taught: Taught::default(),
            state: Mutex::new(LinkState::default()),
        })
    }

    /// A link to whichever server is master.
    pub(super) fn to_master(
        settings: &SentinelSettings,
        source: Arc<dyn ServerSource>,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings: settings.servers.clone(),
            part: Part::Watched,
            shown: format!("the master {}", settings.master),
            source: Some(source),
            taught: Taught::default(),
            state: Mutex::new(LinkState::default()),
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
    ) -> Result<Value, RedisFailure> {
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
    ) -> Result<(Value, ConnectionHandle), RedisFailure> {
        let sent_before = self.taught.so_far(script.digest());
        let answer = match self.ask(script.by_digest(call), limit).await {
            // After a restart or SCRIPT FLUSH.
            Err(failure) if failure.is_unknown_script() => {
                self.teach(script, call, limit, sent_before).await
            }
            answer => answer,
        };
        match answer {
            Err(failure) => Err(self.blamed(failure, &call.keys).await),
            answer => answer,
        }
    }

    /// Runs a script that the server did not know: the first of several callers sends its text
    /// with `EVAL`, which makes the script known, and the others run it by digest afterwards.
    async fn teach(
        self: &Arc<Self>,
        script: &Script,
        call: &Call,
        limit: Duration,
        sent_before: Option<u64>,
    ) -> Result<(Value, ConnectionHandle), RedisFailure> {
        let mut sent = self.taught.turn(script.digest()).await;
        if sent_before != Some(*sent) {
            drop(sent);
            match self.ask(script.by_digest(call), limit).await {
                // Forgotten again in between.
                Err(failure) if failure.is_unknown_script() => {}
                answer => return answer,
            }
            return self.ask(script.in_full(call), limit).await;
        }
        let answer = self.ask(script.in_full(call), limit).await;
        // Also when it failed: those who wait then find out for themselves, and all at once.
        *sent += 1;
        answer
    }

    /// Sends one command and returns its reply, and the way by which it came.
    async fn ask(
        self: &Arc<Self>,
        command: Cmd,
        limit: Duration,
    ) -> Result<(Value, ConnectionHandle), RedisFailure> {
        self.exchange(limit, move |mut connection| {
            let command = command.clone();
            async move { command.query_async(&mut connection).await }
        })
        .await
    }

    /// Sends a request on the connection. If that is given up before the request was sent, the
    /// request goes to the next one.
    async fn exchange<F>(
        self: &Arc<Self>,
        limit: Duration,
        request: impl Fn(MultiplexedConnection) -> F,
    ) -> Result<(Value, ConnectionHandle), RedisFailure>
    where
        F: Future<Output = Result<Value, RedisError>> + Send + 'static,
    {
        for _ in 0..CONNECTIONS {
            let live = self.connection(limit).await?;
            let asked = request(live.connection.clone());
            let answer = match live.exchange.ask(limit, asked).await {
                Err(NoReply::NotSent) => continue,
                Err(NoReply::Silence(limit)) => Err(self.silent(limit)),
                Err(NoReply::Error(error)) => Err(RedisFailure::of(&self.shown, &error)),
                Ok(value) => Ok(value),
            };
            let value = self.judge(live.generation, answer)?;
            return Ok((value, self.way(live)));
        }
        Err(self.no_connection(limit))
    }

    /// Finds out which key a failure is about, if it is about one.
    ///
    /// A server that denies a script its keys does not name the one that was meant: each is tried
    /// with a script that does nothing. If the marker of the store is denied, or none is, the
    /// failure concerns every job.
    async fn blamed(self: &Arc<Self>, failure: RedisFailure, keys: &[String]) -> RedisFailure {
        if !failure.may_deny_a_key() {
            return failure.located(keys);
        }
        let mut denied = None;
        for key in keys {
            let mut probe = redis::cmd("EVAL");
            probe.arg("return 1").arg(1).arg(key);
            let answer = self.ask(probe, RESPONSE_TIMEOUT).await;
            if answer.is_err_and(|failure| failure.may_deny_a_key()) {
                if keys::is_marker(&self.settings.prefix, key) {
                    return failure;
                }
                denied.get_or_insert(key);
            }
        }
        match denied {
            Some(key) => failure.denied(key),
            None => failure,
        }
    }

    /// Sends one command that reads this key.
    pub(super) async fn send_on(
        self: &Arc<Self>,
        command: &Cmd,
        key: &str,
    ) -> Result<Value, RedisFailure> {
        match self.ask(command.clone(), RESPONSE_TIMEOUT).await {
            Ok((value, _)) => Ok(value),
            Err(failure) => {
                let failure = self.blamed(failure, &[key.to_owned()]).await;
                Err(failure.attributed_to(key))
            }
        }
    }

    fn way(self: &Arc<Self>, live: Live) -> ConnectionHandle {
        ConnectionHandle {
            link: Arc::clone(self),
            barrier: live.barrier,
            generation: live.generation,
        }
    }

    /// Sends one command.
    pub(super) async fn send(self: &Arc<Self>, command: &Cmd) -> Result<Value, RedisFailure> {
        let sent = self.send_by(command, RESPONSE_TIMEOUT).await;
        sent.map(|(value, _)| value)
    }

    /// The same, and the way by which the answer came.
    pub(super) async fn send_by(
        self: &Arc<Self>,
        command: &Cmd,
        limit: Duration,
    ) -> Result<(Value, ConnectionHandle), RedisFailure> {
        self.ask(command.clone(), limit).await
    }

    /// As [`Self::send_by`] under `ASKING`, on the same connection and with nothing in between.
    pub(super) async fn send_asking(
        self: &Arc<Self>,
        command: Cmd,
        limit: Duration,
    ) -> Result<(Value, ConnectionHandle), RedisFailure> {
        let mut commands = redis::pipe();
        commands.cmd("ASKING").ignore().add_command(command);
        self.exchange(limit, move |mut connection| {
            let commands = commands.clone();
            async move {
                let answer = commands.query_async::<(Value,)>(&mut connection).await;
                answer.map(|(value,)| value)
            }
        })
        .await
    }

    /// Counts the keys of the server that begin with our prefix.
    pub(super) async fn count_keys(self: &Arc<Self>) -> Result<u64, RedisFailure> {
        let mut cursor = "0".to_owned();
        let mut count = 0_u64;
        loop {
            let mut command = redis::cmd("SCAN");
            command
                .arg(&cursor)
                .arg("MATCH")
                .arg(format!("{}:*", self.settings.prefix))
                .arg("COUNT")
                .arg(1000);
            let mut reply = Items::of(self.send(&command).await?)?;
            cursor = text(reply.next()?)?;
            let mut found = Items::of(reply.next()?)?;
            while !found.is_empty() {
                found.next()?;
                count += 1;
            }
            if cursor == "0" {
                return Ok(count);
            }
        }
    }

    /// Which connection of this link's is in use; another number means another connection.
    pub(super) fn generation(&self) -> u64 {
        self.state().generations
    }

    fn judge(
        &self,
        generation: u64,
        answer: Result<Value, RedisFailure>,
    ) -> Result<Value, RedisFailure> {
        match answer {
            Ok(value) => {
                self.say_up();
                Ok(value)
            }
            Err(mut failure) => {
                if self.source.is_some() && failure.is_demotion() {
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
    async fn connection(self: &Arc<Self>, limit: Duration) -> Result<Live, RedisFailure> {
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
        match within(limit, attempt.wait_for(Option::is_some)).await {
            Some(Ok(outcome)) => match &*outcome {
                Some(outcome) => outcome.clone(),
                None => Err(self.no_connection(limit)),
            },
            Some(Err(_)) | None => Err(self.no_connection(limit)),
        }
    }

    fn silent(&self, limit: Duration) -> RedisFailure {
        RedisFailure::unreachable(format!(
            "{} is silent: no reply to any request for {limit:?}",
            self.shown
        ))
    }

    fn no_connection(&self, limit: Duration) -> RedisFailure {
        RedisFailure::unreachable(format!("no connection to {} within {limit:?}", self.shown))
    }

    /// One attempt to connect; a task of its own, so that a caller whose limit is short does not
    /// take the attempt down with it.
    async fn attempt(self: Arc<Self>, done: watch::Sender<Option<Result<Live, RedisFailure>>>) {
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
                    exchange: Exchange::new(),
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
                if let (Some(source), Some(server)) = (&self.source, server) {
                    let (link, source) = (Arc::downgrade(&self), Arc::clone(source));
                    tokio::spawn(watch_master(link, source, live.generation, server));
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
    async fn connect(
        &self,
        pushes: mpsc::UnboundedSender<PushInfo>,
    ) -> Result<Connected, RedisFailure> {
        let server = match &self.source {
            Some(source) => source.server().await?,
            None => self.settings.clone(),
        };
        let connection = connect(&server, self.part, pushes).await?;
        let barrier = Barrier::beside(&connection, &server, self.part).await?;
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
        connection.set_response_timeout(RESPONSE_TIMEOUT);
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
                "maxmemory-policy is {policy}: the server may evict leases and ledgers; set it \
                 to noeviction"
            );
        }
    }

    fn give_up(&self, generation: u64) {
        let mut state = self.state();
        if let Some(live) = state.live.take_if(|live| live.generation == generation) {
            live.exchange.close();
        }
    }

    fn is_live(&self, generation: u64) -> bool {
        let state = self.state();
        state
            .live
            .as_ref()
            .is_some_and(|live| live.generation == generation)
    }

    fn say_down(&self, failure: &RedisFailure) {
        let mut state = self.state();
        if state.outage.is_none() {
            state.outage = Some(Instant::now());
            drop(state);
            let what = self.part.called();
            if self.part == Part::InCluster {
                // Nobody else says so: the others go on.
                warn!(error = failure.text(), "{what} is unreachable");
            } else {
                debug!(error = failure.text(), "{what} is unreachable");
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
            info!(store, "{what} is reachable again after {seconds:.1} s");
        } else {
            debug!(store, "{what} is reachable again after {seconds:.1} s");
        }
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        // Nothing that holds the guard can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves a server that answers as ever, but is not the master any more.
async fn watch_master(
    link: Weak<Link>,
    source: Arc<dyn ServerSource>,
    generation: u64,
    server: RedisSettings,
) {
    loop {
        tokio::time::sleep(LOOK_AT_MASTER).await;
        if !link.upgrade().is_some_and(|link| link.is_live(generation)) {
            return;
        }
        // Sentinels that do not answer are no reason to leave a server that does.
        let Ok(master) = source.server().await else {
            continue;
        };
        if master.endpoint != server.endpoint {
            if let Some(link) = link.upgrade() {
                link.give_up(generation);
            }
            return;
        }
    }
}
