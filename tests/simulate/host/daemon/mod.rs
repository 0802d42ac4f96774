//! The driver around the real core: what `engine::daemon` does, on virtual time.
//!
//! | file | tells |
//! | --- | --- |
//! | [`act`] | from the core's actions to requests and runs |
//! | [`claims`] | requests that are sent until they are answered |
//! | [`registration`] | how jobs are entered and registered |
//! | [`reload`] | another job list while it runs |
//! | [`health`] | whether the store answers, its clock, the announcements |
//! | [`resources`] | a host that cannot start processes |
//! | [`serve`] | replies, releases and timers |
//! | [`shutdown`] | the end of a daemon |

mod act;
mod claims;
mod health;
mod registration;
mod reload;
mod resources;
mod serve;
mod shutdown;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cronlatch::config::Job;
use cronlatch::engine::simulated::{
    ClaimContext, ClaimId, Core, Epoch, Event, HostClock, JobIx, Policy, Requests, claims_ahead,
};
use cronlatch::names::{HostName, JobName};
use cronlatch::store::Finish;

use self::act::Ticket;
pub(super) use self::act::identity;
use self::claims::Turns;
use self::resources::Short;
use self::shutdown::Shutdown;
use super::finisher::{Finisher, PendingFinish};
use super::registry::Registry;
use super::runner::Runner;
use super::tasks::{Ask, Task};
use super::ticker::{TickedJob, Ticker};
use super::{Env, Timer};
use crate::plan::{JobPlan, ListPlan, StoreKind, host_name, millis};

/// How many records a job's history keeps: all.
pub(super) const KEEP: cronlatch::store::Retention =
    cronlatch::store::Retention::of_records(1_000_000);

#[expect(
    clippy::struct_excessive_bools,
    reason = "they are the flags of the daemon that this follows, each on its own"
)]
#[derive(Debug)]
pub(crate) struct Daemon {
    life: u32,
    noted: usize,
    list: usize,
    core: Core,
    jobs: BTreeMap<JobIx, (Arc<Job>, JobPlan)>,
    names: HashMap<JobName, JobIx>,
    /// The last places of jobs that a reload removed.
    removed: HashMap<JobName, JobIx>,
    next_job: u32,
    /// Registrations wait until those of an earlier list are over.
    waits_for_earlier: bool,
    /// The registry is looked after once they are.
    looks_later: bool,
    longest: Duration,
    ticker: Ticker,
    tickets: BTreeMap<ClaimId, Ticket>,
    tasks: BTreeMap<u64, Task>,
    pub(super) asked: BTreeMap<u64, Ask>,
    waits: BTreeMap<(JobIx, ClaimId), String>,
    /// The locks whose releases the host waits for, and when the last message came.
    channels: BTreeMap<String, i64>,
    turns: Turns,
    short: Option<Short>,
    finisher: Finisher,
    runner: Runner,
    up: bool,
    up_since: Option<i64>,
    probe_delay: i64,
    to_register: Vec<JobIx>,
    /// Registered again in a second.
    again: Vec<JobIx>,
    registry: Registry,
    /// Until when the store grants nothing after a loss of data.
    recovers: Option<i64>,
    /// Jobs of which other hosts use another lock, or whose move waits; whether it is being asked.
    held: BTreeMap<JobIx, bool>,
    /// When the store last answered a claim or a registration.
    last_answer: Option<i64>,
    /// Registrations that wait for verdicts under way, at most until then.
    idle: Vec<(i64, Vec<JobIx>)>,
    clock: HostClock,
    compares: bool,
    measured: bool,
    ready: bool,
    rounds: u32,
    running: usize,
    drain_timeout: i64,
    core_armed: Option<i64>,
    shutdown: Option<Shutdown>,
}

