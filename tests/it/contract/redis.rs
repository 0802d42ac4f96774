//! The contract on Redis: a server of its own for each case.

mod already_claimed;
mod revisions;
mod short_ways;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cronlatch::names::HostName;
use cronlatch::store::{ClaimReply, Due, Fingerprint, Lock, LockKey, Store, check_url, open};

use super::{Foreign, Scene, Subject, listed_keys};
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
    let server = RedisServer::builder().user("cronlatch", &rights).start();
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

    async fn copy_listed(&self, host: &HostName) {
        let [key, copy] = listed_keys(host);
        self.server.command(&["COPY", &key, &copy, "REPLACE"]);
    }

    async fn restore_listed(&self, host: &HostName) {
        let [key, copy] = listed_keys(host);
        self.server.command(&["COPY", &copy, &key, "REPLACE"]);
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

/// How often scripts and clients have read several fields of a key so far.
fn reads(server: &RedisServer) -> u32 {
    calls(server, "hmget")
}

/// How often scripts and clients have sent a command so far.
fn calls(server: &RedisServer, command: &str) -> u32 {
    let stats = server.text(&["INFO", "commandstats"]);
    let of_command = stats.split(&format!("cmdstat_{command}:calls=")).nth(1);
    let calls = of_command.and_then(|rest| rest.split(',').next()?.parse().ok());
    calls.unwrap_or(0)
}

#[tokio::test]
async fn the_usual_claim_is_granted_before_the_full_rules_read_all_over_again() {
    let redis = redis().await;
    let scene = Scene::new(&redis).await;
    let due = |n: u64| Due {
        prev: Some(scene.at(n - 1)),
        ..scene.due(n)
    };
    let granted = async |who: &str, n: u64, due: Due| {
        let before = reads(&redis.server);
        let reply = scene.send(&scene.claim_due(who, due)).await;
        assert!(matches!(reply, ClaimReply::Granted { .. }), "{reply:?}");
        let reads = reads(&redis.server) - before;
        scene.finish(&scene.success(who, n)).await;
        reads
    };
    granted("a", 1, due(1)).await;
    let usual = granted("b", 2, due(2)).await;
    // The ledger does not know this schedule yet.
    let another = Due {
        fingerprint: Fingerprint("f2".into()),
        ..due(3)
    };
    let unusual = granted("c", 3, another).await;
    assert!(usual < unusual, "{usual} reads, and {unusual}");
}
