//! Routes: how an operation reaches the server that keeps its keys.
//!
//! The operations are the same on one server, on the master that Sentinels name and on a Cluster.
//! What differs is which server a script runs on, how an operation on many entries is split, and
//! whose replicas must acknowledge. A [`Route`] decides that and nothing else.

mod batching;
mod cluster;
mod sentinel;
mod single;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, Value};

pub(super) use self::batching::Batching;
pub(super) use self::cluster::ClusterRoute;
pub(crate) use self::cluster::{Layout, layout_of};
pub(crate) use self::sentinel::master_of;
pub(super) use self::single::ServerRoute;
use super::codec::call::Call;
use super::codec::keys::Key;
use super::conn::link::{ConnectionHandle, Link};
use super::conn::pubsub::PubSubEndpoints;
use super::failure::RedisFailure;
use super::script::Script;
use crate::names::Prefix;
use crate::store::{Lock, Registration};
use crate::time::BootInstant;

/// A script's reply and the server that it came from.
#[derive(Debug)]
pub(super) struct ScriptReply {
    pub(super) value: Value,
    /// When it had arrived at this host.
    pub(super) arrived: BootInstant,
    pub(super) origin: ReplyOrigin,
}

/// The connection by which a reply came.
#[derive(Debug)]
pub(super) struct ReplyOrigin {
    connection: ConnectionHandle,
    /// In a Cluster: the slot of the keys.
    slot: Option<u16>,
}

impl ReplyOrigin {
    /// The URL of the server, without password.
    pub(super) fn server(&self) -> String {
        self.connection.server()
    }
}

/// How an operation reaches the server that keeps its keys.
#[async_trait]
pub(super) trait Route: PubSubEndpoints {
    /// What every key begins with.
    fn prefix(&self) -> &Prefix;

    /// Runs a script on the server that keeps the keys of the call.
    async fn run(
        &self,
        script: &Script,
        call: Call,
        limit: Duration,
    ) -> Result<ScriptReply, RedisFailure>;

    /// Sends a command that reads this key.
    async fn read(&self, key: &str, command: &Cmd) -> Result<Value, RedisFailure>;

    /// Waits until as many replicas as configured have what the server wrote before it replied.
    async fn replicated(&self, origin: &ReplyOrigin, limit: Duration) -> Result<(), RedisFailure>;

    /// How operations on many entries are split.
    fn batching(&self) -> Batching;

    /// A number for the server that keeps the lock. See [`Store::shard`](crate::store::Store::shard).
    fn shard(&self, lock: &Lock) -> u64;

    /// Finds the servers that keep data, at least one. Afterwards [`PubSubEndpoints`] names servers that
    /// were found by this call or an earlier one.
    async fn servers(&self) -> Result<Vec<Arc<Link>>, RedisFailure>;

    /// The key of the failures of all jobs, or `None` if the jobs lie on several servers.
    fn all_failures(&self) -> Option<Key<'_>>;

    /// The marker whose format counts for what only reads.
    fn format_marker(&self) -> String;

    /// The keys that mark the store as in use.
    fn markers(&self) -> Vec<String>;

    /// Called with the jobs that were registered.
    fn registered(&self, jobs: &[Registration]);
}
