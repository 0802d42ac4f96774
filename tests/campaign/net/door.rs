//! A door: the port through which one server is reached.

use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

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
    /// Handles of both sockets.
    ends: [std::net::TcpStream; 2],
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
            if let Ok(listener) = std::net::TcpListener::bind(("127.0.0.1", port.number())) {
                break (port, listener);
            }
        };
        let nonblocking = listener.set_nonblocking(true);
        nonblocking.expect("a socket that was just made");
        let leads_to = Arc::new(AtomicU16::new(0));
        let (own, to) = (port.number(), Arc::clone(&leads_to));
        let on = net.runtime();
        on.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a socket that was just made");
            loop {
                tokio::select! {
                    () = net.ended() => return,
                    client = listener.accept() => {
                        let Ok((client, _)) = client else {
                            // Out of descriptors, for one: they are given back sooner or later.
                            tokio::time::sleep(Duration::from_millis(10)).await;
                            continue;
                        };
                        let (net, to) = (net.clone(), to.load(Ordering::Relaxed));
                        tokio::spawn(async move { net.pass(number, client, own, to).await });
                    }
                }
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

/// Whether the other side has closed the connection, whatever it sent before.
fn has_left(end: &std::net::TcpStream) -> bool {
    let mut polled = libc::pollfd {
        fd: end.as_raw_fd(),
        events: libc::POLLRDHUP,
        revents: 0,
    };
    // SAFETY: one entry is passed, which lives until the call returns at once.
    let found = unsafe { libc::poll(&raw mut polled, 1, 0) };
    found > 0 && polled.revents & (libc::POLLRDHUP | libc::POLLHUP) != 0
}

/// Another handle of the same socket, and the socket.
fn twin(stream: TcpStream) -> Option<(std::net::TcpStream, TcpStream)> {
    let own = stream.into_std().ok()?;
    let handle = own.try_clone().ok()?;
    Some((handle, TcpStream::from_std(own).ok()?))
}

impl Net {
    /// One connection, from its beginning to its end.
    async fn pass(&self, door: usize, client: TcpStream, own: u16, to: u16) {
        let Ok(upstream) = TcpStream::connect(("127.0.0.1", to)).await else {
            return;
        };
        let both = [&client, &upstream];
        if both.iter().any(|end| end.set_nodelay(true).is_err()) {
            return;
        }
        let Some(from) = client.peer_addr().ok().map(|address| address.port()) else {
            return;
        };
        let (Some((client_end, client)), Some((upstream_end, upstream))) =
            (twin(client), twin(upstream))
        else {
            return;
        };
        // It reads long tables of the system's, while what is open goes on.
        let net = self.clone();
        let entering = tokio::task::spawn_blocking(move || {
            net.enter(door, from, own, [client_end, upstream_end])
        });
        let Ok(Some(id)) = entering.await else {
            return;
        };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = upstream.into_split();
        tokio::join!(
            self.carry(id, from_client, to_server, false),
            self.carry(id, from_server, to_client, true),
        );
        self.state().open.retain(|passage| passage.id != id);
    }

    /// Finds out who it is; `None` when the door is shut to them.
    fn enter(
        &self,
        door: usize,
        from: u16,
        own: u16,
        ends: [std::net::TcpStream; 2],
    ) -> Option<u64> {
        if has_left(&ends[0]) {
            // It waited for longer than it had patience, and has asked again since. To look for it
            // would make the next one wait: on a busy machine nobody would ever get in.
            return None;
        }
        let inode = who::inode(from, own).unwrap_or(0);
        let parties = self.state().parties.clone();
        let owner = parties
            .iter()
            .find(|(pid, _)| who::sockets_of(*pid).contains(&inode));
        let mut state = self.state();
        // Somebody may have been registered meanwhile, who then looked for this one in vain.
        let owner = owner.or_else(|| {
            let new = state
                .parties
                .iter()
                .filter(|party| !parties.contains(party));
            new.into_iter()
                .find(|(pid, _)| who::sockets_of(*pid).contains(&inode))
        });
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
    async fn carry(&self, id: u64, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, replies: bool) {
        let mut buffer = vec![0; 64 * 1024];
        // TCP leaves no gap in a stream: after a loss nothing passes any more.
        let mut has_gap = false;
        loop {
            let read = from.read(&mut buffer).await.unwrap_or(0);
            // An end is lost on the way as anything else, and arrives when it can.
            let way = self.await_way(id, read == 0).await;
            if read == 0 {
                break;
            }
            match way {
                Way::Silent => {
                    self.state().lost += 1;
                    has_gap = true;
                    continue;
                }
                Way::Deaf if replies => {
                    self.state().lost += 1;
                    has_gap = true;
                    continue;
                }
                _ if has_gap => break,
                Way::CutReply if replies => {
                    self.mend(id);
                    break;
                }
                Way::Refused => break,
                Way::Slow(by) => tokio::time::sleep(by).await,
                Way::Open | Way::Deaf | Way::CutReply | Way::Late => {}
            }
            if to.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
        let state = self.state();
        if let Some(passage) = state.open.iter().find(|passage| passage.id == id) {
            passage.shut();
        }
    }

    /// The way, once something may pass or be lost.
    async fn await_way(&self, id: u64, is_end: bool) -> Way {
        let mut changed = self.changes();
        loop {
            changed.mark_unchanged();
            let way = self.state().way_of(id);
            if way != Way::Late && !(is_end && way == Way::Silent) {
                return way;
            }
            if changed.changed().await.is_err() {
                return Way::Refused;
            }
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
