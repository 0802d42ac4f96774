//! Where the store is and how to get in.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::names::Prefix;

/// A password: never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

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
    /// How to get into the master: its `url` names a host and a port that are replaced by what
    /// the Sentinels say; scheme, user, password and database stay.
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
    /// The shortest and the longest pause between tries; 100 to 200 ms by default.
    pub retry_delay: (Duration, Duration),
    /// What a daemon does at its start without a majority; waits by default.
    pub at_start: StartupQuorum,
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
    /// The store as a person may see it: no password.
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

    /// Names the authorities to trust to every server and Sentinel that speaks TLS; answers
    /// whether any does.
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

    /// Whether a daemon that cannot reach the store at its start is to end.
    pub fn refuses_to_wait(&self) -> bool {
        matches!(self, Self::Redlock(redlock) if redlock.at_start == StartupQuorum::Refuse)
    }

    /// What is allowed but hardly meant, each a full sentence.
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

    /// How to get into the servers that keep data; empty for the embedded store.
    pub fn servers(&self) -> Vec<&RedisSettings> {
        match self {
            Self::Sqlite { .. } => Vec::new(),
            Self::Redis(redis) => vec![redis],
            Self::Sentinel(sentinel) => vec![&sentinel.servers],
            Self::Cluster(cluster) => cluster.seeds.iter().collect(),
            Self::Redlock(redlock) => redlock.nodes.iter().collect(),
        }
    }

    /// As [`Self::servers`], to be changed.
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

/// How to reach one Redis server.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// `redis://`, `rediss://` or `redis+unix://`, as configured, checked by
    /// [`crate::store::check_url`]. May hold user and password: print it with
    /// [`Self::shown`] only.
    pub url: Secret,
    /// Read at every connect; wins over a password in the URL.
    pub password_file: Option<PathBuf>,
    /// PEM file with the authorities to trust, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// What every key begins with.
    pub prefix: Prefix,
    /// How many replicas must have acknowledged a claim or a renewal before it counts; 0: none.
    pub wait_replicas: u32,
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("url", &self.shown())
            .field("password_file", &self.password_file)
            .field("ca_file", &self.ca_file)
            .field("prefix", &self.prefix)
            .field("wait_replicas", &self.wait_replicas)
            .finish()
    }
}

impl RedisSettings {
    fn set_ca_file(&mut self, path: &Path) -> bool {
        let has_tls = self.url.0.starts_with("rediss://");
        if has_tls {
            self.ca_file = Some(path.to_owned());
        }
        has_tls
    }

    /// The URL with its password, if any, replaced by `***`.
    ///
    /// It need not be a valid URL: everything before the last `@` counts as user and password,
    /// so that a password with a character that should have been escaped is not shown either.
    pub fn shown(&self) -> String {
        shown_url(&self.url.0)
    }
}

/// A URL with its password, if any, replaced by `***`; see [`RedisSettings::shown`].
pub(crate) fn shown_url(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let rest = match rest.rsplit_once('@') {
        Some((userinfo, host)) => match userinfo.split_once(':') {
            Some((user, _)) => format!("{user}:***@{host}"),
            None => format!("***@{host}"),
        },
        None => rest.to_owned(),
    };
    let shown = match rest.split_once('?') {
        Some((path, query)) => {
            let query: Vec<&str> = query
                .split('&')
                .map(|part| match part.split_once('=') {
                    Some(("db" | "user", _)) | None => part,
                    Some(_) => "***",
                })
                .collect();
            format!("{path}?{}", query.join("&"))
        }
        None => rest,
    };
    format!("{scheme}{shown}")
}
