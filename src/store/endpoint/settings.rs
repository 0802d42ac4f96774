//! The settings of a store, as the URL, the command line and the YAML determine them.
//! [`open`](crate::store::open()) takes them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Encryption, Endpoint};
use crate::names::Prefix;

/// Which store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreSettings {
    /// The embedded store: one file, this host only.
    Sqlite {
        /// The database file.
        path: PathBuf,
    },
    /// One Redis or Valkey server.
    Redis(RedisSettings),
    /// A master and its replicas, watched over by Sentinels.
    Sentinel(SentinelSettings),
    /// A Redis Cluster.
    Cluster(ClusterSettings),
    /// Several independent servers, of which a majority decides.
    Redlock(RedlockSettings),
}

/// How to find the master that Sentinels watch over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentinelSettings {
    /// The name under which the Sentinels know the master.
    pub master: String,
    /// The Sentinels, each as a server of its own (its URL may hold the Sentinels' own user and
    /// password).
    pub sentinels: Vec<RedisSettings>,
    /// How to log in to the master. Its endpoint has the master's name for a host, which the
    /// address that the Sentinels name replaces.
    pub servers: RedisSettings,
}

/// How to find the servers of a Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Servers to ask for the map of slots; how to get into them holds for all others too.
    pub seeds: Vec<RedisSettings>,
}

/// Independent servers, and how patiently they are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedlockSettings {
    /// The servers; an odd number of them.
    pub nodes: Vec<RedisSettings>,
    /// How many times a claim is tried before it counts as unanswered; 3 by default.
    pub tries: u32,
    /// The pause between tries.
    pub retry_delay: RetryDelay,
    /// What a daemon does at its start without a majority; waits by default.
    pub at_start: StartupQuorum,
}

/// The pause between two tries of a claim, which is drawn at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryDelay {
    /// 100 ms by default.
    pub shortest: Duration,
    /// 200 ms by default.
    pub longest: Duration,
}

impl Default for RetryDelay {
    fn default() -> Self {
        Self {
            shortest: Duration::from_millis(100),
            longest: Duration::from_millis(200),
        }
    }
}

/// What a daemon does that finds no majority of its servers when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartupQuorum {
    /// Starts, and waits for one.
    #[default]
    Wait,
    /// Ends at once (exit code 69), so that a deploy that starts it fails.
    Refuse,
}

impl StoreSettings {
    /// Returns the store for messages, without passwords.
    pub fn shown(&self) -> String {
        let list = |servers: &[RedisSettings]| {
            let shown: Vec<_> = servers.iter().map(RedisSettings::shown).collect();
            shown.join(", ")
        };
        match self {
            Self::Sqlite { path } => format!("sqlite:{}", path.display()),
            Self::Redis(redis) => redis.shown(),
            Self::Sentinel(s) => format!("{} of sentinels {}", s.master, list(&s.sentinels)),
            Self::Cluster(c) => format!("cluster of {}", list(&c.seeds)),
            Self::Redlock(r) => format!("majority of {}", list(&r.nodes)),
        }
    }

    /// Sets the CA file of every server and Sentinel with TLS. Returns whether there is any.
    pub fn set_ca_file(&mut self, path: &Path) -> bool {
        let sentinels = match self {
            Self::Sentinel(sentinel) => sentinel.sentinels.iter_mut().collect(),
            _ => Vec::new(),
        };
        let mut any = false;
        for server in sentinels {
            any |= server.set_ca_file(path);
        }
        for server in self.servers_mut() {
            any |= server.set_ca_file(path);
        }
        any
    }

    /// Whether a daemon that cannot reach the store at its start must exit.
    pub fn refuses_to_wait(&self) -> bool {
        matches!(self, Self::Redlock(redlock) if redlock.at_start == StartupQuorum::Refuse)
    }

    /// Returns warnings about settings that are allowed but probably a mistake, as full sentences.
    pub fn warnings(&self) -> Vec<String> {
        match self {
            Self::Redlock(redlock) if redlock.nodes.len().is_multiple_of(2) => {
                let count = redlock.nodes.len();
                vec![format!(
                    "{count} servers survive no more failures than {} do: take an \
                     odd number",
                    count - 1
                )]
            }
            Self::Sentinel(sentinel) if sentinel.sentinels.len() < 3 => vec![format!(
                "{} named: with three or more the master is found whichever one is down",
                match sentinel.sentinels.len() {
                    1 => "one Sentinel is".to_owned(),
                    n => format!("{n} Sentinels are"),
                }
            )],
            _ => Vec::new(),
        }
    }

    /// Returns the servers that keep data; empty for the embedded store.
    pub fn servers(&self) -> Vec<&RedisSettings> {
        match self {
            Self::Sqlite { .. } => Vec::new(),
            Self::Redis(redis) => vec![redis],
            Self::Sentinel(sentinel) => vec![&sentinel.servers],
            Self::Cluster(cluster) => cluster.seeds.iter().collect(),
            Self::Redlock(redlock) => redlock.nodes.iter().collect(),
        }
    }

    /// As [`Self::servers`], mutable.
    pub fn servers_mut(&mut self) -> Vec<&mut RedisSettings> {
        match self {
            Self::Sqlite { .. } => Vec::new(),
            Self::Redis(redis) => vec![redis],
            Self::Sentinel(sentinel) => vec![&mut sentinel.servers],
            Self::Cluster(cluster) => cluster.seeds.iter_mut().collect(),
            Self::Redlock(redlock) => redlock.nodes.iter_mut().collect(),
        }
    }
}

/// One Redis server, and how cronlatch uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// Address, user, password and database.
    pub endpoint: Endpoint,
    /// Read at every connect. Takes precedence over a password in the URL.
    pub password_file: Option<PathBuf>,
    /// PEM file with the trusted authorities, instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// What every key begins with.
    pub prefix: Prefix,
    /// How many replicas must have acknowledged a claim or a renewal before it counts; 0: none.
    pub wait_replicas: u32,
}

impl RedisSettings {
    /// Returns the default settings of the server at `endpoint`.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            password_file: None,
            ca_file: None,
            prefix: Prefix::default(),
            wait_replicas: 0,
        }
    }

    /// Returns the same settings for a server at another address.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        Self {
            endpoint: self.endpoint.at(host, port),
            ..self.clone()
        }
    }

    fn set_ca_file(&mut self, path: &Path) -> bool {
        let has_tls = self.endpoint.encryption() == Encryption::Tls;
        if has_tls {
            self.ca_file = Some(path.to_owned());
        }
        has_tls
    }

    /// The server's URL without its password.
    pub fn shown(&self) -> String {
        self.endpoint.to_string()
    }
}
