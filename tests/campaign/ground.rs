//! The ground the fleet stands on: each kind of store, and the network in front of its servers.

use std::path::PathBuf;

use crate::net::{Door, Net, Party};
use crate::support::cluster::{Cluster, PRIMARIES, Replicas};
use crate::support::redis::PASSWORD;
use crate::support::sentinel::{self, MASTER, Sentinel, Watched};
use crate::support::{RedisServer, cronlatch, wait_for};

/// The kinds there are, as `KIND` names them.
pub(crate) const KINDS: [&str; 5] = ["redis", "sqlite", "sentinel", "cluster", "redlock"];

/// How many milliseconds the clock of each server is off.
pub(crate) type Clocks = [i64; 6];

/// Clocks that agree within a second.
const NEAR: Clocks = [400, 0, -400, 0, 400, -400];

/// Seconds apart, and by less than a TTL, as servers must agree that can replace one another.
const APART: [Clocks; 2] = [
    [1_100, -900, 0, -500, 800, 1_100],
    [-1_200, 1_000, 1_000, 0, 1_000, -1_200],
];

/// Independent nodes may be any distance apart; a majority of them is right to a second.
const ONE_WRONG: [Clocks; 4] = [
    [5_000, 0, -400, 0, 0, 0],
    [400, -5_000, 0, 0, 0, 0],
    [0, 300, 25_000, 0, 0, 0],
    [-25_000, 400, 0, 0, 0, 0],
];

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

    /// The clocks of the servers in the campaign of this seed.
    pub(crate) fn clocks(self, seed: u64) -> Clocks {
        let one_of = |all: &[Clocks]| {
            let at = usize::try_from(seed / 2).unwrap_or(0) % all.len();
            all[at]
        };
        match self {
            _ if seed.is_multiple_of(2) => NEAR,
            Self::Redis | Self::Sqlite | Self::Sentinel | Self::Cluster => one_of(&APART),
            Self::Redlock => one_of(&ONE_WRONG),
        }
    }

    /// By how much the clock that decides what is due may be ahead of the true one.
    pub(crate) fn ahead(self, clocks: &Clocks) -> i64 {
        let mut clocks = clocks[..self.servers()].to_vec();
        clocks.sort_unstable();
        match self {
            // The middle one, and of two the earlier.
            Self::Redlock => clocks[clocks.len() / 2],
            _ => clocks.last().copied().unwrap_or(0),
        }
    }

    /// How far behind the true one the clock of a server may be: a negative number.
    pub(crate) fn behind(self, clocks: &Clocks) -> i64 {
        let clocks = &clocks[..self.servers()];
        clocks.iter().min().copied().unwrap_or(0)
    }

    /// How far the clocks are apart of servers that take one another's place.
    pub(crate) fn spread(self, clocks: &Clocks) -> i64 {
        let clocks = &clocks[..self.servers()];
        match (clocks.iter().min(), clocks.iter().max()) {
            (Some(least), Some(most)) if self.fails_over() => most - least,
            _ => 0,
        }
    }
}

/// The store that the fleet shares.
#[derive(Debug)]
pub(crate) struct Ground {
    kind: Kind,
    clocks: Clocks,
    net: Net,
    servers: Vec<RedisServer>,
    /// The doors of each server: the one for clients, and that of a Cluster's bus.
    doors: Vec<Vec<Door>>,
    sentinels: Vec<Sentinel>,
    sentinel_doors: Vec<Door>,
    file: Option<tempfile::TempDir>,
}

impl Ground {
    /// A new store of this kind, declared new, for the campaign of this seed.
    pub(crate) fn of(kind: Kind, seed: u64) -> Self {
        let clocks = kind.clocks(seed);
        let net = Net::new();
        let doors_each = if kind == Kind::Cluster { 2 } else { 1 };
        let door = |_| (0..doors_each).map(|_| net.door()).collect();
        let mut ground = Self {
            kind,
            clocks,
            doors: (0..kind.servers()).map(door).collect(),
            net,
            servers: Vec::new(),
            sentinels: Vec::new(),
            sentinel_doors: Vec::new(),
            file: None,
        };
        match kind {
            Kind::Redis | Kind::Redlock => {
                let start = |at: usize| bare(clocks[at]).start();
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
        let url = ground.url();
        wait_for(
            "all servers are there, and the store is declared new",
            // Nobody else writes to it: what is not empty any more was declared new by a try whose
            // reply came too late.
            || matches!(cronlatch(&["init", "--store", &url]).code(), 0 | 78).then_some(()),
        );
        ground
    }

    fn start_sentinel(&mut self) {
        let announced = |at: usize| {
            let port = self.doors[at][0].port();
            bare(self.clocks[at])
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
        let (doors, clocks) = (&self.doors, self.clocks);
        let cluster = Cluster::start_with(Replicas::OneEach, "~* &* +@all", |at, server| {
            let [door, bus] = doors[at].as_slice() else {
                unreachable!("a server of a Cluster has two doors");
            };
            let server = server
                .clock_shifted_by(clocks[at])
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

    /// Passes the processes of the fleet to the network.
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

    pub(crate) fn clocks(&self) -> &Clocks {
        &self.clocks
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

    /// Where those listen who watch over the servers.
    pub(crate) fn ports_of_sentinels(&self) -> Vec<u16> {
        self.sentinels.iter().map(Sentinel::port).collect()
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

    /// Where everybody finds this server.
    pub(crate) fn port_of(&self, server: usize) -> u16 {
        self.doors[server][0].port()
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
        let listed = |doors: &mut dyn Iterator<Item = &Door>, before: &str| {
            let one = |door: &Door| format!("\"{before}127.0.0.1:{}\"", door.port());
            doors.map(one).collect::<Vec<_>>().join(", ")
        };
        match self.kind {
            Kind::Sentinel => format!(
                "store:\n  sentinel: {{ master: {MASTER}, nodes: [{}] }}\n  wait_replicas: 1\n",
                listed(&mut self.sentinel_doors.iter(), "")
            ),
            Kind::Cluster => format!(
                "store:\n  cluster: [{}]\n  wait_replicas: 1\n",
                listed(
                    &mut self.doors.iter().map(|doors| &doors[0]),
                    &format!("redis://cronlatch:{PASSWORD}@")
                )
            ),
            _ => format!("store: \"{}\"\n", self.url()),
        }
    }
}

fn bare(clock: i64) -> crate::support::redis::Builder {
    RedisServer::builder().unmarked().clock_shifted_by(clock)
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.net.end();
    }
}

#[test]
fn the_clock_that_decides_is_the_latest_of_servers_and_the_middle_one_of_independent_nodes() {
    for clocks in ONE_WRONG {
        assert!(Kind::Redlock.ahead(&clocks).abs() < 1_000, "{clocks:?}");
    }
    for clocks in APART {
        let spread = Kind::Sentinel.spread(&clocks);
        assert!((1_500..crate::list::TTL).contains(&spread), "{clocks:?}");
        assert_eq!(Kind::Redlock.spread(&clocks), 0);
    }
    assert_eq!(Kind::Cluster.ahead(&APART[0]), 1_100);
    assert_eq!(Kind::Cluster.behind(&APART[0]), -900);
    assert_ne!(Kind::Redlock.clocks(1), Kind::Redlock.clocks(2));
}
