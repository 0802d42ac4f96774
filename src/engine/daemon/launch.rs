//! Builds a daemon from its list, settings and guard, and runs it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::admission::HeldJobs;
use super::agreement::Agreement;
use super::clock::HostClock;
use super::clock_file::ClockFile;
use super::error::DaemonError;
use super::fleet::OwnList;
use super::front::{Front, FrontSetup};
use super::health::StoreHealth;
use super::last_answer::LastAnswer;
use super::list_source::{ListSource, LoadedList, WatchMode};
use super::message::Message;
use super::namesake::ReplacedNamesake;
use super::outstanding::OutstandingClaims;
use super::registry::Registry;
use super::reload::{self, Reloads};
use super::replace::ListSettings;
use super::report::LastWaits;
use super::requests::{ReceivedRequests, UnscheduledJobs};
use super::resources::Resources;
use super::runs::Runs;
use super::service_manager::ServiceManager;
use super::spare_memory::SpareMemory;
use super::startup::{self, Startup};
use super::tasks::TaskContext;
use super::{Daemon, DaemonSetup, by_name};
use crate::config::{Job, JobList, OutputPolicy, Revision, state_directory};
use crate::engine::core::{ClaimContext, Core, Event, JobIx, Now, Policy};
use crate::engine::finisher::{Finisher, FinisherNotice};
use crate::engine::reporter::Reporter;
use crate::engine::spool::Spool;
use crate::engine::turns::RequestTurns;
use crate::ground::tasks;
use crate::guard::Processes;
use crate::lease::Watchdog;
use crate::metrics::Metrics;
use crate::names::HostName;
use crate::notify::{NotifiedList, Notifier, NotifierSetup, Role};
use crate::output::{self, OutputKeeper};
use crate::preflight::Subject;
use crate::run::{PendingClaims, Starts, Stop, Tools, inherited};
use crate::siblings::{self, Siblings};
use crate::store::{self, Fingerprint, Store, StoreError, StoreSettings};
use crate::time::{BootInstant, Timestamp};

/// Runs the daemon until it is told to stop.
pub(crate) async fn run(setup: DaemonSetup) -> Result<(), DaemonError> {
    // First, because the checks of the store may last as long as it is unreachable.
    let front = Front::start(FrontSetup::of(&setup), &setup.loaded.list)?;
    let DaemonSetup {
        loaded,
        source,
        watch,
        host,
        guard,
        manager,
        metrics_file,
        views: _,
    } = setup;
    let processes = guard.serve()?;
    if check_first(&loaded, &host, &processes, &manager).await? == Startup::Stop {
        return Ok(());
    }
    let (inbox, messages) = mpsc::unbounded_channel();
    let path = loaded.list.path.display().to_string();
    let (settings, revision) = (loaded.settings.clone(), loaded.revision.clone());
    let files = Arc::clone(&source);
    let store = front.metrics().measure(store::open(&settings)?);
    let parts = DaemonParts {
        front: front.keep_file(metrics_file, &store),
        store,
        source,
        host,
        manager,
        processes: processes.clone(),
        inbox: inbox.clone(),
    };
    let daemon = new_daemon(start(loaded, parts)?);
    watch_files(watch, files, revision, &inbox);
    daemon.say_hello(&path, &settings);
    Box::pin(daemon.serve(messages, processes)).await
}

/// What a daemon is built from, besides its list.
struct DaemonParts {
    /// Shows the daemon over HTTP and in the metrics file.
    front: Box<Front>,
    store: Arc<dyn Store>,
    source: Arc<dyn ListSource>,
    host: HostName,
    manager: ServiceManager,
    processes: Processes,
    inbox: mpsc::UnboundedSender<Message>,
}

/// What a daemon is made of once its threads and tasks have started.
struct StartedParts {
    front: Box<Front>,
    manager: ServiceManager,
    host: HostName,
    reloads: Reloads,
    settings: ListSettings,
    fingerprint: Fingerprint,
    listed: Option<Arc<OwnList>>,
    secrets: BTreeSet<String>,
    /// Those that this host schedules, by their places.
    jobs: BTreeMap<JobIx, Arc<Job>>,
    unscheduled: UnscheduledJobs,
    core: Core,
    link: TaskContext,
    health: StoreHealth,
    finisher: Finisher,
    spool: Spool,
    tools: Tools,
    clock: HostClock,
    clock_file: ClockFile,
    started_at: Timestamp,
    up_since: BootInstant,
}

