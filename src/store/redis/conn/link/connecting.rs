//! How a link finds its server, connects to it, and notices that the connection is no longer usable.
//! At most one attempt to connect is under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::{PushInfo, PushKind};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use super::{ConnectAttempt, Link, Live, ServerSource};
use crate::ground::tasks;
use crate::store::RedisSettings;
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::conn::barrier::Barrier;
use crate::store::redis::conn::connect::{CONNECT_TIMEOUT, connect_timed};
use crate::store::redis::conn::exchange::{Exchange, within};
use crate::store::redis::conn::other_encryption::KnownFailure;
use crate::store::redis::conn::timed::TimedConnection;
use crate::store::redis::failure::RedisFailure;

/// How often the Sentinels are asked whether the master is still the same.
const LOOK_AT_MASTER: Duration = Duration::from_secs(1);

/// A new connection.
struct Connected {
    connection: TimedConnection,
    barrier: Option<Arc<Barrier>>,
    server: RedisSettings,
}

impl Link {
    /// Returns the connection. If there is none, waits for the attempt to connect, at most `limit`.
    pub(super) async fn connection(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<Live, RedisFailure> {
        let mut attempt = {
            let mut state = self.state();
            if let Some(live) = &state.live {
                return Ok(live.clone());
            }
            match &state.attempt {
                // If the sender is gone, the runtime of the attempt was shut down.
                Some(attempt) if attempt.outcome.has_changed().is_ok() => attempt.clone(),
                _ => {
                    let (done, outcome) = watch::channel(None);
                    let known = KnownFailure::default();
                    tasks::spawn(Arc::clone(self).connect_once(done, known.clone()));
                    let attempt = ConnectAttempt { outcome, known };
                    state.attempt = Some(attempt.clone());
                    attempt
                }
            }
        };
        let limit = limit.min(CONNECT_TIMEOUT * 2);
        let late = || {
            let failure = attempt.known.get();
            Err(failure.unwrap_or_else(|| self.no_connection(limit)))
        };
        let outcome = &mut attempt.outcome;
        match within(limit, outcome.wait_for(Option::is_some)).await {
            Some(Ok(outcome)) => outcome.clone().unwrap_or_else(late),
            Some(Err(_)) | None => late(),
        }
    }

    pub(super) fn no_connection(&self, limit: Duration) -> RedisFailure {
        RedisFailure::unreachable(format!("no connection to {} within {limit:?}", self.shown))
    }

    /// One attempt to connect. It is a separate task, so that it continues when a caller with a short
    /// limit stops waiting.
    async fn connect_once(
        self: Arc<Self>,
        done: watch::Sender<Option<Result<Live, RedisFailure>>>,
        known: KnownFailure,
    ) {
        let (pushes, ended) = mpsc::unbounded_channel();
        let outcome = self.connect(pushes, &known).await;
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
                self.log_connection();
                tasks::spawn(Arc::clone(&self).watch_end(live.generation, ended));
                if let (Some(source), Some(server)) = (&self.source, server) {
                    let (link, source) = (Arc::downgrade(&self), Arc::clone(source));
                    tasks::spawn(watch_master(link, source, live.generation, server));
                }
            }
            Err(failure) => self.log_outage(failure),
        }
        let live = outcome.as_ref().ok().cloned();
        // There may be no waiting task any more.
        let _ = done.send_replace(Some(outcome));
        if let Some(live) = live {
            self.warn_of_eviction(live.connection).await;
        }
    }

    /// Connects to the server that must be used now, with a second connection if replicas must
    /// acknowledge.
    async fn connect(
        &self,
        pushes: mpsc::UnboundedSender<PushInfo>,
        known: &KnownFailure,
    ) -> Result<Connected, RedisFailure> {
        let server = match &self.source {
            Some(source) => source.server().await?,
            None => self.settings.clone(),
        };
        let connection = connect_timed(&server, known, self.part, pushes).await?;
        let barrier = Barrier::beside(connection.inner(), &server, self.part).await?;
        Ok(Connected {
            connection,
            barrier,
            server,
        })
    }

    /// Gives the connection up as soon as the server closes it, so that the next operation does not fail
    /// on it.
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

    /// Warns once, and after each change of the policy, if the server may evict leases and ledgers. A
    /// process has several links to one server.
    async fn warn_of_eviction(&self, mut connection: TimedConnection) {
        let connection = connection.inner_mut();
        connection.set_response_timeout(RESPONSE_TIMEOUT);
        let mut command = redis::cmd("INFO");
        command.arg("memory");
        // The user may not be allowed to read this.
        let Ok(info) = command.query_async::<String>(connection).await else {
            return;
        };
        let policy = info
            .lines()
            .find_map(|line| line.strip_prefix("maxmemory_policy:"))
            .map(str::trim)
            .filter(|policy| *policy != "noeviction");
        if !note_eviction_policy(&self.shown, policy) {
            return;
        }
        if let Some(policy) = policy {
            warn!(
                store = self.shown,
                "maxmemory-policy is {policy}: the server may evict leases and ledgers; set it \
                 to noeviction"
            );
        }
    }
}

/// Notes the eviction policy of a server; `None` if it evicts nothing. Returns whether this process knew
/// another one.
fn note_eviction_policy(server: &str, policy: Option<&str>) -> bool {
    static KNOWN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    // No code that holds the lock can panic.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = match policy {
        Some(policy) => known.insert(server.to_owned(), policy.to_owned()),
        None => known.remove(server),
    };
    before.as_deref() != policy
}

/// Gives the connection up once the Sentinels name another master, although the server still replies.
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
        // Unreachable Sentinels are no reason to leave a server that replies.
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
