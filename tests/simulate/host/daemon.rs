//! The driver around the real core: what `engine::daemon` does, on virtual time.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cronlatch::config::Job;
use cronlatch::engine::simulated::{
    Action, ClaimId, Clock, Core, Epoch, Event, JobIx, Offset, Place, Policy, Requests,
};
use cronlatch::names::{JobName, RunId, Token};
use cronlatch::store::{Beginning, ClaimReply, CountsFrom, Finish, Kind, Settle, StoreError};
use cronlatch::time::Timestamp;

use super::finisher::{Finisher, Notice, Parcel};
use super::registry::{Entering, Next, Registry, Round};
use super::runner::{Assignment, Granted, Runner, Stop};
use super::tasks::{Ask, Errand, LONGEST_PAUSE, RESPONSE, Task, Then};
use super::ticker::Ticker;
use super::{Env, Timer, noted};
use crate::message::{Reply, Request, unanswered};
use crate::plan::{JobPlan, StoreKind, host_name, millis};

/// How many records a job's history keeps: all.
pub(super) const KEEP: u32 = 1_000_000;
const FIRST_PROBE: i64 = 100;
const LONGEST_PROBE: i64 = 5_000;
/// A store that has answered for so long is believed to go on.
const STEADY: i64 = 10_000;
/// How long a channel is fresh, how long it is then waited for, and how long at most.
const FRESH: i64 = 2_000;
const FRESH_WAIT: i64 = 200;
const LONGEST_WAIT: i64 = 5_000;
/// A store that answered so recently is not down, whatever became of another request.
const RECENTLY: i64 = 500;
/// How often a claim is sent again that is not answered while others are.
const ALONE: u32 = 3;
/// When jobs are registered again that could not be.
const REGISTER_AGAIN: i64 = 1_000;
/// How long verdicts may take to be delivered once the last run has ended.
const DELIVERY: i64 = 3_000;
/// What ending a process tree may take beyond its grace.
const MARGIN: i64 = 5_000;
/// How long a host is believed to live that says no more.
const ANNOUNCED_FOR: i64 = 30_000;