/// Starts the daemon's threads and tasks.
fn start(loaded: LoadedList, parts: DaemonParts) -> Result<StartedParts, DaemonError> {
    let LoadedList {
        list,
        settings,
        revision,
    } = loaded;
    let DaemonParts {
        front,
        store,
        source,
        host,
        manager,
        processes,
        inbox,
    } = parts;
    let metrics = front.metrics().clone();
    let watchdog = start_watchdog(&settings, &processes, &metrics)?;
    let health = StoreHealth::new();
    let siblings = join_siblings(&list, &settings, &host);
    let reloads = Reloads::new(source, &list, &settings, revision);
    let list_settings = ListSettings::of(&list);
    let listed = OwnList::of(&list);
    let (jobs, unscheduled) = UnscheduledJobs::apart(list.jobs, &host);
    let environment = Arc::new(inherited(&list.secret_variables));
    let notified = NotifiedList {
        targets: list.notify,
        jobs: unscheduled.with_scheduled(&jobs),
        keep: list.history.records,
        environment: Arc::clone(&environment),
    };
    let reporter = start_reporter(notified, &store, &host, metrics)?;
    let link = link_of((&store, &inbox), &health, siblings, &reporter);
    stay_present(&store, &host);
    let spool = Spool::of(&host, &settings);
    let finisher = start_finisher(store, spool.clone(), inbox, reporter);
    let clock_file = ClockFile::of(&spool, &host, &settings);
    let clock = HostClock::start(list.max_clock_skew, reloads.is_shared(), &clock_file);
    let tools = Tools {
        store: Arc::clone(&link.store),
        processes,
        watchdog,
        environment,
        pending_claims: PendingClaims::default(),
        starts: Starts::default(),
        outputs: start_outputs(list.output)?,
        clock: clock.time_source(),
    };
    let now = clock.now();
    let context = ClaimContext {
        host: &host,
        shared: reloads.is_shared(),
        spread: list.spread,
        max_running: list.max_running,
    };
    let core = new_core(&jobs, context, now);
    Ok(StartedParts {
        front,
        manager,
        reloads,
        settings: list_settings,
        fingerprint: list.fingerprint,
        listed,
        secrets: list.secret_variables,
        jobs: (0..).map(JobIx).zip(jobs).collect(),
        unscheduled,
        core,
        link,
        health,
        finisher,
        spool,
        tools,
        clock,
        clock_file,
        started_at: now.utc,
        up_since: now.boot,
        host,
    })
}

/// Returns the state of the daemon's loop before its first event.
fn new_daemon(parts: StartedParts) -> Daemon {
    let jobs = parts.jobs;
    Daemon {
        core: parts.core,
        names: by_name(&jobs),
        to_register: jobs.keys().copied().collect(),
        waits_for_earlier: false,
        next_job: u32::try_from(jobs.len()).unwrap_or(u32::MAX),
        jobs,
        requests: ReceivedRequests::of(parts.unscheduled),
        removed: HashMap::new(),
        reloads: parts.reloads,
        front: parts.front,
        host: parts.host,
        config: parts.fingerprint,
        listed: parts.listed,
        fleet: Box::default(),
        settings: parts.settings,
        secrets: parts.secrets,
        started_at: parts.started_at,
        up_since: parts.up_since,
        link: parts.link,
        health: parts.health,
        recovers: None,
        registry: Registry::default(),
        admission: HeldJobs::default(),
        agreement: Agreement::Unknown,
        namesakes: Box::default(),
        finisher: parts.finisher,
        spool: parts.spool,
        claims: OutstandingClaims::new(parts.tools.pending_claims.clone()),
        tools: parts.tools,
        stop: watch::channel(Stop::Not).0,
        unusable: HashMap::new(),
        last_waits: LastWaits::default(),
        runs: Runs::default(),
        announcements: JoinSet::new(),
        resources: Resources::default(),
        manager: parts.manager,
        is_ready: false,
        said_status: String::new(),
        spare_memory: SpareMemory::default(),
        rounds: 0,
        last_seen: None,
        clock: parts.clock,
        clock_file: parts.clock_file,
        board: None,
        shutdown: None,
        was_served: false,
        wrong_list: None,
    }
}