impl Daemon {
    pub(super) fn start(
        env: &mut Env<'_>,
        (list, noted): (usize, usize),
        spool: Vec<Finish>,
        epoch: Option<Epoch>,
    ) -> Self {
        let plan = Rc::clone(&env.sim.plan);
        let list_plan = &plan.lists[list];
        let shared = plan.store != StoreKind::Sqlite;
        let place = ClaimContext {
            host: env.name,
            shared,
            spread: millis(list_plan.spread),
            max_running: list_plan.max_running.and_then(NonZeroUsize::new),
        };
        let jobs: BTreeMap<_, _> = (0..).map(JobIx).zip(listed(list_plan, env.name)).collect();
        let clock = HostClock::new(Duration::from_secs(30), shared);
        if let Some(epoch) = epoch {
            clock.recall(epoch);
            env.sim.trace.lives[noted].measured = Some(env.sim.now);
        }
        let now = clock.at(env.utc(), env.sim.boot());
        let core = Core::new(
            jobs.values().map(|(job, _)| Policy::of(job, place)),
            place.max_running,
            now,
        );
        let names = jobs.iter();
        let due: Vec<_> = jobs.values().map(|(job, _)| ticked(job, place)).collect();
        let mut daemon = Self {
            life: env.life,
            noted,
            list,
            core,
            names: names
                .map(|(ix, (job, _))| (job.name.clone(), *ix))
                .collect(),
            removed: HashMap::new(),
            next_job: u32::try_from(jobs.len()).unwrap_or(0),
            waits_for_earlier: false,
            looks_later: false,
            longest: due
                .iter()
                .map(|(job, _)| job.lock.ttl)
                .max()
                .unwrap_or_default(),
            ticker: Ticker::start(env, &clock, &due),
            to_register: jobs.keys().copied().collect(),
            jobs,
            tickets: BTreeMap::new(),
            tasks: BTreeMap::new(),
            asked: BTreeMap::new(),
            waits: BTreeMap::new(),
            channels: BTreeMap::new(),
            turns: Turns::default(),
            short: None,
            finisher: Finisher::new(env.sim.now),
            runner: Runner::default(),
            up: true,
            up_since: None,
            probe_delay: health::FIRST_PROBE,
            again: Vec::new(),
            registry: Registry::default(),
            recovers: None,
            held: BTreeMap::new(),
            last_answer: None,
            idle: Vec::new(),
            clock,
            compares: shared,
            measured: false,
            ready: false,
            rounds: 0,
            running: 0,
            drain_timeout: list_plan.drain_timeout,
            core_armed: None,
            shutdown: None,
        };
        env.longest = daemon.longest;
        daemon.ready = daemon.jobs.is_empty();
        for finish in spool {
            let (lease, job) = (None, None);
            daemon
                .finisher
                .send(env, PendingFinish { finish, lease, job });
        }
        daemon.look_after_registry(env);
        daemon.flush(env);
        env.arm(env.sim.now + 1_000, Timer::Round);
        daemon
    }

    pub(super) fn life(&self) -> u32 {
        self.life
    }

    pub(super) fn noted(&self) -> usize {
        self.noted
    }

    pub(super) fn list(&self) -> usize {
        self.list
    }

    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// The epoch of the store's clock, as the state directory keeps it.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.clock.store_clock().epoch()
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.shutdown, Some(Shutdown::Gone))
    }

    /// The verdicts that could not be delivered.
    pub(super) fn rest(self) -> Vec<Finish> {
        self.finisher.rest()
    }

    fn feed(&mut self, env: &mut Env<'_>, event: Event) {
        let now = self.clock.at(env.utc(), env.sim.boot());
        env.sim.trace.line(env.sim.now, || {
            format!("  {} <- {event:?}", host_name(env.host))
        });
        for action in self.core.handle(now, event) {
            env.sim.trace.line(env.sim.now, || {
                format!("  {} -> {action:?}", host_name(env.host))
            });
            self.act(env, action);
        }
        if self.up {
            self.flush(env);
        }
        if let Some(timer) = self.core.next_timer() {
            let at = env.sim.of_boot(timer).max(env.sim.now);
            let armed = self.core_armed.filter(|armed| *armed > env.sim.now);
            if armed.is_none_or(|armed| at < armed) {
                self.core_armed = Some(at);
                env.arm(at, Timer::Core);
            }
        }
    }

    fn requests<'a>(job: &'a Job, env: &'a Env<'_>) -> Requests<'a> {
        Requests {
            job,
            host: env.name,
            keep: KEEP,
        }
    }

    fn job(&self, job: JobIx) -> Option<Arc<Job>> {
        self.jobs.get(&job).map(|(job, _)| Arc::clone(job))
    }

    /// What follows from whatever has just happened.
    fn follow(&mut self, env: &mut Env<'_>) {
        for over in self.runner.take_over() {
            self.running -= 1;
            let finish = if let Some(why) = over.returns {
                self.not_started(env, &over, why);
                Self::requests(&over.job, env).give_back(over.token)
            } else {
                if let Some(job) = over.place {
                    self.feed(env, Event::RunEnded { job });
                }
                Self::requests(&over.job, env).verdict(over.token, over.record)
            };
            let (lease, job) = (over.lease, over.place);
            self.finisher
                .send(env, PendingFinish { finish, lease, job });
        }
        self.look_for_idle(env);
        self.follow_reload(env);
        self.look_at_shutdown(env);
    }
}

/// A job as the ticker has it.
fn ticked(job: &Arc<Job>, context: ClaimContext<'_>) -> TickedJob {
    (Arc::clone(job), claims_ahead(job, context))
}

/// The jobs of a list that are this host's.
fn listed(list: &ListPlan, host: &HostName) -> Vec<(Arc<Job>, JobPlan)> {
    let mine = list.jobs.iter().filter_map(|of| {
        let job = of.job();
        let is_mine = job.enabled && job.policies.hosts.matches(host);
        is_mine.then(|| (Arc::new(job), of.clone()))
    });
    mine.collect()
}
