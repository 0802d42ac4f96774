//! The link: a connection that is replaced whenever it may be broken.
//!
//! This is written by hand because the client library does not reconnect after a late reply or when the
//! server has become read-only. Here such a reply ends the connection, and the next operation uses a new
//! one or fails within its limit. At most one attempt to connect is under way, and all operations wait
//! for it. Nothing is queued for an unreachable server. A script is sent again only after `NOSCRIPT`,
//! which means that it was not executed. [`exchange`](super::exchange) limits the requests in flight and
//! decides when the server counts as silent.

mod connecting;
mod outage;
mod requests;

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redis::Value;
use tokio::sync::watch;

use super::barrier::{Barrier, Trace};
use super::exchange::Exchange;
use super::hello::Part;
use super::known_scripts::KnownScripts;
use super::other_encryption::KnownFailure;
use super::timed::TimedConnection;
use crate::store::redis::failure::RedisFailure;
use crate::store::{RedisSettings, SentinelSettings};
use crate::time::BootInstant;

/// Names the server that a link connects to, if that may change.
#[async_trait]
pub(in crate::store::redis) trait ServerSource:
    Debug + Send + Sync
{
    /// Returns the server to use now.
    async fn server(&self) -> Result<RedisSettings, RedisFailure>;
}

/// A connection to one server, replaced whenever it may be broken.
#[derive(Debug)]
pub(in crate::store::redis) struct Link {
    settings: RedisSettings,
    part: Part,
    /// Names the server. Without it, the settings name the server.
    source: Option<Arc<dyn ServerSource>>,
    shown: String,
    known_scripts: KnownScripts,
    state: Mutex<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    live: Option<Live>,
    attempt: Option<ConnectAttempt>,
    generations: u64,
    /// Since when the server is unreachable. Logged once and at debug level, because the caller knows
    /// what the outage means.
    outage: Option<Instant>,
}

/// An attempt to connect that is under way.
#[derive(Debug, Clone)]
struct ConnectAttempt {
    outcome: watch::Receiver<Option<Result<Live, RedisFailure>>>,
    /// For callers whose limit ends before it.
    known: KnownFailure,
}

#[derive(Debug, Clone)]
struct Live {
    connection: TimedConnection,
    exchange: Exchange,
    /// Set if replicas must acknowledge claims and renewals.
    barrier: Option<Arc<Barrier>>,
    generation: u64,
}

/// A reply, and the connection by which it came.
#[derive(Debug)]
pub(in crate::store::redis) struct LinkReply {
    pub(in crate::store::redis) value: Value,
    /// When it had arrived at this host.
    pub(in crate::store::redis) arrived: BootInstant,
    pub(in crate::store::redis) connection: ConnectionHandle,
}

/// The connection by which a reply came.
#[derive(Debug)]
pub(in crate::store::redis) struct ConnectionHandle {
    link: Arc<Link>,
    barrier: Option<Arc<Barrier>>,
    generation: u64,
}

impl ConnectionHandle {
    /// The URL of the server, without password.
    pub(in crate::store::redis) fn server(&self) -> String {
        self.link.settings().shown()
    }

    /// Waits until as many replicas as configured have acknowledged what the server wrote for requests
    /// on this connection.
    pub(in crate::store::redis) async fn replicated(
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

impl Link {
    pub(in crate::store::redis) fn new(settings: &RedisSettings, part: Part) -> Arc<Self> {
        Arc::new(Self {
            settings: settings.clone(),
            part,
            source: None,
            shown: settings.shown(),
            known_scripts: KnownScripts::default(),
            state: Mutex::new(LinkState::default()),
        })
    }

    /// A link to the server that is master.
    pub(in crate::store::redis) fn to_master(
        settings: &SentinelSettings,
        source: Arc<dyn ServerSource>,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings: settings.servers.clone(),
            part: Part::Watched,
            shown: format!("the master {}", settings.master),
            source: Some(source),
            known_scripts: KnownScripts::default(),
            state: Mutex::new(LinkState::default()),
        })
    }

    pub(in crate::store::redis) fn settings(&self) -> &RedisSettings {
        &self.settings
    }

    fn handle(self: &Arc<Self>, live: Live) -> ConnectionHandle {
        ConnectionHandle {
            link: Arc::clone(self),
            barrier: live.barrier,
            generation: live.generation,
        }
    }

    /// Returns the number of the connection that is in use. Another number means another connection.
    pub(in crate::store::redis) fn generation(&self) -> u64 {
        self.state().generations
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

    fn state(&self) -> MutexGuard<'_, LinkState> {
        // No code that holds the guard can panic in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
