//! Another job list while the daemon runs, as `engine::daemon::replace` puts it into force.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;

use cronlatch::config::Job;
use cronlatch::engine::simulated::{
    ClaimContext, Event, JobIx, LaneChange, ListedJob, NewList, Policy,
};

use super::{Daemon, listed};
use crate::host::Env;
use crate::host::tasks::{Ask, Then};
use crate::plan::{JobPlan, StoreKind, millis};
use crate::trace::Reloaded;

impl Daemon {
    pub(in crate::host) fn reload(&mut self, env: &mut Env<'_>, list: usize) {
        if self.shutdown.is_some() {
            return;
        }
        let plan = Rc::clone(&env.sim.plan);
        let list_plan = &plan.lists[list];
        let (at, life) = (env.sim.now, self.noted);
        env.sim.trace.reloads.push(Reloaded { at, life, list });
        self.list = list;
        self.drain_timeout = list_plan.drain_timeout;
        let context = ClaimContext {
            host: &env.name.clone(),
            shared: plan.store != StoreKind::Sqlite,
            spread: millis(list_plan.spread),
            max_running: list_plan.max_running.and_then(NonZeroUsize::new),
        };
        let mut jobs: BTreeMap<JobIx, (Arc<Job>, JobPlan)> = BTreeMap::new();
        let mut new = Vec::new();
        let mut former = self.names.clone();
        for (job, of) in listed(list_plan, env.name) {
            let (place, change) = self.place(former.remove(&job.name), &job);
            self.longest = self.longest.max(job.lock.ttl);
            new.push(ListedJob {
                job: place,
                policy: Policy::of(&job, context),
                change,
            });
            jobs.insert(place, (job, of));
        }
        self.removed.extend(former);
        env.longest = self.longest;
        let due: Vec<_> = (jobs.values())
            .map(|(job, _)| super::ticked(job, context))
            .collect();
        // What came due so far did so by the old list.
        let fired = self.ticker.replace(env, &self.clock, &due);
        self.fire_all(env, fired);
        self.names = (jobs.iter())
            .map(|(place, (job, _))| (job.name.clone(), *place))
            .collect();
        self.registry.keep_only(|place| jobs.contains_key(&place));
        self.held.retain(|place, _| jobs.contains_key(place));
        self.to_register.retain(|place| jobs.contains_key(place));
        self.again.retain(|place| jobs.contains_key(place));
        self.waits_for_earlier = true;
        self.looks_later = true;
        let now = jobs.clone();
        self.jobs.extend(jobs);
        self.feed(
            env,
            Event::Reload(NewList {
                jobs: new,
                max_running: list_plan.max_running.and_then(NonZeroUsize::new),
            }),
        );
        self.jobs = now;
        self.fire(env);
        self.measure_and_announce(env);
        self.follow(env);
    }

    fn place(&mut self, before: Option<JobIx>, job: &Job) -> (JobIx, LaneChange) {
        let old = before.and_then(|place| Some((place, Arc::clone(&self.jobs.get(&place)?.0))));
        let change = match old {
            Some((place, old)) if old.fingerprint != job.fingerprint => {
                let before = Some(place);
                LaneChange::New { before }
            }
            Some((before, old)) if old.lock_id() != job.lock_id() => LaneChange::Moved { before },
            Some((place, _)) => return (place, LaneChange::Kept),
            None => LaneChange::New {
                before: self.removed.remove(&job.name),
            },
        };
        self.next_job += 1;
        (JobIx(self.next_job - 1), change)
    }

    /// Whether a registration of an earlier list is under way that a newer one must not overtake.
    pub(super) fn must_wait(&mut self) -> bool {
        if !self.waits_for_earlier {
            return false;
        }
        let is_registering = |ask: &Ask| {
            matches!(
                ask,
                Ask::Enter(_)
                    | Ask::Register(_)
                    | Ask::Registry(_)
                    | Ask::Measure {
                        then: Then::Register(_),
                        ..
                    }
            )
        };
        self.waits_for_earlier = !self.idle.is_empty() || self.asked.values().any(is_registering);
        self.waits_for_earlier
    }

    /// Goes on with what had to wait.
    pub(super) fn follow_reload(&mut self, env: &mut Env<'_>) {
        if (self.waits_for_earlier || self.looks_later) && !self.must_wait() {
            if std::mem::take(&mut self.looks_later) {
                self.look_after_registry(env);
                // What is registered now goes after it.
                self.waits_for_earlier = true;
            }
            self.flush_if_up(env);
        }
    }
}
