//! The contract on Redis: a server of its own for each case.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cronlatch::store::{Lock, LockKey, Store, check_url, open};

use super::{Foreign, Subject};
use crate::support::RedisServer;
use crate::support::redis::documented_rights;

pub(super) struct Redis {
    pub(super) server: RedisServer,
    pub(super) store: Arc<dyn Store>,
}

pub(super) fn store_at(url: &str) -> Arc<dyn Store> {
    open(&check_url(url).expect("a URL")).expect("a store")
}

fn store_on(server: &RedisServer) -> Arc<dyn Store> {
    store_at(&server.url())
}

async fn redis() -> Redis {
    // With no right that is not documented, but for the raw keys of other programs.
    let rights = format!("{} ~*", documented_rights());
    let server = RedisServer::with().user("cronlatch", &rights).start();
    Redis {
        store: store_on(&server),
        server,
    }
}

fn key(lock: &Lock) -> String {
    match &lock.key {
        LockKey::Named => format!("cronlatch:{{{}}}:lock", lock.name),
        LockKey::Raw(key) => key.clone(),
    }
}

#[async_trait]
impl Subject for Redis {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn another(&self) -> Arc<dyn Store> {
        store_on(&self.server)
    }

    async fn evict(&self, lock: &Lock) {
        self.server.command(&["DEL", &key(lock)]);
    }

    async fn expire(&self, lock: &Lock) {
        self.server.command(&["DEL", &key(lock)]);
        let state = format!("cronlatch:{{{}}}:state", lock.name);
        if self.server.number(&["EXISTS", &state]) == 1 {
            let end = super::just_now();
            self.server.command(&["HSET", &state, "lease_end", &end]);
        }
    }

    async fn foreign(&self, key: &str, value: Foreign<'_>) -> bool {
        match value {
            Foreign::Value(text, Some(ttl)) => self.px(key, text, ttl),
            Foreign::Value(text, None) => {
                self.server.command(&["SET", key, text]);
            }
            Foreign::List => {
                self.server.command(&["RPUSH", key, "an element"]);
            }
        }
        true
    }

    async fn unmark(&self) {
        self.server.command(&["DEL", "cronlatch:store"]);
    }
}

impl Redis {
    fn px(&self, key: &str, text: &str, ttl: Duration) {
        let millis = ttl.as_millis().to_string();
        self.server.command(&["SET", key, text, "PX", &millis]);
    }
}

contract!(redis);
