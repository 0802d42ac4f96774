//! The daemon's loop: it carries events to the core and the core's actions to tasks.
//!
//! [`serve`] is the loop; the other files handle its messages.

mod act;
mod admission;
mod clock;
mod clock_file;
mod front;
mod health;
mod held_back;
mod hold;
mod last_answer;
mod list_source;
mod manual;
mod newcomer;
mod notify;
mod presence;
mod recovery;
mod registry;
mod reload;
mod replace;
mod report;
mod resources;
mod rival;
mod rivals;
mod runs;
mod serve;
mod shutdown;
mod startup;
mod store_clock;
mod tasks;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::core::{ClaimContext, ClaimId, Core, JobIx, Policy};
use super::finisher::Finisher;
use super::message::Message;
use super::spool::Spool;
use super::turns::RequestTurns;
use crate::config::{Job, OutputPolicy, Revision, state_directory};
use crate::guard::{Guard, Processes};
use crate::http::{HttpError, Views};
use crate::lease::Watchdog;
use crate::names::{HostName, JobName};
use crate::notify::{NotifiedList, Notifier, NotifierSetup, Role};
use crate::output::{self, OutputKeeper};
use crate::preflight::Subject;
use crate::run::{JobEnvironment, Starts, Stop, Tools, inherited};
use crate::schedule::ticker::board::Board;
use crate::schedule::ticker::{TickerError, TickerJob};
use crate::siblings::{self, Siblings};
use crate::store::{self, Fingerprint, KeyFault, Store, StoreError, StoreSettings};
use crate::time::{BootInstant, Timestamp};
use act::OutstandingClaim;
use admission::HeldJobs;
pub use clock::HostClock;
use clock_file::ClockFile;
use front::{Front, FrontSetup};
use health::StoreHealth;
pub(super) use held_back::{HeldBack, Neighbour};
use last_answer::LastAnswer;
pub(super) use list_source::ListRead;
pub(crate) use list_source::{ListErrors, ListSource, LoadedList, WatchMode};
pub(super) use newcomer::RegistryNews;
pub(crate) use notify::ServiceManager;
use registry::Registry;
use reload::Reloads;
use replace::ListSettings;
use resources::Resources;
pub(super) use rival::Rival;
use rivals::Agreement;
use runs::Runs;
use shutdown::Shutdown;
use startup::Startup;
pub use store_clock::{Epoch, StoreClock};
use tasks::TaskContext;

