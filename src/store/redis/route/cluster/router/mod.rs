//! The router: sends each operation to the server that serves its slot, and follows redirects.
//!
//! This is written by hand because the client library holds all requests back while it refreshes its
//! slots, sends requests again after a lost connection, and gives no access to a connection on which
//! `WAIT` could follow a claim. Here the map of the slots is read from the known servers and the seeds
//! whenever it may be outdated. An operation is sent again only if a server replied that it did not
//! execute it, or once to the new owner of a slot whose server became silent; every operation can be
//! repeated. While no server serves the slot, the operation fails as unreachable.

mod refresh;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::map::{Address, Layout, SlotMap};
use crate::names::Prefix;
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::codec::call::Call;
use crate::store::redis::conn::barrier::Trace;
use crate::store::redis::conn::hello::Part;
use crate::store::redis::conn::link::{ConnectionHandle, Link, LinkReply};
use crate::store::redis::failure::{Redirect, RedisFailure};
use crate::store::redis::script::Script;
use crate::store::{ClusterSettings, RedisSettings};

/// How often one operation follows redirects before it fails.
const REDIRECTS: usize = 5;

/// How often one operation is sent again because a server was silent or unreachable.
const RESENT: usize = 2;

/// The pause before an operation on a migrating slot is sent again.
const AGAIN: Duration = Duration::from_millis(20);

/// A request.
#[derive(Debug, Clone, Copy)]
enum Operation<'a> {
    Script(&'a Script, &'a Call),
    Command(&'a Cmd),
}

/// How a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// To the server that serves the slot.
    Plain,
    /// To the server that the slot migrates to, after `ASKING`.
    Asking,
}

