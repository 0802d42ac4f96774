//! The contract on a master that a Sentinel names: a pair of its own for each case.

use std::sync::Arc;

use async_trait::async_trait;
use cronlatch::names::HostName;
use cronlatch::store::{Lock, Store};

use super::redis::{Redis, store_at};
use super::{Foreign, Subject};
use crate::support::RedisServer;
use crate::support::redis::documented_rights;
use crate::support::sentinel::{Door, Sentinel, Watched, url};

struct Watchful {
    redis: Redis,
    sentinels: Vec<Sentinel>,
}

async fn watched() -> Watchful {
    let rights = format!("{} ~*", documented_rights());
    let server = RedisServer::builder().user("cronlatch", &rights).start();
    let sentinels = Sentinel::start(1, &Watched::only(&server), &Door::default());
    Watchful {
        redis: Redis {
            store: store_of(&server, &sentinels),
            server,
        },
        sentinels,
    }
}

fn store_of(server: &RedisServer, sentinels: &[Sentinel]) -> Arc<dyn Store> {
    let server = server.url();
    let user = server
        .strip_prefix("redis://")
        .and_then(|rest| rest.split_once('@'))
        .map_or(String::new(), |(user, _)| format!("{user}@"));
    store_at(&url(sentinels).replace("://", &format!("://{user}")))
}

#[async_trait]
impl Subject for Watchful {
    fn store(&self) -> Arc<dyn Store> {
        self.redis.store()
    }

    fn another(&self) -> Arc<dyn Store> {
        store_of(&self.redis.server, &self.sentinels)
    }

    async fn evict(&self, lock: &Lock) {
        self.redis.evict(lock).await;
    }

    async fn expire(&self, lock: &Lock) {
        self.redis.expire(lock).await;
    }

    async fn foreign(&self, key: &str, value: Foreign<'_>) -> bool {
        self.redis.foreign(key, value).await
    }

    async fn copy_listed(&self, host: &HostName) {
        self.redis.copy_listed(host).await;
    }

    async fn restore_listed(&self, host: &HostName) {
        self.redis.restore_listed(host).await;
    }

    async fn unmark(&self) {
        self.redis.unmark().await;
    }
}

contract!(watched);
