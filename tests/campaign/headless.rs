//! When servers that Sentinels watch over had no master that could serve: faults may leave them so
//! for longer than they last, and then the store is down, whatever the hosts do.
//!
//! A thread asks the Sentinels who is master, and that server whether it is one and has a replica
//! to acknowledge to (`wait_replicas: 1`). It asks them directly: no fault of the network hinders it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::checker::Span;
use crate::fleet;
use crate::ground::{Ground, Kind};
use crate::support::sentinel::MASTER;
use crate::support::wait_until;

/// How often it is asked.
const PAUSE: Duration = Duration::from_millis(200);

/// A server that takes longer to answer serves nobody.
const LIMIT: Duration = Duration::from_secs(1);

/// The thread that asks. Of kinds without Sentinels it knows of nothing.
#[derive(Debug)]
pub(crate) struct Observer {
    spans: Arc<Mutex<Vec<Span>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Where servers and Sentinels listen.
#[derive(Debug)]
struct Ports {
    /// As the Sentinels name it, and its own.
    servers: Vec<(u16, u16)>,
    sentinels: Vec<u16>,
}

impl Observer {
    pub(crate) fn start(ground: &Ground) -> Self {
        let spans = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let (noted, ends) = (Arc::clone(&spans), Arc::clone(&over));
        let ports = Ports {
            servers: ground
                .servers()
                .iter()
                .enumerate()
                .map(|(at, server)| (ground.port_of(at), server.port()))
                .collect(),
            sentinels: ground.ports_of_sentinels(),
        };
        let watch = move || {
            let mut looked = fleet::now();
            while !ends.load(Ordering::Relaxed) {
                let serves = ports.have_a_master();
                let now = fleet::now();
                if !serves {
                    let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    note(&mut noted, looked, now);
                }
                looked = now;
                thread::sleep(PAUSE);
            }
        };
        Self {
            spans,
            over,
            thread: (ground.kind() == Kind::Sentinel).then(|| thread::spawn(watch)),
        }
    }

    /// Waits until a master serves: what comes after a campaign's faults is to be judged.
    pub(crate) fn wait_for_a_master(&self) {
        wait_until("a master serves", || {
            let last = self.spans().last().map_or(0, |span| span.until);
            fleet::now() - last > 1_000
        });
    }

    /// When no master could serve, so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.clone()
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

/// Notes that nobody served from one look to the next; what follows at once is one span.
fn note(spans: &mut Vec<Span>, from: i64, until: i64) {
    match spans.last_mut() {
        Some(last) if last.until == from => last.until = until,
        _ => spans.push(Span { from, until }),
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
        let server = self.servers.iter().find(|(known, _)| known == port);
        let said = server.and_then(|(_, own)| ask::<String>(*own, &["INFO", "replication"]));
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
    let mut spans = Vec::new();
    note(&mut spans, 10, 20);
    note(&mut spans, 20, 30);
    note(&mut spans, 50, 60);
    let ends: Vec<_> = spans.iter().map(|span| (span.from, span.until)).collect();
    assert_eq!(ends, [(10, 30), (50, 60)]);
}
