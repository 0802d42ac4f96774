//! How the router reads the map of the slots: from several servers at once, and at most one refresh at a
//! time. Of the replies the map that can be trusted most is used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tracing::{info, warn};

use super::{Router, RouterState, no_map};
use crate::ground::tasks::SpawnBoxed as _;
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::codec::reply::text;
use crate::store::redis::conn::link::Link;
use crate::store::redis::failure::RedisFailure;
use crate::store::redis::route::cluster::map::{Address, MapTrust, SlotMap};

/// How many servers are asked for their map at once.
const ASKED: usize = 8;

/// How long the other servers have after the first reply.
const OTHERS: Duration = Duration::from_millis(300);

/// The shortest time between two refreshes of the map.
const PAUSE: Duration = Duration::from_millis(100);

impl Router {
    /// Refreshes the map, or waits for the refresh of another task.
    pub(in crate::store::redis::route::cluster) async fn refresh(&self) {
        let seen = self.state().refreshes;
        let _refreshing = self.refreshing.lock().await;
        {
            let state = self.state();
            let fresh = state.refreshed_at.is_some_and(|at| at.elapsed() < PAUSE);
            if state.refreshes != seen || fresh {
                return;
            }
        }
        let reply = self.ask_for_map().await;
        let mut state = self.state();
        state.refreshes += 1;
        state.refreshed_at = Some(Instant::now());
        match reply {
            Ok(map) => {
                state.log_gap(&map);
                let known = |at: &Address| {
                    map.primaries().contains(at)
                        || map.replicas().contains(at)
                        || self.seeds.iter().any(|(seed, _)| seed == at)
                };
                state.links.retain(|address, _| known(address));
                state.map = Some(map);
                state.failed = None;
            }
            // The old map stays, because its servers may be back before the next refresh.
            Err(failure) => state.failed = Some(failure),
        }
    }

    /// Asks several servers at once and returns the map that can be trusted most.
    async fn ask_for_map(&self) -> Result<SlotMap, RedisFailure> {
        let mut asking = JoinSet::new();
        for address in self.whom_to_ask() {
            let link = self.link(&address);
            asking.spawn_boxed(async move { view(&link, &address).await });
        }
        let mut best: Option<SlotMap> = None;
        let mut failed = no_map();
        let mut until = tokio::time::Instant::now() + RESPONSE_TIMEOUT * 2;
        while let Ok(Some(done)) = tokio::time::timeout_at(until, asking.join_next()).await {
            match done {
                Ok(Ok(map)) => {
                    if best.is_none() {
                        until = until.min(tokio::time::Instant::now() + OTHERS);
                    }
                    if best.as_ref().is_none_or(|best| best.trust < map.trust) {
                        best = Some(map);
                    }
                }
                // A failure that a person must fix takes precedence over unreachable servers.
                Ok(Err(failure)) if failed.is_outage() => failed = failure,
                _ => {}
            }
        }
        best.ok_or(failed)
    }

    /// Returns some of the primaries, in turn, then seeds, and replicas if there is room.
    fn whom_to_ask(&self) -> Vec<Address> {
        let mut state = self.state();
        state.turn = state.turn.wrapping_add(1);
        let mut primaries: Vec<Address> = state.map.iter().flat_map(SlotMap::primaries).collect();
        if !primaries.is_empty() {
            let turn = state.turn % primaries.len();
            primaries.rotate_left(turn);
        }
        primaries.truncate(ASKED / 2);
        let mut seeds: Vec<Address> = self.seeds.iter().map(|(seed, _)| seed.clone()).collect();
        let turn = state.turn % seeds.len();
        seeds.rotate_left(turn);
        let mut replicas: Vec<Address> = state
            .map
            .iter()
            .flat_map(|map| map.replicas().to_vec())
            .collect();
        if !replicas.is_empty() {
            let turn = state.turn % replicas.len();
            replicas.rotate_left(turn);
        }
        let mut whom: Vec<Address> = Vec::new();
        for address in primaries.into_iter().chain(seeds).chain(replicas) {
            if whom.len() < ASKED && !whom.contains(&address) {
                whom.push(address);
            }
        }
        whom
    }
}

impl RouterState {
    fn log_gap(&mut self, map: &SlotMap) {
        match (map.has_gap(), self.has_logged_gap) {
            (true, false) => warn!(
                "no server serves some slots of the Cluster; locks in these slots cannot be \
                 claimed. Restore their primary or a replica (`redis-cli --cluster check`)"
            ),
            (false, true) => info!("all slots of the Cluster are served again"),
            _ => {}
        }
        self.has_logged_gap = map.has_gap();
    }
}

async fn view(link: &Arc<Link>, asked: &Address) -> Result<SlotMap, RedisFailure> {
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    let trust = MapTrust::read(&text(link.send(&info).await?)?);
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    SlotMap::read(link.send(&slots).await?, asked, trust)
}
