//! The slot watcher: looks after the slots of registered jobs when their server changes.
//!
//! A store that lost data notices when it is next asked. With one server somebody asks it all the
//! time; in a Cluster the slot of a nightly job may be asked once a day, and a failover in the
//! morning would be noticed at night, by the very claim it should not touch. So whenever a slot
//! is served by another server, or over another connection, its jobs are registered once more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::fan::fan_out;
use super::map::Address;
use super::router::Router;
use super::slot;
use crate::store::redis::failure::RedisFailure;
use crate::store::redis::keys::LockKeys;
use crate::store::redis::link::RESPONSE_TIMEOUT;
use crate::store::redis::reading;
use crate::store::{Registered, Registration};

/// How often the map is asked for though nothing seems wrong.
const EVERY: Duration = Duration::from_secs(2);

/// Registers jobs, each in its own slot.
pub(super) async fn register(
    router: &Arc<Router>,
    jobs: &[Registration],
) -> Result<Vec<Registered>, RedisFailure> {
    let calls = jobs
        .iter()
        .map(|job| reading::register_call(router.prefix(), std::slice::from_ref(job)))
        .collect();
    let mut all = Vec::with_capacity(jobs.len());
    for answer in fan_out(router, |s| &s.register, calls, RESPONSE_TIMEOUT).await? {
        all.extend(reading::register_read(answer)?);
    }
    Ok(all)
}

#[derive(Debug, Default)]
pub(super) struct SlotWatcher {
    beats: Arc<Mutex<Beats>>,
}

#[derive(Debug, Default)]
struct Beats {
    /// One job of each slot, and the way to its server when it was last looked after.
    slots: HashMap<u16, Post>,
    walks: bool,
}

#[derive(Debug)]
struct Post {
    job: Registration,
    way: Option<(Address, u64)>,
}

impl SlotWatcher {
    /// Looks after these jobs from now on; they have just been registered.
    pub(super) fn remember(&self, router: &Arc<Router>, jobs: &[Registration]) {
        let mut beats = lock(&self.beats);
        for job in jobs {
            let slot = slot::of(&LockKeys::of(router.prefix(), &job.lock).state);
            let post = Post {
                job: job.clone(),
                way: router.way(slot),
            };
            beats.slots.insert(slot, post);
        }
        if !beats.walks && !beats.slots.is_empty() {
            beats.walks = true;
            tokio::spawn(walk(Arc::downgrade(router), Arc::downgrade(&self.beats)));
        }
    }
}

/// Goes its rounds until the store is dropped.
async fn walk(router: Weak<Router>, beats: Weak<Mutex<Beats>>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let (Some(router), Some(beats)) = (router.upgrade(), beats.upgrade()) else {
            return;
        };
        router.refresh().await;
        let changed: Vec<(u16, Registration)> = lock(&beats)
            .slots
            .iter()
            .filter(|(slot, post)| router.way(**slot) != post.way)
            .map(|(slot, post)| (*slot, post.job.clone()))
            .collect();
        if changed.is_empty() {
            continue;
        }
        let mut rounds = tokio::task::JoinSet::new();
        for (slot, job) in changed {
            let router = Arc::clone(&router);
            // Each on its own: one whose server is down is looked after in the next round.
            rounds.spawn(async move {
                let done = register(&router, &[job]).await.is_ok();
                (slot, router.way(slot).filter(|_| done))
            });
        }
        while let Some(done) = rounds.join_next().await {
            if let Ok((slot, Some(way))) = done
                && let Some(post) = lock(&beats).slots.get_mut(&slot)
            {
                post.way = Some(way);
            }
        }
    }
}

fn lock(beats: &Mutex<Beats>) -> MutexGuard<'_, Beats> {
    // Nothing that holds the guard can panic half-way through a change.
    beats.lock().unwrap_or_else(PoisonError::into_inner)
}
