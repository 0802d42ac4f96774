//! The slot watcher: registers jobs again when the server of their slot changes.
//!
//! A store notices at the next request that it lost data. A single server gets requests all the time,
//! but in a Cluster the slot of a nightly job may get one a day: it would notice a failover of the
//! morning only at the claim of the night, which then would have to wait. Therefore a job of a slot is
//! registered again as soon as another server, or another connection, serves the slot.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::task::JoinSet;

use super::map::Address;
use super::router::Router;
use super::slot;
use crate::ground::tasks::{self, SpawnBoxed as _};
use crate::store::Registration;
use crate::store::redis::RESPONSE_TIMEOUT;
use crate::store::redis::codec::keys::LockKeys;
use crate::store::redis::codec::register;
use crate::store::redis::script::Scripts;

/// How often the map is refreshed without a reason.
const EVERY: Duration = Duration::from_secs(2);

/// Registers jobs again when another server, or another connection, serves their slot.
#[derive(Debug)]
pub(super) struct SlotWatcher {
    scripts: Arc<Scripts>,
    watched: Arc<Mutex<WatchedSlots>>,
}

#[derive(Debug, Default)]
struct WatchedSlots {
    slots: HashMap<u16, WatchedSlot>,
    has_task: bool,
}

#[derive(Debug)]
struct WatchedSlot {
    /// One job of the slot.
    job: Registration,
    /// The server and the connection over which it was registered last.
    connection: Option<(Address, u64)>,
}

impl SlotWatcher {
    pub(super) fn new(scripts: Arc<Scripts>) -> Self {
        Self {
            scripts,
            watched: Arc::default(),
        }
    }

    /// Watches the slots of these jobs from now on. The jobs have just been registered.
    pub(super) fn remember(&self, router: &Arc<Router>, jobs: &[Registration]) {
        let mut watched = lock(&self.watched);
        for job in jobs {
            let slot = slot::of(&LockKeys::of(router.prefix(), &job.lock).state().to_string());
            let connection = router.connection_of(slot);
            let job = job.clone();
            watched.slots.insert(slot, WatchedSlot { job, connection });
        }
        if !watched.has_task && !watched.slots.is_empty() {
            watched.has_task = true;
            tasks::spawn(watch(
                Arc::downgrade(router),
                Arc::clone(&self.scripts),
                Arc::downgrade(&self.watched),
            ));
        }
    }
}

/// Compares connections every two seconds until the store is dropped.
async fn watch(router: Weak<Router>, scripts: Arc<Scripts>, watched: Weak<Mutex<WatchedSlots>>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let (Some(router), Some(watched)) = (router.upgrade(), watched.upgrade()) else {
            return;
        };
        router.refresh().await;
        let changed: Vec<(u16, Registration)> = lock(&watched)
            .slots
            .iter()
            .filter(|(slot, watched)| router.connection_of(**slot) != watched.connection)
            .map(|(slot, watched)| (*slot, watched.job.clone()))
            .collect();
        let mut registrations = JoinSet::new();
        for (slot, job) in changed {
            let (router, scripts) = (Arc::clone(&router), Arc::clone(&scripts));
            // Each in its own task: a job whose server is down is registered in a later round.
            registrations.spawn_boxed(async move {
                let is_registered = register(&router, &scripts, job).await;
                (slot, router.connection_of(slot).filter(|_| is_registered))
            });
        }
        while let Some(done) = registrations.join_next().await {
            if let Ok((slot, Some(connection))) = done
                && let Some(watched) = lock(&watched).slots.get_mut(&slot)
            {
                watched.connection = Some(connection);
            }
        }
    }
}

async fn register(router: &Router, scripts: &Scripts, job: Registration) -> bool {
    let mut call = register::call(router.prefix(), &[job]);
    let Ok(slot) = slot::settle(router.prefix(), &mut call) else {
        return false;
    };
    let script = &scripts.register;
    let reply = router.run(slot, script, &call, RESPONSE_TIMEOUT).await;
    reply.is_ok_and(|reply| register::read(reply.value).is_ok())
}

fn lock(watched: &Mutex<WatchedSlots>) -> MutexGuard<'_, WatchedSlots> {
    // No code that holds the guard can panic in the middle of a change.
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}