/// What a daemon is made from.
#[derive(Debug)]
pub(crate) struct DaemonSetup {
    /// The job list and the store.
    pub(crate) loaded: LoadedList,
    /// Where the list is read again from.
    pub(crate) source: Arc<dyn ListSource>,
    /// Whether it is read again when its files change.
    pub(crate) watch: WatchMode,
    /// This host.
    pub(crate) host: HostName,
    /// Makes what the HTTP server shows.
    pub(crate) views: Arc<dyn Views>,
    /// Started before any thread.
    pub(crate) guard: Guard,
    /// Who is told how the daemon is.
    pub(crate) manager: ServiceManager,
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
    /// The HTTP server cannot be started.
    #[error(transparent)]
    Http(#[from] HttpError),
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
    /// The jobs of the list that are this host's.
    jobs: BTreeMap<JobIx, Arc<Job>>,
    names: HashMap<JobName, JobIx>,
    /// The last places of jobs that a reload removed while something was running.
    removed: HashMap<JobName, JobIx>,
    /// The place of the next job that is new.
    next_job: u32,
    reloads: Reloads,
    front: Box<Front>,
    host: HostName,
    config: Fingerprint,
    settings: ListSettings,
    /// The variables that jobs do not inherit.
    secrets: BTreeSet<String>,
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
    /// The claims that are out, or were granted and are not yet acted on.
    claims: HashMap<ClaimId, OutstandingClaim>,
    to_register: Vec<JobIx>,
    /// The next registration waits until those that went out under an earlier list are over.
    waits_for_earlier: bool,
    /// The jobs whose keys cannot be used.
    on_hold: HashMap<JobIx, KeyFault>,
    runs: Runs,
    /// Words of this host that are under way.
    announcements: JoinSet<()>,
    resources: Resources,
    manager: ServiceManager,
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
pub(crate) async fn run(setup: DaemonSetup) -> Result<(), DaemonError> {
    // Before the store is looked at, which may take as long as it is away.
    let front = Front::start(FrontSetup::of(&setup), &setup.loaded.list)?;
    let processes = setup.guard.serve()?;
    if look(&setup.loaded, &setup.host, &processes, &setup.manager).await? == Startup::Stop {
        return Ok(());
    }
    let LoadedList {
        list,
        settings,
        revision,
    } = setup.loaded;
    let store = store::open(&settings)?;
    let watchdog = Watchdog::start(&settings, Some(Box::new(processes.deadlines())))?;
    let (inbox, messages) = mpsc::unbounded_channel();
    let health = StoreHealth::new();
    let started_at = Timestamp::now();
    let place = siblings::ListUse::of(&list, &settings);
    let siblings = Siblings::join(place, &setup.host, started_at);
    let source = Arc::clone(&setup.source);
    let reloads = Reloads::new(source, &list, &settings, revision.clone());
    let all = list.jobs.len();
    let list_settings = ListSettings::of(&list);
    let jobs = jobs_of(list.jobs, &setup.host);
    let environment = Arc::new(inherited(&list.secret_variables));
    let notified = NotifiedList {
        targets: list.notify,
        jobs: jobs.clone(),
        keep: list.history.records,
        environment: Arc::clone(&environment),
    };
    let notifier = start_notifier(notified, &store, &setup.host)?;
    let link = link_of((&store, &inbox), &health, siblings, &notifier);
    watch_files(setup.watch, setup.source, revision, &inbox);
    stay_present(&store, &setup.host);
    let spool = Spool::of(&setup.host, &settings);
    let finisher = Finisher::start(store, spool.clone(), inbox, notifier);
    let outputs = start_outputs(list.output)?;
    let tools = tools_of(&link, &processes, watchdog, (environment, outputs));
    let place = ClaimContext {
        host: &setup.host,
        shared: reloads.is_shared(),
        spread: list.spread,
    };
    let clock_file = ClockFile::of(&spool, &setup.host, &settings);
    let clock = HostClock::start(list.max_clock_skew, reloads.is_shared(), &clock_file);
    let now = clock.now();
    let jobs: BTreeMap<_, _> = (0..).map(JobIx).zip(jobs).collect();
    let daemon = Daemon {
        core: Core::new(
            jobs.values().map(|job| Policy::of(job, place)),
            list.max_running,
            now,
        ),
        names: by_name(&jobs),
        to_register: jobs.keys().copied().collect(),
        waits_for_earlier: false,
        next_job: u32::try_from(jobs.len()).unwrap_or(u32::MAX),
        jobs,
        removed: HashMap::new(),
        reloads,
        front,
        host: setup.host,
        config: list.fingerprint,
        settings: list_settings,
        secrets: list.secret_variables,
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
        claims: HashMap::new(),
        on_hold: HashMap::new(),
        runs: Runs::default(),
        announcements: JoinSet::new(),
        resources: Resources::default(),
        manager: setup.manager,
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
    daemon.say_hello(all, &list.path.display().to_string(), &settings);
    daemon.serve(messages, processes).await
}

/// Starts what keeps the output of runs, in the state directory.
fn start_outputs(policy: OutputPolicy) -> io::Result<OutputKeeper> {
    let directory = state_directory().map(|state| output::directory_in(&state));
    OutputKeeper::start(directory, policy)
}

/// The way of all tasks to store and loop.
fn link_of(
    (store, inbox): (&Arc<dyn Store>, &mpsc::UnboundedSender<Message>),
    health: &StoreHealth,
    siblings: Siblings,
    notifier: &Notifier,
) -> TaskContext {
    TaskContext {
        store: Arc::clone(store),
        inbox: inbox.clone(),
        health: health.watch(),
        turns: RequestTurns::of_claims(),
        last_answer: LastAnswer::default(),
        siblings,
        earlier: Arc::default(),
        notifier: notifier.clone(),
    }
}

/// What runs are made with.
fn tools_of(
    link: &TaskContext,
    processes: &Processes,
    watchdog: Watchdog,
    (environment, outputs): (Arc<JobEnvironment>, OutputKeeper),
) -> Tools {
    Tools {
        store: Arc::clone(&link.store),
        processes: processes.clone(),
        watchdog,
        environment,
        starts: Starts::default(),
        outputs,
    }
}

fn start_notifier(
    list: NotifiedList,
    store: &Arc<dyn Store>,
    host: &HostName,
) -> io::Result<Notifier> {
    Notifier::start(NotifierSetup {
        list,
        store: Arc::clone(store),
        host: host.clone(),
        role: Role::Daemon,
    })
}

/// Has the list read again when its files change, with `--watch`.
fn watch_files(
    watch: WatchMode,
    source: Arc<dyn ListSource>,
    revision: Revision,
    inbox: &mpsc::UnboundedSender<Message>,
) {
    if watch == WatchMode::Files {
        tokio::spawn(reload::watch(source, revision, inbox.clone()));
    }
}

/// Lets others find this daemon until the process ends: `init` must find a daemon that drains, too.
fn stay_present(store: &Arc<dyn Store>, host: &HostName) {
    let (store, host) = (Arc::clone(store), host.clone());
    tokio::spawn(async move { store.attend(&host).await });
}

/// The checks of a start: those that it depends on first, the others beside it.
async fn look(
    loaded: &LoadedList,
    host: &HostName,
    processes: &Processes,
    manager: &ServiceManager,
) -> Result<Startup, DaemonError> {
    let subject = Subject {
        list: Some(loaded.list.clone()),
        settings: loaded.settings.clone(),
        host: host.clone(),
    };
    if subject.settings.refuses_to_wait() {
        ask_first(&subject.settings).await?;
    }
    if subject.list.as_ref().is_some_and(|list| list.strict) {
        return startup::look_first(&subject, processes, manager).await;
    }
    tokio::spawn(startup::look_beside(subject));
    Ok(Startup::Go)
}

/// The jobs that this host runs.
fn jobs_of(list: Vec<Job>, host: &HostName) -> Vec<Arc<Job>> {
    let mine = |job: &Job| job.enabled && job.hosts.matches(host);
    list.into_iter().filter(mine).map(Arc::new).collect()
}

fn by_name(jobs: &BTreeMap<JobIx, Arc<Job>>) -> HashMap<JobName, JobIx> {
    let named = jobs.iter();
    named.map(|(ix, job)| (job.name.clone(), *ix)).collect()
}

/// The job as the ticker knows it, from then on.
fn ticker_job(job: &Job, from: Timestamp) -> TickerJob {
    TickerJob {
        name: job.name.clone(),
        schedule: job.schedule.clone(),
        delay: job.delay(),
        from,
    }
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
