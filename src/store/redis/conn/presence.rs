//! Finds the daemons that are connected to a server, independently of its data.
//!
//! Directly after a `FLUSHALL` nothing in the store names the daemons that use it, while their jobs
//! still run under leases that the store has lost. But each daemon has subscribed to one
//! channel of the server. `init` publishes a question there: the server counts who receives it,
//! and the daemons publish their names on a second channel.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use super::connect::connect;
use super::hello::Part;
use super::pubsub::Listener;
use crate::names::{HostName, Prefix};
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::failure::RedisFailure;
use crate::store::{RedisSettings, StoreError};

/// How long daemons have to publish their names. A daemon that is stopped publishes none, and counts.
const NAMES_WITHIN: Duration = Duration::from_secs(2);

/// If nobody receives the question, it is asked again after this long: a server that was restarted
/// has lost its subscribers, and daemons subscribe again every [`RETRY`].
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// How soon a daemon subscribes again.
pub(in crate::store::redis) const RETRY: Duration = Duration::from_millis(400);

/// Shown for a daemon that received the question but did not publish its name in time.
pub(in crate::store) const NAMELESS: &str = "(a daemon that did not reply)";

fn question(prefix: &Prefix) -> String {
    format!("{prefix}:daemons")
}

fn names(prefix: &Prefix) -> String {
    format!("{prefix}:daemons:names")
}

/// Returns the command with which a daemon publishes its name.
fn name(prefix: &Prefix, host: &HostName) -> redis::Cmd {
    let mut command = redis::cmd("PUBLISH");
    command.arg(names(prefix)).arg(host.as_str());
    command
}

/// Replies to the question of `init` until dropped; `publish` sends one command.
pub(in crate::store::redis) async fn attend<F>(
    listener: &Arc<Listener>,
    prefix: &Prefix,
    host: &HostName,
    publish: impl Fn(redis::Cmd) -> F + Send + Sync,
) where
    F: Future<Output = Result<Value, RedisFailure>> + Send,
{
    let channel = question(prefix);
    loop {
        match listener.messages(&channel).await {
            Ok(mut messages) => {
                while messages.changed().await.is_ok() {
                    if let Err(failure) = publish(name(prefix, host)).await {
                        tracing::debug!("cannot publish this host's name: {}", failure.text());
                    }
                }
            }
            Err(failure) => {
                tracing::debug!("cannot subscribe to {channel}: {}", failure.text());
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Returns the daemons that are connected to these servers. Each daemon is connected to one of them.
pub(in crate::store::redis) async fn daemons(
    servers: &[RedisSettings],
    part: Part,
    prefix: &Prefix,
) -> Result<Vec<String>, StoreError> {
    let mut asked = Vec::new();
    let mut failed = RedisFailure::unreachable("there is no server".to_owned());
    for server in servers {
        match PresenceConnection::connect(server, part, prefix).await {
            Ok(server) => asked.push(server),
            // The other servers of a Cluster are still asked.
            Err(failure) => failed = failure,
        }
    }
    if asked.is_empty() {
        return Err(failed.into());
    }
    let mut received = ask_all(&mut asked, prefix).await?;
    if received == 0 {
        tokio::time::sleep(ASK_AGAIN).await;
        received = ask_all(&mut asked, prefix).await?;
    }
    if received == 0 {
        return Ok(Vec::new());
    }
    // In a Cluster a message that is published on one server is received on all.
    let mut found = asked.remove(0).names(received).await;
    if found.len() < received {
        found.insert(NAMELESS.to_owned());
    }
    Ok(found.into_iter().collect())
}

async fn ask_all(asked: &mut [PresenceConnection], prefix: &Prefix) -> Result<usize, RedisFailure> {
    let mut received = 0;
    for server in asked {
        received += server.ask(prefix).await?;
    }
    Ok(received)
}

/// A connection that has subscribed to the names.
struct PresenceConnection {
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
    shown: String,
}

impl PresenceConnection {
    async fn connect(
        server: &RedisSettings,
        part: Part,
        prefix: &Prefix,
    ) -> Result<Self, RedisFailure> {
        let (sender, pushes) = unbounded_channel();
        let mut connection = connect(server, part, sender).await?;
        connection.set_response_timeout(RESPONSE_TIMEOUT);
        let shown = server.shown();
        let subscribed = connection.subscribe(names(prefix)).await;
        subscribed.map_err(|e| RedisFailure::of(&shown, &e))?;
        Ok(Self {
            connection,
            pushes,
            shown,
        })
    }

    /// Publishes the question. Returns how many daemons received it.
    async fn ask(&mut self, prefix: &Prefix) -> Result<usize, RedisFailure> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(question(prefix)).arg("init");
        let received = command.query_async(&mut self.connection).await;
        received.map_err(|e| RedisFailure::of(&self.shown, &e))
    }

    /// Returns the names that arrive in time, at most `wanted`.
    async fn names(mut self, wanted: usize) -> BTreeSet<String> {
        let until = Instant::now() + NAMES_WITHIN;
        let mut found = BTreeSet::new();
        while found.len() < wanted
            && let Ok(Some(push)) = tokio::time::timeout_at(until, self.pushes.recv()).await
        {
            if push.kind == PushKind::Message
                && let Some(Value::BulkString(name)) = push.data.into_iter().nth(1)
            {
                found.insert(String::from_utf8_lossy(&name).into_owned());
            }
        }
        found
    }
}