impl Operation<'_> {
    async fn send(
        self,
        link: &Arc<Link>,
        manner: Manner,
        limit: Duration,
    ) -> Result<LinkReply, RedisFailure> {
        match (self, manner) {
            (Self::Script(script, call), Manner::Plain) => link.run_by(script, call, limit).await,
            // In full, because NOSCRIPT would not lead to a second request.
            (Self::Script(script, call), Manner::Asking) => {
                link.send_asking(script.in_full(call), limit).await
            }
            (Self::Command(command), Manner::Plain) => link.send_by(command, limit).await,
            (Self::Command(command), Manner::Asking) => {
                link.send_asking(command.clone(), limit).await
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Router {
    seeds: Vec<(Address, RedisSettings)>,
    state: Mutex<RouterState>,
    /// Held during a refresh of the map, so that one refresh serves all waiting tasks.
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct RouterState {
    map: Option<SlotMap>,
    links: HashMap<Address, Arc<Link>>,
    /// The number of refreshes, when the last one was, and its failure.
    refreshes: u64,
    refreshed_at: Option<Instant>,
    failed: Option<RedisFailure>,
    /// Whether it was logged that no server serves some slots.
    has_logged_gap: bool,
    turn: usize,
}

impl Router {
    pub(super) fn new(settings: &ClusterSettings) -> Result<Self, RedisFailure> {
        let mut seeds = Vec::new();
        for seed in &settings.seeds {
            seeds.push((address_of(seed)?, seed.clone()));
        }
        if seeds.is_empty() {
            return Err(RedisFailure::refused(
                "a Cluster needs at least one server".to_owned(),
            ));
        }
        Ok(Self {
            seeds,
            state: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
        })
    }

    pub(super) fn prefix(&self) -> &Prefix {
        &self.template().prefix
    }

    fn template(&self) -> &RedisSettings {
        // `new` rejects a Cluster without seeds.
        &self.seeds[0].1
    }

    /// Runs a script on the server that serves the slot.
    pub(super) async fn run(
        &self,
        slot: u16,
        script: &Script,
        call: &Call,
        limit: Duration,
    ) -> Result<LinkReply, RedisFailure> {
        let operation = Operation::Script(script, call);
        let reply = self.send_about(slot, operation, limit).await;
        reply.map_err(|failure| self.weighed(failure))
    }

    /// Sends a command to the server that serves the slot.
    pub(super) async fn send(&self, slot: u16, command: &Cmd) -> Result<Value, RedisFailure> {
        let operation = Operation::Command(command);
        let reply = self.send_about(slot, operation, RESPONSE_TIMEOUT).await;
        reply
            .map(|reply| reply.value)
            .map_err(|failure| self.weighed(failure))
    }

    /// Waits until as many replicas as configured have acknowledged what was written in the slot.
    pub(super) async fn replicated(
        &self,
        slot: u16,
        connection: &ConnectionHandle,
        limit: Duration,
    ) -> Result<(), RedisFailure> {
        let marker = super::slot::marker(self.prefix(), slot);
        let passed = connection.replicated(Trace::Marker(&marker), limit).await;
        if let Err(failure) = passed {
            // Another server may have taken its place and its replicas.
            self.refresh().await;
            return Err(self.weighed(failure));
        }
        Ok(())
    }

    /// Turns an outage into one of a single server if the others still work.
    fn weighed(&self, failure: RedisFailure) -> RedisFailure {
        if self.is_in_order() {
            failure.in_part()
        } else {
            failure
        }
    }

    /// Whether the Cluster as a whole is up, by the newest map.
    fn is_in_order(&self) -> bool {
        let state = self.state();
        let in_order = state.map.as_ref().is_some_and(|map| map.trust.in_order);
        in_order && state.failed.is_none()
    }

    async fn send_about(
        &self,
        slot: u16,
        operation: Operation<'_>,
        limit: Duration,
    ) -> Result<LinkReply, RedisFailure> {
        let mut at = self.owner(slot).await?;
        let mut resent = 0;
        let mut manner = Manner::Plain;
        for _ in 0..=REDIRECTS {
            let link = self.link(&at);
            let failure = match operation.send(&link, manner, limit).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            (at, manner) = match failure.redirect() {
                Some(Redirect::Moved(to)) => (self.moved(slot, &at, to, &failure)?, Manner::Plain),
                Some(Redirect::Ask(to)) => (read_address(to, &at, &failure)?, Manner::Asking),
                Some(Redirect::Again) => {
                    tokio::time::sleep(AGAIN).await;
                    (at, manner)
                }
                None if failure.is_outage() && resent < RESENT => {
                    resent += 1;
                    self.refresh().await;
                    match self.known_owner(slot) {
                        Some(owner) if owner != at => (owner, Manner::Plain),
                        _ => return Err(failure),
                    }
                }
                _ => return Err(failure),
            };
        }
        self.refresh().await;
        Err(RedisFailure::unreachable(format!(
            "the servers of the Cluster send slot {slot} from one to the other"
        )))
    }

    /// Returns a number for the server that serves the slot; 0 while that is unknown.
    pub(super) fn shard(&self, slot: u16) -> u64 {
        self.known_owner(slot).map_or(0, |owner| number_of(&owner))
    }

    /// The server that serves the slot, and the number of the connection to it that is in use.
    pub(super) fn connection_of(&self, slot: u16) -> Option<(Address, u64)> {
        let owner = self.known_owner(slot)?;
        let generation = self.link(&owner).generation();
        Some((owner, generation))
    }

    /// Refreshes the map and returns its primaries.
    pub(super) async fn primaries(&self) -> Result<Vec<(Address, Arc<Link>)>, RedisFailure> {
        self.refresh().await;
        let (primaries, failed) = {
            let state = self.state();
            let map = state.map.as_ref();
            if map.is_some_and(SlotMap::has_gap) {
                return Err(RedisFailure::unreachable(
                    "no server serves some slots of the Cluster".to_owned(),
                ));
            }
            (map.map(SlotMap::primaries), state.failed.clone())
        };
        match (primaries, failed) {
            (Some(primaries), None) => Ok(primaries
                .into_iter()
                .map(|address| (address.clone(), self.link(&address)))
                .collect()),
            (_, failed) => Err(failed.unwrap_or_else(no_map)),
        }
    }

    /// Refreshes the map and returns the layout of the Cluster.
    pub(super) async fn layout(&self) -> Result<Layout, RedisFailure> {
        self.refresh().await;
        let state = self.state();
        if let Some(failed) = &state.failed {
            return Err(failed.clone());
        }
        let map = state.map.as_ref().ok_or_else(no_map)?;
        let primaries = map.primaries();
        Ok(Layout {
            primaries: primaries.iter().map(|at| self.settings(at)).collect(),
            unserved: map.unserved(),
            in_order: map.trust.in_order,
        })
    }

    /// Returns the settings of all known servers. Each call starts with another server.
    pub(super) fn everywhere(&self) -> Vec<RedisSettings> {
        let mut state = self.state();
        state.turn = state.turn.wrapping_add(1);
        let mut all: Vec<Address> = state.map.iter().flat_map(SlotMap::primaries).collect();
        for (seed, _) in &self.seeds {
            if !all.contains(seed) {
                all.push(seed.clone());
            }
        }
        let turn = state.turn % all.len();
        all.rotate_left(turn);
        drop(state);
        all.iter().map(|address| self.settings(address)).collect()
    }

    async fn owner(&self, slot: u16) -> Result<Address, RedisFailure> {
        if let Some(owner) = self.known_owner(slot) {
            return Ok(owner);
        }
        self.refresh().await;
        if let Some(owner) = self.known_owner(slot) {
            return Ok(owner);
        }
        let state = self.state();
        Err(match (&state.map, &state.failed) {
            (Some(_), _) => {
                RedisFailure::unreachable(format!("no server of the Cluster serves slot {slot}"))
            }
            (None, Some(failed)) => failed.clone(),
            (None, None) => no_map(),
        })
    }

    fn known_owner(&self, slot: u16) -> Option<Address> {
        self.state().map.as_ref()?.owner(slot).cloned()
    }

    fn moved(
        &self,
        slot: u16,
        from: &Address,
        to: &str,
        failure: &RedisFailure,
    ) -> Result<Address, RedisFailure> {
        let to = read_address(to, from, failure)?;
        let mut state = self.state();
        if let Some(map) = &mut state.map {
            map.moved(slot, to.clone());
        }
        Ok(to)
    }

    fn link(&self, address: &Address) -> Arc<Link> {
        let mut state = self.state();
        let link = state
            .links
            .entry(address.clone())
            .or_insert_with(|| Link::new(&self.settings(address), Part::InCluster));
        Arc::clone(link)
    }

    fn settings(&self, address: &Address) -> RedisSettings {
        self.seeds
            .iter()
            .find(|(seed, _)| seed == address)
            .map_or_else(
                || self.template().at(&address.host, address.port),
                |(_, seed)| seed.clone(),
            )
    }

    fn state(&self) -> MutexGuard<'_, RouterState> {
        // No code that holds the guard can panic in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_map() -> RedisFailure {
    RedisFailure::unreachable("no server of the Cluster returned its map of the slots".to_owned())
}

fn read_address(
    to: &str,
    asked: &Address,
    failure: &RedisFailure,
) -> Result<Address, RedisFailure> {
    Address::read(to, asked).ok_or_else(|| {
        RedisFailure::corrupt(format!("a redirect without an address: {}", failure.text()))
    })
}

/// Never returns 0.
fn number_of(address: &Address) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    address.hash(&mut hasher);
    hasher.finish().max(1)
}

fn address_of(seed: &RedisSettings) -> Result<Address, RedisFailure> {
    let (host, port) = seed.endpoint.host_and_port().ok_or_else(|| {
        RedisFailure::refused(format!(
            "{} cannot be a server of a Cluster: those are reached by host and port",
            seed.shown()
        ))
    })?;
    Ok(Address {
        host: host.to_owned(),
        port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Endpoint;

    #[test]
    fn a_server_of_a_cluster_has_an_address() {
        let seed = |url: &str| {
            let endpoint = Endpoint::parse(url).expect("a sound URL");
            address_of(&RedisSettings::new(endpoint))
        };
        let address = seed("redis://:x@[::1]:7").expect("an address");
        assert_eq!(address.to_string(), "[::1]:7");
        assert!(seed("redis+unix:///r.sock").is_err());
    }
}
