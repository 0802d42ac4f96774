//! Reads facts about a server, for the checks in `preflight`.
//!
//! It uses its own connection and accepts any server that allows the log-in: an old version, a replica,
//! a server of a Cluster.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};

use super::connect::{CONNECT_TIMEOUT, open};
use super::hello::Hello;
use super::other_encryption::KnownFailure;
use crate::store::redis::failure::RedisFailure;
use crate::store::{RedisSettings, StoreError};

/// How long one reply may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection to one server.
#[derive(Debug)]
pub(crate) struct Inspector {
    connection: MultiplexedConnection,
    shown: String,
}

/// Why a command has no reply.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The user may not send the command.
    Denied,
    /// The server is unreachable, or does not know the command.
    Failed(StoreError),
}

impl Inspector {
    /// Connects and logs in.
    pub(crate) async fn connect(settings: &RedisSettings) -> Result<Self, StoreError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(Some(PATIENCE));
        let known = KnownFailure::default();
        let opening = open(settings, &known, &config);
        match tokio::time::timeout(CONNECT_TIMEOUT, opening).await {
            Ok(Ok(connection)) => Ok(Self {
                connection,
                shown: settings.shown(),
            }),
            Ok(Err(failure)) => Err(failure.into()),
            Err(_) => Err(known
                .or_late(format!(
                    "no connection to {} within {CONNECT_TIMEOUT:?}",
                    settings.shown()
                ))
                .into()),
        }
    }

    /// Whether the server is a Sentinel.
    pub(crate) async fn is_sentinel(&mut self) -> Result<bool, StoreError> {
        let hello = Hello::ask(&self.shown, &mut self.connection).await?;
        Ok(hello.is_sentinel())
    }

    /// Sends one command.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> Result<Value, NoAnswer> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command
            .query_async(&mut self.connection)
            .await
            .map_err(|error| {
                let denied = error.code() == Some("NOPERM");
                if denied {
                    NoAnswer::Denied
                } else {
                    NoAnswer::Failed(RedisFailure::of(&self.shown, &error).into())
                }
            })
    }

    /// Returns a section of INFO.
    pub(crate) async fn info(&mut self, section: &str) -> Result<String, NoAnswer> {
        self.texts(&["INFO", section])
            .await
            .map(|texts| texts.concat())
    }

    /// Returns the texts of a reply, also those of nested lists, in order.
    pub(crate) async fn texts(&mut self, words: &[&str]) -> Result<Vec<String>, NoAnswer> {
        let mut all = Vec::new();
        flatten(self.ask(words).await?, &mut all);
        Ok(all)
    }
}

fn flatten(value: Value, all: &mut Vec<String>) {
    match value {
        Value::Array(items) | Value::Set(items) => {
            for item in items {
                flatten(item, all);
            }
        }
        Value::Map(pairs) => {
            for (key, value) in pairs {
                flatten(key, all);
                flatten(value, all);
            }
        }
        Value::Int(number) => all.push(number.to_string()),
        Value::BulkString(bytes) => all.push(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => all.push(text),
        _ => {}
    }
}