/// Makes this daemon known to the others of its machine.
fn join_siblings(list: &JobList, settings: &StoreSettings, host: &HostName) -> Siblings {
    let used = siblings::ListUse::of(list, settings);
    Siblings::join(used, host, Timestamp::now())
}

/// Starts what keeps the output of runs, in the state directory.
fn start_outputs(policy: OutputPolicy) -> io::Result<OutputKeeper> {
    let directory = state_directory().map(|state| output::directory_in(&state));
    OutputKeeper::start(directory, policy)
}

fn new_core(jobs: &[Arc<Job>], context: ClaimContext<'_>, now: Now) -> Core {
    let policies = jobs.iter().map(|job| Policy::of(job, context));
    Core::new(policies, context.max_running, now)
}

/// Returns what all tasks use to reach the store and the loop.
fn link_of(
    (store, inbox): (&Arc<dyn Store>, &mpsc::UnboundedSender<Message>),
    health: &StoreHealth,
    siblings: Siblings,
    reporter: &Reporter,
) -> TaskContext {
    TaskContext {
        store: Arc::clone(store),
        inbox: inbox.clone(),
        health: health.watch(),
        turns: RequestTurns::of_claims(),
        last_answer: LastAnswer::default(),
        siblings,
        replaced_namesake: ReplacedNamesake::default(),
        earlier: Arc::default(),
        reporter: reporter.clone(),
    }
}

/// Starts notifications, and has the jobs counted.
fn start_reporter(
    list: NotifiedList,
    store: &Arc<dyn Store>,
    host: &HostName,
    metrics: Metrics,
) -> io::Result<Reporter> {
    metrics.set_jobs(&list.jobs);
    let notifier = Notifier::start(NotifierSetup {
        list,
        store: Arc::clone(store),
        host: host.clone(),
        role: Role::Daemon,
    })?;
    Ok(Reporter {
        notifier,
        metrics,
        host: host.clone(),
    })
}

/// Starts the task that delivers results. What it reports goes to the loop.
fn start_finisher(
    store: Arc<dyn Store>,
    spool: Spool,
    inbox: mpsc::UnboundedSender<Message>,
    reporter: Reporter,
) -> Finisher {
    let notices = move |notice| {
        let _ = inbox.send(match notice {
            FinisherNotice::RunClosed(job) => Message::Core(Event::RunClosed { job }),
            FinisherNotice::StoreFailed(error) => Message::StoreFailed(error),
        });
    };
    Finisher::start(store, spool, notices, reporter)
}

/// Starts the thread that renews leases, on a measured store of its own.
fn start_watchdog(
    settings: &StoreSettings,
    processes: &Processes,
    metrics: &Metrics,
) -> io::Result<Watchdog> {
    let (settings, metrics) = (settings.clone(), metrics.clone());
    let open = move || Ok(metrics.measure(store::open(&settings)?));
    Watchdog::start_on(open, Some(Box::new(processes.deadlines())))
}

/// With `run --watch`, reloads the list when its files change.
fn watch_files(
    watch: WatchMode,
    source: Arc<dyn ListSource>,
    revision: Revision,
    inbox: &mpsc::UnboundedSender<Message>,
) {
    if watch == WatchMode::Files {
        tasks::spawn(reload::watch(source, revision, inbox.clone()));
    }
}

/// Lets `init` find this daemon until the process ends, also while it drains.
fn stay_present(store: &Arc<dyn Store>, host: &HostName) {
    let (store, host) = (Arc::clone(store), host.clone());
    tasks::spawn(async move { store.attend(&host).await });
}

/// Runs the checks that the start depends on, and starts a task for the others.
async fn check_first(
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
    tasks::spawn(startup::look_beside(subject));
    Ok(Startup::Go)
}

/// Fails unless the store is reachable (`at_start: refuse`).
async fn ask_first(settings: &StoreSettings) -> Result<(), DaemonError> {
    let asked = store::open(settings)?.now().await;
    asked.map(drop).map_err(|error| match error {
        StoreError::WrongList(_) => DaemonError::Store(error),
        _ => DaemonError::NoMajority(error),
    })
}
