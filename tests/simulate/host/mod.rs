//! A host: its clock, its network, its guard, its daemon, and the `trigger`s that run on it.

mod daemon;
mod finisher;
mod guard;
mod hand;
mod noted;
mod registry;
mod runner;
mod tasks;
#[cfg(test)]
mod tests;
mod ticker;

use std::time::Duration;

use cronlatch::engine::simulated::{ClaimId, Epoch, JobIx};
use cronlatch::names::{HostName, JobName};
use cronlatch::store::{Finish, Lock};
use cronlatch::time::Timestamp;

use self::daemon::Daemon;
pub(crate) use self::guard::GuardStep;
use self::guard::{Guard, ProcessReport};
use self::hand::Hand;
use crate::message::{Message, Request, Wire};
use crate::plan::{self, Act, Plan, StoreKind};
use crate::trace::{ClockStep, Ended, Hindered, Life};
use crate::world::{Item, Sim};

/// A daemon notices a pause of this length, in milliseconds.
const NOTABLE_PAUSE: i64 = 3_000;

/// A timer of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Timer {
    /// A request is given up.
    GiveUp(u64),
    /// What the core wants to be woken for.
    Core,
    /// The ticker's library polls.
    Poll,
    /// The ticker's callback of a job wakes.
    Tick(usize),
    /// Once a second.
    Round,
    /// A task sends its request again.
    Task(u64),
    /// A wait for a release is over.
    Waited(JobIx, ClaimId),
    Finisher,
    Probe,
    Watchdog,
    Exited(u64, ProcessReport),
    Retry(u64),
    TimedOut(u64, u32),
    /// Jobs are registered again.
    RegisterAgain,
    /// Verdicts under way are waited for no longer before a registration.
    Idle,
    /// The limit of a drain, or of what follows it.
    Shutdown,
    /// A `trigger` sends its request again.
    Hand,
    /// The notes of runs by hand are read again.
    Notes,
    /// A process was started, and its daemon wanted to know.
    Started,
}

/// What a process of a host acts on.
#[derive(Debug)]
pub(crate) struct Env<'a> {
    pub(crate) sim: &'a mut Sim,
    pub(crate) guard: &'a mut Guard,
    link: &'a mut Wire,
    pub(crate) name: &'a HostName,
    pub(crate) host: usize,
    pub(crate) life: u32,
    offset: i64,
    longest: Duration,
}

impl Env<'_> {
    /// The host's wall clock.
    pub(crate) fn utc(&self) -> Timestamp {
        self.sim.utc(self.offset)
    }

    /// Sends a request; it is given up after `limit`.
    pub(crate) fn send(&mut self, request: Request, limit: Duration) -> u64 {
        let id = self.sim.fresh();
        let message = Message {
            host: self.host,
            life: self.life,
            id,
            request,
            longest: self.longest,
            back: 1,
            deaf: false,
        };
        self.link.send(self.sim, message, limit);
        id
    }
}

#[derive(Debug)]
struct Frozen {
    since: i64,
    until: i64,
    /// The whole machine, with guard and jobs.
    whole: bool,
}

#[derive(Debug)]
pub(crate) struct Host {
    ix: usize,
    name: HostName,
    offset: i64,
    pub(crate) link: Wire,
    guard: Guard,
    frozen: Option<Frozen>,
    /// What came while it was frozen.
    held: Vec<Item>,
    lives: u32,
    daemon: Option<Daemon>,
    hands: Vec<Hand>,
    spool: Vec<Finish>,
    /// The store's clock as the last daemon measured it, since this machine was started.
    epoch: Option<Epoch>,
    /// The list to start with once the drain is over.
    then: Option<usize>,
}

impl Host {
    pub(crate) fn new(ix: usize, plan: &Plan) -> Self {
        let host = &plan.hosts[ix];
        Self {
            ix,
            name: HostName::parse(&plan::host_name(ix)).expect("a name"),
            offset: host.offset,
            link: Wire {
                latency: host.latency,
                ..Wire::default()
            },
            guard: Guard::new(ix),
            frozen: None,
            held: Vec::new(),
            lives: 0,
            daemon: None,
            hands: Vec::new(),
            spool: Vec::new(),
            epoch: None,
            then: None,
        }
    }

