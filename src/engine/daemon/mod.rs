//! The daemon's loop: it carries events to the core and the core's actions to tasks.
//!
//! [`serve`] is the loop; the other files are what it does with what it hears.

mod act;
mod clock;
mod health;
mod notify;
mod presence;
mod recovery;
mod say;
mod serve;
mod shutdown;
mod startup;
mod tasks;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::core::{ClaimId, Core, JobIx, Now, Place, Policy};
use super::finisher::Finisher;
use super::run::{Stop, Tools, inherited};
use super::spool::Spool;
use crate::config::{Job, JobList};
use crate::lease::Watchdog;
use crate::names::{HostName, JobName};
use crate::preflight::Subject;
use crate::process::Guard;
use crate::schedule::ticker::TickerError;
use crate::store::{self, Fingerprint, StoreError, StoreSettings};
use crate::time::{BootInstant, Timestamp};
use act::Ticket;
use clock::Clock;
use health::StoreHealth;
use notify::Manager;
use shutdown::Shutdown;
use startup::Start;
use tasks::Link;

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
    health: StoreHealth,
    /// Until when the store grants nothing, because it may have lost data.
    recovers: Option<BootInstant>,
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
    let health = StoreHealth::new();
    let link = Link {
        store: Arc::clone(&store),
        inbox: inbox.clone(),
        health: health.watch(),
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
        recovers: None,
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
}
