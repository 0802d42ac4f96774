//! The route to a Redis Cluster: a lock and all its data are in one slot, and each slot is on one
//! server.
//!
//! [`router`] finds the server and follows slots that move; [`slot`] computes the slot of a key. An
//! operation on many locks makes one call for each of them, all at once, so that a server that is down
//! delays only its own locks.

mod map;
mod router;
mod slot;
mod slot_watcher;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, Value};

pub(crate) use self::map::Layout;
use self::router::Router;
use self::slot_watcher::SlotWatcher;
use super::{Batching, ReplyOrigin, Route, ScriptReply};
use crate::names::Prefix;
use crate::store::redis::codec::call::Call;
use crate::store::redis::codec::keys::{self, Key, LockKeys};
use crate::store::redis::conn::hello::Part;
use crate::store::redis::conn::link::Link;
use crate::store::redis::conn::pubsub::{Endpoints, PubSubEndpoints};
use crate::store::redis::failure::RedisFailure;
use crate::store::redis::script::{Script, Scripts};
use crate::store::{ClusterSettings, Lock, Registration, StoreError};

/// The route to a Cluster.
#[derive(Debug)]
pub(in crate::store::redis) struct ClusterRoute {
    router: Arc<Router>,
    watcher: SlotWatcher,
}

/// Asks the servers of a Cluster for its layout.
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
    fn endpoints(&self) -> Endpoints {
        Endpoints {
            servers: self.router.everywhere(),
            part: Part::InCluster,
        }
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
        let reply = self.router.run(slot, script, &call, limit).await?;
        Ok(ScriptReply {
            value: reply.value,
            arrived: reply.arrived,
            origin: ReplyOrigin {
                connection: reply.connection,
                slot: Some(slot),
            },
        })
    }

    async fn read(&self, key: &str, command: &Cmd) -> Result<Value, RedisFailure> {
        let reply = self.router.send(slot::of(key), command).await;
        reply.map_err(|failure| failure.attributed_to(key))
    }

    async fn replicated(&self, origin: &ReplyOrigin, limit: Duration) -> Result<(), RedisFailure> {
        // Every reply of this route has a slot.
        let slot = origin.slot.unwrap_or_default();
        self.router
            .replicated(slot, &origin.connection, limit)
            .await
    }

    fn all_failures(&self) -> Option<Key<'_>> {
        None
    }

    fn batching(&self) -> Batching {
        Batching::AtOnce
    }

    fn shard(&self, lock: &Lock) -> u64 {
        let slot = slot::of(&LockKeys::of(self.prefix(), lock).state().to_string());
        self.router.shard(slot)
    }

    async fn servers(&self) -> Result<Vec<Arc<Link>>, RedisFailure> {
        let primaries = self.router.primaries().await?;
        if primaries.is_empty() {
            return Err(RedisFailure::unreachable(
                "no server of the Cluster replies".to_owned(),
            ));
        }
        Ok(primaries.into_iter().map(|(_, link)| link).collect())
    }

    /// That of the slot in which the hosts announce themselves.
    fn format_marker(&self) -> String {
        let hosts = keys::hosts(self.prefix()).to_string();
        slot::marker(self.prefix(), slot::of(&hosts))
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
