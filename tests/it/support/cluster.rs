//! A real Redis Cluster: three primaries, each with a replica if asked for.

use std::path::Path;

use super::redis::{Builder, PASSWORD, RedisServer};
use super::wait::wait_until;

const SLOTS: usize = 16384;

/// How many primaries it begins with.
pub(crate) const PRIMARIES: usize = 3;

/// Its servers: the primaries it began with, then the replica of each, if they have one.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) servers: Vec<RedisServer>,
    user: String,
    scheme: &'static str,
}

/// Whether primaries have replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replicas {
    None,
    OneEach,
}

impl Cluster {
    /// Starts one for a user with these rights, and waits until all of its servers find it in
    /// order. A silent server is given up after a second.
    #[track_caller]
    pub(crate) fn start(replicas: Replicas, rights: &str) -> Self {
        Self::start_with(replicas, rights, |_, server| server.start())
    }

    /// Three primaries that speak TLS with these certificates, among themselves too.
    #[track_caller]
    pub(crate) fn start_with_tls(rights: &str, certificates: &Path) -> Self {
        let start = |_, server: Builder| {
            ["--tls-cluster", "yes", "--tls-replication", "yes"]
                .iter()
                .fold(server.tls_of(certificates), |server, arg| server.arg(arg))
                .start()
        };
        Self {
            scheme: "rediss",
            ..Self::start_with(Replicas::None, rights, start)
        }
    }

    /// As [`Self::start`], each server started by `start`, which is told its position. One that
    /// announces other ports is known under those.
    #[track_caller]
    pub(crate) fn start_with(
        replicas: Replicas,
        rights: &str,
        start: impl Fn(usize, Builder) -> RedisServer,
    ) -> Self {
        let count = match replicas {
            Replicas::None => PRIMARIES,
            Replicas::OneEach => PRIMARIES * 2,
        };
        let start = |at| {
            let server = RedisServer::builder().cluster().unmarked();
            let server = server
                .arg("--repl-diskless-sync-delay")
                .arg("0")
                .arg("--cluster-require-full-coverage")
                .arg("no")
                .arg("--cluster-node-timeout")
                .arg("1000")
                .user("cronlatch", rights);
            start(at, server)
        };
        let servers: Vec<RedisServer> = (0..count).map(start).collect();
        for (at, primary) in servers.iter().take(PRIMARIES).enumerate() {
            primary.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            let (from, until) = (at * SLOTS / PRIMARIES, (at + 1) * SLOTS / PRIMARIES - 1);
            let (from, until) = (from.to_string(), until.to_string());
            primary.command(&["CLUSTER", "ADDSLOTSRANGE", &from, &until]);
        }
        for other in &servers[1..] {
            let (port, bus) = (
                other.known_port().to_string(),
                other.known_bus().to_string(),
            );
            servers[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let cluster = Self {
            servers,
            user: format!("cronlatch:{PASSWORD}@"),
            scheme: "redis",
        };
        let known = format!("cluster_known_nodes:{count}");
        cluster.wait_info("all know all", &known);
        for (at, replica) in cluster.servers.iter().enumerate().skip(PRIMARIES) {
            let primary = cluster.servers[at - PRIMARIES].text(&["CLUSTER", "MYID"]);
            wait_until("the replica knows its primary", || {
                replica
                    .try_command(&["CLUSTER", "REPLICATE", &primary])
                    .is_ok()
            });
        }
        // Without full coverage a server that knows of its own slots alone finds all in order.
        let assigned = format!("cluster_slots_assigned:{SLOTS}");
        cluster.wait_info("all know who serves which slots", &assigned);
        cluster.wait_in_order();
        for replica in &cluster.servers[PRIMARIES..] {
            wait_until("the replica is in step", || {
                replica
                    .text(&["INFO", "replication"])
                    .contains("master_link_status:up")
            });
        }
        cluster
    }

    /// Empties it of all but what says that it was declared new.
    #[track_caller]
    pub(crate) fn clear(&self) {
        let clear = "for _, key in ipairs(redis.call('KEYS', '*')) do \
                     if not string.match(key, '{%d+}:store$') then redis.call('DEL', key) end end";
        for server in &self.servers {
            server.command(&["EVAL", clear, "0"]);
        }
    }

    /// Waits until all servers that run find the Cluster in order.
    #[track_caller]
    pub(crate) fn wait_in_order(&self) {
        self.wait_info("all find it in order", "cluster_state:ok");
    }

    #[track_caller]
    fn wait_info(&self, what: &str, line: &str) {
        wait_until(what, || {
            let says = |server: &RedisServer| match server.try_command(&["CLUSTER", "INFO"]) {
                Ok(info) => ::redis::from_redis_value::<String>(info)
                    .is_ok_and(|info| info.lines().any(|l| l == line)),
                Err(_) => false,
            };
            self.servers.iter().filter(|server| server.runs()).all(says)
        });
    }

    /// The store URL, with these of its servers as seeds.
    pub(crate) fn url_of(&self, seeds: &[usize]) -> String {
        let seeds: Vec<String> = seeds
            .iter()
            .map(|seed| format!("127.0.0.1:{}", self.servers[*seed].known_port()))
            .collect();
        format!("{}+cluster://{}{}", self.scheme, self.user, seeds.join(","))
    }

    /// The slot of a key.
    #[track_caller]
    pub(crate) fn slot(&self, key: &str) -> usize {
        let server = self.servers.iter().find(|server| server.runs());
        let slot = server
            .expect("one runs")
            .number(&["CLUSTER", "KEYSLOT", key]);
        usize::try_from(slot).expect("a slot")
    }

    /// The position of the primary that the key's slot began with.
    #[track_caller]
    pub(crate) fn first_primary_of(&self, key: &str) -> usize {
        (self.slot(key) * PRIMARIES + PRIMARIES - 1) / SLOTS
    }

    /// Sends a command to the primary that the key's slot began with.
    #[track_caller]
    pub(crate) fn command(&self, key: &str, words: &[&str]) -> ::redis::Value {
        self.servers[self.first_primary_of(key)].command(words)
    }

    /// The first name `BASE0`, `BASE1`, … that, as a hash tag, lies on this primary.
    #[track_caller]
    pub(crate) fn name_on(&self, primary: usize, base: &str) -> String {
        (0..1000)
            .map(|n| format!("{base}{n}"))
            .find(|name| self.first_primary_of(name) == primary)
            .expect("a third of the names lies there")
    }
}
