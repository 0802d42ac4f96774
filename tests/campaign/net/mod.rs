//! The network between hosts and servers, and among the servers: it can fail for each pair.
//!
//! Every server is reached through a [`Door`], whoever comes: servers under Sentinels and those of
//! a Cluster announce their doors, so that redirects and Sentinels name them too. A door tells by
//! the process that opened a connection ([`who`]) from where it comes, and each way from one party
//! through one door can fail on its own. A few threads carry all of it, however many connections.

mod door;
mod way;
mod who;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::watch;

pub(crate) use door::Door;
pub(crate) use way::Way;

use door::Passage;

/// How many threads carry what passes. On a busy machine one alone gets too little of a processor.
const CARRIERS: usize = 4;

/// How many threads find out who comes.
const WHO_COMES: usize = 4;

/// Who comes to a door. A connection of a process that nobody registered is the test's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Party {
    /// A daemon.
    Host(usize),
    /// A server, on its way to another one.
    Server(usize),
    /// One who watches over servers.
    Sentinel(usize),
    /// The test itself.
    Outsider,
}

/// The whole network; clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Net {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Counts the changes of ways, parties and connections.
    changed: watch::Sender<u64>,
    runtime: Handle,
    thread: String,
}

#[derive(Debug, Default)]
struct State {
    parties: Vec<(i32, Party)>,
    /// What is not here is open.
    ways: Vec<(Party, usize, Way)>,
    open: Vec<Passage>,
    doors: usize,
    next: u64,
    /// How many pieces did not arrive.
    lost: u64,
    ended: bool,
}

impl Net {
    /// A network, and the threads that carry it until [`Self::end`].
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        crate::panics::note();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let thread = format!("network {number}");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(CARRIERS)
            .thread_name(&thread)
            .enable_all()
            .max_blocking_threads(WHO_COMES)
            .build()
            .expect("descriptors for a runtime");
        let net = Self {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                changed: watch::channel(0).0,
                runtime: runtime.handle().clone(),
                thread: thread.clone(),
            }),
        };
        let ours = net.clone();
        let serve = move || runtime.block_on(ours.ended());
        let spawned = std::thread::Builder::new().name(thread).spawn(serve);
        spawned.expect("a thread for the network");
        net
    }

    fn runtime(&self) -> Handle {
        self.shared.runtime.clone()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    fn notify(&self) {
        self.shared.changed.send_modify(|count| *count += 1);
    }

    async fn ended(&self) {
        let mut changes = self.changes();
        while !self.state().ended {
            // The sender lives as long as this.
            let _ = changes.changed().await;
        }
    }

    /// What went wrong with the network itself.
    pub(crate) fn panics(&self) -> Vec<String> {
        crate::panics::of(&self.shared.thread)
    }

    /// A new door; it leads nowhere until [`Door::lead_to`] says where.
    pub(crate) fn door(&self) -> Door {
        let number = {
            let mut state = self.state();
            state.doors += 1;
            state.doors - 1
        };
        Door::open(self.clone(), number)
    }

    /// From now on this process is that party; also for what it has opened already.
    pub(crate) fn register(&self, pid: i32, party: Party) {
        let mut state = self.state();
        state
            .parties
            .retain(|(known, of)| *known != pid && *of != party);
        state.parties.push((pid, party));
        let sockets = who::sockets_of(pid);
        for passage in &mut state.open {
            if sockets.contains(&passage.inode) {
                passage.party = party;
            }
        }
        drop(state);
        self.notify();
    }

    /// Changes the way from one party through these doors, for open connections too.
    pub(crate) fn set(&self, from: Party, doors: &[usize], way: Way) {
        let mut state = self.state();
        for door in doors {
            state
                .ways
                .retain(|(party, to, _)| (*party, *to) != (from, *door));
            if way != Way::Open {
                state.ways.push((from, *door, way));
            }
            if way == Way::Refused {
                state.close(|passage| (passage.party, passage.door) == (from, *door));
            }
        }
        drop(state);
        self.notify();
    }

    /// What is open from this party through these doors leads nowhere any more, and nobody says so;
    /// a new connection passes.
    pub(crate) fn forget(&self, from: Party, doors: &[usize]) {
        let mut state = self.state();
        for passage in &mut state.open {
            if passage.party == from && doors.contains(&passage.door) {
                passage.forgotten = true;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every door and connection.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.close(|_| true);
        drop(state);
        self.notify();
    }
}

impl State {
    fn close(&mut self, which: impl Fn(&Passage) -> bool) {
        for passage in self.open.iter().filter(|passage| which(passage)) {
            passage.shut();
        }
        self.open.retain(|passage| !which(passage));
    }

    fn way_of(&self, id: u64) -> Way {
        let Some(passage) = self.open.iter().find(|passage| passage.id == id) else {
            return Way::Refused;
        };
        if passage.forgotten {
            return Way::Silent;
        }
        let (party, door) = (passage.party, passage.door);
        let failing = self.ways.iter().find(|(p, d, _)| (*p, *d) == (party, door));
        failing.map_or(Way::Open, |(_, _, way)| *way)
    }
}

#[cfg(test)]
mod tests;
