//! A door: the port through which one server is reached.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;

use super::{Net, Party, Way, who};
use crate::support::redis::Port;

/// A port in front of a server.
#[derive(Debug)]
pub(crate) struct Door {
    number: usize,
    port: Port,
    leads_to: Arc<AtomicU16>,
}

/// One connection, of both its halves.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) id: u64,
    pub(super) door: usize,
    pub(super) party: Party,
    /// The socket of the party.
    pub(super) inode: u64,
    /// Its way is lost, and nobody says so.
    pub(super) forgotten: bool,
    ends: [TcpStream; 2],
}

impl Passage {
    pub(super) fn shut(&self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Door {
    pub(super) fn open(net: Net, number: usize) -> Self {
        let (port, listener) = loop {
            let port = Port::claim();
            if let Ok(listener) = TcpListener::bind(("127.0.0.1", port.number())) {
                break (port, listener);
            }
        };
        let leads_to = Arc::new(AtomicU16::new(0));
        let (own, to) = (port.number(), Arc::clone(&leads_to));
        thread::spawn(move || {
            for client in listener.incoming() {
                if net.state().ended {
                    return;
                }
                let Ok(client) = client else { continue };
                let (net, to) = (net.clone(), to.load(Ordering::Relaxed));
                thread::spawn(move || net.pass(number, &client, own, to));
            }
        });
        Self {
            number,
            port,
            leads_to,
        }
    }

    /// The server behind it.
    pub(crate) fn lead_to(&self, port: u16) {
        self.leads_to.store(port, Ordering::Relaxed);
    }

    /// Where everybody finds it.
    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// What the network calls it.
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

impl Net {
    /// One connection, from its beginning to its end.
    fn pass(&self, door: usize, client: &TcpStream, own: u16, to: u16) {
        let Ok(upstream) = TcpStream::connect(("127.0.0.1", to)) else {
            return;
        };
        let both = [client, &upstream];
        if both.iter().any(|end| end.set_nodelay(true).is_err()) {
            return;
        }
        let Some(id) = self.enter(door, client, &upstream, own) else {
            return;
        };
        let halves = [(client, &upstream, false), (&upstream, client, true)];
        thread::scope(|scope| {
            for (from, to, replies) in halves {
                scope.spawn(move || self.carry(id, from, to, replies));
            }
        });
        self.state().open.retain(|passage| passage.id != id);
    }

    /// Finds out who it is; `None` when the door is shut to them.
    fn enter(&self, door: usize, client: &TcpStream, server: &TcpStream, own: u16) -> Option<u64> {
        let from = client.peer_addr().ok()?.port();
        let inode = who::inode(from, own).unwrap_or(0);
        let ends = [client.try_clone().ok()?, server.try_clone().ok()?];
        let mut state = self.state();
        let owner = state
            .parties
            .iter()
            .find(|(pid, _)| who::sockets_of(*pid).contains(&inode));
        let party = owner.map_or(Party::Outsider, |(_, party)| *party);
        let id = state.next;
        state.next += 1;
        state.open.push(Passage {
            id,
            door,
            party,
            inode,
            forgotten: false,
            ends,
        });
        if state.ended || state.way_of(id) == Way::Refused {
            state.close(|passage| passage.id == id);
            return None;
        }
        Some(id)
    }

    /// Carries one direction of a connection until it ends.
    fn carry(&self, id: u64, mut from: &TcpStream, mut to: &TcpStream, replies: bool) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = from.read(&mut buffer).unwrap_or(0);
            // An end is lost on the way as anything else, and arrives when it can.
            let way = self.await_way(id, read == 0);
            if read == 0 {
                break;
            }
            match way {
                Way::Silent => {
                    self.state().lost += 1;
                    continue;
                }
                Way::Deaf if replies => {
                    self.state().lost += 1;
                    continue;
                }
                Way::CutReply if replies => {
                    self.mend(id);
                    break;
                }
                Way::Refused => break,
                Way::Slow(by) => thread::sleep(by),
                Way::Open | Way::Deaf | Way::CutReply | Way::Late => {}
            }
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    /// The way, once something may pass or be lost.
    fn await_way(&self, id: u64, is_end: bool) -> Way {
        let mut state = self.state();
        loop {
            let way = state.way_of(id);
            if way != Way::Late && !(is_end && way == Way::Silent) {
                return way;
            }
            let changed = self.shared.changed.wait(state);
            state = changed.unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// After one answer was cut off.
    fn mend(&self, id: u64) {
        let mut state = self.state();
        let passage = state.open.iter().find(|passage| passage.id == id);
        if let Some((party, door)) = passage.map(|passage| (passage.party, passage.door)) {
            state.ways.retain(|(p, d, _)| (*p, *d) != (party, door));
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Wakes the thread that accepts, so that it sees the end.
        drop(TcpStream::connect(("127.0.0.1", self.port())));
    }
}