#[derive(Debug)]
struct Ticket {
    token: Token,
    run_id: RunId,
    sent: Option<cronlatch::time::BootInstant>,
    in_doubt: bool,
    task: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
enum Shutdown {
    Draining { until: i64 },
    Ending { until: i64 },
    Closing { until: i64 },
    Gone,
}

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
    jobs: Vec<Arc<Job>>,
    plans: Vec<JobPlan>,
    names: HashMap<JobName, JobIx>,
    longest: Duration,
    ticker: Ticker,
    tickets: BTreeMap<ClaimId, Ticket>,
    tasks: BTreeMap<u64, Task>,
    pub(super) asked: BTreeMap<u64, Ask>,
    waits: BTreeMap<(JobIx, ClaimId), String>,
    /// The locks whose releases are listened to, and when one was last heard of.
    channels: BTreeMap<String, i64>,
    finisher: Finisher,
    runner: Runner,
    up: bool,
    up_since: Option<i64>,
    probe_delay: i64,
    to_register: Vec<JobIx>,
    /// Registered again in a second.
    again: Vec<JobIx>,
    registry: Registry,
    /// Jobs of which other hosts use another lock, or whose move waits; whether it is being asked.
    held: BTreeMap<JobIx, bool>,
    /// When the store last answered a claim or a registration.
    last_answer: Option<i64>,
    /// Registrations that wait for verdicts under way, at most until then.
    idle: Vec<(i64, Vec<JobIx>)>,
    clock: Clock,
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
        let place = Place {
            host: env.name,
            shared,
            spread: millis(list_plan.spread),
        };
        let mut jobs = Vec::new();
        let mut plans = Vec::new();
        for of in &list_plan.jobs {
            let job = of.job();
            if job.enabled && job.hosts.matches(env.name) {
                jobs.push(Arc::new(job));
                plans.push(of.clone());
            }
        }
        let clock = Clock::new(Duration::from_secs(30), shared);
        if let Some(epoch) = epoch {
            clock.recall(epoch);
            env.sim.trace.lives[noted].measured = Some(env.sim.now);
        }
        let now = clock.at(env.utc(), env.sim.boot());
        let core = Core::new(
            jobs.iter().map(|job| Policy::of(job, place)),
            list_plan.max_running.and_then(std::num::NonZeroUsize::new),
            now,
        );
        let names = (0..).map(JobIx).zip(&jobs);
        let mut daemon = Self {
            life: env.life,
            noted,
            list,
            core,
            names: names.map(|(ix, job)| (job.name.clone(), ix)).collect(),
            longest: jobs
                .iter()
                .map(|job| job.lock.ttl)
                .max()
                .unwrap_or_default(),
            ticker: Ticker::start(env, &clock, &jobs),
            to_register: (0..).map(JobIx).take(jobs.len()).collect(),
            jobs,
            plans,
            tickets: BTreeMap::new(),
            tasks: BTreeMap::new(),
            asked: BTreeMap::new(),
            waits: BTreeMap::new(),
            channels: BTreeMap::new(),
            finisher: Finisher::new(env.sim.now),
            runner: Runner::default(),
            up: true,
            up_since: None,
            probe_delay: FIRST_PROBE,
            again: Vec::new(),
            registry: Registry::default(),
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
            daemon.finisher.send(env, Parcel { finish, lease, job });
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

    fn act(&mut self, env: &mut Env<'_>, action: Action) {
        match action {
            Action::Claim(spec) => {
                let Some(job) = self.job(spec.job) else {
                    return;
                };
                let (place, id) = (spec.job, spec.claim);
                let mut ticket = ticket(env);
                let (token, run_id) = (ticket.token.clone(), ticket.run_id.clone());
                let claim = Self::requests(&job, env).claim(spec, token, run_id);
                let request = Request::Claim(Box::new(claim));
                ticket.task = Some(self.task(env, Errand::Claim(place, id), request, 50));
                self.tickets.insert(id, ticket);
            }
            Action::Cancel { job, claim } => {
                if let Some(ticket) = self.tickets.remove(&claim) {
                    self.abort(&ticket);
                    self.give_back(env, job, ticket.token);
                }
            }
            Action::Start {
                job,
                claim,
                at,
                kind,
                fence,
                attempt,
                terms,
            } => {
                if let Some(ticket) = self.tickets.remove(&claim) {
                    let sent = ticket.sent.unwrap_or(env.sim.boot());
                    let granted = Some(Granted { fence, sent, terms });
                    self.begin(env, (job, at), (kind, attempt), ticket, granted);
                }
            }
            Action::StartAlone { job, claim, at } => {
                let ticket = self.tickets.remove(&claim).unwrap_or_else(|| ticket(env));
                self.abort(&ticket);
                self.begin(env, (job, at), (Kind::Schedule, 1), ticket, None);
            }
            Action::AwaitRelease { job, claim, limit } => {
                if let Some(it) = self.job(job) {
                    let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX / 4);
                    self.await_release(env, (job, claim), it.lock_on(env.name).name, limit);
                }
            }
            Action::Settle { job: place, run_id } => {
                if let Some(job) = self.job(place) {
                    let settle = Settle {
                        lock: job.lock_on(env.name),
                        job: job.name.clone(),
                        run_id,
                        keep: KEEP,
                    };
                    let request = Request::Settle(Box::new(settle));
                    self.task(env, Errand::Settle(place), request, 100);
                }
            }
            Action::Register { job } => self.to_register.push(job),
            Action::Look { job: place } => {
                if let Some(job) = self.job(place) {
                    let request = Request::Jobs(job.name.clone(), job.lock_on(env.name));
                    self.task(env, Errand::Look(place), request, 100);
                }
            }
            Action::Drops(spec) => {
                let Some(job) = self.job(spec.job) else {
                    return;
                };
                let mut ticket = ticket(env);
                let (token, run_id) = (ticket.token.clone(), ticket.run_id.clone());
                let claim = Self::requests(&job, env).drops(spec.answer, token, run_id);
                let request = Request::Claim(Box::new(claim));
                let errand = Errand::Claim(spec.job, spec.claim);
                ticket.task = Some(self.task(env, errand, request, 50));
                self.tickets.insert(spec.claim, ticket);
            }
            Action::Say { .. } => {}
        }
    }

