//! The daemon's loop: it carries events to the core and the core's actions to tasks.
//!
//! [`serve`] is the loop; the other files handle its messages.

mod act;
mod admission;
mod agreement;
mod clock;
mod clock_file;
mod error;
mod fleet;
mod front;
mod health;
mod held_back;
mod last_answer;
mod launch;
mod list_source;
mod manual;
mod message;
mod namesake;
mod newcomer;
mod outstanding;
mod presence;
mod recovery;
mod registry;
mod reload;
mod replace;
mod report;
mod request_tasks;
mod requests;
mod resources;
mod rival;
mod runs;
mod serve;
mod service_manager;
mod shutdown;
mod spare_memory;
mod startup;
mod store_clock;
mod tasks;
mod unusable_keys;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::ahead::claims_ahead;
use super::core::{Core, JobIx};
use super::finisher::Finisher;
use super::spool::Spool;
use crate::config::Job;
use crate::guard::Guard;
use crate::http::Views;
use crate::metrics::MetricsFile;
use crate::names::{HostName, JobName};
use crate::run::{Stop, Tools};
use crate::schedule::ticker::TickerJob;
use crate::schedule::ticker::board::Board;
use crate::store::{Fingerprint, KeyFault, StoreError, StoreSettings};
use crate::time::{BootInstant, Timestamp};
use admission::HeldJobs;
use agreement::Agreement;
pub use clock::{ClockTrust, HostClock};
use clock_file::ClockFile;
pub(crate) use error::DaemonError;
use fleet::{OtherHosts, OwnList};
use front::Front;
use health::StoreHealth;
pub(crate) use launch::run;
pub(crate) use list_source::{ListErrors, ListSource, LoadedList, WatchMode};
use namesake::Namesakes;
use outstanding::OutstandingClaims;
use registry::Registry;
use reload::Reloads;
use replace::ListSettings;
use report::LastWaits;
use requests::ReceivedRequests;
use resources::Resources;
use runs::Runs;
pub(crate) use service_manager::ServiceManager;
use shutdown::Shutdown;
use spare_memory::SpareMemory;
pub(crate) use spare_memory::{limit_arenas, limit_free_memory};
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
    /// Where metrics are written, besides `/metrics`.
    pub(crate) metrics_file: Option<MetricsFile>,
    /// Makes what the HTTP server shows.
    pub(crate) views: Arc<dyn Views>,
    /// Started before any thread.
    pub(crate) guard: Guard,
    /// Where the state of the daemon is reported: service manager and health file.
    pub(crate) manager: ServiceManager,
}

struct Daemon {
    core: Core,
    /// The jobs of the list that are this host's.
    jobs: BTreeMap<JobIx, Arc<Job>>,
    names: Arc<HashMap<JobName, JobIx>>,
    /// What people ask for.
    requests: ReceivedRequests,
    /// The last places of jobs that a reload removed while something was running.
    removed: HashMap<JobName, JobIx>,
    /// The place of the next job that is new.
    next_job: u32,
    reloads: Reloads,
    front: Box<Front>,
    host: HostName,
    config: Fingerprint,
    /// The list, for those who compare lists.
    listed: Option<Arc<OwnList>>,
    fleet: Box<OtherHosts>,
    settings: ListSettings,
    /// The variables that jobs do not inherit.
    secrets: BTreeSet<String>,
    started_at: Timestamp,
    up_since: BootInstant,
    link: TaskContext,
    health: StoreHealth,
    /// Until when the store grants nothing, because it may have lost data.
    recovers: Option<BootInstant>,
    registry: Registry,
    admission: HeldJobs,
    /// Whether all live hosts use the same servers.
    agreement: Agreement,
    namesakes: Box<Namesakes>,
    finisher: Finisher,
    spool: Spool,
    tools: Tools,
    stop: watch::Sender<Stop>,
    claims: OutstandingClaims,
    to_register: Vec<JobIx>,
    /// The next registration waits until those of an earlier list have ended.
    waits_for_earlier: bool,
    /// The jobs whose keys in the store cannot be used.
    unusable: HashMap<JobIx, KeyFault>,
    last_waits: LastWaits,
    runs: Runs,
    /// Announcements of this host that are being sent.
    announcements: JoinSet<()>,
    resources: Resources,
    manager: ServiceManager,
    is_ready: bool,
    said_status: String,
    spare_memory: SpareMemory,
    rounds: u32,
    /// When the loop last did anything: a gap is a pause of the daemon.
    last_seen: Option<BootInstant>,
    clock: HostClock,
    clock_file: ClockFile,
    /// The ticker's instants, once it has started.
    board: Option<Arc<Board>>,
    shutdown: Option<Shutdown>,
    /// Whether the store has registered jobs, so that its settings are valid.
    was_served: bool,
    /// Why the list cannot be used with this store; the daemon then exits with this error.
    wrong_list: Option<StoreError>,
}

fn by_name(jobs: &BTreeMap<JobIx, Arc<Job>>) -> Arc<HashMap<JobName, JobIx>> {
    let named = jobs.iter().map(|(ix, job)| (job.name.clone(), *ix));
    Arc::new(named.collect())
}

impl Daemon {
    /// Returns the job for the ticker, which fires the occurrences that may start after `from`.
    fn ticker_job(&self, job: &Arc<Job>, from: Timestamp) -> TickerJob {
        TickerJob {
            name: job.name.clone(),
            schedule: job.schedule.clone(),
            delay: job.delay(),
            claims_ahead: claims_ahead(job, self.claim_context()),
            from: from.minus(job.delay()),
        }
    }

    fn say_hello(&self, path: &str, settings: &StoreSettings) {
        let mine = shutdown::counted(self.jobs.len(), "job");
        let others = match self.requests.unscheduled_jobs() {
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
