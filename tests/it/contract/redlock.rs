//! The contract on a majority of three independent servers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use cronlatch::names::{HostName, JobName};
use cronlatch::store::{
    Lock, LockKey, RedlockSettings, RetryDelay, Standing, StartupQuorum, Store, StoreSettings,
    check_url, open,
};

use super::registry::{Writer, revision_of};
use super::{Foreign, Subject, listed_keys};
use crate::support::RedisServer;
use crate::support::redis::documented_rights;

struct Redlock {
    servers: Vec<RedisServer>,
    store: Arc<dyn Store>,
}

fn store_on(servers: &[RedisServer]) -> Arc<dyn Store> {
    let nodes = servers.iter().map(|server| {
        let StoreSettings::Redis(node) = check_url(&server.url()).expect("a URL") else {
            panic!("not a Redis URL");
        };
        node
    });
    open(&StoreSettings::Redlock(RedlockSettings {
        nodes: nodes.collect(),
        // The machine may be busy, and a script late.
        tries: 20,
        retry_delay: RetryDelay {
            shortest: Duration::from_millis(10),
            longest: Duration::from_millis(20),
        },
        at_start: StartupQuorum::Wait,
    }))
    .expect("a store")
}

async fn redlock() -> Redlock {
    // With no right that is not documented, but for the raw keys of other programs.
    let rights = format!("{} ~*", documented_rights());
    let server = || RedisServer::builder().user("cronlatch", &rights).start();
    let servers = vec![server(), server(), server()];
    let store = store_on(&servers);
    assert_eq!(store.init().await.expect("the nodes answer"), None);
    Redlock { servers, store }
}

impl Redlock {
    /// Waits for what is still on its way to the slowest node. A node that was outrun stays as it
    /// is: then it has nothing that matters.
    fn settle(&self, lock: &Lock) {
        let state = format!("cronlatch:{{{}}}:state", lock.name);
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            let known = |server: &RedisServer| {
                let lock = server.text(&["GET", &key(lock)]);
                (server.text(&["HGET", &state, "ballot"]), lock)
            };
            let first = known(&self.servers[0]);
            if self.servers.iter().all(|server| known(server) == first) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
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
impl Subject for Redlock {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn another(&self) -> Arc<dyn Store> {
        store_on(&self.servers)
    }

    fn answers_first(&self) -> bool {
        false
    }

    fn copies(&self) -> usize {
        self.servers.len()
    }

    async fn evict(&self, lock: &Lock) {
        self.settle(lock);
        for server in &self.servers {
            server.command(&["DEL", &key(lock)]);
        }
    }

    async fn expire(&self, lock: &Lock) {
        self.evict(lock).await;
        let state = format!("cronlatch:{{{}}}:state", lock.name);
        for server in &self.servers {
            if server.number(&["EXISTS", &state]) == 1 {
                server.command(&["HSET", &state, "lease_end", &super::just_now()]);
            }
        }
    }

    async fn copy_listed(&self, host: &HostName) {
        let [key, copy] = listed_keys(host);
        for server in &self.servers {
            server.command(&["COPY", &key, &copy, "REPLACE"]);
        }
    }

    async fn restore_listed(&self, host: &HostName) {
        let [key, copy] = listed_keys(host);
        for server in &self.servers {
            server.command(&["COPY", &copy, &key, "REPLACE"]);
        }
    }

    async fn unmark(&self) {
        for server in &self.servers {
            server.command(&["DEL", "cronlatch:node"]);
        }
    }

    async fn foreign(&self, key: &str, value: Foreign<'_>) -> bool {
        for server in &self.servers {
            match value {
                Foreign::Value(text, Some(ttl)) => {
                    let millis = ttl.as_millis().to_string();
                    server.command(&["SET", key, text, "PX", &millis]);
                }
                Foreign::Value(text, None) => {
                    server.command(&["SET", key, text]);
                }
                Foreign::List => {
                    server.command(&["RPUSH", key, "an element"]);
                }
            }
        }
        true
    }
}

contract!(redlock);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_with_older_data_shows_what_it_lists() {
    let redlock = redlock().await;
    let host = HostName::parse("one").unwrap();
    let [kept, gone] = ["kept", "gone"].map(|job| JobName::parse(job).unwrap());
    let mut writer = Writer {
        store: &*redlock.store,
        host: &host,
        at: redlock.store.now().await.unwrap(),
    };
    writer.write(&kept, Standing::Uses).await;
    writer.write(&gone, Standing::Uses).await;
    revision_of(&*redlock.store, &host).await;
    redlock.copy_listed(&host).await;
    writer.write(&gone, Standing::Withdrawn).await;
    let known = revision_of(&*redlock.store, &host).await;
    let [key, copy] = listed_keys(&host);
    redlock.servers[1].command(&["COPY", &copy, &key, "REPLACE"]);
    let listed = redlock.store.listed_since(&host, Some(&known)).await;
    let listed = listed.unwrap().expect("a node has older data");
    assert!(listed.jobs.contains(&gone), "{listed:?}");
    // With the revisions that were read now, nothing has changed.
    let again = redlock.store.listed_since(&host, listed.revision.as_ref());
    assert_eq!(again.await.unwrap(), None);
}
