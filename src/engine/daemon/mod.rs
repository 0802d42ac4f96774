//! The daemon's loop: it carries events to the core and the core's actions to tasks.
//!
//! The loop itself never waits for a store or a process, so that signals, timers and the service
//! manager are always served.

mod act;
mod clock;
mod notify;
mod recovery;
mod say;
mod shutdown;
mod startup;
mod tasks;

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::core::{ClaimId, Core, Event, JobIx, Now, Place, Policy};
use super::finisher::{Finisher, Parcel};
use super::message::Message;
use super::run::{Stop, Tools, inherited};
use super::spool::Spool;
use crate::config::{Job, JobList};
use crate::lease::Watchdog;
use crate::names::{HostName, JobName};
use crate::preflight::Subject;
use crate::process::{Guard, Processes};
use crate::schedule::ticker::{Firing, Ticker, TickerError, TickerJob};
use crate::store::{self, ClaimReply, Fingerprint, HostInfo, StoreError, StoreSettings};
use crate::time::{BootInstant, Timestamp};
use act::Ticket;
use clock::Clock;
use notify::Manager;
use shutdown::Shutdown;
use startup::Start;
use tasks::{Health, Link};

/// How often the daemon looks after itself.
const ROUND: Duration = Duration::from_secs(1);
/// Every how many rounds it announces itself.
const ANNOUNCE_EVERY: u32 = 10;
/// A watchdog thread silent for so long hangs.
const BEAT_LIMIT: Duration = Duration::from_secs(5);

/// What a daemon is made from.
#[derive(Debug)]
pub(crate) struct Setup {
    /// The job list.
    pub(crate) list: JobList,
    /// The store.
    pub(crate) settings: StoreSettings,
    /// This host.
    pub(crate) host: HostName,
    /// Started before any thread.
    pub(crate) guard: Guard,
}

