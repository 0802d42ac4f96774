//! The barrier: waits until replicas have acknowledged a claim or a renewal (`wait_replicas`).
//!
//! WAIT blocks the connection on which it is sent, so the barrier has its own connection. Both lead to
//! the same server process and end together, because an acknowledgement covers only what this process
//! wrote. One WAIT serves all tasks that came before it was sent.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use super::connect::connect;
use super::hello::{Hello, Part};
use crate::store::RedisSettings;
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::failure::{RedisFailure, Shortfall};

const TOUCH: &str = include_str!("../scripts/touch.lua");

/// What is written before a WAIT.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::redis) enum Trace<'a> {
    /// A message.
    Message,
    /// The marker of a slot of a Cluster, written again.
    Marker(&'a str),
}

#[derive(Debug)]
pub(super) struct Barrier {
    connection: MultiplexedConnection,
    channel: String,
    shown: String,
    replicas: u32,
    /// The tasks for which no WAIT was sent yet.
    open: Mutex<Arc<WaitGroup>>,
    /// Held by the task that sends the WAIT for its group.
    turn: tokio::sync::Mutex<()>,
}

/// Who sent the WAIT of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitSender {
    ByUs,
    ByAnother,
}

/// The tasks that one WAIT serves.
#[derive(Debug, Default)]
struct WaitGroup {
    /// How many replicas acknowledged.
    outcome: OnceLock<Result<u32, RedisFailure>>,
}

impl Barrier {
    /// Creates the barrier for what is written over `main`, if the settings ask for one.
    pub(in crate::store::redis) async fn beside(
        main: &MultiplexedConnection,
        settings: &RedisSettings,
        part: Part,
    ) -> Result<Option<Arc<Self>>, RedisFailure> {
        if settings.wait_replicas == 0 {
            return Ok(None);
        }
        // The end of this connection is noticed when it is used.
        let (pushes, _) = unbounded_channel();
        let connection = connect(settings, part, pushes).await?;
        let shown = settings.shown();
        let ours = run_id(&shown, main).await?;
        if run_id(&shown, &connection).await? != ours {
            return Err(RedisFailure::unreachable(format!(
                "{shown} leads to two server processes: one has just replaced the other"
            )));
        }
        Ok(Some(Arc::new(Self {
            connection,
            channel: format!("{}:acknowledge", settings.prefix),
            shown,
            replicas: settings.wait_replicas,
            open: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        })))
    }

    /// Waits until enough replicas have acknowledged everything that the server has written so far.
    pub(super) async fn pass(&self, trace: Trace<'_>, limit: Duration) -> Result<(), RedisFailure> {
        let until = Instant::now() + limit;
        loop {
            let count = match self.join(trace, until).await {
                None => 0,
                // Another task wrote the trace. Its slot has moved away, but ours may not have.
                Some((WaitSender::ByAnother, Err(failure))) if failure.redirect().is_some() => 0,
                Some((_, outcome)) => outcome?,
            };
            if count >= self.replicas {
                return Ok(());
            }
            if Instant::now() >= until {
                let detail = format!(
                    "{}: {count} of {} replicas acknowledged within {limit:?} (wait_replicas)",
                    self.shown, self.replicas
                );
                return Err(RedisFailure::short_of_replicas(
                    self.shortfall(count),
                    detail,
                ));
            }
        }
    }

    /// Returns how many replicas acknowledged what was written before this call, or `None` if that is
    /// not known in time.
    async fn join(
        &self,
        trace: Trace<'_>,
        until: Instant,
    ) -> Option<(WaitSender, Result<u32, RedisFailure>)> {
        let group = Arc::clone(&self.open());
        let _turn = tokio::time::timeout_at(until, self.turn.lock())
            .await
            .ok()?;
        if let Some(outcome) = group.outcome.get() {
            return Some((WaitSender::ByAnother, outcome.clone()));
        }
        // A task that comes later may have written after this WAIT.
        *self.open() = Arc::default();
        let limit = until.saturating_duration_since(Instant::now());
        let outcome = self.acknowledged(trace, limit).await;
        // Only the task that holds the turn sets it.
        let _ = group.outcome.set(outcome.clone());
        Some((WaitSender::ByUs, outcome))
    }

    async fn acknowledged(&self, trace: Trace<'_>, limit: Duration) -> Result<u32, RedisFailure> {
        let mut connection = self.connection.clone();
        connection.set_response_timeout(limit + RESPONSE_TIMEOUT);
        let mut commands = redis::pipe();
        match trace {
            // It is written after everything that must be acknowledged.
            Trace::Message => commands.cmd("PUBLISH").arg(&self.channel).arg("").ignore(),
            // A server serves a slot that is migrating to it only after ASKING.
            Trace::Marker(marker) => commands
                .cmd("ASKING")
                .ignore()
                .cmd("EVAL")
                .arg(TOUCH)
                .arg(1)
                .arg(marker),
        };
        // 0 would mean to wait without a limit.
        let millis = limit.as_millis().max(1).to_string();
        commands.cmd("WAIT").arg(self.replicas).arg(millis);
        let replies = commands.query_async::<Vec<u32>>(&mut connection).await;
        let replies = match replies {
            Ok(replies) => replies,
            Err(error) => return Err(self.failure(&error, &mut connection).await),
        };
        match replies.as_slice() {
            [0, _] => Err(RedisFailure::short_of_replicas(
                self.shortfall(0),
                format!(
                    "{}: the write was lost before a replica acknowledged it",
                    self.shown
                ),
            )),
            [count] | [_, count] => Ok(*count),
            other => Err(RedisFailure::corrupt(format!(
                "{}: the reply to WAIT is {other:?}",
                self.shown
            ))),
        }
    }

    fn shortfall(&self, acknowledged: u32) -> Shortfall {
        Shortfall {
            server: self.shown.clone(),
            acknowledged,
            wanted: self.replicas,
        }
    }

    /// Reads an error. A server that became a replica rejects `WAIT` with the general code, so `HELLO`
    /// is sent to find out its role.
    async fn failure(
        &self,
        error: &redis::RedisError,
        connection: &mut MultiplexedConnection,
    ) -> RedisFailure {
        let failure = RedisFailure::of(&self.shown, error);
        if error.code() == Some("ERR")
            && let Ok(hello) = Hello::ask(&self.shown, connection).await
            && hello.is_replica()
        {
            return RedisFailure::unreachable(failure.detail().clone());
        }
        failure
    }

    fn open(&self) -> MutexGuard<'_, Arc<WaitGroup>> {
        // No code that holds the guard can panic in the middle of a change.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the `run_id` from the section `server` of `INFO`.
pub(in crate::store::redis) fn run_id_in(shown: &str, info: &str) -> Result<String, RedisFailure> {
    let id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    id.map(|id| id.trim().to_owned())
        .ok_or_else(|| RedisFailure::corrupt(format!("{shown}: INFO names no run_id")))
}

/// Returns which server process is at the other end of a connection.
async fn run_id(shown: &str, connection: &MultiplexedConnection) -> Result<String, RedisFailure> {
    let mut connection = connection.clone();
    connection.set_response_timeout(RESPONSE_TIMEOUT);
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut connection)
        .await
        .map_err(|e| RedisFailure::of(shown, &e))?;
    run_id_in(shown, &info)
}
