//! When servers that Sentinels watch over had no master that could serve: faults may leave them so
//! for longer than they last, and then the store is down, whatever the hosts do.
//!
//! A thread asks the Sentinels who is master, and that server whether it is one and has a replica
//! to acknowledge to (`wait_replicas: 1`). It asks them directly: no fault of the network hinders it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::checker::Span;
use crate::fleet;
use crate::ground::{Ground, Kind};
use crate::support::sentinel::MASTER;
use crate::support::wait_until;

/// How long it pauses between two looks.
const PAUSE: Duration = Duration::from_millis(200);

/// A server that takes longer to answer serves nobody.
const LIMIT: Duration = Duration::from_secs(1);

/// The thread that asks. Of kinds without Sentinels it knows of nothing.
#[derive(Debug)]
pub(crate) struct Observer {
    looks: Arc<Mutex<Looks>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the looks so far have found.
#[derive(Debug, Default)]
struct Looks {
    /// When no master could serve.
    masterless: Vec<Span>,
    /// When the newest look began that found a master.
    found_at: i64,
}

/// Where servers and Sentinels listen.
#[derive(Debug)]
struct Ports {
    servers: Vec<ServerPorts>,
    sentinels: Vec<u16>,
}

/// Where one server listens.
#[derive(Debug)]
struct ServerPorts {
    /// The port that the Sentinels name, which may be that of a proxy.
    named: u16,
    own: u16,
}

impl Observer {
    pub(crate) fn start(ground: &Ground) -> Self {
        let looks = Arc::new(Mutex::new(Looks::default()));
        let over = Arc::new(AtomicBool::new(false));
        let (noted, ends) = (Arc::clone(&looks), Arc::clone(&over));
        let ports = Ports {
            servers: ground
                .servers()
                .iter()
                .enumerate()
                .map(|(at, server)| ServerPorts {
                    named: ground.port_of(at),
                    own: server.port(),
                })
                .collect(),
            sentinels: ground.ports_of_sentinels(),
        };
        let watch = move || {
            let mut last = fleet::now();
            while !ends.load(Ordering::Relaxed) {
                let began = fleet::now();
                let serves = ports.have_a_master();
                let now = fleet::now();
                let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                if serves {
                    noted.found_at = began;
                } else {
                    noted.note_masterless(last, now);
                }
                drop(noted);
                last = now;
                thread::sleep(PAUSE);
            }
        };
        Self {
            looks,
            over,
            thread: (ground.kind() == Kind::Sentinel).then(|| thread::spawn(watch)),
        }
    }

    /// Waits until a master serves: what comes after a campaign's faults is to be judged. A look may take
    /// seconds, so only one that begins now or later counts.
    pub(crate) fn wait_for_a_master(&self) {
        if self.thread.is_some() {
            let asked_at = fleet::now();
            wait_until("a master serves", || self.looks().found_at >= asked_at);
        }
    }

    /// When no master could serve, so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.looks().masterless.clone()
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Looks {
    /// Notes that nobody served from one look to the next; what follows at once is one span.
    fn note_masterless(&mut self, from: i64, until: i64) {
        match self.masterless.last_mut() {
            Some(last) if last.until == from => last.until = until,
            _ => self.masterless.push(Span { from, until }),
        }
    }
}

impl Ports {
    /// Whether most Sentinels name a server that is master and has a replica.
    fn have_a_master(&self) -> bool {
        let named = self.sentinels.iter().filter_map(|sentinel| {
            let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER];
            let address: Vec<String> = ask(*sentinel, &words)?;
            address.get(1)?.parse::<u16>().ok()
        });
        let named: Vec<u16> = named.collect();
        let by_most = |port: &&u16| {
            let count = named.iter().filter(|other| other == port).count();
            2 * count > self.sentinels.len()
        };
        let Some(port) = named.iter().find(by_most) else {
            return false;
        };
        let server = self.servers.iter().find(|server| server.named == *port);
        let said = server.and_then(|server| ask::<String>(server.own, &["INFO", "replication"]));
        said.is_some_and(|said| can_serve(&said))
    }
}

fn can_serve(replication: &str) -> bool {
    let is = |line: &str| line == "role:master";
    let has_replica = |line: &str| line.starts_with("slave") && line.contains("state=online");
    replication.lines().any(is) && replication.lines().any(has_replica)
}

fn ask<T: redis::FromRedisValue>(port: u16, words: &[&str]) -> Option<T> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).ok()?;
    let mut connection = client.get_connection_with_timeout(LIMIT).ok()?;
    connection.set_read_timeout(Some(LIMIT)).ok()?;
    redis::cmd(words[0])
        .arg(&words[1..])
        .query(&mut connection)
        .ok()
}

#[test]
fn a_master_serves_if_a_replica_hears_it() {
    let replica = "slave0:ip=127.0.0.1,port=2,state=online,offset=14,lag=0";
    let waits = "slave0:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0";
    assert!(can_serve(&format!("role:master\r\n{replica}\r\n")));
    assert!(!can_serve(&format!("role:master\r\n{waits}\r\n")));
    assert!(!can_serve(&format!("role:slave\r\n{replica}\r\n")));
}

#[test]
fn looks_that_follow_one_another_are_one_span() {
    let mut looks = Looks::default();
    looks.note_masterless(10, 20);
    looks.note_masterless(20, 30);
    looks.note_masterless(50, 60);
    let ends = looks.masterless.iter().map(|span| (span.from, span.until));
    assert_eq!(ends.collect::<Vec<_>>(), [(10, 30), (50, 60)]);
}
