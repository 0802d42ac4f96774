//! The contract on a Redis Cluster: one for all cases, emptied before each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use cronlatch::names::HostName;
use cronlatch::store::{Lock, LockKey, Store, check_url, open};

use super::{Foreign, Subject, listed_keys};
use crate::support::Cluster;
use crate::support::cluster::Replicas;
use crate::support::redis::documented_cluster_rights;

/// Whether it was declared new comes second; a case may take that away.
struct Home(Arc<Cluster>, AtomicBool);

struct OnCluster {
    cluster: Arc<Cluster>,
    store: Arc<dyn Store>,
}

fn store_on(cluster: &Cluster) -> Arc<dyn Store> {
    open(&check_url(&cluster.url_of(&[0, 1, 2])).expect("a URL")).expect("a store")
}

fn home() -> Home {
    // With no right that is not documented, but for the raw keys of other programs.
    let rights = format!("{} ~*", documented_cluster_rights());
    let cluster = Cluster::start(Replicas::None, &rights);
    Home(Arc::new(cluster), AtomicBool::new(false))
}

impl Home {
    async fn subject(&self) -> OnCluster {
        self.0.clear();
        let store = store_on(&self.0);
        if !self.1.swap(true, Ordering::Relaxed) {
            assert_eq!(store.init().await.expect("the store answers"), None);
        }
        OnCluster {
            store,
            cluster: Arc::clone(&self.0),
        }
    }
}

fn key(lock: &Lock) -> String {
    match &lock.key {
        LockKey::Named => format!("cronlatch:{{{}}}:lock", lock.name),
        LockKey::Raw(key) => key.clone(),
    }
}

#[async_trait]
impl Subject for OnCluster {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn another(&self) -> Arc<dyn Store> {
        store_on(&self.cluster)
    }

    async fn evict(&self, lock: &Lock) {
        let key = key(lock);
        self.cluster.command(&key, &["DEL", &key]);
    }

    async fn expire(&self, lock: &Lock) {
        self.evict(lock).await;
        let state = format!("cronlatch:{{{}}}:state", lock.name);
        let has = "if redis.call('EXISTS', KEYS[1]) == 1 then \
                   redis.call('HSET', KEYS[1], 'lease_end', ARGV[1]) end";
        let end = super::just_now();
        self.cluster
            .command(&state, &["EVAL", has, "1", &state, &end]);
    }

    async fn copy_listed(&self, host: &HostName) {
        let [key, copy] = listed_keys(host);
        self.cluster
            .command(&key, &["COPY", &key, &copy, "REPLACE"]);
    }

    async fn restore_listed(&self, host: &HostName) {
        let [key, copy] = listed_keys(host);
        self.cluster
            .command(&key, &["COPY", &copy, &key, "REPLACE"]);
    }

    async fn unmark(&self) {
        for server in &self.cluster.servers {
            server.command(&["FLUSHALL"]);
        }
    }

    async fn foreign(&self, key: &str, value: Foreign<'_>) -> bool {
        match value {
            Foreign::Value(text, Some(ttl)) => {
                let millis = ttl.as_millis().to_string();
                self.cluster
                    .command(key, &["SET", key, text, "PX", &millis]);
            }
            Foreign::Value(text, None) => {
                self.cluster.command(key, &["SET", key, text]);
            }
            Foreign::List => {
                self.cluster.command(key, &["RPUSH", key, "an element"]);
            }
        }
        true
    }
}

super::contract!(in one test: home);
