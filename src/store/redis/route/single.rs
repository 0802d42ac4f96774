//! The route to one server: the one that is configured, or the master that Sentinels name. All keys
//! are on this server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, Value};

use super::sentinel::Sentinels;
use super::{Batching, ReplyOrigin, Route, ScriptReply};
use crate::names::Prefix;
use crate::store::redis::codec::call::Call;
use crate::store::redis::codec::keys::{self, Key};
use crate::store::redis::conn::barrier::Trace;
use crate::store::redis::conn::hello::Part;
use crate::store::redis::conn::link::{Link, ServerSource};
use crate::store::redis::conn::pubsub::{Endpoints, PubSubEndpoints};
use crate::store::redis::failure::RedisFailure;
use crate::store::redis::script::Script;
use crate::store::{Lock, RedisSettings, Registration, SentinelSettings};

/// The route to one server.
#[derive(Debug)]
pub(in crate::store::redis) struct ServerRoute {
    link: Arc<Link>,
    sentinels: Option<Arc<Sentinels>>,
}

impl ServerRoute {
    /// The route to the server that is configured.
    pub(in crate::store::redis) fn to(settings: &RedisSettings) -> Self {
        Self::by(Link::new(settings, Part::Alone))
    }

    /// The route over this link.
    pub(in crate::store::redis) fn by(link: Arc<Link>) -> Self {
        Self {
            link,
            sentinels: None,
        }
    }

    /// The route to the server that the Sentinels name as master.
    pub(in crate::store::redis) fn to_master(settings: &SentinelSettings) -> Self {
        let sentinels = Sentinels::new(settings);
        Self {
            link: Link::to_master(settings, Arc::clone(&sentinels) as _),
            sentinels: Some(sentinels),
        }
    }
}

/// With Sentinels: the master that was named last, if any.
impl PubSubEndpoints for ServerRoute {
    fn endpoints(&self) -> Endpoints {
        match &self.sentinels {
            Some(sentinels) => Endpoints {
                servers: sentinels.last_named().into_iter().collect(),
                part: Part::Watched,
            },
            None => Endpoints {
                servers: vec![self.link.settings().clone()],
                part: Part::Alone,
            },
        }
    }
}

#[async_trait]
impl Route for ServerRoute {
    fn prefix(&self) -> &Prefix {
        &self.link.settings().prefix
    }

    async fn run(
        &self,
        script: &Script,
        call: Call,
        limit: Duration,
    ) -> Result<ScriptReply, RedisFailure> {
        let reply = self.link.run_by(script, &call, limit).await?;
        Ok(ScriptReply {
            value: reply.value,
            arrived: reply.arrived,
            origin: ReplyOrigin {
                connection: reply.connection,
                slot: None,
            },
        })
    }

    async fn read(&self, key: &str, command: &Cmd) -> Result<Value, RedisFailure> {
        self.link.send_on(command, key).await
    }

    async fn replicated(&self, origin: &ReplyOrigin, limit: Duration) -> Result<(), RedisFailure> {
        origin.connection.replicated(Trace::Message, limit).await
    }

    fn all_failures(&self) -> Option<Key<'_>> {
        Some(keys::all_failures(self.prefix()))
    }

    fn batching(&self) -> Batching {
        Batching::InTurn
    }

    fn shard(&self, _: &Lock) -> u64 {
        0
    }

    async fn servers(&self) -> Result<Vec<Arc<Link>>, RedisFailure> {
        if let Some(sentinels) = &self.sentinels
            && sentinels.last_named().is_none()
        {
            sentinels.server().await?;
        }
        Ok(vec![Arc::clone(&self.link)])
    }

    fn format_marker(&self) -> String {
        keys::store(self.prefix()).to_string()
    }

    fn markers(&self) -> Vec<String> {
        vec![self.format_marker()]
    }

    fn registered(&self, _: &[Registration]) {}
}