    /// As `store::redis::listen` waits: a channel that was just subscribed, or just told of a
    /// release, may have missed the next one.
    fn await_release(
        &mut self,
        env: &mut Env<'_>,
        wait: (JobIx, ClaimId),
        lock: String,
        limit: i64,
    ) {
        let now = env.sim.now;
        let longest = match self.channels.get(&lock) {
            None => env.sim.dice.range(2, 8),
            Some(eventful) if now - eventful < FRESH => FRESH_WAIT,
            Some(_) => LONGEST_WAIT,
        };
        self.channels.entry(lock.clone()).or_insert(now);
        self.waits.insert(wait, lock);
        env.arm(now + limit.min(longest), Timer::Waited(wait.0, wait.1));
    }

    fn job(&self, job: JobIx) -> Option<Arc<Job>> {
        self.jobs.get(usize::try_from(job.0).ok()?).map(Arc::clone)
    }

    fn begin(
        &mut self,
        env: &mut Env<'_>,
        (place, at): (JobIx, Timestamp),
        (kind, attempt): (Kind, u32),
        ticket: Ticket,
        granted: Option<Granted>,
    ) {
        let Some(job) = self.job(place) else {
            return;
        };
        let plan = self.plans[usize::try_from(place.0).unwrap_or(0)].clone();
        self.running += 1;
        let assignment = Assignment {
            job,
            plan,
            place: Some(place),
            token: ticket.token,
            run_id: ticket.run_id,
            kind,
            at: Some(at),
            attempt,
            granted,
        };
        self.runner.begin(env, assignment);
    }

    fn abort(&mut self, ticket: &Ticket) {
        if let Some(task) = ticket.task {
            self.tasks.remove(&task);
        }
    }

    fn give_back(&mut self, env: &mut Env<'_>, place: JobIx, token: Token) {
        if let Some(job) = self.job(place) {
            let finish = Self::requests(&job, env).give_back(token);
            let (lease, job) = (None, None);
            self.finisher.send(env, Parcel { finish, lease, job });
        }
    }

    fn task(&mut self, env: &mut Env<'_>, errand: Errand, request: Request, pause: i64) -> u64 {
        let id = env.sim.fresh();
        let task = Task {
            errand,
            request,
            pause,
            sent: env.sim.boot(),
            waits: false,
            alone: 0,
        };
        self.tasks.insert(id, task);
        self.send_task(env, id);
        id
    }

