//! The ground the fleet stands on: each kind of store, and the network in front of its servers.

use std::path::PathBuf;

use crate::net::{Door, Net, Party};
use crate::support::cluster::{Cluster, PRIMARIES, Replicas};
use crate::support::redis::PASSWORD;
use crate::support::sentinel::{self, MASTER, Sentinel, Watched};
use crate::support::{RedisServer, cronlatch};

/// The kinds there are, as `KIND` names them.
pub(crate) const KINDS: [&str; 5] = ["redis", "sqlite", "sentinel", "cluster", "redlock"];

/// How many milliseconds the clocks of the servers are off; they agree within less than a second,
/// as servers that can replace one another must.
pub(crate) const SERVER_CLOCKS: [i64; 6] = [400, 0, -400, 0, 400, -400];

/// What kind of store it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Redis,
    /// One file that hosts of one machine share.
    Sqlite,
    /// A master, its replicas, and those who watch over them.
    Sentinel,
    Cluster,
    /// Several independent nodes.
    Redlock,
}

impl Kind {
    /// The kind that `KIND` names.
    #[track_caller]
    pub(crate) fn named(name: &str) -> Self {
        let all = [
            Self::Redis,
            Self::Sqlite,
            Self::Sentinel,
            Self::Cluster,
            Self::Redlock,
        ];
        let at = KINDS.iter().position(|kind| *kind == name);
        let at = at.unwrap_or_else(|| panic!("{name:?} is no kind of store: {}", KINDS.join(", ")));
        all[at]
    }

    /// How many servers a store of this kind has here.
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Redis => 1,
            Self::Sqlite => 0,
            Self::Sentinel | Self::Redlock => 3,
            Self::Cluster => 2 * PRIMARIES,
        }
    }

    /// Whether what was acknowledged may be gone after the loss of one server.
    pub(crate) fn forgets(self) -> bool {
        matches!(self, Self::Redis | Self::Sentinel | Self::Cluster)
    }

    /// Whether another server can take the place of one.
    pub(crate) fn fails_over(self) -> bool {
        matches!(self, Self::Sentinel | Self::Cluster)
    }

    /// Whether a grant counts only when a replica has it, so that servers can be split.
    pub(crate) fn waits_for_replicas(self) -> bool {
        self == Self::Sentinel
    }
}

/// The store that the fleet shares.
#[derive(Debug)]
pub(crate) struct Ground {
    kind: Kind,
    net: Net,
    servers: Vec<RedisServer>,
    /// The doors of each server: the one for clients, and that of a Cluster's bus.
    doors: Vec<Vec<Door>>,
    sentinels: Vec<Sentinel>,
    sentinel_doors: Vec<Door>,
    file: Option<tempfile::TempDir>,
}

impl Ground {
    /// A new store of this kind, declared new.
    pub(crate) fn of(kind: Kind) -> Self {
        let net = Net::default();
        let doors_each = if kind == Kind::Cluster { 2 } else { 1 };
        let door = |_| (0..doors_each).map(|_| net.door()).collect();
        let mut ground = Self {
            kind,
            doors: (0..kind.servers()).map(door).collect(),
            net,
            servers: Vec::new(),
            sentinels: Vec::new(),
            sentinel_doors: Vec::new(),
            file: None,
        };
        match kind {
            Kind::Redis | Kind::Redlock => {
                let start = |at: usize| bare(at).start();
                ground.servers = (0..kind.servers()).map(start).collect();
                ground.lead();
            }
            Kind::Sqlite => {
                ground.file = Some(tempfile::tempdir().expect("a temporary directory"));
            }
            Kind::Sentinel => ground.start_sentinel(),
            Kind::Cluster => ground.start_cluster(),
        }
        ground.register();
        cronlatch(&["init", "--store", &ground.url()]).expect_code(0);
        ground
    }

    fn start_sentinel(&mut self) {
        let announced = |at: usize| {
            let port = self.doors[at][0].port();
            bare(at)
                .arg("--replica-announce-port")
                .arg(&port.to_string())
        };
        let master = announced(0).start();
        self.doors[0][0].lead_to(master.port());
        let via = self.doors[0][0].port();
        let replica = |at| sentinel::replica_of(&master, via, announced(at));
        let replicas = [replica(1), replica(2)];
        self.servers.push(master);
        self.servers.extend(replicas);
        self.lead();
        let watched = Watched {
            master: via,
            replicas: self.doors[1..]
                .iter()
                .map(|doors| doors[0].port())
                .collect(),
            user: None,
        };
        self.sentinels = Sentinel::start(3, &watched, &sentinel::Door::default());
        for sentinel in &self.sentinels {
            let door = self.net.door();
            door.lead_to(sentinel.port());
            self.sentinel_doors.push(door);
        }
    }