/// Why a daemon could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonError {
    /// The operating system refuses.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    /// The store's settings cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ticker does not start.
    #[error(transparent)]
    Ticker(#[from] TickerError),
    /// `strict`, and a look found a danger.
    #[error("{0}")]
    Danger(String),
    /// `at_start: refuse`, and no majority of the servers answers.
    #[error("refusing to start (at_start: refuse): {0}")]
    NoMajority(#[source] StoreError),
    /// The guard is gone; a service manager should start the daemon again.
    #[error("the guard process is gone: every job was ended")]
    GuardGone,
}

struct Daemon {
    core: Core,
    jobs: Vec<Arc<Job>>,
    names: HashMap<JobName, JobIx>,
    host: HostName,
    config: Fingerprint,
    keep: u32,
    drain_timeout: Duration,
    started_at: Timestamp,
    link: Link,
    health: watch::Sender<Health>,
    up_since: Instant,
    /// Until when the store grants nothing, because it may have lost data.
    recovers: Option<BootInstant>,
    probe_delay: Duration,
    finisher: Finisher,
    spool: Spool,
    tools: Tools,
    stop: watch::Sender<Stop>,
    tickets: HashMap<ClaimId, Ticket>,
    to_register: Vec<JobIx>,
    runs: JoinSet<()>,
    /// Words of this host that are under way.
    announcements: JoinSet<()>,
    running: usize,
    manager: Manager,
    is_ready: bool,
    said_status: String,
    rounds: u32,
    clock: Clock,
    shutdown: Option<Shutdown>,
}

/// Runs the daemon until it is told to stop.
pub(crate) async fn run(setup: Setup) -> Result<(), DaemonError> {
    let processes = setup.guard.serve()?;
    let subject = Subject {
        list: Some(setup.list.clone()),
        settings: setup.settings.clone(),
    };
    if setup.settings.refuses_to_wait() {
        let asked = store::open(&setup.settings)?.now().await;
        asked.map_err(DaemonError::NoMajority)?;
    }
    if setup.list.strict {
        if startup::look_first(&subject, &processes).await? == Start::Stop {
            return Ok(());
        }
    } else {
        tokio::spawn(startup::look_beside(subject));
    }
    let store = store::open(&setup.settings)?;
    let watchdog = Watchdog::start(&setup.settings, Some(processes.deadlines()))?;
    let (inbox, messages) = mpsc::unbounded_channel();
    let (health, is_up) = watch::channel(Health::Up);
    let link = Link {
        store: Arc::clone(&store),
        inbox: inbox.clone(),
        health: is_up,
    };
    let spool = Spool::of(&setup.host, &setup.settings);
    let finisher = Finisher::start(store, spool.clone(), inbox);
    let tools = Tools {
        processes: processes.clone(),
        watchdog,
        environment: Arc::new(inherited()),
    };
    let list = setup.list;
    let shared = !matches!(setup.settings, StoreSettings::Sqlite { .. });
    let clock = Clock::new(list.max_clock_skew, shared);
    let place = Place {
        host: &setup.host,
        shared,
        spread: list.spread,
    };
    let now = Now::read();
    let all = list.jobs.len();
    let mine = |job: &Job| job.enabled && job.hosts.matches(&setup.host);
    let jobs: Vec<Arc<Job>> = list.jobs.into_iter().filter(mine).map(Arc::new).collect();
    let daemon = Daemon {
        core: Core::new(
            jobs.iter().map(|job| Policy::of(job, place)),
            list.max_running,
            now,
        ),
        names: (0..)
            .map(JobIx)
            .zip(&jobs)
            .map(|(ix, job)| (job.name.clone(), ix))
            .collect(),
        to_register: (0..).map(JobIx).take(jobs.len()).collect(),
        jobs,
        host: setup.host,
        config: list.fingerprint,
        keep: list.history,
        drain_timeout: list.drain_timeout,
        started_at: now.utc,
        link,
        health,
        up_since: Instant::now(),
        recovers: None,
        probe_delay: shutdown::FIRST_PROBE,
        finisher,
        spool,
        tools,
        stop: watch::channel(Stop::Not).0,
        tickets: HashMap::new(),
        runs: JoinSet::new(),
        announcements: JoinSet::new(),
        running: 0,
        manager: Manager::from_env(),
        is_ready: false,
        said_status: String::new(),
        rounds: 0,
        clock,
        shutdown: None,
    };
    daemon.say_hello(all, &list.path.display().to_string(), &setup.settings);
    daemon.serve(messages, processes).await
}

/// Reading a long list takes several times the memory of what it means; without this the
/// allocator keeps it for good.
fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` may be called at any time from any thread; no safe wrapper exists.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Waits until an instant since boot; for ever without one. Cancel-safe.
async fn until(at: Option<BootInstant>) {
    match at {
        Some(at) => tokio::time::sleep(at.remaining()).await,
        None => pending().await,
    }
}

impl Daemon {
    fn say_hello(&self, all: usize, path: &str, settings: &StoreSettings) {
        let mine = self.jobs.len();
        let others = match all - mine {
            0 => String::new(),
            n => format!(" ({n} more are disabled or meant for other hosts)"),
        };
        tracing::info!(
            host = %self.host,
            version = env!("CARGO_PKG_VERSION"),
            "{mine} jobs of {path}{others}; store {}",
            settings.shown()
        );
    }

    async fn serve(
        mut self,
        mut messages: mpsc::UnboundedReceiver<Message>,
        processes: Processes,
    ) -> Result<(), DaemonError> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        self.deliver_spool();
        self.flush_registrations();
        let (mut ticker, mut firings) = self.start_ticker().await?;
        let mut round = tokio::time::interval(ROUND);
        round.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ping = tokio::time::interval(self.manager.ping_every().unwrap_or(Duration::MAX));
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let pings = self.manager.ping_every().is_some();
        let mut guard_is_gone = false;
        while !self.is_done() {
            // Every arm is cancel-safe: channels, timers, signals, and the guard's word.
            tokio::select! {
                Some(message) = messages.recv() => self.take(message),
                Some(firing) = firings.recv() => self.fire(&firing),
                () = until(self.core.next_timer()) => self.feed(Event::Timer),
                Some(()) = terminate.recv() => self.told_to_stop("SIGTERM"),
                Some(()) = interrupt.recv() => self.told_to_stop("SIGINT"),
                Some(()) = hangup.recv() => {
                    tracing::warn!("SIGHUP: reload is not supported yet; restart to read the list again");
                }
                _ = round.tick() => self.round(),
                _ = ping.tick(), if pings => self.ping(),
                () = processes.guard_gone(), if !guard_is_gone => {
                    guard_is_gone = true;
                    tracing::error!("the guard process is gone: every job was ended, and so am I");
                    self.stop_now();
                }
                () = until(self.deadline()) => self.deadline_passed(),
            }
        }
        ticker.stop().await?;
        self.end().await;
        if guard_is_gone {
            return Err(DaemonError::GuardGone);
        }
        Ok(())
    }

    async fn start_ticker(&self) -> Result<(Ticker, mpsc::UnboundedReceiver<Firing>), DaemonError> {
        let (tx, firings) = mpsc::unbounded_channel();
        let job = |job: &Arc<Job>| TickerJob {
            name: job.name.clone(),
            schedule: job.schedule.clone(),
            delay: job.delay(),
            // What came due but may not start yet (`jitter`) is the ticker's; what may, the
            // ledger's.
            from: self.started_at.minus(job.delay()),
        };
        let ticker = Ticker::start(self.jobs.iter().map(job).collect(), tx).await?;
        Ok((ticker, firings))
    }

    /// Hands what an earlier daemon could not deliver to the finisher.
    fn deliver_spool(&self) {
        let undelivered = self.spool.load();
        if !undelivered.is_empty() {
            let n = undelivered.len();
            tracing::info!("{n} verdicts of an earlier start are still to be delivered");
        }
        for finish in undelivered {
            self.finisher.send(Parcel {
                finish,
                lease: None,
                job: None,
                spooled: true,
            });
        }
    }

    fn feed(&mut self, event: Event) {
        for action in self.core.handle(Now::read(), event) {
            self.act(action);
        }
        if *self.health.borrow() == Health::Up {
            self.flush_registrations();
        }
    }

    fn fire(&mut self, firing: &Firing) {
        if let Some(job) = self.names.get(&firing.job) {
            self.feed(Event::Due {
                job: *job,
                at: firing.scheduled_at,
            });
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Core(event) => {
                if matches!(event, Event::RunEnded { .. }) {
                    self.running -= 1;
                    while self.runs.try_join_next().is_some() {}
                }
                self.feed(event);
            }
            Message::Answered {
                job,
                claim,
                reply,
                sent,
            } => {
                if let ClaimReply::Granted { .. } = reply {
                    if let Some(ticket) = self.tickets.get_mut(&claim) {
                        ticket.sent = Some(sent);
                    }
                } else {
                    self.tickets.remove(&claim);
                }
                if let ClaimReply::Recovering { remaining } = reply {
                    self.store_recovers(remaining);
                }
                self.feed(Event::Answered { job, claim, reply });
            }
            Message::ClaimFailed { job, claim, error } => {
                self.store_failed(&error);
                self.feed(match error {
                    StoreError::PartUnreachable(_) => Event::UnansweredAlone { job, claim },
                    _ => Event::Unanswered { job, claim },
                });
            }
            Message::Clock(offset) => {
                if let Some(event) = self.clock.measured(offset) {
                    self.feed(event);
                }
            }
            Message::StoreFailed(error) => self.store_failed(&error),
            Message::StoreAnswers => self.store_answers(),
            Message::Registered(answers) => {
                let recovering = answers.iter().map(|(_, answer)| answer.recovering).max();
                self.store_recovers(recovering.unwrap_or_default());
                for (job, answer) in answers {
                    self.feed(Event::Registered {
                        job,
                        decided_until: answer.decided_until,
                        store_now: answer.now,
                        open: answer.open,
                    });
                }
                self.be_ready();
            }
            Message::NotRegistered(jobs, error) => {
                self.store_failed(&error);
                self.is_ready_while_waiting();
                if matches!(error, StoreError::PartUnreachable(_)) {
                    tokio::spawn(self.link.clone().register_later(jobs));
                } else {
                    self.to_register.extend(jobs);
                }
            }
            Message::RegisterAgain(jobs) => {
                self.to_register.extend(jobs);
                if *self.health.borrow() == Health::Up {
                    self.flush_registrations();
                }
            }
        }
    }

    fn store_failed(&mut self, error: &StoreError) {
        tracing::debug!("{error}");
        // The rest of the store goes on; its own link says once that the part is away.
        let in_part = matches!(error, StoreError::PartUnreachable(_));
        if in_part || *self.health.borrow() == Health::Down {
            return;
        }
        // A store that answers one question and not the next is not asked ten times a second.
        self.probe_delay = if self.up_since.elapsed() < Duration::from_secs(10) {
            (self.probe_delay * 2).min(Duration::from_secs(5))
        } else {
            shutdown::FIRST_PROBE
        };
        tracing::warn!("{error}; waiting for it, and leases run on until their deadlines");
        self.health.send_replace(Health::Down);
        tokio::spawn(self.link.clone().probe(self.probe_delay));
        self.feed(Event::StoreDown);
        self.status();
    }

    fn store_answers(&mut self) {
        tracing::info!("the store answers");
        self.up_since = Instant::now();
        self.health.send_replace(Health::Up);
        self.finisher.retry_now();
        self.feed(Event::StoreUp);
        self.flush_registrations();
        self.status();
    }

    fn be_ready(&mut self) {
        if !self.is_ready {
            self.is_ready = true;
            self.said_status = self.status_text();
            self.manager.ready(&self.said_status);
            tracing::info!(host = %self.host, "ready");
            self.announce();
            give_back_memory();
        }
    }

    fn is_ready_while_waiting(&mut self) {
        if !self.is_ready {
            self.is_ready = true;
            self.said_status = self.status_text();
            self.manager.ready(&self.said_status);
            tracing::warn!(host = %self.host, "ready, and waiting for the store");
        }
    }

    fn status_text(&self) -> String {
        let store = match *self.health.borrow() {
            Health::Up if self.recovers.is_some() => "; waiting: the store may have lost data",
            Health::Up => "",
            Health::Down => "; waiting for the store",
        };
        let draining = if self.shutdown.is_some() {
            "; draining"
        } else {
            ""
        };
        format!(
            "{} jobs, {} running{store}{draining}",
            self.jobs.len(),
            self.running
        )
    }

    fn status(&mut self) {
        let status = self.status_text();
        if self.is_ready && status != self.said_status {
            self.manager.status(&status);
            self.said_status = status;
        }
    }

    fn round(&mut self) {
        self.look_for_recovery();
        self.status();
        self.extend_shutdown();
        self.rounds += 1;
        if self.rounds.is_multiple_of(ANNOUNCE_EVERY) && self.is_ready {
            self.announce();
        }
    }

    fn announce(&mut self) {
        if *self.health.borrow() == Health::Down {
            return;
        }
        let (info, measure) = (self.word(), self.clock.measure());
        self.announcements
            .spawn(self.link.clone().announce(info, measure));
        while self.announcements.try_join_next().is_some() {}
    }

    /// What this host says of itself.
    fn word(&self) -> HostInfo {
        HostInfo {
            host: self.host.clone(),
            config: self.config.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            running: self.running,
            pid: std::process::id(),
            draining: self.shutdown.is_some(),
            started_at: self.started_at,
            clock_offset_ms: self.clock.offset(),
        }
    }

    /// A sign of life, unless the watchdog thread gives none: then the manager shall act.
    fn ping(&self) {
        let silent = BootInstant::now().since(self.tools.watchdog.last_beat());
        if silent < BEAT_LIMIT {
            self.manager.alive();
        } else {
            tracing::error!("the watchdog thread has hung for {silent:.1?}");
        }
    }
}
