//! The daemon's loop: it carries events to the core and the core's actions to tasks.
//!
//! [`serve`] is the loop; the other files are what it does with what it hears.

mod act;
mod admission;
mod clock;
mod clock_file;
mod departure;
mod health;
mod hold;
mod manual;
mod notify;
mod presence;
mod recovery;
mod registry;
mod resources;
mod rivals;
mod runs;
mod say;
mod serve;
mod shutdown;
mod startup;
mod store_clock;
mod tasks;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::core::{ClaimContext, ClaimId, Core, JobIx, Policy};
use super::finisher::Finisher;
use super::spool::Spool;
use super::turns::RequestTurns;
use crate::config::{Job, JobList};
use crate::guard::Guard;
use crate::lease::Watchdog;
use crate::names::{HostName, JobName};
use crate::preflight::Subject;
use crate::run::{Starts, Stop, Tools, inherited};
use crate::schedule::ticker::TickerError;
use crate::schedule::ticker::board::Board;
use crate::siblings::{self, Siblings};
use crate::store::{self, Fingerprint, KeyFault, StoreError, StoreSettings};
use crate::time::{BootInstant, Timestamp};
use act::OutstandingClaim;
use admission::HeldJobs;
pub(super) use admission::{HeldBack, Neighbour};
pub use clock::HostClock;
use clock_file::ClockFile;
use departure::LastAnswer;
use health::StoreHealth;
use notify::Manager;
use registry::Registry;
pub(super) use registry::RegistryNews;
use resources::Resources;
use rivals::Agreement;
pub(super) use rivals::Rival;
use runs::Runs;
use shutdown::Shutdown;
use startup::Startup;
pub use store_clock::{Epoch, StoreClock};
use tasks::TaskContext;

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
    /// The store did not take the last verdicts, and they could not be kept either.
    #[error(
        "{lost} lost at the end (each is named above): not delivered to the store, and not \
         written to {place}: {source}"
    )]
    VerdictsLost {
        /// How many.
        lost: String,
        /// Where they were to be kept.
        place: String,
        /// Why they were not.
        source: io::Error,
    },
    /// Runs that resist SIGKILL: nobody records how they end.
    #[error(
        "{0} did not end, so the result is not recorded (each run is named above); other hosts \
         record interrupted when the lease expires"
    )]
    RunsAbandoned(String),
    /// The guard is gone; a service manager should start the daemon again.
    #[error("the guard process has died: all jobs were killed")]
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
    link: TaskContext,
    health: StoreHealth,
    /// Until when the store grants nothing, because it may have lost data.
    recovers: Option<BootInstant>,
    registry: Registry,
    admission: HeldJobs,
    /// Whether all live hosts use the same servers.
    agreement: Agreement,
    finisher: Finisher,
    spool: Spool,
    tools: Tools,
    stop: watch::Sender<Stop>,
    tickets: HashMap<ClaimId, OutstandingClaim>,
    to_register: Vec<JobIx>,
    /// The jobs whose keys cannot be used.
    on_hold: HashMap<JobIx, KeyFault>,
    runs: Runs,
    /// Words of this host that are under way.
    announcements: JoinSet<()>,
    running: usize,
    resources: Resources,
    manager: Manager,
    is_ready: bool,
    said_status: String,
    rounds: u32,
    /// When the loop last did anything: a gap is a pause of the daemon.
    last_seen: Option<BootInstant>,
    clock: HostClock,
    clock_file: ClockFile,
    /// The ticker's instants, once it has started.
    board: Option<Arc<Board>>,
    shutdown: Option<Shutdown>,
    /// The store has registered jobs: its settings are right.
    was_served: bool,
    /// Why the list cannot work, if so; the daemon ends with it.
    wrong_list: Option<StoreError>,
}

