//! The ground the fleet stands on: each kind of store, with what can be done to its servers.

use crate::fault::Fault;
use crate::support::cluster::{Cluster, Replicas};
use crate::support::sentinel::{self, Door, Sentinel, Watched};
use crate::support::{Proxy, RedisServer, cronlatch};

/// The kinds there are, as `KIND` names them.
pub(crate) const KINDS: [&str; 5] = ["redis", "sqlite", "sentinel", "cluster", "redlock"];

/// The store that the fleet shares.
#[derive(Debug)]
pub(crate) enum Ground {
    Redis(Vec<RedisServer>),
    Sqlite(tempfile::TempDir),
    /// A master, its replicas, and those who watch over them.
    Sentinel(Vec<RedisServer>, Vec<Sentinel>),
    Cluster(Box<Cluster>),
    Redlock(Vec<RedisServer>),
}

impl Ground {
    /// A new store of this kind, declared new.
    pub(crate) fn of(kind: &str) -> Self {
        let bare = || RedisServer::with().unmarked().start();
        let ground = match kind {
            "redis" => Self::Redis(vec![bare()]),
            "sqlite" => Self::Sqlite(tempfile::tempdir().expect("a temporary directory")),
            "sentinel" => Self::sentinel(bare()),
            "cluster" => Self::Cluster(Box::new(Cluster::start(Replicas::OneEach, "~* &* +@all"))),
            "redlock" => Self::Redlock(vec![bare(), bare(), bare()]),
            other => panic!("{other:?} is no kind of store: {}", KINDS.join(", ")),
        };
        cronlatch(&["init", "--store", &ground.url(&[])]).expect_code(0);
        ground
    }

    fn sentinel(master: RedisServer) -> Self {
        let port = master.port();
        let replica = || sentinel::replica_of(&master, port, RedisServer::with());
        let replicas = [replica(), replica()];
        let watched = Watched {
            master: port,
            replicas: replicas.iter().map(RedisServer::port).collect(),
            user: None,
        };
        let sentinels = Sentinel::start(3, &watched, &Door::default());
        let [one, two] = replicas;
        Self::Sentinel(vec![master, one, two], sentinels)
    }

    /// Its servers, by the number that a fault names them with.
    pub(crate) fn servers(&self) -> &[RedisServer] {
        match self {
            Self::Redis(servers) | Self::Sentinel(servers, _) | Self::Redlock(servers) => servers,
            Self::Cluster(cluster) => &cluster.servers,
            Self::Sqlite(_) => &[],
        }
    }

    pub(crate) fn servers_mut(&mut self) -> &mut [RedisServer] {
        match self {
            Self::Redis(servers) | Self::Sentinel(servers, _) | Self::Redlock(servers) => servers,
            Self::Cluster(cluster) => &mut cluster.servers,
            Self::Sqlite(_) => &mut [],
        }
    }

    /// Whether what was acknowledged may be gone after the loss of one server.
    pub(crate) fn forgets(&self) -> bool {
        !matches!(self, Self::Redlock(_) | Self::Sqlite(_))
    }

    /// The faults of its servers.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let faults = |at| {
            [
                Fault::PauseServer(at),
                Fault::KillClients(at),
                Fault::ForgetScripts(at),
                Fault::LoseServer(at),
            ]
        };
        (0..self.servers().len()).flat_map(faults).collect()
    }

    /// Whether a network that can fail lies between each host and the servers.
    pub(crate) fn has_network(&self) -> bool {
        matches!(self, Self::Redis(_) | Self::Redlock(_))
    }

    /// Whether all hosts have one clock.
    pub(crate) fn is_one_machine(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// The way of a new host to each server, if it can fail.
    pub(crate) fn proxies(&self) -> Vec<Proxy> {
        if !self.has_network() {
            return Vec::new();
        }
        let servers = self.servers().iter();
        servers.map(|server| Proxy::to(server.port())).collect()
    }

    /// The store URL, by way of these proxies if there are any.
    pub(crate) fn url(&self, proxies: &[Proxy]) -> String {
        match self {
            Self::Redis(servers) | Self::Redlock(servers) => {
                let url = |(at, server): (usize, &RedisServer)| match proxies.get(at) {
                    Some(proxy) => server.url_via(proxy.port()),
                    None => server.url(),
                };
                let urls: Vec<String> = servers.iter().enumerate().map(url).collect();
                urls.join(",")
            }
            Self::Sqlite(dir) => format!("sqlite:{}", dir.path().join("store.db").display()),
            Self::Sentinel(_, sentinels) => sentinel::url(sentinels),
            Self::Cluster(cluster) => {
                let all: Vec<usize> = (0..cluster.servers.len()).collect();
                cluster.url_of(&all)
            }
        }
    }
}
