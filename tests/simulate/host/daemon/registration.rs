//! How jobs are entered and registered, as `engine::daemon` does it in `act`, `admission` and
//! `registry`.

use std::time::Duration;

use cronlatch::engine::simulated::{Action, Event, JobIx};
use cronlatch::store::{Beginning, CountsFrom};
use cronlatch::time::Timestamp;

use super::Daemon;
use crate::host::registry::{Entering, Round};
use crate::host::tasks::{Ask, RESPONSE, Then};
use crate::host::{Env, Timer};
use crate::message::Request;

/// When jobs are registered again that could not be.
const REGISTER_AGAIN: i64 = 1_000;
/// Two answers that differ by less speak of the same wait.
const SAME: i64 = 1_000;

impl Daemon {
    pub(super) fn flush(&mut self, env: &mut Env<'_>) {
        if self.to_register.is_empty() || self.must_wait() {
            return;
        }
        let jobs = std::mem::take(&mut self.to_register);
        if self.measured || !self.compares {
            self.when_idle(env, jobs);
        } else {
            self.measure(env, Then::Register(jobs));
        }
    }

    pub(super) fn flush_if_up(&mut self, env: &mut Env<'_>) {
        if self.up {
            self.flush(env);
        }
    }

    /// Registers once the verdicts under way are delivered.
    pub(super) fn when_idle(&mut self, env: &mut Env<'_>, jobs: Vec<JobIx>) {
        if self.finisher.is_idle() {
            self.register(env, jobs);
        } else {
            let until = env.sim.now + 2_000;
            self.idle.push((until, jobs));
            env.arm(until, Timer::Idle);
        }
    }

    pub(super) fn look_for_idle(&mut self, env: &mut Env<'_>) {
        if self.idle.is_empty() {
            return;
        }
        let is_idle = self.finisher.is_idle();
        let now = env.sim.now;
        let over = self
            .idle
            .extract_if(.., |(until, _)| is_idle || *until <= now);
        for (_, jobs) in over.collect::<Vec<_>>() {
            self.register(env, jobs);
        }
    }

    /// Enters what is new into the registry first.
    pub(super) fn register(&mut self, env: &mut Env<'_>, mut jobs: Vec<JobIx>) {
        jobs.retain(|job| self.jobs.contains_key(job));
        let mut new = Vec::new();
        for place in jobs.iter().filter(|place| !self.registry.knows(**place)) {
            if let Some(job) = self.job(*place) {
                let registration = Self::requests(&job, env).registration();
                let beginning = Beginning {
                    job: registration.job,
                    lock: registration.lock,
                    fingerprint: registration.fingerprint,
                    ttl: registration.ttl,
                    counts: CountsFrom {
                        at: Timestamp::EPOCH,
                        again: false,
                    },
                };
                new.push((*place, job.lock_id(), beginning));
            }
        }
        if new.is_empty() {
            return self.register_known(env, jobs);
        }
        let entering = Entering::begin(jobs, new, (&self.registry, self.clock.trust()));
        // Others are to see that this host lives before it looks who uses which lock.
        let unseen = self.registry.take_unseen();
        let request = if unseen {
            self.word(env)
        } else {
            entering.first_look()
        };
        self.enter(env, request, entering);
    }

    pub(super) fn enter(&mut self, env: &mut Env<'_>, request: Request, entering: Entering) {
        let id = env.send(request, RESPONSE);
        self.asked.insert(id, Ask::Enter(Box::new(entering)));
    }

    pub(super) fn register_known(&mut self, env: &mut Env<'_>, mut jobs: Vec<JobIx>) {
        jobs.retain(|job| self.jobs.contains_key(job));
        let mut all = Vec::new();
        for place in &jobs {
            if let Some(job) = self.job(*place) {
                all.push(Self::requests(&job, env).registration());
            }
        }
        let id = env.send(Request::Register(all), RESPONSE);
        self.asked.insert(id, Ask::Register(jobs));
    }

    pub(super) fn not_registered(&mut self, env: &mut Env<'_>, jobs: Vec<JobIx>) {
        let (host, count) = (env.name.clone(), jobs.len());
        let line = || format!("UNREGISTERED {host} {count}");
        env.sim.trace.line(env.sim.now, line);
        self.registry.not_registered();
        self.store_failed(env);
        self.ready = true;
        if self.up {
            self.again.extend(jobs);
            env.arm(env.sim.now + REGISTER_AGAIN, Timer::RegisterAgain);
        } else {
            self.to_register.extend(jobs);
        }
    }

    pub(super) fn look_after_registry(&mut self, env: &mut Env<'_>) {
        if !self.up {
            return;
        }
        let enabled = self
            .jobs
            .values()
            .map(|(job, _)| job.name.clone())
            .collect();
        if let Some((request, round)) = self.registry.round(env.name, enabled, env.sim.now) {
            let id = env.send(request, RESPONSE);
            self.asked.insert(id, Ask::Registry(Box::new(round)));
        }
    }

    pub(super) fn registry_news(&mut self, env: &mut Env<'_>, round: &Round) {
        self.registry.busy = false;
        // What was compared may have been the list before a reload.
        if round.withdrawn && !self.looks_later {
            self.registry.compared = Some(env.sim.now);
        }
        self.registry.lost &= !round.written;
        if round.lost {
            self.registry.doubt();
            self.look_after_registry(env);
            if self.up {
                self.was_absent(env);
            }
        }
    }

    /// The store grants nothing for so long: it may have lost data, and with them what this host
    /// wrote into the registry, and that a ledger has moved.
    pub(super) fn store_recovers(&mut self, env: &mut Env<'_>, remaining: Duration) {
        if remaining.is_zero() {
            return;
        }
        self.registry.doubt();
        let until = env.sim.now + i64::try_from(remaining.as_millis()).unwrap_or(i64::MAX / 2);
        let known = self.recovers.replace(until);
        if known.is_some_and(|known| until <= known + SAME) {
            self.recovers = known.max(Some(until));
            return;
        }
        if self.ready {
            self.announce(env);
        }
        self.look_after_registry(env);
        if self.up {
            self.enter_after(env, until);
        }
    }

    fn enter_after(&mut self, env: &mut Env<'_>, until: i64) {
        let now = self.clock.at(env.utc(), env.sim.boot());
        for job in self.registry.entered_jobs() {
            self.registry.leave(job);
            for action in self.core.handle(now, Event::Absent { job: Some(job) }) {
                match action {
                    Action::Register { job } => self.again.push(job),
                    other => self.act(env, other),
                }
            }
        }
        self.registry.not_registered();
        env.arm(until, Timer::RegisterAgain);
    }
}
