//! The route to a Redis Cluster: each lock with all that belongs to it lies in one slot, each slot
//! on one server.
//!
//! [`router`] finds the server and follows slots that move; [`slot`] computes where a key lies.
//! Operations on many locks are made for each of them on its own and at once, so that a server that
//! is down delays only its own.

mod map;
mod router;
mod slot;
mod slot_watcher;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, Value};

use self::router::Router;
use self::slot_watcher::SlotWatcher;
use super::{Batching, ReplyOrigin, Route, ScriptReply};
use crate::names::Prefix;
use crate::store::redis::connect::Part;
use crate::store::redis::failure::RedisFailure;
use crate::store::redis::keys::LockKeys;
use crate::store::redis::link::{Call, Link};
use crate::store::redis::listen::PubSubEndpoints;
use crate::store::redis::script::{Script, Scripts};
use crate::store::{ClusterSettings, Lock, RedisSettings, Registration, StoreError};

/// The route to a Cluster.
#[derive(Debug)]
pub(in crate::store::redis) struct ClusterRoute {
    router: Arc<Router>,
    watcher: SlotWatcher,
}

/// How a Cluster is laid out, for `doctor`.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The servers that serve slots.
    pub(crate) primaries: Vec<RedisSettings>,
    /// How many slots no server serves.
    pub(crate) unserved: usize,
    /// Whether its servers report `cluster_state:ok`.
    pub(crate) in_order: bool,
}

/// Asks the servers of a Cluster how it is laid out.
pub(crate) async fn layout_of(settings: &ClusterSettings) -> Result<Layout, StoreError> {
    Ok(Router::new(settings)?.layout().await?)
}

impl ClusterRoute {
    pub(in crate::store::redis) fn to(
        settings: &ClusterSettings,
        scripts: Arc<Scripts>,
    ) -> Result<Self, RedisFailure> {
        Ok(Self {
            router: Arc::new(Router::new(settings)?),
            watcher: SlotWatcher::new(scripts),
        })
    }
}

/// Any server: a message that is published on one of them is received on all.
impl PubSubEndpoints for ClusterRoute {
    fn endpoints(&self) -> (Vec<RedisSettings>, Part) {
        (self.router.everywhere(), Part::InCluster)
    }
}

#[async_trait]
impl Route for ClusterRoute {
    fn prefix(&self) -> &Prefix {
        self.router.prefix()
    }

    async fn run(
        &self,
        script: &Script,
        mut call: Call,
        limit: Duration,
    ) -> Result<ScriptReply, RedisFailure> {
        let slot = slot::settle(self.prefix(), &mut call)?;
        let (value, connection) = self.router.run(slot, script, &call, limit).await?;
        Ok(ScriptReply {
            value,
            origin: ReplyOrigin {
                connection,
                slot: Some(slot),
            },
        })
    }

    async fn read(&self, key: &str, command: &Cmd) -> Result<Value, RedisFailure> {
        let answer = self.router.send(slot::of(key), command).await;
        answer.map_err(|failure| failure.attributed_to(key))
    }

    async fn replicated(&self, origin: &ReplyOrigin, limit: Duration) -> Result<(), RedisFailure> {
        // Every reply of this route has a slot.
        let slot = origin.slot.unwrap_or_default();
        self.router
            .replicated(slot, &origin.connection, limit)
            .await
    }

    fn batching(&self) -> Batching {
        Batching::AtOnce
    }

    fn shard(&self, lock: &Lock) -> u64 {
        let slot = slot::of(&LockKeys::of(self.prefix(), lock).state);
        self.router.shard(slot)
    }

    async fn servers(&self) -> Result<Vec<Arc<Link>>, RedisFailure> {
        let primaries = self.router.primaries().await?;
        if primaries.is_empty() {
            return Err(RedisFailure::unreachable(
                "no server of the Cluster answers".to_owned(),
            ));
        }
        Ok(primaries.into_iter().map(|(_, link)| link).collect())
    }

    fn markers(&self) -> Vec<String> {
        let slots = 0..slot::SLOTS;
        slots
            .map(|slot| slot::marker(self.prefix(), slot))
            .collect()
    }

    fn registered(&self, jobs: &[Registration]) {
        self.watcher.remember(&self.router, jobs);
    }
}
