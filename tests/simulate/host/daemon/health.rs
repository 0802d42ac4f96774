//! Whether the store is reachable, its clock, and the announcements of this host, as
//! `engine::daemon` handles them in `health`, `clock` and `presence`.

use cronlatch::engine::simulated::{Epoch, Event, Offset};

use super::Daemon;
use crate::host::tasks::{Ask, RESPONSE, Then};
use crate::host::{Env, Timer};
use crate::message::Request;

pub(super) const FIRST_PROBE: i64 = 100;
const LONGEST_PROBE: i64 = 1_000;
/// A store that has been reachable for this long counts as reachable.
const STEADY: i64 = 10_000;
/// How long a host is believed to live that says no more.
const ANNOUNCED_FOR: i64 = 30_000;

impl Daemon {
    pub(super) fn store_failed(&mut self, env: &mut Env<'_>) {
        // A store that answers others is not down.
        if !self.up || self.answered_recently(env) {
            return;
        }
        let soon = (self.up_since).is_some_and(|since| env.sim.now - since < STEADY);
        self.probe_delay = if soon {
            (self.probe_delay * 2).min(LONGEST_PROBE)
        } else {
            FIRST_PROBE
        };
        self.up = false;
        self.probe_later(env);
        self.feed(env, Event::StoreDown);
        self.give_up_turns(env);
    }

    pub(super) fn probe_later(&mut self, env: &mut Env<'_>) {
        let share = env.sim.dice.range(50, 100);
        let at = env.sim.now + self.probe_delay * share / 100;
        env.arm(at, Timer::Probe);
    }

    pub(super) fn probe_again(&mut self, env: &mut Env<'_>) {
        self.probe_delay = (self.probe_delay * 2).min(LONGEST_PROBE);
        self.probe_later(env);
    }

    /// The daemon was paused for so long that it notices.
    pub(crate) fn was_paused(&mut self, env: &mut Env<'_>) {
        self.feed(env, Event::Awake);
        if self.up {
            self.was_absent(env);
        }
    }

    pub(super) fn was_absent(&mut self, env: &mut Env<'_>) {
        self.registry.leave_all();
        self.feed(env, Event::Absent { job: None });
        self.flush(env);
    }

    pub(super) fn store_answers(&mut self, env: &mut Env<'_>) {
        self.up_since = Some(env.sim.now);
        self.up = true;
        self.finisher.retry_now(env);
        self.was_absent(env);
        self.feed(env, Event::StoreUp);
        self.registry.doubt();
        self.look_after_registry(env);
        let waiting = self.tasks.iter().filter(|(_, task)| task.waits);
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.send_task(env, id);
        }
        self.flush(env);
    }

    pub(super) fn measure(&mut self, env: &mut Env<'_>, then: Then) {
        let (sent, began) = (env.utc(), env.sim.boot());
        let id = env.send(Request::Now, RESPONSE);
        self.asked.insert(id, Ask::Measure { sent, began, then });
    }

    pub(super) fn clock_measured(&mut self, env: &mut Env<'_>, offset: Offset, epoch: Epoch) {
        let events = self.clock.measured(offset, epoch);
        let life = &mut env.sim.trace.lives[self.noted];
        life.measured = life.measured.or(Some(env.sim.now));
        if events.iter().any(|event| matches!(event, Event::ClockSet)) {
            self.ticker.clock_set(env, &self.clock);
        }
        for event in events {
            self.feed(env, event);
        }
    }

    pub(super) fn measure_and_announce(&mut self, env: &mut Env<'_>) {
        if !self.up {
            return;
        }
        if self.compares {
            self.measure(env, Then::Announce);
        } else {
            self.announce(env);
        }
    }

    pub(super) fn announce(&mut self, env: &mut Env<'_>) {
        let id = self.announcement(env);
        self.asked.insert(id, Ask::Announce);
    }

    pub(super) fn announcement(&self, env: &mut Env<'_>) -> u64 {
        let word = self.word(env);
        env.send(word, RESPONSE)
    }

    pub(super) fn word(&self, env: &Env<'_>) -> Request {
        Request::Announce {
            host: env.name.clone(),
            drains: self.shutdown.is_some(),
            valid_for: ANNOUNCED_FOR,
        }
    }

    /// The last word of a daemon that ends.
    pub(super) fn withdraw(env: &mut Env<'_>) {
        let request = Request::Announce {
            host: env.name.clone(),
            drains: true,
            valid_for: 0,
        };
        env.send(request, RESPONSE);
    }
}