    fn send_task(&mut self, env: &mut Env<'_>, id: u64) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.sent = env.sim.boot();
            task.waits = false;
            let asked = env.send(task.request.clone(), RESPONSE);
            self.asked.insert(asked, Ask::Task(id));
        }
    }

    fn flush(&mut self, env: &mut Env<'_>) {
        if self.to_register.is_empty() {
            return;
        }
        let jobs = std::mem::take(&mut self.to_register);
        if self.measured || !self.compares {
            self.when_idle(env, jobs);
        } else {
            self.measure(env, Then::Register(jobs));
        }
    }

    fn measure(&mut self, env: &mut Env<'_>, then: Then) {
        let (sent, began) = (env.utc(), env.sim.boot());
        let id = env.send(Request::Now, RESPONSE);
        self.asked.insert(id, Ask::Measure { sent, began, then });
    }

    /// Registers once the verdicts under way are delivered.
    fn when_idle(&mut self, env: &mut Env<'_>, jobs: Vec<JobIx>) {
        if self.finisher.is_idle() {
            self.register(env, jobs);
        } else {
            let until = env.sim.now + 2_000;
            self.idle.push((until, jobs));
            env.arm(until, Timer::Idle);
        }
    }

    fn look_for_idle(&mut self, env: &mut Env<'_>) {
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
    fn register(&mut self, env: &mut Env<'_>, jobs: Vec<JobIx>) {
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
        let (request, entering) = Entering::begin(jobs, new);
        self.enter(env, request, entering);
    }

    fn enter(&mut self, env: &mut Env<'_>, request: Request, entering: Entering) {
        let id = env.send(request, RESPONSE);
        self.asked.insert(id, Ask::Enter(Box::new(entering)));
    }

    fn look_after_registry(&mut self, env: &mut Env<'_>) {
        if !self.up {
            return;
        }
        let enabled = self.jobs.iter().map(|job| job.name.clone()).collect();
        if let Some((request, round)) = self.registry.round(env.name, enabled) {
            let id = env.send(request, RESPONSE);
            self.asked.insert(id, Ask::Registry(Box::new(round)));
        }
    }

    fn registry_news(&mut self, env: &mut Env<'_>, round: &Round) {
        self.registry.busy = false;
        self.registry.withdrawn |= round.withdrawn;
        self.registry.lost &= !round.written;
        if round.lost {
            self.registry.lost = true;
            self.look_after_registry(env);
        }
    }

    fn not_registered(&mut self, env: &mut Env<'_>, jobs: Vec<JobIx>) {
        self.store_failed(env);
        self.ready = true;
        if self.up {
            self.again.extend(jobs);
            env.arm(env.sim.now + REGISTER_AGAIN, Timer::RegisterAgain);
        } else {
            self.to_register.extend(jobs);
        }
    }

    fn register_known(&mut self, env: &mut Env<'_>, jobs: Vec<JobIx>) {
        let mut all = Vec::new();
        for place in &jobs {
            if let Some(job) = self.job(*place) {
                all.push(Self::requests(&job, env).registration());
            }
        }
        let id = env.send(Request::Register(all), RESPONSE);
        self.asked.insert(id, Ask::Register(jobs));
    }

    fn waits_for(&self, id: u64) -> bool {
        self.asked.contains_key(&id) || self.finisher.waits_for(id) || self.runner.waits_for(id)
    }

    /// The store answered, or refused the connection.
    pub(super) fn answered(
        &mut self,
        env: &mut Env<'_>,
        id: u64,
        result: Result<Box<Reply>, StoreError>,
    ) {
        self.dispatch(env, id, result);
        self.follow(env);
    }

    fn dispatch(&mut self, env: &mut Env<'_>, id: u64, result: Result<Box<Reply>, StoreError>) {
        if let Some((lease, notice)) = self.finisher.tried(env, id, result.is_ok()) {
            if let Some(lease) = lease {
                self.runner.let_go(env, lease);
            }
            self.notice(env, notice.as_ref());
            return;
        }
        let replies = match result.as_deref() {
            Ok(Reply::Renew(replies)) => Some(replies.clone()),
            _ => None,
        };
        let reply = result.as_deref().ok();
        if self.runner.counted(env, id, reply) || self.runner.renewed(env, id, replies) {
            return;
        }
        let Some(ask) = self.asked.remove(&id) else {
            return;
        };
        match (ask, result.map(|reply| *reply)) {
            (Ask::Task(id), Ok(reply)) => self.task_answered(env, id, reply),
            (Ask::Task(id), Err(_)) => self.task_failed(env, id),
            (Ask::Measure { sent, began, then }, Ok(Reply::Now(theirs))) => {
                let epoch = Epoch::of(sent, began);
                if epoch != Epoch::of(env.utc(), env.sim.boot()) {
                    // The wall clock was stepped in between.
                    return self.measure(env, then);
                }
                let error = env.sim.boot().since(began) / 2;
                let ours = sent.plus(error);
                let millis = ours.millis() - theirs.millis();
                self.measured = true;
                self.clock_measured(env, Offset { millis, error }, epoch);
                match then {
                    Then::Up => self.store_answers(env),
                    Then::Announce => self.announce(env),
                    Then::Register(jobs) => self.when_idle(env, jobs),
                }
            }
            (Ask::Measure { then, .. }, _) => match then {
                Then::Register(jobs) => self.not_registered(env, jobs),
                Then::Announce => self.store_failed(env),
                Then::Up => self.probe_again(env),
            },
            (Ask::Enter(entering), Ok(reply)) => match entering.go_on(env.name, reply) {
                Next::Send(request, entering) => self.enter(env, request, entering),
                Next::Done(entering) => {
                    for (place, job, entry) in entering.entries {
                        self.registry.entries.insert(place, (job, entry));
                    }
                    for job in entering.held {
                        self.held.insert(job, false);
                        self.ready = true;
                    }
                    self.register_known(env, entering.jobs);
                }
                Next::Failed(entering) => self.not_registered(env, entering.jobs),
            },
            (Ask::Enter(entering), Err(_)) => self.not_registered(env, entering.jobs),
            (Ask::Registry(round), Ok(reply)) => match round.go_on(env.name, reply) {
                Next::Send(request, round) => {
                    let id = env.send(request, RESPONSE);
                    self.asked.insert(id, Ask::Registry(Box::new(round)));
                }
                Next::Done(round) | Next::Failed(round) => self.registry_news(env, &round),
            },
            (Ask::Registry(_), Err(_)) => {
                self.registry.busy = false;
                self.store_failed(env);
            }
            (Ask::Register(jobs), Ok(Reply::Registered(answers))) => {
                self.last_answer = Some(env.sim.now);
                let recovers = answers.iter().any(|answer| !answer.recovering.is_zero());
                self.recovers(env, recovers);
                for (job, answer) in jobs.into_iter().zip(answers) {
                    if answer.moved {
                        self.registry.entries.remove(&job);
                        self.to_register.push(job);
                        continue;
                    }
                    self.held.remove(&job);
                    self.feed(env, Event::registered(job, answer));
                }
                self.flush_if_up(env);
                if !self.ready {
                    self.ready = true;
                    self.measure_and_announce(env);
                }
            }
            (Ask::Register(jobs), _) => self.not_registered(env, jobs),
            (Ask::Announce, Err(_)) => self.store_failed(env),
            (Ask::Probe, Ok(_)) if self.compares => self.measure(env, Then::Up),
            (Ask::Probe, Ok(_)) => self.store_answers(env),
            (Ask::Probe, Err(_)) => self.probe_again(env),
            (ask @ (Ask::Notes | Ask::Noted(_) | Ask::Ends(_)), Ok(reply)) => {
                self.heard_of_notes(env, ask, reply);
            }
            (Ask::Announce, Ok(_))
            | (Ask::Notes | Ask::Noted(_) | Ask::Ends(_) | Ask::Nothing, _) => {}
        }
    }

    fn notice(&mut self, env: &mut Env<'_>, notice: Option<&Notice>) {
        match notice {
            Some(Notice::Closed(job)) => self.feed(env, Event::RunClosed { job: *job }),
            Some(Notice::StoreFailed) => self.store_failed(env),
            None => {}
        }
    }

    fn task_answered(&mut self, env: &mut Env<'_>, id: u64, reply: Reply) {
        let Some(task) = self.tasks.remove(&id) else {
            return;
        };
        match (task.errand, reply) {
            (Errand::Claim(job, claim), Reply::Claim(reply)) => {
                self.last_answer = Some(env.sim.now);
                self.recovers(env, matches!(reply, ClaimReply::Recovering { .. }));
                if let ClaimReply::Granted { .. } = reply {
                    if let Some(ticket) = self.tickets.get_mut(&claim) {
                        ticket.sent = Some(task.sent);
                    }
                } else if let Some(ticket) = self.tickets.remove(&claim)
                    && ticket.in_doubt
                {
                    self.give_back(env, job, ticket.token);
                }
                if let ClaimReply::Moved { .. } = reply {
                    self.registry.entries.remove(&job);
                }
                self.feed(env, Event::Answered { job, claim, reply });
            }
            (Errand::Settle(job), Reply::Settled(false)) => {
                self.feed(env, Event::NotSettled { job });
            }
            (Errand::Look(job), Reply::Report(report)) => {
                let (open, head) = (report.open, report.waiting.first().copied());
                self.feed(env, Event::Found { job, open, head });
            }
            _ => {}
        }
    }

    fn task_failed(&mut self, env: &mut Env<'_>, id: u64) {
        let recently = self.answered_recently(env);
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let share = env.sim.dice.range(50, 100);
        env.arm(env.sim.now + task.pause * share / 100, Timer::Task(id));
        task.pause = (task.pause * 2).min(LONGEST_PAUSE);
        task.alone += u32::from(recently);
        let (errand, alone) = (task.errand, task.alone);
        let Errand::Claim(job, claim) = errand else {
            return self.store_failed(env);
        };
        if let Some(ticket) = self.tickets.get_mut(&claim) {
            ticket.in_doubt = true;
        }
        if !recently {
            self.store_failed(env);
            self.feed(env, Event::Unanswered { job, claim });
        } else if alone > ALONE {
            self.feed(env, Event::UnansweredAlone { job, claim });
        }
    }

    fn answered_recently(&self, env: &Env<'_>) -> bool {
        (self.last_answer).is_some_and(|last| env.sim.now - last < RECENTLY)
    }

    /// The store may have lost data, and with it what this host wrote into the registry.
    fn recovers(&mut self, env: &mut Env<'_>, recovers: bool) {
        if recovers {
            self.registry.lost = true;
            self.look_after_registry(env);
        }
    }

    fn store_failed(&mut self, env: &mut Env<'_>) {
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
    }

    fn clock_measured(&mut self, env: &mut Env<'_>, offset: Offset, epoch: Epoch) {
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

    fn probe_again(&mut self, env: &mut Env<'_>) {
        self.probe_delay = (self.probe_delay * 2).min(1_000);
        self.probe_later(env);
    }

    fn probe_later(&mut self, env: &mut Env<'_>) {
        let share = env.sim.dice.range(50, 100);
        let at = env.sim.now + self.probe_delay * share / 100;
        env.arm(at, Timer::Probe);
    }

    fn store_answers(&mut self, env: &mut Env<'_>) {
        self.up_since = Some(env.sim.now);
        self.up = true;
        self.finisher.retry_now(env);
        self.feed(env, Event::StoreUp);
        self.registry.lost = true;
        self.look_after_registry(env);
        let waiting = self.tasks.iter().filter(|(_, task)| task.waits);
        for id in waiting.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.send_task(env, id);
        }
        self.flush(env);
    }

    fn measure_and_announce(&mut self, env: &mut Env<'_>) {
        if !self.up {
            return;
        }
        if self.compares {
            self.measure(env, Then::Announce);
        } else {
            self.announce(env);
        }
    }

    fn announce(&mut self, env: &mut Env<'_>) {
        let id = self.announcement(env);
        self.asked.insert(id, Ask::Announce);
    }

    fn announcement(&self, env: &mut Env<'_>) -> u64 {
        let request = Request::Announce {
            host: env.name.clone(),
            drains: self.shutdown.is_some(),
            valid_for: ANNOUNCED_FOR,
        };
        env.send(request, RESPONSE)
    }

    fn flush_if_up(&mut self, env: &mut Env<'_>) {
        if self.up {
            self.flush(env);
        }
    }

    /// The last word of a daemon that ends.
    fn withdraw(env: &mut Env<'_>) {
        let request = Request::Announce {
            host: env.name.clone(),
            drains: true,
            valid_for: 0,
        };
        env.send(request, RESPONSE);
    }

    pub(super) fn released(&mut self, env: &mut Env<'_>, lock: &str) {
        if let Some(eventful) = self.channels.get_mut(lock) {
            *eventful = env.sim.now;
        }
        let woken = self.waits.iter().filter(|(_, of)| *of == lock);
        for (job, claim) in woken.map(|(wait, _)| *wait).collect::<Vec<_>>() {
            self.waits.remove(&(job, claim));
            self.feed(env, Event::Woken { job, claim });
        }
        self.follow(env);
    }

    pub(super) fn timer(&mut self, env: &mut Env<'_>, timer: Timer) {
        match timer {
            Timer::GiveUp(id) if self.waits_for(id) => self.dispatch(env, id, Err(unanswered())),
            Timer::GiveUp(_) => return,
            Timer::Core => {
                self.core_armed = None;
                self.feed(env, Event::Timer);
            }
            Timer::Poll => {
                self.ticker.poll(env, &self.clock);
                self.fire(env);
            }
            Timer::Tick(job) => {
                self.ticker.tick(env, &self.clock, job);
                self.fire(env);
            }
            Timer::Round => {
                env.arm(env.sim.now + 1_000, Timer::Round);
                self.rounds += 1;
                if self.up && self.shutdown.is_none() {
                    for (job, asked) in &mut self.held {
                        if !std::mem::replace(asked, true) {
                            self.to_register.push(*job);
                        }
                    }
                    self.flush(env);
                }
                if self.rounds.is_multiple_of(10) && self.ready {
                    self.measure_and_announce(env);
                    self.look_after_registry(env);
                }
                if self.rounds.is_multiple_of(noted::EVERY) && self.ready && self.up {
                    self.read_notes(env);
                }
            }
            Timer::Notes => {
                if self.up {
                    self.read_notes(env);
                }
            }
            Timer::Task(id) => {
                if self.up {
                    self.send_task(env, id);
                } else if let Some(task) = self.tasks.get_mut(&id) {
                    task.waits = true;
                }
            }
            Timer::Waited(job, claim) => {
                if self.waits.remove(&(job, claim)).is_some() {
                    self.feed(env, Event::Woken { job, claim });
                }
            }
            Timer::Finisher => {
                for notice in self.finisher.wake(env, &self.runner) {
                    self.notice(env, Some(&notice));
                }
            }
            Timer::Probe => {
                let id = self.announcement(env);
                self.asked.insert(id, Ask::Probe);
            }
            Timer::Watchdog => self.runner.tend(env),
            Timer::Exited(process, exit) => self.runner.exited(env, process, exit),
            Timer::Retry(run) => self.runner.retry(env, run),
            Timer::TimedOut(run, tries) => self.runner.timed_out(env, run, tries),
            Timer::RegisterAgain => {
                self.to_register.append(&mut self.again);
                if self.up {
                    self.flush(env);
                }
            }
            Timer::Idle | Timer::Hand => {}
            Timer::Shutdown => self.deadline_passed(env),
        }
        self.follow(env);
    }

    fn fire(&mut self, env: &mut Env<'_>) {
        for (name, at) in self.ticker.fired() {
            if let Some(job) = self.names.get(&name).copied() {
                self.feed(env, Event::Due { job, at });
            }
        }
    }

    /// What follows from whatever has just happened.
    fn follow(&mut self, env: &mut Env<'_>) {
        for over in self.runner.take_over() {
            self.running -= 1;
            if let Some(job) = over.place {
                self.feed(env, Event::RunEnded { job });
            }
            let finish = Self::requests(&over.job, env).verdict(over.token, over.record);
            let (lease, job) = (over.lease, over.place);
            self.finisher.send(env, Parcel { finish, lease, job });
        }
        self.look_for_idle(env);
        self.look_at_shutdown(env);
    }

    pub(super) fn drain(&mut self, env: &mut Env<'_>) {
        if self.shutdown.is_some() {
            return;
        }
        let until = env.sim.now + self.drain_timeout;
        self.shutdown = Some(Shutdown::Draining { until });
        env.sim.trace.lives[self.noted].drains = Some(env.sim.now);
        env.arm(until, Timer::Shutdown);
        self.runner.stop(env, Stop::Drain);
        self.feed(env, Event::Drain);
        self.measure_and_announce(env);
        self.follow(env);
    }

    fn deadline_passed(&mut self, env: &mut Env<'_>) {
        let now = env.sim.now;
        match self.shutdown {
            Some(Shutdown::Draining { until }) if until <= now => {
                let graces = self.jobs.iter().map(|job| job.kill.grace.as_millis());
                let limit = i64::try_from(graces.max().unwrap_or(0)).unwrap_or(0) + MARGIN;
                let until = now + limit;
                self.shutdown = Some(Shutdown::Ending { until });
                env.arm(until, Timer::Shutdown);
                self.runner.stop(env, Stop::End);
            }
            Some(Shutdown::Ending { until } | Shutdown::Closing { until }) if until <= now => {
                self.shutdown = Some(Shutdown::Gone);
                Self::withdraw(env);
            }
            _ => {}
        }
    }

    fn look_at_shutdown(&mut self, env: &mut Env<'_>) {
        match self.shutdown {
            Some(Shutdown::Draining { .. } | Shutdown::Ending { .. }) if self.running == 0 => {
                let until = env.sim.now + DELIVERY;
                self.shutdown = Some(Shutdown::Closing { until });
                env.arm(until, Timer::Shutdown);
                self.finisher.retry_now(env);
                self.look_at_shutdown(env);
            }
            Some(Shutdown::Closing { .. }) if self.finisher.is_idle() => {
                self.shutdown = Some(Shutdown::Gone);
                Self::withdraw(env);
            }
            _ => {}
        }
    }
}

fn ticket(env: &mut Env<'_>) -> Ticket {
    let (run_id, token) = identity(env);
    Ticket {
        token,
        run_id,
        sent: None,
        in_doubt: false,
        task: None,
    }
}

/// A new run id, and a token for it.
pub(super) fn identity(env: &mut Env<'_>) -> (RunId, Token) {
    let number = env.sim.fresh();
    let (name, life) = (env.name, env.life);
    let run_id = format!("run-{number}");
    let token = Token::from_text(&format!("{name}:{life}:{run_id}:{number:032x}"));
    (RunId::from_text(&run_id), token)
}
