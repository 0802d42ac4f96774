//! The barrier: what a claim or a renewal has to pass before it counts, when it must be known to
//! replicas too (`wait_replicas`).
//!
//! WAIT holds up the connection it is sent on, so it has one of its own, to the same server
//! process as the link's, and ends with it: an acknowledgement says nothing of what another
//! server was told. One WAIT serves all who came before it was sent.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use super::connect::{Hello, Part, connect};
use super::failure::{RedisFailure, Shortfall};
use super::link::RESPONSE_TIMEOUT;
use crate::store::RedisSettings;

const TOUCH: &str = include_str!("scripts/touch.lua");

/// What is written before a WAIT.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trace<'a> {
    /// A message.
    Message,
    /// The marker of a slot of a Cluster's, once more.
    Marker(&'a str),
}

#[derive(Debug)]
pub(super) struct Barrier {
    connection: MultiplexedConnection,
    channel: String,
    shown: String,
    replicas: u32,
    /// Those for whom no WAIT was sent yet.
    open: Mutex<Arc<WaitGroup>>,
    /// Held by the one who waits for all of its group.
    turn: tokio::sync::Mutex<()>,
}

/// Who sent the WAIT of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitSender {
    ByUs,
    ByAnother,
}

/// Those whom one WAIT serves.
#[derive(Debug, Default)]
struct WaitGroup {
    /// How many replicas acknowledged what was written before.
    outcome: OnceLock<Result<u32, RedisFailure>>,
}

impl Barrier {
    /// A barrier for what is written by way of `main`, if the settings want one.
    pub(super) async fn beside(
        main: &MultiplexedConnection,
        settings: &RedisSettings,
        part: Part,
    ) -> Result<Option<Arc<Self>>, RedisFailure> {
        if settings.wait_replicas == 0 {
            return Ok(None);
        }
        // Its end is noticed when it is used.
        let (pushes, _) = unbounded_channel();
        let connection = connect(settings, part, pushes).await?;
        let shown = settings.shown();
        let ours = run_id(&shown, main).await?;
        if run_id(&shown, &connection).await? != ours {
            return Err(RedisFailure::unreachable(format!(
                "{shown} leads to several servers, one of which took the place of the other"
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

    /// Waits until enough replicas have acknowledged all that the server was told so far.
    pub(super) async fn pass(&self, trace: Trace<'_>, limit: Duration) -> Result<(), RedisFailure> {
        let until = Instant::now() + limit;
        loop {
            let count = match self.join(trace, until).await {
                None => 0,
                // The trace was another's: its slot has moved away, and ours may not have.
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

    /// The number of acknowledgements for what was written before this call; `None` when nobody
    /// knows by then.
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
        // Who comes from here on may have written after what is asked about now.
        *self.open() = Arc::default();
        let limit = until.saturating_duration_since(Instant::now());
        let outcome = self.acknowledged(trace, limit).await;
        // Nobody else sets it: that takes the turn.
        let _ = group.outcome.set(outcome.clone());
        Some((WaitSender::ByUs, outcome))
    }

    async fn acknowledged(&self, trace: Trace<'_>, limit: Duration) -> Result<u32, RedisFailure> {
        let mut connection = self.connection.clone();
        connection.set_response_timeout(limit + RESPONSE_TIMEOUT);
        let mut commands = redis::pipe();
        match trace {
            // It comes after everything that is to be acknowledged.
            Trace::Message => commands.cmd("PUBLISH").arg(&self.channel).arg("").ignore(),
            // A slot that is on its way to this server is served to those who ask so.
            Trace::Marker(marker) => commands
                .cmd("ASKING")
                .ignore()
                .cmd("EVAL")
                .arg(TOUCH)
                .arg(1)
                .arg(marker),
        };
        // 0 would mean to wait for ever.
        let millis = limit.as_millis().max(1).to_string();
        commands.cmd("WAIT").arg(self.replicas).arg(millis);
        let answers = commands.query_async::<Vec<u32>>(&mut connection).await;
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => return Err(self.failure(&error, &mut connection).await),
        };
        match answers.as_slice() {
            [0, _] => Err(RedisFailure::short_of_replicas(
                self.shortfall(0),
                format!(
                    "{}: what was written is gone before a replica acknowledged it",
                    self.shown
                ),
            )),
            [count] | [_, count] => Ok(*count),
            other => Err(RedisFailure::corrupt(format!(
                "{}: the answer to WAIT is {other:?}",
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

    /// A server that became a replica refuses `WAIT` without a code of its own, so it is asked.
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
        // Nothing that holds the guard can panic half-way through a change.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The `run_id` that the section `server` of `INFO` names.
pub(super) fn run_id_in(shown: &str, info: &str) -> Result<String, RedisFailure> {
    let id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    id.map(|id| id.trim().to_owned())
        .ok_or_else(|| RedisFailure::corrupt(format!("{shown}: INFO names no run_id")))
}

/// Which server process answers on a connection.
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