/// Runs the daemon until it is told to stop.
pub(crate) async fn run(setup: Setup) -> Result<(), DaemonError> {
    let processes = setup.guard.serve()?;
    let subject = Subject {
        list: Some(setup.list.clone()),
        settings: setup.settings.clone(),
        host: setup.host.clone(),
    };
    if setup.settings.refuses_to_wait() {
        ask_first(&setup.settings).await?;
    }
    if setup.list.strict {
        if startup::look_first(&subject, &processes).await? == Startup::Stop {
            return Ok(());
        }
    } else {
        tokio::spawn(startup::look_beside(subject));
    }
    let store = store::open(&setup.settings)?;
    let watchdog = Watchdog::start(&setup.settings, Some(Box::new(processes.deadlines())))?;
    let (inbox, messages) = mpsc::unbounded_channel();
    let health = StoreHealth::new();
    let started_at = Timestamp::now();
    let place = siblings::ListUse::of(&setup.list, &setup.settings);
    let siblings = Siblings::join(place, &setup.host, started_at);
    let link = TaskContext {
        store: Arc::clone(&store),
        inbox: inbox.clone(),
        health: health.watch(),
        turns: RequestTurns::of_claims(),
        last_answer: LastAnswer::default(),
        siblings,
    };
    let (present, host) = (Arc::clone(&store), setup.host.clone());
    // Until the process ends: `init` must find a daemon that drains, too.
    tokio::spawn(async move { present.attend(&host).await });
    let spool = Spool::of(&setup.host, &setup.settings);
    let finisher = Finisher::start(store, spool.clone(), inbox);
    let tools = Tools {
        store: Arc::clone(&link.store),
        processes: processes.clone(),
        watchdog,
        environment: Arc::new(inherited(&setup.list.secret_variables)),
        starts: Starts::default(),
    };
    let list = setup.list;
    let shared = !matches!(setup.settings, StoreSettings::Sqlite { .. });
    let place = ClaimContext {
        host: &setup.host,
        shared,
        spread: list.spread,
    };
    let clock_file = ClockFile::of(&spool, &setup.host, &setup.settings);
    let clock = HostClock::start(list.max_clock_skew, shared, &clock_file);
    let now = clock.now();
    let all = list.jobs.len();
    let jobs = jobs_of(list.jobs, &setup.host);
    let daemon = Daemon {
        core: Core::new(
            jobs.iter().map(|job| Policy::of(job, place)),
            list.max_running,
            now,
        ),
        names: by_name(&jobs),
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
        registry: Registry::default(),
        admission: HeldJobs::default(),
        agreement: Agreement::Unknown,
        finisher,
        spool,
        tools,
        stop: watch::channel(Stop::Not).0,
        tickets: HashMap::new(),
        on_hold: HashMap::new(),
        runs: Runs::default(),
        announcements: JoinSet::new(),
        running: 0,
        resources: Resources::default(),
        manager: Manager::from_env(),
        is_ready: false,
        said_status: String::new(),
        rounds: 0,
        last_seen: None,
        clock,
        clock_file,
        board: None,
        shutdown: None,
        was_served: false,
        wrong_list: None,
    };
    daemon.say_hello(all, &list.path.display().to_string(), &setup.settings);
    daemon.serve(messages, processes).await
}

/// The jobs that this host runs.
fn jobs_of(list: Vec<Job>, host: &HostName) -> Vec<Arc<Job>> {
    let mine = |job: &Job| job.enabled && job.hosts.matches(host);
    list.into_iter().filter(mine).map(Arc::new).collect()
}

fn by_name(jobs: &[Arc<Job>]) -> HashMap<JobName, JobIx> {
    let named = (0..).map(JobIx).zip(jobs);
    named.map(|(ix, job)| (job.name.clone(), ix)).collect()
}

/// Fails unless the store answers (`at_start: refuse`).
async fn ask_first(settings: &StoreSettings) -> Result<(), DaemonError> {
    let asked = store::open(settings)?.now().await;
    asked.map(drop).map_err(|error| match error {
        StoreError::WrongList(_) => DaemonError::Store(error),
        _ => DaemonError::NoMajority(error),
    })
}

impl Daemon {
    fn say_hello(&self, all: usize, path: &str, settings: &StoreSettings) {
        let (mine, here) = (shutdown::counted(self.jobs.len(), "job"), self.jobs.len());
        let others = match all - here {
            0 => String::new(),
            1 => " (1 more is disabled or meant for other hosts)".to_owned(),
            n => format!(" ({n} more are disabled or meant for other hosts)"),
        };
        tracing::info!(
            host = %self.host,
            version = env!("CARGO_PKG_VERSION"),
            "{mine} of {path}{others}; store {}",
            settings.shown()
        );
    }
}