    fn start_cluster(&mut self) {
        let doors = &self.doors;
        let cluster = Cluster::start_with(Replicas::OneEach, "~* &* +@all", |at, server| {
            let [door, bus] = doors[at].as_slice() else {
                unreachable!("a server of a Cluster has two doors");
            };
            let server = server
                .clock_shifted_by(SERVER_CLOCKS[at])
                .arg("--cluster-announce-port")
                .arg(&door.port().to_string())
                .arg("--cluster-announce-bus-port")
                .arg(&bus.port().to_string())
                .start();
            door.lead_to(server.port());
            bus.lead_to(server.bus());
            server
        });
        self.servers = cluster.servers;
    }

    /// Each door leads to its server.
    fn lead(&self) {
        for (server, doors) in self.servers.iter().zip(&self.doors) {
            doors[0].lead_to(server.port());
        }
    }

    /// Tells the network which processes there are.
    pub(crate) fn register(&self) {
        for (at, server) in self.servers.iter().enumerate() {
            if server.runs() {
                self.net.register(server.pid(), Party::Server(at));
            }
        }
        for (at, sentinel) in self.sentinels.iter().enumerate() {
            self.net.register(sentinel.pid(), Party::Sentinel(at));
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn net(&self) -> &Net {
        &self.net
    }

    /// Its servers, by the number that a fault names them with.
    pub(crate) fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    pub(crate) fn servers_mut(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// How many watch over the servers.
    pub(crate) fn sentinels(&self) -> usize {
        self.sentinels.len()
    }

    /// Asks for another master while the present one lives, through the first of those who decide
    /// that listens; of a Cluster, for the place of this server or of its primary.
    pub(crate) fn fail_over(&self, server: usize) {
        let _ = match self.kind {
            Kind::Sentinel => self.sentinels[0].try_command(&["SENTINEL", "FAILOVER", MASTER]),
            _ => self.servers[server].try_command(&["CLUSTER", "FAILOVER"]),
        };
    }

    /// The server that is master now, where one is master of the others.
    pub(crate) fn master(&self) -> Option<usize> {
        self.servers.iter().position(|server| {
            let role = server.try_command(&["ROLE"]);
            role.is_ok_and(|role| format!("{role:?}").contains("master"))
        })
    }

    /// The doors that lead to this server.
    pub(crate) fn doors_of(&self, server: usize) -> Vec<usize> {
        self.doors[server].iter().map(Door::number).collect()
    }

    /// The doors that lead to all servers, and to those who watch over them.
    pub(crate) fn all_doors(&self) -> Vec<usize> {
        let doors = self.doors.iter().flatten().chain(&self.sentinel_doors);
        doors.map(Door::number).collect()
    }

    /// Where the shared file is.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let dir = self.file.as_ref()?;
        Some(dir.path().join("store.db"))
    }

    /// The store URL of the hosts.
    pub(crate) fn url(&self) -> String {
        let ports = |doors: &mut dyn Iterator<Item = &Door>, scheme: &str| {
            let one = |door: &Door| format!("{scheme}127.0.0.1:{}", door.port());
            doors.map(one).collect::<Vec<_>>().join(",")
        };
        let first = || self.doors.iter().map(|doors| &doors[0]);
        match self.kind {
            Kind::Redis | Kind::Redlock => ports(&mut first(), "redis://"),
            Kind::Sqlite => {
                let file = self.file().expect("a store of one file has one");
                format!("sqlite:{}", file.display())
            }
            Kind::Sentinel => {
                let all = ports(&mut self.sentinel_doors.iter(), "");
                format!("redis+sentinel://{all}/{MASTER}")
            }
            Kind::Cluster => {
                let all = ports(&mut first(), "");
                format!("redis+cluster://cronlatch:{PASSWORD}@{all}")
            }
        }
    }

    /// The store as a job list names it.
    pub(crate) fn section(&self) -> String {
        if self.kind != Kind::Sentinel {
            return format!("store: \"{}\"\n", self.url());
        }
        let nodes = self.sentinel_doors.iter();
        let nodes: Vec<_> = nodes
            .map(|door| format!("\"127.0.0.1:{}\"", door.port()))
            .collect();
        format!(
            "store:\n  sentinel: {{ master: {MASTER}, nodes: [{}] }}\n  wait_replicas: 1\n",
            nodes.join(", ")
        )
    }
}

fn bare(at: usize) -> crate::support::redis::Builder {
    RedisServer::with()
        .unmarked()
        .clock_shifted_by(SERVER_CLOCKS[at])
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.net.end();
    }
}