    fn parts<'a>(
        &'a mut self,
        sim: &'a mut Sim,
    ) -> (Env<'a>, &'a mut Option<Daemon>, &'a mut Vec<Hand>) {
        let life = self.daemon.as_ref().map_or(0, Daemon::life);
        let longest = self.daemon.as_ref().map_or(Duration::ZERO, Daemon::longest);
        let env = Env {
            sim,
            guard: &mut self.guard,
            link: &mut self.link,
            name: &self.name,
            host: self.ix,
            life,
            offset: self.offset,
            longest,
        };
        (env, &mut self.daemon, &mut self.hands)
    }

    /// Something reaches a process of this host.
    pub(crate) fn take(&mut self, sim: &mut Sim, item: Item) {
        if self.frozen.is_some() {
            self.held.push(item);
            return;
        }
        let (mut env, daemon, hands) = self.parts(sim);
        match item {
            Item::Answer {
                life, id, result, ..
            } => {
                if let Some(daemon) = daemon.as_mut().filter(|d| d.life() == life) {
                    daemon.answered(&mut env, id, result);
                } else if let Some(hand) = hands.iter_mut().find(|hand| hand.life == life) {
                    env.life = life;
                    hand.answered(&mut env, id, result);
                }
            }
            Item::Timer { life, timer, .. } => {
                if let Some(daemon) = daemon.as_mut().filter(|d| d.life() == life) {
                    daemon.timer(&mut env, timer);
                } else if let Some(hand) = hands.iter_mut().find(|hand| hand.life == life) {
                    env.life = life;
                    hand.timer(&mut env, timer);
                }
            }
            Item::Released { lock, .. } => {
                let heard = env.link_passes();
                if let Some(daemon) = daemon.as_mut().filter(|_| heard) {
                    daemon.released(&mut env, &lock);
                }
            }
            Item::Returned { job, .. } => {
                let heard = env.is_in_reach();
                if let Some(daemon) = daemon.as_mut().filter(|_| heard) {
                    daemon.returned(&mut env, &job);
                }
            }
            _ => {}
        }
        self.hands.retain(|hand| !hand.is_done());
        self.clear_up(sim);
    }

    /// A daemon that has ended is gone.
    fn clear_up(&mut self, sim: &mut Sim) {
        let Some(daemon) = self.daemon.take_if(|daemon| daemon.is_gone()) else {
            return;
        };
        let now = sim.now;
        sim.trace.lives[daemon.noted()].until = Some(now);
        let host = self.ix;
        sim.trace.line(now, || format!("GONE host-{host}"));
        self.guard.end_all_of(sim, daemon.life(), Ended::OnRequest);
        self.epoch = daemon.epoch();
        self.spool.extend(daemon.rest());
        if let Some(list) = self.then.take() {
            self.start(sim, list);
        }
    }

    pub(crate) fn start(&mut self, sim: &mut Sim, list: usize) {
        if self.daemon.is_some() {
            return;
        }
        self.lives += 1;
        let noted = sim.trace.lives.len();
        sim.trace.lives.push(Life {
            host: self.ix,
            list,
            from: sim.now,
            until: None,
            drains: None,
            killed: false,
            measured: None,
        });
        let spool = std::mem::take(&mut self.spool);
        let (life, epoch) = (self.lives, self.epoch);
        let (mut env, daemon, _) = self.parts(sim);
        env.life = life;
        *daemon = Some(Daemon::start(&mut env, (list, noted), spool, epoch));
    }

    pub(crate) fn drain(&mut self, sim: &mut Sim, then: Option<usize>) {
        if self.frozen.is_some() {
            // The signal is delivered once the process goes on.
            let host = self.ix;
            self.held.push(Item::Act(Act::Drain { host, then }));
            return;
        }
        self.then = then;
        let (mut env, daemon, _) = self.parts(sim);
        if let Some(daemon) = daemon {
            daemon.drain(&mut env);
        }
        self.clear_up(sim);
    }

    /// SIGHUP, with another list where the daemon reads it.
    pub(crate) fn reload(&mut self, sim: &mut Sim, list: usize) {
        if self.frozen.is_some() {
            // The signal is delivered once the process goes on.
            let host = self.ix;
            self.held.push(Item::Act(Act::Reload { host, list }));
            return;
        }
        let (mut env, daemon, _) = self.parts(sim);
        if let Some(daemon) = daemon {
            daemon.reload(&mut env, list);
        }
        self.clear_up(sim);
    }

    fn forget_daemon(&mut self, sim: &mut Sim) -> Option<u32> {
        let daemon = self.daemon.take()?;
        self.epoch = daemon.epoch();
        let life = &mut sim.trace.lives[daemon.noted()];
        (life.until, life.killed) = (Some(sim.now), true);
        self.then = None;
        Some(daemon.life())
    }

    /// What hindered the daemon ends with it. A machine that is suspended stays so.
    fn end_hindrances(&self, sim: &mut Sim) {
        let suspended = self.frozen.as_ref().is_some_and(|frozen| frozen.whole);
        for trouble in &mut sim.trace.troubles {
            let stopped = trouble.how == Hindered::Stopped
                || trouble.how == Hindered::Suspended && !suspended;
            if stopped && trouble.host == self.ix {
                trouble.span.until = trouble.span.until.min(sim.now);
            }
        }
    }

    /// SIGKILL to the daemon.
    pub(crate) fn kill(&mut self, sim: &mut Sim) {
        if let Some(life) = self.forget_daemon(sim) {
            self.guard.end_all_of(sim, life, Ended::WithDaemon);
            self.end_hindrances(sim);
        }
        if self.frozen.as_ref().is_some_and(|frozen| !frozen.whole) {
            self.frozen = None;
            self.held.clear();
        }
    }

    /// The machine loses its power.
    pub(crate) fn crash(&mut self, sim: &mut Sim) {
        self.frozen = None;
        self.forget_daemon(sim);
        self.end_hindrances(sim);
        self.epoch = None;
        self.hands.clear();
        self.guard.crash(sim);
        self.held.clear();
    }

    /// Returns whether it was running.
    pub(crate) fn freeze(&mut self, sim: &mut Sim, until: i64, whole: bool) -> bool {
        if self.frozen.is_some() || self.daemon.is_none() {
            return false;
        }
        self.frozen = Some(Frozen {
            since: sim.now,
            until,
            whole,
        });
        sim.at(until, Item::Wake { host: self.ix });
        true
    }

    /// Returns what came meanwhile, to be acted on now.
    pub(crate) fn wake(&mut self, sim: &mut Sim) -> Vec<Item> {
        let Some(frozen) = self.frozen.take_if(|frozen| frozen.until <= sim.now) else {
            return Vec::new();
        };
        let host = self.ix;
        sim.trace.line(sim.now, || format!("AWAKE host-{host}"));
        if frozen.whole {
            self.guard.slept(sim, sim.now - frozen.since);
        }
        if sim.now - frozen.since >= NOTABLE_PAUSE {
            let (mut env, daemon, _) = self.parts(sim);
            if let Some(daemon) = daemon {
                daemon.was_paused(&mut env);
            }
        }
        // The loop takes what is ready in no particular order.
        let mut timers = Vec::new();
        let mut others = Vec::new();
        for item in std::mem::take(&mut self.held) {
            match item {
                Item::Timer {
                    timer: Timer::Core | Timer::Tick(_) | Timer::Poll,
                    ..
                } => timers.push(item),
                other => others.push(other),
            }
        }
        if sim.dice.chance(50) {
            std::mem::swap(&mut timers, &mut others);
        }
        timers.extend(others);
        timers
    }

    pub(crate) fn guard_step(&mut self, sim: &mut Sim, step: GuardStep) {
        if self.frozen.as_ref().is_none_or(|frozen| !frozen.whole) {
            self.guard.step(sim, step);
        } else if matches!(step, GuardStep::StartProcess(_)) {
            let host = self.ix;
            self.held.push(Item::Guard { host, step });
        }
    }

    /// Whether a process of this host waits for its instant.
    pub(crate) fn has_prepared(&self, now: i64) -> bool {
        self.guard.has_prepared(now)
    }

    pub(crate) fn run_short(&mut self, until: i64) {
        self.guard.run_short(until);
    }

    pub(crate) fn step_clock(&mut self, sim: &mut Sim, by: i64) {
        self.offset += by;
        sim.trace.clocks.push(ClockStep {
            at: sim.now,
            host: self.ix,
            ahead: self.offset,
        });
    }

    /// A person runs `trigger`.
    pub(crate) fn trigger(&mut self, sim: &mut Sim, job: &str) {
        let list = self.daemon.as_ref().map(Daemon::list);
        let Some(list) = list.filter(|_| self.frozen.is_none()) else {
            return;
        };
        let plan = std::rc::Rc::clone(&sim.plan);
        let Some(job) = plan.lists[list].jobs.iter().find(|it| it.name == job) else {
            return;
        };
        self.lives += 1;
        let life = self.lives;
        let (mut env, _, hands) = self.parts(sim);
        env.life = life;
        let hand = Hand::start(&mut env, job);
        hands.push(hand);
    }

    /// The lock of a job as this host's list has it, and the job's name.
    pub(crate) fn place_of(&self, sim: &Sim, job: &str) -> Option<(Lock, JobName)> {
        let list = self.daemon.as_ref().map(Daemon::list)?;
        let mut jobs = sim.plan.lists[list].jobs.iter();
        let job = jobs.find(|it| it.name == job)?.job();
        Some((job.lock_on(&self.name), job.name))
    }

    pub(crate) fn kill_trigger(&mut self, sim: &mut Sim) {
        if !self.hands.is_empty() {
            let hand = self.hands.remove(0);
            self.guard.end_all_of(sim, hand.life, Ended::WithDaemon);
        }
    }
}

impl Env<'_> {
    /// Sends the other hosts the message that an occurrence of the job was returned undecided.
    fn tell_returned(&mut self, job: &JobName) {
        if self.is_in_reach() && self.sim.plan.store != StoreKind::Sqlite {
            for host in (0..self.sim.plan.hosts.len()).filter(|host| *host != self.host) {
                let job = job.clone();
                self.sim.at(self.sim.now + 2, Item::Returned { host, job });
            }
        }
    }

    /// Whether the store can be reached.
    fn is_in_reach(&self) -> bool {
        self.sim.now >= self.link.cut_until
    }

    /// Whether a message from the store gets through.
    fn link_passes(&mut self) -> bool {
        self.link.delay(self.sim).is_some()
    }
}
